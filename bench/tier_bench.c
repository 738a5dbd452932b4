/* tier_bench.c: what bench/run tier measures of a tier: the bandwidth of its writes and reads.

     tier_bench SPEC BYTES PASSES

   SPEC as `nvme(path=DIR,depth=32,block=1048576)`. The tier is written once before, so that the
   file system has nothing of its own left to do. Then PASSES times all of it is written and all of
   it is read, in order, by requests of 8 MiB from and to pinned memory, as many at a time as fill
   64 MiB. What is read is compared. Prints one JSON object: what the tier is, and bytes a second of
   each pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/files.h"
#include "tier/tier.h"

enum { TILE = 8 << 20, TILES = 8, PASSES_MOST = 100 };

typedef struct bench {
    tutti_runtime *rt;
    tutti_tier *tier;
    tutti_arena *arena;
    char *tiles;
    uint64_t bytes;
} bench;

/* What the tile at `at` begins with, and in each of its pages. */
static void stamp(char *tile, uint64_t at, size_t bytes)
{
    for (size_t page = 0; page + sizeof at <= bytes; page += TUTTI_FILE_BLOCK) {
        const uint64_t here = at + page;
        memcpy(tile + page, &here, sizeof here);
    }
}

static bool is_stamped(const char *tile, uint64_t at, size_t bytes)
{
    for (size_t page = 0; page + sizeof at <= bytes; page += TUTTI_FILE_BLOCK) {
        const uint64_t here = at + page;
        if (memcmp(tile + page, &here, sizeof here) != 0)
            return false;
    }
    return true;
}

/* Ends what slot k is at; for reads also checks the data. */
static tutti_status settle(bench *b, tutti_io *io, bool write, tutti_error *err)
{
    TUTTI_TRY(tutti_tier_wait(b->tier, &io, 1, err));
    if (!write && io->memory != NULL && !is_stamped(io->memory, io->at, io->bytes))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "at %llu other bytes were read than were written",
                          (unsigned long long)io->at);
    return TUTTI_OK;
}

static tutti_status pass(bench *b, bool write, double *rate, tutti_error *err)
{
    tutti_io io[TILES] = { { 0 } };
    const int64_t begin = tutti_now_ns(b->rt);
    tutti_status status = TUTTI_OK, last;
    uint64_t at = 0;

    for (int k = 0; at < b->bytes && status == TUTTI_OK; k = (k + 1) % TILES, at += TILE) {
        const size_t n = b->bytes - at < TILE ? (size_t)(b->bytes - at) : TILE;
        char *const tile = b->tiles + (size_t)k * TILE;
        status = settle(b, &io[k], write, err);
        if (status != TUTTI_OK)
            break;
        if (write)
            stamp(tile, at, n);
        status = write ? tutti_tier_write(b->tier, &io[k], at, tile, n, err)
                       : tutti_tier_read(b->tier, &io[k], at, tile, n, err);
    }
    for (int k = 0; k < TILES; k++)
        if ((last = settle(b, &io[k], write, status == TUTTI_OK ? err : NULL)) != TUTTI_OK && status == TUTTI_OK)
            status = last;
    *rate = (double)b->bytes * 1e9 / (double)(tutti_now_ns(b->rt) - begin);
    return status;
}

static tutti_status run(bench *b, const char *spec, int passes, double rate[2][PASSES_MOST], tutti_error *err)
{
    void *memory;

    TUTTI_TRY(tutti_runtime_open_posix(&b->rt, err));
    TUTTI_TRY(tutti_arena_open(&b->arena, b->rt, "host memory", "", TUTTI_UNBOUNDED, err));
    TUTTI_TRY(tutti_arena_take(b->arena, "tiles", (size_t)TILE * TILES, TUTTI_FILE_BLOCK, &memory, err));
    b->tiles = memory;
    tutti_entropy(b->rt, memory, (size_t)TILE * TILES); /* some disks make zeros short */
    TUTTI_TRY(tutti_tier_open(&b->tier, b->rt, spec, b->bytes, b->arena, err));
    tutti_tier_pin(b->tier, memory, (size_t)TILE * TILES);
    TUTTI_TRY(pass(b, true, &rate[0][0], err));
    for (int k = 0; k < passes; k++) {
        TUTTI_TRY(pass(b, true, &rate[0][k], err));
        TUTTI_TRY(pass(b, false, &rate[1][k], err));
    }
    return TUTTI_OK;
}

int main(int argc, char **argv)
{
    static double rate[2][PASSES_MOST];
    tutti_error err = { .rank = -1 };
    bench b = { 0 };
    const int passes = argc == 4 ? atoi(argv[3]) : 0;
    tutti_status status;
    char what[600];

    b.bytes = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
    if (passes < 1 || passes > PASSES_MOST || b.bytes == 0) {
        fprintf(stderr, "usage: tier_bench SPEC BYTES PASSES (1 to %d)\n", PASSES_MOST);
        return 2;
    }
    status = run(&b, argv[1], passes, rate, &err);
    if (status == TUTTI_OK) {
        tutti_tier_describe(b.tier, what, sizeof what);
        printf("{\"is\": \"%s\"", what);
        for (int read = 0; read < 2; read++) {
            printf(", \"%s\": [", read ? "read" : "write");
            for (int k = 0; k < passes; k++)
                printf("%s%.0f", k > 0 ? ", " : "", rate[read][k]);
            printf("]");
        }
        printf("}\n");
    } else
        fprintf(stderr, "tier_bench: %s\n", err.text);
    tutti_tier_close(b.tier);
    if (b.arena != NULL)
        tutti_arena_give(b.arena, b.tiles);
    tutti_arena_close(b.arena);
    tutti_runtime_close(b.rt);
    return status == TUTTI_OK ? 0 : 1;
}
