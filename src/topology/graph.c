/* graph.c: opens a graph from a spec, and computes a member's row of W in a round (gossip.h). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "topology_internal.h"
#include "base/options.h"

static const tutti_graph_rules alone = { .name = "alone", .help = "one member", .regular = true };

/* ---- all families ---- */

const tutti_graph_rules *tutti_graph_rules_at(int i)
{
    static const tutti_graph_rules *const tables[] = { tutti_graph_fixed, tutti_graph_staged,
                                                       tutti_graph_drawn, tutti_graph_matcha,
                                                       tutti_graph_filed };

    for (size_t t = 0; i >= 0 && t < TUTTI_LENGTH(tables); t++)
        for (const tutti_graph_rules *family = tables[t]; family->name != NULL; family++)
            if (i-- == 0)
                return family;
    return NULL;
}

bool tutti_graph_family(int i, const char **name, const char **help, const tutti_option **options)
{
    const tutti_graph_rules *family = tutti_graph_rules_at(i);

    *name = family != NULL ? family->name : NULL;
    *help = family != NULL ? family->help : NULL;
    *options = family != NULL ? family->options : NULL;
    return family != NULL;
}

static tutti_status find_family(tutti_graph *g, tutti_error *err)
{
    const char *names[32];
    size_t n = 0;
    char near[160];

    for (const tutti_graph_rules *family;
         n < TUTTI_LENGTH(names) && (family = tutti_graph_rules_at((int)n)) != NULL; n++) {
        names[n] = family->name;
        if (strcmp(names[n], tutti_spec_name(g->spec)) == 0)
            g->family = family;
    }
    if (g->family != NULL)
        return TUTTI_OK;
    tutti_suggest(tutti_spec_name(g->spec), names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "there is no graph '%.60s'%s; `tutti topology` lists them",
                      tutti_spec_name(g->spec), near);
}

void tutti_graph_print(const tutti_graph *g, char *out, size_t bytes)
{
    if (tutti_spec_print(g->family->name, g->family->options, &g->options, out, bytes) >=
            (int)bytes &&
        bytes > 4)
        memcpy(out + bytes - 4, "...", 4);
}

/* ---- opening ---- */

void tutti_graph_neighbours(const tutti_graph *g, uint64_t k, int i, int sign,
                            tutti_graph_list *out)
{
    out->count = 0;
    out->owner = i;
    out->self = 1;
    if (g->family->list != NULL)
        g->family->list(g, k, i, sign, out);
}

uint64_t tutti_graph_meetings(const tutti_graph *g)
{
    return g->period > 0 ? g->period : 1;
}

void tutti_graph_meets(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    if (!g->family->drawn) {
        tutti_graph_neighbours(g, k, i, sign, out);
        return;
    }
    out->count = 0;
    out->owner = i;
    g->family->meets(g, i, out);
}

static double count_messages(const tutti_graph *g, tutti_graph_list *room)
{
    double sum = 0;

    if (g->family->drawn)
        return g->family->messages(g);
    if (g->family->regular)
        return (double)g->n * g->degree_max;
    for (uint64_t k = 0; k < g->period; k++)
        for (int i = 0; i < g->n; i++) {
            if (g->degree == NULL)
                tutti_graph_neighbours(g, k, i, -1, room);
            sum += g->degree != NULL ? g->degree[i] : room->count;
        }
    return sum / (double)g->period;
}

/* Sets degree_max, messages, and the degree of each member if degrees can differ. */
static tutti_status measure(tutti_graph *g, tutti_error *err)
{
    const bool each = !g->family->regular && g->family->degree == NULL;
    /* a list never holds more than the others */
    tutti_graph_list room = { .at = tutti_alloc((size_t)g->n, sizeof *room.at) };
    tutti_status status = TUTTI_OK;

    if (each)
        g->degree = tutti_alloc((size_t)g->n, sizeof *g->degree);
    if (room.at == NULL || (each && g->degree == NULL))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a graph of %d members", g->n);
    else if (g->family->degree != NULL)
        g->degree_max = g->family->degree(g);
    else
        for (int i = 0; i < (each ? g->n : 1); i++) {
            tutti_graph_neighbours(g, 0, i, -1, &room);
            if (each)
                g->degree[i] = room.count;
            if (room.count > g->degree_max)
                g->degree_max = room.count;
        }
    if (status == TUTTI_OK)
        g->messages = count_messages(g, &room);
    tutti_free(room.at);
    return status;
}

/* Returns a member of the smallest degree. *equal: all members have the same degree. */
static int least(const tutti_graph *g, bool *equal)
{
    int who = 0;

    *equal = true;
    for (int i = 0; g->degree != NULL && i < g->n; i++) {
        *equal = *equal && g->degree[i] == g->degree_max;
        if (g->degree[i] < g->degree[who])
            who = i;
    }
    return who;
}

static tutti_status find_alpha(tutti_graph *g, tutti_error *err)
{
    double second, last;

    TUTTI_TRY(tutti_graph_laplacian(g, &second, &last, err));
    g->alpha = 2 / (second + last);
    if (1 - g->alpha * g->degree_max < (g->options.lazy ? -1 : 0) - 1e-12)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "graph '%s' of %d members: weights=laplacian gives %.5f to each edge, so a member with "
            "%d neighbours would weigh itself %.5f; use weights=metropolis%s",
            g->family->name, g->n, g->alpha, g->degree_max, 1 - g->alpha * g->degree_max,
            1 - g->alpha * g->degree_max >= -1 ? ", or lazy=true" : "");
    return TUTTI_OK;
}

static tutti_status choose_weights(tutti_graph *g, tutti_error *err)
{
    bool equal;
    const int who = least(g, &equal);

    g->weights = (tutti_weights)g->options.weights;
    if (g->family->own || g->options.weight > 0)
        g->weights = TUTTI_WEIGHTS_OWN;
    else if (g->weights == TUTTI_WEIGHTS_LAPLACIAN)
        return g->n > 1 ? find_alpha(g, err) : TUTTI_OK;
    else if (g->weights == TUTTI_WEIGHTS_UNIFORM && !equal)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "graph '%s' of %d members: uniform weights need equal degrees, and "
                          "member %d has %d neighbour%s, another %d; use weights=metropolis, or "
                          "push for push-sum",
                          g->family->name, g->n, who, g->degree[who],
                          g->degree[who] == 1 ? "" : "s", g->degree_max);
    else if (g->family->regular || g->family->cliques || g->weights == TUTTI_WEIGHTS_UNIFORM ||
             (g->weights == TUTTI_WEIGHTS_PUSH && equal))
        g->weights = TUTTI_WEIGHTS_UNIFORM;
    else if (g->weights == TUTTI_WEIGHTS_AUTO)
        g->weights = TUTTI_WEIGHTS_METROPOLIS;
    return TUTTI_OK;
}

static tutti_status open_graph(tutti_graph *g, const char *spec, bool push, tutti_error *err)
{
    char what[64], mend[200];

    if (g->n < 1 || g->n > TUTTI_GRAPH_SIZE_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a graph of %d members; it must have from 1 to %d", g->n,
                          TUTTI_GRAPH_SIZE_MAX);
    TUTTI_TRY(tutti_fail_within(err, tutti_spec_open(&g->spec, spec, err), "graph"));
    TUTTI_TRY(find_family(g, err));
    snprintf(what, sizeof what, "graph '%s'", g->family->name);
    TUTTI_TRY(tutti_spec_apply(g->spec, what, g->family->options, &g->options, err));
    if (g->n == 1) { /* no neighbours: any well-formed spec will do */
        g->family = &alone;
        g->options = (tutti_graph_options){ 0 };
    }
    if (g->family->fits != NULL && !g->family->fits(g, mend, sizeof mend))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "graph '%s' cannot have %d members; their number must be %s",
                          g->family->name, g->n, mend);
    if (g->family->prepare != NULL)
        TUTTI_TRY(g->family->prepare(g, err));
    g->period = g->family->drawn ? 0 : g->family->period != NULL ? g->family->period(g) : 1;
    TUTTI_TRY(measure(g, err));
    TUTTI_TRY(choose_weights(g, err));
    if (!push && (g->weights == TUTTI_WEIGHTS_PUSH ||
                  g->edges != NULL)) /* all others are so by construction */
        TUTTI_TRY(
            tutti_fail_within(err, tutti_graph_require(g, "doubly-stochastic", err),
                              "plain averaging would drift from the mean (push-sum would not)"));
    if (g->edges != NULL)
        return tutti_edges_check(g, err);
    return TUTTI_OK;
}

static tutti_status open_one(tutti_graph **out, const char *spec, int n, bool push,
                             tutti_error *err)
{
    tutti_graph *g = tutti_alloc(1, sizeof *g);
    tutti_status status;

    *out = NULL;
    if (g == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening graph '%.60s'", spec);
    g->n = n;
    status = open_graph(g, spec, push, err);
    if (status == TUTTI_OK)
        *out = g;
    else
        tutti_graph_close(g);
    return status;
}

tutti_status tutti_graph_open(tutti_graph **out, const char *spec, int n, tutti_error *err)
{
    return open_one(out, spec, n, false, err);
}

tutti_status tutti_graph_open_push(tutti_graph **out, const char *spec, int n, tutti_error *err)
{
    return open_one(out, spec, n, true, err);
}

void tutti_graph_close(tutti_graph *g)
{
    if (g == NULL)
        return;
    tutti_free(g->degree);
    tutti_free(g->order);
    tutti_free(g->place);
    tutti_free(g->staged);
    tutti_matchings_close(g->matchings);
    tutti_edges_close(g->edges);
    tutti_spec_close(g->spec);
    tutti_free(g);
}

/* ---- a graph, open ---- */

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

double tutti_graph_messages(const tutti_graph *g)
{
    return g->messages;
}

static int degree_of(const tutti_graph *g, int i)
{
    return g->degree != NULL ? g->degree[i] : g->degree_max;
}

/* Returns W_to,from of neighbours in a round in which they have `count` neighbours each. */
static double weight(const tutti_graph *g, int to, int from, int count)
{
    switch (g->weights) {
    case TUTTI_WEIGHTS_METROPOLIS:
        return 1.0 / (1 + (degree_of(g, to) > degree_of(g, from) ? degree_of(g, to)
                                                                 : degree_of(g, from)));
    case TUTTI_WEIGHTS_LAPLACIAN: return g->alpha;
    case TUTTI_WEIGHTS_PUSH: return 1.0 / (degree_of(g, from) + 1);
    default: return 1.0 / (count + 1);
    }
}

/* Returns W_ii of a member with `count` neighbours of weights w. Uniform: the same bits as w, so
   that the complete graph has the bits of an all-reduce. */
static double own_weight(const tutti_graph *g, int i, const double *w, int count)
{
    double self = 1;

    if (g->weights == TUTTI_WEIGHTS_UNIFORM)
        return 1.0 / (count + 1);
    if (g->weights == TUTTI_WEIGHTS_PUSH)
        return 1.0 / (degree_of(g, i) + 1);
    for (int a = 0; a < count; a++)
        self -= w[a];
    /* laplacian weights that leave nothing: rounding */
    return self < 0 && !g->options.lazy ? 0 : self;
}

void tutti_graph_round(const tutti_graph *g, uint64_t k, int i, int *in, double *w_in, int *n_in,
                       int *out, double *w_out, int *n_out, double *self)
{
    tutti_graph_list take = { .at = in, .w = w_in }, give = { .at = out, .w = w_out };

    tutti_graph_neighbours(g, k, i, -1, &take);
    if (g->family->directed)
        tutti_graph_neighbours(g, k, i, 1, &give);
    else {
        for (give.count = 0; give.count < take.count; give.count++) {
            out[give.count] = in[give.count];
            w_out[give.count] = w_in[give.count];
        }
    }
    *n_in = take.count;
    *n_out = give.count;
    *self = take.self;
    if (g->weights == TUTTI_WEIGHTS_OWN)
        return;
    for (int a = 0; a < take.count; a++)
        w_in[a] = weight(g, i, in[a], take.count);
    for (int a = 0; a < give.count; a++)
        w_out[a] = weight(g, out[a], i, give.count);
    *self = own_weight(g, i, w_in, take.count);
    if (!g->options.lazy)
        return;
    for (int a = 0; a < take.count; a++)
        w_in[a] /= 2;
    for (int a = 0; a < give.count; a++)
        w_out[a] /= 2;
    *self = *self > -1 ? (1 + *self) / 2 : 0;
}
