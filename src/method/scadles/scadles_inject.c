/* scadles_inject.c: the injection of samples of scadles_inject.h. */
#include <math.h>
#include <string.h>

#include "scadles_inject.h"
#include "tutti/method/steps.h"
#include "engine/modes/sample_exchange.h"

enum { CLASSES = 256 };
/* draws that are the same on all workers: of classes and of the workers that give them */
enum { DRAWS = 0x7364 };

tutti_status tutti_scadles_inject_declare(tutti_method *m, tutti_plan *plan, scadles_injection *s,
                                          int64_t batch_most, tutti_error *err)
{
    const tutti_parts *parts = m->share->parts;
    const size_t workers = (size_t)m->workers;

    s->draws = (int64_t)ceil(s->alpha * m->workers * (1 - 1e-12));
    s->most = (int64_t)floor(s->beta * (double)batch_most);
    if (s->most == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'scadles': inject_beta is %g, and that share of a batch of "
                          "batch_max, %lld, is less than one sample; raise one of them, or omit "
                          "injection",
                          s->beta, (long long)batch_most);
    if (parts == NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'scadles': inject_alpha is %g, but all workers draw from one common set, so "
            "that no class is foreign to any; give each its own (partition), or omit injection",
            s->alpha);
    if (tutti_sample_label(m, parts->sample[parts->first[m->rank]]) < 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'scadles': inject_alpha is %g, but the samples have no classes, so none can be "
            "foreign; omit injection",
            s->alpha);
    tutti_declare(plan,
                  &(tutti_state){ .name = "scadles.first",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_I64,
                                  .count = CLASSES + 1 },
                  &s->first);
    tutti_declare(plan,
                  &(tutti_state){ .name = "scadles.samples",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_I64,
                                  .count = parts->first[m->rank + 1] - parts->first[m->rank] },
                  &s->own);
    tutti_declare(plan,
                  &(tutti_state){ .name = "scadles.has",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = workers * CLASSES },
                  &s->has);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "scadles.mine", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = CLASSES },
        &s->mine);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "scadles.to", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = workers },
        &s->to);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "scadles.from", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = workers },
        &s->from);
    tutti_declare(plan,
                  &(tutti_state){ .name = "scadles.gives",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_I64,
                                  .count = workers * (size_t)(s->draws * s->most) },
                  &s->gives);
    return tutti_samples_send_declare(m, plan, s->draws * s->most, err);
}

/* Lists this worker's samples of each class, one class after the other, and gathers which classes
   each worker has. */
static tutti_status list_classes(tutti_method *m, scadles_injection *s, tutti_error *err)
{
    const tutti_parts *parts = m->share->parts;
    const uint32_t *of_mine = parts->sample + parts->first[m->rank];
    const uint64_t n = parts->first[m->rank + 1] - parts->first[m->rank];
    int64_t at[CLASSES];

    memset(s->first, 0, (CLASSES + 1) * sizeof *s->first);
    for (uint64_t i = 0; i < n; i++)
        s->first[tutti_sample_label(m, of_mine[i]) + 1]++;
    for (int c = 0; c < CLASSES; c++) {
        s->mine[c] = s->first[c + 1] > 0;
        at[c] = s->first[c];
        s->first[c + 1] += s->first[c];
    }
    for (uint64_t i = 0; i < n; i++)
        s->own[at[tutti_sample_label(m, of_mine[i])]++] = of_mine[i];
    return tutti_gather(m, s->mine, CLASSES, s->has, err);
}

/* The k-th class that the worker does not have and another one has; k < 0: *n := their number. */
static int foreign(const tutti_method *m, const scadles_injection *s, int worker, int64_t k,
                   int64_t *n)
{
    int64_t found = 0;

    for (int c = 0; c < CLASSES; c++) {
        bool somewhere = false;
        for (int w = 0; w < m->workers && !somewhere; w++)
            somewhere = s->has[w * CLASSES + c] > 0;
        if (!somewhere || s->has[worker * CLASSES + c] > 0)
            continue;
        if (found++ == k)
            return c;
    }
    *n = found;
    return -1;
}

tutti_status tutti_scadles_inject_open(tutti_method *m, scadles_injection *s, tutti_error *err)
{
    TUTTI_TRY(list_classes(m, s, err));
    for (int w = 0; w < m->workers; w++) { /* the same on all */
        int64_t n;
        foreign(m, s, w, -1, &n);
        if (n == 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "method 'scadles': inject_alpha is %g, but worker %d has samples of "
                              "every class, so that none is foreign to it; take a partition that "
                              "gives each some classes only, such as class(k=2), or omit injection",
                              s->alpha, w);
    }
    if (m->rank == 0)
        tutti_event(m, "injection",
                    "scadles: raw samples go from worker to worker: in each round every one gets "
                    "%lld x %g of its batch",
                    (long long)s->draws, s->beta);
    return TUTTI_OK;
}

/* The samples of each draw of a worker with such a batch. */
static int64_t per_draw(const scadles_injection *s, int64_t batch)
{
    return (int64_t)floor(s->beta * (double)batch);
}

int64_t tutti_scadles_injected(const scadles_injection *s, int64_t batch)
{
    return s->draws * per_draw(s, batch);
}

/* Draw j of a worker: the class, and the worker that gives it. The same on all. */
static int draw_sample(const tutti_method *m, const scadles_injection *s, int worker, int64_t j,
                       int *class)
{
    const tutti_rng rng = { m->rng.seed, DRAWS, m->step };
    const uint64_t at = 2 * ((uint64_t)worker * (uint64_t)s->draws + (uint64_t)j);
    int64_t classes, holders = 0;
    int giver = 0;

    foreign(m, s, worker, -1, &classes);
    *class = foreign(m, s, worker, (int64_t)(tutti_random(rng, at) % (uint64_t)classes), &classes);
    for (int w = 0; w < m->workers; w++)
        holders += s->has[w * CLASSES + *class] > 0;
    for (int64_t k = (int64_t)(tutti_random(rng, at + 1) % (uint64_t)holders); k >= 0; giver++)
        k -= s->has[giver * CLASSES + *class] > 0;
    return giver - 1;
}

/* Chooses n samples of a class, from the random position `draw` on, wrapping around if the class
   has fewer. */
static void choose_samples(const scadles_injection *s, uint64_t draw, int class, int64_t n,
                           uint64_t *ids)
{
    const uint64_t held = (uint64_t)(s->first[class + 1] - s->first[class]), begin = draw % held;

    for (int64_t i = 0; i < n; i++)
        ids[i] = (uint64_t)s->own[s->first[class] + (int64_t)((begin + (uint64_t)i) % held)];
}

tutti_status tutti_scadles_inject(tutti_method *m, tutti_pass *p, scadles_injection *s,
                                  const int64_t *took, uint64_t *given_in_all, tutti_error *err)
{
    int64_t given = 0;

    memset(s->to, 0, (size_t)m->workers * sizeof *s->to);
    memset(s->from, 0, (size_t)m->workers * sizeof *s->from);
    for (int w = 0; w < m->workers; w++) {
        const int64_t n = per_draw(s, took[w]);
        for (int64_t j = 0; j < s->draws && n > 0; j++) {
            int class;
            const int giver = draw_sample(m, s, w, j, &class);
            if (w == m->rank)
                s->from[giver] += n;
            if (giver != m->rank)
                continue;
            choose_samples(s, tutti_random(m->rng, (uint64_t)w * (uint64_t)s->draws + (uint64_t)j),
                           class, n, s->gives + given);
            s->to[w] += n;
            given += n;
        }
    }
    TUTTI_TRY(tutti_samples_send(m, p, s->gives, s->to, s->from, err));
    *given_in_all += (uint64_t)given;
    return TUTTI_OK;
}
