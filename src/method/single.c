/* single: plain SGD; nothing is exchanged.
   With one worker it is the yardstick of every other method. With n workers each trains its own
   replica on its own samples, and the final model is their mean (one-shot averaging: Zinkevich,
   Weimer, Smola, Li, NIPS 2010). This is also how fast n workers are when they never wait: the
   ceiling that a method's overhead is measured against.

   One worker's steps are ddp's, so it and ddp with any number go on from each other's checkpoints;
   of several workers each has a model of its own, which is nobody else's. */
#include "tutti/method.h"

const tutti_method_ops tutti_method_single = {
    .name = "single",
    .title = "Plain SGD; several workers average once, at the end",
    .authors = "Zinkevich, Weimer, Smola, Li",
    .year = 2010,
    .family = "baseline",
    .traits = TUTTI_FAULT_TOLERANT | TUTTI_SPARSE_ROWS | TUTTI_DDP_EQUIVALENT_ALONE,
    .axes = { "none", "at the end", "fp32", "none", "replicated", "any" },
};
