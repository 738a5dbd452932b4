/* resume.c: resumes a run from a checkpoint, and writes the facts about a run that a checkpoint
   contains. Settings that change the numbers must be equal (model, data, method, seed, samples of a
   step). Methods may differ if the steps of both have the same bits. Everything else, such as the
   number of epochs or the directories, may change. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"
#include "sums.h"
#include "train_internal.h"
#include "runtime/files.h"
#include "method/registry.h"

char *tutti_train_facts(const tutti_run *run, bool saved)
{
    char hash[32], *text;
    json_t *facts = json_object(), *config = tutti_train_config_object(run->config);

    if (run->epoch.number > 0) { /* a newcomer may have its own, and images have to agree */
        json_object_del(config, "data");
        json_object_del(config, "slow");
    }
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)tutti_data_hash(run->data));
    json_object_set_new(
        facts, "exact",
        json_boolean((tutti_engine_method(run->engine)->traits & TUTTI_DDP_EQUIVALENT) != 0));
    json_object_set_new(facts, "config", config);
    json_object_set_new(facts, "data_hash", json_string(hash));
    json_object_set_new(facts, "parameters", json_integer((json_int_t)run->parameters));
    json_object_set_new(facts, "samples_per_step",
                        json_integer((json_int_t)tutti_train_step_samples(run->config)));
    if (run->epoch.number > 0)
        json_object_set_new(facts, "since_report", tutti_train_sums_facts(run, saved));
    text = json_dumps(facts, JSON_SORT_KEYS | JSON_COMPACT);
    json_decref(facts);
    return text;
}

static void value_text(const json_t *value, char *text, size_t bytes)
{
    char *dump = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;

    if (json_is_real(value)) /* 100, and not 100.0 */
        snprintf(text, bytes, "%.12g", json_real_value(value));
    else
        snprintf(text, bytes, "%s", dump != NULL ? dump : "nothing");
    free(dump);
}

static tutti_status must_equal(const char *path, const char *key, const json_t *saved,
                               const json_t *now, tutti_error *err)
{
    char a[160], b[160];

    if (saved != NULL &&
        (json_equal(saved, now) || (json_is_number(saved) && json_is_number(now) &&
                                    json_number_value(saved) == json_number_value(now))))
        return TUTTI_OK;
    value_text(saved, a, sizeof a);
    value_text(now, b, sizeof b);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "cannot resume %s: its run has %s %s, this one %s; it decides the numbers "
                      "and must be the same",
                      path, key, a, b);
}

/* Returns how many workers were left when the checkpoint was saved; 0: none had been lost. */
static json_int_t survivors(const json_t *saved)
{
    return (json_int_t)json_array_size(json_object_get(saved, "members"));
}

static json_int_t of_config(const json_t *facts, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(facts, "config"), key));
}

int tutti_train_savers(tutti_runtime *rt, const char *directory, int *began,
                       int rank[TUTTI_TRAIN_WORKERS_MOST])
{
    char found[4096];
    tutti_checkpoint *checkpoint = NULL;
    json_t *facts = NULL, *members;
    json_int_t n = 0;

    *began = 0;
    if (tutti_checkpoint_find(rt, directory, found, sizeof found, NULL, 0, NULL) == TUTTI_OK &&
        tutti_checkpoint_open(&checkpoint, rt, found, NULL) == TUTTI_OK)
        facts = json_loads(tutti_checkpoint_facts(checkpoint), 0, NULL);
    tutti_checkpoint_close(checkpoint);
    members = json_object_get(facts, "members");
    if (json_is_true(json_object_get(facts, "as_many"))) {
        *began = (int)of_config(facts, "n");
        n = members != NULL ? survivors(facts) : *began;
    }
    if (n < 1 || n > TUTTI_TRAIN_WORKERS_MOST)
        n = 0;
    for (json_int_t k = 0; k < n; k++)
        rank[k] =
            members != NULL ? (int)json_integer_value(json_array_get(members, (size_t)k)) : (int)k;
    json_decref(facts);
    return (int)n;
}

/* May the run resume with its number of samples a step? It must be that of the run that saved the
   checkpoint. A checkpoint saved after losses is also the state of a run of the workers that were
   left, with their part of a step; its facts are those of the beginning. In asynchronous methods
   an update is of one gradient, and a step is one gradient a worker: there it is enough that a
   gradient's samples stay the same. */
static tutti_status same_samples(const tutti_run *run, const char *path, const json_t *saved,
                                 const json_t *now, tutti_error *err)
{
    const json_int_t step = json_integer_value(json_object_get(now, "samples_per_step")),
                     was = json_integer_value(json_object_get(saved, "samples_per_step")),
                     workers = of_config(saved, "n");
    const json_int_t rest =
        survivors(saved) > 0 && workers > 0 ? was / workers * survivors(saved) : was;
    char others[96] = "";

    if (step == was || step == rest ||
        (run->is_async && of_config(now, "batch") * of_config(now, "accumulate") ==
                              of_config(saved, "batch") * of_config(saved, "accumulate")))
        return TUTTI_OK;
    if (rest != was)
        snprintf(others, sizeof others, ", or %lld as the remaining %lld had", (long long)rest,
                 (long long)survivors(saved));
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "cannot resume %s: its run has samples_per_step %lld, this one %lld (%s x "
                      "batch x accumulate); it decides the numbers and must be the same%s%s",
                      path, (long long)was, (long long)step,
                      run->config->elastic_shares > 0 ? "elastic-shares" : "n", others,
                      run->is_async ? ", or batch x accumulate must" : "");
}

/* Are the steps of the checkpoint's run those of ddp, without state of the method's own? An older
   checkpoint does not contain the answer; then the traits of its method do. */
static bool exact(const json_t *facts)
{
    const char *const method =
        json_string_value(json_object_get(json_object_get(facts, "config"), "method"));
    const json_int_t workers = of_config(facts, "n");
    const json_t *const recorded = json_object_get(facts, "exact");
    unsigned traits;

    if (json_is_boolean(recorded))
        return json_is_true(recorded);
    return method != NULL && tutti_method_traits(method, &traits) &&
           ((traits & TUTTI_DDP_EQUIVALENT) != 0 ||
            ((traits & TUTTI_DDP_EQUIVALENT_ALONE) != 0 && workers == 1));
}

static const json_t *in_config(const json_t *facts, const char *key)
{
    return json_object_get(json_object_get(facts, "config"), key);
}

/* Have the two runs the same method, with equal options except those that may change? */
static bool same_method(const json_t *saved, const json_t *now)
{
    const char *const was = json_string_value(in_config(saved, "method")),
                     *const is = json_string_value(in_config(now, "method"));

    return was != NULL && is != NULL && tutti_method_alike(was, is);
}

/* Returns the codec of the run; "": none. */
static const char *codec_of(const json_t *facts)
{
    const char *codec = json_string_value(in_config(facts, "codec"));

    return codec == NULL || strcmp(codec, "none") == 0 ? "" : codec;
}

static tutti_status compare(const tutti_run *run, const char *path, const char *saved_text,
                            tutti_error *err)
{
    static const char *const keys[] = {
        "model", "seed", "partition", "validation", "precision", "loss-scale"
    };
    static const char *const facts_keys[] = { "data_hash", "parameters" };
    char *now_text = tutti_train_facts(run, false);
    json_t *saved = json_loads(saved_text, 0, NULL),
           *now = now_text != NULL ? json_loads(now_text, 0, NULL) : NULL;
    tutti_status status = TUTTI_OK;

    if (now == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "resuming %s", path);
    if (status == TUTTI_OK && !(exact(saved) && exact(now)) && !same_method(saved, now))
        status =
            must_equal(path, "method", in_config(saved, "method"), in_config(now, "method"), err);
    else if (status == TUTTI_OK &&
             !json_equal(in_config(saved, "method"), in_config(now, "method")) &&
             strcmp(codec_of(saved), codec_of(now)) != 0) /* what a codec keeps would be lost */
        status = must_equal(path, "codec", in_config(saved, "codec"), in_config(now, "codec"), err);
    for (size_t i = 0; status == TUTTI_OK && i < TUTTI_LENGTH(keys); i++)
        status = must_equal(path, keys[i], in_config(saved, keys[i]), in_config(now, keys[i]), err);
    if (status == TUTTI_OK &&
        of_config(saved, "n") == run->workers) /* else it is for others, a number each */
        status = must_equal(path, "batch-share", in_config(saved, "batch-share"),
                            in_config(now, "batch-share"), err);
    for (size_t i = 0; status == TUTTI_OK && i < TUTTI_LENGTH(facts_keys); i++)
        status = must_equal(path, facts_keys[i], json_object_get(saved, facts_keys[i]),
                            json_object_get(now, facts_keys[i]), err);
    if (status == TUTTI_OK)
        status = same_samples(run, path, saved, now, err);
    free(now_text);
    json_decref(saved);
    json_decref(now);
    return status;
}

/* Writes the optimizer of the checkpoint's run to `was` if its name is not that of this run's
   optimizer; else "". */
static void other_optimizer(const tutti_run *run, const char *saved_text, char *was, size_t bytes)
{
    json_t *saved = json_loads(saved_text, 0, NULL);
    const char *now = run->config->optimizer, *then = json_string_value(json_object_get(
                                                  json_object_get(saved, "config"), "optimizer"));
    const size_t name = strcspn(now, "(");

    was[0] = 0;
    if (then != NULL && (strcspn(then, "(") != name || strncmp(then, now, name) != 0))
        snprintf(was, bytes, "%s", then);
    json_decref(saved);
}

/* Another optimizer may continue if all that it needs was saved, as for plain sgd. The state of the
   old optimizer is then lost, which is reported. */
static tutti_status load_state(tutti_run *run, tutti_checkpoint *checkpoint, tutti_error *err)
{
    const char *now = run->config->optimizer;
    char was[160];
    tutti_status status;

    other_optimizer(run, tutti_checkpoint_facts(checkpoint), was, sizeof was);
    status = tutti_engine_load(run->engine, checkpoint, err);
    if (was[0] == 0)
        return status;
    if (status != TUTTI_OK)
        return tutti_fail_within(err, status,
                                 "this run has optimizer %.100s, and that of the checkpoint had "
                                 "%s; continue with that, or start again",
                                 now, was);
    tutti_train_say(run, 0,
                    "note: the checkpoint's run had optimizer %s; this one continues with %s, and "
                    "without the averages of that one",
                    was, now);
    return TUTTI_OK;
}

/* ---- which one ---- */

/* Worker 0's search for a checkpoint. */
typedef struct search {
    char path[4096];                 /* the checkpoint found */
    char skipped[8192];              /* damaged checkpoints: lines "step-00000030: why" */
    bool named;                      /* --resume names this checkpoint, so no other is tried */
} search;

/* Returns the position of a name in the order of a folder's checkpoints, in which
   "step-00000030-old" comes just before "step-00000030" (tutti.h). -1: not the name of a
   checkpoint. */
static int64_t place_of(const char *name)
{
    char *end;
    long long step;

    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    errno = 0;
    step = strtoll(name + 5, &end, 10);
    if (errno != 0 || step > INT64_MAX / 2 - 1 || (*end != 0 && strcmp(end, "-old") != 0))
        return -1;
    return 2 * step + (*end == 0);
}

/* The newest checkpoint before position `below`. place -1: none. */
typedef struct newest { int64_t place, below; char name[256]; } newest;

static tutti_status take_newer(void *user, const char *name, tutti_error *err)
{
    newest *n = user;
    const int64_t place = place_of(name);

    (void)err;
    if (place > n->place && place < n->below && strlen(name) < sizeof n->name) {
        n->place = place;
        strcpy(n->name, name);
    }
    return TUTTI_OK;
}

/* s->path is damaged, for the reason `why`. Sets it to the next older checkpoint of its folder that
   seems complete, and adds the damaged ones to s->skipped. */
static tutti_status find_older(tutti_runtime *rt, search *s, const char *why, tutti_error *err)
{
    char folder[4096], found[4096], *name;
    tutti_error next = { .rank = -1 };
    newest n;

    snprintf(folder, sizeof folder, "%s", s->path);
    name = strrchr(folder, '/');
    if (name == NULL)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%s", why);
    *name++ = 0;
    n = (newest){ .below = place_of(name) };
    for (const char *reason = why;; reason = next.text) {
        const size_t used = strlen(s->skipped);
        const int more =
            snprintf(s->skipped + used, sizeof s->skipped - used, "%s: %s\n", name, reason);
        if (more < 0 || (size_t)more >= sizeof s->skipped - used)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "too many damaged checkpoints in %s; of the newest of the rest: %s",
                              folder, reason);
        n.place = -1;
        TUTTI_TRY(tutti_directory_list(rt, folder, take_newer, &n, err));
        if (n.place < 0)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "none of the checkpoints in %s is whole; of the oldest: %s", folder,
                              reason);
        n.below = n.place;
        name = n.name;
        snprintf(s->path, sizeof s->path, "%.3800s/%s", folder, n.name);
        if (tutti_checkpoint_find(rt, s->path, found, sizeof found, NULL, 0, &next) == TUTTI_OK)
            return TUTTI_OK;
    }
}

/* Was the checkpoint saved by another number of workers or servers? Then not every state is read
   again when an older checkpoint follows a damaged one, and values of the damaged one would stay.
   So such a checkpoint is verified as a whole before it is read. */
static bool of_other_workers(const tutti_run *run, const tutti_checkpoint *checkpoint)
{
    json_t *saved = json_loads(tutti_checkpoint_facts(checkpoint), 0, NULL);
    const bool other = survivors(saved) > 0 || of_config(saved, "n") != run->workers
        || of_config(saved, "servers") != run->config->servers;

    json_decref(saved);
    return other;
}

/* Worker 0: opens s->path, or an older checkpoint if s->path is found to be damaged. */
static tutti_status find_valid(tutti_run *run, search *s, tutti_error *err)
{
    for (;;) {
        tutti_checkpoint *checkpoint = NULL;
        tutti_error why = { .rank = -1 };
        tutti_status status = tutti_checkpoint_open(&checkpoint, run->rt, s->path, &why);

        if (status == TUTTI_OK && !s->named && of_other_workers(run, checkpoint))
            status = tutti_checkpoint_verify(checkpoint, &why);
        tutti_checkpoint_close(checkpoint);
        if (status != TUTTI_ERR_CORRUPT || s->named) {
            if (status != TUTTI_OK && err != NULL)
                *err = why;
            return status;
        }
        TUTTI_TRY(find_older(run->rt, s, why.text, err));
    }
}

/* Sends the result of worker 0's search to all, so that they use the same checkpoint. status: of
   the search, at worker 0. Collective. */
static tutti_status send_result(tutti_run *run, search *s, tutti_status status, tutti_error *err)
{
    tutti_error found = { .rank = -1 };
    int64_t how = (int64_t)status;

    if (run->all.index == 0 && status != TUTTI_OK)
        found = *err;
    TUTTI_TRY(tutti_broadcast(&run->all, 0, tutti_host(&how, 1, TUTTI_I64), err));
    if (how != TUTTI_OK) {
        TUTTI_TRY(tutti_broadcast(&run->all, 0, tutti_host(found.text, sizeof found.text, TUTTI_U8),
                                  err));
        return tutti_fail(err, (tutti_status)how, 0, "%s", found.text);
    }
    TUTTI_TRY(tutti_broadcast(&run->all, 0, tutti_host(s->path, sizeof s->path, TUTTI_U8), err));
    return tutti_broadcast(&run->all, 0, tutti_host(s->skipped, sizeof s->skipped, TUTTI_U8), err);
}

/* ---- loading it ---- */

static tutti_status load(tutti_run *run, const char *path, tutti_error *err)
{
    tutti_checkpoint *checkpoint = NULL;
    tutti_status status = tutti_checkpoint_open(&checkpoint, run->rt, path, err);

    if (status == TUTTI_OK)
        status = compare(run, path, tutti_checkpoint_facts(checkpoint), err);
    if (status == TUTTI_OK)
        status = load_state(run, checkpoint, err);
    if (status == TUTTI_OK)
        run->first_step = tutti_checkpoint_step(checkpoint);
    if (status == TUTTI_OK && run->epoch.number > 0) {
        tutti_free(run->resumed_facts);
        run->resumed_facts = tutti_copy_text(tutti_checkpoint_facts(checkpoint));
        if (run->resumed_facts == NULL)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "resuming %s", path);
    }
    tutti_checkpoint_close(checkpoint);
    return status;
}

/* Why a checkpoint is damaged, as one worker tells all. */
typedef struct why_text {
    char text[sizeof((tutti_error *)0)->text];
} why_text;

/* Each worker reads a part of the checkpoint, so only some may find it damaged: all learn whether
   any has, and one worker's reason. mine: this worker's status. *damaged: all try an older
   checkpoint. Collective. */
static tutti_status agree_on(tutti_run *run, tutti_status mine, bool named, why_text *why,
                             bool *damaged, tutti_error *err)
{
    int64_t who = mine == TUTTI_ERR_CORRUPT ? run->all.index : run->all.size;

    *damaged = false;
    if (mine != TUTTI_OK && mine != TUTTI_ERR_CORRUPT)
        return mine; /* this ends the run, as the others will learn */
    if (mine != TUTTI_OK)
        snprintf(why->text, sizeof why->text, "%s", err->text);
    TUTTI_TRY(tutti_allreduce(&run->all, TUTTI_MIN, tutti_host(&who, 1, TUTTI_I64), err));
    if (who >= run->all.size)
        return TUTTI_OK;
    TUTTI_TRY(tutti_broadcast(&run->all, (int)who,
                              tutti_host(why->text, sizeof why->text, TUTTI_U8), err));
    why->text[sizeof why->text - 1] = 0;
    *damaged = !named;
    return named ? tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%s", why->text) : TUTTI_OK;
}

static tutti_status resume_by(tutti_run *run, search *s, tutti_error *err)
{
    why_text why = { "" };
    tutti_status status = TUTTI_OK;
    bool damaged;

    if (run->all.index == 0) {
        tutti_error found = { .rank = -1 };
        status = tutti_checkpoint_find(run->rt, run->config->resume, s->path, sizeof s->path,
                                       s->skipped, sizeof s->skipped, &found);
        s->named = status == TUTTI_OK && strcmp(s->path, run->config->resume) == 0;
        status = status == TUTTI_OK ? find_valid(run, s, err)
                                    : tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s", found.text);
    }
    do {
        TUTTI_TRY(send_result(run, s, status, err));
        s->named = strcmp(s->path, run->config->resume) == 0;
        TUTTI_TRY(agree_on(run, load(run, s->path, err), s->named, &why, &damaged, err));
        if (damaged && run->all.index == 0) {
            status = find_older(run->rt, s, why.text, err);
            if (status == TUTTI_OK)
                status = find_valid(run, s, err);
        }
    } while (damaged);
    for (const char *line = s->skipped; *line != 0; line += strcspn(line, "\n") + 1)
        tutti_train_say(run, 3, "passed over a damaged checkpoint, %.*s", (int)strcspn(line, "\n"),
                        line);
    tutti_train_say(run, s->skipped[0] != 0 ? 3 : 0, "resumed from %s at step %llu", s->path,
                    (unsigned long long)run->first_step);
    tutti_free(run->passed_over); /* of an epoch before the first step */
    run->passed_over = s->skipped[0] != 0 ? tutti_copy_text(s->skipped) : NULL;
    if (s->skipped[0] != 0 && run->passed_over == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "noting which checkpoints are damaged");
    return TUTTI_OK;
}

tutti_status tutti_train_resume(tutti_run *run, tutti_error *err)
{
    search *s = tutti_alloc(1, sizeof *s); /* not on the stack: a simulated worker's is small */
    tutti_error own = { .rank = -1 };
    tutti_status status = s != NULL
                              ? resume_by(run, s, err != NULL ? err : &own)
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                           "looking for a checkpoint in %s", run->config->resume);

    tutti_free(s);
    return status;
}
