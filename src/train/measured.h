/* measured.h: a network that is known by measurements alone: the shapes of its tensors, and the
   times of a pass. `tutti plan` simulates methods with it. Its model spec is "measured(file=F)".
   Implemented in measured.c (the file) and measured_pass.c (a simulated run with it).

   docs/PLAN.md describes the file. Times are in seconds, of a pass over `batch` samples. */
#ifndef TUTTI_TRAIN_MEASURED_H
#define TUTTI_TRAIN_MEASURED_H
#include <jansson.h>

#include "nn/nn.h"
#include "train/train.h"
#include "tutti/base.h"
#pragma GCC visibility push(default)

enum { TUTTI_MEASURED_BATCH_MOST = 1 << 20, TUTTI_MEASURED_TENSORS_MOST = 1 << 16 };

typedef struct tutti_measured_model {
    const char *module;          /* its name, a part of root; "": not known */
    int64_t batch;
    double forward, backward, optimizer; /* the last one: of an update, once in a step */
    uint64_t activation_bytes;
    int n;
    tutti_nn_param *param; /* [n]: in the order in which gradients become ready; the units
                                    descend. Names are in `name` */
    const char **name;     /* [n]: parts of root */
    double *ready;         /* [n]: when it is ready, since the beginning of backward; does not
                                    descend */
    int units;
    double *needed; /* [units]: when forward reaches it; does not descend */
    json_t *root;
} tutti_measured_model;

/* Is this the model spec of a measured network? */
bool tutti_measured_named(const char *model);

/* Parses a text that is not trusted. path: of the file, for messages. TUTTI_ERR_USAGE: a sentence
   with the path, the place in the file and what it must be. *out is NULL on failure. */
tutti_status tutti_measured_parse(tutti_measured_model **out, const char *path, const char *text,
                                  size_t bytes, tutti_error *err);
/* Reads the file of a model spec. TUTTI_ERR_USAGE, TUTTI_ERR_IO, TUTTI_ERR_MEMORY. */
tutti_status tutti_measured_open(tutti_measured_model **out, tutti_runtime *rt, const char *model,
                                 tutti_error *err);
void tutti_measured_close(tutti_measured_model *m); /* NULL is allowed */

/* Refuses what a run with a measured network cannot have, if the model is one: real time, and all
   that is about values (evaluations, targets, checkpoints). planned: a simulated run without a
   final evaluation, as `tutti plan` makes it, is allowed. */
tutti_status tutti_measured_check(const tutti_train_config *c, bool planned, tutti_error *err);
/* Returns the activations of a pass of `samples` samples, in bytes. */
uint64_t tutti_measured_activations(const tutti_measured_model *m, int64_t samples);
#pragma GCC visibility pop
#endif
