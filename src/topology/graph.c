/* graph.c: a spec becomes a graph; its rows; facts about it. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "topology_internal.h"

static const tutti_graph_rules alone = { "alone", "one member", NULL, true, NULL, NULL, NULL, NULL };

static tutti_status find_family(tutti_graph *g, tutti_error *err)
{
    const char *names[32];
    size_t n = 0;
    char near[160];

    for (; tutti_graph_table[n].name != NULL && n < TUTTI_LENGTH(names); n++) {
        names[n] = tutti_graph_table[n].name;
        if (strcmp(names[n], tutti_spec_name(g->spec)) == 0)
            g->family = &tutti_graph_table[n];
    }
    if (g->family != NULL)
        return TUTTI_OK;
    tutti_suggest(tutti_spec_name(g->spec), names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "there is no graph '%.60s'%s; `tutti topology` lists them", tutti_spec_name(g->spec), near);
}

static void neighbours(const tutti_graph *g, uint64_t k, int i, int sign, int *at, int *count)
{
    tutti_graph_list list = { at, 0, i };

    if (g->family->list != NULL)
        g->family->list(g, k, i, sign, &list);
    *count = list.count;
}

static tutti_status measure(tutti_graph *g, tutti_error *err)
{
    int *room = tutti_alloc((size_t)g->n, sizeof *room); /* a list never holds more than the others */
    tutti_status status = TUTTI_OK;

    if (!g->family->regular)
        g->degree = tutti_alloc((size_t)g->n, sizeof *g->degree);
    if (room == NULL || (!g->family->regular && g->degree == NULL))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a graph of %d members", g->n);
    for (int i = 0; status == TUTTI_OK && i < (g->family->regular ? 1 : g->n); i++) {
        int count;
        neighbours(g, 0, i, -1, room, &count);
        if (g->degree != NULL)
            g->degree[i] = count;
        if (count > g->degree_max)
            g->degree_max = count;
    }
    tutti_free(room);
    return status;
}

static tutti_status open_graph(tutti_graph *g, const char *spec, tutti_error *err)
{
    char what[64], mend[200];

    if (g->n < 1 || g->n > TUTTI_GRAPH_SIZE_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a graph of %d members; it must have from 1 to %d", g->n, TUTTI_GRAPH_SIZE_MAX);
    TUTTI_TRY(tutti_fail_within(err, tutti_spec_open(&g->spec, spec, err), "graph"));
    TUTTI_TRY(find_family(g, err));
    snprintf(what, sizeof what, "graph '%s'", g->family->name);
    TUTTI_TRY(tutti_spec_apply(g->spec, what, g->family->options, &g->options, err));
    if (g->n == 1) /* nobody to talk to: any spec that is well-formed will do */
        g->family = &alone;
    if (g->family->fits != NULL && !g->family->fits(g, mend, sizeof mend))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "graph '%s' cannot have %d members; their number must be %s", g->family->name, g->n, mend);
    if (g->family->prepare != NULL)
        TUTTI_TRY(g->family->prepare(g, err));
    g->period = g->family->period != NULL ? g->family->period(g) : 1;
    return measure(g, err);
}

tutti_status tutti_graph_open(tutti_graph **out, const char *spec, int n, tutti_error *err)
{
    tutti_graph *g = tutti_alloc(1, sizeof *g);
    tutti_status status;

    *out = NULL;
    if (g == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening graph '%.60s'", spec);
    g->n = n;
    status = open_graph(g, spec, err);
    if (status == TUTTI_OK)
        *out = g;
    else
        tutti_graph_close(g);
    return status;
}

void tutti_graph_close(tutti_graph *g)
{
    if (g == NULL)
        return;
    tutti_free(g->degree);
    tutti_free(g->order);
    tutti_free(g->place);
    tutti_spec_close(g->spec);
    tutti_free(g);
}

int tutti_graph_size(const tutti_graph *g)
{
    return g->n;
}

uint64_t tutti_graph_period(const tutti_graph *g)
{
    return g->period;
}

int tutti_graph_degree(const tutti_graph *g)
{
    return g->degree_max;
}

static double weight(const tutti_graph *g, int i, int j)
{
    if (g->degree == NULL)
        return 1.0 / (g->degree_max + 1);
    return 1.0 / (1 + (g->degree[i] > g->degree[j] ? g->degree[i] : g->degree[j])); /* Metropolis-Hastings */
}

void tutti_graph_round(const tutti_graph *g, uint64_t k, int i, int *in, double *w_in, int *n_in, int *out, double *w_out, int *n_out, double *self)
{
    neighbours(g, k, i, -1, in, n_in);
    neighbours(g, k, i, 1, out, n_out);
    *self = 1;
    for (int a = 0; a < *n_in; a++) {
        w_in[a] = weight(g, i, in[a]);
        *self -= w_in[a];
    }
    for (int a = 0; a < *n_out; a++)
        w_out[a] = weight(g, i, out[a]);
    if (g->degree == NULL) /* the same bits as its neighbours' weights: the complete graph is then an all-reduce, to the bit */
        *self = 1.0 / (g->degree_max + 1);
}

/* ---- facts ---- */

typedef struct rows { int *in, *out; double *w_in, *w_out; int *color, *queue; double *column; } rows;

static bool rows_open(rows *r, const tutti_graph *g)
{
    const size_t n = (size_t)g->n, d = (size_t)g->degree_max + 1;

    r->in = tutti_alloc(d, sizeof *r->in);
    r->out = tutti_alloc(d, sizeof *r->out);
    r->w_in = tutti_alloc(d, sizeof *r->w_in);
    r->w_out = tutti_alloc(d, sizeof *r->w_out);
    r->color = tutti_alloc(n, sizeof *r->color);
    r->queue = tutti_alloc(n, sizeof *r->queue);
    r->column = tutti_alloc(n, sizeof *r->column);
    return r->in != NULL && r->out != NULL && r->w_in != NULL && r->w_out != NULL && r->color != NULL && r->queue != NULL && r->column != NULL;
}

static void rows_close(rows *r)
{
    tutti_free(r->in);
    tutti_free(r->out);
    tutti_free(r->w_in);
    tutti_free(r->w_out);
    tutti_free(r->color);
    tutti_free(r->queue);
    tutti_free(r->column);
}

/* Breadth first over the edges of all rounds, colours alternating: how many members are reached from 0, and whether two of one colour meet. */
static void walk(const tutti_graph *g, rows *r, int *reached, bool *two_colours)
{
    int head = 0;

    memset(r->color, 0, (size_t)g->n * sizeof *r->color);
    *reached = 1;
    *two_colours = true;
    r->queue[0] = 0;
    r->color[0] = 1;
    while (head < *reached) {
        const int i = r->queue[head++];
        for (uint64_t k = 0; k < g->period; k++)
            for (int sign = -1; sign <= 1; sign += 2) {
                int count;
                neighbours(g, k, i, sign, r->in, &count);
                for (int a = 0; a < count; a++) {
                    const int j = r->in[a];
                    if (r->color[j] == 0) {
                        r->color[j] = 3 - r->color[i];
                        r->queue[(*reached)++] = j;
                    } else if (r->color[j] == r->color[i])
                        *two_colours = false;
                }
            }
    }
}

static bool each_round(const tutti_graph *g, rows *r, bool symmetric, bool regular)
{
    for (uint64_t k = 0; k < g->period; k++) {
        for (int i = 0; i < g->n; i++) {
            int n_in, n_out;
            double self;
            tutti_graph_round(g, k, i, r->in, r->w_in, &n_in, r->out, r->w_out, &n_out, &self);
            if (regular && (n_in != g->degree_max || n_out != g->degree_max))
                return false;
            if (symmetric && (n_in != n_out || memcmp(r->in, r->out, (size_t)n_in * sizeof *r->in) != 0))
                return false; /* equal lists have equal weights */
        }
    }
    return true;
}

static bool doubly_stochastic(const tutti_graph *g, rows *r)
{
    for (uint64_t k = 0; k < g->period; k++) {
        memset(r->column, 0, (size_t)g->n * sizeof *r->column);
        for (int i = 0; i < g->n; i++) {
            int n_in, n_out;
            double self, row;
            tutti_graph_round(g, k, i, r->in, r->w_in, &n_in, r->out, r->w_out, &n_out, &self);
            row = self;
            r->column[i] += self;
            for (int a = 0; a < n_in; a++) {
                row += r->w_in[a];
                r->column[r->in[a]] += r->w_in[a];
            }
            if (self < 0 || fabs(row - 1) > 1e-12)
                return false;
        }
        for (int i = 0; i < g->n; i++)
            if (fabs(r->column[i] - 1) > 1e-12)
                return false;
    }
    return true;
}

bool tutti_graph_is(const tutti_graph *g, const char *property)
{
    rows r = { 0 };
    bool is = false, two_colours;
    int reached;

    if (strcmp(property, "static") == 0)
        return g->period == 1;
    if (strcmp(property, "exact") == 0) {
        double gap;
        return tutti_graph_gap(g, &gap, NULL) == TUTTI_OK && gap > 1 - 1e-12;
    }
    if (rows_open(&r, g)) {
        walk(g, &r, &reached, &two_colours);
        if (strcmp(property, "connected") == 0)
            is = reached == g->n;
        else if (strcmp(property, "bipartite") == 0)
            is = two_colours;
        else if (strcmp(property, "symmetric") == 0)
            is = each_round(g, &r, true, false);
        else if (strcmp(property, "regular") == 0)
            is = each_round(g, &r, false, true);
        else if (strcmp(property, "doubly-stochastic") == 0)
            is = doubly_stochastic(g, &r);
    }
    rows_close(&r);
    return is;
}
