/* runtime.c: the runtime in virtual time: threads are actors, a monitor is a flag and two queues.

   A thread that unlocks a monitor passes it to the first thread in the queue. So a thread that was
   woken runs only once it has the lock, and locks are granted in the order of requests. Locking and
   unlocking a free monitor does not call SimGrid.

   Computing is simulated by sleeping, not by SimGrid's executions: the actors of a host would share
   its cores, and the caller has charged the flops of its own thread only. Memory traffic takes no
   time: SimGrid's hosts have no rate for it. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "sim_internal.h"

sim_thread *sim_self(void)
{
    return sg_actor_self_get_data();
}

/* ---- time ---- */
double sim_seconds(const sim_thread *self)
{
    return simgrid_get_clock() + self->pending;
}

int64_t sim_now_ns(const sim_thread *self)
{
    return SIM_EPOCH_NS + (int64_t)floor(sim_seconds(self) * 1e9 + SIM_ROUNDING_NS);
}

double sim_to_whole_ns(double seconds)
{
    const double now = simgrid_get_clock(),
                 rest = ceil((now + seconds) * 1e9 - SIM_ROUNDING_NS) * 1e-9 - now;
    return rest > 0 ? rest : 0;
}

bool sim_count_check(sim_thread *self)
{
    const double clock = sim_seconds(self);

    if (clock != self->checks_clock)
        self->checks = 0;
    self->checks_clock = clock;
    return ++self->checks > SIM_CHECKS_MOST;
}

void sim_give_up(sim_thread *self, const char *doing)
{
    if (!self->run->stuck) {
        self->run->stuck = true;
        tutti_fail_rank(&self->run->why, TUTTI_ERR_STATE, self->rank,
                        "thread '%s' of worker %d has %s %d times at %.9f s of virtual time "
                        "without waiting: this loop never ends, since time passes only while a "
                        "thread waits; wait for a message, on a monitor or by sleeping",
                        self->name, self->rank, doing, SIM_CHECKS_MOST, simgrid_get_clock());
    }
    sg_actor_kill_all();
    sg_actor_exit();
}

void sim_out_of_memory(sim_thread *self)
{
    if (!self->run->stuck) {
        self->run->stuck = true;
        tutti_fail_rank(
            &self->run->why, TUTTI_ERR_MEMORY, self->rank,
            "the simulation of %d workers has no memory left at %.9f s of virtual time; simulate "
            "fewer workers",
            self->run->size, simgrid_get_clock());
    }
    sg_actor_kill_all();
    sg_actor_exit();
}

static int64_t sim_now(void *run)
{
    sim_thread *self = sim_self();

    (void)run;
    if (sim_count_check(self))
        sim_give_up(self, "read the clock");
    return sim_now_ns(self);
}

/* ---- the log ---- */
static void append(sim_thread *self, sim_log *log, sim_act act)
{
    if (log->n == log->capacity) {
        const size_t capacity = log->capacity > 0 ? 2 * log->capacity : 16;
        sim_act *more = tutti_alloc(capacity, sizeof *more);
        if (more == NULL) /* a wake-up that cannot be logged would be a hang, and there is no
                             caller to report it to */
            sim_out_of_memory(self);
        if (log->n > 0)
            memcpy(more, log->acts, log->n * sizeof *more);
        tutti_free(log->acts);
        log->acts = more;
        log->capacity = capacity;
    }
    log->acts[log->n++] = act;
}

void sim_log_act(sim_thread *self, sim_act_kind kind, void *object)
{
    append(self, self->playing ? &self->now : &self->log,
           (sim_act){ .kind = kind, .object = object });
}

static void perform(sim_thread *self, const sim_act *act)
{
    switch (act->kind) {
    case SIM_CHARGE:
        self->where = SIM_IN_SLEEP;
        sg_actor_sleep_for(sim_to_whole_ns(act->seconds));
        self->where = SIM_RUNNING;
        break;
    case SIM_POST: sim_post(self, act->object); break;
    case SIM_WAKE: sg_sem_release(((sim_thread *)act->object)->semaphore); break;
    case SIM_START: sim_start(self, act->object); break;
    }
}

void sim_play(sim_thread *self)
{
    assert(!self->playing);
    sim_hold(self);
    self->playing = true;
    for (size_t k = 0; k < self->log.n; k++) {
        const sim_act act = self->log.acts[k];
        self->played = k;
        if (act.kind == SIM_CHARGE)
            self->pending -= act.seconds;
        perform(self, &act);
        for (size_t j = 0; j < self->now.n; j++) {
            const sim_act caused = self->now.acts[j];
            perform(self, &caused);
        }
        self->now.n = 0;
    }
    self->log.n = self->played = 0;
    self->pending = 0; /* sums of doubles leave a rounding error */
    self->playing = false;
}

static void sim_charge(void *run, double flops, double bytes)
{
    sim_thread *self = sim_self();
    const sim_rank *rank = &((sim_run *)run)->ranks[self->rank];
    const double full = sg_host_get_speed(rank->host),
                 speed = full * sg_host_get_available_speed(rank->host);
    /* A profile may take a host down to nothing; it then crawls, rather than never ends. */
    const double seconds = flops / (speed > 1e-3 * full ? speed : 1e-3 * full);

    (void)bytes;
    if (!(seconds > 0))
        return;
    self->pending += seconds;
    if (self->log.n > 0 && self->log.acts[self->log.n - 1].kind == SIM_CHARGE)
        self->log.acts[self->log.n - 1].seconds += seconds;
    else
        append(self, &self->log, (sim_act){ .kind = SIM_CHARGE, .seconds = seconds });
}

/* ---- waiting ---- */
void sim_block(sim_thread *self, sim_where where, const void *what, int64_t deadline_ns)
{
    assert(self->log.n == 0);
    self->where = where;
    self->what = what;
    self->checks = 0;
    if (deadline_ns == TUTTI_FOREVER)
        sg_sem_acquire(self->semaphore);
    else {
        const double seconds = (double)(deadline_ns - sim_now_ns(self)) * 1e-9;
        if (seconds > 0)
            (void)sg_sem_acquire_timeout(self->semaphore, seconds); /* the flag decides, not this */
    }
    self->where = SIM_RUNNING;
    self->what = NULL;
}

static void sim_sleep_until(void *run, int64_t time_ns)
{
    sim_thread *self = sim_self();

    (void)run;
    sim_play(self);
    if (sim_now_ns(self) >= time_ns && sim_count_check(self))
        sim_give_up(self, "slept until a time that has passed");
    while (sim_now_ns(self) < time_ns) {
        self->where = SIM_IN_SLEEP;
        sg_actor_sleep_until((double)(time_ns - SIM_EPOCH_NS) * 1e-9);
        if (sim_now_ns(self) < time_ns) /* the double just below */
            sg_actor_sleep_for(1e-9);
        self->where = SIM_RUNNING;
        self->checks = 0;
    }
}

void sim_gate_wait(sim_thread *self)
{
    self->woken = false;
    sim_list_insert(&self->run->gate, &self->link);
    sim_play(self);
    while (!self->woken)
        sim_block(self, SIM_IN_GATE, NULL, TUTTI_FOREVER);
}

void sim_gate_open(sim_thread *self)
{
    while (!sim_list_empty(&self->run->gate)) {
        sim_thread *t = SIM_OWNER(sim_thread, link, self->run->gate.next);
        sim_list_remove(&t->link);
        t->woken = true;
        sim_log_act(self, SIM_WAKE, t);
    }
}

/* ---- threads ---- */
static void thread_main(int argc, char **argv)
{
    sim_thread *self = sim_self();

    (void)argc;
    (void)argv;
    self->body(self->arg);
    sim_play(self);
    self->where = SIM_ENDED;
    if (self->joiner != NULL)
        sg_sem_release(self->joiner->semaphore);
}

sim_thread *sim_thread_make(sim_run *run, const sim_thread_plan *plan, sg_actor_t *actor)
{
    sim_thread *t = tutti_alloc(1, sizeof *t);
    sg_actor_t made;

    if (t == NULL)
        return NULL;
    t->run = run;
    t->rank = plan->rank;
    t->body = plan->body;
    t->arg = plan->arg;
    snprintf(t->name, sizeof t->name, "%s", plan->name);
    sim_list_init(&t->link);
    t->semaphore = sg_sem_init(0);
    t->next = run->threads;
    run->threads = t;
    run->making++;
    made = sg_actor_init(t->name, plan->host);
    sg_actor_set_stacksize(made, plan->stack_kib);
    sg_actor_set_data(made, t);
    if (actor != NULL) {
        sg_actor_ref(made); /* a watcher joins it even after its end */
        *actor = made;
    }
    sg_actor_start_(made, thread_main, 0, NULL);
    run->making--;
    return t;
}

static int sim_thread_open(void *run, void **thread, const char *name, void (*body)(void *arg),
                           void *arg)
{
    sim_thread *self = sim_self();

    sim_play(self);
    sim_hold(self);
    *thread =
        sim_thread_make(run,
                        &(sim_thread_plan){ self->rank, ((sim_run *)run)->ranks[self->rank].host,
                                            name, body, arg, SIM_THREAD_STACK_KIB },
                        NULL);
    return *thread != NULL ? 0 : ENOMEM;
}

static void sim_thread_join(void *run, void *thread)
{
    sim_thread *self = sim_self(), *other = thread;

    (void)run;
    sim_play(self);
    other->joiner = self;
    while (other->where != SIM_ENDED)
        sim_block(self, SIM_IN_JOIN, other, TUTTI_FOREVER);
}

/* ---- monitors ---- */
static int sim_monitor_open(void *run, void **monitor)
{
    sim_monitor *m = tutti_alloc(1, sizeof *m);

    (void)run;
    *monitor = m;
    if (m == NULL)
        return ENOMEM;
    sim_list_init(&m->entering);
    sim_list_init(&m->waiting);
    return 0;
}

static void sim_monitor_close(void *run, void *monitor)
{
    (void)run;
    tutti_free(monitor);
}

/* The caller is in the queue already, or is put there. */
static void await_grant(sim_thread *self, sim_monitor *m)
{
    sim_play(self);
    while (!self->granted)
        sim_block(self, SIM_IN_LOCK, m, TUTTI_FOREVER);
}

static void sim_lock(void *run, void *monitor)
{
    sim_thread *self = sim_self();
    sim_monitor *m = monitor;

    (void)run;
    if (self->pending > 0) /* what the lock guards must not be seen, or changed, before its time */
        sim_play(self);
    if (!m->held) {
        m->held = true;
        m->holder = self;
        return;
    }
    self->granted = false;
    sim_list_insert(&m->entering, &self->link);
    await_grant(self, m);
}

static void release(sim_thread *self, sim_monitor *m)
{
    sim_thread *t;

    if (sim_list_empty(&m->entering)) {
        m->held = false;
        m->holder = NULL;
        return;
    }
    t = SIM_OWNER(sim_thread, link, m->entering.next);
    sim_list_remove(&t->link);
    t->granted = true;
    m->holder = t;
    sim_log_act(self, SIM_WAKE, t);
}

static void sim_unlock(void *run, void *monitor)
{
    (void)run;
    release(sim_self(), monitor);
}

static void sim_wake(void *run, void *monitor)
{
    sim_monitor *m = monitor;

    (void)run;
    while (!sim_list_empty(&m->waiting)) {
        sim_thread *t = SIM_OWNER(sim_thread, link, m->waiting.next);
        sim_list_remove(&t->link);
        t->woken = true;
        sim_list_insert(&m->entering, &t->link); /* it runs once it has the lock */
    }
}

static bool sim_wait(void *run, void *monitor, int64_t deadline_ns)
{
    sim_thread *self = sim_self();
    sim_monitor *m = monitor;

    (void)run;
    self->woken = self->granted = false;
    sim_list_insert(&m->waiting, &self->link);
    release(self, m);
    sim_play(self);
    if (deadline_ns <= sim_now_ns(self) && sim_count_check(self))
        sim_give_up(self, "waited on a monitor with a deadline that has passed");
    while (!self->woken && sim_now_ns(self) < deadline_ns)
        sim_block(self, SIM_IN_WAIT, m, deadline_ns);
    if (self->woken) {
        await_grant(self, m);
        return true;
    }
    sim_list_remove(&self->link);
    sim_lock(run, m);
    return false;
}

/* ---- files and entropy: files are the real ones ---- */
#define FILES const tutti_runtime *const files = ((sim_run *)run)->files
static int sim_file_open(void *run, const char *path, tutti_file_mode mode, int *fd)
{
    FILES;
    return files->ops->file_open(files->self, path, mode, fd);
}
static int sim_file_size(void *run, int fd, uint64_t *bytes)
{
    FILES;
    return files->ops->file_size(files->self, fd, bytes);
}
static int sim_file_read(void *run, int fd, uint64_t offset, void *to, size_t bytes, size_t *done)
{
    FILES;
    return files->ops->file_read(files->self, fd, offset, to, bytes, done);
}
static int sim_file_write(void *run, int fd, const void *from, size_t bytes, size_t *done)
{
    FILES;
    return files->ops->file_write(files->self, fd, from, bytes, done);
}
static int sim_file_sync(void *run, int fd)
{
    FILES;
    return files->ops->file_sync(files->self, fd);
}
static int sim_file_map(void *run, int fd, uint64_t bytes, const void **at)
{
    FILES;
    return files->ops->file_map != NULL ? files->ops->file_map(files->self, fd, bytes, at)
                                        : EOPNOTSUPP;
}
static void sim_file_unmap(void *run, const void *at, uint64_t bytes)
{
    FILES;
    files->ops->file_unmap(files->self, at, bytes);
}
static int sim_file_scratch(void *run, const char *directory, uint64_t bytes, bool direct, int *fd)
{
    FILES;
    return files->ops->file_scratch != NULL
               ? files->ops->file_scratch(files->self, directory, bytes, direct, fd)
               : EOPNOTSUPP;
}
static int sim_file_write_at(void *run, int fd, uint64_t offset, const void *from, size_t bytes,
                             size_t *done)
{
    FILES;
    return files->ops->file_write_at(files->self, fd, offset, from, bytes, done);
}
static int sim_file_close(void *run, int fd)
{
    FILES;
    return files->ops->file_close(files->self, fd);
}
static int sim_file_rename(void *run, const char *from, const char *to)
{
    FILES;
    return files->ops->file_rename(files->self, from, to);
}
static int sim_file_remove(void *run, const char *path)
{
    FILES;
    return files->ops->file_remove(files->self, path);
}
static int sim_directory_make(void *run, const char *path)
{
    FILES;
    return files->ops->directory_make(files->self, path);
}
static int sim_directory_sync(void *run, const char *path)
{
    FILES;
    return files->ops->directory_sync(files->self, path);
}
static int sim_directory_list(void *run, const char *path,
                              void (*each)(void *user, const char *name), void *user)
{
    FILES;
    return files->ops->directory_list(files->self, path, each, user);
}
static int sim_exists(void *run, const char *path)
{
    FILES;
    return files->ops->exists(files->self, path);
}
static int sim_space_left(void *run, const char *path, uint64_t *bytes)
{
    FILES;
    return files->ops->space_left(files->self, path, bytes);
}

/* A run is a function of its seed. */
static void sim_entropy(void *run, void *to, size_t bytes)
{
    sim_run *r = run;

    for (size_t k = 0; k < bytes; k++)
        ((unsigned char *)to)[k] =
            (unsigned char)tutti_random((tutti_rng){ r->seed, UINT64_C(0x73696d), 0 }, r->drawn++);
}

static void sim_runtime_close(void *run)
{
    (void)run; /* the run's own, see run.c */
}

const tutti_runtime_ops sim_runtime_ops = {
    .abi = TUTTI_RUNTIME_ABI,
    .bytes = sizeof(tutti_runtime_ops),
    .name = "sim",
    .common_clock = true,
    .close = sim_runtime_close,
    .now = sim_now,
    .sleep_until = sim_sleep_until,
    .charge = sim_charge,
    .thread_open = sim_thread_open,
    .thread_join = sim_thread_join,
    .monitor_open = sim_monitor_open,
    .monitor_close = sim_monitor_close,
    .lock = sim_lock,
    .unlock = sim_unlock,
    .wait = sim_wait,
    .wake = sim_wake,
    .file_open = sim_file_open,
    .file_size = sim_file_size,
    .file_read = sim_file_read,
    .file_write = sim_file_write,
    .file_sync = sim_file_sync,
    .file_close = sim_file_close,
    .file_rename = sim_file_rename,
    .file_remove = sim_file_remove,
    .directory_make = sim_directory_make,
    .directory_sync = sim_directory_sync,
    .directory_list = sim_directory_list,
    .exists = sim_exists,
    .space_left = sim_space_left,
    .entropy = sim_entropy,
    .file_map = sim_file_map,
    .file_unmap = sim_file_unmap,
    /* A scratch file, and no queues: threads that are actors read and write it, in a fixed
       order. */
    .file_write_at = sim_file_write_at,
    .file_scratch = sim_file_scratch,
};
