/* Any bytes as a message about members (src/membership/wire.c): they are refused, or an epoch that
   is well formed; written again they are the same bytes. A founder that receives them is still in
   an epoch, or was removed by one that is later than its own. */
#include "membership/membership_internal.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void drop(void *user, const char *address, const uint8_t *bytes, size_t n)
{
    (void)user;
    (void)bytes;
    require(address[0] != '\0' && n >= HEADER_BYTES && n <= MESSAGE_BYTES);
}

static void receive(const uint8_t *data, size_t size)
{
    static tutti_epoch founders = { .number = 1, .next_rank = 2, .n = 2,
                                    .members = { { .id = 1, .rank = 0, .holds = true, .address = "a" },
                                                 { .id = 2, .rank = 1, .holds = true, .address = "b" } } };
    const tutti_membership_options options = { .run = "fuzz", .id = 1, .address = "a", .heartbeat_ns = 1, .dead_ns = 3,
                                               .retry_ns = 1, .send = drop };
    tutti_membership *m = NULL;

    require(tutti_membership_found(&m, &options, &founders, 0, NULL) == TUTTI_OK);
    for (int64_t now_ns = 0; now_ns < 8; now_ns++) {
        require(tutti_membership_receive(m, now_ns, data, size, NULL) == TUTTI_OK);
        require(now_ns + 1 == tutti_membership_tick(m, now_ns) || tutti_membership_state_of(m) != TUTTI_MEMBER);
    }
    require(tutti_membership_state_of(m) == TUTTI_MEMBER || tutti_membership_epoch(m)->number > 1);
    tutti_membership_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tutti_epoch epoch;
    static uint8_t again[MESSAGE_BYTES];
    message w;

    if (tutti_membership_read(&w, &epoch, data, size, NULL) != TUTTI_OK)
        return 0;
    require(epoch.n == 0 || tutti_epoch_check(&epoch, NULL) == TUTTI_OK);
    require(tutti_membership_write(again, &w, epoch.n > 0 ? &epoch : NULL) == size && memcmp(again, data, size) == 0);
    receive(data, size);
    return 0;
}
