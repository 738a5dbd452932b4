/* members.h: the ranks of a world that are still present, as these ranks have agreed. For worlds
   that survive a loss (tutti_world_survives). Included by the engine; implemented by members.c,
   which has the protocol. One thread per rank; all members make the same calls in the same
   order. */
#ifndef TUTTI_COLLECTIVE_MEMBERS_H
#define TUTTI_COLLECTIVE_MEMBERS_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)

typedef struct tutti_members tutti_members;

/* Opens a membership. All ranks are members at first. Sends nothing. name: distinguishes
   several memberships of a world. TUTTI_ERR_MEMORY. */
tutti_status tutti_members_open(tutti_members **out, tutti_world *world, tutti_port name,
                                tutti_error *err);
/* Frees it; does not wait. Accepts NULL. */
void tutti_members_close(tutti_members *m);

/* Ends a piece of work that the members have done together on their current group. mine: the
   result of this member's part of it: TUTTI_OK; TUTTI_ERR_PEER, a loss interrupted it; or another
   failure.

   Blocks until all remaining members agree on which ranks are lost, and on one of three outcomes.
   Lost ranks are expelled and are no members from now on.
     1. TUTTI_OK and *again: a loss interrupted the part of at least one member. All repeat the
        work, on the new group.
     2. TUTTI_OK and not *again: no part was interrupted. The work is complete on all members.
     3. A member has failed by itself. It gets its own failure back, with *err unchanged. The
        others get TUTTI_ERR_PEER; err->rank is the lowest rank that failed. Pass such a failure as
        `mine` only if no other member waits for this one in the work. A member that fails before it
        has done its part must leave the world instead, with a failure report, and is then lost.

   TUTTI_ERR_PEER with this rank in err->rank: the others have expelled this rank. If a member is
   lost after it has agreed, it may have been the only one to reach its outcome. Allocates. */
tutti_status tutti_members_agree(tutti_members *m, tutti_status mine, bool *again,
                                 tutti_error *err);

/* Blocks until all members have received all messages of the agreements, so that none is in
   flight. Call it after the last agreement, or before a long time without one: otherwise the last
   message of a member that closes the world at once may not arrive. */
tutti_status tutti_members_part(tutti_members *m, tutti_error *err);

/* Returns the group of the members, by rank. Its context is derived from `key` and changes
   whenever the members change or work is repeated. Its array of ranks is m's, valid until the next
   agreement. After the first change of the members `apart` is set. */
tutti_group tutti_members_group(const tutti_members *m, uint64_t key);
/* Returns how often the members have changed. */
uint32_t tutti_members_epoch(const tutti_members *m);
/* Returns whether `rank` is a member. */
bool tutti_members_has(const tutti_members *m, int rank);
#pragma GCC visibility pop
#endif
