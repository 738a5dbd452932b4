/* compare.h: do all members of a group set out with the same words? Before the first thing they do together: who has
   other options waits for ever in a collective that the others do not join, or in one of another size. */
#ifndef TUTTI_COMPARE_H
#define TUTTI_COMPARE_H
#include "comm.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Collective; blocks. mine: lines "key=value"; NULL: there was no memory for it. Member 0's is sent to all; where one
   differs, all get TUTTI_ERR_USAGE with the same sentence, of the lowest member that does: its first line that is
   another, with both values. */
tutti_status tutti_compare_text(tutti_group *group, const char *mine, tutti_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
