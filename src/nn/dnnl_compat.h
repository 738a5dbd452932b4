/* dnnl_compat.h: private header that hides the version of oneDNN from the rest of nn; included by
   onednn_internal.h and a test. oneDNN 2.x makes a primitive descriptor in two steps (an operation
   descriptor first), and its memory descriptors are structs. oneDNN 3.x makes it in one step, and
   its memory descriptors are opaque pointers with an owner. The functions below have one signature
   for both: nn_md owns a memory descriptor, nn_mdref refers to one.

   2.0 (Debian 11, and the wheels), 2.6.3 (Debian 12) and 3.7.2 (Debian 13) are tested. */
#ifndef TUTTI_NN_DNNL_COMPAT_H
#define TUTTI_NN_DNNL_COMPAT_H
#include <dnnl.h>
#include <stdbool.h>
#include <string.h>

#if DNNL_VERSION_MAJOR != 2 && DNNL_VERSION_MAJOR != 3
#error "Tutti needs oneDNN 2.x or 3.x"
#endif
#define NN_DNNL_3 (DNNL_VERSION_MAJOR == 3)

/* oneDNN takes its number of threads from the calling thread's OpenMP setting. Declared here
   because the compiler in use may have an OpenMP of its own (clang: libomp), while the packaged
   oneDNN runs on libgomp, and this module is linked with that. */
extern void omp_set_num_threads(int threads);
extern int omp_get_max_threads(void);

/* Returns the channels of a block in the layouts that convolutions prefer on this CPU, or on the
   smaller instruction set that ONEDNN_MAX_CPU_ISA (in 2.0 DNNL_MAX_CPU_ISA) names. */
static inline int nn_channel_block(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core
               ? 16
               : 8;
}

/* A memory descriptor: shape, type and layout of a tensor. All zero: none. */
typedef struct nn_md { dnnl_memory_desc_t it; } nn_md;
#if NN_DNNL_3
typedef const_dnnl_memory_desc_t nn_mdref;
#else
typedef const dnnl_memory_desc_t *nn_mdref;
#endif

static inline nn_mdref nn_md_of(const nn_md *m)
{
#if NN_DNNL_3
    return m->it;
#else
    return &m->it;
#endif
}

/* Makes a descriptor of n dimensions. strides: NULL: the primitive chooses the layout. Also after a
   failure *m must be freed with nn_md_free. */
static inline dnnl_status_t nn_md_make(nn_md *m, int n, const dnnl_dims_t dims,
                                       dnnl_data_type_t type, const dnnl_dim_t *strides)
{
#if NN_DNNL_3
    return strides != NULL
               ? dnnl_memory_desc_create_with_strides(&m->it, n, dims, type, strides)
               : dnnl_memory_desc_create_with_tag(&m->it, n, dims, type, dnnl_format_tag_any);
#else
    return strides != NULL
               ? dnnl_memory_desc_init_by_strides(&m->it, n, dims, type, strides)
               : dnnl_memory_desc_init_by_tag(&m->it, n, dims, type, dnnl_format_tag_any);
#endif
}

static inline dnnl_data_type_t nn_md_type(nn_mdref md)
{
#if NN_DNNL_3
    dnnl_data_type_t type = dnnl_data_type_undef;
    return dnnl_memory_desc_query(md, dnnl_query_data_type, &type) == dnnl_success
               ? type
               : dnnl_data_type_undef;
#else
    return md->data_type;
#endif
}

/* Makes a descriptor of float32 values in a named layout, such as blocks of channels, which strides
   cannot describe. */
static inline dnnl_status_t nn_md_tag(nn_md *m, int n, const dnnl_dims_t dims,
                                      dnnl_format_tag_t tag)
{
#if NN_DNNL_3
    return dnnl_memory_desc_create_with_tag(&m->it, n, dims, dnnl_f32, tag);
#else
    return dnnl_memory_desc_init_by_tag(&m->it, n, dims, dnnl_f32, tag);
#endif
}

static inline void nn_md_free(nn_md *m)
{
#if NN_DNNL_3
    if (m->it != NULL)
        dnnl_memory_desc_destroy(m->it);
    m->it = NULL;
#else
    (void)m;
#endif
}

/* Append a post-op: the primitive adds to its output, or applies a ReLU. */
static inline dnnl_status_t nn_post_sum(dnnl_post_ops_t ops)
{
#if NN_DNNL_3
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
#else
    return dnnl_post_ops_append_sum(ops, 1);
#endif
}

static inline dnnl_status_t nn_post_relu(dnnl_post_ops_t ops)
{
#if NN_DNNL_3
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0, 0);
#else
    return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
#endif
}

/* ---- Make a primitive descriptor; *pd must be NULL before and is NULL on failure. bias NULL:
   none ---- */
static inline dnnl_status_t nn_matmul_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                         nn_mdref src, nn_mdref weights, nn_mdref bias,
                                         nn_mdref dst, const_dnnl_primitive_attr_t attr)
{
#if NN_DNNL_3
    return dnnl_matmul_primitive_desc_create(pd, engine, src, weights, bias, dst, attr);
#else
    dnnl_matmul_desc_t d;
    const dnnl_status_t s = dnnl_matmul_desc_init(&d, src, weights, bias, dst);
    return s != dnnl_success ? s : dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
#endif
}

/* Takes the next kernel until one's name does not begin so. On failure there is none; the
   descriptor is the caller's to close. oneDNN 2.x: does nothing, no caller needs it there. */
static inline dnnl_status_t nn_pass_over(dnnl_primitive_desc_t pd, const char *prefix)
{
#if NN_DNNL_3
    const char *name = "";
    dnnl_status_t s;

    while ((s = dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name)) ==
               dnnl_success &&
           strncmp(name, prefix, strlen(prefix)) == 0)
        if ((s = dnnl_primitive_desc_next_impl(pd)) != dnnl_success)
            break;
    return s;
#else
    (void)pd, (void)prefix;
    return dnnl_success;
#endif
}

/* A convolution's windows move by `stride` in both directions, over an image with `padding` zeros
   on each side. If there are groups, they are the first dimension of the weights. */
typedef struct nn_conv_steps { dnnl_dim_t stride, padding; } nn_conv_steps;
#define NN_CONV_STEPS(s) \
    const dnnl_dims_t step = { (s).stride, (s).stride }, pad = { (s).padding, (s).padding }

static inline dnnl_status_t nn_conv_forward_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                               nn_conv_steps steps, nn_mdref src, nn_mdref weights,
                                               nn_mdref bias, nn_mdref dst,
                                               const_dnnl_primitive_attr_t attr)
{
    NN_CONV_STEPS(steps);
#if NN_DNNL_3
    const dnnl_dims_t none = { 0, 0 }; /* dilation */
    return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training,
                                                          dnnl_convolution_direct, src, weights,
                                                          bias, dst, step, none, pad, pad, attr);
#else
    dnnl_convolution_desc_t d;
    const dnnl_status_t s =
        dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, dnnl_convolution_direct, src,
                                           weights, bias, dst, step, pad, pad);
    return s != dnnl_success ? s : dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
#endif
}

static inline dnnl_status_t nn_conv_data_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                            nn_conv_steps steps, nn_mdref diff_src,
                                            nn_mdref weights, nn_mdref diff_dst,
                                            const_dnnl_primitive_desc_t hint,
                                            const_dnnl_primitive_attr_t attr)
{
    NN_CONV_STEPS(steps);
#if NN_DNNL_3
    const dnnl_dims_t none = { 0, 0 }; /* dilation */
    return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, dnnl_convolution_direct,
                                                                diff_src, weights, diff_dst, step,
                                                                none, pad, pad, hint, attr);
#else
    dnnl_convolution_desc_t d;
    const dnnl_status_t s = dnnl_convolution_backward_data_desc_init(
        &d, dnnl_convolution_direct, diff_src, weights, diff_dst, step, pad, pad);
    return s != dnnl_success ? s : dnnl_primitive_desc_create(pd, &d, attr, engine, hint);
#endif
}

static inline dnnl_status_t nn_conv_weights_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                               nn_conv_steps steps, nn_mdref src,
                                               nn_mdref diff_weights, nn_mdref diff_bias,
                                               nn_mdref diff_dst, const_dnnl_primitive_desc_t hint,
                                               const_dnnl_primitive_attr_t attr)
{
    NN_CONV_STEPS(steps);
#if NN_DNNL_3
    const dnnl_dims_t none = { 0, 0 }; /* dilation */
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, dnnl_convolution_direct, src, diff_weights, diff_bias, diff_dst, step, none,
        pad, pad, hint, attr);
#else
    dnnl_convolution_desc_t d;
    const dnnl_status_t s = dnnl_convolution_backward_weights_desc_init(
        &d, dnnl_convolution_direct, src, diff_weights, diff_bias, diff_dst, step, pad, pad);
    return s != dnnl_success ? s : dnnl_primitive_desc_create(pd, &d, attr, engine, hint);
#endif
}
#endif
