/* Networks side by side: two workers as threads of one process share nothing; a worker's own
   threads; the loops at every level. */
#include "nn/loops.h"
#include "nn/parallel.h"
#include "nn_test.h"
#include "sanitized.h"
#include "base/machine.h"

extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int threads);

typedef struct worker { const char *model; uint64_t seed; int passes; double loss; example e; } worker;

static tutti_status work(void *arg, tutti_error *err)
{
    worker *w = arg;
    const tutti_nn_options options = { .batch = 21 };
    const tutti_nn_task task = { 1, 14, 14, 10 };
    tutti_status status;
    int64_t correct;
    double sum;
    tutti_nn *nn;

    status = tutti_nn_open(&nn, w->model, &task, &options, err);
    for (int i = 0; i < w->passes && status == TUTTI_OK; i++) {
        const int64_t n = i % 3 == 2 ? 13 : 21;
        status = tutti_nn_pass(
            nn, &(tutti_nn_samples){ .count = n, .x = w->e.x, .labels = w->e.labels },
            &(tutti_nn_step){ (double)n, i % 2 == 1, false, (const float *const *)w->e.values,
                              w->e.gradients, NULL },
            &sum, err);
        w->loss += sum;
        if (status == TUTTI_OK && i % 4 == 3)
            status = tutti_nn_evaluate(
                nn, &(tutti_nn_samples){ .count = 21, .x = w->e.x, .labels = w->e.labels },
                (const float *const *)w->e.values, &sum, &correct, err);
        w->loss += sum;
    }
    tutti_nn_close(nn);
    return status;
}

static worker worker_of(const char *model, uint64_t seed)
{
    const nn_net net = net_of(model, 1, 14, 14, 10);
    return (worker){ .model = model, .seed = seed, .passes = 12, .e = example_of(&net, 21, seed) };
}

static void networks_in_two_threads_do_not_affect_each_other(void **state)
{
    static const char *const pairs[][2] = {
        { "cnn", "cnn" }, { "mlp(hidden=64)", "cnn" }, { "mlp(hidden=64)", "mlp(hidden=64)" },
    };
    tutti_runtime *rt;

    (void)state;
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    for (size_t p = 0; p < TUTTI_LENGTH(pairs); p++) {
        worker alone[2], together[2];
        tutti_thread *threads[2];
        tutti_error err = { 0 };

        for (int i = 0; i < 2; i++) {
            alone[i] = worker_of(pairs[p][i], 10 + (uint64_t)i);
            together[i] = worker_of(pairs[p][i], 10 + (uint64_t)i);
            assert_int_equal(work(&alone[i], &err), TUTTI_OK);
        }
        for (int i = 0; i < 2; i++)
            assert_int_equal(tutti_thread_open(&threads[i], rt, "worker", work, &together[i], &err), TUTTI_OK);
        for (int i = 0; i < 2; i++)
            if (tutti_thread_join(threads[i], &err) != TUTTI_OK)
                fail_msg("%s", err.text);
        for (int i = 0; i < 2; i++) {
            assert_true(alone[i].loss == together[i].loss);
            for (int k = 0; k < alone[i].e.count; k++)
                assert_memory_equal(alone[i].e.gradients[k], together[i].e.gradients[k],
                                    alone[i].e.params[k].count * sizeof(float));
            example_free(&alone[i].e);
            example_free(&together[i].e);
        }
    }
    tutti_runtime_close(rt);
}

/* The simulated transport runs many workers on one thread: a pass leaves
   the thread's own setting as it was. */
static void a_pass_keeps_the_callers_openmp_thread_count(void **state)
{
    const nn_net net = net_of("cnn", 1, 10, 10, 3);
    example e = example_of(&net, 11, 1);
    tutti_nn *nn;

    (void)state;
    omp_set_num_threads(3);
    nn = open_net(&net, NULL, 11);
    assert_int_equal(omp_get_max_threads(), 3);
    run_pass(nn, &e, 11, false, NULL);
    assert_int_equal(omp_get_max_threads(), 3);
    tutti_nn_close(nn);
    example_free(&e);
}

/* ThreadSanitizer does not see libgomp's barriers and would report its workers. */
static void two_threads_of_one_network_agree_with_the_reference(void **state)
{
#if SANITIZED_THREAD
    (void)state;
    skip();
#else
    const nn_net net = net_of("cnn", 1, 14, 14, 10);
    const tutti_nn_options options = { .batch = 21, .threads = 2 };
    example e = example_of(&net, 21, 1), r = example_of(&net, 21, 1), again = example_of(&net, 21, 1);
    tutti_nn *nn, *slow = open_net(&net, "reference", 21);

    (void)state;
    assert_int_equal(tutti_nn_open_net(&nn, &net, &options, NULL), TUTTI_OK);
    run_pass(nn, &e, 21, false, NULL);
    run_pass(nn, &again, 21, false, NULL);
    run_pass(slow, &r, 21, false, NULL);
    for (int k = 0; k < e.count; k++) {
        assert_true(distance(e.gradients[k], r.gradients[k], e.params[k].count) <= 1e-5);
        assert_memory_equal(e.gradients[k], again.gradients[k], e.params[k].count * sizeof(float));
    }
    tutti_nn_close(nn);
    tutti_nn_close(slow);
    example_free(&e);
    example_free(&r);
    example_free(&again);
#endif
}

/* Where few rows meet few columns a product's sums may be split among threads, and its edges are
   another kernel's: shapes of both kinds, which gave other bits with AVX2. */
static void products_have_the_same_bits_with_any_number_of_threads(void **state)
{
#if SANITIZED_THREAD
    (void)state;
    skip();
#else
    static const struct { const char *model; int side; int64_t samples; } cases[] = {
        { "mlp(hidden=64)", 28, 20 }, { "mlp(hidden=64)", 28, 64 }, { "mlp(hidden=1024)", 12, 64 },
        { "mlp(hidden=200)", 10, 7 }, { "mlp(hidden=65)", 5, 1 }, { "mlp(hidden=1)", 28, 3 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        const int64_t samples = cases[i].samples;
        const nn_net net = net_of(cases[i].model, 1, cases[i].side, cases[i].side, 10);
        example one = example_of(&net, samples, i);
        for (int threads = 1; threads <= 5; threads++) {
            const tutti_nn_options options = { .batch = samples, .threads = threads };
            example e = example_of(&net, samples, i), *to = threads == 1 ? &one : &e;
            tutti_nn *nn;
            assert_int_equal(tutti_nn_open_net(&nn, &net, &options, NULL), TUTTI_OK);
            run_pass(nn, to, samples, false, NULL);
            run_pass(nn, to, samples, true, NULL); /* and added to what is there */
            for (int k = 0; k < e.count && threads > 1; k++)
                assert_memory_equal(e.gradients[k], one.gradients[k], e.params[k].count * sizeof(float));
            tutti_nn_close(nn);
            example_free(&e);
        }
        example_free(&one);
    }
#endif
}

/* ---- the loops: every level the bits of the scalar one, nothing written beyond the end ---- */
enum { LONGEST = 300, GUARD = 8 };

static void draw(float *x, size_t n, uint64_t seed)
{
    static const float special[] = { 0, -0.0f, 1e-42f, -1e-42f, INFINITY, -INFINITY, NAN, 3e38f };
    const tutti_rng rng = { .seed = seed, .stream = 9 };

    for (size_t i = 0; i < n; i++) {
        const uint64_t r = tutti_random(rng, i);
        x[i] = r % 16 == 0 ? special[r / 16 % TUTTI_LENGTH(special)] : (float)tutti_normal(rng, 4096 + i);
    }
}

/* Equal bits; a NaN is a NaN. */
static void assert_same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("value %zu of %zu: %a and %a", i, n, (double)a[i], (double)b[i]);
}

static void loops_are_bitwise_equal_at_every_cpu_level(void **state)
{
    (void)state;
    for (tutti_cpu cpu = TUTTI_CPU_SCALAR; cpu <= tutti_cpu_best(); cpu++) {
        const nn_loops *l = nn_loops_of(cpu), *s = &tutti_nn_loops_scalar;
        for (size_t n = 0; n <= 130; n++) {
            float x[LONGEST], y[LONGEST], a[LONGEST], b[LONGEST];
            const size_t shift = n % 5;
            draw(x, LONGEST, n);
            draw(y, LONGEST, n + 1000);
            memcpy(a, y, sizeof a), memcpy(b, y, sizeof b);
            l->relu(n, a + shift), s->relu(n, b + shift);
            assert_same(a, b, LONGEST);
            memcpy(a, y, sizeof a), memcpy(b, y, sizeof b);
            l->mask(n, x, a + shift), s->mask(n, x, b + shift);
            assert_same(a, b, LONGEST);
            memcpy(a, y, sizeof a), memcpy(b, y, sizeof b);
            l->add(n, x, a + shift), s->add(n, x, b + shift);
            assert_same(a, b, LONGEST);
        }
    }
}

static void masked_column_sums_are_correct_at_every_cpu_level(void **state)
{
    static const size_t rows[] = { 1, 2, 63, 64, 65, 130 }, columns[] = { 1, 3, 10, 64, 65, 127, 128, 200 };

    (void)state;
    for (tutti_cpu cpu = TUTTI_CPU_SCALAR; cpu <= tutti_cpu_best(); cpu++)
        for (size_t i = 0; i < TUTTI_LENGTH(rows) * TUTTI_LENGTH(columns) * 4; i++) {
            const size_t r = rows[i / 4 % TUTTI_LENGTH(rows)], c = columns[i / 4 / TUTTI_LENGTH(rows)], n = r * c;
            const bool masked = i % 2 == 1, add = i / 2 % 2 == 1;
            const tutti_rng rng = { .seed = i };
            float *y = calloc(n, sizeof *y), *g = calloc(n + GUARD, sizeof *g), *h = calloc(n + GUARD, sizeof *h);
            float sum[200 + GUARD], other[200 + GUARD];

            for (size_t j = 0; j < n; j++) {
                y[j] = (float)tutti_normal(rng, j);
                g[j] = h[j] = (float)tutti_normal(rng, n + j);
            }
            for (size_t j = 0; j < TUTTI_LENGTH(sum); j++)
                sum[j] = other[j] = (float)j;
            nn_loops_of(cpu)->bias(r, c, masked ? y : NULL, g, sum, add);
            for (size_t j = 0; j < c; j++) {
                double exact = add ? (double)j : 0, size = 1;
                for (size_t k = 0; k < r; k++) {
                    const double value = masked && y[k * c + j] <= 0 ? 0 : (double)h[k * c + j];
                    assert_true((double)g[k * c + j] == value);
                    exact += value;
                    size += fabs(value);
                }
                assert_true(fabs((double)sum[j] - exact) <= 1e-6 * (size + (double)j));
            }
            for (size_t j = c; j < TUTTI_LENGTH(sum); j++)
                assert_true(sum[j] == (float)j);
            tutti_nn_loops_scalar.bias(r, c, masked ? y : NULL, h, other, add);
            assert_memory_equal(sum, other, sizeof sum);
            assert_memory_equal(g, h, (n + GUARD) * sizeof *g);
            free(y);
            free(g);
            free(h);
        }
}

/* ---- pooling, against the definition written out for one value at a time ---- */
static size_t place_in(const nn_maps *m, size_t block, size_t row, size_t column, size_t lane)
{
    return ((block * m->height + row) * m->width + column) * m->lanes + lane;
}

static void pool_plainly(const nn_maps *m, size_t side, const float *x, float *y, void *place, bool relu,
                         const float *slope, float *dx)
{
    const nn_maps out = { m->images, m->channels, m->height / side, m->width / side, m->lanes };

    memset(dx, 0, m->images * m->channels * m->height * m->width * sizeof *dx);
    for (size_t block = 0; block < m->images * (m->channels / m->lanes); block++)
        for (size_t r = 0; r < out.height; r++)
            for (size_t s = 0; s < out.width; s++)
                for (size_t lane = 0; lane < m->lanes; lane++) {
                    const size_t to = place_in(&out, block, r, s, lane);
                    size_t best = place_in(m, block, r * side, s * side, lane);
                    size_t where = 0;
                    for (size_t at = 1; at < side * side; at++) {
                        const size_t from = place_in(m, block, r * side + at / side, s * side + at % side, lane);
                        if (x[from] > x[best]) {
                            best = from;
                            where = at;
                        }
                    }
                    if (nn_argmax_bytes(side) == 1)
                        ((uint8_t *)place)[to] = (uint8_t)where;
                    else
                        ((int32_t *)place)[to] = (int32_t)where;
                    y[to] = relu && x[best] < 0 ? 0 : x[best];
                    dx[best] = relu && y[to] <= 0 ? 0 : slope[to];
                }
}

static void pooling_matches_its_definition_at_every_cpu_level(void **state)
{
    static const struct { nn_maps m; size_t side;
    } list[] = {
        { { 2, 16, 6, 6, 8 }, 2 },   { { 1, 32, 7, 5, 16 }, 2 },  { { 3, 10, 5, 9, 10 }, 2 },
        { { 2, 3, 8, 8, 1 }, 2 },    { { 1, 24, 9, 7, 24 }, 3 },  { { 1, 8, 5, 5, 8 }, 5 },
        { { 1, 8, 16, 33, 8 }, 16 }, { { 1, 9, 36, 18, 9 }, 17 }, { { 2, 8, 3, 4, 8 }, 1 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(list) * 2; i++) {
        const nn_maps *m = &list[i / 2].m;
        const size_t side = list[i / 2].side, values = m->images * m->channels * m->height * m->width,
                     lines = nn_pool_lines(m, side), n = lines * (m->width / side) * m->lanes;
        const bool relu = i % 2 == 1;
        float *x = calloc(values, sizeof *x), *dx = calloc(values, sizeof *dx), *ex = calloc(values, sizeof *ex);
        float *y = calloc(n, sizeof *y), *ey = calloc(n, sizeof *ey), *slope = calloc(n, sizeof *slope);
        char *place = calloc(n, sizeof(int32_t)), *eplace = calloc(n, sizeof(int32_t));

        draw(x, values, i);
        draw(slope, n, i + 500);
        for (size_t k = 0; k < values; k += 3) /* equals: the first counts */
            x[k] = -1;
        pool_plainly(m, side, x, ey, eplace, relu, slope, ex);
        for (tutti_cpu cpu = TUTTI_CPU_SCALAR; cpu <= tutti_cpu_best(); cpu++) {
            const nn_loops *l = nn_loops_of(cpu);
            const size_t half = lines / 2; /* two parts, as two threads have */
            memset(dx, 0xff, values * sizeof *dx);
            memset(place, 0xff, n * nn_argmax_bytes(side));
            l->pool(&(nn_windows){ m, side, half, lines - half }, x, y, NULL, relu);
            l->pool(&(nn_windows){ m, side, 0, lines }, x, y, NULL, relu);
            assert_same(y, ey, n);
            memset(y, 0, n * sizeof *y);
            l->pool(&(nn_windows){ m, side, half, lines - half }, x, y, place, relu);
            l->pool(&(nn_windows){ m, side, 0, half }, x, y, place, relu);
            assert_same(y, ey, n);
            assert_memory_equal(place, eplace, n * nn_argmax_bytes(side));
            l->pool_back(&(nn_windows){ m, side, half, lines - half }, relu ? y : NULL, place,
                         slope, dx);
            l->pool_back(&(nn_windows){ m, side, 0, half }, relu ? y : NULL, place, slope, dx);
            assert_same(dx, ex, values);
        }
        free(x), free(dx), free(ex), free(y), free(ey), free(slope), free(place), free(eplace);
    }
}

/* ---- weights of a convolution of plain maps: near the sum in doubles, the same bits at
   every level and in any parts ---- */
static void conv_weight_gradients_match_definition_at_every_cpu_level(void **state)
{
    static const struct { nn_maps out; size_t channels, side;
    } list[] = {
        { { 8, 32, 26, 26, 8 }, 1, 3 }, { { 2, 32, 5, 7, 16 }, 3, 3 }, { { 3, 16, 4, 9, 8 }, 2, 5 },
        { { 1, 24, 6, 5, 24 }, 1, 1 },  { { 2, 8, 3, 4, 8 }, 2, 11 },  { { 1, 16, 2, 3, 16 }, 5, 2 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(list); i++) {
        const nn_maps *out = &list[i].out;
        const size_t side = list[i].side, places = out->images * out->height * out->width,
                     n = out->channels * list[i].channels * side * side;
        const nn_maps in = { out->images, list[i].channels, out->height + side - 1, out->width + side - 1, 1 };
        const size_t values = in.images * in.channels * in.height * in.width;
        const tutti_rng rng = { .seed = i };
        float *x = calloc(values, sizeof *x), *slope = calloc(places * out->channels, sizeof *slope),
              *w = calloc(n + GUARD, sizeof *w), *first = calloc(n + GUARD, sizeof *first);
        float bias[32 + GUARD], first_bias[32 + GUARD] = { 0 };

        for (size_t k = 0; k < values; k++)
            x[k] = (float)tutti_normal(rng, k);
        for (size_t k = 0; k < places * out->channels; k++)
            slope[k] = (float)tutti_normal(rng, values + k);
        for (tutti_cpu cpu = TUTTI_CPU_SCALAR; cpu <= tutti_cpu_best(); cpu++) {
            const size_t groups = out->channels / NN_LANES, half = groups / 2;
            memset(w, 0xff, n * sizeof *w);
            memset(bias, 0, sizeof bias);
            nn_loops_of(cpu)->weights_of_plain(
                &(nn_plain_conv){ out, &in, side, half, groups - half }, x, slope, w, bias);
            nn_loops_of(cpu)->weights_of_plain(&(nn_plain_conv){ out, &in, side, 0, half }, x,
                                               slope, w, bias);
            if (cpu == TUTTI_CPU_SCALAR) {
                memcpy(first, w, (n + GUARD) * sizeof *w);
                memcpy(first_bias, bias, sizeof bias);
            }
            assert_memory_equal(w, first, (n + GUARD) * sizeof *w);
            assert_memory_equal(bias, first_bias, sizeof bias);
        }
        for (size_t k = 0; k < n; k++) {
            const size_t o = k / (in.channels * side * side), c = k / (side * side) % in.channels, r = k / side % side,
                         s = k % side;
            double exact = 0, size = 0, exact_bias = 0;
            for (size_t place = 0; place < places; place++) {
                const size_t image = place / (out->height * out->width), p = place / out->width % out->height,
                             q = place % out->width;
                const double d = slope[place_in(out, image * (out->channels / out->lanes) + o / out->lanes, p, q,
                                                o % out->lanes)],
                             v = x[((image * in.channels + c) * in.height + p + r) * in.width + q + s];
                exact += d * v;
                exact_bias += d;
                size += fabs(d * v) + fabs(d);
            }
            assert_true(fabs(w[k] - exact) <= 1e-6 * (size + 1));
            assert_true(fabs(bias[o] - exact_bias) <= 1e-6 * (size + 1));
        }
        free(x), free(slope), free(w), free(first);
    }
}

/* ---- loops split among threads ---- */
enum { CUTS = 1000 };
typedef struct cuts { unsigned char times[CUTS], thread[CUTS]; size_t least; } cuts;

static void count_items(void *arg, size_t first, size_t count, int thread)
{
    cuts *c = arg;

    assert_true(count >= c->least);
    for (size_t i = first; i < first + count; i++) {
        c->times[i]++;
        c->thread[i] = (unsigned char)thread;
    }
}

static void parallel_loops_cover_every_item_exactly_once(void **state)
{
    (void)state;
#if SANITIZED_THREAD
    skip();
#endif
    for (int threads = 1; threads <= 3; threads++)
        for (size_t items = 0; items <= CUTS; items = 2 * items + 1)
            for (size_t least = 1; least <= CUTS; least *= 10) {
                cuts c = { .least = items < least ? items : least };
                int most = 0;
                tutti_nn_parallel(threads, items, least, count_items, &c);
                for (size_t i = 0; i < items; i++) {
                    assert_int_equal(c.times[i], 1);
                    most = c.thread[i] > most ? c.thread[i] : most;
                }
                assert_true(most < threads);
                assert_true(items < 2 * least ? most == 0 : threads == 1 || most > 0);
            }
}

/* Large enough that every loop is split. Loops give one thread's bits; oneDNN's products may be
   split otherwise, hence the tolerance. The same threads, the same bits. */
static void one_and_two_threads_agree_on_row_networks(void **state)
{
#if SANITIZED_THREAD
    (void)state;
    skip();
#else
    enum { SAMPLES = 8, TOKENS = SAMPLES * 128, CLICKS = 64, TABLES = 8, VALUES = 13, FRAMES = 4, MOST = 64 };
    static const struct { const char *model; tutti_nn_task task; int64_t samples; } nets[] = {
        { "gpt(layers=1,dim=64,heads=2)", { .classes = 256, .context = 128 }, SAMPLES },
        { "gpt(layers=1,dim=64,heads=2,dropout=0.1,positions=rotary,norm=rms)", { .classes = 256, .context = 128 },
          SAMPLES },
        { "gpt(layers=1,dim=64,heads=2,tied=off)", { .classes = 256, .context = 128 }, SAMPLES },
        { "ctr(dim=128,layers=2,hidden=512)",
          { .channels = 1, .height = 1, .width = VALUES, .classes = 2, .tables = TABLES, .rows = 100 }, CLICKS },
        { "blstm(layers=1,hidden=128)", { .channels = 1, .height = FRAMES, .width = VALUES, .classes = 2 }, CLICKS },
    };
    static uint32_t tokens[TOKENS], next[TOKENS], rows[CLICKS * TABLES];
    static float x[CLICKS * FRAMES * VALUES];
    static uint8_t labels[CLICKS];

    (void)state;
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (uint32_t)(i * i + i / 7) % 256;
        next[i] = (uint32_t)(i * 3 + i / 5) % 256;
    }
    for (uint32_t i = 0; i < CLICKS * TABLES; i++)
        rows[i] = (i * i + i / 3) % 100;
    for (size_t i = 0; i < TUTTI_LENGTH(x); i++)
        x[i] = (float)tutti_normal((tutti_rng){ .seed = 5 }, i);
    for (int i = 0; i < CLICKS; i++)
        labels[i] = i % 3 == 0;
    for (size_t which = 0; which < TUTTI_LENGTH(nets); which++) {
        const char *const model = nets[which].model;
        const tutti_nn_task task = nets[which].task;
        const int64_t samples = nets[which].samples;
        tutti_nn_param p[MOST];
        float *values[MOST], *gradients[3][MOST];
        double loss[3];
        int count;
        assert_int_equal(tutti_nn_params(model, &task, p, MOST, &count, NULL), TUTTI_OK);
        for (int k = 0; k < count; k++) {
            values[k] = calloc(p[k].count, sizeof(float));
            tutti_nn_initialise(&p[k], 2 * p[k].unit + (p[k].dims == 1), 3, values[k]);
            for (int run = 0; run < 3; run++)
                gradients[run][k] = calloc(p[k].count, sizeof(float));
        }
        for (int run = 0; run < 3; run++) {
            tutti_error err = { 0 };
            tutti_nn *nn;
            tutti_status status = tutti_nn_open(
                &nn, model, &task, &(tutti_nn_options){ .batch = samples, .threads = run == 0 ? 1 : 2 }, &err);
            if (status == TUTTI_OK)
                status =
                    task.tables > 0
                        ? tutti_nn_pass_rows(
                              nn,
                              &(tutti_nn_samples){
                                  .count = samples, .x = x, .labels = labels, .rows = rows },
                              &(tutti_nn_step){ (double)samples, false, false,
                                                (const float *const *)values, gradients[run],
                                                NULL },
                              &loss[run], &err)
                    : task.context > 0
                        ? tutti_nn_pass_tokens(nn,
                                               &(tutti_nn_samples){ .count = samples,
                                                                    .tokens = tokens,
                                                                    .next = next },
                                               &(tutti_nn_step){ (double)samples, false, false,
                                                                 (const float *const *)values,
                                                                 gradients[run], NULL },
                                               &loss[run], &err)
                        : tutti_nn_pass(
                              nn, &(tutti_nn_samples){ .count = samples, .x = x, .labels = labels },
                              &(tutti_nn_step){ (double)samples, false, false,
                                                (const float *const *)values, gradients[run],
                                                NULL },
                              &loss[run], &err);
            if (status != TUTTI_OK)
                fail_msg("%s: %s", model, err.text);
            tutti_nn_close(nn);
        }
        assert_true(loss[1] == loss[2] && fabs(loss[0] - loss[1]) <= 1e-6 * loss[0]);
        for (int k = 0; k < count; k++) {
            assert_memory_equal(gradients[1][k], gradients[2][k], p[k].count * sizeof(float));
            if (distance(gradients[1][k], gradients[0][k], p[k].count) > 1e-4)
                fail_msg("%s: two threads are %g off from one", p[k].name,
                         distance(gradients[1][k], gradients[0][k], p[k].count));
            free(values[k]);
            for (int run = 0; run < 3; run++)
                free(gradients[run][k]);
        }
    }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_in_two_threads_do_not_affect_each_other),
        cmocka_unit_test(a_pass_keeps_the_callers_openmp_thread_count),
        cmocka_unit_test(two_threads_of_one_network_agree_with_the_reference),
        cmocka_unit_test(products_have_the_same_bits_with_any_number_of_threads),
        cmocka_unit_test(parallel_loops_cover_every_item_exactly_once),
        cmocka_unit_test(one_and_two_threads_agree_on_row_networks),
        cmocka_unit_test(loops_are_bitwise_equal_at_every_cpu_level),
        cmocka_unit_test(pooling_matches_its_definition_at_every_cpu_level),
        cmocka_unit_test(conv_weight_gradients_match_definition_at_every_cpu_level),
        cmocka_unit_test(masked_column_sums_are_correct_at_every_cpu_level),
    };
    return cmocka_run_group_tests_name("nn/threads", tests, NULL, NULL);
}
