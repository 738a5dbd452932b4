/* Goal: a graph file becomes the graph it describes, or is refused with its line and what would
   mend it; nothing else happens whatever the bytes are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/topology_internal.h"
#include "topology/graph.h"

#define PATH "topology_file_test.graph" /* relative: sentences quote it, and have an end */

static void put(const char *text)
{
    FILE *f = fopen(PATH, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static tutti_status open_text(tutti_graph **g, const char *text, int n, bool push, tutti_error *err)
{
    put(text);
    return (push ? tutti_graph_open_push : tutti_graph_open)(g, "file(\"" PATH "\")", n, err);
}

static tutti_graph *graph(const char *text, int n, bool push)
{
    tutti_error err = { .rank = -1 };
    tutti_graph *g;
    if (open_text(&g, text, n, push, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return g;
}

static void ring_from_a_file_matches_the_built_in_ring(void **state)
{
    tutti_graph *g = graph("# a ring\ntutti-graph 5\n\n0 -- 1\n1 -- 2 # two\n\t2 --\t3\n3 -- 4\r\n4 -- 0", 5, false),
                *ring;
    double w[25], expected[25];

    (void)state;
    assert_int_equal(tutti_graph_open(&ring, "ring", 5, NULL), TUTTI_OK);
    assert_int_equal(tutti_graph_period(g), 1);
    assert_int_equal(tutti_graph_degree(g), 2);
    assert_true(tutti_graph_messages(g) == 10);
    assert_int_equal(tutti_graph_product(g, 0, 1, w, NULL), TUTTI_OK);
    assert_int_equal(tutti_graph_product(ring, 0, 1, expected, NULL), TUTTI_OK);
    for (int e = 0; e < 25; e++)
        assert_true(fabs(w[e] - expected[e]) < 1e-15);
    tutti_graph_close(g);
    tutti_graph_close(ring);
}

/* Without weights a round that goes both ways is Metropolis-Hastings,
   which for a star is its table's row. */
static void edges_without_weights_get_metropolis_or_the_sender_s_share(void **state)
{
    tutti_graph *g = graph("tutti-graph 4\n0 -- 1\n0 -> 2\n2 -> 0\n3 -- 0\n", 4, false);
    double w[16];

    (void)state;
    assert_int_equal(tutti_graph_product(g, 0, 1, w, NULL), TUTTI_OK);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            assert_true(fabs(w[4 * i + j] - (i == 0 || j == 0 ? 0.25 : i == j ? 0.75 : 0)) < 1e-15);
    assert_true(tutti_graph_is(g, "symmetric"));
    tutti_graph_close(g);
    g = graph("tutti-graph 3\n0 -> 1\n0 -> 2\n1 -> 2\n2 -> 0\n", 3, true);
    assert_int_equal(tutti_graph_product(g, 0, 1, w, NULL), TUTTI_OK);
    {
        const double expected[9] = { 1. / 3, 0, .5, 1. / 3, .5, 0, 1. / 3, .5, .5 };
        for (int e = 0; e < 9; e++)
            assert_true(fabs(w[e] - expected[e]) < 1e-15);
    }
    assert_true(tutti_graph_is(g, "column-stochastic") && !tutti_graph_is(g, "doubly-stochastic") &&
                tutti_graph_is(g, "connected"));
    tutti_graph_close(g);
}

static void given_round_weights_are_used_unchanged(void **state)
{
    tutti_graph *g = graph("tutti-graph 4\nround\n0 -- 1 0.5\n2 -- 3 0.5\n2 keeps 0.5\nround\n0 -- 2 0.5\n1 -- 3 "
                           "0.5\nround\n0 -> 1 0.25\n1 -> 2 0.25\n2 -> 3 0.25\n3 -> 0 0.25\n",
                           4, false);
    int in[4], out[4], n_in, n_out;
    double w_in[4], w_out[4], self, w[16];

    (void)state;
    assert_int_equal(tutti_graph_period(g), 3);
    tutti_graph_round(g, 5, 1, in, w_in, &n_in, out, w_out, &n_out, &self); /* round 2, a period later */
    assert_int_equal(n_in, 1);
    assert_int_equal(n_out, 1);
    assert_int_equal(in[0], 0);
    assert_int_equal(out[0], 2);
    assert_true(w_in[0] == 0.25 && w_out[0] == 0.25 && self == 0.75);
    assert_int_equal(tutti_graph_product(g, 0, 2, w, NULL), TUTTI_OK);
    for (int e = 0; e < 16; e++)
        assert_true(fabs(w[e] - 0.25) < 1e-15);
    assert_true(tutti_graph_is(g, "exact") && !tutti_graph_is(g, "symmetric"));
    tutti_graph_close(g);
}

static void graph_file_errors_name_the_line_and_a_correction(void **state)
{
    static const struct { const char *text; int n; bool push; const char *sentence;
    } cases[] = {
        { "", 3, false, PATH ":1: the file has no graph; it begins with 'tutti-graph 3'" },
        { "# nothing\n\n", 3, false, PATH ":2: the file has no graph; it begins with 'tutti-graph 3'" },
        { "0 -- 1\n", 3, false,
          PATH ":1: a graph file begins with 'tutti-graph 3', the number of members; this line is '0'" },
        { "\ntutti-graph 4\n", 3, false, PATH ":2: the graph has 4 members and the run 3; one of them must change" },
        { "tutti-graph x\n", 3, false,
          PATH ":1: option 'tutti-graph' is 'x'; it must be a whole number from 1 to 65536" },
        { "tutti-graph 3\n0 -- 3\n", 3, false, PATH ":2: option 'member' is 3; it must be from 0 to 2" },
        { "tutti-graph 3\n0 -- 1 1.5\n", 3, false, PATH ":2: option 'weight' is 1.5; it must be from 0 to 1" },
        { "tutti-graph 3\n0 -- 1 nan\n", 3, false,
          PATH ":2: option 'weight' is 'nan'; it must be a number from 0 to 1" },
        { "tutti-graph 3\n0 -- 1 0\n", 3, false, PATH ":2: an edge of weight 0; leave the line out" },
        { "tutti-graph 3\n1 -> 1\n", 3, false,
          PATH ":2: an edge from member 1 to itself; its own weight is what it does not give away, or '1 keeps W'" },
        { "tutti-graph 3\n0 - 1\n", 3, false,
          PATH ":2: '0 -' is no line of a graph; there are 'round', 'I -- J', 'I -> J', each with a weight or without, "
               "and 'I keeps W'" },
        { "tutti-graph 3\nround 2\n", 3, false, PATH ":2: 'round' stands alone in its line; it has 1 more word here" },
        { "tutti-graph 3\n0 -- 1 0.5\n1 -- 2\n", 3, false,
          PATH ":3: this edge has no weight and one before has one; give all of them weights, or none" },
        { "tutti-graph 3\n0 -- 1\n1 -- 2\n2 -> 1\n", 3, false,
          PATH ":4: in round 0 member 1 takes from member 2 already (line 3); keep one of the two" },
        { "tutti-graph 3\n0 -- 1 0.6\n1 -- 2 0.6\n", 3, false,
          PATH ":3: in round 0 member 1 gives away 1.2 of its values, and 1 is all there is (column 1 of the weights); "
               "lower a weight "
               "of its edges" },
        { "tutti-graph 3\n0 -- 1 0.25\n1 -- 2 0.25\n1 keeps 0.6\n", 3, false,
          PATH ":4: in round 0 member 1 keeps 0.6 and gives away 0.5, which sums to 1.1 instead of 1 (column 1 of the "
               "weights); without this line it keeps 0.5" },
        { "tutti-graph 3\n0 -- 1\n\x01", 3, false,
          PATH ":3: byte 1 is a control character (1); a graph file is plain text" },
        { "tutti-graph 4\n0 -- 1\n2 -- 3\n", 4, false,
          "graph 'file(path=" PATH ")' of 4 members is not connected: the values of member 0 never reach member 2" },
        { "tutti-graph 3\n0 -> 1\n1 -- 2\n", 3, true,
          "graph 'file(path=" PATH ")' of 3 members is not connected: the values of member 1 never reach member 0" },
        { "tutti-graph 3\n0 -> 1 0.5\n0 -> 2 0.25\n1 -> 2 0.5\n2 -> 0 0.5\n", 3, false,
          "plain averaging would drift from the mean (push-sum would not): graph 'file(path=" PATH ")' of 3 "
          "members is not doubly stochastic: in round 0 the weights that member 0 gives to all (row 0) sum to 0.75 "
          "instead of 1" },
        { "tutti-graph 2\n0 -- 1 1\n", 2, false,
          PATH ": the members' values change places and never come closer; in round 0 member 0 gives away all of its "
               "own: let it keep a part" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        tutti_error err = { .rank = -1 };
        tutti_graph *g;
        assert_int_equal(open_text(&g, cases[c].text, cases[c].n, cases[c].push, &err), TUTTI_ERR_USAGE);
        assert_null(g);
        assert_string_equal(err.text, cases[c].sentence);
    }
}

static void long_lines_big_files_and_absent_ones_are_refused(void **state)
{
    static char text[400];
    tutti_error err = { .rank = -1 };
    tutti_graph *g;
    tutti_edges *e;

    (void)state;
    memset(text, ' ', sizeof text - 1);
    memcpy(text, "tutti-graph 2", 13);
    assert_int_equal(open_text(&g, text, 2, false, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, PATH ":1: a line of 399 bytes; at most 255");
    /* nothing of it is read */
    assert_int_equal(tutti_edges_parse(&e, "big", text, (size_t)(16 << 20) + 1, 2, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "big: a graph of 16777217 bytes; at most 16777216 (16 MiB)");
    put("");
    assert_int_equal(truncate(PATH, (16 << 20) + 1), 0);
    assert_int_equal(tutti_graph_open(&g, "file(\"" PATH "\")", 2, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, PATH ": a graph of 16777217 bytes; at most 16777216 (16 MiB)");
    assert_int_equal(remove(PATH), 0);
    assert_int_equal(tutti_graph_open(&g, "file(\"" PATH "\")", 2, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, PATH));
    assert_int_equal(tutti_graph_open(&g, "file", 2, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "graph 'file' needs a path: file(PATH)");
    { /* members times rounds */
        char *rounds = malloc(600000);
        size_t at = (size_t)sprintf(rounds, "tutti-graph 65536\n");
        for (int k = 0; k < 65; k++)
            at += (size_t)sprintf(rounds + at, "round\n");
        assert_int_equal(tutti_edges_parse(&e, "many", rounds, at, 65536, &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, "many:66: more than 64 rounds; 65536 members may have that many");
        free(rounds);
    }
}

/* Every beginning of a good file is a graph or is refused with its sentence; so is every
   one of these with a byte changed. */
static void truncated_or_altered_graph_files_are_parsed_or_rejected(void **state)
{
    static const char good[] =
        "tutti-graph 4\nround\n0 -- 1 0.5\n2 -- 3 0.5\n2 keeps 0.5\nround\n0 -> 2 0.5 # to\n1 -> 3 0.5\n";
    static const char put_in[] = { '\0', '\n', '-', '>', '9', ' ', '#', 'k', '\xff' };
    int taken = 0;

    (void)state;
    for (size_t cut = 0; cut <= sizeof good - 1; cut++)
        for (size_t c = 0; c <= TUTTI_LENGTH(put_in); c++) {
            char *text = malloc(cut + (cut == 0));
            tutti_error err = { .rank = -1 };
            tutti_edges *e;
            memcpy(text, good, cut);
            if (cut > 0 && c < TUTTI_LENGTH(put_in))
                text[(cut * 7 + c) % cut] = put_in[c];
            if (tutti_edges_parse(&e, "cut", text, cut, 4, &err) == TUTTI_OK)
                taken++;
            else
                assert_true(e == NULL && err.status == TUTTI_ERR_USAGE && strncmp(err.text, "cut:", 4) == 0);
            tutti_edges_close(e);
            free(text);
        }
    assert_true(taken > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_from_a_file_matches_the_built_in_ring),
        cmocka_unit_test(edges_without_weights_get_metropolis_or_the_sender_s_share),
        cmocka_unit_test(given_round_weights_are_used_unchanged),
        cmocka_unit_test(graph_file_errors_name_the_line_and_a_correction),
        cmocka_unit_test(long_lines_big_files_and_absent_ones_are_refused),
        cmocka_unit_test(truncated_or_altered_graph_files_are_parsed_or_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
