/* topology.c: `tutti topology`: what a graph of a gossip method looks like before a run depends on it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli_internal.h"
#include "tutti/topology.h"

enum { MATRIX_MOST = 16 };

static void print_families(void)
{
    const char *name, *help;
    const tutti_option *options;

    for (int i = 0; tutti_graph_family(i, &name, &help, &options); i++) {
        printf("  %-22s %s\n", name, help);
        for (const tutti_option *o = options; o != NULL && o->name != NULL; o++)
            printf("  %-22s   %s=%g: %s\n", "", o->name, o->initial, o->help);
    }
}

typedef struct row { int *in, *out, n_in, n_out; double *w_in, *w_out, self; } row;

static void print_round(const tutti_graph *g, uint64_t k, row *r)
{
    const int n = tutti_graph_size(g);

    if (tutti_graph_period(g) > 1)
        printf("\nround %llu, and every %llu after it\n", (unsigned long long)k, (unsigned long long)tutti_graph_period(g));
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

/* Messages of a round on average, over all members; equal to the number of directed edges. */
static double messages(const tutti_graph *g, row *r)
{
    const uint64_t period = tutti_graph_period(g);
    double sum = 0;

    for (uint64_t k = 0; k < period; k++)
        for (int i = 0; i < tutti_graph_size(g); i++) {
            tutti_graph_round(g, k, i, r->in, r->w_in, &r->n_in, r->out, r->w_out, &r->n_out, &r->self);
            sum += r->n_out;
        }
    return sum / (double)period;
}

static void print_gap(const tutti_graph *g)
{
    const int n = tutti_graph_size(g);
    const double period = (double)tutti_graph_period(g);
    double gap;

    if (tutti_graph_gap(g, &gap, NULL) != TUTTI_OK) {
        printf("gap:         not computed above %d members\n", TUTTI_GRAPH_GAP_MAX);
        return;
    }
    if (gap > 1 - 1e-12)
        printf("gap:         1: the exact mean after %s\n", period > 1 ? "a period" : "one round");
    else if (period > 1)
        printf("gap:         %.5f a period, which shrinks the distance from the mean by %.5f; %.5f a round\n", gap, 1 - gap, pow(1 - gap, 1 / period));
    else
        printf("gap:         %.5f: a round shrinks the distance from the mean by %.5f\n", gap, 1 - gap);
    if (gap < 0.01 && n > 1)
        printf("             mixes slowly: consider exponential or one-peer-exponential\n");
    if (gap <= 1 - 1e-12 && period > 1)
        printf("             not exact: a period ends at the mean only for a power of two\n");
}

static void print_graph(const tutti_graph *g, row *r)
{
    static const char *const properties[] = { "static", "symmetric", "regular", "doubly-stochastic", "bipartite", "connected" };
    const int n = tutti_graph_size(g);
    const double sent = messages(g, r);

    printf("members:     %d\nperiod:      %llu\ndegree:      at most %d\nmessages:    %g a round in all, %g a member\nproperties: ", n,
           (unsigned long long)tutti_graph_period(g), tutti_graph_degree(g), sent, sent / n);
    for (size_t i = 0; i < TUTTI_LENGTH(properties); i++)
        if (tutti_graph_is(g, properties[i]))
            printf(" %s", properties[i]);
    printf("\n");
    print_gap(g);
    if (n <= MATRIX_MOST)
        for (uint64_t k = 0; k < tutti_graph_period(g); k++)
            print_round(g, k, r);
}

static int show(const char *spec, int n)
{
    tutti_error err = { .rank = -1 };
    tutti_graph *g;
    tutti_status status = tutti_graph_open(&g, spec, n, &err);

    if (status == TUTTI_OK) {
        const size_t d = (size_t)tutti_graph_degree(g) + 1;
        row r = { .in = tutti_alloc(d, sizeof *r.in), .out = tutti_alloc(d, sizeof *r.out), .w_in = tutti_alloc(d, sizeof *r.w_in), .w_out = tutti_alloc(d, sizeof *r.w_out) };
        if (r.in != NULL && r.out != NULL && r.w_in != NULL && r.w_out != NULL)
            print_graph(g, &r);
        else
            status = tutti_fail(&err, TUTTI_ERR_MEMORY, 0, "no memory for the rows of '%s' with %d members", spec, n);
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
    static const tutti_option size = { "n", TUTTI_INT, 0, 8, 1, TUTTI_GRAPH_SIZE_MAX, NULL, "members" };
    int64_t n = (int64_t)size.initial;
    const char *spec = NULL;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("tutti topology [SPEC] [-n N]\n\nShows a graph of N members (default 8): degree, messages a round, properties, spectral gap and, up to %d members, the mixing matrix of each\n"
                   "round: row i holds the weights member i gives to the models of all. Without SPEC it lists the graphs:\n\n", MATRIX_MOST);
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
            return tutti_cli_usage("topology", "it takes one graph, not '%s' and '%s'", spec, argv[i]);
        else
            spec = argv[i];
    }
    if (spec != NULL)
        return show(spec, (int)n);
    print_families();
    return EXIT_DONE;
}
