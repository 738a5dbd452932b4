/* adamw.c: Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019, algorithm 2) as
   torch.optim.AdamW: before the step of adam.c, w <- (1 - lr weight_decay) w, and the gradient is
   left alone. As in PyTorch the decay is multiplied by the whole learning rate, not only by the
   schedule's factor as in the paper. */
#include "optim_internal.h"

#define BELOW_ONE 0x1.fffffffffffffp-1 /* bounds are inclusive, and beta = 1 would divide by 0 */

static const tutti_option options[] = {
    { "lr", TUTTI_REAL, TUTTI_AT(tutti_optim_adam_options, lr), 0.001, 0, 1e9, NULL,
      "learning rate" },
    { "beta1", TUTTI_REAL, TUTTI_AT(tutti_optim_adam_options, beta1), 0.9, 0, BELOW_ONE, NULL,
      "decay of the mean gradient" },
    { "beta2", TUTTI_REAL, TUTTI_AT(tutti_optim_adam_options, beta2), 0.999, 0, BELOW_ONE, NULL,
      "decay of the mean squared gradient" },
    { "eps", TUTTI_REAL, TUTTI_AT(tutti_optim_adam_options, eps), 1e-8, 0, 1e9, NULL,
      "added to the root; bounds the step where gradients vanish" },
    { "weight_decay", TUTTI_REAL, TUTTI_AT(tutti_optim_adam_options, weight_decay), 0.01, 0, 1e9,
      NULL, "share of lr by which weights shrink a step" },
    { "lazy", TUTTI_BOOL, TUTTI_AT(tutti_optim_adam_options, lazy), 0, 0, 1, NULL,
      "tables: rows that no sample of the step has named keep their values and slots" },
    { 0 },
};

static void adamw_apply(const tutti_optim *o, size_t count, float *w, const float *g,
                        float *const *slot, const tutti_rate *rate)
{
    tutti_optim_adam_apply(o, count, w, g, slot, rate, true);
}

const tutti_optim_ops tutti_optim_adamw = {
    .name = "adamw",
    .paper = "Loshchilov and Hutter, ICLR 2019, algorithm 2; as torch.optim.AdamW",
    .options = options,
    .self_bytes = sizeof(tutti_optim_adam_options),
    .slot_names = tutti_optim_adam_slot_names,
    .slots = tutti_optim_adam_slots,
    .apply = adamw_apply,
    .lr = tutti_optim_adam_lr,
    .by_rows = tutti_optim_adam_lazy,
    .lazy = tutti_optim_adam_lazy,
};
