/* collective.c: the public collectives. They check what can be checked on this rank alone, choose
   an algorithm (choice.c), and send the call through shared memory or through messages. Both do
   what the list of that algorithm defines, to the bit and to the byte. */
#include "collective_internal.h"
#include "runtime/activity.h"
#include "world.h"
#include <stdio.h>
#include <string.h>

/* "all-reduce (sum, 'direct') of 1000 F32 over 4 members". The values come from a peer: none is
   trusted. */
static void describe(uint32_t what, uint64_t count, int64_t shape, char *out, size_t bytes)
{
    static const char *const ops[] = { "sum", "mean", "max", "min", "weighted sum" };
    const uint32_t kind = what >> 24, op = what >> 16 & 127, dtype = what >> 8 & 255,
                   algorithm = what & 255;
    const unsigned size = (unsigned)tutti_call_shape_size(shape),
                   root = (unsigned)(shape & 0xffffffff);
    const char *algorithm_name = "unknown",
               *each = what & TUTTI_OWN_COUNTS ? " in all" : " a member";
    const unsigned long long n = count;
    const char *name, *type;
    bool straggler = false;

    if (kind == 0 || kind > TUTTI_COLLECTIVES || op >= TUTTI_LENGTH(ops) || dtype > TUTTI_I8) {
        snprintf(out, bytes, "something unknown (%08x)", what);
        return;
    }
    for (uint32_t k = 0; tutti_algorithms[k].name != NULL; k++)
        if (k == algorithm) {
            algorithm_name = tutti_algorithms[k].name;
            straggler = (tutti_algorithms[k].traits & TUTTI_SINGLES_OUT) != 0;
        }
    name = tutti_collective_name((tutti_collective)(kind - 1));
    type = tutti_dtype_name((tutti_dtype)dtype);
    if (kind - 1 == TUTTI_BARRIER)
        snprintf(out, bytes, "barrier ('%s') over %u members", algorithm_name, size);
    else if (kind - 1 == TUTTI_BROADCAST)
        snprintf(out, bytes, "broadcast ('%s') of %llu %s from index %u over %u members",
                 algorithm_name, n, type, root, size);
    else if (kind - 1 == TUTTI_REDUCE)
        snprintf(out, bytes, "reduce (%s, '%s') of %llu %s to index %u over %u members",
                 ops[op], algorithm_name, n, type, root, size);
    else if (kind - 1 == TUTTI_GATHER || kind - 1 == TUTTI_SCATTER)
        snprintf(out, bytes, "%s ('%s') of %llu %s%s, root %u, over %u members",
                 name, algorithm_name, n, type, each, root, size);
    else if (kind - 1 == TUTTI_ALLTOALL && (what & TUTTI_OWN_COUNTS) != 0)
        snprintf(out, bytes, "all-to-all ('%s') of %s by counts over %u members", algorithm_name,
                 type, size);
    else if (kind - 1 == TUTTI_ALLGATHER || kind - 1 == TUTTI_ALLTOALL)
        snprintf(out, bytes, "%s of %llu %s%s over %u members", name, n, type, each, size);
    else if (straggler)
        snprintf(out, bytes, "%s (%s, '%s', straggler %u) of %llu %s over %u members",
                 name, ops[op], algorithm_name, root, n, type, size);
    else
        snprintf(out, bytes, "%s (%s, '%s') of %llu %s%s over %u members",
                 name, ops[op], algorithm_name, n, type,
                 kind - 1 == TUTTI_REDUCE_SCATTER ? each : "", size);
}

tutti_status tutti_call_compare(const tutti_call *call, int from, uint32_t what, uint64_t count,
                                int64_t shape, tutti_error *err)
{
    char mine[128], theirs[128];
    const bool alike = what == tutti_call_what(call) && count == call->count;

    if (alike && shape == tutti_call_shape(call))
        return TUTTI_OK;
    describe(tutti_call_what(call), call->count, tutti_call_shape(call), mine, sizeof mine);
    if (alike && (uint32_t)shape == (uint32_t)tutti_call_shape(call) &&
        tutti_call_shape_size(shape) == call->group->size)
        return tutti_fail_rank(
            err, TUTTI_ERR_STATE, from,
            "rank %d calls %s, and so does rank %d, but in this call or in one before they differ "
            "in what they compare beside counts; all members of a group must make the same calls "
            "in the same order",
            call->group->world->rank, mine, from);
    if (alike && call->parts != 0 && tutti_call_shape_size(shape) == call->group->size)
        return tutti_fail_rank(
            err, TUTTI_ERR_STATE, from,
            "rank %d calls %s, and so does rank %d, but with other counts of parts; all members of "
            "a group must make the same calls in the same order with the same counts",
            call->group->world->rank, mine, from);
    describe(what, count, shape, theirs, sizeof theirs);
    return tutti_fail_rank(
        err, TUTTI_ERR_STATE, from,
        "rank %d calls %s, but rank %d calls %s; all members of a group must make the same calls "
        "in the same order with the same counts",
        call->group->world->rank, mine, from, theirs);
}

void tutti_call_account(const tutti_call *call, const tutti_schedule *s)
{
    for (size_t k = 0; k < s->n_steps && !call->group->uncounted; k++)
        if (s->steps[k].kind == TUTTI_STEP_SEND)
            tutti_world_account(call->group->world, tutti_call_rank(call, s->steps[k].peer),
                                s->steps[k].count * call->element, 1);
}

/* Asked for by name: on several hosts the group has to be laid out for it. */
static tutti_status fits(const tutti_call *call, tutti_error *err)
{
    if ((tutti_algorithms[call->algorithm].traits & TUTTI_HOSTS) != 0 &&
        call->group->world->host != NULL && call->local == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s '%s' needs the same power of two of members on each of several hosts, those of one "
            "host next to each other, and the %d members are not so; leave the algorithm to be "
            "chosen",
            tutti_collective_name(call->kind), tutti_algorithms[call->algorithm].name,
            call->group->size);
    return tutti_algorithm_fits(call->algorithm, call->dtype, err);
}

/* Collectives in windows have no messages that could cross between nodes. */
static bool nodes_count(const tutti_call *call, size_t count)
{
    const tutti_group *g = call->group;
    const size_t vector = call->kind == TUTTI_ALLREDUCE ? count : count * (size_t)g->size;

    return call->node > 0 && (g->world->rendezvous == NULL || g->apart) &&
           tutti_nodes_pay(call->local > 0 ? call->local : g->size, call->node, vector);
}

/* Chooses the algorithm: the one that the group requests, else the one of the world's table, else
   one chosen by hosts, kind, size and count. */
static tutti_status choose_algorithm(tutti_call *call, tutti_error *err)
{
    const int size = call->group->size;
    /* of a part, where parts differ: on average */
    const size_t count = call->counts != NULL ? call->count / (size_t)size : call->count;
    int straggler = -1;

    call->algorithm = -1;
    call->local = tutti_group_local(call->group);
    call->node = tutti_group_node(call->group, call->local);
    if (call->group->algorithm != NULL)
        TUTTI_TRY(tutti_algorithm_wished(call->group->algorithm, call->kind, size, &call->algorithm,
                                         &straggler, err));
    if (straggler >= 0)
        call->root = straggler;
    if (call->algorithm >= 0)
        return fits(call, err);
    if (!nodes_count(call, count))
        call->node = 0;
    if (call->group->world->table != NULL)
        call->algorithm = tutti_table_choose(call->group->world, call->kind, size,
                                             count * call->element, call->dtype);
    if (call->algorithm < 0)
        call->algorithm = tutti_algorithm_choose(call->kind, size, call->local, call->node, count);
    if (tutti_reduce_narrow(call->dtype) &&
        tutti_algorithm_fits(call->algorithm, call->dtype, NULL) != TUTTI_OK)
        call->algorithm = tutti_algorithm_find(call->kind, "direct");
    return TUTTI_OK;
}

/* True if shared memory can serve the call: it is requested or no algorithm is named, and the group
   allows it. */
static bool to_rendezvous(const tutti_call *call)
{
    const char *name = call->group->algorithm;
    const bool known = call->kind <= TUTTI_BARRIER &&
                       (call->counts == NULL || call->kind == TUTTI_REDUCE_SCATTER ||
                        call->kind == TUTTI_ALLGATHER);

    return (name == NULL || strcmp(name, "window") == 0) && !call->group->apart &&
           call->group->size > 1 && known && tutti_window_serves(call);
}

/* A named algorithm uses messages; without a name shared memory serves it where it can; "window"
   requires it. */
static tutti_status perform(tutti_call *call, const tutti_schedule *s, tutti_error *err)
{
    const char *name = call->group->algorithm;
    const bool insists = name != NULL && strcmp(name, "window") == 0;
    bool handled = false;

    if (to_rendezvous(call))
        TUTTI_TRY(tutti_window_run(call, s, &handled, err));
    if (handled)
        return TUTTI_OK;
    if (insists && call->group->size > 1)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the algorithm 'window' cannot serve this %s of %zu elements over %d members: it needs "
            "a transport with shared windows ('%s' is this one) and vectors inside of windows of "
            "tutti_world_window on all members; leave the algorithm to be chosen",
            tutti_collective_name(call->kind), call->count, call->group->size,
            call->group->world->ops->name);
    tutti_reduce_scale(call->group->world->device, call->dtype, call->inputs, call->weight,
                       call->vector);
    return tutti_interpret(call, s, err);
}

static tutti_status carry_out(const tutti_group *g, tutti_call *call, tutti_error *err)
{
    tutti_schedule *s;
    tutti_status status;

    TUTTI_TRY(choose_algorithm(call, err));
    /* a call of a fraction of a microsecond does without its list */
    if (tutti_window_listless(call) && to_rendezvous(call)) {
        bool handled;
        return tutti_window_run(call, NULL, &handled, err);
    }
    const bool placed = (tutti_algorithms[call->algorithm].traits & TUTTI_HOSTS) != 0;
    const tutti_schedule_key key = {
        .kind = call->kind,
        .algorithm = call->algorithm,
        .size = g->size,
        .index = g->index,
        .root = call->root,
        .count = call->count,
        .counts = call->counts,
        .local = placed ? call->local : 0,
        .node = placed ? call->node : 0,
    };
    status = tutti_schedule_borrow(g->world, &key, &s, err);
    if (status != TUTTI_OK) {
        tutti_call_give_up(call, status, -1, &(tutti_odd){ 0 });
        return status;
    }
    status = perform(call, s, err);
    tutti_schedule_return(g->world, s);
    return status;
}

/* Everything after the arguments' own checks. call: kind, op, dtype, count, root, weight, vector,
   part are set. */
static tutti_status collective(tutti_group *g, tutti_call *call, tutti_error *err)
{
    const uint64_t words[3] = { UINT64_C(0x74757474692d636f), g->context, g->sequence };
    tutti_status status;
    int noted;

    call->group = g;
    call->compared = tutti_group_compared(g);
    call->element = tutti_dtype_bytes(call->dtype);
    if (call->counts != NULL &&
        (call->kind == TUTTI_REDUCE_SCATTER || call->kind == TUTTI_ALLGATHER))
        /* not 0 */
        call->parts =
            (uint32_t)tutti_hash(call->counts, (size_t)g->size * sizeof *call->counts) | 1;
    call->tag = tutti_hash(words, sizeof words);
    call->turn = (uint32_t)(g->context >> 32) + (uint32_t)g->context + g->sequence;
    g->sequence++;
    call->expires_ns = TUTTI_FOREVER;
    if (g->timeout_ns > 0) {
        call->began_ns = tutti_now_ns(g->world->rt);
        if (g->timeout_ns < TUTTI_FOREVER - call->began_ns)
            call->expires_ns = call->began_ns + g->timeout_ns;
    }
    noted = tutti_noted_enter(g, call->kind, call->tag, call->count);
    status = carry_out(g, call, err);
    tutti_activity_leave(g->world->activity, noted);
    return status;
}

static tutti_status check_member(const tutti_group *g, tutti_collective kind, tutti_error *err)
{
    if (g->size >= 1 && g->index >= 0 && g->index < g->size)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "rank %d calls %s of a group of %d that it is not a member of",
                      g->world->rank, tutti_collective_name(kind), g->size);
}

/* Type and operation of a reduction; *weight for a mean. */
static tutti_status check_reduction(const tutti_group *g, tutti_collective kind, tutti_reduction op,
                                    tutti_dtype dtype, double *weight, tutti_error *err)
{
    const bool real = dtype == TUTTI_F32 || dtype == TUTTI_F64;

    *weight = 1.0;
    TUTTI_TRY(check_member(g, kind, err));
    if (op == TUTTI_MEAN && !real && !tutti_reduce_narrow(dtype))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s of %s: a mean needs BF16, F16, F32 or F64; take the sum and divide",
                          tutti_collective_name(kind), tutti_dtype_name(dtype));
    if (op < TUTTI_SUM || op > TUTTI_MIN)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s with operation %d: sum, mean, max and min are 0 to 3",
                          tutti_collective_name(kind), (int)op);
    if (op == TUTTI_MEAN && real)
        *weight = dtype == TUTTI_F32 ? (double)(1.0f / (float)g->size) : 1.0 / g->size;
    return TUTTI_OK;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return a_bytes > 0 && b_bytes > 0 && (uintptr_t)a < (uintptr_t)b + b_bytes &&
           (uintptr_t)b < (uintptr_t)a + a_bytes;
}

static tutti_status check_root(const tutti_group *g, tutti_collective kind, int root,
                               tutti_error *err)
{
    TUTTI_TRY(check_member(g, kind, err));
    if (root >= 0 && root < g->size)
        return TUTTI_OK;
    if (kind == TUTTI_BROADCAST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "broadcast from index %d: the members are 0 to %d", root, g->size - 1);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s with root %d: the members are 0 to %d",
                      tutti_collective_name(kind), root, g->size - 1);
}

/* How much each member has of elements of so many bytes; counts NULL: `equal` each. */
typedef struct parts {
    const size_t *counts;
    size_t equal, element;
} parts;

/* Sum of the counts of all members (at[0]), and of those before me (at[1]). */
static tutti_status add_counts(const tutti_group *g, tutti_collective kind, const parts *of,
                               size_t at[2], tutti_error *err)
{
    size_t bytes = 0;

    at[0] = at[1] = 0;
    for (int j = 0; j < g->size; j++) {
        if (j == g->index)
            at[1] = at[0];
        if (!tutti_size_add(at[0], of->counts != NULL ? of->counts[j] : of->equal, &at[0]) ||
            !tutti_size_mul(at[0], of->element, &bytes))
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "%s: the counts of the first %d of %d members are more than there are addresses",
                tutti_collective_name(kind), j + 1, g->size);
    }
    return TUTTI_OK;
}

/* The whole is the parts of all members in count and type; where the two overlap the part must be
   whole's own one. counts NULL: equal parts. */
static tutti_status check_parts(const tutti_group *g, tutti_collective kind, const size_t *counts,
                                tutti_buffer whole, tutti_buffer part, tutti_error *err)
{
    const size_t element = tutti_dtype_bytes(part.dtype);
    size_t at[2];

    TUTTI_TRY(check_member(g, kind, err));
    TUTTI_TRY(add_counts(g, kind, &(parts){ counts, part.count, element }, at, err));
    if (counts != NULL && counts[g->index] != part.count)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s: a part of %zu %s, but the count of member %d, which this is, is %zu",
                          tutti_collective_name(kind), part.count, tutti_dtype_name(part.dtype),
                          g->index, counts[g->index]);
    if (at[0] != whole.count || part.dtype != whole.dtype) {
        const char *const name = tutti_collective_name(kind),
                          *const of_part = tutti_dtype_name(part.dtype),
                          *const of_whole = tutti_dtype_name(whole.dtype);
        if (counts == NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "%s: a part of %zu %s and a whole of %zu %s over %d members; the "
                              "whole must be as many equal parts as there are members",
                              name, part.count, of_part, whole.count, of_whole, g->size);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s: parts of %zu %s in all and a whole of %zu %s over %d members; the "
                          "whole must be the parts back to back",
                          name, at[0], of_part, whole.count, of_whole, g->size);
    }
    if (overlap(whole.data, whole.count * element, part.data, part.count * element) &&
        (uintptr_t)part.data != (uintptr_t)whole.data + at[1] * element)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s: the part overlaps the whole, but is not its part number %d; use "
                          "that or other memory",
                          tutti_collective_name(kind), g->index);
    return TUTTI_OK;
}

/* x := in, for calls that then work in place. */
static tutti_status take_input(const tutti_group *g, tutti_collective kind, tutti_buffer in,
                               tutti_buffer x, tutti_error *err)
{
    const size_t bytes = x.count * tutti_dtype_bytes(x.dtype);

    TUTTI_TRY(check_member(g, kind, err));
    if (in.count != x.count || in.dtype != x.dtype)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s from %zu %s into %zu %s: both must have the same count and type",
                          tutti_collective_name(kind), in.count, tutti_dtype_name(in.dtype),
                          x.count, tutti_dtype_name(x.dtype));
    if (in.data != x.data && overlap(in.data, bytes, x.data, bytes))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s: input and result overlap; they must be the same memory or apart",
                          tutti_collective_name(kind));
    tutti_reduce_copy(in.data, x.data, bytes);
    return TUTTI_OK;
}

/* ---- the calls ---- */

tutti_status tutti_allreduce(tutti_group *g, tutti_reduction op, tutti_buffer x, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_ALLREDUCE,
                        .op = (int)op,
                        .dtype = x.dtype,
                        .count = x.count,
                        .inputs = x.count,
                        .vector = x.data };

    TUTTI_TRY(check_reduction(g, call.kind, op, x.dtype, &call.weight, err));
    return collective(g, &call, err);
}

tutti_status tutti_allreduce_from(tutti_group *g, tutti_reduction op, tutti_buffer in,
                                  tutti_buffer x, tutti_error *err)
{
    TUTTI_TRY(take_input(g, TUTTI_ALLREDUCE, in, x, err));
    return tutti_allreduce(g, op, x, err);
}

tutti_status tutti_allreduce_weighted(tutti_group *g, float weight, tutti_buffer x,
                                      tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_ALLREDUCE,
                        .op = TUTTI_WEIGHTED,
                        .dtype = x.dtype,
                        .count = x.count,
                        .inputs = x.count,
                        .vector = x.data,
                        .weight = weight };

    TUTTI_TRY(check_member(g, call.kind, err));
    if (x.dtype != TUTTI_F32)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "weighted all-reduce of %s: only F32 is offered; convert first",
                          tutti_dtype_name(x.dtype));
    return collective(g, &call, err);
}

tutti_status tutti_reduce(tutti_group *g, tutti_reduction op, int root_index, tutti_buffer x,
                          tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_REDUCE,
                        .op = (int)op,
                        .dtype = x.dtype,
                        .count = x.count,
                        .inputs = x.count,
                        .root = root_index,
                        .vector = x.data };

    TUTTI_TRY(check_root(g, call.kind, root_index, err));
    TUTTI_TRY(check_reduction(g, call.kind, op, x.dtype, &call.weight, err));
    return collective(g, &call, err);
}

tutti_status tutti_reduce_from(tutti_group *g, tutti_reduction op, int root_index, tutti_buffer in,
                               tutti_buffer x, tutti_error *err)
{
    TUTTI_TRY(take_input(g, TUTTI_REDUCE, in, x, err));
    return tutti_reduce(g, op, root_index, x, err);
}

static tutti_status reduce_scatter(tutti_group *g, tutti_reduction op, const size_t *counts,
                                   tutti_buffer x, tutti_buffer mine, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_REDUCE_SCATTER,
                        .op = (int)op,
                        .dtype = x.dtype,
                        .count = counts != NULL ? x.count : mine.count,
                        .counts = counts,
                        .inputs = x.count,
                        .vector = x.data,
                        .part = mine.data };

    TUTTI_TRY(check_reduction(g, call.kind, op, x.dtype, &call.weight, err));
    TUTTI_TRY(check_parts(g, call.kind, counts, x, mine, err));
    return collective(g, &call, err);
}

static tutti_status no_counts(tutti_collective kind, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "%s: no counts are given; the call without _v has equal parts",
                      tutti_collective_name(kind));
}

tutti_status tutti_reduce_scatter(tutti_group *g, tutti_reduction op, tutti_buffer x,
                                  tutti_buffer mine, tutti_error *err)
{
    return reduce_scatter(g, op, NULL, x, mine, err);
}

tutti_status tutti_reduce_scatter_v(tutti_group *g, tutti_reduction op, const size_t *counts,
                                    tutti_buffer x, tutti_buffer mine, tutti_error *err)
{
    return counts != NULL ? reduce_scatter(g, op, counts, x, mine, err)
                          : no_counts(TUTTI_REDUCE_SCATTER, err);
}

static tutti_status allgather(tutti_group *g, const size_t *counts, tutti_buffer mine,
                              tutti_buffer all, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_ALLGATHER,
                        .dtype = all.dtype,
                        .count = counts != NULL ? all.count : mine.count,
                        .counts = counts,
                        .weight = 1.0,
                        .vector = all.data,
                        .part = mine.data };

    TUTTI_TRY(check_parts(g, call.kind, counts, all, mine, err));
    return collective(g, &call, err);
}

tutti_status tutti_allgather(tutti_group *g, tutti_buffer mine, tutti_buffer all, tutti_error *err)
{
    return allgather(g, NULL, mine, all, err);
}

tutti_status tutti_allgather_v(tutti_group *g, const size_t *counts, tutti_buffer mine,
                               tutti_buffer all, tutti_error *err)
{
    return counts != NULL ? allgather(g, counts, mine, all, err) : no_counts(TUTTI_ALLGATHER, err);
}

/* A gather or scatter; counts NULL: as many of each member. */
typedef struct with_root {
    tutti_collective kind;
    int root;
    const size_t *counts;
} with_root;

/* Gather or scatter; `all` is the root's only. */
static tutti_status rooted(tutti_group *g, const with_root *of, tutti_buffer all, tutti_buffer mine,
                           tutti_error *err)
{
    const tutti_collective kind = of->kind;
    const int root = of->root;
    const size_t *counts = of->counts;
    tutti_call call = { .kind = kind,
                        .dtype = mine.dtype,
                        .count = mine.count,
                        .counts = counts,
                        .root = root,
                        .weight = 1.0,
                        .vector = all.data,
                        .part = mine.data };
    size_t at[2];

    TUTTI_TRY(check_root(g, kind, root, err));
    TUTTI_TRY(add_counts(g, kind, &(parts){ counts, mine.count, tutti_dtype_bytes(mine.dtype) }, at,
                         err));
    if (g->index != root)
        all = tutti_host(NULL, at[0], mine.dtype);
    TUTTI_TRY(check_parts(g, kind, counts, all, mine, err));
    call.count = counts != NULL ? at[0] : mine.count;
    return collective(g, &call, err);
}

tutti_status tutti_gather_parts(tutti_group *g, int root_index, tutti_buffer mine, tutti_buffer all,
                                tutti_error *err)
{
    return rooted(g, &(with_root){ TUTTI_GATHER, root_index, NULL }, all, mine, err);
}

tutti_status tutti_gather_parts_v(tutti_group *g, int root_index, const size_t *counts,
                                  tutti_buffer mine, tutti_buffer all, tutti_error *err)
{
    return counts != NULL
               ? rooted(g, &(with_root){ TUTTI_GATHER, root_index, counts }, all, mine, err)
               : no_counts(TUTTI_GATHER, err);
}

tutti_status tutti_scatter_parts(tutti_group *g, int root_index, tutti_buffer all,
                                 tutti_buffer mine, tutti_error *err)
{
    return rooted(g, &(with_root){ TUTTI_SCATTER, root_index, NULL }, all, mine, err);
}

tutti_status tutti_scatter_parts_v(tutti_group *g, int root_index, const size_t *counts,
                                   tutti_buffer all, tutti_buffer mine, tutti_error *err)
{
    return counts != NULL
               ? rooted(g, &(with_root){ TUTTI_SCATTER, root_index, counts }, all, mine, err)
               : no_counts(TUTTI_SCATTER, err);
}

/* In place the input is first copied to scratch memory: what is received for one part would be
   written over another that is still to be sent. */
static tutti_status alltoall(tutti_group *g, tutti_call *call, tutti_buffer in, tutti_buffer out,
                             tutti_error *err)
{
    const size_t element = tutti_dtype_bytes(in.dtype), bytes = in.count * element;
    tutti_scratch *scratch;
    tutti_status status;

    call->vector = in.data;
    call->part = out.data;
    if (!overlap(in.data, bytes, out.data, out.count * element))
        return collective(g, call, err);
    if (in.data != out.data)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "all-to-all: input and result overlap; they must begin at the same place or lie apart");
    TUTTI_TRY(tutti_scratch_borrow(g->world, bytes, 0, 0, &scratch, err));
    tutti_reduce_copy(in.data, scratch->memory, bytes);
    call->vector = scratch->memory;
    status = collective(g, call, err);
    tutti_scratch_return(g->world, scratch);
    return status;
}

tutti_status tutti_alltoall(tutti_group *g, tutti_buffer in, tutti_buffer out, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_ALLTOALL, .dtype = in.dtype, .weight = 1.0 };

    TUTTI_TRY(check_member(g, call.kind, err));
    if (in.count % (size_t)g->size != 0 || in.count != out.count || in.dtype != out.dtype)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "all-to-all from %zu %s into %zu %s over %d members; both must be as "
                          "many equal parts as there are members",
                          in.count, tutti_dtype_name(in.dtype), out.count,
                          tutti_dtype_name(out.dtype), g->size);
    call.count = in.count / (size_t)g->size;
    return alltoall(g, &call, in, out, err);
}

tutti_status tutti_alltoall_v(tutti_group *g, const size_t *counts, tutti_buffer in,
                              tutti_buffer out, tutti_error *err)
{
    tutti_call call = {
        .kind = TUTTI_ALLTOALL, .dtype = in.dtype, .counts = counts, .weight = 1.0
    };
    const size_t element = tutti_dtype_bytes(in.dtype);
    size_t sent[2], received[2];

    TUTTI_TRY(check_member(g, call.kind, err));
    if (counts == NULL)
        return no_counts(TUTTI_ALLTOALL, err);
    TUTTI_TRY(add_counts(g, call.kind, &(parts){ counts, 0, element }, sent, err));
    TUTTI_TRY(add_counts(g, call.kind, &(parts){ counts + g->size, 0, element }, received, err));
    if (in.count != sent[0] || out.count != received[0] || in.dtype != out.dtype)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "all-to-all from %zu %s into %zu %s over %d members, but the counts send "
                          "%zu and receive %zu",
                          in.count, tutti_dtype_name(in.dtype), out.count,
                          tutti_dtype_name(out.dtype), g->size, sent[0], received[0]);
    if (counts[g->index] != counts[g->size + g->index])
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "all-to-all: member %d, which this is, sends itself %zu %s and expects %zu of itself",
            g->index, counts[g->index], tutti_dtype_name(in.dtype), counts[g->size + g->index]);
    return alltoall(g, &call, in, out, err);
}

tutti_status tutti_broadcast(tutti_group *g, int root_index, tutti_buffer x, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_BROADCAST,
                        .dtype = x.dtype,
                        .count = x.count,
                        .root = root_index,
                        .weight = 1.0,
                        .vector = x.data };

    TUTTI_TRY(check_root(g, call.kind, root_index, err));
    return collective(g, &call, err);
}

tutti_status tutti_barrier(tutti_group *g, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_BARRIER, .dtype = TUTTI_U8, .weight = 1.0 };

    TUTTI_TRY(check_member(g, call.kind, err));
    return collective(g, &call, err);
}

tutti_status tutti_reduce_double(tutti_group *g, tutti_reduction op, double *x, size_t n,
                                 tutti_error *err)
{
    return tutti_allreduce(g, op, tutti_host(x, n, TUTTI_F64), err);
}
