/* randomk.c: codec randomk: k elements (or blocks of them) drawn with a seed that all workers
   share, so that only values travel and can be summed. Stich, Cordonnier and Jaggi, NeurIPS 2018.

   Differs from the paper: the n elements are split into k strata of equal length (to one), and one
   index is drawn in each. So indexes are distinct and ascend by construction, in O(k) time and
   without memory. Each element is drawn with probability 1 / length of its stratum, which is k / n
   if k divides n. So both properties hold: the expected loss is (1 - k/n) |x|^2, and with the
   factor n/k (here: the length of the stratum) the codec is unbiased. */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"

typedef struct randomk { double ratio; int64_t block, seed; bool unbiased; } randomk;
enum { AT_ONCE = 64 };
static const tutti_option options[] = {
    { "ratio", TUTTI_REAL, TUTTI_AT(randomk, ratio), 0.01, 1e-9, 1, NULL,
      "blocks sent, as a share of all: k = ceil(ratio blocks), at least 1" },
    TUTTI_ROW_RANDOMK_BLOCK(TUTTI_AT(randomk, block), 1, 1, NULL),
    { "shared_seed", TUTTI_INT, TUTTI_AT(randomk, seed), 0, 0, 1e15, NULL,
      "of the draws, the same on all workers; 0: the run's" },
    { "unbiased", TUTTI_BOOL, TUTTI_AT(randomk, unbiased), 0, 0, 1, NULL,
      "multiply by n/k: for use without error feedback" },
    { 0 }
};

/* The strata one after the other: j's blocks are [low, high), low = floor(j blocks / k), kept up
   to date without a division. */
typedef struct strata {
    size_t blocks, k, block, each, more, j, low, rest;
    tutti_codec_words words;
} strata;

/* A view shorter than a block is one: what would fill it up is not sent. */
static size_t block_of(const tutti_codec *c, const tutti_view *v)
{
    const size_t block = (size_t)((const randomk *)c->self)->block;

    return v->count < block && v->count > 0 ? v->count : block;
}

static strata strata_of(const tutti_codec *c, const tutti_view *v)
{
    const randomk *s = c->self;
    strata t = { .block = block_of(c, v), .words = { .group = UINT64_MAX } };

    t.blocks = (v->count + t.block - 1) / t.block;
    t.k = tutti_codec_fraction(s->ratio, t.blocks);
    t.each = t.k == 0 ? 0 : t.blocks / t.k;
    t.more = t.k == 0 ? 0 : t.blocks % t.k;
    t.words.rng = tutti_codec_rng(c, v, true);
    if (s->seed != 0)
        t.words.rng.seed = (uint64_t)s->seed;
    return t;
}

/* The next stratum's draw: its elements [*from, *from + result) of the view, and the stratum's
   length in blocks. Draw v->first + j: no other view of this step has it, since there are no more
   strata than elements. */
static size_t drawn(const tutti_codec *c, const tutti_view *v, strata *t, size_t *from,
                    size_t *length)
{
    const size_t carry = (t->rest += t->more) >= t->k;
    size_t block;

    *length = t->each + carry;
    block = t->low +
            (size_t)((uint64_t)tutti_codec_word(c, &t->words, v->first + t->j) * *length >> 32);
    t->rest -= carry ? t->k : 0;
    t->low += *length;
    t->j++;
    *from = block * t->block;
    return v->count - *from < t->block ? v->count - *from : t->block;
}

static float factor(const tutti_codec *c, size_t length)
{
    return ((const randomk *)c->self)->unbiased ? (float)length : 1.0f;
}

static unsigned randomk_traits(const tutti_codec *c)
{
    return ((const randomk *)c->self)->unbiased ? TUTTI_CODEC_UNBIASED : TUTTI_CODEC_CONTRACTIVE;
}

static size_t randomk_width(const tutti_codec *c, const tutti_view *v, int round)
{
    const size_t block = block_of(c, v);

    (void)round;
    return tutti_codec_fraction(((const randomk *)c->self)->ratio, (v->count + block - 1) / block) *
           block;
}

/* Places of some strata, which are prefetched together. */
typedef struct batch { size_t n, from[AT_ONCE], count[AT_ONCE]; } batch;

static void look_ahead(const tutti_codec *c, const tutti_view *v, strata *t, const float *x,
                       batch *b)
{
    size_t length;

    for (b->n = 0; b->n < AT_ONCE && t->j < t->k; b->n++) {
        b->count[b->n] = drawn(c, v, t, &b->from[b->n], &length);
        __builtin_prefetch(x + b->from[b->n]);
    }
}

static void randomk_fold(tutti_codec *c, const tutti_view *v, int round, const float *x,
                         void *scratch, void *const *wire)
{
    strata t = strata_of(c, v);
    float *out = wire[round];
    batch both[2];
    int now = 0;

    (void)scratch;
    look_ahead(c, v, &t, x, &both[now]);
    for (; both[now].n > 0; now = !now) { /* memory has a whole batch's draws to answer in */
        const batch *b = &both[now];
        look_ahead(c, v, &t, x, &both[!now]);
        for (size_t k = 0; k < b->n; k++, out += t.block) {
            if (b->count[k] == 1) /* a call costs more than the copy */
                *out = x[b->from[k]];
            else
                memcpy(out, x + b->from[k], b->count[k] * sizeof *out);
            if (b->count[k] < t.block)
                memset(out + b->count[k], 0, (t.block - b->count[k]) * sizeof *out);
        }
    }
    tutti_device_charge(c->space->device, 0, 8.0 * (double)(t.k * t.block));
}

static void mine(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                 void *const *wire, float a, float *y)
{
    strata t = strata_of(c, v);

    (void)scratch, (void)wire;
    for (size_t j = 0, from, length; j < t.k; j++) {
        const size_t count = drawn(c, v, &t, &from, &length);
        const float by = factor(c, length);
        for (size_t i = from; i < from + count; i++)
            y[i] += a * (by * x[i]);
    }
    tutti_device_charge(c->space->device, 3.0 * (double)(t.k * t.block),
                        12.0 * (double)(t.k * t.block));
}

static void places(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                   uint8_t *mark)
{
    strata t = strata_of(c, v);

    (void)in, (void)bytes;
    for (size_t j = 0, from, length; j < t.k; j++) {
        const size_t count = drawn(c, v, &t, &from, &length);
        memset(mark + from, 1, count);
    }
}

static void unfold(tutti_codec *c, const tutti_view *v, void *scratch, void *const *wire, float *y)
{
    strata t = strata_of(c, v);
    const float *in = wire[0];

    (void)scratch;
    tutti_fill(c->space->device, v->count, 0, y);
    for (size_t j = 0, from, length; j < t.k; j++, in += t.block) {
        const size_t count = drawn(c, v, &t, &from, &length);
        const float by = factor(c, length);
        for (size_t i = 0; i < count; i++)
            y[from + i] = by * in[i];
    }
    tutti_device_charge(c->space->device, (double)(t.k * t.block), 8.0 * (double)(t.k * t.block));
}

/* An element is drawn with probability 1 / length of its stratum: what is lost is expected to be
   at most what the longest one has. */
static void randomk_report(const tutti_codec *c, const tutti_view *v, const float *x,
                           const float *decoded, const tutti_codec_listener *listener)
{
    const strata t = strata_of(c, v);
    const double longest = (double)(t.each + (t.more > 0)),
                 bound = ((const randomk *)c->self)->unbiased ? longest - 1 : 1 - 1 / longest;

    (void)x, (void)decoded;
    listener->receive(listener->user, "bound", 1, &bound);
}

const tutti_codec_ops tutti_codec_randomk = {
    .name = "randomk",
    .paper = "Stich et al., NeurIPS 2018",
    .help = "elements or blocks drawn at random, the same on all workers: values only, summed on "
            "the way",
    .options = options,
    .self_bytes = sizeof(randomk),
    .rounds = 1,
    .traits = randomk_traits,
    .width = randomk_width,
    .fold = randomk_fold,
    .mine = mine,
    .unfold = unfold,
    .places = places,
    .report = randomk_report,
};
