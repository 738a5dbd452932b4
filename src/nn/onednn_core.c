/* onednn_core.c: engine, stream and primitives of oneDNN (onednn_internal.h).

   - Every network has an engine, a stream, scratch memory and primitives of its own, so that
     networks can run in several threads. The scratchpad is always the network's: one that the
     library keeps belongs to the thread that made the primitive, and gives wrong results if it is
     shared.
   - oneDNN uses the number of threads of the calling OpenMP thread. It is set on entry and restored
     on leaving: between two calls other workers of a simulation may run on the same thread.
   - No primitive may be the library's reference code. This is checked when a primitive is made; its
     name is kept for `describe`. */
#include "onednn_internal.h"
#include "kernels/device.h"
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

tutti_status tutti_nn_dn_failed(dnnl_status_t status, const nn_unit *unit, const char *what,
                                tutti_error *err)
{
    return tutti_fail(err, status == dnnl_out_of_memory ? TUTTI_ERR_MEMORY : TUTTI_ERR_STATE, 0,
                      "oneDNN %d.%d: %s %d, %s: %s", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR,
                      tutti_nn_layer_name(unit->kind), unit->index, what, status_text(status));
}

/* ---- primitives ---- */
bool tutti_nn_dn_usable(const_dnnl_primitive_desc_t pd, dnnl_status_t status)
{
    const char *name = "";

    return status == dnnl_success &&
           dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) ==
               dnnl_success &&
           strncmp(name, "ref", 3) != 0;
}

tutti_status tutti_nn_dn_op_open(dn_core *core, dn_op *op, dn_label of, dn_made made, dn_args args,
                                 tutti_error *err)
{
    const int count = args.count;
    dnnl_primitive_desc_t pd = made.pd;
    dnnl_status_t status = made.status;
    const char *name = "";
    tutti_status result = TUTTI_OK;

    if (status == dnnl_success)
        status = dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name);
    if (status == dnnl_success && strncmp(name, "ref", 3) == 0) {
        result = tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "oneDNN %d.%d has only its slow reference code (%s) for %s %d, %s, on this CPU; use "
            "the backend 'reference' or another shape",
            DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, name, tutti_nn_layer_name(of.unit->kind),
            of.unit->index, of.what);
        goto out;
    }
    if (status == dnnl_success) {
        snprintf(op->label, sizeof op->label, "%s %d %s", tutti_nn_layer_name(of.unit->kind),
                 of.unit->index, of.what);
        snprintf(op->implementation, sizeof op->implementation, "%s", name);
        status = dnnl_primitive_create(&op->primitive, pd);
    }
    op->count = 0;
    for (int i = 0; i <= count && status == dnnl_success; i++) {
        op->args[i] = (dnnl_exec_arg_t){ .arg = i < count ? args.arg[i] : DNNL_ARG_SCRATCHPAD };
        status = dnnl_memory_create(&op->args[i].memory, tutti_nn_dn_md(op, op->args[i].arg),
                                    core->engine, DNNL_MEMORY_NONE);
        op->count += status == dnnl_success;
    }
    if (status == dnnl_success)
        op->scratch = dnnl_memory_desc_get_size(tutti_nn_dn_md(op, DNNL_ARG_SCRATCHPAD));
    else
        result = tutti_nn_dn_failed(status, of.unit, of.what, err);
out:
    if (pd != NULL)
        dnnl_primitive_desc_destroy(pd);
    if (result != TUTTI_OK)
        tutti_nn_dn_op_close(op);
    return result;
}

tutti_status tutti_nn_dn_reorder(dn_core *core, dn_op *op, dn_label of, nn_mdref from, nn_mdref to,
                                 tutti_error *err)
{
    static const int args[] = { DNNL_ARG_FROM, DNNL_ARG_TO };
    dnnl_primitive_desc_t pd = NULL;
    const dnnl_status_t status =
        dnnl_reorder_primitive_desc_create(&pd, from, core->engine, to, core->engine, core->plain);

    return tutti_nn_dn_op_open(core, op, of, (dn_made){ pd, status }, (dn_args){ args, 2 }, err);
}

tutti_status tutti_nn_dn_adapt(dn_core *core, dn_op *op, dn_label of, nn_mdref from, nn_mdref to,
                               tutti_error *err)
{
    return dnnl_memory_desc_equal(from, to) ? TUTTI_OK
                                            : tutti_nn_dn_reorder(core, op, of, from, to, err);
}

void tutti_nn_dn_op_close(dn_op *op)
{
    tutti_nn_dn_parts_close(op);
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

tutti_status tutti_nn_dn_op_run(dn_core *core, dn_op *op, void *const *pointers, tutti_error *err)
{
    const int before = omp_get_max_threads();
    void *ready[DN_ARGS + 1];
    dnnl_status_t status = dnnl_success;

    for (int i = 0; i < op->count; i++)
        ready[i] =
            i < op->count - 1 ? tutti_nn_dn_operand_ready(core, op, i, pointers[i]) : core->scratch;
    if (op->part_count > 0)
        status = tutti_nn_dn_parts_run(core, op, ready);
    else {
        if (op->alone)
            omp_set_num_threads(1);
        for (int i = 0; i < op->count && status == dnnl_success; i++)
            status = dnnl_memory_set_data_handle(op->args[i].memory, ready[i]);
        if (status == dnnl_success)
            status = dnnl_primitive_execute(op->primitive, core->stream, op->count, op->args);
        if (status == dnnl_success)
            status = dnnl_stream_wait(core->stream);
        omp_set_num_threads(before);
    }
    if (status == dnnl_success)
        return TUTTI_OK;
    return tutti_fail(err, status == dnnl_out_of_memory ? TUTTI_ERR_MEMORY : TUTTI_ERR_STATE, 0,
                      "oneDNN %d.%d: running %s (%s): %s", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR,
                      op->label, op->implementation, status_text(status));
}

int tutti_nn_dn_describe(const dn_op *const *ops, size_t count, char *text, size_t bytes,
                         int length)
{
    for (size_t i = 0; i < count; i++)
        if (ops[i]->primitive != NULL)
            length = tutti_nn_append_text(text, bytes, length, "%s: %s\n", ops[i]->label,
                                          ops[i]->implementation);
    return length;
}

/* ---- the core ---- */
int tutti_nn_dn_enter(const dn_core *core)
{
    const int before = omp_get_max_threads();
    omp_set_num_threads(core->threads);
    return before;
}

tutti_status tutti_nn_dn_leave(int before, tutti_status status)
{
    omp_set_num_threads(before);
    return status;
}

static dnnl_status_t attribute(dnnl_primitive_attr_t *attr,
                               dnnl_status_t (*append)(dnnl_post_ops_t))
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

tutti_status tutti_nn_dn_core_open(dn_core *core, const nn_settings *settings, tutti_error *err)
{
    dnnl_status_t made;
    int before;

    core->threads = settings->threads;
    core->precision = settings->precision;
    core->shared_copies = settings->copies;
    if (core->precision != TUTTI_F32)
        TUTTI_TRY(tutti_device_open_host(&core->device, NULL, settings->cpu, err));
    before = tutti_nn_dn_enter(core);
    made = dnnl_engine_create(&core->engine, dnnl_cpu, 0);
    if (made == dnnl_success)
        made = dnnl_stream_create(&core->stream, core->engine, dnnl_stream_default_flags);
    if (made == dnnl_success)
        made = attribute(&core->plain, NULL);
    if (made == dnnl_success)
        made = attribute(&core->relu, nn_post_relu);
    if (made == dnnl_success)
        made = attribute(&core->sum, nn_post_sum);
    tutti_nn_dn_leave(before, TUTTI_OK);
    if (made == dnnl_success)
        return TUTTI_OK;
    return tutti_fail(err, made == dnnl_out_of_memory ? TUTTI_ERR_MEMORY : TUTTI_ERR_STATE, 0,
                      "oneDNN %d.%d: making an engine: %s", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR,
                      status_text(made));
}

void tutti_nn_dn_core_close(dn_core *core)
{
    tutti_nn_dn_copies_close(core);
    tutti_device_close(core->device);
    dnnl_primitive_attr_destroy(core->plain);
    dnnl_primitive_attr_destroy(core->relu);
    dnnl_primitive_attr_destroy(core->sum);
    if (core->stream != NULL)
        dnnl_stream_destroy(core->stream);
    if (core->engine != NULL)
        dnnl_engine_destroy(core->engine);
    *core = (dn_core){ 0 };
}
