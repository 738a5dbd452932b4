/* The public collectives: they check what can be checked on this rank alone, choose an algorithm (choice.c), and send the
   call through shared memory or through messages. Both do what the list of that algorithm says, to the bit and to the byte. */
#include "collective_internal.h"
#include <stdio.h>
#include <string.h>

int tutti_call_rank(const tutti_call *call, int index)
{
    return call->group->ranks != NULL ? call->group->ranks[index] : index;
}

/* kind + 1, so that no collective's word is 0. */
uint32_t tutti_call_what(const tutti_call *call)
{
    return ((uint32_t)call->kind + 1) << 24 | (uint32_t)call->op << 16 | (uint32_t)call->dtype << 8 | (uint32_t)call->algorithm;
}

int64_t tutti_call_shape(const tutti_call *call)
{
    return (int64_t)call->group->size << 32 | call->root;
}

/* "all-reduce (sum, 'direct') of 1000 F32 over 4 members". Words come from a peer: nothing is trusted. */
static void describe(uint32_t what, uint64_t count, int64_t shape, char *out, size_t bytes)
{
    static const char *const ops[] = { "sum", "mean", "max", "min", "weighted sum" };
    const uint32_t kind = what >> 24, op = what >> 16 & 255, dtype = what >> 8 & 255, algorithm = what & 255;
    const unsigned size = (unsigned)(shape >> 32 & 0xffffffff), root = (unsigned)(shape & 0xffffffff);
    const char *algorithm_name = "unknown";
    bool straggler = false;

    if (kind == 0 || kind > TUTTI_COLLECTIVES || op >= TUTTI_LENGTH(ops) || dtype > TUTTI_F64) {
        snprintf(out, bytes, "something unknown (%08x)", what);
        return;
    }
    for (uint32_t k = 0; tutti_algorithms[k].name != NULL; k++)
        if (k == algorithm) {
            algorithm_name = tutti_algorithms[k].name;
            straggler = (tutti_algorithms[k].traits & TUTTI_SINGLES_OUT) != 0;
        }
    if (kind - 1 == TUTTI_BARRIER)
        snprintf(out, bytes, "barrier ('%s') over %u members", algorithm_name, size);
    else if (kind - 1 == TUTTI_BROADCAST)
        snprintf(out, bytes, "broadcast ('%s') of %llu %s from index %u over %u members", algorithm_name, (unsigned long long)count,
                 tutti_dtype_name((tutti_dtype)dtype), root, size);
    else if (kind - 1 == TUTTI_ALLGATHER)
        snprintf(out, bytes, "all-gather of %llu %s a member over %u members", (unsigned long long)count,
                 tutti_dtype_name((tutti_dtype)dtype), size);
    else if (straggler)
        snprintf(out, bytes, "%s (%s, '%s', straggler %u) of %llu %s over %u members", tutti_collective_name((tutti_collective)(kind - 1)), ops[op],
                 algorithm_name, root, (unsigned long long)count, tutti_dtype_name((tutti_dtype)dtype), size);
    else
        snprintf(out, bytes, "%s (%s, '%s') of %llu %s%s over %u members", tutti_collective_name((tutti_collective)(kind - 1)), ops[op],
                 algorithm_name, (unsigned long long)count, tutti_dtype_name((tutti_dtype)dtype),
                 kind - 1 == TUTTI_REDUCE_SCATTER ? " a member" : "", size);
}

tutti_status tutti_call_compare(const tutti_call *call, int from, uint32_t what, uint64_t count, int64_t shape, tutti_error *err)
{
    char mine[128], theirs[128];

    if (what == tutti_call_what(call) && count == call->count && shape == tutti_call_shape(call))
        return TUTTI_OK;
    describe(tutti_call_what(call), call->count, tutti_call_shape(call), mine, sizeof mine);
    describe(what, count, shape, theirs, sizeof theirs);
    return tutti_fail_rank(err, TUTTI_ERR_STATE, from, "rank %d calls %s, but rank %d calls %s; all members of a group must make the same "
                           "calls in the same order with the same counts", call->group->world->rank, mine, from, theirs);
}

void tutti_call_account(const tutti_call *call, const tutti_schedule *s)
{
    for (size_t k = 0; k < s->n_steps && !call->group->uncounted; k++)
        if (s->steps[k].kind == TUTTI_STEP_SEND)
            tutti_world_account(call->group->world, tutti_call_rank(call, s->steps[k].peer), s->steps[k].count * call->element, 1);
}

static tutti_status choose(tutti_call *call, tutti_error *err)
{
    int straggler;

    TUTTI_TRY(tutti_algorithm_wished(call->group->algorithm, call->kind, call->group->size, &call->algorithm, &straggler, err));
    if (call->algorithm < 0)
        call->algorithm = tutti_algorithm_choose(call->kind, call->group->size, call->count);
    if (straggler >= 0)
        call->root = straggler;
    return TUTTI_OK;
}

/* A named algorithm goes over messages; without a name the board serves it where it can; "window" insists. */
static tutti_status perform(tutti_call *call, const tutti_schedule *s, tutti_error *err)
{
    const char *name = call->group->algorithm;
    const bool insists = name != NULL && strcmp(name, "window") == 0;
    bool handled = false;

    if ((name == NULL || insists) && call->group->size > 1 && tutti_window_serves(call))
        TUTTI_TRY(tutti_window_run(call, s, &handled, err));
    if (handled)
        return TUTTI_OK;
    if (insists && call->group->size > 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the algorithm 'window' cannot serve this %s of %zu elements over %d members: it "
                          "needs a transport with shared windows ('%s' is this one) and vectors inside of windows of tutti_world_window on "
                          "all members; leave the algorithm to be chosen", tutti_collective_name(call->kind), call->count,
                          call->group->size, call->group->world->ops->name);
    tutti_reduce_scale(call->group->world->device, call->dtype,
                       call->kind == TUTTI_REDUCE_SCATTER ? call->count * (size_t)call->group->size : call->count, call->weight, call->vector);
    return tutti_interpret(call, s, err);
}

/* Everything after the arguments' own checks. call: kind, op, dtype, count, root, weight, vector, part are set. */
static tutti_status collective(tutti_group *g, tutti_call *call, tutti_error *err)
{
    const uint64_t words[3] = { UINT64_C(0x74757474692d636f), g->context, g->sequence };
    tutti_schedule *s;
    tutti_status status;

    call->group = g;
    call->element = tutti_dtype_bytes(call->dtype);
    call->tag = tutti_hash(words, sizeof words);
    g->sequence++;
    TUTTI_TRY(choose(call, err));
    const tutti_schedule_key key = { call->kind, call->algorithm, g->size, g->index, call->root, call->count };
    TUTTI_TRY(tutti_schedule_borrow(g->world, &key, &s, err));
    status = perform(call, s, err);
    tutti_schedule_return(g->world, s);
    return status;
}

static tutti_status check_member(const tutti_group *g, tutti_collective kind, tutti_error *err)
{
    if (g->size >= 1 && g->index >= 0 && g->index < g->size)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "rank %d calls a %s of a group of %d that it is not a member of", g->world->rank,
                      tutti_collective_name(kind), g->size);
}

/* Type and operation of a reduction; *weight for a mean. */
static tutti_status check_reduction(const tutti_group *g, tutti_collective kind, tutti_reduction op, tutti_dtype dtype, double *weight,
                                    tutti_error *err)
{
    const bool real = dtype == TUTTI_F32 || dtype == TUTTI_F64;

    *weight = 1.0;
    TUTTI_TRY(check_member(g, kind, err));
    if (!real && dtype != TUTTI_I64 && dtype != TUTTI_I32)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s of %s: only F32, F64, I64 and I32 can be reduced; convert first",
                          tutti_collective_name(kind), tutti_dtype_name(dtype));
    if (op == TUTTI_MEAN && !real)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s of %s: a mean needs F32 or F64; take the sum and divide", tutti_collective_name(kind),
                          tutti_dtype_name(dtype));
    if (op < TUTTI_SUM || op > TUTTI_MIN)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s with operation %d: sum, mean, max and min are 0 to 3", tutti_collective_name(kind), (int)op);
    if (op == TUTTI_MEAN)
        *weight = dtype == TUTTI_F32 ? (double)(1.0f / (float)g->size) : 1.0 / g->size;
    return TUTTI_OK;
}

/* whole = size x part in count and type; where the two overlap the part must be whole's own one. */
static tutti_status check_parts(const tutti_group *g, tutti_collective kind, tutti_buffer whole, tutti_buffer part, tutti_error *err)
{
    const size_t element = tutti_dtype_bytes(part.dtype);
    const uintptr_t w = (uintptr_t)whole.data, p = (uintptr_t)part.data;
    size_t count, bytes;

    TUTTI_TRY(check_member(g, kind, err));
    if (!tutti_size_mul(part.count, (size_t)g->size, &count) || !tutti_size_mul(count, element, &bytes) || count != whole.count ||
        part.dtype != whole.dtype)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s: a part of %zu %s and a whole of %zu %s over %d members; the whole must be as many equal "
                          "parts as there are members", tutti_collective_name(kind), part.count, tutti_dtype_name(part.dtype), whole.count,
                          tutti_dtype_name(whole.dtype), g->size);
    if (bytes > 0 && w < p + bytes / (size_t)g->size && p < w + bytes && p != w + (size_t)g->index * (bytes / (size_t)g->size))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s: the part overlaps the whole, but is not its part number %d; use that or other memory",
                          tutti_collective_name(kind), g->index);
    return TUTTI_OK;
}

tutti_status tutti_allreduce(tutti_group *g, tutti_reduction op, tutti_buffer x, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_ALLREDUCE, .op = (int)op, .dtype = x.dtype, .count = x.count, .vector = x.data };

    TUTTI_TRY(check_reduction(g, call.kind, op, x.dtype, &call.weight, err));
    return collective(g, &call, err);
}

tutti_status tutti_allreduce_weighted(tutti_group *g, float weight, tutti_buffer x, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_ALLREDUCE, .op = TUTTI_WEIGHTED, .dtype = x.dtype, .count = x.count, .vector = x.data, .weight = weight };

    TUTTI_TRY(check_member(g, call.kind, err));
    if (x.dtype != TUTTI_F32)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "weighted all-reduce of %s: only F32 is offered; convert first", tutti_dtype_name(x.dtype));
    return collective(g, &call, err);
}

tutti_status tutti_reduce_scatter(tutti_group *g, tutti_reduction op, tutti_buffer x, tutti_buffer mine, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_REDUCE_SCATTER, .op = (int)op, .dtype = x.dtype, .count = mine.count, .vector = x.data, .part = mine.data };

    TUTTI_TRY(check_reduction(g, call.kind, op, x.dtype, &call.weight, err));
    TUTTI_TRY(check_parts(g, call.kind, x, mine, err));
    return collective(g, &call, err);
}

tutti_status tutti_allgather(tutti_group *g, tutti_buffer mine, tutti_buffer all, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_ALLGATHER, .dtype = all.dtype, .count = mine.count, .weight = 1.0, .vector = all.data, .part = mine.data };

    TUTTI_TRY(check_parts(g, call.kind, all, mine, err));
    return collective(g, &call, err);
}

tutti_status tutti_broadcast(tutti_group *g, int root_index, tutti_buffer x, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_BROADCAST, .dtype = x.dtype, .count = x.count, .root = root_index, .weight = 1.0, .vector = x.data };

    TUTTI_TRY(check_member(g, call.kind, err));
    if (root_index < 0 || root_index >= g->size)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "broadcast from index %d: the members are 0 to %d", root_index, g->size - 1);
    return collective(g, &call, err);
}

tutti_status tutti_barrier(tutti_group *g, tutti_error *err)
{
    tutti_call call = { .kind = TUTTI_BARRIER, .dtype = TUTTI_U8, .weight = 1.0 };

    TUTTI_TRY(check_member(g, call.kind, err));
    return collective(g, &call, err);
}

tutti_status tutti_reduce_double(tutti_group *g, tutti_reduction op, double *x, size_t n, tutti_error *err)
{
    return tutti_allreduce(g, op, tutti_host(x, n, TUTTI_F64), err);
}
