/* delays.c: how many gradients of which worker had which delay: each worker's histogram, told at
   the end, and what summary.json says of them. They travel as lists of pairs, since of a thousand
   bins few have anything in them. */
#include <errno.h>

#include "train_internal.h"

void tutti_train_delays_drop(tutti_train_delays *s)
{
    tutti_free(s->pairs);
    tutti_free(s->begin);
    *s = (tutti_train_delays){ 0 };
}

/* mine: room for all of them; lengths, counts: one a member. */
static tutti_status gather_lists(tutti_run *run, const tutti_histogram *h, int64_t *mine, int64_t *lengths,
                                 size_t *counts, tutti_train_delays *all, tutti_error *err)
{
    const size_t n = (size_t)run->all.size;
    tutti_buffer whole = tutti_nothing();
    int64_t length = 0;

    for (int bin = 0; bin < TUTTI_HISTOGRAM_BINS; bin++)
        if (h->count[bin] > 0) {
            mine[length++] = (int64_t)tutti_histogram_least(bin);
            mine[length++] = (int64_t)h->count[bin];
        }
    TUTTI_TRY(tutti_allgather(&run->all, tutti_host(&length, 1, TUTTI_I64), tutti_host(lengths, n, TUTTI_I64), err));
    for (size_t k = 0; k < n; k++) {
        counts[k] = (size_t)lengths[k];
        all->begin[k + 1] = all->begin[k] + counts[k];
    }
    if (run->all.index == 0 && (all->pairs = tutti_alloc(all->begin[n] + 1, sizeof *all->pairs)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for the delays of %zu workers", n);
    if (run->all.index == 0)
        whole = tutti_host(all->pairs, all->begin[n], TUTTI_I64);
    return tutti_gather_parts_v(&run->all, 0, counts, tutti_host(mine, (size_t)length, TUTTI_I64), whole, err);
}

tutti_status tutti_train_delays_gather(tutti_run *run, const tutti_histogram *h, tutti_train_delays *s,
                                       tutti_error *err)
{
    const size_t n = (size_t)run->all.size;
    int64_t *mine = tutti_alloc(2 * TUTTI_HISTOGRAM_BINS, sizeof *mine), *lengths = tutti_alloc(n, sizeof *lengths);
    size_t *counts = tutti_alloc(n, sizeof *counts);
    tutti_status status;

    tutti_train_delays_drop(s); /* of a try that was spoilt */
    s->begin = tutti_alloc(n + 1, sizeof *s->begin);
    if (mine == NULL || lengths == NULL || counts == NULL || s->begin == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for the delays of %zu workers", n);
    else
        status = gather_lists(run, h, mine, lengths, counts, s, err);
    tutti_free(mine);
    tutti_free(lengths);
    tutti_free(counts);
    return status;
}

static void add_pair(json_t *pairs, uint64_t value, uint64_t count)
{
    json_array_append_new(pairs, json_pack("[I, I]", (json_int_t)value, (json_int_t)count));
}

json_t *tutti_train_delays_of(const tutti_train_delays *s, int index)
{
    json_t *pairs = json_array();

    for (size_t k = s->begin[index]; k < s->begin[index + 1]; k += 2)
        add_pair(pairs, (uint64_t)s->pairs[k], (uint64_t)s->pairs[k + 1]);
    return pairs;
}

json_t *tutti_train_delays_of_all(const tutti_run *run, const tutti_train_delays *s)
{
    tutti_histogram *sum = tutti_alloc(1, sizeof *sum);
    json_t *pairs = json_array();

    for (size_t k = 0; sum != NULL && k < s->begin[tutti_train_working(run)]; k += 2)
        sum->count[tutti_histogram_bin((uint64_t)s->pairs[k])] += (uint64_t)s->pairs[k + 1];
    for (int bin = 0; sum != NULL && bin < TUTTI_HISTOGRAM_BINS; bin++)
        if (sum->count[bin] > 0)
            add_pair(pairs, tutti_histogram_least(bin), sum->count[bin]);
    tutti_free(sum);
    return pairs;
}

json_t *tutti_train_delays_edges(const tutti_run *run, const tutti_train_delays *s)
{
    const tutti_metric_record *metrics;
    const int n = tutti_engine_metrics(run->engine, &metrics);
    json_t *edges = json_array();
    int64_t most = 0;

    for (size_t k = 0; k < s->begin[tutti_train_working(run)]; k += 2)
        most = s->pairs[k] > most ? s->pairs[k] : most;
    for (int i = 0; i < n; i++)
        most = metrics[i].at > most ? metrics[i].at : most;
    if (most <= TUTTI_HISTOGRAM_EXACT)
        return edges;
    for (int bin = TUTTI_HISTOGRAM_EXACT + 1; bin < TUTTI_HISTOGRAM_BINS; bin++) {
        json_array_append_new(edges, json_integer((json_int_t)tutti_histogram_least(bin)));
        if ((int64_t)tutti_histogram_least(bin) > most)
            break;
    }
    return edges;
}
