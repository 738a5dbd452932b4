/* registry.c: the built-in codecs, a line each. A test compares this list with the tables of the
   folder. */
#include "registry.h"
#include "codec.h"
#include <string.h>
#include <tutti/codec.h>

const tutti_codec_ops *const tutti_codecs[] = {
    &tutti_codec_fp32,
    &tutti_codec_fp16,
    &tutti_codec_bf16,
    &tutti_codec_trunc16,
    &tutti_codec_int8,
    &tutti_codec_minmax8,
    &tutti_codec_qsgd,
    &tutti_codec_nuqsgd,
    &tutti_codec_e3m0,
    &tutti_codec_alq,
    &tutti_codec_amq,
    &tutti_codec_sign,
    &tutti_codec_onebit,
    &tutti_codec_onebit_col,
    &tutti_codec_sign_vote,
    &tutti_codec_topk,
    &tutti_codec_threshold,
    &tutti_codec_randomk,
    &tutti_codec_wangni,
    &tutti_codec_dct,
    &tutti_codec_chunk_topk,
    &tutti_codec_powersgd,
    &tutti_codec_ef,
    &tutti_codec_large,
    &tutti_codec_ef21,
    &tutti_codec_dgc,
    &tutti_codec_accordion,
    NULL
};

const tutti_codec_ops *tutti_codec_find(const char *name)
{
    for (size_t i = 0; tutti_codecs[i] != NULL; i++)
        if (strcmp(tutti_codecs[i]->name, name) == 0)
            return tutti_codecs[i];
    return NULL;
}

bool tutti_codec_listed(int i, tutti_codec_about *about)
{
    const tutti_codec_ops *c = NULL;

    memset(about, 0, sizeof *about);
    if (i >= 0 && (size_t)i < TUTTI_LENGTH(tutti_codecs))
        c = tutti_codecs[i];
    if (c == NULL)
        return false;
    about->name = c->name;
    about->paper = c->paper;
    about->help = c->help;
    about->form = c->choose != NULL ? "wrapper" : c->rounds > 0 ? "summed" : "message";
    about->options = c->options;
    return true;
}
