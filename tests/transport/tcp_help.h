/* tcp_help.h: a run whose every end the test holds: a meeting place, real ranks as threads, and a
   rank that is the test's own, byte for byte. */
#ifndef TUTTI_TESTS_TCP_HELP_H
#define TUTTI_TESTS_TCP_HELP_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "conformance.h"
#include "transport/tcp/tcp_internal.h"

const tutti_transport_ops *tcp(void);
void assert_says(const char *text, const char *wanted);
void pause_ms(tutti_runtime *rt, int64_t ms);

typedef struct run_of { /* one run */
    tutti_runtime *rt;
    tutti_meet_options options;
    tutti_meet *meet;
    char where[80];
    tutti_thread *server;        /* serves the meeting place */
    _Atomic bool stop;
    tutti_monitor *lock;         /* round the meeting place */
} run_of;
/* asserts */
void run_open(run_of *r, tutti_runtime *rt, const char *address, int size, int64_t gather_ns);
void run_close(run_of *r);
int run_missing(run_of *r);
uint64_t run_strangers(run_of *r);
tutti_meet_state run_state(run_of *r, int rank);

/* A real rank on a thread: opens, calls body, closes; its status and sentence by join. */
typedef tutti_status (*rank_work)(void *t, tutti_runtime *rt, void *arg, tutti_error *err);
typedef struct real_rank {
    run_of *run;
    int rank;
    const char *spec;
    rank_work body;
    void *arg;
    tutti_run_key key;           /* may be wrong */
    tutti_run_id id;
    int size;
    tutti_thread *thread;
    tutti_status status;
    tutti_error err;
} real_rank;
void rank_start(real_rank *r, run_of *run, int rank, const char *spec, rank_work body, void *arg);
void rank_begin(real_rank *r);   /* of one whose members were set by hand */
tutti_status rank_end(real_rank *r);

typedef struct fake_rank {
    run_of *run;
    int rank;
    tcp_rules rules;
    tcp_line control, peer;
} fake_rank;
void fake_hello(const run_of *run, int rank, tcp_hello *h);
void fake_call(const run_of *run, tcp_call *c);     /* until it is DONE; asserts */
/* of 2; waits for the table and calls rank 0 */
void fake_join(fake_rank *f, run_of *run, int rank);
void fake_close(fake_rank *f);
#endif
