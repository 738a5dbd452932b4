/* stage_net.c: where a network can be split into stages, and the networks of the stages (stage.h).
   A chain of units can be split before any of its linear layers: the stage's input is then a
   sample of that many values. A sequence gets a layer that reads rows, and one that writes rows
   (sequence_part.c). */
#include "stage.h"
#include <string.h>

int tutti_nn_net_units(const nn_net *net)
{
    return net->sequence != NULL ? net->sequence->unit_count
           : net->image != NULL  ? net->image->unit_count
                                 : net->unit_count;
}

tutti_status tutti_nn_net_staged(const nn_net *net, tutti_error *err)
{
    if (net->image == NULL && (net->sequence != NULL || !nn_quadratic(net)))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "%s; models with stages are mlp, cnn, logistic, gpt, wordlm, blstm and ctr",
                      net->image != NULL
                          ? "a network of images with batch norms or branches has no stages"
                          : "a quadratic is one layer and has no stages");
}

tutti_status tutti_nn_net_cut(const nn_net *net, int unit, size_t *enters, tutti_error *err)
{
    const int units = tutti_nn_net_units(net);

    *enters = 0;
    TUTTI_TRY(tutti_nn_net_staged(net, err));
    if (unit < 0 || unit >= units)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "no stage can begin at unit %d: the model has %d layers with parameters, 0 to %d", unit,
            units, units - 1);
    if (unit == 0)
        return TUTTI_OK;
    if (net->sequence != NULL) {
        int node;
        TUTTI_TRY(tutti_nn_sequence_cut(net->sequence, unit, &node, err));
        *enters = (size_t)net->sequence->nodes[node - 1].length *
                  (size_t)net->sequence->nodes[node - 1].out;
        return TUTTI_OK;
    }
    if (unit < net->conv_count)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "no stage can begin at layer %d (conv2d): convolutions go through all of their layers "
            "in tiles, so that all are on one stage; the next that can begin one is layer %d",
            net->units[unit].index, net->units[net->conv_count].index);
    *enters = (size_t)nn_values(net->units[unit].in);
    return TUTTI_OK;
}

tutti_status tutti_nn_net_part(nn_net *part, const nn_net *whole, int first, int end,
                               tutti_error *err)
{
    const int units = tutti_nn_net_units(whole);
    size_t enters;

    *part = (nn_net){ 0 };
    TUTTI_TRY(tutti_nn_net_staged(whole, err));
    if (first < 0 || first >= end || end > units)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a stage of units %d to %d: the model has %d layers with parameters, 0 "
                          "to %d, and a stage has one at least",
                          first, end - 1, units, units - 1);
    TUTTI_TRY(tutti_nn_net_cut(whole, first, &enters, err));
    if (end < units)
        TUTTI_TRY(tutti_nn_net_cut(whole, end, &enters, err));
    *part = *whole;
    part->sequence = NULL;
    part->stage = true;
    part->enters = first > 0;
    part->leaves = end < units;
    if (whole->sequence != NULL)
        return tutti_nn_sequence_part(&part->sequence, whole->sequence, first, end, err);
    memmove(part->units, whole->units + first, (size_t)(end - first) * sizeof *part->units);
    part->unit_count = end - first;
    if (part->enters) {
        part->conv_count = 0;
        part->recomputes = false;
        part->task.channels = (int)nn_values(part->units[0].in);
        part->task.height = part->task.width = 1;
    }
    return TUTTI_OK;
}

/* ---- for callers ---- */
tutti_status tutti_nn_cut(const char *model, const tutti_nn_task *task, int unit, tutti_error *err)
{
    nn_net net;
    size_t enters;
    tutti_status status;

    TUTTI_TRY(tutti_nn_net_model(&net, model, task, err));
    status = tutti_nn_net_cut(&net, unit, &enters, err);
    tutti_nn_net_close(&net);
    return status;
}

static void describe(const nn_net *net, int u, tutti_nn_unit *unit)
{
    const nn_sequence *s = net->sequence;

    *unit = (tutti_nn_unit){ 0 };
    unit->cut = tutti_nn_net_cut(net, u, &unit->enters, NULL) == TUTTI_OK;
    if (s == NULL) {
        unit->forward = net->units[u].flops;
        unit->param = nn_weight(net, u);
        unit->params = nn_unit_params(net);
    } else {
        unit->param = s->nodes[nn_unit_param_node(s, u)].param;
        unit->params = s->nodes[nn_unit_param_node(s, u)].params;
    }
    unit->backward = (u > 0 ? 2 : 1) * unit->forward;
    if (s == NULL && net->recomputes && u < net->conv_count)
        unit->backward += unit->forward;
    for (int i = s != NULL ? s->unit_node[u] : 0; s != NULL && i < s->unit_node[u + 1]; i++) {
        unit->forward += s->nodes[i].flops;
        unit->backward += s->nodes[i].flops * ((u > 0 ? 2 : 1) + s->nodes[i].again);
    }
    for (int k = unit->param; k < unit->param + unit->params; k++)
        unit->values += s != NULL ? s->params[k].count : nn_param_values(net, k);
}

tutti_status tutti_nn_units(const char *model, const tutti_nn_task *task, tutti_nn_unit *units,
                            int capacity, int *count, tutti_error *err)
{
    nn_net net;
    tutti_status status;

    *count = 0;
    TUTTI_TRY(tutti_nn_net_model(&net, model, task, err));
    status = tutti_nn_net_staged(&net, err);
    if (status == TUTTI_OK)
        *count = tutti_nn_net_units(&net);
    for (int u = 0; u < *count && u < capacity; u++)
        describe(&net, u, &units[u]);
    tutti_nn_net_close(&net);
    return status;
}
