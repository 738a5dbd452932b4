/* activity.c: a rank's record of what it is in (activity.h): made once, then written by stores. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "activity_internal.h"

struct tutti_activity {
    activity_record *record;
    int fd;                      /* stays open: readers open it by /proc/PID/fd */
};

/* The coarse clock is a load from memory, and as exact as a person needs. */
static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static activity_record *map_record(int *fd)
{
    const size_t bytes = sizeof(activity_record);
    void *at = MAP_FAILED;

    *fd = memfd_create(TUTTI_ACTIVITY_FILE, MFD_CLOEXEC);
    if (*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (at != MAP_FAILED)
        return at;
    if (*fd >= 0)
        close(*fd);
    return NULL;
}

tutti_activity *tutti_activity_open(const tutti_activity_about *about)
{
    tutti_activity *a = tutti_alloc(1, sizeof *a);

    if (a == NULL)
        return NULL;
    a->record = map_record(&a->fd);
    if (a->record == NULL) {
        tutti_free(a);
        return NULL;
    }
    a->record->bytes = sizeof *a->record;
    a->record->about = *about;
    a->record->about.opened_ns = now_ns();
    a->record->about.process = (int64_t)getpid();
    /* the magic number comes last: a reader sees all or no record */
    atomic_thread_fence(memory_order_release);
    a->record->magic = TUTTI_ACTIVITY_MAGIC;
    return a;
}

void tutti_activity_close(tutti_activity *a)
{
    if (a == NULL)
        return;
    munmap(a->record, sizeof *a->record);
    close(a->fd);
    tutti_free(a);
}

void tutti_activity_run(tutti_activity *a, uint64_t run)
{
    if (a != NULL) /* relaxed: a reader takes either number */
        atomic_store_explicit(&a->record->run, run, memory_order_relaxed);
}

void tutti_activity_folder(tutti_activity *a, const char *directory)
{
    char *path;

    if (a == NULL || atomic_load_explicit(&a->record->has_folder, memory_order_relaxed) != 0)
        return;
    path = realpath(directory, NULL);
    snprintf(a->record->folder, sizeof a->record->folder, "%s", path != NULL ? path : directory);
    free(path);
    /* release: publishes folder; the reader's pair is the acquire in tutti_activity_read */
    atomic_store_explicit(&a->record->has_folder, 1, memory_order_release);
}

/* A seqlock's writer: turn odd, the words, turn even. The release of a word keeps it behind the odd
   turn, that of the even turn keeps them before it. (A fence would do the same, but the thread
   sanitizer knows of none.) Only the thread that has the slot writes to it and to its past, so no
   locked instruction is needed: calls of a fraction of a microsecond are noted, too. */
static void write_entry(activity_lock *to, const tutti_activity_entry *entry)
{
    const uint64_t turn = atomic_load_explicit(&to->turn, memory_order_relaxed);
    uint64_t word[TUTTI_ACTIVITY_WORDS];

    memcpy(word, entry, sizeof word);
    atomic_store_explicit(&to->turn, turn + 1, memory_order_relaxed);
    for (int i = 0; i < TUTTI_ACTIVITY_WORDS; i++)
        atomic_store_explicit(&to->word[i], word[i], memory_order_release);
    atomic_store_explicit(&to->turn, turn + 2, memory_order_release);
}

/* There is no entry now: the first word, which has the first letters of the text, is 0. */
static void clear_entry(activity_lock *to)
{
    const uint64_t turn = atomic_load_explicit(&to->turn, memory_order_relaxed);

    atomic_store_explicit(&to->turn, turn + 1, memory_order_relaxed);
    atomic_store_explicit(&to->word[0], 0, memory_order_release);
    atomic_store_explicit(&to->turn, turn + 2, memory_order_release);
}

/* Returns the slot's entry. Only the thread that has the slot calls it. */
static tutti_activity_entry entry_of(const activity_lock *from)
{
    tutti_activity_entry entry;
    uint64_t word[TUTTI_ACTIVITY_WORDS];

    for (int i = 0; i < TUTTI_ACTIVITY_WORDS; i++) /* relaxed: written by this thread */
        word[i] = atomic_load_explicit(&((activity_lock *)(uintptr_t)from)->word[i],
                                       memory_order_relaxed);
    memcpy(&entry, word, sizeof entry);
    return entry;
}

int tutti_activity_enter(tutti_activity *a, const tutti_activity_entry *what)
{
    tutti_activity_entry entry;

    if (a == NULL)
        return -1;
    entry = *what;
    entry.since_ns = now_ns();
    entry.ended_ns = 0;
    for (int slot = 1; slot < TUTTI_ACTIVITY_SLOTS; slot++) {
        uint32_t is_free = 0;
        /* acquire: pairs with the release in leave, whose thread had the slot before */
        if (atomic_load_explicit(&a->record->taken[slot], memory_order_relaxed) != 0 ||
            !atomic_compare_exchange_strong_explicit(&a->record->taken[slot], &is_free, 1,
                                                     memory_order_acquire, memory_order_relaxed))
            continue;
        write_entry(&a->record->now[slot], &entry);
        return slot;
    }
    return -1;
}

void tutti_activity_leave(tutti_activity *a, int slot)
{
    tutti_activity_entry entry;
    activity_past *past;
    uint64_t n;

    if (a == NULL || slot < 0)
        return;
    past = &a->record->past[slot];
    n = atomic_load_explicit(&past->n, memory_order_relaxed);
    entry = entry_of(&a->record->now[slot]);
    entry.ended_ns = now_ns();
    write_entry(&past->event[n % TUTTI_ACTIVITY_EVENTS], &entry);
    atomic_store_explicit(&past->n, n + 1, memory_order_relaxed);
    clear_entry(&a->record->now[slot]);
    /* release: the next thread of this slot goes on from here */
    atomic_store_explicit(&a->record->taken[slot], 0, memory_order_release);
}

void tutti_activity_client(tutti_activity *a, const char *what, int index, uint64_t step)
{
    tutti_activity_entry entry = {
        .kind = TUTTI_ACTIVITY_CLIENT, .index = index, .peer = -1, .step = step
    };

    if (a == NULL)
        return;
    snprintf(entry.what, sizeof entry.what, "%s", what);
    entry.since_ns = now_ns();
    write_entry(&a->record->now[0], &entry);
}

const void *tutti_activity_bytes(const tutti_activity *a, size_t *bytes)
{
    *bytes = a != NULL ? sizeof *a->record : 0;
    return a != NULL ? a->record : NULL;
}
