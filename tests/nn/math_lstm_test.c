/* Goal: tanh keeps its stated error; a moment of an LSTM is its formula, at every level with the
   same bits, and its slopes are those of the formula. Method: the C library in double; widths 0 to
   70 at odd strides, with guards; NaN and infinities. */
#include "math_test.h"

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* A row of width 1 whose other gates are open (sigmoid(40) = 1): cell = tanh(x). */
static float tanh_of(int l, float x)
{
    float gates[4] = { 40, 40, x, 40 }, cell[1], out[1];
    level(l)->lstm(&(nn_lstm_step){ 1, 1, gates, NULL, cell }, out, 1);
    return gates[2];
}

static void tanh_is_within_four_ulps(void **state)
{
    double worst = 0;

    (void)state;
    for (int l = 0; l < levels(); l++) {
        for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 400009) {
            const uint32_t some = (uint32_t)bits;
            float x;
            double expected, unit;
            memcpy(&x, &some, sizeof x);
            if (isnan(x) || fabsf(x) < 1e-30f)
                continue;
            expected = tanh((double)x);
            unit = ldexp(1, (int)floor(log2(fabs(expected) < 1 ? fabs(expected) : 0.75)) - 23);
            worst = fmax(worst, fabs((double)tanh_of(l, x) - expected) / unit);
        }
        assert_true(isnan(tanh_of(l, NAN)) && tanh_of(l, INFINITY) <= 1 && tanh_of(l, -INFINITY) >= -1 &&
                    tanh_of(l, 0) == 0);
    }
    if (!(worst <= 4))
        fail_msg("tanh is wrong by %.3f ulp", worst);
}

typedef struct moment { size_t rows, width, stride; float *gates, *before, *dy, *dh, *dc; bool first, last; } moment;

static moment moment_of(uint64_t seed)
{
    moment m = {
        .rows = between(seed, 0, 1, 5), .width = between(seed, 1, 1, 70), .first = between(seed, 2, 0, 1),
        .last = between(seed, 3, 0, 1),
    };
    m.stride = m.width + between(seed, 4, 0, 9);
    m.gates = drawn(m.rows * 4 * m.width, seed + 1, 2);
    m.before = drawn(m.rows * m.width, seed + 2, 1);
    m.dy = drawn(m.rows * m.stride, seed + 3, 1);
    m.dh = drawn(m.rows * m.width, seed + 4, 1);
    m.dc = drawn(m.rows * m.width, seed + 5, 1);
    return m;
}

static void moment_free(moment *m)
{
    free(m->gates);
    free(m->before);
    free(m->dy);
    free(m->dh);
    free(m->dc);
}

typedef struct result { float *gates, *cell, *out, *slopes, *dc; } result;

static result run(const moment *m, int l)
{
    const size_t n = m->rows * m->width;
    result r = { room(4 * n), room(n), room(m->rows * m->stride), room(4 * n), room(n) };

    memcpy(r.gates, m->gates, 4 * n * sizeof *r.gates);
    level(l)->lstm(
        &(nn_lstm_step){ m->rows, m->width, r.gates, m->first ? NULL : m->before, r.cell }, r.out,
        m->stride);
    memcpy(r.slopes, r.gates, 4 * n * sizeof *r.gates);
    if (!m->last)
        memcpy(r.dc, m->dc, n * sizeof *r.dc);
    level(l)->lstm_back(
        &(nn_lstm_step){ m->rows, m->width, r.slopes, m->first ? NULL : m->before, r.cell }, m->dy,
        m->stride, m->last ? NULL : m->dh, r.dc);
    assert_guarded("gates", r.gates, 4 * n);
    assert_guarded("cell", r.cell, n);
    assert_guarded("out", r.out, m->rows * m->stride);
    assert_guarded("slopes", r.slopes, 4 * n);
    assert_guarded("dc", r.dc, n);
    return r;
}

static void result_free(result *r)
{
    free(r->gates);
    free(r->cell);
    free(r->out);
    free(r->slopes);
    free(r->dc);
}

static void an_lstm_step_and_its_gradients_match_the_formula(void **state)
{
    (void)state;
    for (uint64_t seed = 10; seed < 90; seed++) {
        moment m = moment_of(seed);
        result r = run(&m, 0);
        const size_t n = m.rows * m.width;
        double *gates = calloc(4 * n, sizeof *gates), *cell = calloc(n, sizeof *cell), *out = calloc(n, sizeof *out),
               *slopes = calloc(4 * n, sizeof *slopes), *dc = calloc(n, sizeof *dc);
        float *dense = room(n);

        for (size_t k = 0; k < n; k++) {
            const size_t row = k / m.width, j = k % m.width, at = row * 4 * m.width + j;
            const double a = sigmoid((double)m.gates[at]), f = sigmoid((double)m.gates[at + m.width]),
                         g = tanh((double)m.gates[at + 2 * m.width]), o = sigmoid((double)m.gates[at + 3 * m.width]);
            const double before = m.first ? 0 : (double)m.before[k], c = f * before + a * g,
                         dh = (double)m.dy[row * m.stride + j] + (m.last ? 0 : (double)m.dh[k]);
            const double down = dh * o * (1 - tanh(c) * tanh(c)) + (m.last ? 0 : (double)m.dc[k]);
            gates[at] = a, gates[at + m.width] = f, gates[at + 2 * m.width] = g, gates[at + 3 * m.width] = o;
            cell[k] = c;
            out[k] = o * tanh(c);
            dense[k] = r.out[row * m.stride + j];
            slopes[at] = down * g * a * (1 - a);
            slopes[at + m.width] = down * before * f * (1 - f);
            slopes[at + 2 * m.width] = down * a * (1 - g * g);
            slopes[at + 3 * m.width] = dh * tanh(c) * o * (1 - o);
            dc[k] = down * f;
        }
        assert_near("gates", 4 * n, r.gates, gates, 1e-6);
        assert_near("cell", n, r.cell, cell, 1e-6);
        assert_near("out", n, dense, out, 1e-6);
        assert_near("slopes", 4 * n, r.slopes, slopes, 4e-6);
        assert_near("dc", n, r.dc, dc, 1e-6);
        for (size_t row = 0; row < m.rows; row++) /* between the rows nothing is written */
            for (size_t j = m.width; j < m.stride; j++) {
                float untouched;
                memset(&untouched, 0x5a, sizeof untouched);
                assert_memory_equal(&r.out[row * m.stride + j], &untouched, sizeof untouched);
            }
        result_free(&r);
        moment_free(&m);
        free(gates);
        free(cell);
        free(out);
        free(slopes);
        free(dc);
        free(dense);
    }
}

static void every_cpu_level_gives_bitwise_equal_results(void **state)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY, 1e-42f, -0.0f, 3e38f };

    (void)state;
    for (uint64_t seed = 100; seed < 160; seed++) {
        moment m = moment_of(seed);
        result first;
        if (seed % 3 == 0)
            for (size_t i = 0; i < TUTTI_LENGTH(odd); i++)
                m.gates[between(seed, 20 + i, 0, m.rows * 4 * m.width - 1)] = odd[i];
        first = run(&m, 0);
        for (int l = 1; l < levels(); l++) {
            result r = run(&m, l);
            assert_same("gates", m.rows * 4 * m.width, r.gates, first.gates);
            assert_same("cell", m.rows * m.width, r.cell, first.cell);
            assert_same("out", m.rows * m.stride, r.out, first.out);
            assert_same("slopes", m.rows * 4 * m.width, r.slopes, first.slopes);
            assert_same("dc", m.rows * m.width, r.dc, first.dc);
            result_free(&r);
        }
        result_free(&first);
        moment_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tanh_is_within_four_ulps),
        cmocka_unit_test(an_lstm_step_and_its_gradients_match_the_formula),
        cmocka_unit_test(every_cpu_level_gives_bitwise_equal_results),
    };
    return cmocka_run_group_tests_name("nn/math_lstm", tests, NULL, NULL);
}
