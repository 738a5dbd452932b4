/* topology_internal.h: what the files of src/topology share. tutti/method/gossip.h is the public
   part, and defines graph, member, round, W and spec. n: members of a graph; i, j: members, 0 to n
   - 1; k: a round; J: the matrix with all elements 1 / n. */
#ifndef TUTTI_TOPOLOGY_INTERNAL_H
#define TUTTI_TOPOLOGY_INTERNAL_H
#include "tutti/method/gossip.h"

/* How W follows from the edges of a round. d: number of neighbours of a member, without itself. */
typedef enum {
    TUTTI_WEIGHTS_AUTO,       /* only as an option: uniform if all members have the same d, else
                                 Metropolis */
    TUTTI_WEIGHTS_UNIFORM,    /* W_ij = W_ii = 1/(d + 1) */
    TUTTI_WEIGHTS_METROPOLIS, /* W_ij = 1/(1 + max(d_i, d_j)), the rest is W_ii */
    TUTTI_WEIGHTS_LAPLACIAN,  /* W = I - alpha L with the best alpha, 2/(lambda_2(L) +
                                 lambda_n(L)); L: the Laplacian */
    TUTTI_WEIGHTS_PUSH,       /* W_ij = W_jj = 1/(d_j + 1): columns sum to 1, rows need not */
    TUTTI_WEIGHTS_OWN         /* the family's function `list` sets the weights */
} tutti_weights;

/* The options of all families. A family's table of options has those that it uses. */
typedef struct tutti_graph_options {
    int64_t rows;             /* grid, torus; 0: the most nearly square shape */
    int64_t degree;           /* random */
    int64_t seed;             /* random, random-matching, random-ring, matcha */
    int64_t k;                /* base, hyper-hypercube: most neighbours in a round */
    int64_t block;            /* random-ring: members of a block that stays together */
    int weights;              /* tutti_weights */
    bool lazy;                /* (1 + W) / 2 instead of W */
    const char *base, *path;  /* base: spec of matcha's base graph; path: of file */
    double budget;            /* matcha: c */
    double weight;            /* random-ring: weight of an edge; 0: 1/3 */
} tutti_graph_options;
#define TUTTI_WEIGHTS_OPTION \
    { "weights", TUTTI_CHOICE, TUTTI_AT(tutti_graph_options, weights), 0, 0, 4, \
      "auto|uniform|metropolis|laplacian|push", \
      "mixing weights; auto: uniform if all degrees are equal, else metropolis; " \
      "push: for push-sum" }, \
    { "lazy", TUTTI_BOOL, TUTTI_AT(tutti_graph_options, lazy), 0, 0, 1, NULL, \
      "(1 + W) / 2 instead of W" }

/* Neighbours of member `owner`: ascending, without repetitions and without the owner. */
typedef struct tutti_graph_list {
    int *at;                  /* [count]: the neighbours; the caller's memory, of n elements or of
                                 tutti_graph_degree */
    double *w;                /* [count]: their weights, with TUTTI_WEIGHTS_OWN; NULL: not wanted */
    int count;
    int owner;
    double self;              /* weight of the owner, with TUTTI_WEIGHTS_OWN; else 1 */
} tutti_graph_list;

/* A family of graphs. The functions get an open graph of the family. */
typedef struct tutti_graph_rules {
    const char *name, *help;
    const tutti_option *options; /* NULL: none */
    bool regular;  /* all members have the same d in a round; the weights are 1/(d + 1) */
    bool cliques;  /* the edges of a round form cliques; a member's weights are 1/(d + 1) */
    bool own;      /* `list` sets w and self */
    bool directed; /* false: i sends to the members that it receives from, with the same weight,
                      and `list` ignores sign */
    bool drawn;    /* the period is 0: every round is drawn from (seed, round). Requires meets,
                      second and messages. It is not directed */
    /* Returns true if the graph may have g->n members. Else writes to `mend` which numbers it may
       have. NULL: any number. */
    bool (*fits)(const tutti_graph *g, char *mend, size_t bytes);
    /* Computes the graph's tables. NULL: it has none. */
    tutti_status (*prepare)(tutti_graph *g, tutti_error *err);
    /* Returns the number of rounds of a period. NULL: 1. */
    uint64_t (*period)(const tutti_graph *g);
    /* Returns the largest number of neighbours of a member in a round. NULL: counted in round 0. */
    int (*degree)(const tutti_graph *g);
    /* Adds to `out` i's neighbours in round k. sign 1: those that receive i's values; -1: those
       whose values i receives. */
    void (*list)(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out);
    /* Adds to `out` all members that can be neighbours of i in any round. */
    void (*meets)(const tutti_graph *g, int i, tutti_graph_list *out);
    /* Returns lambda_2 of the expectation of W^T W. */
    double (*second)(const tutti_graph *g);
    /* Returns the expected number of messages in a round, over all members. */
    double (*messages)(const tutti_graph *g);
} tutti_graph_rules;

/* The families of each file: families.c, stages.c, drawn.c, matcha.c and file.c, ended by {0}. */
extern const tutti_graph_rules tutti_graph_fixed[], tutti_graph_staged[], tutti_graph_drawn[],
    tutti_graph_matcha[], tutti_graph_filed[];
/* Returns family i of all these tables, from 0 on; NULL: there is none. */
const tutti_graph_rules *tutti_graph_rules_at(int i);

/* ---- tables of families ---- */

enum { TUTTI_STAGES_MAX = 17, TUTTI_BLOCKS_MAX = 17 };
/* Factors of a number of members, each at most k + 1, ascending: the stages of a hyper-hypercube,
   one round each. count 0: one member, and no round. */
typedef struct tutti_stages { int factor[TUTTI_STAGES_MAX], count; } tutti_stages;

/* Simple Base-(k+1) on n members (stages.c describes it). Block l has the members from start[l] on,
   in parts[l] parts of equal size. */
typedef struct tutti_blocks {
    int n;
    int count;                /* number of blocks; 0: all n members are one hyper-hypercube */
    int length;               /* number of rounds */
    int start[TUTTI_BLOCKS_MAX + 1], parts[TUTTI_BLOCKS_MAX];
    tutti_stages whole[TUTTI_BLOCKS_MAX]; /* of a block; with count 0 whole[0] is that of all */
    tutti_stages part[TUTTI_BLOCKS_MAX];  /* of a part of a block */
} tutti_blocks;
/* The rounds of base and hyper-hypercube: first `blocks`, in each of `groups` groups, then the
   stages `across` the groups. groups 1: there is one, and `across` has no rounds. */
typedef struct tutti_staged { tutti_blocks blocks; int groups; tutti_stages across; } tutti_staged;

/* The tables of matcha: the edges of the base graph as matchings. */
typedef struct tutti_matchings {
    int count;                /* number of matchings */
    int *partner;             /* [count][n]: the partner of each member; itself: none */
    double *chance;           /* [count]: the probability that a matching takes part in a round */
    double alpha;             /* weight of an edge that takes part */
    double second, messages;  /* as the functions of the rules return them */
} tutti_matchings;

/* An edge of a graph file: in that round member `to` adds w times the value of member `from`. */
typedef struct tutti_edge { uint32_t round; int to, from; uint32_t line; double w; } tutti_edge;
typedef struct tutti_edges {
    uint32_t rounds, count;
    tutti_edge *taken;        /* [count]: the edges, by (round, to, from) */
    tutti_edge *given;        /* [count]: the same edges, by (round, from, to) */
    int degree;               /* largest number of in- or out-neighbours of a member in a round */
} tutti_edges;

struct tutti_graph {
    const tutti_graph_rules *family;
    tutti_spec *spec;
    tutti_graph_options options;
    int n;
    uint64_t period;          /* rounds; 0: every round is drawn */
    int degree_max;           /* as tutti_graph_degree returns it */
    double messages;          /* per round, of all members, on average */
    tutti_weights weights;    /* not AUTO */
    double alpha;             /* weights LAPLACIAN: alpha */
    int *degree;              /* [n]: the degree of each member; NULL: all have degree_max, or the
                                 family knows it */
    /* random: closed walks through all members, and one matching if the degree is odd */
    int cycles;               /* number of walks */
    int *order;               /* [walks and matching][n]: the members in order; in the matching
                                 elements 2a and 2a + 1 are a pair */
    int *place;               /* [walks and matching][n]: the index of each member in that order */
    tutti_staged *staged;     /* base, hyper-hypercube; else NULL */
    tutti_matchings *matchings; /* matcha; else NULL */
    tutti_edges *edges;       /* file; else NULL */
};

/* ---- families.c ---- */

/* Adds member j to the list, in order, unless it is the owner or in the list. */
void tutti_graph_join(tutti_graph_list *list, int j);
void tutti_graph_join_weighted(tutti_graph_list *list, int j, double w);
/* Adds all members to the list. */
void tutti_graph_join_all(const tutti_graph *g, int i, tutti_graph_list *out);
/* Returns the smallest t with 2^t >= n. It uses integers only, since a floating-point logarithm can
   be off by one near a power of two. */
int tutti_graph_log2_up(int n);
/* Returns i mod n, from 0 to n - 1, also for a negative i. */
int tutti_graph_modulo(const tutti_graph *g, int64_t i);

/* ---- graph.c ---- */

/* Sets *out to i's neighbours in round k. sign: as in tutti_graph_rules.list. */
void tutti_graph_neighbours(const tutti_graph *g, uint64_t k, int i, int sign,
                            tutti_graph_list *out);
/* Returns the number of rounds k whose tutti_graph_meets together are all edges that the graph can
   have. */
uint64_t tutti_graph_meetings(const tutti_graph *g);
/* Sets *out to i's neighbours in round k; of a drawn graph to all possible ones. out->at has n
   elements. */
void tutti_graph_meets(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out);
/* Prints the graph's spec, truncated to `bytes`. */
void tutti_graph_print(const tutti_graph *g, char *out, size_t bytes);

/* ---- gap.c ---- */

/* Returns the second smallest (*second) and the largest (*last) eigenvalue of the Laplacian of a
   static undirected graph: the diagonal matrix of the degrees minus the adjacency matrix. */
tutti_status tutti_graph_laplacian(const tutti_graph *g, double *second, double *last,
                                   tutti_error *err);

/* ---- matching.c, matcha.c ---- */

/* Sets count and partner: partitions the edges of a static undirected graph into matchings. */
tutti_status tutti_matchings_find(tutti_matchings *m, const tutti_graph *base, tutti_error *err);
void tutti_matchings_close(tutti_matchings *matchings); /* accepts NULL */

/* ---- file.c ---- */

/* Parses the text of a graph file of n members; file.c describes the format. path: for messages.
   TUTTI_ERR_USAGE: the text is invalid; the message names the line. tests/fuzz calls it, too. */
tutti_status tutti_edges_parse(tutti_edges **out, const char *path, const char *text, size_t bytes,
                               int n, tutti_error *err);
void tutti_edges_close(tutti_edges *edges); /* accepts NULL */
/* TUTTI_ERR_USAGE: the graph is not connected, or its rounds only permute the members' values. */
tutti_status tutti_edges_check(const tutti_graph *g, tutti_error *err);

/* ---- eigen.c: eigenvalues of symmetric matrices ---- */

/* Computes eigenvalue number `which` of a, from the smallest, 0, on, and the largest one. a[n][n]:
   the matrix; overwritten. scratch[4 n]. */
void tutti_eigen_full(double *a, size_t n, double *scratch, size_t which, double *value,
                      double *largest);
/* A symmetric matrix A by its product. apply: y := A x, for vectors x[n] whose sum is 0. of: its
   first argument. */
typedef struct tutti_operator {
    void (*apply)(const void *of, const double *x, double *y);
    const void *of;
    size_t n;
} tutti_operator;
/* Returns the number of doubles of scratch that tutti_eigen_top needs. */
size_t tutti_eigen_scratch(size_t n);
/* Returns the largest eigenvalue on vectors of sum 0. vector[n]: where the iteration begins; it
   becomes the unit eigenvector v. The iteration ends when |A v - value v|, which bounds the
   distance of `value` to an eigenvalue, is at most `tolerance` times the largest |value| so far,
   or after `iterations` iterations. */
double tutti_eigen_top(const tutti_operator *a, double *vector, double tolerance, int iterations,
                       double *scratch);
#endif
