/* resume.c: what a checkpoint says of the run that wrote it, and going on from one. What decides the numbers must be the same (model, data, method,
   seed, samples a step); everything else, such as the number of epochs or the directories, may change. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "train_internal.h"

char *tutti_train_facts(const tutti_run *run)
{
    char hash[32], *text;
    json_t *facts = json_object();

    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)tutti_data_hash(run->data));
    json_object_set_new(facts, "config", tutti_train_config_object(run->config));
    json_object_set_new(facts, "data_hash", json_string(hash));
    json_object_set_new(facts, "parameters", json_integer((json_int_t)run->parameters));
    json_object_set_new(facts, "samples_per_step", json_integer((json_int_t)(run->config->n * run->config->batch * run->config->accumulate)));
    text = json_dumps(facts, JSON_SORT_KEYS | JSON_COMPACT);
    json_decref(facts);
    return text;
}

static void value_text(const json_t *value, char *text, size_t bytes)
{
    char *dump = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    snprintf(text, bytes, "%s", dump != NULL ? dump : "nothing");
    free(dump);
}

static tutti_status must_equal(const char *path, const char *key, const json_t *saved, const json_t *now, tutti_error *err)
{
    char a[160], b[160];

    if (saved != NULL && json_equal(saved, now))
        return TUTTI_OK;
    value_text(saved, a, sizeof a);
    value_text(now, b, sizeof b);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "cannot resume %s: its run has %s %s, this one %s; it decides the numbers and must be the same", path, key, a, b);
}

/* Workers that are left, of a checkpoint that was saved after losses; else 0. */
static json_int_t survivors(const json_t *saved)
{
    return (json_int_t)json_array_size(json_object_get(saved, "members"));
}

static json_int_t of_config(const json_t *facts, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(facts, "config"), key));
}

/* May it go on with steps of so many samples? With those of the run that saved it. Saved after losses it is also the state of a run of those who were left, with their part of a step; its facts are those of the beginning. At one's own pace
   an update is of one gradient, and a step as many of them as there are workers: there a gradient's samples may stay as well. */
static tutti_status same_samples(const tutti_run *run, const char *path, const json_t *saved, const json_t *now, tutti_error *err)
{
    const json_int_t step = json_integer_value(json_object_get(now, "samples_per_step")), was = json_integer_value(json_object_get(saved, "samples_per_step")), workers = of_config(saved, "n");
    const json_int_t rest = survivors(saved) > 0 && workers > 0 ? was / workers * survivors(saved) : was;
    char others[96] = "";

    if (step == was || step == rest || (run->own_pace && of_config(now, "batch") * of_config(now, "accumulate") == of_config(saved, "batch") * of_config(saved, "accumulate")))
        return TUTTI_OK;
    if (rest != was)
        snprintf(others, sizeof others, ", or %lld as those %lld had who were left", (long long)rest, (long long)survivors(saved));
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "cannot resume %s: its run has samples_per_step %lld, this one %lld (n x batch x accumulate); it decides the numbers and must be the same%s%s", path, (long long)was, (long long)step, others,
                      run->own_pace ? ", or batch x accumulate must" : "");
}

static tutti_status compare(const tutti_run *run, const char *path, const char *saved_text, tutti_error *err)
{
    static const char *const keys[] = { "model", "method", "seed", "partition", "validation", "precision", "loss-scale" };
    static const char *const facts_keys[] = { "data_hash", "parameters" };
    char *now_text = tutti_train_facts(run);
    json_t *saved = json_loads(saved_text, 0, NULL), *now = now_text != NULL ? json_loads(now_text, 0, NULL) : NULL;
    tutti_status status = TUTTI_OK;

    if (now == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "resuming %s", path);
    for (size_t i = 0; status == TUTTI_OK && i < TUTTI_LENGTH(keys); i++)
        status = must_equal(path, keys[i], json_object_get(json_object_get(saved, "config"), keys[i]), json_object_get(json_object_get(now, "config"), keys[i]), err);
    if (status == TUTTI_OK && of_config(saved, "n") == run->workers) /* else it is for others, a number each */
        status = must_equal(path, "batch-share", json_object_get(json_object_get(saved, "config"), "batch-share"), json_object_get(json_object_get(now, "config"), "batch-share"), err);
    for (size_t i = 0; status == TUTTI_OK && i < TUTTI_LENGTH(facts_keys); i++)
        status = must_equal(path, facts_keys[i], json_object_get(saved, facts_keys[i]), json_object_get(now, facts_keys[i]), err);
    if (status == TUTTI_OK)
        status = same_samples(run, path, saved, now, err);
    free(now_text);
    json_decref(saved);
    json_decref(now);
    return status;
}

/* The optimizer that the saving run had, where it is another than this run's, whatever the options; else "". */
static void other_optimizer(const tutti_run *run, const char *saved_text, char *was, size_t bytes)
{
    json_t *saved = json_loads(saved_text, 0, NULL);
    const char *now = run->config->optimizer,
               *then = json_string_value(json_object_get(json_object_get(saved, "config"), "optimizer"));
    const size_t name = strcspn(now, "(");

    was[0] = 0;
    if (then != NULL && (strcspn(then, "(") != name || strncmp(then, now, name) != 0))
        snprintf(was, bytes, "%s", then);
    json_decref(saved);
}

/* Another optimizer may go on if it needs nothing that was not saved, as plain sgd; what the old one knew is lost, so
 * that is said. */
static tutti_status load(tutti_run *run, tutti_checkpoint *checkpoint, tutti_error *err)
{
    const char *now = run->config->optimizer;
    char was[160];
    tutti_status status;

    other_optimizer(run, tutti_checkpoint_facts(checkpoint), was, sizeof was);
    status = tutti_engine_load(run->engine, checkpoint, err);
    if (was[0] == 0)
        return status;
    if (status != TUTTI_OK)
        return tutti_fail_within(
            err, status,
            "this run has optimizer %.100s, and that of the checkpoint had %s; go on with that, or start anew", now,
            was);
    tutti_train_say(run, 0,
                    "note: the checkpoint's run had optimizer %s; this one goes on with %s, and without what that one "
                    "had averaged",
                    was, now);
    return TUTTI_OK;
}

tutti_status tutti_train_resume(tutti_run *run, tutti_error *err)
{
    char path[4096] = "", skipped[2048] = "";
    tutti_checkpoint *checkpoint = NULL;
    tutti_error found = { .rank = -1 };
    int64_t ok = 1;
    tutti_status status;

    /* One worker looks, all take what it found, so that they cannot differ. */
    if (run->all.index == 0)
        ok = tutti_checkpoint_find(run->rt, run->config->resume, path, sizeof path, skipped, sizeof skipped, &found) == TUTTI_OK;
    TUTTI_TRY(tutti_broadcast(&run->all, 0, tutti_host(&ok, 1, TUTTI_I64), err));
    if (!ok) {
        TUTTI_TRY(tutti_broadcast(&run->all, 0, tutti_host(found.text, sizeof found.text, TUTTI_U8), err));
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s", found.text);
    }
    TUTTI_TRY(tutti_broadcast(&run->all, 0, tutti_host(path, sizeof path, TUTTI_U8), err));
    if (skipped[0] != 0)
        tutti_train_say(run, 0, "passed over damaged checkpoints: %s", skipped);
    status = tutti_checkpoint_open(&checkpoint, run->rt, path, err);
    if (status == TUTTI_OK)
        status = compare(run, path, tutti_checkpoint_facts(checkpoint), err);
    if (status == TUTTI_OK)
        status = load(run, checkpoint, err);
    if (status == TUTTI_OK) {
        run->first_step = tutti_checkpoint_step(checkpoint);
        tutti_train_say(run, 0, "resumed from %s at step %llu", path, (unsigned long long)run->first_step);
    }
    tutti_checkpoint_close(checkpoint);
    return status;
}
