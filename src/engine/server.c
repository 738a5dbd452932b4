/* server.c: parameters cut over servers, as Li et al. do ("Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014), but by ranges of equal bytes and not by hashed keys: dense gradients have no hot keys,
   a range is one message, and the largest share exceeds the mean by less than two cache lines (hashes: 18 % and more over eight servers, byteps.md).

   A push is one call to each server at once (tutti_engine_calls): all requests are posted, then all answers waited for, on the caller's thread. A thread a slice, as lanes would have it, costs two changes of
   context a slice. A request's note has the version that the worker has of the slice, so the server knows the delay without remembering who has what; an answer with values brings the next version.

   Ranks that only serve (--servers) have all slices, each one; then no worker serves. Placing them is the launcher's business, who starts them behind the workers, on each host in turn.

   Which workers serve, if not all: they are taken from each host in turn, in order of rank, so that servers share as few links as possible; which slice is whose follows their ranks, so that the slices of all, in order
   of rank, are x. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "slice.h"
#include "tutti/server.h"

/* What one caller of several calls at once needs. */
typedef struct caller {
    tutti_engine_call *call;
    tutti_request **each;
    tutti_note *note;
    tutti_buffer *request, *reply;
    int *member, *server;        /* whom each goes to */
    tutti_slice *slice;          /* what its answer is about, where that comes by way of `back`; else count 0 */
    uint32_t *out; float *back;  /* of slices with tables: what is sent, what comes; grow to twice what was ever needed */
    size_t out_room, back_room, out_words, back_words;
    int n;
    bool taken;                  /* under monitor */
} caller;

enum { COUNTS_MOST = 4 };

struct tutti_server {
    tutti_method *m;
    tutti_server_setup setup;
    int servers, index;          /* index: mine, or -1 */
    int *member;                 /* servers: whose; ascending */
    size_t first, count;         /* my slice of x */
    tutti_slice slice;           /* the same */
    float *values, *in;          /* of the slice, and of what comes */
    void *half[2], *half_in, *half_out; /* where floats travel as others: what the client sends and gets, of all of x; what the server gets and sends, of the slice */
    float *words;                /* what is answered, of slices with tables */
    float *zeros;                /* of the slice, for optimisers that want every row */
    uint8_t *marks;              /* a row of the slice's tables each: has tutti_server_collect added to it? */
    tutti_slice_summand *summand; const float **from; float *no_row; /* workers; workers; the widest row, of zeros: scratch of sums */
    int64_t *version;            /* of my slice; server's thread. Declared */
    struct { const char *name; int64_t **slot; } counts[COUNTS_MOST]; int n_counts; /* one a slice: version and the method's */
    int64_t *got;                /* servers: version of each slice that this worker has; client's */
    size_t *part_of;             /* members of everyone: elements of x that each serves */
    uint64_t *delay;             /* workers: of the last request of each; server's thread */
    bool *asks;                  /* workers: whose request has no answer yet; server's thread */
    int64_t wake_at_ns;          /* for setup.due; server's thread */
    tutti_note *answer;          /* workers: of one answer to many */
    tutti_request *send, **each;
    tutti_monitor *monitor;      /* of taken */
    caller *callers; int n_callers;
};

enum { ALIGNMENT = 16 };         /* elements */
enum { KIND_ROWS = -3 };         /* of a request: rows of table b, by ids, or without them its whole part; besides those of service.c */

static bool is_float(const tutti_server *s)
{
    return s->setup.wire == TUTTI_F32;
}

static tutti_buffer half(const tutti_server *s, void *from, size_t at, size_t n)
{
    return (tutti_buffer){ s->m->device, (char *)from + at * tutti_dtype_bytes(s->setup.wire), n, s->setup.wire };
}

/* Between rows of tables: a row is read and written by one server. */
static size_t cut(const tutti_server *s, int k, size_t first, size_t count)
{
    const size_t even = count / ALIGNMENT * (size_t)k / (size_t)s->servers * ALIGNMENT;
    return k == s->servers ? count : tutti_slice_cut(s->m->engine, first + even) - first;
}

/* Words of a request or an answer about any part, at most. */
static size_t room_of_part(const tutti_server *s)
{
    return s->m->layout->used / (size_t)s->servers + 2 * ALIGNMENT + tutti_server_slack(s->m);
}

size_t tutti_server_slack(const tutti_method *m)
{
    const tutti_engine *e = m->engine;
    size_t words = 0;

    for (int i = 0; i < e->layout.n_tensors; i++)
        words += e->rows[i].knows ? 1 + e->tensors[i].cols : 0;
    return words;
}

size_t tutti_server_words(const tutti_server *s, size_t first, size_t count)
{
    tutti_slice slice;
    size_t at, part;

    if (s->index < 0)
        return 0;
    part = tutti_server_part(s, s->index, first, count, &at);
    slice = tutti_slice_of(s->m->engine, at, part);
    return tutti_slice_room(&slice);
}

size_t tutti_server_part(const tutti_server *s, int k, size_t first, size_t count, size_t *part_first)
{
    const size_t begin = cut(s, k, first, count);

    *part_first = first + begin;
    return cut(s, k + 1, first, count) - begin;
}

int tutti_server_count(const tutti_server *s)
{
    return s->servers;
}

int tutti_server_index(const tutti_server *s)
{
    return s->index;
}

/* ---- from declare to close ---- */

/* Of each host in turn the next worker that does not serve yet. A worker's turn is its place on its host; hosts are met in order of rank. */
static void place(tutti_server *s)
{
    const tutti_method *m = s->m;
    int taken = 0;

    if (s->servers == m->workers || m->servers > 0) { /* all of them: nothing to choose */
        const int first = m->servers > 0 ? m->workers : 0;
        while (taken < s->servers) {
            s->member[taken] = first + taken;
            taken++;
        }
        s->index = m->rank >= first && m->rank < first + taken ? m->rank - first : -1;
        return;
    }
    for (int turn = 0; taken < s->servers; turn++)
        for (int w = 0; w < m->workers && taken < s->servers; w++) {
            int before = 0;
            for (int v = 0; v < w; v++)
                before += tutti_world_host(m->world, v) == tutti_world_host(m->world, w);
            if (before == turn)
                s->member[taken++] = w;
        }
    for (int i = 1; i < taken; i++) /* by rank */
        for (int k = i; k > 0 && s->member[k] < s->member[k - 1]; k--) {
            const int w = s->member[k];
            s->member[k] = s->member[k - 1];
            s->member[k - 1] = w;
        }
    s->index = -1;
    for (int k = 0; k < taken; k++)
        if (s->member[k] == m->rank)
            s->index = k;
}

void tutti_server_declare_count(tutti_server *s, tutti_plan *plan, const char *name, int64_t **slot)
{
    const tutti_keep keep = s->m->traits & TUTTI_REPLICAS_EQUAL ? TUTTI_SCRATCH : TUTTI_SLICE;

    assert(s->n_counts < COUNTS_MOST);
    s->counts[s->n_counts].name = name;
    s->counts[s->n_counts++].slot = slot;
    tutti_declare(plan, &(tutti_state){ .name = name, .keep = keep, .dtype = TUTTI_I64, .first = s->index < 0 ? 0 : (size_t)s->index, .count = s->index >= 0, .of = (size_t)s->servers }, slot);
}

/* Servers of their own are as many as the run has; a method that has one asks for one. */
static tutti_status check_servers(const tutti_method *m, const tutti_server_setup *setup, tutti_error *err)
{
    if (m->servers == 0 || setup->servers == 0 || setup->servers == m->servers)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "method '%s' has %d server%s, but %d ranks only serve (servers); give --servers %d, or leave it away: then workers serve beside their computation", m->ops->name,
                      setup->servers, setup->servers > 1 ? "s" : "", m->servers, setup->servers);
}

tutti_status tutti_server_declare(tutti_server **out, tutti_method *m, tutti_plan *plan, const tutti_server_setup *setup, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_server *s;

    *out = NULL;
    TUTTI_TRY(check_servers(m, setup, err));
    if (setup->servers < 0 || setup->servers > m->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "method '%s': servers is %d, but there are %d workers, of which each serves once at most; 0 lets all of them serve", m->ops->name, setup->servers, m->workers);
    s = *out = tutti_alloc(1, sizeof *s);
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'", m->ops->name);
    s->m = m;
    s->setup = *setup;
    s->servers = m->servers > 0 ? m->servers : setup->servers == 0 ? m->workers : setup->servers;
    e->server = s;
    s->wake_at_ns = TUTTI_FOREVER;
    s->member = tutti_alloc((size_t)s->servers, sizeof *s->member);
    if (s->member == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'", m->ops->name);
    place(s);
    for (int i = 0; i < m->layout->n_tensors && setup->whole; i++)
        e->tensors[i].asked = false;
    if (s->index >= 0)
        s->count = tutti_server_part(s, s->index, 0, m->layout->used, &s->first);
    s->slice = tutti_slice_of(m->engine, s->first, s->count);
    tutti_declare(plan, &(tutti_state){ .name = "server.in", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = s->index < 0 ? 0 : room_of_part(s) }, &s->in);
    tutti_declare(plan, &(tutti_state){ .name = "server.words", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = s->index < 0 || (setup->pieces ? tutti_server_slack(m) : s->slice.tables) == 0 ? 0 : room_of_part(s) }, &s->words);
    if (setup->pieces)
        return TUTTI_OK;
    if (!is_float(s)) {
        assert((m->traits & TUTTI_KNOWS_ROWS) == 0); /* rows travel with their ids */
        tutti_declare(plan, &(tutti_state){ .name = "server.sent-as", .keep = TUTTI_SCRATCH, .dtype = setup->wire, .count = m->layout->used }, &s->half[0]);
        tutti_declare(plan, &(tutti_state){ .name = "server.came-as", .keep = TUTTI_SCRATCH, .dtype = setup->wire, .count = m->layout->used }, &s->half[1]);
        tutti_declare(plan, &(tutti_state){ .name = "server.in-as", .keep = TUTTI_SCRATCH, .dtype = setup->wire, .count = s->index < 0 ? 0 : room_of_part(s) }, &s->half_in);
        tutti_declare(plan, &(tutti_state){ .name = "server.out-as", .keep = TUTTI_SCRATCH, .dtype = setup->wire, .count = s->index < 0 ? 0 : room_of_part(s) }, &s->half_out);
    }
    tutti_declare(plan, &(tutti_state){ .name = "server.values", .keep = TUTTI_SLICE, .dtype = TUTTI_F32, .first = s->first, .count = s->count, .placed = true }, &s->values);
    tutti_declare(plan, &(tutti_state){ .name = "server.got", .keep = m->traits & TUTTI_REPLICAS_EQUAL ? TUTTI_SCRATCH : TUTTI_OWN_ZERO, .dtype = TUTTI_I64, .count = (size_t)s->servers }, &s->got);
    tutti_server_declare_count(s, plan, "server.version", &s->version);
    if (setup->collects) {
        size_t first;
        const size_t rows = tutti_slice_marks(e, &s->slice, &first), all = tutti_slice_marks(e, &(tutti_slice){ .count = m->layout->used }, &(size_t){ 0 });
        if (all > 0)
            tutti_declare(plan, &(tutti_state){ .name = "server.marks", .keep = TUTTI_SLICE, .dtype = TUTTI_U8, .first = first, .count = rows, .of = all }, &s->marks);
    }
    if ((m->traits & TUTTI_UPDATES_SLICES) == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_optimizer_declare(m, plan, s->first, s->count, TUTTI_SLICE, err));
    tutti_declare(plan, &(tutti_state){ .name = "server.zeros", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = s->slice.tables == 0 || tutti_optim_by_rows(m->optim) ? 0 : s->count }, &s->zeros);
    return TUTTI_OK;
}

static bool open_caller(caller *c, size_t n)
{
    c->slice = tutti_alloc(n, sizeof *c->slice);
    c->call = tutti_alloc(n, sizeof *c->call);
    c->each = tutti_alloc(n, sizeof *c->each);
    c->note = tutti_alloc(n, sizeof *c->note);
    c->request = tutti_alloc(n, sizeof *c->request);
    c->reply = tutti_alloc(n, sizeof *c->reply);
    c->member = tutti_alloc(n, sizeof *c->member);
    c->server = tutti_alloc(n, sizeof *c->server);
    return c->call != NULL && c->each != NULL && c->note != NULL && c->request != NULL && c->reply != NULL && c->member != NULL && c->server != NULL && c->slice != NULL;
}

/* What sums of slices with tables need. */
static bool open_sums(tutti_server *s)
{
    const size_t workers = (size_t)s->m->workers, row = tutti_server_slack(s->m);

    if (row == 0)
        return true;
    s->summand = tutti_alloc(workers, sizeof *s->summand);
    s->from = tutti_alloc(workers, sizeof *s->from);
    s->no_row = tutti_alloc(row, sizeof *s->no_row);
    return s->summand != NULL && s->from != NULL && s->no_row != NULL;
}

tutti_status tutti_server_open(tutti_server *s, tutti_error *err)
{
    const size_t workers = (size_t)s->m->workers, everyone = (size_t)s->m->everyone.size;
    bool enough;

    if (!s->setup.pieces)
        tutti_copy(s->m->device, s->count, s->m->x + s->first, s->values);
    s->n_callers = 1 + s->m->lane_width; /* the client's thread and each of the lane's */
    s->delay = tutti_alloc(workers, sizeof *s->delay);
    s->asks = tutti_alloc(workers, sizeof *s->asks);
    s->part_of = tutti_alloc(everyone, sizeof *s->part_of);
    s->answer = tutti_alloc(workers, sizeof *s->answer);
    s->send = tutti_alloc(workers, sizeof *s->send);
    s->each = tutti_alloc(workers, sizeof *s->each);
    s->callers = tutti_alloc((size_t)s->n_callers, sizeof *s->callers);
    enough = s->delay != NULL && s->asks != NULL && s->part_of != NULL && s->answer != NULL && s->send != NULL && s->each != NULL && s->callers != NULL && open_sums(s);
    for (int i = 0; i < s->n_callers && enough; i++)
        enough = open_caller(&s->callers[i], (size_t)s->servers);
    if (!enough)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'", s->m->ops->name);
    return tutti_monitor_open(&s->monitor, s->m->rt, err);
}

void tutti_server_close(tutti_server *s)
{
    if (s == NULL)
        return;
    tutti_monitor_close(s->monitor);
    for (int i = 0; s->callers != NULL && i < s->n_callers; i++) {
        tutti_free(s->callers[i].call);
        tutti_free(s->callers[i].each);
        tutti_free(s->callers[i].note);
        tutti_free(s->callers[i].request);
        tutti_free(s->callers[i].reply);
        tutti_free(s->callers[i].member);
        tutti_free(s->callers[i].server);
        tutti_free(s->callers[i].slice);
        tutti_free(s->callers[i].out);
        tutti_free(s->callers[i].back);
    }
    tutti_free(s->summand);
    tutti_free(s->from);
    tutti_free(s->no_row);
    tutti_free(s->callers);
    tutti_free(s->member);
    tutti_free(s->part_of);
    tutti_free(s->delay);
    tutti_free(s->asks);
    tutti_free(s->answer);
    tutti_free(s->send);
    tutti_free(s->each);
    tutti_free(s);
}

tutti_status tutti_server_agree(tutti_server *s, tutti_error *err)
{
    tutti_method *m = s->m;
    tutti_engine *e = m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(e->rt);
    tutti_status status;

    for (int i = 0, k = 0; i < m->everyone.size; i++) { /* both ascend */
        const int rank = m->everyone.ranks != NULL ? m->everyone.ranks[i] : i;
        size_t first;
        while (k < s->servers && s->member[k] < rank)
            k++;
        s->part_of[i] = k < s->servers && s->member[k] == rank ? tutti_server_part(s, k, 0, m->layout->used, &first) : 0;
    }
    status = tutti_allgather_v(&m->everyone, s->part_of, tutti_f32(m->device, s->values, s->count), tutti_f32(m->device, m->x, m->layout->used), err);

    for (int i = 0; i < e->layout.n_tensors && e->kept != NULL; i++) /* rows that a worker asks for are nobody's own: what it has of them is old, and no model of its */
        if (e->tensors[i].asked)
            tutti_copy(m->device, e->tensors[i].count, m->x + e->tensors[i].first, e->kept + e->tensors[i].first);
    tutti_engine_comm(e, "gather", 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    return status;
}

/* ---- a checkpoint ---- */

void tutti_engine_server_parts(const tutti_engine *e, int64_t parts[2])
{
    parts[0] = e->m.servers;
    parts[1] = e->server != NULL && !e->server->setup.pieces ? e->server->servers : 0;
}

bool tutti_engine_server_recuts(const tutti_engine *e, const void *memory)
{
    const tutti_server *s = e->server;
    bool one_of_them = s != NULL && memory != NULL && memory == (const void *)s->got;

    for (int i = 0; s != NULL && memory != NULL && i < s->n_counts; i++)
        one_of_them = one_of_them || memory == (const void *)*s->counts[i].slot;
    return one_of_them;
}

/* Of each slice the greatest of those that it overlaps. old: n. */
static int64_t of_slice(const tutti_server *s, const int64_t *old, int64_t n, int64_t k)
{
    int64_t most = 0;

    for (int64_t j = k * n / s->servers; j <= ((k + 1) * n - 1) / s->servers; j++)
        most = old[j] > most ? old[j] : most;
    return most;
}

static tutti_status read_counts(const tutti_server *s, tutti_checkpoint *checkpoint, int64_t *old, int64_t n, tutti_error *err)
{
    for (int i = 0; i < s->n_counts; i++) {
        const tutti_saved item = { .state = s->counts[i].name, .tensor = "", .keep = TUTTI_SLICE, .dtype = TUTTI_I64, .owner = -1, .count = (uint64_t)n, .begin = 0, .end = (uint64_t)n, .data = old };
        TUTTI_TRY(tutti_checkpoint_read(checkpoint, &item, 1, err));
        if (s->index >= 0)
            **s->counts[i].slot = of_slice(s, old, n, s->index);
        for (int64_t k = 0; k < s->servers && s->counts[i].slot == &s->version; k++)
            s->got[k] = of_slice(s, old, n, k);
    }
    return TUTTI_OK;
}

/* What a worker had been given before cannot be told apart by slices that are no more. */
static tutti_status read_model(const tutti_server *s, tutti_checkpoint *checkpoint, tutti_error *err)
{
    const tutti_layout *l = s->m->layout;

    for (int i = 0; i < l->n_tensors; i++) {
        const tutti_tensor *t = &l->tensor[i];
        const tutti_saved item = { .state = "server.values", .tensor = t->name, .keep = TUTTI_SLICE, .dtype = TUTTI_F32, .owner = -1, .count = t->count, .begin = 0, .end = t->count, .data = s->m->x + t->first };
        TUTTI_TRY(tutti_checkpoint_read(checkpoint, &item, 1, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_engine_server_load(tutti_engine *e, tutti_checkpoint *checkpoint, int64_t slices, tutti_error *err)
{
    tutti_server *s = e->server;
    int64_t *old;
    tutti_status status;

    if (s->setup.pieces || (s->m->traits & TUTTI_REPLICAS_EQUAL) != 0)
        return TUTTI_OK;
    if (slices < 1 || slices > 1 << 20)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the checkpoint has no slices of servers, as method '%s' needs them; it was saved by another method", s->m->ops->name);
    old = tutti_alloc((size_t)slices, sizeof *old);
    if (old == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading the counts of %lld slices", (long long)slices);
    status = read_counts(s, checkpoint, old, slices, err);
    tutti_free(old);
    return status == TUTTI_OK ? read_model(s, checkpoint, err) : status;
}

/* ---- client ---- */

static caller *take_caller(tutti_server *s)
{
    caller *c = NULL;

    tutti_lock(s->monitor);
    for (int i = 0; i < s->n_callers && c == NULL; i++)
        if (!s->callers[i].taken)
            c = &s->callers[i];
    assert(c != NULL); /* there are as many as threads that may come */
    c->taken = true;
    c->n = 0;
    c->out_words = c->back_words = 0;
    tutti_unlock(s->monitor);
    return c;
}

static void give_back(tutti_server *s, caller *c)
{
    tutti_lock(s->monitor);
    c->taken = false;
    tutti_unlock(s->monitor);
}

static void add(tutti_server *s, caller *c, int k, uint32_t kind, int64_t b, tutti_buffer request, tutti_buffer reply)
{
    c->note[c->n] = (tutti_note){ .kind = kind, .a = s->got != NULL ? s->got[k] : 0, .b = b };
    c->request[c->n] = request;
    c->reply[c->n] = reply;
    c->slice[c->n] = (tutti_slice){ 0 };
    c->member[c->n] = s->member[k];
    c->server[c->n++] = k;
}

/* Words of an answer to a push, at most: rows that are asked for do not come with it. */
static size_t words_back(const tutti_engine *e, const tutti_slice *s)
{
    size_t words = tutti_slice_room(s);

    for (int i = s->tensor; i < e->layout.n_tensors && e->tensors[i].first < s->first + s->count; i++)
        if (e->tensors[i].asked) {
            const size_t begin = e->tensors[i].first > s->first ? e->tensors[i].first : s->first, end = e->tensors[i].first + e->tensors[i].count;
            words -= (end < s->first + s->count ? end : s->first + s->count) - begin;
        }
    return words;
}

static tutti_status grow(void **memory, size_t *room, size_t words, tutti_error *err)
{
    if (words <= *room)
        return TUTTI_OK;
    tutti_free(*memory);
    *room = 0;
    *memory = tutti_alloc(2 * words, sizeof(float));
    if (*memory == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for %zu words of rows to and from servers", words);
    *room = 2 * words;
    return TUTTI_OK;
}

/* Room for what slices with tables become on their way. */
static tutti_status grow_caller(tutti_server *s, caller *c, size_t first, size_t count, bool values, bool into, tutti_error *err)
{
    const tutti_engine *e = s->m->engine;
    size_t out = 0, back = 0;

    for (int k = 0; k < s->servers; k++) {
        size_t at;
        const size_t part = tutti_server_part(s, k, first, count, &at);
        const tutti_slice slice = tutti_slice_of(e, at, part);
        if (slice.tables == 0)
            continue;
        out += values ? tutti_slice_words(e, &slice) : 0;
        back += into ? words_back(e, &slice) : 0;
    }
    TUTTI_TRY(grow((void **)&c->out, &c->out_room, out, err));
    return grow((void **)&c->back, &c->back_room, back, err);
}

/* One call to each server that has a part of [first, first + count); values, into: element 0 of the flat space. */
static tutti_status add_parts(tutti_server *s, caller *c, uint32_t kind, int64_t b, size_t first, size_t count, float *values, float *into, tutti_error *err)
{
    const tutti_engine *e = s->m->engine;

    TUTTI_TRY(grow_caller(s, c, first, count, values != NULL, into != NULL, err));
    for (int k = 0; k < s->servers; k++) {
        size_t at;
        const size_t part = tutti_server_part(s, k, first, count, &at);
        const tutti_slice slice = tutti_slice_of(e, at, part);
        tutti_buffer request = tutti_nothing(), reply = tutti_nothing();
        if (part == 0)
            continue;
        if (slice.tables == 0) {
            request = values == NULL ? request : is_float(s) ? tutti_f32(s->m->device, values + at, part) : half(s, s->half[0], at, part);
            reply = into == NULL ? reply : is_float(s) ? tutti_f32(s->m->device, into + at, part) : half(s, s->half[1], at, part);
        }
        if (slice.tables > 0 && values != NULL) {
            request = tutti_f32(s->m->device, (float *)(void *)(c->out + c->out_words), tutti_slice_words(e, &slice));
            tutti_slice_pack(e, &slice, values, request.data);
            c->out_words += request.count;
        }
        if (slice.tables > 0 && into != NULL) {
            reply = tutti_f32(s->m->device, c->back + c->back_words, words_back(e, &slice));
            c->back_words += reply.count;
        }
        add(s, c, k, kind, b, request, reply);
        if (slice.tables > 0 && into != NULL)
            c->slice[c->n - 1] = slice;
    }
    return TUTTI_OK;
}

/* Who waits for a server while the run ends hears why it ends. */
static tutti_status call_all(tutti_server *s, caller *c, tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    const tutti_status status = tutti_engine_calls(e, s->setup.service, c->n, c->member, c->note, c->request, c->reply, c->call, c->each, err);
    const tutti_status cause = status == TUTTI_CLOSED ? tutti_engine_services_look(e, err) : TUTTI_OK;

    for (int k = 0; k < c->n && status == TUTTI_OK; k++)
        if (c->note[k].bytes != 0 && c->slice[k].count == 0 && c->note[k].bytes != c->reply[k].count * tutti_dtype_bytes(c->reply[k].dtype))
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, c->member[k], "the server at worker %d answered %llu bytes for a slice of %zu; all workers must run one version", c->member[k],
                                   (unsigned long long)c->note[k].bytes, c->reply[k].count * tutti_dtype_bytes(c->reply[k].dtype));
    return cause != TUTTI_OK ? cause : status;
}

/* What came by way of `back` to its place in `into`. */
static tutti_status store(const tutti_server *s, const caller *c, float *into, tutti_error *err)
{
    const tutti_engine *e = s->m->engine;

    for (int k = 0; k < c->n; k++) {
        if (c->slice[k].count == 0 || c->note[k].bytes == 0)
            continue;
        TUTTI_TRY(tutti_slice_check(e, &c->slice[k], c->reply[k].data, (size_t)c->note[k].bytes / sizeof(float), c->member[k], err));
        tutti_slice_store(e, &c->slice[k], c->reply[k].data, into);
    }
    return TUTTI_OK;
}

static void read_answers(tutti_server *s, const caller *c, tutti_server_answers *answers)
{
    *answers = (tutti_server_answers){ .values = true };
    for (int k = 0; k < c->n; k++) {
        const tutti_note *note = &c->note[k];
        if (note->kind > answers->kind)
            answers->kind = note->kind;
        if (note->bytes == 0) {
            answers->values = false;
            continue;
        }
        s->got[c->server[k]] = note->a;
        if ((uint64_t)note->b > answers->delay)
            answers->delay = (uint64_t)note->b;
    }
}

/* The client's calls, in c. */
static tutti_status call_exposed(tutti_server *s, caller *c, const char *what, float *into, tutti_server_answers *answers, tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(e->rt);
    tutti_status status = call_all(s, c, err);

    if (status == TUTTI_OK)
        status = store(s, c, into, err);
    if (status == TUTTI_OK && answers != NULL)
        read_answers(s, c, answers);
    tutti_engine_comm(e, what, 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    return status;
}

/* 16 bits overflow to infinity: told here, where it is known whose number it is. */
static tutti_status narrow(tutti_server *s, float *values, tutti_error *err)
{
    const tutti_method *m = s->m;
    const size_t n = m->layout->used;

    tutti_cast(m->device, tutti_f32(m->device, values, n), half(s, s->half[0], 0, n));
    for (size_t i = 0; i < n && s->setup.wire == TUTTI_F16; i++)
        if ((((const uint16_t *)s->half[0])[i] & 0x7c00) == 0x7c00)
            return tutti_fail_rank(err, TUTTI_ERR_NUMBER, m->rank, "method '%s': element %zu of what worker %d sends is %g, but as fp16 the largest is 65504; send it as fp32, or lower the learning rate", m->ops->name, i,
                                   m->rank, (double)values[i]);
    return TUTTI_OK;
}

tutti_status tutti_server_push(tutti_server *s, uint32_t kind, int64_t b, float *values, float *into, tutti_server_answers *answers, tutti_error *err)
{
    const size_t n = s->m->layout->used;
    caller *c = take_caller(s);
    tutti_status status = values != NULL && !is_float(s) ? narrow(s, values, err) : TUTTI_OK;

    if (status == TUTTI_OK)
        status = add_parts(s, c, kind, b, 0, n, values, into, err);
    if (status == TUTTI_OK)
        status = call_exposed(s, c, "push", into, answers, err);
    if (status == TUTTI_OK && into != NULL && answers->values && !is_float(s))
        tutti_cast(s->m->device, half(s, s->half[1], 0, n), tutti_f32(s->m->device, into, n));
    give_back(s, c);
    return status;
}

tutti_status tutti_server_ask(tutti_server *s, int k, uint32_t kind, int64_t b, tutti_server_answers *answers, tutti_error *err)
{
    caller *c = take_caller(s);
    tutti_status status;

    add(s, c, k, kind, b, tutti_nothing(), tutti_nothing());
    status = call_exposed(s, c, "push", NULL, answers, err);
    give_back(s, c);
    return status;
}

/* The rows of a table that server k has, n of them from ids on, or, where that is no less, its whole part of the table. */
static void add_rows(tutti_server *s, caller *c, int k, int tensor, const uint32_t *ids, size_t n, size_t first, size_t part)
{
    const tutti_tensor *t = &s->m->layout->tensor[tensor];
    const bool whole = n * (1 + t->cols) >= part;

    add(s, c, k, (uint32_t)KIND_ROWS, tensor, whole ? tutti_nothing() : tutti_host((uint32_t *)(uintptr_t)ids, n, TUTTI_I32),
        whole ? tutti_f32(s->m->device, s->m->x + first, part) : tutti_f32(s->m->device, c->back + c->back_words, n * t->cols));
    c->back_words += whole ? 0 : n * t->cols;
}

/* What came of rows, to where they are in x. */
static tutti_status place_rows(const tutti_server *s, const caller *c, const tutti_tensor *t, tutti_error *err)
{
    for (int k = 0; k < c->n; k++) {
        const uint32_t *ids = c->request[k].data;
        const float *rows = c->reply[k].data;
        if (c->note[k].bytes == 0)
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, c->member[k], "the server at worker %d answered nothing where rows of %s were asked for; all workers must run one version", c->member[k], t->name);
        for (size_t i = 0; i < c->request[k].count; i++)
            memcpy(s->m->x + t->first + ids[i] * t->cols, rows + i * t->cols, t->cols * sizeof *rows);
    }
    return TUTTI_OK;
}

tutti_status tutti_server_need_rows(tutti_server *s, int tensor, const uint32_t *ids, size_t n, tutti_error *err)
{
    const tutti_tensor *t = &s->m->layout->tensor[tensor];
    caller *c = take_caller(s);
    tutti_status status = grow((void **)&c->back, &c->back_room, n * t->cols, err);
    size_t next = 0;

    for (int k = 0; k < s->servers && status == TUTTI_OK && next < n; k++) {
        size_t at, end, begin = next;
        end = tutti_server_part(s, k, 0, s->m->layout->used, &at);
        end += at;
        while (next < n && t->first + ids[next] * t->cols < end)
            next++;
        at = at > t->first ? at : t->first;
        end = end < t->first + t->count ? end : t->first + t->count;
        if (next > begin)
            add_rows(s, c, k, tensor, ids + begin, next - begin, at, end - at);
    }
    if (status == TUTTI_OK)
        status = call_exposed(s, c, "pull", NULL, NULL, err);
    if (status == TUTTI_OK)
        status = place_rows(s, c, t, err);
    give_back(s, c);
    return status;
}

uint64_t tutti_server_got(const tutti_server *s)
{
    return (uint64_t)s->got[0];
}

void tutti_server_took(tutti_server *s, uint64_t version)
{
    s->got[0] = (int64_t)version;
}

tutti_status tutti_server_exchange(tutti_server *s, const tutti_piece *p, int64_t b, tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    caller *c;
    tutti_status status;

    e->rows[p->first_tensor].summed = true;
    if (s->m->workers == 1) /* my rows are all rows */
        return TUTTI_OK;
    c = take_caller(s);
    status = add_parts(s, c, (uint32_t)p->index, b, p->first, p->count, s->m->g, s->m->g, err);

    if (status == TUTTI_OK)
        status = call_all(s, c, err);
    if (status == TUTTI_OK)
        status = store(s, c, s->m->g, err);
    for (int k = 0; k < c->n && status == TUTTI_OK; k++)
        if (c->note[k].bytes == 0)
            status = tutti_fail_rank(err, TUTTI_ERR_CORRUPT, c->member[k], "the server at worker %d answered nothing about bucket %d; all workers must run one version", c->member[k], p->index);
        else if (p->rows != NULL)
            tutti_slice_known(e, &c->slice[k], c->reply[k].data, k == 0);
    give_back(s, c);
    return status;
}

/* ---- server ---- */

/* What a request says is not trusted: it names what is read and written. */
static tutti_status understand(tutti_server *s, const tutti_note *note, tutti_server_request *r, tutti_error *err)
{
    const tutti_method *m = s->m;
    const int worker = note->from;
    size_t first = 0, count = m->layout->used;
    tutti_slice slice;

    if (s->setup.pieces && note->kind >= (uint32_t)m->layout->n_pieces)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker, "worker %d asks about piece %lu of %d; all workers must run one version", worker, (unsigned long)note->kind, m->layout->n_pieces);
    if (s->setup.pieces) {
        first = m->layout->piece[note->kind].first;
        count = m->layout->piece[note->kind].count;
    }
    if (worker < 0 || worker >= m->workers)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker, "rank %d, which only serves, asks a server; all must run one version", worker);
    *r = (tutti_server_request){ .note = *note, .worker = worker, .kind = note->kind, .b = note->b };
    r->count = tutti_server_part(s, s->index, first, count, &r->first);
    r->in = note->bytes > 0 ? s->in : NULL;
    r->words = (size_t)note->bytes / sizeof(float);
    slice = tutti_slice_of(m->engine, r->first, r->count);
    if (slice.tables > 0 && r->in != NULL)
        TUTTI_TRY(tutti_slice_check(m->engine, &slice, r->in, r->words, worker, err));
    else if (note->bytes > 0 && note->bytes != r->count * tutti_dtype_bytes(s->setup.wire))
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker, "worker %d sent %llu bytes for a slice of %zu; all workers must run one version", worker, (unsigned long long)note->bytes,
                               r->count * tutti_dtype_bytes(s->setup.wire));
    if (s->setup.pieces)
        return TUTTI_OK;
    if (note->bytes > 0 && !is_float(s)) {
        tutti_cast(m->device, half(s, s->half_in, 0, r->count), tutti_f32(m->device, s->in, r->count));
        r->words = r->count;
    }
    if (s->asks[worker])
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker, "worker %d asks again before it was answered; all workers must run one version", worker);
    s->asks[worker] = true;
    if (note->a > *s->version)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker, "worker %d says that it has version %lld of a slice of which there is %llu; all workers must run one checkpoint", worker, (long long)note->a,
                               (unsigned long long)*s->version);
    r->delay = s->delay[worker] = (uint64_t)(*s->version - note->a);
    return TUTTI_OK;
}

/* Rows of a table as they are now, to who is about to read them. What is asked is not trusted. */
static tutti_status answer_rows(tutti_server *s, const tutti_note *note, tutti_error *err)
{
    const tutti_engine *e = s->m->engine;
    const tutti_tensor *t = note->b >= 0 && note->b < e->layout.n_tensors && e->tensors[note->b].asked ? &e->tensors[note->b] : NULL;
    const size_t begin = t == NULL || t->first < s->first ? s->first : t->first, end = t == NULL || t->first + t->count > s->first + s->count ? s->first + s->count : t->first + t->count;
    const size_t n = (size_t)note->bytes / sizeof(uint32_t);
    const uint32_t *ids = (const uint32_t *)(const void *)s->in;
    size_t low, rows;

    if (t == NULL || begin >= end)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note->from, "worker %d asks for rows of parameter %lld, of which none is served here; all workers must run one version", note->from, (long long)note->b);
    low = (begin - t->first) / t->cols;
    rows = (end - begin) / t->cols;
    if (n == 0)
        return tutti_server_answer(s, note, 1, 0, s->values + (begin - s->first), end - begin, err);
    for (size_t k = 0; k < n; k++)
        if (ids[k] < low || ids[k] - low >= rows || (k > 0 && ids[k] <= ids[k - 1]))
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note->from, "worker %d asks for row %lu of %s, where rows %zu to %zu are served, in ascending order; all workers must run one version", note->from,
                                   (unsigned long)ids[k], t->name, low, low + rows - 1);
    tutti_slice_gather(t->cols, n, ids, s->values + (begin - s->first), (uint32_t)low, s->words);
    return tutti_server_answer(s, note, 1, 0, s->words, n * t->cols, err);
}

tutti_status tutti_server_run(tutti_server *s, tutti_error *err)
{
    const size_t room = s->index >= 0 ? room_of_part(s) : 0;
    tutti_note note;
    tutti_server_request r;
    tutti_status status = TUTTI_OK;

    while (s->index >= 0 && status == TUTTI_OK) {
        status = tutti_serve(s->m, s->setup.service, &note, is_float(s) ? tutti_f32(s->m->device, s->in, room) : half(s, s->half_in, 0, room), s->wake_at_ns, err);
        if (status == TUTTI_TIMEOUT) {
            s->wake_at_ns = TUTTI_FOREVER;
            status = s->setup.due(s->m, err);
        } else if (status == TUTTI_OK && note.kind == (uint32_t)KIND_ROWS && !s->setup.pieces)
            status = answer_rows(s, &note, err);
        else if (status == TUTTI_OK) {
            TUTTI_TRY(understand(s, &note, &r, err));
            status = s->setup.rule(s->m, &r, err);
        }
    }
    return status;
}

float *tutti_server_values(tutti_server *s)
{
    return s->values;
}

uint64_t tutti_server_version(const tutti_server *s)
{
    return (uint64_t)*s->version;
}

void tutti_server_update(tutti_server *s, const float *g, const tutti_rate *rate)
{
    tutti_slice_update(s->m->engine, &s->slice, g, s->values, s->zeros, rate);
    ++*s->version;
}

void tutti_server_collect(tutti_server *s, float a, const float *in, float *sum)
{
    tutti_slice_add(s->m->engine, &s->slice, a, in, sum, s->marks);
}

void tutti_server_update_collected(tutti_server *s, float *sum, const tutti_rate *rate)
{
    tutti_slice_update_added(s->m->engine, &s->slice, sum, s->marks, s->values, rate);
    ++*s->version;
}

float *tutti_server_sum(tutti_server *s, const tutti_server_request *r, int n, float *const *parts, const float *weights, size_t *words)
{
    const tutti_slice slice = tutti_slice_of(s->m->engine, r->first, r->count);

    *words = r->count;
    if (slice.tables == 0) {
        tutti_tree_sum(s->m->device, r->count, n, (const float *const *)parts, weights, parts[0]);
        return parts[0];
    }
    *words = tutti_slice_sum(s->m->engine, &slice, n, (const float *const *)parts, weights, s->summand, s->from, s->no_row, s->words);
    return s->words;
}

void tutti_server_blend(tutti_server *s, float a, const float *v)
{
    tutti_blend(s->m->device, s->count, a, v, 1 - a, s->values);
    ++*s->version;
}

void tutti_server_add(tutti_server *s, float a, const float *d)
{
    tutti_axpy(s->m->device, s->count, a, d, s->values);
    ++*s->version;
}

void tutti_server_wake_at(tutti_server *s, int64_t at_ns)
{
    assert(s->setup.due != NULL);
    s->wake_at_ns = at_ns;
}

/* kinds: one for all, or one each. */
static tutti_status answer(tutti_server *s, const tutti_note *requests, int n, const uint32_t *kinds, bool each, bool gives, tutti_buffer payload, tutti_error *err)
{
    tutti_engine *e = s->m->engine;

    if (payload.count > 0 && !is_float(s)) {
        const tutti_buffer narrowed = half(s, s->half_out, 0, payload.count);
        tutti_cast(s->m->device, payload, narrowed);
        payload = narrowed;
    }
    for (int k = 0; k < n; k++) {
        s->answer[k] = (tutti_note){ .kind = kinds[each ? k : 0] };
        if (gives) {
            s->answer[k].a = *s->version;
            s->answer[k].b = (int64_t)s->delay[requests[k].from];
        }
        s->asks[requests[k].from] = false;
        tutti_engine_answered(e, &requests[k]);
    }
    return tutti_engine_answer(e, requests, s->answer, n, payload, s->send, s->each, err);
}

static tutti_status give(tutti_server *s, const tutti_note *requests, int n, const uint32_t *kinds, bool each, tutti_error *err)
{
    if (s->slice.tables == 0)
        return answer(s, requests, n, kinds, each, true, tutti_f32(s->m->device, s->values, s->count), err);
    return answer(s, requests, n, kinds, each, true, tutti_f32(s->m->device, s->words, tutti_slice_whole(s->m->engine, &s->slice, s->values, s->words)), err);
}

tutti_status tutti_server_give(tutti_server *s, const tutti_note *requests, int n, uint32_t kind, tutti_error *err)
{
    return give(s, requests, n, &kind, false, err);
}

tutti_status tutti_server_give_each(tutti_server *s, const tutti_note *requests, int n, const uint32_t *kinds, tutti_error *err)
{
    return give(s, requests, n, kinds, true, err);
}

tutti_status tutti_server_give_update(tutti_server *s, const tutti_note *requests, int n, int late, uint32_t kind, float *along, size_t words, tutti_error *err)
{
    if (s->slice.tables == 0 || !tutti_optim_by_rows(s->m->optim)) /* then every row has moved */
        return tutti_server_give(s, requests, n + late, kind, err);
    tutti_slice_fetch(s->m->engine, &s->slice, s->values, along);
    TUTTI_TRY(answer(s, requests, n, &kind, false, true, tutti_f32(s->m->device, along, words), err));
    return late > 0 ? tutti_server_give(s, requests + n, late, kind, err) : TUTTI_OK;
}

tutti_status tutti_server_answer(tutti_server *s, const tutti_note *requests, int n, uint32_t kind, float *payload, size_t count, tutti_error *err)
{
    return answer(s, requests, n, &kind, false, false, count > 0 ? tutti_f32(s->m->device, payload, count) : tutti_nothing(), err);
}

tutti_status tutti_server_give_own(tutti_server *s, const tutti_note *requests, int n, uint32_t kind, float *payload, tutti_error *err)
{
    return answer(s, requests, n, &kind, false, true, tutti_f32(s->m->device, payload, s->count), err);
}
