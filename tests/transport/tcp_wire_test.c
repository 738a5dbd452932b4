/* Goal: the hash of payloads is XXH3 with a seed, whichever instructions this processor has: two
   hosts may differ. Method: against the header's plain C, compiled here, for all short lengths,
   the edges of XXH3's own cases and of a chunk, at every misalignment. Frames and handshakes are
   fuzzed (tests/fuzz). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#define XXH_VECTOR 0
#include <xxhash.h>
#include <cmocka.h>
#include "transport/tcp/wire.h"

static void payload_hashes_match_xxh3_with_seed(void **state)
{
    static const size_t longer[] = {
        240, 241, 256, 1023, 1024, 1025, 4096, 65535, 65536, 262143, 262144, TCP_CHUNK_MOST
    };
    static const uint64_t seeds[] = { 0, 1, UINT64_C(0x9E3779B97F4A7C15), UINT64_MAX };
    unsigned char *data = malloc(TCP_CHUNK_MOST + 64);

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < TCP_CHUNK_MOST + 64; i++)
        data[i] = (unsigned char)(i * i >> 7 ^ i);
    for (size_t s = 0; s < sizeof seeds / sizeof *seeds; s++) {
        for (size_t bytes = 0; bytes <= 600; bytes++)
            assert_int_equal(tutti_tcp_hash_data(seeds[s], data + bytes % 64, bytes),
                             XXH3_64bits_withSeed(data + bytes % 64, bytes, seeds[s]));
        for (size_t k = 0; k < sizeof longer / sizeof *longer; k++)
            for (size_t at = 0; at < 64; at += 1 + longer[k] / 4096)
                assert_int_equal(tutti_tcp_hash_data(seeds[s], data + at, longer[k]),
                                 XXH3_64bits_withSeed(data + at, longer[k], seeds[s]));
    }
    free(data);
}

static void a_flipped_bit_or_another_seed_changes_the_hash(void **state)
{
    unsigned char data[4096] = { 0 };
    const uint64_t right = tutti_tcp_hash_data(7, data, sizeof data);

    (void)state;
    assert_int_not_equal(tutti_tcp_hash_data(8, data, sizeof data), right);
    for (size_t bit = 0; bit < 8 * sizeof data; bit += 97) {
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_not_equal(tutti_tcp_hash_data(7, data, sizeof data), right);
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payload_hashes_match_xxh3_with_seed),
        cmocka_unit_test(a_flipped_bit_or_another_seed_changes_the_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
