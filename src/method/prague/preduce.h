/* preduce.h: partial all-reduce (P-Reduce): a worker averages its model with a small group of other
   workers, a new group each time. prague.c uses it; preduce.c and preduce_generate.c implement it.
   The groups are formed by a generator (groups.h), which runs on the lowest present worker, or by
   a static schedule that all workers know. */
#ifndef TUTTI_PRAGUE_PREDUCE_H
#define TUTTI_PRAGUE_PREDUCE_H
#include "tutti/method.h"

enum { TUTTI_PREDUCE_AUTO, TUTTI_PREDUCE_ON, TUTTI_PREDUCE_OFF }; /* overlap */
/* The options of the method; prague_options has their ranges. */
typedef struct tutti_preduce_options {
    int generator;                       /* tutti_groups_kind */
    int64_t group_size;                  /* workers; 0: 3, or 2 of up to four workers */
    int64_t sync_every;                  /* gradients from one P-Reduce to the next */
    int64_t filter_threshold;            /* requests; 0: no filter */
    const char *inter_intra;             /* "auto", "off", or the number of workers of a machine */
    double group_timeout;                /* seconds that a group waits for a member */
    int overlap;                         /* is the next gradient computed during a P-Reduce? AUTO:
                                            unless generator is static or groups are of all */
    bool log;                            /* an event for each P-Reduce */
} tutti_preduce_options;
/* Returns true if the groups follow the static schedule. Then all workers make common steps. */
bool tutti_preduce_is_static(const tutti_preduce_options *options);
typedef struct tutti_preduce tutti_preduce;
/* Adds the facility to the method, within declare(). `options` must stay valid as long as the
   method. services: the indexes of the method's services that run tutti_preduce_reduce, _generate
   and _tell; the last two must have `receives_losses`. TUTTI_ERR_USAGE: incompatible options. */
tutti_status tutti_preduce_declare(tutti_preduce **out, tutti_method *m, tutti_plan *plan,
                                   const tutti_preduce_options *options, const int services[3],
                                   tutti_error *err);

/* ---- client thread ---- */

/* Copies the model to m->x, within pass(), before a step's first pass. */
void tutti_preduce_read(tutti_preduce *p);
/* Applies the gradient to the model, within step(). Every sync_every gradients requests a P-Reduce
   and waits for it; with overlap it waits for the one before it. */
tutti_status tutti_preduce_update(tutti_preduce *p, tutti_error *err);
/* Requests the P-Reduces that are still planned with this worker, within retire(). Does not
   wait. */
void tutti_preduce_leave(tutti_preduce *p);

/* ---- the run() of each service ---- */

/* Makes this worker's P-Reduces. */
tutti_status tutti_preduce_reduce(tutti_preduce *p, tutti_error *err);
/* Runs the generator, on the worker that generates. */
tutti_status tutti_preduce_generate(tutti_preduce *p, tutti_error *err);
/* Sends the other workers the rank that generates, after a loss. */
tutti_status tutti_preduce_tell(tutti_preduce *p, tutti_error *err);
#endif
