/* apart.c: implements apart.h: finds the connected parts of a graph by union-find. */
#include <errno.h>

#include "apart.h"

static int root_of(int *part, int i)
{
    while (part[i] != i) {
        /* keeps paths short: in a ring they would be as long as the ring */
        part[i] = part[part[i]];
        i = part[i];
    }
    return i;
}

typedef struct scratch {
    int *part, *in, *out;
    double *w_in, *w_out;
} scratch;

static void drop(scratch *s)
{
    tutti_free(s->part);
    tutti_free(s->in);
    tutti_free(s->out);
    tutti_free(s->w_in);
    tutti_free(s->w_out);
}

/* Joins the part of member i with those of its n_in neighbours s->in that remain. Returns how many
   parts that leaves fewer. */
static int join_parts(scratch *s, const bool *lost, int i, int n_in)
{
    int fewer = 0;

    for (int a = 0; a < n_in; a++) {
        const int theirs = lost[s->in[a]] ? -1 : root_of(s->part, s->in[a]),
                  mine = root_of(s->part, i);
        fewer += theirs >= 0 && theirs != mine;
        if (theirs >= 0)
            s->part[theirs] = mine;
    }
    return fewer;
}

/* A member that member i cannot reach; -1: there is none. */
static int find_unreached(const tutti_graph *graph, uint64_t k, const bool *lost, int of,
                          scratch *s)
{
    enum { DRAWN_ROUNDS = 256 };
    const uint64_t period = tutti_graph_period(graph), rounds = period > 0 ? period : DRAWN_ROUNDS;
    const int n = tutti_graph_size(graph);
    int n_in, n_out, parts = 0;
    double self;

    for (int i = 0; i < n; i++) {
        s->part[i] = i;
        parts += !lost[i];
    }
    for (uint64_t j = 0; j < rounds && parts > 1; j++)
        for (int i = 0; i < n && parts > 1; i++) {
            if (lost[i])
                continue;
            tutti_graph_round(graph, k + j, i, s->in, s->w_in, &n_in, s->out, s->w_out, &n_out,
                              &self);
            parts -= join_parts(s, lost, i, n_in);
        }
    for (int i = 0; i < n && parts > 1; i++)
        if (!lost[i] && root_of(s->part, i) != root_of(s->part, of))
            return i;
    return -1;
}

void tutti_apart_tell_of(tutti_method *m, int other)
{
    tutti_event(m, "disconnected",
                "without the workers that are lost the graph is not connected: workers %d and %d "
                "have no path to average any more, until the end, when all remaining workers "
                "average",
                m->rank, other);
}

tutti_status tutti_apart_tell(tutti_method *m, const tutti_graph *graph, uint64_t k,
                              const bool *lost, tutti_error *err)
{
    const size_t n = (size_t)tutti_graph_size(graph), d = (size_t)tutti_graph_degree(graph) + 1;
    scratch s = { .part = tutti_alloc(n, sizeof *s.part),
                  .in = tutti_alloc(d, sizeof *s.in),
                  .out = tutti_alloc(d, sizeof *s.out),
                  .w_in = tutti_alloc(d, sizeof *s.w_in),
                  .w_out = tutti_alloc(d, sizeof *s.w_out) };
    const bool all =
        s.part != NULL && s.in != NULL && s.out != NULL && s.w_in != NULL && s.w_out != NULL;
    const int other = all && !lost[m->rank] ? find_unreached(graph, k, lost, m->rank, &s) : -1;

    drop(&s);
    if (!all)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "looking at the graph without the workers that are lost");
    if (other >= 0)
        tutti_apart_tell_of(m, other);
    return TUTTI_OK;
}
