/* Pieces: tiers. Several lanes share one tier, and their parts meet inside blocks. Each reads
   what it has written, by the threads of a tier and by its queue. Closing waits for what is in
   flight. The disk is memory, and other fibers run while it copies. The queue ends its transfers
   in an order that the seed draws. */
#include "explore.h"
#include "runtime/files.h"
#include "tier/tier.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LANES = 3, TURNS = 3, HALF = 2500, PART = 2 * HALF, BLOCK = TUTTI_FILE_BLOCK, DEPTH = 4, LEFT = 4000 };
enum { BYTES = LANES * PART + LEFT, WHOLE = (BYTES + BLOCK - 1) / BLOCK * BLOCK };

/* A run has one rank and one tier. Only one fiber runs at a time. */
static struct disk {
    const explore_case *c;
    const tutti_runtime *below;
    char image[WHOLE];
    tutti_monitor *bell;                 /* of the queue */
    bool kicked;
    tutti_queue_entry entry[DEPTH];      /* under way */
    int entries;
    unsigned draws;
} disk;

static uint64_t draw(uint64_t n)
{
    char name[32];

    snprintf(name, sizeof name, "disk %u", disk.draws++);
    return explore_draw(disk.c, name, n);
}

static int space_left(void *self, const char *path, uint64_t *bytes)
{
    (void)self, (void)path;
    *bytes = WHOLE;
    return 0;
}

static int file_scratch(void *self, const char *directory, uint64_t bytes, bool direct, int *fd)
{
    (void)self, (void)directory, (void)direct;
    *fd = 7;
    return bytes == WHOLE ? 0 : ENOSPC;
}

static int file_close(void *self, int fd)
{
    (void)self, (void)fd;
    return 0;
}

static int file_read(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done)
{
    (void)self, (void)fd;
    explore_copy(to, disk.image + offset, bytes);
    *done = bytes;
    return 0;
}

static int file_write_at(void *self, int fd, uint64_t offset, const void *from, size_t bytes, size_t *done)
{
    (void)self, (void)fd;
    explore_copy(disk.image + offset, from, bytes);
    *done = bytes;
    return 0;
}

static int queue_open(void *self, int depth, void **queue)
{
    (void)self;
    *queue = depth == DEPTH ? &disk : NULL;
    return tutti_monitor_open(&disk.bell, (tutti_runtime *)(uintptr_t)disk.below, NULL) == TUTTI_OK ? 0 : ENOMEM;
}

static void queue_close(void *self, void *queue)
{
    (void)self, (void)queue;
    tutti_monitor_close(disk.bell);
}

static int queue_fix(void *self, void *queue, int index, void *memory, size_t bytes)
{
    (void)self, (void)queue, (void)index, (void)memory, (void)bytes;
    return EOPNOTSUPP;
}

static void queue_add(void *self, void *queue, const tutti_queue_entry *entry)
{
    (void)self, (void)queue;
    disk.entry[disk.entries++ % DEPTH] = *entry;
}

static void queue_kick(void *self, void *queue)
{
    (void)self, (void)queue;
    tutti_lock(disk.bell);
    disk.kicked = true;
    tutti_wake(disk.bell);
    tutti_unlock(disk.bell);
}

/* Some of what is in flight, in any order; or only a kick. */
static int queue_reap(void *self, void *queue, bool block, tutti_queue_result *results, int room, int *n)
{
    bool kicked;

    (void)queue;
    *n = 0;
    tutti_lock(disk.bell);
    while (block && disk.entries == 0 && !disk.kicked)
        tutti_wait(disk.bell, TUTTI_FOREVER, NULL);
    kicked = disk.kicked;
    disk.kicked = false;
    tutti_unlock(disk.bell);
    while (disk.entries > 0 && *n < room) {
        const int k = (int)draw((uint64_t)disk.entries);
        const tutti_queue_entry e = disk.entry[k];
        size_t done;
        if (kicked && *n == 0 && draw(2) == 0)
            return 0;
        disk.entry[k] = disk.entry[--disk.entries];
        explore_dawdle(3000);
        (e.write ? file_write_at(self, e.fd, e.offset, e.memory, e.bytes, &done)
                 : file_read(self, e.fd, e.offset, e.memory, e.bytes, &done));
        results[(*n)++] = (tutti_queue_result){ .tag = e.tag, .done = done };
        if (draw(3) == 0)
            break;
    }
    return 0;
}

typedef struct lane { tutti_tier *tier; int index; } lane;

/* Two requests at a time; their ends may lie in one block. */
static tutti_status lane_run(void *arg, tutti_error *err)
{
    const lane *l = arg;
    static char out[LANES][PART], in[LANES][PART];

    for (int turn = 0; turn < TURNS; turn++) {
        tutti_io io[2] = { { 0 } }, *const both[] = { &io[0], &io[1] };
        char *const mine = out[l->index], *const back = in[l->index];
        memset(mine, 10 * l->index + turn + 1, PART);
        for (int k = 0; k < 2; k++)
            TUTTI_TRY(tutti_tier_write(l->tier, &io[k], (uint64_t)(l->index * PART + k * HALF), mine + k * HALF, HALF,
                                       err));
        TUTTI_TRY(tutti_tier_wait(l->tier, both, 2, err));
        for (int k = 0; k < 2; k++)
            TUTTI_TRY(tutti_tier_read(l->tier, &io[k], (uint64_t)(l->index * PART + k * HALF), back + k * HALF, HALF,
                                      err));
        TUTTI_TRY(tutti_tier_wait(l->tier, both, 2, err));
        EXPLORE_EXPECT(memcmp(mine, back, PART) == 0, "lane %d, turn %d: other bytes were read than were written",
                       l->index, turn);
    }
    return TUTTI_OK;
}

static tutti_status use(tutti_tier *t, tutti_runtime *rt, tutti_io *left, const char *what, tutti_error *err)
{
    tutti_thread *thread[LANES] = { NULL };
    tutti_status status = TUTTI_OK, last;
    lane lanes[LANES];

    for (int k = 0; k < LANES && status == TUTTI_OK; k++) {
        lanes[k] = (lane){ t, k };
        status = tutti_thread_open(&thread[k], rt, "lane", lane_run, &lanes[k], err);
    }
    for (int k = 0; k < LANES; k++)
        if (thread[k] != NULL && (last = tutti_thread_join(thread[k], status == TUTTI_OK ? err : NULL)) != TUTTI_OK)
            status = status == TUTTI_OK ? last : status;
    return status == TUTTI_OK ? tutti_tier_write(t, left, LANES * PART, what, LEFT, err) : status;
}

static tutti_status tier(tutti_world *world, explore_case *c, tutti_error *err)
{
    tutti_runtime *const below = tutti_world_runtime(world), rt = { NULL, below->self };
    const bool queue = strcmp(c->piece->name, "tier-queue") == 0;
    tutti_runtime_ops ops = *below->ops;
    char what[LEFT], spec[80];
    tutti_io left = { 0 };
    tutti_status status;
    tutti_tier *t;

    memset(&disk, 0, sizeof disk);
    disk.c = c;
    disk.below = below;
    memset(what, 0x77, sizeof what);
    ops.space_left = space_left;
    ops.file_scratch = file_scratch;
    ops.file_close = file_close;
    ops.file_read = file_read;
    ops.file_write_at = file_write_at;
    if (queue) {
        ops.queue_open = queue_open;
        ops.queue_close = queue_close;
        ops.queue_fix = queue_fix;
        ops.queue_add = queue_add;
        ops.queue_reap = queue_reap;
        ops.queue_kick = queue_kick;
    }
    rt.ops = &ops;
    snprintf(spec, sizeof spec, "nvme(path=disk,depth=%d,block=%d)", queue ? DEPTH : 1 + (int)explore_draw(c, "d", 4),
             BLOCK);
    TUTTI_TRY(tutti_tier_open(&t, &rt, spec, BYTES, NULL, err));
    status = use(t, &rt, &left, what, err);
    tutti_tier_close(t);
    EXPLORE_EXPECT(status != TUTTI_OK || (!left.under_way && left.status == TUTTI_OK), "what was left had not ended");
    EXPLORE_EXPECT(status != TUTTI_OK || memcmp(disk.image + LANES * PART, what, LEFT) == 0,
                   "what was left is not on the disk");
    return status;
}

const explore_piece explore_tier_pieces[] = {
    { .name = "tier-threads",
      .help = "lanes write and read parts of a tier that meet in blocks, by its threads",
      .least = 1,
      .most = 1,
      .rank_main = tier },
    { .name = "tier-queue",
      .help = "the same by its queue, which ends transfers in any order",
      .least = 1,
      .most = 1,
      .rank_main = tier },
    { 0 },
};
