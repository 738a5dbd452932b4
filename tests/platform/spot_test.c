/* Traces of losses: the same spec gives the same bytes; lines are in order and alternate; a
   thousand hours have the statistics of the public traces that spot.c names; an event takes hosts
   of one place; bad specs write nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "platform/spot.h"

enum { HOSTS = 64, SIZES = 65 };
typedef struct seen {
    int lines, events, hosts, ups;       /* of the whole trace */
    int sizes[SIZES];                    /* events that took 1, 2, ... hosts */
    int places[HOSTS];                   /* events of each place */
    int at_once;                         /* events at the time of another place's */
    int soon, later;                     /* returns within 15 and 75 minutes */
    double there;                        /* hosts, on average over time until the last line */
} seen;

/* free() it. */
static char *print(const char *spec, tutti_status *status, tutti_error *err)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    *status = tutti_spot_print(out, spec, err);
    fclose(out);
    return text;
}

static char *printed(const char *spec)
{
    tutti_status status;
    tutti_error err = { 0 };
    char *text = print(spec, &status, &err);

    if (status != TUTTI_OK)
        fail_msg("%s: %s", spec, err.text);
    return text;
}

/* Reads a trace of n hosts in `places` equal places. Lines of one time and place are one event,
   whose hosts ascend. */
static seen look(const char *spec, int n, int places)
{
    char *text = printed(spec), *rest = text, *line;
    bool down[HOSTS] = { false };
    double since[HOSTS] = { 0 }, last = 0, event_at = -1;
    int up = n, of = -1, size = 0, last_host = -1;
    seen s = { 0 };

    while ((line = strsep(&rest, "\n")) != NULL && *line != '\0') {
        double at;
        int host;
        char word[8];
        if (*line == '#')
            continue;
        assert_int_equal(sscanf(line, "%lf %d %7s", &at, &host, word), 3);
        assert_true(at >= last && host >= 0 && host < n);
        assert_int_equal(down[host], strcmp(word, "up") == 0);
        down[host] = !down[host];
        s.lines++;
        s.there += up * (at - last);
        up += down[host] ? -1 : 1;
        last = at;
        if (!down[host]) {
            s.ups++;
            s.soon += at - since[host] <= 15 * 60;
            s.later += at - since[host] <= 75 * 60;
            continue;
        }
        since[host] = at;
        if (at != event_at || host * places / n != of) {
            if (size > 0)
                s.sizes[size]++;
            s.at_once += at == event_at;
            s.events++;
            of = host * places / n;
            s.places[of]++;
            event_at = at;
            size = 0;
            last_host = -1;
        }
        assert_true(host > last_host);
        last_host = host;
        size++;
        s.hosts++;
    }
    if (size > 0)
        s.sizes[size]++;
    if (last > 0)
        s.there /= last;
    free(text);
    return s;
}

/* The lines before the first event. */
#define FIRST(options) "# tutti platform 'spot(" options ")'\n# SECONDS WORKER down|up\n"

static void same_spec_gives_same_bytes_and_another_seed_others(void **state)
{
    char *a = printed("spot(64,8,hours=20)"), *b = printed("spot(n=64,places=8,hours=20,seed=0)"),
         *c = printed("spot(n=64,places=8,hours=20,seed=1)"), *none = printed("spot(events=0)");

    (void)state;
    assert_string_equal(a, b);
    assert_string_not_equal(strchr(a, '\n'), strchr(c, '\n'));
    assert_memory_equal(a, FIRST("n=64,places=8,hours=20"), strlen(FIRST("n=64,places=8,hours=20")));
    assert_memory_equal(c, FIRST("n=64,places=8,hours=20,seed=1"),
                        strlen(FIRST("n=64,places=8,hours=20,seed=1")));
    assert_string_equal(none, FIRST("events=0"));
    free(a);
    free(b);
    free(c);
    free(none);
}

/* A longer trace begins with the shorter one, but for what comes back after that one's end. */
static void first_hours_do_not_depend_on_the_last(void **state)
{
    char *one = printed("spot(n=16,hours=3)"), *two = printed("spot(n=16,hours=6)");

    (void)state;
    assert_true(strlen(one) < strlen(two));
    assert_memory_equal(strchr(one, '\n'), strchr(two, '\n'), strlen(strchr(one, '\n')));
    free(one);
    free(two);
}

/* Parcae, 32 hosts: 6.95 events and 14.7 hosts an hour, 39 of 79 events take one, 24.0 hosts there.
   Their times away are not published; a median of 15 minutes gives that average. */
static void busy_trace_is_as_parcaes(void **state)
{
    const seen s = look("spot(n=32,hours=1000,back=15)", 32, 1);
    int more = 0;

    (void)state;
    assert_in_range(s.events, 6700, 7300);
    assert_in_range(s.hosts, 14200, 15400);
    assert_in_range(s.sizes[1], s.events * 47 / 100, s.events * 52 / 100);
    assert_in_range(s.sizes[3], s.events * 17 / 100, s.events * 21 / 100);
    assert_in_range(s.sizes[6], s.events * 4 / 100, s.events * 6 / 100);
    for (int k = 7; k < SIZES; k++)
        more += s.sizes[k];
    assert_int_equal(more, 0);
    assert_true(s.there > 22.5 && s.there < 25.5);
    assert_true(s.ups > s.hosts - 32 && s.ups <= s.hosts);
    assert_in_range(s.soon, s.ups * 47 / 100, s.ups * 53 / 100); /* back=15 */
    assert_in_range(s.later, s.ups * 88 / 100, s.ups * 92 / 100); /* spread=5 */
}

/* SkyPilot, 16 hosts: 0.31 to 0.50 events an hour, 85 to 93 % take two or more, 6.7 to 11 on
   average, up to all 16. */
static void calm_trace_is_as_skypilots(void **state)
{
    const seen s = look("spot(n=16,hours=1000,events=0.4,size=bulk)", 16, 1);

    (void)state;
    assert_in_range(s.events, 340, 460);
    assert_in_range(s.hosts, s.events * 67 / 10, s.events * 11);
    assert_in_range(s.events - s.sizes[1], s.events * 85 / 100, s.events * 93 / 100);
    assert_true(s.sizes[16] > 0);
}

/* Every place has events of its own, of its own hosts only, at the rate that is asked for. */
static void places_are_independent(void **state)
{
    const seen s = look("spot(n=64,places=8,hours=1000,events=1,back=1,spread=1)", 64, 8);

    (void)state;
    for (int p = 0; p < 8; p++)
        assert_in_range(s.places[p], 880, 1120);
    assert_int_equal(s.at_once, 0);
    assert_true(s.there > 63);
}

/* A host that comes back in the millisecond in which it is taken again is back first: look() sees
   that its lines alternate. With one host that is away for 61 ms this happens every few hours. */
static void host_taken_as_it_comes_back_is_back_first(void **state)
{
    const seen s = look("spot(n=1,hours=100,events=1000,back=0.001,spread=1)", 1, 1);

    (void)state;
    assert_in_range(s.events, 95000, 101000);
}

static void bad_specs_write_nothing_and_say_what_would_do(void **state)
{
    static const char *const bad[][2] = {
        { "spot(n=4,places=5)", "4 hosts in 5 places; each place needs a host" },
        { "spot(n=0)", "n" },
        { "spot(events=-1)", "events" },
        { "spot(hours=0)", "hours" },
        { "spot(size=most)", "it must be few or bulk" },
        { "spot(spread=0.5)", "spread" },
        { "cluster(n=4)", "write spot(...)" },
        { "spot(n=4", "missing ')'" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tutti_error err = { 0 };
        tutti_status status;
        char *text = print(bad[i][0], &status, &err);
        assert_int_equal(status, TUTTI_ERR_USAGE);
        assert_string_equal(text, "");
        if (strstr(err.text, bad[i][1]) == NULL)
            fail_msg("%s: %s", bad[i][0], err.text);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_spec_gives_same_bytes_and_another_seed_others),
        cmocka_unit_test(first_hours_do_not_depend_on_the_last),
        cmocka_unit_test(busy_trace_is_as_parcaes),
        cmocka_unit_test(calm_trace_is_as_skypilots),
        cmocka_unit_test(places_are_independent),
        cmocka_unit_test(host_taken_as_it_comes_back_is_back_first),
        cmocka_unit_test(bad_specs_write_nothing_and_say_what_would_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
