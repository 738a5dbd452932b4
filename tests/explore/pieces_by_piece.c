/* Pieces: updates by piece. A unit has the values of the step before when it is acquired, all of
   them, and they stay until it is released, in whatever order and pieces they are exchanged. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../engine/cut.h"
#include "explore.h"
#include "runtime/files.h"

enum { STEPS = 4, TENSORS = 5, UNITS = 3 };
static const size_t counts[TENSORS] = { 40, 5, 33, 3, 50 };
static const int units[TENSORS] = { 2, 2, 1, 0, 0 };

/* The rate of a step, which the client sets before it. */
static double rate(int step)
{
    return 0.125 * (1 + step);
}

/* At least 1, so that a step moves every value. */
static float gradient(int rank, int step, int tensor, size_t i)
{
    return 1 + (float)((rank * 5 + step * 7 + tensor * 3 + (int)i) % 16) / 4;
}

/* The element's value after `steps` steps. */
static double value(int ranks, int steps, int tensor, size_t i)
{
    double x = 0;

    for (int s = 0; s < steps; s++)
        for (int r = 0; r < ranks; r++)
            x -= rate(s) * (double)gradient(r, s, tensor, i) / ranks;
    return x;
}

/* Updates of earlier steps that the values of that step lack: with zero-offload's delayed updates
   the last one. */
static int lag(const explore_case *c, int step)
{
    return strncmp(c->piece->name, "zero-offload", 12) == 0 && explore_draw(c, "delayed", 2) == 1 &&
           step > (int)explore_draw(c, "warmup", 3);
}

static tutti_status look(const explore_case *c, tutti_engine *e, int unit, int step, tutti_error *err)
{
    for (int k = 0; k < TENSORS; k++)
        for (size_t i = 0; i < counts[k] && units[k] == unit; i++) {
            const double x = (double)tutti_engine_values(e, k)[i], want = value(c->ranks, step, k, i);
            EXPLORE_EXPECT(fabs(x - want) < 1e-3, "unit %d in step %d: element %zu of tensor %d is %g, not %g", unit,
                           step, i, k, x, want);
        }
    return TUTTI_OK;
}

/* In the piece with a judge one or two ranks have a number that is not finite, in tensors of one
   step: these may be in pieces that are in flight at the same time. */
static bool is_bad(const explore_case *c, int rank, int step, int tensor)
{
    const int first = (int)explore_draw(c, "first", (uint64_t)c->ranks),
              second = (int)explore_draw(c, "second", (uint64_t)c->ranks);

    if (c->piece->judge == NULL || step != 1)
        return false;
    return (rank == first && tensor == (int)explore_draw(c, "its tensor", TENSORS)) ||
           (rank == second && tensor == (int)explore_draw(c, "the other's", TENSORS));
}

static tutti_status judge_breaks(const explore_case *c, tutti_error *err)
{
    int broken = 0;

    for (int r = 0; r < c->ranks; r++) {
        const tutti_error *why = &c->rank[r].err;
        const bool mine = c->rank[r].status == TUTTI_ERR_NUMBER && strstr(why->text, ": the gradient of ") != NULL;
        bool bad = false;
        for (int k = 0; k < TENSORS; k++)
            bad = bad || is_bad(c, r, 1, k) || (why->rank >= 0 && is_bad(c, why->rank, 1, k));
        broken += mine;
        EXPLORE_EXPECT((mine || c->rank[r].status == TUTTI_ERR_PEER) && bad, "worker %d ended with '%s', rank %d: %s",
                       r, tutti_status_name(c->rank[r].status), why->rank, why->text);
    }
    EXPLORE_EXPECT(broken > 0, "no worker says what was not finite");
    return TUTTI_OK;
}

static tutti_status backward(const explore_case *c, tutti_engine *e, int step, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const bool turned = explore_draw(c, "turned", 2) == 1; /* units are announced the other way
                                                              round, so pieces that are
                                                              complete wait */
    float mine[64];

    for (int u = UNITS - 1; u >= 0; u--) {
        TUTTI_TRY(tutti_engine_unit_acquire(e, u, true, err));
        for (int i = 0; i < TENSORS; i++) {
            const int k = turned ? TENSORS - 1 - i : i;
            if (units[k] == u) {
                for (size_t j = 0; j < counts[k]; j++)
                    mine[j] = is_bad(c, m->rank, step, k) ? INFINITY : gradient(m->rank, step, k, j);
                TUTTI_TRY(tutti_engine_grad_ready_from(e, k, mine, TUTTI_F32, err));
            }
        }
        explore_dawdle(2000000);
        TUTTI_TRY(look(c, e, u, step - lag(c, step), err));
        TUTTI_TRY(tutti_engine_unit_release(e, u, true, err));
    }
    return TUTTI_OK;
}

static tutti_status one_step(const explore_case *c, tutti_engine *e, int step, tutti_error *err)
{
    tutti_pass p;
    tutti_status status;

    TUTTI_TRY(tutti_engine_lr(e, rate(step), err));
    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (int u = 0; u < UNITS; u++) {
            TUTTI_TRY(tutti_engine_unit_acquire(e, u, false, err));
            TUTTI_TRY(look(c, e, u, step - lag(c, step), err));
            TUTTI_TRY(tutti_engine_unit_release(e, u, false, err));
        }
        TUTTI_TRY(backward(c, e, step, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

/* One of the methods in `methods`. */
static tutti_status steps(tutti_world *world, explore_case *c, const char *method,
                          const tutti_method_ops *const *methods, double clip_norm, tutti_error *err)
{
    tutti_param params[TENSORS];
    const tutti_engine_options options = {
        .method = method, .optimizer = "sgd(lr=0.125)", .batch = 1, .needs = true, .clip_norm = clip_norm,
        .steps = strncmp(c->piece->name, "zero-infinity", 13) == 0 ? STEPS : 0 /* what is ahead goes beyond a step */
    };
    tutti_engine *e = NULL;
    tutti_status status;

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){
            .name = (const char *[]){ "e", "d", "c", "b", "a" }[k], .dims = 1, .dim = { counts[k] }, .unit = units[k]
        };
    status = tutti_engine_open_from(&e, world, params, TENSORS, &options, methods, err);
    for (int step = 0; step < STEPS && status == TUTTI_OK; step++)
        status = one_step(c, e, step, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    for (int u = 0; u < UNITS && status == TUTTI_OK; u++) {
        status = tutti_engine_unit_acquire(e, u, false, err);
        if (status == TUTTI_OK)
            status = look(c, e, u, STEPS, err);
        if (status == TUTTI_OK)
            status = tutti_engine_unit_release(e, u, false, err);
    }
    tutti_engine_close(e);
    return status;
}

static tutti_status by_piece(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const orders[] = { "", ",order=led", ",order=led,forward=yes",
                                          ",order=led,forward=yes,credit=256" };
    char method[200], recut[80] = "";

    if (explore_draw(c, "recut", 3) == 0)
        snprintf(recut, sizeof recut, ",least=64,recut_step=%d,recut_bytes=%d", 1 + (int)explore_draw(c, "when", 3),
                 64 + 64 * (int)explore_draw(c, "to", 6));
    snprintf(method, sizeof method, "cut(by_piece=yes,bytes=%d,width=%d%s%s)",
             64 + 64 * (int)explore_draw(c, "bytes", 6), 1 + (int)explore_draw(c, "width", 3),
             orders[explore_draw(c, "order", TUTTI_LENGTH(orders))], recut);
    return steps(world, c, method, cut_methods, 0, err);
}

/* bytescheduler.md: any part, credit and priority, by all-reduce and over servers. */
static tutti_status bytescheduler(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const forms[] = { "", ",fuse_mb=0", ",priority=fifo", ",cross_barrier=off" };
    const int part = 64 + 64 * (int)explore_draw(c, "part", 4);
    const int servers = (int)explore_draw(c, "servers", 4) - 1;
    char method[200], over[40] = "";

    if (servers >= 0)
        snprintf(over, sizeof over, ",over=servers,servers=%d", servers < c->ranks ? servers : 0);
    snprintf(method, sizeof method, "bytescheduler(partition_mb=%.17g,credit_mb=%.17g%s%s)", part / 1048576.0,
             part * (1 + (int)explore_draw(c, "credit", 3)) / 1048576.0,
             forms[explore_draw(c, "form", TUTTI_LENGTH(forms))], over);
    return steps(world, c, method, tutti_methods, 0, err);
}

/* A bound that no norm of a gradient exceeds: the norm is asked for, and nothing is clipped. */
static double far(const explore_case *c)
{
    return explore_draw(c, "clip", 2) == 0 ? 0 : 1e9;
}

/* zero.md: any buckets, with gradients held whole and by piece, and values by unit, sharded over
   all workers, over pairs of them, or not at all. */
static tutti_status zero(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int bucket = 64 + 64 * (int)explore_draw(c, "bucket", 6), stage = 1 + (int)explore_draw(c, "stage", 3);
    const int group = (int)explore_draw(c, "group", 3);
    char method[200], stay[40] = "", in[40] = "";

    if (stage == 3)
        snprintf(stay, sizeof stay, ",persist=%d", 33 * (int)explore_draw(c, "persist", 3));
    if (group > 0 && c->ranks % group == 0)
        snprintf(in, sizeof in, ",group=%d", group);
    snprintf(method, sizeof method, "zero(stage=%d,bucket_mb=%.17g,first_bucket_mb=%.17g%s%s)", stage,
             bucket / 1048576.0, 64 / 1048576.0, stay, in);
    return steps(world, c, method, tutti_methods, far(c), err);
}

/* zero-offload.md: updates whose tiles several threads share, at once and during the next
   step. */
static tutti_status offload(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int bucket = 64 + 64 * (int)explore_draw(c, "bucket", 6);
    char method[200], late[60] = "";

    if (explore_draw(c, "delayed", 2) == 1)
        snprintf(late, sizeof late, ",delayed=on,delay_warmup=%d", (int)explore_draw(c, "warmup", 3));
    snprintf(method, sizeof method, "zero-offload(threads=%d,bucket_mb=%.17g,first_bucket_mb=%.17g%s)",
             1 + (int)explore_draw(c, "threads", 2), bucket / 1048576.0, 64 / 1048576.0, late);
    return steps(world, c, method, tutti_methods, far(c), err);
}

/* Disks in memory, one for each rank; while the bytes of one are copied other ranks run. All
   ranks of a run have one runtime, and only one fiber runs at a time. */
enum { DISKS = 8, FIRST = 1000, IMAGE = 8 * TUTTI_FILE_BLOCK };
static struct {
    const tutti_runtime_ops *below;
    tutti_runtime_ops ops;
    int used;
    char image[DISKS][IMAGE];
} disk;

static int space_left(void *self, const char *path, uint64_t *bytes)
{
    (void)self, (void)path;
    *bytes = IMAGE;
    return 0;
}

static int file_scratch(void *self, const char *directory, uint64_t bytes, bool direct, int *fd)
{
    (void)self, (void)directory, (void)direct;
    if (bytes > IMAGE || disk.used == DISKS)
        return ENOSPC;
    *fd = FIRST + disk.used++;
    memset(disk.image[*fd - FIRST], 0, IMAGE);
    return 0;
}

static int file_close(void *self, int fd)
{
    return fd >= FIRST ? 0 : disk.below->file_close(self, fd);
}

static int file_read(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done)
{
    if (fd < FIRST)
        return disk.below->file_read(self, fd, offset, to, bytes, done);
    explore_copy(to, disk.image[fd - FIRST] + offset, bytes);
    *done = bytes;
    return 0;
}

static int file_write_at(void *self, int fd, uint64_t offset, const void *from, size_t bytes, size_t *done)
{
    (void)self;
    explore_copy(disk.image[fd - FIRST] + offset, from, bytes);
    *done = bytes;
    return 0;
}

static void give_disks(tutti_runtime *rt)
{
    if (rt->ops == &disk.ops)
        return;
    disk.below = rt->ops;
    disk.ops = *rt->ops;
    disk.ops.space_left = space_left;
    disk.ops.file_scratch = file_scratch;
    disk.ops.file_close = file_close;
    disk.ops.file_read = file_read;
    disk.ops.file_write_at = file_write_at;
    disk.used = 0;
    rt->ops = &disk.ops;
}

/* zero-infinity.md: layers that are read ahead, by as many as there are and by fewer, in memory and
   on disks. */
static tutti_status infinity(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const tiers[] = { "host", "nvme(path=disk,engine=threads,depth=2,block=4096)",
                                         "nvme(path=disk,engine=threads,depth=1,direct=off)" };
    const int bucket = 64 + 64 * (int)explore_draw(c, "bucket", 6);
    char method[300];

    give_disks(tutti_world_runtime(world));
    snprintf(method, sizeof method,
             "zero-infinity(tier=%s,ahead=%d,threads=%d,persist=%d,bucket_mb=%.17g,first_bucket_mb=%.17g)",
             tiers[explore_draw(c, "tier", TUTTI_LENGTH(tiers))], (int)explore_draw(c, "ahead", 4),
             1 + (int)explore_draw(c, "threads", 2), 33 * (int)explore_draw(c, "persist", 3), bucket / 1048576.0,
             64 / 1048576.0);
    return steps(world, c, method, tutti_methods, far(c), err);
}

/* Shards of pieces that end inside tensors, on several threads, of one group or more. */
static tutti_status shards(tutti_world *world, explore_case *c, tutti_error *err)
{
    char method[200];

    snprintf(method, sizeof method, "cut-shards(bytes=%d,width=%d,teams=%d%s)",
             64 + 64 * (int)explore_draw(c, "bytes", 6), 1 + (int)explore_draw(c, "width", 3),
             1 + (int)explore_draw(c, "teams", 4), explore_draw(c, "held", 2) == 0 ? "" : ",held=yes");
    return steps(world, c, method, cut_methods, far(c), err);
}

const explore_piece explore_by_piece_pieces[] = {
    { .name = "by-piece",
      .help = "updates by piece: a unit has the values of the step before when it is needed, and keeps them until it "
              "is done",
      .least = 2,
      .most = 4,
      .rank_main = by_piece },
    { .name = "by-piece-dies",
      .help = "a rank is killed while pieces of two steps are under way: all others end",
      .least = 2,
      .most = 4,
      .rank_main = by_piece,
      .deaths = true,
      .steps = 6000 },
    { .name = "by-piece-breaks",
      .help = "two ranks have numbers that are not finite in different pieces of a step: all end",
      .least = 2,
      .most = 4,
      .rank_main = by_piece,
      .judge = judge_breaks },
    { .name = "bytescheduler",
      .help = "bytescheduler: parts by priority within a credit, by all-reduce and over servers: a unit has the values "
              "of the step before when it is needed",
      .least = 2,
      .most = 4,
      .rank_main = bytescheduler },
    { .name = "bytescheduler-dies",
      .help = "a rank is killed while parts of two steps are under way, or wait for their turn: all others end",
      .least = 2,
      .most = 4,
      .rank_main = bytescheduler,
      .deaths = true,
      .steps = 6000 },
    { .name = "zero",
      .help = "zero, all stages: a unit has the values of the step before when it is needed, everybody's shards",
      .least = 1,
      .most = 4,
      .rank_main = zero },
    { .name = "zero-offload",
      .help = "zero-offload, delayed too: a unit has the values of the step before, or of the one before that",
      .least = 1,
      .most = 4,
      .rank_main = offload },
    { .name = "zero-infinity",
      .help = "zero-infinity: a unit has the values of the step before, however many are ahead of it",
      .least = 1,
      .most = 4,
      .rank_main = infinity },
    { .name = "zero-infinity-breaks",
      .help = "two ranks have numbers that are not finite while layers are ahead: all end",
      .least = 2,
      .most = 4,
      .rank_main = infinity,
      .judge = judge_breaks },
    { .name = "zero-infinity-dies",
      .help = "a rank is killed while layers are ahead: all others end",
      .least = 2,
      .most = 4,
      .rank_main = infinity,
      .deaths = true,
      .steps = 6000 },
    { .name = "zero-offload-dies",
      .help = "a rank is killed while an update runs beside the next step: all others end",
      .least = 2,
      .most = 4,
      .rank_main = offload,
      .deaths = true,
      .steps = 6000 },
    { .name = "zero-dies",
      .help = "a rank is killed while values of one step and gradients of the next are under way: all others end",
      .least = 2,
      .most = 4,
      .rank_main = zero,
      .deaths = true,
      .steps = 6000 },
    { .name = "zero-breaks",
      .help = "two ranks have numbers that are not finite in different pieces of a step under zero: all end",
      .least = 2,
      .most = 4,
      .rank_main = zero,
      .judge = judge_breaks },
    { .name = "shards",
      .help = "shards of pieces that end inside tensors, gradients held whole or by piece, by one team or several",
      .least = 1,
      .most = 4,
      .rank_main = shards },
    { .name = "shards-break",
      .help = "two ranks have numbers that are not finite in different pieces of a step under shards: all end",
      .least = 2,
      .most = 4,
      .rank_main = shards,
      .judge = judge_breaks },
    { 0 }
};
