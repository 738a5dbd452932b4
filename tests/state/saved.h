/* saved.h: a small run's state, saved by any number of ranks that are threads and read by any
   number of others. Every value is a function of what it is and of the save's `generation`, so
   that old and new checkpoints can be distinguished, and mixes found. */
#ifndef TUTTI_TESTS_STATE_SAVED_H
#define TUTTI_TESTS_STATE_SAVED_H
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "memory_files.h"
#include "state/state_internal.h"

enum { KINDS = 6, WIDEST = 64 };
typedef struct kind {
    const char *state, *tensor;
    tutti_keep keep;
    tutti_dtype dtype;
    uint64_t count;
} kind;
static const kind kinds[KINDS] = {
    { "x", "0.weight", TUTTI_SAME, TUTTI_F32, 37 },
    { "x", "0.bias", TUTTI_SAME, TUTTI_F32, 2 },         /* three ranks: one has nothing of it */
    { "optim.m", "0.weight", TUTTI_SLICE, TUTTI_F64, 37 },
    { "engine.step", "", TUTTI_SAME, TUTTI_I64, 1 },
    { "ef.residual", "0.weight", TUTTI_OWN_SUM, TUTTI_BF16, 11 },
    { "note", "", TUTTI_OWN_ZERO, TUTTI_U8, 0 },
};
static inline bool kind_is_own(const kind *k)
{
    return k->keep == TUTTI_OWN_SUM || k->keep == TUTTI_OWN_ZERO;
}

/* Memory and items of one rank: of each kind its share, or all of it. */
typedef struct holding { tutti_saved items[KINDS]; uint8_t memory[KINDS][WIDEST * 8]; } holding;

static inline uint8_t value_of(int k, int owner, uint64_t byte, int generation)
{
    return (uint8_t)(byte * 7 + (uint64_t)k * 31 + (uint64_t)(owner + 1) * 57 +
                     (uint64_t)generation * 101);
}

static inline void hold(holding *h, int rank, int size, bool whole)
{
    memset(h, 0, sizeof *h);
    for (int k = 0; k < KINDS; k++) {
        const bool own = kind_is_own(&kinds[k]), all = whole || own;
        h->items[k] =
            (tutti_saved){
                .state = kinds[k].state, .tensor = kinds[k].tensor, .keep = kinds[k].keep,
                .dtype = kinds[k].dtype, .owner = own ? rank : -1, .count = kinds[k].count,
                .begin = all ? 0 : kinds[k].count * (uint64_t)rank / (uint64_t)size,
                .end = all ? kinds[k].count
                           : kinds[k].count * (uint64_t)(rank + 1) / (uint64_t)size,
                .data = h->memory[k],
            };
    }
}

static inline void fill(holding *h, int generation)
{
    for (int k = 0; k < KINDS; k++) {
        const tutti_saved *i = &h->items[k];
        const uint64_t size = tutti_dtype_bytes(i->dtype);
        for (uint64_t b = i->begin * size; b < i->end * size; b++)
            h->memory[k][b - i->begin * size] = value_of(k, i->owner, b, generation);
    }
}

typedef struct saving {
    tutti_runtime *files;
    const char *dir, *facts;
    uint64_t step;
    int generation, keep;
    tutti_status status[8];       /* as each rank saw it */
    tutti_error err[8];
    void (*spoil)(holding *h, int rank, int size); /* NULL: sound items */
} saving;

static inline tutti_status save_rank(tutti_world *world, void *arg, tutti_error *err)
{
    saving *s = arg;
    const int rank = tutti_world_rank(world), size = tutti_world_size(world);
    holding *h = malloc(sizeof *h);
    (void)err;
    hold(h, rank, size, false);
    fill(h, s->generation);
    if (s->spoil != NULL)
        s->spoil(h, rank, size);
    s->status[rank] = tutti_checkpoint_save_through(world, s->files, s->dir, s->step, h->items,
                                                    KINDS, s->facts, s->keep, &s->err[rank]);
    free(h);
    return TUTTI_OK;
}

/* Saves by `size` ranks; all see the same outcome. */
static inline tutti_status save_by(saving *s, int size)
{
    tutti_error err = { 0 };
    memset(s->status, -1, sizeof s->status);
    memset(s->err, 0, sizeof s->err);
    if (tutti_world_run("shm", size, save_rank, s, &err) != TUTTI_OK)
        print_message("world: %s\n", err.text);
    for (int r = 0; r < size; r++) {
        assert_int_equal(s->status[r], s->status[0]);
        assert_string_equal(s->err[r].text, s->err[0].text);
        assert_int_equal(s->err[r].rank, s->err[0].rank);
    }
    return s->status[0];
}

static inline tutti_status save_plain(tutti_runtime *files, const char *dir, int size,
                                      uint64_t step, int generation, int keep)
{
    saving s = {
        .files = files, .dir = dir, .facts = "{\"seed\": 7}", .step = step,
        .generation = generation, .keep = keep,
    };
    const tutti_status status = save_by(&s, size);
    if (status != TUTTI_OK)
        print_message("%s\n", s.err[0].text);
    return status;
}

/* What a reader of `size` ranks finds in this very checkpoint: every value of
   that generation, every hash sound. */
static inline void expect_whole(tutti_runtime *files, const char *path, int saved_by, int size,
                                int generation)
{
    tutti_checkpoint *c;
    tutti_error err = { 0 };
    holding *h = malloc(sizeof *h), *want = malloc(sizeof *h);

    if (tutti_checkpoint_open(&c, files, path, &err) != TUTTI_OK ||
        tutti_checkpoint_verify(c, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(tutti_checkpoint_world(c), saved_by);
    assert_string_equal(tutti_checkpoint_facts(c), "{\"seed\":7}");
    for (int rank = 0; rank < size; rank++)
        for (int whole = 0; whole < 2; whole++) {
            const size_t n = rank < saved_by ? KINDS : KINDS - 2; /* the own ones stand last */
            hold(h, rank, size, whole);
            hold(want, rank, size, whole);
            fill(want, generation);
            if (tutti_checkpoint_read(c, h->items, n, &err) != TUTTI_OK)
                fail_msg("%s", err.text);
            assert_memory_equal(h->memory, want->memory, n * sizeof h->memory[0]);
        }
    tutti_checkpoint_close(c);
    free(h);
    free(want);
}
#endif
