/* mpi_test.c: what is the mpi transport's own: whose launcher started this process, thread
   levels, how a job ends. Method: environments as text for what is settled before MPI is started;
   jobs of few ranks for the rest. Each part of such a job is a function here, and its exit code
   gives the result. */
#include <mpi.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "mpi_job.h"
#include "mpi_memory.h"
#include "transport/node.h"
#include "tutti/launch.h"
#include "tutti/transport.h"

extern char **environ;
extern const tutti_transport_ops tutti_transport_plugin;

#if defined(OPEN_MPI)
#define OWN "openmpi"
#define OWN_NAME "Open MPI"
#define OTHERS { text("PMI_RANK=0"), text("PMI_SIZE=4"), NULL }
#define OTHERS_FOUND "launcher of MPICH (PMI_SIZE=4)"
#define MINE { text("OMPI_COMM_WORLD_RANK=0"), text("OMPI_COMM_WORLD_SIZE=4"), NULL }
#else
#define OWN "mpich"
#define OWN_NAME "MPICH"
#define OTHERS { text("OMPI_COMM_WORLD_RANK=0"), text("OMPI_COMM_WORLD_SIZE=4"), NULL }
#define OTHERS_FOUND "launcher of Open MPI (OMPI_COMM_WORLD_SIZE=4)"
#define MINE { text("PMI_RANK=0"), text("PMI_SIZE=4"), NULL }
#endif
#define NO_PART 120              /* exit code */

/* environ has no const; no code writes to it. */
static char *text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

/* ---- before MPI is started ---- */
static void refused(const tutti_transport_ops *ops, const char *spec, char *const *environment, const char *word,
                    const char *another)
{
    const tutti_launch launch = { .rank = 0, .size = 4, .spec = spec, .environment = environment };
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt;
    void *t = &rt;

    assert_int_equal(tutti_runtime_open_posix(&rt, &err), TUTTI_OK);
    assert_int_equal(ops->open(&t, rt, &launch, &err), TUTTI_ERR_USAGE);
    assert_null(t);
    if (strstr(err.text, word) == NULL || strstr(err.text, another) == NULL)
        fail_msg("neither '%s' nor '%s' may be missing in: %s", word, another, err.text);
    tutti_runtime_close(rt);
}

static void a_missing_launcher_error_explains_how_to_start(void **state)
{
    char *none[] = { text("HOME=/"), NULL };

    (void)state;
    refused(&tutti_transport_plugin, "mpi", none, "this one was not", "mpirun -n 4 tutti train");
    refused(&tutti_transport_plugin, "mpi", NULL, "this one was not", "mpirun -n 4 tutti train");
}

static void a_launcher_of_another_mpi_is_rejected(void **state)
{
    char *others[] = OTHERS;

    (void)state;
    refused(&tutti_transport_plugin, "mpi", others, OTHERS_FOUND, "a world of 1");
    refused(&tutti_transport_plugin, "mpi(implementation=" OWN ")", others, "for " OWN_NAME, "a world of 1");
}

static void a_different_mpi_implementation_is_rejected(void **state)
{
    char *mine[] = MINE;
    const char *other = strcmp(OWN, "mpich") == 0 ? "mpi(implementation=openmpi)" : "mpi(implementation=mpich)";

    (void)state;
    refused(&tutti_transport_plugin, other, mine, "this is the transport for " OWN_NAME, "which chooses");
    refused(&tutti_transport_plugin, "mpi(threads=many)", mine, "threads", "serialized");
    refused(&tutti_transport_plugin, "mpi(implementation=lam)", mine, "implementation", "openmpi");
}

static void the_chooser_rejects_the_same_environments(void **state)
{
    char *none[] = { NULL };
    char *others[] = OTHERS;
    const tutti_transport_ops *chooser;
    tutti_error err = { .rank = -1 };

    (void)state;
    if (tutti_transport_load("mpi", &chooser, NULL, 0, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_string_equal(chooser->name, "mpi");
    assert_false(chooser->simulated);
    assert_null(chooser->run);
    assert_null(chooser->window);
    refused(chooser, "mpi", none, "this one was not", "mpirun -n 4 tutti train");
    refused(chooser, "mpi(implementation=" OWN ")", others, OTHERS_FOUND, "a world of 1");
    chooser->close(NULL);
}

/* ---- jobs ---- */
/* pieces: of memory, before opening */
typedef struct rank {
    tutti_runtime *rt;
    void *t;
    const tutti_transport_ops *ops;
    tutti_launch_place place;
    int pieces;
} rank;

static int fails(const char *doing, const tutti_error *err)
{
    fprintf(stderr, "%s: %s\n", doing, err->text);
    return 1;
}

static tutti_status word(rank *c, int to, int from, int64_t value, tutti_request *got, tutti_error *err)
{
    tutti_request s = { 0 }, *list[2] = { &s, got };
    const tutti_header note = { .a = value };
    size_t done;

    TUTTI_TRY(c->ops->send(c->t, &s, to, 5, &note, tutti_nothing(), err));
    TUTTI_TRY(c->ops->recv(c->t, got, from, 5, tutti_nothing(), err));
    return c->ops->wait_some(c->t, list, 2, 2, tutti_now_ns(c->rt) + INT64_C(60000000000), &done, err);
}

static tutti_status from_a_thread(void *arg, tutti_error *err)
{
    rank *c = arg;
    tutti_request r = { 0 }, *list = &r;
    tutti_error said = { .rank = -1 };
    size_t done;

    if (c->ops->recv(c->t, &r, 0, 9, tutti_nothing(), &said) != TUTTI_ERR_STATE ||
        strstr(said.text, "MPI_THREAD_FUNNELED") == NULL || r.posted)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "a receive in another thread was not refused: %s", said.text);
    if (c->ops->send(c->t, &r, 0, 9, NULL, tutti_nothing(), &said) != TUTTI_ERR_STATE || r.posted)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "a send in another thread was not refused");
    /* there is nothing to wait for */
    if (c->ops->wait_some(c->t, &list, 1, 1, 0, &done, &said) != TUTTI_OK || done != 1)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "looking at what is done was refused: %s", said.text);
    r.posted = true;
    if (c->ops->wait_some(c->t, &list, 1, 1, TUTTI_FOREVER, &done, &said) != TUTTI_ERR_STATE ||
        strstr(said.text, "background threads") == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "waiting in another thread was not refused: %s", said.text);
    return TUTTI_OK;
}

static int funneled(rank *c, tutti_error *err)
{
    tutti_thread *thread;
    tutti_request got = { 0 };
    const int next = (c->place.rank + 1) % c->place.size, before = (c->place.rank + c->place.size - 1) % c->place.size;

    if (tutti_thread_open(&thread, c->rt, "other", from_a_thread, c, err) != TUTTI_OK ||
        tutti_thread_join(thread, err) != TUTTI_OK)
        return fails("another thread", err);
    if (word(c, next, before, 70 + c->place.rank, &got, err) != TUTTI_OK || got.note.a != 70 + before)
        return fails("the thread that opened", err);
    return 0;
}

/* Rank 0 leaves at once and ends; the others continue, and MPI's end waits for them. */
static int leaves(rank *c, tutti_error *err)
{
    tutti_request got = { 0 };

    if (c->place.rank == 0)
        return 0;
    tutti_sleep_until(c->rt, tutti_now_ns(c->rt) + 300000000);
    if (word(c, 3 - c->place.rank, 3 - c->place.rank, c->place.rank, &got, err) != TUTTI_OK ||
        got.note.a != 3 - c->place.rank)
        return fails("after rank 0 has left", err);
    return 0;
}

static int waits_for(rank *c, int victim, tutti_error *err)
{
    tutti_request r = { 0 }, *list = &r;
    size_t done;
    char why[200];

    if (c->ops->recv(c->t, &r, victim, 1, tutti_nothing(), err) != TUTTI_OK ||
        c->ops->wait_some(c->t, &list, 1, 1, tutti_now_ns(c->rt) + INT64_C(60000000000), &done, err) != TUTTI_OK)
        return fails("waiting for the victim", err);
    if (r.status != TUTTI_ERR_PEER || r.rank != victim || c->ops->dead_peer(c->t, why, sizeof why) != victim ||
        strstr(why, "not a number") == NULL) {
        fprintf(stderr, "rank %d was not told of rank %d: %s, %s\n", c->place.rank, victim, tutti_status_name(r.status),
                why);
        return 7;
    }
    tutti_fail_rank(err, TUTTI_ERR_PEER, victim, "%s", why);
    c->ops->failure_report(c->t, err);
    return 3;
}

static int failing(rank *c, tutti_error *err)
{
    if (c->place.rank != 1)
        return waits_for(c, 1, err);
    tutti_fail(err, TUTTI_ERR_NUMBER, 0, "the loss is not a number");
    c->ops->failure_report(c->t, err);
    return 1;
}

static int killed(rank *c, tutti_error *err)
{
    if (c->place.rank == 1)
        raise(SIGKILL);
    waits_for(c, 1, err);
    return 0; /* MPI ends the others before this */
}

/* A thousand bytes to a rank that does not look, then the end: MPI_Finalize delivers them. */
static int last_message(rank *c, tutti_error *err)
{
    static unsigned char data[1000];
    tutti_request r = { 0 }, *list = &r;
    size_t done;

    memset(data, c->place.rank == 0 ? 77 : 0, sizeof data);
    if (c->place.rank == 0)
        return c->ops->send(c->t, &r, 1, 3, NULL, tutti_host(data, sizeof data, TUTTI_U8), err) == TUTTI_OK
                   ? 0
                   : fails("sending", err);
    tutti_sleep_until(c->rt, tutti_now_ns(c->rt) + 300000000);
    if (c->ops->recv(c->t, &r, 0, 3, tutti_host(data, sizeof data, TUTTI_U8), err) != TUTTI_OK ||
        c->ops->wait_some(c->t, &list, 1, 1, tutti_now_ns(c->rt) + INT64_C(60000000000), &done, err) != TUTTI_OK ||
        r.status != TUTTI_OK || data[999] != 77)
        return fails("receiving what was sent before the end", err);
    return 0;
}

/* Rank 0 ends without having closed its world. */
static int forgets(rank *c, tutti_error *err)
{
    const int code = leaves(c, err);

    if (c->place.rank == 0)
        c->t = NULL;
    return code;
}

/* More workers than MPI has ranks. */
static int wrong_size(rank *c, tutti_error *err)
{
    void *t = c;
    const tutti_launch launch = {
        .rank = c->place.rank, .size = c->place.size + 1, .spec = "mpi", .environment = environ
    };

    if (c->ops->open(&t, c->rt, &launch, err) != TUTTI_ERR_USAGE || t != NULL ||
        strstr(err->text, "of MPI's 2") == NULL || strstr(err->text, "of 3") == NULL)
        return fails("opening as one of 3 in a job of 2", err);
    return 0;
}

/* All on this host; and each is where it reports to be. */
static int places(rank *c, tutti_error *err)
{
    for (int r = 0; r < c->place.size; r++) {
        if (c->ops->host(c->t, r) != 0 || c->ops->node(c->t, r) < -1) {
            fprintf(stderr, "rank %d is said to be on host %d, node %d\n", r, c->ops->host(c->t, r),
                    c->ops->node(c->t, r));
            return 8;
        }
    }
    if (c->ops->node(c->t, c->place.rank) != tutti_node_here(c->rt))
        return 9;
    return leaves(c, err);
}

/* Rank 0 closes its world while rank 1 reacts to nothing: messages are in flight to it, and one
   from it. What MPI holds of them then is freed at MPI's end, and no sooner. Rank 1 wakes when
   rank 0 has closed, which it learns from a file. The program has started MPI, and ends it. */
static int unheard(rank *c, tutti_error *err)
{
    enum { SMALL = 15000, MANY = 14, LARGE = 4 << 20 };
    static unsigned char data[LARGE];
    static tutti_request r[MANY + 1]; /* closing ends them */
    tutti_request *list = &r[MANY];
    const char *path = getenv("TUTTI_TEST_CLOSED");
    const int64_t until = tutti_now_ns(c->rt) + INT64_C(60000000000);
    tutti_status status;
    size_t done;
    FILE *file;

    if (c->place.rank == 1) {
        status = c->ops->send(c->t, &r[MANY], 0, 2, NULL, tutti_host(data, LARGE, TUTTI_U8), err);
        if (status == TUTTI_OK)
            status = c->ops->wait_some(c->t, &list, 1, 0, 0, &done, err);
        while (status == TUTTI_OK && access(path, F_OK) != 0 && tutti_now_ns(c->rt) < until)
            tutti_sleep_until(c->rt, tutti_now_ns(c->rt) + 1000000);
        return status == TUTTI_OK && tutti_now_ns(c->rt) < until ? 0 : fails("taking no notice", err);
    }
    status = c->ops->recv(c->t, &r[MANY], 1, 2, tutti_host(data, LARGE, TUTTI_U8), err);
    for (int i = 0; i < MANY && status == TUTTI_OK; i++)
        status = c->ops->send(c->t, &r[i], 1, 3, NULL, tutti_host(data, SMALL, TUTTI_U8), err);
    if (status == TUTTI_OK &&
        c->ops->wait_some(c->t, &list, 1, 1, tutti_now_ns(c->rt) + 500000000, &done, err) != TUTTI_TIMEOUT)
        return fails("a message came whose sender took no notice", err);
    c->ops->close(c->t);
    c->t = NULL;
    if (status != TUTTI_OK || r[MANY].status != TUTTI_CLOSED)
        return fails("closing", err);
    if (mpi_memory_pieces() <= c->pieces + 1) { /* the record of the process stays in any case */
        fprintf(stderr, "nothing was left with MPI: the test tests nothing\n");
        return 5;
    }
    file = fopen(path, "w");
    return file != NULL && fclose(file) == 0 ? 0 : fails("telling rank 1", err);
}

static const struct { const char *name, *spec; int (*run)(rank *c, tutti_error *err); bool closed; } parts[] = {
    { "funneled", "mpi(threads=funneled)", funneled, false },
    { "leaves", "mpi", leaves, false },
    { "failing", "mpi", failing, false },
    { "killed", "mpi", killed, false },
    { "last_message", "mpi(threads=multiple)", last_message, false },
    { "wrong_size", "mpi", wrong_size, true },
    { "chosen", "mpi", leaves, false },
    { "forgets", "mpi", forgets, false },
    { "unheard", "mpi", unheard, false },
    { "places", "mpi", places, false },
    { "places_chosen", "mpi", places, false },
};

static int one_rank(const char *part)
{
    rank c = { .ops = &tutti_transport_plugin };
    tutti_error err = { .rank = -1 };
    const bool own_mpi = strcmp(part, "unheard") == 0;
    int code = NO_PART, provided;

    if (own_mpi)
        MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (tutti_runtime_open_posix(&c.rt, &err) != TUTTI_OK ||
        tutti_launch_find_place(environ, &c.place, &err) != TUTTI_OK)
        return fails("starting", &err);
    for (size_t i = 0; i < TUTTI_LENGTH(parts); i++) {
        if (strcmp(parts[i].name, part) != 0)
            continue;
        if (strstr(part, "chosen") != NULL && tutti_transport_load("mpi", &c.ops, NULL, 0, &err) != TUTTI_OK)
            return fails("loading the chooser", &err);
        c.pieces = mpi_memory_pieces();
        if (!parts[i].closed &&
            c.ops->open(&c.t, c.rt,
                        &(tutti_launch){
                            .rank = c.place.rank, .size = c.place.size, .spec = parts[i].spec, .environment = environ },
                        &err) != TUTTI_OK)
            return fails("opening", &err);
        code = parts[i].run(&c, &err);
        c.ops->close(c.t);
        c.t = NULL;
    }
    tutti_runtime_close(c.rt);
    if (own_mpi) {
        MPI_Finalize();
        if (mpi_memory_pieces() != 0) {
            fprintf(stderr, "rank %d: %d pieces of memory were not given back\n", c.place.rank, mpi_memory_pieces());
            code = 6;
        }
    }
    return code;
}

static void job(const char *part, int n, int expected)
{
    char *arguments[] = { text(part), NULL };
    const int code = mpi_job_run(n, arguments);

    if (code != expected)
        fail_msg("the job '%s' of %d ranks ended with code %d instead of %d", part, n, code, expected);
}

static void funneled_mpi_rejects_calls_from_other_threads(void **state) { (void)state; job("funneled", 2, 0); }
static void a_rank_may_finish_early_while_others_continue(void **state) { (void)state; job("leaves", 3, 0); }
static void a_message_sent_right_before_the_end_arrives(void **state) { (void)state; job("last_message", 2, 0); }
static void a_failed_rank_is_reported_and_sets_exit_code(void **state)
{
    (void)state;
    job("failing", 3, 1);
}
static void a_world_size_differing_from_mpi_is_rejected(void **state) { (void)state; job("wrong_size", 2, 0); }
static void a_world_that_is_not_closed_keeps_nobody_waiting(void **state) { (void)state; job("forgets", 3, 0); }
static void the_chooser_opens_the_launchers_implementation(void **state) { (void)state; job("chosen", 3, 0); }

static void ranks_report_the_host_and_node_of_all_ranks(void **state)
{
    (void)state;
    job("places", 3, 0);
    job("places_chosen", 3, 0);
}

static void pending_memory_of_closed_worlds_is_freed_at_finalize(void **state)
{
    char path[] = "/tmp/tutti-mpi-test-XXXXXX";
    const int file = mkstemp(path);

    (void)state;
    assert_true(file >= 0);
    close(file);
    unlink(path); /* the name is what counts */
    setenv("TUTTI_TEST_CLOSED", path, 1);
    job("unheard", 2, 0);
    unsetenv("TUTTI_TEST_CLOSED");
    unlink(path);
}

static void a_killed_rank_ends_the_job(void **state)
{
    char *arguments[] = { text("killed"), NULL };
    struct timespec before, after;

    (void)state;
    clock_gettime(CLOCK_MONOTONIC, &before);
    assert_int_not_equal(mpi_job_run(3, arguments), 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(after.tv_sec - before.tv_sec < 50); /* the survivors would wait for a minute */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_launcher_error_explains_how_to_start),
        cmocka_unit_test(a_launcher_of_another_mpi_is_rejected),
        cmocka_unit_test(a_different_mpi_implementation_is_rejected),
        cmocka_unit_test(the_chooser_rejects_the_same_environments),
        cmocka_unit_test(funneled_mpi_rejects_calls_from_other_threads),
        cmocka_unit_test(a_rank_may_finish_early_while_others_continue),
        cmocka_unit_test(a_message_sent_right_before_the_end_arrives),
        cmocka_unit_test(a_failed_rank_is_reported_and_sets_exit_code),
        cmocka_unit_test(a_killed_rank_ends_the_job),
        cmocka_unit_test(a_world_size_differing_from_mpi_is_rejected),
        cmocka_unit_test(a_world_that_is_not_closed_keeps_nobody_waiting),
        cmocka_unit_test(the_chooser_opens_the_launchers_implementation),
        cmocka_unit_test(ranks_report_the_host_and_node_of_all_ranks),
        cmocka_unit_test(pending_memory_of_closed_worlds_is_freed_at_finalize),
    };

    if (mpi_job_inside())
        return argc > 1 ? one_rank(argv[1]) : NO_PART;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
