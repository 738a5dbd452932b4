/* schedule.h: schedules of the learning rate: a factor on the base rate, a pure function of the
   step (from 0), the same bits on every machine. It is never above 1: the base rate is the maximum.

   Specs: constant(warmup=W), step(every=E,gamma=G,warmup=W), cosine(warmup=W,floor=F),
   linear(warmup=W,floor=F). Warm-up: factor (t+1)/W for step t < W, then the schedule counted
   from W to `steps` in total. At t = steps it is at its end (cosine, linear: floor, exactly) and
   stays there. A warm-up longer than `steps` is refused. */
#ifndef TUTTI_OPTIM_SCHEDULE_H
#define TUTTI_OPTIM_SCHEDULE_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

typedef struct tutti_lr_schedule tutti_lr_schedule;
tutti_status tutti_lr_schedule_open(tutti_lr_schedule **out, const char *spec, uint64_t steps,
                                    tutti_error *err);
void tutti_lr_schedule_close(tutti_lr_schedule *s);
double tutti_lr_schedule_factor(const tutti_lr_schedule *s, uint64_t step);

/* {0}-ended, for help and docs. shape: the factor after `done` of `of` steps without warm-up. */
extern const struct tutti_lr_schedule_ops {
    const char *name, *help;
    const tutti_option *options;
    double (*shape)(const void *self, uint64_t done, uint64_t of);
} tutti_lr_schedules[];
#pragma GCC visibility pop
#endif
