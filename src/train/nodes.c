/* nodes.c: the trainer as the client of a process that follows the epochs of its node
   (elastic/follow.h): it trains in the world of each epoch, from the image that the epoch begins
   with, until that fails. The state that is left is an image, too. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "nodes_internal.h"
#include "model_file.h"
#include "say.h"
#include "trace_part.h"
#include "tutti/method.h"

/* ---- an epoch ---- */

/* Callback of the epoch. */
static bool commit(void *user, uint64_t step)
{
    return tutti_follower_commit(((node_trainer *)user)->follower, step);
}

/* Callback of the epoch. */
static bool lasts(void *user, uint64_t step)
{
    const node_trainer *t = user;

    (void)step;
    return (t->run->epoch.names == 0 || tutti_follower_stays(t->follower)) &&
           tutti_follower_acts(t->follower);
}

/* Callback of the epoch. */
static void divides(void *user)
{
    tutti_follower_renew(((node_trainer *)user)->follower);
}

static tutti_status train(node_trainer *t, tutti_error *err)
{
    tutti_run *run = t->run;

    TUTTI_TRY(tutti_train_loop(run, err));
    TUTTI_TRY(tutti_train_evaluate_final(run, err));
    TUTTI_TRY(tutti_train_results(run, err));
    TUTTI_TRY(tutti_barrier(&run->all, err)); /* all have seen that the files are there */
    t->ended = true;
    tutti_train_say_warnings(run);
    tutti_train_say_totals(run);
    return TUTTI_OK;
}

/* What the change took here, in seconds; NULL: this process was in no epoch before. */
static json_t *change_of(const node_trainer *t)
{
    const int64_t now = tutti_now_ns(t->run->rt);

    return t->failed_ns == 0
               ? NULL
               : json_pack("{s:f, s:f, s:f, s:f}", "close",
                           (double)(t->closed_ns - t->failed_ns) * 1e-9, "agree",
                           (double)(t->agreed_ns - t->closed_ns) * 1e-9, "meet",
                           (double)(t->met_ns - t->agreed_ns) * 1e-9, "open",
                           (double)(now - t->met_ns) * 1e-9);
}

/* How many logical shares each member computes; NULL: equally many. */
static json_t *shares_of(const tutti_run *run)
{
    json_t *shares = run->batch_of != NULL ? json_array() : NULL;

    for (int w = 0; w < run->workers && shares != NULL; w++)
        json_array_append_new(shares, json_integer((json_int_t)run->batch_of[w]));
    return shares;
}

static void say_epoch(tutti_run *run, const json_t *shares)
{
    char *text = shares != NULL ? json_dumps(shares, 0) : NULL;

    tutti_train_say(run, 0, "epoch %llu of the members: %d worker%s, from step %llu%s%s",
                    (unsigned long long)run->epoch.number, run->workers,
                    run->workers == 1 ? "" : "s", (unsigned long long)run->entered_step,
                    text != NULL ? "; shares " : "", text != NULL ? text : "");
    free(text);
}

/* All members add the event, so that it is not lost with one of them. */
static void note_epoch(const node_trainer *t)
{
    tutti_run *run = t->run;
    json_t *event, *shares = shares_of(run);

    if (run->epoch.number == 1)
        tutti_train_say_begin(run);
    else
        say_epoch(run, shares);
    event = json_pack("{s:I, s:s, s:I, s:i, s:o*, s:o*}", "step", (json_int_t)run->entered_step,
                      "kind", "epoch", "epoch", (json_int_t)run->epoch.number, "workers",
                      run->workers, "shares", shares, "seconds", change_of(t));
    if (run->events_before == NULL)
        run->events_before = json_array();
    json_array_append_new(run->events_before, event);
}

/* After how many steps, at most, what a worker keeps is copied on another one; 0: each step is
   whole. */
static uint64_t names_of(const tutti_run *run)
{
    return tutti_train_keeps_by_share(run->config) ? (uint64_t)run->config->copy_every : 0;
}

/* Trains in that world. *image: the state that is left; NULL: the run has ended, or the one that it
   began with is still the state. *beside: what it has of a neighbouring step besides; NULL:
   nothing. */
static tutti_status train_in(node_trainer *t, const tutti_turn *turn, tutti_image **image,
                             tutti_image **beside, tutti_error *err)
{
    tutti_train_epoch epoch = { .number = turn->epoch,
                                .commit = commit,
                                .names = names_of(t->run),
                                .lasts = lasts,
                                .divides = divides,
                                .user = t };
    tutti_status status = TUTTI_OK;
    bool begun = false;

    *image = *beside = NULL;
    if (turn->image != NULL)
        status = tutti_image_checkpoint(&epoch.from, turn->image, err);
    if (status == TUTTI_OK)
        status = tutti_train_epoch_open(t->run, turn->world, &epoch, err);
    t->run->epoch.from = NULL; /* it is loaded, and its memory may go with the first step */
    tutti_checkpoint_close(epoch.from);
    if (status == TUTTI_OK) {
        begun = true;
        note_epoch(t);
        status = train(t, err);
        t->failed_ns = tutti_now_ns(t->run->rt);
        t->closed_ns = 0;
    }
    if (status == TUTTI_ERR_PEER && begun) { /* without, nothing was changed yet */
        status = tutti_train_epoch_image(t->run, image, err);
        if (status == TUTTI_OK)
            status = tutti_train_epoch_beside(t->run, beside, err);
    } else if (status == TUTTI_ERR_PEER)
        status = TUTTI_OK;
    else if (status != TUTTI_OK && begun && /* for those that it leaves, if one of them lacks it */
             tutti_train_epoch_image(t->run, image, NULL) == TUTTI_OK &&
             tutti_train_epoch_beside(t->run, beside, NULL) != TUTTI_OK)
        *beside = NULL;
    if (status != TUTTI_OK) /* the engine waits for what it has under way until the world has ended */
        tutti_world_failure_report(turn->world, err);
    tutti_train_epoch_close(t->run);
    return status;
}

static tutti_status train_epoch(node_trainer *t, const tutti_turn *turn, tutti_error *err)
{
    tutti_error why = { .rank = -1 };
    tutti_image *image, *beside;
    const tutti_status status = train_in(t, turn, &image, &beside, &why);

    tutti_world_close(turn->world);
    if (t->closed_ns == 0)
        t->closed_ns = tutti_now_ns(t->run->rt);
    if (status == TUTTI_OK)
        return tutti_follower_over(t->follower, image, beside, err);
    (void)tutti_follower_over(t->follower, image, beside, NULL);
    if (err != NULL)
        *err = why;
    return status;
}

/* Until the run has ended here, or this process has left it. */
static tutti_status train_in_epochs(node_trainer *t, tutti_error *err)
{
    tutti_turn turn;

    do {
        TUTTI_TRY(tutti_follower_next(t->follower, &turn, err));
        if (turn.world == NULL)
            return TUTTI_OK;
        t->agreed_ns = turn.agreed_ns;
        t->met_ns = tutti_now_ns(t->run->rt);
        tutti_train_part_turn(t->run, turn.run, turn.worker);
        TUTTI_TRY(train_epoch(t, &turn, err));
    } while (!t->ended);
    return TUTTI_OK;
}

/* ---- all of it ---- */

/* Callback of the follower. */
static bool leaves(void *user)
{
    const tutti_train_nodes *how = ((node_trainer *)user)->how;

    return how->leaves != NULL && how->leaves(how->user);
}

/* Callback of the follower. */
static void listens(void *user, const char *address)
{
    const tutti_train_nodes *how = ((node_trainer *)user)->how;

    if (how->listens != NULL)
        how->listens(how->user, address);
}

/* Callback of the follower. */
static void say(void *user, const char *line)
{
    const tutti_train_io *io = ((node_trainer *)user)->run->io;

    if (io->say != NULL)
        io->say(io->user, 3, line);
}

/* The answer to newcomers: the options of config.json, and the directory of the results; then, each
   in a line of its own, the version of the library and the hash of the data. Engines compare these,
   too: by then the others wait. */
static tutti_status tell_about(tutti_run *run, char **text, tutti_error *err)
{
    tutti_train_config stored = *run->config; /* the newcomer may be in any directory */
    char data[8256], out[PATH_MAX], *settings;
    json_t *object;
    size_t bytes;

    TUTTI_TRY(tutti_train_data_stored(run, data, sizeof data, err));
    stored.data = data;
    object = tutti_train_config_object(&stored);
    json_object_set_new(object, "out",
                        json_string(realpath(stored.out, out) != NULL ? out : stored.out));
    settings = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    bytes = settings != NULL ? strlen(settings) + strlen(tutti_version()) + 19 : 0;
    *text = settings != NULL ? tutti_alloc(bytes, 1) : NULL;
    if (*text != NULL)
        snprintf(*text, bytes, "%s\n%s\n%016llx", settings, tutti_version(),
                 (unsigned long long)tutti_data_hash(run->data));
    free(settings);
    return *text != NULL ? TUTTI_OK
                         : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for what this run is");
}

/* Bytes that a state may have: all slots and copies of any optimiser, two vectors of each share,
   and what is not of the model. */
static uint64_t most_bytes(const tutti_run *run)
{
    return (64 + 8 * (uint64_t)run->config->elastic_shares) * (uint64_t)run->parameters +
           (UINT64_C(64) << 20);
}

tutti_status tutti_train_by_nodes(tutti_run *run, const tutti_train_nodes *how, bool *ended,
                                  tutti_error *err)
{
    node_trainer t = { .run = run, .how = how };
    tutti_follow_options options = *how;
    char *about = NULL;
    tutti_status status;

    *ended = false;
    status = tell_about(run, &about, err);
    if (status == TUTTI_OK)
        status = tutti_train_part_open(run, err);
    if (how->founders == NULL) { /* it gets the state from members, whatever they began with */
        run->of_epoch = *run->config;
        run->of_epoch.resume = "";
        run->config = &run->of_epoch;
    } else if (status == TUTTI_OK && run->config->resume[0] != 0)
        status = tutti_train_epoch_resume(run, how->founders, &options.image, err);
    options.most = most_bytes(run);
    options.about = about;
    options.folder = run->config->out;
    options.leaves = leaves;
    options.listens = listens;
    options.say = say;
    options.save = tutti_node_trainer_saves(run->config) ? tutti_node_trainer_save : NULL;
    options.saves_at_leave = run->config->checkpoint_on_signal;
    options.mends = tutti_node_trainer_mends;
    options.user = &t;
    if (status == TUTTI_OK)
        status = tutti_follower_open(&t.follower, run->rt, &options, err);
    tutti_free(about);
    tutti_run_key_wipe(&options.node.key);
    if (status == TUTTI_OK)
        status = train_in_epochs(&t, err);
    tutti_train_part_close(run, status != TUTTI_OK ? "failure" : t.ended ? NULL : "leave");
    if (t.ended)
        tutti_follower_end(t.follower);
    else if (status != TUTTI_OK && t.follower != NULL)
        tutti_follower_fail(t.follower);
    tutti_follower_close(t.follower);
    *ended = t.ended;
    return status;
}

/* Another file at the same path, or that of another --data. */
static tutti_status check_data_hash(const tutti_run *run, const char *theirs, tutti_error *err)
{
    char own[17];

    snprintf(own, sizeof own, "%016llx", (unsigned long long)tutti_data_hash(run->data));
    return theirs == NULL || strcmp(own, theirs) == 0
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the data of this worker, %.200s, have the hash %s, and those of the run "
                            "%.40s; --data says where the same are",
                            run->config->data, own, theirs);
}

tutti_status tutti_train_member(const tutti_train_config *config, const tutti_train_io *given,
                                const tutti_train_nodes *how, const char *data_hash, bool *ended,
                                tutti_error *err)
{
    tutti_train_io io = *given;
    tutti_runtime *rt;
    tutti_run run;
    tutti_status status;

    *ended = false;
    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    tutti_train_begin(&run, rt, config, &io);
    status = tutti_train_open_samples(&run, err);
    if (status == TUTTI_OK)
        status = check_data_hash(&run, data_hash, err);
    if (status == TUTTI_OK)
        status = tutti_train_by_nodes(&run, how, ended, err);
    tutti_train_close_all(&run);
    tutti_runtime_close(rt);
    return status;
}
