/* update_bench.c: what bench/run tier measures of the host's update: AdamW in tiles on several
   threads.

     update_bench PARAMETERS THREADS COPY ROUNDS

   COPY 1: also writes a copy of the weights in BF16. Prints the median time of a parameter in
   nanoseconds. bench/limits/adamw_limit.c does the same by hand. */
#include <stdio.h>
#include <stdlib.h>

#include "optim/placed.h"
#include "runtime/team.h"
#include "state/plan.h"
#include "tutti/method.h"
#include "base/machine.h"
#include "kernels/device.h"

enum { ROUNDS_MOST = 1000, WARM = 2 };

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

typedef struct some { tutti_device *device; float *w, *g; tutti_optim *o; } some;

/* Each thread touches its part first. */
static void touch(void *arg, size_t first, size_t count)
{
    const some *s = arg;

    tutti_fill(s->device, count, 0.1f, s->w + first);
    tutti_fill(s->device, count, 0.01f, s->g + first);
}

static tutti_status run(size_t n, int threads, bool copy, int rounds, double *ns, tutti_error *err)
{
    static int64_t took[ROUNDS_MOST];
    tutti_rate rate = { .lr = 1e-3, .scale = 1, .t = 1 };
    tutti_runtime *rt;
    tutti_team *team;
    tutti_plan *plan;
    uint16_t *half;
    some s;

    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    TUTTI_TRY(tutti_device_open_host(&s.device, rt, tutti_cpu_best(), err));
    TUTTI_TRY(tutti_team_open(&team, rt, "update", threads, err));
    TUTTI_TRY(tutti_plan_open(&plan, n, err));
    TUTTI_TRY(tutti_optim_declare(&s.o, plan, "adamw", "optim", 0, n, TUTTI_SAME, s.device, err));
    TUTTI_TRY(tutti_plan_carry_out(plan, NULL, err));
    s.w = tutti_alloc(n, sizeof *s.w);
    s.g = tutti_alloc(n, sizeof *s.g);
    half = tutti_alloc(n, sizeof *half);
    if (s.w == NULL || s.g == NULL || half == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "memory for %zu parameters", n);
    tutti_team_run(team, n, 4096, touch, &s);
    for (int k = -WARM; k < rounds; k++, rate.t++) {
        const int64_t begin = tutti_now_ns(rt);
        tutti_update_tiled(s.o, 0, n, s.w, s.g, &rate,
                           copy ? tutti_host(half, n, TUTTI_BF16) : tutti_nothing(), team);
        if (k >= 0)
            took[k] = tutti_now_ns(rt) - begin;
    }
    qsort(took, (size_t)rounds, sizeof *took, ascending);
    *ns = (double)took[rounds / 2] / (double)n;
    return TUTTI_OK; /* the process ends: nothing is given back */
}

int main(int argc, char **argv)
{
    const size_t n = argc == 5 ? strtoull(argv[1], NULL, 10) : 0;
    const int threads = argc == 5 ? atoi(argv[2]) : 0, rounds = argc == 5 ? atoi(argv[4]) : 0;
    tutti_error err = { .rank = -1 };
    double ns = 0;

    if (n == 0 || threads < 1 || rounds < 1 || rounds > ROUNDS_MOST) {
        fprintf(stderr, "usage: update_bench PARAMETERS THREADS COPY ROUNDS (1 to %d)\n", ROUNDS_MOST);
        return 2;
    }
    if (run(n, threads, atoi(argv[3]) != 0, rounds, &ns, &err) != TUTTI_OK) {
        fprintf(stderr, "update_bench: %s\n", err.text);
        return 1;
    }
    printf("%.6f\n", ns);
    return 0;
}
