/* checksum.c: codec-checksum=on: each message that a codec makes has a hash in front of it, which
   the receiver checks before anything is decoded. (A library's all-gather of sparse data now and
   then returned garbage.) A decoder refuses what no encoder writes, but most flipped bits of a
   value, a scale or a code give another valid message.

     8 bytes   XXH3-64, little-endian, of: XXH3-64 of the message; its bytes; tensor, first element
               and number of elements of the view; stage; step (gossip: round); the sender

   The hash covers the message's identity since the intact bytes of another step or worker are
   garbage, too: a library that hands out a buffer too soon returns those. It guards against
   damage, not against an adversary.

   Only messages that arrive as they were sent can be checked. What is summed in transit (16-bit
   casts, random-k, PowerSGD) has no single sender when it arrives, and no worker knows the bytes
   it should have. A codec that sends nothing else is refused. For one that also makes messages it
   is reported which part is not checked. From one worker to another (d-psgd) nothing is summed,
   and everything is checked. The transports have checks of their own: tcp hashes each chunk with
   a secret (wire-check), which also covers sums in transit from worker to worker; shm and mpi
   have none. */
#include <stdio.h>
#include <string.h>

#include "exchange_internal.h"
#include "codec/codec.h"

static uint64_t hash_of(const tutti_view *v, int from, const uint8_t *message, size_t bytes)
{
    const uint64_t words[] = {
        tutti_hash(message, bytes), bytes,   (uint64_t)v->tensor, v->first, v->count,
        (uint64_t)v->stage,         v->step, (uint64_t)from
    };
    uint8_t all[sizeof words];

    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (uint8_t)(words[i / 8] >> 8 * (i % 8));
    return tutti_hash(all, sizeof all);
}

void tutti_checksum_put(const tutti_codec *c, const tutti_view *v, int from, const uint8_t *message,
                        size_t bytes, uint8_t *out)
{
    const uint64_t hash = hash_of(v, from, message, bytes);

    for (size_t k = 0; k < TUTTI_CHECKSUM_BYTES; k++)
        out[k] = (uint8_t)(hash >> 8 * k);
    tutti_device_charge(c->space->device, 0, (double)bytes);
}

tutti_status tutti_checksum_check(const tutti_codec *c, const tutti_view *v, int from,
                                  const tutti_codec_message *m, const uint8_t *in, tutti_error *err)
{
    const char *name = c->space->name != NULL ? c->space->name[v->tensor] : "";
    uint8_t wanted[TUTTI_CHECKSUM_BYTES];

    tutti_checksum_put(c, v, from, m->at, m->bytes, wanted);
    if (memcmp(in, wanted, sizeof wanted) == 0)
        return TUTTI_OK;
    return tutti_fail(
        err, TUTTI_ERR_CORRUPT, 0,
        "codec '%s': %zu bytes of tensor %d%s%.80s%s from element %zu on, of step %llu, are not "
        "what worker %d sent: their checksum is another one. Memory, the network or the library "
        "that carries messages has damaged them; resume from the newest checkpoint, and if it "
        "happens again on another machine or transport (tcp checks what it carries, with "
        "wire-check)",
        c->ops->name, m->bytes, v->tensor, name[0] != 0 ? " (" : "", name, name[0] != 0 ? ")" : "",
        v->first, (unsigned long long)v->step, from);
}

static bool is_summed(const tutti_codec *c)
{
    return c->ops->rounds > 0;
}

void tutti_checksum_tell(tutti_engine *e)
{
    const tutti_codec *summed = tutti_exchange_leaf(e->sums.exchange->codec, is_summed);

    if (e->options.codec_checksum && e->m.rank == 0 && summed != NULL)
        tutti_event(&e->m, "codec",
                    "codec-checksum checks the messages of codec '%s' alone: what '%s' sends is "
                    "summed on its way, and no worker knows the bytes that a sum should have",
                    tutti_exchange_leaf(e->sums.exchange->codec, tutti_exchange_is_message)->ops->name,
                    summed->ops->name);
}
