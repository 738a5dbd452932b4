/* arrivals.h: what dude-asgd, ringmaster-asgd and ringleader-asgd share. Each worker sends a
   gradient to one server as soon as it is computed, and reports when it makes no more steps. The
   server's rule decides what happens to an arriving gradient. The struct of each method begins
   with its server. */
#ifndef TUTTI_METHOD_ARRIVALS_H
#define TUTTI_METHOD_ARRIVALS_H
#include <math.h>

#include "tutti/method/server.h"

enum { GRADIENT, LEAVES }; /* kinds of requests */

static inline tutti_server *arrivals_server(const tutti_method *m)
{
    return *(tutti_server *const *)m->self;
}

/* ---- state of the server ---- */

/* count elements, an equal part of them for each worker. late: absent from older checkpoints. */
static inline void arrivals_declare(tutti_plan *plan, const char *name, tutti_dtype dtype,
                                    size_t count, bool late, void *slot)
{
    const tutti_state state = { .name = name, .keep = TUTTI_SLICE, .dtype = dtype, .count = count,
                                .of_workers = true, .late = late };
    tutti_declare(plan, &state, slot);
}

/* count floats, one for each element of the model. */
static inline void arrivals_declare_model(tutti_plan *plan, const char *name, size_t count,
                                          float **slot)
{
    const tutti_state state = { .name = name, .keep = TUTTI_SLICE, .dtype = TUTTI_F32,
                                .count = count, .placed = true };
    tutti_declare(plan, &state, slot);
}

/* ---- the server's thread ---- */

static inline tutti_status arrivals_check(const tutti_server_request *r, tutti_error *err)
{
    if (r->in == NULL)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, r->worker,
                               "worker %d sent a gradient without its numbers; "
                               "all workers must run one version",
                               r->worker);
    return TUTTI_OK;
}

/* Updates the number of arrivals while a worker computes: a running mean, 0 as long as it is
   unknown. */
static inline void arrivals_learn(double *usual, double came)
{
    came = fmax(came, 1);
    *usual = *usual > 0 ? 0.8 * *usual + 0.2 * came : came;
}

/* Removes a lost worker from those that wait; returns how many remain. */
static inline int arrivals_forget(tutti_header *waits, int n, int worker)
{
    int kept = 0;

    for (int k = 0; k < n; k++)
        if (waits[k].from != worker)
            waits[kept++] = waits[k];
    return kept;
}

/* ---- client thread ---- */

/* In step(): sends the gradient to the server and receives x. `change` replaces the gradient by
   what is sent; NULL: it is sent as it is. *sent false: the step is skipped. */
static inline tutti_status arrivals_push(tutti_method *m, void (*change)(tutti_method *m),
                                         bool *sent, tutti_server_answers *answers,
                                         tutti_error *err)
{
    tutti_rate rate;
    bool skip;

    *sent = false;
    TUTTI_TRY(tutti_base_gradient(m, &rate, &skip, err));
    if (skip)
        return TUTTI_OK;
    if (change != NULL)
        change(m);
    *sent = true;
    return tutti_server_push(arrivals_server(m), GRADIENT, (int64_t)rate.t - 1, m->g, m->x, answers,
                             err);
}

static inline tutti_status arrivals_final_model(tutti_method *m, tutti_error *err)
{
    return tutti_server_final_model(arrivals_server(m), err);
}

static inline tutti_status arrivals_leave(tutti_method *m, tutti_error *err)
{
    tutti_server_answers answers;

    return tutti_server_ask(arrivals_server(m), 0, LEAVES, 0, &answers, err);
}
#endif
