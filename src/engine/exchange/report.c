/* report.c: what the run's codec makes of gradients, measured as they are sent (--codec-report):
   how much of what was encoded is lost, in how many bytes, how many elements of it are left, how
   much is still to be made up for. What can be measured from outside is measured here, the same
   for all codecs. Each encoded view is decoded once more, by the worker that encoded it, and
   compared with its input. What only a codec knows, it reports (codec.h: report). Messages are
   decoded and parts of sums added as for residuals. Both are pure, so a run is the same to the
   bit whether it is measured or not.

   Each worker measures its own views, and sends nothing: the report is that of the worker that
   writes it. A second encoding, by the owner of a shard, is not included, except for the density
   of the mean.

   The residual is |a - d|: what error feedback keeps of what it wanted to send, a, is what is not
   in what was sent, d, to the bit. An owner's own residual is not included. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "exchange_internal.h"
#include "engine/hooks.h"
#include "codec/codec.h"

enum { FIGURES = 4 };

/* Sums over the views of a tensor. Owned by the exchanging job; the client reads records between
   steps. */
typedef struct tutti_exchange_measured {
    bool due;                    /* this exchange is to be measured */
    /* steps done with the last exchange; 0: there was none in this process */
    uint64_t last;
    double gradient2, input1, input2, lost2; /* sums of the gradient's squares, of the magnitudes
                                    and squares of what was encoded, and of the loss's squares */
    uint64_t bytes;              /* of messages */
    uint64_t kept;               /* non-zero elements of d */
    tutti_codec_figure figure[FIGURES];
    tutti_exchange_buffer room[FIGURES];
    int n_figures;
} tutti_exchange_measured;

tutti_status tutti_exchange_report_open(tutti_engine *e, tutti_error *err)
{
    tutti_engine_exchange *x = e->sums.exchange;

    x->report_every = e->options.codec_report;
    if (x->report_every == 0)
        return TUTTI_OK;
    x->records = tutti_alloc((size_t)x->space.n_tensors, sizeof *x->records);
    x->measured = tutti_alloc((size_t)x->space.n_tensors, sizeof *x->measured);
    if (x->records == NULL || x->measured == NULL)
        return tutti_fail(
            err, TUTTI_ERR_MEMORY, ENOMEM,
            "no memory to measure what the codec makes of %d tensors; leave codec-report at 0",
            x->space.n_tensors);
    return TUTTI_OK;
}

void tutti_exchange_report_close(tutti_engine_exchange *x)
{
    for (int i = 0; x->measured != NULL && i < x->space.n_tensors; i++)
        for (int k = 0; k < FIGURES; k++)
            tutti_free(x->measured[i].room[k].at);
    tutti_free(x->measured);
    tutti_free(x->records);
}

const tutti_codec_record *tutti_engine_codec_records(const tutti_engine *e)
{
    tutti_facilities_settle(e, true);
    return e->sums.exchange != NULL ? e->sums.exchange->records : NULL;
}

void tutti_exchange_measure_begin(const tutti_exchange_job *job)
{
    const tutti_engine_exchange *x = job->exchange;

    for (int i = 0; x->measured != NULL && i < job->n_units; i++) {
        const tutti_exchange_unit *u = &job->unit[i];
        tutti_exchange_measured *m = &x->measured[u->view.tensor];
        const uint64_t last = m->last > 0 ? m->last : x->report_from;
        m->last = u->view.step + 1;
        m->due = m->last / x->report_every > last / x->report_every;
        m->input1 = m->input2 = m->lost2 = 0;
        m->bytes = m->kept = 0;
        m->n_figures = 0;
        if (m->due)
            m->gradient2 = tutti_norm2(x->space.device, u->view.count, u->y);
    }
}

static uint64_t not_zero(tutti_device *d, size_t n, const float *x)
{
    uint64_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += x[i] != 0;
    tutti_device_charge(d, (double)n, 4.0 * (double)n);
    return count;
}

static double norm1(tutti_device *d, size_t n, const float *x)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += fabs((double)x[i]);
    tutti_device_charge(d, 2.0 * (double)n, 4.0 * (double)n);
    return sum;
}

typedef struct receiver {
    tutti_exchange_measured *of;
    tutti_status status;
    tutti_error *err;
} receiver;

static void receive_figure(void *user, const char *name, size_t n, const double *numbers)
{
    receiver *h = user;
    tutti_exchange_measured *m = h->of;
    double *value;
    int k = 0;

    while (k < m->n_figures && strcmp(m->figure[k].name, name) != 0)
        k++;
    assert(k < FIGURES && (k == m->n_figures || m->figure[k].n == n));
    if (h->status == TUTTI_OK)
        h->status = tutti_exchange_grow(&m->room[k], n, sizeof *value, h->err);
    if (h->status != TUTTI_OK)
        return;
    value = m->room[k].at;
    if (k == m->n_figures) {
        m->figure[m->n_figures++] = (tutti_codec_figure){ name, n, value };
        memcpy(value, numbers, n * sizeof *value);
        return;
    }
    for (size_t i = 0; i < n; i++)
        value[i] = n == 1 ? fmax(value[i], numbers[i]) : value[i] + numbers[i];
}

tutti_status tutti_exchange_measure(const tutti_exchange_job *job, const tutti_exchange_unit *u,
                                    const tutti_view *v, const float *x,
                                    const tutti_codec_message *sent, tutti_error *err)
{
    tutti_device *d = job->exchange->space.device;
    tutti_exchange_measured *m =
        job->exchange->measured != NULL ? &job->exchange->measured[u->view.tensor] : NULL;
    const tutti_codec_ops *ops = u->codec->ops;
    receiver receiver_of = { .of = m, .err = err };
    float *y;

    if (m == NULL || !m->due || v->count == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_exchange_grow(&job->slot->decoded, v->count, sizeof *y, err));
    y = job->slot->decoded.at;
    tutti_fill(d, v->count, 0, y);
    if (sent->at != NULL)
        TUTTI_TRY(ops->decode_add(u->codec, v, sent->at, sent->bytes, 1, y, err));
    else
        ops->mine(u->codec, v, x, u->scratch, u->wire, 1, y);
    m->bytes += sent->bytes;
    m->kept += not_zero(d, v->count, y);
    m->input1 += norm1(d, v->count, x);
    m->input2 += tutti_norm2(d, v->count, x);
    if (ops->report != NULL)
        ops->report(u->codec, v, x, y, &(tutti_codec_listener){ receive_figure, &receiver_of });
    tutti_axpy(d, v->count, -1, x, y);
    m->lost2 += tutti_norm2(d, v->count, y);
    return receiver_of.status;
}

static bool is_made_good(const tutti_exchange_unit *u)
{
    float *into = NULL;

    for (int w = 0; u->finite && w < u->n_wrappers && into == NULL; w++)
        tutti_exchange_account(u, w, &u->view, &into);
    return into != NULL;
}

void tutti_exchange_measure_end(const tutti_exchange_job *job)
{
    const tutti_engine_exchange *x = job->exchange;

    for (int i = 0; x->measured != NULL && i < job->n_units; i++) {
        const tutti_exchange_unit *u = &job->unit[i];
        const tutti_exchange_measured *m = &x->measured[u->view.tensor];
        const double n = (double)u->view.count;
        if (m->due)
            x->records[u->view.tensor] = (tutti_codec_record){
                .step = u->view.step + 1,
                .codec = u->codec->ops->name,
                .bytes = m->bytes,
                .bits = 8.0 * (double)m->bytes / n,
                .norm = sqrt(m->gradient2),
                .rho = m->input1 / sqrt(n * m->input2),
                .lost = m->lost2 / m->input2,
                .density = (double)m->kept / n,
                .union_density = (double)not_zero(x->space.device, u->view.count, u->y) / n,
                .residual = is_made_good(u) ? sqrt(m->lost2 / m->gradient2) : NAN,
                .n_figures = m->n_figures,
                .figure = m->figure
            };
    }
}
