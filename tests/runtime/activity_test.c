/* Goal: the record of what a rank is in says what was written, and a reader never takes half of an
   entry, nor any bytes for a record that are none. Method: entries whose fields all follow from one
   number, written by threads while another reads; copies that differ; bytes damaged at random. */
#include "runtime/activity.h"
#include "sanitized.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static tutti_activity *opened(void)
{
    const tutti_activity_about about = { .run = 7, .rank = 2, .size = 4, .transport = "shm", .here = { 15 } };
    tutti_activity *a = tutti_activity_open(&about);

    assert_non_null(a);
    return a;
}

static tutti_activity_entry entry_of(uint64_t n)
{
    tutti_activity_entry e = { .kind = TUTTI_ACTIVITY_COLLECTIVE, .call = n, .group = n, .members = n, .step = n,
                               .count = n, .number = (uint32_t)n, .index = (int32_t)n, .peer = (int32_t)n };

    snprintf(e.what, sizeof e.what, "call %llu", (unsigned long long)n);
    snprintf(e.of, sizeof e.of, "tensor %llu", (unsigned long long)n);
    return e;
}

static void assert_whole(const tutti_activity_entry *e)
{
    const tutti_activity_entry same = entry_of(e->call);

    assert_string_equal(e->what, same.what);
    assert_string_equal(e->of, same.of);
    assert_true(e->group == e->call && e->members == e->call && e->step == e->call && e->count == e->call);
    assert_true(e->number == (uint32_t)e->call && e->index == (int32_t)e->call && e->peer == (int32_t)e->call);
}

static void what_is_entered_is_read_until_it_ends(void **state)
{
    tutti_activity *a = opened();
    tutti_activity_view view;
    tutti_activity_entry e;
    int slot[3];

    (void)state;
    tutti_activity_folder(a, "/runs/one");
    tutti_activity_folder(a, "/runs/two"); /* once */
    tutti_activity_client(a, "forward", 3, 11);
    for (uint64_t n = 0; n < 3; n++) {
        e = entry_of(n + 1);
        slot[n] = tutti_activity_enter(a, &e);
    }
    tutti_activity_leave(a, slot[1]);
    assert_int_equal(tutti_activity_own(a, &view, NULL), TUTTI_OK);
    assert_true(view.about.rank == 2 && view.about.run == 7);
    assert_int_equal(view.about.process, getpid());
    assert_string_equal(view.folder, "/runs/one");
    assert_int_equal(view.n_now, 3);
    assert_string_equal(view.now[0].what, "forward");
    assert_true(view.now[0].index == 3 && view.now[0].step == 11 && view.now[0].kind == TUTTI_ACTIVITY_CLIENT);
    assert_int_equal(view.now[1].call, 1);
    assert_int_equal(view.now[2].call, 3);
    assert_whole(&view.now[2]);
    assert_int_equal(view.now[2].ended_ns, 0);
    assert_int_equal(view.n_events, 1);
    assert_whole(&view.events[0]);
    assert_int_equal(view.events[0].call, 2);
    assert_true(view.events[0].ended_ns >= view.events[0].since_ns && view.events[0].since_ns > 0);
    tutti_activity_run(a, 9);
    assert_int_equal(tutti_activity_own(a, &view, NULL), TUTTI_OK);
    assert_true(view.about.rank == 2 && view.about.run == 9);
    tutti_activity_close(a);
}

static void the_last_events_are_kept_in_order(void **state)
{
    tutti_activity *a = opened();
    tutti_activity_view view;

    (void)state;
    for (uint64_t n = 1; n <= 150; n++) {
        const tutti_activity_entry e = entry_of(n);
        tutti_activity_leave(a, tutti_activity_enter(a, &e));
    }
    assert_int_equal(tutti_activity_own(a, &view, NULL), TUTTI_OK);
    assert_true(view.n_now == 0 && view.n_events == TUTTI_ACTIVITY_EVENTS && view.events_ever == 150);
    for (uint64_t k = 0; k < TUTTI_ACTIVITY_EVENTS; k++)
        assert_int_equal(view.events[k].call, 150 - TUTTI_ACTIVITY_EVENTS + 1 + k);
    tutti_activity_close(a);
}

/* The clock of the ends has ticks of some milliseconds. */
static void end_after_a_tick(tutti_activity *a, int slot)
{
    usleep(20000);
    tutti_activity_leave(a, slot);
}

static void events_of_several_threads_are_one_list_by_their_ends(void **state)
{
    tutti_activity *a = opened();
    tutti_activity_view view;
    tutti_activity_entry e = entry_of(1);
    int slot[2];

    (void)state;
    slot[0] = tutti_activity_enter(a, &e);
    for (uint64_t n = 100; n < 300; n++) { /* in another slot, while the first goes on */
        e = entry_of(n);
        slot[1] = tutti_activity_enter(a, &e);
        tutti_activity_leave(a, slot[1]);
    }
    assert_int_not_equal(slot[0], slot[1]);
    end_after_a_tick(a, slot[0]);
    e = entry_of(2); /* the first slot's next, which ends after one of the second */
    slot[0] = tutti_activity_enter(a, &e);
    e = entry_of(300);
    end_after_a_tick(a, tutti_activity_enter(a, &e));
    end_after_a_tick(a, slot[0]);
    assert_int_equal(tutti_activity_own(a, &view, NULL), TUTTI_OK);
    assert_true(view.n_now == 0 && view.n_events == TUTTI_ACTIVITY_EVENTS && view.events_ever == 203);
    for (int k = 0; k < TUTTI_ACTIVITY_EVENTS - 3; k++)
        assert_int_equal(view.events[k].call, 300 - (TUTTI_ACTIVITY_EVENTS - 3) + k);
    assert_int_equal(view.events[TUTTI_ACTIVITY_EVENTS - 3].call, 1);
    assert_int_equal(view.events[TUTTI_ACTIVITY_EVENTS - 2].call, 300);
    assert_int_equal(view.events[TUTTI_ACTIVITY_EVENTS - 1].call, 2);
    for (int k = 0; k < view.n_events; k++)
        assert_whole(&view.events[k]);
    tutti_activity_close(a);
}

static void without_a_free_slot_or_record_nothing_is_noted(void **state)
{
    tutti_activity *a = opened();
    const tutti_activity_entry e = entry_of(1);
    int slot[TUTTI_ACTIVITY_SLOTS];

    (void)state;
    for (int k = 0; k < TUTTI_ACTIVITY_SLOTS; k++)
        slot[k] = tutti_activity_enter(a, &e);
    assert_int_equal(slot[TUTTI_ACTIVITY_SLOTS - 1], -1); /* slot 0 is the client's */
    tutti_activity_leave(a, -1);
    tutti_activity_leave(a, slot[4]);
    assert_int_equal(tutti_activity_enter(a, &e), slot[4]);
    tutti_activity_close(a);
    assert_int_equal(tutti_activity_enter(NULL, &e), -1);
    tutti_activity_leave(NULL, 3);
    tutti_activity_client(NULL, "compute", -1, 0);
    tutti_activity_folder(NULL, "/");
    tutti_activity_close(NULL);
}

typedef struct writer {
    tutti_activity *a;
    atomic_bool *stop;
    uint64_t from;
} writer;

static void *write_on(void *arg)
{
    const writer *w = arg;

    for (uint64_t n = w->from; !atomic_load(w->stop); n = n % 1000000 + 1) {
        const tutti_activity_entry e = entry_of(n);
        tutti_activity_leave(w->a, tutti_activity_enter(w->a, &e));
    }
    return NULL;
}

static void a_reader_takes_no_half_of_an_entry(void **state)
{
    tutti_activity *a = opened();
    atomic_bool stop = false;
    writer w[2] = { { a, &stop, 1 }, { a, &stop, 500000 } };
    pthread_t thread[2];
    tutti_activity_view view;
    int read = 0;

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, write_on, &w[i]), 0);
    for (int k = 0; k < UNLESS_SANITIZED(3000, 300); k++) {
        assert_int_equal(tutti_activity_own(a, &view, NULL), TUTTI_OK);
        for (int i = 0; i < view.n_now; i++)
            assert_whole(&view.now[i]);
        for (int i = 0; i < view.n_events; i++)
            assert_whole(&view.events[i]);
        read += view.n_events;
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    assert_true(read > 0);
    tutti_activity_close(a);
}

static void damaged_bytes_are_refused_or_read_within_bounds(void **state)
{
    tutti_activity *a = opened();
    const size_t bytes = tutti_activity_size();
    unsigned char *first = malloc(bytes), *second = malloc(bytes);
    tutti_activity_view view;
    tutti_error err;
    size_t n;

    (void)state;
    tutti_activity_client(a, "compute", -1, 5);
    memcpy(first, tutti_activity_bytes(a, &n), bytes);
    assert_int_equal(n, bytes);
    assert_int_equal(tutti_activity_read(&view, first, first, bytes, NULL), TUTTI_OK);
    assert_int_equal(tutti_activity_read(&view, first, first, bytes - 1, &err), TUTTI_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "damaged, or another version of Tutti wrote it"));
    assert_int_equal(tutti_activity_read(&view, first, first, 0, &err), TUTTI_ERR_CORRUPT);
    srand(5);
    for (int k = 0; k < 2000; k++) {
        memcpy(second, first, bytes);
        for (int i = 0; i < 1 + k % 40; i++)
            second[(size_t)rand() % bytes] = (unsigned char)rand();
        if (tutti_activity_read(&view, second, second, bytes, &err) != TUTTI_OK) {
            assert_non_null(strstr(err.text, "the record"));
            continue;
        }
        assert_true(view.n_now <= TUTTI_ACTIVITY_SLOTS && view.n_events <= TUTTI_ACTIVITY_EVENTS);
        assert_true(view.about.rank < view.about.size &&
                    (view.about.rank >= 0 || (view.about.rank == -1 && view.about.size == 0)));
        assert_true(strnlen(view.folder, sizeof view.folder) < sizeof view.folder);
        for (int i = 0; i < view.n_now; i++) {
            assert_true(view.now[i].kind >= TUTTI_ACTIVITY_CLIENT && view.now[i].kind <= TUTTI_ACTIVITY_MESSAGE);
            assert_true(strnlen(view.now[i].of, sizeof view.now[i].of) < sizeof view.now[i].of);
        }
    }
    free(first);
    free(second);
    tutti_activity_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_entered_is_read_until_it_ends),
        cmocka_unit_test(the_last_events_are_kept_in_order),
        cmocka_unit_test(events_of_several_threads_are_one_list_by_their_ends),
        cmocka_unit_test(without_a_free_slot_or_record_nothing_is_noted),
        cmocka_unit_test(a_reader_takes_no_half_of_an_entry),
        cmocka_unit_test(damaged_bytes_are_refused_or_read_within_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
