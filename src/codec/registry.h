/* registry.h: the tables of the built-in codecs, each defined in the file of its name. Included by
   registry.c, which lists them, and by codecs that use another one. */
#ifndef TUTTI_CODEC_REGISTRY_H
#define TUTTI_CODEC_REGISTRY_H
#include <tutti/codec.h>

extern const tutti_codec_ops tutti_codec_fp32, tutti_codec_large, tutti_codec_fp16,
    tutti_codec_bf16, tutti_codec_trunc16, tutti_codec_int8, tutti_codec_minmax8, tutti_codec_qsgd,
    tutti_codec_nuqsgd, tutti_codec_alq, tutti_codec_amq, tutti_codec_sign, tutti_codec_onebit,
    tutti_codec_onebit_col, tutti_codec_sign_vote, tutti_codec_topk, tutti_codec_threshold,
    tutti_codec_randomk, tutti_codec_wangni, tutti_codec_powersgd, tutti_codec_ef, tutti_codec_ef21,
    tutti_codec_dgc, tutti_codec_accordion, tutti_codec_dct, tutti_codec_chunk_topk,
    tutti_codec_e3m0;
#endif
