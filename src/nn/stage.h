/* stage.h: private header of stages (stages.h), included by stage.c (slots; forward and backward of
   a micro-batch), stage_net.c (splits a network) and store.c (memory of activations). */
#ifndef TUTTI_NN_STAGE_H
#define TUTTI_NN_STAGE_H
#include "arena.h"
#include "driver.h"
#include "nn/stages.h"

/* ---- stage_net.c ---- */
/* Returns the number of units of a network of any kind. */
int tutti_nn_net_units(const nn_net *net);
/* Returns TUTTI_OK if the network can have stages, else TUTTI_ERR_USAGE with the reason. */
tutti_status tutti_nn_net_staged(const nn_net *net, tutti_error *err);
/* Returns TUTTI_OK if a stage may begin at the unit, else TUTTI_ERR_USAGE with the reason. *enters:
   floats of a sample that enter such a stage; 0 for unit 0 and on failure. */
tutti_status tutti_nn_net_cut(const nn_net *net, int unit, size_t *enters, tutti_error *err);
/* Makes *part from units [first, end) of *whole. The caller closes *part (tutti_nn_net_close). */
tutti_status tutti_nn_net_part(nn_net *part, const nn_net *whole, int first, int end,
                               tutti_error *err);

/* ---- store.c ---- */
/* Allocates `bytes` bytes, more than 0, aligned to a cache line. NULL: no memory, or the store's
   bound, with a sentence in *err. */
void *tutti_nn_store_alloc(tutti_nn_store *store, size_t bytes, tutti_error *err);
/* Frees memory of tutti_nn_store_alloc; `bytes` must be the same number as there. */
void tutti_nn_store_free(tutti_nn_store *store, void *memory, size_t bytes);
#endif
