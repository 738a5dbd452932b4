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

#include "engine_internal.h"
#include "tutti/server.h"

/* What one caller of several calls at once needs. */
typedef struct caller {
    tutti_engine_call *call;
    tutti_request **each;
    tutti_note *note;
    tutti_buffer *request, *reply;
    int *member, *server;        /* whom each goes to */
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
    float *values, *in;          /* of the slice, and of what comes */
    int64_t *version;            /* of my slice; server's thread. Declared */
    struct { const char *name; int64_t **slot; } counts[COUNTS_MOST]; int n_counts; /* one a slice: version and the method's */
    int64_t *got;                /* servers: version of each slice that this worker has; client's */
    size_t *part_of;             /* members of everyone: elements of x that each serves */
    uint64_t *delay;             /* workers: of the last request of each; server's thread */
    bool *asks;                  /* workers: whose request has no answer yet; server's thread */
    tutti_note *answer;          /* workers: of one answer to many */
    tutti_request *send, **each;
    tutti_monitor *monitor;      /* of taken */
    caller *callers; int n_callers;
};

enum { ALIGNMENT = 16 };         /* elements */

static size_t cut(int servers, int k, size_t count)
{
    return k == servers ? count : count / ALIGNMENT * (size_t)k / (size_t)servers * ALIGNMENT;
}

size_t tutti_server_part(const tutti_server *s, int k, size_t first, size_t count, size_t *part_first)
{
    const size_t begin = cut(s->servers, k, count);

    *part_first = first + begin;
    return cut(s->servers, k + 1, count) - begin;
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
    s->member = tutti_alloc((size_t)s->servers, sizeof *s->member);
    if (s->member == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'", m->ops->name);
    place(s);
    if (s->index >= 0)
        s->count = tutti_server_part(s, s->index, 0, m->layout->used, &s->first);
    tutti_declare(plan, &(tutti_state){ .name = "server.in", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = s->index < 0 ? 0 : m->layout->used / (size_t)s->servers + 2 * ALIGNMENT }, &s->in);
    if (setup->pieces)
        return TUTTI_OK;
    tutti_declare(plan, &(tutti_state){ .name = "server.values", .keep = TUTTI_SLICE, .dtype = TUTTI_F32, .first = s->first, .count = s->count, .placed = true }, &s->values);
    tutti_declare(plan, &(tutti_state){ .name = "server.got", .keep = m->traits & TUTTI_REPLICAS_EQUAL ? TUTTI_SCRATCH : TUTTI_OWN_ZERO, .dtype = TUTTI_I64, .count = (size_t)s->servers }, &s->got);
    tutti_server_declare_count(s, plan, "server.version", &s->version);
    return tutti_optimizer_declare(m, plan, s->first, s->count, TUTTI_SLICE, err);
}

static bool open_caller(caller *c, size_t n)
{
    c->call = tutti_alloc(n, sizeof *c->call);
    c->each = tutti_alloc(n, sizeof *c->each);
    c->note = tutti_alloc(n, sizeof *c->note);
    c->request = tutti_alloc(n, sizeof *c->request);
    c->reply = tutti_alloc(n, sizeof *c->reply);
    c->member = tutti_alloc(n, sizeof *c->member);
    c->server = tutti_alloc(n, sizeof *c->server);
    return c->call != NULL && c->each != NULL && c->note != NULL && c->request != NULL && c->reply != NULL && c->member != NULL && c->server != NULL;
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
    enough = s->delay != NULL && s->asks != NULL && s->part_of != NULL && s->answer != NULL && s->send != NULL && s->each != NULL && s->callers != NULL;
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
    }
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
    c->member[c->n] = s->member[k];
    c->server[c->n++] = k;
}

/* One call to each server that has a part of [first, first + count); values, into: element 0 of the flat space. */
static void add_parts(tutti_server *s, caller *c, uint32_t kind, int64_t b, size_t first, size_t count, float *values, float *into)
{
    for (int k = 0; k < s->servers; k++) {
        size_t at;
        const size_t part = tutti_server_part(s, k, first, count, &at);
        if (part > 0)
            add(s, c, k, kind, b, values != NULL ? tutti_f32(s->m->device, values + at, part) : tutti_nothing(), into != NULL ? tutti_f32(s->m->device, into + at, part) : tutti_nothing());
    }
}

/* Who waits for a server while the run ends hears why it ends. */
static tutti_status call_all(tutti_server *s, caller *c, tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    const tutti_status status = tutti_engine_calls(e, s->setup.service, c->n, c->member, c->note, c->request, c->reply, c->call, c->each, err);
    const tutti_status cause = status == TUTTI_CLOSED ? tutti_engine_services_look(e, err) : TUTTI_OK;

    for (int k = 0; k < c->n && status == TUTTI_OK; k++)
        if (c->note[k].bytes != 0 && c->note[k].bytes != c->reply[k].count * tutti_dtype_bytes(c->reply[k].dtype))
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, c->member[k], "the server at worker %d answered %llu bytes for a slice of %zu; all workers must run one version", c->member[k],
                                   (unsigned long long)c->note[k].bytes, c->reply[k].count * tutti_dtype_bytes(c->reply[k].dtype));
    return cause != TUTTI_OK ? cause : status;
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
static tutti_status call_exposed(tutti_server *s, caller *c, tutti_server_answers *answers, tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(e->rt);
    const tutti_status status = call_all(s, c, err);

    if (status == TUTTI_OK)
        read_answers(s, c, answers);
    give_back(s, c);
    tutti_engine_comm(e, "push", 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_server_push(tutti_server *s, uint32_t kind, int64_t b, float *values, float *into, tutti_server_answers *answers, tutti_error *err)
{
    caller *c = take_caller(s);

    add_parts(s, c, kind, b, 0, s->m->layout->used, values, into);
    return call_exposed(s, c, answers, err);
}

tutti_status tutti_server_ask(tutti_server *s, int k, uint32_t kind, int64_t b, tutti_server_answers *answers, tutti_error *err)
{
    caller *c = take_caller(s);

    add(s, c, k, kind, b, tutti_nothing(), tutti_nothing());
    return call_exposed(s, c, answers, err);
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
    caller *c = take_caller(s);
    tutti_status status;

    add_parts(s, c, (uint32_t)p->index, b, p->first, p->count, s->m->g, s->m->g);
    status = call_all(s, c, err);
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
    if (note->bytes > 0 && note->bytes != r->count * sizeof(float))
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker, "worker %d sent %llu bytes for a slice of %zu; all workers must run one version", worker, (unsigned long long)note->bytes,
                               r->count * sizeof(float));
    if (s->setup.pieces)
        return TUTTI_OK;
    if (s->asks[worker])
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker, "worker %d asks again before it was answered; all workers must run one version", worker);
    s->asks[worker] = true;
    if (note->a > *s->version)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker, "worker %d says that it has version %lld of a slice of which there is %llu; all workers must run one checkpoint", worker, (long long)note->a,
                               (unsigned long long)*s->version);
    r->delay = s->delay[worker] = (uint64_t)(*s->version - note->a);
    return TUTTI_OK;
}

tutti_status tutti_server_run(tutti_server *s, tutti_error *err)
{
    const size_t room = s->m->layout->used / (size_t)s->servers + 2 * ALIGNMENT;
    tutti_note note;
    tutti_server_request r;
    tutti_status status = TUTTI_OK;

    while (s->index >= 0 && (status = tutti_serve(s->m, s->setup.service, &note, tutti_f32(s->m->device, s->in, room), err)) == TUTTI_OK) {
        TUTTI_TRY(understand(s, &note, &r, err));
        TUTTI_TRY(s->setup.rule(s->m, &r, err));
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
    tutti_update(s->m->optim, s->first, s->count, s->values, g, rate);
    ++*s->version;
}

static tutti_status answer(tutti_server *s, const tutti_note *requests, int n, uint32_t kind, bool gives, tutti_buffer payload, tutti_error *err)
{
    tutti_engine *e = s->m->engine;

    for (int k = 0; k < n; k++) {
        s->answer[k] = (tutti_note){ .kind = kind };
        if (gives) {
            s->answer[k].a = *s->version;
            s->answer[k].b = (int64_t)s->delay[requests[k].from];
        }
        s->asks[requests[k].from] = false;
        tutti_engine_answered(e, &requests[k]);
    }
    return tutti_engine_answer(e, requests, s->answer, n, payload, s->send, s->each, err);
}

tutti_status tutti_server_give(tutti_server *s, const tutti_note *requests, int n, uint32_t kind, tutti_error *err)
{
    return answer(s, requests, n, kind, true, tutti_f32(s->m->device, s->values, s->count), err);
}

tutti_status tutti_server_answer(tutti_server *s, const tutti_note *requests, int n, uint32_t kind, float *payload, size_t count, tutti_error *err)
{
    return answer(s, requests, n, kind, false, count > 0 ? tutti_f32(s->m->device, payload, count) : tutti_nothing(), err);
}
