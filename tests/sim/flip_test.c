/* Goal: simulated messages carry the real values: the sign of one float of one message decides the
   final parameters. Method: sim's own table with a `send` that flips one value of a copy on its
   way; without the flip the same table gives the same bits. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "forked.h"
#include "engine/toy.h"

/* collective_internal.h, which does not go together with tutti.h */
tutti_status tutti_world_run_on(const tutti_transport_ops *ops, const char *spec, int n,
                                tutti_status (*rank_main)(tutti_world *world, void *arg, tutti_error *err), void *arg,
                                tutti_error *err);

enum { RANKS = 4, STEPS = 7, AT_STEP = 2 };

typedef struct flip {
    const char *method;
    bool asked;
    int from;              /* the sender whose message is changed */
    uint64_t hash[RANKS];  /* of each worker's parameters at the end */
    int flipped;           /* messages that were */
} flip;

static const tutti_transport_ops *sim;
static flip *now;              /* in the child; actors run one at a time */
static bool due;
static unsigned char *copy;

static tutti_status send_flipped(void *t, tutti_request *r, int to, uint64_t tag, const tutti_header *note,
                                 tutti_buffer payload, tutti_error *err)
{
    const size_t bytes = payload.count * tutti_dtype_bytes(payload.dtype);
    float *values;
    size_t i = 0;

    if (!due || bytes < 1000)
        return sim->send(t, r, to, tag, note, payload, err);
    due = false;
    memcpy(copy, payload.data, bytes);
    values = (float *)(void *)copy;
    while (i < bytes / sizeof *values && values[i] == 0)
        i++;
    if (i < bytes / sizeof *values) {
        values[i] = -values[i];
        now->flipped++;
    }
    payload.data = copy;
    return sim->send(t, r, to, tag, note, payload, err);
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    flip *f = arg;
    toy t = toy_default();
    tutti_engine *e;
    tutti_status status = TUTTI_OK;

    t.options.method = f->method;
    TUTTI_TRY(toy_open(&e, world, &t, err));
    for (int s = 0; s < STEPS && status == TUTTI_OK; s++) {
        /* the next large message of any rank */
        due = due || (f->asked && s == AT_STEP && tutti_world_rank(world) == f->from);
        status = toy_step(e, &t, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK)
        f->hash[tutti_world_rank(world)] =
            tutti_hash(tutti_engine_method(e)->x, tutti_engine_method(e)->layout->used * sizeof(float));
    tutti_engine_close(e);
    return status;
}

static tutti_status in_child(void *arg, tutti_error *err)
{
    static tutti_transport_ops ops;

    sim = forked_sim();
    ops = *sim;
    ops.send = send_flipped;
    now = arg;
    copy = malloc(1 << 20);
    return copy == NULL ? TUTTI_ERR_MEMORY : tutti_world_run_on(&ops, "sim", RANKS, rank_main, arg, err);
}

static flip *run(const char *method, bool asked, int from)
{
    flip *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tutti_error err;

    assert_true(f != MAP_FAILED);
    *f = (flip){ .method = method, .asked = asked, .from = from };
    if (forked(in_child, f, &err) != TUTTI_OK)
        fail_msg("%s: %s", method, err.text);
    assert_int_equal(f->flipped, asked);
    return f;
}

static void one_flipped_sign_in_one_message_changes_the_final_parameters(void **state)
{
    static const char *const methods[] = {
        "ddp", "ddp(bucket_mb=0.01)", "local-sgd(period=3)", "d-psgd", "d-psgd(complete,order=atc)", "hetero-ring",
    };

    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(methods); m++) {
        flip *plain = run(methods[m], false, 0), *again = run(methods[m], false, 0);
        for (int r = 0; r < RANKS; r++)
            assert_true(plain->hash[r] == again->hash[r] && plain->hash[r] != 0);
        for (int from = 0; from < RANKS; from += 3) {
            flip *flipped = run(methods[m], true, from);
            if (flipped->hash[0] == plain->hash[0])
                fail_msg("%s: a flipped sign from worker %d left worker 0's parameters as they were", methods[m], from);
            munmap(flipped, sizeof *flipped);
        }
        munmap(plain, sizeof *plain);
        munmap(again, sizeof *again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        one_flipped_sign_in_one_message_changes_the_final_parameters) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
