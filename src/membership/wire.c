/* Messages as bytes, little-endian.

     0  'T' 'M'  version  kind  flags  length of the address  0 0
     8  run id (16)
    24  sender's id (8)   its epoch's number (8)   step (8)   ballot (8)   accepted (8)
    64  sender's address
        epoch: number (8)  step (8)  next rank (4)  members (4)
               a member: id (8)  rank (4)  holds (1)  length of the address (1)  address

   Transports seal what they carry. Nothing here relies on it: lengths are checked against what is
   there before they are used, and the message must end where its bytes do. */
#include "membership_internal.h"
#include <string.h>

enum { VERSION = 1, HOLDS = 1, LEAVING = 2, READY = 4, RENEWS = 8 };

static uint8_t *put(uint8_t *to, uint64_t v, int bytes)
{
    for (int k = 0; k < bytes; k++)
        *to++ = (uint8_t)(v >> (8 * k));
    return to;
}

static uint64_t get(const uint8_t *from, int bytes)
{
    uint64_t v = 0;

    for (int k = 0; k < bytes; k++)
        v |= (uint64_t)from[k] << (8 * k);
    return v;
}

static uint8_t *put_text(uint8_t *to, const char *text, size_t length)
{
    memcpy(to, text, length);
    return to + length;
}

static uint8_t *put_epoch(uint8_t *to, const tutti_epoch *e)
{
    to = put(to, e->number, 8);
    to = put(to, e->step, 8);
    to = put(to, e->next_rank, 4);
    to = put(to, (uint64_t)e->n, 4);
    for (int i = 0; i < e->n; i++) {
        const tutti_member *const a = &e->members[i];
        const size_t length = strlen(a->address);
        to = put(to, a->id, 8);
        to = put(to, a->rank, 4);
        to = put(to, a->holds, 1);
        to = put(to, length, 1);
        to = put_text(to, a->address, length);
    }
    return to;
}

size_t tutti_membership_write(uint8_t *out, const message *w, const tutti_epoch *epoch)
{
    const size_t length = strlen(w->address);
    uint8_t *to = out;

    to = put(to, 'T' | 'M' << 8 | VERSION << 16, 3);
    to = put(to, w->kind, 1);
    to = put(
        to,
        (uint64_t)((w->holds ? HOLDS : 0) | (w->leaving ? LEAVING : 0) | (w->ready ? READY : 0) |
                   (w->renews ? RENEWS : 0)),
        1);
    to = put(to, length, 3);
    memcpy(to, w->run, sizeof w->run);
    to = put(to + sizeof w->run, w->id, 8);
    to = put(to, w->number, 8);
    to = put(to, w->step, 8);
    to = put(to, w->ballot, 8);
    to = put(to, w->accepted, 8);
    to = put_text(to, w->address, length);
    if (epoch != NULL)
        to = put_epoch(to, epoch);
    return (size_t)(to - out);
}

/* What is left of the bytes. Reading more than that fails all that is read after it. */
typedef struct reader {
    const uint8_t *at;
    size_t left;
    bool cut;
} reader;

static uint64_t take(reader *r, int bytes)
{
    uint64_t v;

    if (r->cut || r->left < (size_t)bytes) {
        r->cut = true;
        return 0;
    }
    v = get(r->at, bytes);
    r->at += bytes;
    r->left -= (size_t)bytes;
    return v;
}

static void take_text(reader *r, char text[TUTTI_ADDRESS_BYTES], uint64_t length)
{
    memset(text, 0, TUTTI_ADDRESS_BYTES);
    if (r->cut || length >= TUTTI_ADDRESS_BYTES || r->left < length ||
        memchr(r->at, 0, (size_t)length) != NULL) {
        r->cut = true;
        return;
    }
    memcpy(text, r->at, (size_t)length);
    r->at += length;
    r->left -= (size_t)length;
}

static tutti_status read_epoch(tutti_epoch *e, reader *r, tutti_error *err)
{
    uint64_t n;

    e->number = take(r, 8);
    e->step = take(r, 8);
    e->next_rank = (uint32_t)take(r, 4);
    n = take(r, 4);
    if (r->cut || n > TUTTI_MEMBERS_MAX || n * MEMBER_BYTES > r->left)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a message about %llu members is cut: %zu bytes are left for them",
                          (unsigned long long)n, r->left);
    e->n = (int)n;
    for (int i = 0; i < e->n; i++) {
        tutti_member *const a = &e->members[i];
        uint64_t holds;
        a->id = take(r, 8);
        a->rank = (uint32_t)take(r, 4);
        holds = take(r, 1);
        a->holds = holds == 1;
        take_text(r, a->address, take(r, 1));
        if (r->cut || holds > 1)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "a message about members is damaged in member %d of %d", i, e->n);
    }
    if (tutti_epoch_check(e, err) != TUTTI_OK)
        return tutti_fail_within(err, TUTTI_ERR_CORRUPT, "a message about members is damaged");
    return TUTTI_OK;
}

static tutti_status read_header(message *w, reader *r, tutti_error *err)
{
    uint64_t kind, flags, length;

    if (r->left < HEADER_BYTES)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a message about members has %zu bytes; the least is %d", r->left,
                          HEADER_BYTES);
    if (take(r, 3) != ('T' | 'M' << 8 | VERSION << 16))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "these %zu bytes are no message about members of version %d", r->left + 3,
                          VERSION);
    kind = take(r, 1);
    flags = take(r, 1);
    length = take(r, 3);
    memcpy(w->run, r->at, sizeof w->run);
    r->at += sizeof w->run;
    r->left -= sizeof w->run;
    w->id = take(r, 8);
    w->number = take(r, 8);
    w->step = take(r, 8);
    w->ballot = take(r, 8);
    w->accepted = take(r, 8);
    take_text(r, w->address, length);
    w->holds = (flags & HOLDS) != 0;
    w->leaving = (flags & LEAVING) != 0;
    w->ready = (flags & READY) != 0;
    w->renews = (flags & RENEWS) != 0;
    w->kind = (message_kind)kind;
    if (r->cut || kind < JOIN || kind > RECORD || flags > (HOLDS | LEAVING | READY | RENEWS) ||
        w->id == 0 || w->address[0] == '\0')
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a message about members is damaged in its header");
    return TUTTI_OK;
}

tutti_status tutti_membership_read(message *w, tutti_epoch *epoch, const uint8_t *bytes, size_t n,
                                   tutti_error *err)
{
    reader r = { .at = bytes, .left = n };
    uint64_t number;

    epoch->n = 0;
    TUTTI_TRY(read_header(w, &r, err));
    if (w->kind == RECORD || w->kind == ACCEPT || (w->kind == PROMISE && w->accepted != 0)) {
        TUTTI_TRY(read_epoch(epoch, &r, err));
        number = w->number + (w->kind != RECORD);
        if (epoch->number != number)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "a message about members has epoch %llu instead of %llu",
                              (unsigned long long)epoch->number, (unsigned long long)number);
    }
    if (r.left != 0)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a message about members goes on for %zu bytes after its end", r.left);
    return TUTTI_OK;
}
