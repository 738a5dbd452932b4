/* state_wire.c: manifests as bytes, little-endian, and the ranges that they list.

     0  'T' 'S'  version  whole: 0 or 1   bytes of a range (4)
     8  run id (16)   step (8)
    32  rank (4)  world (4)  workers (4)  pieces (4)   bytes of facts, its NUL included (8)
    56  copies (4): the number of ranks after that one whose state is here, too
    60  facts
        a piece: keep (1)  dtype (1)  bytes of state (2)  bytes of tensor (2)  owner + 1 (4)
                 count (8)  begin (8)  end (8)  state  tensor  a hash (8) for each range
        XXH3-64 of all before it

   Bytes of names include a NUL, so that they are read where they are. Pieces ascend by state,
   tensor, owner and begin, and are disjoint. A piece pays for its ranges with their hashes: n bytes
   describe at most n / 8 ranges. */
#include "state_internal.h"
#include <errno.h>
#include <string.h>

enum { VERSION = 2, HEADER = 60, PIECE = 34, NAME_MOST = 1024, WORLD_MOST = 99999 };

/* ---- writing ---- */

static uint8_t *put(uint8_t *to, uint64_t v, int bytes)
{
    for (int k = 0; k < bytes; k++)
        *to++ = (uint8_t)(v >> (8 * k));
    return to;
}

static uint8_t *put_bytes(uint8_t *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    return to + n;
}

uint64_t tutti_elastic_number(const uint8_t *from, int bytes)
{
    uint64_t v = 0;

    for (int k = 0; k < bytes; k++)
        v |= (uint64_t)from[k] << (8 * k);
    return v;
}

static uint8_t *put_piece(uint8_t *to, const tutti_saved *p, const tutti_elastic_state *of)
{
    const uint64_t bytes = tutti_image_bytes(p), each = tutti_elastic_range_bytes(of);
    const size_t state = strlen(p->state) + 1, tensor = strlen(p->tensor) + 1;

    to = put(to, (uint64_t)p->keep, 1);
    to = put(to, (uint64_t)p->dtype, 1);
    to = put(to, state, 2);
    to = put(to, tensor, 2);
    to = put(to, (uint64_t)(p->owner + 1), 4);
    to = put(to, p->count, 8);
    to = put(to, p->begin, 8);
    to = put(to, p->end, 8);
    to = put_bytes(to, p->state, state);
    to = put_bytes(to, p->tensor, tensor);
    for (uint64_t at = 0; at < bytes; at += each)
        to = put(to,
                 tutti_hash((const uint8_t *)p->data + at,
                            (size_t)(bytes - at < each ? bytes - at : each)),
                 8);
    return to;
}

tutti_status tutti_elastic_manifest(const tutti_image *image, const tutti_elastic_state *of,
                                    uint8_t **bytes, size_t *n, tutti_error *err)
{
    const size_t facts = strlen(image->facts) + 1;
    size_t room = HEADER + facts + 8;
    uint8_t *to;

    *bytes = NULL;
    *n = 0;
    if (of->step != image->step)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the state in memory is of step %llu, and the manifest is to be of step "
                          "%llu",
                          (unsigned long long)image->step, (unsigned long long)of->step);
    for (size_t k = 0; k < image->n; k++) {
        const tutti_saved *p = &image->pieces[k];
        const size_t names = strlen(p->state) + strlen(p->tensor) + 2;
        if (names > NAME_MOST)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the names '%.40s/%.40s' have %zu bytes; at most %d are sent",
                              p->state, p->tensor, names, NAME_MOST);
        room += PIECE + names + 8 * (size_t)tutti_elastic_ranges(of, tutti_image_bytes(p));
    }
    *bytes = to = tutti_alloc(room, 1);
    if (to == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a manifest of %zu bytes",
                          room);
    to = put(to, 'T' | 'S' << 8 | VERSION << 16, 3);
    to = put(to, image->whole, 1);
    to = put(to, tutti_elastic_range_bytes(of), 4);
    to = put_bytes(to, of->run, sizeof of->run);
    to = put(to, of->step, 8);
    to = put(to, (uint64_t)image->rank, 4);
    to = put(to, (uint64_t)image->world, 4);
    to = put(to, (uint64_t)image->workers, 4);
    to = put(to, image->n, 4);
    to = put(to, facts, 8);
    to = put(to, (uint64_t)image->copies, 4);
    to = put_bytes(to, image->facts, facts);
    for (size_t k = 0; k < image->n; k++)
        to = put_piece(to, &image->pieces[k], of);
    put(to, tutti_hash(*bytes, room - 8), 8);
    *n = room;
    return TUTTI_OK;
}

bool tutti_elastic_range(const tutti_image *image, const tutti_elastic_state *of, uint64_t range,
                         const void **at, size_t *n)
{
    const uint64_t each = tutti_elastic_range_bytes(of);

    *at = NULL;
    *n = 0;
    for (size_t k = 0; k < image->n; k++) {
        const uint64_t bytes = tutti_image_bytes(&image->pieces[k]),
                       ranges = tutti_elastic_ranges(of, bytes);
        if (range < ranges) {
            *at = (const uint8_t *)image->pieces[k].data + range * each;
            *n = (size_t)(bytes - range * each < each ? bytes - range * each : each);
            return true;
        }
        range -= ranges;
    }
    return false;
}

/* ---- reading ---- */

/* A name of `bytes` bytes that ends with its only NUL. */
static bool is_text(const uint8_t *at, size_t bytes)
{
    return bytes > 0 && memchr(at, 0, bytes) == at + bytes - 1;
}

/* The piece at `at`, of which `left` bytes are there. Returns the bytes that it takes; 0: it is not
   one. */
static size_t read_piece(const tutti_elastic_state *of, const uint8_t *at, size_t left, int workers,
                         tutti_manifest_piece *p)
{
    const uint8_t *names = at + PIECE;
    size_t state, tensor, bytes;
    uint64_t owner, keep, dtype;

    if (left < PIECE)
        return 0;
    keep = at[0];
    dtype = at[1];
    state = (size_t)tutti_elastic_number(at + 2, 2);
    tensor = (size_t)tutti_elastic_number(at + 4, 2);
    owner = tutti_elastic_number(at + 6, 4);
    left -= PIECE;
    /* no type and no way of keeping is below 0; what has an owner is a worker's */
    if (keep >= TUTTI_SCRATCH || dtype > TUTTI_I8 || state + tensor > NAME_MOST ||
        state + tensor > left || !is_text(names, state) || !is_text(names + state, tensor) ||
        owner > (uint64_t)workers || (owner == 0) != (keep == TUTTI_SAME || keep == TUTTI_SLICE))
        return 0;
    left -= state + tensor;
    p->saved = (tutti_saved){ .state = (const char *)names,
                              .tensor = (const char *)names + state,
                              .keep = (tutti_keep)keep,
                              .dtype = (tutti_dtype)dtype,
                              .owner = (int)owner - 1,
                              .count = tutti_elastic_number(at + 10, 8),
                              .begin = tutti_elastic_number(at + 18, 8),
                              .end = tutti_elastic_number(at + 26, 8) };
    if (state == 1 || memchr(names, '/', state) != NULL ||
        memchr(names + state, '@', tensor) != NULL || p->saved.begin > p->saved.end ||
        p->saved.end > p->saved.count || p->saved.count > INT64_MAX / 16 ||
        !tutti_size_mul((size_t)p->saved.count, tutti_dtype_bytes(p->saved.dtype), &bytes))
        return 0;
    p->ranges = tutti_elastic_ranges(of, tutti_image_bytes(&p->saved));
    p->hashes = names + state + tensor;
    if (p->ranges > left / 8)
        return 0;
    return PIECE + state + tensor + 8 * (size_t)p->ranges;
}

/* Every piece is one, they ascend and are disjoint, and the message ends with them. */
static tutti_status check_pieces(const tutti_manifest_reader *r, const tutti_elastic_state *of,
                                 size_t left, tutti_error *err)
{
    tutti_manifest_piece before = { 0 }, p;
    const uint8_t *at = r->at;

    for (size_t k = 0; k < r->pieces; k++) {
        const size_t taken = read_piece(of, at, left, r->workers, &p);
        const bool again = taken > 0 && k > 0 && same_state(&p.saved, &before.saved);
        if (taken == 0 || (k > 0 && tutti_image_order(&before.saved, &p.saved) >= 0) ||
            (again && !same_form(&p.saved, &before.saved)) ||
            (again && p.saved.owner == before.saved.owner && p.saved.begin < before.saved.end))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "a manifest of state is damaged in piece %zu of %zu", k, r->pieces);
        before = p;
        at += taken;
        left -= taken;
    }
    return left == 0 ? TUTTI_OK
                     : tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                  "a manifest of state goes on for %zu bytes after its end", left);
}

static tutti_status check_whose(const tutti_elastic_state *of, const uint8_t *bytes,
                                tutti_error *err)
{
    const uint64_t each = tutti_elastic_number(bytes + 4, 4),
                   step = tutti_elastic_number(bytes + 24, 8);

    if (memcmp(bytes + 8, of->run, sizeof of->run) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a manifest of state is of another run; use an address of this run");
    if (step != of->step)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a manifest of state is of step %llu, and the epoch begins at step %llu",
                          (unsigned long long)step, (unsigned long long)of->step);
    return each == tutti_elastic_range_bytes(of)
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "a manifest of state has ranges of %llu bytes instead of %u",
                            (unsigned long long)each, tutti_elastic_range_bytes(of));
}

tutti_status tutti_manifest_begin(tutti_manifest_reader *r, const tutti_elastic_state *of,
                                  const uint8_t *bytes, size_t n, tutti_error *err)
{
    uint64_t rank, world, workers, facts, copies;

    *r = (tutti_manifest_reader){ 0 };
    if (n < HEADER + 8 || tutti_elastic_number(bytes, 3) != ('T' | 'S' << 8 | VERSION << 16))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "these %zu bytes are no manifest of state of version %d", n, VERSION);
    if (tutti_hash(bytes, n - 8) != tutti_elastic_number(bytes + n - 8, 8))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a manifest of state of %zu bytes does not have the hash at its end", n);
    TUTTI_TRY(check_whose(of, bytes, err));
    rank = tutti_elastic_number(bytes + 32, 4);
    world = tutti_elastic_number(bytes + 36, 4);
    workers = tutti_elastic_number(bytes + 40, 4);
    facts = tutti_elastic_number(bytes + 48, 8);
    copies = tutti_elastic_number(bytes + 56, 4);
    if (bytes[3] > 1 || world < 1 || world > WORLD_MOST || workers < 1 || workers > world || rank >= world ||
        copies >= world || facts > n - HEADER - 8 || !is_text(bytes + HEADER, (size_t)facts))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "a manifest of state is damaged in its header");
    *r = (tutti_manifest_reader){ .rank = (int)rank,
                                  .world = (int)world,
                                  .workers = (int)workers,
                                  .whole = bytes[3] == 1,
                                  .copies = (int)copies,
                                  .facts = (const char *)bytes + HEADER,
                                  .pieces = (size_t)tutti_elastic_number(bytes + 44, 4),
                                  .at = bytes + HEADER + facts };
    return check_pieces(r, of, n - HEADER - 8 - (size_t)facts, err);
}

bool tutti_manifest_next(tutti_manifest_reader *r, const tutti_elastic_state *of,
                         tutti_manifest_piece *p)
{
    if (r->pieces == 0)
        return false;
    r->pieces--;
    r->at += read_piece(of, r->at, SIZE_MAX, r->workers, p); /* checked in begin */
    return true;
}
