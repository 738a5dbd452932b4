/* text_internal.h: what the files about texts share. */
#ifndef TUTTI_TEXT_INTERNAL_H
#define TUTTI_TEXT_INTERNAL_H
#include "data/text.h"

enum { TEXT_WORD_MOST = 64 };
/* Bytes of the word that begins at text[0]: at least 1, at most TEXT_WORD_MOST; bytes > 0:
   what is left of the text (bpe.c). */
size_t tutti_text_word(const uint8_t *text, uint64_t bytes);
/* A bpe of these merges, which it takes also on failure. Merges that join what is not there yet,
   twice the same or too much: TUTTI_ERR_CORRUPT. */
tutti_status tutti_bpe_make(tutti_bpe **out, uint64_t *pairs, uint32_t vocabulary, const char *path,
                            tutti_error *err);
#endif
