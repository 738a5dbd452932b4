/* elastic.c: a process that `tutti run --workers` or `tutti join` has started follows the epochs of
   its run (tutti_elastic_open and what follows it in comm.h). It is the client of a follower for
   programs outside of this repository, too. Their state is bytes, an image of one piece; or it is
   an engine's (tutti.h), whose image then has those bytes as one piece more. Of that state each
   worker may have a part, as under zero. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collective/world.h"
#include "engine/image.h"
#include "follow.h"
#include "launch/launch.h"
#include "transport/registry.h"

struct tutti_elastic {
    tutti_runtime *rt;
    tutti_follower *follower;
    tutti_world *founders;  /* a founder's; NULL: a newcomer */
    tutti_launch_pass pass; /* a newcomer's */
    const char *contacts[TUTTI_LAUNCH_CONTACTS];
    int rank, tell_fd; /* among the workers of its launcher; its pipe */
    char host[TUTTI_ADDRESS_BYTES]; /* where its node listens; "": this machine only */
    char *about;       /* what it tells those that ask: a line of the launcher's, then facts */
    const tutti_image *last; /* on offer: what is left of the run, to be saved here; NULL: nothing */
    const tutti_image *begins; /* on offer: the state with which the epoch begins; NULL: step 0, or a
                                  step of the epoch was made */
    _Atomic bool leaves;
    bool failed; /* the others know that this process ends by an error */
};

/* ---- variables of the launcher ---- */

static tutti_status read_workers(tutti_follow_options *o, tutti_error *err)
{
    const char *text = getenv(TUTTI_LAUNCH_WORKERS);
    double seconds = 0;

    if (text == NULL || getenv(TUTTI_LAUNCH_TELL) == NULL || getenv("TUTTI_RANK") == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "this process is in no run whose workers come and go; start it by `tutti "
                          "run --workers FEWEST:MOST -n N -- COMMAND`");
    if (sscanf(text, "%d:%d:%lf", &o->least, &o->node.most, &seconds) != 3 || o->least < 1 ||
        o->least > o->node.most || !(seconds > 0 && seconds <= 1e9))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          TUTTI_LAUNCH_WORKERS " is '%.80s'; `tutti run --workers` sets it to "
                                               "FEWEST:MOST:SECONDS",
                          text);
    o->lack_ns = (int64_t)(seconds * 1e9);
    return TUTTI_OK;
}

/* Where the others reach this process. The port is the first founder's, as the address by which the
   run is known. */
static tutti_status read_node(tutti_elastic *m, tutti_node_options *o, tutti_error *err)
{
    const char *text = getenv(TUTTI_LAUNCH_NODE);
    int port = 0;

    if (text == NULL)
        return TUTTI_OK;
    if (sscanf(text, "%63s %d", m->host, &port) != 2 || port < 0 || port > 65535)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          TUTTI_LAUNCH_NODE " is '%.80s'; `tutti run --workers` sets it to HOST PORT",
                          text);
    o->host = m->host;
    o->port = m->rank == 0 && getenv(TUTTI_LAUNCH_JOIN) == NULL ? port : 0;
    return TUTTI_OK;
}

static tutti_status read_variables(tutti_elastic *m, tutti_follow_options *o, tutti_error *err)
{
    int most;

    TUTTI_TRY(read_workers(o, err));
    most = o->node.most;
    TUTTI_TRY(tutti_node_options_of(&o->node, environ, err));
    o->node.most = most;
    m->rank = atoi(getenv("TUTTI_RANK"));
    m->tell_fd = atoi(getenv(TUTTI_LAUNCH_TELL));
    return read_node(m, &o->node, err);
}

/* Founders meet in shared memory, and one that is started again has the pass. */
static tutti_status find_others(tutti_elastic *m, tutti_follow_options *o, tutti_error *err)
{
    const char *join = getenv(TUTTI_LAUNCH_JOIN);

    o->pass = getenv(TUTTI_LAUNCH_PASS);
    o->pass_stays = join != NULL; /* it may be a user's copy; the launcher that made it removes it */
    if (join == NULL) {
        TUTTI_TRY(tutti_world_open(&m->founders, "shm", err));
        o->founders = m->founders;
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_launch_pass_read(&m->pass, join, err));
    for (int k = 0; k < m->pass.n; k++)
        m->contacts[k] = m->pass.at[k];
    o->contacts = m->contacts;
    o->n = m->pass.n;
    return TUTTI_OK;
}

/* ---- facts ---- */

static tutti_status write_about(tutti_elastic *m, const char *facts, tutti_error *err)
{
    const char *workers = getenv(TUTTI_LAUNCH_WORKERS), *threads = getenv("OMP_NUM_THREADS");
    const int number = threads != NULL ? atoi(threads) : 1;
    const size_t bytes = strlen(facts) + 256;

    m->about = tutti_alloc(bytes, 1);
    if (m->about == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for what this run is");
    snprintf(m->about, bytes, TUTTI_LAUNCH_SCRIPT " %.80s %d\n%s", workers,
             number > 0 ? number : 1, facts);
    return TUTTI_OK;
}

/* The facts of an `about`, as they follow its first line. */
static const char *facts_of(const char *about)
{
    const char *end = strchr(about, '\n');

    return end != NULL ? end + 1 : "";
}

/* Writes the part of a line that is at text[at]. */
static void write_part(char part[], size_t bytes, const char *text, size_t at)
{
    const char *from = text + (at > 100 ? at - 60 : 0);

    snprintf(part, bytes, "%s%.*s", at > 100 ? "..." : "", (int)strcspn(from, "\n"), from);
}

/* Callback of the follower. Names the first line that differs. */
static tutti_status fits(void *user, const char *about, tutti_error *err)
{
    const char *mine = facts_of(((tutti_elastic *)user)->about), *theirs = facts_of(about);
    char here[150], there[150];
    size_t line = 0, k;

    for (k = 0; mine[k] == theirs[k]; k++) {
        if (mine[k] == '\0')
            return TUTTI_OK;
        if (mine[k] == '\n')
            line = k + 1;
    }
    write_part(here, sizeof here, mine + line, k - line);
    write_part(there, sizeof there, theirs + line, k - line);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "this worker does not fit the run: it has '%s', and the others have '%s'; all "
                      "run the same program with the same arguments",
                      here, there);
}

/* Writes a line to the launcher. */
static void tell(const tutti_elastic *m, const char *what)
{
    char line[TUTTI_LAUNCH_LINE];
    int n = snprintf(line, sizeof line, "%d %s\n", m->rank, what);

    if (n >= (int)sizeof line) {
        n = (int)sizeof line - 1;
        line[n - 1] = '\n';
    }
    if (write(m->tell_fd, line, (size_t)n) != n)
        return; /* the launcher has ended, and this process will */
}

/* ---- callbacks of the follower ---- */

static bool leaves(void *user)
{
    return ((tutti_elastic *)user)->leaves;
}

static void listens(void *user, const char *address)
{
    char what[80];

    snprintf(what, sizeof what, "at %s", address);
    tell(user, what);
}

static void say(void *user, const char *line)
{
    char what[TUTTI_LAUNCH_LINE];

    snprintf(what, sizeof what, "says %s", line);
    tell(user, what);
}

static void mends(void *user, bool saves, char *text, size_t bytes)
{
    (void)user;
    (void)saves;
    snprintf(text, bytes, "begin again, from what the script has saved");
}

/* The program saves it, or does not: it is not known here. */
static tutti_status note_last(void *user, const tutti_image *image, tutti_error *err)
{
    (void)err;
    ((tutti_elastic *)user)->last = image;
    return TUTTI_OK;
}

/* ---- opening, closing ---- */

tutti_status tutti_elastic_open(tutti_elastic **out, uint64_t most, const char *facts,
                                tutti_error *err)
{
    tutti_elastic *m = tutti_alloc(1, sizeof *m);
    tutti_follow_options o = {
        .most = most,
        .fits = fits,
        .leaves = leaves,
        .listens = listens,
        .say = say,
        .save = note_last,
        .saves_at_leave = true,
        .program_saves = true,
        .mends = mends,
        .user = m,
    };
    tutti_status status;

    *out = NULL;
    if (m == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the members of a run");
    m->tell_fd = -1;
    status = read_variables(m, &o, err);
    if (status == TUTTI_OK)
        status = write_about(m, facts != NULL ? facts : "", err);
    o.about = m->about;
    if (status == TUTTI_OK)
        status = tutti_runtime_open_posix(&m->rt, err);
    if (status == TUTTI_OK)
        status = find_others(m, &o, err);
    if (status == TUTTI_OK)
        status = tutti_follower_open(&m->follower, m->rt, &o, err);
    tutti_run_key_wipe(&o.node.key);
    if (status == TUTTI_OK)
        *out = m;
    else
        tutti_elastic_close(m, false);
    return status;
}

void tutti_elastic_close(tutti_elastic *m, bool ended)
{
    if (m == NULL)
        return;
    if (!ended)
        tutti_elastic_fail(m);
    if (ended) {
        tell(m, "ended");
        tutti_follower_tell_end(m->follower);
        tutti_follower_end(m->follower);
    }
    tutti_follower_close(m->follower);
    tutti_world_close(m->founders);
    tutti_run_key_wipe(&m->pass.key);
    tutti_free(m->about);
    tutti_runtime_close(m->rt);
    tutti_free(m);
}

/* Once: as it closes it needs not wait again. */
void tutti_elastic_fail(tutti_elastic *m)
{
    if (m->follower != NULL && !m->failed)
        tutti_follower_fail(m->follower);
    m->failed = true;
}

void tutti_elastic_leave(tutti_elastic *m)
{
    m->leaves = true;
}

int tutti_elastic_sockets(tutti_elastic *m, int *fds, int most)
{
    return tutti_follower_sockets(m->follower, fds, most);
}

/* ---- epochs ---- */

/* The client's piece of a state, and that of a number next to the pieces of an engine: the step by
   which the engine counts. A program that goes on from a checkpoint is at step 0 of its nodes. */
#define STATE "elastic"
#define ENGINE_STEP "elastic.step"

static const tutti_saved *find_piece(const tutti_image *image, const char *state)
{
    for (size_t k = 0; k < image->n; k++)
        if (strcmp(image->pieces[k].state, state) == 0)
            return &image->pieces[k];
    return NULL;
}

static tutti_saved piece_of(const char *state, tutti_dtype dtype, size_t count, const void *data)
{
    return (tutti_saved){ .state = state,
                          .tensor = "",
                          .dtype = dtype,
                          .keep = TUTTI_SAME,
                          .owner = -1,
                          .count = count,
                          .end = count,
                          .data = (void *)(uintptr_t)data };
}

static void take_state(tutti_elastic *m, tutti_elastic_epoch *epoch, const tutti_image *image)
{
    const tutti_saved *piece = image != NULL ? find_piece(image, STATE) : NULL;

    m->begins = image;
    if (piece != NULL) {
        epoch->state = piece->data;
        epoch->bytes = tutti_image_bytes(piece);
    }
}

/* Once. The world is of this process alone. */
static void give_last(tutti_elastic *m, tutti_elastic_epoch *epoch)
{
    static char *const nothing[] = { NULL }; /* variables of the launcher are of its run */
    const tutti_launch alone = { .size = 1, .spec = "tcp", .environment = nothing };
    tutti_error why = { .rank = -1 };
    const tutti_image *last = m->last;

    m->last = NULL;
    if (tutti_world_open_on(&epoch->world, tutti_transport_find("tcp"), &alone, NULL, &why) !=
        TUTTI_OK) {
        say(m, why.text);
        return;
    }
    epoch->step = last->step;
    take_state(m, epoch, last);
}

tutti_status tutti_elastic_next(tutti_elastic *m, tutti_elastic_epoch *epoch, tutti_error *err)
{
    tutti_turn turn;
    tutti_status status;

    *epoch = (tutti_elastic_epoch){ .world = NULL };
    status = tutti_follower_next(m->follower, &turn, err);
    if (status == TUTTI_ERR_USAGE)
        tell(m, "refused");
    if (m->last != NULL)
        give_last(m, epoch);
    if (status != TUTTI_OK || epoch->world != NULL)
        return status;
    if (turn.world != NULL) {
        char what[64];
        snprintf(what, sizeof what, "in %d %llu", tutti_world_rank(turn.world),
                 (unsigned long long)turn.epoch);
        tell(m, what);
    }
    epoch->world = turn.world;
    epoch->number = turn.epoch;
    epoch->step = turn.step;
    take_state(m, epoch, turn.image);
    return TUTTI_OK;
}

/* The follower may free the state with which the epoch began. */
bool tutti_elastic_commit(tutti_elastic *m, uint64_t step)
{
    m->begins = NULL;
    return tutti_follower_commit(m->follower, step);
}

bool tutti_elastic_acts(tutti_elastic *m)
{
    return tutti_follower_acts(m->follower);
}

void tutti_elastic_renew(tutti_elastic *m)
{
    tutti_follower_renew(m->follower);
}

tutti_status tutti_elastic_over(tutti_elastic *m, uint64_t step, const void *state, size_t bytes,
                                tutti_error *err)
{
    const tutti_image of = {
        .step = step, .world = 1, .workers = 1, .whole = true, .facts = (char[]){ "{}" }
    };
    const tutti_saved piece = piece_of(STATE, TUTTI_U8, bytes, state);
    tutti_image *image = NULL;

    if (state != NULL)
        TUTTI_TRY(tutti_image_copy(&image, &of, &piece, 1, err));
    m->begins = NULL;
    return tutti_follower_over(m->follower, image, NULL, err);
}

/* ---- the state of an engine ---- */

/* What is left of it, and of a neighbouring step, by the steps of the nodes. */
static tutti_status copy_state(tutti_engine *e, uint64_t step, const tutti_saved *own,
                               tutti_image *images[2], tutti_error *err)
{
    tutti_saved pieces[2] = { *own };
    int64_t by_engine;

    TUTTI_TRY(tutti_engine_image(e, "{}", &images[0], err));
    TUTTI_TRY(tutti_engine_image_beside(e, &images[1], err));
    by_engine = (int64_t)images[0]->step;
    pieces[1] = piece_of(ENGINE_STEP, TUTTI_I64, 1, &by_engine);
    TUTTI_TRY(tutti_image_add(images[0], pieces, 2, err));
    images[0]->step = step;
    if (images[1] != NULL)
        images[1]->step += step - (uint64_t)by_engine;
    return TUTTI_OK;
}

tutti_status tutti_elastic_engine_over(tutti_elastic *m, uint64_t step, tutti_engine *e,
                                       const void *state, size_t bytes, tutti_error *err)
{
    const tutti_saved own = piece_of(STATE, TUTTI_U8, bytes, state);
    tutti_image *images[2] = { NULL, NULL };
    const tutti_status status = copy_state(e, step, &own, images, err);

    if (status != TUTTI_OK) {
        tutti_image_close(images[0]);
        tutti_image_close(images[1]);
        return status;
    }
    m->begins = NULL;
    return tutti_follower_over(m->follower, images[0], images[1], err);
}

tutti_status tutti_elastic_engine_load(tutti_elastic *m, tutti_engine *e, tutti_error *err)
{
    const tutti_saved *by_engine = m->begins != NULL ? find_piece(m->begins, ENGINE_STEP) : NULL;
    tutti_image as_saved;
    tutti_checkpoint *checkpoint;
    tutti_status status;

    if (by_engine == NULL || by_engine->dtype != TUTTI_I64 || by_engine->count != 1)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the epoch began without the state of an engine, or a step of it was made; "
                          "load it before the first step, if the epoch has a state");
    as_saved = *m->begins;
    as_saved.step = *(const uint64_t *)by_engine->data;
    TUTTI_TRY(tutti_image_checkpoint(&checkpoint, &as_saved, err));
    status = tutti_engine_load(e, checkpoint, err);
    tutti_checkpoint_close(checkpoint);
    return status;
}
