/* Any bytes as what ranks that gather send: HELLO, ANSWER. The first byte selects which, whether
   its header is made right, so that the fuzzer gets past it, and whether a descriptor came along;
   the second how many ranks the run has. What is accepted obeys its bounds, whatever came has
   texts that end, and a rank that is refused gets a sentence. */
#include <stdlib.h>
#include <string.h>

#include "../../src/launch/launch_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const launch_gather_head head = LAUNCH_GATHER;

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void hello(const uint8_t *data, size_t bytes, bool headed, int size)
{
    launch_hello h = { 0 };
    char why[200];

    memcpy(&h, data, bytes < sizeof h ? bytes : sizeof h);
    if (headed)
        h.head = head;
    if (tutti_launch_hello_valid(&h, bytes, size, why, sizeof why))
        require(bytes == sizeof h && h.size == size && h.rank > 0 && h.rank < size && why[0] == '\0');
    else
        require(why[0] != '\0' && memchr(why, '\0', sizeof why) != NULL);
}

static void answer(const uint8_t *data, size_t bytes, bool headed, bool lacks, int size)
{
    tutti_error err = { .rank = -1 };
    launch_answer a = { { 0 } };
    tutti_status status;

    memcpy(&a, data, bytes < sizeof a ? bytes : sizeof a);
    if (headed)
        a.head = head;
    status = tutti_launch_answer_check(&a, bytes, size, lacks, &err);
    require(status == err.status && err.rank >= -1 && err.rank < size);
    if (bytes < sizeof a)
        require(status == TUTTI_ERR_USAGE);
    if (status != TUTTI_OK)
        return;
    require(bytes == sizeof a + (size_t)size * sizeof(launch_rank) && a.status == TUTTI_OK && !lacks);
    require(strlen(a.text) < sizeof a.text && strlen(a.key) < sizeof a.key && strlen(a.meet) < sizeof a.meet);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ranks;

    if (size < 2 || size > 65536)
        return 0;
    ranks = data[1] % 8 + 1;
    if (data[0] & 1)
        hello(data + 2, size - 2, data[0] & 2, ranks);
    else
        answer(data + 2, size - 2, data[0] & 2, data[0] & 4, ranks);
    return 0;
}
