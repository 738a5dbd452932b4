/* stage.h: what the files of stages share (stages.h). stage_net.c splits a network; store.c has
   the memory; stage.c has slots, and takes a micro-batch forward and back. */
#ifndef TUTTI_NN_STAGE_H
#define TUTTI_NN_STAGE_H
#include "arena.h"
#include "driver.h"
#include "nn/stages.h"

/* ---- stage_net.c ---- */
int tutti_nn_net_units(const nn_net *net);
/* Has the network stages at all? / May one begin at that unit? *enters: floats a sample. */
tutti_status tutti_nn_net_staged(const nn_net *net, tutti_error *err);
tutti_status tutti_nn_net_cut(const nn_net *net, int unit, size_t *enters, tutti_error *err);
/* Units [first, end) as a network of its own, which the caller closes. */
tutti_status tutti_nn_net_part(nn_net *part, const nn_net *whole, int first, int end,
                               tutti_error *err);

/* ---- store.c ---- */
/* A buffer of `bytes` bytes, more than 0, aligned to a cache line. It must be given back with the
   same number. */
void *tutti_nn_store_take(tutti_nn_store *store, size_t bytes, tutti_error *err);
void tutti_nn_store_give(tutti_nn_store *store, void *memory, size_t bytes);
#endif
