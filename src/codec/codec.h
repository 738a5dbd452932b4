/* codec.h: a codec in use, as the engine and the facilities call it. Code outside of the library
   encodes by a relay (codec.h). Implemented by codec.c, registry.c and point.c. */
#ifndef TUTTI_CODEC_CODEC_H
#define TUTTI_CODEC_CODEC_H
#include "tutti/codec.h"
#pragma GCC visibility push(default)

extern const tutti_codec_ops *const tutti_codecs[]; /* registry; NULL-ended */

/* ---- a codec in use ---- */

/* Within a declare(): opens `spec` ("ef(topk(ratio=0.01))") with its inner codecs and declares
   their states as "<prefix>...". Keeps `space`. */
tutti_status tutti_codec_declare(tutti_codec **out, tutti_plan *plan, const char *spec,
                                 const char *prefix, const tutti_codec_space *space,
                                 tutti_error *err);

/* Call once the plan is carried out: sets the initial state. */
void tutti_codec_open(tutti_codec *c);

/* Called before the first view of every step, by the exchange, on all workers: `begin` of the
   inner codecs and of c, with the sums that they request. Few steps request any. Fails where
   m->sum does, and with TUTTI_ERR_CORRUPT where a loaded state is invalid. */
tutti_status tutti_codec_begin(tutti_codec *c, const tutti_codec_moment *m, tutti_error *err);

/* That step is skipped. Called by the exchange, after it has restored all declared states to what
   they were after tutti_codec_begin. */
void tutti_codec_left_out(tutti_codec *c, uint64_t step);
void tutti_codec_close(tutti_codec *c);

/* A codec and the wrappers around it as one; c need not be a wrapper. The engine's exchange makes
   the same calls for all tensors of a piece at once.

   chosen: the codec that encodes this view now. before: what to encode instead of x, which is
   finite, applying wrappers from the outermost to the innermost. */
tutti_codec *tutti_codec_chosen(tutti_codec *c, const tutti_view *v);
const float *tutti_codec_before(tutti_codec *c, const tutti_view *v, const float *x);

/* tutti_codec_before, and round 0 of fold of the chosen codec, which is linear. Where both can
   work on parts they are called part by part, so that the wrappers' result goes through memory
   once. Returns the vector for the other rounds of fold. */
const float *tutti_codec_fold_first(tutti_codec *c, const tutti_view *v, const float *x,
                                    void *scratch, void *const *wire);

/* Informs wrappers of what this worker has sent of a view, by their `account` and `marks` (at
   most one of nested wrappers accounts). sent: the message in[0, bytes); TUTTI_ERR_CORRUPT: it is
   no message of this view. sent_rounds: the rounds on `wire`, computed from x. Only for a vector
   that was obtained by tutti_codec_before, and not where the decoded mean is not finite. */
tutti_status tutti_codec_sent(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                              tutti_error *err);
void tutti_codec_sent_rounds(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                             void *const *wire);

/* y := the mean of n workers' messages of a view, decoded by codec c (tutti_codec_chosen) and
   added in the fixed order of summation, or what the codec's `mean` makes of them
   (TUTTI_CODEC_JOINT). m: worker 0's; the next is `stride` messages further. sums:
   tutti_codec_mean_levels(n) vectors of view.count elements. *bad: after a failure, the worker
   whose message it was. */
size_t tutti_codec_mean_levels(int n);
tutti_status tutti_codec_mean(tutti_codec *c, const tutti_view *v, const tutti_codec_message *m,
                              size_t stride, int n, float *y, float *sums, int *bad,
                              tutti_error *err);

/* Applies `after` to the decoded mean, from the innermost wrapper to the outermost. */
void tutti_codec_after(tutti_codec *c, const tutti_view *v, float *y);

/* ---- point to point (src/codec/point.c): another worker decodes this worker's message of a
   view, without any other worker's part ---- */

/* TUTTI_ERR_USAGE for codecs that have no such message: more than one summed round (powersgd),
   wrappers that feed back, codecs that learn from all workers. The calls below are only for
   codecs that it accepts. */
tutti_status tutti_codec_check_point(const tutti_codec *c, tutti_error *err);

/* Most bytes of a message; the exact number for a linear codec or with TUTTI_CODEC_FIXED. */
size_t tutti_codec_point_bound(const tutti_codec *c, const tutti_view *v);

/* Bytes of scratch, 64-byte aligned; no contents are kept. */
size_t tutti_codec_point_scratch(const tutti_codec *c, const tutti_view *v);

/* out: point_bound bytes. Returns the bytes written. */
size_t tutti_codec_pack(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                        uint8_t *out);

/* y += a * decoded: the same bits whichever worker decodes it, the sender included. On failure
   (TUTTI_ERR_CORRUPT) y is as it was. */
tutti_status tutti_codec_unpack_add(tutti_codec *c, const tutti_view *v, const uint8_t *in,
                                    size_t bytes, float a, float *y, void *scratch,
                                    tutti_error *err);
#pragma GCC visibility pop
#endif
