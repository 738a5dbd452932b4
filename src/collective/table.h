/* table.h: which algorithms a user may choose for collectives, one by one or by a file. Included
   by the engine, src/train and src/cli; implemented by table.c (tutti_algorithm_check:
   choice.c). */
#ifndef TUTTI_COLLECTIVE_TABLE_H
#define TUTTI_COLLECTIVE_TABLE_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)

/* Checks that `algorithm`, a spec as in tutti_group.algorithm, serves an all-reduce over `size`
   members. NULL: it does. TUTTI_ERR_USAGE. */
tutti_status tutti_algorithm_check(const char *algorithm, int size, tutti_error *err);

/* Loads the table that selects the algorithm of each call whose group names none. The table is a
   text of lines

       KIND MEMBERS BYTES ALGORITHM        # all-reduce 16 4096 exchange

   KIND is all-reduce, reduce-scatter, all-gather, broadcast, barrier, reduce, gather, scatter or
   all-to-all. MEMBERS is the largest group and BYTES the largest size that the line is for: bytes
   of x, or of one part; if parts differ, of their mean. * matches any number. The rest of a line
   from # on is a comment.

   A call takes the algorithm of the first line of its kind that covers the call and whose
   algorithm serves a group of that size. If there is none the built-in rule applies. Algorithms
   that do not keep the fixed order of summation are refused, so a table changes times, never bits.
   "exchange", "direct", "flat" and the broadcast's "scatter" use shared windows where they can;
   the other algorithms use messages.

   All ranks call it while no collective runs, with the same table. The tables are compared:
   TUTTI_ERR_USAGE names a rank whose table differs. On success the table replaces the world's old
   one; on failure the old one remains. Collective over the world; blocks; allocates. */
tutti_status tutti_collective_table_load(tutti_world *world, const char *path, tutti_error *err);

/* Reads and checks a table as tutti_collective_table_load does, and does not use it. Sends
   nothing. */
tutti_status tutti_collective_table_check(tutti_runtime *rt, const char *path, tutti_error *err);

/* Loads a table as tutti_collective_table_load does, from `text`. name: what error messages call
   the text. */
tutti_status tutti_collective_table_text(tutti_world *world, const char *name, const char *text,
                                         size_t bytes, tutti_error *err);
#pragma GCC visibility pop
#endif
