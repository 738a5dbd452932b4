/* compare.h: do all members of a group set out with the same words? To be asked before the first
   thing that they do together. A member with other options waits for ever in a collective that the
   others do not join, or in one of another size. */
#ifndef TUTTI_COMPARE_H
#define TUTTI_COMPARE_H
#include "comm.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Compares texts with member 0's, which is sent to all. Collective; blocks. mine: lines
   "key=value"; NULL: there was no memory for it. Where one differs all get TUTTI_ERR_USAGE with the
   same sentence, about the lowest member that differs: its first line that is another, with both
   values. */
tutti_status tutti_compare_text(tutti_group *group, const char *mine, tutti_error *err);

/* In its place, for a member that cannot set out at all. why: the reason. Its sentence is told to
   the others, and their comparison ends with it: all members get TUTTI_ERR_USAGE, this one with
   its own sentence. So options are refused by all members or by none, whoever has seen what is
   wrong, and nobody is left waiting. err may be `why`. */
tutti_status tutti_compare_refuse(tutti_group *group, const tutti_error *why, tutti_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
