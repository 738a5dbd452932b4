/* activity_read.c: reads the record of a rank (activity.h) from copies of its bytes, which are not
   trusted: another process may write them meanwhile, or they are none. */
#include <string.h>
#include "activity_internal.h"

size_t tutti_activity_size(void)
{
    return sizeof(activity_record);
}

/* Ends a text that was read. Whatever a terminal would obey is a '?'. */
static void clean(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

/* Copies an entry out. false: there is none, or (*changing) it was being written. */
static bool take(const activity_lock *first, const activity_lock *second, tutti_activity_entry *out,
                 int *changing)
{
    uint64_t turn[2];

    memcpy(&turn[0], (const void *)&first->turn, sizeof turn[0]);
    memcpy(&turn[1], (const void *)&second->turn, sizeof turn[1]);
    memcpy(out, (const void *)first->word, sizeof *out);
    /* The words are compared too: within one copy they may have been read before the turn. */
    if (turn[0] != turn[1] || turn[0] % 2 != 0 ||
        memcmp(out, (const void *)second->word, sizeof *out) != 0) {
        ++*changing;
        return false;
    }
    clean(out->what, sizeof out->what);
    clean(out->of, sizeof out->of);
    return out->what[0] != '\0' && out->kind >= TUTTI_ACTIVITY_CLIENT &&
           out->kind <= TUTTI_ACTIVITY_MESSAGE;
}

static bool is_sane(const tutti_activity_about *about)
{
    const bool of_member = about->size == 0 && about->rank == -1;

    return about->process > 0 &&
           (of_member || (about->size >= 1 && about->rank >= 0 && about->rank < about->size));
}

/* Keeps the last events by their ends, oldest first. Those of one slot come in order and stay
   so. */
static void insert_event(tutti_activity_view *view, const tutti_activity_entry *event)
{
    tutti_activity_entry *const events = view->events;
    int at;

    if (view->n_events == TUTTI_ACTIVITY_EVENTS) {
        if (event->ended_ns < events[0].ended_ns)
            return;
        memmove(events, events + 1, (size_t)--view->n_events * sizeof *events);
    }
    for (at = view->n_events++; at > 0 && events[at - 1].ended_ns > event->ended_ns; at--)
        events[at] = events[at - 1];
    events[at] = *event;
}

static void read_past(tutti_activity_view *view, const activity_past *first,
                      const activity_past *second)
{
    tutti_activity_entry event;
    uint64_t n;
    int torn = 0; /* older ones are whole */

    memcpy(&n, (const void *)&first->n, sizeof n);
    view->events_ever += n;
    for (uint64_t k = 0; k < TUTTI_ACTIVITY_EVENTS; k++) {
        const uint64_t at = (n + k) % TUTTI_ACTIVITY_EVENTS;
        if (take(&first->event[at], &second->event[at], &event, &torn))
            insert_event(view, &event);
    }
}

tutti_status tutti_activity_read(tutti_activity_view *view, const void *first, const void *second,
                                 size_t bytes, tutti_error *err)
{
    const activity_record *a = first, *b = second;
    uint32_t has_folder;
    uint64_t run;

    memset(view, 0, sizeof *view);
    if (bytes != sizeof *a)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "the record has %zu bytes and not %zu: it is damaged, or another version "
                          "of Tutti wrote it",
                          bytes, sizeof *a);
    if (a->magic != TUTTI_ACTIVITY_MAGIC || a->bytes != sizeof *a ||
        memcmp(&a->about, &b->about, sizeof a->about) != 0)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "the record does not begin as one: it is damaged, or another version of "
                          "Tutti wrote it");
    if (!is_sane(&a->about))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "the record is damaged: it is of rank %d of %d, process %lld",
                          a->about.rank, a->about.size, (long long)a->about.process);
    view->about = a->about;
    memcpy(&run, (const void *)&b->run, sizeof run);
    if (run != 0)
        view->about.run = run;
    clean(view->about.transport, sizeof view->about.transport);
    memcpy(&has_folder, (const void *)&a->has_folder, sizeof has_folder);
    if (has_folder == 1) {
        memcpy(view->folder, b->folder, sizeof view->folder);
        clean(view->folder, sizeof view->folder);
    }
    for (int k = 0; k < TUTTI_ACTIVITY_SLOTS; k++)
        view->n_now += take(&a->now[k], &b->now[k], &view->now[view->n_now], &view->changing);
    for (int k = 0; k < TUTTI_ACTIVITY_SLOTS; k++)
        read_past(view, &a->past[k], &b->past[k]);
    return TUTTI_OK;
}

/* Copies the record of this process, to which other threads write: each word atomically. */
static void copy_words(uint64_t *to, const uint64_t *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *to; i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE); /* in order; pairs with write_entry */
}

tutti_status tutti_activity_own(const tutti_activity *a, tutti_activity_view *view,
                                tutti_error *err)
{
    size_t bytes;
    const void *at = tutti_activity_bytes(a, &bytes);
    uint64_t *copies;
    tutti_status status;

    memset(view, 0, sizeof *view);
    if (at == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "this rank keeps no record of what it is in");
    copies = tutti_alloc(2, bytes);
    if (copies == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a copy of this rank's record");
    copy_words(copies, at, bytes);
    copy_words(copies + bytes / sizeof *copies, at, bytes);
    status = tutti_activity_read(view, copies, copies + bytes / sizeof *copies, bytes, err);
    tutti_free(copies);
    return status;
}
