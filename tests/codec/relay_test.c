/* Codecs whose messages are transported by the caller (codec.h). Goal: what comes out is what an
   exchange of the same workers makes of the same gradients, step by step and with what codecs
   keep between steps; what is transported has the announced lengths; input that no worker sends
   gets no further than an error sentence. Method: four workers in one process, with their parcels
   in one array, against subject_exchange_view, a tensor at a time. Codecs that ask for sums as a
   step begins are exchanged by real processes in tests/python. */
#include "subject.h"
#include "kernels/device.h"
#include <tutti/codec.h>

enum { WORKERS = 4, TENSORS = 3, MOST = 3000 };
static const tutti_relay_tensor shapes[TENSORS] = { { "a", 40, 60 }, { "b", 1, 60 }, { "c", 7, 1 } };

typedef struct relays { tutti_relay *relay[WORKERS]; tutti_parcel *parcel[WORKERS][2]; } relays;

static void open_all(relays *r, const char *spec)
{
    tutti_error err = { 0 };

    for (int w = 0; w < WORKERS; w++) {
        if (tutti_relay_open(&r->relay[w], spec, shapes, TENSORS, w, WORKERS, 42, &err) != TUTTI_OK)
            fail_msg("%s: %s", spec, err.text);
        for (int k = 0; k < 2; k++)
            assert_int_equal(tutti_parcel_open(&r->parcel[w][k], r->relay[w], &err), TUTTI_OK);
    }
}

static void close_all(relays *r)
{
    for (int w = 0; w < WORKERS; w++) {
        tutti_parcel_close(r->parcel[w][0]), tutti_parcel_close(r->parcel[w][1]);
        tutti_relay_close(r->relay[w]);
    }
}

static tutti_status no_sum(void *with, size_t n, float *numbers, tutti_error *err)
{
    (void)with, (void)n, (void)numbers;
    return tutti_fail(err, TUTTI_ERR_STATE, 0, "nothing is summed here");
}

static void begin(relays *r)
{
    for (int w = 0; w < WORKERS; w++)
        assert_int_equal(tutti_relay_begin(r->relay[w], 0, 0.1, no_sum, NULL, NULL), TUTTI_OK);
}

/* One freight of all workers. */
static void carry(tutti_freight *f, uint8_t *all, size_t *counts)
{
    subject *devices[WORKERS];
    subject one = { 0 };
    void *wire[WORKERS];
    size_t stride = 0;

    for (int w = 0; w < WORKERS; w++) {
        assert_int_equal(f[w].kind, f[0].kind);
        assert_int_equal(f[w].dtype, f[0].dtype);
        wire[w] = f[w].data;
        devices[w] = &one;
        stride = f[w].count > stride ? f[w].count : stride;
    }
    if (f[0].kind == TUTTI_FREIGHT_MEAN) {
        assert_int_equal(tutti_device_open_host(&one.device, NULL, TUTTI_CPU_AVX512, NULL), TUTTI_OK);
        for (size_t i = 0; i < f[0].count; i++)
            subject_mean(devices, WORKERS, f[0].dtype, wire, i);
        tutti_device_close(one.device);
        return;
    }
    for (int w = 0; w < WORKERS; w++) {
        assert_true(f[w].count <= f[w].most && (!f[w].fixed || f[w].count == f[w].most));
        memcpy(all + (size_t)w * stride, f[w].data, f[w].count);
        counts[w] = f[w].count;
    }
    for (int w = 0; w < WORKERS; w++)
        f[w].all = all, f[w].stride = stride, f[w].counts = counts;
}

/* Relays tensors [low, low + n) of all workers up to their first freight, or to the end. */
static void send(relays *r, int k, int low, int n, float (*g)[MOST], tutti_freight *f, tutti_status *status)
{
    const size_t first[TENSORS] = { 0, 2400, 2460 };
    int tensor[TENSORS];
    float *gradient[TENSORS];

    for (int w = 0; w < WORKERS; w++) {
        for (int i = 0; i < n; i++)
            tensor[i] = low + i, gradient[i] = g[w] + first[low + i];
        status[w] = tutti_parcel_send(r->parcel[w][k], tensor, gradient, n, &f[w], NULL);
    }
}

static void bring(relays *r, int k, tutti_freight *f, tutti_status *status)
{
    static uint8_t all[WORKERS * 16 * MOST];
    size_t counts[WORKERS];

    while (status[0] == TUTTI_OK) {
        carry(f, all, counts);
        for (int w = 0; w < WORKERS; w++)
            status[w] = tutti_parcel_next(r->parcel[w][k], &f[w], NULL);
    }
    for (int w = 0; w < WORKERS; w++)
        assert_int_equal(status[w], TUTTI_CLOSED);
}

/* bring, where worker `who` gets none of what it does not need. */
static void drop(relays *r, int who, tutti_freight *f, tutti_status *status, bool everyone)
{
    static uint8_t all[WORKERS * 16 * MOST], own[16 * MOST];
    static size_t of_own[WORKERS];

    while (status[0] == TUTTI_OK) {
        const bool is_mean = f[who].kind == TUTTI_FREIGHT_MEAN;
        const size_t bytes = f[who].count * (is_mean ? tutti_dtype_bytes(f[who].dtype) : 1);
        size_t counts[WORKERS];
        assert_int_equal(f[who].everyone, is_mean && everyone);
        assert_true(bytes <= sizeof own);
        memcpy(own, f[who].data, bytes);
        carry(f, all, counts);
        for (int w = 0; w < WORKERS; w++)
            of_own[w] = bytes;
        if (!is_mean)
            f[who].all = own, f[who].stride = 0, f[who].counts = of_own;
        else if (!f[who].everyone)
            memcpy(f[who].data, own, bytes);
        for (int w = 0; w < WORKERS; w++)
            status[w] = tutti_parcel_next(r->parcel[w][0], &f[w], NULL);
    }
    for (int w = 0; w < WORKERS; w++)
        assert_int_equal(status[w], TUTTI_CLOSED);
}

static void relay_gives_the_same_result_as_an_exchange(void **state)
{
    static const char *const specs[] = {
        "fp32", "fp16", "bf16", "trunc16", "int8", "minmax8", "qsgd", "qsgd(coding=elias)", "nuqsgd", "sign",
        "onebit", "onebit-col", "sign-vote", "topk(ratio=0.05)", "dct(topk=5,chunk=16)", "threshold(value=1)",
        "chunk-topk(topk=5,chunk=16)", "e3m0", "randomk(ratio=0.1)", "wangni",
        "powersgd(rank=2)", "ef(powersgd(rank=2))", "ef(topk(ratio=0.05))", "ef(fp16)", "ef21(topk(ratio=0.05))",
        "large(sign,min=50)", "large(fp16,min=50,small=ef(sign))", "dgc(topk(ratio=0.05))",
    };
    static float g[WORKERS][MOST], mine[WORKERS][MOST], out[WORKERS][MOST];
    uint64_t seed = 5;
    (void)state;

    for (size_t s = 0; s < TUTTI_LENGTH(specs); s++) {
        const subject_shape shape[TENSORS] = { { 40, 60 }, { 1, 60 }, { 1, 7 } };
        subject *other[WORKERS];
        relays r;
        open_all(&r, specs[s]);
        for (int w = 0; w < WORKERS; w++)
            other[w] = subject_open_on(specs[s], TENSORS, shape, w, TUTTI_CPU_AVX512);
        for (uint64_t step = 0; step < 4; step++) {
            subject_said said[WORKERS] = { 0 };
            tutti_freight f[2][WORKERS];
            tutti_status status[2][WORKERS];
            for (int w = 0; w < WORKERS; w++)
                subject_fill(2467, g[w], (int)step % 2, &seed);
            if (step == 3) /* seen by all */
                g[1][2430] = INFINITY;
            memcpy(mine, g, sizeof g);
            subject_begin(other, WORKERS, step, 0, 0.1, said);
            for (int t = 0; t < TENSORS; t++) {
                tutti_view v = other[0]->tensors[t];
                float *x[WORKERS], *y[WORKERS];
                v.step = step;
                for (int w = 0; w < WORKERS; w++)
                    x[w] = g[w] + v.first, y[w] = out[w] + v.first;
                subject_exchange_view(other, WORKERS, v, false, x, y);
            }
            begin(&r); /* two parcels, in flight at once */
            send(&r, 1, 1, 2, mine, f[1], status[1]);
            send(&r, 0, 0, 1, mine, f[0], status[0]);
            bring(&r, 1, f[1], status[1]);
            bring(&r, 0, f[0], status[0]);
            for (int w = 0; w < WORKERS; w++)
                for (int i = 0; i < 2467; i++) {
                    const double got = (double)mine[w][i], wanted = (double)out[w][i];
                    if (isfinite(wanted) ? !(fabs(got - wanted) <= 1e-5 * fmax(1, fabs(wanted))) : isfinite(got))
                        fail_msg("%s, step %d, worker %d, element %d: %.9g instead of %.9g", specs[s], (int)step, w, i,
                                 got, wanted);
                }
        }
        for (int w = 0; w < WORKERS; w++)
            subject_close(other[w]);
        close_all(&r);
    }
}

/* Another relay that takes over the states and the steps continues as the first would. */
static void relay_state_can_be_copied_to_another_relay(void **state)
{
    static float g[WORKERS][MOST], again[WORKERS][MOST];
    const tutti_state *one;
    uint64_t seed = 6;
    relays r[2];
    tutti_freight f[WORKERS];
    tutti_status status[WORKERS];
    (void)state;

    open_all(&r[0], "ef(topk(ratio=0.05))"), open_all(&r[1], "ef(topk(ratio=0.05))");
    for (int step = 0; step < 3; step++) {
        for (int w = 0; w < WORKERS; w++)
            subject_fill(2467, g[w], 0, &seed);
        memcpy(again, g, sizeof g);
        begin(&r[0]);
        send(&r[0], 0, 0, TENSORS, g, f, status), bring(&r[0], 0, f, status);
    }
    for (int w = 0; w < WORKERS; w++) {
        void *from, *to;
        for (size_t i = 0; (one = tutti_relay_state(r[0].relay[w], i, &from)) != NULL; i++) {
            assert_string_equal(tutti_relay_state(r[1].relay[w], i, &to)->name, one->name);
            memcpy(to, from, one->count * tutti_dtype_bytes(one->dtype));
        }
        assert_null(from);
        tutti_relay_resume(r[1].relay[w], tutti_relay_steps(r[0].relay[w]));
        assert_int_equal(tutti_relay_steps(r[1].relay[w]), 3);
        subject_fill(2467, g[w], 0, &seed);
    }
    memcpy(again, g, sizeof g);
    begin(&r[0]), begin(&r[1]);
    send(&r[0], 0, 0, TENSORS, g, f, status), bring(&r[0], 0, f, status);
    send(&r[1], 0, 0, TENSORS, again, f, status), bring(&r[1], 0, f, status);
    assert_memory_equal(g, again, sizeof g);
    close_all(&r[0]), close_all(&r[1]);
}

/* Worker 3 does not use what comes out: of means that only results need, and of others' messages,
   it gets nothing. It keeps the same states as a worker that does. */
static void workers_that_drop_the_result_keep_the_same_states(void **state)
{
    static const struct { const char *spec; bool everyone; } rows[] = {
        { "ef(topk(ratio=0.05))", false }, { "ef(sign)", false }, { "ef(fp16)", false },
        { "ef(randomk(ratio=0.1))", false }, { "ef(powersgd(rank=2))", true },
    };
    static float g[WORKERS][MOST], again[WORKERS][MOST];
    uint64_t seed = 8;
    (void)state;

    for (size_t s = 0; s < TUTTI_LENGTH(rows); s++) {
        tutti_freight f[WORKERS], of_all[WORKERS];
        tutti_status status[WORKERS];
        void *from, *to;
        relays r[2];
        open_all(&r[0], rows[s].spec), open_all(&r[1], rows[s].spec);
        for (int step = 0; step < 3; step++) {
            for (int w = 0; w < WORKERS; w++)
                subject_fill(2467, g[w], 0, &seed);
            memcpy(again, g, sizeof g);
            begin(&r[0]), begin(&r[1]);
            send(&r[0], 0, 0, TENSORS, g, f, status), bring(&r[0], 0, f, status);
            send(&r[1], 0, 0, TENSORS, again, of_all, status);
            drop(&r[1], 3, of_all, status, rows[s].everyone);
        }
        for (size_t i = 0; tutti_relay_state(r[0].relay[3], i, &from) != NULL; i++) {
            const tutti_state *one = tutti_relay_state(r[1].relay[3], i, &to);
            if (one->keep != TUTTI_SCRATCH)
                assert_memory_equal(to, from, one->count * tutti_dtype_bytes(one->dtype));
        }
        close_all(&r[0]), close_all(&r[1]);
    }
}

static void traits_of_a_relay_are_its_codec_s(void **state)
{
    static const struct { const char *spec; unsigned has; } rows[] = {
        { "ef(powersgd(rank=2))", TUTTI_CODEC_WHOLE_TENSOR }, { "topk", TUTTI_CODEC_CONTRACTIVE },
        { "sign-vote", TUTTI_CODEC_VOTES }, { "dgc(topk(ratio=0.05))", TUTTI_CODEC_MOMENTUM },
    };
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        tutti_relay *r;
        assert_int_equal(tutti_relay_open(&r, rows[k].spec, shapes, TENSORS, 0, WORKERS, 1, NULL), TUTTI_OK);
        assert_int_equal(tutti_relay_traits(r) & rows[k].has, rows[k].has);
        tutti_relay_close(r);
    }
}

/* What comes from worker 2 is refused by its name: too long, cut off, a length that is none. */
static void invalid_relay_messages_are_rejected(void **state)
{
    static const struct { const char *spec; int harm; const char *text; } rows[] = {
        { "topk(ratio=0.05)", 0, "worker 2 sent messages of" },
        { "topk(ratio=0.05)", 1, "worker 2 sent messages of" },
        { "qsgd(coding=elias)", 0, "worker 2 sent messages of" },
        { "qsgd(coding=elias)", 1, "what came from worker 2 ends within tensor" },
        { "qsgd(coding=elias)", 2, "what came from worker 2 ends within tensor 0" },
    };
    static float g[WORKERS][MOST];
    static uint8_t all[WORKERS * 16 * MOST];
    uint64_t seed = 7;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        tutti_freight f[WORKERS];
        tutti_status status[WORKERS];
        size_t counts[WORKERS];
        tutti_error err = { 0 };
        relays r;
        open_all(&r, rows[k].spec);
        for (int w = 0; w < WORKERS; w++)
            subject_fill(2467, g[w], 0, &seed);
        begin(&r);
        send(&r, 0, 0, TENSORS, g, f, status);
        assert_int_equal(status[0], TUTTI_OK);
        carry(f, all, counts);
        if (rows[k].harm == 0)
            counts[2] = f[0].most + 1;
        else if (rows[k].harm == 1)
            counts[2]--;
        else
            memset(all + 2 * f[0].stride, 0xff, 4);
        assert_int_equal(tutti_parcel_next(r.parcel[0][0], &f[0], &err), TUTTI_ERR_CORRUPT);
        if (strstr(err.text, rows[k].text) == NULL)
            fail_msg("%s, %d: %s", rows[k].spec, rows[k].harm, err.text);
        assert_int_equal(err.rank, 2);
        close_all(&r);
    }
}

static void invalid_relay_arguments_are_rejected_before_sending(void **state)
{
    static const struct { const char *spec; tutti_relay_tensor tensor[2]; const char *text; } rows[] = {
        { "topkk", { { NULL, 3, 4 }, { NULL, 1, 1 } }, "unknown codec 'topkk'; did you mean 'topk'" },
        { "topk(ratioo=1)", { { NULL, 3, 4 }, { NULL, 1, 1 } }, "did you mean 'ratio'" },
        { "topk", { { NULL, 3, 0 }, { NULL, 1, 1 } }, "tensor 0 (no name) has 3 x 0 elements" },
        { "topk", { { "w", 3, 4 }, { NULL, 1, 1 } }, "tensor 1 has no name; name all of them or none" },
    };
    tutti_relay *r;
    tutti_parcel *p;
    tutti_freight f;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        tutti_error err = { 0 };
        assert_int_equal(tutti_relay_open(&r, rows[k].spec, rows[k].tensor, 2, 0, 2, 1, &err), TUTTI_ERR_USAGE);
        assert_null(r);
        if (strstr(err.text, rows[k].text) == NULL)
            fail_msg("%s: %s", rows[k].spec, err.text);
    }
    assert_int_equal(tutti_relay_open(&r, "fp32", shapes, TENSORS, 2, 2, 1, NULL), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_relay_open(&r, "fp32", shapes, TENSORS, 0, 1, 1, NULL), TUTTI_OK);
    assert_int_equal(tutti_parcel_open(&p, r, NULL), TUTTI_OK);
    assert_int_equal(tutti_parcel_send(p, NULL, NULL, 0, &f, NULL), TUTTI_ERR_STATE);
    assert_int_equal(tutti_parcel_next(p, &f, NULL), TUTTI_ERR_STATE);
    assert_int_equal(tutti_relay_begin(r, 0, 0, no_sum, NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_parcel_send(p, (int[]){ 3 }, NULL, 1, &f, NULL), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_parcel_send(p, NULL, NULL, 0, &f, NULL), TUTTI_CLOSED);
    tutti_parcel_close(p), tutti_parcel_close(NULL);
    tutti_relay_close(r), tutti_relay_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relay_gives_the_same_result_as_an_exchange),
        cmocka_unit_test(relay_state_can_be_copied_to_another_relay),
        cmocka_unit_test(workers_that_drop_the_result_keep_the_same_states),
        cmocka_unit_test(traits_of_a_relay_are_its_codec_s),
        cmocka_unit_test(invalid_relay_messages_are_rejected),
        cmocka_unit_test(invalid_relay_arguments_are_rejected_before_sending),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
