/* compare.h: verifies that all ranks of a group were started with the same configuration. Call it
   before the first collective. Otherwise a member with other options may wait for ever in a
   collective that the others do not join, or in one of another size. */
#ifndef TUTTI_COMPARE_H
#define TUTTI_COMPARE_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Compares texts with member 0's, which is sent to all. Collective; blocks. mine: lines
   "key=value"; NULL: there was no memory for it. If one differs all get TUTTI_ERR_USAGE with the
   same sentence, about the lowest member that differs: its first differing line, with both
   values. */
tutti_status tutti_compare_text(tutti_group *group, const char *mine, tutti_error *err);

/* Called instead of tutti_compare_text by a member that cannot start at all. why: the reason. Its
   sentence is sent to the others, and their comparison ends with it: all members get
   TUTTI_ERR_USAGE, this one with its own sentence. So options are refused by all members or by
   none, whichever member has found the fault, and no member keeps waiting. err may be `why`. */
tutti_status tutti_compare_refuse(tutti_group *group, const tutti_error *why, tutti_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
