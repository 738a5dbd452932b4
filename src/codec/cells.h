/* cells.h: messages of the greatest elements of each cell of a tensor, for the codecs dct and
   chunk-topk. Implemented by cells.c. Included by the files of src/codec only.

   A side of d elements is cut into ceil(d / chunk) parts, whose lengths differ by one at most: part
   i begins at floor(i d / parts). A matrix is cut along both sides, anything else is one row. Of
   each cell the topk elements of greatest magnitude are sent, of equal ones those of the lowest
   indexes; all where a cell has no more.

   A message: the values of all cells, cell by cell, each by ascending index; then their indexes,
   packed: ceil(log2(h w)) bits each, of element (u, v) of a cell u w + v; none of a cell that is
   sent whole. Its length depends on the shape only. Values are four bytes each or two, or two bits
   (TUTTI_CELLS_2BIT): then four float32 numbers, the levels, come before the codes. */
#ifndef TUTTI_CODEC_CELLS_H
#define TUTTI_CODEC_CELLS_H
#include "codec_internal.h"
#include "rows.h"

enum {
    TUTTI_CELLS_SIDE_MOST = TUTTI_CELLS_CHUNK_MOST,
    TUTTI_CELLS_MOST = TUTTI_CELLS_SIDE_MOST * TUTTI_CELLS_SIDE_MOST /* elements of a cell */
};
enum { TUTTI_CELLS_FP32, TUTTI_CELLS_FP16, TUTTI_CELLS_BF16, TUTTI_CELLS_2BIT }; /* value */
enum { TUTTI_CELLS_ALL, TUTTI_CELLS_SENDERS };                                   /* mean */

typedef struct tutti_codec_cell {
    size_t down, across;         /* its number along both sides */
    size_t row, col, h, w;       /* where it is in the view; h 0: before the first */
    size_t k;                    /* elements sent */
    int bits;                    /* of an index; 0: the cell is sent whole */
    size_t first, bit;           /* elements, and bits of indexes, of the cells before */
} tutti_codec_cell;

/* The first member of the struct (c->self) of these codecs. Options write all but `turn`. */
typedef struct tutti_codec_cells {
    int64_t topk, chunk;
    int value, mean;
    /* Makes of a cell what is selected from, or goes back. Column x of the cell is block[x h].
       Returns where the result is, row by row: in `block` or in `work`, each of h w elements. Set
       by `declare`. NULL: the cell's own elements. */
    float *(*turn)(const tutti_codec *c, const tutti_codec_cell *at, bool back, float *block,
                   float *work);
} tutti_codec_cells;

/* Functions of tutti_codec_ops. `places` is for codecs without `turn`. */
unsigned tutti_codec_cells_traits(const tutti_codec *c);
size_t tutti_codec_cells_scratch(const tutti_codec *c, const tutti_view *v);
size_t tutti_codec_cells_bound(const tutti_codec *c, const tutti_view *v);
size_t tutti_codec_cells_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                                uint8_t *out);
tutti_status tutti_codec_cells_decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in,
                                          size_t bytes, float a, float *y, tutti_error *err);
tutti_status tutti_codec_cells_mean(tutti_codec *c, const tutti_view *v,
                                    const tutti_codec_messages *all, float *y, tutti_error *err);
void tutti_codec_cells_places(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                              uint8_t *mark);
#define TUTTI_CODEC_CELLS                                                                    \
    .traits = tutti_codec_cells_traits, .scratch = tutti_codec_cells_scratch,                \
    .bound = tutti_codec_cells_bound, .encode = tutti_codec_cells_encode,                    \
    .decode_add = tutti_codec_cells_decode_add, .mean = tutti_codec_cells_mean
#endif
