/* nuqsgd.c: codec nuqsgd: as qsgd with the levels 0, 2^-s, ..., 1/2, 1, fine where normalised gradients crowd. Ramezani-Kebrya, Faghri, Markov,
   Aksenov, Alistarh and Roy, JMLR 22(114), 2021. s + 2 levels and a sign in `bits`: s = 2^(bits-1) - 2. Two bits would be ternary qsgd. */
#include "codec_internal.h"
#include "registry.h"

static const tutti_option options[] = { TUTTI_CODEC_QUANTISER_OPTIONS(4, 3, 512, 1, "fixed|huffman"), { 0 } };

static void declare(tutti_codec *c, tutti_plan *plan)
{
    (void)plan;
    ((tutti_codec_quantiser *)c->self)->grid = TUTTI_CODEC_POWERS;
}

const tutti_codec_ops tutti_codec_nuqsgd = {
    .name = "nuqsgd", .paper = "Ramezani-Kebrya et al., JMLR 22(114), 2021", .help = "levels at powers of two, rounded at random: unbiased",
    .options = options, .self_bytes = sizeof(tutti_codec_quantiser), .traits = tutti_codec_quantised_traits, .check = tutti_codec_quantised_check, .declare = declare,
    TUTTI_CODEC_QUANTISED,
};
