/* huffman.c: the codes of a quantised vector as a canonical Huffman code (Huffman, Proc. IRE 1952)
   of the frequencies in this very message. ALQ derives the code from the fitted distribution
   instead, so that it sends no table. Here each message has the table (half a byte a level: 4 bytes
   for 3-bit codes). So all quantisers can use it, no fit is needed, and but for the table no
   message is longer than with the derived code.

     4 bytes a bucket       scales, as of fixed width
     2^bits half bytes      the lengths of the codes' words, 0 to 12; the lower half of a byte first
     words                  of the codes of all buckets with a scale other than 0 and NaN, one after
                            the other from the lowest bit of a byte on, the highest bit of a word
                            first; the last byte is filled up with 0

   Words are canonical: ascending by length, then by code. One code alone has a word of one bit. A
   code that would be longer than fixed width (lengths are limited to 12) is written as fixed width,
   so that fixed width bounds the size. */
#include "codec_internal.h"
#include "codec.h"
#include "kernels/codes.h"
#include <assert.h>

enum { LONGEST = TUTTI_CODEC_HUFFMAN_LONGEST, SYMBOLS = 256 };

/* One attempt without a limit; gives the greatest length. The two rarest trees become one until
   one is left: leaves by ascending count and the trees made of them are two queues that are both
   in order. */
static int attempt(int n, const int *order, const uint32_t *count, uint8_t *length)
{
    uint64_t weight[2 * SYMBOLS];
    int parent[2 * SYMBOLS], leaf = 0, tree = n, made = n, most = 0;
    uint8_t depth[2 * SYMBOLS];

    for (int k = 0; k < n; k++)
        weight[k] = count[order[k]];
    for (; made < 2 * n - 1; made++) {
        weight[made] = 0;
        for (int two = 0; two < 2; two++) {
            const int it =
                leaf < n && (tree == made || weight[leaf] <= weight[tree]) ? leaf++ : tree++;
            weight[made] += weight[it];
            parent[it] = made;
        }
    }
    depth[made - 1] = 0;
    for (int k = made - 2; k >= 0; k--) {
        depth[k] = (uint8_t)(depth[parent[k]] + 1);
        if (k < n) {
            length[order[k]] = depth[k];
            most = depth[k] > most ? depth[k] : most;
        }
    }
    return most;
}

void tutti_codec_huffman_lengths(int symbols, const uint32_t *count, uint8_t *length)
{
    uint32_t rounded[SYMBOLS];
    int order[SYMBOLS], n = 0;

    assert(symbols <= SYMBOLS);
    memset(length, 0, (size_t)symbols);
    for (int s = 0; s < symbols; s++)
        if ((rounded[s] = count[s]) > 0) {
            int at = n++;
            for (; at > 0 && count[order[at - 1]] > count[s]; at--)
                order[at] = order[at - 1];
            order[at] = s;
        }
    if (n == 1)
        length[order[0]] = 1;
    /* flatter counts keep their order, and end as equal ones */
    while (n > 1 && attempt(n, order, rounded, length) > LONGEST)
        for (int k = 0; k < n; k++)
            rounded[order[k]] = (rounded[order[k]] + 1) / 2;
}

/* Lengths to words, the first bit of a word lowest. false: they are no prefix code, or one with
   words to spare. */
static bool words_of(int symbols, const uint8_t *length, uint16_t *word)
{
    uint32_t next = 0, used = 0, n = 0;

    for (int bits = 1; bits <= LONGEST; bits++, next *= 2)
        for (int s = 0; s < symbols; s++)
            if (length[s] == bits) {
                uint16_t w = 0;
                if (next >= 1u << bits)
                    return false;
                for (int k = 0; k < bits; k++)
                    w |= (uint16_t)((next >> (bits - 1 - k) & 1) << k);
                word[s] = w;
                used += 1u << (LONGEST - bits);
                next++, n++;
            }
    return n == 0 || used == 1u << LONGEST || (n == 1 && used == 1u << (LONGEST - 1));
}

size_t tutti_codec_huffman_bound(const tutti_codec_quantiser *q, size_t n)
{
    return 4 * tutti_codec_buckets(q, n) + (n > 0 ? (size_t)1 << (q->bits - 1) : 0) +
           tutti_packed_bytes((int)q->bits, n);
}

size_t tutti_codec_huffman_encode(const tutti_codec *c, const tutti_codec_quantiser *q,
                                  const tutti_view *v, const float *x, uint8_t *codes, uint8_t *out)
{
    const size_t n = v->count, bucket = (size_t)q->bucket, buckets = tutti_codec_buckets(q, n);
    const int symbols = 1 << q->bits;
    tutti_codec_writer w = { .out = out, .bytes = 4 * buckets };
    uint8_t length[SYMBOLS];
    uint16_t word[SYMBOLS];
    uint32_t count[SYMBOLS] = { 0 };
    uint64_t bits = 0, fixed = 0;

    if (n == 0)
        return 0;
    for (size_t first = 0; first < n; first += bucket) {
        const size_t end = n - first < bucket ? n : first + bucket;
        const float scale = tutti_codec_bucket_scale(c, q, x + first, end - first);
        tutti_codec_put_f32(out + 4 * (first / bucket), scale);
        for (size_t at = first, block; at < end && scale > 0; at += block) {
            block = end - at < TUTTI_CODEC_BLOCK ? end - at : TUTTI_CODEC_BLOCK;
            tutti_codec_bucket_codes(c, q, v, x, at, block, scale, codes + at);
            for (size_t i = at; i < at + block; i++)
                count[codes[i]]++;
        }
    }
    tutti_codec_huffman_lengths(symbols, count, length);
    for (int s = 0; s < symbols; s++) {
        bits += (uint64_t)count[s] * length[s];
        fixed += (uint64_t)count[s] * (uint64_t)q->bits;
    }
    if (bits > fixed)
        memset(length, (int)q->bits, (size_t)symbols);
    words_of(symbols, length, word);
    for (int s = 0; s < symbols; s++)
        tutti_codec_write(&w, length[s], 4);
    for (size_t first = 0; first < n; first += bucket) {
        const size_t end = n - first < bucket ? n : first + bucket;
        for (size_t i = first; i < end && tutti_codec_get_f32(out + 4 * (first / bucket)) > 0; i++)
            tutti_codec_write(&w, word[codes[i]], length[codes[i]]);
    }
    tutti_codec_write_end(&w);
    tutti_device_charge(c->space->device, 4.0 * (double)n, 2.0 * (double)n);
    return w.bytes;
}

/* ---- reading ---- */
typedef struct entry {
    uint8_t code, length;
} entry; /* of the next LONGEST bits; length 0: no word begins so */

/* The next LONGEST bits from bit `at` on, zeros beyond the end. */
static uint32_t peek(const uint8_t *in, size_t bytes, uint64_t at)
{
    uint32_t window = 0;

    for (size_t k = 0, byte = (size_t)(at / 8); k < 3 && byte + k < bytes; k++)
        window |= (uint32_t)in[byte + k] << 8 * k;
    return window >> at % 8 & ((1u << LONGEST) - 1);
}

/* The scales of a message's buckets, its words, and the table by which they are read. */
typedef struct words {
    const uint8_t *scales, *in;
    size_t bytes;
    const entry *table;
} words;

/* Reads the words, and adds the elements to y; y NULL: only checks them. Returns NULL, or what is
   wrong with element *at. *at is n after the last element. */
static const char *walk(const tutti_codec_quantiser *q, size_t n, const words *w, float a, float *y,
                        size_t *at)
{
    const uint8_t *scales = w->scales, *in = w->in;
    const size_t bytes = w->bytes;
    const entry *table = w->table;
    const size_t bucket = (size_t)q->bucket;
    uint64_t bit = 0;
    float value[SYMBOLS];

    for (size_t first = 0; first < n; first += bucket) {
        const size_t end = n - first < bucket ? n : first + bucket;
        const float scale = tutti_codec_get_f32(scales + 4 * (first / bucket));
        for (size_t i = first; i < end && y != NULL && isnan(scale); i++)
            y[i] += scale;
        if (!(scale > 0))
            continue;
        if (y != NULL)
            tutti_codec_bucket_values(q, scale, a, value);
        for (size_t i = first; i < end; i++) {
            const entry e = table[peek(in, bytes, bit)];
            *at = i;
            if (e.length == 0)
                return "no code has that word";
            bit += e.length;
            if (bit > 8 * (uint64_t)bytes)
                return "the message ends before it";
            if (y != NULL)
                y[i] += value[e.code];
        }
    }
    *at = n;
    if (bytes - (size_t)((bit + 7) / 8) > 0)
        return "the message continues after the last one";
    if (bit % 8 != 0 && in[bit / 8] >> bit % 8 != 0)
        return "the last byte is not filled up with zeros";
    return NULL;
}

tutti_status tutti_codec_huffman_decode(const tutti_codec *c, const tutti_view *v,
                                        const tutti_codec_message *m, float a, float *y,
                                        tutti_error *err)
{
    const tutti_codec_quantiser *q = c->self;
    const uint8_t *in = m->at;
    const size_t bytes = m->bytes;
    const size_t n = v->count, scales = 4 * tutti_codec_buckets(q, n),
                 head = scales + (n > 0 ? (size_t)1 << (q->bits - 1) : 0);
    const int symbols = 1 << q->bits;
    entry table[1 << LONGEST] = { { 0 } };
    uint8_t length[SYMBOLS] = { 0 };
    uint16_t word[SYMBOLS] = { 0 };
    const char *wrong;
    size_t at = 0;

    if (bytes < head || (n == 0 && bytes > 0))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec '%s': a message of %zu bytes for the %zu elements from %zu on "
                          "should have %zu%s; do both workers run the same codec with the same "
                          "options?",
                          c->ops->name, bytes, n, v->first, head, n > 0 ? " or more" : "");
    if (n == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_codec_check_scales(c, scales / 4, in, "bucket", err));
    for (int s = 0; s < symbols; s++)
        length[s] = in[scales + (size_t)s / 2] >> 4 * (s % 2) & 15;
    for (int s = 0; s < symbols; s++)
        if (length[s] > LONGEST)
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "codec '%s': the word of code %d has %d bits, and words have %d at most; the "
                "message was damaged or is another codec's",
                c->ops->name, s, length[s], LONGEST);
    for (int s = 0; s < symbols; s++)
        if (length[s] > 0 && !tutti_codec_code_is_valid(q, s))
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "codec '%s': code %d has a word, and its level is beyond the greatest, %d; the "
                "message was damaged or is another codec's",
                c->ops->name, s, tutti_codec_steps(q));
    if (!words_of(symbols, length, word))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec '%s': the lengths of its words are those of no prefix code; the "
                          "message was damaged or is another codec's", c->ops->name);
    for (int s = 0; s < symbols; s++)
        for (uint32_t k = word[s]; length[s] > 0 && k < 1u << LONGEST; k += 1u << length[s])
            table[k] = (entry){ (uint8_t)s, length[s] };
    wrong = walk(q, n, &(words){ in, in + head, bytes - head, table }, a, NULL, &at);
    if (wrong != NULL)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec '%s': element %zu of %zu in a message of %zu bytes: %s; the "
                          "message was damaged or is another codec's",
                          c->ops->name, at < n ? at + 1 : at, n, bytes, wrong);
    walk(q, n, &(words){ in, in + head, bytes - head, table }, a, y, &at);
    tutti_device_charge(c->space->device, 4.0 * (double)n, 10.0 * (double)n);
    return TUTTI_OK;
}
