/* figures.c: turns the measurements of servers that sum pieces, made by each worker and server in
   its process, into figures of the run. */
#include "server_internal.h"
#include "server.h"

enum {
    MOST,
    MEAN,
    TRIP,
    TRIP_MOST,
    BUSY,
    HIDDEN,
    SERVER,
    BYTES,
    SHARDS,
    IMBALANCE,
    FIGURES
}; /* of a worker */

size_t tutti_server_figures_count(const tutti_method *m)
{
    return (size_t)m->workers * FIGURES;
}

static void take_figures(const tutti_server_sums *s, double of[FIGURES])
{
    tutti_server_sums_figures f;

    tutti_server_sums_figures_of(s, &f);
    of[MOST] = f.under_way_most;
    of[MEAN] = f.under_way_mean;
    of[TRIP] = f.trip_seconds;
    of[TRIP_MOST] = f.trip_seconds_most;
    of[BUSY] = f.busy_seconds;
    of[HIDDEN] = f.hidden_seconds;
    of[SERVER] = f.server;
    of[BYTES] = (double)f.served_bytes;
    of[SHARDS] = (double)f.sums;
    of[IMBALANCE] = f.imbalance;
}

static void tell_server(tutti_method *m, const double of[FIGURES])
{
    if (of[SHARDS] == 0)
        return;
    tutti_metric_at(m, "server_bytes", -1, (int64_t)of[SERVER], of[BYTES]);
    tutti_metric_at(m, "server_shards", -1, (int64_t)of[SERVER], of[SHARDS]);
}

static void tell_worker(tutti_method *m, int rank, const double of[FIGURES])
{
    static const char *const names[] = {
        [MOST] = "slots_most",       [MEAN] = "slots_mean",
        [TRIP] = "two_hops_seconds", [TRIP_MOST] = "two_hops_seconds_most",
        [BUSY] = "exchange_seconds", [HIDDEN] = "hidden_seconds"
    };

    for (int k = 0; k <= HIDDEN && of[MOST] > 0; k++)
        tutti_metric(m, names[k], rank, of[k]);
    tell_server(m, of);
}

/* Figures of dedicated servers reach all through the reduction itself. */
tutti_status tutti_server_report_figures(const tutti_server_sums *s, tutti_method *m,
                                         double *figures, tutti_error *err)
{
    tutti_group all = m->all; /* a separate group would not learn that a worker gave up before it */
    double mine[FIGURES];

    take_figures(s, mine);
    if (m->rank >= m->workers) {
        tell_server(m, mine);
        return TUTTI_OK;
    }
    if (m->workers == 1)
        return TUTTI_OK;
    all.uncounted = true;
    TUTTI_TRY(tutti_allgather(&all, tutti_host(mine, FIGURES, TUTTI_F64),
                              tutti_host(figures, (size_t)all.size * FIGURES, TUTTI_F64), err));
    for (int i = 0; i < all.size; i++)
        tell_worker(m, tutti_group_rank(&m->all, i), figures + (size_t)i * FIGURES);
    tutti_metric(m, "imbalance", -1, mine[IMBALANCE]);
    return TUTTI_OK;
}
