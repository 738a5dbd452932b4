#include "epochs_job.h"

#include <string.h>

#include "mnist.h"

char epochs_folder[SCRATCH_PATH];
static char data[SCRATCH_PATH + 16];

int epochs_set_up(void **state)
{
    (void)state;
    scratch_make(epochs_folder);
    snprintf(data, sizeof data, "%s/data", epochs_folder);
    small_mnist(epochs_folder, "data", 600, 200);
    return 0;
}

int epochs_tear_down(void **state)
{
    (void)state;
    scratch_remove(epochs_folder);
    return 0;
}

/* ---- a run ---- */

void epochs_configure(tutti_train_config *c, const char *method, const char *out)
{
    tutti_options_default(tutti_train_options, c);
    c->data = data;
    c->out = out;
    c->model = "mlp(hidden=24)";
    c->method = method;
    c->optimizer = "adamw(lr=0.002)";
    c->n = 4;
    c->elastic_shares = EPOCHS_SHARES;
    c->batch = EPOCHS_BATCH;
    c->threads = 1;
    c->seed = 5;
    c->log_to = "tensorboard,csv";
    c->quiet = true;
}

void epochs_prepare(tutti_train_config *c)
{
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt;

    if (tutti_train_check(c, 2, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(tutti_runtime_open_posix(&rt, &err), TUTTI_OK);
    if (tutti_train_prepare(rt, c, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    tutti_runtime_close(rt);
}

static tutti_status undisturbed_main(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_train_io io = { 0 };

    return tutti_train_worker(world, arg, &io, err);
}

void epochs_undisturbed(tutti_train_config *c)
{
    tutti_error err = { .rank = -1 };

    if (tutti_world_run("shm", (int)c->n, undisturbed_main, c, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

/* ---- its records ---- */

json_t *epochs_lines(const char *out)
{
    char path[SCRATCH_PATH + 128], line[8192];
    json_t *lines = json_array();
    FILE *f;

    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        assert_int_equal(json_array_append_new(lines, json_loads(line, 0, NULL)), 0);
    fclose(f);
    return lines;
}

json_t *epochs_summary(const char *out)
{
    char path[SCRATCH_PATH + 128];
    json_t *o;

    snprintf(path, sizeof path, "%s/summary.json", out);
    o = json_load_file(path, 0, NULL);
    assert_non_null(o);
    return o;
}

double epochs_number(const json_t *line, const char *key)
{
    return json_number_value(json_object_get(line, key));
}

void epochs_assert_same(const char *whole, const char *cut, const json_t *one, const json_t *other, const char *key)
{
    const json_t *a = json_object_get(one, key), *b = json_object_get(other, key);

    if (a != b && !json_equal(a, b))
        fail_msg("%s, step %g: %s is %.17g, and %.17g in %s", cut, epochs_number(one, "step"), key,
                 epochs_number(other, key), epochs_number(one, key), whole);
}

void epochs_assert_same_lines(const char *whole, const char *cut)
{
    static const char *const same[] = { "step", "epoch", "samples", "train_loss", "lr", "steps_skipped",
                                        "test_loss", "test_accuracy" };
    json_t *a = epochs_lines(whole), *b = epochs_lines(cut);

    if (json_array_size(a) != json_array_size(b))
        fail_msg("%s has %zu lines, and %s has %zu", cut, json_array_size(b), whole, json_array_size(a));
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t k = 0; k < TUTTI_LENGTH(same); k++)
            epochs_assert_same(whole, cut, json_array_get(a, i), json_array_get(b, i), same[k]);
    json_decref(a);
    json_decref(b);
}

void epochs_assert_table_follows(const char *out)
{
    char path[SCRATCH_PATH + 128], line[1024];
    json_t *lines = epochs_lines(out);
    size_t n = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/metrics.csv", out);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f)); /* names of columns */
    for (; fgets(line, sizeof line, f) != NULL; n++)
        assert_true(strtod(line, NULL) == epochs_number(json_array_get(lines, n), "step"));
    assert_int_equal(n, json_array_size(lines));
    fclose(f);
    json_decref(lines);
}

void epochs_assert_same_model(const char *whole, const char *cut)
{
    shell("cmp '%s/model.safetensors' '%s/model.safetensors'", whole, cut);
}
