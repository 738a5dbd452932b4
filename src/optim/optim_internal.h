/* optim_internal.h: what the files of optim/ share. */
#ifndef TUTTI_OPTIM_INTERNAL_H
#define TUTTI_OPTIM_INTERNAL_H
#include <tutti/method.h>

extern const tutti_optim_ops tutti_optim_sgd, tutti_optim_adam, tutti_optim_adamw;

/* What adam and adamw have in common: their tables differ in the decay only. */
typedef struct tutti_optim_adam_options {
    double lr, beta1, beta2, eps, weight_decay;
    bool lazy;
} tutti_optim_adam_options;
extern const char *const tutti_optim_adam_slot_names[];
int tutti_optim_adam_slots(const void *self);
double tutti_optim_adam_lr(const void *self);
/* without it means decay and weights move by them, so this is by_rows, too */
bool tutti_optim_adam_lazy(const void *self);
/* decoupled: AdamW's decay, on the weights; else Adam's, in the gradient. */
void tutti_optim_adam_apply(const tutti_optim *o, size_t count, float *w, const float *g,
                            float *const *slot, const tutti_rate *rate, bool decoupled);

/* The last range of the slots that begins at `first` or before it. */
size_t tutti_optim_range_at(const tutti_optim *o, size_t first);

/* x^k by squaring. Not pow(): the C library has variants of it for different processors
   that differ in the last bit, and each replica computes its step by itself. The
   relative error is about k * 2^-53. */
static inline double tutti_optim_power(double x, uint64_t k)
{
    double power = 1;

    for (; k > 0; k /= 2, x *= x)
        if (k % 2 == 1)
            power *= x;
    return power;
}
#endif
