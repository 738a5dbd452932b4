/* Any bytes as what a stranger sends: HELLO, ANSWER, PROOF, and an entry of the table. The first
   byte selects which, and whether the bytes get a right MAC, so that the fuzzer gets past it.
   Without one nothing is known; with one, what is read obeys its bounds and is written back the
   same. */
#include <stdlib.h>
#include <string.h>
#include "../../src/transport/tcp/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const tutti_run_key key = { { 1, 2, 3 } };

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void hello(const uint8_t *data)
{
    uint8_t out[TCP_HELLO_BYTES], again[TCP_HELLO_BYTES];
    tcp_hello h, back;

    require(!tutti_tcp_hello_known(data, &key)); /* no fuzzer guesses 32 bytes */
    if (!tutti_tcp_hello_read(data, &h))
        return;
    require(h.size >= 1 && h.size <= TCP_RANKS && h.from >= 0 && h.from < h.size && h.to >= 0 && h.to < h.size &&
            h.low <= h.high && h.purpose >= TCP_TO_MEET && h.purpose <= TCP_TO_NODE);
    tutti_tcp_hello_write(&h, &key, out);
    require(tutti_tcp_hello_known(out, &key) && tutti_tcp_hello_read(out, &back));
    tutti_tcp_hello_write(&back, &key, again);
    require(memcmp(out, again, sizeof out) == 0);
    require(tutti_tcp_version(h.low, h.high) == 0 ||
            (tutti_tcp_version(h.low, h.high) >= h.low && tutti_tcp_version(h.low, h.high) <= h.high));
}

static void answer(const uint8_t *data)
{
    uint8_t asked[TCP_HELLO_BYTES] = { 0 }, out[TCP_ANSWER_BYTES], proof[TCP_PROOF_BYTES];
    tcp_session caller, called;
    tcp_answer a, back;

    require(!tutti_tcp_answer_known(data, &key, asked));
    if (!tutti_tcp_answer_read(data, &a))
        return;
    require(a.size >= 1 && a.size <= TCP_RANKS && a.code <= TCP_MISMATCH);
    tutti_tcp_answer_write(&a, &key, asked, out);
    require(tutti_tcp_answer_known(out, &key, asked) && tutti_tcp_answer_read(out, &back) && back.size == a.size &&
            back.code == a.code);
    asked[data[0] % TCP_HELLO_BYTES] ^= 1; /* an answer to another question */
    require(!tutti_tcp_answer_known(out, &key, asked));
    require(!tutti_tcp_proof_known(data, &key, asked, out));
    tutti_tcp_proof_write(&key, asked, out, proof);
    require(tutti_tcp_proof_known(proof, &key, asked, out));
    tutti_tcp_session_make(&caller, true, &key, asked, out);
    tutti_tcp_session_make(&called, false, &key, asked, out);
    require(memcmp(caller.send_key, called.receive_key, 16) == 0 &&
            memcmp(caller.receive_key, called.send_key, 16) == 0 &&
            memcmp(caller.send_key, caller.receive_key, 16) != 0);
}

static void entry(const uint8_t *data)
{
    uint8_t out[TCP_ENTRY_BYTES];
    tcp_entry e, back;

    if (!tutti_tcp_entry_read(data, &e))
        return;
    require(e.rank >= 0 && e.rank < TCP_RANKS && strlen(e.local) < sizeof e.local &&
            strlen(e.host_name) < sizeof e.host_name);
    tutti_tcp_entry_write(&e, out);
    require(tutti_tcp_entry_read(out, &back) && back.rank == e.rank && back.port == e.port &&
            strcmp(back.host_name, e.host_name) == 0 && memcmp(back.address, e.address, 16) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t magic[8] = { 'T', 'U', 'T', 'T', 'I', 0x0d, 0x0a, 0x1a };
    uint8_t text[TCP_ENTRY_BYTES] = { 0 }; /* the longest of them */

    if (size < 1)
        return 0;
    memcpy(text, data + 1, size - 1 < sizeof text ? size - 1 : sizeof text);
    if (data[0] & 4)
        memcpy(text, magic, sizeof magic);
    switch (data[0] % 4) {
    case 0: hello(text); break;
    case 1: answer(text); break;
    default: entry(text); break;
    }
    return 0;
}
