/* Goal: declared state where it lies is all that a run needs to continue from. Method: run k
   steps, take a copy of every piece (tutti_engine_state), write the copies into fresh engines of
   the same ranks, run on: the bits of a run that went through. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "toy.h"

enum { SAVE_AT = 3, STEPS = 7, RANKS = 5, PIECES = 512 };

typedef struct carried {
    toy t;
    bool take, put;
    struct { size_t n, bytes[PIECES]; char name[PIECES][96]; void *copy[PIECES]; } of[RANKS];
    uint64_t hash;
} carried;

static size_t bytes_of(const tutti_saved *piece)
{
    return (size_t)(piece->end - piece->begin) * tutti_dtype_bytes(piece->dtype);
}

static tutti_status take(tutti_engine *e, carried *c, int rank, tutti_error *err)
{
    const tutti_saved *piece;
    size_t n;

    TUTTI_TRY(tutti_engine_state(e, &piece, &n, err));
    assert_true(n >= 2 && n <= PIECES); /* x, progress */
    c->of[rank].n = n;
    for (size_t k = 0; k < n; k++) {
        assert_true(piece[k].end <= piece[k].count && piece[k].begin < piece[k].end);
        snprintf(c->of[rank].name[k], sizeof c->of[rank].name[k], "%s/%s@%llu", piece[k].state, piece[k].tensor,
                 (unsigned long long)piece[k].begin);
        for (size_t j = 0; j < k; j++)
            assert_string_not_equal(c->of[rank].name[k], c->of[rank].name[j]);
        c->of[rank].bytes[k] = bytes_of(&piece[k]);
        c->of[rank].copy[k] = malloc(bytes_of(&piece[k]));
        memcpy(c->of[rank].copy[k], piece[k].data, bytes_of(&piece[k]));
    }
    return TUTTI_OK;
}

static tutti_status put(tutti_engine *e, carried *c, int rank, tutti_error *err)
{
    const tutti_saved *piece;
    size_t n;

    TUTTI_TRY(tutti_engine_state(e, &piece, &n, err));
    assert_int_equal(n, c->of[rank].n);
    for (size_t k = 0; k < n; k++) {
        assert_int_equal(bytes_of(&piece[k]), c->of[rank].bytes[k]);
        memcpy(piece[k].data, c->of[rank].copy[k], bytes_of(&piece[k]));
    }
    return tutti_engine_state_written(e, err);
}

static tutti_status train(tutti_world *world, void *arg, tutti_error *err)
{
    carried *c = arg;
    toy t = c->t;
    const int rank = tutti_world_rank(world);
    tutti_engine *e;

    TUTTI_TRY(toy_open(&e, world, &t, err));
    if (c->put)
        TUTTI_TRY(put(e, c, rank, err));
    for (int k = c->put ? SAVE_AT : 0; k < STEPS; k++) {
        if (k == SAVE_AT && c->take)
            TUTTI_TRY(take(e, c, rank, err));
        TUTTI_TRY(toy_step(e, &t, err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    if (rank == 0)
        c->hash = toy_hash(e);
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void run(carried *c, int n)
{
    tutti_error err = { .rank = -1 };

    if (tutti_world_run("shm", n, train, c, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", c->t.options.method, n, err.text);
}

static carried *fresh(const char *method, const char *optimizer, const char *codec)
{
    carried *c = calloc(1, sizeof *c);

    assert_non_null(c);
    c->t = toy_default();
    c->t.options.method = method;
    c->t.options.optimizer = optimizer;
    c->t.options.codec = codec;
    c->t.options.lr_schedule = "cosine(warmup=2)";
    c->t.options.steps = STEPS;
    c->t.count[1] = 1200;
    c->t.count[3] = 901;
    c->t.rows[1] = 30;
    return c;
}

static void drop(carried *c)
{
    for (int r = 0; r < RANKS; r++)
        for (size_t k = 0; k < c->of[r].n; k++)
            free(c->of[r].copy[k]);
    free(c);
}

/* Positions of samples that no run can have: it would train for ever on none, or twice on
   some. */
typedef struct forgery { const char *state, *sentence; int64_t value; toy t; } forgery;

static tutti_status forge(tutti_world *world, void *arg, tutti_error *err)
{
    const forgery *f = arg;
    toy t = f->t;
    const tutti_saved *piece;
    tutti_error why = { .rank = -1 };
    tutti_engine *e;
    size_t n, found = 0;

    TUTTI_TRY(toy_open(&e, world, &t, err));
    TUTTI_TRY(tutti_engine_state(e, &piece, &n, err));
    for (size_t i = 0; i < n; i++)
        if (strcmp(piece[i].state, f->state) == 0) {
            memcpy(piece[i].data, &f->value, sizeof f->value);
            found++;
        }
    assert_int_equal(found, 1);
    assert_int_equal(tutti_engine_state_written(e, &why), TUTTI_ERR_CORRUPT);
    if (strstr(why.text, f->sentence) == NULL)
        fail_msg("'%s' should contain '%s'", why.text, f->sentence);
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void impossible_sample_positions_are_rejected(void **state)
{
    static const char leased[] = "what each leases (take.loan, take.next)",
                      took[] = "what each took in the last step (take.of)";
    forgery forged[] = { { "take.next", leased, INT64_MAX / 2 }, { "take.next", leased, -1 },
                         { "take.loan", leased, 1 },             { "take.loan", leased, -1 },
                         { "take.of", took, 1 },               { "take.of", took, -1 } };
    carried *c = fresh("dabmd(most=64)", "sgd(lr=0.05)", NULL);

    (void)state;
    for (size_t k = 0; k < sizeof forged / sizeof *forged; k++) {
        tutti_error err = { .rank = -1 };
        forged[k].t = c->t;
        if (tutti_world_run("shm", 3, forge, &forged[k], &err) != TUTTI_OK)
            fail_msg("%s: %s", forged[k].state, err.text);
    }
    drop(c);
}

static void run_restored_from_its_state_matches_bit_for_bit(void **state)
{
    static const struct { const char *method, *optimizer, *codec; int n; } rows[] = {
        { "ddp", "adam(lr=0.01)", NULL, 1 },
        { "ddp", "sgd(lr=0.05,momentum=0.9)", "ef(topk(ratio=0.05))", 3 },
        { "local-sgd(period=2,outer=adam(lr=0.01))", "sgd(lr=0.05,momentum=0.9)", NULL, 2 },
        { "d-psgd", "sgd(lr=0.05,momentum=0.9)", "topk(ratio=0.05)", 3 },
        { "sgp(graph=star(weights=push),overlap=2)", "sgd(lr=0.05,momentum=0.9)", NULL, 4 },
        { "lasgd(local_steps=3,max_delay=1)", "sgd(lr=0.05,momentum=0.9)", NULL, 3 },
        { "bagua(algorithm=low_precision_decentralized)", "sgd(lr=0.05,momentum=0.9)", NULL, 3 },
        { "rand-psgd(rounds=2)", "sgd(lr=0.05,momentum=0.9)", NULL, 5 },
        { "parameter-server", "adamw(lr=0.01)", NULL, 3 },
        { "backup-workers(backup=0,servers=2)", "adamw(lr=0.01)", NULL, 4 },
        { "powersgd(rank=2)", "sgd(lr=0.05,momentum=0.9)", NULL, 2 },
        { "signum", "sgd(lr=0.01)", NULL, 4 },
        { "demo", "sgd(lr=0.01)", NULL, 3 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(rows); i++) {
        carried *c = fresh(rows[i].method, rows[i].optimizer, rows[i].codec);
        uint64_t through;
        run(c, rows[i].n);
        through = c->hash;
        c->take = true;
        run(c, rows[i].n);
        assert_int_equal(c->hash, through); /* looking disturbs nothing */
        c->take = false;
        c->put = true;
        c->hash = 0;
        run(c, rows[i].n);
        if (c->hash != through)
            fail_msg("%s on %d: a run that goes on from its pieces ends elsewhere", rows[i].method, rows[i].n);
        drop(c);
    }
}

static tutti_status out_of_order(tutti_world *world, void *arg, tutti_error *err)
{
    carried *c = arg;
    toy t = c->t;
    const tutti_saved *piece;
    tutti_engine *e;
    tutti_pass p;
    size_t n;

    TUTTI_TRY(toy_open(&e, world, &t, err));
    TUTTI_TRY(toy_step(e, &t, err));
    assert_int_equal(tutti_engine_state_written(e, err), TUTTI_ERR_STATE);
    assert_non_null(strstr(err->text, "state is written before the first pass only"));
    TUTTI_TRY(tutti_engine_eval_begin(e, err));
    if (tutti_engine_state(e, &piece, &n, err) == TUTTI_OK) /* the model of an evaluation is the same anyway */
        c->hash = n;
    else
        assert_non_null(strstr(err->text, "state is legal between steps only"));
    TUTTI_TRY(tutti_engine_eval_end(e, err));
    TUTTI_TRY(tutti_engine_pass_begin(e, &p, err));
    assert_int_equal(tutti_engine_state(e, &piece, &n, err), TUTTI_ERR_STATE);
    assert_true(piece == NULL && n == 0);
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void state_is_readable_only_between_steps(void **state)
{
    static const char *const methods[] = { "ddp", "d-psgd" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        carried *c = fresh(methods[k], "sgd(lr=0.05)", NULL);
        tutti_error err = { .rank = -1 };
        if (tutti_world_run("shm", k == 0 ? 1 : 2, out_of_order, c, &err) != TUTTI_OK)
            fail_msg("%s: %s", methods[k], err.text);
        assert_int_equal(c->hash > 0, k == 0);
        drop(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_restored_from_its_state_matches_bit_for_bit),
        cmocka_unit_test(impossible_sample_positions_are_rejected),
        cmocka_unit_test(state_is_readable_only_between_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
