/* delays.c: sends each rank's histogram of the staleness of gradients to index 0, and converts
   histograms to JSON for summary.json. A histogram is sent as a list of pairs, since few of its
   thousand bins are not empty. */
#include <errno.h>

#include "delays.h"
#include "gather.h"
#include "train_internal.h"

void tutti_train_delays_drop(tutti_train_delays *s)
{
    tutti_free(s->pairs);
    tutti_free(s->begin);
    *s = (tutti_train_delays){ 0 };
}

tutti_status tutti_train_delays_gather(tutti_run *run, const tutti_histogram *h,
                                       tutti_train_delays *s, tutti_error *err)
{
    int64_t *mine = tutti_alloc(2 * TUTTI_HISTOGRAM_BINS, sizeof *mine);
    size_t length = 0;
    void *all = NULL;
    tutti_status status;

    tutti_train_delays_drop(s); /* of an attempt that a loss has spoilt */
    s->begin = tutti_alloc((size_t)run->all.size + 1, sizeof *s->begin);
    for (int bin = 0; mine != NULL && bin < TUTTI_HISTOGRAM_BINS; bin++)
        if (h->count[bin] > 0) {
            mine[length++] = (int64_t)tutti_histogram_least(bin);
            mine[length++] = (int64_t)h->count[bin];
        }
    status = mine != NULL && s->begin != NULL
                 ? tutti_train_gather_lists(run, tutti_host(mine, length, TUTTI_I64), s->begin,
                                            &all, err)
                 : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the delays of %d workers",
                              run->all.size);
    s->pairs = all;
    tutti_free(mine);
    return status;
}

json_t *tutti_train_delays_of(const tutti_train_delays *s, int index)
{
    json_t *pairs = json_array();

    for (size_t k = s->begin[index]; k < s->begin[index + 1]; k += 2)
        json_array_append_new(
            pairs, json_pack("[I, I]", (json_int_t)s->pairs[k], (json_int_t)s->pairs[k + 1]));
    return pairs;
}

json_t *tutti_train_delays_of_all(const tutti_run *run, const tutti_train_delays *s)
{
    tutti_histogram *sum = tutti_alloc(1, sizeof *sum);
    json_t *pairs;

    for (size_t k = 0; sum != NULL && k < s->begin[tutti_train_working(run)]; k += 2)
        sum->count[tutti_histogram_bin((uint64_t)s->pairs[k])] += (uint64_t)s->pairs[k + 1];
    pairs = sum != NULL ? tutti_record_pairs(sum) : json_array();
    tutti_free(sum);
    return pairs;
}

json_t *tutti_train_delays_edges(const tutti_run *run, const tutti_train_delays *s)
{
    const tutti_metric_record *metrics;
    const int n = tutti_engine_metrics(run->engine, &metrics);
    int64_t most = 0;

    for (size_t k = 0; k < s->begin[tutti_train_working(run)]; k += 2)
        most = s->pairs[k] > most ? s->pairs[k] : most;
    for (int i = 0; i < n; i++)
        most = metrics[i].at > most ? metrics[i].at : most;
    return tutti_record_edges(most);
}
