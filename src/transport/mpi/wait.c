/* wait.c: waiting of threads. MPI has no wait that sleeps, so a waiting thread polls. It

     1. spins, if every rank of the host has a core of its own;
     2. yields its time slice a few times;
     3. sleeps between polls, for a quarter of the time in which nothing has happened, at most for a
        millisecond.

   So a wait is lengthened by a quarter at most, and a long wait costs next to nothing. Each waiting
   thread has its own polling interval, so that a thread that has waited for long does not slow down
   one that has just begun. A thread whose request another thread's poll has completed is woken by
   the condition variable. */
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include "base/pause.h"
#include "mpi_internal.h"

enum { YIELDS = 8, PAUSES = 32, SLEEP_LEAST_NS = 20000, SLEEP_MOST_NS = 1000000 };

bool tutti_mpi_foreign_thread(const mpi_endpoint *e)
{
    return e->funneled && !pthread_equal(e->thread, pthread_self());
}

void tutti_mpi_wake_waiting(mpi_endpoint *e, int mine)
{
    if (e->completed && e->waiting > mine)
        pthread_cond_broadcast(&e->cond);
    e->completed = false;
}

/* Until the condition is signalled, or the time has come. With the lock, which is released
   meanwhile. */
static void sleep_until(mpi_endpoint *e, int64_t time_ns)
{
    const struct timespec t = { .tv_sec = time_ns / 1000000000, .tv_nsec = time_ns % 1000000000 };

    pthread_cond_timedwait(&e->cond, &e->lock, &t);
}

/* Between two polls. quiet_ns: since when nothing has happened; looks: polls since then. */
static void idle(mpi_endpoint *e, int64_t now_ns, int64_t quiet_ns, int looks, int64_t deadline_ns)
{
    const int64_t quiet = now_ns - quiet_ns;
    int64_t nap = quiet / 4;

    if (quiet < e->spin_ns || looks < YIELDS) {
        pthread_mutex_unlock(&e->lock);
        if (quiet < e->spin_ns) {
            for (int i = 0; i < PAUSES; i++)
                tutti_pause();
        } else
            sched_yield();
        pthread_mutex_lock(&e->lock);
        return;
    }
    nap = nap < SLEEP_LEAST_NS ? SLEEP_LEAST_NS : nap > SLEEP_MOST_NS ? SLEEP_MOST_NS : nap;
    sleep_until(e, deadline_ns - now_ns < nap ? deadline_ns : now_ns + nap);
}

tutti_status tutti_mpi_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                                 int64_t deadline_ns, size_t *n_done, tutti_error *err)
{
    mpi_endpoint *e = t;
    tutti_status status = TUTTI_OK;
    int64_t quiet_ns = 0;
    int looks = 0;
    size_t done;

    if (need > n)
        need = n;
    if (tutti_mpi_foreign_thread(e)) {
        done = match_count_done(r, n);
        if (n_done != NULL)
            *n_done = done;
        if (done >= need)
            return TUTTI_OK;
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "waiting for messages in another thread than the one that opened the world, but MPI "
            "runs with MPI_THREAD_FUNNELED; use an MPI that gives MPI_THREAD_SERIALIZED, or no "
            "background threads (--lane off, --checkpoint-async off)");
    }
    pthread_mutex_lock(&e->lock);
    e->waiting++;
    for (;;) {
        int64_t now;
        status = tutti_mpi_progress(e, err);
        done = match_count_done(r, n);
        if (status != TUTTI_OK || done >= need)
            break;
        now = tutti_now_ns(e->rt);
        if (now >= deadline_ns) {
            status = tutti_fail(
                err, TUTTI_TIMEOUT, 0,
                "%zu of %zu messages were done when the deadline passed; %zu were needed", done, n,
                need);
            break;
        }
        if (looks == 0 || e->moved) {
            quiet_ns = now;
            looks = 0;
        }
        looks++;
        idle(e, now, quiet_ns, looks, deadline_ns);
    }
    e->waiting--;
    pthread_mutex_unlock(&e->lock);
    if (n_done != NULL)
        *n_done = done;
    return status;
}
