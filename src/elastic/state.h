/* state.h: how a newcomer gets the state of a run from the memory of its members.

   A member copies its state at a step (src/state/image.h) and lists it in a manifest: pieces, and a
   hash of each range of them. A newcomer fetches ranges from several members at once, compares each
   with its hash, and asks another member for what one that is lost, or stands still, has not sent.
   What it has is an image, and is loaded as a checkpoint.

   All of this is pure: no thread, no clock, no input or output. Messages and the time come in as
   arguments; requests go out by one function. Data are sealed by who carries them: the hashes find
   damage, not forgery. Lengths and numbers of a manifest are checked all the same, and it cannot
   make the newcomer take more memory than it was given. */
#ifndef TUTTI_ELASTIC_STATE_H
#define TUTTI_ELASTIC_STATE_H
#include "state/image.h"

enum { TUTTI_ELASTIC_RANGE = 1 << 20 /* bytes of a range, if nothing else is said */ };

/* Which state, and how it is cut. The same at members and newcomer. */
typedef struct tutti_elastic_state {
    uint8_t run[16];             /* id of the run */
    uint64_t step;               /* that of the epoch */
    uint32_t range_bytes;        /* of a range; the last one of a piece is shorter. A multiple of
                                    16, at least 16; 0: TUTTI_ELASTIC_RANGE */
} tutti_elastic_state;

/* ---- a member ---- */
/* Writes the manifest of an image of that state to *bytes, to be freed by tutti_free. of->step must
   be the image's (TUTTI_ERR_USAGE). Its ranges are numbered from 0. */
tutti_status tutti_elastic_manifest(const tutti_image *image, const tutti_elastic_state *of,
                                    uint8_t **bytes, size_t *n, tutti_error *err);
/* Sets *at to the n bytes of a range, in the image. false: there is no such range. */
bool tutti_elastic_range(const tutti_image *image, const tutti_elastic_state *of, uint64_t range,
                         const void **at, size_t *n);

/* ---- a newcomer ---- */
#define TUTTI_FETCH_MANIFEST UINT64_MAX /* in place of a range: the manifest */

typedef enum tutti_fetch_state {
    TUTTI_FETCHING,
    TUTTI_FETCHED,               /* everything is here and whole */
    TUTTI_FETCH_STUCK            /* no holder that is left has what is missing: add others, or take
                                    another step's state */
} tutti_fetch_state;

typedef struct tutti_fetch_options {
    tutti_elastic_state of;
    uint64_t most;               /* bytes of pieces that may be taken */
    int window;                  /* requests to one holder at a time, 1 .. 64; 0: 4 */
    /* A holder that owes something and has sent nothing for so long is passed over. From then on it
       is asked for one thing at a time, each time as long after the one before. */
    int64_t stall_ns;
    /* Which pieces are fetched; NULL: all. The others are listed in the image, without data. */
    bool (*wants)(void *user, const tutti_saved *piece);
    /* Sends a request to a holder: a range by its number in that holder's manifest, or
       TUTTI_FETCH_MANIFEST. It must not call into the same fetch. */
    void (*request)(void *user, uint64_t holder, uint64_t range);
    void *user;
} tutti_fetch_options;

typedef struct tutti_fetch tutti_fetch;

/* Options are copied. TUTTI_ERR_USAGE names what is wrong with them. */
tutti_status tutti_fetch_open(tutti_fetch **out, const tutti_fetch_options *options,
                              tutti_error *err);
void tutti_fetch_close(tutti_fetch *f);

/* now_ns: any clock that does not run backwards. It never decreases. */
/* A member has the state: it is asked for its manifest. id: not 0. One that was lost may be added
   again, and is as new. */
tutti_status tutti_fetch_add(tutti_fetch *f, int64_t now_ns, uint64_t id, tutti_error *err);
/* Its connection has ended, or it has another state by now. What it owed is asked of others. */
void tutti_fetch_lost(tutti_fetch *f, int64_t now_ns, uint64_t id);
/* A manifest has arrived. On a failure the holder counts as lost:
     TUTTI_ERR_CORRUPT   it is damaged
     TUTTI_ERR_USAGE     it is of another run or step
     TUTTI_ERR_STATE     it contradicts that of another holder: replicas differ. One without facts
                         is of other workers then (TUTTI_ERR_USAGE)
     TUTTI_ERR_MEMORY    it lists more bytes than may be taken, or there is no memory */
tutti_status tutti_fetch_manifest(tutti_fetch *f, int64_t now_ns, uint64_t id, const uint8_t *bytes,
                                  size_t n, tutti_error *err);
/* A range has arrived. TUTTI_ERR_CORRUPT: it is damaged, and is fetched again. After the third of
   these the holder counts as lost. */
tutti_status tutti_fetch_range(tutti_fetch *f, int64_t now_ns, uint64_t id, uint64_t range,
                               const void *bytes, size_t n, tutti_error *err);
/* Time has passed. Returns when to call this next; INT64_MAX: nothing is waited for. Call it after
   the functions above, too, since they change that. */
int64_t tutti_fetch_tick(tutti_fetch *f, int64_t now_ns);

tutti_fetch_state tutti_fetch_state_of(const tutti_fetch *f);
/* Bytes that are here, and bytes that are known to be needed. */
void tutti_fetch_progress(const tutti_fetch *f, uint64_t *here, uint64_t *needed);
/* Writes a sentence about what is here, and what is missing and why. */
void tutti_fetch_describe(const tutti_fetch *f, char *text, size_t bytes);
/* Moves what was fetched to an image. TUTTI_ERR_STATE: not everything is here. */
tutti_status tutti_fetch_take(tutti_fetch *f, tutti_image **image, tutti_error *err);
#endif
