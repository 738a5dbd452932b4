/* What must hold in the world of epochs.h: of decisions, of epochs that are adopted, of members
   that act, of agreed steps; and, when the faults have ended, that all is well again. Majorities
   are computed here once more, from what the members did and not from what they say. */
#include "epochs.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

void epochs_fail(epochs_world *w, const char *format, ...)
{
    char text[400];
    va_list args;

    if (w->failed)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    w->failed = true;
    (void)tutti_fail(&w->err, TUTTI_ERR_NUMBER, 0, "at %.3f s: %s", (double)w->now_ns * 1e-9, text);
}

bool epochs_majority(const tutti_epoch *e, const bool *in)
{
    int n = 0;

    for (int i = 0; i < e->n; i++)
        n += in[i];
    return 2 * n > e->n || (2 * n == e->n && in[0]);
}

static bool is_same(const tutti_epoch *a, const tutti_epoch *b)
{
    bool same = a->number == b->number && a->step == b->step && a->next_rank == b->next_rank && a->n == b->n;

    for (int i = 0; i < a->n && same; i++) {
        const tutti_member *const x = &a->members[i], *const y = &b->members[i];
        same = x->id == y->id && x->rank == y->rank && x->holds == y->holds && strcmp(x->address, y->address) == 0;
    }
    return same;
}

/* The last step that a majority of the epoch's members has had in it. */
static uint64_t agreed_in(const epochs_world *w, uint64_t number)
{
    const tutti_epoch *const e = w->decided[number];
    uint64_t agreed = e->step;

    for (int i = 0; i < e->n; i++) {
        bool in[MEMBERS];
        for (int j = 0; j < e->n; j++)
            in[j] = w->reached[number][j] >= w->reached[number][i];
        if (w->reached[number][i] > agreed + 1 && epochs_majority(e, in))
            agreed = w->reached[number][i] - 1;
    }
    return agreed;
}

/* ---- decisions ---- */

/* Does it have the state with which epoch e is to begin? It may have learnt of the epoch before and
   decided this one in the same call. */
static bool has_state_of(const epochs_world *w, const life *l, const tutti_epoch *e, int was)
{
    const tutti_epoch *const before = w->decided[e->number - 1];
    const bool passed_through = was >= 0 && l->epoch < before->number && l->m->epoch.number == e->number;

    return (l->epoch == before->number || (passed_through && before->members[was].holds)) && l->step == e->step &&
           tutti_membership_holds(l->m);
}

static void check_member(epochs_world *w, const tutti_epoch *e, const tutti_member *a)
{
    const tutti_epoch *const before = w->decided[e->number - 1];
    const int was = tutti_epoch_find(before, a->id);

    if (a->id < 1 || a->id > (uint64_t)w->n_lives)
        epochs_fail(w, "epoch %llu has a member that does not exist", (ull)e->number);
    else if (was >= 0 ? before->members[was].rank != a->rank : a->rank < before->next_rank)
        epochs_fail(w, "epoch %llu: life %llu has rank %u, another's or not its own", (ull)e->number, (ull)a->id,
                    a->rank);
    else if (was < 0 && !w->lives[a->id - 1].ready)
        epochs_fail(w, "epoch %llu admits life %llu, which is not ready", (ull)e->number, (ull)a->id);
    else if (a->holds && !has_state_of(w, &w->lives[a->id - 1], e, was))
        epochs_fail(w, "epoch %llu: life %llu does not have the state of step %llu", (ull)e->number, (ull)a->id,
                    (ull)e->step);
}

static void decide(epochs_world *w, const tutti_epoch *value)
{
    const uint64_t number = value->number;
    bool held = false;

    if (w->decided[number] != NULL) {
        if (!is_same(w->decided[number], value))
            epochs_fail(w, "epoch %llu is decided twice", (ull)number);
        return;
    }
    if (number >= EPOCHS - 1 || value->n > MEMBERS) {
        epochs_fail(w, "epoch %llu of %d members: a change follows the other", (ull)number, value->n);
        return;
    }
    w->decided[number] = malloc(sizeof *value);
    tutti_epoch_copy(w->decided[number], value);
    w->newest = number > w->newest ? number : w->newest;
    w->changes++;
    if (value->next_rank < w->decided[number - 1]->next_rank || tutti_epoch_check(value, NULL) != TUTTI_OK)
        epochs_fail(w, "epoch %llu is not well formed", (ull)number);
    for (int i = 0; i < value->n; i++) {
        check_member(w, value, &value->members[i]);
        held = held || value->members[i].holds;
    }
    if (!held || value->step < agreed_in(w, number - 1))
        epochs_fail(w, "epoch %llu begins at step %llu; step %llu was agreed", (ull)number, (ull)value->step,
                    (ull)agreed_in(w, number - 1));
}

static vote *vote_of(epochs_world *w, const tutti_epoch *value, uint64_t ballot)
{
    for (int k = w->n_votes - 1; k >= 0; k--)
        if (w->votes[k].number == value->number && w->votes[k].ballot == ballot)
            return &w->votes[k];
    if (w->n_votes == w->votes_capacity) {
        w->votes_capacity = 2 * w->votes_capacity + 64;
        w->votes = realloc(w->votes, (size_t)w->votes_capacity * sizeof *w->votes);
    }
    w->votes[w->n_votes] = (vote){ .number = value->number, .ballot = ballot, .value = malloc(sizeof *value) };
    tutti_epoch_copy(w->votes[w->n_votes].value, value);
    return &w->votes[w->n_votes++];
}

static void add_vote(epochs_world *w, const life *l, const tutti_epoch *value, uint64_t ballot)
{
    const tutti_epoch *const now = w->decided[value->number - 1];
    vote *const v = vote_of(w, value, ballot);
    const int i = now != NULL ? tutti_epoch_find(now, l->id) : -1;

    if (i < 0)
        epochs_fail(w, "life %llu accepts epoch %llu and has no vote", (ull)l->id, (ull)value->number);
    else if (!is_same(v->value, value))
        epochs_fail(w, "ballot %llx of epoch %llu has two values", (ull)ballot, (ull)value->number);
    if (w->failed)
        return;
    v->by[i] = true;
    if (epochs_majority(now, v->by))
        decide(w, v->value);
}

/* ---- members ---- */

static void check_adopted(epochs_world *w, life *l)
{
    const tutti_epoch *const e = &l->m->epoch;
    const uint64_t number = e->number;

    if (number >= EPOCHS || w->decided[number] == NULL || !is_same(w->decided[number], e)) {
        epochs_fail(w, "life %llu is in an epoch %llu that no majority has decided", (ull)l->id, (ull)number);
        return;
    }
    l->epoch = number;
    l->accepted_seen = 0;
    l->frozen_ns = 0;
    l->fetch_ns = w->now_ns + (int64_t)epochs_draw(w, (uint64_t)(w->fetch_ns / MS)) * MS;
    if (tutti_membership_holds(l->m))
        epochs_check_step(w, l);
}

/* Its engine has the state of l->step. */
void epochs_check_step(epochs_world *w, const life *l)
{
    const tutti_epoch *const e = w->decided[l->epoch];
    const int i = tutti_epoch_find(e, l->id);

    if (i < 0 || (l->m->epoch.number == l->epoch && l->step != l->m->step) || l->step < e->step) {
        epochs_fail(w, "life %llu is at step %llu of epoch %llu, and the protocol says %llu", (ull)l->id, (ull)l->step,
                    (ull)l->epoch, (ull)l->m->step);
        return;
    }
    if (l->step + 1 > w->reached[l->epoch][i])
        w->reached[l->epoch][i] = l->step + 1;
    if (w->decided[l->epoch + 1] != NULL && agreed_in(w, l->epoch) > w->decided[l->epoch + 1]->step)
        epochs_fail(w, "step %llu is agreed in epoch %llu after the next one has begun", (ull)agreed_in(w, l->epoch),
                    (ull)l->epoch);
    if (l->step == e->step && w->synchronous) {
        if (w->digest_known[l->epoch] && w->digest_at[l->epoch] != l->digest)
            epochs_fail(w, "life %llu begins epoch %llu with another state than others", (ull)l->id, (ull)l->epoch);
        w->digest_known[l->epoch] = true;
        w->digest_at[l->epoch] = l->digest;
    }
}

static void check_acts(epochs_world *w, const life *l)
{
    const tutti_epoch *const e = w->decided[l->epoch];
    bool in[MEMBERS] = { false };

    if (l->epoch == w->newest || !tutti_membership_acts(l->m))
        return;
    for (int k = 0; k < w->n_lives; k++) {
        const life *const x = &w->lives[k];
        if (x->alive && x->epoch == l->epoch && tutti_membership_acts(x->m))
            in[tutti_epoch_find(e, x->id)] = true;
    }
    if (epochs_majority(e, in))
        epochs_fail(w, "a majority of epoch %llu acts, and epoch %llu is decided", (ull)l->epoch, (ull)l->epoch + 1);
}

void epochs_observe(epochs_world *w, life *l)
{
    const tutti_membership_state state = tutti_membership_state_of(l->m);
    const uint64_t number = l->m->epoch.number;

    /* a member that decides has accepted in the same call, also if it is out then */
    if (l->alive && state != TUTTI_NEWCOMER && number > 1 && number < EPOCHS && w->decided[number] == NULL &&
        w->decided[number - 1] != NULL && tutti_epoch_find(w->decided[number - 1], l->id) >= 0)
        add_vote(w, l, &l->m->epoch, l->m->ballot);
    if (!w->failed && state == TUTTI_MEMBER && number != l->epoch)
        check_adopted(w, l);
    if (state == TUTTI_MEMBER && l->m->accepted != l->accepted_seen && !w->failed) {
        l->accepted_seen = l->m->accepted;
        add_vote(w, l, &l->m->value, l->m->accepted);
    }
    if (w->failed || !l->alive)
        return;
    if (state == TUTTI_MEMBER) {
        check_acts(w, l);
        if (l->m->promised != 0 && l->frozen_ns == 0)
            l->frozen_ns = w->now_ns;
        if (tutti_membership_agreed(l->m) > agreed_in(w, l->epoch))
            epochs_fail(w, "life %llu takes step %llu for agreed", (ull)l->id, (ull)tutti_membership_agreed(l->m));
    } else if (tutti_membership_acts(l->m))
        epochs_fail(w, "life %llu acts and is no member", (ull)l->id);
    if (state == TUTTI_LEFT)
        l->alive = false;
    else if (state == TUTTI_REMOVED && l->returns_ns == 0)
        l->returns_ns = w->now_ns + (int64_t)(1 + epochs_draw(w, 500)) * MS;
    if (state == TUTTI_LEFT && !l->leaves)
        epochs_fail(w, "life %llu has left and did not want to", (ull)l->id);
}

/* ---- the end ---- */

int epochs_alive(const epochs_world *w)
{
    int n = 0;

    for (int k = 0; k < w->n_lives; k++)
        n += w->lives[k].alive;
    return n;
}

static const life *alive_with(const epochs_world *w, uint64_t id)
{
    const life *const l = &w->lives[id - 1];

    return l->alive && tutti_membership_state_of(l->m) <= TUTTI_MEMBER ? l : NULL;
}

/* Can those that have accepted the newest epoch find it again, if no member knows of it? */
static bool is_found_again(const epochs_world *w)
{
    const tutti_epoch *const e = w->decided[w->newest - 1];
    bool in[MEMBERS] = { false };

    for (int i = 0; e != NULL && i < e->n; i++)
        in[i] = alive_with(w, e->members[i].id) != NULL && w->lives[e->members[i].id - 1].epoch == e->number;
    return e != NULL && epochs_majority(e, in);
}

bool epochs_recoverable(const epochs_world *w)
{
    const tutti_epoch *const e = w->decided[w->newest];
    bool in[MEMBERS] = { false }, holder = false, known = false;

    for (int i = 0; i < e->n; i++) {
        const life *const l = alive_with(w, e->members[i].id);
        in[i] = l != NULL;
        if (l == NULL)
            continue;
        holder = holder || (l->epoch == e->number ? tutti_membership_holds(l->m) : e->members[i].holds);
        known = known || l->epoch == e->number;
    }
    return epochs_majority(e, in) && holder && (known || is_found_again(w));
}

tutti_status epochs_settled(epochs_world *w, tutti_error *err)
{
    const tutti_epoch *const e = w->decided[w->newest];
    char text[300];

    for (int k = 0; k < w->n_lives; k++) {
        const life *const l = &w->lives[k];
        if (!l->alive)
            continue;
        tutti_membership_describe(l->m, text, sizeof text);
        EXPLORE_EXPECT(l->epoch == w->newest && tutti_membership_acts(l->m),
                       "life %llu at slot %d does not act in epoch %llu: %s", (ull)l->id, l->slot, (ull)w->newest,
                       text);
    }
    for (int i = 0; i < e->n; i++)
        EXPLORE_EXPECT(w->lives[e->members[i].id - 1].alive, "life %llu is dead and a member of epoch %llu",
                       (ull)e->members[i].id, (ull)e->number);
    return TUTTI_OK;
}
