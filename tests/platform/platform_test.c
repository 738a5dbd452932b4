/* Platforms as text: the same spec gives the same bytes, every shape is in the table, bad specs
   write nothing and say what would do. That the XML means what the spec says is
   tests/cli/platform_test.py, with an XML parser. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "platform/platform.h"

static size_t until_failure = SIZE_MAX;

void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);

void *__wrap_tutti_alloc(size_t count, size_t size)
{
    return until_failure != SIZE_MAX && until_failure-- == 0 ? NULL : __real_tutti_alloc(count, size);
}

/* free() it. */
static char *print(const char *spec, tutti_status *status, tutti_error *err)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    *status = tutti_platform_print(out, spec, err);
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

/* By hand: under the address sanitizer each strstr measures the whole rest, which takes
   minutes for the largest platforms. */
static int count(const char *text, const char *what)
{
    const size_t length = strlen(what);
    int n = 0;
    for (; *text != '\0'; text++)
        n += *text == *what && strncmp(text, what, length) == 0;
    return n;
}

static void every_shape_is_made_from_its_defaults_and_twice_the_same(void **state)
{
    const char *name, *title;
    const tutti_option *options;
    int n = 0;

    (void)state;
    for (; tutti_platform_shape(n, &name, &title, &options); n++) {
        char *a = printed(name), *b = printed(name);
        assert_string_equal(a, b);
        assert_true(count(a, "<host ") >= 8);
        assert_int_equal(count(a, "<link "), 1 + 2 * (count(a, "<host ") + count(a, "<router ") - 1));
        assert_true(strlen(title) > 10 && options != NULL);
        free(a);
        free(b);
    }
    assert_int_equal(n, 6);
    assert_false(tutti_platform_shape(-1, &name, &title, &options));
}

static void small_cluster_matches_the_expected_text(void **state)
{
    char *text = printed("cluster(2,10Gbps,50us,1.5Gf)");

    (void)state;
    assert_string_equal(
        text, "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n<!-- tutti "
              "platform 'cluster(n=2,speed=1.5Gf)' -->\n"
              "<platform version=\"4.1\">\n  <zone id=\"all\" routing=\"DijkstraCache\">\n"
              "    <host id=\"w0\" speed=\"1500000000f\"/>\n    <host id=\"w1\" speed=\"1500000000f\"/>\n    <router "
              "id=\"s0\"/>\n"
              "    <link id=\"loopback\" bandwidth=\"80Gbps\" latency=\"0s\" sharing_policy=\"FATPIPE\"/>\n"
              "    <link id=\"w0_up\" bandwidth=\"10000000000bps\" latency=\"2.5e-05s\" sharing_policy=\"SHARED\"/>\n"
              "    <link id=\"w0_down\" bandwidth=\"10000000000bps\" latency=\"2.5e-05s\" sharing_policy=\"SHARED\"/>\n"
              "    <link id=\"w1_up\" bandwidth=\"10000000000bps\" latency=\"2.5e-05s\" sharing_policy=\"SHARED\"/>\n"
              "    <link id=\"w1_down\" bandwidth=\"10000000000bps\" latency=\"2.5e-05s\" sharing_policy=\"SHARED\"/>\n"
              "    <route src=\"w0\" dst=\"w0\" symmetrical=\"NO\"><link_ctn id=\"loopback\"/></route>\n"
              "    <route src=\"w0\" dst=\"s0\" symmetrical=\"NO\"><link_ctn id=\"w0_up\"/></route>\n"
              "    <route src=\"s0\" dst=\"w0\" symmetrical=\"NO\"><link_ctn id=\"w0_down\"/></route>\n"
              "    <route src=\"w1\" dst=\"w1\" symmetrical=\"NO\"><link_ctn id=\"loopback\"/></route>\n"
              "    <route src=\"w1\" dst=\"s0\" symmetrical=\"NO\"><link_ctn id=\"w1_up\"/></route>\n"
              "    <route src=\"s0\" dst=\"w1\" symmetrical=\"NO\"><link_ctn id=\"w1_down\"/></route>\n"
              "  </zone>\n</platform>\n");
    free(text);
}

static void different_seeds_give_different_platforms(void **state)
{
    static const char *const pairs[][2] = {
        { "edge(seed=1)", "edge(seed=2)" }, { "random-stragglers(seed=1)", "random-stragglers(seed=2)" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(pairs); i++) {
        char *a = printed(pairs[i][0]), *b = printed(pairs[i][1]);
        assert_string_not_equal(strstr(a, "<platform"), strstr(b, "<platform"));
        free(a);
        free(b);
    }
}

static void refused(const char *spec, const char *sentence)
{
    tutti_status status;
    tutti_error err = { 0 };
    char *text = print(spec, &status, &err);

    assert_int_equal(status, TUTTI_ERR_USAGE);
    assert_string_equal(err.text, sentence);
    assert_string_equal(text, "");
    free(text);
}

static void invalid_specs_write_nothing_and_suggest_corrections(void **state)
{
    (void)state;
    refused("clutser", "there is no platform 'clutser'; did you mean 'cluster'?; platforms are cluster, two-level, "
                       "straggler, random-stragglers, wan, edge");
    refused("cluster(n=0)", "platform 'cluster': option 'n' is 0; it must be from 1 to 16384 (hosts)");
    refused("cluster(m=3)", "platform 'cluster': unknown option 'm'; there are n, rate, latency and speed");
    refused("cluster(rate=10)", "platform 'cluster': rate is '10'; write a number with bps, kbps, Mbps, Gbps or Tbps "
                                "(bits a second), from 1bps to 1000Tbps");
    refused("cluster(rate=-1Gbps)", "platform 'cluster': rate is '-1Gbps'; write a number with bps, kbps, Mbps, Gbps "
                                    "or Tbps (bits a second), from 1bps to 1000Tbps");
    refused("cluster(rate=0x1pGbps)", "platform 'cluster': rate is '0x1pGbps'; write a number with bps, kbps, Mbps, "
                                      "Gbps or Tbps (bits a second), from 1bps to 1000Tbps");
    refused("cluster(rate=1.2.3Gbps)", "platform 'cluster': rate is '1.2.3Gbps'; write a number with bps, kbps, Mbps, "
                                       "Gbps or Tbps (bits a second), from 1bps to 1000Tbps");
    refused("cluster(latency=50Gbps)",
            "platform 'cluster': latency is '50Gbps'; write a number with ns, us, ms or s, from 0s to 1000s");
    refused("cluster(latency=1001s)",
            "platform 'cluster': latency is '1001s'; write a number with ns, us, ms or s, from 0s to 1000s");
    refused("cluster(speed=\"\")", "platform 'cluster': speed is ''; write a number with f, kf, Mf, Gf or Tf "
                                   "(floating-point operations a second), from 1f to 1000Tf");
    refused("straggler(n=4,worker=4)", "platform 'straggler': worker is 4, but the 4 hosts are 0 to 3");
    refused("random-stragglers(period=999ns)",
            "platform 'random-stragglers': period is '999ns'; it must be at least 1us");
    refused("two-level(machines=16384,per_machine=2)",
            "platform 'two-level': machines x per_machine is 32768 hosts; at most 16384 are possible");
    refused("wan(latency=1us)", "platform 'wan': latency is '1us' but inner_latency '5us': the way out leads through "
                                "the inner network; raise the one or lower the other");
    refused("edge(rate=1Mbps)", "platform 'edge': the slowest hosts would be the fastest: slow_rate 5Mbps, rate 1Mbps; "
                                "slow_latency 60ms, latency 5ms (above 0); slow_speed 2Gf, "
                                "speed 50Gf");
    refused("cluster(n=2", "spec 'cluster(n=2': missing ')' at the end");
}

static void largest_cluster_and_two_level_platforms_are_generated(void **state)
{
    char *a = printed("cluster(n=16384)"), *b = printed("two-level(machines=16384,per_machine=1)");

    (void)state;
    assert_int_equal(count(a, "<host "), 16384);
    assert_int_equal(count(a, "id=\"w16383\""), 1);
    assert_int_equal(count(b, "<router "), 16385);
    free(a);
    free(b);
}

static void a_full_disk_and_no_memory_are_failures(void **state)
{
    tutti_status status = TUTTI_ERR_MEMORY;
    tutti_error err;
    FILE *full = fopen("/dev/full", "w");

    (void)state;
    assert_non_null(full);
    setvbuf(full, NULL, _IONBF, 0);
    assert_int_equal(tutti_platform_print(full, "cluster", &err), TUTTI_ERR_IO);
    assert_string_equal(err.text, "writing platform 'cluster'; is the disk full?");
    fclose(full);
    for (size_t at = 0; status != TUTTI_OK; at++) {
        char *text;
        until_failure = at;
        text = print("cluster", &status, &err);
        until_failure = SIZE_MAX;
        assert_true(status == TUTTI_OK ? at >= 2 : status == TUTTI_ERR_MEMORY && text[0] == '\0');
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_is_made_from_its_defaults_and_twice_the_same),
        cmocka_unit_test(small_cluster_matches_the_expected_text),
        cmocka_unit_test(different_seeds_give_different_platforms),
        cmocka_unit_test(invalid_specs_write_nothing_and_suggest_corrections),
        cmocka_unit_test(largest_cluster_and_two_level_platforms_are_generated),
        cmocka_unit_test(a_full_disk_and_no_memory_are_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
