/* matching.c: tutti_matchings_find: partitions the edges of a graph into matchings, by edge
   colouring: Misra and Gries, A constructive proof of Vizing's theorem, Information Processing
   Letters 41, 1992. The edges of a colour are a matching. The number of colours is at most one
   more than the largest degree. partner[c * n + v] is the neighbour of v by the edge of colour c;
   if v has none: -1 during the search, v in the result. */
#include <errno.h>

#include "topology_internal.h"

typedef struct painter {
    int n, colours, *partner;
    int *fan;        /* [largest degree] */
    int *path;       /* [n + 1] */
    bool *in_fan;    /* [n] */
} painter;

static int *at(const painter *p, int v, int colour)
{
    return &p->partner[(size_t)colour * (size_t)p->n + (size_t)v];
}

static void paint(const painter *p, int u, int v, int colour)
{
    *at(p, u, colour) = v;
    *at(p, v, colour) = u;
}

static void clear(const painter *p, int u, int v, int colour)
{
    *at(p, u, colour) = *at(p, v, colour) = -1;
}

static int free_colour(const painter *p, int v)
{
    int colour = 0;
    while (*at(p, v, colour) >= 0) /* there is one: more colours than neighbours */
        colour++;
    return colour;
}

static int colour_of(const painter *p, int u, int v)
{
    int colour = 0;
    while (*at(p, u, colour) != v)
        colour++;
    return colour;
}

/* A fan of u: neighbours, the first by the edge to paint, each edge's colour free at
   the one before; as long as it gets. */
static int find_fan(painter *p, int u, int first)
{
    int length = 0, next = first;

    while (next >= 0) {
        p->fan[length++] = next;
        p->in_fan[next] = true;
        next = -1;
        for (int colour = 0; colour < p->colours && next < 0; colour++) {
            const int v = *at(p, u, colour);
            if (v >= 0 && !p->in_fan[v] && *at(p, p->fan[length - 1], colour) < 0)
                next = v;
        }
    }
    for (int k = 0; k < length; k++)
        p->in_fan[p->fan[k]] = false;
    return length;
}

/* c is free at u: the path from u along d, c, d, .. changes its colours. */
static void invert(const painter *p, int u, int c, int d)
{
    int length = 0;

    for (int v = u; v >= 0; length++) {
        p->path[length] = v;
        v = *at(p, v, length % 2 == 0 ? d : c);
    }
    for (int k = 0; k + 1 < length; k++)
        clear(p, p->path[k], p->path[k + 1], k % 2 == 0 ? d : c);
    for (int k = 0; k + 1 < length; k++)
        paint(p, p->path[k], p->path[k + 1], k % 2 == 0 ? c : d);
}

static void paint_edge(painter *p, int u, int v)
{
    const int length = find_fan(p, u, v), c = free_colour(p, u),
              d = free_colour(p, p->fan[length - 1]);
    int last = 0;

    if (*at(p, u, d) >= 0)
        invert(p, u, c, d);
    /* the theorem: it ends before the fan does, and what comes before is a fan still */
    while (*at(p, p->fan[last], d) >= 0)
        last++;
    for (int k = 0; k < last; k++) {
        const int colour = colour_of(p, u, p->fan[k + 1]);
        clear(p, u, p->fan[k + 1], colour);
        paint(p, u, p->fan[k], colour);
    }
    paint(p, u, p->fan[last], d);
}

/* Completes the matching of colour c, or leaves it out if no edge has it; the used ones stand
 * first. */
static void complete(tutti_matchings *m, painter *p, size_t c)
{
    const size_t n = (size_t)p->n;
    bool used = false;
    for (size_t v = 0; v < n; v++) {
        used = used || p->partner[c * n + v] >= 0;
        if (p->partner[c * n + v] < 0)
            p->partner[c * n + v] = (int)v;
    }
    for (size_t v = 0; used && v < n; v++)
        p->partner[(size_t)m->count * n + v] = p->partner[c * n + v];
    m->count += used;
}

tutti_status tutti_matchings_find(tutti_matchings *m, const tutti_graph *base, tutti_error *err)
{
    const size_t n = (size_t)base->n, colours = (size_t)base->degree_max + 1;
    painter p = { .n = base->n,
                  .colours = (int)colours,
                  .partner = tutti_alloc(n * colours, sizeof *p.partner),
                  .fan = tutti_alloc(colours, sizeof *p.fan),
                  .path = tutti_alloc(n + 1, sizeof *p.path),
                  .in_fan = tutti_alloc(n, sizeof *p.in_fan) };
    tutti_graph_list list = { .at = tutti_alloc(colours, sizeof *list.at) };
    tutti_status status = TUTTI_OK;

    m->partner = p.partner;
    if (p.partner == NULL || p.fan == NULL || p.path == NULL || p.in_fan == NULL || list.at == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "the matchings of a graph of %d members with up to %d neighbours",
                            base->n, base->degree_max);
    for (size_t e = 0; status == TUTTI_OK && e < n * colours; e++)
        p.partner[e] = -1;
    for (int u = 0; status == TUTTI_OK && u < base->n; u++) {
        tutti_graph_neighbours(base, 0, u, -1, &list);
        for (int a = 0; a < list.count; a++)
            if (list.at[a] > u)
                paint_edge(&p, u, list.at[a]);
    }
    for (size_t c = 0; status == TUTTI_OK && c < colours; c++)
        complete(m, &p, c);
    tutti_free(p.fan);
    tutti_free(p.path);
    tutti_free(p.in_fan);
    tutti_free(list.at);
    return status;
}
