/* logical_tree.c: nodes of the tree of sums over logical shares (logical_tree.h). */
#include "logical_tree.h"

int tutti_logical_split(int count)
{
    int half = 1;

    while (2 * half < count)
        half *= 2;
    return half;
}

bool tutti_logical_joins(int shares, tutti_logical_node left, tutti_logical_node right)
{
    tutti_logical_node at = { 0, shares };

    while (at.count > left.count + right.count) {
        const int half = tutti_logical_split(at.count);
        if (left.first >= at.first + half)
            at = (tutti_logical_node){ at.first + half, at.count - half };
        else
            at.count = half;
    }
    return at.first == left.first && at.count == left.count + right.count &&
           right.first == left.first + left.count && at.count > 1 &&
           tutti_logical_split(at.count) == left.count;
}

/* Appends the nodes below `at` that lie in the block. */
static int list_nodes(tutti_logical_node at, tutti_logical_node block, tutti_logical_node *nodes,
                      int n)
{
    const int end = at.first + at.count, block_end = block.first + block.count;
    int half;

    if (end <= block.first || at.first >= block_end)
        return n;
    if (at.first >= block.first && end <= block_end) {
        nodes[n] = at;
        return n + 1;
    }
    half = tutti_logical_split(at.count);
    n = list_nodes((tutti_logical_node){ at.first, half }, block, nodes, n);
    return list_nodes((tutti_logical_node){ at.first + half, at.count - half }, block, nodes, n);
}

int tutti_logical_nodes(int shares, tutti_logical_node block,
                        tutti_logical_node nodes[TUTTI_LOGICAL_NODES])
{
    return list_nodes((tutti_logical_node){ 0, shares }, block, nodes, 0);
}

bool tutti_logical_is_workers(int shares, int workers, const tutti_logical_node *block)
{
    int half;

    if (workers == 1)
        return block->count == shares;
    half = tutti_logical_split(workers);
    /* the blocks are contiguous: those of the left workers are the left child if they end there */
    return block[half].first == block->first + tutti_logical_split(shares) &&
           tutti_logical_is_workers(tutti_logical_split(shares), half, block) &&
           tutti_logical_is_workers(shares - tutti_logical_split(shares), workers - half, block + half);
}
