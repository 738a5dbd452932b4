/* topology.c: `tutti topology`: shows the graph of a gossip method before a run uses it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli_internal.h"
#include "tutti/method/gossip.h"
#include "base/options.h"
#include "topology/graph.h"

/* The most members for which the matrix is printed, and how many rounds are shown of a graph that
   is drawn again in each round. */
enum { MATRIX_MOST = 16, ROUNDS_SHOWN = 3 };

static void print_option(const tutti_option *o)
{
    const char *word = o->text;

    char text[512];

    if (o->type == TUTTI_INT || o->type == TUTTI_REAL) {
        snprintf(text, sizeof text, "%s=%g: %s", o->name, o->initial, o->help);
        tutti_cli_wrap(stdout, "", 27, text);
        return;
    }
    if (o->type == TUTTI_BOOL)
        word = o->initial != 0 ? "true" : "false";
    /* of a choice the first word: all have index 0 */
    snprintf(text, sizeof text, "%s=%.*s: %s", o->name, (int)strcspn(word, "|"), word, o->help);
    tutti_cli_wrap(stdout, "", 27, text);
}

static void print_families(void)
{
    const char *name, *help;
    const tutti_option *options;

    for (int i = 0; tutti_graph_family(i, &name, &help, &options); i++) {
        char lead[64];
        snprintf(lead, sizeof lead, "  %s", name);
        tutti_cli_wrap(stdout, lead, 25, help);
        for (const tutti_option *o = options; o != NULL && o->name != NULL; o++)
            print_option(o);
    }
}

typedef struct row { int *in, *out, n_in, n_out; double *w_in, *w_out, self; } row;

static void print_round(const tutti_graph *g, uint64_t k, row *r)
{
    const int n = tutti_graph_size(g);

    if (tutti_graph_period(g) > 1)
        printf("\nround %llu, and every %llu after it\n", (unsigned long long)k,
               (unsigned long long)tutti_graph_period(g));
    else if (tutti_graph_period(g) == 0)
        printf("\nround %llu\n", (unsigned long long)k);
    else
        printf("\n");
    for (int i = 0; i < n; i++) {
        int a = 0;
        tutti_graph_round(g, k, i, r->in, r->w_in, &r->n_in, r->out, r->w_out, &r->n_out, &r->self);
        printf("  %2d ", i);
        for (int j = 0; j < n; j++) {
            const bool edge = a < r->n_in && r->in[a] == j;
            if (edge || j == i)
                printf(" %.4f", j == i ? r->self : r->w_in[a]);
            else
                printf(" %6s", ".");
            a += edge;
        }
        printf("\n");
    }
}

static void print_product(const tutti_graph *g)
{
    const int n = tutti_graph_size(g);
    double *w = tutti_alloc((size_t)n * (size_t)n, sizeof *w);

    if (w != NULL && tutti_graph_product(g, 0, tutti_graph_period(g), w, NULL) == TUTTI_OK) {
        printf("\nall %llu rounds together\n", (unsigned long long)tutti_graph_period(g));
        for (int i = 0; i < n; i++) {
            printf("  %2d ", i);
            for (int j = 0; j < n; j++)
                printf(" %.4f", w[i * n + j]);
            printf("\n");
        }
    }
    tutti_free(w);
}

/* Prints the number of rounds until the squared distance from the mean is a hundredth, the
   measure of docs/TOPOLOGY.md. factor: of the distance, for each `rounds` rounds. */
static void print_rounds_to_a_hundredth(const tutti_graph *g, double factor, double rounds)
{
    const double needed =
        factor > 1e-12 ? ceil(log(100) / (-2 * log(factor)) - 1e-9) * rounds : rounds;

    if (needed < 1e15)
        printf("to 1 %%:      %.0f round%s for the squared distance from the mean; %g messages a "
               "member\n",
               needed, needed > 1 ? "s" : "",
               needed * tutti_graph_messages(g) / tutti_graph_size(g));
}

static void print_gap(const tutti_graph *g, const char *spec)
{
    const int n = tutti_graph_size(g);
    const uint64_t rounds = tutti_graph_period(g);
    const double period = rounds > 0 ? (double)rounds : 1;
    tutti_error err = { .rank = -1 };
    double gap;

    if (tutti_graph_gap(g, &gap, &err) != TUTTI_OK) {
        if (n > TUTTI_GRAPH_GAP_MAX)
            printf("gap:         not computed above %d members\n", TUTTI_GRAPH_GAP_MAX);
        else
            printf("gap:         none: %s\n", err.text);
        return;
    }
    if (gap > 1 - 1e-12)
        printf("gap:         1: the exact mean after %s\n", rounds > 1 ? "a period" : "one round");
    else if (rounds > 1)
        printf("gap:         %.5f a period, which shrinks the distance from the mean by %.5f; %.5f "
               "a round\n",
               gap, 1 - gap, pow(1 - gap, 1 / period));
    else if (rounds == 0)
        printf("gap:         %.5f: a round shrinks the squared distance from the mean by %.5f on "
               "average\n",
               gap, (1 - gap) * (1 - gap));
    else
        printf("gap:         %.5f: a round shrinks the distance from the mean by %.5f\n", gap,
               1 - gap);
    if (gap < 0.01 && n > 1)
        printf("             mixes slowly: consider exponential or one-peer-exponential\n");
    if (gap <= 1 - 1e-12 && rounds > 1)
        printf("             not exact: %s\n",
               strncmp(spec, "one-peer-exponential", 20) == 0
                   ? "a period ends at the mean only for a power of two; base does for any number"
                   : "base ends a period at the mean for any number");
    print_rounds_to_a_hundredth(g, 1 - gap, period);
}

static void print_graph(const tutti_graph *g, const char *spec, row *r)
{
    static const char *const properties[] = {
        "static",    "symmetric", "regular", "doubly-stochastic", "column-stochastic",
        "bipartite", "connected"
    };
    const int n = tutti_graph_size(g);
    const uint64_t period = tutti_graph_period(g);
    const double sent = tutti_graph_messages(g);
    bool doubly = false;

    printf("members:     %d\nperiod:      ", n);
    if (period > 0)
        printf("%llu\n", (unsigned long long)period);
    else
        printf("none: each round is newly drawn\n");
    printf("degree:      at most %d\nmessages:    %g a round in all, %g a member\nproperties: ",
           tutti_graph_degree(g), sent, sent / n);
    for (size_t i = 0; i < TUTTI_LENGTH(properties); i++)
        /* what is doubly so is so by columns */
        if ((!doubly || strcmp(properties[i], "column-stochastic") != 0) &&
            tutti_graph_is(g, properties[i])) {
            printf(" %s", properties[i]);
            doubly = doubly || strcmp(properties[i], "doubly-stochastic") == 0;
        }
    printf("\n");
    print_gap(g, spec);
    if (n > MATRIX_MOST)
        return;
    for (uint64_t k = 0; k < (period > 0 ? period : ROUNDS_SHOWN); k++)
        print_round(g, k, r);
    if (period > 1)
        print_product(g);
}

static int show(const char *spec, int n)
{
    tutti_error err = { .rank = -1 };
    tutti_graph *g;
    /* graphs that are only for push-sum can be shown as well */
    tutti_status status = tutti_graph_open_push(&g, spec, n, &err);

    if (status == TUTTI_OK) {
        const size_t d = (size_t)tutti_graph_degree(g) + 1;
        row r = { .in = tutti_alloc(d, sizeof *r.in),
                  .out = tutti_alloc(d, sizeof *r.out),
                  .w_in = tutti_alloc(d, sizeof *r.w_in),
                  .w_out = tutti_alloc(d, sizeof *r.w_out) };
        if (r.in != NULL && r.out != NULL && r.w_in != NULL && r.w_out != NULL)
            print_graph(g, spec, &r);
        else
            status = tutti_fail(&err, TUTTI_ERR_MEMORY, 0,
                                "no memory for the rows of '%s' with %d members", spec, n);
        tutti_free(r.in);
        tutti_free(r.out);
        tutti_free(r.w_in);
        tutti_free(r.w_out);
    }
    tutti_graph_close(g);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}

int tutti_cli_topology(int argc, char **argv)
{
    static const tutti_option size = { "n",  TUTTI_INT, 0, 8, 1, TUTTI_GRAPH_SIZE_MAX,
                                       NULL, "members" };
    int64_t n = (int64_t)size.initial;
    const char *spec = NULL;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            char text[512];
            snprintf(
                text, sizeof text,
                "Shows a graph of N members (default 8): degree, messages a round, properties, "
                "spectral gap and, up to %d members, the mixing matrix of each round: row i holds "
                "the weights member i gives to the models of all; then what a period's rounds do "
                "together. Without SPEC it lists the graphs:",
                MATRIX_MOST);
            printf("tutti topology [SPEC] [-n N]\n\n");
            tutti_cli_wrap(stdout, "", 0, text);
            putchar('\n');
            print_families();
            return EXIT_DONE;
        }
        if (strcmp(argv[i], "-n") == 0 || strcmp(argv[i], "--n") == 0) {
            tutti_error err = { .rank = -1 };
            if (i + 1 == argc)
                return tutti_cli_usage("topology", "-n needs a number of members");
            if (tutti_option_set(&size, "topology", argv[++i], &n, &err) != TUTTI_OK)
                return tutti_cli_fail(&err);
        } else if (argv[i][0] == '-')
            return tutti_cli_usage("topology", "there is no option '%s'", argv[i]);
        else if (spec != NULL)
            return tutti_cli_usage("topology", "it takes one graph, not '%s' and '%s'", spec,
                                   argv[i]);
        else
            spec = argv[i];
    }
    if (spec != NULL)
        return show(spec, (int)n);
    print_families();
    return EXIT_DONE;
}
