/* conformance_internal.h: what the files of the suite share. */
#ifndef TUTTI_TESTS_CONFORMANCE_INTERNAL_H
#define TUTTI_TESTS_CONFORMANCE_INTERNAL_H
#include "conformance.h"
#include "sanitized.h"

typedef struct rank_context {    /* of one rank; made by with_rank */
    const conformance_subject *subject;
    const tutti_transport_ops *ops;
    void *t;
    tutti_runtime *rt;
    int rank, size;
    uint64_t seed;
} rank_context;
typedef tutti_status (*rank_body)(rank_context *c, tutti_error *err);

/* Runs the body as n ranks and fails the cmocka test with the sentence unless all is well. */
void all_well(const conformance_subject *subject, int n, uint64_t seed, rank_body body);
/* The same, but `victim` must be the run's root failure. */
void dies(const conformance_subject *subject, int n, uint64_t seed, int victim, rank_body body);
/* Ends this rank as a crash would; return its status from the body. */
/* The same, but the ranks of this set may end in any way (tutti_status of the run
   included); all others must be well. */
void some_die(const conformance_subject *subject, int n, uint64_t seed, unsigned victims,
              rank_body body);
tutti_status die(rank_context *c, tutti_error *err);

/* at most a minute */
tutti_status wait_all(rank_context *c, tutti_request *const *r, size_t n, tutti_error *err);
tutti_status wait_one(rank_context *c, tutti_request *r, tutti_error *err);
tutti_status send_word(rank_context *c, int to, uint64_t tag, int64_t word, tutti_error *err);
tutti_status recv_word(rank_context *c, int from, uint64_t tag, int64_t *word, tutti_error *err);
tutti_status meet(rank_context *c, uint64_t tag, tutti_error *err); /* all ranks, by messages */
int64_t soon(rank_context *c, int64_t milliseconds);
/* a pattern that depends on every byte's place */
void fill(unsigned char *to, size_t bytes, uint64_t seed);
bool filled(const unsigned char *from, size_t bytes, uint64_t seed);
tutti_rng rng_of(const rank_context *c, uint64_t stream);
/* often an edge, seldom large */
size_t size_from(const conformance_subject *subject, tutti_rng rng, uint64_t index);

/* conformance_*.c: arrays that end with {0} */
typedef struct conformance_test {
    const char *name;
    void (*run)(const conformance_subject *subject);
    bool needs_windows, needs_flags, needs_events;
} conformance_test;
extern const conformance_test conformance_messages[], conformance_cancels[], conformance_endings[],
    conformance_losses[], conformance_windows[];
#endif
