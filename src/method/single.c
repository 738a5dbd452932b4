/* single: plain SGD; nothing is exchanged.
   With one worker it is the reference for every other method. With n workers each trains its own
   replica on its own samples, and the final model is their mean (one-shot averaging: Zinkevich,
   Weimer, Smola, Li, NIPS 2010). This is also the speed of n workers that never wait: the upper
   bound against which a method's overhead is measured.

   One worker's steps are ddp's, so it and ddp with any number of workers can resume each other's
   checkpoints. Several workers each have a separate model. */
#include "tutti/method.h"

const tutti_method_ops tutti_method_single = {
    .name = "single",
    .title = "Plain SGD; several workers average once, at the end",
    .authors = "Zinkevich, Weimer, Smola, Li",
    .year = 2010,
    .family = "baseline",
    .traits = TUTTI_FAULT_TOLERANT | TUTTI_SPARSE_ROWS | TUTTI_DDP_EQUIVALENT_ALONE |
              TUTTI_ASKS_FOR_VALUES,
    .axes = { "none", "at the end", "fp32", "none", "replicated", "any" },
};
