/* Goal: every method and every codec runs under this MPI, with the bits of shared memory where a
   run's bits are its seed's, and towards the optimum where they follow the clock. Method: the
   registries, so a new one is in at once; one job of four ranks runs them all, one after the other,
   each in a world of its own, and rank 0 runs them again in threads. */
#include "trial.h"
#include "../transport/mpi_job.h"
#include "tutti/codec.h"
#include "tutti/method.h"
#include "codec/codec.h"

enum { WORKERS = 4, STEPS = 6, MOST = 128, PART = 12, SET = WORKERS * PART, BYTES = 9 };
/* Methods that need more than their name, or have several forms. follows: the method depends on
   the clock, though its traits do not show that. */
static const struct { const char *name, *spec; bool follows;
} forms[] = {
    { "parameter-server", "parameter-server(servers=3)" },
    { "herring", "herring(node=2,fusion_mb=0.001,min_shard_kb=0)" },
    { "herring", "herring(servers=3,wire=fp16)" },
    { "byteps", "byteps(partition_bytes=1000,wire=fp16)" },
    { "byteps", "byteps(async=on)" },
    { "local-sgd", "local-sgd(period=4,outer=sgd(lr=0.7,momentum=0.9))" },
    { "diloco", "diloco(period=4,fragments=2,delay=1)" },
    { "palsgd", "palsgd(period=3,mix_prob=0.4)" },
    { "bagua", "bagua(hierarchical=2)" },
    { "bagua", "bagua(algorithm=bytegrad,hierarchical=2)" },
    { "bagua", "bagua(algorithm=decentralized,peer_selection=shift_one)" },
    { "bagua", "bagua(algorithm=low_precision_decentralized)" },
    { "bagua", "bagua(algorithm=async,sync_interval_ms=1)", true },
    { "biased-local-sgd", "biased-local-sgd(steps=3:1:2:3,bias_ratio=1,agg_mix=0.5)" },
    { "biased-local-sgd", "biased-local-sgd(steps=1:3:2:3,bias_ratio=2)" }, /* samples by name, scores by all */
    { "lasgd", "lasgd(local_steps=2,max_delay=1)" },
    { "lasgd", "lasgd", true },
    { "slowmo", "slowmo(base=sgp,overlap=1,period=2)" },
    { "d-psgd", "d-psgd" },
    { "d-psgd", "d-psgd(one-peer-exponential,order=atc)" },
    { "noloco", "noloco(period=3)" },
    { "qg-dsgdm", "qg-dsgdm(period=2)" },
    { "saddle", "saddle" },
    { "saddle", "saddle(variant=n,sam_every=2)" },
    { "gut", "gut" },
    { "prague", "prague" },
    { "prague", "prague(generator=static,group_size=2)" },
    { "prague", "prague(generator=random,overlap=on)" },
    { "hop", "hop" },
    { "hop", "hop(staleness=3,backup=1,skip=on)", true },
    { "sgp", "sgp" },
    { "sgp", "sgp(graph=star(weights=push),overlap=2)" },
    { "rand-psgd", "rand-psgd" },
    { "rand-psgd", "rand-psgd(mixing=delay-by-one)" },
    { "rand-psgd", "rand-psgd(pace=own)" },
    { "asr-adpsgd", "asr-adpsgd" },
    { "asr-adpsgd", "asr-adpsgd(mixing=random-ring,rounds=2)" },
    { "asr-adpsgd", "asr-adpsgd(mixing=delay-by-one)" },
    { "h-adpsgd", "h-adpsgd(super_learner=2)" },
    { "dabmd", "dabmd(compute_ms=1e6,microbatch=1,graph=ring,consensus=2)" },
    { "dabmd", "dabmd", true },
    { "ssp", "ssp", true },
    { "backup-workers", "backup-workers(backup=0)" },
    { "backup-workers", "backup-workers", true },
    { "ringmaster-asgd", "ringmaster-asgd(max_delay=2,stops=on)" },
    { "ringleader-asgd", "ringleader-asgd" },
    { "ringleader-asgd", "ringleader-asgd(table=worker)" },
    { "dude-asgd", "dude-asgd(table=worker,group=2)" },
    { "dude-asgd", "dude-asgd" },
    { "hermes", "hermes(push=always,minibatch=1,chunk=4,local_passes=2)" },
    { "oscars", "oscars(interval=2)" },
    { "decoupled-diloco", "decoupled-diloco(period=3)" },
    { "decoupled-diloco", "decoupled-diloco(period=3,quorum=2)", true },
    { "hetero-ring", "hetero-ring(allocation=static,shares=1:3:2:2,collective=ring)" },
    { "ata", "ata(allocation=fixed,seconds=1:3:2:2)" },
    { "ata", "ata", true },
    { "pipe-sgd", "pipe-sgd(width=3,warmup=1)" },
    { "bytescheduler", "bytescheduler(partition_mb=0.001,credit_mb=0.003)" },
    { "zero", "zero(bucket_mb=0.001,first_bucket_mb=0.001)" },
    { "zero", "zero(stage=3,bucket_mb=0.001,first_bucket_mb=0.001)" },
    { "zero-infinity", "zero-infinity(bucket_mb=0.001,first_bucket_mb=0.001)" },
    { "zero-offload", "zero-offload(bucket_mb=0.001,first_bucket_mb=0.001)" },
    { "parallax", "parallax(servers=3)" },
    { "stragglar", "stragglar(straggler=1,min_bytes=1)" },
    { "scadles", "scadles(rates=2,batch_min=1,simulate_clock=on)" },
    { "scadles", "scadles(rates=4:6:3:5,batch_max=6,simulate_clock=on,inject_alpha=0.5,inject_beta=0.5)" },
    { "alq", "alq(bucket=256,first=1,second=4)" },
    { "amq", "amq(bucket=256,first=1,second=4)" },
    { "accordion", "accordion(unit=step,interval=1)" },
    { "onebit-adam", "onebit-adam(freeze_step=2)" },
    { "qadam", "qadam(warmup_steps=2)" },
};
static const struct { const char *name, *spec;
} wrapped[] = {
    { "ef", "ef(topk(ratio=0.05))" },
    { "ef21", "ef21(sign,eta=0.5)" },
    { "large", "large(qsgd(bits=4),min=600)" },
    { "accordion", "accordion(low=topk(ratio=0.2),high=topk(ratio=0.01),unit=step,interval=1)" },
    { "alq", "alq(bucket=256,first=1,second=4)" },
    { "amq", "amq(bucket=256,first=1,second=4)" },
    { "qsgd", "qsgd(bits=3,coding=elias)" },
    { "randomk", "randomk(ratio=0.1,block=8)" },
};

typedef struct list { trial t[MOST]; bool follows[MOST]; int n; } list;

static double held_out(trial *t, int rank, const float *x)
{
    (void)t;
    (void)rank;
    return (double)x[0] * (double)x[0] + 1;
}

/* ---- samples by name, and samples sent ---- */

static uint64_t part_first[WORKERS + 1];
static uint32_t part_sample[SET];
static const tutti_parts parts = { part_first, part_sample };

/* A sample's number and a byte that follows from it; its class is the worker that has it. */
static tutti_status give(void *user, const uint64_t *ids, size_t n, void *out, tutti_error *err)
{
    uint8_t *to = out;

    (void)user, (void)err;
    for (size_t k = 0; k < n; k++, to += BYTES) {
        memcpy(to, &ids[k], sizeof ids[k]);
        to[8] = (uint8_t)(ids[k] * 37 + 11);
    }
    return TUTTI_OK;
}

static int label(void *user, uint64_t id)
{
    (void)user;
    return (int)(id / PART);
}

/* A hash of the named samples and of those received, which are the same over any transport. */
static tutti_status look(trial *t, int rank, const tutti_pass *p, tutti_error *err)
{
    const uint8_t *come = p->given;

    for (int64_t k = 0; p->ids != NULL && k < p->samples; k++)
        t->seen[rank] = t->seen[rank] * 31 + p->ids[k] + 1;
    for (int64_t k = 0; p->losses != NULL && k < p->samples; k++) /* a loss that depends on its position */
        p->losses[k] = (float)((p->position + (uint64_t)k) * 29 % 17);
    for (int64_t k = 0; k < p->received; k++, come += BYTES) {
        uint64_t id;
        memcpy(&id, come, sizeof id);
        if (id >= SET || id / PART == (uint64_t)rank || come[8] != (uint8_t)(id * 37 + 11))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "worker %d was given sample %llu", rank,
                              (unsigned long long)id);
        t->seen[rank] = t->seen[rank] * 31 + id + 1;
    }
    return TUTTI_OK;
}

static void with_samples(trial *t)
{
    for (uint64_t r = 0; r <= WORKERS; r++)
        part_first[r] = r * PART;
    for (uint32_t i = 0; i < SET; i++)
        part_sample[i] = i;
    t->look = look;
    t->options.data_samples = SET;
    t->options.names = true;
    if (strstr(t->method, "inject") != NULL) {
        t->options.parts = &parts;
        t->options.sample_bytes = BYTES;
        t->options.give = give;
        t->options.label = label;
    }
}

static void add(list *l, const char *method, const char *codec, bool follows)
{
    unsigned traits;
    trial *t = &l->t[l->n];

    assert_true(l->n < MOST && tutti_method_traits(method, &traits));
    *t = trial_of(method, "sgd(lr=0.02)", STEPS);
    t->count[0] = 10000;
    t->options.codec = codec;
    t->held_out = held_out;
    if (strstr(method, "bias_ratio=2") != NULL || strstr(method, "inject") != NULL)
        with_samples(t);
    l->follows[l->n] = follows || (traits & TUTTI_ASYNC);
    t->asks = traits & TUTTI_ASYNC;
    l->n++;
}

static void all(list *l)
{
    for (size_t i = 0; tutti_methods[i] != NULL; i++) {
        bool found = false;
        if (tutti_methods[i]->drive != NULL) /* those need a client of their own: cli/transports */
            continue;
        for (size_t k = 0; k < TUTTI_LENGTH(forms); k++)
            if (strcmp(forms[k].name, tutti_methods[i]->name) == 0) {
                found = true;
                add(l, forms[k].spec, NULL, forms[k].follows);
            }
        if (!found)
            add(l, tutti_methods[i]->name, NULL, false);
    }
    for (size_t i = 0; tutti_codecs[i] != NULL; i++) {
        const char *spec = tutti_codecs[i]->name;
        for (size_t k = 0; k < TUTTI_LENGTH(wrapped); k++)
            if (strcmp(wrapped[k].name, tutti_codecs[i]->name) == 0)
                spec = wrapped[k].spec;
        add(l, "ddp", spec, false);
    }
}

/* Squared distance from the mean of the workers' optima. */
static double from_optimum(const trial *t, const float *x)
{
    double sum = 0;

    for (size_t i = 0; i < trial_size(t); i++) {
        double b = 0;
        for (int r = 0; r < WORKERS; r++)
            b += (double)((r * 13 + (int)(i % 17)) % 19) / 8 / WORKERS;
        sum += ((double)x[i] - b) * ((double)x[i] - b);
    }
    return sum;
}

static bool right(const trial *t, bool follows)
{
    trial same = *t;
    tutti_error err;
    float *first;
    double before, after;
    int differs = -1;

    if (follows) {
        first = tutti_alloc(trial_size(t), sizeof *first);
        for (size_t i = 0; i < trial_size(t); i++)
            first[i] = trial_initial_value(i);
        before = from_optimum(t, first);
        after = from_optimum(t, t->x[0][STEPS]);
        tutti_free(first);
        if (!(after < before))
            fprintf(stderr, "%s: %g from the optimum, and it began at %g\n", t->method, sqrt(after), sqrt(before));
        return after < before;
    }
    memset(same.x, 0, sizeof same.x);
    memset(same.seen, 0, sizeof same.seen);
    if (trial_try(&same, WORKERS, &err) != TUTTI_OK) {
        fprintf(stderr, "%s over shared memory: %s\n", t->method, err.text);
        return false;
    }
    for (int s = 0; s <= STEPS && differs < 0; s++)
        if (!trial_same(t, t->x[0][s], same.x[0][s]))
            differs = s;
    if (t->seen[0] != same.seen[0] || (t->look != NULL && t->seen[0] == 0)) {
        fprintf(stderr, "%s: other samples than over shared memory, or none\n", t->method);
        trial_drop(&same);
        return false;
    }
    if (differs >= 0)
        fprintf(stderr, "%s%s%s: differs from shared memory after step %d\n", t->method,
                t->options.codec != NULL ? " with " : "", t->options.codec != NULL ? t->options.codec : "", differs);
    trial_drop(&same);
    return differs < 0;
}

static int rank_of_all(void)
{
    static list l;
    tutti_error err = { .rank = -1 };
    tutti_status status = TUTTI_OK;
    int wrong = 0, rank = 0;

    all(&l);
    for (int k = 0; k < l.n && status == TUTTI_OK; k++) {
        trial *t = &l.t[k];
        tutti_world *world = NULL;
        status = tutti_world_open(&world, "mpi", &err);
        if (status == TUTTI_OK) {
            rank = tutti_world_rank(world);
            for (int s = 0; s <= STEPS; s++)
                t->x[rank][s] = tutti_alloc(trial_size(t), sizeof(float));
            status = trial_rank(world, t, &err);
        }
        if (status != TUTTI_OK)
            fprintf(stderr, "%s%s%s on rank %d: %s: %s\n", t->method, t->options.codec != NULL ? " with " : "",
                    t->options.codec != NULL ? t->options.codec : "", rank, tutti_status_name(status), err.text);
        tutti_world_close(world);
    }
    for (int k = 0; k < l.n && status == TUTTI_OK && rank == 0; k++)
        wrong += !right(&l.t[k], l.follows[k]);
    for (int k = 0; k < l.n; k++)
        trial_drop(&l.t[k]);
    return status != TUTTI_OK || wrong > 0;
}

static void methods_and_codecs_over_mpi_match_shared_memory(void **state)
{
    char *arguments[] = { (char *)"rank", NULL };

    (void)state;
    assert_int_equal(mpi_job_run(WORKERS, arguments), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(methods_and_codecs_over_mpi_match_shared_memory) };

    if (mpi_job_inside())
        return rank_of_all();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
