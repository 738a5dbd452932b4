/* Goal: gradients through any codec: the same model on all workers whatever pieces and lanes are,
   ddp's bits where a codec loses nothing, exactly the bytes of the formats, residuals that account
   for every bit of gradient, and codec.h's rule for numbers that are not finite. Method: the toy
   client on ranks that are threads; matrices among its tensors. */
#include "engine/engine_internal.h"
#include "sanitized.h"
#include "state/plan.h"
#include "toy.h"

/* Numbers of workers: where threads are watched 3 and 4, which have all kinds of routes. */
enum { FEWEST = UNLESS_SANITIZED(1, 3), MOST = UNLESS_SANITIZED(5, 3) };
enum { RANKS = 8, ELEMENTS = 10 + 3000 + 33 + 2001 + 7 };

typedef struct job {
    toy t;
    uint64_t hash[RANKS][16];              /* of each rank's values after each step */
    float x[ELEMENTS];                     /* rank 0's at the end */
    float *e[RANKS];                       /* a copy of each rank's state codec.e at the end, if there is one */
    float *owner[RANKS];
    uint64_t bytes, messages;              /* of all, in the steps alone */
    uint64_t sent[RANKS];                  /* bytes of each */
    int events;
    char event[300];
    int told;                              /* events of kind "codec-cost" */
    double off;                            /* figure codec_cost_off, or -1 */
    bool encoded;                          /* there is a payload */
    uint64_t payload[TOY_TENSORS];         /* of rank 0 */
} job;

static tutti_status copy_state(tutti_engine *e, const char *name, float **out)
{
    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, i, &memory);
        if (strcmp(s->name, name) != 0)
            continue;
        *out = tutti_alloc(s->count, sizeof(float));
        if (*out == NULL)
            return TUTTI_ERR_MEMORY;
        memcpy(*out, memory, s->count * sizeof(float));
    }
    return TUTTI_OK;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const int rank = tutti_world_rank(world);
    toy t = j->t;
    tutti_engine *e;
    const tutti_event_record *events;
    tutti_status status;
    uint64_t sent[2][2];

    TUTTI_TRY(toy_open(&e, world, &t, err));
    tutti_world_sent(world, TUTTI_ANY, &sent[0][0], &sent[0][1]);
    status = TUTTI_OK;
    for (int s = 0; s < t.steps && status == TUTTI_OK; s++) {
        status = toy_step(e, &t, err);
        j->hash[rank][s] = toy_hash(e);
    }
    tutti_world_sent(world, TUTTI_ANY, &sent[1][0], &sent[1][1]);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    j->sent[rank] = sent[1][0] - sent[0][0];
    __atomic_add_fetch(&j->bytes, sent[1][0] - sent[0][0], __ATOMIC_RELAXED);
    __atomic_add_fetch(&j->messages, sent[1][1] - sent[0][1], __ATOMIC_RELAXED);
    if (status == TUTTI_OK)
        status = copy_state(e, "codec.e", &j->e[rank]);
    if (status == TUTTI_OK)
        status = copy_state(e, "codec.owner", &j->owner[rank]);
    if (rank == 0) {
        memcpy(j->x, tutti_engine_method(e)->x, sizeof j->x);
        const tutti_metric_record *metrics;
        const int n_metrics = tutti_engine_metrics(e, &metrics);
        j->off = -1;
        for (int i = 0; i < n_metrics; i++)
            j->off = strcmp(metrics[i].name, "codec_cost_off") == 0 ? metrics[i].value : j->off;
        j->encoded = tutti_engine_payload(e) != NULL;
        if (j->encoded)
            memcpy(j->payload, tutti_engine_payload(e), sizeof j->payload);
        j->events = tutti_engine_events(e, &events);
        for (int i = 0; i < j->events; i++)
            j->told += strcmp(events[i].kind, "codec-cost") == 0;
        if (j->events > 0)
            snprintf(j->event, sizeof j->event, "%s: %s", events[0].kind, events[0].text);
    }
    tutti_engine_close(e);
    return status;
}

static job job_of(const char *codec, const char *optimizer, int steps)
{
    job j = { .t = toy_matrices() };

    j.t.options.codec = codec;
    j.t.options.optimizer = optimizer;
    j.t.options.data_samples = 0; /* every step is full */
    j.t.steps = steps;
    return j;
}

static tutti_status try_job(job *j, int n, tutti_error *err)
{
    *err = (tutti_error){ .rank = -1 };
    return tutti_world_run("shm", n, run_rank, j, err);
}

static void run_job(job *j, int n)
{
    tutti_error err;
    if (try_job(j, n, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", j->t.options.codec, n, err.text);
}

static void drop(job *j)
{
    for (int r = 0; r < RANKS; r++) {
        tutti_free(j->e[r]);
        tutti_free(j->owner[r]);
    }
}

static const int sizes[] = { 1, 2, 3, 4, 5, 8 };

static void a_codec_that_loses_nothing_gives_the_bits_of_ddp(void **state)
{
    static const char *const codecs[] = {
        "fp32", "topk(ratio=1)", "ef(topk(ratio=1))", "ef(topk(ratio=1),server=on)", "ef(fp32)",
        "large(topk(ratio=1),min=100)", "threshold(1e-30)", "powersgd(min_compression_rate=1000)",
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
            const int n = sizes[p];
            job a = job_of(codecs[c], "sgd(lr=0.05,momentum=0.9)", 5), b = job_of(NULL, "sgd(lr=0.05,momentum=0.9)", 5);
            if ((n & (n - 1)) == 0) /* uneven steps: exact where the factor is a power of two */
                a.t.options.data_samples = b.t.options.data_samples = (uint64_t)(4 * n) * 2 + 3;
            run_job(&a, n);
            run_job(&b, n);
            for (int s = 0; s < 5; s++)
                if (a.hash[0][s] != b.hash[0][s])
                    fail_msg("%s on %d workers, step %d", codecs[c], n, s);
            drop(&a);
            drop(&b);
        }
}

static const char *const all_codecs[] = {
    "fp16",
    "bf16",
    "int8",
    "minmax8",
    "qsgd",
    "qsgd(bits=2,coding=elias,norm=l2)",
    "nuqsgd",
    "sign",
    "onebit",
    "onebit-col(min_rows=10)",
    "sign-vote",
    "topk",
    "dct(topk=8,chunk=16)",
    "ef(dct(topk=4,chunk=16,mean=senders),decay=0.9,lr=inside)",
    "chunk-topk(topk=8,chunk=16)",
    "e3m0(bucket=64)",
    "ef(chunk-topk(topk=4,chunk=16,mean=senders),decay=0.95)",
    "ef(chunk-topk(topk=4,chunk=16),decay=0.95,server=on)",
    "threshold(0.1)",
    "ef(threshold(0.1))",
    "randomk(ratio=0.1)",
    "wangni",
    "powersgd(rank=2)",
    "ef(powersgd(rank=2))",
    "ef(powersgd(rank=1,factor_dtype=bf16,iters_per_step=2))",
    "ef(topk)",
    "ef(sign,server=on)",
    "ef(onebit-col,server=on)",
    "large(qsgd)",
    "ef(randomk(ratio=0.1))",
    "ef(powersgd(rank=2,ef_rule=aggregated,warm_start=off,start_iter=2))",
};

/* One tensor a piece, two pieces, one; without a lane and with one. */
static void replicas_are_equal_and_pieces_and_lanes_change_no_bit(void **state)
{
    static const struct {
        const char *method;
        int lane;
    } ways[] = { { "ddp(1000,1000)", -1 }, { "ddp(0.000001,0.000001)", 0 }, { "ddp(0.01)", 3 } };
    static const int some[] = { 2, 3, 5 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(all_codecs); c++)
        for (size_t p = 0; p < TUTTI_LENGTH(some); p++) {
            if (some[p] < FEWEST || some[p] > MOST)
                continue;
            uint64_t first[4] = { 0 };
            for (size_t w = 0; w < TUTTI_LENGTH(ways); w++) {
                job j = job_of(all_codecs[c], "sgd(lr=0.05)", 4);
                j.t.options.method = ways[w].method;
                j.t.options.lane = ways[w].lane;
                j.t.order_seed = w;
                j.t.options.data_samples = 30; /* an uneven step among them */
                run_job(&j, some[p]);
                for (int s = 0; s < 4; s++) {
                    for (int r = 1; r < some[p]; r++)
                        assert_int_equal(j.hash[r][s], j.hash[0][s]);
                    if (w == 0)
                        first[s] = j.hash[0][s];
                    else if (j.hash[0][s] != first[s])
                        fail_msg("%s on %d workers: %s differs from %s in step %d", all_codecs[c], some[p],
                                 ways[w].method, ways[0].method, s);
                }
                assert_int_not_equal(j.hash[0][0], j.hash[0][3]);
                drop(&j);
            }
        }
}

/* A lane works only on pieces of at least 256 KiB. */
static void pieces_on_two_lanes_at_once_give_the_same_bits(void **state)
{
    static const char *const codecs[] = { "ef(topk)", "qsgd", "fp16" };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++) {
        uint64_t first = 0;
        for (int lane = -1; lane < 2; lane++) {
            job j = { .t = toy_default() };
            j.t.options.codec = codecs[c];
            j.t.options.lane = lane == 1 ? 4 : lane;
            j.t.options.method = "ddp(0.2,0.2)";
            j.t.steps = 2;
            j.t.options.batch = 1;
            run_job(&j, 4);
            if (lane < 0)
                first = j.hash[0][1];
            assert_int_equal(j.hash[0][1], first);
            drop(&j);
        }
    }
}

/* ---- traffic ---- */

static size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }
static size_t bytes_topk(size_t n) { return n == 0 ? 0 : 8 * ceil_div(n, 100); }
static size_t bytes_vote(size_t n) { return n == 0 ? 0 : n / 8 + 1; }
static size_t bytes_column(size_t n) { return n == 0 ? 0 : 8 + ceil_div(n, 8); }
static size_t bytes_sign(size_t n) { return n == 0 ? 0 : 4 + ceil_div(n, 8); }
static size_t bytes_qsgd(size_t n) { return 4 * ceil_div(n, 512) + ceil_div(n, 2); }
static size_t bytes_int8(size_t n) { return 4 * ceil_div(n, 512) + n; }

/* (n-1) b received by each from all, or 2 (n-1)/n b: of all workers together n (n-1)
   b and 2 (n-1) b, b of all parts. */
static void messages_have_exactly_the_bytes_of_the_formula(void **state)
{
    enum { NEVER = 100 };
    /* owners: from that many workers up */
    static const struct {
        const char *codec;
        size_t (*bytes)(size_t n);
        size_t owners;
        const char *collective, *method;
    } cases[] = {
        { "topk", bytes_topk, NEVER, "allgather", NULL },
        { "qsgd", bytes_qsgd, NEVER, "allgather", NULL },
        { "qsgd", bytes_qsgd, 2, "alltoall", NULL },
        { "ef(sign,server=on)", bytes_sign, 2, "alltoall", NULL },
        { "ef(sign,server=on)", bytes_sign, NEVER, "allgather", NULL },
        { NULL, bytes_qsgd, NEVER, NULL, "qsgd(requantize=off,skip_below=0)" },
        { NULL, bytes_qsgd, 4, NULL, "qsgd(skip_below=0)" },
        { NULL, bytes_qsgd, 2, "alltoall", "nuqsgd(skip_below=0)" },
        { "topk", bytes_topk, 4, NULL, NULL },
        { "ef(topk)", bytes_topk, NEVER, NULL, NULL },
        { "ef(topk,server=on)", bytes_topk, 4, NULL, NULL },
        { "sign", bytes_sign, 4, NULL, NULL },
        { "ef(sign)", bytes_sign, NEVER, NULL, NULL },
        { "ef(sign,server=on)", bytes_sign, 4, NULL, NULL },
        { "sign-vote", bytes_vote, 4, NULL, NULL },
        { "ef(onebit-col(min_rows=5000))", bytes_column, NEVER, NULL, NULL },
        { "ef(onebit-col(min_rows=5000),server=on)", bytes_column, 4, NULL, NULL },
        { "qsgd", bytes_qsgd, 4, NULL, NULL },
        { "nuqsgd", bytes_qsgd, 4, NULL, NULL },
        { "int8(512)", bytes_int8, 4, NULL, NULL },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
            const size_t n = (size_t)sizes[p];
            job j = job_of(cases[c].codec, "sgd(lr=0.05)", 3);
            uint64_t expect = 0;
            const bool checked = (c + p) % 2 == 1; /* eight bytes more a message */
            j.t.options.codec_checksum = checked;
            j.t.options.collective = cases[c].collective;
            if (cases[c].method != NULL)
                j.t.options.method = cases[c].method;
            j.t.options.accumulate = 1 + (int64_t)(c % 3); /* a step is compressed once, however many passes it has */
            run_job(&j, (int)n);
            for (int t = 0; t < TOY_TENSORS; t++) {
                const size_t count = j.t.count[t], each = ceil_div(count, n * 64) * 64;
                if (n < cases[c].owners)
                    expect += n * (n - 1) * (cases[c].bytes(count) + 8 * checked);
                else
                    for (size_t low = 0; low < count; low += each)
                        expect += 2 * (n - 1) * (cases[c].bytes(count - low < each ? count - low : each) + 8 * checked);
            }
            if (j.bytes != 3 * expect)
                fail_msg("case %zu on %zu workers: %llu bytes, expected %llu", c, n, (unsigned long long)j.bytes,
                         3 * (unsigned long long)expect);
            /* all parts but mine to their owners, and mine to all: part p of
               tensor t is worker (p + t) mod n's */
            for (size_t r = 0; r < n && n >= cases[c].owners; r++) {
                uint64_t mine = 0;
                for (size_t t = 0; t < TOY_TENSORS; t++) {
                    const size_t count = j.t.count[t], each = ceil_div(count, n * 64) * 64;
                    for (size_t part = 0; part * each < count; part++)
                        mine += ((part + t) % n == r ? n - 1 : 1) *
                                (cases[c].bytes(count - part * each < each ? count - part * each : each) + 8 * checked);
                }
                if (j.sent[r] != 3 * mine)
                    fail_msg("case %zu on %zu workers: worker %zu sent %llu bytes, expected %llu", c, n, r,
                             (unsigned long long)j.sent[r], 3 * (unsigned long long)mine);
            }
            drop(&j);
        }
}

/* Cells of at most 16 x 16, of each at most 8 elements: four bytes each, and an index each. */
static size_t bytes_cells(size_t rows, size_t cols)
{
    const size_t down = ceil_div(rows, 16), across = ceil_div(cols, 16);
    size_t values = 0, bits = 0;

    for (size_t i = 0; i < down; i++)
        for (size_t k = 0; k < across; k++) {
            const size_t n = ((i + 1) * rows / down - i * rows / down) *
                             ((k + 1) * cols / across - k * cols / across);
            values += n < 8 ? n : 8;
            for (size_t b = 0; n > 8 && (size_t)1 << b < n; b++)
                bits += 8;
        }
    return 4 * values + ceil_div(bits, 8);
}

/* A tensor that cannot be split is one shard: it goes to its owner and from there to all, 2 (n - 1)
   messages in place of n (n - 1). The largest is dealt out first, forwards and backwards. */
static void a_tensor_that_cannot_be_split_has_one_owner(void **state)
{
    enum { NEVER = 100 };
    static const struct { const char *codec, *collective; size_t owners; } cases[] = {
        { "ef(chunk-topk(topk=8,chunk=16,value_dtype=fp32),server=on)", NULL, 4 },
        { "ef(chunk-topk(topk=8,chunk=16,value_dtype=fp32),server=on)", "alltoall", 2 },
        { "ef(chunk-topk(topk=8,chunk=16,value_dtype=fp32),server=on)", "allgather", NEVER },
        { "ef(chunk-topk(topk=8,chunk=16,value_dtype=fp32))", NULL, NEVER },
        { "chunk-topk(topk=8,chunk=16,value_dtype=fp32,mean=senders)", NULL, 4 },
        { "dct(topk=8,chunk=16)", "alltoall", 2 },
    };
    static const size_t turn[TOY_TENSORS] = { 3, 0, 2, 1, 4 }; /* of 10, 3000, 33, 2001, 7 elements */

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (size_t p = 1; p < TUTTI_LENGTH(sizes); p++) {
            const size_t n = (size_t)sizes[p];
            const bool checked = (c + p) % 2 == 1;
            job j = job_of(cases[c].codec, "sgd(lr=0.05)", 3);
            j.t.options.codec_checksum = checked;
            j.t.options.collective = cases[c].collective;
            run_job(&j, (int)n);
            for (size_t r = 0; r < n; r++) {
                uint64_t expect = 0;
                for (size_t t = 0; t < TOY_TENSORS; t++) {
                    const size_t rows = j.t.rows[t] > 0 ? j.t.rows[t] : 1, k = turn[t] % (2 * n),
                                 owner = k < n ? k : 2 * n - 1 - k,
                                 bytes = bytes_cells(rows, j.t.count[t] / rows) + 8 * checked;
                    expect += (n < cases[c].owners || owner == r ? n - 1 : 1) * bytes;
                }
                if (j.sent[r] != 3 * expect)
                    fail_msg("%s on %zu workers: worker %zu sent %llu bytes, expected %llu", cases[c].codec, n, r,
                             (unsigned long long)j.sent[r], 3 * (unsigned long long)expect);
                for (int s = 0; s < 3; s++)
                    assert_int_equal(j.hash[r][s], j.hash[0][s]);
            }
            drop(&j);
        }
}

/* Whichever route messages take: the same model on all workers, ddp's bits where nothing is lost,
   and losses are made good where that was promised. */
static void replicas_are_equal_for_every_message_route(void **state)
{
    static const char *const ways[] = { "allgather", "alltoall" }, *const codecs[] = {
        "topk(ratio=1)",  "ef(topk(ratio=1),server=on)", "chunk-topk(topk=256,chunk=16,value_dtype=fp32)",
        "ef(chunk-topk(topk=256,chunk=16,value_dtype=fp32),server=on)", "qsgd(levels=5)", "nuqsgd(tail=dense)",
        "ef(sign,server=on)", "threshold(0.1)", "large(wangni,min=100)",
        "ef(large(chunk-topk(topk=8,chunk=16),min=100),server=on)"
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++)
        for (size_t w = 0; w < TUTTI_LENGTH(ways); w++)
            for (int n = FEWEST; n <= MOST; n++) {
                job j = job_of(codecs[c], "sgd(lr=0.05)", 3), plain = job_of(NULL, "sgd(lr=0.05)", 3);
                j.t.options.collective = ways[w];
                run_job(&j, n);
                run_job(&plain, n);
                for (int s = 0; s < 3; s++) {
                    for (int r = 1; r < n; r++)
                        assert_int_equal(j.hash[r][s], j.hash[0][s]);
                    assert_true(c > 3 || j.hash[0][s] == plain.hash[0][s]);
                }
                drop(&j), drop(&plain);
            }
}

static void impossible_routes_are_rejected(void **state)
{
    static const struct { const char *codec, *method, *collective, *sentence;
    } cases[] = {
        { "ef(topk)", NULL, "alltoall",
          "collective is 'alltoall', but codec 'topk' loses again where the owners of parts encode, and nothing "
          "compensates for that; error feedback does with server=on; or take allgather, or leave collective at auto" },
        { "fp16", NULL, "allgather",
          "collective is 'allgather', a way for messages of codecs that cannot be summed (topk, qsgd), but codec "
          "'fp16' is summed; leave collective at auto" },
        { NULL, NULL, "alltoall",
          "collective is 'alltoall', a way for messages of codecs that cannot be summed (topk, qsgd), but gradients "
          "travel as they are: there is no codec; leave collective at auto" },
        { NULL, "qsgd(requantize=off)", "alltoall",
          "requantize=off asks that messages are encoded once, and collective=alltoall that the owners of parts "
          "encode them again; give only one of them" },
        { NULL, "sgp", "allgather",
          "collective is 'allgather', but method 'sgp' exchanges no gradients, for which it would be taken; leave "
          "it at auto" },
        { "qsgd", NULL, "ring(order=any)",
          "collective is 'ring(order=any)', an algorithm for sums of float32, but codec 'qsgd' sends messages that "
          "cannot be summed; take allgather or alltoall, or leave collective at auto" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        job j = job_of(cases[c].codec, "sgd(lr=0.05)", 1);
        tutti_error err;
        j.t.options.collective = cases[c].collective;
        if (cases[c].method != NULL)
            j.t.options.method = cases[c].method;
        assert_int_equal(try_job(&j, 2, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].sentence) == NULL)
            fail_msg("wanted '%s', got '%s'", cases[c].sentence, err.text);
        drop(&j);
    }
}

/* An all-reduce of m bytes sends 2 (n-1) m in all. PowerSGD: rank (rows + cols) numbers of a matrix
   that shrinks twofold, all of the others. */
static void linear_codecs_send_what_an_all_reduce_of_their_numbers_sends(void **state)
{
    static const struct { const char *codec; uint64_t bytes;
    } cases[] = {
        { "fp32", 4 * ELEMENTS },
        { "fp16", 2 * ELEMENTS },
        { "bf16", 2 * ELEMENTS },
        { "randomk(ratio=0.1)", 4 * (1 + 300 + 4 + 201 + 1) },
        { "ef(powersgd(rank=2))", 4 * (10 + 2 * (60 + 50) + 33 + 2001 + 7) },
        { "powersgd(rank=1)", 4 * (10 + (60 + 50) + 33 + (3 + 667) + 7) },
        { "powersgd(rank=1,factor_dtype=fp16)",
          4 * (10 + 33 + 7) + (4 + 2 + 2) * ((60 + 50) + (3 + 667)) / 3 } /* the first of three steps in float32 */,
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = FEWEST > 2 ? FEWEST : 2; n <= MOST; n++) {
            job j = job_of(cases[c].codec, "sgd(lr=0.05)", 3);
            j.t.options.method = "ddp(1000,1000)";
            run_job(&j, n);
            /* Small vectors may take algorithms that send whole vectors: n (n-1) m at
               most, never less than 2 (n-1) m. */
            assert_in_range(j.bytes, 3 * 2 * (uint64_t)(n - 1) * cases[c].bytes,
                            3 * (uint64_t)n * (uint64_t)(n - 1) * cases[c].bytes);
            if (n == 2)
                assert_int_equal(j.bytes, 3 * 2 * cases[c].bytes);
            drop(&j);
        }
}

/* ---- residuals ---- */

/* The virtual iterate y_t = x_t - lr mean_r e_r,t obeys y_{t+1} = y_t - lr mean_r g_r(x_t),
   whatever the codec. What an owner of a part keeps is to be delivered whole, not as a mean. */
typedef struct virtual_iterate { job j; double worst; } virtual_iterate;

static tutti_status virtual_rank(tutti_world *world, void *arg, tutti_error *err)
{
    virtual_iterate *v = arg;
    toy t = v->j.t;
    tutti_engine *e;
    const float lr = 0.05f;
    const int mine = tutti_world_rank(world);
    const size_t n = ELEMENTS;
    float *y = tutti_alloc(n, sizeof *y), *g = tutti_alloc(n, sizeof *g), *e0 = tutti_alloc(n, sizeof *e0),
          *e1 = tutti_alloc(n, sizeof *e1);
    const float *residual = NULL, *owner = NULL;
    tutti_group all = tutti_group_workers(world, tutti_port_of("virtual iterate", 0, 0));
    double worst = 0;

    if (y == NULL || g == NULL || e0 == NULL || e1 == NULL)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(toy_open(&e, world, &t, err));
    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, i, &memory);
        residual = strcmp(s->name, "codec.e") == 0 ? memory : residual;
        owner = strcmp(s->name, "codec.owner") == 0 ? memory : owner;
    }
    CHECK(residual != NULL);
    for (int step = 0; step < t.steps; step++) {
        const tutti_method *m = tutti_engine_method(e);
        tutti_pass p;
        tutti_status status;
        memcpy(y, m->x, n * sizeof *y);
        /* what the toy computes, and a copy of it before it is exchanged */
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            size_t at = 0;
            for (int k = 0; k < TOY_TENSORS; at += t.count[k], k++)
                for (size_t i = 0; i < t.count[k]; i++)
                    g[at + i] = m->g[at + i] = m->x[at + i] - (float)((m->rank * 13 + (int)(i % 17) + step) % 19) / 8;
            for (int k = 0; k < TOY_TENSORS; k++)
                TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
            TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
        }
        CHECK(status == TUTTI_CLOSED);
        for (size_t i = 0; i < n; i++)
            e0[i] = residual[i] + (owner != NULL ? owner[i] * (float)m->workers : 0);
        TUTTI_TRY(tutti_engine_step(e, err));
        for (size_t i = 0; i < n; i++)
            e1[i] = residual[i] + (owner != NULL ? owner[i] * (float)m->workers : 0);
        TUTTI_TRY(tutti_allreduce(&all, TUTTI_MEAN, tutti_host(e0, n, TUTTI_F32), err));
        TUTTI_TRY(tutti_allreduce(&all, TUTTI_MEAN, tutti_host(e1, n, TUTTI_F32), err));
        TUTTI_TRY(tutti_allreduce(&all, TUTTI_MEAN, tutti_host(g, n, TUTTI_F32), err));
        for (size_t i = 0; i < n; i++) {
            const double expect = (y[i] - lr * (double)e0[i]) - lr * (double)g[i], got = m->x[i] - lr * (double)e1[i];
            worst = fmax(worst, fabs(expect - got));
        }
    }
    if (mine == 0)
        v->worst = worst;
    tutti_engine_close(e);
    tutti_free(y);
    tutti_free(g);
    tutti_free(e0);
    tutti_free(e1);
    return TUTTI_OK;
}

static void residuals_plus_applied_updates_equal_the_whole_gradient(void **state)
{
    static const char *const codecs[] = {
        "ef(topk)", "ef(topk,server=on)", "ef(sign)", "ef(sign,server=on)", "ef(onebit(scale=l1),server=on)",
        "ef(int8)", "ef(powersgd(rank=2))", "ef(powersgd(rank=1,ef_rule=aggregated))", "ef(randomk(ratio=0.1))",
        "ef(fp16)", "ef(threshold(0.5))",
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++)
        for (int n = FEWEST; n <= MOST; n++) {
            virtual_iterate v = { .j = job_of(codecs[c], "sgd(lr=0.05)", 8) };
            tutti_error err = { .rank = -1 };
            if (tutti_world_run("shm", n, virtual_rank, &v, &err) != TUTTI_OK)
                fail_msg("%s on %d: %s", codecs[c], n, err.text);
            /* the mean of 16-bit numbers is one of 16 bits */
            if (v.worst > (strcmp(codecs[c], "ef(fp16)") == 0 ? 1e-4 : 2e-6))
                fail_msg("%s on %d workers: the virtual iterate is off by %g", codecs[c], n, v.worst);
        }
}

/* powersgd.md, invariant 2: W workers give what one worker with all samples gives: P^ Q^T depends
   on the mean gradient alone. Bits differ, as those of any mean. */
static void powersgd_does_not_depend_on_the_number_of_workers(void **state)
{
    static const char *const codecs[] = { "ef(powersgd(rank=2))", "ef(powersgd(rank=3,warm_start=off))" };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++) {
        job one = job_of(codecs[c], "sgd(lr=0.05)", 6), exact = job_of(NULL, "sgd(lr=0.05)", 6);
        one.t.options.batch = exact.t.options.batch = 16;
        run_job(&one, 1);
        run_job(&exact, 1);
        for (int n = 2; n <= 8; n *= 2) {
            job j = job_of(codecs[c], "sgd(lr=0.05)", 6);
            double apart = 0, lossy = 0;
            j.t.options.batch = 16 / n;
            run_job(&j, n);
            for (size_t i = 0; i < ELEMENTS; i++) {
                apart = fmax(apart, fabs((double)j.x[i] - one.x[i]));
                lossy = fmax(lossy, fabs((double)exact.x[i] - one.x[i]));
            }
            if (!(apart < 2e-5 && lossy > 1e-3))
                fail_msg("%s on %d workers: %g from one worker, which is %g from exact", codecs[c], n, apart, lossy);
            drop(&j);
        }
        drop(&one);
        drop(&exact);
    }
}

/* ---- numbers that are not finite ---- */

static void skipped_step_keeps_residuals_finite_and_replicas_equal(void **state)
{
    static const int some[] = { 2, 3, 4 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(all_codecs); c++)
        for (size_t p = 0; p < TUTTI_LENGTH(some); p++) {
            job j = job_of(all_codecs[c], "sgd(lr=0.05)", 6);
            j.t.options.nonfinite = TUTTI_NONFINITE_SKIP;
            j.t.bad_rank = 1;
            j.t.bad_tensor = 1;
            j.t.bad_step = 2;
            run_job(&j, some[p]);
            for (int s = 0; s < 6; s++)
                for (int r = 1; r < some[p]; r++)
                    assert_int_equal(j.hash[r][s], j.hash[0][s]);
            assert_int_equal(j.hash[0][1], j.hash[0][2]); /* left out */
            if (j.hash[0][2] == j.hash[0][3])
                fail_msg("%s on %d workers: nothing was learnt after the step that was left out", all_codecs[c],
                         some[p]);
            for (size_t i = 0; i < ELEMENTS; i++) {
                assert_true(isfinite(j.x[i]));
                for (int r = 0; r < some[p]; r++)
                    if ((j.e[r] != NULL && !isfinite(j.e[r][i])) || (j.owner[r] != NULL && !isfinite(j.owner[r][i])))
                        fail_msg("%s on %d workers: worker %d's residual of element %zu is not finite", all_codecs[c],
                                 some[p], r, i);
            }
            drop(&j);
        }
}

static float steep(int element)
{
    return element == 12 ? 1e6f : 0;
}

static tutti_status steep_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    toy t = j->t;
    tutti_engine *e;
    tutti_pass p;
    tutti_status status;

    TUTTI_TRY(toy_open(&e, world, &t, err));
    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (int i = 0; i < ELEMENTS; i++)
            tutti_engine_method(e)->g[i] = steep(i);
        for (int k = 0; k < TOY_TENSORS; k++)
            TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    status = tutti_engine_step(e, err);
    tutti_engine_close(e);
    return status;
}

static void codec_overflow_ends_the_run_with_a_suggested_fix(void **state)
{
    job j = job_of("fp16", "sgd(lr=0.05)", 1);
    tutti_error err = { .rank = -1 };

    (void)state;
    assert_int_equal(tutti_world_run("shm", 2, steep_rank, &j, &err), TUTTI_ERR_NUMBER);
    assert_string_equal(err.text, "the mean gradient of d.weight is inf at element 2 in step 0, as fp16 decoded it; "
                                  "lower the learning rate, take a codec with a wider range (bf16 instead of "
                                  "fp16) or leave such steps out (nonfinite=skip)");
    j.t.options.codec = "bf16";
    assert_int_equal(tutti_world_run("shm", 2, steep_rank, &j, &err), TUTTI_OK);
}

static void a_biased_codec_without_error_feedback_is_warned_of(void **state)
{
    static const struct {
        const char *codec;
        bool warned;
    } cases[] = { { "topk", true },  { "sign", true },  { "ef(topk)", false },
                  { "qsgd", false }, { "fp16", false }, { "large(topk)", true } };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        job j = job_of(cases[c].codec, "sgd(lr=0.05)", 1);
        run_job(&j, 2);
        assert_int_equal(j.events, cases[c].warned);
        if (cases[c].warned)
            assert_non_null(strstr(j.event, "is biased and nothing compensates for what it drops"));
        drop(&j);
    }
}

/* ---- what a codec costs ---- */

/* Bytes of a tensor's payload in a step. Owners encode their parts of the mean as well: of parts
   that are multiples of 64 elements, rank 0 owns part (0 - t) mod n. */
static void payload_is_what_was_encoded(void **state)
{
    static const struct {
        const char *codec;
        size_t (*bytes)(size_t n);
        bool owners;
    } cases[] = { { "topk", bytes_topk, true },
                  { "ef(topk)", bytes_topk, false },
                  { "qsgd", bytes_qsgd, true },
                  { "ef(sign,server=on)", bytes_sign, true } };
    static const uint64_t powersgd[TOY_TENSORS] = { 4 * 10, 4 * 2 * (60 + 50), 4 * 33, 4 * 2001, 4 * 7 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (size_t n = FEWEST > 2 ? FEWEST : 2; n <= MOST; n++) {
            job j = job_of(cases[c].codec, "sgd(lr=0.05)", 3);
            run_job(&j, (int)n);
            for (size_t t = 0; t < TOY_TENSORS; t++) {
                const size_t count = j.t.count[t], each = ceil_div(count, n * 64) * 64, mine = (n - t % n) % n;
                uint64_t expect = 0;
                if (n < 4 || !cases[c].owners)
                    expect = cases[c].bytes(count);
                else
                    for (size_t part = 0; part * each < count; part++)
                        expect += (part == mine ? 2 : 1) *
                                  cases[c].bytes(count - part * each < each ? count - part * each : each);
                if (j.payload[t] != 3 * expect)
                    fail_msg("%s on %zu workers: tensor %zu: %llu bytes, expected %llu", cases[c].codec, n, t,
                             (unsigned long long)j.payload[t], 3 * (unsigned long long)expect);
            }
            drop(&j);
        }
    for (int coded = 0; coded < 2; coded++) {
        job j = job_of(coded ? "ef(powersgd(rank=2))" : NULL, "sgd(lr=0.05)", 3);
        run_job(&j, 3);
        assert_int_equal(j.encoded, coded);
        for (int t = 0; t < TOY_TENSORS && coded; t++)
            assert_int_equal(j.payload[t], 3 * powersgd[t]);
        drop(&j);
    }
}

/* Measuring the codec changes nothing of the run, not its counts of bytes either; where the codec
   is then not used the run is one without it. Which of the two happens is a matter of time, so
   either is right here. */
static void codec_cost_measurement_is_neutral_and_disabling_matches_ddp(void **state)
{
    static const char *const codecs[] = {
        "ef(topk)", "qsgd(coding=elias)", "ef(powersgd(rank=2))", "alq(bucket=512,first=2)",
        "ef(accordion(low=topk(ratio=0.5),high=topk,unit=step,interval=2))", "large(fp16,min=100)",
        "ef21(topk(ratio=0.2))", "bf16",
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++)
        for (int n = c == 0 ? 1 : c == 1 ? 2 : 3; n <= (c < 2 ? 4 : 3); n += c == 0 ? 3 : 2) { /* 1 and 4; 2 and 4; 3 */
            job a = job_of(codecs[c], "sgd(lr=0.05,momentum=0.9)", 5), b = a, off = a,
                plain = job_of(NULL, "sgd(lr=0.05,momentum=0.9)", 5);
            const job *like;
            b.t.options.codec_cost = TUTTI_CODEC_COST_EXPLAIN;
            off.t.options.codec_cost = TUTTI_CODEC_COST_AUTO_OFF;
            a.t.options.nonfinite = b.t.options.nonfinite = off.t.options.nonfinite = plain.t.options.nonfinite =
                n == 3 ? TUTTI_NONFINITE_SKIP : TUTTI_NONFINITE_STOP;
            run_job(&a, n), run_job(&b, n), run_job(&off, n), run_job(&plain, n);
            assert_int_equal(a.told, 0);
            assert_int_equal(b.told, 4);
            assert_int_equal(off.told, 4);
            assert_true(a.off == -1 && b.off == -1 && (off.off == 0 || off.off == 1));
            like = off.off == 1 ? &plain : &a;
            for (int r = 0; r < n; r++)
                for (int s = 0; s < 5; s++)
                    if (a.hash[r][s] != b.hash[r][s] || off.hash[r][s] != like->hash[r][s])
                        fail_msg("%s on %d workers, worker %d, step %d: off %g", codecs[c], n, r, s, off.off);
            assert_true(a.bytes == b.bytes && a.messages == b.messages && off.bytes == like->bytes &&
                        off.messages == like->messages);
            for (int t = 0; t < TOY_TENSORS; t++)
                assert_int_equal(off.payload[t], off.off == 1 ? 5 * 4 * off.t.count[t] : a.payload[t]);
            drop(&a), drop(&b), drop(&off), drop(&plain);
        }
}

/* A clock by which a call of a collective takes 100 us on the worker that came first and 1 us on
   the one that came late; they come late in turn. It is read twice a call, and by all equally
   often. */
typedef struct turns { int rank, read; int64_t ns; } turns;

static int64_t now_by_turns(void *self)
{
    turns *t = self;
    return t->ns += t->read++ / 2 % 2 == t->rank ? 100000 : 1000;
}

static tutti_status weigh_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_runtime_ops ops = { .now = now_by_turns };
    turns clock = { .rank = tutti_world_rank(world) };
    tutti_runtime fake = { &ops, &clock }, *real;
    const tutti_metric_record *metrics;
    job *j = arg;
    toy t = j->t;
    tutti_engine *e;
    tutti_status status;

    TUTTI_TRY(toy_open(&e, world, &t, err));
    real = e->rt;
    e->rt = &fake;
    status = tutti_engine_exchange_weigh(e, err);
    e->rt = real;
    for (int i = tutti_engine_metrics(e, &metrics); i-- > 0 && clock.rank == 0;)
        if (strcmp(metrics[i].name, "codec_cost_plain_seconds") == 0)
            j->off = metrics[i].value / e->layout.n_pieces;
    tutti_engine_close(e);
    return status;
}

/* The worker that comes late has a short call. The shortest of each worker's would be 1 us here,
   which no exchange took. */
static void call_cost_is_its_longest_duration_over_workers(void **state)
{
    job j = job_of("topk", "sgd(lr=0.05)", 1);
    tutti_error err = { .rank = -1 };

    (void)state;
    j.t.options.codec_cost = TUTTI_CODEC_COST_EXPLAIN;
    if (tutti_world_run("shm", 2, weigh_rank, &j, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_true(fabs(j.off / 100e-6 - 1) < 1e-9);
}

static void essential_codecs_cannot_be_switched_off(void **state)
{
    static const struct { const char *method, *codec; tutti_codec_cost cost; const char *text; } cases[] = {
        { "ddp", NULL, TUTTI_CODEC_COST_EXPLAIN,
          "codec-cost is 'explain', but gradients travel as they are: there is no codec; give one, or "
          "leave codec-cost off" },
        { "powersgd", NULL, TUTTI_CODEC_COST_EXPLAIN, NULL },
        { "powersgd", NULL, TUTTI_CODEC_COST_AUTO_OFF,
          "codec-cost is 'auto-off', but under method 'powersgd' codec 'ef(powersgd" },
        { "ddp", "dgc(topk(ratio=0.1))", TUTTI_CODEC_COST_EXPLAIN, NULL },
        { "ddp", "dgc(topk(ratio=0.1))", TUTTI_CODEC_COST_AUTO_OFF,
          "codec-cost is 'auto-off', but under method 'ddp' codec 'dgc(topk(ratio=0.1))' has the momentum of the "
          "update in it" },
        { "ddp", "large(dgc(topk(ratio=0.1)),min=50)", TUTTI_CODEC_COST_AUTO_OFF,
          "has the momentum of the update in it" },
        { "ddp", "ef(sign,momentum=0.9)", TUTTI_CODEC_COST_AUTO_OFF, "has the momentum of the update in it" },
        { "ddp", "sign-vote", TUTTI_CODEC_COST_AUTO_OFF, "codec 'sign-vote' makes a vote" },
        { "ddp", "large(sign-vote,min=50)", TUTTI_CODEC_COST_AUTO_OFF, "makes a vote" },
        { "ddp", "dgc(topk(ratio=0.1),momentum=0)", TUTTI_CODEC_COST_AUTO_OFF, NULL },
        { "d-psgd(ring)", "topk(ratio=0.5)", TUTTI_CODEC_COST_EXPLAIN,
          "codec-cost is 'explain', but the codec is of models, between neighbours, and no gradients are exchanged "
          "through it; leave codec-cost off" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        job j = job_of(cases[c].codec, "sgd(lr=0.05)", 2);
        tutti_error err;
        j.t.options.method = cases[c].method;
        j.t.options.codec_cost = cases[c].cost;
        if (cases[c].text == NULL) {
            run_job(&j, 2);
            assert_int_equal(j.told, 4);
        } else {
            assert_int_equal(try_job(&j, 2, &err), TUTTI_ERR_USAGE);
            if (strstr(err.text, cases[c].text) == NULL)
                fail_msg("'%s' has not '%s'", err.text, cases[c].text);
        }
        drop(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_codec_that_loses_nothing_gives_the_bits_of_ddp),
        cmocka_unit_test(replicas_are_equal_and_pieces_and_lanes_change_no_bit),
        cmocka_unit_test(pieces_on_two_lanes_at_once_give_the_same_bits),
        cmocka_unit_test(messages_have_exactly_the_bytes_of_the_formula),
        cmocka_unit_test(a_tensor_that_cannot_be_split_has_one_owner),
        cmocka_unit_test(replicas_are_equal_for_every_message_route),
        cmocka_unit_test(impossible_routes_are_rejected),
        cmocka_unit_test(linear_codecs_send_what_an_all_reduce_of_their_numbers_sends),
        cmocka_unit_test(residuals_plus_applied_updates_equal_the_whole_gradient),
        cmocka_unit_test(powersgd_does_not_depend_on_the_number_of_workers),
        cmocka_unit_test(skipped_step_keeps_residuals_finite_and_replicas_equal),
        cmocka_unit_test(codec_overflow_ends_the_run_with_a_suggested_fix),
        cmocka_unit_test(a_biased_codec_without_error_feedback_is_warned_of),
        cmocka_unit_test(payload_is_what_was_encoded),
        cmocka_unit_test(codec_cost_measurement_is_neutral_and_disabling_matches_ddp),
        cmocka_unit_test(call_cost_is_its_longest_duration_over_workers),
        cmocka_unit_test(essential_codecs_cannot_be_switched_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
