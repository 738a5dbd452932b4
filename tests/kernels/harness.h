/* harness.h: what the kernel tests share: a device a level, memory between pages that may
   not be touched, awkward numbers. */
#ifndef TUTTI_TEST_KERNELS_HARNESS_H
#define TUTTI_TEST_KERNELS_HARNESS_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include <tutti/base.h>
#include "base/machine.h"
#include "kernels/device.h"

enum { HARNESS_LEVELS = TUTTI_CPU_AVX512 + 1 };
typedef struct harness_levels {
    tutti_device *device[HARNESS_LEVELS]; /* [0] is the scalar reference */
    int count;                            /* levels that this machine has */
} harness_levels;

static inline harness_levels harness_open(void)
{
    harness_levels l = { .count = (int)tutti_cpu_best() + 1 };

    for (int i = 0; i < l.count; i++) {
        tutti_error err;
        assert_int_equal(tutti_device_open_host(&l.device[i], NULL, (tutti_cpu)i, &err), TUTTI_OK);
        assert_int_equal(tutti_device_cpu(l.device[i]), i);
    }
    return l;
}

static inline void harness_close(harness_levels *l)
{
    for (int i = 0; i < l->count; i++)
        tutti_device_close(l->device[i]);
}

/* Numbers of the tests' own, so that a fault in the library's generator does not hide one here. */
static inline uint64_t harness_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline float harness_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t harness_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static const uint32_t harness_special[] = {
    0x00000000, 0x80000000, /* zeros */
    0x00000001, 0x80000001, 0x007fffff, 0x807fffff, /* denormals, least and greatest */
    0x00800000, 0x80800000, 0x7f7fffff, 0xff7fffff, /* normal numbers, least and greatest */
    0x7f800000, 0xff800000, /* infinities */
    0x7fc00000, 0xffc00000, 0x7fc12345, 0x7f800001, 0xffbfffff, /* NaNs, quiet and signalling */
    /* 1, and edges of the halves */
    0x3f800000, 0xbf800000, 0x3f7fffff, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x387fffff,
};

/* kind 0: numbers of like size; 1: one in four is special; 2: any 32 bits */
static inline float harness_number(uint64_t *state, int kind)
{
    const uint64_t r = harness_random(state);

    if (kind == 2)
        return harness_float((uint32_t)r);
    if (kind == 1 && r >> 62 == 0)
        return harness_float(harness_special[(r & 0xffffff) % TUTTI_LENGTH(harness_special)]);
    return harness_float((uint32_t)(r & 0x807fffff) | (uint32_t)(120 + (r >> 32) % 12) << 23);
}

static inline bool harness_same(float a, float b)
{
    return harness_bits(a) == harness_bits(b) || (isnan(a) && isnan(b));
}

/* ---- memory: an array within pages that end where no one may read. Offset HARNESS_FLUSH puts its
   end on that edge; any other is the distance in floats from a 64-byte line. The bytes round it are
   a pattern that must survive. ---- */
enum { HARNESS_PAGES = 4, HARNESS_FLUSH = -1, HARNESS_GUARD = 256 };
typedef struct harness_area { uint8_t *map, *start, *end; size_t bytes; } harness_area;

static inline harness_area harness_area_open(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    harness_area a = { .bytes = (HARNESS_PAGES + 2) * page };

    a.map = mmap(NULL, a.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(a.map != MAP_FAILED);
    a.start = a.map + page;
    a.end = a.start + HARNESS_PAGES * page;
    assert_int_equal(mprotect(a.map, page, PROT_NONE), 0);
    assert_int_equal(mprotect(a.end, page, PROT_NONE), 0);
    return a;
}

static inline void harness_area_close(harness_area *a)
{
    munmap(a->map, a->bytes);
}

static inline void *harness_place(harness_area *a, size_t bytes, int offset, size_t element)
{
    uint8_t *p = offset == HARNESS_FLUSH ? a->end - bytes
                                         : a->start + HARNESS_GUARD + (size_t)offset * element;

    assert_true(p - HARNESS_GUARD >= a->start && p + bytes <= a->end);
    memset(p - HARNESS_GUARD, 0xa5, HARNESS_GUARD);
    for (uint8_t *q = p + bytes; q < p + bytes + HARNESS_GUARD && q < a->end; q++)
        *q = 0xa5;
    return p;
}

static inline bool harness_guards_stand(const harness_area *a, const void *placed, size_t bytes)
{
    const uint8_t *p = placed;

    for (const uint8_t *q = p - HARNESS_GUARD; q < p; q++)
        if (*q != 0xa5)
            return false;
    for (const uint8_t *q = p + bytes; q < p + bytes + HARNESS_GUARD && q < a->end; q++)
        if (*q != 0xa5)
            return false;
    return true;
}

/* 0 .. 130, then some longer odd ones; SIZE_MAX ends. All fit an area. */
static inline size_t harness_length(size_t i)
{
    static const size_t longer[] = { 255, 256, 257, 511, 777, 1023, 3001 };

    return i <= 130 ? i : i - 131 < TUTTI_LENGTH(longer) ? longer[i - 131] : SIZE_MAX;
}
#endif
