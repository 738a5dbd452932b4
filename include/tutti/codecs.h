/* codecs.h: the list of codecs, for help and front ends. Their specs go into engine_options.codec
   ("ef(topk(ratio=0.01))"). To write a codec see codec.h. */
#ifndef TUTTI_CODECS_H
#define TUTTI_CODECS_H
#include "options.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Constant strings. form: "summed" (rounds of numbers that are summed in transit), "message"
   (bytes that only their decoder understands) or "wrapper" (contains other codecs). options: ends
   with {0}. */
typedef struct tutti_codec_about {
    const char *name, *paper, *help, *form;
    const tutti_option *options;
} tutti_codec_about;

/* Codec i; false and zeros beyond the end. */
bool tutti_codec_listed(int i, tutti_codec_about *about);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
