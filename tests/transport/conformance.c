/* conformance.c: the suite's frame: ranks, waiting, patterns, and the list of tests. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include "conformance_internal.h"

/* In memory that forked ranks share: a survivor's failure must not hide behind the victim's. */
typedef struct survivors { _Atomic int failed; char text[480]; } survivors;
typedef struct body_arg {
    const conformance_subject *subject;
    rank_body body;
    uint64_t seed;
    unsigned victims;
    survivors *survivors;
} body_arg;

static bool is_in(unsigned set, int rank) { return rank >= 0 && rank < 32 && (set >> rank & 1) != 0; }

static tutti_status with_rank(const tutti_launch *launch, void *arg, tutti_error *err)
{
    const body_arg *a = arg;
    rank_context c = {
        .subject = a->subject, .ops = a->subject->ops, .rank = launch->rank, .size = launch->size, .seed = a->seed
    };
    tutti_status status;

    if (launch->rt != NULL)
        c.rt = launch->rt;
    else
        TUTTI_TRY(tutti_runtime_open_posix(&c.rt, err));
    status = c.ops->open(&c.t, c.rt, launch, err);
    if (status == TUTTI_OK) {
        status = a->body(&c, err);
        if (status != TUTTI_OK && c.t != NULL) /* a body may have closed it */
            c.ops->failure_report(c.t, err);
        c.ops->close(c.t);
    }
    /* One that fails because of a victim does as it should. */
    if (status != TUTTI_OK && !is_in(a->victims, c.rank) &&
        !(status == TUTTI_ERR_PEER && is_in(a->victims, err->rank)) && atomic_fetch_add(&a->survivors->failed, 1) == 0)
        snprintf(a->survivors->text, sizeof a->survivors->text, "%s", err->text);
    if (launch->rt == NULL)
        tutti_runtime_close(c.rt);
    return status;
}

static tutti_status run_ranks(const conformance_subject *subject, int n, uint64_t seed, unsigned victims,
                              rank_body body, tutti_error *err)
{
    survivors *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    body_arg arg = { subject, body, seed, victims, shared };
    tutti_runtime *rt;
    tutti_status status;

    assert_true(shared != MAP_FAILED);
    err->text[0] = '\0';
    assert_int_equal(tutti_runtime_open_posix(&rt, err), TUTTI_OK);
    status = subject->run(rt, n, with_rank, &arg, err);
    tutti_runtime_close(rt);
    if (atomic_load(&shared->failed) > 0 && victims != 0)
        fail_msg("%s, %d ranks, seed %llu: a survivor failed: %s", subject->name, n, (unsigned long long)seed,
                 shared->text);
    munmap(shared, sizeof *shared);
    return status;
}

void all_well(const conformance_subject *subject, int n, uint64_t seed, rank_body body)
{
    tutti_error err;
    const tutti_status status = run_ranks(subject, n, seed, 0, body, &err);

    if (status != TUTTI_OK)
        fail_msg("%s, %d ranks, seed %llu: %s: %s", subject->name, n, (unsigned long long)seed,
                 tutti_status_name(status), err.text);
}

void dies(const conformance_subject *subject, int n, uint64_t seed, int victim, rank_body body)
{
    char who[32];
    tutti_error err;
    const tutti_status status = run_ranks(subject, n, seed, 1u << victim, body, &err);

    snprintf(who, sizeof who, "worker %d ", victim);
    if (status == TUTTI_OK || strstr(err.text, who) == NULL)
        fail_msg("%s, %d ranks, seed %llu: %sshould have been the failure, not: %s: %s", subject->name, n,
                 (unsigned long long)seed, who, tutti_status_name(status), err.text);
}

void some_die(const conformance_subject *subject, int n, uint64_t seed, unsigned victims, rank_body body)
{
    tutti_error err;

    run_ranks(subject, n, seed, victims, body, &err);
}

tutti_status die(rank_context *c, tutti_error *err)
{
    if (c->subject->processes)
        raise(SIGKILL);
    return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "worker %d dies as the test wants it", c->rank);
}

int64_t soon(rank_context *c, int64_t milliseconds)
{
    return tutti_now_ns(c->rt) + milliseconds * 1000000;
}

tutti_status wait_all(rank_context *c, tutti_request *const *r, size_t n, tutti_error *err)
{
    size_t done;
    const tutti_status status = c->ops->wait_some(c->t, r, n, n, soon(c, 60000), &done, err);

    if (status == TUTTI_TIMEOUT)
        return tutti_fail_within(err, TUTTI_ERR_STATE, "rank %d hangs", c->rank);
    return status;
}

tutti_status wait_one(rank_context *c, tutti_request *r, tutti_error *err)
{
    return wait_all(c, &r, 1, err);
}

static tutti_status result_of(const tutti_request *r, tutti_error *err)
{
    if (r->status == TUTTI_OK)
        return TUTTI_OK;
    return tutti_fail_rank(err, r->status, r->rank, "a word's request ended with '%s' because of worker %d",
                           tutti_status_name(r->status), r->rank);
}

tutti_status send_word(rank_context *c, int to, uint64_t tag, int64_t word, tutti_error *err)
{
    tutti_request r = { 0 };
    const tutti_header note = { .kind = 7, .a = word };
    tutti_status status;

    TUTTI_TRY(c->ops->send(c->t, &r, to, tag, &note, tutti_nothing(), err));
    status = wait_one(c, &r, err);
    c->ops->cancel(c->t, &r); /* r ends with this function; one that is done is left as it is */
    return status != TUTTI_OK ? status : result_of(&r, err);
}

tutti_status recv_word(rank_context *c, int from, uint64_t tag, int64_t *word, tutti_error *err)
{
    tutti_request r = { 0 };
    tutti_status status;

    TUTTI_TRY(c->ops->recv(c->t, &r, from, tag, tutti_nothing(), err));
    status = wait_one(c, &r, err);
    c->ops->cancel(c->t, &r);
    if (word != NULL)
        *word = r.note.a;
    return status != TUTTI_OK ? status : result_of(&r, err);
}

tutti_status meet(rank_context *c, uint64_t tag, tutti_error *err)
{
    if (c->rank == 0) {
        for (int r = 1; r < c->size; r++)
            TUTTI_TRY(recv_word(c, r, tag, NULL, err));
        for (int r = 1; r < c->size; r++)
            TUTTI_TRY(send_word(c, r, tag, 0, err));
        return TUTTI_OK;
    }
    TUTTI_TRY(send_word(c, 0, tag, 0, err));
    return recv_word(c, 0, tag, NULL, err);
}

/* Eight bytes of the pattern from i on, a multiple of 8. Byte j is 131 j + 17 (j / 256) + 101 (j /
   65536) + what the seed makes: within a word all but the first are the same, so the multiples of
   131 are added to one byte in eight places at once, none into its neighbour. Gigabytes go through
   here in a run of the suite, and the thread sanitizer looks at every access. */
static uint64_t pattern_word(size_t i, uint64_t seed)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones << 7, steps = UINT64_C(0x95128f0c89068300);
    const uint64_t byte = (i * 131 + (i >> 8) * 17 + (i >> 16) * 101 + seed * 29 + (seed >> 8)) & 255,
                   first = byte * ones;

    return ((first & ~high) + (steps & ~high)) ^ ((first ^ steps) & high);
}

void fill(unsigned char *to, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        const uint64_t word = pattern_word(i, seed);
        memcpy(to + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word);
    }
}

bool filled(const unsigned char *from, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        const uint64_t word = pattern_word(i, seed);
        if (memcmp(from + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word) != 0)
            return false;
    }
    return true;
}

tutti_rng rng_of(const rank_context *c, uint64_t stream)
{
    return (tutti_rng){ c->seed, stream, 0 };
}

size_t size_from(const conformance_subject *subject, tutti_rng rng, uint64_t index)
{
    const uint64_t draw = tutti_random(rng, index), n = draw >> 8;
    size_t edges = 0;

    while (subject->edges[edges] != 0)
        edges++;
    switch (draw % 8) {
    case 0: return 0;
    case 1: return 1 + n % 16;
    case 2: case 3: case 4: return n % 400;
    case 5: return n % 20000;
    case 6: return edges == 0 ? n % 5000 : subject->edges[n % edges] + (n >> 20) % 3 - 1;
    default: return n % 600000;
    }
}

typedef struct bound_test { const conformance_test *test; const conformance_subject *subject; } bound_test;

static void run_bound(void **state)
{
    const bound_test *b = *state;

    b->test->run(b->subject);
}

int conformance_run(const conformance_subject *subject)
{
    const conformance_test *const lists[] = { conformance_messages, conformance_cancels, conformance_endings,
                                              conformance_losses, conformance_windows };
    struct CMUnitTest tests[64];
    bound_test bound[64];
    size_t n = 0;

    memset(tests, 0, sizeof tests);
    for (size_t l = 0; l < TUTTI_LENGTH(lists); l++) {
        for (const conformance_test *t = lists[l]; t->name != NULL; t++) {
            if ((t->needs_windows && subject->ops->window == NULL) ||
                (t->needs_flags && subject->ops->publish == NULL) || (t->needs_events && subject->ops->events == NULL))
                continue;
            bound[n] = (bound_test){ t, subject };
            tests[n] = (struct CMUnitTest){ .name = t->name, .test_func = run_bound, .initial_state = &bound[n] };
            n++;
        }
    }
    return _cmocka_run_group_tests(subject->name, tests, n, NULL, NULL);
}
