/* chunk-topk.c: codec chunk-topk: the greatest elements of each cell of a tensor, with values of
   two bits. What SparseLoCo sends of a pseudo-gradient (Sarfi et al., "Communication Efficient LLM
   Pre-training with SparseLoCo", 2025, arXiv 2508.15706), with error feedback around it:
   ef(chunk-topk,decay=0.95).

   Cells, message, quantiser and mean=senders: cells.h, cells.c. In a matrix whose sides are
   multiples of 64 a cell has 4096 elements and sends 64 of them: 16 bytes of codes and 96 of
   indexes, which is 4 x 4096 / 112 = 146 times less than float32. A tensor adds 16 bytes.

   Different from the authors' code: sides are cut evenly, and not by their largest divisor up to
   64; levels are sent as they are, and not as differences from the mean; with mean=senders no
   worker's values are scaled down to the median norm. */
#include "cells.h"
#include "registry.h"

static const tutti_option options[] = {
    TUTTI_ROW_CELLS_TOPK(TUTTI_AT(tutti_codec_cells, topk), 64, "elements"),
    TUTTI_ROW_CELLS_CHUNK(TUTTI_AT(tutti_codec_cells, chunk)),
    TUTTI_ROW_CELLS_VALUES(TUTTI_AT(tutti_codec_cells, value), TUTTI_CELLS_2BIT),
    TUTTI_ROW_CELLS_MEAN(TUTTI_AT(tutti_codec_cells, mean), TUTTI_CELLS_ALL, "an element"),
    { 0 }
};

const tutti_codec_ops tutti_codec_chunk_topk = {
    .name = "chunk-topk",
    .paper = "Sarfi et al., 2025 (SparseLoCo)",
    .help = "the elements of greatest magnitude of each chunk of a tensor, two bits each",
    .options = options,
    .self_bytes = sizeof(tutti_codec_cells),
    TUTTI_CODEC_CELLS,
    .places = tutti_codec_cells_places,
};
