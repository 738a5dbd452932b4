/* fingerprint.c: before any work, all workers compare what they are about to do: version, options, shapes. Text of "key=value" lines, so that a
   mismatch can be told with both values; rank 0's is broadcast, each compares its own, the lowest rank that differs tells everybody. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine_internal.h"

typedef struct text { char *at; size_t length, room; bool lost; } text;

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(text *t, const char *format, ...)
{
    va_list args;
    int length;

    for (int turn = 0; turn < 2 && !t->lost; turn++) {
        va_start(args, format);
        length = vsnprintf(t->at == NULL ? NULL : t->at + t->length, t->room - t->length, format, args);
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

    put(t, "tutti version=%s\nworkers=%d\nservers=%d\nparameters=%d\n", tutti_version(), m->workers, m->servers, e->layout.n_tensors);
    tutti_spec_print(m->ops->name, m->ops->options, m->self, spec, sizeof spec);
    put(t, "method=%s\n", spec);
    if (m->optim != NULL)
        tutti_spec_print(m->optim->ops->name, m->optim->ops->options, m->optim->self, spec, sizeof spec);
    put(t, "optimizer=%s\nlr-schedule=%s\ncollective=%s\ncodec=%s\ncodec-cost=%d\ncodec-checksum=%d\ncodec-hierarchy=%s\n", m->optim != NULL ? spec : "", o->lr_schedule, o->collective, o->codec, (int)o->codec_cost, o->codec_checksum, o->codec_hierarchy);
    put(t, "batch=%lld\naccumulate=%lld\ndata samples=%llu\nsteps=%llu\nseed=%llu\nclip-norm=%.17g\nnonfinite=%s\n", (long long)o->batch,
        (long long)o->accumulate, (unsigned long long)o->data_samples, (unsigned long long)o->steps, (unsigned long long)o->seed, o->clip_norm,
        o->nonfinite == TUTTI_NONFINITE_SKIP ? "skip" : "stop");
    put(t, "own values=%zu\nloss-scale=%s\n", o->own_values, o->loss_scale);
    for (int r = 0; o->batch_of != NULL && r < m->workers; r++)
        put(t, "share of worker %d=%lld\n", r, (long long)o->batch_of[r]);
    put(t, "%s", o->fingerprint);
    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_param *p = &e->params[i];
        put(t, "parameter %d=%s of shape %llu", i, p->name, (unsigned long long)p->dim[0]);
        for (int d = 1; d < p->dims; d++)
            put(t, "x%llu", (unsigned long long)p->dim[d]);
        put(t, " in unit %d%s%s\n", p->unit, p->row_sparse ? ", row-sparse" : "", p->asks_rows ? ", rows asked for" : "");
    }
}

/* The first line of mine that is not rank 0's; both are complete texts of lines. False if they are equal. */
static bool difference(const char *mine, const char *theirs, int rank, char *sentence, size_t bytes)
{
    for (;;) {
        const size_t a = strcspn(mine, "\n"), b = strcspn(theirs, "\n"), key = strcspn(mine, "=\n"), key0 = strcspn(theirs, "=\n");
        if (a != b || memcmp(mine, theirs, a) != 0) {
            if (key == key0 && memcmp(mine, theirs, key) == 0 && key < a && key < b)
                snprintf(sentence, bytes, "worker %d has %.*s '%.*s' but worker 0 has '%.*s'; start all workers with the same options, model and data",
                         rank, (int)key, mine, (int)(a - key - 1 < 120 ? a - key - 1 : 120), mine + key + 1,
                         (int)(b - key - 1 < 120 ? b - key - 1 : 120), theirs + key + 1);
            else
                snprintf(sentence, bytes, "worker %d has '%.*s' where worker 0 has '%.*s'; start all workers with the same options, model and data",
                         rank, (int)(a < 120 ? a : 120), mine, (int)(b < 120 ? b : 120), theirs);
            return true;
        }
        if (mine[a] == 0)
            return false;
        mine += a + 1;
        theirs += b + 1;
    }
}

tutti_status tutti_engine_compare(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    text mine = { 0 };
    char *theirs = NULL, sentence[sizeof err->text] = "";
    int64_t bytes, who;
    tutti_status status = TUTTI_OK;

    if (m->everyone.size == 1)
        return TUTTI_OK;
    describe(e, &mine);
    bytes = mine.lost ? 0 : (int64_t)mine.length;
    status = tutti_broadcast(&e->opening, 0, tutti_host(&bytes, 1, TUTTI_I64), err);
    if (status == TUTTI_OK && (bytes <= 0 || mine.lost || (theirs = tutti_alloc((size_t)bytes + 1, 1)) == NULL))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "comparing the workers' options (%lld bytes)", (long long)bytes);
    if (status == TUTTI_OK) {
        if (m->rank == 0)
            memcpy(theirs, mine.at, (size_t)bytes);
        status = tutti_broadcast(&e->opening, 0, tutti_host(theirs, (size_t)bytes, TUTTI_U8), err);
    }
    if (status == TUTTI_OK) {
        who = difference(mine.at, theirs, m->rank, sentence, sizeof sentence) ? m->rank : m->everyone.size;
        status = tutti_allreduce(&e->opening, TUTTI_MIN, tutti_host(&who, 1, TUTTI_I64), err);
    }
    if (status == TUTTI_OK && who < m->everyone.size) {
        status = tutti_broadcast(&e->opening, (int)who, tutti_host(sentence, sizeof sentence, TUTTI_U8), err);
        sentence[sizeof sentence - 1] = 0;
        if (status == TUTTI_OK)
            status = tutti_fail_rank(err, TUTTI_ERR_USAGE, (int)who, "%s", sentence);
    }
    tutti_free(theirs);
    tutti_free(mine.at);
    return status;
}
