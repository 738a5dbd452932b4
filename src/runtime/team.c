/* team.c: the thread pool of team.h. Each loop has a number; a thread sleeps until the number
   changes. The caller of tutti_team_run computes part 0. */
#include <assert.h>
#include <errno.h>
#include "runtime/team.h"
#include "tutti/base.h"

typedef struct member { tutti_team *team; int index; } member;

struct tutti_team {
    tutti_runtime *rt;
    tutti_monitor *monitor;
    tutti_thread **thread;
    member *member;
    int threads, opened;    /* with the caller; those that have begun, without */

    /* under the monitor; while a loop runs only `left` changes */
    void (*work)(void *arg, size_t first, size_t count);
    void *arg;
    size_t items, grain;
    uint64_t loop;
    int left;               /* members that have not done their part */
    bool closing;
};

static void do_part(const tutti_team *t, int index)
{
    const size_t grains = (t->items + t->grain - 1) / t->grain, each = grains / (size_t)t->threads,
                 more = grains % (size_t)t->threads, k = (size_t)index;
    const size_t first = (each * k + (k < more ? k : more)) * t->grain;
    const size_t count = (each + (k < more)) * t->grain;

    if (count > 0)
        t->work(t->arg, first, count < t->items - first ? count : t->items - first);
}

static tutti_status serve_member(void *arg, tutti_error *err)
{
    const member *m = arg;
    tutti_team *t = m->team;
    uint64_t done = 0;

    (void)err;
    tutti_lock(t->monitor);
    for (;;) {
        while (t->loop == done && !t->closing)
            tutti_wait(t->monitor, TUTTI_FOREVER, NULL);
        if (t->closing)
            break;
        done = t->loop;
        tutti_unlock(t->monitor);
        do_part(t, m->index);
        tutti_lock(t->monitor);
        if (--t->left == 0)
            tutti_wake(t->monitor);
    }
    tutti_unlock(t->monitor);
    return TUTTI_OK;
}

tutti_status tutti_team_open(tutti_team **out, tutti_runtime *rt, const char *name, int threads,
                             tutti_error *err)
{
    tutti_team *t = tutti_alloc(1, sizeof *t);
    tutti_status status = TUTTI_OK;

    assert(threads >= 1);
    *out = NULL;
    if (t != NULL) {
        t->rt = rt;
        t->threads = threads;
        t->thread = tutti_alloc((size_t)threads, sizeof *t->thread);
        t->member = tutti_alloc((size_t)threads, sizeof *t->member);
    }
    if (t == NULL || t->thread == NULL || t->member == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a team of %d threads", threads);
    if (status == TUTTI_OK)
        status = tutti_monitor_open(&t->monitor, rt, err);
    while (status == TUTTI_OK && t->opened < threads - 1) {
        member *const m = &t->member[t->opened];
        *m = (member){ .team = t, .index = t->opened + 1 };
        status = tutti_thread_open(&t->thread[t->opened], rt, name, serve_member, m, err);
        t->opened += status == TUTTI_OK;
    }
    if (status == TUTTI_OK)
        *out = t;
    else
        tutti_team_close(t);
    return status;
}

void tutti_team_close(tutti_team *t)
{
    if (t == NULL)
        return;
    if (t->opened > 0) {
        tutti_lock(t->monitor);
        t->closing = true;
        tutti_wake(t->monitor);
        tutti_unlock(t->monitor);
    }
    for (int k = 0; k < t->opened; k++)
        tutti_thread_join(t->thread[k], NULL);
    if (t->monitor != NULL)
        tutti_monitor_close(t->monitor);
    tutti_free(t->thread);
    tutti_free(t->member);
    tutti_free(t);
}

int tutti_team_threads(const tutti_team *t)
{
    return t->threads;
}

void tutti_team_run(tutti_team *t, size_t items, size_t grain,
                    void (*work)(void *arg, size_t first, size_t count), void *arg)
{
    tutti_lock(t->monitor);
    assert(t->left == 0 && grain > 0);
    t->work = work;
    t->arg = arg;
    t->items = items;
    t->grain = grain;
    if (items > grain) { /* else all of it is the caller's */
        t->left = t->threads - 1;
        t->loop++;
        tutti_wake(t->monitor);
    }
    tutti_unlock(t->monitor);
    do_part(t, 0);
    tutti_lock(t->monitor);
    while (t->left > 0)
        tutti_wait(t->monitor, TUTTI_FOREVER, NULL);
    tutti_unlock(t->monitor);
}
