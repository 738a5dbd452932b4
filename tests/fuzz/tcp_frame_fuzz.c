/* Any bytes as a frame's header. The first two bytes choose the rules, so that run and epoch often
   agree. What is taken obeys the rules and is written back the same; a departure and a view are
   read from the rest as their words. And no header is taken for a sealed one unless it was
   sealed. */
#include <stdlib.h>
#include <string.h>
#include "../../src/transport/tcp/tcp_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static uint32_t word_at(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void keep_rules(const tcp_frame *f, const tcp_rules *rules, const uint8_t *in)
{
    tcp_rules writer = *rules;
    uint8_t out[TCP_FRAME_BYTES];

    require(f->epoch <= rules->epoch_most);
    writer.epoch = f->epoch;
    require(f->kind > TCP_NOTHING && f->kind < TCP_KINDS);
    require(f->bytes <= TCP_CHUNK_MOST || f->bytes <= rules->table_bytes);
    require(f->kind != TCP_ANNOUNCE ||
            (f->bytes <= rules->eager_most && (f->bytes == 0 || f->bytes == f->header.bytes)));
    require(f->kind != TCP_NOTE || f->bytes <= rules->note_most);
    require(f->kind != TCP_DATA || (f->bytes > 0 && f->bytes <= rules->chunk_most));
    tutti_tcp_frame_write(f, &writer, out);
    require(memcmp(out, in, TCP_SEAL_OFFSET) == 0);
}

static void be_sealed(const uint8_t *in)
{
    tcp_session sender = { .send_key = "0123456789abcde", .receive_key = "fedcba987654321" }, receiver = sender;
    uint8_t out[TCP_FRAME_BYTES];

    memcpy(receiver.receive_key, sender.send_key, sizeof receiver.receive_key);
    memcpy(out, in, sizeof out);
    tutti_tcp_seal(&sender, out);
    require(tutti_tcp_sealed(&receiver, out));
    require(!tutti_tcp_sealed(&receiver, out)); /* the same one again has another number */
    receiver.received = 0;
    out[in[0] % TCP_FRAME_BYTES] ^= (uint8_t)(1 << in[1] % 8);
    require(!tutti_tcp_sealed(&receiver, out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tcp_rules rules = {
        .run = 1, .epoch_most = 0, .eager_most = 16384, .chunk_most = 262144, .table_bytes = 4 * TCP_ENTRY_BYTES
    };
    uint8_t payload[TCP_REASON_BYTES] = { 0 };
    tcp_departure d;
    tcp_view v;
    tutti_error err;
    tcp_frame f;

    if (size < 1 + TCP_FRAME_BYTES)
        return 0;
    if (data[0] & 1)
        rules.run = word_at(data + 1);
    if (data[0] & 2)
        rules.epoch_most = word_at(data + 5);
    if (data[0] & 8)
        rules.note_most = 80 << 10;
    if (data[0] & 4)
        rules.eager_most = rules.chunk_most = 256;
    if (tutti_tcp_frame_read(data + 1, &rules, &f, &err) != TUTTI_OK) {
        require(err.text[0] != '\0' && f.kind == TCP_NOTHING);
    } else {
        keep_rules(&f, &rules, data + 1);
        if (f.kind == TCP_DEPART || f.kind == TCP_VIEW) {
            const size_t left = size - 1 - TCP_FRAME_BYTES;
            memcpy(payload, data + 1 + TCP_FRAME_BYTES, left < sizeof payload ? left : sizeof payload);
            if (tutti_tcp_view_read(&f, payload, 4, &v))
                require(v.rank >= 0 && v.rank < 4 && v.opinion >= TCP_NOT_RECEIVING && v.opinion <= TCP_EXPELS &&
                        strlen(v.reason) <= f.bytes);
            if (tutti_tcp_departure_read(&f, payload, 4, &d))
                require(d.rank >= 0 && d.rank < 4 && d.blame >= -1 && d.blame < 4 && d.state >= TUTTI_MEET_LEFT &&
                        strlen(d.reason) <= f.bytes);
        }
    }
    be_sealed(data + 1);
    return 0;
}
