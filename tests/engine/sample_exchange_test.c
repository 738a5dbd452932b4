/* Goal: lists of samples arrive whole and in order where they were sent, with exactly their bytes
   in the counters of exactly those pairs; what does not fit is an error sentence; a client that
   cannot give any is refused while opening. Method: a method made for it, whose lists are drawn
   from (seed, step, pair), identically on all workers; a client whose sample is a formula of its
   index; sockets and shared memory. */
#include "toy.h"
#include "tutti/method/steps.h"
#include "engine/modes/sample_exchange.h"

enum { WORKERS = 4, MOST = 40, STEPS = 12, BYTES = 13, ROUND = 3, PLAIN = 1000 };

typedef struct probe {
    int64_t wrong;               /* worker 1 expects one more from worker 2 than that sends */
    int64_t twice;               /* asks a second time */
} probe;

static const tutti_option probe_options[] = {
    { "wrong", TUTTI_INT, TUTTI_AT(probe, wrong), 0, -1, 1, NULL, "samples too many that are expected" },
    { "twice", TUTTI_INT, TUTTI_AT(probe, twice), 0, 0, 1, NULL, "" },
    { 0 }
};

/* Of worker `from` for worker `to`; a third of the pairs have none, and every third step none has
   any. A worker gets at most 3 x 13. */
static int64_t drawn(uint64_t step, int from, int to)
{
    const uint64_t r = tutti_random((tutti_rng){ 9, 1, step }, (uint64_t)(from * WORKERS + to));
    return from == to || step % ROUND == 2 || r % 3 == 0 ? 0 : (int64_t)(r / 3 % 13);
}

static uint64_t drawn_id(uint64_t step, int from, int to, int64_t k)
{
    return tutti_random((tutti_rng){ 10, 1, step }, (uint64_t)((from * WORKERS + to) * MOST + k)) % PLAIN;
}

static tutti_status probe_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    return tutti_samples_send_declare(m, plan, MOST, err);
}

static tutti_status probe_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    const probe *s = m->self;
    uint64_t ids[MOST * WORKERS];
    int64_t to[WORKERS], from[WORKERS], n = 0;

    for (int w = 0; w < m->workers; w++) {
        to[w] = drawn(m->step, m->rank, w);
        from[w] = drawn(m->step, w, m->rank);
        for (int64_t k = 0; k < to[w]; k++)
            ids[n++] = drawn_id(m->step, m->rank, w, k);
    }
    if (m->rank == 1 && drawn(m->step, 2, 1) > 0)
        from[2] += s->wrong;
    TUTTI_TRY(tutti_samples_send(m, p, ids, to, from, err));
    if (s->twice > 0)
        TUTTI_TRY(tutti_samples_send(m, p, ids, to, from, err));
    p->divisor = p->samples;
    return TUTTI_OK;
}

static const tutti_method_ops probe_ops = {
    .name = "probe", .options = probe_options, .self_bytes = sizeof(probe), .traits = TUTTI_REPLICAS_EQUAL,
    .declare = probe_declare, .pass = probe_pass, .exchange = tutti_base_exchange,
};
static const tutti_method_ops *const probes[] = { &probe_ops, NULL };

static uint8_t byte_of(uint64_t id, size_t k)
{
    return (uint8_t)(id * 31 + k * 7 + id / 256);
}

static tutti_status give(void *user, const uint64_t *ids, size_t n, void *out, tutti_error *err)
{
    uint8_t *to = out;

    (void)user;
    for (size_t i = 0; i < n; i++) {
        CHECK(ids[i] < PLAIN);
        for (size_t k = 0; k < BYTES; k++)
            *to++ = byte_of(ids[i], k);
    }
    return TUTTI_OK;
}

static int label(void *user, uint64_t id)
{
    (void)user;
    return (int)(id % 10);
}

typedef struct job {
    const char *method;
    bool has;                    /* the client has samples to give */
    int64_t data_ns[WORKERS];
} job;

static tutti_status sent_as_drawn(tutti_world *world, int rank, uint64_t step, const uint64_t *before, tutti_error *err)
{
    for (int to = 0; to < WORKERS; to++) {
        uint64_t bytes, messages;
        tutti_world_sent(world, to, &bytes, &messages);
        CHECK(to == rank || bytes - before[2 * to] == (uint64_t)drawn(step, rank, to) * BYTES);
        CHECK(to == rank || messages - before[2 * to + 1] == (uint64_t)(drawn(step, rank, to) > 0));
    }
    return TUTTI_OK;
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const job *j = arg;
    tutti_param param = { .name = "x", .dims = 1, .dim = { 8 } };
    tutti_engine_options options = { .method = j->method, .batch = 2 };
    tutti_engine *e;
    tutti_status status;

    if (j->has) {
        options.sample_bytes = BYTES;
        options.give = give;
        options.label = label;
    }
    status = tutti_engine_open_from(&e, world, &param, 1, &options, probes, err);
    if (status == TUTTI_OK && (tutti_engine_received_most(e) != MOST ||
                               tutti_sample_label(tutti_engine_method(e), 37) != 7))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0, "what the client and the method have said is not known");
    for (int s = 0; s < STEPS && status == TUTTI_OK; s++) {
        const int rank = tutti_engine_method(e)->rank;
        uint64_t before[2 * WORKERS];
        tutti_pass p;
        const uint8_t *at;
        int64_t come = 0;
        for (int to = 0; to < WORKERS; to++)
            tutti_world_sent(world, to, &before[2 * to], &before[2 * to + 1]);
        status = tutti_engine_pass_begin(e, &p, err);
        if (status != TUTTI_OK)
            break;
        at = p.given;
        for (int w = 0; w < WORKERS; w++)
            for (int64_t k = 0; k < drawn((uint64_t)s, w, rank); k++, come++)
                for (size_t b = 0; b < BYTES; b++)
                    CHECK(*at++ == byte_of(drawn_id((uint64_t)s, w, rank, k), b));
        CHECK(p.received == come && p.samples == 2 + come && (come > 0 || p.given == NULL));
        status = sent_as_drawn(world, rank, (uint64_t)s, before, err);
        if (status == TUTTI_OK)
            status = tutti_engine_grad_ready(e, 0, err);
        if (status == TUTTI_OK)
            status = tutti_engine_pass_end(e, 0, err);
        while (status == TUTTI_OK)
            status = tutti_engine_pass_begin(e, &p, err);
        status = status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

static void sent_samples_arrive_complete_and_are_counted_per_pair(void **state)
{
    static const char *const transports[] = { "shm", "tcp" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(transports); k++) {
        job j = { .method = "probe", .has = true };
        tutti_error err = { .rank = -1 };
        if (tutti_world_run(transports[k], WORKERS, run_rank, &j, &err) != TUTTI_OK)
            fail_msg("%s: %s", transports[k], err.text);
    }
}

static void is_refused(job j, tutti_status wanted, const char *sentence)
{
    tutti_error err = { .rank = -1 };

    assert_int_equal(tutti_world_run("shm", WORKERS, run_rank, &j, &err), wanted);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s: %s", j.method, err.text);
}

static void invalid_sample_transfers_are_rejected(void **state)
{
    (void)state;
    is_refused((job){ .method = "probe" }, TUTTI_ERR_USAGE,
               "method 'probe' sends raw samples from worker to worker, and this client has none to give; switch that "
               "off, or take one that has (tutti train; engine_options.give)");
    is_refused((job){ .method = "probe(wrong=1)", .has = true }, TUTTI_ERR_CORRUPT, "worker 2 sent");
    is_refused((job){ .method = "probe(twice=1)", .has = true }, TUTTI_ERR_STATE,
               "method 'probe': tutti_samples_send is legal once, in a step's first pass");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sent_samples_arrive_complete_and_are_counted_per_pair),
        cmocka_unit_test(invalid_sample_transfers_are_rejected),
    };
    return cmocka_run_group_tests_name("engine/sample-exchange", tests, NULL, NULL);
}
