/* facts.c: tutti_graph_require and tutti_graph_is (gossip.h): the properties of a graph in all
   rounds. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "topology_internal.h"

/* A file's weights are decimals: 1e-9 lets ten digits of 1/3 pass, and is how far a
   round may move the mean, relatively. */
static double tolerance(const tutti_graph *g)
{
    return g->edges != NULL ? 1e-9 : 1e-12;
}

typedef struct subject { /* of a check, with its buffers */
    const tutti_graph *g;
    tutti_error *err;
    char name[160];
    int *in, *out;        /* [n] */
    double *w_in, *w_out; /* [degree + 1] */
    int *mark, *queue;    /* [n] */
    double *column;       /* [n] */
    int n_in, n_out;
    double self;
} subject;

static tutti_status subject_open(subject *s, const tutti_graph *g, tutti_error *err)
{
    const size_t n = (size_t)g->n, d = (size_t)g->degree_max + 1;

    *s = (subject){ .g = g,
                    .err = err,
                    .in = tutti_alloc(n + 1, sizeof *s->in),
                    .out = tutti_alloc(n + 1, sizeof *s->out),
                    .w_in = tutti_alloc(d, sizeof *s->w_in),
                    .w_out = tutti_alloc(d, sizeof *s->w_out),
                    .mark = tutti_alloc(n, sizeof *s->mark),
                    .queue = tutti_alloc(n, sizeof *s->queue),
                    .column = tutti_alloc(n, sizeof *s->column) };
    tutti_graph_print(g, s->name, sizeof s->name);
    if (s->in == NULL || s->out == NULL || s->w_in == NULL || s->w_out == NULL || s->mark == NULL ||
        s->queue == NULL || s->column == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "looking at graph '%s' of %d members",
                          s->name, g->n);
    return TUTTI_OK;
}

static void subject_close(subject *s)
{
    tutti_free(s->in);
    tutti_free(s->out);
    tutti_free(s->w_in);
    tutti_free(s->w_out);
    tutti_free(s->mark);
    tutti_free(s->queue);
    tutti_free(s->column);
}

#define NOT(s, format, ...) \
    tutti_fail((s)->err, TUTTI_ERR_USAGE, 0, "graph '%s' of %d members " format, (s)->name, \
               (s)->g->n, __VA_ARGS__)

static void row(subject *s, uint64_t k, int i)
{
    tutti_graph_round(s->g, k, i, s->in, s->w_in, &s->n_in, s->out, s->w_out, &s->n_out, &s->self);
}

/* Breadth first from member 0 along the edges of all rounds: only as values go (sign 1), against
   them (-1), or both (0). Gives how many were reached. With both, colours alternate in mark, and
   *a, *b are two neighbours of one colour, or -1. */
static int walk(subject *s, int sign, int *a, int *b)
{
    const tutti_graph *g = s->g;
    tutti_graph_list list = { .at = s->in };
    int head = 0, reached = 1;

    *a = *b = -1;
    memset(s->mark, 0, (size_t)g->n * sizeof *s->mark);
    s->queue[0] = 0;
    s->mark[0] = 1;
    while (head < reached && (reached < g->n || (sign == 0 && *a < 0))) {
        const int i = s->queue[head++];
        for (uint64_t k = 0; k < tutti_graph_meetings(g); k++)
            for (int side = -1; side <= 1; side += 2) {
                if (sign == -side)
                    continue;
                tutti_graph_meets(g, k, i, side, &list);
                for (int c = 0; c < list.count; c++) {
                    const int j = list.at[c];
                    if (s->mark[j] == 0) {
                        s->mark[j] = 3 - s->mark[i];
                        s->queue[reached++] = j;
                    } else if (s->mark[j] == s->mark[i] && *a < 0) {
                        *a = i < j ? i : j;
                        *b = i < j ? j : i;
                    }
                }
            }
    }
    return reached;
}

static int first_unmarked(const subject *s)
{
    int i = 0;
    while (i < s->g->n && s->mark[i] != 0)
        i++;
    return i;
}

static tutti_status connected(subject *s)
{
    int a, b;

    if (walk(s, 1, &a, &b) < s->g->n)
        return NOT(s, "is not connected: the values of member 0 never reach member %d",
                   first_unmarked(s));
    if (walk(s, -1, &a, &b) < s->g->n)
        return NOT(s, "is not connected: the values of member %d never reach member 0",
                   first_unmarked(s));
    return TUTTI_OK;
}

static tutti_status bipartite(subject *s)
{
    int a, b;

    walk(s, 0, &a, &b);
    return a < 0 ? TUTTI_OK
                 : NOT(s,
                       "has no two roles: members %d and %d are neighbours, and a way of even "
                       "length joins them as well",
                       a, b);
}

static tutti_status symmetric(subject *s)
{
    if (s->g->family->drawn)
        return TUTTI_OK; /* by construction: one list serves both directions */
    for (uint64_t k = 0; k < s->g->period; k++)
        for (int i = 0; i < s->g->n; i++) {
            row(s, k, i);
            for (int a = 0; a < s->n_in || a < s->n_out; a++) {
                if (a >= s->n_in || (a < s->n_out && s->out[a] < s->in[a]))
                    return NOT(
                        s,
                        "is not symmetric: in round %llu member %d gives to %d and takes nothing",
                        (unsigned long long)k, i, s->out[a]);
                if (a >= s->n_out || s->in[a] < s->out[a])
                    return NOT(
                        s,
                        "is not symmetric: in round %llu member %d takes from %d and gives nothing",
                        (unsigned long long)k, i, s->in[a]);
                if (fabs(s->w_in[a] - s->w_out[a]) > 1e-15)
                    return NOT(s,
                               "is not symmetric: in round %llu member %d takes %.9g of %d, which "
                               "takes %.9g of it",
                               (unsigned long long)k, i, s->w_in[a], s->in[a], s->w_out[a]);
            }
        }
    return TUTTI_OK;
}

static tutti_status regular(subject *s)
{
    int degree = -1, who = 0;

    if (s->g->family->drawn)
        return s->g->family->regular || (s->g->family->cliques && s->g->n % 2 == 0)
                   ? TUTTI_OK
                   : NOT(s, "is not regular: members have %s neighbours", "differing numbers of");
    for (uint64_t k = 0; k < s->g->period; k++)
        for (int i = 0; i < s->g->n; i++) {
            row(s, k, i);
            if (degree < 0)
                degree = s->n_in;
            if (s->n_in != degree || s->n_out != degree)
                who = s->n_in != degree ? s->n_in : s->n_out;
            else
                continue;
            return NOT(s,
                       "is not regular: in round %llu member %d has %d neighbour%s, member 0 has "
                       "%d in round 0",
                       (unsigned long long)k, i, who, who == 1 ? "" : "s", degree);
        }
    return TUTTI_OK;
}

/* Columns: what member i's values weigh in all members together; rows: what member i makes of
   all. */
static tutti_status sums(subject *s, bool rows)
{
    const tutti_graph *g = s->g;

    if (g->family->drawn)
        return TUTTI_OK; /* symmetric, and self is the rest */
    for (uint64_t k = 0; k < g->period; k++) {
        memset(s->column, 0, (size_t)g->n * sizeof *s->column);
        for (int i = 0; i < g->n; i++) {
            double sum;
            row(s, k, i);
            sum = s->self;
            s->column[i] += s->self;
            for (int a = 0; a < s->n_in; a++) {
                sum += s->w_in[a];
                s->column[s->in[a]] += s->w_in[a];
                if (s->w_in[a] < 0)
                    return NOT(s, "has a negative weight: in round %llu member %d takes %.9g of %d",
                               (unsigned long long)k, i, s->w_in[a], s->in[a]);
            }
            if (s->self < 0)
                return NOT(s, "has a negative weight: in round %llu member %d keeps %.9g of itself",
                           (unsigned long long)k, i, s->self);
            if (rows && fabs(sum - 1) > tolerance(g))
                return NOT(s,
                           "is not doubly stochastic: in round %llu the weights that member %d "
                           "gives to all (row %d) sum to %.9g instead of 1",
                           (unsigned long long)k, i, i, sum);
        }
        for (int i = 0; i < g->n; i++)
            if (fabs(s->column[i] - 1) > tolerance(g))
                return NOT(s,
                           "is not column-stochastic: in round %llu the weights that all give to "
                           "member %d (column %d) sum to %.9g instead of 1",
                           (unsigned long long)k, i, i, s->column[i]);
    }
    return TUTTI_OK;
}

static tutti_status exact(subject *s)
{
    double gap;

    TUTTI_TRY(tutti_graph_gap(s->g, &gap, s->err));
    if (gap > 1 - 1e-12)
        return TUTTI_OK;
    return NOT(s, "is not exact: %s leaves up to %.5f of the distance from the mean",
               s->g->period > 1 ? "a period" : "a round", 1 - gap);
}

static tutti_status fixed(subject *s)
{
    if (s->g->period == 1)
        return TUTTI_OK;
    if (s->g->period == 0)
        return NOT(s, "changes with the round: it is drawn %s", "anew each time");
    return NOT(s, "changes with the round: it repeats after %llu",
               (unsigned long long)s->g->period);
}

tutti_status tutti_graph_require(const tutti_graph *g, const char *property, tutti_error *err)
{
    subject s;
    tutti_status status = subject_open(&s, g, err);

    if (status != TUTTI_OK)
        ;
    else if (strcmp(property, "static") == 0)
        status = fixed(&s);
    else if (strcmp(property, "exact") == 0)
        status = exact(&s);
    else if (strcmp(property, "connected") == 0)
        status = connected(&s);
    else if (strcmp(property, "bipartite") == 0)
        status = bipartite(&s);
    else if (strcmp(property, "symmetric") == 0)
        status = symmetric(&s);
    else if (strcmp(property, "regular") == 0)
        status = regular(&s);
    else if (strcmp(property, "column-stochastic") == 0)
        status = sums(&s, false);
    else if (strcmp(property, "doubly-stochastic") == 0)
        status = sums(&s, true);
    else
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "graphs have no property '%.40s'; there are static, symmetric, "
                            "regular, doubly-stochastic, column-stochastic, bipartite, connected "
                            "and exact",
                            property);
    subject_close(&s);
    return status;
}

bool tutti_graph_is(const tutti_graph *g, const char *property)
{
    return tutti_graph_require(g, property, NULL) == TUTTI_OK;
}
