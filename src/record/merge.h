/* merge.h: records of several ranks as one. Implemented by merge.c and
   merge_members.c. Included by the tutti command, and by the trainer. */
#ifndef TUTTI_RECORD_MERGE_H
#define TUTTI_RECORD_MERGE_H
#include "tutti/files.h"
#pragma GCC visibility push(default)

/* Makes trace.json, and summary.json if all ranks have closed, of the files of ranks in a folder.
   *ranks: how many were in the run, *closed: how many have closed; both 0: there is nothing to
   merge, as in the folder of `tutti train`. TUTTI_ERR_CORRUPT: a file is malformed. Blocks. */
tutti_status tutti_record_merge(tutti_runtime *rt, const char *folder, int *ranks, int *closed,
                                tutti_error *err);

/* Makes trace.json of the parts that the members of a run whose workers come and go have left in
   its folder so far (files.h, member.c). They stay. *parts: how many there are; 0: there is nothing
   to merge. *lost: events that they lack. As often as one likes. Blocks. */
tutti_status tutti_record_merge_members(tutti_runtime *rt, const char *folder, int *parts,
                                        uint64_t *lost, tutti_error *err);
#pragma GCC visibility pop
#endif
