/* compare.c: compares the members' texts of "key=value" lines, and reports a difference with both
   values (compare.h). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "collective/compare.h"

/* The first line of mine that differs from member 0's; both are complete texts of lines. False if
   they are equal. */
static bool difference(const char *mine, const char *theirs, int rank, char *sentence, size_t bytes)
{
    for (;;) {
        const size_t a = strcspn(mine, "\n"), b = strcspn(theirs, "\n"), key = strcspn(mine, "=\n"),
            key0 = strcspn(theirs, "=\n");
        if (a != b || memcmp(mine, theirs, a) != 0) {
            if (key == key0 && memcmp(mine, theirs, key) == 0 && key < a && key < b)
                snprintf(
                    sentence, bytes,
                    "worker %d has %.*s '%.*s' but worker 0 has '%.*s'; start all workers with the "
                    "same options, model and data",
                    rank, (int)key, mine, (int)(a - key - 1 < 120 ? a - key - 1 : 120),
                    mine + key + 1, (int)(b - key - 1 < 120 ? b - key - 1 : 120), theirs + key + 1);
            else
                snprintf(sentence, bytes,
                         "worker %d has '%.*s' where worker 0 has '%.*s'; start all workers with "
                         "the same options, model and data",
                         rank, (int)(a < 120 ? a : 120), mine, (int)(b < 120 ? b : 120), theirs);
            return true;
        }
        if (mine[a] == 0)
            return false;
        mine += a + 1;
        theirs += b + 1;
    }
}

/* Member 0's text at all members, to be freed. NULL: member 0 refuses, and has none. */
static tutti_status first_text(tutti_group *group, const char *mine, bool refuses, char **out,
                               tutti_error *err)
{
    int64_t bytes = refuses ? -1 : mine != NULL ? (int64_t)strlen(mine) : 0;
    char *theirs;

    TUTTI_TRY(tutti_broadcast(group, 0, tutti_host(&bytes, 1, TUTTI_I64), err));
    if (bytes < 0)
        return TUTTI_OK;
    theirs = *out = bytes > 0 ? tutti_alloc((size_t)bytes + 1, 1) : NULL;
    if (theirs == NULL || (mine == NULL && !refuses))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "comparing the workers' options (%lld bytes)", (long long)bytes);
    if (mine != NULL && group->index == 0)
        memcpy(theirs, mine, (size_t)bytes);
    return tutti_broadcast(group, 0, tutti_host(theirs, (size_t)bytes, TUTTI_U8), err);
}

/* why: of a member that refuses, else NULL. */
static tutti_status compare(tutti_group *group, const char *mine, const tutti_error *why,
                            char **theirs, tutti_error *err)
{
    const int rank = tutti_group_rank(group, group->index);
    tutti_error refusal = { .text = "" };
    int64_t who = group->size;

    TUTTI_TRY(first_text(group, mine, why != NULL, theirs, err));
    if (why != NULL)
        tutti_fail(&refusal, why->status, 0, "worker %d refuses its options: %s", rank, why->text);
    if (why != NULL ||
        (*theirs != NULL && difference(mine, *theirs, rank, refusal.text, sizeof refusal.text)))
        who = group->index;
    TUTTI_TRY(tutti_allreduce(group, TUTTI_MIN, tutti_host(&who, 1, TUTTI_I64), err));
    if (who == group->size)
        return TUTTI_OK;
    TUTTI_TRY(tutti_broadcast(group, (int)who,
                              tutti_host(refusal.text, sizeof refusal.text, TUTTI_U8), err));
    refusal.text[sizeof refusal.text - 1] = 0;
    return tutti_fail_rank(err, TUTTI_ERR_USAGE, tutti_group_rank(group, (int)who), "%s",
                           refusal.text);
}

tutti_status tutti_compare_text(tutti_group *group, const char *mine, tutti_error *err)
{
    char *theirs = NULL;
    const tutti_status status = compare(group, mine, NULL, &theirs, err);

    tutti_free(theirs);
    return status;
}

tutti_status tutti_compare_refuse(tutti_group *group, const tutti_error *why, tutti_error *err)
{
    const tutti_error mine = *why;
    char *theirs = NULL;
    const tutti_status status = compare(group, NULL, &mine, &theirs, err);

    tutti_free(theirs);
    if (status == TUTTI_ERR_USAGE && err != NULL)
        *err = mine;
    return status;
}
