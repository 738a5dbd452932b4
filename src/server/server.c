/* server.c: parameters cut over servers, as Li et al. do ("Scaling Distributed Machine Learning
   with the Parameter Server", OSDI 2014), but by ranges of equal bytes and not by hashed keys:
   dense gradients have no hot keys, a range is one message, and the largest share exceeds the mean
   by less than two cache lines (hashes: 18 % and more over eight servers, byteps.md).

   A push is one call to each server at once (tutti_engine_calls): all requests are posted,
   then all answers waited for, on the caller's thread. A thread a slice, as lanes would have
   it, costs two changes of context a slice. A request's note has the version that the worker
   has of the slice, so the server knows the delay without remembering who has what; an answer
   with values brings the next version.

   Ranks that only serve (--servers) have all slices, each one; then no worker serves. Placing them
   is the launcher's business, who starts them behind the workers, on each host in turn.

   Windows. Where ranks share memory (shm) a worker's g is a window, and with servers that keep
   values x is one too. Then a request about values as they stand (no rows, no halves) carries
   nothing: the server reads the slice in the worker's g and writes its answer into the worker's x
   (of pieces g, where the sum goes into all of them in the same pass that reads them), and only
   then says so. The worker waits for that, so nobody else looks at the slice meanwhile, and what it
   had sent stays where it was until it is answered. Rows that are asked for are written into its x
   likewise. What went so is counted as if it had been sent. A worker that is killed meanwhile
   leaves its window mapped, and a slice that it had asked about whole; one that gives up waits for
   its own end and computes nothing any more.

   Which workers serve, if not all: they are taken from each host in turn, in order of rank, so that
   servers share as few links as possible; which slice is whose follows their ranks, so that the
   slices of all, in order of rank, are x. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server_internal.h"

enum { ALIGNMENT = 16 };         /* elements */
enum { AT_ONCE_BYTES = 1 << 30 }; /* of requests that come at a time, and of answers that go */

/* Between rows of tables: a row is read and written by one server. */
static size_t cut(const tutti_server *s, int k, size_t first, size_t count)
{
    const size_t even = count / ALIGNMENT * (size_t)k / (size_t)s->servers * ALIGNMENT;
    return k == s->servers ? count : tutti_slice_cut(s->m, first + even) - first;
}

/* Elements that a request is about, at most: a piece is cut once it is full,
   however large its last tensor is. */
static size_t asked_about(const tutti_server *s)
{
    const tutti_method *m = s->m;
    const double bytes = (double)(m->first_piece_bytes > m->piece_bytes ? m->first_piece_bytes : m->piece_bytes);
    size_t largest = 0;

    for (int i = 0; i < m->layout->n_tensors && s->setup.pieces; i++)
        largest = m->layout->tensor[i].count > largest ? m->layout->tensor[i].count : largest;
    if (!s->setup.pieces || bytes / sizeof(float) + (double)largest >= (double)m->layout->used)
        return m->layout->used;
    return (size_t)(bytes / sizeof(float)) + largest;
}

/* Words of a request or an answer, at most. */
static size_t room_of_part(const tutti_server *s)
{
    return asked_about(s) / (size_t)s->servers + 2 * ALIGNMENT + tutti_server_slack(s->m);
}

/* How many of those there are at a time, of `wanted`: two at least. */
static int as_many(const tutti_server *s, int wanted)
{
    const size_t fit = AT_ONCE_BYTES / (room_of_part(s) * tutti_dtype_bytes(s->setup.wire));

    if (s->index < 0)
        return 0;
    wanted = wanted > TUTTI_DESK_MOST ? TUTTI_DESK_MOST : wanted;
    return fit >= (size_t)wanted ? wanted : fit > 2 ? (int)fit : 2;
}

size_t tutti_server_slack(const tutti_method *m)
{
    size_t words = 0;

    for (int i = 0; i < m->layout->n_tensors; i++) {
        const tutti_tensor *t = &m->layout->tensor[i];
        if (tutti_engine_rows_known(m->engine, i) != NULL)
            words += 1 + t->cols + (tutti_optim_lazy(m->optim) ? t->rows : 0);
    }
    return words;
}

size_t tutti_server_words(const tutti_server *s, size_t first, size_t count)
{
    tutti_slice slice;
    size_t at, part;

    if (s->index < 0)
        return 0;
    part = tutti_server_part(s, s->index, first, count, &at);
    slice = tutti_slice_of(s->m, at, part);
    return tutti_slice_room(&slice);
}

size_t tutti_server_part(const tutti_server *s, int k, size_t first, size_t count, size_t *part_first)
{
    const size_t begin = cut(s, k, first, count);

    *part_first = first + begin;
    return cut(s, k + 1, first, count) - begin;
}

bool tutti_server_keeps(const tutti_server *s)
{
    return !s->there || tutti_server_slack(s->m) > 0;
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

/* Of each host in turn the next worker that does not serve yet. A worker's turn is its place on its
   host; hosts are met in order of rank. */
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
    tutti_declare(plan,
                  &(tutti_state){ .name = name,
                                  .keep = keep,
                                  .dtype = TUTTI_I64,
                                  .first = s->index < 0 ? 0 : (size_t)s->index,
                                  .count = s->index >= 0,
                                  .of = (size_t)s->servers },
                  slot);
}

/* Servers of their own are as many as the run has; a method that has one asks for one. */
static tutti_status check_servers(const tutti_method *m, const tutti_server_setup *setup, tutti_error *err)
{
    if (m->servers == 0 || setup->servers == 0 || setup->servers == m->servers)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "method '%s' has %d server%s, but %d ranks only serve (servers); give --servers %d, or leave it "
                      "away: then workers serve beside their computation",
                      m->ops->name, setup->servers, setup->servers > 1 ? "s" : "", m->servers, setup->servers);
}

/* Room for as many requests as may come at a time, one from each thread that asks, and for what as
   many answers carry. Answers about a piece share one: a worker that waits for it keeps the others
   from the next about it. With one worker nothing changes until it has its answer. */
static void declare_desk(tutti_server *s, tutti_plan *plan)
{
    const tutti_method *m = s->m;
    const int threads = s->setup.pieces ? 1 + m->lane_width : 1;
    const size_t words = tutti_server_keeps(s) ? room_of_part(s) : 0, told = s->setup.tells ? room_of_part(s) : words;
    tutti_state in = { .name = "server.in", .keep = TUTTI_SCRATCH, .dtype = s->setup.wire }, out = in, wide = in;

    s->rooms = as_many(s, m->workers * threads);
    s->copies = m->workers == 1 ? 0 : as_many(s, s->setup.pieces ? threads + 1 : m->workers);
    in.count = (size_t)s->rooms * words;
    out.name = "server.out";
    out.count = (size_t)s->copies * told;
    wide.name = "server.in-wide";
    wide.dtype = TUTTI_F32;
    wide.count = s->index < 0 || tutti_server_is_float(s) ? 0 : words;
    tutti_declare(plan, &in, &s->desk_in);
    tutti_declare(plan, &out, &s->desk_out);
    tutti_declare(plan, &wide, &s->wide);
    s->in_bytes = words * tutti_dtype_bytes(s->setup.wire);
    s->out_bytes = told * tutti_dtype_bytes(s->setup.wire);
}

static const tutti_facility_ops facility; /* at the end */

tutti_status tutti_server_declare(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                  const tutti_server_setup *setup, tutti_error *err)
{
    tutti_server *s;

    *out = NULL;
    TUTTI_TRY(check_servers(m, setup, err));
    if (setup->servers < 0 || setup->servers > m->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': servers is %d, but there are %d workers, of which each serves once at most; 0 "
                          "lets all of them serve",
                          m->ops->name, setup->servers, m->workers);
    s = *out = tutti_alloc(1, sizeof *s);
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'", m->ops->name);
    s->m = m;
    s->setup = *setup;
    s->servers = m->servers > 0 ? m->servers : setup->servers == 0 ? m->workers : setup->servers;
    tutti_facility_add(m, &facility, s);
    s->wake_at_ns = TUTTI_FOREVER;
    s->member = tutti_alloc((size_t)s->servers, sizeof *s->member);
    if (s->member == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'", m->ops->name);
    place(s);
    if (setup->whole)
        tutti_engine_rows_whole(m->engine);
    if (s->index >= 0)
        s->count = tutti_server_part(s, s->index, 0, m->layout->used, &s->first);
    if ((m->traits & TUTTI_UPDATES_SLICES) != 0 && !setup->pieces) /* before slices: how tables travel depends on it */
        TUTTI_TRY(tutti_optimizer_declare(m, plan, s->first, s->count, TUTTI_SLICE, err));
    s->slice = tutti_slice_of(m, s->first, s->count);
    s->there = tutti_world_shares(m->world) && tutti_server_is_float(s) && (setup->pieces || tutti_engine_pushes(m));
    declare_desk(s, plan);
    tutti_declare(
        plan,
        &(tutti_state){ .name = "server.words",
                        .keep = TUTTI_SCRATCH,
                        .dtype = TUTTI_F32,
                        .count = s->index < 0 || (setup->pieces ? tutti_server_slack(m) : s->slice.tables) == 0
                                     ? 0
                                     : room_of_part(s) },
        &s->words);
    if (setup->pieces)
        return TUTTI_OK;
    if (!tutti_server_is_float(s)) {
        assert((m->traits & TUTTI_KNOWS_ROWS) == 0); /* rows travel with their ids */
        tutti_declare(
            plan,
            &(tutti_state){
                .name = "server.sent-as", .keep = TUTTI_SCRATCH, .dtype = setup->wire, .count = m->layout->used },
            &s->half[0]);
        tutti_declare(
            plan,
            &(tutti_state){
                .name = "server.came-as", .keep = TUTTI_SCRATCH, .dtype = setup->wire, .count = m->layout->used },
            &s->half[1]);
        tutti_declare(plan,
                      &(tutti_state){ .name = "server.out-as",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = setup->wire,
                                      .count = s->index < 0 ? 0 : room_of_part(s) },
                      &s->half_out);
    }
    tutti_declare(plan,
                  &(tutti_state){ .name = "server.values",
                                  .keep = TUTTI_SLICE,
                                  .dtype = TUTTI_F32,
                                  .first = s->first,
                                  .count = s->count,
                                  .placed = true },
                  &s->values);
    tutti_declare(plan,
                  &(tutti_state){ .name = "server.got",
                                  .keep = m->traits & TUTTI_REPLICAS_EQUAL ? TUTTI_SCRATCH : TUTTI_OWN_ZERO,
                                  .dtype = TUTTI_I64,
                                  .count = (size_t)s->servers },
                  &s->got);
    tutti_server_declare_count(s, plan, "server.version", &s->version);
    tutti_engine_declare_history(m->engine);
    if (setup->collects) {
        size_t first;
        const size_t rows = tutti_slice_marks(m, &s->slice, &first),
                     all = tutti_slice_marks(m, &(tutti_slice){ .count = m->layout->used }, &(size_t){ 0 });
        if (all > 0)
            tutti_declare(plan,
                          &(tutti_state){ .name = "server.marks",
                                          .keep = TUTTI_SLICE,
                                          .dtype = TUTTI_U8,
                                          .first = first,
                                          .count = rows,
                                          .of = all },
                          &s->marks);
    }
    if (setup->reads) {
        const size_t workers = (size_t)m->workers;
        tutti_declare(plan,
                      &(tutti_state){ .name = "server.read",
                                      .keep = TUTTI_SLICE,
                                      .dtype = TUTTI_F32,
                                      .first = workers * s->first,
                                      .count = workers * s->count,
                                      .of = workers * m->layout->used,
                                      .of_workers = true },
                      &s->read);
    }
    if (setup->times) {
        const size_t workers = (size_t)m->workers, index = s->index < 0 ? 0 : (size_t)s->index;
        tutti_declare(plan,
                      &(tutti_state){ .name = "server.seconds",
                                      .keep = TUTTI_SLICE,
                                      .dtype = TUTTI_F64,
                                      .first = workers * index,
                                      .count = s->index < 0 ? 0 : workers,
                                      .of = workers * (size_t)s->servers,
                                      .of_workers = true },
                      &s->seconds);
    }
    if (m->traits & TUTTI_UPDATES_SLICES)
        tutti_declare(plan,
                      &(tutti_state){ .name = "server.zeros",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F32,
                                      .count = s->slice.tables == 0 || tutti_optim_by_rows(m->optim) ? 0 : s->count },
                      &s->zeros);
    return TUTTI_OK;
}

tutti_status tutti_server_table_fits(const tutti_server *s, tutti_dtype dtype, double limit_mb, const char *mend,
                                     tutti_error *err)
{
    const tutti_method *m = s->m;
    const double bytes = (double)m->workers * (double)m->layout->used * (double)tutti_dtype_bytes(dtype),
                 limit = limit_mb > 0 ? limit_mb * 1048576 : (double)tutti_machine_bytes();

    if (bytes <= limit || (limit_mb == 0 && s->index < 0))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "method '%s': the server's table has a vector of %zu parameters for each of %d workers, %.0f "
                      "bytes, but %s %.0f (%.4g MiB); %s",
                      m->ops->name, m->layout->used, m->workers, bytes,
                      limit_mb > 0 ? "table_limit_mb lets it have" : "its machine has", limit, limit / 1048576, mend);
}

/* What the worker was given: the model that all begin with. */
static void read_first(tutti_server *s)
{
    for (int w = 0; s->read != NULL && w < s->m->workers; w++)
        tutti_copy(s->m->device, s->count, s->m->x + s->first, s->read + (size_t)w * s->count);
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

static tutti_engine_desk *desk_of(const tutti_server *s)
{
    return tutti_engine_desk_of(s->m->engine, s->setup.service);
}

static tutti_status open_server(void *self, tutti_error *err)
{
    tutti_server *s = self;
    tutti_engine *e = s->m->engine;
    const size_t workers = (size_t)s->m->workers, everyone = (size_t)s->m->everyone.size;
    bool enough;

    if (!s->setup.pieces)
        tutti_copy(s->m->device, s->count, s->m->x + s->first, s->values);
    read_first(s);
    s->delay = tutti_alloc(workers, sizeof *s->delay);
    s->asks = tutti_alloc(workers, sizeof *s->asks);
    s->given_ns = tutti_alloc(workers, sizeof *s->given_ns);
    s->gone = tutti_alloc(workers, sizeof *s->gone);
    s->part_of = tutti_alloc(everyone, sizeof *s->part_of);
    s->answer = tutti_alloc(workers, sizeof *s->answer);
    s->placed = tutti_alloc(workers, sizeof *s->placed);
    s->told = tutti_alloc(workers, sizeof *s->told);
    enough = s->delay != NULL && s->asks != NULL && s->given_ns != NULL && s->gone != NULL && s->part_of != NULL &&
             s->answer != NULL && s->placed != NULL && s->told != NULL && open_sums(s) && tutti_server_callers_open(s);
    if (!enough)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'", s->m->ops->name);
    tutti_engine_service_hears(e, s->setup.service);
    if (s->index >= 0) {
        const tutti_desk_setup desk = { .rooms = s->rooms,
                                        .in = s->desk_in,
                                        .in_bytes = s->in_bytes,
                                        .copies = s->copies,
                                        .out = s->desk_out,
                                        .out_bytes = s->out_bytes,
                                        .stays = s->copies == 0 };
        TUTTI_TRY(tutti_desk_open(desk_of(s), e, s->setup.service, &desk, err));
    }
    return tutti_monitor_open(&s->monitor, s->m->rt, err);
}

static void close_server(void *self)
{
    tutti_server *s = self;

    tutti_monitor_close(s->monitor);
    tutti_server_callers_close(s);
    tutti_free(s->summand);
    tutti_free(s->from);
    tutti_free(s->no_row);
    tutti_free(s->member);
    tutti_free(s->part_of);
    tutti_free(s->delay);
    tutti_free(s->asks);
    tutti_free(s->given_ns);
    tutti_free(s->gone);
    tutti_free(s->answer);
    tutti_free(s->placed);
    for (int w = 0; s->told != NULL && w < s->m->workers; w++)
        tutti_cancel(s->m->world, &s->told[w].reply);
    tutti_free(s->told);
    tutti_free(s);
}

tutti_status tutti_server_agree(tutti_server *s, tutti_error *err)
{
    tutti_method *m = s->m;
    tutti_engine *e = m->engine;
    float *const kept = tutti_engine_kept(e);
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(s->m->rt);
    tutti_status status;

    for (int i = 0, k = 0; i < m->everyone.size; i++) { /* both ascend */
        const int rank = tutti_group_rank(&m->everyone, i);
        size_t first;
        while (k < s->servers && s->member[k] < rank)
            k++;
        s->part_of[i] =
            k < s->servers && s->member[k] == rank ? tutti_server_part(s, k, 0, m->layout->used, &first) : 0;
    }
    status = tutti_allgather_v(&m->everyone, s->part_of, tutti_f32(m->device, s->values, s->count),
                               tutti_f32(m->device, m->x, m->layout->used), err);

    /* rows that a worker asks for are nobody's own: what it has of them is old, and no model of
       its */
    for (int i = 0; i < m->layout->n_tensors && kept != NULL; i++) {
        const tutti_tensor *t = &m->layout->tensor[i];
        if (t->asked)
            tutti_copy(m->device, t->count, m->x + t->first, kept + t->first);
    }
    tutti_engine_comm(e, "gather", 0, begin, tutti_now_ns(s->m->rt));
    tutti_engine_doing(e, was);
    return status;
}

/* ---- losses ---- */

bool tutti_server_is_at(const tutti_server *s, int rank)
{
    bool serves = false;

    for (int k = 0; k < s->servers; k++)
        serves = serves || s->member[k] == rank;
    return serves;
}

tutti_status tutti_server_slice_lost(const tutti_server *s, int rank, const char *why, tutti_error *err)
{
    char text[300];

    snprintf(text, sizeof text, "%.299s", why); /* it may be in err */
    return tutti_fail_rank(err, TUTTI_ERR_PEER, rank,
                           "%s %d is lost, and with it its slice of the model, without which '%s' cannot go on; resume "
                           "from a checkpoint (%s)",
                           rank < s->m->workers ? "worker" : "server of rank", rank, s->m->ops->name, text);
}

static tutti_status without(const void *self, int rank, const char *why, tutti_error *err)
{
    return tutti_server_is_at(self, rank) ? tutti_server_slice_lost(self, rank, why, err) : TUTTI_OK;
}

/* ---- a checkpoint ---- */

static int64_t slices(const void *self)
{
    const tutti_server *s = self;
    return s->setup.pieces ? 0 : s->servers;
}

/* With other slices or other workers all begin at the servers' model. */
static bool begins_anew(const tutti_server *s, const tutti_saved_run *run)
{
    return run->slices != slices(s) || run->resized || (run->changed && s->setup.anew);
}

/* State of servers and of what workers have of them that is no range of x, or their own x. */
static bool recuts(const void *self, const tutti_saved_run *run, const void *memory)
{
    const tutti_server *s = self;
    bool one_of_them = memory == (const void *)s->got || memory == (const void *)s->read ||
                       memory == (const void *)s->seconds ||
                       (memory == (const void *)s->m->x && (s->m->traits & TUTTI_REPLICAS_EQUAL) == 0);

    for (int i = 0; i < s->n_counts; i++)
        one_of_them = one_of_them || memory == (const void *)*s->counts[i].slot;
    return memory != NULL && one_of_them && begins_anew(s, run);
}

/* Of each slice the greatest of those that it overlaps. old: n. */
static int64_t of_slice(const tutti_server *s, const int64_t *old, int64_t n, int64_t k)
{
    int64_t most = 0;

    for (int64_t j = k * n / s->servers; j <= ((k + 1) * n - 1) / s->servers; j++)
        most = old[j] > most ? old[j] : most;
    return most;
}

static tutti_status read_counts(const tutti_server *s, tutti_checkpoint *checkpoint, int64_t *old, int64_t n,
                                tutti_error *err)
{
    for (int i = 0; i < s->n_counts; i++) {
        const tutti_saved item = { .state = s->counts[i].name,
                                   .tensor = "",
                                   .keep = TUTTI_SLICE,
                                   .dtype = TUTTI_I64,
                                   .owner = -1,
                                   .count = (uint64_t)n,
                                   .begin = 0,
                                   .end = (uint64_t)n,
                                   .data = old };
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
        const tutti_saved item = { .state = "server.values",
                                   .tensor = t->name,
                                   .keep = TUTTI_SLICE,
                                   .dtype = TUTTI_F32,
                                   .owner = -1,
                                   .count = t->count,
                                   .begin = 0,
                                   .end = t->count,
                                   .data = s->m->x + t->first };
        TUTTI_TRY(tutti_checkpoint_read(checkpoint, &item, 1, err));
    }
    return TUTTI_OK;
}

static tutti_status load(void *self, tutti_checkpoint *checkpoint, const tutti_saved_run *run, tutti_error *err)
{
    tutti_server *s = self;
    int64_t *old;
    tutti_status status;

    if (!begins_anew(s, run) || s->setup.pieces || (s->m->traits & TUTTI_REPLICAS_EQUAL) != 0)
        return TUTTI_OK;
    if (run->slices < 1 || run->slices > 1 << 20)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the checkpoint has no slices of servers, as method '%s' needs them; it was saved by another method",
            s->m->ops->name);
    old = tutti_alloc((size_t)run->slices, sizeof *old);
    if (old == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading the counts of %lld slices", (long long)run->slices);
    status = read_counts(s, checkpoint, old, run->slices, err);
    tutti_free(old);
    if (status == TUTTI_OK)
        status = read_model(s, checkpoint, err);
    if (status == TUTTI_OK)
        read_first(s);
    return status;
}

/* Who has left the barriers before this worker's client asks this worker's service at once: so the
   client tells the time by itself, and who asks sooner has taken none. */
static tutti_status release(void *self, tutti_error *err)
{
    tutti_server *s = self;

    (void)err;
    for (int w = 0; w < s->m->workers; w++)
        s->given_ns[w] = 0;
    tutti_desk_forget(desk_of(s));
    atomic_store_explicit(&s->begun_ns, 0, memory_order_relaxed);
    return TUTTI_OK;
}

static void begun(void *self)
{
    tutti_server *s = self;
    atomic_store_explicit(&s->begun_ns, tutti_now_ns(s->m->rt), memory_order_relaxed);
}

/* ---- requests, and the rule's side ---- */

/* A slice from `first` on in the window of a worker. */
static float *there(const tutti_server *s, float *flat, int worker, size_t first, size_t count)
{
    return tutti_world_there(s->m->world, flat + first, count * sizeof *flat, worker);
}

static void learn_seconds(tutti_server *s, int worker)
{
    const double took = (double)(tutti_now_ns(s->m->rt) - tutti_server_given_ns(s, worker)) * 1e-9;
    if (took > 0)
        s->seconds[worker] = s->seconds[worker] > 0 ? 0.8 * s->seconds[worker] + 0.2 * took : took;
}

/* What a request says is not trusted: it names what is read and written. */
static tutti_status understand(tutti_server *s, const tutti_note *note, void *in, tutti_server_request *r,
                               tutti_error *err)
{
    const tutti_method *m = s->m;
    const int worker = note->from;
    const uint32_t kind = note->kind & ~(uint32_t)KINDS;
    size_t first = 0, count = m->layout->used;
    tutti_slice slice;

    if (s->setup.pieces && kind >= (uint32_t)m->layout->n_pieces)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker,
                               "worker %d asks about piece %lu of %d; all workers must run one version", worker,
                               (unsigned long)kind, m->layout->n_pieces);
    if (s->setup.pieces) {
        first = m->layout->piece[kind].first;
        count = m->layout->piece[kind].count;
    }
    if (worker < 0 || worker >= m->workers)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker,
                               "rank %d, which only serves, asks a server; all must run one version", worker);
    *r = (tutti_server_request){ .note = *note, .worker = worker, .kind = kind, .b = note->b };
    r->count = tutti_server_part(s, s->index, first, count, &r->first);
    r->in = note->bytes > 0 ? in : NULL;
    r->words = (size_t)note->bytes / sizeof(float);
    slice = tutti_slice_of(m, r->first, r->count);
    if ((note->kind & KINDS) != 0 &&
        (!s->there || slice.tables > 0 || ((note->kind & FROM_THERE) != 0 && note->bytes > 0)))
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker,
                               "worker %d wants a slice to be read or written in its window, which this one is not; "
                               "all workers must run one version",
                               worker);
    if ((note->kind & FROM_THERE) != 0) {
        r->in = there(s, m->g, worker, r->first, r->count);
        r->words = r->count;
        r->stays = true;
    } else if (slice.tables > 0 && r->in != NULL)
        TUTTI_TRY(tutti_slice_check(m, &slice, r->in, r->words, worker, err));
    else if (note->bytes > 0 && note->bytes != r->count * tutti_dtype_bytes(s->setup.wire))
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker,
                               "worker %d sent %llu bytes for a slice of %zu; all workers must run one version", worker,
                               (unsigned long long)note->bytes, r->count * tutti_dtype_bytes(s->setup.wire));
    if (s->setup.pieces)
        return TUTTI_OK;
    if (note->bytes > 0 && !tutti_server_is_float(s)) {
        tutti_cast(m->device, tutti_server_half(s, in, 0, r->count), tutti_f32(m->device, s->wide, r->count));
        r->in = s->wide;
        r->words = r->count;
    }
    if (s->asks[worker])
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker,
                               "worker %d asks again before it was answered; all workers must run one version", worker);
    s->asks[worker] = true;
    if (note->a > *s->version)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, worker,
                               "worker %d says that it has version %lld of a slice of which there is %llu; all workers "
                               "must run one checkpoint",
                               worker, (long long)note->a, (unsigned long long)*s->version);
    r->delay = s->delay[worker] = (uint64_t)(*s->version - note->a);
    if (s->seconds != NULL)
        learn_seconds(s, worker);
    return TUTTI_OK;
}

/* Where a request wants its answer of so many floats; NULL: in a message. */
static float *place_of(const tutti_server *s, const tutti_note *request, size_t count)
{
    const tutti_method *m = s->m;
    const uint32_t kind = request->kind & ~(uint32_t)KINDS;
    size_t first = s->first;

    if ((request->kind & TO_THERE) == 0 || request->kind == (uint32_t)KIND_ROWS)
        return NULL;
    if (s->setup.pieces)
        tutti_server_part(s, s->index, m->layout->piece[kind].first, m->layout->piece[kind].count, &first);
    return there(s, s->setup.pieces ? m->g : m->x, request->from, first, count);
}

enum { CHUNK = 1 << 14 }; /* floats that stay in the second cache while they go to several windows */

/* The payload into the windows of those who want it there; s->placed: bytes of each. */
static void place_answers(tutti_server *s, const tutti_note *requests, int n, const float *from, size_t count)
{
    for (int k = 0; k < n; k++)
        s->placed[k] = place_of(s, &requests[k], count) != NULL ? count * sizeof *from : 0;
    for (size_t at = 0; at < count; at += CHUNK)
        for (int k = 0; k < n; k++) {
            float *const to = place_of(s, &requests[k], count);
            if (to != NULL && to != from)
                memcpy(to + at, from + at, (count - at < CHUNK ? count - at : CHUNK) * sizeof *from);
        }
}

/* s->placed has what stands in windows already. kinds: one for all, or one each. */
static tutti_status tell(tutti_server *s, const tutti_note *requests, int n, const uint32_t *kinds, bool each,
                         bool gives, tutti_buffer payload, tutti_error *err)
{
    tutti_engine *e = s->m->engine;

    for (int k = 0; k < n; k++) {
        s->answer[k] = (tutti_note){ .kind = kinds[each ? k : 0], .ticket = s->placed[k] };
        if (gives) {
            s->answer[k].a = *s->version;
            s->answer[k].b = (int64_t)s->delay[requests[k].from];
            s->given_ns[requests[k].from] = tutti_now_ns(s->m->rt);
        }
        s->asks[requests[k].from] = false;
        tutti_engine_answered(e, &requests[k]);
    }
    return tutti_desk_answer(desk_of(s), requests, s->answer, n, payload, s->placed, err);
}

/* So many floats stand where one request wants them. */
static tutti_status tell_there(tutti_server *s, const tutti_note *request, size_t count, tutti_error *err)
{
    s->placed[0] = count * sizeof(float);
    return tell(s, request, 1, &(uint32_t){ 0 }, false, false, tutti_nothing(), err);
}

/* Rows of a table as they are now, to who is about to read them. What is asked is not trusted. */
static tutti_status answer_rows(tutti_server *s, const tutti_note *note, const uint32_t *ids, tutti_error *err)
{
    const tutti_layout *l = s->m->layout;
    const tutti_tensor *t =
        note->b >= 0 && note->b < l->n_tensors && l->tensor[note->b].asked ? &l->tensor[note->b] : NULL;
    const size_t begin = t == NULL || t->first < s->first ? s->first : t->first,
                 end =
                     t == NULL || t->first + t->count > s->first + s->count ? s->first + s->count : t->first + t->count;
    const size_t n = (size_t)note->bytes / sizeof(uint32_t);
    size_t low, rows;
    float *mine, *to = NULL; /* who asks has read those; wants them there */

    if (note->from < 0 || note->from >= s->m->workers)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note->from,
                               "rank %d, which only serves, asks a server; all must run one version", note->from);
    if (t == NULL || begin >= end)
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, note->from,
            "worker %d asks for rows of parameter %lld, of which none is served here; all workers must run one version",
            note->from, (long long)note->b);
    if (note->kind == (uint32_t)KIND_ROWS_THERE &&
        (!s->there || (to = there(s, s->m->x, note->from, begin, end - begin)) == NULL))
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, note->from,
            "worker %d wants rows of %s in its window, which this one is not; all workers must run one version",
            note->from, t->name);
    low = (begin - t->first) / t->cols;
    rows = (end - begin) / t->cols;
    mine = s->read == NULL ? NULL : s->read + (size_t)note->from * s->count + (begin - s->first);
    if (n == 0) {
        if (mine != NULL)
            tutti_copy(s->m->device, end - begin, s->values + (begin - s->first), mine);
        if (to != NULL)
            tutti_copy(s->m->device, end - begin, s->values + (begin - s->first), to);
        return to != NULL ? tell_there(s, note, end - begin, err)
                          : tutti_server_answer(s, note, 1, 0, s->values + (begin - s->first), end - begin, err);
    }
    for (size_t k = 0; k < n; k++)
        if (ids[k] < low || ids[k] - low >= rows || (k > 0 && ids[k] <= ids[k - 1]))
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note->from,
                                   "worker %d asks for row %lu of %s, where rows %zu to %zu are served, in ascending "
                                   "order; all workers must run one version",
                                   note->from, (unsigned long)ids[k], t->name, low, low + rows - 1);
    for (size_t k = 0; k < n && mine != NULL; k++)
        memcpy(mine + (ids[k] - low) * t->cols, s->values + (begin - s->first) + (ids[k] - low) * t->cols,
               t->cols * sizeof *mine);
    if (to != NULL) {
        tutti_slice_copy(t->cols, n, ids, s->values + (begin - s->first), to, (uint32_t)low);
        return tell_there(s, note, n * t->cols, err);
    }
    tutti_slice_gather(t->cols, n, ids, s->values + (begin - s->first), (uint32_t)low, s->words);
    return tutti_server_answer(s, note, 1, 0, s->words, n * t->cols, err);
}

static tutti_status look_for_losses(tutti_server *s, tutti_error *err)
{
    for (int r = 0; r < s->m->workers; r++)
        if (!s->gone[r] && tutti_engine_misses(s->m->engine, r)) {
            s->gone[r] = true;
            if (s->setup.lost != NULL)
                TUTTI_TRY(s->setup.lost(s->m, r, err));
        }
    return TUTTI_OK;
}

bool tutti_server_has(const tutti_server *s, int worker)
{
    return !s->gone[worker];
}

tutti_status tutti_server_run(tutti_server *s, tutti_error *err)
{
    tutti_note note;
    tutti_server_request r;
    void *in;
    tutti_status status = TUTTI_OK;

    while (s->index >= 0 && status == TUTTI_OK) {
        status = tutti_engine_serve(s->m->engine, s->setup.service, &note, &in, s->wake_at_ns, err);
        if (status == TUTTI_TIMEOUT) {
            s->wake_at_ns = TUTTI_FOREVER;
            status = s->setup.due(s->m, err);
        } else if (status == TUTTI_OK && tutti_engine_is_owed(s->m->engine, &note))
            status = look_for_losses(s, err);
        else if (status == TUTTI_OK && (note.kind == (uint32_t)KIND_ROWS || note.kind == (uint32_t)KIND_ROWS_THERE) &&
                 !s->setup.pieces)
            status = answer_rows(s, &note, in, err);
        else if (status == TUTTI_OK) {
            TUTTI_TRY(understand(s, &note, in, &r, err));
            status = s->setup.rule(s->m, &r, err);
        }
    }
    return status;
}

float *tutti_server_values(tutti_server *s)
{
    return s->values;
}

double tutti_server_seconds(const tutti_server *s, int worker)
{
    return s->seconds[worker];
}

int64_t tutti_server_given_ns(const tutti_server *s, int worker)
{
    const int64_t begun = atomic_load_explicit(&s->begun_ns, memory_order_relaxed);
    return s->given_ns[worker] > 0 ? s->given_ns[worker] : begun > 0 ? begun : tutti_now_ns(s->m->rt);
}

uint64_t tutti_server_version(const tutti_server *s)
{
    return (uint64_t)*s->version;
}

void tutti_server_update(tutti_server *s, const float *g, const tutti_rate *rate)
{
    tutti_slice_update(s->m, &s->slice, g, s->values, s->zeros, rate);
    ++*s->version;
}

void tutti_server_collect(tutti_server *s, float a, const float *in, float *sum)
{
    tutti_slice_add(s->m, &s->slice, a, in, sum, s->marks);
}

void tutti_server_update_collected(tutti_server *s, float *sum, const tutti_rate *rate)
{
    tutti_slice_update_added(s->m, &s->slice, sum, s->marks, s->values, rate);
    ++*s->version;
}

void tutti_server_compensate(tutti_server *s, const tutti_server_request *r, const tutti_compensation *c, float *mean)
{
    if (r->delay > 0 || mean != NULL) /* else nothing has moved */
        tutti_slice_compensate(s->m, &s->slice, c, s->values, s->read + (size_t)r->worker * s->count, r->in,
                               mean);
}

float *tutti_server_sum(tutti_server *s, const tutti_server_request *r, int n, float *const *parts,
                        const float *weights, size_t *words)
{
    const tutti_slice slice = tutti_slice_of(s->m, r->first, r->count);

    *words = r->count;
    if (slice.tables == 0) {
        tutti_tree_sum(s->m->device, r->count, n, (const float *const *)parts, weights, parts[0]);
        return parts[0];
    }
    *words = tutti_slice_sum(s->m, &slice, n, (const float *const *)parts, weights, s->summand, s->from,
                             s->no_row, s->words);
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

static tutti_status answer(tutti_server *s, const tutti_note *requests, int n, const uint32_t *kinds, bool each,
                           bool gives, tutti_buffer payload, tutti_error *err)
{
    if (payload.count > 0 && !tutti_server_is_float(s)) {
        TUTTI_TRY(tutti_server_narrow(s, payload.data, s->half_out, payload.count == s->count ? s->first : SIZE_MAX,
                                      payload.count, err));
        payload = tutti_server_half(s, s->half_out, 0, payload.count);
    }
    place_answers(s, requests, n, payload.data, s->there ? payload.count : 0);
    return tell(s, requests, n, kinds, each, gives, payload, err);
}

tutti_status tutti_server_update_give(tutti_server *s, const float *g, const tutti_rate *rate,
                                      const tutti_note *requests, int n, uint32_t kind, tutti_error *err)
{
    bool all = s->slice.tables == 0 && s->read == NULL;

    for (int k = 0; k < n && all; k++)
        all = place_of(s, &requests[k], s->count) != NULL;
    if (!all) {
        tutti_server_update(s, g, rate);
        return tutti_server_give(s, requests, n, kind, err);
    }
    for (size_t at = 0; at < s->count; at += CHUNK) {
        const size_t count = s->count - at < CHUNK ? s->count - at : CHUNK;
        tutti_update(s->m->optim, s->first + at, count, s->values + at, g + at, rate);
        for (int k = 0; k < n; k++)
            memcpy(place_of(s, &requests[k], s->count) + at, s->values + at, count * sizeof *g);
    }
    ++*s->version;
    for (int k = 0; k < n; k++)
        s->placed[k] = s->count * sizeof *g;
    return tell(s, requests, n, &kind, false, true, tutti_nothing(), err);
}

tutti_status tutti_server_answer_sum(tutti_server *s, const tutti_server_request *r, const tutti_note *requests, int n,
                                     uint32_t kind, float *const *parts, const float *weights, tutti_error *err)
{
    bool all = true;
    size_t words;
    float *sum;

    for (int k = 0; k < n && all; k++)
        all = (requests[k].kind & KINDS) == KINDS;
    if (!all) {
        sum = tutti_server_sum(s, r, n, parts, weights, &words);
        return tutti_server_answer(s, requests, n, kind, sum, words, err);
    }
    tutti_tree_sum_all(s->m->device, r->count, n, parts, weights);
    for (int k = 0; k < n; k++)
        s->placed[k] = r->count * sizeof **parts;
    return tell(s, requests, n, &kind, false, false, tutti_nothing(), err);
}

static tutti_status give(tutti_server *s, const tutti_note *requests, int n, const uint32_t *kinds, bool each,
                         tutti_error *err)
{
    for (int k = 0; s->read != NULL && k < n; k++)
        tutti_slice_given(s->m, &s->slice, s->values, s->read + (size_t)requests[k].from * s->count);
    if (s->slice.tables == 0)
        return answer(s, requests, n, kinds, each, true, tutti_f32(s->m->device, s->values, s->count), err);
    return answer(s, requests, n, kinds, each, true,
                  tutti_f32(s->m->device, s->words, tutti_slice_whole(s->m, &s->slice, s->values, s->words)),
                  err);
}

tutti_status tutti_server_give(tutti_server *s, const tutti_note *requests, int n, uint32_t kind, tutti_error *err)
{
    return give(s, requests, n, &kind, false, err);
}

tutti_status tutti_server_give_each(tutti_server *s, const tutti_note *requests, int n, const uint32_t *kinds,
                                    tutti_error *err)
{
    return give(s, requests, n, kinds, true, err);
}

tutti_status tutti_server_give_update(tutti_server *s, const tutti_note *requests, int n, int late, uint32_t kind,
                                      float *along, size_t words, tutti_error *err)
{
    if (s->slice.tables == 0 || !tutti_optim_by_rows(s->m->optim)) /* then every row has moved */
        return tutti_server_give(s, requests, n + late, kind, err);
    tutti_slice_fetch(s->m, &s->slice, s->values, along);
    TUTTI_TRY(answer(s, requests, n, &kind, false, true, tutti_f32(s->m->device, along, words), err));
    return late > 0 ? tutti_server_give(s, requests + n, late, kind, err) : TUTTI_OK;
}

tutti_status tutti_server_answer(tutti_server *s, const tutti_note *requests, int n, uint32_t kind, float *payload,
                                 size_t count, tutti_error *err)
{
    return answer(s, requests, n, &kind, false, false,
                  count > 0 ? tutti_f32(s->m->device, payload, count) : tutti_nothing(), err);
}

tutti_status tutti_server_give_own(tutti_server *s, const tutti_note *requests, int n, uint32_t kind, float *payload,
                                   tutti_error *err)
{
    return answer(s, requests, n, &kind, false, true, tutti_f32(s->m->device, payload, s->count), err);
}

tutti_status tutti_server_tell(tutti_server *s, int service, int worker, bool *told, tutti_error *err)
{
    const tutti_note note = { .a = *s->version };
    const tutti_buffer values = tutti_f32(s->m->device, s->values, s->count);

    return tutti_desk_tell(desk_of(s), &s->told[worker], service, worker, &note, values, told, err);
}

static const tutti_facility_ops facility = {
    .open = open_server, .close = close_server, .release = release, .begun = begun, .without = without,
    .slices = slices, .recuts = recuts, .load = load
};
