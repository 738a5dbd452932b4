/* accordion.c: wrapper accordion: chooses between two codecs for each layer: `low`, which loses
   little, while the layer's gradients change, and `high`, which loses much, while they do not.
   Agarwal, Wang, Lee, Venkataraman and Papailiopoulos, MLSys 2021. The rule is in regime.h.

   The gradients of a window of steps are added up, before codec and error feedback. n is the norm
   of the sum, divided by the number of steps of the window; n' is the n of the window before. At
   the window's end:

     1. The regime is critical, hence `low`, iff |n' - n| >= eta n'; else `high`.
     2. The first window is critical, and so is one after n' = 0 or with an n that is no number.
     3. When the learning rate falls to lr_drop or less of the last step's, everything is `low`
        until the next check.
     4. A skipped step does not count.

   unit=epoch, as published: a window is one epoch in `interval`, the first of them. What lies
   between is not added up, or with norm_window=interval all of it. unit=step: all `interval` steps.

   norm_source: whose gradients.
     local      each worker's own; n is the root mean square over the workers of their norms, 4
                bytes a layer and check. The same bits decide everywhere
     rank0      worker 0's own, as in the authors' code: decisions depend on which worker is worker
                0
     averaged   the decoded mean, which all have anyway, so that no message is needed; but its norm
                falls with the level itself where nothing is fed back, and every second check may
                find a critical regime

   replay: the levels are those of a recorded run, as its events have them ("replay 40.lhhl"), and
   nothing is added up. They are part of the spec, which all workers compare, and in no file.

   dry_run: gradients travel through `dense`, and levels are decided and logged as ever.

   Each check logs, of each layer: n', n, the part of n' by which they differ and the level; and
   what the levels have saved so far of what `low` would have sent, a worker, by the bytes that a
   message has at most. With dry_run: would have saved.

   Differs from the authors' code: a norm is divided by its steps, since epochs may differ, and a
   cosine's falls are no drops (regime.c).

   ef(accordion(...)) has one residual for both levels. Of codecs that learn (powersgd) the one that
   takes over follows the other. */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"
#include <stdatomic.h>
#include <stdio.h>
#include "codec/regime.h"

enum { LAYER, LOW = 0, HIGH = 1, DENSE = 2, LOCAL = 0, RANK0, AVERAGED };
typedef struct accordion {
    const char *low, *high, *dense, *replay;
    tutti_regime_rule rule;
    int scope, source;
    bool dry_run;
    float *sum;                  /* the sum of a window's gradients */
    float *norm;                 /* [parts]: norms of the window before; -1: none yet */
    float *level;                /* [parts]: LOW or HIGH */
    float *numbers;
    struct { tutti_regime of; _Atomic uint64_t saved; } now; /* saved: bytes, added by any thread */
    tutti_regime_turn turn;      /* of this step */
} accordion;
static const tutti_option options[] = {
    TUTTI_ROW_ACCORDION_LOW(TUTTI_AT(accordion, low), "", NULL),
    TUTTI_ROW_ACCORDION_HIGH(TUTTI_AT(accordion, high), "", NULL),
    TUTTI_REGIME_OPTIONS(accordion, rule),
    TUTTI_ROW_ACCORDION_SCOPE(TUTTI_AT(accordion, scope), NULL),
    TUTTI_ROW_ACCORDION_NORM_SOURCE(TUTTI_AT(accordion, source), NULL),
    TUTTI_REGIME_REPLAY(accordion, replay),
    TUTTI_REGIME_DRY_RUN(accordion, dry_run),
    { "dense", TUTTI_SPEC, TUTTI_AT(accordion, dense), 0, 0, 0, "fp32",
      "codec of all gradients meanwhile", "dry_run=on" },
    { 0 }
};

static size_t parts(const tutti_codec *c)
{
    return ((const accordion *)c->self)->scope == LAYER ? (size_t)c->space->n_tensors : 1;
}

static tutti_view part(const tutti_codec *c, size_t k)
{
    return ((const accordion *)c->self)->scope == LAYER
               ? c->space->tensor[k]
               : (tutti_view){ .tensor = -1, .count = c->space->n };
}

static unsigned accordion_traits(const tutti_codec *c)
{
    unsigned all = ~0u, any = 0;

    for (int k = LOW; k <= HIGH; k++) {
        const unsigned one =
            tutti_codec_traits(c->inner[((const accordion *)c->self)->dry_run ? DENSE : k]);
        all &= one, any |= one;
    }
    return all | (any & (TUTTI_CODEC_WHOLE_TENSOR | TUTTI_CODEC_VOTES | TUTTI_CODEC_JOINT)) |
           TUTTI_CODEC_MERGES;
}

/* The most bytes that a codec sends for a view. */
static size_t bytes_of_view(const tutti_codec *c, const tutti_view *v)
{
    size_t bytes = 0;

    if (c->ops->rounds == 0)
        return c->ops->bound(c, v);
    for (int round = 0; round < c->ops->rounds; round++)
        bytes += c->ops->width(c, v, round) * tutti_dtype_bytes(tutti_codec_number(c, v));
    return bytes;
}

/* And of the whole tensors. */
static double bytes_of(const tutti_codec *c)
{
    double bytes = 0;

    for (int t = 0; t < c->space->n_tensors; t++) {
        tutti_view v = c->space->tensor[t];
        v.step = UINT64_MAX; /* beyond any warm-up */
        bytes += (double)bytes_of_view(c, &v);
    }
    return bytes;
}

static tutti_status accordion_check(const tutti_codec *c, tutti_error *err)
{
    for (int k = LOW; k <= DENSE; k++)
        if (c->inner[k]->ops->choose != NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%s inside of it is a wrapper, whose state would be one a level; put "
                              "it round both: %s(accordion(low=..., high=...))",
                              c->inner[k]->ops->name, c->inner[k]->ops->name);
    if (bytes_of(c->inner[LOW]) < bytes_of(c->inner[HIGH]))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "low, %s, sends %.0f bytes of the whole gradient and high, %s, %.0f, so "
                          "that low compresses more than high; swap them",
                          c->inner[LOW]->ops->name, bytes_of(c->inner[LOW]),
                          c->inner[HIGH]->ops->name, bytes_of(c->inner[HIGH]));
    return tutti_regime_check_replay(((const accordion *)c->self)->replay, parts(c),
                                     ((const accordion *)c->self)->dry_run, err);
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    accordion *s = c->self;

    tutti_codec_declare_vector(c, plan, "sum", s->source == AVERAGED ? TUTTI_SAME : TUTTI_OWN_ZERO,
                               &s->sum);
    tutti_codec_declare_floats(c, plan, "norms", TUTTI_SAME, parts(c), &s->norm);
    tutti_codec_declare_floats(c, plan, "levels", TUTTI_SAME, parts(c), &s->level);
    tutti_codec_declare_floats(c, plan, "numbers", TUTTI_SCRATCH, parts(c), &s->numbers);
    tutti_codec_declare_value(c, plan, "now", TUTTI_SAME, &s->now, sizeof s->now);
}

static void open(tutti_codec *c)
{
    accordion *s = c->self;

    for (size_t k = 0; k < parts(c); k++)
        s->norm[k] = -1;
    s->now.of.adds = s->replay[0] == 0;
}

/* The tensor of a view, of one that is not within one that of its first element. */
static size_t tensor_of(const tutti_codec *c, const tutti_view *v)
{
    size_t t = 0;

    if (v->tensor >= 0)
        return (size_t)v->tensor;
    while (t + 1 < (size_t)c->space->n_tensors &&
           v->first >= c->space->tensor[t].first + c->space->tensor[t].count)
        t++;
    return t;
}

/* The codec that the levels choose. */
static tutti_codec *decided(const tutti_codec *c, const tutti_view *v)
{
    const accordion *s = c->self;

    return c->inner[s->level[s->scope == LAYER ? tensor_of(c, v) : 0] == HIGH];
}

static tutti_codec *accordion_choose(tutti_codec *c, const tutti_view *v)
{
    return ((const accordion *)c->self)->dry_run ? c->inner[DENSE] : decided(c, v);
}

static void accordion_watch(tutti_codec *c, const tutti_view *v, const float *x)
{
    const accordion *s = c->self;

    if (s->now.of.adds && v->stage == 0 &&
        (s->source == LOCAL || (s->source == RANK0 && c->space->rank == 0)))
        tutti_add(c->space->device, v->count, x, s->sum + v->first);
}

static void after(tutti_codec *c, const tutti_view *v, float *y)
{
    accordion *s = c->self;
    const size_t low = bytes_of_view(c->inner[LOW], v), now = bytes_of_view(decided(c, v), v);

    if (now < low) /* of one tensor `high` may have more */
        /* relaxed: a sum; its reader has waited for all views */
        atomic_fetch_add_explicit(&s->now.saved, low - now, memory_order_relaxed);
    if (s->now.of.adds && s->source == AVERAGED)
        tutti_add(c->space->device, v->count, y, s->sum + v->first);
}

static void set(tutti_codec *c, size_t k, int level)
{
    accordion *s = c->self;
    tutti_codec *to = c->inner[level], *from = c->inner[!level];

    if ((int)s->level[k] == level)
        return;
    s->level[k] = (float)level;
    if (to->ops == from->ops && to->ops->follow != NULL)
        for (int t = 0; t < c->space->n_tensors; t++)
            if (s->scope != LAYER || (size_t)t == k)
                to->ops->follow(to, from, t);
}

/* Decides by the squared norms in numbers, which all workers have received or know. */
static void accordion_decide(tutti_codec *c, const tutti_codec_moment *m)
{
    enum { SHOWN = 24, EACH = 80, WORD = 512 };
    accordion *s = c->self;
    const double of = s->source == LOCAL ? c->space->workers : 1;
    size_t high = 0, used = 0;
    char list[SHOWN * EACH] = "", word[WORD + 1] = "", text[sizeof list + WORD + 240];

    for (size_t k = 0; k < parts(c); k++) {
        const double was = (double)s->norm[k], is = (double)(float)sqrt((double)s->numbers[k] / of);
        char change[40] = "";
        set(c, k, tutti_regime_is_critical(&s->rule, was, is) ? LOW : HIGH);
        high += s->level[k] == HIGH;
        if (k < WORD)
            word[k] = s->level[k] == HIGH ? 'h' : 'l';
        if (was > 0 && isfinite(is) && isfinite(was))
            snprintf(change, sizeof change, " (%.2g)", fabs(is - was) / was);
        if (k < SHOWN)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%zu: %.4g -> %.4g%s %s",
                                     k > 0 ? ", " : "", k, was < 0 ? NAN : was, is, change,
                                     s->level[k] == HIGH ? "high" : "low");
        s->norm[k] = (float)is;
    }
    if (m->say == NULL)
        return;
    snprintf(
        text, sizeof text,
        "accordion%s: step %llu: %zu of %zu high; %s%s; %llu bytes saved so far; replay %llu.%s%s",
        s->dry_run ? " (dry run)" : "", (unsigned long long)m->step, high, parts(c), list,
        parts(c) > SHOWN ? ", ..." : "",
        (unsigned long long)atomic_load_explicit(&s->now.saved, memory_order_relaxed),
        (unsigned long long)m->step, word, parts(c) > WORD ? "..." : "");
    m->say(m->with, "accordion", text);
}

static void all_low(tutti_codec *c, const tutti_codec_moment *m)
{
    char text[200];

    for (size_t k = 0; k < parts(c); k++)
        set(c, k, LOW);
    snprintf(text, sizeof text,
             "accordion%s: step %llu: the learning rate fell to %g: all low until the next check; "
             "replay %llu.l",
             ((const accordion *)c->self)->dry_run ? " (dry run)" : "", (unsigned long long)m->step,
             m->lr, (unsigned long long)m->step);
    if (m->say != NULL)
        m->say(m->with, "accordion", text);
}

/* Reports if the run ends before `high` can be used: the first check has nothing to compare with,
   so `high` is used after the second check at the earliest. */
static void warn(const tutti_codec *c, const tutti_codec_moment *m)
{
    const accordion *s = c->self;
    char text[320];

    if (m->step == 0 && m->say != NULL && s->replay[0] == 0 &&
        tutti_regime_warning(&s->rule, m->steps, m->epochs,
                             "accordion: nothing is compressed more in this run", sizeof text,
                             text))
        m->say(m->with, "codec", text);
}

static size_t accordion_begin(tutti_codec *c, const tutti_codec_moment *m, int round,
                              float **numbers)
{
    accordion *s = c->self;
    tutti_device *d = c->space->device;

    *numbers = s->numbers;
    if (s->replay[0] != 0) {
        tutti_regime_replay(s->replay, m->step, parts(c), s->numbers);
        for (size_t k = 0; k < parts(c); k++)
            set(c, k, (int)s->numbers[k]);
        return 0;
    }
    if (round == 0) {
        warn(c, m);
        s->turn = tutti_regime_begin(&s->rule, &s->now.of, m->epoch, m->lr);
        for (size_t k = 0; k < parts(c) && s->turn.checks; k++) {
            const tutti_view v = part(c, k);
            s->numbers[k] = (float)(tutti_norm2(d, v.count, s->sum + v.first) /
                                    (double)s->turn.steps / (double)s->turn.steps);
        }
        if (s->turn.ends)
            tutti_fill(d, c->space->n, 0, s->sum);
        if (s->turn.checks && s->source != AVERAGED)
            return parts(c);
    }
    if (s->turn.checks)
        accordion_decide(c, m);
    if (s->turn.fell)
        all_low(c, m);
    return 0;
}

/* Nothing of it was added up. */
static void left_out(tutti_codec *c, uint64_t step)
{
    accordion *s = c->self;

    (void)step;
    if (s->replay[0] == 0)
        tutti_regime_left_out(&s->now.of);
}

const tutti_codec_ops tutti_codec_accordion = {
    .name = "accordion",
    .paper = "Agarwal et al., MLSys 2021",
    .help = "of two codecs the one that keeps more while gradients change",
    .options = options,
    .self_bytes = sizeof(accordion),
    .traits = accordion_traits,
    .check = accordion_check,
    .declare = declare,
    .open = open,
    .begin = accordion_begin,
    .left_out = left_out,
    .choose = accordion_choose,
    .watch = accordion_watch,
    .after = after,
};
