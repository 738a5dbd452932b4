/* The mathematics of ALQ and AMQ. Goal: levels are at the optimum of their objective. Method:
   closed forms compared with quadrature, optima with brute force. */
#include "subject.h"
#include "codec/codec_internal.h"
#include "codec/mixture.h"

static tutti_codec_mixture a_mixture(tutti_codec_normal part[4], int kind, uint64_t *seed)
{
    tutti_codec_mixture m = { .n = 1 + kind % 4, .of = part };

    for (int k = 0; k < m.n; k++)
        part[k] = (tutti_codec_normal){
            .weight = 0.1 + subject_uniform(seed), .mean = kind % 2 ? 0.2 * (subject_uniform(seed) - 0.5) : 0,
            .deviation = exp(-5 * subject_uniform(seed)),
        };
    assert_true(tutti_codec_mixture_make(&m));
    return m;
}

/* The integral of a + b x + c x^2 by Simpson's rule on the density; narrow parts are 0.006 wide. */
static double quadrature(const tutti_codec_mixture *m, double u, double w, double a, double b, double c)
{
    enum { PIECES = 4000 };
    const double h = (w - u) / PIECES;
    double sum = 0;

    for (int i = 0; i <= PIECES; i++) {
        const double x = u + h * i;
        sum += (i == 0 || i == PIECES ? 1
                : i % 2               ? 4
                                      : 2) *
               (a + b * x + c * x * x) * tutti_codec_mixture_density(m, x);
    }
    return sum * h / 3;
}

static double psi_by_quadrature(const tutti_codec_mixture *m, int n, const double *level)
{
    double sum = 0;

    for (int j = 0; j + 1 < n; j++)
        sum += quadrature(m, level[j], level[j + 1], -level[j] * level[j + 1], level[j] + level[j + 1], -1);
    return sum;
}

static void some_levels(int n, double *level, uint64_t *seed)
{
    level[0] = -1, level[n - 1] = 1;
    for (int j = 1; j < n - 1; j++)
        level[j] = (j + 0.8 * (subject_uniform(seed) - 0.5)) / (n - 1) * 2 - 1, level[j] *= fabs(level[j]);
}

static void closed_forms_are_the_integrals(void **state)
{
    uint64_t seed = 1;
    (void)state;

    for (int round = 0; round < 40; round++) {
        tutti_codec_normal part[4];
        const tutti_codec_mixture m = a_mixture(part, round, &seed);
        const double u = 2 * subject_uniform(&seed) - 1, w = u + (1 - u) * subject_uniform(&seed), h = 1e-5;
        double moment[3], level[16], x;
        tutti_codec_mixture_moments(&m, u, w, moment);
        assert_true(fabs(moment[0] - quadrature(&m, u, w, 1, 0, 0)) < 1e-9 &&
                    fabs(moment[1] - quadrature(&m, u, w, 0, 1, 0)) < 1e-9 &&
                    fabs(moment[2] - quadrature(&m, u, w, 0, 0, 1)) < 1e-9);
        x = tutti_codec_mixture_quantile(&m, u, w, 0.3 * moment[0]);
        assert_true(x >= u && x <= w &&
                    (moment[0] < 1e-6 || fabs(quadrature(&m, u, x, 1, 0, 0) / moment[0] - 0.3) < 1e-6));
        tutti_codec_mixture_moments(&m, -1, 1, moment);
        assert_true(fabs(moment[0] - 1) < 1e-12);
        some_levels(16, level, &seed);
        assert_true(fabs(tutti_codec_psi(&m, 16, level) - psi_by_quadrature(&m, 16, level)) < 1e-8);
        for (int j = 1; j < 15; j++) {
            double up, down, at = level[j];
            level[j] = at + h, up = tutti_codec_psi(&m, 16, level);
            level[j] = at - h, down = tutti_codec_psi(&m, 16, level);
            level[j] = at;
            assert_true(fabs(tutti_codec_psi_slope(&m, level, j) - (up - down) / (2 * h)) < 1e-6);
        }
    }
}

static void level_descent_ends_at_a_stationary_point(void **state)
{
    uint64_t seed = 2;
    (void)state;

    for (int round = 0; round < 30; round++) {
        const int n = 4 << round % 3;
        tutti_codec_normal part[4];
        const tutti_codec_mixture m = a_mixture(part, round, &seed);
        double level[16], start;
        some_levels(n, level, &seed);
        start = tutti_codec_psi(&m, n, level);
        assert_true(tutti_codec_psi_descend(&m, n, level, -1, round % 2) <= start);
        /* goes on from there */
        assert_true(fabs(tutti_codec_psi(&m, n, level) - tutti_codec_psi_descend(&m, n, level, -1, false)) <= 1);
        for (int more = 0; more < 20; more++) /* some start far away: two hundred sweeps are not always enough */
            tutti_codec_psi_descend(&m, n, level, -1, false);
        for (int j = 1; j < n - 1; j++)
            if (fabs(tutti_codec_psi_slope(&m, level, j)) > 1e-7)
                fail_msg("round %d, level %d: slope %g", round, j, tutti_codec_psi_slope(&m, level, j));
        for (int j = 0; j + 1 < n; j++)
            assert_true(level[j] < level[j + 1]);
        if (round % 4 == 0) { /* one part with mean 0: no levels are better than symmetric ones */
            double mirrored[16];
            const double psi = tutti_codec_psi_minimise(&m, n, level, -1, false);
            for (int j = 0; j < n; j++)
                mirrored[j] = (level[j] - level[n - 1 - j]) / 2;
            assert_true(fabs(tutti_codec_psi(&m, n, mirrored) / psi - 1) < 1e-3);
        }
        tutti_codec_psi_minimise(&m, n, level, n / 2, false);
        assert_true(level[n / 2] == 0);
    }
    { /* uniform: even levels */
        tutti_codec_normal wide = { .weight = 1, .mean = 0, .deviation = 1000 };
        tutti_codec_mixture m = { 1, &wide };
        double level[8];
        assert_true(tutti_codec_mixture_make(&m));
        some_levels(8, level, &seed);
        tutti_codec_psi_minimise(&m, 8, level, -1, false);
        for (int j = 0; j < 8; j++)
            assert_true(fabs(level[j] - (2.0 * j / 7 - 1)) < 1e-4);
    }
}

/* From 5 bits on all levels move at once, and thirty sweeps reach the point where moving them by
   turns would end: every level within a millionth of its interval of the best place between its
   neighbours, which the quantile of the closed form finds. Psi is below that of every start, and
   for one normal distribution it is what theory gives for many levels: (integral of f^(1/3))^3 /
   (6 n^2) = sqrt(3) pi deviation^2 / n^2, n levels without the two at the ends. With one level
   kept at 0, too; the slopes' variant, which is slower, never rises. */
static void many_levels_converge_in_thirty_sweeps(void **state)
{
    enum { PARTS = 64 };
    uint64_t seed = 12;
    (void)state;

    for (int bits = 5; bits <= 8; bits++)
        for (int round = 0; round < 6; round++) {
            const int n = 1 << bits, pinned = round == 5 ? n / 2 : -1;
            tutti_codec_normal part[PARTS];
            tutti_codec_mixture m = { .n = round == 0 ? 1 : PARTS, .of = part, .sweeps = 30 };
            double level[256], start[256], psi, begun, worst = 0;
            for (int k = 0; k < m.n; k++) {
                const double deviation = round == 2 ? 0.05 + 0.2 * subject_uniform(&seed)
                        : 0.011 * (0.5 + subject_uniform(&seed));
                part[k] = (tutti_codec_normal){ 0.1 + subject_uniform(&seed),
                        0.002 * (subject_uniform(&seed) - 0.5), round == 0 ? 0.011 : deviation, 0 };
            }
            if (round == 0)
                part[0].mean = 0;
            assert_true(tutti_codec_mixture_make(&m));
            tutti_codec_powers(n, fmax(0.5, tutti_codec_power_least(n)), start);
            memcpy(level, start, sizeof level);
            begun = tutti_codec_psi(&m, n, level);
            psi = tutti_codec_psi_minimise(&m, n, level, pinned, round == 4);
            assert_true(psi <= begun && fabs(psi - tutti_codec_psi(&m, n, level)) <= 1e-12 * psi &&
                    level[0] == -1 && level[n - 1] == 1);
            assert_true(pinned < 0 || level[pinned] == 0);
            for (int j = 0; j + 1 < n; j++)
                assert_true(level[j] < level[j + 1]);
            for (int j = 1; j < n - 1; j++) {
                const double a = level[j - 1], c = level[j + 1];
                double moment[3], wanted;
                tutti_codec_mixture_moments(&m, a, c, moment);
                wanted = moment[0] - (moment[1] - a * moment[0]) / (c - a);
                if (j != pinned && moment[0] > 1e-200)
                    worst = fmax(worst, fabs(level[j] - tutti_codec_mixture_quantile(&m, a, c, wanted)) / (c - a));
            }
            if (round != 4 && worst > 1e-6)
                fail_msg("%d bits, round %d: a level is %g of its interval away from its best place", bits, round,
                        worst);
            if (round == 0)
                assert_true(fabs(psi / (sqrt(3) * acos(-1) * 0.011 * 0.011 / ((n - 3) * (double)(n - 3))) - 1) < 0.015);
            assert_true(tutti_codec_psi_descend(&m, n, start, -1, round == 4) <= begun);
        }
}

/* Each sweep leaves Psi no greater, and sweeps end where no slope is left: |dPsi/dl_j| < 1e-9, or
   a slope so small that Psi in double no longer changes: slope^2 against the sixteenth digit of
   Psi. */
static void sweeps_never_increase_psi_and_end_at_zero_slope(void **state)
{
    uint64_t seed = 21;
    (void)state;

    for (int round = 0; round < 12; round++) {
        tutti_codec_normal part[4];
        tutti_codec_mixture m = a_mixture(part, round, &seed);
        double level[8], last, slope = 1;
        some_levels(8, level, &seed);
        last = tutti_codec_psi(&m, 8, level);
        m.sweeps = 1;
        for (int sweep = 0; sweep < 5000 && slope > 1e-9; sweep++) {
            const double psi = tutti_codec_psi_descend(&m, 8, level, -1, false);
            if (!(psi <= last * (1 + 1e-12) + 1e-18))
                fail_msg("round %d, sweep %d: psi rises from %.17g to %.17g", round, sweep, last, psi);
            last = psi;
            slope = 0;
            for (int j = 1; j < 7; j++)
                slope = fmax(slope, fabs(tutti_codec_psi_slope(&m, level, j)));
        }
        if (slope > 1e-9 && slope * slope > 1e-14 * last)
            fail_msg("round %d: slope %g is left where psi is %g", round, slope, last);
    }
}

/* Two inner levels on a grid; the multiplier in steps of 1e-4. */
static void levels_are_at_the_optimum(void **state)
{
    enum { GRID = 120 };
    uint64_t seed = 3;
    (void)state;

    for (int round = 0; round < 8; round++) {
        tutti_codec_normal part[4];
        const tutti_codec_mixture m = a_mixture(part, round, &seed);
        tutti_codec_mixture slow = m;
        double least = INFINITY, level[16] = { -1, -0.5, 0.5, 1 }, by_slope[4] = { -1, -0.5, 0.5, 1 }, found, p, psi;
        const double reach = round % 4 == 0 ? 6 * part[0].deviation : 1; /* where a single narrow part has its levels */
        for (int i = 1; i < GRID; i++)
            for (int j = i + 1; j < GRID; j++) {
                const double it[4] = { -1, fmin(reach, 1) * (2.0 * i / GRID - 1), fmin(reach, 1) * (2.0 * j / GRID - 1),
                                       1 };
                least = fmin(least, tutti_codec_psi(&m, 4, it));
            }
        found = tutti_codec_psi_minimise(&m, 4, level, -1, false);
        assert_true(fabs(found - psi_by_quadrature(&m, 4, level)) < 1e-8);
        if (!(found <= least * (1 + 1e-9)))
            fail_msg("round %d: alq's psi is %.9g, the grid's %.9g", round, found, least);
        assert_true(found >= least * 0.9); /* the grid is fine enough to be compared with */
        slow.sweeps = 2000; /* projected gradient steps of a fixed rate: shorter */
        found = tutti_codec_psi_minimise(&slow, 4, by_slope, -1, true);
        if (!(found <= least * 1.005))
            fail_msg("round %d: by gradient descent alq's psi is %.9g, the grid's %.9g", round, found, least);
        least = INFINITY;
        for (int k = 100; k <= 9900; k++) {
            tutti_codec_powers(8, k * 1e-4, level);
            if (k * 1e-4 >= tutti_codec_power_least(8))
                least = fmin(least, tutti_codec_psi(&m, 8, level));
        }
        p = tutti_codec_psi_multiplier(&m, 8, &psi);
        tutti_codec_powers(8, p, level);
        assert_true(fabs(psi - psi_by_quadrature(&m, 8, level)) < 1e-8 && psi <= least * (1 + 1e-9) &&
                    psi >= least * 0.999);
        /* all levels free: no worse than a multiplier */
        assert_true(tutti_codec_psi_minimise(&m, 8, level, -1, false) <= psi);
        tutti_codec_powers(8, p, level);
        /* where no grid reaches: in a minimum, maybe another one, from
           which the other variant goes no lower */
        found = tutti_codec_psi_minimise(&slow, 8, level, -1, true);
        assert_true(tutti_codec_psi_descend(&m, 8, level, -1, false) >= found * 0.999);
    }
}

/* d Psi / dp of AMQ's levels +-{1, p, ..., p^s} by means, deviations and the normal distribution
   itself; of parts whose mean is not 0 both halves count. */
static double multiplier_slope(const tutti_codec_mixture *m, int s, double p)
{
    double slope = 0;

    for (int k = 0; k < m->n; k++)
        for (int half = -1; half <= 1; half += 2) {
            const tutti_codec_normal *of = &m->of[k];
            const double mean = half * of->mean, dev = of->deviation;
            const double inside = (erfc((-1 - mean) / dev / sqrt(2)) - erfc((1 - mean) / dev / sqrt(2))) / 2;
            const double mass_all = of->weight / inside;
            for (int j = 0; j <= s; j++) { /* from p^(j+1) to p^j; the last: from 0 to p^s */
                const double u = j == s ? 0 : pow(p, j + 1), w = pow(p, j), a = j == 0 ? 0 : j * pow(p, j - 1),
                             b = (j + 1) * pow(p, j);
                const double mass =
                    mass_all * (erfc((u - mean) / dev / sqrt(2)) - erfc((w - mean) / dev / sqrt(2))) / 2;
                const double at_u =
                                 mass_all * exp(-pow((u - mean) / dev, 2) / 2) / (dev * sqrt(2 * 3.14159265358979324)),
                             at_w =
                                 mass_all * exp(-pow((w - mean) / dev, 2) / 2) / (dev * sqrt(2 * 3.14159265358979324));
                slope += j == s ? 2 * s * pow(p, 2 * s - 1) * mass
                                : (mean * (a + b) - (2 * j + 1) * pow(p, 2 * j)) * mass +
                                      dev * dev * (a + b) * (at_u - at_w);
            }
        }
    return slope;
}

/* Psi'(p) is the central difference of Psi, to 1e-6; at the multiplier that is found it is 0 or p
   at its end. And all levels free are no worse than the even grid and the powers of a half,
   whatever is fitted. */
static void multiplier_slope_formula_matches_central_differences(void **state)
{
    uint64_t seed = 11;
    (void)state;

    for (int round = 0; round < 40; round++) {
        tutti_codec_normal part[4];
        const tutti_codec_mixture m = a_mixture(part, round, &seed);
        const int n = 4 << round % 3, s = n / 2 - 1;
        double level[16], p, psi, even, halves, steepest = 0;
        for (int k = 0; k < 6; k++) {
            const double h = 1e-5;
            double up, down;
            p = 0.1 + 0.8 * subject_uniform(&seed);
            tutti_codec_powers(n, p + h, level), up = tutti_codec_psi(&m, n, level);
            tutti_codec_powers(n, p - h, level), down = tutti_codec_psi(&m, n, level);
            if (!(fabs(multiplier_slope(&m, s, p) - (up - down) / (2 * h)) < 1e-6))
                fail_msg("round %d, p = %g: the slope is %.9g by the formula and %.9g by difference", round, p,
                         multiplier_slope(&m, s, p), (up - down) / (2 * h));
            steepest = fmax(steepest, fabs(multiplier_slope(&m, s, p)));
        }
        p = tutti_codec_psi_multiplier(&m, n, &psi);
        if (p > tutti_codec_power_least(n) + 1e-6 && p < 0.99 - 1e-6 &&
            !(fabs(multiplier_slope(&m, s, p)) < 1e-4 * steepest + 1e-9))
            fail_msg("round %d: the slope at the least Psi, p = %g, is %g; elsewhere up to %g", round, p,
                     multiplier_slope(&m, s, p), steepest);
        for (int j = 0; j < n; j++)
            level[j] = 2.0 * j / (n - 1) - 1;
        even = tutti_codec_psi(&m, n, level);
        tutti_codec_powers(n, fmax(0.5, tutti_codec_power_least(n)), level);
        halves = tutti_codec_psi(&m, n, level);
        assert_true(tutti_codec_psi_minimise(&m, n, level, -1, round % 2) <= fmin(even, halves));
        assert_true(psi <= halves * (1 + 1e-12));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_forms_are_the_integrals),
        cmocka_unit_test(level_descent_ends_at_a_stationary_point),
        cmocka_unit_test(sweeps_never_increase_psi_and_end_at_zero_slope),
        cmocka_unit_test(many_levels_converge_in_thirty_sweeps),
        cmocka_unit_test(levels_are_at_the_optimum),
        cmocka_unit_test(multiplier_slope_formula_matches_central_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
