/* The loader: with any depth, from any step, the batches are those the shares prescribe; it ends
   from any state. */
#include "make.h"
#include <stdatomic.h>

typedef struct fixture { tutti_runtime *real; memory_files *m; tutti_data *data; void *block; } fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_int_equal(tutti_runtime_open_posix(&f->real, NULL), TUTTI_OK);
    f->m = memory_files_open(f->real);
    put_set(f->m, 53, 3, 3, 3, false);
    assert_int_equal(tutti_data_open(&f->data, &f->m->rt, "set", NULL), TUTTI_OK);
    f->block = tutti_alloc(tutti_data_shape_of(f->data)->bytes, 1);
    assert_int_equal(tutti_data_attach(f->data, f->block, true, NULL), TUTTI_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    tutti_data_close(f->data);
    tutti_free(f->block);
    memory_files_close(f->m);
    tutti_runtime_close(f->real);
    free(f);
    return 0;
}

/* Compares batch by batch with a gather of this test's own, including tails and empty passes. */
static void loader_batches_follow_the_share_in_order(void **state)
{
    fixture *f = *state;
    static const int depths[] = { 0, 1, 2, 5, 16 };

    for (size_t k = 0; k < TUTTI_LENGTH(depths); k++)
        for (int worker = 0; worker < 3; worker++) {
            const tutti_share s = { 53, 3, 4, 2, 9 };
            const uint64_t first = 1;
            tutti_loader *l;
            assert_int_equal(tutti_loader_open(&l, f->real, f->data, &s, worker, first, depths[k], NULL), TUTTI_OK);
            for (uint64_t step = first; step < first + 8; step++)
                for (int64_t pass = 0; pass < 2; pass++) {
                    uint64_t epoch, position, ids[4] = { 0 };
                    const int64_t n = tutti_share_pass(&s, step, worker, pass, &epoch, &position);
                    uint8_t labels[4];
                    float x[36];
                    tutti_batch b;
                    assert_int_equal(tutti_loader_take(l, &b, NULL), TUTTI_OK);
                    assert_int_equal(b.step, step);
                    assert_int_equal(b.pass, pass);
                    assert_int_equal(b.samples, n);
                    for (int64_t i = 0; i < n; i++)
                        ids[i] = tutti_share_sample(&s, epoch, position + (uint64_t)i);
                    tutti_data_gather(f->data, TUTTI_TRAIN, ids, (size_t)n, x, labels);
                    assert_memory_equal(b.x, x, (size_t)n * 9 * sizeof(float));
                    assert_memory_equal(b.labels, labels, (size_t)n);
                    assert_int_equal((uintptr_t)b.x % 64, 0);
                }
            tutti_loader_close(l);
        }
}

/* The real runtime, and how many batches have been gathered in it: each
   is charged once, when it is whole. */
typedef struct counting {
    tutti_runtime_ops ops;
    tutti_runtime rt;
    void (*charge)(void *, double, double);
    atomic_int gathered;
} counting;
static counting *counted;

static void count_charge(void *self, double flops, double moved)
{
    counted->charge(self, flops, moved);
    atomic_fetch_add(&counted->gathered, 1);
}

/* A batch stays as it was until the next take, though the thread has meanwhile gathered all that
   it may: DEPTH more. The test waits until it has, so that no fault goes unseen. */
static void a_batch_stays_still_until_the_next_take(void **state)
{
    enum { DEPTH = 2 };
    fixture *f = *state;
    const tutti_share s = { 53, 1, 5, 1, 2 };
    counting c = { .ops = *f->real->ops, .charge = f->real->ops->charge };
    tutti_loader *l;

    c.ops.charge = count_charge;
    c.rt = (tutti_runtime){ .ops = &c.ops, .self = f->real->self };
    counted = &c;
    assert_int_equal(tutti_loader_open(&l, &c.rt, f->data, &s, 0, 0, DEPTH, NULL), TUTTI_OK);
    for (int k = 0; k < 20; k++) {
        const int64_t until = tutti_now_ns(f->real) + INT64_C(60000000000);
        tutti_batch b;
        float x[45];
        assert_int_equal(tutti_loader_take(l, &b, NULL), TUTTI_OK);
        memcpy(x, b.x, (size_t)b.samples * 9 * sizeof *x);
        while (atomic_load(&c.gathered) < k + 1 + DEPTH) {
            assert_true(tutti_now_ns(f->real) < until);
            tutti_sleep_until(f->real, tutti_now_ns(f->real) + 100000);
        }
        assert_memory_equal(b.x, x, (size_t)b.samples * 9 * sizeof *x);
    }
    tutti_loader_close(l);
    assert_int_equal(atomic_load(&c.gathered), 20 + DEPTH);
}

static void a_loader_closes_from_any_state(void **state)
{
    fixture *f = *state;
    const tutti_share s = { 53, 1, 5, 1, 2 };

    tutti_loader_close(NULL);
    for (int takes = 0; takes < 6; takes++)
        for (int pause = 0; pause < 2; pause++) {
            tutti_loader *l;
            tutti_batch b;
            assert_int_equal(tutti_loader_open(&l, f->real, f->data, &s, 0, 0, 3, NULL), TUTTI_OK);
            for (int k = 0; k < takes; k++)
                assert_int_equal(tutti_loader_take(l, &b, NULL), TUTTI_OK);
            if (pause)
                tutti_sleep_until(f->real, tutti_now_ns(f->real) + 2000000);
            tutti_loader_close(l);
        }
}

/* 5 samples of 9 values, which begin a line each, with a byte a label, in 4 slots; and one list of
   their numbers. */
static void predicted_loader_bytes_match_the_formula(void **state)
{
    fixture *f = *state;
    const tutti_share s = { 53, 1, 5, 1, 2 };

    assert_int_equal(tutti_loader_bytes(f->data, &s, 0, 3), 4 * (48 * sizeof(float) + 5) + 5 * sizeof(uint64_t));
    assert_int_equal(tutti_loader_bytes(f->data, &s, 0, 0), 48 * sizeof(float) + 5 + 5 * sizeof(uint64_t));
}

/* In asynchronous runs a turn is how far this worker is in its part; the step does not. */
static void seek_starts_at_the_workers_position_in_its_part(void **state)
{
    fixture *f = *state;
    static const uint64_t first[2] = { 0, 7 };
    static const uint32_t sample[7] = { 3, 5, 8, 21, 22, 40, 52 };
    const tutti_parts parts = { first, sample };
    const tutti_share s = { .samples = 53, .workers = 1, .batch = 4, .accumulate = 2, .seed = 9, .parts = &parts };
    tutti_loader *l;

    assert_int_equal(tutti_loader_open(&l, f->real, f->data, &s, 0, 0, 0, NULL), TUTTI_OK);
    for (uint64_t turn = 0; turn < 30; turn++) {
        const uint64_t step = turn * 5 % 6, position = turn * 4; /* six full steps an epoch, in any order of turns */
        uint64_t ids[4];
        uint8_t labels[4];
        float x[36];
        tutti_batch b;
        assert_int_equal(tutti_loader_seek(l, step, (int64_t)(turn % 2), 0, position, 4, NULL), TUTTI_OK);
        assert_int_equal(tutti_loader_take(l, &b, NULL), TUTTI_OK);
        assert_true(b.step == step && b.pass == (int64_t)(turn % 2) && b.samples == 4);
        for (uint64_t i = 0; i < 4; i++)
            ids[i] = tutti_share_sample_of(&s, 0, 0, position + i);
        tutti_data_gather(f->data, TUTTI_TRAIN, ids, 4, x, labels);
        assert_memory_equal(b.x, x, sizeof x);
        assert_memory_equal(b.labels, labels, sizeof labels);
    }
    tutti_loader_close(l);
}

/* A method may go over samples again, in passes of other sizes, or name any. */
static void seek_gathers_samples_at_any_position_or_id(void **state)
{
    fixture *f = *state;
    const tutti_share s = { .samples = 53, .workers = 1, .batch = 8, .accumulate = 1, .seed = 9 };
    tutti_loader *l;
    tutti_error err = { .rank = -1 };

    assert_int_equal(tutti_loader_open(&l, f->real, f->data, &s, 0, 0, 0, NULL), TUTTI_OK);
    for (uint64_t turn = 0; turn < 60; turn++) {
        const uint64_t epoch = turn * 7 % 5, position = turn * 11 % 46;
        const size_t samples = (size_t)(turn * 5 % 9);
        uint64_t ids[8];
        uint8_t labels[8];
        float x[72];
        tutti_batch b;
        assert_int_equal(tutti_loader_seek(l, turn / 3, (int64_t)(turn % 3), epoch, position, (int64_t)samples, NULL),
                         TUTTI_OK);
        for (uint64_t i = 0; i < samples; i++)
            ids[i] = turn % 2 == 0 ? tutti_share_sample(&s, epoch, position + i) : (turn * 17 + i * i) % 53;
        if (turn % 2 != 0)
            tutti_loader_seek_ids(l, ids);
        assert_int_equal(tutti_loader_take(l, &b, NULL), TUTTI_OK);
        assert_true(b.step == turn / 3 && b.pass == (int64_t)(turn % 3) && b.samples == (int64_t)samples);
        tutti_data_gather(f->data, TUTTI_TRAIN, ids, samples, x, labels);
        assert_memory_equal(b.x, x, samples * 9 * sizeof *x);
        assert_memory_equal(b.labels, labels, samples);
    }
    assert_int_equal(tutti_loader_seek(l, 0, 0, 0, 0, 9, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a batch of 9 samples was asked for; they have up to 8");
    tutti_loader_close(l);
}

static void a_batch_larger_than_the_set_takes_no_more_than_the_set(void **state)
{
    fixture *f = *state;
    const tutti_share s = { 53, 1, INT64_MAX, 1, 2 };
    tutti_loader *l;
    tutti_batch b;

    assert_int_equal(tutti_loader_open(&l, f->real, f->data, &s, 0, 0, 2, NULL), TUTTI_OK);
    assert_int_equal(tutti_loader_take(l, &b, NULL), TUTTI_OK);
    assert_int_equal(b.samples, 53);
    tutti_loader_close(l);
}

static void invalid_loaders_are_rejected_with_a_message(void **state)
{
    fixture *f = *state;
    static const struct { tutti_share s; int worker, depth; const char *text; } cases[] = {
        { { 54, 1, 1, 1, 0 }, 0, 2, "the workers would share 54 samples, but the training set has 53" },
        { { 0, 1, 1, 1, 0 }, 0, 2, "the workers would share 0 samples, but the training set has 53" },
        { { 53, 2, 1, 1, 0 }, 2, 2, "worker 2 of 2 does not exist" },
        { { 53, 2, 0, 1, 0 }, 1, 2, "batch 0, accumulate 1: both must be at least 1" },
        { { 53, 2, 1, 1, 0 }, 1, 17, "17 batches cannot be gathered ahead; 0 to 16 are possible" },
    };
    tutti_loader *l;
    tutti_error err;
    tutti_data *blank;

    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        assert_int_equal(tutti_loader_open(&l, f->real, f->data, &cases[k].s, cases[k].worker, 0, cases[k].depth, &err),
                         TUTTI_ERR_USAGE);
        assert_string_equal(err.text, cases[k].text);
        assert_null(l);
    }
    assert_int_equal(tutti_data_open(&blank, &f->m->rt, "set", NULL), TUTTI_OK);
    assert_int_equal(tutti_loader_open(&l, f->real, blank, &cases[0].s, 0, 0, 0, &err), TUTTI_ERR_STATE);
    assert_string_equal(err.text, "a loader needs its data attached first");
    tutti_data_close(blank);
}

/* ---- a thread that gathers and fails ---- */

static tutti_runtime *below;
/* the test's own thread: waits for five seconds where it would for ever, so
   that it fails where it would hang */
static _Thread_local bool patient;
static _Atomic bool failed;

static bool wait_fails(void *self, void *monitor, int64_t deadline_ns)
{
    if (patient)
        return below->ops->wait(self, monitor,
                                deadline_ns == TUTTI_FOREVER ? tutti_now_ns(below) + INT64_C(5000000000) : deadline_ns);
    failed = true;
    return false;
}

/* What was gathered before is handed out; then the sentence, at every further call; and the
   loader closes. */
static void take_reports_a_failed_loader_thread(void **state)
{
    fixture *f = *state;
    const tutti_share share = { 53, 1, 4, 1, 9 };
    tutti_runtime_ops ops = *f->real->ops;
    tutti_runtime rt = { &ops, f->real->self };
    tutti_loader *l;
    tutti_batch batch;

    below = f->real;
    patient = true;
    ops.wait = wait_fails;
    for (int depth = 1; depth <= 3; depth++) {
        tutti_error err = { 0 };
        char sentence[100];
        failed = false;
        assert_int_equal(tutti_loader_open(&l, &rt, f->data, &share, 0, 0, depth, NULL), TUTTI_OK);
        while (!failed) /* it waits once all of the ring is full */
            tutti_sleep_until(f->real, tutti_now_ns(f->real) + 100000);
        for (int k = 0; k < depth; k++) {
            assert_int_equal(tutti_loader_take(l, &batch, &err), TUTTI_OK);
            assert_true(batch.step == (uint64_t)k && batch.samples == 4);
        }
        snprintf(sentence, sizeof sentence, "the thread that gathers batches has ended; no batch %d", depth);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(tutti_loader_take(l, &batch, &err), TUTTI_ERR_STATE);
            assert_string_equal(err.text, sentence);
            assert_true(batch.x == NULL && batch.samples == 0);
        }
        tutti_loader_close(l);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(loader_batches_follow_the_share_in_order),
        TEST(a_batch_stays_still_until_the_next_take),
        TEST(a_loader_closes_from_any_state),
        TEST(predicted_loader_bytes_match_the_formula),
        TEST(seek_starts_at_the_workers_position_in_its_part),
        TEST(seek_gathers_samples_at_any_position_or_id),
        TEST(a_batch_larger_than_the_set_takes_no_more_than_the_set),
        TEST(take_reports_a_failed_loader_thread),
        TEST(invalid_loaders_are_rejected_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
