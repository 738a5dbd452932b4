/* Goal: ports, collectives and led lanes hold over MPI too, with the transport as a program uses
   it: it starts MPI itself and ends it with the process. Method: jobs of several sizes run the
   part of the suite that is for processes, and jobs on lanes of several threads; a rank writes
   what it finds wrong to standard error, and the job's exit code is the result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "collective/collective_internal.h"
#include "../collective/conformance.h"
#include "../engine/led_jobs.h"
#include "mpi_job.h"
#include "tutti/launch.h"
#include "tutti/comm.h"

extern char **environ;
extern const tutti_transport_ops tutti_transport_plugin;

static int rank_of_suite(void)
{
    static const led_case cases[] = {
        { .seed = 1, .width = 1, .jobs = 12, .steps = 3, .pause_ns = 50000 },
        { .seed = 2, .width = 3, .jobs = 16, .steps = 3, .credit = 1500, .sums = true },
        { .seed = 3, .width = 3, .jobs = 12, .steps = 4, .credit = 700, .changes = true, .pause_ns = 20000 },
    };
    const led_cases lanes = { cases, TUTTI_LENGTH(cases) };
    tutti_launch_place place;
    tutti_error err = { .rank = -1 };
    tutti_world *world = NULL;
    tutti_status status = tutti_launch_find_place(environ, &place, &err);

    if (status == TUTTI_OK)
        status = tutti_world_open_on(
            &world, &tutti_transport_plugin,
            &(tutti_launch){ .rank = place.rank, .size = place.size, .spec = "mpi", .environment = environ }, NULL,
            &err);
    if (status == TUTTI_OK)
        status = led_jobs(world, &lanes, &err);
    if (status == TUTTI_OK) /* last: its ranks leave one after the other */
        status = collective_conformance_rank(world, &err);
    if (status != TUTTI_OK) {
        fprintf(stderr, "%s: %s\n", tutti_status_name(status), err.text);
        if (world != NULL)
            tutti_world_failure_report(world, &err);
    }
    tutti_world_close(world);
    return status == TUTTI_OK ? 0 : status == TUTTI_ERR_PEER ? 3 : 1;
}

static void jobs_of_several_sizes_pass_the_suite(void **state)
{
    static const int sizes[] = { 1, 2, 3, 4, 7 };
    char *arguments[] = { (char *)"rank", NULL };

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(sizes); s++) {
        const int code = mpi_job_run(sizes[s], arguments);
        if (code != 0)
            fail_msg("a job of %d ranks ended with code %d", sizes[s], code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(jobs_of_several_sizes_pass_the_suite) };

    if (mpi_job_inside())
        return rank_of_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
