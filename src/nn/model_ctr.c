/* model_ctr.c: click-through rates: embedding tables, one a categorical field, concatenated with
   the sample's own values, then linear layers with ReLU to one logit. It is the "Embedding & MLP"
   form that HeterPS's models, DeepFM's deep part and DLRM without its products have in common.

   All tables are one parameter of (tables x rows) x dim: one exchange instead of one a field.
   PyTorch code that adds an offset a field and holds one nn.Embedding does the same. Its rows
   start normal with 0.05: small enough that the logit begins near 0, large enough that the first
   layer's weights get a gradient. */
#include "nn_internal.h"
#include <stdio.h>

typedef struct ctr { int64_t tables, rows, dim, layers, hidden; } ctr;
static const tutti_option ctr_options[] = {
    { "tables", TUTTI_INT, TUTTI_AT(ctr, tables), 0, 0, 65536, NULL,
      "categorical fields, each with a table of its own; 0: as many as the data has" },
    { "rows", TUTTI_INT, TUTTI_AT(ctr, rows), 0, 0, 4294967295.0, NULL,
      "rows of each table; 0: as many as the data's categories are hashed to" },
    { "dim", TUTTI_INT, TUTTI_AT(ctr, dim), 16, 1, 65536, NULL, "values of a row" },
    { "layers", TUTTI_INT, TUTTI_AT(ctr, layers), 2, 0, 1000, NULL, "hidden layers" },
    { "hidden", TUTTI_INT, TUTTI_AT(ctr, hidden), 128, 1, 65536, NULL,
      "features of each hidden layer" },
    { 0 },
};

static tutti_status ctr_layers(const void *self, const tutti_nn_task *task, tutti_layer *layers,
                               int capacity, int *count, tutti_error *err)
{
    const ctr *m = self;

    *count = 0;
    if (task->tables == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "ctr needs samples with categories, and this task's have none; a click "
                          "log has: --data 'clicks(file=PATH)'");
    if (m->tables != 0 && m->tables != task->tables)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "ctr with tables=%lld on data of %d categories; leave tables out",
                          (long long)m->tables, task->tables);
    if (m->rows != 0 && m->rows != (int64_t)task->rows)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "ctr with rows=%lld on categories that are hashed to %u rows; give both "
                          "the same rows, or the data alone",
                          (long long)m->rows, task->rows);
    *count = 2 + 2 * (int)m->layers;
    for (int i = 0; i < *count && i < capacity; i++) {
        layers[i] = i == 0            ? (tutti_layer){ .kind = TUTTI_LAYER_TABLES,
                                                       .out = (int)m->dim,
                                                       .deviation = 0.05,
                                                       .name = "tables" }
                    : i + 1 == *count ? (tutti_layer){ .kind = TUTTI_LAYER_LINEAR, .out = 1 }
                    : i % 2 == 1
                        ? (tutti_layer){ .kind = TUTTI_LAYER_LINEAR, .out = (int)m->hidden }
                        : (tutti_layer){ .kind = TUTTI_LAYER_RELU };
        if (layers[i].kind == TUTTI_LAYER_LINEAR)
            snprintf(layers[i].name, sizeof layers[i].name, "mlp.%d", (i - 1) % 10000);
    }
    return TUTTI_OK;
}

const tutti_model_ops tutti_model_ctr = {
    .name = "ctr",
    .title = "click-through rates: embedding tables and linear layers with ReLU to one logit",
    .options = ctr_options,
    .self_bytes = sizeof(ctr),
    .layers = ctr_layers,
    .categories = true,
};
