/* locks.c: locks in memory that processes share, for a model that they update in place (asgd's
   hogwild with locks).

   A word is 0, or 1 + the rank of the holder. Monitors are private to a process, so no process
   can wait on one for another's lock: a worker that finds a lock taken polls it again after a
   while. What is done under a lock never waits for other workers, so that is short. A process
   that dies while holding a lock leaves its rank in it: once that rank is known to be lost, a
   waiting worker takes the lock over, by the same compare-and-exchange that takes a free one, so
   exactly one of them does. */
#include <stdatomic.h>

#include "engine_internal.h"
#include "locks.h"

/* updating a row takes less than that many tries, updating a large model milliseconds */
enum { TRIES = 64, AGAIN_NS = 5000 };

static size_t locks_of(const tutti_tensor *t)
{
    return t->cols > 1 || t->row_sparse ? t->rows : 1;
}

size_t tutti_locks_count(const tutti_method *m, bool rows)
{
    size_t n = rows ? 0 : 1;

    for (int i = 0; rows && i < m->layout->n_tensors; i++)
        n += locks_of(&m->layout->tensor[i]);
    return n;
}

void tutti_locks_take(const tutti_method *m, uint32_t *word)
{
    _Atomic uint32_t *const lock = (_Atomic uint32_t *)(void *)word;
    const uint32_t mine = 1 + (uint32_t)m->rank;

    for (;;) {
        uint32_t holder = 0;
        for (int k = 0; k < TRIES; k++) {
            holder = 0;
            /* pairs with tutti_locks_leave */
            if (atomic_compare_exchange_weak_explicit(lock, &holder, mine, memory_order_acquire,
                                                      memory_order_relaxed))
                return;
        }
        if (holder > 0 && tutti_world_lost(m->world, (int)holder - 1, NULL, 0) &&
            atomic_compare_exchange_strong_explicit(lock, &holder, mine, memory_order_acquire,
                                                    memory_order_relaxed))
            return;
        tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + AGAIN_NS);
    }
}

void tutti_locks_leave(uint32_t *word)
{
    atomic_store_explicit((_Atomic uint32_t *)(void *)word, 0, memory_order_release);
}

static void update_range(tutti_method *m, float *at, const float *from, size_t first, size_t count,
                         const tutti_rate *rate)
{
    tutti_update(m->optim, first, count, at, from, rate);
}

static void copy(tutti_method *m, float *at, const float *from, size_t first, size_t count,
                 const tutti_rate *rate)
{
    (void)first, (void)rate;
    tutti_copy(m->device, count, from, at);
}

/* A tensor, or rows of it; word: the lock of its first row. */
typedef struct locked {
    uint32_t *word;
    const tutti_tensor *tensor;
    const tutti_rows *rows;
} locked;

/* Applies `part` to each row under its lock. */
static void by_rows(tutti_method *m, const locked *of, tutti_locked_part *part, float *to,
                    const float *from, const tutti_rate *rate)
{
    const tutti_tensor *t = of->tensor;
    const tutti_rows *rows = of->rows;
    const size_t width = t->count / locks_of(t), n = rows != NULL ? rows->n : locks_of(t);

    for (size_t k = 0; k < n; k++) {
        const size_t row = rows != NULL ? rows->ids[k] : k, first = t->first + row * width;
        tutti_locks_take(m, of->word + row);
        part(m, to + first, from + first, first, width, rate);
        tutti_locks_leave(of->word + row);
    }
}

/* The lock of a tensor's first row. */
static uint32_t *word_of(const tutti_method *m, const tutti_locks *locks, int tensor)
{
    uint32_t *word = locks->word;

    for (int i = 0; i < tensor; i++)
        word += locks_of(&m->layout->tensor[i]);
    return word;
}

void tutti_engine_locked(tutti_method *m, const tutti_locks *locks, tutti_locked_part *part,
                         float *to, const float *from)
{
    if (!locks->rows) {
        tutti_locks_take(m, locks->word);
        part(m, to, from, 0, m->layout->used, NULL);
        tutti_locks_leave(locks->word);
        return;
    }
    for (int i = 0; i < m->layout->n_tensors; i++)
        by_rows(m, &(locked){ word_of(m, locks, i), &m->layout->tensor[i], NULL }, part, to, from,
                NULL);
}

tutti_status tutti_base_step_locked(tutti_method *m, float *x, const tutti_locks *locks,
                                    tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_rate rate;
    bool skip;

    if (e->client.updates) {
        TUTTI_TRY(tutti_base_gradient(m, &rate, &skip, err));
        return skip ? TUTTI_OK : tutti_engine_client_update(e, x, NULL, locks, 1, err);
    }
    TUTTI_TRY(tutti_base_check(m, &rate, &skip, err));
    if (skip || m->optim == NULL)
        return TUTTI_OK;
    if (!locks->rows) {
        tutti_locks_take(m, locks->word);
        tutti_engine_update(e, x, &rate);
        tutti_locks_leave(locks->word);
        return TUTTI_OK;
    }
    for (int i = 0; i < m->layout->n_tensors; i++)
        by_rows(m,
                &(locked){ word_of(m, locks, i), &m->layout->tensor[i],
                           tutti_engine_rows_to_update(e, i) },
                update_range, x, m->g, &rate);
    return TUTTI_OK;
}

void tutti_locked_read(tutti_method *m, const tutti_locks *locks, const float *from)
{
    if (!locks->rows)
        tutti_locks_take(m, locks->word);
    for (int i = 0; i < m->layout->n_tensors; i++) {
        const tutti_tensor *t = &m->layout->tensor[i];
        if (t->asked)
            continue;
        if (locks->rows)
            by_rows(m, &(locked){ word_of(m, locks, i), t, NULL }, copy, m->x, from, NULL);
        else
            tutti_copy(m->device, t->count, from + t->first, m->x + t->first);
    }
    if (!locks->rows)
        tutti_locks_leave(locks->word);
}

void tutti_locked_read_rows(tutti_method *m, const tutti_locks *locks, const float *from,
                            int tensor, const uint32_t *ids, size_t n)
{
    const tutti_tensor *t = &m->layout->tensor[tensor];

    if (locks->rows) {
        by_rows(m, &(locked){ word_of(m, locks, tensor), t, &(tutti_rows){ .n = n, .ids = ids } },
                copy, m->x, from, NULL);
        return;
    }
    tutti_locks_take(m, locks->word);
    for (size_t k = 0; k < n; k++)
        tutti_copy(m->device, t->cols, from + t->first + ids[k] * t->cols,
                   m->x + t->first + ids[k] * t->cols);
    tutti_locks_leave(locks->word);
}
