/* optim_internal.h: the built-in optimisers' tables, and what their files have in common. Included
   by the files of src/optim only. */
#ifndef TUTTI_OPTIM_INTERNAL_H
#define TUTTI_OPTIM_INTERNAL_H
#include <tutti/method.h>

extern const tutti_optim_ops tutti_optim_sgd, tutti_optim_adam, tutti_optim_adamw;

/* ---- adam.c, for adam and adamw, whose tables differ in the weight decay only ---- */

/* The struct that options of both are written to (o->self). */
typedef struct tutti_optim_adam_options {
    double lr, beta1, beta2, eps, weight_decay;
    bool lazy;
} tutti_optim_adam_options;
/* Members of tutti_optim_ops. */
extern const char *const tutti_optim_adam_slot_names[];
int tutti_optim_adam_slots(const void *self);
double tutti_optim_adam_lr(const void *self);
/* Returns the option `lazy`. It serves as by_rows, too: unless rows may be skipped on request, a
   gradient of 0 still changes the means, and weights move by them. */
bool tutti_optim_adam_lazy(const void *self);
/* Updates as `apply` of tutti_optim_ops. decoupled: AdamW's decay, of the weights; else Adam's, in
   the gradient. */
void tutti_optim_adam_apply(const tutti_optim *o, size_t count, float *w, const float *g,
                            float *const *slot, const tutti_rate *rate, bool decoupled);

/* ---- optim.c ---- */

/* Returns the index of the last range of the slots that begins at `first` or before it. */
size_t tutti_optim_range_at(const tutti_optim *o, size_t first);

/* Returns x^k, by squaring, with a relative error of about k * 2^-53. pow() is not used: the C
   library has variants of it for different processors that differ in the last bit, and each
   replica computes its step by itself. */
static inline double tutti_optim_power(double x, uint64_t k)
{
    double power = 1;

    for (; k > 0; k /= 2, x *= x)
        if (k % 2 == 1)
            power *= x;
    return power;
}
#endif
