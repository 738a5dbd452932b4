/* compare.h: verifies that all ranks of a group were started with the same configuration. Included
   by the engine and by other modules with a configuration of their own; implemented by compare.c.

   Call one of these functions before the first collective. Otherwise a member with other options
   may wait for ever in a collective that the others do not join, or join one of another size. */
#ifndef TUTTI_COMPARE_H
#define TUTTI_COMPARE_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Compares the texts of all members with member 0's. mine: this member's text, lines "key=value";
   NULL: there was no memory for it. If a text differs, all members get TUTTI_ERR_USAGE with the
   same message: the first differing line of the lowest member whose text differs, with both
   values. Collective; blocks. */
tutti_status tutti_compare_text(tutti_group *group, const char *mine, tutti_error *err);

/* Takes the place of tutti_compare_text on a member that cannot start at all, for the reason
   `why`. All members get TUTTI_ERR_USAGE: this one with its own error, the others with an error
   that quotes it. So options are refused by all members or by none, and no member keeps waiting.
   err may be `why`. Collective; blocks. */
tutti_status tutti_compare_refuse(tutti_group *group, const tutti_error *why, tutti_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
