/* conformance_internal.h: what the files of the suite share.
     conformance.c          collectives, their bits and bytes
     conformance_parts.c    those with a root or with parts, tables
     conformance_faults.c   ports, wrong calls, disagreement, death
   Ranks are not cmocka's thread, so they report failures as a status and a sentence. */
#ifndef TUTTI_TESTS_CONFORMANCE_INTERNAL_H
#define TUTTI_TESTS_CONFORMANCE_INTERNAL_H
#include "conformance.h"
#include "collective/collective_internal.h"
#include "values.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition, ...)                                                   \
    do {                                                                        \
        if (!(condition))                                                       \
            return tutti_fail(err, TUTTI_ERR_NUMBER, 0, __VA_ARGS__);           \
    } while (0)

#define P_MAX 17
#define VECTOR_BYTES ((size_t)1 << 20)

typedef struct under_test {
    const tutti_transport_ops *ops;
    const char *spec;
    int largest;      /* worlds of more ranks are left to another transport */
    int p;
    int dying;        /* rank, in the tests of death */
    int variant;
    bool processes;   /* ranks share no memory but windows */
    atomic_int counter;
    unsigned char *expected[2];
    atomic_ullong bits[P_MAX];
    tutti_error errors[P_MAX];
} under_test;

typedef enum { PRIVATE, WINDOW, UNALIGNED, MIXED, MEMORIES } memory_kind;

typedef struct rank_memory {
    unsigned char *private, *window, *expected;
} rank_memory;

typedef struct counts_sent {
    uint64_t bytes[64], messages[64];
} counts_sent;

/* conformance.c */
void run_ranks(under_test *t, int p,
               tutti_status (*rank_main)(tutti_world *, void *, tutti_error *));
tutti_status memory_open(rank_memory *m, tutti_world *world, tutti_error *err);
void memory_close(rank_memory *m);
unsigned char *vector_of(const rank_memory *m, memory_kind kind, int rank, size_t element);
tutti_status check_traffic(const tutti_group *g, tutti_collective kind, size_t count,
                           const size_t *counts, int root, tutti_dtype dtype, counts_sent *sent,
                           tutti_error *err);
void take_counts(tutti_world *world, counts_sent *c);
tutti_status one_allreduce(tutti_group *g, const rank_memory *m, counts_sent *sent,
                           tutti_dtype dtype, int op, size_t count, memory_kind kind,
                           const unsigned char *expected, tutti_error *err);
tutti_status one_broadcast(tutti_group *g, const rank_memory *m, counts_sent *sent,
                           tutti_dtype dtype, size_t count, int root, memory_kind kind,
                           tutti_error *err);

/* conformance_parts.c: tests, and rank mains that processes run too */
tutti_status parts_main(tutti_world *world, void *arg, tutti_error *err);
tutti_status large_parts_main(tutti_world *world, void *arg, tutti_error *err);
tutti_status table_main(tutti_world *world, void *arg, tutti_error *err);
void reductions_parts_and_all_to_all_are_exact(void **state);
void large_parts_are_exact(void **state);
void part_collectives_work_on_subgroups(void **state);
void members_with_mismatched_counts_are_named(void **state);
void invalid_part_calls_are_rejected_with_a_message(void **state);
void a_table_changes_the_algorithm_but_not_the_result(void **state);
void tables_that_differ_or_are_wrong_are_refused(void **state);

/* conformance_faults.c: tests, and rank mains that processes run too */
tutti_status ports_main(tutti_world *world, void *arg, tutti_error *err);
tutti_status double_main(tutti_world *world, void *arg, tutti_error *err);
tutti_status again_main(tutti_world *world, void *arg, tutti_error *err);
tutti_status common_main(tutti_world *world, void *arg, tutti_error *err);
tutti_status leaving_main(tutti_world *world, void *arg, tutti_error *err);
void small_host_values_are_reduced(void **state);
void a_group_made_again_does_not_mix_with_the_first(void **state);
void invalid_collective_calls_are_rejected_with_a_message(void **state);
void insisting_on_windows_works_or_is_refused(void **state);
void mismatched_calls_are_reported_with_both_versions(void **state);
void a_failed_member_ends_other_calls_with_its_rank(void **state);
void a_departed_rank_ends_only_calls_that_need_it(void **state);
void survivors_learn_the_lost_rank_and_continue(void **state);
void a_member_that_fails_and_lives_on_keeps_no_other_waiting(void **state);
void failed_groups_take_no_place_from_others(void **state);
void a_timeout_names_the_missing_rank_on_all_members(void **state);
void a_timeout_of_different_roots_names_no_member(void **state);
void a_timeout_does_not_change_what_ends_in_time(void **state);
void ports_carry_headers_and_payloads(void **state);
void common_memory_is_filled_once_and_seen_by_all(void **state);
#endif
