/* mixture.c: closed forms of ALQ and AMQ. With Z the mass inside, f and F a part's density and
   distribution, from u to w:

     integral x dF   = mean (F(w) - F(u)) - deviation^2 (f(w) - f(u))
     integral x^2 dF = (mean^2 + deviation^2) (F(w) - F(u))
                       - deviation^2 ((w + mean) f(w) - (u + mean) f(u))

   Masses are differences of erfc on the side where it is small, so that tails keep their digits.

   Coordinate descent (ALQ): between its neighbours A and C a level is best at the number where F =
   F(C) - 1 / (C - A) integral from A to C of (x - A) dF. It is unique and strictly inside, and Psi
   never rises. F could be inverted by forty bisections; Newton's steps, kept inside of the
   bracket, need six.

   More than 16 levels (5 bits on) move all at once. When levels move one after another, a level
   reacts to its neighbours only, so that the number of sweeps grows with the square of the number
   of levels. Psi's second derivatives are tridiagonal:

     d slope_j / d level_j     = (level_(j+1) - level_(j-1)) f(level_j)
     d slope_j / d level_(j+1) = -mass between the two

   So Newton's step for all levels costs what one evaluation of Psi does, and some ten of them
   lead to the same fixed point: where every level is best between its neighbours. Steps are kept
   within the levels' order, and where Psi does not fall they are shortened by a multiple of the
   masses on the diagonal (Levenberg).

   AMQ descends along the slope of Psi(p) at rate 0.7 for fifty steps from eight starts. The slope
   is of the size of the squared deviation, 1e-4 for a bucket of 8192, and fifty such steps move p
   by a hundredth: the result would be the best start. Here Psi is scanned over 99 values of p, and
   the golden section narrows the best of them down: the same objective, and its minimum. */
#include "mixture.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum { LEVELS_MOST = 256, SWEEPS = 200, NEWTON = 60 };
/* TURNS_MOST: with up to that many levels they move one after another; STARTS_MOST: with up to
   that many levels the descent continues from all starts */
enum { TURNS_MOST = 16, STARTS_MOST = 64 };
#define STILL 1e-6 /* of a level: less movement ends the sweeps */

static double phi(double t)
{
    return 0.3989422804014327 * exp(-0.5 * t * t);
}

/* The mass of the standard normal distribution between a and b. */
static double mass(double a, double b)
{
    const double root = 0.7071067811865476;

    if (a > 0)
        return 0.5 * (erfc(a * root) - erfc(b * root));
    if (b < 0)
        return 0.5 * (erfc(-b * root) - erfc(-a * root));
    return 1 - 0.5 * (erfc(b * root) + erfc(-a * root));
}

bool tutti_codec_mixture_make(tutti_codec_mixture *m)
{
    double sum = 0;
    int n = 0;

    for (int k = 0; k < m->n; k++) {
        tutti_codec_normal p = m->of[k];
        if (!(p.weight > 0) || !isfinite(p.weight) || !(fabs(p.mean) <= 1) || !(p.deviation >= 0))
            continue;
        p.deviation = fmax(p.deviation, 1e-6); /* a bucket of equal numbers has none */
        p.inside = mass((-1 - p.mean) / p.deviation, (1 - p.mean) / p.deviation);
        sum += p.weight;
        m->of[n++] = p;
    }
    m->n = n;
    for (int k = 0; k < n; k++)
        m->of[k].weight /= sum;
    return n > 0;
}

void tutti_codec_mixture_moments(const tutti_codec_mixture *m, double u, double w, double moment[3])
{
    memset(moment, 0, 3 * sizeof *moment);
    for (int k = 0; k < m->n; k++) {
        const tutti_codec_normal *p = &m->of[k];
        const double a = (u - p->mean) / p->deviation, b = (w - p->mean) / p->deviation,
                     by = p->weight / p->inside;
        const double all = mass(a, b), fa = p->deviation * phi(a), fb = p->deviation * phi(b);
        moment[0] += by * all;
        moment[1] += by * (p->mean * all - (fb - fa));
        moment[2] += by * ((p->mean * p->mean + p->deviation * p->deviation) * all -
                           ((w + p->mean) * fb - (u + p->mean) * fa));
    }
}

static double mass_between(const tutti_codec_mixture *m, double u, double w)
{
    double sum = 0;

    for (int k = 0; k < m->n; k++)
        sum += m->of[k].weight / m->of[k].inside *
               mass((u - m->of[k].mean) / m->of[k].deviation,
                    (w - m->of[k].mean) / m->of[k].deviation);
    return sum;
}

double tutti_codec_mixture_density(const tutti_codec_mixture *m, double x)
{
    double sum = 0;

    for (int k = 0; k < m->n; k++)
        sum += m->of[k].weight / m->of[k].inside * phi((x - m->of[k].mean) / m->of[k].deviation) /
               m->of[k].deviation;
    return sum;
}

/* Newton's from x, halving the bracket where that leaves it. */
static double quantile_from(const tutti_codec_mixture *m, double u, double w, double wanted,
                            double x)
{
    double low = u, high = w;

    for (int k = 0; k < NEWTON && high - low > 1e-13 * (w - u); k++) {
        const double over = mass_between(m, u, x) - wanted,
                     slope = tutti_codec_mixture_density(m, x);
        double next;
        if (over > 0)
            high = x;
        else
            low = x;
        next = x - over / slope; /* slope 0: not a number, or infinite: outside */
        if (!(next > low && next < high))
            next = 0.5 * (low + high);
        if (fabs(next - x) < 1e-12 * (w - u))
            return next;
        x = next;
    }
    return x;
}

double tutti_codec_mixture_quantile(const tutti_codec_mixture *m, double u, double w, double wanted)
{
    return quantile_from(m, u, w, wanted, 0.5 * (u + w));
}

/* ---- Psi ---- */
/* tutti_codec_mixture_moments of all intervals between levels, to the bit; the exponential and the
   error function of each level are computed once. density: of each level, not scaled; NULL: not
   wanted. */
static void moments_between(const tutti_codec_mixture *m, int n, const double *level,
                            double (*moment)[3], double *density)
{
    const double root = 0.7071067811865476;
    double t[LEVELS_MOST], outside[LEVELS_MOST], f[LEVELS_MOST];

    memset(moment, 0, (size_t)(n - 1) * sizeof *moment);
    for (int j = 0; j < n && density != NULL; j++)
        density[j] = 0;
    for (int k = 0; k < m->n; k++) {
        const tutti_codec_normal *p = &m->of[k];
        const double by = p->weight / p->inside;
        for (int j = 0; j < n; j++) {
            t[j] = (level[j] - p->mean) / p->deviation;
            outside[j] = erfc(fabs(t[j]) * root);
            f[j] = p->deviation * phi(t[j]);
            if (density != NULL)
                density[j] += by * f[j] / (p->deviation * p->deviation);
        }
        for (int j = 0; j + 1 < n; j++) {
            const double u = level[j], w = level[j + 1], fu = f[j], fw = f[j + 1];
            const double all = t[j] > 0       ? 0.5 * (outside[j] - outside[j + 1])
                               : t[j + 1] < 0 ? 0.5 * (outside[j + 1] - outside[j])
                                              : 1 - 0.5 * (outside[j + 1] + outside[j]);
            moment[j][0] += by * all;
            moment[j][1] += by * (p->mean * all - (fw - fu));
            moment[j][2] += by * ((p->mean * p->mean + p->deviation * p->deviation) * all
                                  - ((w + p->mean) * fw - (u + p->mean) * fu));
        }
    }
}

/* Psi from the moments of each interval: (w - x)(x - u) = -x^2 + (u + w) x - u w. */
static double psi_from(int n, const double *level, double (*moment)[3])
{
    double sum = 0;

    for (int j = 0; j + 1 < n; j++) {
        const double u = level[j], w = level[j + 1];
        sum += fmax((u + w) * moment[j][1] - moment[j][2] - u * w * moment[j][0], 0);
    }
    return sum;
}

double tutti_codec_psi(const tutti_codec_mixture *m, int n, const double *level)
{
    double moment[LEVELS_MOST][3];

    assert(n <= LEVELS_MOST);
    moments_between(m, n, level, moment, NULL);
    return psi_from(n, level, moment);
}

double tutti_codec_psi_slope(const tutti_codec_mixture *m, const double *level, int j)
{
    double left[3], right[3];

    tutti_codec_mixture_moments(m, level[j - 1], level[j], left);
    tutti_codec_mixture_moments(m, level[j], level[j + 1], right);
    return left[1] - level[j - 1] * left[0] + right[1] - level[j + 1] * right[0];
}

/* Returns the best value of level j between its neighbours. If there is no mass between these, any
   value is best, and the level's own is returned. */
static double best_between(const tutti_codec_mixture *m, const double *level, int j)
{
    const double a = level[j - 1], c = level[j + 1];
    double moment[3], wanted;

    tutti_codec_mixture_moments(m, a, c, moment);
    wanted = moment[0] - (moment[1] - a * moment[0]) / (c - a);
    return moment[0] > DBL_MIN && wanted > 0 && wanted < moment[0]
               ? quantile_from(m, a, c, wanted, level[j])
               : level[j];
}

static double slide(const tutti_codec_mixture *m, const double *level, int j)
{
    const double slope = tutti_codec_psi_slope(m, level, j),
                 room = fmin(level[j] - level[j - 1], level[j + 1] - level[j]);

    return level[j] - copysign(fmin(0.1 * fabs(slope), room / 2), slope);
}

/* n levels, the density of values at each, and the moments of the values between them. */
typedef struct grid {
    int n;
    const double *level, (*moment)[3], *density;
} grid;

/* Computes the step of each level: Newton's, to where slopes would be 0; descent: -0.1 times the
   slope. A step is less than half of the distance to the next level. Returns false if with so
   little damping Psi is not convex here. */
static bool step_of_all(const grid *of, int pinned, bool descent, double damping, double *step)
{
    const int n = of->n;
    const double *level = of->level, *density = of->density, (*moment)[3] = of->moment;
    double ratio[LEVELS_MOST]; /* of the elimination: step_j = step[j] + ratio[j] step_(j+1) */

    step[0] = ratio[0] = step[n - 1] = 0;
    for (int j = 1; j < n - 1; j++) {
        const double left = moment[j - 1][0], right = moment[j][0];
        const double slope =
            moment[j - 1][1] - level[j - 1] * left + moment[j][1] - level[j + 1] * right;
        const double diagonal =
                         (level[j + 1] - level[j - 1]) * density[j] + damping * (left + right),
                     pivot = diagonal - left * ratio[j - 1];
        step[j] = ratio[j] = 0;
        if (j == pinned || left + right < DBL_MIN) /* without mass any value is as good */
            continue;
        if (descent) {
            step[j] = -0.1 * slope;
            continue;
        }
        if (!(pivot > 1e-9 * (left + right)))
            return false;
        step[j] = (left * step[j - 1] - slope) / pivot;
        ratio[j] = right / pivot;
    }
    for (int j = n - 2; j > 0; j--) {
        const double room = 0.45 * fmin(level[j] - level[j - 1], level[j + 1] - level[j]);
        step[j] += ratio[j] * step[j + 1];
        step[j] = fmax(-room, fmin(step[j], room));
    }
    return true;
}

static double descend_at_once(const tutti_codec_mixture *m, int n, double *level, int pinned,
                              bool descent)
{
    double moment[LEVELS_MOST][3], density[LEVELS_MOST], step[LEVELS_MOST], to[LEVELS_MOST], least,
        damping = 0;

    moments_between(m, n, level, moment, density);
    least = psi_from(n, level, moment);
    for (int sweep = 0; sweep < (m->sweeps > 0 ? m->sweeps : SWEEPS); sweep++) {
        double moved = 0, psi;
        if (!step_of_all(&(grid){ n, level, (const double(*)[3])moment, density }, pinned, descent,
                         damping, step)) {
            damping = fmax(4 * damping, 1.0 / 64);
            continue;
        }
        for (int j = 0; j < n; j++) {
            to[j] = level[j] + step[j];
            moved = fmax(moved, fabs(step[j]) / fmax(fabs(level[j]), 1e-9));
        }
        psi = tutti_codec_psi(m, n, to);
        if (psi > least * (1 + 1e-12)) { /* more is rounding's, at the end */
            if (descent)
                break;
            damping = fmax(4 * damping, 1.0 / 64);
            continue;
        }
        memcpy(level, to, (size_t)n * sizeof *level);
        least = psi;
        damping = damping > 1.0 / 64 ? damping / 8 : 0;
        if (moved < STILL)
            break;
        moments_between(m, n, level, moment, density);
    }
    return least;
}

double tutti_codec_psi_descend(const tutti_codec_mixture *m, int n, double *level, int pinned,
                               bool descent)
{
    double best[LEVELS_MOST], least = tutti_codec_psi(m, n, level);

    assert(n <= LEVELS_MOST);
    if (n > TURNS_MOST)
        return descend_at_once(m, n, level, pinned, descent);
    memcpy(best, level, (size_t)n * sizeof *best);
    for (int sweep = 0; sweep < (m->sweeps > 0 ? m->sweeps : SWEEPS); sweep++) {
        double moved = 0, psi;
        for (int j = 1; j < n - 1; j++) {
            const double to = j == pinned ? level[j]
                              : descent   ? slide(m, level, j)
                                          : best_between(m, level, j);
            moved = fmax(moved, fabs(to - level[j]) / fmax(fabs(level[j]), 1e-9));
            level[j] = to;
        }
        psi = tutti_codec_psi(m, n, level);
        if (psi < least) { /* a step along the slopes of all levels may be too far */
            least = psi;
            memcpy(best, level, (size_t)n * sizeof *best);
        }
        if (moved < STILL)
            break;
    }
    memcpy(level, best, (size_t)n * sizeof *best);
    return least;
}

double tutti_codec_power_least(int n)
{
    const int steps = n / 2 - 1;

    return fmax(0.01, exp2(-20.0 / steps));
}

void tutti_codec_powers(int n, double p, double *level)
{
    double it = 1;

    for (int j = 0; j < n / 2; j++, it *= p)
        level[j] = -(level[n - 1 - j] = it);
}

static bool ascend(int n, const double *level)
{
    for (int j = 0; j + 1 < n; j++)
        if (!(level[j] < level[j + 1]))
            return false;
    return true;
}

/* Moves n ascending levels, between the same ends, so that they are as dense as the cube root of
   the distribution. Such levels minimise Psi as their number grows: Psi is about the sum of mass x
   width^2 / 6, and least if all terms are equal. Each round assumes the distribution to be uniform
   between two levels and redistributes the sum of cbrt(mass x width^2) evenly (de Boor). It makes
   half of that step, since full steps oscillate where tails begin. */
static void spread_evenly(const tutti_codec_mixture *m, int n, double *level)
{
    enum { ROUNDS = 40 };
    double moment[LEVELS_MOST][3], sum[LEVELS_MOST], to[LEVELS_MOST];

    for (int round = 0; round < ROUNDS; round++) {
        moments_between(m, n, level, moment, NULL);
        sum[0] = 0;
        for (int j = 0; j + 1 < n; j++)
            sum[j + 1] = sum[j] + cbrt(fmax(moment[j][0], 0) * (level[j + 1] - level[j]) *
                                       (level[j + 1] - level[j]));
        if (!(sum[n - 1] > 0))
            return;
        for (int i = 1, j = 0; i < n - 1; i++) {
            const double wanted = sum[n - 1] * i / (n - 1);
            while (j + 2 < n && sum[j + 1] < wanted)
                j++;
            to[i] =
                level[j] + (level[j + 1] - level[j]) * (wanted - sum[j]) / (sum[j + 1] - sum[j]);
        }
        for (int i = 1; i < n - 1; i++)
            level[i] = 0.5 * (level[i] + to[i]);
    }
}

/* Initial levels for the descent; false: not in order, as quantiles of what is nearly one number
   may be, or with a pinned level between them. */
static bool start_of(const tutti_codec_mixture *m, int start, int n, const double *given,
                     int pinned, double *level)
{
    for (int j = 0; j < n; j++)
        level[j] = start == 0 ? given[j] : 2.0 * j / (n - 1) - 1;
    if (start == 2)
        tutti_codec_powers(n, fmax(0.5, tutti_codec_power_least(n)), level);
    for (int j = 1; j < n - 1 && start == 3; j++)
        level[j] = tutti_codec_mixture_quantile(m, -1, 1, (double)j / (n - 1));
    if (pinned >= 0)
        level[pinned] = 0;
    if (start == 4 && pinned > 0) {
        spread_evenly(m, pinned + 1, level);
        spread_evenly(m, n - pinned, level + pinned);
    } else if (start == 4)
        spread_evenly(m, n, level);
    return ascend(n, level);
}

double tutti_codec_psi_minimise(const tutti_codec_mixture *m, int n, double *level, int pinned,
                                bool descent)
{
    /* more levels start so near the minimum that only the best start is used */
    const bool each = n <= STARTS_MOST;
    double best[LEVELS_MOST], it[LEVELS_MOST], least = INFINITY;

    assert(n >= 4 && n <= LEVELS_MOST);
    for (int start = 0; start < (n <= TURNS_MOST ? 4 : 5); start++) {
        double psi;
        if (!start_of(m, start, n, level, pinned, it))
            continue;
        psi = each ? tutti_codec_psi_descend(m, n, it, pinned, descent) : tutti_codec_psi(m, n, it);
        if (psi < least) {
            least = psi;
            memcpy(best, it, (size_t)n * sizeof *best);
        }
    }
    memcpy(level, best, (size_t)n * sizeof *best);
    return each ? least : tutti_codec_psi_descend(m, n, level, pinned, descent);
}

static double psi_of(const tutti_codec_mixture *m, int n, double p)
{
    double level[LEVELS_MOST] = { 0 }; /* gcc 12 does not see that n > 0 */

    tutti_codec_powers(n, p, level);
    return tutti_codec_psi(m, n, level);
}

double tutti_codec_psi_multiplier(const tutti_codec_mixture *m, int n, double *psi)
{
    enum { SCAN = 99, NARROW = 50 };
    const double from = tutti_codec_power_least(n), by = (0.99 - from) / (SCAN - 1),
                 golden = 0.6180339887498949;
    double least = INFINITY, at = from, low, high, left, right, at_left, at_right;

    for (int k = 0; k < SCAN; k++) {
        const double it = psi_of(m, n, from + by * k);
        if (it < least)
            least = it, at = from + by * k;
    }
    low = fmax(from, at - by);
    high = fmin(0.99, at + by);
    left = high - golden * (high - low), right = low + golden * (high - low);
    at_left = psi_of(m, n, left), at_right = psi_of(m, n, right);
    for (int k = 0; k < NARROW; k++) {
        if (at_left < at_right) {
            high = right, right = left, at_right = at_left;
            left = high - golden * (high - low), at_left = psi_of(m, n, left);
        } else {
            low = left, left = right, at_left = at_right;
            right = low + golden * (high - low), at_right = psi_of(m, n, right);
        }
    }
    if (at_left < least)
        least = at_left, at = left;
    *psi = least;
    return at;
}
