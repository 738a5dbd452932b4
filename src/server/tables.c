/* tables.c: servers of tables only (server.h), for methods that exchange all other tensors. They
   are the sparse half of Kim et al., "Parallax", EuroSys 2019, sections 3.1 and 3.2: rows that a
   worker has touched go to the server that has them, are summed and applied there, and come back
   only to the workers that read them. With n workers that each touch alpha of a table of w bytes
   a worker sends alpha w (n-1)/n up and gets as much; in a gather of rows it sends alpha w (n-1).

   Server k has its part of each table, split as any range is (parts.c), and the run's optimiser
   over it. A push is kept until all have pushed that chunk; the last is summed in place.
   Gradients include their weights, so sums are plain, and by rank: the bits of src/engine/rows.c.
   A worker is answered after the update, and reads after that. So reads and updates of a step
   never overlap at a server, and it needs no versions.

   Memory of a table's values and slots is SCRATCH: at quiescence the workers gather them into x
   and m->optim, and they are sent back from there. Otherwise a checkpoint would have two models,
   one of them old. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server_internal.h"
#include "engine/facility.h"
#include "optim/optim.h"
#include "server.h"
#include "tables.h"

enum { TREE_MOST = 4096 };      /* tutti_tree_sum's */
enum { STATES = 1 + TUTTI_SLOTS_MAX }; /* of a table: its values, and the optimiser's slots */

/* A chunk of this server's part of a table, in one step. */
typedef struct sum {
    uint64_t step;
    int chunks, arrived;         /* number of the table's chunks; contributions that have arrived */
    bool *has;                   /* [contributors]: its contribution has arrived */
    tutti_header *note;          /* [contributors]: header of the request that brought it */
    float **part;                /* [contributors]: the contribution's address */
} sum;
typedef struct table {
    bool here;                   /* at servers: declared so, and not taken back */
    size_t first, count;         /* this server's part */
    float *values;               /* [count] */
    tutti_optim *optim;
    size_t at;                   /* offset of its part in each contributor's words */
    sum *sum;                    /* [TUTTI_SERVER_CHUNKS] */
} table;
struct tutti_server_tables {
    tutti_method *m;
    tutti_server *server;
    int node, contributors;
    table *table;                /* [n_tensors] */
    uint8_t *taken;              /* [n_tensors], declared: taken back by the workers; NULL: no table
                                    was ever at servers */
    float *contributions;        /* [contributors][words] */
    size_t words;                /* words of this server's parts of all tables */
    float *zeros;                /* for optimisers that need every row */
    int *peers;                  /* [node]: ranks of this node */
    tutti_group inside;          /* their group */
    size_t *part_of;             /* [workers]: elements of a table that each serves */
    tutti_group workers;
    int *hearers;                /* [dedicated servers][workers + 1]: the workers and the server */
    tutti_group *hear;           /* [dedicated servers]: their group */
    int *pair;                   /* [dedicated servers][2]: worker 0 and the server */
    tutti_group *tell;           /* [dedicated servers]: their group */
};

/* ---- from declare to close ---- */

/* Words of a table's chunks, of one contributor. */
static size_t words_of(const tutti_server_tables *s, const table *t)
{
    const tutti_slice slice = tutti_slice_of(s->m, t->first, t->count);
    return t->count == 0 ? 0 : (slice.count + slice.ids + TUTTI_SERVER_CHUNKS + 15) / 16 * 16;
}

static tutti_status declare_table(tutti_server_tables *s, tutti_plan *plan, int i, tutti_error *err)
{
    const tutti_tensor *t = &s->m->layout->tensor[i];
    table *mine = &s->table[i];
    char name[64];

    mine->here = true;
    tutti_engine_rows_away(s->m->engine, i, true);
    if (tutti_server_index(s->server) >= 0)
        mine->count = tutti_server_part(s->server, tutti_server_index(s->server), t->first,
                                        t->count, &mine->first);
    snprintf(name, sizeof name, "server.table-%d", i);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = name, .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = mine->count },
        &mine->values);
    TUTTI_TRY(tutti_optim_declare(&mine->optim, plan, tutti_engine_optimizer(s->m->engine), name,
                                  mine->first, mine->count, TUTTI_SCRATCH, s->m->device, err));
    mine->at = s->words;
    s->words += words_of(s, mine);
    return TUTTI_OK;
}

static tutti_status declare_tables(tutti_server_tables *s, tutti_plan *plan, tutti_error *err)
{
    tutti_method *m = s->m;
    size_t largest = 0;
    bool any = false;

    for (int i = 0; i < m->layout->n_tensors && m->workers > 1; i++)
        any = any || tutti_engine_rows_asked(m->engine, i);
    if (any)
        TUTTI_TRY(tutti_engine_updates_elsewhere(m->engine, err));
    for (int i = 0; i < m->layout->n_tensors; i++) {
        if (any && tutti_engine_rows_asked(m->engine, i))
            TUTTI_TRY(declare_table(s, plan, i, err));
        else if (tutti_engine_rows_asked(m->engine, i)) /* a single worker: x has everything */
            tutti_engine_rows_away(m->engine, i, false);
        largest = s->table[i].count > largest ? s->table[i].count : largest;
    }
    tutti_declare(plan,
                  &(tutti_state){ .name = "server.contributions",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = (size_t)s->contributors * s->words },
                  &s->contributions);
    tutti_declare(plan,
                  &(tutti_state){ .name = "server.zeros", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32,
                                  .count = tutti_optim_by_rows(m->optim) ? 0 : largest },
                  &s->zeros);
    if (any)
        tutti_declare(plan,
                      &(tutti_state){ .name = "server.taken", .keep = TUTTI_SAME, .dtype = TUTTI_U8,
                                      .count = (size_t)m->layout->n_tensors, .late = true },
                      &s->taken);
    return TUTTI_OK;
}

static const tutti_facility_ops facility; /* at the end */

tutti_status tutti_server_tables_declare(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                         int service, int servers, int node, tutti_error *err)
{
    const tutti_server_setup setup = {
        .service = service, .servers = servers, .pieces = true, .tables = true
    };
    tutti_server_tables *s;

    *out = NULL;
    if (m->workers > TREE_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': %d workers; a server sums the gradients of at most %d",
                          m->ops->name, m->workers, TREE_MOST);
    /* opened before this facility, closed after it */
    TUTTI_TRY(tutti_server_declare(out, m, plan, &setup, err));
    s = (*out)->tables = tutti_alloc(1, sizeof *s);
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the tables of method '%s'",
                          m->ops->name);
    s->m = m;
    s->server = *out;
    s->node = node;
    s->contributors = m->workers / node;
    tutti_facility_add(m, &facility, s);
    s->table = tutti_alloc((size_t)m->layout->n_tensors, sizeof *s->table);
    if (s->table == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the tables of method '%s'",
                          m->ops->name);
    return declare_tables(s, plan, err);
}

bool tutti_server_has_table(const tutti_server *s, int tensor)
{
    return s->tables->table[tensor].here;
}

float *tutti_server_table(const tutti_server *s, int tensor, size_t *first, size_t *count)
{
    const table *t = &s->tables->table[tensor];

    *first = t->first;
    *count = t->count;
    return t->count > 0 ? t->values : NULL;
}

static bool open_sum(const tutti_server_tables *s, sum *of)
{
    of->has = tutti_alloc((size_t)s->contributors, sizeof *of->has);
    of->note = tutti_alloc((size_t)s->contributors, sizeof *of->note);
    of->part = tutti_alloc((size_t)s->contributors, sizeof *of->part);
    return of->has != NULL && of->note != NULL && of->part != NULL;
}

static bool open_groups(tutti_server_tables *s)
{
    const tutti_method *m = s->m;
    const int only = m->servers, workers = m->workers;
    const size_t room = (size_t)only + 1; /* `only` may be 0 */

    s->peers = tutti_alloc((size_t)s->node, sizeof *s->peers);
    s->part_of = tutti_alloc((size_t)workers, sizeof *s->part_of);
    s->hear = tutti_alloc(room, sizeof *s->hear);
    s->tell = tutti_alloc(room, sizeof *s->tell);
    s->pair = tutti_alloc(2 * room, sizeof *s->pair);
    s->hearers = tutti_alloc(room * ((size_t)workers + 1), sizeof *s->hearers);
    if (s->peers == NULL || s->part_of == NULL || s->hear == NULL || s->tell == NULL ||
        s->pair == NULL || s->hearers == NULL)
        return false;
    s->workers = tutti_group_keyed(&m->all, tutti_port_of("tables come to rest", 0, 0), 0);
    for (int u = 0; u < s->node && m->rank < workers; u++)
        s->peers[u] = m->rank / s->node * s->node + u;
    if (m->rank < workers)
        s->inside =
            tutti_group_of(m->world, s->peers, s->node, tutti_port_of("rows inside a node", 0, 0));
    for (int k = 0; k < only; k++) {
        int *const who = s->hearers + k * (workers + 1), *const two = s->pair + 2 * k;
        for (int r = 0; r < workers; r++)
            who[r] = r;
        who[workers] = two[1] = workers + k;
        two[0] = 0;
        if (m->rank < workers || m->rank == workers + k)
            s->hear[k] = tutti_group_of(m->world, who, workers + 1,
                                        tutti_port_of("tables come to rest", (uint64_t)k, 1));
        if (m->rank == 0 || m->rank == workers + k)
            s->tell[k] =
                tutti_group_of(m->world, two, 2, tutti_port_of("tables begin", (uint64_t)k, 0));
    }
    return true;
}

static tutti_status open_tables(void *self, tutti_error *err)
{
    tutti_server_tables *s = self;
    bool enough = open_groups(s);

    for (int i = 0; i < s->m->layout->n_tensors && enough; i++) {
        if (s->table[i].count == 0)
            continue;
        s->table[i].sum = tutti_alloc(TUTTI_SERVER_CHUNKS, sizeof *s->table[i].sum);
        enough = s->table[i].sum != NULL;
        for (int j = 0; j < TUTTI_SERVER_CHUNKS && enough; j++)
            enough = open_sum(s, &s->table[i].sum[j]);
    }
    return enough ? TUTTI_OK
                  : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the tables of method '%s'",
                               s->m->ops->name);
}

static void close_tables(void *self)
{
    tutti_server_tables *s = self;

    for (int i = 0; i < s->m->layout->n_tensors && s->table != NULL; i++) {
        for (int j = 0; j < TUTTI_SERVER_CHUNKS && s->table[i].sum != NULL; j++) {
            tutti_free(s->table[i].sum[j].has);
            tutti_free(s->table[i].sum[j].note);
            tutti_free(s->table[i].sum[j].part);
        }
        tutti_free(s->table[i].sum);
        tutti_optim_close(s->table[i].optim);
    }
    tutti_free(s->table);
    tutti_free(s->peers);
    tutti_free(s->part_of);
    tutti_free(s->hear);
    tutti_free(s->tell);
    tutti_free(s->pair);
    tutti_free(s->hearers);
    tutti_free(s);
}

/* ---- at quiescence: the workers' x and m->optim have what the servers have ---- */

/* From element 0 of the flat space on: x, or slot k - 1 of the run's optimiser; NULL: there is
   none. */
static float *flat(const tutti_server_tables *s, int k)
{
    return k == 0 ? s->m->x : s->m->optim->slot[k - 1];
}

static float *mine(const table *t, int k)
{
    return k == 0 ? t->values : t->optim->slot[k - 1];
}

static bool has_state(const table *t, int k)
{
    return k == 0 || k <= t->optim->ops->slots(t->optim->self);
}

/* Sends which tables are still at servers: dedicated servers learn it here. */
static tutti_status tell_taken(tutti_server_tables *s, tutti_error *err)
{
    const tutti_method *m = s->m;

    if (s->taken == NULL)
        return TUTTI_OK;
    for (int k = 0; k < m->servers; k++)
        if (m->rank == 0 || m->rank == m->workers + k)
            TUTTI_TRY(tutti_broadcast(
                &s->tell[k], 0, tutti_host(s->taken, (size_t)m->layout->n_tensors, TUTTI_U8), err));
    for (int i = 0; i < m->layout->n_tensors; i++)
        s->table[i].here = s->table[i].here && s->taken[i] == 0;
    return TUTTI_OK;
}

/* Gathers all parts of a table to all workers at once, if the servers are workers. */
static tutti_status gather_all(tutti_server_tables *s, int tensor, int state, tutti_error *err)
{
    const tutti_method *m = s->m;
    const tutti_tensor *t = &m->layout->tensor[tensor];

    memset(s->part_of, 0, (size_t)m->workers * sizeof *s->part_of);
    for (int k = 0; k < tutti_server_count(s->server); k++) {
        size_t first;
        s->part_of[s->server->member[k]] =
            tutti_server_part(s->server, k, t->first, t->count, &first);
    }
    /* uncounted: it is for checkpoints; the model is the result of a run */
    s->workers.uncounted = state > 0;
    return tutti_allgather_v(
        &s->workers, s->part_of,
        tutti_f32(m->device, mine(&s->table[tensor], state), s->part_of[m->rank]),
        tutti_f32(m->device, flat(s, state) + t->first, t->count), err);
}

/* Sends one state of the part of server k, a dedicated one, to all workers. */
static tutti_status gather_state(tutti_server_tables *s, int k, int tensor, int state,
                                 tutti_error *err)
{
    const tutti_method *m = s->m;
    const tutti_tensor *t = &m->layout->tensor[tensor];
    size_t first;
    const size_t part = tutti_server_part(s->server, k, t->first, t->count, &first);
    float *at = m->rank >= m->workers ? mine(&s->table[tensor], state) : flat(s, state) + first;

    if (part == 0 || (m->rank >= m->workers && m->rank != s->server->member[k]))
        return TUTTI_OK;
    s->hear[k].uncounted = state > 0;
    return tutti_broadcast(&s->hear[k], m->workers, tutti_f32(m->device, at, part), err);
}

static tutti_status quiesce(void *self, tutti_error *err)
{
    tutti_server_tables *s = self;
    const int only = s->m->servers;

    TUTTI_TRY(tell_taken(s, err));
    for (int i = 0; i < s->m->layout->n_tensors; i++)
        for (int state = 0; state < STATES && s->table[i].here; state++) {
            if (!has_state(&s->table[i], state))
                continue;
            if (only == 0)
                TUTTI_TRY(gather_all(s, i, state, err));
            for (int k = 0; k < only; k++)
                TUTTI_TRY(gather_state(s, k, i, state, err));
        }
    return TUTTI_OK;
}

/* The reverse of gather. A dedicated server has no slots of its own, and its x may be old. */
static tutti_status scatter(tutti_server_tables *s, int k, int tensor, int state, tutti_error *err)
{
    const tutti_method *m = s->m;
    const tutti_tensor *t = &m->layout->tensor[tensor];
    const int rank = s->server->member[k];
    size_t first;
    const size_t part = tutti_server_part(s->server, k, t->first, t->count, &first);
    float *at = m->rank >= m->workers ? mine(&s->table[tensor], state) : flat(s, state) + first;

    if (part == 0)
        return TUTTI_OK;
    if (rank >= m->workers)
        return m->rank == 0 || m->rank == rank
                   ? tutti_broadcast(&s->tell[k], 0, tutti_f32(m->device, at, part), err)
                   : TUTTI_OK;
    if (m->rank == rank)
        tutti_copy(m->device, part, at, mine(&s->table[tensor], state));
    return TUTTI_OK;
}

static tutti_status tables_resume(void *self, tutti_error *err)
{
    tutti_server_tables *s = self;
    const tutti_method *m = s->m;

    TUTTI_TRY(tell_taken(s, err));
    for (int i = 0; i < m->layout->n_tensors; i++) {
        if (s->taken != NULL && s->taken[i] != 0)
            tutti_engine_rows_away(m->engine, i, false);
        for (int j = 0; j < TUTTI_SERVER_CHUNKS && s->table[i].sum != NULL; j++) {
            s->table[i].sum[j].arrived = 0;
            memset(s->table[i].sum[j].has, 0,
                   (size_t)s->contributors * sizeof *s->table[i].sum[j].has);
        }
        for (int state = 0; state < STATES && s->table[i].here; state++)
            for (int k = 0; k < tutti_server_count(s->server) && has_state(&s->table[i], state);
                 k++)
                TUTTI_TRY(scatter(s, k, i, state, err));
    }
    return TUTTI_OK;
}

/* ---- the client, and its lane ---- */

tutti_status tutti_server_push_rows(tutti_server *server, tutti_piece *p, float weight, int chunks,
                                    tutti_error *err)
{
    tutti_server_tables *s = server->tables;
    tutti_method *m = s->m;
    const uint64_t key = 2 * (uint64_t)p->index + 1;
    tutti_piece inside = *p;
    tutti_group over;
    uint32_t word = 1;

    if (s->node == 1) {
        /* g keeps its values: its rows stay known */
        tutti_engine_rows_sum(m->engine, p->first_tensor, false);
        if (weight != 1)
            tutti_engine_scale_piece(m->engine, p, weight);
        return tutti_server_push_chunks(server, p, chunks, err);
    }
    inside.group = tutti_group_keyed(&s->inside, key, p->group.sequence);
    over = tutti_group_keyed(&s->inside, key + 1, p->group.sequence);
    TUTTI_TRY(tutti_exchange(m, &inside, weight, err));
    if (m->rank % s->node == 0)
        TUTTI_TRY(tutti_server_push_chunks(server, p, chunks, err));
    return tutti_broadcast(&over, 0, tutti_host(&word, 1, TUTTI_I32), err);
}

tutti_status tutti_server_take_table(tutti_server *server, int tensor, tutti_error *err)
{
    tutti_server_tables *s = server->tables;
    table *t = &s->table[tensor];

    for (int state = 0; state < STATES; state++)
        if (has_state(t, state))
            TUTTI_TRY(tutti_server_fetch(server, tensor, (int64_t)tensor * STATES + state,
                                         flat(s, state), err));
    s->taken[tensor] = 1;
    t->here = false;
    tutti_engine_rows_away(s->m->engine, tensor, false);
    return TUTTI_OK;
}

/* ---- the server's thread ---- */

static tutti_status corrupt(const tutti_header *note, const char *what, tutti_error *err)
{
    return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note->from,
                           "rank %d %s; all workers must run one version and one checkpoint",
                           note->from, what);
}

static tutti_status give_state(tutti_server_tables *s, const tutti_header *note, tutti_error *err)
{
    const tutti_layout *l = s->m->layout;
    const table *t = note->b >= 0 && note->b < (int64_t)l->n_tensors * STATES
                         ? &s->table[note->b / STATES]
                         : NULL;

    if (t == NULL || t->count == 0 || !has_state(t, (int)(note->b % STATES)))
        return corrupt(note, "asks for a part of a table that is not served here", err);
    return tutti_server_answer(s->server, note, 1, 0, mine(t, (int)(note->b % STATES)), t->count,
                               err);
}

/* All have arrived: sums them, and makes the update. */
static tutti_status end_sum(tutti_server_tables *s, const table *t, sum *of,
                            const tutti_slice *slice, tutti_error *err)
{
    const tutti_rate rate = tutti_rate_at(s->m, of->step);
    float *const along = s->server->words;

    tutti_slice_sum(
        s->m, slice,
        &(tutti_slice_summands){ s->contributors, (const float *const *)of->part, NULL },
        &(tutti_slice_scratch){ s->server->summand, s->server->from, s->server->no_row }, along);
    tutti_slice_update(s->m, t->optim, slice, along,
                       &(tutti_slice_values){ t->values + (slice->first - t->first), s->zeros },
                       &rate);
    memset(of->has, 0, (size_t)s->contributors * sizeof *of->has);
    of->arrived = 0;
    return tutti_server_answer(s->server, of->note, s->contributors, 0, NULL, 0, err);
}

tutti_status tutti_server_tables_rule(tutti_server_tables *s, const tutti_header *note, void *in,
                                      tutti_error *err)
{
    const tutti_method *m = s->m;
    const int chunk = (int)(note->b & 0xff), wanted = (int)(note->b >> 8 & 0xff),
              who = note->from / s->node;
    const uint64_t step = (uint64_t)note->b >> 16;
    size_t rows, at, count, words = (size_t)note->bytes / sizeof(float);
    const table *t;
    tutti_slice slice;
    sum *of;
    int chunks;

    if (note->from < 0 || note->from >= m->workers)
        return corrupt(note, "only serves, and asks a server", err);
    if (note->kind == (uint32_t)KIND_STATE)
        return give_state(s, note, err);
    t = note->kind < (uint32_t)m->layout->n_tensors ? &s->table[note->kind] : NULL;
    if (t == NULL || t->count == 0 || note->from % s->node != 0 || words == 0)
        return corrupt(note, "sent rows of a table that is not served here", err);
    rows = t->count / m->layout->tensor[note->kind].cols;
    chunks = rows < (size_t)wanted ? (int)rows : wanted;
    if (wanted > TUTTI_SERVER_CHUNKS || chunk >= chunks)
        return corrupt(note, "sent rows in parts that there are not", err);
    count = tutti_server_chunk(m->layout->tensor[note->kind].cols, t->first, t->count, chunk,
                               chunks, &at);
    slice = tutti_slice_of(m, at, count);
    TUTTI_TRY(tutti_slice_check(m, &slice, in, words, note->from, err));
    of = &t->sum[chunk];
    if (of->has[who] || (of->arrived > 0 && (of->step != step || of->chunks != wanted)))
        return corrupt(note, "sent rows of a table out of turn", err);
    of->step = step;
    of->chunks = wanted;
    of->has[who] = true;
    of->note[of->arrived++] = *note;
    of->part[who] = in;
    if (of->arrived == s->contributors)
        return end_sum(s, t, of, &slice, err);
    of->part[who] = s->contributions + (size_t)who * s->words + t->at + (at - t->first) + (size_t)chunk +
                    (slice.ids > 0 ? (at - t->first) / m->layout->tensor[note->kind].cols : 0);
    memcpy(of->part[who], in, words * sizeof(float));
    return TUTTI_OK;
}

static const tutti_facility_ops facility = {
    .open = open_tables, .close = close_tables, .quiesce = quiesce, .resume = tables_resume
};
