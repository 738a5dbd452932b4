/* model.c: index 0 writes model.safetensors. If it has all values, it needs no other rank for that.
   If values are gathered unit by unit (run->by_unit), it requests one tensor after another, and
   all ranks gather the unit of that tensor: no rank ever has the whole model. */
#include <errno.h>
#include <string.h>

#include "train_internal.h"

enum { NO_MORE = -1 };

/* The state of writing a model with by_unit, on each rank. */
typedef struct calls {
    tutti_run *run;
    const tutti_tensor_entry *entries; /* of the file, at index 0: parameters first */
    tutti_group group;
    int64_t unit;                    /* the unit that is acquired; -1: none */
} calls;

static tutti_status release_unit(calls *c, tutti_error *err)
{
    const int64_t unit = c->unit;

    c->unit = -1;
    return unit >= 0 ? tutti_train_unit_release(c->run, (int)unit, false, err) : TUTTI_OK;
}

/* Index 0 sends the number of the next tensor, or NO_MORE, and all ranks acquire its unit. */
static tutti_status next_tensor(calls *c, int64_t *tensor, tutti_error *err)
{
    tutti_run *run = c->run;
    int64_t unit;

    TUTTI_TRY(tutti_broadcast(&c->group, 0, tutti_host(tensor, 1, TUTTI_I64), err));
    unit = *tensor == NO_MORE ? -1 : run->params[*tensor].unit;
    if (unit == c->unit)
        return TUTTI_OK;
    TUTTI_TRY(release_unit(c, err));
    if (unit >= 0)
        TUTTI_TRY(tutti_train_unit_acquire(run, (int)unit, false, err));
    c->unit = unit;
    return TUTTI_OK;
}

static tutti_status bring(void *with, const tutti_tensor_entry *e, const void **data,
                          tutti_error *err)
{
    calls *c = with;
    int64_t tensor = e - c->entries;

    TUTTI_TRY(next_tensor(c, &tensor, err));
    *data = c->run->values[tensor];
    return TUTTI_OK;
}

/* On the other ranks: acquires units until index 0 needs no more. */
static tutti_status follow(calls *c, tutti_error *err)
{
    int64_t tensor = 0;

    while (tensor != NO_MORE)
        TUTTI_TRY(next_tensor(c, &tensor, err));
    return TUTTI_OK;
}

static tutti_status write_model(tutti_run *run, calls *c, tutti_error *err)
{
    static const char *const metadata[] = { "format", "pt", NULL };
    const int n = run->n_params + run->n_statistics;
    tutti_tensor_entry *entries = tutti_alloc((size_t)n, sizeof *entries);
    char path[4096];
    tutti_status status;

    if (entries == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing the model of %d tensors", n);
    c->entries = entries;
    for (int i = 0; i < run->n_params; i++) {
        const tutti_nn_param *p = &run->params[i];
        entries[i] = (tutti_tensor_entry){ .name = p->name, .dtype = TUTTI_F32, .dims = p->dims };
        entries[i].data = run->by_unit ? NULL : run->values[i];
        entries[i].bring = bring;
        entries[i].with = c;
        for (int d = 0; d < p->dims; d++)
            entries[i].dim[d] = p->dim[d];
    }
    for (int k = 0; k < run->n_statistics; k++) {
        const tutti_nn_statistic *s = &run->statistics[k];
        entries[run->n_params + k] =
            (tutti_tensor_entry){ .name = s->name,
                                  .dtype = TUTTI_F32,
                                  .dims = 1,
                                  .dim = { s->count },
                                  .data = tutti_engine_client_state(run->engine) + s->first };
    }
    snprintf(path, sizeof path, "%s/model.safetensors", run->config->out);
    status = tutti_safetensors_write(run->rt, path, entries, (size_t)n, metadata, NULL, err);
    tutti_free(entries);
    return status;
}

tutti_status tutti_train_write_model(tutti_run *run, tutti_error *err)
{
    calls c = { .run = run, .unit = -1 };
    int64_t no_more = NO_MORE;
    tutti_status status, last;

    if (run->measured != NULL) /* it has random values */
        return TUTTI_OK;
    if (!run->by_unit)
        return write_model(run, &c, err);
    c.group = tutti_group_keyed(&run->all, tutti_port_of("model", 0, 0), 0);
    if (run->all.index > 0)
        return follow(&c, err);
    status = write_model(run, &c, err);
    if (status == TUTTI_ERR_PEER)
        return status;
    /* also if the file could not be written, since the others wait */
    last = next_tensor(&c, &no_more, status == TUTTI_OK ? err : NULL);
    return status == TUTTI_OK ? last : status;
}
