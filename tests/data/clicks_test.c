/* Goal: click logs are read as their format defines or refused at the field that is wrong; the
   generator writes that format, its frequencies are Zipf's and its truth is the best score.
   Method: lines by hand and lines of the generator, read back; frequencies against the law; the
   area under the curve against counting all pairs. */
#include <math.h>

#include "make.h"
#include "data/clicks.h"

/* A click with everything in it: missing fields, a negative integer, the largest, capital
   digits. */
static size_t make_line(char *line, const char *end)
{
    size_t n = (size_t)snprintf(line, TUTTI_CLICKS_LINE_MOST,
                                "1\t5\t\t-1\t0\t7\t8\t9\t10\t11\t12\t13\t14\t2147483647\t68fd1e64\t\tFB936136");

    for (int c = 3; c < 26; c++)
        n += (size_t)snprintf(line + n, TUTTI_CLICKS_LINE_MOST - n, "\t%08x", c);
    return n + (size_t)snprintf(line + n, TUTTI_CLICKS_LINE_MOST - n, "%s", end);
}

static void a_click_line_is_parsed_by_the_format(void **state)
{
    static const char *const ends[] = { "\n", "", "\r\n", "\r", "\n0\t" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(ends); k++) {
        char line[TUTTI_CLICKS_LINE_MOST];
        const size_t n = make_line(line, ends[k]);
        uint8_t *exact = malloc(n); /* so that a sanitizer sees its end */
        tutti_click click;
        size_t used;
        memcpy(exact, line, n);
        assert_int_equal(
            tutti_click_parse(&click, &(tutti_click_place){ "log", 1 }, exact, n, &used, NULL),
            TUTTI_OK);
        assert_int_equal(used, k == 4 ? n - 2 : n);
        assert_true(click.label == 1 && click.integer[0] == 5 && click.integer[2] == -1 && click.integer[3] == 0 &&
                    click.integer[12] == INT32_MAX);
        assert_true(click.category[0] == 0x68fd1e64 && click.category[2] == 0xFB936136 && click.category[25] == 25);
        assert_true(click.has == ((UINT64_C(1) << 39) - 1 - (1 << 1) - (1 << 14)));
        assert_true(tutti_click_integer(&click, 0) == logf(6) && tutti_click_integer(&click, 1) == 0 &&
                    tutti_click_integer(&click, 2) == 0 && tutti_click_integer(&click, 3) == 0);
        assert_int_equal(tutti_click_row(&click, 1, 100), 0);
        free(exact);
    }
}

static void invalid_click_lines_are_rejected_with_the_field(void **state)
{
    static const struct { const char *from, *to, *text; } cases[] = {
        { "1\t5", "2\t5", "'log', line 7: field 1 is '2'; it must be the label, 0 or 1" },
        { "1\t5", "\t5", "'log', line 7: field 1 is ''; it must be the label, 0 or 1" },
        { "\t5\t", "\t5x\t", "'log', line 7: field 2 is '5x'; it must be an integer of 32 bits, or nothing" },
        { "\t2147483647", "\t2147483648",
          "'log', line 7: field 14 is '2147483648'; it must be an integer of 32 bits, or nothing" },
        { "\t-1", "\t-", "'log', line 7: field 4 is '-'; it must be an integer of 32 bits, or nothing" },
        { "68fd1e64", "68fd1e6", "'log', line 7: field 15 is '68fd1e6'; it must be 8 hex digits, or nothing" },
        { "FB936136", "FB93613G", "'log', line 7: field 17 is 'FB93613G'; it must be 8 hex digits, or nothing" },
        { "FB936136", "FB\x01\xC3" "6136",
          "'log', line 7: field 17 is 'FB??6136'; it must be 8 hex digits, or nothing" },
        { "\t68fd1e64", "", "'log', line 7 has 39 fields; a click has 40: label, 13 integers, 26 categories, by tabs" },
        { "\t68fd1e64", "\t68fd1e64\t",
          "'log', line 7 has 41 fields; a click has 40: label, 13 integers, 26 categories, by tabs" },
    };
    char line[TUTTI_CLICKS_LINE_MOST], changed[1200];
    tutti_click click;
    tutti_error err;
    size_t used;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        char *at;
        make_line(line, "\n");
        at = strstr(line, cases[k].from);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - line), line, cases[k].to, at + strlen(cases[k].from));
        assert_int_equal(tutti_click_parse(&click, &(tutti_click_place){ "log", 7 },
                                           (const uint8_t *)changed, strlen(changed), &used, &err),
                         TUTTI_ERR_CORRUPT);
        assert_string_equal(err.text, cases[k].text);
    }
    memset(changed, '1', sizeof changed);
    assert_int_equal(tutti_click_parse(&click, &(tutti_click_place){ "log", 1 },
                                       (const uint8_t *)changed, sizeof changed, &used, &err),
                     TUTTI_ERR_CORRUPT);
    assert_string_equal(
        err.text,
        "'log', line 1 has more than 600 bytes; it is no click log (label, 13 integers, 26 categories, by tabs)");
    assert_int_equal(tutti_click_parse(&click, &(tutti_click_place){ "log", 2 },
                                       (const uint8_t *)"\n", 1, &used, &err),
                     TUTTI_ERR_CORRUPT);
}

static void clicks_are_written_as_they_are_read(void **state)
{
    const tutti_click_model m = { 3, 50, 1.2, 2, -1, 0.2 };
    int missing = 0;

    (void)state;
    for (uint64_t k = 0; k < 2000; k++) {
        char line[TUTTI_CLICKS_LINE_MOST];
        tutti_click click, again, same;
        double p, twice;
        size_t n, used;
        tutti_click_draw(&m, k, &click, &p);
        tutti_click_draw(&m, k, &same, &twice);
        assert_memory_equal(&click, &same, sizeof click);
        assert_true(p == twice && p > 0 && p < 1);
        n = tutti_click_print(&click, line);
        assert_true(n <= TUTTI_CLICKS_LINE_MOST);
        assert_int_equal(tutti_click_parse(&again, &(tutti_click_place){ "log", 1 },
                                           (const uint8_t *)line, n, &used, NULL),
                         TUTTI_OK);
        assert_int_equal(used, n);
        assert_memory_equal(&click, &again, sizeof click);
        for (int i = 0; i < 39; i++)
            missing += !(click.has >> i & 1);
    }
    assert_true(fabs(missing / (2000 * 39.0) - 0.2) < 5 * sqrt(0.2 * 0.8 / (2000 * 39)));
}

/* Frequencies of 5 values against k^-s, by chi-square with 4 degrees of
   freedom: above 23.5 once in 10,000. */
static void values_have_the_frequencies_of_zipf(void **state)
{
    static const double exponents[] = { 0.5, 1, 1.1, 3 };

    (void)state;
    for (size_t e = 0; e < TUTTI_LENGTH(exponents); e++) {
        const tutti_click_model m = { 5, 5, exponents[e], 1, 0, 0 };
        uint32_t name[5];
        double count[5] = { 0 }, sum = 0, chi = 0;
        int known = 0;
        for (uint64_t k = 0; k < 20000; k++) {
            tutti_click click;
            double p;
            int v = 0;
            tutti_click_draw(&m, k, &click, &p);
            while (v < known && name[v] != click.category[4])
                v++;
            assert_true(v < 5);
            if (v == known)
                name[known++] = click.category[4];
            count[v]++;
        }
        for (int a = 0; a < known; a++) /* by frequency: the most frequent is the first value */
            for (int b = a + 1; b < known; b++)
                if (count[b] > count[a]) {
                    const double c = count[a];
                    count[a] = count[b];
                    count[b] = c;
                }
        for (int v = 0; v < 5; v++)
            sum += pow(v + 1, -exponents[e]);
        for (int v = 0; v < 5; v++) {
            const double want = 20000 * pow(v + 1, -exponents[e]) / sum;
            chi += (count[v] - want) * (count[v] - want) / want;
        }
        assert_true(chi < 23.5);
    }
}

static void hashed_rows_are_uniform_and_differ_between_tables(void **state)
{
    uint32_t count[16] = { 0 };
    int same = 0;

    (void)state;
    for (uint32_t k = 0; k < 15000; k++) {
        tutti_click click = { .has = UINT64_MAX };
        click.category[3] = click.category[4] = k;
        const uint32_t a = tutti_click_row(&click, 3, 16), b = tutti_click_row(&click, 4, 16);
        assert_true(a >= 1 && a < 16 && b >= 1 && b < 16);
        count[a]++;
        same += a == b;
        assert_int_equal(tutti_click_row(&click, 3, 2), 1);
        assert_true(tutti_click_row(&click, 3, UINT32_MAX) >= 1);
    }
    for (int r = 1; r < 16; r++)
        assert_true(fabs(count[r] - 1000.0) < 160); /* five deviations */
    assert_true(fabs(same - 1000.0) < 160);
}

static void auc_matches_counting_pairs(void **state)
{
    double expected, seen;

    (void)state;
    for (uint64_t turn = 0; turn < 200; turn++) {
        const tutti_rng rng = { 9, 1, turn };
        const size_t n = 2 + tutti_random(rng, 0) % 40;
        double p[42], above = 0, all = 0, e_above = 0, e_all = 0;
        uint8_t labels[42];
        for (size_t i = 0; i < n; i++) {
            p[i] = (double)(1 + tutti_random(rng, 1 + i) % 9) / 10; /* with ties */
            labels[i] = tutti_uniform(rng, 100 + i) < p[i];
        }
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) {
                const double right = p[i] > p[j] ? 1 : p[i] == p[j] ? 0.5 : 0;
                if (i == j)
                    continue;
                above += labels[i] && !labels[j] ? right : 0;
                all += labels[i] && !labels[j];
                e_above += p[i] * (1 - p[j]) * right;
                e_all += p[i] * (1 - p[j]);
            }
        assert_int_equal(tutti_click_auc(p, labels, n, &expected, &seen, NULL), TUTTI_OK);
        assert_true(fabs(expected - e_above / e_all) < 1e-12);
        if (all > 0)
            assert_true(fabs(seen - above / all) < 1e-12);
        else
            assert_true(isnan(seen));
    }
}

/* Labels follow p: the area on them is the expected one within its
   error, and grows with the spread. */
static void synthetic_labels_reach_the_expected_auc(void **state)
{
    enum { N = 20000 };
    static double p[N];
    static uint8_t labels[N];
    double last = 0;

    (void)state;
    for (int spread = 0; spread < 4; spread++) {
        const tutti_click_model m = { 1, 1000, 1.1, spread, -1, 0.1 };
        double expected, seen, sum = 0, want = 0;
        for (uint64_t k = 0; k < N; k++) {
            tutti_click click;
            tutti_click_draw(&m, k, &click, &p[k]);
            labels[k] = click.label;
            sum += click.label;
            want += p[k];
        }
        assert_true(fabs(sum - want) < 5 * sqrt(N / 4.0));
        assert_int_equal(tutti_click_auc(p, labels, N, &expected, &seen, NULL), TUTTI_OK);
        assert_true(fabs(expected - seen) < 0.02);
        assert_true(spread == 0 ? fabs(expected - 0.5) < 1e-9 : expected > last + 0.05);
        last = expected;
    }
    assert_true(last > 0.75);
}

/* ---- as a data set ---- */

/* Mean and deviation of integer i over those of the first 80 clicks that have it. */
static void moments(const tutti_click *clicks, int i, double *mean, double *deviation)
{
    double n = 0, sum = 0, square = 0;

    for (int k = 0; k < 80; k++)
        if (clicks[k].has >> i & 1) {
            n++;
            sum += (double)tutti_click_integer(&clicks[k], i);
            square += pow((double)tutti_click_integer(&clicks[k], i), 2);
        }
    *mean = sum / n;
    *deviation = sqrt(square / n - *mean * *mean);
}

static bool is_standard(const tutti_click *clicks, const tutti_click *click, int i, float x)
{
    double mean, deviation;

    moments(clicks, i, &mean, &deviation);
    return click->has >> i & 1 ? fabs((double)x - ((double)tutti_click_integer(click, i) - mean) / deviation) < 1e-5
                               : x == 0;
}

static void a_log_becomes_values_rows_and_labels(void **state)
{
    const tutti_click_model m = { 8, 30, 1.1, 1, 0, 0.3 };
    memory_files *mem;
    tutti_runtime *real;
    char *log = malloc(100 * TUTTI_CLICKS_LINE_MOST);
    tutti_click clicks[100];
    const uint64_t ids[3] = { 59, 0, 7 };
    const tutti_share s = { 80, 2, 3, 1, 4 };
    tutti_error err;
    tutti_data *d;
    void *block;
    size_t n = 0;

    (void)state;
    assert_int_equal(tutti_runtime_open_posix(&real, NULL), TUTTI_OK);
    mem = memory_files_open(real);
    for (uint64_t k = 0; k < 100; k++) {
        double p;
        tutti_click_draw(&m, k, &clicks[k], &p);
        n += tutti_click_print(&clicks[k], log + n);
    }
    memory_files_put(mem, "log.tsv", log, n - 1); /* the last line may lack its end */
    assert_int_equal(tutti_data_open_spec(&d, &mem->rt, "clicks(file=log.tsv,rows=50,val=0.2)", NULL, &err), TUTTI_OK);
    assert_true(tutti_data_shape_of(d)->samples[0] == 80 && tutti_data_shape_of(d)->samples[1] == 20 &&
                tutti_data_shape_of(d)->tables == 26 && tutti_data_shape_of(d)->rows == 50 &&
                tutti_data_shape_of(d)->width == 13 && tutti_data_shape_of(d)->classes == 2 &&
                tutti_data_shape_of(d)->context == 0);
    block = tutti_alloc((size_t)tutti_data_shape_of(d)->bytes, 1);
    assert_int_equal(tutti_data_attach(d, block, true, &err), TUTTI_OK);
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++) {
        float x[3 * 13];
        uint8_t labels[3];
        uint32_t rows[3 * 26];
        for (int part = 0; part < 3; part++) {
            const uint64_t id = ids[part] % tutti_data_shape_of(d)->samples[split];
            const tutti_click *click = &clicks[(split == TUTTI_TRAIN ? 0 : 80) + id];
            tutti_data_gather(d, (tutti_split)split, &id, 1, x, labels);
            tutti_data_gather_rows(d, (tutti_split)split, &id, 1, rows);
            assert_int_equal(labels[0], click->label);
            for (int i = 0; i < 13; i++)
                assert_true(is_standard(clicks, click, i, x[i]));
            for (int c = 0; c < 26; c++)
                assert_int_equal(rows[c], tutti_click_row(click, c, 50));
        }
    }
    for (int depth = 0; depth < 3; depth++) {
        tutti_loader *l;
        assert_int_equal(tutti_loader_open(&l, real, d, &s, 1, 0, depth, NULL), TUTTI_OK);
        for (uint64_t step = 0; step < 20; step++) {
            uint64_t epoch, position;
            const int64_t samples = tutti_share_pass(&s, step, 1, 0, &epoch, &position);
            tutti_batch b;
            assert_int_equal(tutti_loader_take(l, &b, NULL), TUTTI_OK);
            assert_true(b.samples == samples && b.tokens == NULL);
            for (int64_t i = 0; i < samples; i++) {
                const tutti_click *click = &clicks[tutti_share_sample(&s, epoch, position + (uint64_t)i)];
                assert_int_equal(b.labels[i], click->label);
                assert_true(is_standard(clicks, click, 4, b.x[13 * i + 4]));
                for (int c = 0; c < 26; c++)
                    assert_int_equal(b.rows[26 * i + c], tutti_click_row(click, c, 50));
            }
        }
        tutti_loader_close(l);
    }
    tutti_data_close(d);
    tutti_free(block);

    log[n / 2] = 'z';
    memory_files_put(mem, "bad.tsv", log, n);
    memory_files_put(mem, "empty.tsv", log, 0);
    assert_int_equal(tutti_data_open_spec(&d, &mem->rt, "clicks(bad.tsv)", NULL, &err), TUTTI_OK);
    block = tutti_alloc((size_t)tutti_data_shape_of(d)->bytes, 1);
    assert_int_equal(tutti_data_attach(d, block, true, &err), TUTTI_ERR_CORRUPT);
    assert_true(strncmp(err.text, "'bad.tsv', line ", 16) == 0);
    tutti_data_close(d);
    tutti_free(block);
    assert_int_equal(tutti_data_open_spec(&d, &mem->rt, "clicks(empty.tsv)", NULL, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "'empty.tsv' is empty; give a click log");
    assert_int_equal(tutti_data_open_spec(&d, &mem->rt, "clicks", NULL, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "data 'clicks' needs to know its file; write clicks(file=PATH)");
    memory_files_put(mem, "one.tsv", "1\n", 2);
    assert_int_equal(tutti_data_open_spec(&d, &mem->rt, "clicks(one.tsv)", NULL, &err), TUTTI_ERR_USAGE);
    assert_string_equal(
        err.text,
        "'one.tsv' has 1 clicks; val=0.1 leaves 0 for training and 1 for testing; both need at least one");
    memory_files_close(mem);
    tutti_runtime_close(real);
    free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_click_line_is_parsed_by_the_format),
        cmocka_unit_test(invalid_click_lines_are_rejected_with_the_field),
        cmocka_unit_test(clicks_are_written_as_they_are_read),
        cmocka_unit_test(values_have_the_frequencies_of_zipf),
        cmocka_unit_test(hashed_rows_are_uniform_and_differ_between_tables),
        cmocka_unit_test(auc_matches_counting_pairs),
        cmocka_unit_test(synthetic_labels_reach_the_expected_auc),
        cmocka_unit_test(a_log_becomes_values_rows_and_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
