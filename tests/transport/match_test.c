/* Goal: what a peer may leave lying at a receiver is bounded, whatever it announces. Method: the
   matcher alone, with a carrier that sends nothing. */
#include "transport/match.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void flush_nothing(void *self, int to) { (void)self, (void)to; }
static void release_nothing(void *self, match_op *op) { (void)self, (void)op; }
static void consumed_nothing(void *self, int from) { (void)self, (void)from; }
static const match_carrier carrier = { flush_nothing, release_nothing, consumed_nothing };

static void a_peer_that_announces_for_ever_is_refused(void **state)
{
    static const unsigned char byte[1] = { 7 };
    tutti_match m;
    tutti_error err = { 0 };
    tutti_request r = { 0 };
    unsigned char room[1];
    (void)state;

    for (int large = 0; large <= 1; large++) {
        const tutti_header note = { .bytes = large ? 1000000 : 1 };
        assert_int_equal(tutti_match_init(&m, &carrier, (match_member){ NULL, 0, 3 }, 4096, &err),
                         TUTTI_OK);
        for (uint64_t k = 0; k < MATCH_WAITING_MOST; k++)
            assert_int_equal(tutti_match_announced(&m, &m.peers[2], k, k, &note, !large, byte, &err), TUTTI_OK);
        assert_int_equal(tutti_match_announced(&m, &m.peers[2], 1, 1, &note, !large, byte, &err), TUTTI_ERR_CORRUPT);
        assert_non_null(strstr(err.text, "worker 2 has sent 262144 messages that no receive has taken"));
        /* Another peer may, and after one is taken so may this one. */
        assert_int_equal(tutti_match_announced(&m, &m.peers[1], 1, 1, &note, !large, byte, &err), TUTTI_OK);
        if (!large) {
            memset(&r, 0, sizeof r);
            assert_int_equal(tutti_match_recv(&m, &r, 2, 5, tutti_host(room, 1, TUTTI_U8), &err), TUTTI_OK);
            assert_true(tutti_request_done(&r) && room[0] == 7);
        } else
            tutti_match_control_arrived(&m, &m.peers[2], MATCH_WITHDRAW, 5, 0);
        assert_int_equal(tutti_match_announced(&m, &m.peers[2], 5, 5, &note, !large, byte, &err), TUTTI_OK);
        assert_int_equal(tutti_match_announced(&m, &m.peers[2], 5, 5, &note, !large, byte, &err), TUTTI_ERR_CORRUPT);
        tutti_match_close(&m);
        tutti_match_fini(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_peer_that_announces_for_ever_is_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
