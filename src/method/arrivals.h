/* arrivals.h: the code that methods dude-asgd, ringmaster-asgd and ringleader-asgd share; all of it
   is in this file. Each worker sends a gradient to one server as soon as it is computed, and
   reports when it makes no more steps. The server's rule, which is the method's own, decides what
   happens to a gradient. The first member of the method's struct is its tutti_server pointer. */
#ifndef TUTTI_METHOD_ARRIVALS_H
#define TUTTI_METHOD_ARRIVALS_H
#include <math.h>

#include "tutti/method/server.h"

/* Kinds of requests. GRADIENT: the worker's gradient. LEAVES: it makes no more steps. */
enum { GRADIENT, LEAVES };

static inline tutti_server *arrivals_server(const tutti_method *m)
{
    return *(tutti_server *const *)m->self;
}

/* ---- state of the server ---- */

/* Declares an array of `count` elements, count / workers for each worker, by rank. late: older
   checkpoints lack it, and it keeps its initial value then. *slot receives the memory. */
static inline void arrivals_declare(tutti_plan *plan, const char *name, tutti_dtype dtype,
                                    size_t count, bool late, void *slot)
{
    const tutti_state state = { .name = name, .keep = TUTTI_SLICE, .dtype = dtype, .count = count,
                                .of_workers = true, .late = late };
    tutti_declare(plan, &state, slot);
}

/* Declares a vector of the model's size; count: its elements. */
static inline void arrivals_declare_model(tutti_plan *plan, const char *name, size_t count,
                                          float **slot)
{
    const tutti_state state = { .name = name, .keep = TUTTI_SLICE, .dtype = TUTTI_F32,
                                .count = count, .placed = true };
    tutti_declare(plan, &state, slot);
}

/* ---- the server's thread ---- */

/* Checks a GRADIENT request. TUTTI_ERR_CORRUPT: it has no gradient. */
static inline tutti_status arrivals_check(const tutti_server_request *r, tutti_error *err)
{
    if (r->in == NULL)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, r->worker,
                               "worker %d sent a gradient without its numbers; all workers must "
                               "run one version",
                               r->worker);
    return TUTTI_OK;
}

/* Updates *usual, the exponential mean of the number of gradients of all workers that arrive while
   a worker computes one; 0: not known yet. came: the latest such number; less than 1 counts as
   1. */
static inline void arrivals_learn(double *usual, double came)
{
    came = fmax(came, 1);
    *usual = *usual > 0 ? 0.8 * *usual + 0.2 * came : came;
}

/* Removes a lost worker's requests from waits[n], and returns how many remain. */
static inline int arrivals_forget(tutti_header *waits, int n, int worker)
{
    int kept = 0;

    for (int k = 0; k < n; k++)
        if (waits[k].from != worker)
            waits[kept++] = waits[k];
    return kept;
}

/* ---- client thread ---- */

/* Sends the gradient to the server and receives m->x, within step(). `change` replaces m->g by
   what is sent; NULL: m->g is sent. *sent false: the gradient is not finite and the step is
   skipped; nothing was sent and *answers is not set. */
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

/* The hook final_model: x := the server's values. */
static inline tutti_status arrivals_final_model(tutti_method *m, tutti_error *err)
{
    return tutti_server_final_model(arrivals_server(m), err);
}

/* The hook retire: notifies the server that this worker makes no more steps. */
static inline tutti_status arrivals_leave(tutti_method *m, tutti_error *err)
{
    tutti_server_answers answers;

    return tutti_server_ask(arrivals_server(m), 0, LEAVES, 0, &answers, err);
}
#endif
