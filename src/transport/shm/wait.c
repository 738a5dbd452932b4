/* wait.c: waiting of threads, for requests or for a word of a window. A thread makes progress and
   checks what it waits for. If that has not come, it

     1. polls its rank's futex word (`tutti_shm_rank.wakeups`) for `spin` microseconds, if every
        worker has a core of its own;
     2. yields its time slice a few times;
     3. sleeps on that word in the kernel.

   No wake-up is lost. The waiting thread reads the futex word before its check. A thread that wakes
   it adds 1 to the word and then reads `sleepers`. The sleeper adds 1 to `sleepers` and then reads
   the word again (as the kernel does). All four accesses are seq_cst, so one of the two sees the
   other's write. For words of windows `awaiting` has the role of `sleepers`, and the window's word
   that of the futex word. */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/pause.h"
#include "shm_internal.h"

enum { YIELDS = 3, POLLS_A_LOOK_AT_THE_CLOCK = 64 };

static uint32_t wakeups_of(const shm_endpoint *e)
{
    /* pairs with tutti_shm_wake: news is visible */
    return atomic_load_explicit(&e->self->wakeups, memory_order_acquire);
}

static bool reached(_Atomic uint32_t *word, uint32_t value)
{
    /* pairs with tutti_shm_publish */
    return word != NULL && (int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0;
}

static void sleep_on(shm_endpoint *e, uint32_t seen, int64_t deadline_ns)
{
    struct timespec t = { 0, 0 };

    if (deadline_ns > 0) {
        t.tv_sec = deadline_ns / 1000000000;
        t.tv_nsec = deadline_ns % 1000000000;
    }
    /* Absolute time on CLOCK_MONOTONIC, which is the runtime's clock. */
    syscall(SYS_futex, &e->self->wakeups, FUTEX_WAIT_BITSET, seen,
            deadline_ns == TUTTI_FOREVER ? NULL : &t, NULL, FUTEX_BITSET_MATCH_ANY);
}

/* Returns when the rank's futex word is not `seen` any more, the word (may be NULL) has reached
   value, the deadline has passed, or spuriously. Without the lock. */
static void idle(shm_endpoint *e, uint32_t seen, _Atomic uint32_t *word, uint32_t value,
                 int64_t deadline_ns)
{
    tutti_shm_rank *self = e->self;

    if (e->spin_ns > 0) {
        const int64_t now = tutti_now_ns(e->rt);
        const int64_t until = deadline_ns - now < e->spin_ns ? deadline_ns : now + e->spin_ns;
        do {
            for (int i = 0; i < POLLS_A_LOOK_AT_THE_CLOCK; i++) {
                if (wakeups_of(e) != seen || reached(word, value))
                    return;
                tutti_pause();
            }
        } while (tutti_now_ns(e->rt) < until);
    }
    for (int i = 0; i < YIELDS; i++) {
        sched_yield();
        if (wakeups_of(e) != seen || reached(word, value))
            return;
    }
    atomic_fetch_add_explicit(&self->sleepers, 1, memory_order_seq_cst);
    if (word != NULL) {
        atomic_fetch_add_explicit(&self->awaiting, 1, memory_order_seq_cst);
        atomic_fetch_add_explicit(&e->header->awaiting, 1, memory_order_seq_cst);
    }
    if (atomic_load_explicit(&self->wakeups, memory_order_seq_cst) == seen &&
        (word == NULL || (int32_t)(atomic_load_explicit(word, memory_order_seq_cst) - value) < 0))
        sleep_on(e, seen, deadline_ns);
    if (word != NULL) {
        /* too high a count costs a wake-up */
        atomic_fetch_sub_explicit(&e->header->awaiting, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&self->awaiting, 1, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&self->sleepers, 1, memory_order_relaxed);
}

tutti_status tutti_shm_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                                 int64_t deadline_ns, size_t *n_done, tutti_error *err)
{
    shm_endpoint *e = t;
    tutti_status status;
    size_t done;

    if (need > n)
        need = n;
    pthread_mutex_lock(&e->lock);
    e->waiting++;
    for (;;) {
        const uint32_t seen = wakeups_of(e);
        bool more;
        status = tutti_shm_progress(e, err);
        done = match_count_done(r, n);
        if (status != TUTTI_OK || done >= need)
            break;
        if (tutti_now_ns(e->rt) >= deadline_ns) {
            status = tutti_fail(
                err, TUTTI_TIMEOUT, 0,
                "%zu of %zu messages were done when the deadline passed; %zu were needed", done, n,
                need);
            break;
        }
        more = e->stopped_early;
        pthread_mutex_unlock(&e->lock);
        if (!more)
            idle(e, seen, NULL, 0, deadline_ns);
        pthread_mutex_lock(&e->lock);
    }
    e->waiting--;
    pthread_mutex_unlock(&e->lock);
    if (n_done != NULL)
        *n_done = done;
    return status;
}

void tutti_shm_publish(void *t, _Atomic uint32_t *word, uint32_t value)
{
    shm_endpoint *e = t;

    /* seq_cst: a release for the thread that reads the word, and ordered before the load of
       `awaiting`; see the top. */
    atomic_store_explicit(word, value, memory_order_seq_cst);
    if (atomic_load_explicit(&e->header->awaiting, memory_order_seq_cst) == 0)
        return;
    for (int r = 0; r < e->size; r++) {
        if (atomic_load_explicit(&e->header->ranks[r].awaiting, memory_order_seq_cst) != 0)
            tutti_shm_wake(&e->header->ranks[r]);
    }
}

tutti_status tutti_shm_await(void *t, int peer, _Atomic uint32_t *word, uint32_t value,
                             int64_t deadline_ns, tutti_error *err)
{
    shm_endpoint *e = t;
    tutti_status status = TUTTI_OK;
    char why[sizeof ((tutti_error *)0)->text];
    int gone;

    if (reached(word, value))
        return TUTTI_OK;
    pthread_mutex_lock(&e->lock);
    e->waiting++;
    for (;;) {
        const uint32_t seen = wakeups_of(e);
        bool more;
        /* the peer may need progress of this rank before it can publish */
        status = tutti_shm_progress(e, err);
        if (status != TUTTI_OK)
            break;
        gone = -1;
        if (peer >= 0 && peer < e->size && tutti_shm_state_of(&e->region, peer) >= TUTTI_SHM_CLOSED)
            gone = peer;
        else if ((peer < 0 || peer >= e->size) && e->size > 1 && e->gone == e->size - 1)
            gone = e->rank == 0 ? 1 : 0;
        if (reached(
                word,
                value)) /* after the check of its state: what it published before it left counts */
            break;
        if (e->closing) {
            status = tutti_fail(err, TUTTI_CLOSED, 0, "this worker is leaving the run");
            break;
        }
        if (gone >= 0) {
            const int root = tutti_shm_because_of(e, gone);
            tutti_shm_describe(&e->region, root, why, sizeof why);
            status = tutti_fail_rank(err, TUTTI_ERR_PEER, root, "%s", why);
            break;
        }
        if (tutti_now_ns(e->rt) >= deadline_ns) {
            status = tutti_fail_rank(err, TUTTI_TIMEOUT, peer,
                                     "worker %d had not published %u when the deadline passed",
                                     peer, value);
            break;
        }
        more = e->stopped_early;
        pthread_mutex_unlock(&e->lock);
        if (!more)
            idle(e, seen, word, value, deadline_ns);
        pthread_mutex_lock(&e->lock);
    }
    e->waiting--;
    pthread_mutex_unlock(&e->lock);
    return status;
}
