/* Any bytes as a manifest of state from a member (src/elastic/state_wire.c). If bit 0 of the first
   byte is set the hash of the rest is put behind it, so that the fuzzer gets past that check. What
   is taken is well formed, takes no more memory than it may, and agrees with itself. Ranges are
   answered with zeros. Some inputs have the hashes of those, so that whole states are fetched, too.
   */
#include "../../src/elastic/state_internal.h"
#include <stdlib.h>
#include <string.h>

enum { RANGE = 64, MOST = 1 << 16, QUEUE = 4096 };

typedef struct asks { uint64_t id[QUEUE], range[QUEUE]; size_t n; } asks;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void ask(void *user, uint64_t id, uint64_t range)
{
    asks *a = user;

    if (a->n < QUEUE) {
        a->id[a->n] = id;
        a->range[a->n++] = range;
    }
}

static bool follows(const tutti_saved *p, const tutti_saved *before)
{
    return tutti_image_order(before, p) < 0 &&
           (!same_state(before, p) ||
            (same_form(before, p) && (before->owner != p->owner || before->end <= p->begin)));
}

static void check(const tutti_elastic_state *of, const uint8_t *bytes, size_t n)
{
    tutti_manifest_reader r;
    tutti_manifest_piece p, before;
    uint64_t ranges = 0;

    require(tutti_manifest_begin(&r, of, bytes, n, NULL) == TUTTI_OK);
    require(r.world >= 1 && r.workers >= 1 && r.workers <= r.world && r.rank >= 0 && r.rank < r.world);
    for (size_t k = 0; tutti_manifest_next(&r, of, &p); k++) {
        require(p.saved.begin <= p.saved.end && p.saved.end <= p.saved.count && p.saved.owner < r.workers);
        require(strlen(p.saved.state) > 0 && strlen(p.saved.tensor) < n);
        require(k == 0 || follows(&p.saved, &before.saved));
        ranges += p.ranges;
        before = p;
    }
    require(ranges <= n / 8);
}

/* Answers all with zeros. */
static void answer(tutti_fetch *f, asks *a, const uint8_t *manifest, size_t n)
{
    static const uint8_t zeros[RANGE];
    tutti_status status;

    while (a->n > 0) {
        const uint64_t id = a->id[--a->n], range = a->range[a->n];
        if (range == TUTTI_FETCH_MANIFEST) /* of the second holder: they are replicas */
            require(tutti_fetch_manifest(f, 0, id, manifest, n, NULL) == TUTTI_OK);
        else if (tutti_fetch_range(f, 0, id, range, zeros, RANGE, NULL) != TUTTI_OK) {
            for (size_t some = 4; some < RANGE; some += 4) { /* a last range is shorter */
                status = tutti_fetch_range(f, 0, id, range, zeros, some, NULL);
                require(status == TUTTI_OK || status == TUTTI_ERR_CORRUPT);
            }
        }
    }
}

static void finish(tutti_fetch *f)
{
    tutti_image *image = NULL;
    tutti_checkpoint *c = NULL;
    uint64_t here, needed;

    tutti_fetch_progress(f, &here, &needed);
    require(here <= needed && needed <= MOST);
    if (tutti_fetch_take(f, &image, NULL) == TUTTI_OK) {
        require(here == needed);
        if (tutti_image_checkpoint(&c, image, NULL) == TUTTI_OK)
            require(tutti_checkpoint_verify(c, NULL) == TUTTI_OK);
    }
    tutti_checkpoint_close(c);
    tutti_image_close(image);
}

static void receive(const uint8_t *bytes, size_t n)
{
    static asks a;
    const tutti_elastic_state of = { .run = "fuzz", .step = 1, .range_bytes = RANGE };
    tutti_fetch *f;
    tutti_error err = { 0 };

    a.n = 0;
    require(tutti_fetch_open(&f,
                             &(tutti_fetch_options){ .of = of, .most = MOST, .stall_ns = 1, .request = ask,
                                                     .user = &a },
                             NULL) == TUTTI_OK);
    require(tutti_fetch_add(f, 0, 1, NULL) == TUTTI_OK);
    a.n = 0;
    if (tutti_fetch_manifest(f, 0, 1, bytes, n, &err) == TUTTI_OK) {
        check(&of, bytes, n);
        require(tutti_fetch_state_of(f) == TUTTI_FETCHED || tutti_fetch_add(f, 0, 2, NULL) == TUTTI_OK);
        answer(f, &a, bytes, n);
        finish(f);
    } else
        require(err.text[0] != '\0' && tutti_fetch_state_of(f) == TUTTI_FETCH_STUCK);
    tutti_fetch_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bool sealed = size > 0 && (data[0] & 1) != 0;
    uint8_t *bytes;
    uint64_t hash;

    if (size == 0)
        return 0;
    bytes = malloc(size - 1 + (sealed ? 8 : 0) + 1);
    require(bytes != NULL);
    memcpy(bytes, data + 1, size - 1);
    hash = tutti_hash(bytes, size - 1);
    for (int k = 0; k < 8 && sealed; k++)
        bytes[size - 1 + (size_t)k] = (uint8_t)(hash >> (8 * k));
    receive(bytes, size - 1 + (sealed ? 8 : 0));
    free(bytes);
    return 0;
}
