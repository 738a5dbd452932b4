/* nodes_ask.c: requests of a process that does not train to the members of a run: the settings of
   the run, the list of members, and that one of them leaves. It has a node of a newcomer that is
   never ready, so it is not admitted; the members send it each epoch. */
#include <errno.h>

#include "elastic/carry.h"
#include "train/nodes.h"

#define ASK_MS INT64_C(1000000)

typedef struct asker {
    tutti_runtime *rt;
    tutti_carrier *carrier;
    tutti_node *node;
} asker;

static void on_answer(void *user, const tutti_node_note *note)
{
    (void)tutti_carrier_note(user, note);
}

static void close_asker(asker *a)
{
    if (a->carrier != NULL)
        tutti_carrier_use(a->carrier, NULL);
    tutti_node_close(a->node);
    tutti_carrier_close(a->carrier);
    tutti_runtime_close(a->rt);
}

/* Close it also after a failure. */
static tutti_status open_asker(asker *a, const tutti_node_options *node,
                               const char *const *contacts, int n, tutti_error *err)
{
    tutti_node_options options = *node;

    *a = (asker){ .rt = NULL };
    TUTTI_TRY(tutti_runtime_open_posix(&a->rt, err));
    TUTTI_TRY(tutti_carrier_open(&a->carrier, a->rt, err));
    options.on_note = on_answer;
    options.user = a->carrier;
    TUTTI_TRY(tutti_node_join(&a->node, contacts, n, &options, err));
    tutti_carrier_use(a->carrier, a->node);
    return TUTTI_OK;
}

tutti_status tutti_train_ask(const tutti_node_options *node, const char *const *contacts, int n,
                             int64_t limit_ns, char **config, tutti_error *err)
{
    asker a;
    tutti_status status = open_asker(&a, node, contacts, n, err);

    *config = NULL;
    if (status == TUTTI_OK)
        status = tutti_carrier_ask(a.carrier, limit_ns, config, err);
    close_asker(&a);
    return status;
}

/* ---- the list of members, and leaving ---- */

static void wait_a_moment(const asker *a)
{
    tutti_sleep_until(a->rt, tutti_now_ns(a->rt) + 20 * ASK_MS);
}

static tutti_status find_members(const asker *a, int64_t until, tutti_epoch *epoch,
                                 tutti_error *err)
{
    char why[400];

    tutti_node_epoch(a->node, epoch);
    while (epoch->n == 0 && tutti_now_ns(a->rt) < until) {
        wait_a_moment(a);
        tutti_node_epoch(a->node, epoch);
    }
    if (epoch->n > 0)
        return TUTTI_OK;
    tutti_node_describe(a->node, why, sizeof why);
    return tutti_fail(err, TUTTI_TIMEOUT, 0, "no member has answered: %s", why);
}

/* Finds the member of that rank. It may leave if another one stays. */
static tutti_status find_rank(const tutti_epoch *epoch, uint32_t rank, uint64_t *id,
                              tutti_error *err)
{
    for (int i = 0; i < epoch->n; i++)
        if (epoch->members[i].rank == rank) {
            *id = epoch->members[i].id;
            return epoch->n > 1
                       ? TUTTI_OK
                       : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                    "worker %u is the only one, and the run would end without its "
                                    "results; stop the run if that is what you mean",
                                    rank);
        }
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "there is no worker %u among the %d of epoch %llu; without a number they are "
                      "listed",
                      rank, epoch->n, (unsigned long long)epoch->number);
}

static bool has(const tutti_epoch *epoch, uint64_t id)
{
    for (int i = 0; i < epoch->n; i++)
        if (epoch->members[i].id == id)
            return true;
    return false;
}

static tutti_status dismiss(const asker *a, uint32_t rank, int64_t until, tutti_epoch *epoch,
                            tutti_error *err)
{
    uint64_t id = 0;

    TUTTI_TRY(find_rank(epoch, rank, &id, err));
    for (int turn = 0; has(epoch, id) && tutti_now_ns(a->rt) < until; turn++) {
        if (turn % 25 == 0) /* the note may be lost */
            tutti_carrier_dismiss(a->carrier, id);
        wait_a_moment(a);
        tutti_node_epoch(a->node, epoch);
    }
    return has(epoch, id) ? tutti_fail(err, TUTTI_TIMEOUT, 0,
                                       "worker %u was told to leave, and no epoch without it has "
                                       "followed; the run may have ended, or may be waiting",
                                       rank)
                          : TUTTI_OK;
}

tutti_status tutti_train_dismiss(const tutti_node_options *node, const char *const *contacts, int n,
                                 const tutti_train_dismissal *what, tutti_epoch *epoch,
                                 tutti_error *err)
{
    asker a;
    tutti_status status = open_asker(&a, node, contacts, n, err);

    if (status == TUTTI_OK)
        status = find_members(&a, tutti_now_ns(a.rt) + what->answer_ns, epoch, err);
    if (status == TUTTI_OK && what->rank >= 0)
        status = dismiss(&a, (uint32_t)what->rank, tutti_now_ns(a.rt) + what->leave_ns, epoch, err);
    close_asker(&a);
    return status;
}
