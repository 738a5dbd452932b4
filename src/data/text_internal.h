/* text_internal.h: what bpe.c, which implements it, and bpe_train.c share. */
#ifndef TUTTI_TEXT_INTERNAL_H
#define TUTTI_TEXT_INTERNAL_H
#include "data/text.h"

enum { TEXT_WORD_MOST = 64 }; /* bytes of a word */
/* Returns the length of the word (bpe.c) that begins at text[0]: 1 to TEXT_WORD_MOST bytes. bytes:
   rest of the text, above 0. */
size_t tutti_text_word(const uint8_t *text, uint64_t bytes);
/* Makes a bpe of these merges. pairs: [vocabulary - 256], LEFT << 32 | RIGHT; owned by the bpe, and
   freed on failure. path: for messages. TUTTI_ERR_CORRUPT: a merge joins an id that is not made
   before it, is there twice, or makes a token that is too long. */
tutti_status tutti_bpe_make(tutti_bpe **out, uint64_t *pairs, uint32_t vocabulary, const char *path,
                            tutti_error *err);
#endif
