/* fingerprint.c: before any work, all workers compare (compare.h) what they are about
   to do: version, options, shapes. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine_internal.h"
#include "collective/compare.h"
#include "base/options.h"

typedef struct text {
    char *at;
    size_t length, room;
    bool lost;
} text;

static void append_line(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append_line(text *t, const char *format, ...)
{
    va_list args;
    int length;

    for (int turn = 0; turn < 2 && !t->lost; turn++) {
        va_start(args, format);
        length =
            vsnprintf(t->at == NULL ? NULL : t->at + t->length, t->room - t->length, format, args);
        va_end(args);
        if (length < 0) {
            t->lost = true;
        } else if ((size_t)length < t->room - t->length) {
            t->length += (size_t)length;
            return;
        } else {
            const size_t room = 2 * (t->room + (size_t)length + 1);
            char *more = tutti_alloc(room, 1);
            if (more == NULL) {
                t->lost = true;
                return;
            }
            if (t->length > 0)
                memcpy(more, t->at, t->length);
            tutti_free(t->at);
            t->at = more;
            t->room = room;
        }
    }
}

static void describe(const tutti_engine *e, text *t)
{
    const tutti_engine_options *o = &e->options;
    const tutti_method *m = &e->m;
    char spec[1024];

    append_line(t, "tutti version=%s\nworkers=%d\nservers=%d\nparameters=%d\n", tutti_version(),
                m->workers, m->servers, e->layout.n_tensors);
    tutti_spec_print(m->ops->name, m->ops->options, m->self, spec, sizeof spec);
    append_line(t, "method=%s\n", spec);
    if (m->optim != NULL)
        tutti_spec_print(m->optim->ops->name, m->optim->ops->options, m->optim->self, spec,
                         sizeof spec);
    append_line(
        t,
        "optimizer=%s\nlr-schedule=%s\ncollective=%s\ncodec=%s\ncodec-cost=%d\ncodec-checksum=%d\n"
        "codec-hierarchy=%s\n",
        m->optim != NULL                                 ? spec
        : e->client.updates && e->options.update == NULL ? "client, exchange only"
        : e->client.updates                              ? "client"
                                                         : "",
        o->lr_schedule, o->collective, o->codec, (int)o->codec_cost, o->codec_checksum,
        o->codec_hierarchy);
    append_line(
        t,
        "batch=%lld\naccumulate=%lld\ndata samples=%llu\nsteps=%llu\nseed=%llu\nclip-norm=%.17g\n"
        "nonfinite=%s\nelastic-shares=%d\n",
        (long long)o->batch, (long long)o->accumulate, (unsigned long long)o->data_samples,
        (unsigned long long)o->steps, (unsigned long long)o->seed, o->clip_norm,
        o->nonfinite == TUTTI_NONFINITE_SKIP   ? "skip"
        : o->nonfinite == TUTTI_NONFINITE_KEEP ? "keep"
                                               : "stop",
        o->elastic_shares);
    if (o->commit != NULL)
        append_line(t, "commit=on\n");
    if (m->order == TUTTI_ORDER_LED) /* a worker without a thread does not follow the leader */
        append_line(t, "lane=%s\n", m->lane_width > 0 ? "on" : "off");
    /* of fixed length, so that simulated runs with and without snapshots begin at the same
       time */
    append_line(t, "snapshots=%6d, one every %20llu gradients\n", o->snapshot_most,
                (unsigned long long)o->snapshot_every);
    append_line(t, "own values=%zu\nloss-scale=%s\nsample bytes=%zu\n", o->own_values,
                o->loss_scale, o->sample_bytes);
    for (int r = 0; o->batch_of != NULL && r < m->workers; r++)
        append_line(t, "share of worker %d=%lld\n", r, (long long)o->batch_of[r]);
    append_line(t, "%s", o->fingerprint);
    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_param *p = &e->params[i];
        append_line(t, "parameter %d=%s of shape %llu", i, p->name, (unsigned long long)p->dim[0]);
        for (int d = 1; d < p->dims; d++)
            append_line(t, "x%llu", (unsigned long long)p->dim[d]);
        append_line(t, " in unit %d%s%s%s%s\n", p->unit, p->row_sparse ? ", row-sparse" : "",
                    p->asks_rows ? ", rows asked for" : "", p->dtype != TUTTI_F32 ? ", in " : "",
                    p->dtype != TUTTI_F32 ? tutti_dtype_name(p->dtype) : "");
    }
}

tutti_status tutti_engine_compare(tutti_engine *e, tutti_error *err)
{
    text mine = { 0 };
    tutti_status status;

    if (e->m.everyone.size == 1)
        return TUTTI_OK;
    describe(e, &mine);
    status = tutti_compare_text(&e->groups.opening, mine.lost ? NULL : mine.at, err);
    tutti_free(mine.at);
    return status;
}
