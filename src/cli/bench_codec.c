/* bench_codec.c: `tutti bench codec`: the time in which each codec encodes a gradient, and
   decodes it and adds it to a sum. One thread; the unit is a memcpy of the float32 gradient in
   the same run. The gradient is a matrix of normal numbers, so that codecs of matrices are
   measured with the others. What counts as what:

     codec     encoding                               decoding
     message   encode                                 decode_add
     linear    fold of all rounds (this worker's      unfold, which writes the mean
               numbers stand for the mean)
     ef(...)   adding the residual, encoding, and     as the codec inside, and what the wrapper does
               what is left into the residual         with the mean

   The programs alternate in every round. The column "goal" is the bound of the figure
   (bench/bounds); bench/run checks whether it is met. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_internal.h"
#include "state/plan.h"
#include "tutti/codec.h"
#include "base/machine.h"
#include "codec/codec.h"
#include "kernels/device.h"

typedef struct config {
    tutti_bench_common common;
    int64_t rows, cols;
    int level;
    const char *codec;
} config;
/* as tutti_cpu_name has them */
#if defined(__x86_64__)
#define LEVELS "scalar|avx2|avx512"
#define HIGHEST TUTTI_CPU_AVX512
#elif defined(__aarch64__)
#define LEVELS "scalar|neon"
#define HIGHEST TUTTI_CPU_NEON
#else
#define LEVELS "scalar"
#define HIGHEST TUTTI_CPU_SCALAR
#endif
const tutti_option tutti_bench_codec_options[] = {
    { "rows", TUTTI_INT, TUTTI_AT(config, rows), 5000, 1, 1 << 20, NULL,
      "of the gradient, a matrix" },
    { "cols", TUTTI_INT, TUTTI_AT(config, cols), 5000, 1, 1 << 20, NULL, "of the gradient" },
    { "codec", TUTTI_TEXT, TUTTI_AT(config, codec), 0, 0, 0, "",
      "one codec by its spec, as ef(topk(ratio=0.01)); none: the list" },
    { "level", TUTTI_CHOICE, TUTTI_AT(config, level), HIGHEST, 0, 0, LEVELS,
      "the highest SIMD level to use" },
    TUTTI_BENCH_COMMON(config),
    { 0 }
};

/* A codec, and the goals of its times, in times of a memcpy; NAN: none. */
typedef struct subject {
    const char *spec;
    double encode, decode;
    double both;                    /* encode and decode together */
} subject;
static const subject subjects[] = {
    { "fp16", 0.7, 0.7, NAN },
    { "bf16", 0.7, 0.7, NAN },
    { "trunc16", 0.7, 0.7, NAN },
    { "randomk(ratio=0.01)", 0.3, NAN, NAN },
    { "sign", 0.6, 0.6, NAN },
    { "onebit", 0.6, 0.6, NAN },
    { "onebit-col", NAN, NAN, NAN },
    { "sign-vote", 0.6, NAN, NAN },
    { "int8", 1.5, 1, NAN },
    { "minmax8", 1.5, 1, NAN },
    { "qsgd(bits=4)", 1.5, 1, NAN },
    { "qsgd(bits=8)", 1.5, 1, NAN },
    { "nuqsgd(bits=4)", 1.5, 1, NAN },
    { "alq(bits=4)", 1.5, 1, NAN },
    { "amq(bits=4)", 1.5, 1, NAN },
    { "qsgd(bits=4,coding=elias)", NAN, NAN, NAN },
    { "alq(bits=3,coding=huffman)", NAN, NAN, NAN },
    { "topk(ratio=0.01)", 2, NAN, NAN },
    { "threshold(value=2.5)", NAN, NAN, NAN },
    { "wangni", NAN, NAN, NAN },
    { "powersgd(rank=4)", NAN, NAN, NAN },
    { "ef(powersgd(rank=4))", NAN, NAN, 4 },
    { "ef(topk(ratio=0.01))", NAN, NAN, NAN },
    { "ef21(topk(ratio=0.01))", NAN, NAN, NAN },
    { "dgc(topk(ratio=0.001))", NAN, NAN, NAN },
};
enum { SUBJECTS = TUTTI_LENGTH(subjects), ROUNDS_MOST = 8 };
typedef enum { ENCODE, DECODE, BOTH, PARTS } part;

typedef struct candidate {
    const subject *what;
    tutti_plan *plan;
    tutti_codec *codec, *inner;  /* inner: the one that encodes */
    void *scratch, *wire[ROUNDS_MOST];
    uint8_t *message;
    size_t bytes;                /* on the wire */
    double *took[PARTS];         /* ns of each round */
} candidate;

typedef struct bench {
    tutti_bench b;
    config config;
    subject asked;
    tutti_device *device;
    tutti_view view;
    tutti_codec_space space;
    float *x, *y;
    double *copy;
    candidate of[SUBJECTS];
    size_t n;                    /* candidates */
} bench;

static tutti_status no_memory(const bench *k, const char *what, tutti_error *err)
{
    return tutti_fail(
        err, TUTTI_ERR_MEMORY, ENOMEM,
        "%s for a gradient of %zu numbers; ask for a smaller one with --rows and --cols", what,
        k->view.count);
}

static tutti_status open_one(bench *k, candidate *c, tutti_error *err)
{
    tutti_view late = k->view;

    late.step = 1000000; /* beyond any warm-up, where a codec needs most */
    TUTTI_TRY(tutti_plan_open(&c->plan, k->view.count, err));
    TUTTI_TRY(tutti_codec_declare(&c->codec, c->plan, c->what->spec, "codec", &k->space, err));
    TUTTI_TRY(tutti_plan_carry_out(c->plan, NULL, err));
    tutti_codec_open(c->codec);
    c->inner = tutti_codec_chosen(c->codec, &late);
    const tutti_codec_ops *ops = c->inner->ops;
    if (ops->scratch != NULL &&
        (c->scratch = tutti_alloc(ops->scratch(c->inner, &late) + 1, 1)) == NULL)
        return no_memory(k, "scratch memory", err);
    for (int round = 0; round < ops->rounds; round++) {
        /* the widest of its numbers */
        if ((c->wire[round] =
                 tutti_alloc(ops->width(c->inner, &late, round) * sizeof(float) + 1, 1)) == NULL)
            return no_memory(k, "a round", err);
    }
    if (ops->rounds == 0 && (c->message = tutti_alloc(ops->bound(c->inner, &late) + 1, 1)) == NULL)
        return no_memory(k, "a message", err);
    for (int p = 0; p < PARTS; p++)
        if ((c->took[p] = tutti_alloc((size_t)k->config.common.repeat, sizeof(double))) == NULL)
            return no_memory(k, "memory for the samples", err);
    return TUTTI_OK;
}

static void close_one(candidate *c)
{
    tutti_codec_close(c->codec);
    tutti_plan_close(c->plan);
    tutti_free(c->scratch);
    tutti_free(c->message);
    for (int round = 0; round < ROUNDS_MOST; round++)
        tutti_free(c->wire[round]);
    for (int p = 0; p < PARTS; p++)
        tutti_free(c->took[p]);
}

static tutti_status open_all(bench *k, tutti_error *err)
{
    const size_t n = (size_t)k->config.rows * (size_t)k->config.cols;

    if (n >= (size_t)1 << 31)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "a gradient of %lld x %lld numbers; a codec takes fewer than 2^31 at once",
            (long long)k->config.rows, (long long)k->config.cols);
    TUTTI_TRY(tutti_device_open_host(&k->device, NULL, (tutti_cpu)k->config.level, err));
    k->view =
        (tutti_view){ .count = n, .rows = (size_t)k->config.rows, .cols = (size_t)k->config.cols };
    k->space = (tutti_codec_space){
        .n = n, .tensor = &k->view, .n_tensors = 1, .workers = 2, .seed = 1, .device = k->device
    };
    k->x = tutti_alloc(n, sizeof *k->x);
    k->y = tutti_alloc(n, sizeof *k->y);
    k->copy = tutti_alloc((size_t)k->config.common.repeat, sizeof *k->copy);
    if (k->x == NULL || k->y == NULL || k->copy == NULL)
        return no_memory(k, "two vectors", err);
    k->asked = (subject){ k->config.codec, NAN, NAN, NAN };
    for (size_t i = 0; i < (k->config.codec[0] != 0 ? 1 : SUBJECTS); i++) {
        k->of[i].what = k->config.codec[0] != 0 ? &k->asked : &subjects[i];
        k->n = i + 1;
        TUTTI_TRY(open_one(k, &k->of[i], err));
    }
    return TUTTI_OK;
}

static tutti_status encode_candidate(candidate *c, const tutti_view *v, const float *x,
                                     tutti_error *err)
{
    const tutti_codec_ops *ops = c->inner->ops;
    const float *from = ops->rounds > 0
                            ? tutti_codec_fold_first(c->codec, v, x, c->scratch, c->wire)
                            : tutti_codec_before(c->codec, v, x);

    c->bytes = 0;
    for (int round = 0; round < ops->rounds; round++) {
        if (round > 0)
            ops->fold(c->inner, v, round, from, c->scratch, c->wire);
        c->bytes +=
            ops->width(c->inner, v, round) * tutti_dtype_bytes(tutti_codec_number(c->inner, v));
    }
    if (ops->rounds == 0)
        c->bytes = ops->encode(c->inner, v, from, c->scratch, c->message);
    if (ops->rounds == 0)
        return tutti_codec_sent(c->codec, v, c->message, c->bytes, err);
    tutti_codec_sent_rounds(c->codec, v, from, c->scratch, c->wire);
    return TUTTI_OK;
}

static tutti_status decode_candidate(candidate *c, const tutti_view *v, float *y, tutti_error *err)
{
    if (c->inner->ops->rounds == 0)
        TUTTI_TRY(c->inner->ops->decode_add(c->inner, v, c->message, c->bytes, 1, y, err));
    else
        c->inner->ops->unfold(c->inner, v, c->scratch, c->wire, y);
    tutti_codec_after(c->codec, v, y);
    return TUTTI_OK;
}

/* The first round is preceded by an unmeasured one, which touches pages and fills a codec's
   state. */
static tutti_status measure(bench *k, candidate *c, int64_t r, tutti_error *err)
{
    for (int64_t step = r == 0 ? -1 : r; step <= r; step++) {
        tutti_view v = k->view;
        v.step = (uint64_t)(step + 1);
        const int64_t begin = tutti_now_ns(k->b.rt);
        TUTTI_TRY(encode_candidate(c, &v, k->x, err));
        const int64_t between = tutti_now_ns(k->b.rt);
        TUTTI_TRY(decode_candidate(c, &v, k->y, err));
        const int64_t end = tutti_now_ns(k->b.rt);
        c->took[ENCODE][r] = (double)(between - begin);
        c->took[DECODE][r] = (double)(end - between);
        c->took[BOTH][r] = (double)(end - begin);
    }
    return TUTTI_OK;
}

static void print_one(bench *k, candidate *c, double copy)
{
    static const char *const parts[] = { "encode", "decode", "both" };
    const double goals[] = { c->what->encode, c->what->decode, c->what->both };
    const size_t n = (size_t)k->config.common.repeat;

    if (!k->config.common.json)
        printf("  %-28s %8.4f", c->what->spec, (double)c->bytes / (4.0 * (double)k->view.count));
    for (int p = 0; p < PARTS; p++) {
        const double median = tutti_bench_median(c->took[p], n);
        char label[120], goal[16] = "-";
        if (isfinite(goals[p]))
            snprintf(goal, sizeof goal, "%g", goals[p]);
        if (k->config.common.json) {
            snprintf(label, sizeof label, "codec/%.90s/%s", c->what->spec, parts[p]);
            tutti_bench_row(
                &k->b, &(tutti_bench_figure){ label, median / 1e6, "ms", median / copy, "memcpy" },
                json_pack("{s:f, s:f, s:I, s:I, s:I, s:o}", "min", c->took[p][0] / 1e6, "max",
                          c->took[p][n - 1] / 1e6, "rounds", (json_int_t)n, "values",
                          (json_int_t)k->view.count, "bytes", (json_int_t)c->bytes, "goal",
                          tutti_bench_number(goals[p])));
        } else
            printf(" %8.2f %5s", median / copy, goal);
    }
    if (!k->config.common.json)
        printf("\n");
}

static tutti_status run_codec(bench *k, tutti_error *err)
{
    const size_t drawn = k->view.count < 1 << 20 ? k->view.count : 1 << 20;
    double copy;

    for (size_t at = 0; at < k->view.count; at += drawn)
        tutti_fill_normal(k->device, k->view.count - at < drawn ? k->view.count - at : drawn,
                          (tutti_rng){ 1, 2, at }, k->x + at);
    for (int64_t r = 0; r < k->config.common.repeat; r++) {
        memcpy(k->y, k->x, k->view.count * sizeof *k->y);
        const int64_t begin = tutti_now_ns(k->b.rt);
        memcpy(k->y, k->x, k->view.count * sizeof *k->y);
        k->copy[r] = (double)(tutti_now_ns(k->b.rt) - begin);
        for (size_t i = 0; i < k->n; i++) {
            tutti_bench_progress("codec: round %lld of %lld: %s", (long long)r + 1,
                                 (long long)k->config.common.repeat, k->of[i].what->spec);
            TUTTI_TRY(measure(k, &k->of[i], r, err));
        }
    }
    tutti_bench_progress("%s", "");
    copy = tutti_bench_median(k->copy, (size_t)k->config.common.repeat);
    if (k->config.common.json)
        tutti_bench_row(&k->b, &(tutti_bench_figure){ "codec/memcpy", copy / 1e6, "ms", NAN, NULL },
                        json_pack("{s:f, s:f, s:I}", "min", k->copy[0] / 1e6, "max",
                                  k->copy[k->config.common.repeat - 1] / 1e6, "values",
                                  (json_int_t)k->view.count));
    else
        printf("codecs, one thread (%s), a gradient of %lld x %lld, in memcpys of it (%.2f ms), "
               "medians of %lld rounds\n\n  %-28s %8s %8s %5s %8s %5s %8s %5s\n",
               tutti_cpu_name(tutti_device_cpu(k->device)), (long long)k->config.rows,
               (long long)k->config.cols, copy / 1e6, (long long)k->config.common.repeat, "codec",
               "bytes", "encode", "goal", "decode", "goal", "both", "goal");
    for (size_t i = 0; i < k->n; i++)
        print_one(k, &k->of[i], copy);
    return TUTTI_OK;
}

int tutti_bench_codec(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    bench k = { 0 };
    tutti_status status = tutti_bench_open(
        &k.b,
        &(tutti_bench_kind){ "codec", tutti_bench_codec_options, &k.config, &k.config.common },
        argc, argv, &err);

    if (status == TUTTI_OK && k.b.help) {
        printf("tutti bench codec [--OPTION VALUE ...]\n\nTimes every codec on one gradient: "
               "encoding, and decoding "
               "and adding, in memcpys of the same run; bytes are those of the message as a part "
               "of float32.\n\n"
               "  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, tutti_bench_codec_options, true);
    } else if (status == TUTTI_OK) {
        status = open_all(&k, &err);
        if (status == TUTTI_OK)
            status = run_codec(&k, &err);
    }
    for (size_t i = 0; i < k.n; i++)
        close_one(&k.of[i]);
    tutti_free(k.x);
    tutti_free(k.y);
    tutti_free(k.copy);
    tutti_device_close(k.device);
    tutti_bench_close(&k.b);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
