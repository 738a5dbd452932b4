/* nuqsgd.c: codec nuqsgd: as qsgd with the levels 0, p^s, ..., p, 1, fine where normalised
   gradients crowd. Ramezani-Kebrya, Faghri, Markov, Aksenov, Alistarh and Roy, JMLR 22(114), 2021,
   with p = 1/2. s + 2 levels and a sign in `bits`: s = 2^(bits-1) - 2. Two bits would be ternary
   qsgd.

   zero_level=off is what the shared research code of ALQ and NUQSGD has: +-{p^(s+1), ..., p, 1}, so
   that what is near 0 becomes one of the two least at random: unbiased, with more variance. Powers
   of a half with a 0 are rounded by their exponents; all others are looked up in a table of 2^bits,
   in which the code that would be -0 has the level -p^(s+1).

   With tau = 2^-s sqrt(d) the variance is at most 1/8 + (2/9) tau^2 of |v|^2 up to tau = 9/4 and
   tau - 1 beyond; more than 5/4 is warned of. For another multiplier p

     1/8 becomes c = (1/p - 1)^2 p / 4, and the bound c + tau^2 / (4 (1 + c)) up to tau = 2 (1 + c)

   (the same derivation: c A + l sqrt(d B) - B, A + B = 1, of the squares above and below the least
   level l). Without a zero level, whose interval adds l^2 - r^2, it is c + tau^2, tau = p^(s+1)
   sqrt(d). */
#include "codec_internal.h"
#include "mixture.h"
#include "registry.h"
#include "rows.h"
#include "kernels/codes.h"
#include <stdio.h>

#define VARIANCE_MOST 1.25 /* of the gradient's square, beyond which it is warned of */
typedef struct nuqsgd {
    tutti_codec_quantiser q;
    double multiplier;
    bool zero_level;
    tutti_levels levels;
} nuqsgd;
static const tutti_option options[] = {
    TUTTI_ROW_NUQSGD_BITS(TUTTI_AT(tutti_codec_quantiser, bits)),
    TUTTI_CODEC_QUANTISER_ROWS(512, 1),
    TUTTI_ROW_NUQSGD_MULTIPLIER(TUTTI_AT(nuqsgd, multiplier)),
    TUTTI_ROW_NUQSGD_ZERO_LEVEL(TUTTI_AT(nuqsgd, zero_level)),
    { 0 }
};

static bool is_exponents(const nuqsgd *s)
{
    return s->multiplier == 0.5 && s->zero_level;
}

static bool nuqsgd_make(const nuqsgd *s, tutti_levels *t)
{
    const int n = 1 << s->q.bits;
    double level[256];
    float rounded[256];

    tutti_codec_powers(n, s->multiplier, level);
    if (s->zero_level)
        level[n / 2] = 0; /* in place of p^(s+1) */
    for (int j = 0; j < n; j++)
        rounded[j] = (float)level[j];
    return tutti_levels_make(t, (int)s->q.bits, rounded);
}

static tutti_status nuqsgd_check(const tutti_codec *c, tutti_error *err)
{
    const nuqsgd *s = c->self;
    tutti_levels t;

    TUTTI_TRY(tutti_codec_quantised_check(c, err));
    if (!is_exponents(s) && !nuqsgd_make(s, &t))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "multiplier is %.9g, and with %lld bits its first %d powers lie closer "
                          "than 32-bit numbers can distinguish; take fewer bits, or a multiplier "
                          "of about %.2g",
                          s->multiplier, (long long)s->q.bits, (1 << (s->q.bits - 1)) - 1,
                          tutti_codec_power_least(1 << s->q.bits));
    return TUTTI_OK;
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    nuqsgd *s = c->self;

    (void)plan;
    s->q.grid = is_exponents(s) ? TUTTI_GRID_POWERS : TUTTI_GRID_ANY;
    s->q.levels = &s->levels;
    if (!is_exponents(s))
        nuqsgd_make(s, &s->levels);
}

static double variance_most(const nuqsgd *s)
{
    /* what an interval between two levels adds at most, of r^2 */
    const double p = s->multiplier, c = (1 / p - 1) * (1 / p - 1) * p / 4;
    const double tau =
        sqrt((double)s->q.bucket) * pow(p, (1 << (s->q.bits - 1)) - (s->zero_level ? 2 : 1));

    return !s->zero_level      ? c + tau * tau
           : tau > 2 * (1 + c) ? tau - 1
                               : c + tau * tau / (4 * (1 + c));
}

/* Sums nothing; reports once if buckets are so long that the variance is high. */
static size_t nuqsgd_begin(tutti_codec *c, const tutti_codec_moment *m, int round, float **numbers)
{
    const nuqsgd *s = c->self;
    char text[200];

    (void)round, (void)numbers;
    if (m->step > 0 || m->say == NULL || variance_most(s) <= VARIANCE_MOST)
        return 0;
    snprintf(text, sizeof text,
             "nuqsgd: buckets of %lld at %lld bits have a variance of up to %.2g times the "
             "gradient's square; use smaller buckets or more bits",
             (long long)s->q.bucket, (long long)s->q.bits, variance_most(s));
    m->say(m->with, "codec", text);
    return 0;
}

const tutti_codec_ops tutti_codec_nuqsgd = {
    .name = "nuqsgd",
    .paper = "Ramezani-Kebrya et al., JMLR 22(114), 2021",
    .help = "levels at powers of two, rounded at random: unbiased",
    .options = options,
    .self_bytes = sizeof(nuqsgd),
    .traits = tutti_codec_quantised_traits,
    .check = nuqsgd_check,
    .declare = declare,
    .begin = nuqsgd_begin,
    TUTTI_CODEC_QUANTISED,
};
