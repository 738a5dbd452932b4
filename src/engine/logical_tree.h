/* logical_tree.h: the tree in which gradients of logical shares are added (logical.c), and what of
   it a worker with a block of shares can add by itself. Pure. Included by logical.c and its test;
   implemented by logical_tree.c. */
#ifndef TUTTI_ENGINE_LOGICAL_TREE_H
#define TUTTI_ENGINE_LOGICAL_TREE_H
#include <stdbool.h>

#pragma GCC visibility push(default)     /* for tests/engine */

enum {
    TUTTI_LOGICAL_MOST = 1024,           /* shares of a run */
    TUTTI_LOGICAL_NODES = 20             /* most nodes that a block can have */
};

/* A node of the tree: the sum of the shares first, ..., first + count - 1. */
typedef struct tutti_logical_node { int first, count; } tutti_logical_node;

/* Returns how many shares the left child of a node of `count` > 1 has: the largest power of two
   below count, as in every sum over workers (docs/design/numbers.md). */
int tutti_logical_split(int count);
/* Returns whether the two are the children, in this order, of a node of the tree over `shares`. */
bool tutti_logical_joins(int shares, tutti_logical_node left, tutti_logical_node right);
/* Writes the nodes that lie in a block and whose parent does not, in ascending order. Returns their
   number. */
int tutti_logical_nodes(int shares, tutti_logical_node block,
                        tutti_logical_node nodes[TUTTI_LOGICAL_NODES]);
/* Returns whether the tree over the workers' blocks is the tree over workers: each block is a node,
   and a sum over the workers adds these as the tree over shares does. block: [workers]. */
bool tutti_logical_is_workers(int shares, int workers, const tutti_logical_node *block);

#pragma GCC visibility pop
#endif
