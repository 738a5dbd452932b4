/* Goal: codec-checksum (src/engine/exchange/checksum.c): a bit that flips in a message between
   two workers never enters the model: the run ends on all of them, with the tensor and the
   sender; without it the same bit changes the model. It changes no bit of a model, and costs
   eight bytes a message (exchange_test). What it cannot check is refused or reported. Method: the
   toy client on ranks that are threads, over shm's own table with a `send` that flips one bit of
   a copy. */
#include <stdlib.h>
#include "toy.h"
#include "transport/registry.h"

/* collective_internal.h, which does not go together with tutti.h */
tutti_status tutti_world_run_on(const tutti_transport_ops *ops, const char *spec, int n,
                                tutti_status (*rank_main)(tutti_world *world, void *arg, tutti_error *err), void *arg,
                                tutti_error *err);

enum { RANKS = 5, STEPS = 4, AT_STEP = 2, LEAST = 100 }; /* LEAST: bytes of a message; lengths and votes are shorter */

typedef struct flip {
    const char *method, *codec, *hierarchy;
    bool checked;
    int from, to;                /* from < 0: none */
    uint64_t bit;                /* modulo the message's bits */
    uint64_t hash[RANKS];        /* at the end; 0: that was not reached */
    tutti_status status[RANKS];
    bool named[RANKS];           /* CORRUPT, with a sentence that names a tensor and a worker */
    bool sender[RANKS];          /* that sentence names `from` */
} flip;

static const tutti_transport_ops *shm;
static flip *now;
static _Thread_local int me;     /* the exchange is on the client's thread */
static _Thread_local bool due;
static unsigned char *copy;

static tutti_status send_flipped(void *t, tutti_request *r, int to, uint64_t tag, const tutti_header *note,
                                 tutti_buffer payload, tutti_error *err)
{
    const size_t bytes = payload.count * tutti_dtype_bytes(payload.dtype);

    if (!due || me != now->from || to != now->to || bytes < LEAST)
        return shm->send(t, r, to, tag, note, payload, err);
    due = false;
    copy = malloc(bytes);
    memcpy(copy, payload.data, bytes);
    copy[now->bit / 8 % bytes] ^= (unsigned char)(1u << now->bit % 8);
    payload.data = copy;
    return shm->send(t, r, to, tag, note, payload, err);
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    flip *f = arg;
    char sender[32];
    toy t = toy_default();
    tutti_engine *e;
    tutti_status status = TUTTI_OK;

    me = tutti_world_rank(world);
    t.options.method = f->method;
    t.options.codec = f->codec;
    t.options.codec_hierarchy = f->hierarchy;
    t.options.codec_checksum = f->checked;
    t.options.lane = -1;
    t.options.stop_on_loss = true; /* d-psgd would continue without the worker that has refused */
    t.count[1] = 3000, t.count[3] = 2001;
    status = toy_open(&e, world, &t, err);
    for (int s = 0; s < STEPS && status == TUTTI_OK; s++) {
        due = s == AT_STEP;
        status = toy_step(e, &t, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK)
        f->hash[me] = toy_hash(e);
    tutti_engine_close(e);
    f->status[me] = status;
    f->named[me] = status == TUTTI_ERR_CORRUPT && strstr(err->text, "worker ") != NULL &&
                   (strstr(err->text, "tensor ") != NULL || strstr(err->text, "bytes") != NULL);
    snprintf(sender, sizeof sender, "not what worker %d sent", f->from);
    f->sender[me] = status == TUTTI_ERR_CORRUPT && strstr(err->text, sender) != NULL;
    return status;
}

static void run(flip *f, int n, tutti_error *err)
{
    static tutti_transport_ops ops;

    shm = tutti_transport_find("shm");
    ops = *shm;
    ops.send = send_flipped;
    ops.window = NULL; /* all by messages */
    ops.publish = NULL;
    ops.await = NULL;
    now = f;
    copy = NULL;
    *err = (tutti_error){ .rank = -1 };
    tutti_world_run_on(&ops, "shm", n, rank_main, f, err);
    assert_true((copy != NULL) == (f->from >= 0));
    free(copy);
}

static void flipped_bit_ends_the_run_on_all_workers(void **state)
{
    /* gather; owners; to neighbours, messages and what elsewhere is summed */
    static const struct { const char *method, *codec; int workers;
    } cases[] = {
        { "ddp", "topk(ratio=0.1)", 3 },          { "ddp", "ef(sign,server=on)", 4 },
        { "ddp", "qsgd(coding=elias)", 5 },       { "nuqsgd(skip_below=0)", NULL, 2 },
        { "d-psgd(ring)", "topk(ratio=0.5)", 3 }, { "d-psgd(ring)", "fp16", 4 },
    };
    uint64_t draw = 12345;
    int unseen = 0;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const flip plain = { .method = cases[c].method, .codec = cases[c].codec, .from = -1 };
        flip clean = plain, checked = plain;
        tutti_error err;
        checked.checked = true;
        run(&clean, cases[c].workers, &err);
        run(&checked, cases[c].workers, &err);
        for (int r = 0; r < cases[c].workers; r++)
            assert_true(clean.status[r] == TUTTI_OK && checked.status[r] == TUTTI_OK &&
                        clean.hash[r] == checked.hash[r]);
        for (int k = 0; k < 12; k++) {
            flip seen = checked, blind = clean;
            int refused = 0;
            draw = draw * 6364136223846793005u + 1442695040888963407u;
            seen.from = blind.from = (int)(draw >> 60) % cases[c].workers;
            seen.to = blind.to = (seen.from + 1) % cases[c].workers;
            seen.bit = blind.bit = draw >> 20;
            memset(seen.hash, 0, sizeof seen.hash), memset(blind.hash, 0, sizeof blind.hash);
            run(&seen, cases[c].workers, &err);
            for (int r = 0; r < cases[c].workers; r++) {
                if (seen.status[r] == TUTTI_OK || (seen.status[r] == TUTTI_ERR_CORRUPT && !seen.named[r]))
                    fail_msg("%s %s, bit %llu from %d to %d: worker %d ends with %d", cases[c].method, cases[c].codec,
                             (unsigned long long)seen.bit, seen.from, seen.to, r, (int)seen.status[r]);
                refused += seen.status[r] == TUTTI_ERR_CORRUPT;
            }
            if (refused == 0 || err.status != TUTTI_ERR_CORRUPT)
                fail_msg("%s %s, bit %llu from %d to %d: %s", cases[c].method, cases[c].codec,
                         (unsigned long long)seen.bit, seen.from, seen.to, err.text);
            if (k % 3 == 0) {
                run(&blind, cases[c].workers, &err);
                for (int r = 0; r < cases[c].workers && err.status == TUTTI_OK; r++)
                    unseen += blind.hash[r] != clean.hash[r];
            }
        }
    }
    assert_true(unseen > 10);
}

/* To a codec worker 2 of 4 in groups of two is the second of two; the error sentence names it
   worker 2. */
static void corrupt_team_message_is_attributed_to_the_senders_rank(void **state)
{
    flip f = {
        .method = "ddp", .codec = "qsgd(bits=4)", .hierarchy = "2", .checked = true, .from = 2, .to = 0, .bit = 4321
    };
    tutti_error err;

    (void)state;
    run(&f, 4, &err);
    assert_int_equal(f.status[0], TUTTI_ERR_CORRUPT);
    assert_true(f.sender[0]);
    for (int r = 0; r < 4; r++)
        assert_int_not_equal(f.status[r], TUTTI_OK);
}

static tutti_status refused_rank(tutti_world *world, void *arg, tutti_error *err)
{
    toy t = *(toy *)arg;
    tutti_engine *e;
    tutti_status status = toy_open(&e, world, &t, err);
    const tutti_event_record *events;
    bool said = false;

    for (int i = 0, n = status == TUTTI_OK ? tutti_engine_events(e, &events) : 0; i < n; i++)
        said = said || strcmp(events[i].text,
                              "codec-checksum checks the messages of codec 'topk' alone: what 'bf16' sends is summed "
                              "on its way, and no worker knows the bytes that a sum should have") == 0;
    if (status == TUTTI_OK && said != (tutti_world_rank(world) == 0 && strstr(t.options.codec, "bf16") != NULL))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0, "worker %d says %d", tutti_world_rank(world), said);
    tutti_engine_close(e);
    return status;
}

static void checksums_are_rejected_where_messages_cannot_be_checked(void **state)
{
    static const struct { const char *method, *codec, *sentence; } cases[] = {
        { "ddp", "fp16",
          "codec-checksum is 'on', but what codec 'fp16' sends is summed on its way, and no worker knows the bytes "
          "that a sum should have; leave codec-checksum off: transport tcp checks all it carries (wire-check)" },
        { "ddp", "ef(powersgd(rank=2))", "what codec 'ef(powersgd(rank=2))' sends is summed on its way" },
        { "powersgd", NULL, "sends is summed on its way" },
        { "ddp", NULL,
          "codec-checksum is 'on', but gradients travel as they are: there is no codec; give one, or leave "
          "codec-checksum off: transport tcp checks all it carries (wire-check)" },
        { "d-psgd(ring)", NULL, "but what workers send each other travels as it is: there is no codec" },
        { "ddp", "large(topk,min=100,small=bf16)", NULL },
        { "ddp", "topk", NULL },
        { "d-psgd(ring)", "fp16", NULL },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        toy t = toy_default();
        tutti_error err = { .rank = -1 };
        tutti_status status;
        t.options.method = cases[c].method;
        t.options.codec = cases[c].codec;
        t.options.codec_checksum = true;
        status = tutti_world_run("shm", 2, refused_rank, &t, &err);
        if (status != (cases[c].sentence != NULL ? TUTTI_ERR_USAGE : TUTTI_OK) ||
            (cases[c].sentence != NULL && strstr(err.text, cases[c].sentence) == NULL))
            fail_msg("%s, %s: %s", cases[c].method, cases[c].codec, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corrupt_team_message_is_attributed_to_the_senders_rank),
        cmocka_unit_test(flipped_bit_ends_the_run_on_all_workers),
        cmocka_unit_test(checksums_are_rejected_where_messages_cannot_be_checked),
    };
    return cmocka_run_group_tests_name("engine/checksum", tests, NULL, NULL);
}
