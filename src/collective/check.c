/* check.c: the checker of schedules: runs the lists of all members of a group on symbols instead
   of numbers.

   An element's symbol is a number of a table of expressions: leaf (v, member) is what member's
   VECTOR (or PART) held there at the start, node (l, r) the sum of two expressions. Equal
   expressions have equal numbers, so "every member once, in the canonical order" is one
   comparison. For algorithms with an order of their own the leaves of the expression are counted,
   and all members must end with the same expression. Leaves do not name the element, so a list that
   confused elements could end with the right expressions. Therefore each cell also has the number
   of its element.

   Rendezvous: a member runs until a WAIT whose requests are not all done; a pair is done when
   both ends have posted. When no member can run and one has steps left, that is a deadlock. Cells
   under a posted send may not be written, cells under a posted receive may not be touched, until
   the WAIT. */
#include "schedule.h"
#include <string.h>

#define NOTHING 0u /* the symbol of undefined memory */

typedef struct cell {
    uint32_t symbol;
    uint32_t readers;      /* posted sends that cover it */
    bool written;          /* a posted receive covers it */
    size_t element;
} cell;

typedef struct node {
    uint32_t left, right;  /* leaf: left = member, right = UINT32_MAX */
} node;

typedef struct post {
    const tutti_step *step;
    bool done, waited;
} post;

typedef struct member {
    const tutti_schedule *s;
    size_t next;           /* the step to perform next */
    size_t posted, open;   /* number of posts; posts before number `open` are done */
    cell *memory[3];       /* VECTOR, PART, SCRATCH: [cells] of each */
    size_t cells[3];
    post *posts;           /* [posted] */
} member;

typedef struct checker {
    member *members;
    int size;
    node *nodes;                 /* [n_nodes], with a capacity: the table of expressions */
    uint32_t n_nodes, capacity;
    uint32_t *buckets;           /* [2 * capacity]: the first expression of each hash; 0: none */
    /* [capacity]: chain[k] is the next one with the hash of k; 0: none */
    uint32_t *chain;
    uint32_t proved;             /* the last expression whose leaves were counted, and were right */
    tutti_error *err;
} checker;

static tutti_status wrong(const checker *c, int i, const char *what)
{
    const member *m = &c->members[i];
    const tutti_schedule_key *key = &m->s->key;

    return tutti_fail(c->err, TUTTI_ERR_STATE, 0,
                      "list of member %d of %d, %s '%s' of %zu elements, step %zu: %s", i, c->size,
                      tutti_collective_name(key->kind), tutti_algorithms[key->algorithm].name,
                      key->count, m->next, what);
}

static uint32_t *bucket_of(const checker *c, uint32_t left, uint32_t right)
{
    const uint32_t words[2] = { left, right };

    return &c->buckets[tutti_hash(words, sizeof words) % (2 * (uint64_t)c->capacity)];
}

static bool grow_nodes(checker *c, uint32_t capacity)
{
    node *nodes = tutti_alloc(capacity, sizeof *nodes);
    uint32_t *buckets = tutti_alloc(2 * (size_t)capacity, sizeof *buckets);
    uint32_t *chain = tutti_alloc(capacity, sizeof *chain);

    if (nodes == NULL || buckets == NULL || chain == NULL) {
        tutti_free(nodes);
        tutti_free(buckets);
        tutti_free(chain);
        return false;
    }
    if (c->n_nodes > 1)
        memcpy(nodes, c->nodes, c->n_nodes * sizeof *nodes);
    tutti_free(c->nodes);
    tutti_free(c->buckets);
    tutti_free(c->chain);
    c->nodes = nodes;
    c->buckets = buckets;
    c->chain = chain;
    c->capacity = capacity;
    for (uint32_t k = 1; k < c->n_nodes; k++) {
        uint32_t *bucket = bucket_of(c, nodes[k].left, nodes[k].right);
        chain[k] = *bucket;
        *bucket = k;
    }
    return true;
}

/* Number of the expression (left, right); 0 when there is no memory. */
static uint32_t expression(checker *c, uint32_t left, uint32_t right)
{
    uint32_t *bucket;

    for (uint32_t k = *bucket_of(c, left, right); k != 0; k = c->chain[k])
        if (c->nodes[k].left == left && c->nodes[k].right == right)
            return k;
    if (c->n_nodes == c->capacity && !grow_nodes(c, 2 * c->capacity))
        return 0;
    bucket = bucket_of(c, left, right);
    c->nodes[c->n_nodes] = (node){ left, right };
    c->chain[c->n_nodes] = *bucket;
    *bucket = c->n_nodes;
    return c->n_nodes++;
}

/* A leaf's `right` cannot be an expression's number. */
static uint32_t leaf(checker *c, int i)
{
    return expression(c, (uint32_t)i, UINT32_MAX);
}

/* The definition itself (one order of summation), written literally. */
static uint32_t tree(checker *c, const uint32_t *terms, size_t n)
{
    size_t half = 1;

    if (n == 1)
        return terms[0];
    while (2 * half < n)
        half *= 2;
    return expression(c, tree(c, terms, half), tree(c, terms + half, n - half));
}

static cell *cells_at(const checker *c, int i, tutti_ref ref, size_t count)
{
    const member *m = &c->members[i];

    if (ref.at > m->cells[ref.place] || count > m->cells[ref.place] - ref.at)
        return NULL;
    return m->memory[ref.place] + ref.at;
}

/* Checks a term of a sum. element: of the terms before; NULL: it is the first. */
static tutti_status check_term(checker *c, int i, const cell *from, const size_t *element)
{
    if (from == NULL)
        return wrong(c, i, "a term outside the memory");
    if (from->written)
        return wrong(c, i, "a term is still being received");
    if (from->symbol == NOTHING)
        return wrong(c, i, "a term is undefined");
    return element != NULL && from->element != *element ? wrong(c, i, "a sum of different elements")
                                                        : TUTTI_OK;
}

/* Checks that nothing in flight reads or writes a cell that a sum is written to. */
static tutti_status check_free(checker *c, int i, const cell *to)
{
    return to->readers > 0 || to->written ? wrong(c, i, "a sum written over memory in flight")
                                          : TUTTI_OK;
}

static tutti_status sum_step(checker *c, int i, const tutti_step *step)
{
    const member *m = &c->members[i];
    cell *to = cells_at(c, i, step->to, step->count);
    tutti_status status = TUTTI_OK;
    uint32_t *terms;

    if (to == NULL || step->n == 0 || step->first + step->n > m->s->n_terms)
        return wrong(c, i, "a sum outside the memory or without terms");
    terms = tutti_alloc(step->n, sizeof *terms);
    if (terms == NULL)
        return tutti_fail(c->err, TUTTI_ERR_MEMORY, 0, "no memory to check a schedule");
    for (size_t e = 0; e < step->count && status == TUTTI_OK; e++) {
        size_t element = 0;
        for (size_t k = 0; k < step->n && status == TUTTI_OK; k++) {
            const cell *from = cells_at(c, i, m->s->terms[step->first + k], step->count);
            status = check_term(c, i, from == NULL ? NULL : &from[e], k == 0 ? NULL : &element);
            if (status == TUTTI_OK) {
                terms[k] = from[e].symbol;
                element = from[e].element;
            }
        }
        if (status == TUTTI_OK)
            status = check_free(c, i, &to[e]);
        if (status == TUTTI_OK) {
            to[e].symbol = tree(c, terms, step->n);
            to[e].element = element;
        }
    }
    tutti_free(terms);
    return status;
}

static tutti_status copy_step(checker *c, int i, const tutti_step *step)
{
    cell *to = cells_at(c, i, step->to, step->count),
         *from = cells_at(c, i, step->from, step->count);

    if (to == NULL || from == NULL)
        return wrong(c, i, "a copy outside the memory");
    for (size_t e = 0; e < step->count; e++) {
        if (from[e].written || to[e].written || to[e].readers > 0)
            return wrong(c, i, "a copy of memory in flight");
        to[e].symbol = from[e].symbol;
        to[e].element = from[e].element;
    }
    return TUTTI_OK;
}

static tutti_status post_step(checker *c, int i, const tutti_step *step)
{
    const bool send = step->kind == TUTTI_STEP_SEND;
    member *m = &c->members[i];
    cell *cells = cells_at(c, i, send ? step->from : step->to, step->count);

    if (cells == NULL)
        return wrong(c, i, "a message outside the memory");
    if (step->peer < 0 || step->peer >= c->size || step->peer == i)
        return wrong(c, i, "a message to itself or to no member");
    if (m->posted == m->s->requests)
        return wrong(c, i, "more messages than the list declares");
    for (size_t e = 0; e < step->count; e++) {
        if (cells[e].written || (!send && cells[e].readers > 0))
            return wrong(c, i, "a message from or to memory in flight");
        if (send && cells[e].symbol == NOTHING)
            return wrong(c, i, "undefined memory is sent");
        if (send)
            cells[e].readers++;
        else
            cells[e].written = true;
    }
    m->posts[m->posted++] = (post){ .step = step };
    return TUTTI_OK;
}

/* Pairs what can be paired of sender i's posts. */
static tutti_status match(checker *c, int i, bool *moved)
{
    member *m = &c->members[i];

    while (m->open < m->posted && m->posts[m->open].done)
        m->open++;
    for (size_t k = m->open; k < m->posted; k++) {
        const tutti_step *out = m->posts[k].step;
        member *peer;
        if (m->posts[k].done || out->kind != TUTTI_STEP_SEND)
            continue;
        peer = &c->members[out->peer];
        for (size_t l = peer->open; l < peer->posted; l++) {
            const tutti_step *in = peer->posts[l].step;
            const cell *from;
            cell *to;
            if (peer->posts[l].done || in->kind != TUTTI_STEP_RECV || in->peer != i ||
                in->round != out->round)
                continue;
            if (in->count != out->count)
                return wrong(c, i, "a message of another length than its receipt");
            from = cells_at(c, i, out->from, out->count);
            to = cells_at(c, out->peer, in->to, in->count);
            for (size_t e = 0; e < out->count; e++) {
                to[e].symbol = from[e].symbol;
                to[e].element = from[e].element;
            }
            m->posts[k].done = peer->posts[l].done = *moved = true;
            break;
        }
    }
    return TUTTI_OK;
}

static tutti_status wait_step(checker *c, int i, const tutti_step *step, bool *blocked)
{
    member *m = &c->members[i];

    if (step->first + step->n > m->posted)
        return wrong(c, i, "a wait for what is not posted");
    for (size_t k = step->first; k < step->first + step->n; k++)
        if (!m->posts[k].done) {
            *blocked = true;
            return TUTTI_OK;
        }
    for (size_t k = step->first; k < step->first + step->n; k++) {
        const tutti_step *message = m->posts[k].step;
        const bool send = message->kind == TUTTI_STEP_SEND;
        cell *cells = cells_at(c, i, send ? message->from : message->to, message->count);
        if (m->posts[k].waited)
            return wrong(c, i, "a second wait for one request");
        m->posts[k].waited = true;
        for (size_t e = 0; e < message->count; e++) {
            if (send)
                cells[e].readers--;
            else
                cells[e].written = false;
        }
    }
    return TUTTI_OK;
}

static tutti_status run_member(checker *c, int i, bool *moved)
{
    member *m = &c->members[i];

    while (m->next < m->s->n_steps) {
        const tutti_step *step = &m->s->steps[m->next];
        bool blocked = false;
        switch (step->kind) {
        case TUTTI_STEP_SEND:
        case TUTTI_STEP_RECV:
            TUTTI_TRY(post_step(c, i, step));
            break;
        case TUTTI_STEP_WAIT:
            TUTTI_TRY(wait_step(c, i, step, &blocked));
            break;
        case TUTTI_STEP_SUM:
            TUTTI_TRY(sum_step(c, i, step));
            break;
        case TUTTI_STEP_COPY:
            TUTTI_TRY(copy_step(c, i, step));
            break;
        }
        if (blocked)
            return TUTTI_OK;
        m->next++;
        *moved = true;
    }
    return TUTTI_OK;
}

/* Sets seen[j] for each leaf (member j) of an expression. Returns whether it has at most *budget
   nodes, which are subtracted, and no leaf twice. seen: [members]. */
static bool count_leaves(const checker *c, uint32_t symbol, bool *seen, int *budget)
{
    const node *at = &c->nodes[symbol];

    if (symbol == NOTHING || --*budget < 0)
        return false;
    if (at->right != UINT32_MAX)
        return count_leaves(c, at->left, seen, budget) && count_leaves(c, at->right, seen, budget);
    if (seen[at->left])
        return false;
    seen[at->left] = true;
    return true;
}

/* Any order: every member once, and what member 0 has. */
static tutti_status check_any_order(checker *c, int i)
{
    const cell *mine = c->members[i].memory[TUTTI_IN_VECTOR],
               *first = c->members[0].memory[TUTTI_IN_VECTOR];
    bool *seen = tutti_alloc((size_t)c->size, sizeof *seen);
    tutti_status status = TUTTI_OK;

    if (seen == NULL)
        return tutti_fail(c->err, TUTTI_ERR_MEMORY, 0, "no memory to check a schedule");
    for (size_t e = 0; e < c->members[i].s->key.count && status == TUTTI_OK; e++) {
        if (mine[e].element != e || mine[e].symbol == NOTHING)
            status = wrong(c, i, "an element does not end as promised");
        else if (mine[e].symbol != first[e].symbol)
            status = wrong(c, i, "an element ends as another sum than on member 0");
        else if (mine[e].symbol != c->proved) {
            int budget = 2 * c->size - 1, leaves = 0; /* nodes of a tree with a leaf a member */
            const bool once = count_leaves(c, mine[e].symbol, seen, &budget);
            for (int j = 0; j < c->size; j++) {
                leaves += seen[j];
                seen[j] = false;
            }
            if (!once || leaves != c->size)
                status = wrong(c, i, "an element does not have every member once");
            c->proved = mine[e].symbol;
        }
    }
    tutti_free(seen);
    return status;
}

/* First element of part j of member i's whole; of `size`: their sum. side 1: of what an all-to-all
   receives. */
static size_t part_at(const tutti_schedule_key *key, int side, int j)
{
    size_t at = 0;

    if (key->counts == NULL)
        return key->count * (size_t)j;
    for (int k = 0; k < j; k++)
        at += key->counts[(side == 0 ? 0 : key->size) + k];
    return at;
}

/* Elements of an all-to-all are identified by the member they are for and their place in that
   part. */
static size_t bound_for(int j, size_t e)
{
    return ((size_t)j << 32) + e;
}

/* part[0, count) of member i: symbol, and elements from `element`. */
static tutti_status check_cells(const checker *c, int i, const cell *part, size_t count,
                                uint32_t symbol, size_t element)
{
    for (size_t e = 0; e < count; e++)
        if (part[e].symbol != symbol || part[e].element != element + e)
            return wrong(c, i, "an element does not end as promised");
    return TUTTI_OK;
}

/* Checks the kinds with a root or with parts. */
static tutti_status check_parts(const checker *c, int i, const uint32_t *leaves, uint32_t sum)
{
    const member *m = &c->members[i];
    const tutti_schedule_key *key = &m->s->key;
    const size_t mine = part_at(key, 0, i), count = part_at(key, 0, i + 1) - mine;

    if (key->kind == TUTTI_REDUCE_SCATTER)
        return check_cells(c, i, m->memory[TUTTI_IN_PART], count, sum, mine);
    if (key->kind == TUTTI_SCATTER)
        return check_cells(c, i, m->memory[TUTTI_IN_PART], count, leaves[key->root], mine);
    if (key->kind == TUTTI_REDUCE)
        return check_cells(c, i, m->memory[TUTTI_IN_VECTOR], i == key->root ? key->count : 0, sum,
                           0);
    for (int j = 0; j < c->size; j++) {
        const int side = key->kind == TUTTI_ALLTOALL;
        const size_t at = part_at(key, side, j), n = part_at(key, side, j + 1) - at;
        if (key->kind == TUTTI_ALLTOALL)
            TUTTI_TRY(
                check_cells(c, i, m->memory[TUTTI_IN_PART] + at, n, leaves[j], bound_for(i, 0)));
        else if (key->kind == TUTTI_ALLGATHER || i == key->root)
            TUTTI_TRY(check_cells(c, i, m->memory[TUTTI_IN_VECTOR] + at, n, leaves[j], at));
    }
    return TUTTI_OK;
}

/* Checks what the kind promises, after the last step. */
static tutti_status check_results(checker *c, int i)
{
    const member *m = &c->members[i];
    const tutti_schedule_key *key = &m->s->key;
    const bool any = (tutti_algorithms[key->algorithm].traits & TUTTI_ANY_ORDER) != 0;
    uint32_t *leaves = tutti_alloc((size_t)c->size, sizeof *leaves), sum;
    tutti_status status = TUTTI_OK;

    if (leaves == NULL)
        return tutti_fail(c->err, TUTTI_ERR_MEMORY, 0, "no memory to check a schedule");
    for (int j = 0; j < c->size; j++)
        leaves[j] = leaf(c, j);
    sum = tree(c, leaves, (size_t)c->size);
    for (size_t k = 0; k < m->s->requests; k++)
        if (!m->posts[k].waited)
            status = wrong(c, i, "a request that no step waits for");
    if (status == TUTTI_OK && any)
        status = check_any_order(c, i);
    else if (status == TUTTI_OK && (key->kind == TUTTI_ALLREDUCE || key->kind == TUTTI_BROADCAST))
        status = check_cells(c, i, m->memory[TUTTI_IN_VECTOR], key->count,
                             key->kind == TUTTI_BROADCAST ? leaves[key->root] : sum, 0);
    else if (status == TUTTI_OK && key->kind != TUTTI_BARRIER)
        status = check_parts(c, i, leaves, sum);
    tutti_free(leaves);
    return status;
}

/* Gives each cell of a member's input its symbol and element. */
static void fill_input(checker *c, const tutti_schedule_key *key, int i, uint32_t mine)
{
    member *m = &c->members[i];
    const bool to_all = key->kind == TUTTI_ALLTOALL;
    const bool gathers =
        key->kind == TUTTI_ALLGATHER || key->kind == TUTTI_GATHER; /* PART is the input */
    const size_t own = part_at(key, 0, i);
    for (size_t e = 0; e < m->cells[TUTTI_IN_VECTOR] && !gathers; e++) {
        m->memory[TUTTI_IN_VECTOR][e].symbol = mine;
        m->memory[TUTTI_IN_VECTOR][e].element = e;
    }
    for (int j = 0; j < c->size && to_all; j++)
        for (size_t e = part_at(key, 0, j), end = part_at(key, 0, j + 1), first = e; e < end; e++)
            m->memory[TUTTI_IN_VECTOR][e].element = bound_for(j, e - first);
    for (size_t e = 0; e < m->cells[TUTTI_IN_PART] && gathers; e++) {
        m->memory[TUTTI_IN_PART][e].symbol = mine;
        m->memory[TUTTI_IN_PART][e].element = own + e;
    }
}

static tutti_status prepare(checker *c, const tutti_schedule *const *lists, int i)
{
    member *m = &c->members[i];
    const tutti_schedule_key *key = &lists[i]->key;
    const bool parts = tutti_counts_of(key->kind, c->size) > 0,
               to_all = key->kind == TUTTI_ALLTOALL;
    const bool rooted = key->kind == TUTTI_GATHER || key->kind == TUTTI_SCATTER;
    const size_t own = part_at(key, 0, i);
    const uint32_t mine = leaf(c, i);

    m->s = lists[i];
    m->cells[TUTTI_IN_VECTOR] = !parts                     ? key->count
                                : rooted && i != key->root ? 0
                                                           : part_at(key, 0, c->size);
    m->cells[TUTTI_IN_PART] = to_all  ? part_at(key, 1, c->size)
                              : parts ? part_at(key, 0, i + 1) - own
                                      : 0;
    m->cells[TUTTI_IN_SCRATCH] = lists[i]->scratch;
    m->posts = tutti_alloc(lists[i]->requests + 1, sizeof *m->posts);
    for (int place = 0; place < 3; place++) {
        m->memory[place] = tutti_alloc(m->cells[place] + 1, sizeof(cell));
        if (m->memory[place] == NULL)
            return tutti_fail(c->err, TUTTI_ERR_MEMORY, 0, "no memory to check a schedule");
    }
    if (m->posts == NULL || mine == 0)
        return tutti_fail(c->err, TUTTI_ERR_MEMORY, 0, "no memory to check a schedule");
    fill_input(c, key, i, mine);
    return TUTTI_OK;
}

static tutti_status check_lists(checker *c, const tutti_schedule *const *lists)
{
    bool moved = true;

    for (int i = 0; i < c->size; i++)
        TUTTI_TRY(prepare(c, lists, i));
    while (moved) {
        moved = false;
        for (int i = 0; i < c->size; i++)
            TUTTI_TRY(run_member(c, i, &moved));
        for (int i = 0; i < c->size; i++)
            TUTTI_TRY(match(c, i, &moved));
    }
    for (int i = 0; i < c->size; i++)
        if (c->members[i].next < c->members[i].s->n_steps)
            return wrong(c, i, "deadlock: the wait never ends");
    for (int i = 0; i < c->size; i++)
        TUTTI_TRY(check_results(c, i));
    return TUTTI_OK;
}

tutti_status tutti_schedule_check(const tutti_schedule *const *lists, int size, tutti_error *err)
{
    checker c = { .size = size, .n_nodes = 1, .err = err };
    tutti_status status;

    c.members = tutti_alloc((size_t)size, sizeof *c.members);
    if (c.members == NULL || !grow_nodes(&c, 64))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to check a schedule");
    else
        status = check_lists(&c, lists);
    for (int i = 0; i < size && c.members != NULL; i++) {
        for (int place = 0; place < 3; place++)
            tutti_free(c.members[i].memory[place]);
        tutti_free(c.members[i].posts);
    }
    tutti_free(c.members);
    tutti_free(c.nodes);
    tutti_free(c.buckets);
    tutti_free(c.chain);
    return status;
}

void tutti_schedule_sent(const tutti_schedule *s, int to, uint64_t *elements, uint64_t *messages)
{
    *elements = *messages = 0;
    for (size_t k = 0; k < s->n_steps; k++)
        if (s->steps[k].kind == TUTTI_STEP_SEND && s->steps[k].peer == to) {
            *elements += s->steps[k].count;
            ++*messages;
        }
}
