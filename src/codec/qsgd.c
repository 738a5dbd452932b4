/* qsgd.c: codec qsgd: |x| / N rounded at random to one of s + 1 even levels so that the expectation is x; N is the bucket's 2-norm or greatest
   magnitude. Alistarh, Grubic, Li, Tomioka and Vojnovic, NeurIPS 2017. `bits` counts the sign: s = 2^(bits-1) - 1 (the paper counts 2^b levels).
   Fixed width: n bits / 8 + 4 ceil(n / bucket) bytes; Elias codes (elias.c) vary and pay where most levels are 0, Huffman's (huffman.c) wherever some
   levels are more frequent than others. */
#include "codec_internal.h"
#include "registry.h"

static const tutti_option options[] = { TUTTI_CODEC_QUANTISER_OPTIONS(4, 2, 512, 0, TUTTI_CODEC_CODINGS), { 0 } };

const tutti_codec_ops tutti_codec_qsgd = {
    .name = "qsgd", .paper = "Alistarh et al., NeurIPS 2017", .help = "even levels of a bucket's scale, rounded at random: unbiased",
    .options = options, .self_bytes = sizeof(tutti_codec_quantiser), .traits = tutti_codec_quantised_traits, .check = tutti_codec_quantised_check, TUTTI_CODEC_QUANTISED,
};
