/* weights.c: reads the tensors of a network from a safetensors file, or a folder of them
   (state/folder.h). It must have PyTorch's names and shapes, all of them and no others, but for the
   counters of batch norms (num_batches_tracked), which are not used and ignored. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "train_internal.h"
#include "weights.h"
#include "tutti/tutti.h"
#include "base/machine.h"
#include "kernels/device.h"
#include "state/folder.h"

enum { SHOWN = 80 };

/* The tensors that do not match. */
typedef struct misfits {
    char missing[SHOWN], extra[SHOWN]; /* the first name of each kind */
    char shape[300], dtype[160];       /* the first tensor of each kind, as a sentence; "": none */
    int lacks, has;                    /* how many are missing; how many are extra */
} misfits;

static void keep_first(char *text, const char *name, int *count)
{
    if ((*count)++ == 0)
        snprintf(text, SHOWN, "%s", name);
}

static void print_shape(char *text, size_t room, int dims, const uint64_t *dim)
{
    size_t used = 0;

    text[0] = 0;
    for (int d = 0; d < dims && used < room; d++)
        used += (size_t)snprintf(text + used, room - used, "%s%llu", d > 0 ? " x " : "",
                                 (unsigned long long)dim[d]);
    if (dims == 0)
        snprintf(text, room, "a single number");
}

static void compare(const tutti_tensor_file *f, const char *name, int dims, const uint64_t *dim,
                    misfits *m)
{
    const tutti_tensor_entry *e = tutti_safetensors_find(f, name);
    char is[100], wanted[100];

    if (e == NULL) {
        keep_first(m->missing, name, &m->lacks);
        return;
    }
    if (m->shape[0] == 0 &&
        (e->dims != dims || memcmp(e->dim, dim, (size_t)dims * sizeof *dim) != 0)) {
        print_shape(is, sizeof is, e->dims, e->dim);
        print_shape(wanted, sizeof wanted, dims, dim);
        snprintf(m->shape, sizeof m->shape, "'%.40s' is %s in it and %s in the model", name, is,
                 wanted);
    }
    if (m->dtype[0] == 0 && e->dtype != TUTTI_F32 && e->dtype != TUTTI_F16 &&
        e->dtype != TUTTI_BF16)
        snprintf(m->dtype, sizeof m->dtype,
                 "'%.40s' has elements of %s, and F32, F16 and BF16 are taken", name,
                 tutti_dtype_name(e->dtype));
}

static bool is_known(const tutti_tensors *of, const char *name)
{
    static const char counted[] = ".num_batches_tracked";
    const size_t n = strlen(name);

    for (int k = 0; k < of->n_params; k++)
        if (strcmp(of->params[k].name, name) == 0)
            return true;
    for (int k = 0; k < of->n_statistics; k++)
        if (strcmp(of->statistics[k].name, name) == 0)
            return true;
    return n >= sizeof counted && of->n_statistics > 0 &&
           strcmp(name + n - (sizeof counted - 1), counted) == 0;
}

static void append_text(char *text, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void append_text(char *text, size_t room, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, room - used, format, args);
    va_end(args);
}

static tutti_status refuse_misfit(const tutti_tensor_file *f, const char *path, const char *model,
                                  const tutti_tensors *of, const misfits *m, tutti_error *err)
{
    char why[800] = "", wrapped[64];

    if (m->lacks > 0)
        append_text(why, sizeof why, "; it lacks '%s'", m->missing);
    if (m->lacks > 1)
        append_text(why, sizeof why, " and %d more", m->lacks - 1);
    if (m->has > 0)
        append_text(why, sizeof why, "; it has '%s'", m->extra);
    if (m->has > 1)
        append_text(why, sizeof why, " and %d more", m->has - 1);
    if (m->has > 0)
        append_text(why, sizeof why, ", which the model has not");
    if (m->shape[0] != 0)
        append_text(why, sizeof why, "; %s", m->shape);
    if (m->dtype[0] != 0)
        append_text(why, sizeof why, "; %s", m->dtype);
    snprintf(wrapped, sizeof wrapped, "module.%.50s", of->params[0].name);
    if (tutti_safetensors_find(f, wrapped) != NULL)
        append_text(why, sizeof why,
                    "; its names begin with 'module.': save the state_dict of the module within");
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "'%.300s' does not fit model '%.80s'%s; docs/PYTORCH-MODELS.md has the names",
                      path, model, why);
}

tutti_status tutti_train_weights_open(tutti_tensor_file **out, tutti_runtime *rt, const char *path,
                                      const char *model, const tutti_tensors *of, tutti_error *err)
{
    tutti_tensor_file *f;
    misfits m = { 0 };

    *out = NULL;
    TUTTI_TRY(tutti_tensors_open(&f, rt, path, err));
    for (int k = 0; k < of->n_params; k++) {
        const tutti_nn_param *p = &of->params[k];
        uint64_t dim[4];
        for (int d = 0; d < p->dims; d++)
            dim[d] = p->dim[d];
        compare(f, p->name, p->dims, dim, &m);
    }
    for (int k = 0; k < of->n_statistics; k++)
        compare(f, of->statistics[k].name, 1, &(uint64_t){ of->statistics[k].count }, &m);
    for (size_t i = 0; i < tutti_safetensors_count(f); i++)
        if (!is_known(of, tutti_safetensors_entry(f, i)->name))
            keep_first(m.extra, tutti_safetensors_entry(f, i)->name, &m.has);
    if (m.lacks == 0 && m.has == 0 && m.shape[0] == 0 && m.dtype[0] == 0) {
        *out = f;
        return TUTTI_OK;
    }
    refuse_misfit(f, path, model, of, &m, err);
    tutti_safetensors_close(f);
    return TUTTI_ERR_USAGE;
}

tutti_status tutti_train_weights_read(tutti_tensor_file *f, const char *path, const char *name,
                                      size_t count, float *values, tutti_error *err)
{
    enum { AT_ONCE = 1 << 16 };
    const tutti_tensor_entry *e = tutti_safetensors_find(f, name);
    tutti_device *device = NULL;
    uint16_t *half = NULL;
    tutti_status status = TUTTI_OK;

    if (e->dtype == TUTTI_F32)
        status = tutti_safetensors_read(f, e, 0, values, count * sizeof *values, err);
    else if ((half = tutti_alloc(AT_ONCE, sizeof *half)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading '%s' of '%s'", name, path);
    else
        status = tutti_device_open_host(&device, NULL, tutti_cpu_best(), err);
    for (size_t at = 0; at < count && status == TUTTI_OK && half != NULL; at += AT_ONCE) {
        const size_t n = count - at < AT_ONCE ? count - at : AT_ONCE;
        status = tutti_safetensors_read(f, e, at * sizeof *half, half, n * sizeof *half, err);
        if (status == TUTTI_OK)
            tutti_cast(device, (tutti_buffer){ device, half, n, e->dtype },
                       tutti_f32(device, values + at, n));
    }
    tutti_device_close(device);
    tutti_free(half);
    for (size_t i = 0; i < count && status == TUTTI_OK; i++)
        if (!isfinite(values[i]))
            status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                "'%s': element %zu of '%s' is %g, no number to compute with", path,
                                i, name, (double)values[i]);
    return status;
}
