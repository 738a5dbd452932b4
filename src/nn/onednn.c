/* onednn.c: the fast backend: engine and stream, primitives, activations, the loss, the table.

   - Every network has an engine, a stream, scratch memory and primitives of its own, so that networks run in threads side by side. The
     scratchpad is always ours: one kept by the library belongs to the thread that made the primitive, and sharing it gave wrong results.
   - oneDNN takes the number of threads from the calling OpenMP thread; it is set on entry and put back on leaving, since between
     two calls other workers of a simulation may run on the same thread.
   - No primitive may be the library's reference code; that is checked when it is made, with its name kept for `describe`.
   - The ReLU behind a product or convolution drops a NaN (its maximum takes the other operand). A NaN in the parameters can so stay
     out of the loss; whoever must know looks at the parameters. */
#include "onednn_internal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *status_text(dnnl_status_t status)
{
    switch (status) {
    case dnnl_success: return "success";
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "no such primitive";
    case dnnl_runtime_error: return "runtime error";
    default: return "refused";
    }
}

static const char *kind_of(const nn_unit *u)
{
    return u->kind == TUTTI_LAYER_LINEAR ? "linear" : "conv2d";
}

tutti_status tutti_nn_dn_failed(dnnl_status_t status, const nn_unit *unit, const char *what, tutti_error *err)
{
    return tutti_fail(err, status == dnnl_out_of_memory ? TUTTI_ERR_MEMORY : TUTTI_ERR_STATE, 0, "oneDNN %d.%d: %s %d, %s: %s",
                      DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, kind_of(unit), unit->index, what, status_text(status));
}

/* ---- primitives ---- */
tutti_status tutti_nn_dn_op_open(onednn *b, dn_op *op, dnnl_primitive_desc_t pd, dnnl_status_t status, const nn_unit *unit, const char *what,
                                 const int *args, int count, tutti_error *err)
{
    const char *name = "";
    tutti_status result = TUTTI_OK;

    if (status == dnnl_success)
        status = dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name);
    if (status == dnnl_success && strncmp(name, "ref", 3) == 0) {
        result = tutti_fail(err, TUTTI_ERR_USAGE, 0, "oneDNN %d.%d has only its slow reference code (%s) for %s %d, %s, on this CPU; use the backend "
                            "'reference' or another shape", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, name, kind_of(unit), unit->index, what);
        goto out;
    }
    if (status == dnnl_success) {
        snprintf(op->label, sizeof op->label, "%s %d %s", kind_of(unit), unit->index, what);
        snprintf(op->implementation, sizeof op->implementation, "%s", name);
        status = dnnl_primitive_create(&op->primitive, pd);
    }
    op->count = 0;
    for (int i = 0; i <= count && status == dnnl_success; i++) {
        op->args[i] = (dnnl_exec_arg_t){ .arg = i < count ? args[i] : DNNL_ARG_SCRATCHPAD };
        status = dnnl_memory_create(&op->args[i].memory, tutti_nn_dn_md(op, op->args[i].arg), b->engine, DNNL_MEMORY_NONE);
        op->count += status == dnnl_success;
    }
    if (status == dnnl_success) {
        const size_t scratch = dnnl_memory_desc_get_size(tutti_nn_dn_md(op, DNNL_ARG_SCRATCHPAD));
        b->scratch_bytes = scratch > b->scratch_bytes ? scratch : b->scratch_bytes;
    } else {
        result = tutti_nn_dn_failed(status, unit, what, err);
    }
out:
    if (pd != NULL)
        dnnl_primitive_desc_destroy(pd);
    if (result != TUTTI_OK)
        tutti_nn_dn_op_close(op);
    return result;
}

void tutti_nn_dn_op_close(dn_op *op)
{
    for (int i = 0; i < op->count; i++)
        dnnl_memory_destroy(op->args[i].memory);
    if (op->primitive != NULL)
        dnnl_primitive_destroy(op->primitive);
    *op = (dn_op){ 0 };
}

nn_mdref tutti_nn_dn_md(const dn_op *op, int arg)
{
    const_dnnl_primitive_desc_t pd = NULL;

    if (dnnl_primitive_get_primitive_desc(op->primitive, &pd) != dnnl_success)
        return NULL;
    return dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
}

tutti_status tutti_nn_dn_op_run(onednn *b, dn_op *op, void *const *pointers, tutti_error *err)
{
    dnnl_status_t status = dnnl_success;

    for (int i = 0; i < op->count && status == dnnl_success; i++)
        status = dnnl_memory_set_data_handle(op->args[i].memory, i < op->count - 1 ? pointers[i] : b->scratch.memory);
    if (status == dnnl_success)
        status = dnnl_primitive_execute(op->primitive, b->stream, op->count, op->args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(b->stream);
    if (status == dnnl_success)
        return TUTTI_OK;
    return tutti_fail(err, status == dnnl_out_of_memory ? TUTTI_ERR_MEMORY : TUTTI_ERR_STATE, 0, "oneDNN %d.%d: running %s (%s): %s",
                      DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, op->label, op->implementation, status_text(status));
}

tutti_status tutti_nn_dn_store(dn_store *store, size_t bytes, tutti_error *err)
{
    if (bytes <= store->bytes)
        return TUTTI_OK;
    tutti_free(store->memory);
    store->bytes = 0;
    store->memory = tutti_alloc(1, bytes);
    if (store->memory == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %zu bytes of activations; use a smaller batch", bytes);
    store->bytes = bytes;
    return TUTTI_OK;
}

/* ---- a run ---- */
static size_t rows_bytes(int64_t rows, int64_t values)
{
    return (size_t)rows * (size_t)values * sizeof(float); /* rows <= 2^20, values <= 2^28: below 2^50 */
}

/* Plans and memory for so many samples. */
static tutti_status prepare(onednn *b, int64_t samples, bool train, tutti_error *err)
{
    const nn_net *net = b->net;
    const int64_t rows = train ? samples : DN_PIECE, tiles = train ? (samples + DN_TILE - 1) / DN_TILE : 1;
    int64_t widest = net->task.classes;

    TUTTI_TRY(tutti_nn_dn_linear_plan(b, rows, train, &b->linear, err));
    if (rows >= DN_TILE)
        TUTTI_TRY(tutti_nn_dn_conv_plan(b, DN_TILE, err));
    if (rows % DN_TILE != 0)
        TUTTI_TRY(tutti_nn_dn_conv_plan(b, rows % DN_TILE, err));
    TUTTI_TRY(tutti_nn_dn_store(&b->scratch, b->scratch_bytes, err));

    if (net->conv_count > 0) {
        const nn_unit *last = &net->units[net->conv_count - 1];
        TUTTI_TRY(tutti_nn_dn_conv_room(b, tiles, err));
        TUTTI_TRY(tutti_nn_dn_store(&b->flat, rows_bytes(rows, nn_values(last->out)), err));
    }
    for (int u = net->conv_count; u < net->unit_count; u++) {
        const nn_unit *unit = &net->units[u];
        TUTTI_TRY(tutti_nn_dn_store(&b->act[u], rows_bytes(rows, unit->wide.channels), err));
        widest = unit->wide.channels > widest ? unit->wide.channels : widest;
        if (u > 0 && nn_values(unit->in) > widest)
            widest = nn_values(unit->in);
    }
    if (train) {
        TUTTI_TRY(tutti_nn_dn_store(&b->slope, rows_bytes(rows, widest), err));
        return tutti_nn_dn_store(&b->other, rows_bytes(rows, widest), err);
    }
    return tutti_nn_dn_store(&b->filled, rows_bytes(net->conv_count > 0 ? DN_TILE : DN_PIECE, nn_values(net->units[0].in)), err);
}

/* Between these two the calling thread has the network's number of threads. */
static int enter(const onednn *b)
{
    const int before = omp_get_max_threads();
    omp_set_num_threads(b->threads);
    return before;
}

static tutti_status leave(int before, tutti_status status)
{
    omp_set_num_threads(before);
    return status;
}

static tutti_status onednn_begin(void *self, const nn_run *run, tutti_error *err)
{
    onednn *b = self;
    const int before = enter(b);

    TUTTI_TRY(leave(before, prepare(b, run->samples, run->train, err)));
    b->run = *run;
    b->version += !run->same_weights;
    for (int images = 0; images <= DN_TILE; images++)
        memset(b->tiles[images].sum_begun, 0, sizeof b->tiles[images].sum_begun);
    if (!run->train && b->net->conv_count == 0 && run->samples < DN_PIECE) {
        const size_t bytes = rows_bytes(run->samples, nn_values(b->net->units[0].in));
        memcpy(b->filled.memory, run->x, bytes);
        memset((char *)b->filled.memory + bytes, 0, rows_bytes(DN_PIECE, nn_values(b->net->units[0].in)) - bytes);
        b->run.x = b->filled.memory;
    }
    return TUTTI_OK;
}

static bool is_conv(const onednn *b, int unit)
{
    return unit < b->net->conv_count;
}

static tutti_status onednn_forward(void *self, int unit, int64_t first, int64_t count, tutti_error *err)
{
    onednn *b = self;
    const int before = enter(b);
    return leave(before, is_conv(b, unit) ? tutti_nn_dn_conv_forward(b, unit, first, count, err) : tutti_nn_dn_linear_forward(b, unit, err));
}

static tutti_status onednn_weights(void *self, int unit, int64_t first, int64_t count, tutti_error *err)
{
    onednn *b = self;
    const int before = enter(b);
    return leave(before, is_conv(b, unit) ? tutti_nn_dn_conv_weights(b, unit, first, count, err) : tutti_nn_dn_linear_weights(b, unit, err));
}

static tutti_status onednn_data(void *self, int unit, int64_t first, int64_t count, tutti_error *err)
{
    onednn *b = self;
    const int before = enter(b);
    return leave(before, is_conv(b, unit) ? tutti_nn_dn_conv_data(b, unit, first, count, err) : tutti_nn_dn_linear_data(b, unit, err));
}

/* -log softmax(y)[label] = m + log sum exp(y - m) - y[label] with m the largest: nothing overflows. In double, one sample after another. */
static void onednn_loss(void *self, double divisor, double *sum, int64_t *correct)
{
    onednn *b = self;
    const size_t classes = (size_t)b->net->task.classes;
    const float *y = b->act[b->net->unit_count - 1].memory;
    float *slope = b->slope.memory;

    *sum = 0;
    *correct = 0;
    for (int64_t i = 0; i < b->run.samples; i++, y += classes) {
        const size_t label = b->run.labels[i];
        double power[256], total = 0, loss; /* a label is a byte: at most 256 classes */
        size_t best = 0;
        for (size_t c = 1; c < classes; c++)
            best = y[c] > y[best] ? c : best;
        for (size_t c = 0; c < classes; c++)
            total += power[c] = exp((double)y[c] - (double)y[best]);
        loss = (double)y[best] + log(total) - (double)y[label];
        *sum += loss;
        *correct += isfinite(loss) && best == label;
        for (size_t c = 0; c < classes && b->run.train; c++)
            slope[(size_t)i * classes + c] = (float)((power[c] / total - (c == label)) / divisor);
    }
}

/* ---- life ---- */
static void onednn_close(void *self)
{
    onednn *b = self;

    if (b == NULL)
        return;
    tutti_nn_dn_linear_close(b, &b->full);
    tutti_nn_dn_linear_close(b, &b->evaluation);
    for (int i = 0; i < DN_PLANS; i++)
        tutti_nn_dn_linear_close(b, &b->others[i]);
    for (int i = 0; i <= DN_TILE; i++)
        tutti_nn_dn_conv_close(b, &b->tiles[i]);
    for (int u = 0; u < NN_UNITS_MAX; u++) {
        tutti_free(b->act[u].memory);
        tutti_free(b->workspace[u].memory);
    }
    {
        dn_store *const stores[] = { &b->scratch, &b->flat, &b->slope, &b->other, &b->tile_a, &b->tile_b, &b->input, &b->turned, &b->filled, &b->plain_part };
        for (size_t i = 0; i < TUTTI_LENGTH(stores); i++)
            tutti_free(stores[i]->memory);
    }
    dnnl_primitive_attr_destroy(b->plain);
    dnnl_primitive_attr_destroy(b->relu);
    dnnl_primitive_attr_destroy(b->sum);
    if (b->stream != NULL)
        dnnl_stream_destroy(b->stream);
    if (b->engine != NULL)
        dnnl_engine_destroy(b->engine);
    tutti_free(b);
}

static dnnl_status_t attribute(dnnl_primitive_attr_t *attr, dnnl_status_t (*append)(dnnl_post_ops_t))
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(attr);

    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && append != NULL)
        status = dnnl_post_ops_create(&ops);
    if (status == dnnl_success && append != NULL)
        status = append(ops);
    if (status == dnnl_success && append != NULL)
        status = dnnl_primitive_attr_set_post_ops(*attr, ops);
    if (ops != NULL)
        dnnl_post_ops_destroy(ops);
    return status;
}

static tutti_status onednn_open(void **out, const nn_net *net, const nn_settings *settings, tutti_error *err)
{
    onednn *b = tutti_alloc(1, sizeof *b);
    dnnl_status_t made;
    tutti_status status;
    int before;

    *out = NULL;
    if (b == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the backend's %zu bytes", sizeof *b);
    b->net = net;
    b->loops = nn_loops_of(settings->cpu);
    b->batch = settings->batch;
    b->threads = settings->threads;

    before = enter(b);
    made = dnnl_engine_create(&b->engine, dnnl_cpu, 0);
    if (made == dnnl_success)
        made = dnnl_stream_create(&b->stream, b->engine, dnnl_stream_default_flags);
    if (made == dnnl_success)
        made = attribute(&b->plain, NULL);
    if (made == dnnl_success)
        made = attribute(&b->relu, nn_post_relu);
    if (made == dnnl_success)
        made = attribute(&b->sum, nn_post_sum);
    status = made == dnnl_success ? prepare(b, b->batch, true, err)
                                  : tutti_fail(err, made == dnnl_out_of_memory ? TUTTI_ERR_MEMORY : TUTTI_ERR_STATE, 0,
                                               "oneDNN %d.%d: making an engine: %s", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, status_text(made));
    leave(before, status);
    if (status == TUTTI_OK)
        *out = b;
    else
        onednn_close(b);
    return status;
}

static void onednn_evaluated(void *self)
{
    onednn *b = self;

    tutti_free(b->filled.memory);
    b->filled = (dn_store){ 0 };
}

static size_t onednn_bytes(const void *self)
{
    const onednn *b = self;
    const dn_store *const stores[] = { &b->scratch, &b->flat, &b->slope, &b->other, &b->tile_a, &b->tile_b, &b->input, &b->turned, &b->filled, &b->plain_part };
    size_t total = sizeof *b;

    for (size_t i = 0; i < TUTTI_LENGTH(stores); i++)
        total += stores[i]->bytes;
    for (int u = 0; u < b->net->unit_count; u++)
        total += b->act[u].bytes + b->workspace[u].bytes;
    for (int images = 1; images <= DN_TILE; images++)
        for (int u = 0; u < b->net->conv_count && b->tiles[images].made; u++)
            total += b->tiles[images].units[u].sum_values * sizeof(float) * (u > 0 ? 4 : 3); /* copies and sums are of one size */
    return total;
}

static int line(const dn_op *op, char *text, size_t bytes, int length)
{
    const size_t used = (size_t)length < bytes ? (size_t)length : bytes;

    if (op->primitive == NULL)
        return length;
    return length + snprintf(used < bytes ? text + used : NULL, bytes - used, "%s: %s\n", op->label, op->implementation);
}

static int onednn_describe(const void *self, char *text, size_t bytes)
{
    const onednn *b = self;
    const dn_conv_plan *tile = &b->tiles[b->batch < DN_TILE ? b->batch : DN_TILE];
    int length = 0;

    if (bytes > 0)
        text[0] = '\0';
    for (int u = 0; u < b->net->unit_count; u++) {
        if (is_conv(b, u)) {
            const dn_conv *c = &tile->units[u];
            const dn_op *const ops[] = { &c->give_forward, &c->conv_input, &c->conv, &c->pool, &c->pool_inference, &c->flatten, &c->unflatten,
                                         &c->pool_data, &c->weights_input, &c->weights_slope, &c->weights, &c->take_weights, &c->give_data,
                                         &c->data_slope, &c->data, &c->data_result };
            for (size_t i = 0; i < TUTTI_LENGTH(ops); i++)
                length = line(ops[i], text, bytes, length);
        } else {
            const dn_linear *l = &b->full.units[u];
            const dn_op *const ops[] = { &l->forward, &l->weights, &l->weights_add, &l->data };
            for (size_t i = 0; i < TUTTI_LENGTH(ops); i++)
                length = line(ops[i], text, bytes, length);
        }
    }
    return length;
}

const nn_backend tutti_nn_onednn = {
    .name = "onednn", .tile = DN_TILE, .piece = DN_PIECE,
    .open = onednn_open, .close = onednn_close, .begin = onednn_begin, .forward = onednn_forward, .loss = onednn_loss,
    .weights = onednn_weights, .data = onednn_data, .evaluated = onednn_evaluated, .bytes = onednn_bytes, .describe = onednn_describe,
};
