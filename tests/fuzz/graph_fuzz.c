/* Any text as a graph file (src/topology/file.c): it is refused with a sentence, or its rounds
   are as gossip.h promises: sorted, every send has its receive, columns sum to 1. The first
   byte chooses the number of members. */
#include "../../src/topology/topology_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

enum { MOST = 256 };

/* The row of each member in round k, put together by receivers, against that of the senders. */
static void look(const tutti_graph *g, uint64_t k)
{
    static double sent[MOST][MOST];
    double column[MOST] = { 0 };
    int in[MOST], out[MOST], n_in, n_out;
    double w_in[MOST], w_out[MOST], self;

    memset(sent, 0, sizeof sent);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < g->n; i++) {
            tutti_graph_round(g, k, i, in, w_in, &n_in, out, w_out, &n_out, &self);
            require(n_in <= g->degree_max && n_out <= g->degree_max && self >= 0);
            column[i] += turn == 0 ? self : 0;
            for (int a = 0; turn == 0 && a < n_out; a++) {
                require(out[a] >= 0 && out[a] < g->n && out[a] != i && (a == 0 || out[a - 1] < out[a]) && w_out[a] > 0);
                sent[out[a]][i] = w_out[a];
            }
            for (int a = 0; turn == 1 && a < n_in; a++) {
                require(in[a] >= 0 && in[a] < g->n && in[a] != i && (a == 0 || in[a - 1] < in[a]) &&
                        w_in[a] == sent[i][in[a]]);
                column[in[a]] += w_in[a];
                sent[i][in[a]] = 0;
            }
        }
    for (int i = 0; i < g->n; i++) {
        require(fabs(column[i] - 1) < 1e-6);
        for (int j = 0; j < g->n; j++)
            require(sent[i][j] == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tutti_error err = { 0 };
    tutti_edges *edges;
    char *text;

    if (size == 0)
        return 0;
    text = malloc(size - 1 + (size == 1)); /* exactly as long: a byte read behind it is seen */
    require(text != NULL);
    memcpy(text, data + 1, size - 1);
    if (tutti_edges_parse(&edges, "f", text, size - 1, data[0] + 1, &err) == TUTTI_OK) {
        tutti_graph g = {
            .family = tutti_graph_filed, .n = data[0] + 1, .period = edges->rounds, .degree_max = edges->degree,
            .weights = TUTTI_WEIGHTS_OWN, .edges = edges,
        };
        for (uint64_t k = 0; k < g.period && k < 8; k++)
            look(&g, k);
        g.options.path = "f";
        if (g.n <= 16 && g.period <= 64 && tutti_edges_check(&g, &err) != TUTTI_OK)
            require(err.text[0] != '\0');
    } else
        require(edges == NULL && err.text[0] != '\0' && strlen(err.text) < sizeof err.text);
    tutti_edges_close(edges);
    free(text);
    return 0;
}
