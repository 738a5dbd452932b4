/* point.c: a codec from one worker to another, which decodes a message without any other worker's
   part. It is for messages to neighbours and servers, where a collective would sum or gather.

     1. A codec that makes messages already is one.
     2. Of codecs whose numbers are summed, one with a single round (16-bit casts, random-k) is
        used: with one worker the sum is that worker's numbers, which are the message.
     3. Other codecs have no such message and are refused: PowerSGD, whose second round needs the
        sum of the first over all workers; wrappers that feed back, whose residual belongs to a
        mean; codecs that learn from all workers (TUTTI_CODEC_MERGES); codecs that vote; and those
        whose mean is made of all messages at once (TUTTI_CODEC_JOINT). */
#include "codec_internal.h"
#include "codec.h"

static size_t up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

tutti_status tutti_codec_check_point(const tutti_codec *c, tutti_error *err)
{
    const tutti_codec_ops *ops = c->ops;

    for (size_t i = 0; i < TUTTI_LENGTH(c->inner); i++)
        if (c->inner[i] != NULL)
            TUTTI_TRY(tutti_codec_check_point(c->inner[i], err));
    if ((tutti_codec_traits(c) & TUTTI_CODEC_MERGES) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec '%s' adapts by numbers that are summed over all workers, and from "
                          "one worker to another there is no such sum", ops->name);
    if ((tutti_codec_traits(c) & TUTTI_CODEC_VOTES) != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "codec '%s' makes a vote of what all workers send, and from one worker to another "
            "there is none; take sign, which has a scale",
            ops->name);
    if ((tutti_codec_traits(c) & TUTTI_CODEC_JOINT) != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the mean of codec '%s' is made of all workers' messages at once, and from one worker "
            "to another there is one message only; take mean=all",
            ops->name);
    if (ops->rounds > 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec '%s' sends rounds that are each made of the sum of the one before "
                          "over all workers, so nothing of it can go from one worker to another",
                          ops->name);
    if (ops->before != NULL || ops->account != NULL || ops->after != NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "codec '%s' makes good what is lost of a mean over all workers; from one worker to "
            "another nothing is averaged: give the codec inside of it alone",
            ops->name);
    return TUTTI_OK;
}

size_t tutti_codec_point_bound(const tutti_codec *c, const tutti_view *v)
{
    const tutti_codec *leaf = tutti_codec_chosen((tutti_codec *)(uintptr_t)c, v);

    if (v->count == 0)
        return 0;
    return leaf->ops->rounds == 0
               ? leaf->ops->bound(leaf, v)
               : leaf->ops->width(leaf, v, 0) * tutti_dtype_bytes(tutti_codec_number(leaf, v));
}

/* The codec's own; of a round that is summed also its numbers, aligned, and the decoded
   elements. */
size_t tutti_codec_point_scratch(const tutti_codec *c, const tutti_view *v)
{
    const tutti_codec *leaf = tutti_codec_chosen((tutti_codec *)(uintptr_t)c, v);
    const size_t own = leaf->ops->scratch != NULL ? up(leaf->ops->scratch(leaf, v)) : 0;

    return leaf->ops->rounds == 0
               ? own
               : own + up(tutti_codec_point_bound(leaf, v)) + v->count * sizeof(float);
}

size_t tutti_codec_pack(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                        uint8_t *out)
{
    tutti_codec *leaf = tutti_codec_chosen(c, v);
    const size_t bytes = tutti_codec_point_bound(leaf, v),
                 own = leaf->ops->scratch != NULL ? up(leaf->ops->scratch(leaf, v)) : 0;
    void *wire;

    if (v->count == 0)
        return 0;
    if (leaf->ops->rounds == 0)
        return leaf->ops->encode(leaf, v, x, scratch, out);
    wire = (char *)scratch + own;
    leaf->ops->fold(leaf, v, 0, x, scratch, &wire);
    memcpy(out, wire, bytes);
    return bytes;
}

tutti_status tutti_codec_unpack_add(tutti_codec *c, const tutti_view *v, const uint8_t *in,
                                    size_t bytes, float a, float *y, void *scratch,
                                    tutti_error *err)
{
    tutti_codec *leaf = tutti_codec_chosen(c, v);
    const size_t wanted = tutti_codec_point_bound(leaf, v),
                 own = leaf->ops->scratch != NULL ? up(leaf->ops->scratch(leaf, v)) : 0;
    void *wire = (char *)scratch + own;
    float *decoded = (float *)(void *)((char *)wire + up(wanted));

    if (v->count == 0)
        return bytes == 0 ? TUTTI_OK : tutti_codec_wrong_size(leaf, v, bytes, 0, err);
    if (leaf->ops->rounds == 0)
        return leaf->ops->decode_add(leaf, v, in, bytes, a, y, err);
    if (bytes != wanted)
        return tutti_codec_wrong_size(leaf, v, bytes, wanted, err);
    memcpy(wire, in, bytes);
    leaf->ops->unfold(leaf, v, scratch, &wire, decoded);
    tutti_axpy(c->space->device, v->count, a, decoded, y);
    return TUTTI_OK;
}
