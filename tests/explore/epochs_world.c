/* The world of epochs.h: its network, the engines of its workers, its faults. */
#include "epochs.h"
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

uint64_t epochs_draw(epochs_world *w, uint64_t n)
{
    return tutti_random((tutti_rng){ .seed = w->seed, .stream = 0x65706f63 }, w->drawn++) % n;
}

/* ---- events ---- */

static bool is_before(const event *a, const event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void push(epochs_world *w, event e)
{
    size_t k = w->n_queue++;

    if (w->n_queue > w->queue_capacity) {
        w->queue_capacity = 2 * w->queue_capacity + 256;
        w->queue = realloc(w->queue, w->queue_capacity * sizeof *w->queue);
    }
    e.order = w->order++;
    for (; k > 0 && is_before(&e, &w->queue[(k - 1) / 2]); k = (k - 1) / 2)
        w->queue[k] = w->queue[(k - 1) / 2];
    w->queue[k] = e;
}

static event pop(epochs_world *w)
{
    const event first = w->queue[0], last = w->queue[--w->n_queue];
    size_t k = 0;

    for (size_t c = 1; c < w->n_queue; c = 2 * k + 1) {
        c += c + 1 < w->n_queue && is_before(&w->queue[c + 1], &w->queue[c]);
        if (!is_before(&w->queue[c], &last))
            break;
        w->queue[k] = w->queue[c];
        k = c;
    }
    w->queue[k] = last;
    return first;
}

/* ---- messages ---- */

static void post(epochs_world *w, int from, int to, const uint8_t *bytes, size_t n)
{
    event e = { .from = from, .to = to, .n = n };

    e.at_ns = w->now_ns + MS + (int64_t)epochs_draw(w, (uint64_t)w->latency_ns);
    if ((int)epochs_draw(w, 1000) < w->late)
        e.at_ns += (int64_t)epochs_draw(w, 800) * MS;
    e.bytes = malloc(n);
    memcpy(e.bytes, bytes, n);
    push(w, e);
}

static void send_message(void *user, const char *address, const uint8_t *bytes, size_t n)
{
    const life *const l = user;
    epochs_world *const w = l->world;
    const int to = atoi(address + 1);

    if (to < 0 || to >= SLOTS || w->cut[l->slot][to] || (int)epochs_draw(w, 1000) < w->loss)
        return;
    post(w, l->slot, to, bytes, n);
    if ((int)epochs_draw(w, 1000) < w->twice)
        post(w, l->slot, to, bytes, n);
}

life *epochs_at(epochs_world *w, int slot)
{
    for (int k = w->n_lives - 1; k >= 0; k--)
        if (w->lives[k].slot == slot && w->lives[k].alive)
            return &w->lives[k];
    return NULL;
}

static void deliver(epochs_world *w, const event *e)
{
    life *const l = epochs_at(w, e->to);
    tutti_error err;

    if (l != NULL && l->paused_until_ns > w->now_ns) {
        event again = *e;
        again.at_ns = l->paused_until_ns + (int64_t)epochs_draw(w, 5) * MS;
        push(w, again);
        return;
    }
    if (l != NULL && !w->cut[e->from][e->to]) {
        if (tutti_membership_receive(l->m, w->now_ns, e->bytes, e->n, &err) != TUTTI_OK)
            epochs_fail(w, "a message of slot %d is refused: %s", e->from, err.text);
        epochs_observe(w, l);
    }
    free(e->bytes);
}

/* ---- engines ---- */

static life *life_of(epochs_world *w, uint64_t id)
{
    return id >= 1 && id <= (uint64_t)w->n_lives ? &w->lives[id - 1] : NULL;
}

static bool all_have_contributed(epochs_world *w, const life *l, uint64_t step)
{
    for (int i = 0; i < l->m->epoch.n; i++) {
        const life *const x = life_of(w, l->m->epoch.members[i].id);
        if (x->contributed_epoch != l->epoch || x->contributed_step < step || (x != l && w->cut[x->slot][l->slot]))
            return false;
    }
    return true;
}

static void make_step(epochs_world *w, life *l)
{
    const uint64_t step = l->step + 1, words[3] = { l->digest, l->epoch, step };

    if (!tutti_membership_step(l->m, w->now_ns, step))
        epochs_fail(w, "life %llu acts in epoch %llu and may not make step %llu", (ull)l->id,
                    (ull)l->epoch, (ull)step);
    l->step = step;
    l->stepped_ns = w->now_ns;
    l->digest = tutti_hash(words, sizeof words);
    epochs_check_step(w, l);
}

static void train(epochs_world *w, life *l)
{
    if (!tutti_membership_acts(l->m)) {
        if (tutti_membership_step(l->m, w->now_ns, l->m->step + 1))
            epochs_fail(w, "life %llu does not act in epoch %llu and may make a step", (ull)l->id, (ull)l->epoch);
        return;
    }
    if (!w->synchronous) {
        if (l->step < tutti_membership_agreed(l->m) + 3 && epochs_draw(w, 3) == 0)
            make_step(w, l);
        return;
    }
    if (l->contributed_epoch != l->epoch || l->contributed_step <= l->step) {
        if (w->now_ns - l->stepped_ns >= w->step_least_ns && epochs_draw(w, (uint64_t)(w->step_ns / (15 * MS))) == 0) {
            l->contributed_epoch = l->epoch;
            l->contributed_step = l->step + 1;
        }
    } else if (all_have_contributed(w, l, l->step + 1))
        make_step(w, l);
}

/* Copies the state of a member that has it. The protocol may refuse: the epoch is ending. */
static void fetch(epochs_world *w, life *l)
{
    for (int k = 0; k < w->n_lives; k++) {
        const life *const x = &w->lives[(k + (int)l->id) % w->n_lives];
        if (!x->alive || x->epoch != l->epoch || !tutti_membership_holds(x->m) || w->cut[x->slot][l->slot] ||
            w->cut[l->slot][x->slot] || x->paused_until_ns > w->now_ns)
            continue;
        if (tutti_membership_hold(l->m, w->now_ns, x->step)) {
            l->step = x->step;
            l->digest = x->digest;
            epochs_check_step(w, l);
        }
        return;
    }
}

/* Not before what was sent on that connection has arrived. */
static void report(epochs_world *w, const life *to, const life *lost)
{
    push(w, (event){ .at_ns = w->now_ns + w->latency_ns + (int64_t)(2 + epochs_draw(w, 50)) * MS, .from = LOST,
                     .to = (int)(to->id - 1), .id = lost->id });
}

static void end(epochs_world *w, life *l, bool noticed)
{
    l->alive = false;
    for (int k = 0; k < w->n_lives && noticed; k++)
        if (w->lives[k].alive)
            report(w, &w->lives[k], l);
}

static bool is_member_at(epochs_world *w, const char *address)
{
    const life *const l = epochs_at(w, atoi(address + 1));

    return l != NULL && tutti_membership_state_of(l->m) == TUTTI_MEMBER;
}

/* Does it get no answer: a member, that would end a change; a newcomer, of any address that it
   knows? */
static bool is_alone(epochs_world *w, const life *l)
{
    bool any = false;

    if (tutti_membership_state_of(l->m) == TUTTI_MEMBER)
        return l->frozen_ns != 0;
    for (int k = 0; k < l->m->n_contacts; k++)
        any = any || is_member_at(w, l->m->contacts[k]);
    for (int i = 0; i < l->m->epoch.n; i++)
        any = any || is_member_at(w, l->m->epoch.members[i].address);
    return !any;
}

/* What a launcher does: one that was removed, or that is alone for long, comes back as a newcomer,
   with an address that is right. */
static void supervise(epochs_world *w, life *l)
{
    const int slot = l->slot;
    const int64_t most_ns = (tutti_membership_state_of(l->m) == TUTTI_MEMBER ? 5000LL : 2000LL) * MS;

    if (!is_alone(w, l))
        l->alone_since_ns = w->now_ns;
    if ((l->returns_ns == 0 || w->now_ns < l->returns_ns) && w->now_ns - l->alone_since_ns < most_ns)
        return;
    end(w, l, true);
    w->returns++;
    (void)epochs_join(w, slot);
}

/* One that fails ends later if another fetches the state from it. */
static void end_later(epochs_world *w, life *l)
{
    const int64_t at = w->now_ns + l->fails_for_ns;

    for (int k = 0; k < w->n_lives; k++) {
        const life *const x = &w->lives[k];
        if (x->alive && x->epoch == l->epoch && x->fails_ns == 0 && tutti_membership_holds(l->m) &&
            tutti_membership_state_of(x->m) == TUTTI_MEMBER && !tutti_membership_holds(x->m))
            l->fails_ns = at < l->fails_most_ns ? at : l->fails_most_ns;
    }
}

static void turn(epochs_world *w, life *l)
{
    const int64_t next = w->now_ns + (5 + (int64_t)epochs_draw(w, 20)) * MS;

    if (!l->alive)
        return;
    push(w, (event){ .at_ns = next > l->paused_until_ns ? next : l->paused_until_ns, .from = TURN,
                     .to = (int)(l->id - 1) });
    if (l->paused_until_ns > w->now_ns)
        return;
    if (w->now_ns >= l->tick_ns)
        l->tick_ns = tutti_membership_tick(l->m, w->now_ns);
    epochs_observe(w, l);
    if (!l->alive)
        return;
    switch (tutti_membership_state_of(l->m)) {
    case TUTTI_NEWCOMER:
        if (!l->ready && l->m->epoch.number != 0 && w->now_ns >= l->ready_ns) {
            tutti_membership_ready(l->m, w->now_ns);
            l->ready = true;
        }
        break;
    case TUTTI_MEMBER:
        if (l->fails_ns != 0) {
            end_later(w, l);
            break;
        }
        if (!tutti_membership_holds(l->m) && w->now_ns >= l->fetch_ns)
            fetch(w, l);
        else
            train(w, l);
        break;
    case TUTTI_LEFT:
    case TUTTI_REMOVED: break;
    }
    epochs_observe(w, l);
    if (l->alive && l->fails_ns != 0 && w->now_ns >= l->fails_ns)
        epochs_kill(w, l, true);
    else if (l->alive && l->fails_ns == 0)
        supervise(w, l);
}

tutti_status epochs_run(epochs_world *w, int64_t until_ns, tutti_error *err)
{
    while (w->n_queue > 0 && w->queue[0].at_ns <= until_ns && !w->failed) {
        const event e = pop(w);
        life *const l = e.from < 0 ? &w->lives[e.to] : NULL;
        w->now_ns = e.at_ns;
        if (e.from == TURN)
            turn(w, l);
        else if (e.from == LOST && l->alive) {
            tutti_membership_lost(l->m, w->now_ns, e.id);
            epochs_observe(w, l);
        } else if (e.from >= 0)
            deliver(w, &e);
    }
    if (!w->failed && until_ns > w->now_ns)
        w->now_ns = until_ns;
    if (w->failed && err != NULL)
        *err = w->err;
    return w->failed ? TUTTI_ERR_NUMBER : TUTTI_OK;
}

/* ---- processes ---- */

static life *bear(epochs_world *w, int slot, tutti_membership_options *options, char address[8])
{
    life *const l = &w->lives[w->n_lives];

    if (w->n_lives == LIVES) {
        epochs_fail(w, "more than %d processes", LIVES);
        return NULL;
    }
    w->n_lives++;
    *l = (life){ .world = w, .id = (uint64_t)w->n_lives, .slot = slot, .alive = true };
    l->alone_since_ns = w->now_ns;
    l->ready_ns = w->now_ns + (int64_t)epochs_draw(w, 600) * MS;
    snprintf(address, 8, "s%d", slot);
    *options = (tutti_membership_options){ .run = "epochs", .id = l->id, .address = address,
                                           .heartbeat_ns = HEARTBEAT_NS, .dead_ns = w->dead_ns, .retry_ns = w->retry_ns,
                                           .boundary_ns = BOUNDARY_NS,
                                           .send = send_message, .user = l };
    push(w, (event){ .at_ns = w->now_ns + (int64_t)epochs_draw(w, 20) * MS, .from = TURN, .to = (int)(l->id - 1) });
    return l;
}

epochs_world *epochs_open(uint64_t seed, int n, bool synchronous)
{
    return epochs_open_with(seed, n, synchronous, DEAD_NS, RETRY_NS);
}

epochs_world *epochs_open_with(uint64_t seed, int n, bool synchronous, int64_t dead_ns, int64_t retry_ns)
{
    epochs_world *const w = calloc(1, sizeof *w);
    tutti_epoch *const founders = calloc(1, sizeof *founders);
    tutti_membership_options options;
    tutti_error err;
    char address[8];

    w->seed = seed;
    w->synchronous = synchronous;
    w->dead_ns = dead_ns;
    w->retry_ns = retry_ns;
    w->step_ns = 60LL * MS;
    w->latency_ns = 8LL * MS;
    w->fetch_ns = 300LL * MS;
    founders->number = 1;
    founders->step = seed % 4 == 3 ? 120 : 0; /* of a run that is resumed */
    founders->next_rank = (uint32_t)n;
    founders->n = n;
    for (int i = 0; i < n; i++) {
        tutti_member *const a = &founders->members[i];
        a->id = (uint64_t)i + 1;
        a->rank = (uint32_t)i;
        a->holds = true;
        snprintf(a->address, sizeof a->address, "s%d", i);
    }
    w->decided[1] = founders;
    w->newest = 1;
    for (int i = 0; i < n; i++) {
        life *const l = bear(w, i, &options, address);
        if (tutti_membership_found(&l->m, &options, founders, 0, &err) != TUTTI_OK)
            epochs_fail(w, "%s", err.text);
        else {
            l->step = founders->step;
            epochs_observe(w, l);
        }
    }
    return w;
}

void epochs_close(epochs_world *w)
{
    for (int k = 0; k < w->n_lives; k++)
        tutti_membership_close(w->lives[k].m);
    for (size_t k = 0; k < w->n_queue; k++)
        free(w->queue[k].bytes);
    for (int k = 0; k < w->n_votes; k++)
        free(w->votes[k].value);
    for (int k = 0; k < EPOCHS; k++)
        free(w->decided[k]);
    free(w->queue);
    free(w->votes);
    free(w);
}

/* It knows the address of one live member, if there is any. */
life *epochs_join(epochs_world *w, int slot)
{
    tutti_membership_options options;
    tutti_error err;
    char address[8], contact[8];
    const char *contacts[1] = { contact };
    life *l;

    snprintf(contact, sizeof contact, "s%d", (slot + 1) % SLOTS);
    for (int k = 0, first = (int)epochs_draw(w, SLOTS); k < SLOTS; k++) {
        const life *const x = epochs_at(w, (first + k) % SLOTS);
        if (x != NULL && x->slot != slot && tutti_membership_state_of(x->m) == TUTTI_MEMBER)
            snprintf(contact, sizeof contact, "s%d", x->slot);
    }
    l = bear(w, slot, &options, address);
    if (l != NULL && tutti_membership_join(&l->m, &options, contacts, 1, w->now_ns, &err) != TUTTI_OK)
        epochs_fail(w, "%s", err.text);
    w->joins++;
    return l;
}

void epochs_kill(epochs_world *w, life *l, bool noticed)
{
    w->deaths++;
    end(w, l, noticed);
}

void epochs_report_cuts(epochs_world *w)
{
    for (int i = 0; i < SLOTS; i++)
        for (int j = 0; j < SLOTS; j++)
            if (w->cut[i][j] && epochs_at(w, i) != NULL && epochs_at(w, j) != NULL)
                report(w, epochs_at(w, i), epochs_at(w, j));
}

void epochs_leave(epochs_world *w, life *l)
{
    l->leaves = true;
    w->leaves++;
    tutti_membership_leave(l->m, w->now_ns);
    epochs_observe(w, l);
}

void epochs_renew(epochs_world *w, life *l)
{
    tutti_membership_renew(l->m, w->now_ns);
    epochs_observe(w, l);
}

void epochs_fail_program(epochs_world *w, life *l, int64_t for_ns, int64_t most_ns)
{
    l->fails_ns = w->now_ns + for_ns;
    l->fails_for_ns = for_ns;
    l->fails_most_ns = w->now_ns + most_ns;
    epochs_leave(w, l);
}

void epochs_pause(epochs_world *w, life *l, int64_t for_ns)
{
    l->paused_until_ns = w->now_ns + for_ns;
}

void epochs_heal(epochs_world *w)
{
    memset(w->cut, 0, sizeof w->cut);
    w->loss = w->twice = w->late = 0;
    for (int k = 0; k < w->n_lives; k++)
        if (w->lives[k].paused_until_ns > w->now_ns)
            w->lives[k].paused_until_ns = w->now_ns;
}
