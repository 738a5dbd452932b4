/* compare.c: texts of "key=value" lines, so that a difference can be told with both values. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "tutti/compare.h"

/* The first line of mine that is not member 0's; both are complete texts of lines. False if they
   are equal. */
static bool difference(const char *mine, const char *theirs, int rank, char *sentence, size_t bytes)
{
    for (;;) {
        const size_t a = strcspn(mine, "\n"), b = strcspn(theirs, "\n"), key = strcspn(mine, "=\n"),
            key0 = strcspn(theirs, "=\n");
        if (a != b || memcmp(mine, theirs, a) != 0) {
            if (key == key0 && memcmp(mine, theirs, key) == 0 && key < a && key < b)
                snprintf(sentence, bytes, "worker %d has %.*s '%.*s' but worker 0 has '%.*s'; start all workers with "
                         "the same options, model and data",
                         rank, (int)key, mine, (int)(a - key - 1 < 120 ? a - key - 1 : 120), mine + key + 1,
                         (int)(b - key - 1 < 120 ? b - key - 1 : 120), theirs + key + 1);
            else
                snprintf(sentence, bytes, "worker %d has '%.*s' where worker 0 has '%.*s'; start all workers with "
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

tutti_status tutti_compare_text(tutti_group *group, const char *mine, tutti_error *err)
{
    char *theirs = NULL, sentence[sizeof err->text] = "";
    int64_t bytes = mine != NULL ? (int64_t)strlen(mine) : 0, who = group->size;
    tutti_status status = tutti_broadcast(group, 0, tutti_host(&bytes, 1, TUTTI_I64), err);

    if (status == TUTTI_OK && (bytes <= 0 || mine == NULL || (theirs = tutti_alloc((size_t)bytes + 1, 1)) == NULL))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "comparing the workers' options (%lld bytes)",
                            (long long)bytes);
    if (status == TUTTI_OK) {
        if (group->index == 0)
            memcpy(theirs, mine, (size_t)bytes);
        status = tutti_broadcast(group, 0, tutti_host(theirs, (size_t)bytes, TUTTI_U8), err);
    }
    if (status == TUTTI_OK) {
        if (difference(mine, theirs, tutti_group_rank(group, group->index), sentence, sizeof sentence))
            who = group->index;
        status = tutti_allreduce(group, TUTTI_MIN, tutti_host(&who, 1, TUTTI_I64), err);
    }
    if (status == TUTTI_OK && who < group->size) {
        status = tutti_broadcast(group, (int)who, tutti_host(sentence, sizeof sentence, TUTTI_U8), err);
        sentence[sizeof sentence - 1] = 0;
        if (status == TUTTI_OK)
            status = tutti_fail_rank(err, TUTTI_ERR_USAGE, tutti_group_rank(group, (int)who), "%s", sentence);
    }
    tutti_free(theirs);
    return status;
}
