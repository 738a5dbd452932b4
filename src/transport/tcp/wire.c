/* wire.c: the wire format of the tcp transport (wire.h). BLAKE2b and SipHash are libsodium's. XXH3
   is that of the xxHash package; where the package can dispatch by processor that is used, since a
   build for any x86-64 has SSE2 only. The hashes are the same. */
#include <inttypes.h>
#include <sodium.h>
#include <string.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#define XXH3_64bits_withSeed_dispatch XXH3_64bits_withSeed
#endif
#include "wire.h"

static const uint8_t magic[8] = {
    'T', 'U', 'T', 'T', 'I', 0x0d, 0x0a, 0x1a
}; /* no text protocol begins so */

static void put16(uint8_t *to, uint16_t v) { to[0] = (uint8_t)v; to[1] = (uint8_t)(v >> 8); }
static void put32(uint8_t *to, uint32_t v)
{
    put16(to, (uint16_t)v);
    put16(to + 2, (uint16_t)(v >> 16));
}
static void put64(uint8_t *to, uint64_t v)
{
    put32(to, (uint32_t)v);
    put32(to + 4, (uint32_t)(v >> 32));
}
static uint16_t get16(const uint8_t *from) { return (uint16_t)(from[0] | from[1] << 8); }
static uint32_t get32(const uint8_t *from) { return get16(from) | (uint32_t)get16(from + 2) << 16; }
static uint64_t get64(const uint8_t *from) { return get32(from) | (uint64_t)get32(from + 4) << 32; }

/* ---- MACs ---- */
typedef struct part { const void *at; size_t bytes; } part;

/* Labels keep the uses of one key apart. */
static void keyed(uint8_t *out, size_t bytes, const tutti_run_key *key, const char label[8],
                  part first, part second)
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, key->bytes, sizeof key->bytes, bytes);
    crypto_generichash_update(&state, (const uint8_t *)label, 8);
    crypto_generichash_update(&state, first.at, first.bytes);
    if (second.bytes > 0)
        crypto_generichash_update(&state, second.at, second.bytes);
    crypto_generichash_final(&state, out, bytes);
    sodium_memzero(&state, sizeof state);
}

static bool known(const uint8_t *mac, const tutti_run_key *key, const char label[8], part first,
                  part second)
{
    uint8_t right[TCP_MAC_BYTES];

    keyed(right, sizeof right, key, label, first, second);
    return sodium_memcmp(mac, right, sizeof right) == 0;
}

/* ---- HELLO: magic 8 | low 2 | high 2 | purpose 1 | stream 1 | 0 2 | from 4 | to 4 | size 4 | 0 4
   | id 16 | nonce 32 | 0 16 | MAC 32 ---- */
enum { HELLO_SIGNED = TCP_HELLO_BYTES - TCP_MAC_BYTES };

void tutti_tcp_hello_write(const tcp_hello *h, const tutti_run_key *key,
                           uint8_t out[TCP_HELLO_BYTES])
{
    memset(out, 0, TCP_HELLO_BYTES);
    memcpy(out, magic, sizeof magic);
    put16(out + 8, h->low);
    put16(out + 10, h->high);
    out[12] = (uint8_t)h->purpose;
    out[13] = (uint8_t)h->stream;
    put32(out + 16, (uint32_t)h->from);
    put32(out + 20, (uint32_t)h->to);
    put32(out + 24, (uint32_t)h->size);
    memcpy(out + 32, h->id.bytes, sizeof h->id.bytes);
    memcpy(out + 48, h->nonce, sizeof h->nonce);
    keyed(out + HELLO_SIGNED, TCP_MAC_BYTES, key, "hello   ", (part){ out, HELLO_SIGNED },
          (part){ NULL, 0 });
}

bool tutti_tcp_hello_known(const uint8_t in[TCP_HELLO_BYTES], const tutti_run_key *key)
{
    return memcmp(in, magic, sizeof magic) == 0 &&
           known(in + HELLO_SIGNED, key, "hello   ", (part){ in, HELLO_SIGNED }, (part){ NULL, 0 });
}

static bool rank_in(uint32_t rank, uint32_t size)
{
    return size >= 1 && size <= TCP_RANKS && rank < size;
}

bool tutti_tcp_hello_read(const uint8_t in[TCP_HELLO_BYTES], tcp_hello *out)
{
    const uint32_t from = get32(in + 16), to = get32(in + 20), size = get32(in + 24);

    memset(out, 0, sizeof *out);
    if (memcmp(in, magic, sizeof magic) != 0 || !rank_in(from, size) || !rank_in(to, size))
        return false;
    out->low = get16(in + 8);
    out->high = get16(in + 10);
    out->purpose = in[12];
    out->stream = in[13];
    out->from = (int)from;
    out->to = (int)to;
    out->size = (int)size;
    memcpy(out->id.bytes, in + 32, sizeof out->id.bytes);
    memcpy(out->nonce, in + 48, sizeof out->nonce);
    return out->low <= out->high && out->purpose >= TCP_TO_MEET &&
           out->purpose <= TCP_TO_NODE;
}

/* ---- ANSWER: magic 8 | version 2 | low 2 | high 2 | code 2 | size 4 | 0 12 | nonce 32 | MAC 32
   ---- */
enum { ANSWER_SIGNED = TCP_ANSWER_BYTES - TCP_MAC_BYTES };

void tutti_tcp_answer_write(const tcp_answer *a, const tutti_run_key *key,
                            const uint8_t hello[TCP_HELLO_BYTES], uint8_t out[TCP_ANSWER_BYTES])
{
    memset(out, 0, TCP_ANSWER_BYTES);
    memcpy(out, magic, sizeof magic);
    put16(out + 8, a->version);
    put16(out + 10, a->low);
    put16(out + 12, a->high);
    put16(out + 14, a->code);
    put32(out + 16, (uint32_t)a->size);
    memcpy(out + 32, a->nonce, sizeof a->nonce);
    keyed(out + ANSWER_SIGNED, TCP_MAC_BYTES, key, "answer  ", (part){ hello, TCP_HELLO_BYTES },
          (part){ out, ANSWER_SIGNED });
}

bool tutti_tcp_answer_known(const uint8_t in[TCP_ANSWER_BYTES], const tutti_run_key *key,
                            const uint8_t hello[TCP_HELLO_BYTES])
{
    return known(in + ANSWER_SIGNED, key, "answer  ", (part){ hello, TCP_HELLO_BYTES },
                 (part){ in, ANSWER_SIGNED });
}

bool tutti_tcp_answer_read(const uint8_t in[TCP_ANSWER_BYTES], tcp_answer *out)
{
    const uint32_t size = get32(in + 16);

    memset(out, 0, sizeof *out);
    if (memcmp(in, magic, sizeof magic) != 0 || size < 1 || size > TCP_RANKS ||
        get16(in + 14) > TCP_MISMATCH)
        return false;
    out->version = get16(in + 8);
    out->low = get16(in + 10);
    out->high = get16(in + 12);
    out->code = get16(in + 14);
    out->size = (int)size;
    memcpy(out->nonce, in + 32, sizeof out->nonce);
    return true;
}

void tutti_tcp_proof_write(const tutti_run_key *key, const uint8_t hello[TCP_HELLO_BYTES],
                           const uint8_t answer[TCP_ANSWER_BYTES], uint8_t out[TCP_PROOF_BYTES])
{
    keyed(out, TCP_PROOF_BYTES, key, "proof   ", (part){ hello, TCP_HELLO_BYTES },
          (part){ answer, TCP_ANSWER_BYTES });
}

bool tutti_tcp_proof_known(const uint8_t in[TCP_PROOF_BYTES], const tutti_run_key *key,
                           const uint8_t hello[TCP_HELLO_BYTES],
                           const uint8_t answer[TCP_ANSWER_BYTES])
{
    return known(in, key, "proof   ", (part){ hello, TCP_HELLO_BYTES },
                 (part){ answer, TCP_ANSWER_BYTES });
}

void tutti_tcp_session_make(tcp_session *s, bool caller, const tutti_run_key *key,
                            const uint8_t hello[TCP_HELLO_BYTES],
                            const uint8_t answer[TCP_ANSWER_BYTES])
{
    uint8_t secret[48]; /* caller's key 16 | called's key 16 | caller's seed 8 | called's seed 8 */
    const int mine = caller ? 0 : 1;

    keyed(secret, sizeof secret, key, "session ", (part){ hello, TCP_HELLO_BYTES },
          (part){ answer, TCP_ANSWER_BYTES });
    memcpy(s->send_key, secret + 16 * mine, 16);
    memcpy(s->receive_key, secret + 16 * (1 - mine), 16);
    s->send_seed = get64(secret + 32 + 8 * mine);
    s->receive_seed = get64(secret + 32 + 8 * (1 - mine));
    s->sent = s->received = 0;
    sodium_memzero(secret, sizeof secret);
}

uint16_t tutti_tcp_version(uint16_t low, uint16_t high)
{
    const uint16_t top = high < TCP_VERSION_HIGH ? high : TCP_VERSION_HIGH;

    return top >= low && top >= TCP_VERSION_LOW ? top : 0;
}

/* ---- frames: run 4 | epoch 4 | kind 4 | bytes 4 | tag 8 | send id 8 | message id 8 | header: kind
   4, credit 4, a 8, b 8, ticket 8, bytes 8 | hash 8 | progress 8 | MAC 16 ---- */
uint32_t tutti_tcp_run_short(const tutti_run_id *id)
{
    return get32(id->bytes);
}

void tutti_tcp_frame_write(const tcp_frame *f, const tcp_rules *rules, uint8_t out[TCP_FRAME_BYTES])
{
    put32(out, rules->run);
    put32(out + 4, rules->epoch);
    put32(out + 8, f->kind);
    put32(out + 12, f->bytes);
    put64(out + 16, f->tag);
    put64(out + 24, f->send_id);
    put64(out + 32, f->message_id);
    put32(out + 40, f->header.kind);
    put32(out + 44, f->credit);
    put64(out + 48, (uint64_t)f->header.a);
    put64(out + 56, (uint64_t)f->header.b);
    put64(out + 64, f->header.ticket);
    put64(out + 72, f->header.bytes);
    put64(out + 80, f->hash);
    put64(out + 88, f->progress);
    memset(out + TCP_SEAL_OFFSET, 0, TCP_FRAME_BYTES - TCP_SEAL_OFFSET);
}

/* The most payload a frame of this kind may have. */
static uint32_t most_of(uint32_t kind, const tcp_rules *rules)
{
    switch ((tcp_kind)kind) {
    case TCP_ANNOUNCE: return rules->eager_most;
    case TCP_DATA: return rules->chunk_most;
    case TCP_DEPART: case TCP_SHUT: case TCP_VIEW: return TCP_REASON_BYTES;
    case TCP_JOIN: return TCP_ENTRY_BYTES;
    case TCP_TABLE: return rules->table_bytes;
    case TCP_NOTE: return rules->note_most;
    default: return 0;
    }
}

int64_t tutti_tcp_reported_late(const tcp_frame *f)
{
    const uint64_t most = UINT64_C(3600) * 1000000000;

    return (int64_t)(f->tag < most ? f->tag : most);
}

tutti_status tutti_tcp_frame_read(const uint8_t in[TCP_FRAME_BYTES], const tcp_rules *rules,
                                  tcp_frame *out, tutti_error *err)
{
    const uint32_t run = get32(in), epoch = get32(in + 4);
    const tcp_frame f = {
        .kind = get32(in + 8),
        .bytes = get32(in + 12),
        .epoch = epoch,
        .credit = get32(in + 44),
        .tag = get64(in + 16),
        .send_id = get64(in + 24),
        .message_id = get64(in + 32),
        .hash = get64(in + 80),
        .progress = get64(in + 88),
        .header = { .from = -1,
                    .kind = get32(in + 40),
                    .a = (int64_t)get64(in + 48),
                    .b = (int64_t)get64(in + 56),
                    .ticket = get64(in + 64),
                    .bytes = get64(in + 72) },
    };

    memset(out, 0, sizeof *out);
    if (run != rules->run || epoch > rules->epoch_most)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a frame of run %08" PRIx32 ", epoch %" PRIu32 " came in run %08" PRIx32
                          ", whose epochs are 0 to %" PRIu32,
                          run, epoch, rules->run, rules->epoch_most);
    if (f.kind == TCP_NOTHING || f.kind >= TCP_KINDS)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a frame of kind %" PRIu32 " came; there are kinds 1 to %d", f.kind,
                          TCP_KINDS - 1);
    if (f.bytes > most_of(f.kind, rules))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a frame of kind %" PRIu32 " came with %" PRIu32
                          " bytes; it may have %" PRIu32,
                          f.kind, f.bytes, most_of(f.kind, rules));
    if (f.kind == TCP_ANNOUNCE && f.bytes > 0 && f.header.bytes != f.bytes)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a message of %" PRIu64 " bytes came with %" PRIu32 " of them",
                          f.header.bytes, f.bytes);
    if ((f.kind == TCP_DATA && f.bytes == 0) ||
        (f.kind == TCP_JOIN && f.bytes != TCP_ENTRY_BYTES) ||
        (f.kind == TCP_TABLE && f.bytes != rules->table_bytes))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a frame of kind %" PRIu32 " came with only %" PRIu32 " bytes", f.kind,
                          f.bytes);
    *out = f;
    return TUTTI_OK;
}

static void sign(const uint8_t key[16], uint64_t number, const uint8_t header[TCP_FRAME_BYTES],
                 uint8_t mac[16])
{
    uint8_t text[TCP_SEAL_OFFSET + 8];

    memcpy(text, header, TCP_SEAL_OFFSET);
    put64(text + TCP_SEAL_OFFSET, number);
    crypto_shorthash_siphashx24(mac, text, sizeof text, key);
}

void tutti_tcp_seal(tcp_session *s, uint8_t header[TCP_FRAME_BYTES])
{
    sign(s->send_key, s->sent++, header, header + TCP_SEAL_OFFSET);
}

bool tutti_tcp_sealed(tcp_session *s, const uint8_t header[TCP_FRAME_BYTES])
{
    uint8_t right[16];

    sign(s->receive_key, s->received++, header, right);
    return sodium_memcmp(right, header + TCP_SEAL_OFFSET, sizeof right) == 0;
}

uint64_t tutti_tcp_hash_data(uint64_t seed, const void *data, size_t bytes)
{
    return XXH3_64bits_withSeed_dispatch(data, bytes, seed);
}

uint64_t tutti_tcp_hash_control(const uint8_t key[16], const void *data, size_t bytes)
{
    uint8_t out[crypto_generichash_BYTES_MIN];

    crypto_generichash(out, sizeof out, data, bytes, key, 16);
    return get64(out);
}

/* ---- the table: rank 4 | pid 4 | cores 4 | scope 4 | family 1, 0 1, port 2, node + 1 4 | address
   16 | host 16 | local 16 | 0 8 | 0 16 | host name 64 ---- */
void tutti_tcp_entry_write(const tcp_entry *e, uint8_t out[TCP_ENTRY_BYTES])
{
    memset(out, 0, TCP_ENTRY_BYTES);
    put32(out, (uint32_t)e->rank);
    put32(out + 4, e->pid);
    put32(out + 8, e->cores);
    put32(out + 12, e->scope);
    out[16] = (uint8_t)e->family;
    put16(out + 18, e->port);
    put32(out + 20, (uint32_t)e->node + 1);
    memcpy(out + 24, e->address, 16);
    memcpy(out + 40, e->host, 16);
    memcpy(out + 56, e->local, 16);
    memcpy(out + 96, e->host_name, 64);
}

static bool text_in(const uint8_t *in, size_t room)
{
    for (size_t i = 0; i < room; i++) {
        if (in[i] == 0)
            return true;
        if (in[i] <= ' ' || in[i] > '~')
            return false;
    }
    return false;
}

bool tutti_tcp_entry_read(const uint8_t in[TCP_ENTRY_BYTES], tcp_entry *out)
{
    memset(out, 0, sizeof *out);
    if (get32(in) >= TCP_RANKS || (in[16] != 0 && in[16] != 4 && in[16] != 6) ||
        !text_in(in + 56, 16) || !text_in(in + 96, 64) || get32(in + 20) > INT32_MAX)
        return false;
    out->rank = (int)get32(in);
    out->pid = get32(in + 4);
    out->cores = get32(in + 8);
    out->scope = get32(in + 12);
    out->family = in[16];
    out->port = get16(in + 18);
    out->node = (int)get32(in + 20) - 1;
    memcpy(out->address, in + 24, 16);
    memcpy(out->host, in + 40, 16);
    strcpy(out->local, (const char *)in + 56);
    strcpy(out->host_name, (const char *)in + 96);
    return true;
}
