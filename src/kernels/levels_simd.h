/* levels_simd.h: levels.c in `vec` and `ivec`; included by one file a level after its simd_codes_LEVEL.h. */
#include "simd_loop.h"

static void LEVEL(round_uniform)(size_t n, const float *x, float scale, int bits, const uint16_t *draws, uint8_t *codes)
{
    const vec steps = vec_all((float)((1 << (bits - 1)) - 1) * 65536.0f), by = vec_all(scale);
    const ivec magnitude = ivec_all(0x7fffffff), half = ivec_all(32768);

    EACH_VECTOR(n, {
        const ivec u = vec_bits(vec_get(x + i, k));
        const vec a = vec_mul(vec_div(bits_vec(ivec_and(u, magnitude)), by), steps);
        const ivec level = ivec_srl(ivec_add(ivec_round(a), draws == NULL ? half : ivec_get_u16(draws + i, k)), 16);
        ivec_put_u8(codes + i, k, with_sign(level, u, bits));
    });
}

static void LEVEL(round_powers)(size_t n, const float *x, float scale, int bits, const uint16_t *draws, uint8_t *codes)
{
    const int s = (1 << (bits - 1)) - 2;
    const ivec magnitude = ivec_all(0x7fffffff), least = ivec_all((127 - s) << 23), below = ivec_all(127 - s - 1), nearest = ivec_all(64);
    const vec by = vec_all(scale), up = vec_all(tutti_kernels_float((uint32_t)(127 + s) << 23)), fine = vec_all(65536.0f);

    EACH_VECTOR(n, {
        const ivec b = vec_bits(vec_get(x + i, k));
        const ivec draw = ivec_get_u16(draws + i, k);
        const vec r = vec_div(bits_vec(ivec_and(b, magnitude)), by);
        const ivec u = vec_bits(r);
        /* Where r is not small the product overflows the integer and is not used. */
        const ivec small = ivec_srl(ivec_add(ivec_round(vec_mul(vec_mul(r, up), fine)), draw), 16);
        const ivec power = ivec_sub(ivec_srl(ivec_add(ivec_srl(ivec_add(u, nearest), 7), draw), 16), below);
        ivec_put_u8(codes + i, k, with_sign(ivec_if_less(u, least, small, power), b, bits));
    });
}

/* Entry at[j] of a table of 256: in one register, in two, or in memory. */
enum { IN_ONE, IN_TWO, IN_MEMORY };
INLINE vec entry(int where, const float *table, ivec at)
{
    return where == IN_ONE ? vec_permute(vec_get(table, WIDTH), at) : where == IN_TWO ? vec_permute2(vec_get(table, WIDTH), vec_get(table + WIDTH, WIDTH), at) : vec_gather(table, at);
}

INLINE void round_levels_from(int where, size_t n, const float *x, float scale, const tutti_levels *t, const uint16_t *draws, uint8_t *codes)
{
    const vec by = vec_all(scale);

    EACH_VECTOR(n, {
        const vec r = vec_div(vec_get(x + i, k), by);
        ivec l = ivec_all(0);
        for (int step = 1 << (t->bits - 1); step > 0; step /= 2)
            l = ivec_add_if_at_least(l, step, r, entry(where, t->bound, ivec_add(l, ivec_all(step))));
        const vec up = vec_mul(vec_sub(r, entry(where, t->level, l)), entry(where, t->per, l));
        ivec_put_u8(codes + i, k, ivec_add(l, ivec_srl(ivec_add(ivec_round(up), ivec_get_u16(draws + i, k)), 16)));
    });
}

static void LEVEL(round_levels)(size_t n, const float *x, float scale, const tutti_levels *t, const uint16_t *draws, uint8_t *codes)
{
    if (1 << t->bits <= WIDTH)
        round_levels_from(IN_ONE, n, x, scale, t, draws, codes);
    else if (1 << t->bits == 2 * WIDTH)
        round_levels_from(IN_TWO, n, x, scale, t, draws, codes);
    else
        round_levels_from(IN_MEMORY, n, x, scale, t, draws, codes);
}

static void LEVEL(round_range)(size_t n, const float *x, float least, float range, uint8_t *codes)
{
    const vec from = vec_all(least), by = vec_all(range), steps = vec_all(255.0f);

    EACH_VECTOR(n, ivec_put_u8(codes + i, k, ivec_round(vec_min(vec_mul(vec_div(vec_sub(vec_get(x + i, k), from), by), steps), steps))));
}

static void LEVEL(levels_add)(size_t n, const uint8_t *codes, int values, const float *value, float *y)
{
    if (values <= WIDTH) { /* the table in a register */
        float padded[WIDTH] = { 0 };
        vec table;
        memcpy(padded, value, (size_t)values * sizeof *padded);
        table = vec_get(padded, WIDTH);
        EACH_VECTOR(n, vec_put(y + i, k, vec_add(vec_get(y + i, k), vec_permute(table, ivec_get_u8(codes + i, k)))));
    } else if (values == 2 * WIDTH) {
        const vec low = vec_get(value, WIDTH), high = vec_get(value + WIDTH, WIDTH);
        EACH_VECTOR(n, vec_put(y + i, k, vec_add(vec_get(y + i, k), vec_permute2(low, high, ivec_get_u8(codes + i, k)))));
    } else
        EACH_VECTOR(n, vec_put(y + i, k, vec_add(vec_get(y + i, k), vec_gather(value, ivec_get_u8(codes + i, k)))));
}

static void LEVEL(uniform_add)(size_t n, const uint8_t *codes, int bits, float scale, float a, float *y)
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

void LEVEL(tutti_kernels_levels)(tutti_kernels *t)
{
    t->round_uniform = LEVEL(round_uniform);
    t->round_powers = LEVEL(round_powers);
    t->round_levels = LEVEL(round_levels);
    t->round_range = LEVEL(round_range);
    t->levels_add = LEVEL(levels_add);
    t->uniform_add = LEVEL(uniform_add);
}
