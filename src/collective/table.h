/* table.h: the choice of algorithms for collectives. */
#ifndef TUTTI_COLLECTIVE_TABLE_H
#define TUTTI_COLLECTIVE_TABLE_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)

/* Is the algorithm valid for an all-reduce over `size` members? TUTTI_ERR_USAGE with a sentence
   if not. NULL: yes. */
tutti_status tutti_algorithm_check(const char *algorithm, int size, tutti_error *err);

/* Loads the table that selects the algorithm of a call that names none. It is a text of lines

       KIND MEMBERS BYTES ALGORITHM        # all-reduce 16 4096 exchange

   KIND is all-reduce, reduce-scatter, all-gather, broadcast, barrier, reduce, gather, scatter or
   all-to-all. BYTES are those of x, or of one part; if parts differ, of their mean. * matches any
   number. The rest of a line from # on is a comment.

   The first line of the kind is used whose MEMBERS and BYTES are not below the call's and whose
   algorithm can serve it. Without one the built-in rule applies. Algorithms that do not keep the
   fixed order of summation are refused, so a table changes times, never bits. "exchange",
   "direct", "flat" and the broadcast's "scatter" go through windows where they can, the others
   over messages.

   All ranks call it while no collective runs, with the same table. Tables are compared;
   TUTTI_ERR_USAGE names a rank that differs. On success it replaces the old table; on failure the
   old one stays. Blocks, allocates. */
tutti_status tutti_collective_table_load(tutti_world *world, const char *path, tutti_error *err);

/* Reads and checks a table as load does, but does not use it. Not a collective call. */
tutti_status tutti_collective_table_check(tutti_runtime *rt, const char *path, tutti_error *err);

/* As load, from memory. name: used in error messages. */
tutti_status tutti_collective_table_text(tutti_world *world, const char *name, const char *text,
                                         size_t bytes, tutti_error *err);
#pragma GCC visibility pop
#endif
