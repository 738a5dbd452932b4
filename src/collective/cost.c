/* cost.c: the cost model of schedules (schedule.h): walks the lists of all members in virtual
   time, as the checker walks them on symbols.

   Events in a heap: a member continues, a message may begin. A member runs until a WAIT with
   requests whose end is not known yet; a message that is ready takes both ports or is put back
   until they are free. Events are taken in order of time, members before messages, so all that
   competes for a port at a time is known when the port is assigned. Homogeneous lists with even
   slices reproduce the textbook formulas to rounding. */
#include "schedule.h"
#include <string.h>

typedef struct post {
    const tutti_step *step;
    double posted, ended;
    size_t peer_post;        /* once matched */
    uint32_t ordinal;        /* of a send: how many the member posted before */
    bool matched, done;
} post;

typedef struct member {
    const tutti_schedule *s;
    size_t next;             /* the step to perform next */
    size_t posts_made, open; /* number of posts; posts before number `open` are matched */
    uint32_t sends;          /* number of sends posted */
    double time;             /* its virtual time */
    double out_free, in_free; /* the times from which its ports are free */
    size_t missing;          /* requests of its present WAIT whose end is not known */
    post *posts;             /* [posts_made] */
} member;

typedef struct event {
    double time, ready;
    uint32_t ordinal;
    int member;              /* of a message: the sender */
    size_t post;
    bool message;
} event;

typedef struct model {
    member *members;
    int size;
    const tutti_cost *cost;
    double *free[2][2];      /* free[k][0], free[k][1]: [blocks of cost->block[k]], the times from
                                which the blocks' ports in, and out, are free */
    event *heap;             /* [n], with a capacity */
    size_t n, capacity;
    tutti_error *err;
} model;

static tutti_status no_memory(const model *m)
{
    return tutti_fail(m->err, TUTTI_ERR_MEMORY, 0, "no memory to price a schedule of %d members",
                      m->size);
}

static bool event_before(const event *a, const event *b)
{
    if (a->time != b->time)
        return a->time < b->time;
    if (a->message != b->message)
        return b->message;
    if (a->ready != b->ready)
        return a->ready < b->ready;
    if (a->ordinal != b->ordinal)
        return a->ordinal < b->ordinal;
    return a->member != b->member ? a->member < b->member : a->post < b->post;
}

static tutti_status push(model *m, event e)
{
    size_t k;

    if (m->n == m->capacity) {
        event *heap = tutti_alloc(2 * m->capacity + 64, sizeof *heap);
        if (heap == NULL)
            return no_memory(m);
        if (m->n > 0)
            memcpy(heap, m->heap, m->n * sizeof *heap);
        tutti_free(m->heap);
        m->heap = heap;
        m->capacity = 2 * m->capacity + 64;
    }
    for (k = m->n++; k > 0 && event_before(&e, &m->heap[(k - 1) / 2]); k = (k - 1) / 2)
        m->heap[k] = m->heap[(k - 1) / 2];
    m->heap[k] = e;
    return TUTTI_OK;
}

static event pop(model *m)
{
    const event first = m->heap[0], last = m->heap[--m->n];
    size_t k = 0;

    for (size_t child = 1; child < m->n; child = 2 * k + 1) {
        if (child + 1 < m->n && event_before(&m->heap[child + 1], &m->heap[child]))
            child++;
        if (!event_before(&m->heap[child], &last))
            break;
        m->heap[k] = m->heap[child];
        k = child;
    }
    if (m->n > 0)
        m->heap[k] = last;
    return first;
}

static double bytes_of(const model *m, const tutti_step *step)
{
    return (double)step->count * (double)m->cost->element;
}

static tutti_status make_post(model *m, int i, const tutti_step *step)
{
    member *const me = &m->members[i], *const peer = &m->members[step->peer];
    const size_t k = me->posts_made++;
    const bool send = step->kind == TUTTI_STEP_SEND;

    me->posts[k] = (post){ .step = step, .posted = me->time, .ordinal = send ? me->sends++ : 0 };
    while (peer->open < peer->posts_made && peer->posts[peer->open].matched)
        peer->open++;
    for (size_t l = peer->open; l < peer->posts_made; l++) {
        post *const other = &peer->posts[l];
        double ready;
        if (other->matched || other->step->peer != i || other->step->kind == step->kind ||
            other->step->round != step->round)
            continue;
        other->matched = me->posts[k].matched = true;
        other->peer_post = k;
        me->posts[k].peer_post = l;
        ready = other->posted > me->time ? other->posted : me->time;
        return push(m, (event){ ready, ready, send ? me->posts[k].ordinal : other->ordinal,
                                send ? i : step->peer, send ? k : l, true });
    }
    return TUTTI_OK;
}

/* Its present WAIT is over. */
static tutti_status end_wait(model *m, int i)
{
    member *const me = &m->members[i];
    const tutti_step *const wait = &me->s->steps[me->next++];

    for (size_t k = wait->first; k < wait->first + wait->n; k++)
        me->time = me->posts[k].ended > me->time ? me->posts[k].ended : me->time;
    return push(m, (event){ .time = me->time, .ready = me->time, .member = i });
}

static tutti_status run_member(model *m, int i)
{
    member *const me = &m->members[i];

    for (; me->next < me->s->n_steps; me->next++) {
        const tutti_step *const step = &me->s->steps[me->next];
        if (step->kind == TUTTI_STEP_SEND || step->kind == TUTTI_STEP_RECV)
            TUTTI_TRY(make_post(m, i, step));
        else if (step->kind == TUTTI_STEP_SUM)
            me->time += m->cost->gamma * (double)(step->n - 1) * bytes_of(m, step);
        else if (step->kind == TUTTI_STEP_WAIT) {
            for (size_t k = step->first; k < step->first + step->n; k++)
                me->missing += !me->posts[k].done;
            return me->missing > 0 ? TUTTI_OK : end_wait(m, i);
        }
    }
    return TUTTI_OK;
}

static tutti_status end_post(model *m, int i, size_t k, double ended)
{
    member *const me = &m->members[i];
    const tutti_step *const at = me->next < me->s->n_steps ? &me->s->steps[me->next] : NULL;

    me->posts[k].done = true;
    me->posts[k].ended = ended;
    if (at == NULL || at->kind != TUTTI_STEP_WAIT || me->missing == 0 || k < at->first ||
        k >= at->first + at->n || --me->missing > 0)
        return TUTTI_OK;
    return end_wait(m, i);
}

static void later(double *time, double other)
{
    *time = other > *time ? other : *time;
}

static tutti_status begin_message(model *m, event e)
{
    member *const from = &m->members[e.member];
    const post *const p = &from->posts[e.post];
    const int peer = p->step->peer;
    member *const to = &m->members[peer];
    const double bytes = bytes_of(m, p->step);
    double *port[2][2] = { { NULL } }; /* of blocks on its way: out, in */
    double free = from->out_free, beta = m->cost->beta, ended;

    later(&free, to->in_free);
    for (int k = 0; k < 2; k++) {
        const int size = m->cost->block[k].size;
        if (size == 0 || e.member / size == peer / size)
            continue;
        port[k][0] = &m->free[k][1][e.member / size];
        port[k][1] = &m->free[k][0][peer / size];
        later(&free, *port[k][0]);
        later(&free, *port[k][1]);
        later(&beta, m->cost->block[k].beta);
    }
    if (free > e.time) {
        e.time = free;
        return push(m, e);
    }
    from->out_free = to->in_free = e.time + beta * bytes;
    for (int k = 0; k < 2; k++)
        if (port[k][0] != NULL)
            *port[k][0] = *port[k][1] = e.time + m->cost->block[k].beta * bytes;
    ended = e.time + (m->cost->alpha + beta * bytes);
    TUTTI_TRY(end_post(m, p->step->peer, p->peer_post, ended));
    return end_post(m, e.member, e.post, ended);
}

static tutti_status walk(model *m, const tutti_schedule *const *lists, double *times)
{
    for (int k = 0; k < 2; k++)
        for (int way = 0; way < 2 && m->cost->block[k].size > 0; way++) {
            m->free[k][way] =
                tutti_alloc((size_t)(m->size / m->cost->block[k].size) + 1, sizeof(double));
            if (m->free[k][way] == NULL)
                return no_memory(m);
        }
    for (int i = 0; i < m->size; i++) {
        member *const me = &m->members[i];
        me->s = lists[i];
        me->time = m->cost->arrival != NULL ? m->cost->arrival[i] : 0;
        me->posts = tutti_alloc(lists[i]->requests + 1, sizeof *me->posts);
        if (me->posts == NULL)
            return no_memory(m);
        TUTTI_TRY(push(m, (event){ .time = me->time, .ready = me->time, .member = i }));
    }
    while (m->n > 0) {
        const event e = pop(m);
        TUTTI_TRY(e.message ? begin_message(m, e) : run_member(m, e.member));
    }
    for (int i = 0; i < m->size; i++) {
        if (m->members[i].next < lists[i]->n_steps)
            return tutti_fail(
                m->err, TUTTI_ERR_STATE, 0,
                "list of member %d of %d, %s '%s', step %zu: deadlock: the wait never ends", i,
                m->size, tutti_collective_name(lists[i]->key.kind),
                tutti_algorithms[lists[i]->key.algorithm].name, m->members[i].next);
        times[i] = m->members[i].time;
    }
    return TUTTI_OK;
}

tutti_status tutti_schedule_cost(const tutti_schedule *const *lists, int size,
                                 const tutti_cost *cost, double *times, tutti_error *err)
{
    model m = { .size = size, .cost = cost, .err = err };
    tutti_status status;

    memset(times, 0, (size_t)size * sizeof *times);
    m.members = tutti_alloc((size_t)size, sizeof *m.members);
    status = m.members == NULL ? no_memory(&m) : walk(&m, lists, times);
    for (int i = 0; i < size && m.members != NULL; i++)
        tutti_free(m.members[i].posts);
    for (int k = 0; k < 4; k++)
        tutti_free(m.free[k / 2][k % 2]);
    tutti_free(m.members);
    tutti_free(m.heap);
    return status;
}
