/* preduce.h: a model that is averaged with a group of others, a new group each time (preduce.c):
   prague's partial all-reduce. Groups are formed by a generator (groups.h) on the
   lowest present worker, or by a schedule that all know. */
#ifndef TUTTI_PRAGUE_PREDUCE_H
#define TUTTI_PRAGUE_PREDUCE_H
#include "tutti/method.h"

enum { TUTTI_PREDUCE_AUTO, TUTTI_PREDUCE_ON, TUTTI_PREDUCE_OFF };
typedef struct tutti_preduce_options {
    int generator;                       /* random, static, smart */
    int64_t group_size, sync_every, filter_threshold;
    const char *inter_intra;             /* auto, off, or workers of a machine */
    double group_timeout;                /* seconds */
    int overlap;                         /* auto: on, except by a schedule or with groups of all */
    bool log;
} tutti_preduce_options;
/* Is it a schedule? Then all workers make common steps. */
bool tutti_preduce_is_static(const tutti_preduce_options *options);
/* Within declare(). options: the pointer is kept. services: the indexes of the three services of
   the method that run reduce, generate and tell; the last two must be notified of losses. */
typedef struct tutti_preduce tutti_preduce;
tutti_status tutti_preduce_declare(tutti_preduce **out, tutti_method *m, tutti_plan *plan,
                                   const tutti_preduce_options *options, const int services[3],
                                   tutti_error *err);
/* Within pass(), before the first: x := the model as it is now. */
void tutti_preduce_read(tutti_preduce *p);
/* Within step(): tutti_base_step_on on the model, and every sync_every gradients a P-Reduce,
   which it waits for; with overlap it waits for the previous one. */
tutti_status tutti_preduce_update(tutti_preduce *p, tutti_error *err);
/* Within retire(): completes the P-Reduces that are already planned with this worker. */
void tutti_preduce_leave(tutti_preduce *p);
/* run() of the three services. */
tutti_status tutti_preduce_reduce(tutti_preduce *p, tutti_error *err);
tutti_status tutti_preduce_generate(tutti_preduce *p, tutti_error *err);
tutti_status tutti_preduce_tell(tutti_preduce *p, tutti_error *err);
#endif
