/* Goal: zero.md's invariants, on ranks that are threads. All stages train ddp's bits, clipped too;
   each worker updates n/N elements and keeps what its stage says; between two workers travel the
   bytes of an all-reduce, no more and no fewer, and with clip-norm the sums of blocks besides.
   Method: a client with memory of its own, which hands its gradients over; the reference is ddp.
   What shards and buffers do by themselves, resuming and failures are in
   tests/engine/shards_test.c, schedules in tests/explore. */
#include "trial.h"

enum { TENSORS = 6, STEPS = 5, RANKS = 4, UNITS = 4, SIZE = 9001 + 40 + 64 + 3003 + 901 + 100, BLOCK = 4096 };
/* In ready order: two of the last layer, of which the first is large; small ones. */
static const size_t counts[TENSORS] = { 9001, 40, 64, 3003, 901, 100 };
static const int units[TENSORS] = { 3, 3, 2, 1, 1, 0 };

typedef struct run {
    const char *method;
    tutti_engine_options options;

    /* what it leaves */
    float x[RANKS][SIZE];
    uint64_t bytes[RANKS][RANKS], messages[RANKS][RANKS]; /* of the steps */
    int pieces;
    size_t piece_first[64], piece_count[64];
    double updated[RANKS], state_bytes[RANKS];
} run;

static run run_of(const char *method)
{
    return (run){ .method = method,
                  .options = { .batch = 2, .needs = true, .optimizer = "adamw(lr=0.01)", .collective = "direct" } };
}

static void fill(void *user, int tensor, float *values)
{
    (void)user;
    for (size_t i = 0; i < counts[tensor]; i++)
        values[i] = trial_initial_value(i + (size_t)tensor);
}

static tutti_status pass(tutti_engine *e, const tutti_pass *p, float *memory, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);

    for (int u = 0; u < UNITS; u++) {
        TUTTI_TRY(tutti_engine_need(e, u, false, err));
        TUTTI_TRY(tutti_engine_done(e, u, false, err));
    }
    for (int u = UNITS - 1; u >= 0; u--) {
        TUTTI_TRY(tutti_engine_need(e, u, true, err));
        for (int k = 0; k < TENSORS; k++) {
            const float *x = tutti_engine_values(e, k);
            if (units[k] != u)
                continue;
            for (size_t i = 0; i < counts[k]; i++)
                memory[i] = trial_quadratic(m->rank, m->step, i, x[i]) + (float)((m->step * 5 + i) % 7) / 3;
            TUTTI_TRY(tutti_engine_ready_from(e, k, memory, TUTTI_F32, err));
        }
        TUTTI_TRY(tutti_engine_done(e, u, true, err));
    }
    (void)p;
    return tutti_engine_passed(e, 0, err);
}

static void count(tutti_world *world, int rank, run *r, int sign)
{
    for (int to = 0; to < tutti_world_size(world); to++) {
        uint64_t bytes, messages;
        tutti_world_sent(world, to, &bytes, &messages);
        r->bytes[rank][to] += (uint64_t)sign * bytes;
        r->messages[rank][to] += (uint64_t)sign * messages;
    }
}

static void keep_what_is_told(run *r, tutti_engine *e)
{
    const tutti_layout *l = tutti_engine_method(e)->layout;
    const tutti_metric_record *told;
    const int n = tutti_engine_metrics(e, &told);

    r->pieces = l->n_pieces;
    for (int k = 0; k < l->n_pieces && k < 64; k++) {
        r->piece_first[k] = l->piece[k].first;
        r->piece_count[k] = l->piece[k].count;
    }
    for (int k = 0; k < n; k++) {
        if (strcmp(told[k].name, "updated_elements") == 0)
            r->updated[told[k].worker] = told[k].value;
        if (strcmp(told[k].name, "state_bytes_per_parameter") == 0)
            r->state_bytes[told[k].worker] = told[k].value;
    }
}

static tutti_status rank_of(tutti_world *world, void *arg, tutti_error *err)
{
    static const char *const names[TENSORS] = { "f", "e", "d", "c", "b", "a" };
    run *r = arg;
    const int rank = tutti_world_rank(world);
    tutti_engine_options options = r->options;
    tutti_param params[TENSORS];
    float *memory = tutti_alloc(SIZE, sizeof *memory);
    tutti_engine *e;
    tutti_status status;

    if (memory == NULL)
        return TUTTI_ERR_MEMORY;
    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { counts[k] }, .unit = units[k] };
    options.method = r->method;
    options.initial = fill;
    status = tutti_engine_open(&e, world, params, TENSORS, &options, err);
    count(world, rank, r, -1);
    for (int s = 0; s < STEPS && status == TUTTI_OK; s++) {
        tutti_pass p;
        while ((status = tutti_engine_pass(e, &p, err)) == TUTTI_OK && (status = pass(e, &p, memory, err)) == TUTTI_OK)
            ;
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    count(world, rank, r, 1);
    if (status == TUTTI_OK)
        memcpy(r->x[rank], tutti_engine_method(e)->x, sizeof r->x[rank]);
    if (status == TUTTI_OK && rank == 0)
        keep_what_is_told(r, e);
    tutti_engine_close(e);
    tutti_free(memory);
    return status;
}

static void go(run *r, int n)
{
    tutti_error err = { .rank = -1 };

    if (tutti_world_run("shm", n, rank_of, r, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", r->method, n, err.text);
}

#define SIZES "bucket_mb=0.012,first_bucket_mb=0.003"
static const char *const stages[] = { "zero(" SIZES ")", "zero(stage=2," SIZES ")", "zero(stage=2,bucket_mb=0.001)" };

static void all_stages_train_ddps_bits(void **state)
{
    static const char *const optimizers[] = { "adamw(lr=0.01)", "sgd(lr=0.05,momentum=0.9)" };

    (void)state;
    for (int n = 1; n <= RANKS; n++)
        for (int clip = 0; clip < 2; clip++) {
            static run a, b;
            a = run_of("ddp");
            a.options.clip_norm = clip == 1 ? 3 : 0;
            a.options.optimizer = optimizers[n % 2];
            go(&a, n);
            for (size_t k = 0; k < TUTTI_LENGTH(stages); k++) {
                b = run_of(stages[k]);
                b.options = a.options;
                b.options.collective = k == 0 ? "direct" : NULL;
                go(&b, n);
                for (int r = 0; r < n; r++)
                    assert_memory_equal(a.x[r], b.x[r], sizeof a.x[r]);
            }
        }
}

/* Elements of a piece that worker w has: as even as lines of 16 go. */
static size_t shard(size_t all, int n, int w)
{
    const size_t lines = (all + 15) / 16, mine = lines / (size_t)n + ((size_t)w < lines % (size_t)n);
    size_t first = 0;

    for (int k = 0; k < w; k++)
        first += 16 * (lines / (size_t)n + ((size_t)k < lines % (size_t)n));
    return first >= all ? 0 : 16 * mine < all - first ? 16 * mine : all - first;
}

static size_t shards(const run *r, int n, int w)
{
    size_t sum = 0;

    for (int k = 0; k < r->pieces; k++)
        sum += shard(r->piece_count[k], n, w);
    return sum;
}

static void each_updates_its_part_and_keeps_what_its_stage_says(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS; n++)
        for (int stage = 1; stage <= 2; stage++) {
            static run r;
            size_t sum = 0, most = 0;
            r = run_of(stages[stage - 1]);
            go(&r, n);
            for (int k = 0; k < r.pieces; k++)
                most = r.piece_count[k] > most ? r.piece_count[k] : most;
            most = (most + 15) / 16 * 16;
            for (int w = 0; w < n; w++) {
                const size_t mine = shards(&r, n, w), pad = 64 * (size_t)n, padded = (SIZE + pad - 1) / pad * pad;
                const double want = stage == 1 ? 4.0 * (double)(SIZE + padded + 2 * mine)
                                               : 4.0 * (double)(SIZE + 3 * mine + (r.pieces > 1 ? 2 : 1) * most);
                assert_true(r.updated[w] == (double)mine);
                assert_true(fabs((double)mine - (double)SIZE / n) < 32.0 * r.pieces);
                assert_true(fabs(r.state_bytes[w] * SIZE - want) < 1e-3);
                sum += mine;
            }
            assert_int_equal(sum, SIZE);
        }
}

static uint64_t sent(const run *r, int n)
{
    uint64_t sum = 0;

    for (int w = 0; w < n; w++)
        for (int v = 0; v < n; v++)
            sum += r->bytes[w][v];
    return sum;
}

/* Between two workers: the shard of the other's gradient, and one's own of the values. Stage 2 has
   other pieces, which end inside tensors. */
static void every_pair_sends_what_an_all_reduce_sends(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++) {
        static run a, b;
        a = run_of("ddp(" SIZES ")");
        go(&a, n);
        for (size_t k = 0; k < 2; k++) {
            b = run_of(stages[k]);
            go(&b, n);
            assert_true(k == 0 ? b.pieces == a.pieces : b.pieces > a.pieces);
            assert_true(b.pieces > 2);
            assert_int_equal(sent(&b, n), sent(&a, n));
            for (int w = 0; w < n; w++)
                for (int v = 0; v < n; v++) {
                    if (v == w)
                        continue;
                    assert_int_equal(b.bytes[w][v], STEPS * 4 * (shards(&b, n, v) + shards(&b, n, w)));
                    if (k == 0)
                        assert_int_equal(b.bytes[w][v], a.bytes[w][v]);
                    assert_int_equal(b.messages[w][v], STEPS * 2 * (uint64_t)b.pieces);
                }
        }
    }
}

/* Who has element i. */
static int owner(const run *r, int n, size_t i)
{
    int k = 0, w = 0;
    size_t end;

    while (i >= r->piece_first[k] + r->piece_count[k])
        k++;
    end = r->piece_first[k] + shard(r->piece_count[k], n, 0);
    while (i >= end)
        end += shard(r->piece_count[k], n, ++w);
    return w;
}

/* 8 bytes a block by whoever has its first element, to whom the others' elements of it go. */
static void clipping_sends_sums_of_blocks_and_their_borders_besides(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++) {
        static run plain, clipped;
        uint64_t more[RANKS][RANKS] = { { 0 } };
        plain = run_of(stages[0]);
        clipped = run_of(stages[0]);
        clipped.options.clip_norm = 1;
        go(&plain, n);
        go(&clipped, n);
        for (size_t i = 0; i < SIZE; i++) {
            const int adds = owner(&plain, n, i / BLOCK * BLOCK), has = owner(&plain, n, i);
            more[has][adds] += 4;
            for (int to = 0; to < n && i % BLOCK == 0; to++)
                more[adds][to] += 8;
        }
        for (int w = 0; w < n; w++)
            for (int v = 0; v < n; v++)
                if (w != v)
                    assert_int_equal(clipped.bytes[w][v] - plain.bytes[w][v], STEPS * more[w][v]);
    }
}

/* ---- what is refused ---- */

static void refuse(run *r, const char *sentence)
{
    tutti_error err = { .rank = -1 };

    assert_int_equal(tutti_world_run("shm", 2, rank_of, r, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s: %s", r->method, err.text);
}

static void what_is_not_possible_is_refused_in_a_sentence(void **state)
{
    static run r;

    (void)state;
    r = run_of("zero(stage=3)");
    refuse(&r, "stage");
    r = run_of("zero(bucket_mb=1,first_bucket_mb=2)");
    refuse(&r, "method 'zero': first_bucket_mb is 2 but bucket_mb is only 1; the first bucket may not be the larger "
               "one");
    r = run_of("zero");
    r.options.optimizer = "client";
    refuse(&r, "optimizer is 'client', whose buffers are whole on each worker, but method 'zero' cuts them over the "
               "workers; give its rule");
    r = run_of("zero");
    r.options.codec = "bf16";
    r.options.collective = NULL;
    refuse(&r, "codec is 'bf16', but method 'zero' has an exchange of its own, of float32");
    r = run_of("zero(stage=2)");
    r.options.accumulate = 2;
    refuse(&r, "accumulate is 2, but method 'zero' frees a gradient as soon as it is exchanged");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_stages_train_ddps_bits),
        cmocka_unit_test(each_updates_its_part_and_keeps_what_its_stage_says),
        cmocka_unit_test(every_pair_sends_what_an_all_reduce_sends),
        cmocka_unit_test(clipping_sends_sums_of_blocks_and_their_borders_besides),
        cmocka_unit_test(what_is_not_possible_is_refused_in_a_sentence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
