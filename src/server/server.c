/* server.c: a server from its declaration to its end. Parameters are sharded over servers, as Li
   et al. do ("Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014), but by
   ranges of equal bytes and not by hashed keys. Dense gradients have no hot keys, a range is one
   message, and the largest share exceeds the mean by less than two cache lines, which hashing does
   not achieve.

     parts.c      which ranks serve, and the part of a range that each has
     calls.c      the clients: requests to all servers at once
     snapshots.c  snapshots of models for evaluation
     rule.c       the server's thread: requests, the method's rule, answers
     slice.c      the format of a shard with rows of tables in messages
     sums.c       servers that sum pieces, for methods that exchange gradients
     tables.c     servers of tables alone, for methods that exchange all other gradients
     assign.c     pieces that are sent whole to one server
     coded.c      pieces that go through a codec
     figures.c    what servers that sum have measured
     standby.c    ranks that take the place of a server that is lost
     saved.c      checkpoints with other shards or other workers

   Windows. Where ranks share memory (shm) a worker's g is a window, and with servers that keep
   values x is one too. Then a request about plain values (no rows, no halves) carries no payload:
   the server reads the shard in the worker's g and writes its answer into the worker's x, and
   only then replies. For pieces it writes into g: there the sum is written to all of them in the
   same pass that reads them. The worker waits for that, so no other thread accesses the shard
   meanwhile, and what it had sent stays in place until it is answered. Requested rows are written
   into its x likewise. Traffic through windows is counted as if it had been sent. A worker that
   is killed meanwhile leaves its window mapped, and a shard that it had requested intact. A
   worker that gives up waits for its own end and computes nothing any more. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server_internal.h"
#include "engine/facility.h"
#include "base/machine.h"
#include "optim/optim.h"
#include "server.h"

enum {
    AT_ONCE_BYTES = 1 << 30
}; /* of requests that do not wait for others, and of messages sent unasked */

/* Elements of the largest table whose rows are known. */
static size_t largest_table(const tutti_server *s)
{
    const tutti_method *m = s->m;
    size_t count = 0;

    for (int i = 0; i < m->layout->n_tensors; i++)
        if (m->layout->tensor[i].count > count && tutti_engine_rows_known(m->engine, i) != NULL)
            count = m->layout->tensor[i].count;
    return count;
}

/* The most elements that a request is about. A table may be larger. */
static size_t asked_about(const tutti_server *s)
{
    size_t piece;

    if (s->setup.tables)
        return 0;
    tutti_engine_pieces(s->m->engine, &piece);
    return s->setup.pieces ? piece : s->m->layout->used;
}

size_t tutti_server_words_most(const tutti_server *s)
{
    const size_t rails = s->m->servers > 0 ? (size_t)s->setup.rails
                                           : 1, /* otherwise each server is of one rail */
        table = tutti_server_most(s, largest_table(s)),
                 other = tutti_server_most(s, asked_about(s)) / rails;

    return (table > other ? table : other) + 2 * TUTTI_SERVER_ALIGNMENT + tutti_server_slack(s->m);
}

/* The type of the request buffers: rows of tables travel as words, whatever the wire's type. */
static tutti_dtype buffer_type(const tutti_server *s)
{
    return s->setup.pieces && tutti_server_slack(s->m) > 0 ? TUTTI_F32 : s->setup.wire;
}

/* How many such buffers there are, of `wanted`: at least two. */
static int as_many(const tutti_server *s, int wanted)
{
    const size_t fit =
        AT_ONCE_BYTES / (tutti_server_words_most(s) * tutti_dtype_bytes(buffer_type(s)));

    if (s->index < 0)
        return 0;
    wanted = wanted > TUTTI_REQUESTS_MOST ? TUTTI_REQUESTS_MOST : wanted;
    return fit >= (size_t)wanted ? wanted : fit > 2 ? (int)fit : 2;
}

/* True if requests or answers carry numbers in messages, for which buffers are needed. */
static bool has_buffers(const tutti_server *s)
{
    return !s->in_windows || tutti_server_slack(s->m) > 0;
}

/* The most requests that may be unanswered at a time: a worker has one on each thread that sends
   requests, and for pieces no more than there are pieces. */
static int unanswered(const tutti_server *s)
{
    const tutti_method *m = s->m;
    const int asked = tutti_engine_lane(m->engine),
              lane = asked == 0  ? m->lane_width
                     : asked > 0 ? asked
                                 : 0,
              nodes = m->workers / s->setup.node * (m->servers > 0 ? s->setup.rails : 1),
              senders = s->setup.node == 1 || tutti_server_slack(m) > 0 ? m->workers : nodes;
    size_t largest;
    const int pieces = tutti_engine_pieces(m->engine, &largest),
              threads = lane > 0 && m->all_on_lane ? lane : lane + 1;

    return senders * (!s->setup.pieces ? 1 : threads < pieces ? threads : pieces);
}

bool tutti_server_keeps(const tutti_server *s)
{
    return !tutti_server_as_it_is(s);
}

/* ---- from declare to close ---- */

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

/* Dedicated servers are as many as the run has; a method with one server asks for one. */
static tutti_status check_servers(const tutti_method *m, const tutti_server_setup *setup,
                                  tutti_error *err)
{
    if (m->servers == 0 || setup->servers == 0 || setup->servers == m->servers || setup->mixed)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "method '%s' has %d server%s, but %d ranks only serve (servers); give "
                      "--servers %d, or omit it: then workers serve while they compute",
                      m->ops->name, setup->servers, setup->servers > 1 ? "s" : "", m->servers,
                      setup->servers);
}

/* Sizes the buffers of requests: of messages of a codec, or of words. */
static void size_requests(tutti_server *s, tutti_state *in, size_t words)
{
    const tutti_method *m = s->m;
    if (s->coded != NULL) { /* rows of tables travel as words */
        const size_t most = tutti_server_coded_most(s->coded);
        in->dtype = TUTTI_U8;
        s->in_bytes = tutti_server_slack(m) > 0 && s->in_bytes > most ? s->in_bytes : most;
        in->count = (size_t)s->n_buffers * s->in_bytes;
    } else
        in->count = (size_t)s->n_buffers * words;
}

/* Buffers for as many requests as may be unanswered at a time, from which answers are sent, too.
   A rule that answers each before the next needs fewer where requests are large: then some wait
   for a buffer. With one worker nothing changes until it has its answer. Rows of tables are kept
   elsewhere until they are summed (tables.c). */
static void declare_queue(tutti_server *s, tutti_plan *plan)
{
    const tutti_method *m = s->m;
    const bool waits = (s->setup.pieces && !s->setup.tables) || s->setup.lost != NULL;
    const size_t words = has_buffers(s) ? tutti_server_words_most(s) : 0,
                 notices = s->setup.tells || s->setup.tables ? tutti_server_words_most(s) : 0;
    const int answers = s->setup.tables ? m->lane_width + 2 : s->setup.tells ? m->workers : 0;
    tutti_state in = { .name = "server.in", .keep = TUTTI_SCRATCH, .dtype = buffer_type(s) },
                out = in, wide = in;

    s->n_buffers = s->index < 0         ? 0
                   : waits && words > 0 ? unanswered(s)
                                        : as_many(s, unanswered(s));
    s->n_copies = m->workers == 1 || answers == 0 ? 0 : as_many(s, answers);
    s->in_bytes = words * tutti_dtype_bytes(in.dtype);
    s->out_bytes = notices * tutti_dtype_bytes(in.dtype);
    size_requests(s, &in, words);
    out.name = "server.out";
    out.count = (size_t)s->n_copies * notices;
    wide.name = "server.in-wide";
    wide.dtype = TUTTI_F32;
    out.dtype = buffer_type(s);
    wide.count = s->index < 0 || tutti_server_as_it_is(s) ? 0 : words;
    tutti_declare(plan, &in, &s->requests_in);
    tutti_declare(plan, &out, &s->requests_out);
    tutti_declare(plan, &wide, &s->wide);
}

/* If messages have 16-bit numbers, declares the client's memory for sending and receiving all of x,
   and the server's for sending. */
static void declare_halves(tutti_server *s, tutti_plan *plan)
{
    const tutti_method *m = s->m;
    tutti_state sent = { .name = "server.sent-as", .keep = TUTTI_SCRATCH, .dtype = s->setup.wire };
    tutti_state came = sent, out = sent;

    /* rows travel with their ids */
    assert((m->traits & TUTTI_SPARSE_ROWS) == 0 || s->setup.pieces);
    sent.count = came.count = m->layout->used;
    came.name = "server.came-as";
    out.name = "server.out-as";
    out.count = s->index < 0 ? 0 : tutti_server_words_most(s);
    tutti_declare(plan, &sent, &s->half[0]);
    tutti_declare(plan, &came, &s->half[1]);
    tutti_declare(plan, &out, &s->half_out);
}

/* Declares the shard's values and version, and the versions that this worker has. */
static void declare_values(tutti_server *s, tutti_plan *plan)
{
    const tutti_state values = { .name = "server.values", .keep = TUTTI_SLICE, .dtype = TUTTI_F32,
                                 .first = s->first, .count = s->count, .placed = true };
    const tutti_state got = { .name = "server.got",
                              .keep = s->m->traits & TUTTI_REPLICAS_EQUAL ? TUTTI_SCRATCH
                                                                          : TUTTI_OWN_ZERO,
                              .dtype = TUTTI_I64,
                              .count = (size_t)s->servers };

    tutti_declare(plan, &values, &s->values);
    tutti_declare(plan, &got, &s->got);
    tutti_server_declare_count(s, plan, "server.version", &s->version);
}

/* Declares what else the rule needs: setup.collects, reads and times. */
static void declare_for_rule(tutti_server *s, tutti_plan *plan)
{
    const tutti_method *m = s->m;
    const size_t workers = (size_t)m->workers, index = s->index < 0 ? 0 : (size_t)s->index;
    tutti_state marks = { .name = "server.marks", .keep = TUTTI_SLICE, .dtype = TUTTI_U8 };
    const tutti_state read = { .name = "server.read", .keep = TUTTI_SLICE, .dtype = TUTTI_F32,
                               .first = workers * s->first, .count = workers * s->count,
                               .of = workers * m->layout->used, .of_workers = true };
    const tutti_state seconds = { .name = "server.seconds", .keep = TUTTI_SLICE, .dtype = TUTTI_F64,
                                  .first = workers * index, .count = s->index < 0 ? 0 : workers,
                                  .of = workers * (size_t)s->servers, .of_workers = true };

    if (s->setup.collects) {
        marks.count = tutti_slice_marks(m, &s->slice, &marks.first);
        marks.of = tutti_slice_marks(m, &(tutti_slice){ .count = m->layout->used }, &(size_t){ 0 });
        if (marks.of > 0)
            tutti_declare(plan, &marks, &s->marks);
    }
    if (s->setup.reads)
        tutti_declare(plan, &read, &s->read);
    if (s->setup.times)
        tutti_declare(plan, &seconds, &s->seconds);
}

static const tutti_facility_ops facility; /* at the end */

/* Sets the numbers of servers and their places. nodes: how many of the workers' nodes could serve.
 */
static tutti_status place_servers(tutti_server *s, tutti_method *m, const tutti_server_setup *setup,
                                  int nodes, tutti_error *err)
{
    const int node = setup->node > 1 ? setup->node : 1, rails = setup->rails > 1 ? setup->rails : 1;
    s->m = m;
    s->setup = *setup;
    s->setup.node = node;
    s->setup.rails = rails;
    s->servers = m->servers;
    if (m->servers == 0 || setup->mixed)
        s->servers += (setup->servers == 0 ? nodes : setup->servers) * rails;
    assert(rails == 1 || m->servers == 0 || !setup->mixed);
    tutti_facility_add(m, &facility, s);
    s->wake_at_ns = TUTTI_FOREVER;
    s->member = tutti_alloc((size_t)s->servers, sizeof *s->member);
    if (s->member == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'",
                          m->ops->name);
    tutti_server_place(s);
    return tutti_server_weigh(s, err);
}

/* Declares what a server keeps of its shard: values, versions, and what its rule needs. */
static void declare_shard(tutti_server *s, tutti_plan *plan)
{
    const tutti_method *m = s->m;
    declare_values(s, plan);
    tutti_server_snapshot_declare(s, plan);
    tutti_engine_declare_history(m->engine);
    declare_for_rule(s, plan);
    if (m->traits & TUTTI_SHARDED_OPTIMIZER)
        tutti_declare(plan,
                      &(tutti_state){ .name = "server.zeros",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F32,
                                      .count = s->slice.tables == 0 || tutti_optim_by_rows(m->optim)
                                                   ? 0
                                                   : s->count },
                      &s->zeros);
}

tutti_status tutti_server_declare(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                  const tutti_server_setup *setup, tutti_error *err)
{
    return tutti_server_declare_standby(out, m, plan, setup, &(tutti_server_standby){ 0 }, err);
}

tutti_status tutti_server_declare_standby(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                          const tutti_server_setup *setup,
                                          const tutti_server_standby *standby, tutti_error *err)
{
    const int node = setup->node > 1 ? setup->node : 1, nodes = m->workers / node;
    tutti_server *s;

    *out = NULL;
    TUTTI_TRY(check_servers(m, setup, err));
    if (setup->servers < 0 || setup->servers > nodes)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': servers is %d, but there are %d %s, and each serves once "
                          "at most; 0 lets all of them serve",
                          m->ops->name, setup->servers, nodes, node > 1 ? "nodes" : "workers");
    s = *out = tutti_alloc(1, sizeof *s);
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'",
                          m->ops->name);
    s->standby = *standby;
    TUTTI_TRY(place_servers(s, m, setup, nodes, err));
    TUTTI_TRY(tutti_server_standby_place(s, err));
    TUTTI_TRY(tutti_server_coded_declare(s, plan, err));
    if (setup->whole)
        tutti_engine_rows_whole(m->engine);
    if (setup->pieces)
        tutti_engine_keep_pieces(m->engine);
    if (s->index >= 0)
        s->count = tutti_server_part(s, s->index, 0, m->layout->used, &s->first);
    /* before shards: how tables travel depends on it */
    if ((m->traits & TUTTI_SHARDED_OPTIMIZER) != 0 && !setup->pieces)
        TUTTI_TRY(tutti_optimizer_declare(m, plan, s->first, s->count, TUTTI_SLICE, err));
    s->slice = tutti_slice_of(m, s->first, s->count);
    s->in_windows =
        tutti_world_shares(m->world) && tutti_server_as_it_is(s) && !setup->tables &&
        (setup->pieces || tutti_engine_pushes(m));
    declare_queue(s, plan);
    tutti_declare(plan,
                  &(tutti_state){ .name = "server.words",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = s->index < 0 || (setup->pieces ? tutti_server_slack(m)
                                                                          : s->slice.tables) == 0
                                               ? 0
                                               : tutti_server_words_most(s) },
                  &s->words);
    if (!tutti_server_is_float(s))
        declare_halves(s, plan);
    if (!setup->pieces)
        declare_shard(s, plan);
    tutti_server_standby_declare(s, plan);
    return TUTTI_OK;
}

tutti_status tutti_server_table_fits(const tutti_server *s, tutti_dtype dtype, double limit_mb,
                                     const char *mend, tutti_error *err)
{
    const tutti_method *m = s->m;
    const double bytes = (double)m->workers * (double)m->layout->used *
                         (double)tutti_dtype_bytes(dtype),
                 limit = limit_mb > 0 ? limit_mb * 1048576 : (double)tutti_machine_bytes();

    if (bytes <= limit || (limit_mb == 0 && s->index < 0))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "method '%s': the server's table has a vector of %zu parameters for each of "
                      "%d workers, %.0f bytes, but %s %.0f (%.4g MiB); %s",
                      m->ops->name, m->layout->used, m->workers, bytes,
                      limit_mb > 0 ? "table_limit_mb lets it have" : "its machine has", limit,
                      limit / 1048576, mend);
}

/* Allocates what sums of shards with tables need. */
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

/* Takes the servers' initial values: their part of x. Dedicated servers get it from workers, one
   after the other. */
static tutti_status take_values(tutti_server *s, tutti_error *err)
{
    const tutti_method *m = s->m;

    if (m->x != NULL)
        tutti_copy(m->device, s->count, m->x + s->first, s->values);
    for (int k = s->servers - m->servers; k < s->servers; k++) {
        const int from = k % m->workers;
        const tutti_port port = tutti_port_of("server.values", (uint64_t)k, 0);
        size_t first;
        const size_t count = tutti_server_part(s, k, 0, m->layout->used, &first);
        if (count > 0 && s->member[k] == m->rank)
            TUTTI_TRY(tutti_recv(m->world, from, port, NULL, tutti_f32(m->device, s->values, count),
                                 TUTTI_FOREVER, err));
        else if (count > 0 && from == m->rank)
            TUTTI_TRY(tutti_send(m->world, s->member[k], port, NULL,
                                 tutti_f32(m->device, m->x + first, count), err));
    }
    tutti_server_read_first(s);
    return TUTTI_OK;
}

static tutti_status open_server(void *self, tutti_error *err)
{
    tutti_server *s = self;
    tutti_engine *e = s->m->engine;
    const size_t workers = (size_t)s->m->workers, everyone = (size_t)s->m->everyone.size;
    bool enough;

    TUTTI_TRY(tutti_server_assign(s, err));
    if (!s->setup.pieces)
        TUTTI_TRY(take_values(s, err));
    s->delay = tutti_alloc(workers, sizeof *s->delay);
    s->asks = tutti_alloc(workers, sizeof *s->asks);
    s->given_ns = tutti_alloc(workers, sizeof *s->given_ns);
    s->gone = tutti_alloc(workers, sizeof *s->gone);
    s->part_of = tutti_alloc(everyone, sizeof *s->part_of);
    s->answer = tutti_alloc(workers, sizeof *s->answer);
    s->placed = tutti_alloc(workers, sizeof *s->placed);
    s->notices = tutti_alloc(workers, sizeof *s->notices);
    enough = s->delay != NULL && s->asks != NULL && s->given_ns != NULL && s->gone != NULL &&
             s->part_of != NULL && s->answer != NULL && s->placed != NULL && s->notices != NULL &&
             open_sums(s) && tutti_server_callers_open(s) && tutti_server_standby_open(s);
    if (!enough)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'",
                          s->m->ops->name);
    TUTTI_TRY(tutti_server_coded_open(s, err));
    tutti_engine_service_receives_losses(e, s->setup.service);
    if (s->index >= 0 || s->standby.ranks > 0) {
        const tutti_requests_setup queue = { .buffers = s->n_buffers,
                                             .in = s->requests_in,
                                             .in_bytes = s->in_bytes,
                                             .copies = s->n_copies,
                                             .out = s->requests_out,
                                             .out_bytes = s->out_bytes,
                                             .stable = workers == 1,
                                             .keep_until_answered =
                                                 s->in_bytes > 0 && !s->setup.tables };
        TUTTI_TRY(tutti_requests_open(tutti_server_requests(s), e, s->setup.service, &queue, err));
    }
    return tutti_monitor_open(&s->monitor, s->m->rt, err);
}

static void close_server(void *self)
{
    tutti_server *s = self;

    tutti_monitor_close(s->monitor);
    tutti_server_callers_close(s);
    tutti_server_coded_close(s->coded);
    tutti_free(s->summand);
    tutti_free(s->from);
    tutti_free(s->no_row);
    tutti_free(s->member);
    tutti_free(s->candidate);
    tutti_free(s->early);
    tutti_free(s->early_in);
    tutti_free(s->fenced);
    tutti_free(s->others);
    tutti_free(s->calls);
    tutti_free(s->each);
    tutti_free(s->before);
    tutti_free(s->owner);
    tutti_free(s->part_of);
    tutti_free(s->delay);
    tutti_free(s->asks);
    tutti_free(s->given_ns);
    tutti_free(s->gone);
    tutti_free(s->answer);
    tutti_free(s->placed);
    for (int w = 0; s->notices != NULL && w < s->m->workers; w++)
        tutti_cancel(s->m->world, &s->notices[w].reply);
    tutti_free(s->notices);
    tutti_free(s);
}

tutti_status tutti_server_final_model(tutti_server *s, tutti_error *err)
{
    tutti_method *m = s->m;
    tutti_engine *e = m->engine;
    float *const kept = tutti_engine_kept(e);
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(s->m->rt);
    tutti_buffer mine, all;
    tutti_status status;

    for (int i = 0, k = 0; i < m->everyone.size; i++) { /* both ascend */
        const int rank = tutti_group_rank(&m->everyone, i);
        size_t first;
        while (k < s->servers && tutti_server_rank(s, k) < rank)
            k++;
        s->part_of[i] = k < s->servers && tutti_server_rank(s, k) == rank
                            ? tutti_server_part(s, k, 0, m->layout->used, &first)
                            : 0;
    }
    mine = tutti_f32(m->device, s->values, tutti_server_is_here(s) ? s->count : 0);
    all = m->x != NULL ? tutti_f32(m->device, m->x, m->layout->used) : tutti_nothing();
    if (m->servers == 0)
        status = tutti_allgather_v(&m->everyone, s->part_of, mine, all, err);
    else { /* dedicated servers have no memory for it: the first worker gathers it for the others */
        status = tutti_gather_parts_v(&m->everyone, 0, s->part_of, mine, all, err);
        if (status == TUTTI_OK && m->x != NULL)
            status = tutti_broadcast(&m->all, 0, all, err);
    }

    /* a worker's requested rows are old copies, and not a part of its model */
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

static tutti_status without(const void *self, int rank, const char *why, tutti_error *err)
{
    if (tutti_server_goes_on_without(self, rank))
        return TUTTI_OK;
    return tutti_server_is_at(self, rank) ? tutti_server_slice_lost(self, rank, why, err)
                                          : TUTTI_OK;
}

/* Workers that have left the barriers before this worker's client send requests to its service at
   once. So this client sets begun_ns itself, and no time is measured for requests that come
   sooner. */
static tutti_status server_resume(void *self, tutti_error *err)
{
    tutti_server *s = self;

    (void)err;
    for (int w = 0; w < s->m->workers; w++)
        s->given_ns[w] = 0;
    tutti_requests_forget(tutti_server_requests(s));
    if (s->coded != NULL)
        tutti_server_coded_release(s->coded);
    atomic_store_explicit(&s->begun_ns, 0, memory_order_relaxed);
    return TUTTI_OK;
}

static tutti_status server_begin(void *self, tutti_error *err)
{
    const tutti_server *s = self;

    (void)err;
    if (s->coded != NULL)
        tutti_server_coded_begin(s->coded);
    return TUTTI_OK;
}

static void begun(void *self)
{
    tutti_server *s = self;
    atomic_store_explicit(&s->begun_ns, tutti_now_ns(s->m->rt), memory_order_relaxed);
}

static bool stands_by(const void *self)
{
    const tutti_server *s = self;
    return s->index >= 0 && !tutti_server_is_here(s);
}

static const tutti_facility_ops facility = { .open = open_server,
                                             .close = close_server,
                                             .begin = server_begin,
                                             .resume = server_resume,
                                             .begun = begun,
                                             .without = without,
                                             .stands_by = stands_by,
                                             .snapshot_due = tutti_server_snapshot_due,
                                             .snapshot_final_model =
                                                 tutti_server_snapshot_final_model,
                                             .snapshot_drop = tutti_server_snapshot_drop,
                                             .slices = tutti_server_slices,
                                             .recuts = tutti_server_recuts,
                                             .load = tutti_server_load };
