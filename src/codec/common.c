/* common.c: functions that codecs share: names of their states, random numbers, sizes, and a check
   of which codecs may be inside one that feeds losses back. They call no codec, so every codec may
   call them. */
#include "codec_internal.h"
#include "kernels/codes.h"
#include "state/plan.h"
#include <assert.h>
#include <stdio.h>

/* Bits of the upper half: apart from the streams that others number from 0. */
#define STREAM_WORKER 0x436F646500000000u
#define STREAM_SHARED 0x436F647300000000u
#define STREAM_STAGE  0x0000000080000000u

/* All codecs inside a wrapper that only chooses (large, accordion) must qualify. */
static tutti_status check_fed(const tutti_codec *c, const tutti_codec *inner, unsigned needed,
                              tutti_error *err)
{
    const unsigned traits = inner->ops->traits(inner);

    if (inner->ops->choose != NULL && inner->ops->before == NULL) {
        for (size_t i = 0; i < TUTTI_LENGTH(inner->inner); i++)
            if (inner->inner[i] != NULL)
                TUTTI_TRY(check_fed(c, inner->inner[i], needed, err));
        return TUTTI_OK;
    }
    if (inner->ops->before != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s inside of it feeds back by itself, and a loss is made good once; "
                          "give %s the codec itself", inner->ops->name, c->ops->name);
    if ((traits & TUTTI_CODEC_VOTES) != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s makes a vote of what is sent, and of a vote nothing can be made good; use it "
            "without %s, or take sign, which has a scale",
            inner->ops->name, c->ops->name);
    if ((traits & (TUTTI_CODEC_UNBIASED | TUTTI_CODEC_CONTRACTIVE)) == TUTTI_CODEC_UNBIASED)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s is unbiased and may lose more than it was given, so that a residual "
                          "can grow without end; use it without %s, or with a codec that loses "
                          "less than it was given, such as topk, sign or powersgd",
                          inner->ops->name, c->ops->name);
    if ((traits & needed) != needed)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s may lose as much as it was given, and %s converges with codecs that always keep a "
            "part, such as topk, sign or powersgd",
            inner->ops->name, c->ops->name);
    return TUTTI_OK;
}

tutti_status tutti_codec_check_fed(const tutti_codec *c, unsigned needed, tutti_error *err)
{
    return check_fed(c, c->inner[0], needed, err);
}

tutti_rng tutti_codec_rng(const tutti_codec *c, const tutti_view *v, bool shared)
{
    const uint64_t stream = shared ? STREAM_SHARED : STREAM_WORKER | (uint64_t)c->space->rank;

    return (tutti_rng){ c->space->seed, stream | (v->stage <= 0 ? 0 : STREAM_STAGE), v->step };
}

const uint16_t *tutti_codec_draws(const tutti_codec *c, tutti_rng rng, uint64_t at, size_t count,
                                  uint16_t room[TUTTI_CODEC_DRAWS])
{
    const size_t skip = at % TUTTI_DRAWS;

    assert(count <= TUTTI_CODEC_BLOCK);
    tutti_draws(c->space->device, rng, at / TUTTI_DRAWS,
                (skip + count + TUTTI_DRAWS - 1) / TUTTI_DRAWS, room);
    return room + skip;
}

uint32_t tutti_codec_word(const tutti_codec *c, tutti_codec_words *held, uint64_t at)
{
    const uint64_t group = at / (TUTTI_DRAWS / 2);
    const size_t i = 2 * (size_t)(at % (TUTTI_DRAWS / 2));

    if (held->group != group) {
        tutti_draws(c->space->device, held->rng, group, 1, held->draws);
        held->group = group;
    }
    return held->draws[i] | (uint32_t)held->draws[i + 1] << 16;
}

void tutti_codec_declare_vector(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                                float **slot)
{
    char full[sizeof c->prefix + 32];

    snprintf(full, sizeof full, "%s.%s", c->prefix, name);
    tutti_declare_vector(plan, full, keep, slot);
}

void tutti_codec_declare_own(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                             tutti_codec_own *own)
{
    const tutti_plan_shares *shares = tutti_plan_shares_of(plan);
    char full[sizeof c->prefix + 32];

    if (shares == NULL) {
        own->count = c->space->n;
        tutti_codec_declare_vector(c, plan, name, keep, &own->at);
        return;
    }
    snprintf(full, sizeof full, "%s.%s.shares", c->prefix, name);
    own->stride = shares->elements;
    own->count = (size_t)shares->mine * shares->elements;
    tutti_declare_of_shares(
        plan, &(tutti_state){ .name = full, .dtype = TUTTI_F32, .count = shares->elements },
        &own->at);
}

void tutti_codec_declare_floats(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                                size_t count, float **slot)
{
    char full[sizeof c->prefix + 32];
    const tutti_state state = { .name = full, .keep = keep, .dtype = TUTTI_F32, .count = count };

    snprintf(full, sizeof full, "%s.%s", c->prefix, name);
    tutti_declare(plan, &state, slot);
}

void tutti_codec_declare_bytes(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                               size_t count, uint8_t **slot)
{
    char full[sizeof c->prefix + 32];
    const tutti_state state = { .name = full, .keep = keep, .dtype = TUTTI_U8, .count = count };

    snprintf(full, sizeof full, "%s.%s", c->prefix, name);
    tutti_declare(plan, &state, slot);
}

void tutti_codec_declare_value(tutti_codec *c, tutti_plan *plan, const char *name, tutti_keep keep,
                               void *value, size_t bytes)
{
    char full[sizeof c->prefix + 32];

    snprintf(full, sizeof full, "%s.%s", c->prefix, name);
    tutti_declare_value(plan, full, keep, value, bytes);
}

size_t tutti_codec_fraction(double ratio, size_t n)
{
    const double k = ceil(ratio * (double)n * (1 - 1e-12));

    return n == 0 ? 0 : k < 1 ? 1 : k > (double)n ? n : (size_t)k;
}

tutti_status tutti_codec_wrong_size(const tutti_codec *c, const tutti_view *v, size_t bytes,
                                    size_t wanted, tutti_error *err)
{
    return tutti_fail(
        err, TUTTI_ERR_CORRUPT, 0,
        "codec '%s': a message of %zu bytes for the %zu elements from %zu on should have %zu; do "
        "both workers run the same codec with the same options?",
        c->ops->name, bytes, v->count, v->first, wanted);
}
