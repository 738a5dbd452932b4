/* topk.c: codec topk: the k greatest magnitudes, of equal ones the lowest indexes. Stich,
   Cordonnier and Jaggi, NeurIPS 2018. Exact selection: |x - decoded|^2 <= (1 - k/n) |x|^2 always.
   8 k bytes: indexes, then values; fewer with value_dtype and index_code (sparse.c).

   With a warm-up of E epochs the ratio of epoch e is ratio^((e + 1) / (E + 1)), as DGC's (Lin et
   al., ICLR 2018). warmup_ratios lists them instead, as the authors' code has them
   (0.25:0.063:0.015:0.004:0.001).

   Options that are not here: k in place of a ratio means the same for one tensor and nothing
   sensible for several. scope=global would have to wait for the last gradient before the first is
   sent, and a piece leaves when it is whole. select=sampled and reuse are for machines on which
   an exact selection is slow; here it is two passes over memory (select.c). */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"
#include "kernels/codes.h"

enum { WARMUP_MOST = TUTTI_TOPK_WARMUP_MOST };
typedef struct topk {
    tutti_codec_sparse list;
    double ratio;
    int64_t warmup;
    const char *ratios;
    int epochs;                  /* of the warm-up */
    double now;                  /* the ratio of this epoch */
} topk;
static const tutti_option options[] = {
    TUTTI_ROW_TOPK_RATIO(TUTTI_AT(topk, ratio), 0.01, "100: 0.01"),
    TUTTI_ROW_TOPK_WARMUP(TUTTI_AT(topk, warmup), 0, NULL),
    TUTTI_ROW_VALUE_DTYPE(TUTTI_AT(tutti_codec_sparse, value), NULL),
    TUTTI_ROW_INDEX_CODE(TUTTI_AT(tutti_codec_sparse, index), NULL),
    TUTTI_ROW_TOPK_WARMUP_RATIOS(TUTTI_AT(topk, ratios), NULL),
    { 0 }
};

static double ratio_in(const topk *s, uint64_t epoch)
{
    double ratios[WARMUP_MOST];

    if (epoch >= (uint64_t)s->epochs)
        return s->ratio;
    if (s->ratios[0] == 0)
        return pow(s->ratio, (double)(epoch + 1) / (double)(s->epochs + 1));
    tutti_option_positives(s->ratios, ratios, WARMUP_MOST);
    return ratios[epoch];
}

static tutti_status topk_check(const tutti_codec *c, tutti_error *err)
{
    const topk *s = c->self;
    double ratios[WARMUP_MOST], before = 1;
    const int n = tutti_option_positives(s->ratios, ratios, WARMUP_MOST);

    if (n < 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "warmup_ratios is '%.80s', and it is a list of shares, from above 0 to "
                          "1, one of each epoch: 0.25:0.063:0.015:0.004",
                          s->ratios);
    if (n > 0 && s->warmup > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "warmup is %lld epochs, and warmup_ratios gives the ratio of each of %d; "
                          "give only one of them",
                          (long long)s->warmup, n);
    if (n > WARMUP_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "warmup_ratios has %d epochs, and a warm-up has at most %d", n,
                          WARMUP_MOST);
    for (int e = 0; e < n; before = ratios[e++])
        if (ratios[e] > before)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "warmup_ratios: epoch %d has %.9g after %.9g; they are shares of what is sent, "
                "which come down from at most 1 (not sparsities, which go up: 1 - sparsity)",
                e, ratios[e], before);
    if (n > 0 && before < s->ratio)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "warmup_ratios ends with %.9g, which is less than ratio, %.9g, that follows it; give a "
            "smaller ratio, or remove the entries below it",
            before, s->ratio);
    return TUTTI_OK;
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    topk *s = c->self;

    (void)plan;
    s->epochs = s->ratios[0] == 0 ? (int)s->warmup : tutti_option_positives(s->ratios, NULL, 0);
    s->now = ratio_in(s, 0);
}

static size_t topk_begin(tutti_codec *c, const tutti_codec_moment *m, int round, float **numbers)
{
    topk *s = c->self;

    (void)round, (void)numbers;
    s->now = ratio_in(s, m->epoch);
    return 0;
}

static size_t k_of(const tutti_codec *c, const tutti_view *v)
{
    const topk *s = c->self;

    /* so late every warm-up is over */
    return tutti_codec_fraction(v->step == UINT64_MAX ? s->ratio : s->now, v->count);
}

static unsigned topk_traits(const tutti_codec *c)
{
    return TUTTI_CODEC_CONTRACTIVE | (tutti_codec_sparse_is_fixed(c->self) ? TUTTI_CODEC_FIXED : 0);
}

static size_t scratch_bytes(const tutti_codec *c, const tutti_view *v)
{
    return 8 * tutti_select_room(v->count, k_of(c, v));
}

static size_t topk_bound(const tutti_codec *c, const tutti_view *v)
{
    return tutti_codec_sparse_bound(c->self, v->count, k_of(c, v));
}

static size_t topk_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                          uint8_t *out)
{
    const size_t k = k_of(c, v);
    uint32_t *index = scratch;
    float *value = (float *)scratch + tutti_select_room(v->count, k);

    tutti_select_top(c->space->device, v->count, x, k, index, value);
    return tutti_codec_sparse_put(c, c->self, v->count, k, index, value, out);
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                               float a, float *y, tutti_error *err)
{
    return tutti_codec_sparse_add(c, c->self, v, k_of(c, v), in, bytes, a, y, err);
}

static void places(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                   uint8_t *mark)
{
    tutti_codec_sparse_places(c->self, v, k_of(c, v), in, bytes, mark);
}

static void topk_report(const tutti_codec *c, const tutti_view *v, const float *x,
                        const float *decoded, const tutti_codec_listener *listener)
{
    const double bound = 1 - (double)k_of(c, v) / (double)v->count;

    (void)x, (void)decoded;
    if (tutti_codec_sparse_is_exact(c->self))
        listener->receive(listener->user, "bound", 1, &bound);
}

const tutti_codec_ops tutti_codec_topk = {
    .name = "topk",
    .paper = "Stich et al., NeurIPS 2018",
    .help = "the elements of greatest magnitude, exactly k of them",
    .options = options,
    .self_bytes = sizeof(topk),
    .traits = topk_traits,
    .check = topk_check,
    .declare = declare,
    .begin = topk_begin,
    .scratch = scratch_bytes,
    .bound = topk_bound,
    .encode = topk_encode,
    .decode_add = decode_add,
    .places = places,
    .report = topk_report,
};
