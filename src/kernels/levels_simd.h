/* levels_simd.h: template of the kernels of levels.c, which explains the rounding. levels_LEVEL.c
   includes it after simd_random_LEVEL.h. */
#include "philox_simd.h"
#include "simd_loop.h"
#include <math.h>

static void LEVEL(round_uniform)(size_t n, const float *x, float scale, int bits, int steps,
                                 const uint16_t *draws, uint8_t *codes)
{
    const float power = tutti_kernels_power(scale);
    const vec first = vec_all(power), per = vec_all((float)steps * 65536.0f / (scale * power));
    const ivec magnitude = ivec_all(0x7fffffff), half = ivec_all(32768);

    EACH_VECTOR(n, {
        const ivec u = vec_bits(vec_get(x + i, k));
        const vec a = vec_mul(vec_mul(bits_vec(ivec_and(u, magnitude)), first), per);
        const ivec level = ivec_srl(
            ivec_add(ivec_round(a), draws == NULL ? half : ivec_get_u16(draws + i, k)), 16);
        ivec_put_u8(codes + i, k, with_sign(level, u, bits));
    });
}

static void LEVEL(round_powers)(size_t n, const float *x, float scale, int bits,
                                const uint16_t *draws, uint8_t *codes)
{
    const int s = (1 << (bits - 1)) - 2;
    const float power = tutti_kernels_power(scale);
    const vec first = vec_all(power), per = vec_all(1 / (scale * power));
    const ivec magnitude = ivec_all(0x7fffffff), least = ivec_all((127 - s) << 23),
               none = ivec_all(0), below = ivec_all(127 - s - 1), below_small = ivec_all(127 - s),
               half = ivec_all(64);

    EACH_VECTOR(n, {
        const ivec b = vec_bits(vec_get(x + i, k));
        const vec r = vec_mul(vec_mul(bits_vec(ivec_and(b, magnitude)), first), per);
        const ivec draw = ivec_add(ivec_sll(ivec_get_u16(draws + i, k), 7), half);
        const ivec u =
            vec_bits(vec_add(r, bits_vec(ivec_if_less(vec_bits(r), least, least, none))));
        const ivec index = ivec_sub(ivec_srl(ivec_add(u, draw), 23),
                                    ivec_if_less(vec_bits(r), least, below_small, below));
        ivec_put_u8(codes + i, k, with_sign(index, b, bits));
    });
}

/* A table of levels, prepared for one scale. level: the levels times the scale, followed by
   infinity; per: 65536 divided by the distance to the next level. */
typedef struct scaled { float level[256 + 1 + WIDTH], per[256]; } scaled;

INLINE void scale_levels(int count, const float *level, float scale, scaled *s)
{
    const size_t n = (size_t)count;
    const vec by = vec_all(scale), whole = vec_all(65536);

    EACH_VECTOR(n, vec_put(s->level + i, k, vec_mul(vec_get(level + i, k), by)));
    /* a table in a register is read beyond its end */
    vec_put(s->level + n, WIDTH, vec_all(INFINITY));
    for (size_t i = 0; i < n; i += WIDTH)
        vec_put(s->per + i, WIDTH,
                vec_div(whole,
                        vec_sub(vec_get(s->level + i + 1, WIDTH), vec_get(s->level + i, WIDTH))));
}

/* Returns the entries at[j] of a table: in one register, in two, or in memory. */
enum { IN_ONE, IN_TWO, IN_MEMORY };
INLINE vec entry(int where, const float *table, ivec at)
{
    return where == IN_ONE ? vec_permute(vec_get(table, WIDTH), at)
           : where == IN_TWO
               ? vec_permute2(vec_get(table, WIDTH), vec_get(table + WIDTH, WIDTH), at)
               : vec_gather(table, at);
}

/* Number of vectors that are processed together: the latency of a halving is longer than its
   instructions take. */
enum { SIDE = WIDTH == 16 ? 8 : 2 };
#define EACH_SIDE _Pragma("GCC unroll 8") for (size_t v = 0; v < sides; v++)

/* Rounds `sides` vectors of `count` elements, by binary search for the level below each element.
   A halving compares with level[l + step], which is entry l of the table level + step. The first
   compares with one level, the second with one of two: a choice is faster than a look-up. bits,
   sides and, except in the last vector, count are constants, so everything is unrolled. */
INLINE void round_some(const int bits, const size_t sides, const size_t count, const float *x,
                       float power, const scaled *s, const uint16_t *draws, uint8_t *codes)
{
    const int where = 1 << bits <= WIDTH ? IN_ONE : 1 << bits == 2 * WIDTH ? IN_TWO : IN_MEMORY;
    const int quarter = 1 << (bits - 2);
    const vec first = vec_all(power), low = vec_all(s->level[quarter]),
              middle = vec_all(s->level[2 * quarter]), high = vec_all(s->level[3 * quarter]);
    vec r[SIDE];
    ivec l[SIDE];

    EACH_SIDE {
        r[v] = vec_mul(vec_get(x + v * WIDTH, count), first);
        l[v] = ivec_add_if_at_least(ivec_all(0), 2 * quarter, r[v], middle);
        l[v] = ivec_add_if_at_least(l[v], quarter, r[v], vec_if_at_least(r[v], middle, high, low));
    }
    _Pragma("GCC unroll 8") for (int step = quarter >> 1; step > 0; step /= 2)
        EACH_SIDE
            l[v] = ivec_add_if_at_least(l[v], step, r[v], entry(where, s->level + step, l[v]));
    EACH_SIDE
        r[v] = vec_mul(vec_sub(r[v], entry(where, s->level, l[v])), entry(where, s->per, l[v]));
    EACH_SIDE
    ivec_put_u8(
        codes + v * WIDTH, count,
        ivec_add(l[v],
                 ivec_srl(ivec_add(ivec_round(r[v]), ivec_get_u16(draws + v * WIDTH, count)), 16)));
}

INLINE void round_scaled_of(const int bits, size_t n, const float *x, float power, const scaled *s,
                            const uint16_t *draws, uint8_t *codes)
{
    size_t i = 0;

    for (; n - i >= SIDE * WIDTH; i += SIDE * WIDTH)
        round_some(bits, SIDE, WIDTH, x + i, power, s, draws + i, codes + i);
    for (; n - i >= WIDTH; i += WIDTH)
        round_some(bits, 1, WIDTH, x + i, power, s, draws + i, codes + i);
    if (i < n)
        round_some(bits, 1, n - i, x + i, power, s, draws + i, codes + i);
}

static void round_scaled(int bits, size_t n, const float *x, float power, const scaled *s,
                         const uint16_t *draws, uint8_t *codes)
{
    switch (bits) {
    case 2: round_scaled_of(2, n, x, power, s, draws, codes); break;
    case 3: round_scaled_of(3, n, x, power, s, draws, codes); break;
    case 4: round_scaled_of(4, n, x, power, s, draws, codes); break;
    case 5: round_scaled_of(5, n, x, power, s, draws, codes); break;
    case 6: round_scaled_of(6, n, x, power, s, draws, codes); break;
    case 7: round_scaled_of(7, n, x, power, s, draws, codes); break;
    default: round_scaled_of(8, n, x, power, s, draws, codes); break;
    }
}

static void LEVEL(round_levels)(size_t n, const float *x, float scale, const tutti_levels *t,
                                const uint16_t *draws, uint8_t *codes)
{
    const float power = tutti_kernels_power(scale);
    scaled s;

    scale_levels(1 << t->bits, t->level, scale * power, &s);
    round_scaled(t->bits, n, x, power, &s, draws, codes);
}

/* Prefetches x[from, from + count), up to x[end]. Call it for a few cache lines at a time: while
   too many are in flight, all other accesses wait. */
INLINE void prefetch_part(const float *x, size_t from, size_t count, size_t end)
{
    for (size_t i = from; i < from + count && i < end; i += 16)
        __builtin_prefetch(x + i, 0, 2);
}

/* Alternates between drawing DRAWN groups, as many as are computed together, and rounding their
   elements. So draws and codes stay in the L1 cache, and later memory is prefetched evenly. */
static void LEVEL(quantise)(const tutti_rounding *how, const uint32_t counter[4],
                            const uint32_t key[2], uint64_t first, size_t n, const float *x,
                            size_t each, const float *scale, const tutti_ahead *ahead,
                            uint8_t *codes)
{
    const int steps = tutti_kernels_steps(how);
    uint16_t drawn[DRAWN * TUTTI_DRAWS];
    size_t made = SIZE_MAX; /* the run for whose scale s was computed; SIZE_MAX: none */
    scaled s;
    philox p;

    philox_begin(&p, counter, key);
    for (size_t at = 0, count; at < n; at += count) {
        const size_t skip = (size_t)((first + at) % TUTTI_DRAWS);
        count = n - at < DRAWN * TUTTI_DRAWS - skip ? n - at : DRAWN * TUTTI_DRAWS - skip;
        prefetch_part(x, at + ahead->distance, count / 2, ahead->end);
        if (!how->nearest)
            draw_groups(&p, (first + at) / TUTTI_DRAWS,
                        (skip + count + TUTTI_DRAWS - 1) / TUTTI_DRAWS, drawn);
        prefetch_part(x, at + ahead->distance + count / 2, count - count / 2, ahead->end);
        for (size_t i = at, some; i < at + count; i += some) {
            const size_t run = i / each;
            const float power = tutti_kernels_power(scale[run]);
            const uint16_t *draws = how->nearest ? NULL : drawn + skip + (i - at);
            some = at + count - i < (run + 1) * each - i ? at + count - i : (run + 1) * each - i;
            if (!(scale[run] > 0))
                memset(codes + i, 0, some);
            else if (how->grid == TUTTI_GRID_EVEN)
                LEVEL(round_uniform)(some, x + i, scale[run], how->bits, steps, draws, codes + i);
            else if (how->grid == TUTTI_GRID_POWERS)
                LEVEL(round_powers)(some, x + i, scale[run], how->bits, draws, codes + i);
            else {
                if (made != run)
                    scale_levels(1 << how->bits, how->levels->level, scale[run] * power, &s);
                made = run;
                round_scaled(how->bits, some, x + i, power, &s, draws, codes + i);
            }
        }
    }
}

static void LEVEL(round_range)(size_t n, const float *x, float least, float range, uint8_t *codes)
{
    const vec from = vec_all(least), by = vec_all(range), steps = vec_all(255.0f);

    EACH_VECTOR(
        n, ivec_put_u8(codes + i, k,
                       ivec_round(vec_min(
                           vec_mul(vec_div(vec_sub(vec_get(x + i, k), from), by), steps), steps))));
}

static void LEVEL(levels_add)(size_t n, const uint8_t *codes, int values, const float *value,
                              float *y)
{
    if (values <= WIDTH) { /* the table fits into a register */
        float padded[WIDTH] = { 0 };
        vec table;
        memcpy(padded, value, (size_t)values * sizeof *padded);
        table = vec_get(padded, WIDTH);
        EACH_VECTOR(
            n, vec_put(y + i, k,
                       vec_add(vec_get(y + i, k), vec_permute(table, ivec_get_u8(codes + i, k)))));
    } else if (values == 2 * WIDTH) {
        const vec low = vec_get(value, WIDTH), high = vec_get(value + WIDTH, WIDTH);
        EACH_VECTOR(n, vec_put(y + i, k,
                               vec_add(vec_get(y + i, k),
                                       vec_permute2(low, high, ivec_get_u8(codes + i, k)))));
    } else
        EACH_VECTOR(
            n, vec_put(y + i, k,
                       vec_add(vec_get(y + i, k), vec_gather(value, ivec_get_u8(codes + i, k)))));
}

static void LEVEL(uniform_add)(size_t n, const uint8_t *codes, int bits, float scale, float a,
                               float *y)
{
    const int half = 1 << (bits - 1);
    const ivec index = ivec_all(half - 1);
    const vec step = vec_all(1.0f / (float)(half - 1)), by = vec_all(scale), times = vec_all(a);

    EACH_VECTOR(n, {
        const ivec c = ivec_get_u8(codes + i, k);
        const vec v = vec_mul(times, vec_mul(by, vec_mul(ivec_float(ivec_and(c, index)), step)));
        const ivec sign = ivec_sll(ivec_srl(c, bits - 1), 31);
        vec_put(y + i, k, vec_add(vec_get(y + i, k), bits_vec(ivec_xor(vec_bits(v), sign))));
    });
}

static void LEVEL(range_add)(size_t n, const uint8_t *codes, float least, float greatest, float a,
                             float *y)
{
    const vec from = vec_all(least), to = vec_all(greatest),
              step = vec_all((greatest - least) / 255.0f), times = vec_all(a);
    const ivec last = ivec_all(255);

    EACH_VECTOR(n, {
        const ivec c = ivec_get_u8(codes + i, k);
        const vec level = vec_add(from, vec_mul(step, ivec_float(c)));
        vec_put(y + i, k,
                vec_add(vec_get(y + i, k),
                        vec_mul(times,
                                bits_vec(ivec_if_less(c, last, vec_bits(level), vec_bits(to))))));
    });
}

void LEVEL(tutti_kernels_levels)(tutti_kernels *t)
{
    t->round_uniform = LEVEL(round_uniform);
    t->round_powers = LEVEL(round_powers);
    t->round_levels = LEVEL(round_levels);
    t->quantise = LEVEL(quantise);
    t->round_range = LEVEL(round_range);
    t->levels_add = LEVEL(levels_add);
    t->uniform_add = LEVEL(uniform_add);
    t->range_add = LEVEL(range_add);
}
