/* codec-hierarchy. Goal: the workers of a node group sum unencoded, and the first of them alone
   goes through the codec, so that to it there are as many workers as groups. Method: gradients
   that do not depend on a network; the run of W workers in groups of c is compared with one of W
   / c workers, where each has by itself the mean of one group, added up as the collectives do.
   The same model, to the bit, and between groups the same bytes, from and to the first of each
   alone. */
#include <stdlib.h>

#include "engine/engine_internal.h"
#include "toy.h"
#include "kernels/device.h"

enum { WORKERS = 8, STEPS = 6, BAD_STEP = 3, ELEMENTS = 10 + 3000 + 33 + 2001 + 7 };

typedef struct job {
    toy t;
    int members;                           /* whose gradients one worker has by itself; 1: its own */
    bool alike;                            /* those of a group are the same */
    int team;                              /* workers of a group with equal gradients */
    int of_machine;                        /* workers of each machine that the world is made to report; 0: of one */
    int bad;                               /* a worker whose gradient, or part of one, is infinite in one step; or -1 */
    uint64_t hash[WORKERS][STEPS];
    uint64_t bytes[WORKERS][WORKERS];      /* from, to: in all steps */
} job;

static float pull_of(int rank, int i, int step)
{
    return (float)tutti_uniform((tutti_rng){ 7, (uint64_t)rank, (uint64_t)step }, (uint64_t)i) * 2 - 1;
}

/* The tree over workers [low, low + n), each with its share of this worker's gradient. */
static float added(const job *j, const float *x, int low, int n, int i, int step)
{
    const float each = (float)(1.0 / j->members);
    const int whose = j->alike ? low / j->team : low;
    int half = 1;

    if (n == 1)
        return each * (x[i] - pull_of(whose, i, step));
    while (2 * half < n)
        half *= 2;
    return added(j, x, low, half, i, step) + added(j, x, low + half, n - half, i, step);
}

/* machines.c: the workers before `first` are on machines of that many; the others are on one. */
void put_on_machines(tutti_world *world, int of_machine, int first);

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const int rank = tutti_world_rank(world), size = tutti_world_size(world);
    uint64_t before[WORKERS], after, messages;
    toy t = j->t;
    tutti_engine *e;
    const tutti_method *m;
    tutti_pass p;

    if (j->of_machine > 0)
        put_on_machines(world, j->of_machine, size);
    TUTTI_TRY(toy_open(&e, world, &t, err));
    m = tutti_engine_method(e);
    for (int to = 0; to < size; to++)
        tutti_world_sent(world, to, &before[to], &messages);
    for (int s = 0; s < STEPS; s++) {
        tutti_status status;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            for (int i = 0; i < ELEMENTS; i++)
                m->g[i] = added(j, m->x, rank * j->members, j->members, i, s);
            if (s == BAD_STEP && j->bad >= 0 && j->bad / j->members == rank)
                m->g[2000] = INFINITY;
            for (int k = 0; k < TOY_TENSORS; k++)
                TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
            TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
        }
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
        if (status != TUTTI_OK) {
            tutti_engine_close(e);
            return status;
        }
        /* without the padding at the end, which depends on the number of workers */
        j->hash[rank][s] = tutti_hash(m->x, m->layout->used * sizeof *m->x);
    }
    for (int to = 0; to < size; to++) {
        tutti_world_sent(world, to, &after, &messages);
        j->bytes[rank][to] = after - before[to];
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    tutti_engine_close(e);
    return TUTTI_OK;
}

static job *job_of(const char *method, const char *codec, const char *optimizer, const char *hierarchy, int members)
{
    job *j = calloc(1, sizeof *j);

    assert_non_null(j);
    j->t = toy_matrices();
    j->t.options.method = method;
    j->t.options.codec = codec;
    j->t.options.optimizer = optimizer;
    j->t.options.codec_hierarchy = hierarchy;
    j->t.options.data_samples = 0;
    j->members = members;
    j->bad = -1;
    return j;
}

static void run_job(job *j, int n)
{
    tutti_error err = { .rank = -1 };
    if (tutti_world_run("shm", n, run_rank, j, &err) != TUTTI_OK)
        fail_msg("%s, %s on %d: %s", j->t.options.method,
                 j->t.options.codec != NULL ? j->t.options.codec : "its own codec", n, err.text);
}

/* Both are run by n workers: the same models and the same bytes of every pair. */
static void run_alike(job *a, job *b, int n)
{
    run_job(a, n);
    run_job(b, n);
    assert_memory_equal(a->hash, b->hash, sizeof a->hash);
    assert_memory_equal(a->bytes, b->bytes, sizeof a->bytes);
    free(a);
    free(b);
}

static const struct { int workers, team; } layouts[] = { { 4, 2 }, { 6, 3 }, { 8, 2 } }; /* 8 / 2: owners of parts */

/* What a group sends internally for one sum of the whole and for handing it on, in its members'
   places. */
typedef struct dense { size_t n; uint64_t bytes[WORKERS][WORKERS]; } dense;
static tutti_status dense_rank(tutti_world *world, void *arg, tutti_error *err)
{
    dense *d = arg;
    const int rank = tutti_world_rank(world), size = tutti_world_size(world);
    tutti_group g = tutti_group_workers(world, tutti_port_of("dense", 0, 0));
    tutti_device *device;
    uint64_t before, after, messages;
    float *x = calloc(d->n, sizeof *x);
    tutti_status status = tutti_device_open_host(&device, tutti_world_runtime(world), TUTTI_CPU_AVX512, err);

    if (status == TUTTI_OK)
        status = tutti_allreduce_weighted(&g, 1, tutti_f32(device, x, d->n), err);
    if (status == TUTTI_OK)
        status = tutti_broadcast(&g, 0, tutti_f32(device, x, d->n), err);
    for (int to = 0; to < size && status == TUTTI_OK; to++) {
        before = 0;
        tutti_world_sent(world, to, &after, &messages);
        d->bytes[rank][to] = after - before;
    }
    free(x);
    tutti_device_close(device);
    return status;
}

static void codec_treats_each_team_as_one_worker(void **state)
{
    static const struct { const char *method, *codec, *optimizer; bool alike, counts; } cases[] = {
        { "ddp", "ef(topk(ratio=0.05))", "sgd(lr=0.05,momentum=0.9)", false, true },
        { "ddp", "ef(sign,server=on)", "sgd(lr=0.05)", false, true },
        { "ddp", "qsgd(bits=4)", "adam(lr=0.01)", false, true },
        { "ddp", "fp16", "sgd(lr=0.05)", false, true },
        { "ddp", "ef21(topk(ratio=0.1))", "sgd(lr=0.05)", false, true },
        { "powersgd(rank=2)", NULL, "sgd(lr=0.05,momentum=0.9)", false, true },
        { "gradient-sparsification", NULL, "sgd(lr=0.05)", false, true },
        { "dgc(ratio=0.05,min_numel=100,clip=3)", NULL, "sgd(lr=0.05)", false, true },
        /* what is learnt goes among all */
        { "alq(bucket=128,first=2,second=4,skip_below=0)", NULL, "sgd(lr=0.05)", false, false },
        { "accordion(low=topk(ratio=0.2),high=topk(ratio=0.02),interval=2,unit=step,eta=0.5,min_numel=0)", NULL,
          "sgd(lr=0.05)", false, false },
        { "onebit-adam(freeze_step=3)", NULL, "sgd(lr=0.01)", true, false },
        { "signum", NULL, "sgd(lr=0.01)", true, false },
        { "local-sgd(period=2)", "ef(topk(ratio=0.1))", "sgd(lr=0.05)", true, false },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (size_t l = 0; l < TUTTI_LENGTH(layouts); l++) {
            const int workers = layouts[l].workers, team = layouts[l].team, teams = workers / team;
            char hierarchy[16];
            job *a, *b;
            /* thirds of a number do not add up to it; halves do */
            if ((cases[c].alike && team == 3) || (c + l) % 2 == 1)
                continue;
            snprintf(hierarchy, sizeof hierarchy, "%d", team);
            a = job_of(cases[c].method, cases[c].codec, cases[c].optimizer, hierarchy, 1);
            b = job_of(cases[c].method, cases[c].codec, cases[c].optimizer, NULL, team);
            a->alike = b->alike = cases[c].alike;
            a->team = b->team = team;
            run_job(a, workers);
            run_job(b, teams);
            for (int s = 0; s < STEPS; s++)
                for (int r = 0; r < workers; r++) {
                    const bool together = strncmp(cases[c].method, "local-sgd", 9) != 0 || s % 2 == 1;
                    if (together ? a->hash[r][s] != b->hash[0][s] : a->hash[r][s] != b->hash[r / team][s])
                        fail_msg(
                            "%s, %s, %d workers in teams of %d, step %d: worker %d has another model than %d workers",
                            cases[c].method, cases[c].codec, workers, team, s, r, teams);
                }
            for (int from = 0; from < workers && cases[c].counts; from++)
                for (int to = 0; to < workers; to++) {
                    const bool firsts = from % team == 0 && to % team == 0;
                    if (from / team != to / team &&
                        a->bytes[from][to] != (firsts ? b->bytes[from / team][to / team] : 0))
                        fail_msg("%s, %d workers in teams of %d: %d bytes from %d to %d", cases[c].method, workers,
                                 team, (int)a->bytes[from][to], from, to);
                }
            if (cases[c].counts) {
                dense d = { .n = ELEMENTS };
                tutti_error err = { .rank = -1 };
                assert_int_equal(tutti_world_run("shm", team, dense_rank, &d, &err), TUTTI_OK);
                for (int from = 0; from < workers; from++)
                    for (int to = from / team * team; to < from / team * team + team; to++)
                        assert_int_equal(a->bytes[from][to], STEPS * d.bytes[from % team][to % team]);
            }
            free(a);
            free(b);
        }
}

/* Groups of one, and the one of a single worker, are no groups. */
static void teams_of_one_change_nothing(void **state)
{
    static const struct {
        int n;
        const char *hierarchy;
    } rows[] = { { 4, "1" }, { 4, "none" }, { 1, "machine" }, { 1, "1" } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        job *a = job_of("ddp", "ef(topk(ratio=0.05))", "sgd(lr=0.05)", rows[k].n == 1 ? NULL : rows[k].hierarchy, 1),
            *b = job_of("ddp", rows[k].n == 1 ? NULL : "ef(topk(ratio=0.05))", "sgd(lr=0.05)", NULL, 1);
        if (rows[k].n == 1)
            a->t.options.codec = NULL, a->t.options.codec_hierarchy = rows[k].hierarchy;
        run_alike(a, b, rows[k].n);
    }
}

static void hierarchy_machine_forms_one_team_per_host(void **state)
{
    static const struct { int n, of; } rows[] = { { 4, 2 }, { 6, 3 }, { 4, 1 } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        char team[8];
        job *a = job_of("ddp", "ef(sign)", "sgd(lr=0.05)", "machine", 1),
            *b = job_of("ddp", "ef(sign)", "sgd(lr=0.05)", team, 1);
        snprintf(team, sizeof team, "%d", rows[k].of);
        a->of_machine = b->of_machine = rows[k].of;
        run_alike(a, b, rows[k].n);
    }
}

/* All workers learn of a gradient that is not finite on a worker that does not encode; all skip
   the step, and what codecs keep is as if it had not been. */
static void step_with_nonfinite_gradient_is_skipped_by_all_teams(void **state)
{
    static const char *const codecs[] = { "ef(topk(ratio=0.05))", "ef(powersgd(rank=1))" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(codecs); k++) {
        job *a = job_of("ddp", codecs[k], "sgd(lr=0.05)", "2", 1),
            *b = job_of("ddp", codecs[k], "sgd(lr=0.05)", NULL, 2);
        a->t.options.nonfinite = b->t.options.nonfinite = TUTTI_NONFINITE_SKIP;
        a->bad = b->bad = 1;
        run_job(a, 4);
        run_job(b, 2);
        for (int s = 0; s < STEPS; s++)
            for (int r = 0; r < 4; r++)
                assert_int_equal(a->hash[r][s], b->hash[0][s]);
        assert_int_equal(a->hash[0][BAD_STEP], a->hash[0][BAD_STEP - 1]);
        free(a);
        free(b);
    }
}

static tutti_status refused_rank(tutti_world *world, void *arg, tutti_error *err)
{
    toy t = *(toy *)arg;
    tutti_engine *e;
    tutti_status status;

    if (t.steps == 0) /* machines that differ */
        put_on_machines(world, 2, 4);
    status = toy_open(&e, world, &t, err);
    tutti_engine_close(e);
    return status;
}

static void invalid_options_are_rejected(void **state)
{
    static const struct {
        const char *method, *codec, *hierarchy;
        tutti_codec_cost cost;
        const char *sentence;
    } rows[] = {
        { "ddp", "fp16", "machine", 0,
          "codec-hierarchy is 'machine', and all 6 workers are one team, so that nothing is left for codec 'fp16'; "
          "omit one of the two" },
        { "ddp", "fp16", "6", 0, "all 6 workers are one team" },
        { "ddp", "fp16", "4", 0, "codec-hierarchy is 4, which does not divide the 6 workers" },
        { "ddp", "fp16", "7", 0,
          "codec-hierarchy is '7'; it must be machine, none, or a number of workers from 1 to 6" },
        { "ddp", "fp16", "0", 0, "codec-hierarchy is '0'; it must be" },
        { "ddp", "fp16", "mashine", 0, "codec-hierarchy is 'mashine'; it must be" },
        { "ddp", "fp16", "2x", 0, "codec-hierarchy is '2x'; it must be" },
        { "ddp", NULL, "2", 0,
          "codec-hierarchy is '2', but gradients travel as they are: there is no codec; give one, or leave "
          "codec-hierarchy at none" },
        { "d-psgd", "fp16", "2", 0,
          "codec-hierarchy is '2', but the codec is of models, between neighbours, and no gradients are exchanged "
          "through it; leave codec-hierarchy at none" },
        { "ddp", "fp16", "unlike", 0,
          "codec-hierarchy=machine: there are 3 workers on the machine of worker 4 and 2 on that of worker 0; "
          "machines must have equally many, of consecutive ranks" },
        { "ddp", "fp16", "2", TUTTI_CODEC_COST_EXPLAIN, "codec-cost predicts exchanges among all workers" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        toy t = toy_default();
        tutti_error err = { .rank = -1 };
        t.options.method = rows[k].method;
        t.options.codec = rows[k].codec;
        t.options.codec_hierarchy = rows[k].hierarchy;
        t.options.codec_cost = rows[k].cost;
        if (strcmp(rows[k].hierarchy, "unlike") == 0)
            t.options.codec_hierarchy = "machine", t.steps = 0;
        if (tutti_world_run("shm", t.steps == 0 ? 7 : 6, refused_rank, &t, &err) != TUTTI_ERR_USAGE ||
            strstr(err.text, rows[k].sentence) == NULL)
            fail_msg("wanted '%s', got '%s'", rows[k].sentence, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codec_treats_each_team_as_one_worker),
        cmocka_unit_test(teams_of_one_change_nothing),
        cmocka_unit_test(hierarchy_machine_forms_one_team_per_host),
        cmocka_unit_test(step_with_nonfinite_gradient_is_skipped_by_all_teams),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
