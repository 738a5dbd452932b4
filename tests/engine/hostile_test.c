/* Goal: what a worker announces and sends to the others through a codec is not trusted
   (src/engine/exchange/message.c): lengths beyond what the codec makes, negative ones, lengths
   that do not fit what came, and any bytes at all end with the sender's name and nothing read or
   written out of bounds (which a sanitizer sees), by gather and by the owners of parts; whatever
   is accepted leaves the other workers equal. Method: ranks that are threads; rank 1 takes part
   in the same collectives through calls of this file. The source file is included, since its
   functions are static. Decoders alone are tested in tests/fuzz. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../src/engine/exchange/message.c"
#include "state/plan.h"
#include "codec/codec.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: %s", __LINE__, #condition); \
    } while (0)
enum { UNITS = 2, COUNT = 300, MOST = 8, BAD = 1 };
static const char *const specs[] = {
    "qsgd(coding=elias)",     "threshold(value=0.5)",        "wangni(sparsity=0.3)",
    "nuqsgd(coding=huffman)", "nuqsgd(bits=3,coding=elias)", "large(wangni(sparsity=0.3),min=250,small=topk(ratio=0.2))"
};

typedef enum { LENGTH, BYTES } what;
typedef struct attack {
    what what;
    const char *spec;
    int64_t announced;           /* LENGTH */
    uint64_t seed;               /* BYTES */
    float y[MOST][UNITS * COUNT];
    tutti_status status[MOST];
} attack;

/* A worker's exchange of two tensors, g its gradient. */
typedef struct side {
    tutti_device *device;
    tutti_plan *plan;
    tutti_view tensor[UNITS];
    tutti_exchange_unit unit[UNITS];
    tutti_exchange_slot slot;
    tutti_engine_exchange exchange;
    tutti_exchange_job job;
    tutti_group group;
    float g[UNITS * COUNT];
    uint64_t payload[UNITS];
} side;

static tutti_status open_side(side *s, tutti_world *world, const char *spec, tutti_error *err)
{
    const int rank = tutti_world_rank(world);

    memset(s, 0, sizeof *s);
    s->group = tutti_group_workers(world, tutti_port_of("hostile", 0, 0));
    s->job = (tutti_exchange_job){
        .exchange = &s->exchange, .slot = &s->slot, .group = &s->group, .unit = s->unit, .n_units = UNITS
    };
    for (int i = 0; i < UNITS; i++)
        s->tensor[i] = (tutti_view){
            .tensor = i, .first = (size_t)i * COUNT, .count = i == 0 ? COUNT : 200, .rows = 1,
            .cols = i == 0 ? COUNT : 200,
        };
    s->exchange.payload = s->payload;
    s->device = tutti_world_device(world); /* of the level that TUTTI_CPU allows */
    s->exchange.space = (tutti_codec_space){
        .n = UNITS * COUNT, .tensor = s->tensor, .n_tensors = UNITS, .rank = rank, .workers = s->group.size, .seed = 1,
        .device = s->device,
    };
    TUTTI_TRY(tutti_plan_open(&s->plan, UNITS * COUNT, err));
    TUTTI_TRY(tutti_codec_declare(&s->exchange.codec, s->plan, spec, "codec", &s->exchange.space, err));
    TUTTI_TRY(tutti_plan_carry_out(s->plan, NULL, err));
    tutti_codec_open(s->exchange.codec);
    for (int i = 0; i < UNITS * COUNT; i++)
        s->g[i] = (float)((rank * 31 + i * 7) % 23) / 8 - 1;
    for (int i = 0; i < UNITS; i++) {
        tutti_exchange_unit *u = &s->unit[i];
        *u = (tutti_exchange_unit){
            .view = s->tensor[i], .codec = s->exchange.codec, .x = s->g + s->tensor[i].first,
            .y = s->g + s->tensor[i].first, .turn = -1,
        };
        u->view.step = 1;
        while (u->codec->ops->choose != NULL)
            u->codec = u->codec->ops->choose(u->codec, &u->view);
    }
    return TUTTI_OK;
}

static void close_side(side *s)
{
    tutti_exchange_buffer *const buffers[] = { &s->slot.units,   &s->slot.scratch, &s->slot.send,
                                               &s->slot.receive, &s->slot.out,     &s->slot.all,
                                               &s->slot.sums,    &s->slot.table,   &s->slot.wrapped };

    for (size_t i = 0; i < TUTTI_LENGTH(buffers); i++)
        tutti_free(buffers[i]->at);
    tutti_codec_close(s->exchange.codec);
    tutti_plan_close(s->plan);
}

static uint64_t draw(uint64_t *state)
{
    return *state = (*state * 6364136223846793005u + 1442695040888963407u) ^ *state >> 29;
}

/* As gather() and to_owners() announce lengths to each other, and then send. Bytes: mostly zeros
   and small numbers, so that lengths among them are often near what they should be. */
static tutti_status be_bad(const attack *a, side *s, tutti_error *err)
{
    const bool owners = s->group.size >= OWNERS_FROM;
    int64_t told[MOST], lengths[MOST];
    uint64_t seed = a->seed;
    size_t sent = 0, received = 0, counts[2 * MOST];
    uint8_t *out = NULL, *in = NULL;
    tutti_status status;

    for (int r = 0; r < s->group.size; r++)
        /* less than the codec makes at most */
        told[r] = a->what == LENGTH ? a->announced : (int64_t)(draw(&seed) % 60);
    if (owners)
        TUTTI_TRY(tutti_alltoall(&s->group, tutti_host(told, (size_t)s->group.size, TUTTI_I64),
                                 tutti_host(lengths, (size_t)s->group.size, TUTTI_I64), err));
    else
        TUTTI_TRY(tutti_allgather(&s->group, tutti_host(told, 1, TUTTI_I64),
                                  tutti_host(lengths, (size_t)s->group.size, TUTTI_I64), err));
    if (a->what == LENGTH)
        return TUTTI_OK; /* no worker continues */
    for (int r = 0; r < s->group.size; r++) {
        counts[r] = (size_t)told[r];
        counts[s->group.size + r] = (size_t)lengths[r];
        sent += counts[r];
        received += counts[s->group.size + r];
    }
    out = calloc(sent + 1, 1), in = calloc(received + 1, 1);
    CHECK(out != NULL && in != NULL);
    for (size_t i = 0; i < sent; i++)
        out[i] = (uint8_t)(draw(&seed) % 7 == 0 ? draw(&seed) >> 32 : i % 4 == 0 ? (draw(&seed) >> 32) % 40 : 0);
    status = owners ? tutti_alltoall_v(&s->group, counts, tutti_host(out, sent, TUTTI_U8),
                                       tutti_host(in, received, TUTTI_U8), err)
                    : tutti_allgather_v(&s->group, counts + s->group.size, tutti_host(out, counts[0], TUTTI_U8),
                                        tutti_host(in, received, TUTTI_U8), err);
    free(out), free(in);
    return status;
}

static tutti_status attacked_rank(tutti_world *world, void *arg, tutti_error *err)
{
    attack *a = arg;
    const int rank = tutti_world_rank(world);
    tutti_error own = { .rank = -1 };
    side *s = malloc(sizeof *s);
    tutti_status status;

    CHECK(s != NULL);
    status = open_side(s, world, a->spec, err);
    if (status == TUTTI_OK)
        status = rank == BAD ? be_bad(a, s, err) : tutti_exchange_messages(&s->job, &own);
    a->status[rank] = status;
    memcpy(a->y[rank], s->g, sizeof s->g);
    close_side(s);
    free(s);
    if (rank == BAD)
        return TUTTI_OK; /* whatever its own end has been */
    if (status != TUTTI_OK && status != TUTTI_ERR_PEER &&
        (status != TUTTI_ERR_CORRUPT || strstr(own.text, "worker 1") == NULL))
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "worker %d ends with status %d: %.300s", rank, (int)status,
                          own.text);
    return TUTTI_OK;
}

static void run(attack *a, int n)
{
    tutti_error err = { .rank = -1 };

    if (tutti_world_run("shm", n, attacked_rank, a, &err) != TUTTI_OK)
        fail_msg("%s on %d workers, announced %lld, seed %llu: %s", a->spec, n, (long long)a->announced,
                 (unsigned long long)a->seed, err.text);
}

static void invalid_message_lengths_are_rejected_with_the_sender(void **state)
{
    static const int64_t announced[] = { 1 << 20, -1, INT64_MIN, INT64_MAX, INT64_MAX - 100 };
    static attack a;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (size_t i = 0; i < TUTTI_LENGTH(announced); i++)
            for (int n = 2; n <= 5; n += n == 2 ? 2 : 1) { /* gather; owners */
                a = (attack){ .what = LENGTH, .spec = specs[k], .announced = announced[i] };
                run(&a, n);
                for (int r = 0; r < n; r++)
                    assert_true(r == BAD || a.status[r] == TUTTI_ERR_CORRUPT);
            }
}

static void arbitrary_bytes_are_rejected_or_decoded_equally_by_all(void **state)
{
    static attack a;
    int refused = 0;
    (void)state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (uint64_t seed = 1; seed <= 12; seed++)
            for (int n = 2; n <= 5; n++) {
                a = (attack){ .what = BYTES, .spec = specs[k], .seed = seed };
                run(&a, n);
                for (int r = 0; r < n; r++)
                    refused += a.status[r] == TUTTI_ERR_CORRUPT;
                if (n == 3) {
                    assert_int_equal(a.status[0], a.status[2]);
                    assert_true(a.status[0] != TUTTI_OK || memcmp(a.y[0], a.y[2], sizeof a.y[0]) == 0);
                }
            }
    assert_true(refused > 50);
}

/* codec-checksum: a message is accepted as it was written, and refused with any bit flipped, or
   as another worker's, of another step or of another place. */
static tutti_status checked_rank(tutti_world *world, void *arg, tutti_error *err)
{
    side *s = malloc(sizeof *s);
    tutti_status status;

    CHECK(s != NULL);
    status = open_side(s, world, arg, err);
    for (int i = 0; i < UNITS && status == TUTTI_OK; i++) {
        tutti_exchange_unit *u = &s->unit[i];
        tutti_view other[] = { u->view, u->view, u->view, u->view };
        uint8_t *out;
        size_t bytes, refused = 0;
        const uint8_t *at;
        message m;
        tutti_error own = { 0 };
        u->checked = true;
        out = malloc(message_bound(u, &u->view) + 1);
        CHECK(out != NULL);
        TUTTI_TRY(write_message(&(coding){ &s->job, u, &u->view }, u->x, out, &m, &bytes, err));
        CHECK(bytes == m.bytes + TUTTI_CHECKSUM_BYTES + (is_fixed(u) ? 0 : PREFIX));
        at = out;
        TUTTI_TRY(read_message(&(coding){ &s->job, u, &u->view }, 0, &at, out + bytes, &m, err));
        CHECK(at == out + bytes && m.at + m.bytes == at);
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            out[bit / 8] ^= (uint8_t)(1u << bit % 8);
            at = out;
            refused += read_message(&(coding){ &s->job, u, &u->view }, 0, &at, out + bytes, &m,
                                    &own) == TUTTI_ERR_CORRUPT;
            out[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        CHECK(refused == 8 * bytes);
        other[1].step++, other[2].first++, other[3].stage++;
        for (int k = 0; k < 4; k++) {
            at = out;
            CHECK(read_message(&(coding){ &s->job, u, &other[k] }, k == 0, &at, out + bytes, &m,
                               &own) == TUTTI_ERR_CORRUPT);
            CHECK(strstr(own.text, k == 0 ? "not what worker 1 sent" : "not what worker 0 sent") != NULL &&
                  strstr(own.text, i == 0 ? " bytes of tensor 0 from" : " bytes of tensor 1 from") != NULL);
        }
        free(out);
    }
    close_side(s);
    free(s);
    return status;
}

static void every_bit_flip_in_a_checksummed_message_is_detected(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++) {
        tutti_error err = { .rank = -1 };
        if (tutti_world_run("shm", 1, checked_rank, (void *)(uintptr_t)specs[k], &err) != TUTTI_OK)
            fail_msg("%s: %s", specs[k], err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_message_lengths_are_rejected_with_the_sender),
        cmocka_unit_test(arbitrary_bytes_are_rejected_or_decoded_equally_by_all),
        cmocka_unit_test(every_bit_flip_in_a_checksummed_message_is_detected),
    };
    return cmocka_run_group_tests_name("engine/hostile", tests, NULL, NULL);
}
