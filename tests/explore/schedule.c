/* schedule.c: fibers, virtual time, the choices that a seed makes, and what is reported when a
   run does not end. */
#include "explore_internal.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "../sanitized.h"
#if SANITIZED_ADDRESS
#include <sanitizer/asan_interface.h>
#endif

static x_run *the_run; /* a process has one run at a time */

x_run *x_now(void)
{
    return the_run;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t x_random(x_run *run, uint64_t n)
{
    uint64_t z = run->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return n > 0 ? (z ^ z >> 31) % n : 0;
}

static bool one_in(x_run *run, unsigned n)
{
    return n > 0 && x_random(run, n) == 0;
}

int64_t x_duration(x_run *run, int bits)
{
    const int64_t most = INT64_C(1) << x_random(run, (uint64_t)bits + 1);

    return 1 + (int64_t)x_random(run, (uint64_t)most);
}

/* ---- what happened ---- */
void x_event(x_run *run, const char *format, ...)
{
    char *const line = run->events[run->n_events++ % X_EVENTS];
    const x_fiber *const f = run->current;
    const int64_t now = run->now - X_EPOCH_NS, second = INT64_C(1000000000);
    va_list args;
    int used;

    /* "%14.9f" of seconds, in whole numbers, which are printed sooner */
    used = snprintf(line, sizeof run->events[0], "%4" PRId64 ".%09" PRId64 "  ", now / second, now % second);
    if (f != NULL)
        used += snprintf(line + used, sizeof run->events[0] - (size_t)used, "%d %-10s ", f->rank, f->name);
    else
        used += snprintf(line + used, sizeof run->events[0] - (size_t)used, "- %-10s ", "");
    va_start(args, format);
    vsnprintf(line + used, sizeof run->events[0] - (size_t)used, format, args);
    va_end(args);
    for (const char *c = line; *c != '\0'; c++)
        run->hash = (run->hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
}

void explore_note(const char *format, ...)
{
    char text[100];
    va_list args;

    if (the_run == NULL)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    x_event(the_run, "note: %s", text);
}

void x_find(x_run *run, const char *format, ...)
{
    va_list args;
    char text[440];

    if (run->found != TUTTI_OK)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    run->found = tutti_fail(&run->finding, TUTTI_ERR_STATE, 0, "%s", text);
}

/* ---- which fiber waits for which ---- */
/* What f waits for, in words; gives the fiber that could end it, or NULL. */
static const x_fiber *waits_for(const x_run *run, const x_fiber *f, char *out, size_t bytes)
{
    const x_monitor *const m = f->what;
    int peer = -1;

    switch (f->where) {
    case X_IN_LOCK:
        snprintf(out, bytes, "waits for lock %d, which worker %d (%s) holds", m->number,
                 m->holder != NULL ? m->holder->rank : -1, m->holder != NULL ? m->holder->name : "nobody");
        return m->holder;
    case X_IN_WAIT: snprintf(out, bytes, "waits on monitor %d for a wake", m->number); return NULL;
    case X_IN_JOIN:
        snprintf(out, bytes, "waits for the end of its thread %s", ((const x_fiber *)f->what)->name);
        return f->what;
    case X_IN_GATE: snprintf(out, bytes, "waits for all workers to open the run or a window"); return NULL;
    case X_IN_SLEEP: snprintf(out, bytes, "sleeps"); return NULL;
    case X_IN_AWAIT:
        snprintf(out, bytes, "waits until a word of worker %d's window reaches %u; it is %u", f->peer, f->value,
                 *(const volatile uint32_t *)f->what);
        peer = f->peer;
        break;
    case X_IN_MESSAGES:
        if (!x_messages_tell(run, f, out, bytes, &peer))
            snprintf(out, bytes, "waits for messages, all of which are done");
        break;
    case X_RUNS: case X_ENDED: case X_DEAD: snprintf(out, bytes, "could go on"); return NULL;
    }
    return peer >= 0 && peer < run->size ? run->ranks[peer].main : NULL;
}

static void tell(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void tell(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

static void tell_all(const x_run *run, char *text, size_t bytes)
{
    const x_fiber *chain[8], *at = NULL;
    char what[200];
    int n = 0;

    for (int r = 0; r < run->size; r++)
        for (const x_fiber *f = run->fibers; f != NULL; f = f->next) {
            if (f->rank != r || f->where == X_ENDED || f->where == X_DEAD)
                continue;
            (void)waits_for(run, f, what, sizeof what);
            tell(text, bytes, "\n    worker %d (%s) %s", r, f->name, what);
            if (at == NULL && f->where != X_IN_WAIT && f->where != X_IN_GATE)
                at = f;
        }
    /* The chain from the first fiber that waits for a known one: round a circle, or to the one at
       fault. */
    while (at != NULL && n < 8) {
        bool known = false;
        for (int k = 0; k < n; k++)
            known = known || chain[k] == at;
        if (n > 0)
            tell(text, bytes, "%s worker %d (%s)%s", n == 1 ? "\n    in a chain:" : " waits for", chain[n - 1]->rank,
                 chain[n - 1]->name, "");
        if (known) {
            tell(text, bytes, " waits for worker %d (%s): a circle", at->rank, at->name);
            return;
        }
        chain[n++] = at;
        at = at->where == X_ENDED || at->where == X_DEAD ? NULL : waits_for(run, at, what, sizeof what);
    }
    if (n > 1)
        tell(text, bytes, " waits for worker %d (%s), which %s", chain[n - 1]->rank, chain[n - 1]->name,
             chain[n - 1]->where == X_ENDED  ? "has ended"
             : chain[n - 1]->where == X_DEAD ? "is dead"
                                             : what);
}

/* ---- switching ---- */
/* swapcontext does the same, and asks the kernel about signals twice, which would be a fifth of all
   time. The sanitizer has a longjmp of its own, and so has _FORTIFY_SOURCE: both would take it for
   one within a stack. */
#define SWAPS_CONTEXTS (SANITIZED_ADDRESS || __USE_FORTIFY_LEVEL > 0)
static void change(x_place *from, x_place *to)
{
#if SWAPS_CONTEXTS
    swapcontext(&from->begin, &to->begin);
#else
    from->stopped = true;
    if (_setjmp(from->at) != 0)
        return;
    if (to->stopped)
        _longjmp(to->at, 1);
    setcontext(&to->begin);
#endif
}

static void leave(x_run *run, x_fiber *f, bool for_good)
{
#if SANITIZED_ADDRESS
    __sanitizer_start_switch_fiber(for_good ? NULL : &f->fake, run->scheduler_stack, run->scheduler_bytes);
#endif
    (void)for_good;
    change(&f->place, &run->scheduler);
#if SANITIZED_ADDRESS
    __sanitizer_finish_switch_fiber(f->fake, NULL, NULL);
#endif
}

static void resume(x_run *run, x_fiber *f)
{
    run->current = f;
#if SANITIZED_ADDRESS
    __sanitizer_start_switch_fiber(&run->scheduler_fake, f->stack, X_STACK);
#endif
    change(&run->scheduler, &f->place);
#if SANITIZED_ADDRESS
    __sanitizer_finish_switch_fiber(run->scheduler_fake, NULL, NULL);
#endif
    run->current = NULL;
}

static void begin(void)
{
    x_run *const run = the_run;
    x_fiber *const f = run->current;

#if SANITIZED_ADDRESS
    __sanitizer_finish_switch_fiber(NULL, &run->scheduler_stack, &run->scheduler_bytes);
#endif
    f->body(f->arg);
    x_event(run, "ends");
    f->where = X_ENDED;
    for (x_fiber *other = run->fibers; other != NULL; other = other->next)
        if (other->where == X_IN_JOIN && other->what == f)
            x_wake(run, other);
    leave(run, f, true);
}

/* A function of its own, since getcontext returns once more than the compiler knows. */
static void prepare(ucontext_t *context, void *stack)
{
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = X_STACK;
    context->uc_link = NULL;
    makecontext(context, begin, 0);
#if SANITIZED_ADDRESS
    /* At each switch its swapcontext would clear a stack that it knows the size of of all marks, by
       three system calls. resume() and leave() tell it all that it has to know. */
    context->uc_stack.ss_size = 0;
#endif
}

x_fiber *x_fiber_open(x_run *run, int rank, const char *name, void (*body)(void *arg), void *arg)
{
    x_fiber *f = calloc(1, sizeof *f), **at = &run->fibers;

    if (f == NULL)
        return NULL;
    f->stack = mmap(NULL, X_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED) {
        free(f);
        return NULL;
    }
    (void)mprotect(f->stack, 4096, PROT_NONE); /* a stack overflow is a crash then, and not memory corruption */
    f->run = run;
    f->rank = rank;
    f->number = run->n_fibers++;
    f->body = body;
    f->arg = arg;
    f->ready_at = run->now + x_duration(run, run->delay_bits);
    f->priority = x_random(run, UINT64_C(1) << 32);
    snprintf(f->name, sizeof f->name, "%s", name);
    prepare(&f->place.begin, f->stack);
    while (*at != NULL)
        at = &(*at)->next;
    *at = f;
    return f;
}

void x_fiber_close(x_fiber *f)
{
#if SANITIZED_ADDRESS
    __asan_unpoison_memory_region(f->stack, X_STACK); /* of frames that were never left */
#endif
    munmap(f->stack, X_STACK);
    free(f);
}

/* ---- choices ---- */
/* How long a slow thread takes at most; 0: it is not slow. */
static int64_t slowness(const x_run *run, const x_fiber *f)
{
    for (int k = 0; k < EXPLORE_SLOW_THREADS && run->slow_thread[k].name != NULL; k++)
        if (f->rank == run->slow_thread[k].rank && strcmp(f->name, run->slow_thread[k].name) == 0)
            return run->slow_thread[k].most_ns;
    return 0;
}

/* A fiber of the slow rank takes 32 times as long. */
static int64_t dawdle(x_run *run, const x_fiber *f)
{
    const int64_t most_ns = slowness(run, f);

    if (most_ns > 0)
        return 1 + (int64_t)x_random(run, (uint64_t)most_ns);
    return x_duration(run, run->delay_bits) * (f->rank == run->slow_rank ? 32 : 1);
}

void x_wake(x_run *run, x_fiber *f)
{
    if (!f->blocked)
        return;
    f->blocked = false;
    f->ready_at = run->now + (slowness(run, f) > 0 || one_in(run, run->one_in_delay) ? dawdle(run, f) : 0);
}

/* A dying rank does not return from here. */
static void switch_now(x_run *run, x_fiber *f)
{
    leave(run, f, false);
    (void)run;
}

void x_pause(x_run *run, const char *at)
{
    x_fiber *const f = run->current;

    if (f == NULL)
        return;
    (void)at;
    run->now++; /* a loop that polls sees time pass */
    if (++run->steps > run->steps_most)
        x_find(run, "livelock: %" PRIu64 " steps have not brought the piece to its end", run->steps_most);
    if (run->now > run->limit)
        x_find(run, "after %.3f s of virtual time the piece has not ended", (double)(run->limit - X_EPOCH_NS) * 1e-9);
    for (int k = 0; k < run->size; k++)
        if (run->death_step[k] != 0 && run->armed_at != 0 && run->steps + 1 >= run->armed_at + run->death_step[k]) {
            run->death_step[k] = 0;
            x_kill(run, run->death_rank[k]);
        }
    if (run->dies_in != NULL && run->armed_at != 0 && f->rank == run->dies_rank && strcmp(f->name, run->dies_in) == 0 &&
        --run->dies_call == 0)
        x_kill(run, f->rank);
    if (run->cut_step != 0 && run->armed_at != 0 && run->steps >= run->armed_at + run->cut_step) {
        run->cut_step = 0;
        x_messages_cut(run, run->cut[0], run->cut[1]);
    }
    if (run->found != TUTTI_OK || f->where == X_DEAD) {
        switch_now(run, f);
        return;
    }
    if (slowness(run, f) > 0 || one_in(run, run->one_in_delay)) {
        f->ready_at = run->now + dawdle(run, f);
        switch_now(run, f);
    } else if (run->priorities) {
        if (one_in(run, run->one_in_change))
            f->priority = x_random(run, 1 << 16); /* below all first ones */
        if (one_in(run, 4))
            switch_now(run, f);
    } else if (one_in(run, run->one_in_switch))
        switch_now(run, f);
}

void explore_pause(void)
{
    if (the_run != NULL)
        x_pause(the_run, "memory");
}

void *explore_copy(void *to, const void *from, size_t bytes)
{
    const size_t half = bytes / 2 / 4 * 4;

    explore_pause();
    memcpy(to, from, half);
    if (bytes > 8)
        explore_pause();
    memcpy((char *)to + half, (const char *)from + half, bytes - half);
    return to;
}

void explore_dawdle(int64_t most_ns)
{
    x_run *const run = the_run;

    if (run != NULL && run->current != NULL)
        tutti_sleep_until(&run->rt, run->now + (int64_t)x_random(run, (uint64_t)most_ns + 1));
}

void explore_slow_link(int rank)
{
    if (the_run != NULL)
        the_run->slow_link = rank;
}

void explore_slow_thread(int rank, const char *name, int64_t most_ns)
{
    x_run *const run = the_run;
    int k = 0;

    while (run != NULL && k < EXPLORE_SLOW_THREADS - 1 && run->slow_thread[k].name != NULL &&
           (run->slow_thread[k].rank != rank || strcmp(run->slow_thread[k].name, name) != 0))
        k++;
    if (run != NULL) {
        run->slow_thread[k].name = name;
        run->slow_thread[k].rank = rank;
        run->slow_thread[k].most_ns = most_ns;
    }
}

void explore_dies_in(int rank, const char *name, uint64_t calls)
{
    x_run *const run = the_run;

    if (run == NULL || run->dies_in != NULL)
        return;
    run->dies_in = name;
    run->dies_rank = rank;
    run->dies_call = 1 + x_random(run, calls);
}

uint64_t explore_draw(const explore_case *c, const char *what, uint64_t n)
{
    return n > 0 ? tutti_random((tutti_rng){ c->seed, tutti_hash(what, strlen(what)), 0 }, 0) % n : 0;
}

void x_block(x_run *run, x_where where, const void *what, int64_t deadline_ns)
{
    x_fiber *const f = run->current;

    if (++run->steps > run->steps_most)
        x_find(run, "livelock: %" PRIu64 " steps have not brought the piece to its end", run->steps_most);
    if (run->found != TUTTI_OK || f->where == X_DEAD) {
        switch_now(run, f);
        return;
    }
    f->where = where;
    f->what = what;
    f->blocked = true;
    f->ready_at = deadline_ns;
    switch_now(run, f);
    f->blocked = false;
    f->where = X_RUNS;
    f->what = NULL;
}

void x_kill(x_run *run, int rank)
{
    x_rank *const r = &run->ranks[rank];

    if (r->ended || r->state == X_LOST)
        return;
    x_event(run, "worker %d dies", rank);
    for (x_fiber *f = run->fibers; f != NULL; f = f->next)
        if (f->rank == rank && f->where != X_ENDED)
            f->where = X_DEAD; /* its stack and memory stay as they are: a killed process is not cleaned up either */
    r->noticed_at = run->now + x_duration(run, 24);
    x_messages_died(run, rank);
}

void explore_ready(void)
{
    x_run *const run = the_run;

    if (run != NULL && ++run->ready == run->size)
        run->armed_at = run->steps;
}

bool explore_lost_any(void)
{
    const x_run *const run = the_run;

    for (int r = 0; run != NULL && r < run->size; r++)
        if (run->ranks[r].state >= X_FAILED || run->ranks[r].n_events > 0 || run->ranks[r].refused_at != 0)
            return true;
    return false;
}

static bool runnable(const x_run *run, const x_fiber *f)
{
    /* of a blocked one that is its deadline */
    return f->where != X_ENDED && f->where != X_DEAD && f->ready_at <= run->now;
}

static x_fiber *choose(x_run *run)
{
    x_fiber *best = NULL;
    uint64_t n = 0, pick;

    for (x_fiber *f = run->fibers; f != NULL; f = f->next)
        if (runnable(run, f)) {
            n++;
            if (best == NULL || f->priority > best->priority)
                best = f;
        }
    if (n <= 1 || run->priorities)
        return best;
    pick = x_random(run, n);
    for (x_fiber *f = run->fibers; f != NULL; f = f->next)
        if (runnable(run, f) && pick-- == 0)
            return f;
    return best;
}

/* Virtual time advances to the next thing that happens by itself; false: nothing will. */
static bool advance(x_run *run)
{
    int64_t next = x_messages_next(run);

    for (const x_fiber *f = run->fibers; f != NULL; f = f->next)
        if (f->where != X_ENDED && f->where != X_DEAD && f->ready_at < next)
            next = f->ready_at;
    if (next == INT64_MAX)
        return false;
    if (next > run->now)
        run->now = next;
    return true;
}

static bool all_ended(const x_run *run)
{
    for (const x_fiber *f = run->fibers; f != NULL; f = f->next)
        if (f->where != X_ENDED && f->where != X_DEAD)
            return false;
    return true;
}

tutti_status x_schedule(x_run *run, tutti_error *err)
{
    the_run = run;
    while (run->found == TUTTI_OK && !all_ended(run)) {
        x_fiber *f;
        x_messages_due(run);
        f = choose(run);
        if (f != NULL)
            resume(run, f);
        else if (!advance(run)) {
            x_find(run, "deadlock at %.9f s of virtual time: nobody can go on", (double)(run->now - X_EPOCH_NS) * 1e-9);
            break;
        } else if (run->now > run->limit)
            x_find(run, "after %.3f s of virtual time the piece has not ended",
                   (double)(run->limit - X_EPOCH_NS) * 1e-9);
    }
    if (run->found != TUTTI_OK && run->report != NULL) {
        snprintf(run->report->text, sizeof run->report->text, "%s", run->finding.text);
        tell_all(run, run->report->text, sizeof run->report->text);
    }
    the_run = NULL;
    if (run->found != TUTTI_OK && err != NULL)
        *err = run->finding;
    return run->found;
}

/* ---- the strategy of a seed ---- */
/* Several may die in the same moment, and one is always left. */
static void draw_losses(x_run *run)
{
    const int most = run->piece != NULL ? run->piece->losses : 0,
              deaths = most > 0 ? (int)x_random(run, (uint64_t)most + 1) : 0,
              first = most > 0 ? (int)x_random(run, (uint64_t)run->size) : 0;
    const uint64_t steps = most > 0 && run->piece->steps > 0 ? run->piece->steps : 4096;

    run->losses = most > 0;
    run->armed_at = most > 0 ? 0 : 1; /* other deaths may come from the first step on */
    for (int k = 0; k < deaths && k < run->size - 1; k++) {
        const int stride = run->size % 2 == 1 && x_random(run, 2) == 0 ? 2 : 1; /* prime to the number of ranks */
        run->death_step[k] = k > 0 && x_random(run, 4) == 0 ? run->death_step[k - 1] : 1 + x_random(run, steps);
        run->death_rank[k] = (first + k * stride) % run->size;
    }
    if (most > 0 && run->size > 2 && x_random(run, 4) == 0) {
        run->cut_step = 1 + x_random(run, steps);
        run->cut[0] = (int)x_random(run, (uint64_t)run->size);
        run->cut[1] = (run->cut[0] + 1 + (int)x_random(run, (uint64_t)run->size - 1)) % run->size;
    }
}

void x_strategy(x_run *run, uint64_t seed, bool deaths)
{
    static const unsigned switches[] = { 1, 2, 4, 16 }, delays[] = { 4, 8, 32, 128 };
    static const int magnitudes[] = { 4, 12, 18, 23 };

    run->random = seed * UINT64_C(0xd1342543de82ef95) + 1;
    (void)x_random(run, 2);
    run->priorities = x_random(run, 3) == 0;
    run->one_in_switch = switches[x_random(run, TUTTI_LENGTH(switches))];
    run->one_in_delay = delays[x_random(run, TUTTI_LENGTH(delays))];
    run->one_in_change = 64;
    run->one_in_spurious = x_random(run, 2) == 0 ? 4 : 0;
    run->delay_bits = magnitudes[x_random(run, TUTTI_LENGTH(magnitudes))];
    run->latency_bits = magnitudes[x_random(run, TUTTI_LENGTH(magnitudes))];
    run->slow_rank = x_random(run, 2) == 0 ? (int)x_random(run, (uint64_t)run->size) : -1;
    run->slow_link = -1;
    run->eager = x_random(run, 3) == 0 && run->piece != NULL;
    run->death_step[0] =
        deaths ? 1 + x_random(run, run->piece->steps > 0 ? run->piece->steps : UINT64_C(1) << x_random(run, 13)) : 0;
    run->death_rank[0] = (int)x_random(run, (uint64_t)run->size);
    draw_losses(run);
    run->steps_most = 4000000;
    run->now = X_EPOCH_NS;
    run->limit =
        X_EPOCH_NS + (int64_t)((run->piece != NULL && run->piece->seconds > 0 ? run->piece->seconds : 100) * 1e9);
}
