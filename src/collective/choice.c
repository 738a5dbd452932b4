/* choice.c: which algorithm a collective takes: the one that its group requests
   (tutti_group.algorithm), or else one chosen by kind, size and count. A request is a spec:
   "direct", "ring(order=any)" or "stragglar(straggler=3,order=any)". It is parsed at each call,
   without allocating, because groups are values and own no memory. */
#include "collective_internal.h"
#include "collective/table.h"
#include "tutti/base.h"
#include "tutti/comm.h"
#include "base/options.h"
#include "stragglar.h"
#include <stdio.h>
#include <string.h>

enum { TREE, ANY };
typedef struct wish {
    int order;
    int64_t straggler;     /* -1: the last member */
} wish;

static const tutti_option wish_options[] = {
    { "order", TUTTI_CHOICE, TUTTI_AT(wish, order), TREE, 0, 0, "tree|any",
      "of summation: any must be given for algorithms that do not sum along the tree" },
    { "straggler", TUTTI_INT, TUTTI_AT(wish, straggler), -1, 0, 1 << 30, NULL,
      "index of the member that comes late" },
    { 0 }
};

/* The next word up to one of `ends`, without blanks around it; false if it is empty or too long.
   *at moves behind it. */
static bool word(const char **at, const char *ends, char *out, size_t bytes)
{
    const char *from = *at + strspn(*at, " ");
    size_t length = strcspn(from, ends);

    *at = from + length;
    while (length > 0 && from[length - 1] == ' ')
        length--;
    if (length == 0 || length >= bytes)
        return false;
    memcpy(out, from, length);
    out[length] = 0;
    return true;
}

static tutti_status bad_form(const char *text, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "algorithm of collectives '%.80s': write NAME or NAME(key=value,...), such "
                      "as direct or ring(order=any)", text);
}

static tutti_status read_wish(const char *text, char *name, size_t bytes, wish *w, tutti_error *err)
{
    char key[24], value[24], what[80];
    const char *at = text;

    tutti_options_default(wish_options, w);
    if (!word(&at, "(", name, bytes))
        return bad_form(text, err);
    if (*at == 0)
        return TUTTI_OK;
    snprintf(what, sizeof what, "algorithm '%s'", name);
    at++;
    do {
        const tutti_option *option;
        if (!word(&at, "=,()", key, sizeof key) || *at++ != '=' ||
            !word(&at, ",()", value, sizeof value) || *at == '(' || *at == 0)
            return bad_form(text, err);
        option = tutti_option_find(wish_options, key);
        if (option == NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%s has no option '%s'; there are order and straggler", what, key);
        TUTTI_TRY(tutti_option_set(option, what, value, w, err));
    } while (*at++ == ',');
    return *(at + strspn(at, " ")) == 0 ? TUTTI_OK : bad_form(text, err);
}

static tutti_status unknown(const char *name, tutti_error *err)
{
    const char *names[24];
    char known[240] = "", near[120];
    size_t n = 0, used = 0;

    for (int k = 0; tutti_algorithms[k].name != NULL && n < TUTTI_LENGTH(names) - 1; k++) {
        bool listed = false;
        for (size_t l = 0; l < n; l++)
            listed = listed || strcmp(names[l], tutti_algorithms[k].name) == 0;
        if (!listed)
            names[n++] = tutti_algorithms[k].name;
    }
    names[n++] = "window";
    for (size_t k = 0; k < n && used < sizeof known; k++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", k > 0 ? ", " : "",
                                 names[k]);
    tutti_suggest(name, names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "no algorithm of collectives is named '%.60s'%s; known: %s", name, near,
                      known);
}

/* Checks that the algorithm of this row can serve a group of that size, as requested. */
static tutti_status check_row(int row, int size, const wish *w, tutti_error *err)
{
    const tutti_algorithm *a = &tutti_algorithms[row];
    const char *kind = tutti_collective_name(a->kind);

    if (!tutti_algorithm_serves(row, size))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s '%s' needs a power of two of members, and there are %d; leave the "
                          "algorithm to be chosen",
                          kind, a->name, size);
    if ((a->traits & TUTTI_ANY_ORDER) != 0 && w->order != ANY)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s '%s' does not keep the one order of summation: results differ from those of other "
            "algorithms and numbers of members in the last bits; if that will do, write "
            "%s(order=any)",
            kind, a->name, a->name);
    if (w->straggler >= 0 && (a->traits & TUTTI_SINGLES_OUT) == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s '%s' has no straggler; 'stragglar' has",
                          kind, a->name);
    if (w->straggler >= size)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s '%s': straggler is %lld; the members are 0 to %d", kind, a->name,
                          (long long)w->straggler, size - 1);
    return TUTTI_OK;
}

tutti_status tutti_algorithm_fits(int row, tutti_dtype dtype, tutti_error *err)
{
    const tutti_algorithm *a = &tutti_algorithms[row];

    if (!tutti_reduce_narrow(dtype) || (a->traits & TUTTI_PARTIAL_SUMS) == 0)
        return TUTTI_OK;
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "%s '%s' sends partial sums, which %s would round on their way; 'direct' adds all terms at "
        "once: take that, or leave the algorithm to be chosen, or convert to F32 first",
        tutti_collective_name(a->kind), a->name, tutti_dtype_name(dtype));
}

/* A name of another kind's table leaves the choice to this kind; one of no table is refused. */
tutti_status tutti_algorithm_wished(const char *text, tutti_collective kind, int size, int *row,
                                    int *straggler, tutti_error *err)
{
    char name[32];
    wish w;

    *row = -1;
    *straggler = -1;
    if (text == NULL || strcmp(text, "window") == 0)
        return TUTTI_OK;
    TUTTI_TRY(read_wish(text, name, sizeof name, &w, err));
    *row = tutti_algorithm_find(kind, name);
    if (*row >= 0) {
        TUTTI_TRY(check_row(*row, size, &w, err));
        if ((tutti_algorithms[*row].traits & TUTTI_SINGLES_OUT) != 0)
            *straggler = w.straggler >= 0 ? (int)w.straggler : size - 1;
        return TUTTI_OK;
    }
    for (int other = 0; other < TUTTI_COLLECTIVES; other++)
        if (tutti_algorithm_find((tutti_collective)other, name) >= 0)
            return TUTTI_OK;
    return unknown(name, err);
}

tutti_status tutti_algorithm_check(const char *text, int size, tutti_error *err)
{
    int row, straggler;

    return tutti_algorithm_wished(text, TUTTI_ALLREDUCE, size, &row, &straggler, err);
}

tutti_status tutti_algorithm_prove(const char *text, int size, size_t count, tutti_error *err)
{
    tutti_schedule **lists = tutti_alloc((size_t)size, sizeof *lists);
    int row, straggler;
    tutti_status status =
        tutti_algorithm_wished(text, TUTTI_ALLREDUCE, size, &row, &straggler, err);

    if (row < 0)
        row = tutti_algorithm_choose(TUTTI_ALLREDUCE, size, 0, 0, count);
    if (status == TUTTI_OK && lists == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                            "no memory to prove an all-reduce over %d members", size);
    for (int i = 0; i < size && status == TUTTI_OK; i++) {
        const tutti_schedule_key key = {
            TUTTI_ALLREDUCE, row, size, i, straggler >= 0 ? straggler : 0, count
        };
        status = tutti_schedule_open(&lists[i], &key, err);
    }
    if (status == TUTTI_OK)
        status = tutti_schedule_check((const tutti_schedule *const *)lists, size, err);
    for (int i = 0; i < size && lists != NULL; i++)
        tutti_schedule_close(lists[i]);
    tutti_free(lists);
    return status;
}
