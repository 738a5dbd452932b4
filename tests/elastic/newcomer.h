/* newcomer.h: a newcomer that fetches the state of a small run from images of its ranks, and that
   answers its own requests. */
#ifndef TUTTI_TESTS_ELASTIC_NEWCOMER_H
#define TUTTI_TESTS_ELASTIC_NEWCOMER_H
#include "elastic/state.h"
#include "tutti/tutti.h"

enum { RANGE = 64, HOLDERS = 6, QUEUE = 400, STALL = 1000, STEP = 12, WIDE = 250, OWN = 7 };
enum { SHARDS = 1, OWNED = 2 };          /* what a run has beside what is the same on all */
enum { X_RANGES = 16, ALL_RANGES = 18 }; /* of x/w, and of all that is the same */

/* Elements [0, count) of a state that is the same on all. */
tutti_saved piece(const char *state, const char *tensor, tutti_keep keep, uint64_t count);
/* The image of a rank. */
tutti_image *image_of(int world, int rank, int with);

typedef struct request { uint64_t holder, range; } request;
typedef struct newcomer {
    tutti_fetch *f;
    tutti_elastic_state of;
    tutti_image *image[HOLDERS];             /* of holder k + 1 */
    request queue[QUEUE];                    /* what was asked and not answered yet */
    size_t queued;
    int asked[HOLDERS];                      /* requests for ranges, in all */
    int owed[HOLDERS], most_owed;
    int64_t now_ns;
} newcomer;

tutti_elastic_state state_of_run(void);
void ask(void *user, uint64_t holder, uint64_t range); /* tutti_fetch_options.request */
newcomer *newcomer_open(void);
void newcomer_close(newcomer *n);
/* A holder, and the image that it has from now on: the newcomer's. */
void add(newcomer *n, uint64_t id, tutti_image *image);
request take(newcomer *n, size_t at);
/* The holder answers; spoils: with a bit turned. */
tutti_status answer(newcomer *n, request r, bool spoils, tutti_error *err);
/* Answers the oldest `most` requests. */
void answer_some(newcomer *n, size_t most);
/* What was asked of a holder is not answered any more. */
void forget(newcomer *n, uint64_t holder);
int asked_in_all(const newcomer *n);

void assert_described(const newcomer *n, const char *sentence);
/* The image is all that the run has. */
void assert_state(const tutti_image *image, int world, int with);
/* And it was fetched; it is taken. */
void assert_fetched(newcomer *n, int world, int with);
#endif
