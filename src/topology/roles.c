/* roles.c: tutti_graph_roles and tutti_graph_partners (gossip.h): divides the members into those
   that ask and those that answer. */
#include <errno.h>
#include <string.h>

#include "topology_internal.h"
#include "graph.h"

/* Sets met[j] of each member j that is a neighbour of i in some round. at[n]: scratch. */
static void mark(const tutti_graph *g, int i, int *at, bool *met)
{
    tutti_graph_list list = { .at = at };

    memset(met, 0, (size_t)g->n * sizeof *met);
    for (uint64_t k = 0; k < tutti_graph_meetings(g); k++)
        for (int sign = -1; sign <= 1; sign += 2) {
            tutti_graph_meets(g, k, i, sign, &list);
            for (int a = 0; a < list.count; a++)
                met[list.at[a]] = true;
        }
}

typedef struct scratch { int *at, *queue; bool *met, *seen; } scratch; /* [n] each */

static void scratch_close(scratch *r)
{
    tutti_free(r->at);
    tutti_free(r->queue);
    tutti_free(r->met);
    tutti_free(r->seen);
}

static tutti_status scratch_open(scratch *r, const tutti_graph *g, tutti_error *err)
{
    const size_t n = (size_t)g->n;

    *r = (scratch){ tutti_alloc(n, sizeof *r->at), tutti_alloc(n, sizeof *r->queue),
                    tutti_alloc(n, sizeof *r->met), tutti_alloc(n, sizeof *r->seen) };
    if (r->at != NULL && r->queue != NULL && r->met != NULL && r->seen != NULL)
        return TUTTI_OK;
    scratch_close(r);
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "finding the roles in a graph of %d members",
                      g->n);
}

/* Breadth first from member 0; levels: asks is written, a level after the other; else only edges
   between roles are walked. Gives how many were reached. */
static int walk(const tutti_graph *g, scratch *r, bool levels, bool *asks)
{
    int head = 0, reached = 1;

    memset(r->seen, 0, (size_t)g->n * sizeof *r->seen);
    r->queue[0] = 0;
    r->seen[0] = true;
    if (levels)
        asks[0] = false;
    while (head < reached) {
        const int i = r->queue[head++];
        mark(g, i, r->at, r->met);
        for (int j = 0; j < g->n; j++)
            if (r->met[j] && !r->seen[j] && (levels || asks[j] != asks[i])) {
                if (levels)
                    asks[j] = !asks[i];
                r->seen[j] = true;
                r->queue[reached++] = j;
            }
    }
    return reached;
}

tutti_status tutti_graph_roles(const tutti_graph *g, bool *asks, int *left_out, tutti_error *err)
{
    scratch r;
    int within = 0;

    TUTTI_TRY(scratch_open(&r, g, err));
    for (int i = 0; i < g->n; i++)
        asks[i] = i % 2 == 1;
    if (walk(g, &r, false, asks) < g->n)
        walk(g, &r, true, asks);
    for (int i = 0; i < g->n; i++) {
        mark(g, i, r.at, r.met);
        for (int j = 0; j < i; j++)
            within += r.met[j] && asks[j] == asks[i];
    }
    scratch_close(&r);
    *left_out = within;
    return TUTTI_OK;
}

tutti_status tutti_graph_partners(const tutti_graph *g, const bool *asks, int i, int *partner,
                                  int *partners, tutti_error *err)
{
    scratch r;

    *partners = 0;
    TUTTI_TRY(scratch_open(&r, g, err));
    mark(g, i, r.at, r.met);
    for (int j = 0; j < g->n; j++)
        if (r.met[j] && (asks == NULL || asks[j] != asks[i]))
            partner[(*partners)++] = j;
    scratch_close(&r);
    return TUTTI_OK;
}
