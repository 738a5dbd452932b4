/* Pieces: scadles while workers send each other samples: what arrives is what was sent, foreign
   and as many as asked; the model is the same on all after every round. */
#include "explore.h"
#include "tutti/tutti.h"
#include "tutti/method.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 4, PART = 24, CLASSES = EXPLORE_RANKS, BYTES = 12, COUNT = 40 };

typedef struct common {
    uint64_t first[EXPLORE_RANKS + 1];
    uint32_t sample[EXPLORE_RANKS * PART];
    float x[ROUNDS][COUNT];      /* of the first that is over with a round */
    bool has[ROUNDS];
} common;

/* A checksum, so that a mix of two messages in one buffer is seen. */
static uint32_t check_of(uint64_t id)
{
    return (uint32_t)(id * 2654435761u + 17);
}

static tutti_status give(void *user, const uint64_t *ids, size_t n, void *out, tutti_error *err)
{
    char *to = out;

    (void)user, (void)err;
    for (size_t k = 0; k < n; k++, to += BYTES) {
        const uint32_t check = check_of(ids[k]);
        memcpy(to, &ids[k], sizeof ids[k]);
        memcpy(to + 8, &check, sizeof check);
    }
    return TUTTI_OK;
}

static int label(void *user, uint64_t id)
{
    (void)user;
    return (int)(id / PART);
}

static tutti_status one_round(tutti_engine *e, common *s, int round, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        const char *come = p.given;
        float sum = 0;
        explore_dawdle(3000000);
        EXPLORE_CHECK(p.received == (m->workers > 1 ? (m->workers + 1) / 2 * ((p.samples - p.received) / 2) : 0));
        for (int64_t k = 0; k < p.received; k++, come += BYTES) {
            uint64_t id;
            uint32_t check;
            memcpy(&id, come, sizeof id);
            memcpy(&check, come + 8, sizeof check);
            EXPLORE_CHECK(check == check_of(id) && label(NULL, id) < m->workers && label(NULL, id) != m->rank);
            sum += (float)(id % 8);
        }
        for (int i = 0; i < COUNT; i++)
            m->g[i] = sum + (float)(m->rank * i % 5);
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    if (status == TUTTI_CLOSED)
        status = tutti_engine_step(e, err);
    TUTTI_TRY(status);
    if (!s->has[round])
        memcpy(s->x[round], m->x, sizeof s->x[round]);
    s->has[round] = true;
    EXPLORE_CHECK(memcmp(s->x[round], m->x, sizeof s->x[round]) == 0);
    return TUTTI_OK;
}

static tutti_status scadles(tutti_world *world, explore_case *c, tutti_error *err)
{
    common *const s = (common *)(void *)c->shared;
    const tutti_parts parts = { s->first, s->sample };
    const tutti_param param = { .name = "x", .dims = 1, .dim = { COUNT } };
    char method[200];
    tutti_engine_options options = { .method = method, .optimizer = "sgd(lr=0.125)", .batch = 2, .seed = c->seed,
                                     .data_samples = (uint64_t)(c->ranks * PART), .parts = &parts,
                                     .sample_bytes = BYTES, .give = give, .label = label };
    tutti_engine *e = NULL;
    tutti_status status;

    for (uint64_t r = 0; r <= (uint64_t)c->ranks; r++) /* the same, whichever rank writes it */
        s->first[r] = r * PART;
    for (uint32_t i = 0; i < (uint32_t)(c->ranks * PART); i++)
        s->sample[i] = i;
    snprintf(method, sizeof method, "scadles(rates=%d,window_s=0.001,batch_min=1,batch_max=8,inject_alpha=0.5,"
             "inject_beta=0.5,delta=%s%s)", 2000 + 1000 * (int)explore_draw(c, "rate", 4),
             explore_draw(c, "delta", 2) == 0 ? "0.4" : "1",
             explore_draw(c, "clock", 2) == 0 ? ",simulate_clock=on" : "");
    status = tutti_engine_open(&e, world, &param, 1, &options, err);
    for (int k = 0; k < ROUNDS && status == TUTTI_OK; k++)
        status = one_round(e, s, k, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

const explore_piece explore_given_pieces[] = {
    { .name = "scadles",
      .help = "scadles with injection: samples that came are whole, foreign and as many as asked; equal models",
      .least = 2,
      .most = 5,
      .rank_main = scadles },
    { .name = "scadles-dies",
      .help = "a rank is killed while samples are on their way: all others end",
      .least = 2,
      .most = 4,
      .rank_main = scadles,
      .deaths = true,
      .steps = 1500 },
    { 0 }
};
