/* Goal: what methods with codecs send: bytes and messages of every ordered pair of workers, in
   every step, are the formula's; and the end of a run sends nothing. Method: the toy client on
   ranks that are threads; the formula, computed from the tensors' sizes. Over shared memory
   (sums through windows) and over sockets (messages only); one bucket, a few, one a tensor.

   The formula, for W workers, of what i sends j in a step. Tensors are appended to a bucket until
   it has bucket_mb; what follows is of each bucket.

     sum       of m numbers of w bytes: m w in one message up to 1024 numbers; else (|shard i| +
               |shard j|) w in two, where the vector's lines of 16 numbers are dealt to the
               workers in order, as evenly as they can be, the first ones one more: j's shard, for
               j to add up, and the sum of i's own.
     to all    one message of the codes of all tensors that are encoded: the
               sum of b(c), c a tensor's elements.
     by owners two messages: the codes of all parts that j owns, and of all that i owns,
     encoded again. Part p of tensor t, of 64 ceil(c / 64 W) elements or what is left, is
     worker (p + t) mod W's. A part of no
               elements has no code; both messages are sent, empty where there is nothing in them.
               For codecs that may be encoded twice, from four workers up; else to all.
     lengths   of codes that have no fixed length: 8 bytes in a message before each of the above,
               and 4 bytes more each code; a checksum is 8 more each code.
     as it is  tensors that are not encoded: one sum of float32 of all their elements, together with
               what codecs of sums make of the others.

   b(c): quantisers of k bits, a float32 scale a bucket of B: 4 ceil(c/B) + ceil(k c/8); topk: of
   each of ceil(ratio c) elements 4 bytes of value, or 2, and 4 of index (or ceil(c/8) of all:
   bitmap; or Elias gamma codes of the steps from one to the next: delta); wangni, where nothing is
   drawn: 12, and 8 each element that is not 0; signs: 4 bytes a scale and a bit an element;
   minmax8: 8 bytes of extremes and a byte an element;
   votes: a bit an element and one more; demo: by the shape (dct_reference.h).
   randk: ceil(ratio c) numbers in a sum. powersgd: P of rank r: r rows numbers, with what travels
   as it is, then Q: r cols numbers, for matrices that they make smaller by more than the rate
   asked; with iters_per_step=k up to k times, as often as r goes into the lesser side. Besides:
   accordion's check, a sum of a number a tensor, or of one (scope=model; none with
   norm_source=averaged); alq's and amq's first levels, a sum of 2^bits + 3 numbers before step 0,
   and a fit, the same after a sum of 3 numbers a component and worker, or of 3 (fit=single);
   --nonfinite skip, a sum of one number of 8 bytes. Warm-ups: all tensors as they are. */
#include <stdlib.h>

#include "../codec/dct_reference.h"
#include "../engine/toy.h"

enum { WORKERS = 5, STEPS = 12, SPIKES = 16, LINE = 16 };

typedef struct pair { uint64_t bytes, messages; } pair;

typedef struct rule {
    enum { AS_IT_IS, TO_ALL, BY_OWNERS, PLACES, FACTORS } way;
    size_t (*bytes)(size_t count); /* of a code, or of what goes into a sum */
    size_t (*of_shape)(size_t rows, size_t cols); /* in its place, of whole tensors */
    size_t min;                    /* tensors of fewer elements travel as they are */
    bool varied;                   /* no fixed length */
    size_t excluded;               /* a tensor that travels as it is, from 1; 0: none */
    size_t rank, products, width;  /* of factors; width: bytes a number */
    double shrink;
} rule;

typedef struct row {
    const char *method, *options;
    rule then, before;             /* before: in steps before `from` */
    int from;
    size_t levels;                 /* numbers summed before step 0, and after what is summed for a fit */
    int fit;                       /* before this step levels are fitted; 0: never */
    size_t fit_all, fit_each;      /* numbers summed for it: of all workers together, and of each besides */
    int check;                     /* steps from one check to the next; 0: none */
    size_t norms;                  /* numbers summed in each */
    const char *collective;
    bool checksum, skip, spikes;   /* spikes: gradients are 1 or -1 in every 16th element of a tensor, and 0 */
} row;

typedef struct shape { size_t count[TOY_TENSORS], rows[TOY_TENSORS]; } shape;

typedef struct job {
    const row *row;
    toy t;
    char method[300];
    int steps;
    pair sent[STEPS + 1][WORKERS][WORKERS]; /* [step][from][to]; the last: in finish */
} job;

/* ---- the run ---- */

static void look(const tutti_world *world, pair now[WORKERS])
{
    for (int to = 0; to < tutti_world_size(world); to++)
        tutti_world_sent(world, to, &now[to].bytes, &now[to].messages);
}

/* In [-1, 1), by the finalizer of splitmix64: the library's draws would be half of the time. */
static float pull_of(int rank, uint64_t step, size_t i)
{
    uint64_t z = (((uint64_t)rank + 1) << 48 ^ (step + 1) << 32 ^ i) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (float)((z ^ z >> 31) >> 40) * 0x1p-23f - 1;
}

static void fill(const row *r, const tutti_method *m)
{
    for (int t = 0; t < m->layout->n_tensors; t++) {
        const tutti_tensor *tensor = &m->layout->tensor[t];
        for (size_t i = 0; i < tensor->count; i++) {
            const float pull = pull_of(m->rank, m->step, tensor->first + i);
            m->g[tensor->first + i] = !r->spikes        ? m->x[tensor->first + i] - pull
                                      : i % SPIKES != 0 ? 0
                                      : i % 3 == 0      ? 1.0f
                                                        : -1.0f;
        }
    }
}

static tutti_status step_of(const job *j, tutti_engine *e, tutti_error *err)
{
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        fill(j->row, tutti_engine_method(e));
        for (int k = 0; k < TOY_TENSORS; k++)
            TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const int rank = tutti_world_rank(world), size = tutti_world_size(world);
    toy t = j->t;
    tutti_engine *e;
    tutti_status status = TUTTI_OK;
    pair was[WORKERS], now[WORKERS];

    TUTTI_TRY(toy_open(&e, world, &t, err));
    look(world, was);
    for (int s = 0; s <= j->steps && status == TUTTI_OK; s++) {
        status = s < j->steps ? step_of(j, e, err) : tutti_engine_finish(e, err);
        look(world, now);
        for (int to = 0; to < size; to++)
            j->sent[s][rank][to] = (pair){ now[to].bytes - was[to].bytes, now[to].messages - was[to].messages };
        memcpy(was, now, sizeof was);
    }
    tutti_engine_close(e);
    return status;
}

/* ---- the formula ---- */

static size_t over(size_t a, size_t b) { return (a + b - 1) / b; }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static size_t bits_4_of_512(size_t c) { return 4 * over(c, 512) + over(4 * c, 8); }
static size_t bits_2_of_128(size_t c) { return 4 * over(c, 128) + over(2 * c, 8); }
static size_t bits_8_of_512(size_t c) { return 4 * over(c, 512) + c; }
static size_t bits_3_of_128(size_t c) { return 4 * over(c, 128) + over(3 * c, 8); }
static size_t bits_3_of_64(size_t c) { return 4 * over(c, 64) + over(3 * c, 8); }
static size_t pairs_of_100th(size_t c) { return 8 * over(c, 100); }
static size_t pairs_of_20th(size_t c) { return 8 * over(c, 20); }
static size_t pairs_of_2(size_t c) { return 8 * over(c, 2); }
static size_t halves_of_20th(size_t c) { return 6 * over(c, 20); }
static size_t bitmap_of_20th(size_t c) { return 4 * over(c, 20) + over(c, 8); }
static size_t places_of_10th(size_t c) { return 4 * over(c, 10); }
static size_t blocks_of_10th(size_t c)
{
    const size_t block = least(c, 64);
    return 4 * block * over(over(c, block), 10);
}
/* Elias gamma: 1 is one bit, 16 nine */
static size_t deltas_of_16th(size_t c) { return 4 * over(c, 16) + over(1 + 9 * (over(c, 16) - 1), 8); }
static size_t all_of_16th(size_t c) { return 12 + 8 * over(c, 16); }
static size_t votes(size_t c) { return c / 8 + 1; }
static size_t signs(size_t c) { return 4 + over(c, 8); }
static size_t signs_of_512(size_t c) { return 4 * over(c, 512) + over(c, 8); }
static size_t steps_of_all(size_t c) { return 8 + c; }
static size_t steps_of_256(size_t c) { return 8 * over(c, 256) + c; }
static size_t cells_of_64(size_t rows, size_t cols) { return reference_bytes(rows, cols, 32, 64, 4); }
static size_t cells_of_7(size_t rows, size_t cols) { return reference_bytes(rows, cols, 3, 7, 2); }

static void send(pair *p, size_t bytes)
{
    p->bytes += bytes;
    p->messages++;
}

static size_t slice(size_t numbers, size_t n, size_t i)
{
    const size_t lines = over(numbers, LINE), before = lines / n * i + least(i, lines % n),
                 mine = lines / n + (i < lines % n);

    return least(numbers, (before + mine) * LINE) - least(numbers, before * LINE);
}

static void sum(size_t n, size_t numbers, size_t width, pair p[WORKERS][WORKERS])
{
    for (size_t i = 0; i < n && numbers > 0; i++)
        for (size_t k = 0; k < n; k++) {
            if (k == i)
                continue;
            if (numbers <= 1024)
                send(&p[i][k], numbers * width);
            else { /* more lines than workers: no shard is empty */
                send(&p[i][k], slice(numbers, n, k) * width);
                send(&p[i][k], slice(numbers, n, i) * width);
            }
        }
}

static size_t code(const row *r, const rule *u, size_t count)
{
    return count == 0 ? 0 : u->bytes(count) + (u->varied ? 4 : 0) + (r->checksum ? 8 : 0);
}

static size_t code_of_tensor(const row *r, const rule *u, const shape *s, size_t t)
{
    const size_t rows = s->rows[t] > 0 ? s->rows[t] : 1;

    return u->of_shape == NULL ? code(r, u, s->count[t])
                               : u->of_shape(rows, s->count[t] / rows) + (r->checksum ? 8 : 0);
}

/* Of tensor t: what worker i owns. */
static size_t part(size_t count, size_t t, size_t n, size_t i)
{
    const size_t each = 64 * over(count, 64 * n), low = each * ((i + n * t - t) % n);

    return low < count ? least(count - low, each) : 0;
}

/* Of a matrix: its factors' rank, and how many pairs of them are sent one after the other. */
static size_t rank_of(const rule *u, size_t rows, size_t cols) { return least(u->rank, least(rows, cols)); }
static size_t products_of(const rule *u, size_t rows, size_t cols)
{
    return least(u->products, least(rows, cols) / rank_of(u, rows, cols));
}

static bool is_encoded(const rule *u, const shape *s, size_t t)
{
    const size_t rows = s->rows[t] > 0 ? s->rows[t] : 1, cols = s->count[t] / rows;

    if (u->way == AS_IT_IS || s->count[t] < u->min || t + 1 == u->excluded)
        return false;
    return u->way != FACTORS ||
           (double)(rank_of(u, rows, cols) * products_of(u, rows, cols) * (rows + cols)) * u->shrink <
               (double)s->count[t];
}

static void messages(const row *r, const rule *u, const shape *s, size_t first, size_t end, size_t n,
                     pair p[WORKERS][WORKERS])
{
    const bool owners = u->way == BY_OWNERS &&
                        (n >= 4 || (r->collective != NULL && strcmp(r->collective, "alltoall") == 0)) &&
                        !(r->collective != NULL && strcmp(r->collective, "allgather") == 0);
    size_t encoded = 0;

    for (size_t t = first; t < end; t++)
        encoded += is_encoded(u, s, t);
    for (size_t i = 0; i < n && encoded > 0; i++)
        for (size_t k = 0; k < n; k++) {
            size_t whole = 0, mine = 0, theirs = 0;
            if (k == i)
                continue;
            for (size_t t = first; t < end; t++) {
                whole += is_encoded(u, s, t) ? code_of_tensor(r, u, s, t) : 0;
                if (!owners)
                    continue;
                mine += is_encoded(u, s, t) ? code(r, u, part(s->count[t], t, n, i)) : 0;
                theirs += is_encoded(u, s, t) ? code(r, u, part(s->count[t], t, n, k)) : 0;
            }
            send(&p[i][k], owners ? theirs : whole);
            if (owners)
                send(&p[i][k], mine);
            for (int c = 0; c < (owners ? 2 : 1) && u->varied; c++)
                send(&p[i][k], 8);
        }
}

static void factors(const rule *u, const shape *s, size_t first, size_t end, size_t plain, size_t n,
                    pair p[WORKERS][WORKERS])
{
    if (u->width != 4) /* numbers of another type are a sum of their own */
        sum(n, plain, 4, p);
    for (size_t k = 0; k < u->products; k++) {
        size_t left = k == 0 && u->width == 4 ? plain : 0, right = 0;
        for (size_t t = first; t < end; t++) {
            const size_t rows = s->rows[t] > 0 ? s->rows[t] : 1, cols = s->count[t] / rows;
            if (is_encoded(u, s, t) && k < products_of(u, rows, cols)) {
                left += rank_of(u, rows, cols) * rows;
                right += rank_of(u, rows, cols) * cols;
            }
        }
        sum(n, left, u->width, p);
        sum(n, right, u->width, p);
    }
}

static void formula(const row *r, const shape *s, size_t limit, int step, size_t n, pair p[WORKERS][WORKERS])
{
    const rule *u = step < r->from ? &r->before : &r->then;

    if (step == 0)
        sum(n, r->levels, 4, p);
    if (r->fit > 0 && step == r->fit) {
        sum(n, r->fit_all + n * r->fit_each, 4, p);
        sum(n, r->levels, 4, p);
    }
    if (r->check > 0 && step > 0 && step % r->check == 0)
        sum(n, r->norms, 4, p);
    if (r->skip)
        sum(n, 1, 8, p);
    for (size_t first = 0, end; first < TOY_TENSORS; first = end) {
        size_t bytes = 0, plain = 0, places = 0;
        for (end = first; end < TOY_TENSORS && bytes < limit; bytes += 4 * s->count[end++])
            if (!is_encoded(u, s, end))
                plain += s->count[end];
            else if (u->way == PLACES)
                places += u->bytes(s->count[end]) / 4;
        if (u->way == FACTORS)
            factors(u, s, first, end, plain, n, p);
        else
            sum(n, plain + places, 4, p);
        if (u->way == TO_ALL || u->way == BY_OWNERS)
            messages(r, u, s, first, end, n, p);
    }
}

/* ---- both ---- */

static shape drawn(uint64_t seed)
{
    shape s;

    for (uint64_t t = 0; t < TOY_TENSORS; t++) {
        const size_t rows = 1 + (size_t)(tutti_uniform((tutti_rng){ seed, 1, t }, 0) * 60),
                     cols = 1 + (size_t)(tutti_uniform((tutti_rng){ seed, 2, t }, 0) * 90);
        s.count[t] = rows * cols;
        s.rows[t] = rows > 1 ? rows : 0;
    }
    return s;
}

static void compare(const row *r, const char *transport, const shape *s, size_t limit, size_t n)
{
    job *j = calloc(1, sizeof *j);
    tutti_error err = { .rank = -1 };

    assert_non_null(j);
    j->row = r;
    j->steps = (r->from > r->fit ? r->from : r->fit) + 2;
    j->t = toy_default();
    memcpy(j->t.count, s->count, sizeof s->count);
    memcpy(j->t.rows, s->rows, sizeof s->rows);
    snprintf(j->method, sizeof j->method, "%s(bucket_mb=%.17g%s%s)", r->method, (double)limit / 1048576,
             r->options[0] != 0 ? "," : "", r->options);
    j->t.options.method = j->method;
    j->t.options.optimizer = "sgd(lr=0.01)";
    j->t.options.collective = r->collective;
    j->t.options.codec_checksum = r->checksum;
    j->t.options.nonfinite = r->skip ? TUTTI_NONFINITE_SKIP : TUTTI_NONFINITE_STOP;
    j->t.options.data_samples = 0;
    if (tutti_world_run(transport, (int)n, run_rank, j, &err) != TUTTI_OK)
        fail_msg("%s on %zu over %s: %s", j->method, n, transport, err.text);
    for (int step = 0; step <= j->steps; step++) {
        pair p[WORKERS][WORKERS] = { 0 };
        if (step < j->steps)
            formula(r, s, limit, step, n, p);
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < n; k++) {
                const pair *a = &j->sent[step][i][k], *b = &p[i][k];
                if (a->bytes != b->bytes || a->messages != b->messages)
                    fail_msg("%s%s%s, %zu workers over %s, tensors of %zu, %zu, %zu, %zu, %zu, step %d of %d: worker "
                             "%zu sent %zu %llu bytes in %llu messages, and by the formula it is %llu in %llu",
                             j->method, r->collective != NULL ? ", " : "", r->collective != NULL ? r->collective : "",
                             n, transport, s->count[0], s->count[1], s->count[2], s->count[3], s->count[4], step,
                             j->steps, i, k, (unsigned long long)a->bytes, (unsigned long long)a->messages,
                             (unsigned long long)b->bytes, (unsigned long long)b->messages);
            }
    }
    free(j);
}

static void all_pairs(const row *rows, size_t n_rows)
{
    static const shape toys = { { 10, 3000, 33, 2001, 7 }, { 0, 60, 0, 3, 0 } },
                       edges = { { 1023, 4096, 1, 5000, 1025 }, { 31, 64, 0, 50, 0 } };
    static const size_t limits[] = { (size_t)1 << 30, 8192, 1 };

    for (size_t c = 0; c < n_rows; c++)
        for (size_t n = 2; n <= WORKERS; n++) {
            const shape random = drawn(100 * c + n);
            compare(&rows[c], "shm", &toys, limits[n % 3], n);
            compare(&rows[c], "shm", &edges, limits[(n + 1) % 3], n);
            compare(&rows[c], "shm", &random, limits[(n + 2) % 3], n);
            if (n == 4 + c % 2)
                compare(&rows[c], "tcp(local=tcp)", &random, limits[n % 3], n);
        }
}

static void quantisers(void **state)
{
    static const row rows[] = {
        { "qsgd", "", { BY_OWNERS, bits_4_of_512, .min = 1024 } },
        { "qsgd", "requantize=off", { TO_ALL, bits_4_of_512, .min = 1024 } },
        { "qsgd", "bits=2,bucket=128,norm=l2,skip_below=0", { BY_OWNERS, bits_2_of_128 }, .checksum = true },
        { "qsgd", "skip_below=0", { BY_OWNERS, bits_4_of_512 }, .collective = "alltoall" },
        { "qsgd",
          "skip_below=2500",
          { BY_OWNERS, bits_4_of_512, .min = 2500 },
          .collective = "allgather",
          .skip = true },
        { "qsgd", "exclude=d.weight", { BY_OWNERS, bits_4_of_512, .min = 1024, .excluded = 2 } },
        { "nuqsgd", "", { BY_OWNERS, bits_4_of_512, .min = 1024 } },
        { "nuqsgd", "bits=3,bucket=64,skip_below=0", { BY_OWNERS, bits_3_of_64 }, .checksum = true },
        { "alq", "bucket=128,first=0,second=0,every=0,skip_below=0", { BY_OWNERS, bits_3_of_128 }, .levels = 11 },
        { "alq",
          "bucket=128,first=0,second=0,every=0,skip_below=1000,initial=powers",
          { BY_OWNERS, bits_3_of_128, .min = 1000 } },
        { "amq",
          "bucket=128,first=0,second=0,every=0,skip_below=1000",
          { BY_OWNERS, bits_3_of_128, .min = 1000 },
          .levels = 11 },
        { "alq",
          "bucket=128,first=1,second=0,every=0,components=30,skip_below=0",
          { BY_OWNERS, bits_3_of_128 },
          .levels = 11,
          .fit = 1,
          .fit_each = 90 },
        { "amq",
          "bits=4,bucket=512,first=1,second=0,every=0,fit=single,skip_below=1000",
          { BY_OWNERS, bits_4_of_512, .min = 1000 },
          .levels = 19,
          .fit = 1,
          .fit_all = 3 },
    };

    (void)state;
    all_pairs(rows, TUTTI_LENGTH(rows));
}

static void selections(void **state)
{
    static const row rows[] = {
        { "gradient-sparsification", "select=topk", { TO_ALL, pairs_of_100th, .min = 1024 } },
        { "gradient-sparsification",
          "select=topk,ratio=0.05,ef=off,min_numel=0",
          { BY_OWNERS, pairs_of_20th },
          .skip = true },
        { "gradient-sparsification",
          "select=topk,ratio=0.05,value_dtype=bf16",
          { TO_ALL, halves_of_20th, .min = 1024 },
          .checksum = true },
        { "gradient-sparsification",
          "select=topk,ratio=0.05,index_code=bitmap,ef=off",
          { BY_OWNERS, bitmap_of_20th, .min = 1024 } },
        { "gradient-sparsification",
          "select=topk,ratio=0.0625,index_code=delta,min_numel=0",
          { TO_ALL, deltas_of_16th, .varied = true },
          .spikes = true },
        { "gradient-sparsification",
          "select=topk,ratio=0.0625,index_code=delta,ef=off",
          { BY_OWNERS, deltas_of_16th, .min = 1024, .varied = true },
          .spikes = true,
          .checksum = true },
        { "gradient-sparsification", "select=randk,ratio=0.1", { PLACES, places_of_10th, .min = 1024 } },
        { "gradient-sparsification",
          "select=blockk,block=64,ratio=0.1,min_numel=0,ef=off",
          { PLACES, blocks_of_10th } },
        /* as much as asked for is not there: all that is not 0 is certain to be sent, by value */
        { "gradient-sparsification",
          "ratio=0.999999999,min_numel=0",
          { BY_OWNERS, all_of_16th, .varied = true },
          .spikes = true },
        { "dgc", "ratio=0.01,warmup=0", { BY_OWNERS, pairs_of_100th, .min = 1024 } },
        { "dgc", "ratio=0.05,warmup=0,server_ef=off,min_numel=0", { TO_ALL, pairs_of_20th }, .checksum = true },
        { "dgc", "ratio=0.05,warmup_ratios=0.5:0.5:0.5:0.5", { BY_OWNERS, pairs_of_2, .min = 1024 } },
        { "dgc",
          "ratio=0.0625,warmup=0,index_code=delta",
          { BY_OWNERS, deltas_of_16th, .min = 1024, .varied = true },
          .spikes = true },
    };

    (void)state;
    all_pairs(rows, TUTTI_LENGTH(rows));
}

static void traffic_of_powersgd_matches_the_formula(void **state)
{
    static const row rows[] = {
        { "powersgd", "", { FACTORS, .rank = 1, .products = 1, .width = 4, .shrink = 2 } },
        { "powersgd",
          "rank=3,min_compression_rate=1",
          { FACTORS, .rank = 3, .products = 1, .width = 4, .shrink = 1 },
          .skip = true },
        { "powersgd",
          "rank=2,iters_per_step=3,min_compression_rate=1",
          { FACTORS, .rank = 2, .products = 3, .width = 4, .shrink = 1 } },
        { "powersgd",
          "rank=2,start_iter=2",
          { FACTORS, .rank = 2, .products = 1, .width = 4, .shrink = 2 },
          .from = 2 },
        { "powersgd",
          "rank=2,factor_dtype=fp16",
          { FACTORS, .rank = 2, .products = 1, .width = 2, .shrink = 2 },
          { FACTORS, .rank = 2, .products = 1, .width = 4, .shrink = 2 },
          .from = 1 },
    };

    (void)state;
    all_pairs(rows, TUTTI_LENGTH(rows));
}

static void traffic_of_sign_and_byte_codecs_matches_the_formula(void **state)
{
    static const row rows[] = {
        { "signum", "", { BY_OWNERS, votes } },
        { "signum", "", { BY_OWNERS, votes }, .collective = "alltoall", .checksum = true },
        { "onebit-adam", "freeze_step=2", { BY_OWNERS, signs }, .from = 2 },
        { "onebit-adam",
          "freeze_step=2,server_ef=off,skip_below=1024",
          { TO_ALL, signs, .min = 1024 },
          .from = 2,
          .skip = true },
        { "onebit-adam", "freeze_step=1,block=512", { BY_OWNERS, signs_of_512 }, .from = 1, .checksum = true },
        { "qadam", "warmup_steps=2", { BY_OWNERS, steps_of_all }, .from = 2 },
        { "qadam",
          "warmup_steps=1,chunk=256,error_feedback=on,skip_below=1024",
          { BY_OWNERS, steps_of_256, .min = 1024 },
          .from = 1 },
    };

    (void)state;
    all_pairs(rows, TUTTI_LENGTH(rows));
}

static void traffic_of_cosine_transforms_matches_the_formula(void **state)
{
    static const row rows[] = {
        { "demo", "", { TO_ALL, .of_shape = cells_of_64 } },
        { "demo", "topk=3,chunk=7,value_dtype=fp16", { TO_ALL, .of_shape = cells_of_7 }, .checksum = true },
    };

    (void)state;
    all_pairs(rows, TUTTI_LENGTH(rows));
}

/* A norm needs another to compare with, so what nothing can stop is
   compressed more from the second check on. */
static void traffic_of_accordion_matches_the_formula(void **state)
{
#define HIGH(r) { FACTORS, .rank = r, .products = 1, .width = 4, .shrink = 2, .min = 1024 }
    static const row rows[] = {
        { "accordion", "eta=1e9,interval=2,unit=step", HIGH(1), HIGH(4), .from = 4, .check = 2, .norms = TOY_TENSORS },
        { "accordion",
          "eta=1e9,interval=2,unit=step,norm_source=averaged,low=topk(ratio=0.05),high=topk(ratio=0.01)",
          { TO_ALL, pairs_of_100th, .min = 1024 },
          { TO_ALL, pairs_of_20th, .min = 1024 },
          .from = 4 },
        { "accordion",
          "eta=1e9,interval=3,unit=step,norm_source=rank0,low=qsgd(bits=8),high=qsgd,error_feedback=off,min_numel=0",
          { BY_OWNERS, bits_4_of_512 },
          { BY_OWNERS, bits_8_of_512 },
          .from = 6,
          .check = 3,
          .norms = TOY_TENSORS,
          .checksum = true },
        { "accordion",
          "eta=1e9,interval=2,unit=step,scope=model,low=topk(ratio=0.05),high=topk(ratio=0.01),min_numel=0",
          { TO_ALL, pairs_of_100th },
          { TO_ALL, pairs_of_20th },
          .from = 4,
          .check = 2,
          .norms = 1 },
    };

    (void)state;
    all_pairs(rows, TUTTI_LENGTH(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantisers),      cmocka_unit_test(selections),
        cmocka_unit_test(traffic_of_powersgd_matches_the_formula),
        cmocka_unit_test(traffic_of_sign_and_byte_codecs_matches_the_formula),
        cmocka_unit_test(traffic_of_cosine_transforms_matches_the_formula),
        cmocka_unit_test(traffic_of_accordion_matches_the_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
