/* onednn_operand.c: products whose operands have 16 bits (onednn_internal.h; Micikevicius et al.
   2018; Kalamkar et al. 2019). Weights, activations and slopes are rounded to bf16 or fp16, to
   nearest even, before a product reads them. The product multiplies them exactly and adds in
   float32. Everything else is float32: biases, results of products, norms, softmax, the products
   within attention's tiles, the loss, gradients of weights and their sums. So are the weights: the
   optimiser never reads a rounded one.

   The operand that a product reads depends on the type in which the caller gives it, and on the
   type that oneDNN's primitive takes:

                         the primitive takes 16 bits    it takes float32
     given as float32    narrowed into scratch          rounded to 16 bits and back, into scratch
     given in 16 bits    as it is                       widened into scratch

   oneDNN is asked for every product whether it takes 16 bits. oneDNN 2 takes fp16 on no CPU, and
   bf16 on AVX-512 only. Elsewhere the right column computes the same products of the same rounded
   numbers, at the speed of float32 or below. So a run has the requested precision on every CPU, and
   differs between CPUs by the order of sums.

   Weights are rounded once for each set of values: a product's operand is recognised as a weight by
   its address. If blocks run unit by unit, there are copies of one unit at a time, made twice in a
   pass, for all its blocks. */
#include "onednn_internal.h"
#include "parallel.h"

/* WORTH: with fewer values a conversion stays on one thread; STRETCH: values rounded at a time */
enum { WORTH = 1 << 15, STRETCH = 1024 };

dnnl_data_type_t tutti_nn_dn_narrow_type(const dn_core *core)
{
    return core->precision == TUTTI_BF16  ? dnnl_bf16
           : core->precision == TUTTI_F16 ? dnnl_f16
                                          : dnnl_f32;
}

void tutti_nn_dn_operand(dn_core *core, dn_op *op, int index, size_t values, bool narrow)
{
    dn_operand *o = &op->operands[index];
    nn_mdref md;
    bool takes;

    if (core->precision == TUTTI_F32 || op->primitive == NULL)
        return;
    md = tutti_nn_dn_md(op, op->args[index].arg);
    takes = nn_md_type(md) != dnnl_f32;
    core->widens = core->widens || !takes;
    o->form = takes ? narrow ? DN_AS_IS : DN_NARROWED : narrow ? DN_WIDENED : DN_ROUNDED;
    o->values = values > 0
                    ? values
                    : dnnl_memory_desc_get_size(md) / (takes ? sizeof(uint16_t) : sizeof(float));
    if (o->form == DN_AS_IS)
        return;
    o->offset = (op->scratch + NN_ARENA_LINE - 1) / NN_ARENA_LINE * NN_ARENA_LINE;
    op->scratch = o->offset + o->values * (takes ? sizeof(uint16_t) : sizeof(float));
}

static dnnl_status_t describe_conv(const dn_core *core, dnnl_primitive_desc_t *pd,
                                   const dn_conv_spec *c, bool takes,
                                   const_dnnl_primitive_desc_t hint)
{
    const dn_conv_maps *m = c->maps;
    const nn_mdref src = takes ? m->narrow_src : m->src,
                   weights = takes ? m->narrow_weights : m->weights,
                   dst = takes ? m->narrow_dst : m->dst;

    *pd = NULL;
    switch (c->kind) {
    case DN_CONV_FORWARD:
        return nn_conv_forward_pd(pd, core->engine, c->steps, src, weights, m->bias, m->dst,
                                  c->attr);
    case DN_CONV_WEIGHTS:
        return nn_conv_weights_pd(pd, core->engine, c->steps, src, m->weights, m->bias, dst, hint,
                                  c->attr);
    default:
        return nn_conv_data_pd(pd, core->engine, c->steps, m->src, weights, dst, hint, c->attr);
    }
}

tutti_status tutti_nn_dn_conv(dn_core *core, dn_op *op, dn_label of, const dn_conv_spec *c,
                              dn_args args, tutti_error *err)
{
    const dn_op *forward = c->forward;
    bool takes = core->precision != TUTTI_F32;
    const_dnnl_primitive_desc_t hint = NULL;
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = forward != NULL
                               ? dnnl_primitive_get_primitive_desc(forward->primitive, &hint)
                               : dnnl_success;

    if (status != dnnl_success)
        return tutti_nn_dn_failed(status, of.unit, of.what, err);
    status = describe_conv(core, &pd, c, takes, hint);
    if (takes && !tutti_nn_dn_usable(pd, status)) {
        takes = false;
        if (pd != NULL)
            dnnl_primitive_desc_destroy(pd);
        status = describe_conv(core, &pd, c, false, hint);
    }
    TUTTI_TRY(tutti_nn_dn_op_open(core, op, of, (dn_made){ pd, status }, args, err));
    tutti_nn_dn_operand(core, op, 0, 0, takes);
    tutti_nn_dn_operand(core, op, 1, 0, takes);
    return TUTTI_OK;
}

/* ---- conversions ---- */
/* A conversion of n values, STRETCH values at a time. */
typedef struct conversion {
    const dn_core *core;
    size_t n;
    const float *wide;
    uint16_t *narrow;
    float *result;
} conversion;

static size_t stretch_of(const conversion *c, size_t first, size_t count)
{
    return first + count < c->n ? count : c->n - first;
}

static void narrow_part(void *arg, size_t first, size_t count, int thread)
{
    const conversion *c = arg;
    const size_t at = first * STRETCH, n = stretch_of(c, at, count * STRETCH);

    (void)thread;
    tutti_cast(c->core->device, tutti_host((void *)(uintptr_t)(c->wide + at), n, TUTTI_F32),
               tutti_host(c->narrow + at, n, c->core->precision));
}

static void widen_part(void *arg, size_t first, size_t count, int thread)
{
    const conversion *c = arg;
    const size_t at = first * STRETCH, n = stretch_of(c, at, count * STRETCH);

    (void)thread;
    tutti_cast(c->core->device, tutti_host(c->narrow + at, n, c->core->precision),
               tutti_host(c->result + at, n, TUTTI_F32));
}

static void round_part(void *arg, size_t first, size_t count, int thread)
{
    const conversion *c = arg;
    uint16_t some[STRETCH];

    (void)thread;
    for (size_t k = first; k < first + count; k++) {
        const size_t at = k * STRETCH, n = stretch_of(c, at, STRETCH);
        tutti_cast(c->core->device, tutti_host((void *)(uintptr_t)(c->wide + at), n, TUTTI_F32),
                   tutti_host(some, n, c->core->precision));
        tutti_cast(c->core->device, tutti_host(some, n, c->core->precision),
                   tutti_host(c->result + at, n, TUTTI_F32));
    }
}

static void convert(conversion *c, void (*part)(void *arg, size_t first, size_t count, int thread))
{
    tutti_nn_parallel(c->core->threads, (c->n + STRETCH - 1) / STRETCH, WORTH / STRETCH, part, c);
}

void tutti_nn_dn_narrow(const dn_core *core, size_t n, const float *from, uint16_t *to)
{
    convert(&(conversion){ .core = core, .n = n, .wide = from, .narrow = to }, narrow_part);
}

/* ---- copies of weights ---- */
static size_t lines(size_t values)
{
    const size_t line = NN_ARENA_LINE / sizeof(uint16_t);
    return (values + line - 1) / line * line;
}

/* Assigns memory to the copies, one after another; by unit, each unit's from the beginning.
   Returns the values of all. */
static size_t place_copies(dn_copies *c, const dn_wanted *wanted, bool by_unit)
{
    size_t most = 0, at = 0;
    int unit = -1;

    for (int k = 0; k < c->count; k++) {
        if (wanted[k].values == 0)
            continue;
        at = by_unit && wanted[k].unit != unit ? 0 : at;
        unit = wanted[k].unit;
        c->list[k] =
            (dn_copy){ .to = c->memory != NULL ? c->memory + at : NULL, .count = wanted[k].values };
        at += lines(wanted[k].values);
        most = at > most ? at : most;
    }
    return most;
}

tutti_status tutti_nn_dn_copies_open(dn_core *core, const dn_wanted *wanted, int n,
                                     tutti_error *err)
{
    const bool by_unit = core->shared_copies != NULL;
    dn_copies *c = by_unit ? *core->shared_copies : NULL;

    if (core->precision == TUTTI_F32)
        return TUTTI_OK;
    if (c == NULL) {
        c = core->copies = tutti_alloc(1, sizeof *c);
        if (c != NULL) {
            c->list = tutti_alloc((size_t)n, sizeof *c->list);
            c->count = n;
        }
        if (c != NULL && c->list != NULL) {
            c->values = place_copies(c, wanted, by_unit);
            c->memory = tutti_alloc(c->values, sizeof *c->memory);
        }
        if (c == NULL || c->list == NULL || (c->memory == NULL && c->values > 0))
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                              "no memory for copies of weights in 16 bits");
        place_copies(c, wanted, by_unit);
        if (by_unit)
            *core->shared_copies = c;
    }
    c->users++;
    core->copies = c;
    return TUTTI_OK;
}

void tutti_nn_dn_copies_close(dn_core *core)
{
    dn_copies *c = core->copies;

    core->copies = NULL;
    if (c == NULL || --c->users > 0)
        return;
    tutti_free(c->list);
    tutti_free(c->memory);
    tutti_free(c);
}

size_t tutti_nn_dn_copies_bytes(const dn_core *core)
{
    const dn_copies *c = core->copies;
    return c == NULL
               ? 0
               : (sizeof *c + (size_t)c->count * sizeof *c->list + c->values * sizeof *c->memory) /
                     (size_t)c->users;
}

void tutti_nn_dn_copies_begin(dn_core *core, const float *const *values, bool same)
{
    for (int k = 0; core->copies != NULL && k < core->copies->count; k++) {
        dn_copy *c = &core->copies->list[k];
        c->valid = c->valid && same && c->from == values[k];
        c->from = values[k];
    }
    if (core->copies != NULL)
        core->copies->weights = values;
}

/* Other copies in the same memory become invalid. */
static void make_copy(dn_core *core, dn_copy *c)
{
    for (int k = 0; k < core->copies->count; k++) {
        dn_copy *other = &core->copies->list[k];
        if (other->valid)
            other->valid = other->to + other->count <= c->to || c->to + c->count <= other->to;
    }
    tutti_nn_dn_narrow(core, c->count, c->from, c->to);
    c->valid = true;
}

/* The copy of [from, from + n), which may be a part of a weight; NULL: there is none. */
static uint16_t *copy_of(dn_core *core, const float *from, size_t n)
{
    for (int k = 0; core->copies != NULL && k < core->copies->count; k++) {
        dn_copy *c = &core->copies->list[k];
        const float *now = core->copies->weights[k];
        if (c->count == 0 || now == NULL || (uintptr_t)from < (uintptr_t)now ||
            (uintptr_t)(from + n) > (uintptr_t)(now + c->count))
            continue;
        if (c->from != now) { /* the weight has moved; another may be at its old address */
            c->from = now;
            c->valid = false;
        }
        if (!c->valid)
            make_copy(core, c);
        return c->to + (from - c->from);
    }
    return NULL;
}

/* ---- running ---- */
void *tutti_nn_dn_operand_ready(dn_core *core, const dn_op *op, int index, void *given)
{
    const dn_operand *o = &op->operands[index];
    void *const converted = (char *)core->scratch + o->offset;
    conversion c = {
        .core = core, .n = o->values, .wide = given, .narrow = given, .result = converted
    };
    uint16_t *copy;

    if (o->form == DN_AS_IS)
        return given;
    if (o->form != DN_WIDENED && (copy = copy_of(core, given, o->values)) != NULL) {
        if (o->form == DN_NARROWED)
            return copy;
        c.narrow = copy;
        convert(&c, widen_part);
        return converted;
    }
    c.narrow = o->form == DN_NARROWED ? converted : given;
    convert(&c, o->form == DN_NARROWED  ? narrow_part
                : o->form == DN_WIDENED ? widen_part
                                        : round_part);
    return converted;
}
