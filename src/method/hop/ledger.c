/* ledger.c: the bookkeeping of one worker of hop (ledger.h). The slots of models:

     staleness 0   slot iter mod slots. A neighbour cannot be ahead by more than the table of gaps
                   allows, so there is a slot for every model that comes. The remainder would do as
                   a tag; the whole iteration is kept, so that a neighbour which breaks the bound is
                   found.
     above 0       two slots: the newest, and one for the next, which is never the one that is being
                   mixed. */
#include "ledger.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { COPIES_MOST = 8 };

/* Round 0 of the graph as a member sees it. */
typedef struct neighbours {
    int *in, *out, n_in, n_out;
    double *w_in, *w_out, self;
} neighbours;

static void drop_neighbours(neighbours *n)
{
    tutti_free(n->in);
    tutti_free(n->out);
    tutti_free(n->w_in);
    tutti_free(n->w_out);
}

static bool take_neighbours(const tutti_graph *graph, neighbours *n)
{
    const size_t d = (size_t)tutti_graph_degree(graph) + 1;

    n->in = tutti_alloc(d, sizeof *n->in);
    n->out = tutti_alloc(d, sizeof *n->out);
    n->w_in = tutti_alloc(d, sizeof *n->w_in);
    n->w_out = tutti_alloc(d, sizeof *n->w_out);
    return n->in != NULL && n->out != NULL && n->w_in != NULL && n->w_out != NULL;
}

static void neighbours_of(const tutti_graph *graph, int rank, neighbours *n)
{
    tutti_graph_round(graph, 0, rank, n->in, n->w_in, &n->n_in, n->out, n->w_out, &n->n_out,
                      &n->self);
}

/* ---- the table of gaps ---- */

/* Edges on the shortest path; -1: no memory. There is a path: graphs are connected. */
static int64_t length(const tutti_graph *graph, int from, int to)
{
    const int n = tutti_graph_size(graph);
    int *line = tutti_alloc((size_t)n, sizeof *line), *far = tutti_alloc((size_t)n, sizeof *far),
        end = 0;
    neighbours near = { 0 };
    int64_t found = -1;

    if (line != NULL && far != NULL && take_neighbours(graph, &near)) {
        memset(far, -1, (size_t)n * sizeof *far);
        far[from] = 0;
        line[end++] = from;
        for (int k = 0; k < end; k++) {
            neighbours_of(graph, line[k], &near);
            for (int a = 0; a < near.n_out; a++)
                if (far[near.out[a]] < 0) {
                    far[near.out[a]] = far[line[k]] + 1;
                    line[end++] = near.out[a];
                }
        }
        found = far[to];
    }
    drop_neighbours(&near);
    tutti_free(line);
    tutti_free(far);
    return found;
}

/* Steps along a path of that many edges, if each allows `edge` steps. edge 0: any number. */
static int64_t along(int64_t edge, int64_t edges)
{
    return edge == 0 ? INT64_MAX : edge * edges;
}

int64_t tutti_ledger_bound(const tutti_graph *graph, const tutti_ledger_rules *rules, int ahead,
                           int behind)
{
    const int64_t back = length(graph, behind, ahead), there = length(graph, ahead, behind);
    int64_t by_models, by_tokens;

    if (back < 0 || there < 0)
        return -1;
    by_models = along(rules->backup > 0 ? 0 : rules->staleness + 1, back);
    by_tokens = along(rules->acks ? 2 : rules->max_gap, there);
    return by_models < by_tokens ? by_models : by_tokens;
}

/* ---- from open to close ---- */

static tutti_status check_rules(const tutti_graph *graph, const tutti_ledger_rules *r,
                                tutti_error *err)
{
    const long long backup = r->backup;
    neighbours near = { 0 };
    tutti_status status = TUTTI_OK;

    assert(!r->acks || (backup == 0 && r->staleness == 0));
    assert(backup == 0 || r->max_gap > 0);
    assert(r->max_gap == 0 || r->staleness < r->max_gap);
    TUTTI_TRY(tutti_fail_within(
        err, tutti_graph_require(graph, "static", err),
        "models that are matched by iteration need a fixed graph, say ring-based"));
    if (!take_neighbours(graph, &near))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "looking at the graph");
    for (int rank = 0; rank < tutti_graph_size(graph) && status == TUTTI_OK; rank++) {
        neighbours_of(graph, rank, &near);
        if (near.n_in > 0 && backup >= near.n_in)
            status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                "backup is %lld, but worker %d takes the models of only %d others "
                                "and would wait for none; give at most %d, or a graph with more "
                                "neighbours",
                                backup, rank, near.n_in, near.n_in - 1);
    }
    drop_neighbours(&near);
    return status;
}

static bool is_among(const int *list, int n, int rank)
{
    for (int k = 0; k < n; k++)
        if (list[k] == rank)
            return true;
    return false;
}

/* The most iterations that a model of `of` can be ahead of the next that `to` mixes, over an edge
   of->to, whichever other workers are lost. Always finite: check_rules rejects backup without
   tokens, the only rules under which nothing bounds the gap. -1: no memory. */
static int64_t most_ahead(const tutti_graph *graph, const tutti_ledger_rules *r, int of, int to,
                          bool edge_back)
{
    if (r->acks)
        return 0;
    return r->max_gap > 0 && (r->backup > 0 || !edge_back) ? r->max_gap
                                                           : tutti_ledger_bound(graph, r, of, to);
}

static tutti_status open_in(tutti_ledger *l, const tutti_graph *graph, const neighbours *near,
                            tutti_error *err)
{
    l->n_in = near->n_in;
    l->in = tutti_alloc((size_t)near->n_in + 1, sizeof *l->in);
    for (int a = 0; a < near->n_in && l->in != NULL; a++) {
        tutti_ledger_in *in = &l->in[a];
        in->rank = near->in[a];
        in->weight = near->w_in[a];
        in->is_out_neighbour = is_among(near->out, near->n_out, in->rank);
        in->ahead = most_ahead(graph, &l->rules, in->rank, l->rank, in->is_out_neighbour);
        in->slots = l->rules.staleness > 0 ? 2 : (int)in->ahead + 1;
        in->held = in->ahead >= 0 ? tutti_alloc((size_t)in->slots, sizeof *in->held) : NULL;
        in->mixed = in->ahead >= 0 ? tutti_alloc((size_t)in->slots, sizeof *in->mixed) : NULL;
        if (in->held == NULL || in->mixed == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the state of worker %d",
                              in->rank);
    }
    return l->in != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %d neighbours", near->n_in);
}

static tutti_status open_out(tutti_ledger *l, const tutti_graph *graph, const neighbours *near,
                             tutti_error *err)
{
    l->n_out = near->n_out;
    l->out = tutti_alloc((size_t)near->n_out + 1, sizeof *l->out);
    l->copies = 1;
    for (int b = 0; b < near->n_out && l->out != NULL; b++) {
        const int rank = near->out[b];
        const int64_t ahead =
            most_ahead(graph, &l->rules, l->rank, rank, is_among(near->in, near->n_in, rank));
        if (ahead < 0)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "looking at the graph");
        l->out[b].rank = rank;
        if (ahead >= l->copies)
            l->copies = ahead < COPIES_MOST ? (int)ahead + 1 : COPIES_MOST;
    }
    return l->out != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %d neighbours", near->n_out);
}

tutti_status tutti_ledger_open(tutti_ledger **out, const tutti_graph *graph, int rank,
                               const tutti_ledger_rules *rules, tutti_error *err)
{
    tutti_ledger *l = tutti_alloc(1, sizeof *l);
    neighbours near = { 0 };
    tutti_status status;

    *out = l;
    if (l == NULL || !take_neighbours(graph, &near))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a worker's neighbours");
    else {
        l->rules = *rules;
        l->rank = rank;
        neighbours_of(graph, rank, &near);
        l->self = near.self;
        status = check_rules(graph, rules, err);
    }
    if (status == TUTTI_OK)
        status = open_in(l, graph, &near, err);
    if (status == TUTTI_OK)
        status = open_out(l, graph, &near, err);
    drop_neighbours(&near);
    if (status == TUTTI_OK)
        tutti_ledger_begin(l, 0);
    return status;
}

void tutti_ledger_close(tutti_ledger *l)
{
    if (l == NULL)
        return;
    for (int a = 0; l->in != NULL && a < l->n_in; a++) {
        tutti_free(l->in[a].held);
        tutti_free(l->in[a].mixed);
    }
    tutti_free(l->in);
    tutti_free(l->out);
    tutti_free(l);
}

void tutti_ledger_begin(tutti_ledger *l, int64_t iter)
{
    l->iter = iter;
    l->last = iter - 1;
    for (int a = 0; a < l->n_in; a++) {
        tutti_ledger_in *in = &l->in[a];
        for (int s = 0; s < in->slots; s++)
            in->held[s] = -1;
        in->reading = -1;
        in->newest = iter; /* it is in that iteration, though its model has not come */
    }
    for (int b = 0; b < l->n_out; b++)
        l->out[b].tokens = l->rules.acks ? 1 : l->rules.max_gap;
}

bool tutti_ledger_lose(tutti_ledger *l, int rank)
{
    bool news = false;

    for (int a = 0; a < l->n_in; a++)
        if (l->in[a].rank == rank && !l->in[a].lost)
            news = l->in[a].lost = true;
    for (int b = 0; b < l->n_out; b++)
        if (l->out[b].rank == rank && !l->out[b].lost)
            news = l->out[b].lost = true;
    return news;
}

/* ---- models ---- */

static int newest_slot(const tutti_ledger_in *in)
{
    int s = -1;

    for (int k = 0; k < in->slots; k++)
        if (in->held[k] >= 0 && (s < 0 || in->held[k] > in->held[s]))
            s = k;
    return s;
}

static int put_newest(tutti_ledger *l, tutti_ledger_in *in, int64_t iter)
{
    const int newest = newest_slot(in),
              s = newest >= 0 && in->reading != 1 - newest ? 1 - newest : newest;

    if (newest < 0) {
        in->held[0] = iter;
        in->mixed[0] = false;
        return 0;
    }
    if (iter <= in->held[newest]) {
        l->dropped++;
        return TUTTI_LEDGER_DROP;
    }
    l->dropped += in->held[s] >= 0 && !in->mixed[s];
    in->held[s] = iter;
    in->mixed[s] = false;
    return s;
}

/* A neighbour that keeps the bound sends no model later than last + 1 + ahead. With staleness 0
   there are ahead + 1 slots, one for each iteration from last + 1 to that. So a slot that is taken
   holds a model of the same iteration. */
int tutti_ledger_put(tutti_ledger *l, int a, int64_t iter)
{
    tutti_ledger_in *in = &l->in[a];
    int s;

    if (iter > l->last + 1 + in->ahead)
        return TUTTI_LEDGER_WRONG;
    if (iter > in->newest)
        in->newest = iter;
    if (l->rules.staleness > 0)
        return put_newest(l, in, iter);
    if (iter <= l->last) {
        l->dropped++;
        return TUTTI_LEDGER_DROP;
    }
    s = (int)(iter % in->slots);
    if (in->held[s] >= 0)
        return TUTTI_LEDGER_WRONG;
    in->held[s] = iter;
    in->mixed[s] = false;
    return s;
}

/* The slot of in-neighbour's model for that iteration; -1: it has none yet. */
static int usable(const tutti_ledger *l, const tutti_ledger_in *in, int64_t iter)
{
    const int s = l->rules.staleness > 0 ? newest_slot(in) : (int)(iter % in->slots);

    if (s < 0 || in->lost)
        return -1;
    return l->rules.staleness > 0 ? (in->held[s] >= iter - l->rules.staleness ? s : -1) : in->held[s] == iter ? s : -1;
}

/* The number of neighbours to wait for: all survivors except `backup`, where lost ones count as
   some of these. */
static int needed(const tutti_ledger *l)
{
    int left = 0;

    for (int a = 0; a < l->n_in; a++)
        left += !l->in[a].lost;
    return l->n_in - (int)l->rules.backup < left ? l->n_in - (int)l->rules.backup : left;
}

bool tutti_ledger_may_mix(const tutti_ledger *l, int64_t iter)
{
    int have = 0;

    for (int a = 0; a < l->n_in; a++)
        have += usable(l, &l->in[a], iter) >= 0;
    return have >= needed(l);
}

/* Weight by freshness: a model of iteration iter - staleness counts once, and one more for each
   iteration that it is newer. */
static double freshness(const tutti_ledger *l, int64_t iter, int64_t of)
{
    return l->rules.staleness > 0 && l->rules.linear
               ? (double)(of - (iter - l->rules.staleness) + 1)
               : 1;
}

void tutti_ledger_mix(tutti_ledger *l, int64_t iter, bool alone, int *slot, double *weight,
                      double *own, int64_t *oldest)
{
    double sum;
    bool all = !alone && l->rules.staleness == 0;

    *oldest = 0;
    *own = l->self;
    for (int a = 0; a < l->n_in; a++)
        *own += l->in[a].lost ? l->in[a].weight : 0;
    *own *= alone ? 0 : freshness(l, iter, iter);
    sum = *own;
    for (int a = 0; a < l->n_in; a++) {
        tutti_ledger_in *in = &l->in[a];
        slot[a] = in->reading = usable(l, in, iter);
        all = all && (slot[a] >= 0 || in->lost);
        weight[a] = slot[a] >= 0 ? in->weight * freshness(l, iter, in->held[slot[a]]) : 0;
        sum += weight[a];
        if (slot[a] >= 0 && iter - in->held[slot[a]] > *oldest)
            *oldest = iter - in->held[slot[a]];
    }
    if (all) /* they sum to 1 as they are, and equal d-psgd's to the bit */
        return;
    *own /= sum;
    for (int a = 0; a < l->n_in; a++)
        weight[a] /= sum;
}

void tutti_ledger_mixed(tutti_ledger *l, int64_t iter)
{
    l->last = iter;
    for (int a = 0; a < l->n_in; a++) {
        tutti_ledger_in *in = &l->in[a];
        if (in->reading >= 0)
            in->mixed[in->reading] = true;
        in->reading = -1;
        for (int s = 0; s < in->slots && l->rules.staleness == 0; s++)
            if (in->held[s] >= 0 && in->held[s] <= iter) {
                l->dropped += !in->mixed[s];
                in->held[s] = -1;
            }
    }
}

/* ---- tokens ---- */

static bool has_tokens(const tutti_ledger *l)
{
    return l->rules.acks || l->rules.max_gap > 0;
}

void tutti_ledger_grant(tutti_ledger *l, int b, int64_t tokens)
{
    l->out[b].tokens += tokens;
}

bool tutti_ledger_may_take(const tutti_ledger *l, int64_t tokens)
{
    for (int b = 0; b < l->n_out && has_tokens(l); b++)
        if (!l->out[b].lost && l->out[b].tokens < tokens)
            return false;
    return true;
}

void tutti_ledger_take(tutti_ledger *l, int64_t tokens)
{
    for (int b = 0; b < l->n_out && has_tokens(l); b++)
        l->out[b].tokens -= tokens;
}

/* True if every model that a mix after the jump waits for is here or on its way. An out-neighbour
   has sent its model before its tokens. */
static bool will_have(const tutti_ledger *l, int64_t iter)
{
    int have = 0;

    for (int a = 0; a < l->n_in; a++)
        have += !l->in[a].lost && (l->in[a].is_out_neighbour || usable(l, &l->in[a], iter) >= 0);
    return have > 0 && have >= needed(l);
}

int64_t tutti_ledger_jump(const tutti_ledger *l, int64_t trigger, int64_t most)
{
    int64_t lag = INT64_MAX;

    for (int b = 0; b < l->n_out; b++)
        if (!l->out[b].lost && l->out[b].tokens - l->rules.max_gap < lag)
            lag = l->out[b].tokens - l->rules.max_gap;
    if (lag == INT64_MAX || lag < trigger)
        return 0;
    lag = lag < most ? lag : most;
    while (lag > 0 && !will_have(l, l->iter + lag - 1))
        lag--;
    return lag;
}

int64_t tutti_ledger_ahead(const tutti_ledger *l)
{
    int64_t ahead = 0;

    for (int b = 0; b < l->n_out; b++) {
        int64_t at = !l->rules.acks && l->rules.max_gap > 0
                         ? l->iter + l->out[b].tokens - l->rules.max_gap
                         : -1;
        for (int a = 0; a < l->n_in; a++)
            if (l->in[a].rank == l->out[b].rank && l->in[a].newest > at)
                at = l->in[a].newest;
        if (!l->out[b].lost && at >= 0 && l->iter - at > ahead)
            ahead = l->iter - at;
    }
    for (int a = 0; a < l->n_in; a++)
        if (!l->in[a].lost && !l->in[a].is_out_neighbour && l->iter - l->in[a].newest > ahead)
            ahead = l->iter - l->in[a].newest;
    return ahead;
}
