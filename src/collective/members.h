/* members.h: the ranks of the world that are still present, as they have agreed. For worlds that
   survive a loss. members.c has the protocol. One thread; all members make the same calls in the
   same order. */
#ifndef TUTTI_COLLECTIVE_MEMBERS_H
#define TUTTI_COLLECTIVE_MEMBERS_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)

typedef struct tutti_members tutti_members;

/* All ranks are members at first; nothing is sent. name: distinguishes several such memberships
   of a world. TUTTI_ERR_MEMORY. */
tutti_status tutti_members_open(tutti_members **out, tutti_world *world, tutti_port name,
                                tutti_error *err);
void tutti_members_close(tutti_members *m); /* accepts NULL; does not wait */

/* Ends work that the members have done together on their current group. `mine` is the result of
   this member's part: TUTTI_OK, TUTTI_ERR_PEER (a loss interrupted it), or another failure.

   Blocks until all remaining members agree on which ranks are lost (these are expelled and no
   members from now on), and on one of three outcomes.
     1. *again: a loss interrupted the part of at least one member. All repeat the work, on the new
        group.
     2. No member's part was interrupted. The work is complete, for all.
     3. A member has failed by itself. It gets its own failure back, with *err unchanged. The others
        get TUTTI_ERR_PEER; err->rank is the lowest that failed. This is only for a failure for
        which no other member waits. A member that fails before it has done its part leaves
        instead, with a failure report, and is lost.

   TUTTI_ERR_PEER with this rank in err->rank: the others have expelled this one. A member that is
   lost after it has agreed may be the only one that reached that outcome. Allocates. */
tutti_status tutti_members_agree(tutti_members *m, tutti_status mine, bool *again,
                                 tutti_error *err);

/* Call after the last agreement, or before a long time without one. Blocks until all members have
   received all messages of the agreements; afterwards none is in flight. Without it the last
   message of a member that closes the world at once may be lost. */
tutti_status tutti_members_part(tutti_members *m, tutti_error *err);

/* The group of the members, by rank, with a context derived from `key` that changes whenever the
   members change or work is repeated. Its ranks array belongs to m: valid until the next
   agreement. After the first change the group is `apart`. */
tutti_group tutti_members_group(const tutti_members *m, uint64_t key);
uint32_t tutti_members_epoch(const tutti_members *m); /* how often the members have changed */
bool tutti_members_has(const tutti_members *m, int rank);
#pragma GCC visibility pop
#endif
