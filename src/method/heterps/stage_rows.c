/* stage_rows.c: the tables of stage_rows.h. A message is a sequence of words of 4 bytes, ids or
   values. A pull has the ids of rows of one table; its answer has the rows. A push has first the
   number of rows of each table, then for each table the ids and the values of its rows. Every
   worker sends a push to each server in every step, also without rows, so a server knows when it
   has received all of them.

   Two threads access own_x and own_g, and never the same elements. In a step the service reads the
   rows that this worker serves, and no thread writes them; the client writes rows that others
   serve. When the service has received all pushes, this worker's client has sent its own and waits
   for the answers. So own_g and own_x of the rows that this worker serves belong to the service
   then. */
#include <errno.h>
#include <string.h>

#include "engine/engine_facility.h"
#include "engine/facility.h"
#include "stage_rows.h"
#include "tutti/method/pipeline.h"
#include "optim/optim.h"
#include "engine/modes/drive.h"

enum { PULL = 1, PUSH, REPLICAS_MOST = 256, WORD = 64 };

typedef struct table {
    int tensor;
    size_t at, rows, cols;       /* at: index of its first element in m->own */
    uint64_t *marks;             /* [rows] bits: rows needed in this step. Those that others serve
                                    have been received */
} table;

/* [replicas]: an entry per worker of the stage. */
struct tutti_stage_rows {
    tutti_method *m;
    int service, n;              /* n: number of tables of this stage */
    table *table;                /* [n] */
    int *replicas;               /* [replicas]: ranks */
    uint64_t pulled, pushed;     /* rows received from others and sent to others */

    /* stages of several workers: client thread */
    tutti_group group;           /* for gathers at quiescence */
    uint32_t *ids;               /* [rows of the largest table]: ids of a pull. Declared */
    uint32_t *words;             /* messages and received rows; at quiescence the buffer of gathers.
                                    Declared */
    size_t *part;                /* [replicas]: rows pulled from each; elements in a gather */
    tutti_header *notes;         /* [replicas] each: the calls that are made at once */
    tutti_buffer *requests, *replies;
    tutti_engine_call *calls;
    tutti_request **each;
    int *members;

    /* stages of several workers: service thread */
    uint32_t *rooms;             /* [replicas][most]: receive buffers. NULL: the stage has one
                                    worker, or no table. Declared */
    size_t most;                 /* most words of a push to this worker */
    tutti_rate rate;             /* of the step that is pushed; written by the client before it
                                    sends its own push */
    bool *has;                   /* [replicas]: its push of this step has arrived */
    const uint32_t **in;         /* [replicas]: that push */
    tutti_header *pushes;        /* [arrived]: headers of the pushes, in the order of arrival */
    tutti_header *answers;       /* [replicas]: scratch */
    int arrived;                 /* number of pushes of this step that have arrived */
    size_t *cursor, *end;        /* [replicas]: index in `in` of the next id of a table, and after
                                    the last */
    float **row;                 /* [replicas]: its gradient of a row; NULL: it has none */
};

/* ---- the rows that each worker serves ---- */

/* Returns the first row that a replica serves; for m->replicas: the number of rows. */
static size_t first_row(const tutti_stage_rows *s, const table *t, int replica)
{
    return t->rows * (size_t)replica / (size_t)s->m->replicas;
}

/* Returns the most words of a push to that replica. */
static size_t words_of(const tutti_stage_rows *s, int replica)
{
    size_t words = (size_t)s->n;

    for (int k = 0; k < s->n; k++) {
        const table *t = &s->table[k];
        words += (first_row(s, t, replica + 1) - first_row(s, t, replica)) * (1 + t->cols);
    }
    return words;
}

bool tutti_stage_rows_has(const tutti_stage_rows *s, int tensor)
{
    for (int k = 0; s != NULL && k < s->n; k++)
        if (s->table[k].tensor == tensor)
            return true;
    return false;
}

void tutti_stage_rows_bytes(const tutti_stage_rows *s, uint64_t *pulled, uint64_t *pushed)
{
    *pulled = s->pulled;
    *pushed = s->pushed;
}

/* ---- from declare to close ---- */

static const tutti_facility_ops facility; /* at the end */

static bool take_lists(tutti_stage_rows *s)
{
    const size_t n = (size_t)s->m->replicas;

    s->replicas = tutti_alloc(n, sizeof *s->replicas);
    s->part = tutti_alloc(n, sizeof *s->part);
    s->notes = tutti_alloc(n, sizeof *s->notes);
    s->requests = tutti_alloc(n, sizeof *s->requests);
    s->replies = tutti_alloc(n, sizeof *s->replies);
    s->calls = tutti_alloc(n, sizeof *s->calls);
    s->each = tutti_alloc(n, sizeof *s->each);
    s->members = tutti_alloc(n, sizeof *s->members);
    s->has = tutti_alloc(n, sizeof *s->has);
    s->in = tutti_alloc(n, sizeof *s->in);
    s->pushes = tutti_alloc(n, sizeof *s->pushes);
    s->answers = tutti_alloc(n, sizeof *s->answers);
    s->cursor = tutti_alloc(n, sizeof *s->cursor);
    s->end = tutti_alloc(n, sizeof *s->end);
    s->row = tutti_alloc(n, sizeof *s->row);
    return s->replicas != NULL && s->part != NULL && s->notes != NULL && s->requests != NULL &&
           s->replies != NULL && s->calls != NULL && s->each != NULL && s->members != NULL &&
           s->has != NULL && s->in != NULL && s->pushes != NULL && s->answers != NULL &&
           s->cursor != NULL && s->end != NULL && s->row != NULL;
}

static tutti_status no_memory(const tutti_stage_rows *s, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the tables of a stage of method '%s'",
                      s->m->ops->name);
}

static tutti_status find_tables(tutti_stage_rows *s, tutti_error *err)
{
    const tutti_layout *l = s->m->layout;
    const tutti_range own = s->m->own;

    s->table = tutti_alloc((size_t)l->n_tensors, sizeof *s->table);
    if (s->table == NULL)
        return no_memory(s, err);
    for (int i = 0; i < l->n_tensors; i++) {
        const tutti_tensor *t = &l->tensor[i];
        if (!t->row_sparse || t->first < own.first || t->first >= own.first + own.count)
            continue;
        s->table[s->n] = (table){ .tensor = i,
                                  .at = t->first - own.first,
                                  .rows = t->rows,
                                  .cols = t->cols,
                                  .marks = tutti_alloc(t->rows / WORD + 1, sizeof(uint64_t)) };
        if (s->table[s->n++].marks == NULL)
            return no_memory(s, err);
    }
    return TUTTI_OK;
}

/* Declares the buffers. Pushes to all servers are sent at once, so each has a buffer of its own.
   The answers to pulls fit into the same memory. */
static void declare_memory(tutti_stage_rows *s, tutti_plan *plan)
{
    tutti_state ids = { .name = "stage_rows.ids", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I32 },
                words = { .name = "stage_rows.words", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I32 },
                rooms = { .name = "stage_rows.rooms", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I32 };

    for (int k = 0; k < s->n; k++)
        ids.count = s->table[k].rows > ids.count ? s->table[k].rows : ids.count;
    for (int j = 0; j < s->m->replicas; j++)
        words.count += words_of(s, j);
    s->most = words_of(s, s->m->replica);
    rooms.count = s->most * (size_t)s->m->replicas;
    tutti_declare(plan, &ids, &s->ids);
    tutti_declare(plan, &words, &s->words);
    tutti_declare(plan, &rooms, &s->rooms);
}

tutti_status tutti_stage_rows_declare(tutti_stage_rows **out, tutti_method *m, tutti_plan *plan,
                                      int service, const int *replicas, tutti_error *err)
{
    tutti_stage_rows *s = *out = tutti_alloc(1, sizeof *s);

    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the tables of method '%s'",
                          m->ops->name);
    s->m = m;
    s->service = service;
    tutti_facility_add(m, &facility, s);
    TUTTI_TRY(find_tables(s, err));
    if (s->n == 0 || m->replicas == 1)
        return TUTTI_OK;
    if (m->replicas > REPLICAS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': %d workers serve the tables of a stage; at most %d can",
                          m->ops->name, m->replicas, REPLICAS_MOST);
    if (!take_lists(s))
        return no_memory(s, err);
    memcpy(s->replicas, replicas, (size_t)m->replicas * sizeof *s->replicas);
    declare_memory(s, plan);
    return TUTTI_OK;
}

static tutti_status open_rows(void *self, tutti_error *err)
{
    tutti_stage_rows *s = self;
    tutti_engine *e = s->m->engine;
    const tutti_requests_setup queue = {
        .buffers = s->m->replicas,
        .in = s->rooms,
        .in_bytes = s->most * sizeof *s->rooms,
        .keep_until_answered = true,
    };

    if (s->rooms == NULL)
        return TUTTI_OK;
    s->group = tutti_group_of(s->m->world, s->replicas, s->m->replicas,
                              tutti_port_of("stage rows", (uint64_t)s->m->stage, 0));
    return tutti_requests_open(tutti_request_queue_of(e, s->service), e, s->service, &queue, err);
}

static void close_rows(void *self)
{
    tutti_stage_rows *s = self;

    for (int k = 0; k < s->n; k++)
        tutti_free(s->table[k].marks);
    tutti_free(s->table);
    tutti_free(s->replicas);
    tutti_free(s->part);
    tutti_free(s->notes);
    tutti_free(s->requests);
    tutti_free(s->replies);
    tutti_free(s->calls);
    tutti_free(s->each);
    tutti_free(s->members);
    tutti_free(s->has);
    tutti_free(s->in);
    tutti_free(s->pushes);
    tutti_free(s->answers);
    tutti_free(s->cursor);
    tutti_free(s->end);
    tutti_free(s->row);
    tutti_free(s);
}

/* ---- at quiescence: all have all rows ---- */

/* Gathers a table's rows of one state, which begins with element 0 of m->own: values, or a slot of
   the optimiser. */
static tutti_status gather_state(tutti_stage_rows *s, const table *t, float *state, bool uncounted,
                                 tutti_error *err)
{
    tutti_method *m = s->m;
    const size_t first = first_row(s, t, m->replica) * t->cols;
    float *const mine = (float *)(void *)s->words;

    for (int j = 0; j < m->replicas; j++)
        s->part[j] = (first_row(s, t, j + 1) - first_row(s, t, j)) * t->cols;
    tutti_copy(m->device, s->part[m->replica], state + t->at + first, mine);
    s->group.uncounted = uncounted;
    return tutti_allgather_v(&s->group, s->part, tutti_f32(m->device, mine, s->part[m->replica]),
                             tutti_f32(m->device, state + t->at, t->rows * t->cols), err);
}

static tutti_status quiesce(void *self, tutti_error *err)
{
    tutti_stage_rows *s = self;
    const int slots = s->m->optim->ops->slots(s->m->optim->self);

    for (int k = 0; k < s->n && s->rooms != NULL; k++) {
        TUTTI_TRY(gather_state(s, &s->table[k], s->m->own_x, false, err));
        for (int i = 0; i < slots;
             i++) /* uncounted: it is for checkpoints; the model is the result of a run */
            TUTTI_TRY(gather_state(s, &s->table[k], s->m->optim->slot[i], true, err));
    }
    return TUTTI_OK;
}

/* ---- needed rows ---- */

static bool is_marked(const table *t, size_t row)
{
    return t->marks[row / WORD] >> row % WORD & 1;
}

static void mark(table *t, size_t row)
{
    t->marks[row / WORD] |= UINT64_C(1) << row % WORD;
}

/* Returns the first marked row in [row, end); `end`: there is none. */
static size_t next_marked(const table *t, size_t row, size_t end)
{
    while (row < end) {
        const uint64_t rest = t->marks[row / WORD] >> row % WORD;
        if (rest != 0) {
            row += (size_t)__builtin_ctzll(rest);
            break;
        }
        row = (row / WORD + 1) * WORD;
    }
    return row < end ? row : end;
}

/* Updates rows [first, end) along own_g. */
static tutti_status update_rows(tutti_stage_rows *s, const table *t, size_t first, size_t end,
                                const tutti_rate *rate, tutti_error *err)
{
    tutti_method *m = s->m;
    const size_t at = t->at + first * t->cols;

    return tutti_drive_update_part(m, m->optim, m->own.first + at, (end - first) * t->cols,
                                   m->own_x + at, m->own_g + at, rate, err);
}

static void clear(tutti_stage_rows *s, const table *t, size_t row)
{
    tutti_fill(s->m->device, t->cols, 0, s->m->own_g + t->at + row * t->cols);
}

/* In a stage with one worker: updates all rows, and clears gradients and marks. */
static tutti_status update_own(tutti_stage_rows *s, table *t, const tutti_rate *rate,
                               tutti_error *err)
{
    const bool by_rows = tutti_optim_by_rows(s->m->optim);

    if (!by_rows)
        TUTTI_TRY(update_rows(s, t, 0, t->rows, rate, err));
    for (size_t r = next_marked(t, 0, t->rows); r < t->rows; r = next_marked(t, r + 1, t->rows)) {
        if (by_rows)
            TUTTI_TRY(update_rows(s, t, r, r + 1, rate, err));
        clear(s, t, r);
    }
    memset(t->marks, 0, (t->rows / WORD + 1) * sizeof *t->marks);
    return TUTTI_OK;
}

/* ---- the client ---- */

/* Makes the n calls in the lists, and receives their answers. */
static tutti_status call(tutti_stage_rows *s, const char *what, int n, tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin_ns = tutti_now_ns(s->m->rt);
    tutti_status status;

    memset(s->calls, 0, (size_t)n * sizeof *s->calls);
    status = tutti_engine_calls(e, s->service, n, s->members, s->notes, s->requests, NULL,
                                s->replies, s->calls, s->each, err);
    tutti_engine_comm(e, what, 0, begin_ns, tutti_now_ns(s->m->rt));
    tutti_engine_doing(e, was);
    return status;
}

/* Writes to s->ids the rows of ids[n] that others serve and that have not been received yet, and to
   s->part their number by replica. Marks all rows of ids. Returns the number of rows written. */
static size_t wanted(tutti_stage_rows *s, table *t, const uint32_t *ids, size_t n)
{
    size_t count = 0;
    int replica = 0;

    memset(s->part, 0, (size_t)s->m->replicas * sizeof *s->part);
    for (size_t i = 0; i < n; i++) {
        while (ids[i] >= first_row(s, t, replica + 1))
            replica++;
        if (replica != s->m->replica && !is_marked(t, ids[i])) {
            s->ids[count++] = ids[i];
            s->part[replica]++;
        }
        mark(t, ids[i]);
    }
    return count;
}

tutti_status tutti_stage_rows_need(tutti_stage_rows *s, int tensor, const uint32_t *ids, size_t n,
                                   tutti_error *err)
{
    tutti_method *m = s->m;
    int k = 0, calls = 0;
    size_t count, at = 0;
    table *t;

    while (s->table[k].tensor != tensor)
        k++;
    t = &s->table[k];
    if (s->rooms == NULL) {
        for (size_t i = 0; i < n; i++)
            mark(t, ids[i]);
        return TUTTI_OK;
    }
    count = wanted(s, t, ids, n);
    for (int j = 0; j < m->replicas; at += s->part[j], j++) {
        if (s->part[j] == 0)
            continue;
        s->members[calls] = s->replicas[j];
        s->notes[calls] = (tutti_header){ .kind = PULL, .a = k };
        s->requests[calls] = tutti_host(s->ids + at, s->part[j], TUTTI_I32);
        s->replies[calls++] = tutti_host(s->words + at * t->cols, s->part[j] * t->cols, TUTTI_F32);
    }
    if (calls == 0)
        return TUTTI_OK;
    TUTTI_TRY(call(s, "rows", calls, err));
    for (size_t i = 0; i < count; i++)
        memcpy(m->own_x + t->at + s->ids[i] * t->cols, s->words + i * t->cols,
               t->cols * sizeof(float));
    s->pulled += count;
    return TUTTI_OK;
}

/* Writes the push to that replica, and clears the gradient of its rows. Returns the number of
   words. */
static size_t write_push(tutti_stage_rows *s, int replica, uint32_t *words)
{
    tutti_method *m = s->m;
    size_t at = (size_t)s->n;

    for (int k = 0; k < s->n; k++) {
        table *t = &s->table[k];
        const size_t end = first_row(s, t, replica + 1), ids = at;
        size_t rows;
        for (size_t r = next_marked(t, first_row(s, t, replica), end); r < end;
             r = next_marked(t, r + 1, end))
            words[at++] = (uint32_t)r;
        rows = at - ids;
        words[k] = (uint32_t)rows;
        for (size_t i = 0; i < rows; i++, at += t->cols) {
            memcpy(words + at, m->own_g + t->at + words[ids + i] * t->cols,
                   t->cols * sizeof(float));
            clear(s, t, words[ids + i]);
        }
        s->pushed += replica != m->replica ? rows : 0;
    }
    return at;
}

tutti_status tutti_stage_rows_push(tutti_stage_rows *s, uint64_t step, const tutti_rate *rate,
                                   tutti_error *err)
{
    size_t at = 0;

    for (int k = 0; k < s->n && s->rooms == NULL; k++)
        TUTTI_TRY(update_own(s, &s->table[k], rate, err));
    if (s->rooms == NULL)
        return TUTTI_OK;
    s->rate = *rate; /* before this worker's push, and so before all have pushed */
    for (int j = 0; j < s->m->replicas; j++) {
        const size_t words = write_push(s, j, s->words + at);
        s->members[j] = s->replicas[j];
        s->notes[j] = (tutti_header){ .kind = PUSH, .a = (int64_t)step };
        s->requests[j] = tutti_host(s->words + at, words, TUTTI_I32);
        s->replies[j] = tutti_nothing();
        at += words;
    }
    for (int k = 0; k < s->n; k++)
        memset(s->table[k].marks, 0, (s->table[k].rows / WORD + 1) * sizeof *s->table[k].marks);
    return call(s, "push rows", s->m->replicas, err);
}

/* ---- the service ---- */

static tutti_status corrupt(const tutti_header *note, tutti_error *err)
{
    return tutti_fail_rank(
        err, TUTTI_ERR_CORRUPT, note->from,
        "worker %d asks for rows of a table, or sent some, that are not served here; all workers "
        "must run one version and one schedule",
        note->from);
}

/* Are the ids ascending, and does this worker serve them? */
static bool are_mine(const tutti_stage_rows *s, const table *t, const uint32_t *ids, size_t n)
{
    const size_t first = first_row(s, t, s->m->replica), end = first_row(s, t, s->m->replica + 1);

    for (size_t i = 0; i < n; i++)
        if (ids[i] < first || ids[i] >= end || (i > 0 && ids[i] <= ids[i - 1]))
            return false;
    return true;
}

/* Answers a pull: replaces the ids in `in` by their rows, from the last one on. */
static tutti_status send_rows(tutti_stage_rows *s, const tutti_header *note, uint32_t *in,
                              tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    const size_t n = (size_t)note->bytes / sizeof *in;
    const tutti_header answer = { 0 };
    const table *t;

    if (note->a < 0 || note->a >= s->n)
        return corrupt(note, err);
    t = &s->table[note->a];
    if (n * t->cols > s->most || !are_mine(s, t, in, n))
        return corrupt(note, err);
    for (size_t i = n; i-- > 0;)
        memcpy(in + i * t->cols, s->m->own_x + t->at + in[i] * t->cols, t->cols * sizeof *in);
    tutti_engine_answered(e, note);
    return tutti_requests_reply(tutti_request_queue_of(e, s->service), note, &answer, 1,
                                tutti_host(in, n * t->cols, TUTTI_F32), NULL, err);
}

/* Adds row b to row a and returns the sum, which is a, or b if a is NULL. NULL counts as a row of
   zeros. */
static float *add_row(const table *t, float *a, float *b)
{
    float *const to = a != NULL ? a : b;

    if (to == NULL)
        return NULL;
    for (size_t i = 0; i < t->cols; i++)
        to[i] += a == NULL || b == NULL ? 0 : b[i];
    return to;
}

/* Returns the sum of s->row over the replicas, in the fixed order of summation: pairs, pairs of
   pairs, ... It overwrites these rows. */
static float *sum_row(tutti_stage_rows *s, const table *t)
{
    const int n = s->m->replicas;

    for (int stride = 1; stride < n; stride *= 2)
        for (int j = 0; j + stride < n; j += 2 * stride)
            s->row[j] = add_row(t, s->row[j], s->row[j + stride]);
    return s->row[0];
}

/* Returns the least row that remains in any push of the table; SIZE_MAX: none remains. */
static size_t least_row(const tutti_stage_rows *s)
{
    size_t least = SIZE_MAX;

    for (int j = 0; j < s->m->replicas; j++)
        if (s->cursor[j] < s->end[j] && s->in[j][s->cursor[j]] < least)
            least = s->in[j][s->cursor[j]];
    return least;
}

/* Sums and updates the rows of table k. at[replicas]: the index in each push at which table k
   begins; advanced to the next table. */
static tutti_status end_table(tutti_stage_rows *s, int k, size_t *at, tutti_error *err)
{
    tutti_method *m = s->m;
    const table *t = &s->table[k];
    const bool by_rows = tutti_optim_by_rows(m->optim);
    size_t r;

    for (int j = 0; j < m->replicas; j++) {
        s->cursor[j] = at[j];
        s->end[j] = at[j] + s->in[j][k];
    }
    while ((r = least_row(s)) != SIZE_MAX) {
        for (int j = 0; j < m->replicas; j++) {
            const bool has = s->cursor[j] < s->end[j] && s->in[j][s->cursor[j]] == r;
            const size_t i = s->cursor[j] - at[j];
            s->row[j] = has ? (float *)(uintptr_t)(s->in[j] + s->end[j] + i * t->cols) : NULL;
            s->cursor[j] += has;
        }
        memcpy(m->own_g + t->at + r * t->cols, sum_row(s, t), t->cols * sizeof(float));
        if (!by_rows)
            continue;
        TUTTI_TRY(update_rows(s, t, r, r + 1, &s->rate, err));
        clear(s, t, r);
    }
    if (!by_rows) {
        const size_t first = first_row(s, t, m->replica), end = first_row(s, t, m->replica + 1);
        TUTTI_TRY(update_rows(s, t, first, end, &s->rate, err));
        tutti_fill(m->device, (end - first) * t->cols, 0, m->own_g + t->at + first * t->cols);
    }
    for (int j = 0; j < m->replicas; j++)
        at[j] += s->in[j][k] * (1 + t->cols);
    return TUTTI_OK;
}

/* Updates all tables when all pushes of the step have arrived, and answers them. */
static tutti_status end_step(tutti_stage_rows *s, tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    size_t at[REPLICAS_MOST];

    for (int j = 0; j < s->m->replicas; j++)
        at[j] = (size_t)s->n;
    for (int k = 0; k < s->n; k++)
        TUTTI_TRY(end_table(s, k, at, err));
    s->arrived = 0;
    memset(s->has, 0, (size_t)s->m->replicas * sizeof *s->has);
    memset(s->answers, 0, (size_t)s->m->replicas * sizeof *s->answers);
    for (int j = 0; j < s->m->replicas; j++)
        tutti_engine_answered(e, &s->pushes[j]);
    return tutti_requests_reply(tutti_request_queue_of(e, s->service), s->pushes, s->answers,
                                s->m->replicas, tutti_nothing(), NULL, err);
}

static tutti_status receive_push(tutti_stage_rows *s, const tutti_header *note, uint32_t *in,
                                 tutti_error *err)
{
    size_t words = (size_t)note->bytes / sizeof *in, at = (size_t)s->n;
    int replica = 0;

    while (replica < s->m->replicas && s->replicas[replica] != note->from)
        replica++;
    if (replica == s->m->replicas)
        return corrupt(note, err);
    if (note->kind == PULL)
        return send_rows(s, note, in, err);
    if (note->kind != PUSH || s->has[replica] || words < at ||
        (s->arrived > 0 && note->a != s->pushes[0].a))
        return corrupt(note, err);
    for (int k = 0; k < s->n; k++) {
        const table *t = &s->table[k];
        const size_t rows = in[k];
        if (rows > t->rows || at + rows * (1 + t->cols) > words || !are_mine(s, t, in + at, rows))
            return corrupt(note, err);
        at += rows * (1 + t->cols);
    }
    s->has[replica] = true;
    s->in[replica] = in;
    s->pushes[s->arrived++] = *note;
    return s->arrived == s->m->replicas ? end_step(s, err) : TUTTI_OK;
}

tutti_status tutti_stage_rows_run(tutti_stage_rows *s, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    tutti_header note;
    void *in;

    if (s == NULL || s->rooms == NULL)
        return TUTTI_OK;
    while (status == TUTTI_OK) {
        status = tutti_engine_serve(s->m->engine, s->service, &note, &in, TUTTI_FOREVER, err);
        if (status == TUTTI_OK)
            status = receive_push(s, &note, in, err);
    }
    return status;
}

static const tutti_facility_ops facility = { .open = open_rows,
                                             .close = close_rows,
                                             .quiesce = quiesce };
