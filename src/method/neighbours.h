/* neighbours.h: a local step and an average with the neighbours of a graph, in one of two orders.
   Lian, Zhang, Zhang, Hsieh, Zhang, Liu, NeurIPS 2017, arXiv 1705.09056, algorithm 1. Included by
   d-psgd.c, as its step, and by slowmo.c, as a part of its step. All of it is in this file.

     awc    averaging with computation: models travel while the gradient is computed
              x_i <- sum_j W_ij x_j - eta opt(g_i(x_i))
     atc    adapt, then combine
              x_i <- sum_j W_ij (x_j - eta opt(g_j(x_j)))

   x_i: the model of worker i (m->x); g_i: its gradient; W: the graph's weights (gossip.h); opt,
   eta: the run's optimiser and its learning rate. */
#ifndef TUTTI_METHOD_NEIGHBOURS_H
#define TUTTI_METHOD_NEIGHBOURS_H
#include "tutti/method/gossip.h"

typedef struct neighbours {
    /* options */
    const char *graph;           /* a graph spec */
    int order;                   /* NEIGHBOURS_AWC, NEIGHBOURS_ATC */
    bool overlap;                /* awc: models travel while the gradient is computed */
    double gamma;                /* as tutti_mixer_options has it */

    tutti_mixer *mixer;
    float *mixed;                /* [n]: receives sum_j W_ij x_j while x is still read; NULL: order
                                    is atc, or there is one worker */
} neighbours;
enum { NEIGHBOURS_AWC, NEIGHBOURS_ATC };

/* The row of `order` in a method's table of options. */
#define NEIGHBOURS_ORDER(at, when) \
    { "order", TUTTI_CHOICE, at, NEIGHBOURS_AWC, 0, 1, "awc|atc", \
      "awc: average the models the gradients were taken at; atc: update, then average", when }

/* Declares the mixer, within declare(). Fails as tutti_mixer_declare does. */
static inline tutti_status neighbours_declare(neighbours *s, tutti_method *m, tutti_plan *plan,
                                              tutti_error *err)
{
    if (s->order == NEIGHBOURS_AWC && m->workers > 1)
        tutti_declare_vector(plan, "d-psgd.mixed", TUTTI_SCRATCH, &s->mixed);
    return tutti_mixer_declare(
        &s->mixer, m, plan,
        &(tutti_mixer_options){ .graph = s->graph,
                                .encode = true,
                                .ahead = s->order == NEIGHBOURS_AWC && s->overlap,
                                .gamma = s->gamma },
        err);
}

/* Starts the average of awc in a step's first pass, within pass(). */
static inline tutti_status neighbours_pass(neighbours *s, tutti_method *m, const tutti_pass *p,
                                           tutti_error *err)
{
    if (s->mixed == NULL || p->index > 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_values_get(m, err));
    tutti_mix_start(s->mixer, m->step, m->x, s->mixed, NULL);
    return TUTTI_OK;
}

/* Makes the step, with the gradient in m->g, within step(). */
static inline tutti_status neighbours_step(neighbours *s, tutti_method *m, tutti_error *err)
{
    if (s->mixed != NULL) {
        TUTTI_TRY(tutti_mix_wait(s->mixer, err));
        tutti_copy(m->device, m->layout->used, s->mixed, m->x); /* a = sum_j W_ij x_j */
        tutti_values_set(m);
    }
    TUTTI_TRY(tutti_base_step(m, err));                         /* a - eta opt(g)     */
    if (s->order != NEIGHBOURS_ATC)
        return TUTTI_OK;
    TUTTI_TRY(tutti_values_get(m, err));
    tutti_values_set(m);
    return tutti_mix(s->mixer, m->step, m->x, m->x, NULL, err);
}
#endif
