/* schedule.h: schedules of the learning rate. Included by the engine;
   implemented by schedule.c.

   A schedule is a factor on the base learning rate and a pure function of the step, counted from
   0, with the same bits on every machine. It is at most 1: the base rate is the maximum.

   Specs: constant(warmup=W), step(every=E,gamma=G,warmup=W), cosine(warmup=W,floor=F),
   linear(warmup=W,floor=F). In the warm-up, steps t < W, the factor is (t+1)/W. Then the shape
   follows, over the steps from W to `steps`, the number of steps of the run. From t = steps on it
   has its last value (cosine, linear: floor, exactly). A warm-up longer than `steps` is refused.
   steps 0: unknown; cosine and linear are refused. */
#ifndef TUTTI_OPTIM_SCHEDULE_H
#define TUTTI_OPTIM_SCHEDULE_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

typedef struct tutti_lr_schedule tutti_lr_schedule;
/* Opens the schedule of a spec. steps: the number of steps of the run. TUTTI_ERR_USAGE. */
tutti_status tutti_lr_schedule_open(tutti_lr_schedule **out, const char *spec, uint64_t steps,
                                    tutti_error *err);
void tutti_lr_schedule_close(tutti_lr_schedule *s);
/* Returns the factor of a step. Any thread. */
double tutti_lr_schedule_factor(const tutti_lr_schedule *s, uint64_t step);

/* The kinds of schedules, for help and docs; ends with {0}. shape: returns the factor after `done`
   of `of` steps, without warm-up. */
extern const struct tutti_lr_schedule_ops {
    const char *name, *help;
    const tutti_option *options;
    double (*shape)(const void *self, uint64_t done, uint64_t of);
} tutti_lr_schedules[];
#pragma GCC visibility pop
#endif
