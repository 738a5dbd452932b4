/* runtime.c: time, threads and monitors for the rest of the library (base.h): functions that
   call the table of the runtime. Files are in file.c. */
#include <assert.h>
#include <errno.h>
#include <time.h>
#include "tutti/base.h"
#include "clock.h"

struct tutti_thread {
    tutti_runtime *rt;
    void *handle;                                  /* the implementation's */
    tutti_status (*run)(void *arg, tutti_error *err);
    void *arg;
    tutti_status status;                           /* written by the thread, read after join */
    tutti_error err;
};

struct tutti_monitor {
    tutti_runtime *rt;
    void *handle;
};

void tutti_runtime_close(tutti_runtime *rt)
{
    if (rt == NULL)
        return;
    rt->ops->close(rt->self);
    tutti_free(rt);
}

int64_t tutti_now_ns(tutti_runtime *rt)
{
    return rt->ops->now(rt->self);
}

bool tutti_clock_is_common(const tutti_runtime *rt)
{
    return rt->ops->common_clock;
}

double tutti_date_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int64_t tutti_processor_ns(void)
{
    struct timespec t = { 0 };

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void tutti_sleep_until(tutti_runtime *rt, int64_t time_ns)
{
    rt->ops->sleep_until(rt->self, time_ns);
}

void tutti_charge(tutti_runtime *rt, double flops, double bytes)
{
    rt->ops->charge(rt->self, flops, bytes);
}

void tutti_entropy(tutti_runtime *rt, void *to, size_t bytes)
{
    rt->ops->entropy(rt->self, to, bytes);
}

static void thread_body(void *arg)
{
    tutti_thread *t = arg;

    t->status = t->run(t->arg, &t->err);
}

tutti_status tutti_thread_open(tutti_thread **out, tutti_runtime *rt, const char *name,
                               tutti_status (*run)(void *arg, tutti_error *err), void *arg,
                               tutti_error *err)
{
    tutti_thread *t = tutti_alloc(1, sizeof *t);
    int cause;

    *out = NULL;
    if (t == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting thread '%s'", name);
    t->rt = rt;
    t->run = run;
    t->arg = arg;
    t->err.rank = -1;
    cause = rt->ops->thread_open(rt->self, &t->handle, name, thread_body, t);
    if (cause != 0) {
        tutti_free(t);
        return tutti_fail(err, cause == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_IO, cause,
                          "cannot start thread '%s'; use fewer workers or threads, or raise the "
                          "limit of processes (ulimit -u)",
                          name);
    }
    *out = t;
    return TUTTI_OK;
}

tutti_status tutti_thread_join(tutti_thread *thread, tutti_error *err)
{
    tutti_status status;

    if (thread == NULL)
        return TUTTI_OK;
    thread->rt->ops->thread_join(thread->rt->self, thread->handle);
    status = thread->status;
    if (status != TUTTI_OK && err != NULL)
        *err = thread->err;
    tutti_free(thread);
    return status;
}

tutti_status tutti_monitor_open(tutti_monitor **out, tutti_runtime *rt, tutti_error *err)
{
    tutti_monitor *m = tutti_alloc(1, sizeof *m);
    int cause = ENOMEM;

    *out = NULL;
    if (m != NULL) {
        m->rt = rt;
        cause = rt->ops->monitor_open(rt->self, &m->handle);
    }
    if (cause != 0) {
        tutti_free(m);
        return tutti_fail(err, TUTTI_ERR_MEMORY, cause, "cannot make a lock");
    }
    *out = m;
    return TUTTI_OK;
}

void tutti_monitor_close(tutti_monitor *m)
{
    if (m == NULL)
        return;
    m->rt->ops->monitor_close(m->rt->self, m->handle);
    tutti_free(m);
}

void tutti_lock(tutti_monitor *m)
{
    m->rt->ops->lock(m->rt->self, m->handle);
}

void tutti_unlock(tutti_monitor *m)
{
    m->rt->ops->unlock(m->rt->self, m->handle);
}

tutti_status tutti_wait(tutti_monitor *m, int64_t deadline_ns, tutti_error *err)
{
    if (m->rt->ops->wait(m->rt->self, m->handle, deadline_ns))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_TIMEOUT, 0, "the deadline passed");
}

void tutti_wake(tutti_monitor *m)
{
    m->rt->ops->wake(m->rt->self, m->handle);
}
