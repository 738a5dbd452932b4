/* packets.c: checks the packets of ranks that gather (gather.c). They come from processes of this
   user, which may have another version of Tutti. */
#include <stdio.h>
#include "launch_internal.h"

static const char other_version[] = "another version of Tutti is rank 0; use one for all ranks";

static bool of_this_version(launch_gather_head head)
{
    const launch_gather_head ours = LAUNCH_GATHER;

    return head.magic == ours.magic && head.version == ours.version;
}

bool tutti_launch_hello_valid(const launch_hello *h, size_t bytes, int size, char *why,
                              size_t capacity)
{
    why[0] = '\0';
    if (bytes != sizeof *h || !of_this_version(h->head))
        snprintf(why, capacity, "%s", other_version);
    else if (h->size != size || h->rank < 1 || h->rank >= size)
        snprintf(why, capacity, "worker %d of %d is no rank of a run of %d", (int)h->rank,
                 (int)h->size, size);
    return why[0] == '\0';
}

tutti_status tutti_launch_answer_check(launch_answer *a, size_t bytes, int size, bool lacks,
                                       tutti_error *err)
{
    if (bytes < sizeof *a || !of_this_version(a->head))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, other_version);
    a->text[sizeof a->text - 1] = a->key[sizeof a->key - 1] = a->meet[sizeof a->meet - 1] = '\0';
    if (a->rank < -1 || a->rank >= size)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "worker 0 names worker %d, of a run of %d",
                          (int)a->rank, size);
    if (a->status != TUTTI_OK)
        return tutti_fail_rank(err, a->rank < 0 ? TUTTI_ERR_USAGE : TUTTI_ERR_PEER, a->rank, "%s",
                               a->text);
    if (bytes != sizeof *a + (size_t)size * sizeof(launch_rank) || lacks)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "what worker 0 handed out is not whole");
    return TUTTI_OK;
}
