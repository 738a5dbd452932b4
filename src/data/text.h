/* text.h: mapped files, UTF-8, byte-pair encodings, and files of token ids. docs/DATA.md has the
   formats.

   Included by the files of src/data, by the commands that make and use tokens (src/cli), and by
   tests. Implemented in src/data: tokens.c (tutti_contents, tutti_utf8, tutti_tokens), bpe.c,
   bpe_train.c. */
#ifndef TUTTI_TEXT_H
#define TUTTI_TEXT_H
#include "runtime/files.h"
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* The contents of a file, read only: mapped, if the runtime can map files, else a copy. A mapped
   file must not shrink while it is used. A UTF-8 byte order mark (EF BB BF) at the beginning is
   left out. */
typedef struct tutti_contents {
    const uint8_t *at;            /* [bytes] */
    uint64_t bytes;
    tutti_file *file;
} tutti_contents;
tutti_status tutti_contents_open(tutti_contents *c, tutti_runtime *rt, const char *path,
                                 tutti_error *err);
void tutti_contents_close(tutti_contents *c); /* zeroed is allowed */

/* Returns the offset of the first byte that is not part of well-formed UTF-8 (Unicode 15, table
   3-7); `bytes`: there is none. */
uint64_t tutti_utf8_valid(const uint8_t *text, uint64_t bytes);

/* ---- byte-pair encoding (Sennrich et al. 2016, on bytes). Ids 0 to 255 are bytes; id 256 + k is
   the k-th merge, the join of two earlier ids. Merges stay inside words (src/data/bpe.c defines
   them), so a text is encoded word by word. Any bytes can be encoded, and decoding restores them
   exactly. ---- */
typedef struct tutti_bpe tutti_bpe;
enum { TUTTI_BPE_VOCABULARY_MOST = 1 << 20 };

/* Learns `vocabulary` - 256 merges from a text. Each joins the pair of ids that is most frequent,
   of equally frequent ones the lowest. TUTTI_ERR_USAGE: too few pairs occur twice; the sentence has
   the largest vocabulary that is possible. Deterministic. */
tutti_status tutti_bpe_train(tutti_bpe **out, const uint8_t *text, uint64_t bytes,
                             uint32_t vocabulary, tutti_error *err);
/* Reads an encoding from its file. */
tutti_status tutti_bpe_read(tutti_bpe **out, tutti_runtime *rt, const char *path,
                            tutti_error *err);
/* Writes an encoding to a file, which must not exist. */
tutti_status tutti_bpe_write(const tutti_bpe *bpe, tutti_runtime *rt, const char *path,
                             tutti_error *err);
/* Does what tutti_bpe_read does with a file in memory, for the fuzz target. path: for messages. */
tutti_status tutti_bpe_parse(tutti_bpe **out, const char *path, const uint8_t *file, size_t bytes,
                             tutti_error *err);
void tutti_bpe_close(tutti_bpe *bpe);
uint32_t tutti_bpe_vocabulary(const tutti_bpe *bpe);
uint64_t tutti_bpe_hash(const tutti_bpe *bpe); /* of its merges */

/* Returns the bytes of an id below the vocabulary, *bytes of them. They live as long as bpe. */
const uint8_t *tutti_bpe_bytes(const tutti_bpe *bpe, uint32_t id, size_t *bytes);

/* Encodes a text. ids: space for `bytes` ids, and sets *count to their number. Several threads may
   use one bpe at the same time. Allocates a cache of words. */
tutti_status tutti_bpe_encode(const tutti_bpe *bpe, const uint8_t *text, uint64_t bytes,
                              uint32_t *ids, uint64_t *count, tutti_error *err);

/* Writes the text of ids, each below the vocabulary, as far as it fits into `capacity` bytes.
   Returns how many bytes the whole text has. */
uint64_t tutti_bpe_decode(const tutti_bpe *bpe, const uint32_t *ids, uint64_t count, uint8_t *text,
                          uint64_t capacity);

/* ---- token files: a header of 64 bytes, then ids of 2 or 4 bytes, little-endian ---- */
typedef struct tutti_tokens {
    const void *ids;              /* [count]: uint16_t or uint32_t */
    int id_bytes;                 /* of an id: 2, 4 */
    uint64_t count;
    uint32_t vocabulary;          /* every id is below it */
    uint64_t made_by;             /* tutti_bpe_hash of the encoding; 0: ids are bytes */
    uint64_t hash;                /* of the ids */
    tutti_contents contents;
} tutti_tokens;

/* Maps the file and checks its header against its size. Reads no ids. */
tutti_status tutti_tokens_open(tutti_tokens *t, tutti_runtime *rt, const char *path,
                               tutti_error *err);
/* Reads all ids. TUTTI_ERR_CORRUPT: their hash differs, or an id is beyond the vocabulary. */
tutti_status tutti_tokens_verify(const tutti_tokens *t, const char *path, tutti_error *err);
void tutti_tokens_close(tutti_tokens *t); /* zeroed is allowed */

/* Does what tutti_tokens_open does with a file in memory, aligned to 8 bytes, which must outlive t.
   For the fuzz target. */
tutti_status tutti_tokens_parse(tutti_tokens *t, const char *path, const uint8_t *file,
                                uint64_t bytes, tutti_error *err);

/* [count] ids, each below `vocabulary`. */
typedef struct tutti_token_ids {
    const uint32_t *ids;
    uint64_t count;
    uint32_t vocabulary;
} tutti_token_ids;
/* Writes a file, which must not exist, with 2 bytes per id if the vocabulary allows it, else 4. */
tutti_status tutti_tokens_write(tutti_runtime *rt, const char *path, const tutti_token_ids *of,
                                uint64_t made_by, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
