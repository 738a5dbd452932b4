/* sign-vote.c: codec sign-vote: the sign of each element, and the majority of the signs that all
   workers send. Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD: Compressed Optimisation
   for Non-Convex Problems", ICML 2018, arXiv 1802.04434; Bernstein, Zhao, Azizzadenesheli,
   Anandkumar, "signSGD with Majority Vote is Communication Efficient and Fault Tolerant", ICLR
   2019, arXiv 1810.05291.

     message:               sgn(x)
     mean of the messages:  (votes for + less votes for -) / W
     what comes out:        sgn of that, so 1 or -1 whatever x was: the learning rate is the step of
                            every weight

   The sign of 0 is +, both of an element and of a sum of votes. So a tie of an even number of
   workers counts as +, and a weight whose gradient is always 0 is reduced by the learning rate in
   every step. (This is so in signSGD itself: a bit has no third value.)

   The route of votes, all-gather or owners of shards, does not change them: an owner's second
   message is the sign of a mean, which is the vote. A vote has no size, so no residual can
   correct what it loses, and wrappers that feed back refuse it. Nor is it a mean of anything, so
   a model's displacement or a single worker's message cannot use it.

   A message has floor(n / 8) + 1 bytes: n bits (1: negative) and one more, which is 1 if a number
   of the view is not finite; then all elements decode to NaN. That bit takes a byte of its own only
   if n is a multiple of 8. */
#include "codec_internal.h"
#include "registry.h"
#include "kernels/codes.h"

enum { RUN = 2048 }; /* elements at once; two runs share no byte of bits */
static const tutti_option options[] = { { 0 } };

static unsigned sign_vote_traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_FIXED | TUTTI_CODEC_VOTES;
}

static size_t sign_vote_bound(const tutti_codec *c, const tutti_view *v)
{
    (void)c;
    return v->count == 0 ? 0 : v->count / 8 + 1;
}

static size_t sign_vote_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                               uint8_t *out)
{
    const size_t n = v->count;

    (void)scratch;
    if (n == 0)
        return 0;
    if (n % 8 == 0)
        out[n / 8] = 0;
    /* fewer than 2^31 magnitudes of floats, in double: only what is not finite itself makes their
       sum so */
    if (!isfinite(tutti_signs(c->space->device, n, x, false, out)))
        out[n / 8] |= (uint8_t)(1u << n % 8);
    return n / 8 + 1;
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                               float a, float *y, tutti_error *err)
{
    const size_t n = v->count;

    if (bytes != sign_vote_bound(c, v))
        return tutti_codec_wrong_size(c, v, bytes, sign_vote_bound(c, v), err);
    if (n == 0)
        return TUTTI_OK;
    if (in[n / 8] >> n % 8 > 1)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec 'sign-vote': bits are set behind the last of %zu elements; the "
                          "message was damaged or is another codec's", n);
    tutti_signs_add(c->space->device, n, in, in[n / 8] >> n % 8 == 1 ? NAN : a, y);
    return TUTTI_OK;
}

static void after(tutti_codec *c, const tutti_view *v, float *y)
{
    tutti_device *d = c->space->device;
    uint8_t bits[RUN / 8];

    for (size_t at = 0, n; at < v->count; at += n) {
        /* as signs and back, while they are in the first cache */
        n = v->count - at < RUN ? v->count - at : RUN;
        if (isnan(tutti_signs(d, n, y + at, false, bits)))
            for (size_t i = at; i < at + n; i++)
                y[i] = y[i] < 0 ? -1.0f : y[i] >= 0 ? 1.0f : NAN;
        else {
            tutti_fill(d, n, 0, y + at);
            tutti_signs_add(d, n, bits, 1, y + at);
        }
    }
}

const tutti_codec_ops tutti_codec_sign_vote = {
    .name = "sign-vote",
    .paper = "Bernstein et al., ICML 2018, ICLR 2019",
    .help = "one bit an element, and the majority of the workers' instead of a mean",
    .options = options,
    .traits = sign_vote_traits,
    .bound = sign_vote_bound,
    .encode = sign_vote_encode,
    .decode_add = decode_add,
    .after = after,
};
