/* topology_internal.h: what the room's files share. */
#ifndef TUTTI_TOPOLOGY_INTERNAL_H
#define TUTTI_TOPOLOGY_INTERNAL_H
#include "tutti/topology.h"

typedef struct tutti_graph_options { int64_t rows, degree, seed; } tutti_graph_options;

typedef struct tutti_graph_list { int *at; int count, owner; } tutti_graph_list; /* sorted, without repetitions and without its owner */

typedef struct tutti_graph_rules {
    const char *name, *help;
    const tutti_option *options;
    bool regular;       /* all members have one degree in all rounds; weights are 1/(degree + 1) */
    bool (*fits)(const tutti_graph *g, char *mend, size_t bytes); /* may it have this size? no: writes which it may; NULL: any */
    tutti_status (*prepare)(tutti_graph *g, tutti_error *err);    /* tables, if it needs them; NULL: none */
    uint64_t (*period)(const tutti_graph *g);                     /* NULL: 1 */
    void (*list)(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out); /* sign 1: who takes i's values; -1: whose values i takes */
} tutti_graph_rules;
extern const tutti_graph_rules tutti_graph_table[]; /* {0}-ended */

struct tutti_graph {
    const tutti_graph_rules *family;
    tutti_spec *spec;
    tutti_graph_options options;
    int n;
    uint64_t period;
    int degree_max;
    int *degree;        /* n; only where members differ in it */
    int cycles;         /* random: closed walks through all members */
    int *order, *place; /* random: each cycle's members in order, and where a member stands; a matching, if there is one, last */
};

void tutti_graph_join(tutti_graph_list *list, int j);
int tutti_graph_log2_up(int n); /* smallest t with 2^t >= n; integers only: floating-point logarithms are off by one near powers */
#endif
