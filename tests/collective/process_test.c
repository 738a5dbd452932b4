/* Goal: the suite holds between processes too, and the launcher and the survivors name the rank
   that died. Method: this program starts itself as its own workers through tutti_launch_run; a
   worker puts what it finds wrong into its failure report. */
#include "conformance.h"
#include "tutti/launch.h"
#include "tutti/comm.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *program;

/* Rank 2 is killed while the others wait for it in an all-reduce; they must learn its rank, or
   report something else that makes the launcher's result wrong. */
static tutti_status killed_rank(tutti_world *world, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 1);
    static float x[50000];
    tutti_status status;

    TUTTI_TRY(tutti_barrier(&g, err));
    if (tutti_world_rank(world) == 2)
        raise(SIGKILL);
    status = tutti_allreduce(&g, TUTTI_SUM, tutti_f32(NULL, x, 50000), err);
    if (status != TUTTI_ERR_PEER || err->rank != 2)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "the all-reduce with a killed rank 2 gave %s, rank %d",
                          tutti_status_name(status), err->rank);
    return status;
}

static int worker(const char *part)
{
    tutti_error err = { 0 };
    tutti_world *world;
    tutti_status status = tutti_world_open(&world, "shm", &err);

    if (status != TUTTI_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    status = strcmp(part, "suite") == 0 ? collective_conformance_rank(world, &err) : killed_rank(world, &err);
    if (status != TUTTI_OK)
        tutti_world_failure_report(world, &err);
    tutti_world_close(world);
    return status == TUTTI_OK ? 0 : status == TUTTI_ERR_PEER ? 3 : 1;
}

static tutti_launch_result launch(const char *part, int workers)
{
    const char *argv[] = { program, part, NULL };
    const tutti_launch_options options = { .workers = workers, .threads = 1, .argv = argv };
    tutti_launch_result result;
    tutti_error err = { 0 };

    if (tutti_launch_run(&options, &result, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return result;
}

static void processes_pass_the_suite(void **state)
{
    static const int sizes[] = { 1, 2, 3, 4, 7, 8 };

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(sizes); s++) {
        const tutti_launch_result result = launch("suite", sizes[s]);
        if (result.exit_code != 0)
            fail_msg("%d processes: %s", sizes[s], result.text);
    }
}

static void a_killed_process_is_named_to_the_others(void **state)
{
    const tutti_launch_result result = launch("killed", 4);

    (void)state;
    assert_int_equal(result.exit_code, 3);
    if (result.rank != 2 || result.signal != SIGKILL)
        fail_msg("rank %d, signal %d: %s", result.rank, result.signal, result.text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_pass_the_suite),
        cmocka_unit_test(a_killed_process_is_named_to_the_others),
    };

    program = argv[0];
    if (argc > 1)
        return worker(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
