/* topology_internal.h: what the module's files share. */
#ifndef TUTTI_TOPOLOGY_INTERNAL_H
#define TUTTI_TOPOLOGY_INTERNAL_H
#include "tutti/method/gossip.h"

/* How W follows from the edges of a round; members and offsets as in gossip.h. d: neighbours of a
   member, without itself. */
typedef enum {
    TUTTI_WEIGHTS_AUTO,       /* of an option: uniform where all have one d, else Metropolis */
    TUTTI_WEIGHTS_UNIFORM,    /* 1/(d + 1), also for the member itself */
    TUTTI_WEIGHTS_METROPOLIS, /* 1/(1 + max(d_i, d_j)), the rest for itself */
    TUTTI_WEIGHTS_LAPLACIAN,  /* I - alpha L with the best alpha, 2/(lambda_2(L) + lambda_n(L)) */
    TUTTI_WEIGHTS_PUSH,       /* 1/(d + 1) of the sender: columns sum to 1, rows need not */
    TUTTI_WEIGHTS_OWN         /* the family's list writes them */
} tutti_weights;

typedef struct tutti_graph_options {
    int64_t rows, degree, seed, k, block;
    int weights;
    bool lazy;
    const char *base, *path;
    double budget, weight;
} tutti_graph_options;
#define TUTTI_WEIGHTS_OPTION \
    { "weights", TUTTI_CHOICE, TUTTI_AT(tutti_graph_options, weights), 0, 0, 4, \
      "auto|uniform|metropolis|laplacian|push", \
      "mixing weights; auto: uniform if all degrees are equal, else metropolis; " \
      "push: for push-sum" }, \
    { "lazy", TUTTI_BOOL, TUTTI_AT(tutti_graph_options, lazy), 0, 0, 1, NULL, \
      "(1 + W) / 2 instead of W" }

/* Sorted, without repetitions and without its owner. w: the weight of each (families with weights
   of their own); NULL where no weights are wanted. */
typedef struct tutti_graph_list {
    int *at;
    double *w;
    int count, owner;
    double self;
} tutti_graph_list;

typedef struct tutti_graph_rules {
    const char *name, *help;
    const tutti_option *options;
    bool regular;  /* all members have one degree d in a round; weights are 1/(d + 1) */
    bool cliques;  /* a round's edges form cliques of members, the rest alone; weights 1/(d + 1) */
    bool own;      /* list writes weights and self */
    bool directed; /* else i gives to those it takes from, with one weight; one list a round */
    bool drawn;    /* period 0: new rounds without end; has meets, second, messages; no sign */
    /* May it have this size? No: writes which it may. NULL: any. */
    bool (*fits)(const tutti_graph *g, char *mend, size_t bytes);
    /* Tables, if it needs them; NULL: none. */
    tutti_status (*prepare)(tutti_graph *g, tutti_error *err);
    uint64_t (*period)(const tutti_graph *g); /* NULL: 1 */
    int (*degree)(const tutti_graph *g);      /* NULL: found from round 0 */
    /* sign 1: the members that take i's values; -1: those whose values i takes. */
    void (*list)(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out);
    /* All members that may ever be neighbours of i. */
    void (*meets)(const tutti_graph *g, int i, tutti_graph_list *out);
    double (*second)(const tutti_graph *g);   /* lambda_2 of the expectation of W^T W */
    double (*messages)(const tutti_graph *g); /* expected in a round, over all members */
} tutti_graph_rules;

/* {0}-ended; a table a file. */
extern const tutti_graph_rules tutti_graph_fixed[], tutti_graph_staged[], tutti_graph_drawn[],
    tutti_graph_matcha[], tutti_graph_filed[];
/* All families' rules, one after the other; NULL beyond the end. */
const tutti_graph_rules *tutti_graph_rules_at(int i);

enum { TUTTI_STAGES_MAX = 17, TUTTI_BLOCKS_MAX = 17 };
/* Factors of a number of members, each at most k + 1, ascending: the stages of a hyper-hypercube.
   count 0: one member, nothing to do. */
typedef struct tutti_stages { int factor[TUTTI_STAGES_MAX], count; } tutti_stages;

/* Simple Base-(k+1) on n members (stages.c). Block l: members from start[l], a_l = parts[l]
   sub-blocks. */
typedef struct tutti_blocks {
    int n, count, length; /* members, blocks, rounds; count 0: the whole is a hyper-hypercube */
    int start[TUTTI_BLOCKS_MAX + 1], parts[TUTTI_BLOCKS_MAX];
    tutti_stages whole[TUTTI_BLOCKS_MAX]; /* of a block; whole[0] also where count is 0 */
    tutti_stages part[TUTTI_BLOCKS_MAX];  /* of each of its sub-blocks */
} tutti_blocks;
/* Blocks in each of the groups, then across them. */
typedef struct tutti_staged { tutti_blocks blocks; int groups; tutti_stages across; } tutti_staged;

typedef struct tutti_matchings {
    int count, *partner;      /* partner[m * n + i]: the partner of i in matching m, or i */
    double *chance, alpha, second, messages; /* chance of each; weight of an active edge */
} tutti_matchings;

/* `to` takes w of `from`'s values. */
typedef struct tutti_edge { uint32_t round; int to, from; uint32_t line; double w; } tutti_edge;
typedef struct tutti_edges {
    uint32_t rounds, count;
    tutti_edge *taken, *given; /* the same edges by (round, to, from) and by (round, from, to) */
    int degree;
} tutti_edges;

struct tutti_graph {
    const tutti_graph_rules *family;
    tutti_spec *spec;
    tutti_graph_options options;
    int n;
    uint64_t period;          /* 0: every round is drawn, without a period */
    int degree_max;
    double messages;          /* in a round, by all members */
    tutti_weights weights;
    double alpha;             /* laplacian */
    int *degree;              /* n; only where members differ in it */
    int cycles;               /* random: closed walks through all members */
    /* random: each cycle's members in order, and where a member stands; a matching, if there is
       one, last */
    int *order, *place;
    tutti_staged *staged;     /* base, hyper-hypercube */
    tutti_matchings *matchings; /* matcha */
    tutti_edges *edges;       /* file */
};

void tutti_graph_join(tutti_graph_list *list, int j);
void tutti_graph_join_weighted(tutti_graph_list *list, int j, double w);
/* Smallest t with 2^t >= n. Integers only: floating-point logarithms are off by one near powers. */
int tutti_graph_log2_up(int n);
int tutti_graph_around(const tutti_graph *g, int64_t i); /* i mod n, from 0 */
void tutti_graph_everybody(const tutti_graph *g, int i, tutti_graph_list *out);
/* The neighbours in a round; sets count. */
void tutti_graph_neighbours(const tutti_graph *g, uint64_t k, int i, int sign,
                            tutti_graph_list *out);
/* Neighbours of all rounds, one call a (k, sign), k below tutti_graph_meetings(). at: capacity
   n. */
uint64_t tutti_graph_meetings(const tutti_graph *g);
void tutti_graph_meets(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out);
void tutti_graph_print(const tutti_graph *g, char *out, size_t bytes); /* its spec, truncated to
                                                                          fit */
/* gap.c: second smallest and largest eigenvalue of the Laplacian of a fixed undirected graph:
   diagonal of degrees less adjacency. */
tutti_status tutti_graph_laplacian(const tutti_graph *g, double *second, double *last,
                                   tutti_error *err);
/* Finds count and partner. base: fixed and undirected. */
tutti_status tutti_matchings_find(tutti_matchings *m, const tutti_graph *base, tutti_error *err);
void tutti_matchings_close(tutti_matchings *matchings);

/* The text of a graph file (file.c describes it); path: for sentences. This is what the fuzz
   target calls. */
tutti_status tutti_edges_parse(tutti_edges **out, const char *path, const char *text, size_t bytes,
                               int n, tutti_error *err);
void tutti_edges_close(tutti_edges *edges);
/* Checks that the graph is connected and does not only permute the members' values. */
tutti_status tutti_edges_check(const tutti_graph *g, tutti_error *err);

/* ---- eigen.c ---- */
/* Eigenvalue `which`, from the smallest, and the largest, of a symmetric n x n matrix; it is
   overwritten. room: scratch of 4 n. */
void tutti_eigen_full(double *a, size_t n, double *room, size_t which, double *value,
                      double *largest);
/* The largest eigenvalue of a symmetric operator on vectors of sum 0 (apply: y = A x), and its unit
   vector. vector: where to begin, overwritten. Ends when |A v - value v|, which bounds the distance
   to an eigenvalue, is at most `tolerance` of |value|, or after `turns` iterations. room: scratch
   of tutti_eigen_room(n). */
typedef struct tutti_operator {
    void (*apply)(const void *of, const double *x, double *y);
    const void *of;
    size_t n;
} tutti_operator;
size_t tutti_eigen_room(size_t n);
double tutti_eigen_top(const tutti_operator *a, double *vector, double tolerance, int turns,
                       double *room);
#endif
