/* mixture.c: closed forms of the sheet. With Z the mass inside, f and F a part's density and distribution, from u to w:
     integral x dF = mean (F(w) - F(u)) - deviation^2 (f(w) - f(u))
     integral x^2 dF = (mean^2 + deviation^2) (F(w) - F(u)) - deviation^2 ((w + mean) f(w) - (u + mean) f(u))
   Masses are differences of erfc on the side where it is small, so that tails keep their digits.

   Coordinate descent (ALQ): between its neighbours A and C the best place of a level is where F = F(C) - 1 / (C - A) integral from A to C of (x - A) dF. It is
   unique and strictly inside, and Psi never rises. The sheet inverts F by forty bisections; here Newton's steps, kept inside of the bracket, need six.

   AMQ's sheet descends along the slope of Psi(p) at rate 0.7 for fifty steps from eight starts. The slope is of the size of the squared deviation, 1e-4 for
   a bucket of 8192, and fifty such steps move p by a hundredth: the result would be the best start. Here Psi is scanned over 99 values of p, and the
   golden section narrows the best of them down: the same objective, and its minimum. */
#include "mixture.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum { LEVELS_MOST = 256, SWEEPS = 200, NEWTON = 60 };
#define STILL 1e-6 /* of a level: less movement ends the sweeps */

static double phi(double t)
{
    return 0.3989422804014327 * exp(-0.5 * t * t);
}

/* Of the standard normal distribution between a and b. */
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
        const double a = (u - p->mean) / p->deviation, b = (w - p->mean) / p->deviation, by = p->weight / p->inside;
        const double all = mass(a, b), fa = p->deviation * phi(a), fb = p->deviation * phi(b);
        moment[0] += by * all;
        moment[1] += by * (p->mean * all - (fb - fa));
        moment[2] += by * ((p->mean * p->mean + p->deviation * p->deviation) * all - ((w + p->mean) * fb - (u + p->mean) * fa));
    }
}

static double mass_between(const tutti_codec_mixture *m, double u, double w)
{
    double sum = 0;

    for (int k = 0; k < m->n; k++)
        sum += m->of[k].weight / m->of[k].inside * mass((u - m->of[k].mean) / m->of[k].deviation, (w - m->of[k].mean) / m->of[k].deviation);
    return sum;
}

double tutti_codec_mixture_density(const tutti_codec_mixture *m, double x)
{
    double sum = 0;

    for (int k = 0; k < m->n; k++)
        sum += m->of[k].weight / m->of[k].inside * phi((x - m->of[k].mean) / m->of[k].deviation) / m->of[k].deviation;
    return sum;
}

/* Newton's from x, halving the bracket where that leaves it. */
static double quantile_from(const tutti_codec_mixture *m, double u, double w, double wanted, double x)
{
    double low = u, high = w;

    for (int k = 0; k < NEWTON && high - low > 1e-13 * (w - u); k++) {
        const double over = mass_between(m, u, x) - wanted, slope = tutti_codec_mixture_density(m, x);
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
/* Of one interval: (w - x)(x - u) = -x^2 + (u + w) x - u w. */
static double interval(const tutti_codec_mixture *m, double u, double w)
{
    double moment[3];

    tutti_codec_mixture_moments(m, u, w, moment);
    return fmax((u + w) * moment[1] - moment[2] - u * w * moment[0], 0);
}

double tutti_codec_psi(const tutti_codec_mixture *m, int n, const double *level)
{
    double sum = 0;

    for (int j = 0; j + 1 < n; j++)
        sum += interval(m, level[j], level[j + 1]);
    return sum;
}

double tutti_codec_psi_slope(const tutti_codec_mixture *m, const double *level, int j)
{
    double left[3], right[3];

    tutti_codec_mixture_moments(m, level[j - 1], level[j], left);
    tutti_codec_mixture_moments(m, level[j], level[j + 1], right);
    return left[1] - level[j - 1] * left[0] + right[1] - level[j + 1] * right[0];
}

/* Where level j is best between its neighbours. Where there is no mass any place is; it stays. */
static double best_between(const tutti_codec_mixture *m, const double *level, int j)
{
    const double a = level[j - 1], c = level[j + 1];
    double moment[3], wanted;

    tutti_codec_mixture_moments(m, a, c, moment);
    wanted = moment[0] - (moment[1] - a * moment[0]) / (c - a);
    return moment[0] > DBL_MIN && wanted > 0 && wanted < moment[0] ? quantile_from(m, a, c, wanted, level[j]) : level[j];
}

static double slide(const tutti_codec_mixture *m, const double *level, int j)
{
    const double slope = tutti_codec_psi_slope(m, level, j), room = fmin(level[j] - level[j - 1], level[j + 1] - level[j]);

    return level[j] - copysign(fmin(0.1 * fabs(slope), room / 2), slope);
}

double tutti_codec_psi_descend(const tutti_codec_mixture *m, int n, double *level, int pinned, bool descent)
{
    double best[LEVELS_MOST], least = tutti_codec_psi(m, n, level);

    assert(n <= LEVELS_MOST);
    memcpy(best, level, (size_t)n * sizeof *best);
    for (int sweep = 0; sweep < (m->sweeps > 0 ? m->sweeps : SWEEPS); sweep++) {
        double moved = 0, psi;
        for (int j = 1; j < n - 1; j++) {
            const double to = j == pinned ? level[j] : descent ? slide(m, level, j) : best_between(m, level, j);
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

double tutti_codec_psi_minimise(const tutti_codec_mixture *m, int n, double *level, int pinned, bool descent)
{
    double best[LEVELS_MOST], it[LEVELS_MOST], least = INFINITY;

    assert(n >= 4 && n <= LEVELS_MOST);
    for (int start = 0; start < 4; start++) {
        double psi;
        if (start == 0)
            memcpy(it, level, (size_t)n * sizeof *it);
        else if (start == 1)
            for (int j = 0; j < n; j++)
                it[j] = 2.0 * j / (n - 1) - 1;
        else if (start == 2)
            tutti_codec_powers(n, fmax(0.5, tutti_codec_power_least(n)), it);
        else {
            it[0] = -1;
            it[n - 1] = 1;
            for (int j = 1; j < n - 1; j++)
                it[j] = tutti_codec_mixture_quantile(m, -1, 1, (double)j / (n - 1));
        }
        if (pinned >= 0)
            it[pinned] = 0;
        if (!ascend(n, it)) /* quantiles of what is nearly one number, or a pinned level out of their order */
            continue;
        psi = tutti_codec_psi_descend(m, n, it, pinned, descent);
        if (psi < least) {
            least = psi;
            memcpy(best, it, (size_t)n * sizeof *best);
        }
    }
    memcpy(level, best, (size_t)n * sizeof *best);
    return least;
}

static double psi_of(const tutti_codec_mixture *m, int n, double p)
{
    double level[LEVELS_MOST];

    tutti_codec_powers(n, p, level);
    return tutti_codec_psi(m, n, level);
}

double tutti_codec_psi_multiplier(const tutti_codec_mixture *m, int n, double *psi)
{
    enum { SCAN = 99, NARROW = 50 };
    const double from = tutti_codec_power_least(n), by = (0.99 - from) / (SCAN - 1), golden = 0.6180339887498949;
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
