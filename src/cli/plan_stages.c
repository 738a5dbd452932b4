/* plan_stages.c: `tutti plan stages`: which layers go to which type of resources and how many units
   each stage gets (placement.h), as a table or as a schedule in JSON (docs/PLAN.md has its
   members). The times of layers are given with the resources, or modelled for a network, from its
   operations and bytes and from the speed of a unit of each type. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli_internal.h"
#include "base/settings.h"
#include "data/data.h"
#include "nn/stages.h"
#include "placement/placement.h"
#include "runtime/files.h"
#include "base/options.h"

enum {
    UNITS = 200,
    PARAMS = 1024,
    RESOURCES_MOST = 1 << 20,
    FLOAT = 4,
    KEY = 8,
    JSON = 1,
    COMPARE = 2
};

typedef struct request {
    const char *resources, *search, *schedule, *floor; /* NULL: not given */
} request;

typedef struct placed {
    tutti_placement_problem problem;
    tutti_placement_speed speed[TUTTI_PLACEMENT_TYPES_MOST];
    tutti_placement_plan plan;
    const char *model, *data;    /* NULL: layers of the file */
    int unit[TUTTI_PLACEMENT_LAYERS_MOST + 1]; /* of the model, the first of each layer */
    bool sparse[TUTTI_PLACEMENT_LAYERS_MOST];
} placed;

/* ---- layers of a model ---- */

/* Returns the bytes of the rows, with their keys, that a batch reads in the tables of a unit: at
   most as many rows as the batch may name. */
static double rows_of(const tutti_nn_param *params, const tutti_nn_unit *u,
                      const tutti_nn_task *task, double batch)
{
    double bytes = 0;

    for (int k = u->param; k < u->param + u->params; k++)
        if (params[k].row_sparse) {
            const double named = batch * (task->context > 0 ? task->context : 1);
            bytes += fmin(named, (double)params[k].rows) * ((double)params[k].cols * FLOAT + KEY);
        }
    return bytes;
}

static bool has_tables(const tutti_nn_param *params, const tutti_nn_unit *u)
{
    for (int k = u->param; k < u->param + u->params; k++)
        if (params[k].row_sparse)
            return true;
    return false;
}

/* Makes layers of units. Units that cannot be separated are one layer. */
static tutti_status add_unit(placed *x, const tutti_nn_unit *u, int unit,
                             const tutti_nn_param *params, const tutti_nn_task *task,
                             tutti_error *err)
{
    tutti_placement_problem *p = &x->problem;
    const bool tables = has_tables(params, u);
    const double sent = tables ? rows_of(params, u, task, p->batch) : (double)u->values * FLOAT,
                 enters = u->cut ? (double)u->enters * FLOAT * p->batch : 0;
    tutti_placement_layer *layer;
    int l;

    if (u->cut && p->layers == TUTTI_PLACEMENT_LAYERS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "model '%.100s' has more than %d layers between which it can be cut",
                          x->model, TUTTI_PLACEMENT_LAYERS_MOST);
    p->layers += u->cut;
    l = p->layers - 1;
    layer = &p->layer[l];
    if (u->cut) {
        const char *name = params[u->param].name, *dot = strrchr(name, '.');
        x->unit[l] = unit;
        snprintf(layer->name, sizeof layer->name, "%.*s",
                 dot != NULL ? (int)(dot - name) : (int)strlen(name), name);
        layer->enters = enters;
    }
    x->unit[l + 1] = unit + 1;
    x->sparse[l] = x->sparse[l] || tables;
    snprintf(layer->kind, sizeof layer->kind, "%s", x->sparse[l] ? "tables" : "dense");
    layer->values += (double)u->values * FLOAT;
    for (int t = 0; t < p->types; t++) {
        tutti_placement_time *time = &p->time[l][t];
        time->compute += (u->forward + u->backward) * p->batch / x->speed[t].flops;
        time->communicate += 2 * (enters + sent) / x->speed[t].bandwidth;
        time->compute_share = x->speed[t].compute_share;
        time->communicate_share = x->speed[t].communicate_share;
    }
    return TUTTI_OK;
}

static tutti_status read_task(tutti_nn_task *task, const tutti_train_config *c, tutti_runtime *rt,
                              tutti_error *err)
{
    char installed[4096];
    tutti_data *data = NULL;
    const tutti_data_shape *shape;
    tutti_status status;
    void *memory = NULL;

    tutti_cli_installed(installed, sizeof installed, "data");
    status = tutti_data_given(tutti_data_open_spec(&data, rt, c->data, installed, err), err);
    if (status != TUTTI_OK)
        return status;
    shape = tutti_data_shape_of(data);
    memory = tutti_alloc((size_t)shape->bytes + 1, 1);
    if (memory == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading '%.200s'", c->data);
    else
        status = tutti_data_given(tutti_data_attach(data, memory, true, err), err);
    *task = (tutti_nn_task){ shape->channels, shape->height, shape->width, shape->classes,
                             shape->context,  shape->tables, shape->rows };
    tutti_data_close(data);
    tutti_free(memory);
    return status;
}

static tutti_status take_model(placed *x, const tutti_train_config *c, tutti_runtime *rt,
                               tutti_error *err)
{
    tutti_nn_unit units[UNITS];
    tutti_nn_param *params = tutti_alloc(PARAMS, sizeof *params);
    tutti_nn_task task;
    int n = 0, n_params = 0;
    tutti_status status;

    if (params == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading model '%.100s'", c->model);
    x->model = c->model;
    x->data = c->data;
    x->problem.batch = (double)c->batch;
    status = read_task(&task, c, rt, err);
    if (status == TUTTI_OK)
        status = tutti_nn_units(c->model, &task, units, UNITS, &n, err);
    if (status == TUTTI_OK)
        status = tutti_nn_params(c->model, &task, params, PARAMS, &n_params, err);
    if (status == TUTTI_OK && (n > UNITS || n_params > PARAMS))
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "model '%.100s' has %d layers; a plan takes %d", c->model, n, UNITS);
    for (int u = 0; u < n && status == TUTTI_OK; u++)
        status = add_unit(x, &units[u], u, params, &task, err);
    tutti_free(params);
    return status;
}

/* ---- for people ---- */

static void print_plan(const placed *x)
{
    const tutti_placement_problem *p = &x->problem;
    const tutti_placement_plan *plan = &x->plan;
    char layers[96];

    printf("%d layers on %d stage%s: %.6g examples a second, %.6g s, cost %.6g\n\n", p->layers,
           plan->stages, plan->stages > 1 ? "s" : "", plan->rate, plan->seconds, plan->cost);
    printf("%-5s %-16s %7s %11s %11s %6s  %s\n", "stage", "type", "units", "compute/s", "commun./s",
           "slack", "layers");
    for (int q = 0; q < plan->stages; q++) {
        const tutti_placement_stage *s = &plan->stage[q];
        if (s->end - s->first == 1)
            snprintf(layers, sizeof layers, "%s", p->layer[s->first].name);
        else
            snprintf(layers, sizeof layers, "%s to %s", p->layer[s->first].name,
                     p->layer[s->end - 1].name);
        printf("%-5d %-16s %7d %11.4g %11.4g %5.1f%%  %s\n", q, p->type[s->type].name, s->units,
               1 / s->compute, 1 / s->communicate, 100 * s->slack, layers);
    }
}

static void print_compared(const json_t *all)
{
    size_t i;
    json_t *row;

    printf("\n%-28s %12s %9s %9s\n", "search", "cost", "of least", "seconds");
    json_array_foreach(all, i, row) {
        const json_t *cost = json_object_get(row, "cost");
        if (json_is_number(cost))
            printf("%-28s %12.6g %9.4f %9.3f\n", json_string_value(json_object_get(row, "search")),
                   json_number_value(cost), json_number_value(json_object_get(row, "of_least")),
                   json_number_value(json_object_get(row, "seconds")));
        else
            printf("%-28s %12s\n", json_string_value(json_object_get(row, "search")), "none");
    }
}

/* ---- for programs ---- */

/* Returns a number; null: an infinite rate, that of a stage that does not communicate. */
static json_t *stages_of(const placed *x)
{
    const tutti_placement_problem *p = &x->problem;
    json_t *array = json_array();

    for (int q = 0; q < x->plan.stages; q++) {
        const tutti_placement_stage *s = &x->plan.stage[q];
        bool sparse = false;
        json_t *o;
        for (int l = s->first; l < s->end; l++)
            sparse = sparse || x->sparse[l];
        o = json_pack("{s:s, s:i, s:i, s:i, s:b, s:f, s:f, s:f}", "type", p->type[s->type].name,
                      "first_layer", s->first, "end_layer", s->end, "units", s->units, "sparse",
                      (int)sparse, "compute_seconds", s->compute, "communicate_seconds",
                      s->communicate, "slack", s->slack);
        if (x->model != NULL) {
            json_object_set_new(o, "first_unit", json_integer(x->unit[s->first]));
            json_object_set_new(o, "end_unit", json_integer(x->unit[s->end]));
        }
        json_array_append_new(array, o);
    }
    return array;
}

static json_t *json_of(const placed *x, const char *search)
{
    const tutti_placement_plan *plan = &x->plan;
    json_t *o = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f}", "schema", "tutti-stages-1",
                          "version", tutti_version(), "search", search, "batch", x->problem.batch,
                          "floor", x->problem.floor, "examples_a_second", plan->rate, "seconds",
                          plan->seconds, "cost", plan->cost),
           *layers = json_array();

    if (x->model != NULL) {
        json_object_set_new(o, "model", json_string(x->model));
        json_object_set_new(o, "data", json_string(x->data));
    }
    for (int l = 0; l < x->problem.layers; l++)
        json_array_append_new(layers, json_pack("{s:s, s:s, s:s}", "name", x->problem.layer[l].name,
                                                "kind", x->problem.layer[l].kind, "type",
                                                x->problem.type[plan->on[l]].name));
    json_object_set_new(o, "stages", stages_of(x));
    json_object_set_new(o, "layers", layers);
    return o;
}

/* Runs every search with its defaults; brute only if it takes seconds. */
static json_t *compare(const placed *x, tutti_runtime *rt)
{
    json_t *array = json_array(), *row;
    const tutti_option *options;
    const char *search;
    double least = INFINITY;
    size_t i;

    for (int k = 0; (search = tutti_placement_search(k, &options)) != NULL; k++) {
        const int64_t begun = tutti_now_ns(rt);
        tutti_placement_plan plan;
        bool found;
        if (strcmp(search, "brute") == 0 && pow(x->problem.types, x->problem.layers) > 1e6)
            continue;
        found = tutti_placement_find(&x->problem, search, &plan, NULL) == TUTTI_OK;
        least = found ? fmin(least, plan.cost) : least;
        json_array_append_new(array,
                              json_pack("{s:s, s:o, s:f}", "search", search, "cost",
                                        found ? json_real(plan.cost) : json_null(), "seconds",
                                        1e-9 * (double)(tutti_now_ns(rt) - begun)));
    }
    json_array_foreach(array, i, row) {
        const json_t *cost = json_object_get(row, "cost");
        json_object_set_new(row, "of_least",
                            json_is_number(cost) && least > 0
                                ? json_real(json_number_value(cost) / least)
                                : json_null());
    }
    return array;
}

static tutti_status write_json(tutti_file *f, json_t *o, tutti_error *err)
{
    char *text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    tutti_status status;

    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing the schedule");
    status = tutti_file_write(f, text, strlen(text), err);
    if (status == TUTTI_OK)
        status = tutti_file_write(f, "\n", 1, err);
    free(text);
    return status;
}

/* ---- the command ---- */

static void print_help(void)
{
    printf("tutti plan stages --resources FILE [--OPTION VALUE ...]\n\n");
    tutti_cli_wrap(stdout, "", 0,
                   "Which consecutive layers make a stage, on which type of resources, and how "
                   "many units of it, so that a run reaches a floor of examples a second and costs "
                   "least (HeterPS). Layers' times stand in the file of resources, or are modelled "
                   "for a network from its operations and bytes. docs/PLAN.md has the file's "
                   "members.");
    printf("\n");
    tutti_cli_wrap(stdout, "  --resources FILE", 20,
                   "JSON: types with price and number of units, floor, layers");
    tutti_cli_wrap(stdout, "  --model, --data, --batch", 20,
                   "as for `tutti train`, where the file has no layers");
    tutti_cli_wrap(stdout, "  --floor RATE", 20, "examples a second, in place of the file's");
    tutti_cli_wrap(stdout, "  --schedule FILE", 20, "writes the schedule there, as JSON");
    tutti_cli_wrap(stdout, "  --compare", 20, "what every search finds, and in what time");
    tutti_cli_wrap(stdout, "  --json", 20, "the schedule, in place of a table");
    tutti_cli_wrap(stdout, "  --search SEARCH", 20, "one of those, with its options [rl]:");
    for (int i = 0;; i++) {
        const tutti_option *options;
        const char *name = tutti_placement_search(i, &options);
        if (name == NULL)
            break;
        printf("\n  %s\n", name);
        tutti_cli_print_options(stdout, options, false);
    }
    printf("\nExample:\n  tutti plan stages --resources cluster.json --search dp --schedule "
           "stages.json\n");
}

/* Removes "--NAME VALUE" and "--NAME=VALUE" of this command from the words. */
static tutti_status take_own(int *argc, char **argv, request *r, tutti_error *err)
{
    const struct { const char *name; const char **value;
    } own[] = { { "resources", &r->resources },
                { "search", &r->search },
                { "schedule", &r->schedule },
                { "floor", &r->floor } };
    int n = 1;

    for (int i = 1; i < *argc; i++) {
        const char *word = strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
        const size_t length = strcspn(word, "=");
        size_t k = 0;
        while (k < TUTTI_LENGTH(own) &&
               (strlen(own[k].name) != length || strncmp(own[k].name, word, length) != 0))
            k++;
        if (k == TUTTI_LENGTH(own)) {
            argv[n++] = argv[i];
            continue;
        }
        if (word[length] == 0 && i + 1 == *argc)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "--%s needs a value", own[k].name);
        *own[k].value = word[length] == '=' ? word + length + 1 : argv[++i];
    }
    *argc = n;
    return TUTTI_OK;
}

static tutti_status read_resources(placed *x, const char *path, tutti_runtime *rt, tutti_error *err)
{
    tutti_file *f = NULL;
    tutti_status status = tutti_file_open(&f, rt, path, TUTTI_FILE_READ, err);
    char *text = NULL;
    uint64_t bytes;

    if (status != TUTTI_OK)
        return status == TUTTI_ERR_IO ? tutti_fail_within(err, TUTTI_ERR_USAGE, "resources")
                                      : status;
    bytes = tutti_file_bytes(f);
    if (bytes > RESOURCES_MOST)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "%.200s: %llu bytes; at most %d (1 MiB)", path,
                            (unsigned long long)bytes, RESOURCES_MOST);
    if (status == TUTTI_OK) {
        text = tutti_alloc((size_t)bytes + 1, 1);
        status = text != NULL ? tutti_file_read(f, 0, text, (size_t)bytes, err)
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading '%.200s'", path);
    }
    if (status == TUTTI_OK)
        status = tutti_placement_parse(path, text, (size_t)bytes, &x->problem, x->speed, err);
    tutti_file_close(f, NULL);
    tutti_free(text);
    return status;
}

/* Checks that the types of a file without layers have a speed. */
static tutti_status check_speeds(const placed *x, tutti_error *err)
{
    for (int t = 0; t < x->problem.types; t++) {
        const tutti_placement_speed *s = &x->speed[t];
        if (!(s->flops > 0 && s->flops <= 1e30 && s->bandwidth > 0 && s->bandwidth <= 1e30))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "type '%s': flops is %g and bandwidth %g; for the layers of a model "
                              "both must be above 0, in operations and bytes a second",
                              x->problem.type[t].name, s->flops, s->bandwidth);
    }
    return TUTTI_OK;
}

static tutti_status prepare(placed *x, const request *r, const tutti_cli_settings *s,
                            tutti_error *err)
{
    const bool model_given =
        tutti_settings_origin(s->settings, "model", NULL) != TUTTI_FROM_DEFAULT;
    static const tutti_option floor = { "floor", TUTTI_REAL, 0, 1, 1e-9, 1e15, NULL, "" };

    if (r->resources == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "it needs --resources FILE; `tutti plan stages --help` explains it");
    TUTTI_TRY(read_resources(x, r->resources, s->rt, err));
    if (r->floor != NULL)
        TUTTI_TRY(tutti_option_set(&floor, "plan stages", r->floor, &x->problem.floor, err));
    if (x->problem.layers > 0 && model_given)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%.200s has layers of its own, and --model names others; leave one of them out",
            r->resources);
    if (x->problem.layers == 0 && !model_given)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%.200s has no layers; give them there, or --model and --data",
                          r->resources);
    if (x->problem.layers > 0) {
        for (int l = 0; l < x->problem.layers; l++)
            x->sparse[l] = strcmp(x->problem.layer[l].kind, "tables") == 0;
    } else {
        TUTTI_TRY(check_speeds(x, err));
        TUTTI_TRY(take_model(x, &s->config, s->rt, err));
    }
    return tutti_fail_within(err, tutti_placement_check(&x->problem, err), "%.200s", r->resources);
}

static tutti_status search_and_show(placed *x, const request *r, const tutti_cli_settings *s,
                                    tutti_file *schedule, tutti_error *err)
{
    const char *search = r->search != NULL ? r->search : "rl";
    tutti_status status = tutti_placement_find(&x->problem, search, &x->plan, err);
    json_t *o, *compared;

    if (status != TUTTI_OK)
        return status;
    o = json_of(x, search);
    if (schedule != NULL)
        status = write_json(schedule, o, err);
    compared = (s->extra & COMPARE) != 0 ? compare(x, s->rt) : NULL;
    if (status == TUTTI_OK && (s->extra & JSON) != 0) {
        if (compared != NULL)
            json_object_set(o, "compared", compared);
        json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        putchar('\n');
    } else if (status == TUTTI_OK) {
        print_plan(x);
        if (compared != NULL)
            print_compared(compared);
    }
    json_decref(compared);
    json_decref(o);
    return status;
}

/* Refuses an output file that exists already, before the search, which takes seconds. */
static tutti_status show(placed *x, const request *r, const tutti_cli_settings *s, tutti_error *err)
{
    tutti_file *schedule = NULL;

    if (r->schedule == NULL)
        return search_and_show(x, r, s, NULL, err);
    TUTTI_TRY(tutti_file_begin(&schedule, s->rt, r->schedule, false, err));
    return tutti_file_end(schedule, search_and_show(x, r, s, schedule, err), err);
}

int tutti_cli_plan_stages(int argc, char **argv)
{
    static const char *const extra[] = { "json", "compare", NULL };
    tutti_error err = { .rank = -1 };
    tutti_cli_settings s = { 0 };
    request r = { 0 };
    placed *x = tutti_alloc(1, sizeof *x);
    tutti_status status = x != NULL ? take_own(&argc, argv, &r, &err)
                                    : tutti_fail(&err, TUTTI_ERR_MEMORY, ENOMEM, "planning stages");

    if (status == TUTTI_OK)
        status = tutti_cli_read(&s, argc, argv, extra, &err);
    if (status == TUTTI_OK && s.help)
        print_help();
    else if (status == TUTTI_OK) {
        status = prepare(x, &r, &s, &err);
        if (status == TUTTI_OK)
            status = show(x, &r, &s, &err);
    }
    tutti_free(x);
    tutti_cli_close(&s);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
