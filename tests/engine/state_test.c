/* Goal: everything that outlives a step is saved. Method: run k steps, save, run on; load into a
   fresh engine, run on: same bits. Then zero each declared state after the load, one at a time: the
   run must differ, or the state need not be declared. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "sanitized.h"
#include "scratch.h"
#include "state/plan.h"
#include "toy.h"
#include "zeroed.h"

enum { SAVE_AT = 3, STEPS = 7 };

typedef struct saved_run {
    toy t;
    char directory[SCRATCH_PATH];
    int zero;                  /* state that is zeroed after the load; -1: none */
    bool save;
    uint64_t hash;
    uint64_t loaded;           /* rank 0's values right after the load, without the padding */
    /* after the load, as rank 0's server has it: versions that workers have, less that of the
       model; steps that they have been given */
    double off, quotas;
    uint64_t told;             /* of rank 0's gradients: how many it reports, and of how many
                                  the age is known; of a method's own figures those that do not
                                  depend on time */
    int states;                /* declared that are not scratch */
    char zeroed[64];
} saved_run;

/* What rank 0 has at the end: its model, and what it reports of its gradients of the whole
   run. */
static void look_at(saved_run *s, tutti_engine *e)
{
    static const char *const timeless[] = { "gradient_evaluations", "mixing_steps", "drift" };
    const tutti_metric_record *metrics;
    tutti_figures f;

    tutti_engine_figures(e, &f);
    s->hash = toy_hash(e);
    s->told = f.own_steps << 32 | f.staleness_gradients;
    for (int k = tutti_engine_metrics(e, &metrics) - 1; k >= 0; k--)
        for (size_t i = 0; i < TUTTI_LENGTH(timeless); i++)
            if (metrics[k].worker == 0 && strcmp(metrics[k].name, timeless[i]) == 0)
                s->told = 31 * s->told + tutti_hash(&metrics[k].value, sizeof metrics[k].value);
}

static tutti_status save_rank(tutti_world *world, void *arg, tutti_error *err)
{
    saved_run *s = arg;
    toy t = s->t;
    tutti_engine *e;

    TUTTI_TRY(toy_open(&e, world, &t, err));
    for (int k = 0; k < STEPS; k++) {
        if (k == SAVE_AT && s->save)
            TUTTI_TRY(tutti_engine_save(e, s->directory, "{}", 2, err));
        TUTTI_TRY(toy_step(e, &t, err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    if (tutti_world_rank(world) == 0)
        look_at(s, e);
    tutti_engine_close(e);
    return TUTTI_OK;
}

/* Number k of a state, or 0 where it is not this rank's. */
static double number_of(const tutti_engine *e, const char *name, size_t k)
{
    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, i, &memory);
        if (strcmp(s->name, name) == 0 && s->count > 0)
            return s->dtype == TUTTI_F64 ? ((double *)memory)[k] : (double)((int64_t *)memory)[k];
    }
    return 0;
}

static tutti_status load_rank(tutti_world *world, void *arg, tutti_error *err)
{
    saved_run *s = arg;
    toy t = s->t;
    tutti_engine *e;
    tutti_checkpoint *c;
    char found[512];
    const char *name = "";
    int states;

    t.options.seed = s->t.options.seed;
    TUTTI_TRY(toy_open(&e, world, &t, err));
    TUTTI_TRY(tutti_checkpoint_find(tutti_world_runtime(world), s->directory, found, sizeof found, NULL, 0, err));
    TUTTI_TRY(tutti_checkpoint_open(&c, tutti_world_runtime(world), found, err));
    const tutti_status loaded = tutti_engine_load(e, c, err);
    tutti_checkpoint_close(c);
    if (loaded != TUTTI_OK) {
        tutti_engine_close(e);
        return loaded;
    }
    for (int w = 0; w < tutti_world_size(world) && tutti_world_rank(world) == 0; w++) {
        s->off += fabs(number_of(e, "ringmaster.given", (size_t)w) - number_of(e, "server.version", 0));
        s->quotas += number_of(e, "oscars.workers", 12 * (size_t)w);
    }
    if (tutti_world_rank(world) == 0)
        s->loaded = tutti_hash(tutti_engine_method(e)->x, tutti_engine_method(e)->layout->used * sizeof(float));
    states = zeroed_state(e, s->zero, &name, NULL);
    if (tutti_world_rank(world) == 0)
        snprintf(s->zeroed, sizeof s->zeroed, "%s", name);
    tutti_status status = TUTTI_OK;
    for (int k = SAVE_AT; k < STEPS && status == TUTTI_OK; k++)
        status = toy_step(e, &t, err); /* may find what was zeroed */
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK && tutti_world_rank(world) == 0) {
        look_at(s, e);
        s->states = states;
    }
    tutti_engine_close(e);
    return status;
}

static void run(tutti_status (*rank)(tutti_world *, void *, tutti_error *), saved_run *s, int n)
{
    tutti_error err = { .rank = -1 };
    if (tutti_world_run("shm", n, rank, s, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", s->t.options.method, n, err.text);
}

static saved_run fresh(const char *method, const char *optimizer, const char *schedule)
{
    saved_run s = { .t = toy_default(), .zero = -1, .save = true };

    s.t.options.method = method;
    s.t.options.optimizer = optimizer;
    s.t.options.lr_schedule = schedule;
    s.t.options.steps = STEPS;
    s.t.count[1] = 1200; /* small: these tests run hundreds of engines */
    s.t.count[3] = 901;
    s.t.rows[1] = 30;
    scratch_make(s.directory);
    return s;
}

static void drop(const saved_run *s)
{
    scratch_remove(s->directory);
}

static const struct { const char *method, *optimizer; int n; const char *codec, *hierarchy;
} cases[] = {
    { "ddp", "sgd(lr=0.05,momentum=0.9)", 1 },
    { "ddp", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "ddp", "adam(lr=0.01)", 2 },
    { "ddp", "adamw(lr=0.01)", 4 },
    { "single", "sgd(lr=0.05,momentum=0.9)", 1 },
    { "single", "adamw(lr=0.01)", 3 },
    /* SAVE_AT is in mid-period */
    { "local-sgd(period=2)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "local-sgd(period=5)", "adamw(lr=0.01)", 2 },
    { "local-sgd(period=2,warmup=1)", "sgd(lr=0.05,momentum=0.9)", 2 },
    { "local-sgd(period=4,warmup=4)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "local-sgd(period=2,outer=sgd(lr=0.7,momentum=0.9,nesterov=true))", "adamw(lr=0.01)", 3 },
    { "local-sgd(period=2,outer=adam(lr=0.01))", "sgd(lr=0.05,momentum=0.9)", 1 },
    { "diloco(period=2)", "adamw(lr=0.01)", 3 },
    /* an exchange is under way */
    { "diloco(period=4,fragments=2,delay=1)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "diloco(period=2,delay=1,mix=0.5)", "sgd(lr=0.05)", 2, "ef(topk(ratio=0.05))" },
    { "diloco(period=4,fragments=2,weights=samples)", "sgd(lr=0.05)", 3 },
    { "diloco(period=2,overlap=eager)", "adamw(lr=0.01)", 3 },
    { "diloco(period=2,fragments=2,overlap=eager)", "sgd(lr=0.05)", 2, "ef(topk(ratio=0.05))" },
    { "diloco(period=1,overlap=delayed)", "sgd(lr=0.05,momentum=0.9)", 2 },
    { "diloco(period=2,delay=1,outer=adam(lr=0.01))", "sgd(lr=0.05,momentum=0.9)", 1 },
    { "palsgd(period=2,mix_prob=0.4)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "palsgd(period=2,mix_prob=0.3,warmup=1,coin=shared,outer=adam(lr=0.01))", "adamw(lr=0.01)", 2 },
    { "palsgd(period=5,form=elastic,outer=none)", "sgd(lr=0.05,momentum=0.9)", 2 },
    { "slowmo(period=2)", "adamw(lr=0.01)", 3 },
    { "slowmo(period=2,buffers=reset)", "adam(lr=0.01)", 2 },
    { "slowmo(period=2)", "sgd(lr=0.05)", 3, "ef(topk(ratio=0.05))" },
    { "slowmo(base=d-psgd,period=2)", "sgd(lr=0.05)", 3 },
    { "slowmo(base=d-psgd,period=2,order=atc,graph=exponential)", "adam(lr=0.01)", 4, "topk(ratio=0.05)" },
    { "slowmo(base=sgp,period=2,graph=star(weights=push),buffers=maintain)", "sgd(lr=0.05,momentum=0.9)", 3 },
    /* SAVE_AT is in mid-flight, too */
    { "slowmo(base=sgp,period=2,overlap=2,graph=star(weights=push))", "adam(lr=0.01)", 4 },
    { "d-psgd", "sgd(lr=0.05,momentum=0.9)", 1 },
    { "d-psgd", "sgd(lr=0.05,momentum=0.9)", 2 },
    { "d-psgd", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "d-psgd", "adamw(lr=0.01)", 7 },
    { "d-psgd(order=atc,graph=one-peer-exponential)", "sgd(lr=0.05,momentum=0.9)", 5 },
    { "d-psgd", "sgd(lr=0.05,momentum=0.9)", 3, "topk(ratio=0.05)" },
    { "d-psgd(order=atc,graph=exponential,gamma=0.2)", "sgd(lr=0.05)", 5, "large(sign,min=100)" },
    { "qg-dsgdm", "sgd(lr=0.05,momentum=0.9,nesterov=true)", 3 },
    { "qg-dsgdm(period=2,graph=one-peer-exponential)", "sgd(lr=0.05,momentum=0.9)", 5 },
    { "qg-dsgdm", "adam(lr=0.01)", 2 },
    { "gut", "sgd(lr=0.05)", 3 },
    { "gut(graph=exponential)", "sgd(lr=0.05,momentum=0.9,nesterov=true)", 4 },
    { "ddp", "sgd(lr=0.05,momentum=0.9)", 3, "ef(topk(ratio=0.05))" },
    { "ddp", "sgd(lr=0.05)", 4, "ef(sign,server=on)" },
    { "ddp", "sgd(lr=0.05)", 4, "ef(chunk-topk(topk=8,chunk=16),server=on)" },
    { "ddp", "sgd(lr=0.05)", 2, "ef(powersgd(rank=2))" },
    { "ddp", "adam(lr=0.01)", 4, "qsgd(coding=elias)" },
    { "ddp", "sgd(lr=0.05,momentum=0.9)", 4, "ef(topk(ratio=0.05))", "2" },
    { "powersgd(rank=2)", "sgd(lr=0.05)", 6, NULL, "2" },
    { "dgc(ratio=0.05,min_numel=1000)", "sgd(lr=0.05)", 8, NULL, "2" },
    /* SAVE_AT is in mid-flight */
    { "pipe-sgd(warmup=0)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "pipe-sgd(width=3,warmup=0)", "adamw(lr=0.01)", 2 },
    { "pipe-sgd(warmup=1,lr_scale=0.5)", "sgd(lr=0.05)", 4, "ef(topk(ratio=0.05))" },
    { "bytescheduler(partition_mb=0.001)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "zero(bucket_mb=0.001,first_bucket_mb=0.001)", "adamw(lr=0.01)", 3 },
    { "bytescheduler(over=servers,partition_mb=0.001,servers=2)", "adamw(lr=0.01)", 3 },
    { "saddle(sam_every=2)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "saddle(variant=n,sam_every=2)", "sgd(lr=0.05,momentum=0.9)", 4 },
    { "saddle(variant=n)", "sgd(lr=0.05,momentum=0.9)", 3, "topk(ratio=0.05)" },
    /* SAVE_AT is in the second round: slow models are under way */
    { "noloco(period=2)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "noloco(period=2,graph=ring)", "adamw(lr=0.01)", 4 },
    { "sgp(graph=star(weights=push))", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "sgp(graph=star(weights=push),overlap=2)", "sgd(lr=0.05,momentum=0.9)", 4 },
    { "lasgd(local_steps=3,max_delay=1)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "lasgd(local_steps=2,max_delay=0,warmup=1)", "adamw(lr=0.01)", 2 },
    { "asr-adpsgd(mixing=delay-by-one)", "sgd(lr=0.05,momentum=0.9)", 4 },
    { "rand-psgd(rounds=2)", "sgd(lr=0.05,momentum=0.9)", 5 },
    { "rand-psgd(mixing=delay-by-one)", "sgd(lr=0.05,momentum=0.9)", 2 },
    { "bagua(hierarchical=2)", "adamw(lr=0.01)", 4 },
    { "bagua(algorithm=bytegrad)", "sgd(lr=0.05,momentum=0.9)", 4 },
    { "bagua(algorithm=decentralized,communication_interval=2)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "bagua(algorithm=decentralized,peer_selection=shift_one)", "sgd(lr=0.05,momentum=0.9)", 4 },
    { "bagua(algorithm=low_precision_decentralized)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "bagua(algorithm=low_precision_decentralized,communication_interval=2)", "adamw(lr=0.01)", 2 },
    { "bagua(algorithm=low_precision_decentralized,hierarchical=2)", "sgd(lr=0.05)", 4 },
    { "parameter-server", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "parallax", "adamw(lr=0.01)", 3 },
    { "parameter-server(servers=1)", "adamw(lr=0.01)", 2 },
    { "herring(node=2,fusion_mb=0.01,min_shard_kb=0)", "adamw(lr=0.01)", 4 },
    { "herring(servers=2,wire=fp16)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "byteps(partition_bytes=1000)", "adamw(lr=0.01)", 3 },
    { "byteps(partition_bytes=1000,assign=greedy)", "adamw(lr=0.01)", 3 },
    { "byteps(partition_bytes=1000)", "sgd(lr=0.05)", 3, "topk(ratio=0.05)" },
    { "byteps(partition_bytes=1000,cross_barrier=on,priority=layer)", "sgd(lr=0.05,momentum=0.9)", 4 },
    { "backup-workers(backup=0)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "backup-workers(backup=0,servers=2)", "adamw(lr=0.01)", 4 },
    { "powersgd(rank=2)", "sgd(lr=0.05,momentum=0.9)", 2 },
    { "gradient-sparsification(select=topk,min_numel=1000)", "sgd(lr=0.05)", 3 },
    /* SAVE_AT is between two samples of a fit */
    { "alq(bucket=128,first=4,second=6,samples=2,skip_below=0)", "sgd(lr=0.05)", 3 },
    /* with buffers that are not empty, residuals of workers and of owners */
    { "scadles(rates=4:9:2,simulate_clock=on,batch_min=3,batch_max=7,policy=persistence,delta=1,server_ef=off)",
      "sgd(lr=0.05,momentum=0.9)", 3 },
    { "scadles(rates=4:9:2:3,simulate_clock=on,batch_min=5,batch_max=99,policy=cap,cap=9,delta=1)", "sgd(lr=0.05)", 4 },
    { "dgc(ratio=0.05,min_numel=1000)", "sgd(lr=0.05,weight_decay=0.1)", 4 },
    { "dgc", "sgd(lr=0.05)", 1 },
    { "onebit-adam(freeze_step=2)", "sgd(lr=0.01)", 4 },
    { "qadam(warmup_steps=2,error_feedback=on)", "sgd(lr=0.01)", 4 },
    { "bagua(algorithm=qadam,warmup_steps=2,correction=growing)", "sgd(lr=0.01)", 4 },
    { "signum", "sgd(lr=0.01)", 3 },
    { "signum", "sgd(lr=0.01)", 4 },
    { "demo(topk=4,chunk=16)", "sgd(lr=0.01)", 3 },
    { "demo(topk=4,chunk=16,decay=0.9,sign=off,mean=all)", "sgd(lr=0.01)", 4 },
    { "onebit-adam(freeze_step=0.2,bias_correction=on)", "sgd(lr=0.01)", 4 },
    /* from here on: residuals, or levels, are still 0 at SAVE_AT */
    { "onebit-adam(freeze_step=5)", "sgd(lr=0.01)", 4 },
    { "onebit-adam(beta2=0.5,beta1=0.5)", "sgd(lr=0.01)", 2 },
    /* and sizes are powers of two, which change a number that leaves the range only */
    { "powersgd(rank=2,factor_dtype=fp16)", "sgd(lr=0.05,momentum=0.9)", 3 },
    { "accordion(low=topk(ratio=0.1),high=topk(ratio=0.02),interval=2,unit=step,eta=5,min_numel=0)",
      "sgd(lr=0.05,momentum=0.9)", 2 },
    { "accordion(low=topk(ratio=0.1),high=topk(ratio=0.02),interval=2,unit=step,eta=0.3,norm_source=averaged,min_numel="
      "0)",
      "sgd(lr=0.05,momentum=0.9)", 3 },
    /* SAVE_AT is in the middle of an update; of a window */
    { "accordion(mode=batch,batch_high=24,interval=1,unit=step,eta=5)", "adam(lr=0.01)", 2 },
    { "accordion(mode=batch,batch_high=24,interval=2,unit=step,eta=5)", "sgd(lr=0.05,momentum=0.9)", 3 },
    /* likewise */
    { "accordion(mode=localsteps,period_low=2,period_high=5,interval=1,unit=step,eta=5)", "sgd(lr=0.05,momentum=0.9)",
      2 },
    { "accordion(mode=localsteps,period_low=1,period_high=3,interval=2,unit=step,eta=5)", "adam(lr=0.01)", 3 },
    /* sgd does not read how many updates it has made, except for the first */
    { "slowmo(period=2)", "sgd(lr=0.05,momentum=0.9)", 3 },
    /* an exchange is under way, during which the rate changes, and no residual is sent after it */
    { "diloco(period=4,delay=3,mix=0.5,outer=none)", "sgd(lr=0.05)", 3, "ef(topk(ratio=0.05))" },
    /* two machines have no owners of parts */
    { "bagua(algorithm=bytegrad,hierarchical=2)", "sgd(lr=0.05)", 4 },
};

static void a_resumed_run_ends_with_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i += UNLESS_SANITIZED(1, 2)) {
        saved_run s = fresh(cases[i].method, cases[i].optimizer, "cosine(warmup=2)");
        s.t.options.codec = cases[i].codec;
        s.t.options.codec_hierarchy = cases[i].hierarchy;
        uint64_t saved, plain, told;
        run(save_rank, &s, cases[i].n);
        saved = s.hash;
        told = s.told;
        s.save = false;
        run(save_rank, &s, cases[i].n);
        plain = s.hash;
        assert_int_equal(saved, plain); /* saving disturbs nothing */
        run(load_rank, &s, cases[i].n);
        assert_int_equal(s.hash, plain);
        assert_int_equal(s.told, told);
        drop(&s);
    }
}

/* Saved in an epoch after the first: what a codec does by the epoch continues from there, and is
   not what it would be in the first. */
static void codecs_resume_in_the_epoch_they_were_saved_in(void **state)
{
    /* first: what the codec would be if every epoch were the first */
    static const struct { const char *method, *optimizer, *codec, *first; int n; } rows[] = {
        { "ddp", "sgd(lr=0.05)", "ef(topk(ratio=0.001,warmup=4))", "ef(topk(ratio=0.2512))", 3 },
        { "ddp", "sgd(lr=0.05)", "ef(topk(ratio=0.001,warmup=4),server=on)", "ef(topk(ratio=0.2512),server=on)", 4 },
        { "d-psgd", "sgd(lr=0.05)", "topk(ratio=0.001,warmup=4)", "topk(ratio=0.2512)", 3 },
        { "d-psgd(order=atc)", "sgd(lr=0.05)", "large(topk(ratio=0.001,warmup=4),min=100)",
          "large(topk(ratio=0.2512),min=100)", 2 },
        { "dgc(ratio=0.001,min_numel=100)", "sgd(lr=0.05)", NULL, NULL, 3 },
        { "dgc(ratio=0.001,min_numel=100,warmup_ratios=0.3:0.2:0.1:0.05)", "sgd(lr=0.05)", NULL, NULL, 3 },
        { "ddp", "sgd(lr=0.05)", "ef(topk(ratio=0.001,warmup_ratios=0.3:0.2:0.1:0.05))", "ef(topk(ratio=0.3))", 3 },
        { "ddp", "sgd(lr=0.05)", "ef(accordion(low=topk(ratio=0.3),high=topk(ratio=0.01),interval=1,eta=9))",
          "ef(topk(ratio=0.3))", 3 },
        { "ddp", "sgd(lr=0.05)", "ef(accordion(low=topk(ratio=0.3),high=topk(ratio=0.01),interval=2,eta=9))",
          "ef(topk(ratio=0.3))", 2 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(rows); i++)
        for (int steps = 1; steps <= 2; steps++) { /* in an epoch: saved before epoch 3, and in the middle of epoch 1 */
            saved_run s = fresh(rows[i].method, rows[i].optimizer, "constant");
            uint64_t plain;
            s.t.options.codec = rows[i].codec;
            s.t.options.data_samples = (uint64_t)(steps * rows[i].n * 4);
            run(save_rank, &s, rows[i].n);
            plain = s.hash;
            s.hash = 0;
            run(load_rank, &s, rows[i].n);
            if (s.hash != plain)
                fail_msg("%s, %s, %d steps an epoch: a resumed run ends elsewhere", rows[i].method,
                         rows[i].codec != NULL ? rows[i].codec : "its own codec", steps);
            drop(&s);
            if (rows[i].first == NULL)
                continue;
            s = fresh(rows[i].method, rows[i].optimizer, "constant");
            s.t.options.codec = rows[i].first;
            s.t.options.data_samples = (uint64_t)(steps * rows[i].n * 4);
            s.save = false;
            run(save_rank, &s, rows[i].n);
            assert_true(s.hash != plain);
            drop(&s);
        }
}

static void zeroing_any_non_scratch_state_changes_the_resumed_run(void **state)
{
    (void)state;
    if (SANITIZED_THREAD)
        skip(); /* hundreds of engines more, with the threads of those above */
    for (size_t i = 0; i < TUTTI_LENGTH(cases) - 12; i++) {
        saved_run s = fresh(cases[i].method, cases[i].optimizer, "cosine(warmup=2)");
        s.t.options.codec = cases[i].codec;
        s.t.options.codec_hierarchy = cases[i].hierarchy;
        uint64_t plain, told;
        run(save_rank, &s, cases[i].n);
        plain = s.hash;
        told = s.told;
        run(load_rank, &s, cases[i].n);
        assert_true(s.states >= 3); /* x, progress, at least one slot */
        for (s.zero = 0; s.zero < s.states; s.zero++) {
            tutti_error err = { .rank = -1 };
            /* some cannot be 0, and are refused */
            if (tutti_world_run("shm", cases[i].n, load_rank, &s, &err) == TUTTI_OK && s.hash == plain &&
                s.told == told)
                fail_msg("%s, %s: zeroing '%s' changed nothing: it need not be declared, or it is not restored",
                         cases[i].method, cases[i].codec != NULL ? cases[i].codec : cases[i].optimizer, s.zeroed);
        }
        drop(&s);
    }
}

/* ---- a method that has begun to count its steps: older checkpoints have no such state ---- */

typedef struct aged { int64_t steps; } aged;
static bool declares, late;

static tutti_status aged_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    aged *s = m->self;

    (void)err;
    if (declares)
        (late ? tutti_declare_late_value : tutti_declare_value)(plan, "aged.steps", TUTTI_OWN_ZERO, s, sizeof *s);
    return TUTTI_OK;
}

static tutti_status aged_step(tutti_method *m, tutti_error *err)
{
    ((aged *)m->self)->steps++;
    return tutti_base_step(m, err);
}

static const tutti_method_ops aged_ops = {
    .name = "aged", .self_bytes = sizeof(aged), .declare = aged_declare, .step = aged_step,
};
static const tutti_method_ops *const aged_methods[] = { &aged_ops, NULL };

/* Two steps that are saved, or two more from there; s->states: the count at the end. */
static tutti_status aged_rank(tutti_world *world, void *arg, tutti_error *err)
{
    saved_run *s = arg;
    const tutti_param param = { .name = "w", .dims = 1, .dim = { 8 } };
    const tutti_engine_options options = { .method = "aged", .optimizer = "sgd(lr=0.5)", .batch = 1 };
    tutti_engine *e;
    tutti_checkpoint *c;
    tutti_pass p;
    char found[512];
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(tutti_engine_open_from(&e, world, &param, 1, &options, aged_methods, err));
    if (!s->save) {
        TUTTI_TRY(tutti_checkpoint_find(tutti_world_runtime(world), s->directory, found, sizeof found, NULL, 0, err));
        TUTTI_TRY(tutti_checkpoint_open(&c, tutti_world_runtime(world), found, err));
        status = tutti_engine_load(e, c, err);
        tutti_checkpoint_close(c);
    }
    for (int k = 0; k < 2 && status == TUTTI_OK; k++) {
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
            TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
        }
        status = status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
    }
    if (status == TUTTI_OK && s->save)
        status = tutti_engine_save(e, s->directory, "{}", 1, err);
    s->states = (int)((const aged *)tutti_engine_method(e)->self)->steps;
    tutti_engine_close(e);
    return status;
}

static void state_absent_from_older_checkpoints_is_saved_afterwards(void **state)
{
    saved_run s = fresh("aged", "sgd(lr=0.5)", "constant");
    tutti_error err = { .rank = -1 };

    (void)state;
    declares = false;
    run(aged_rank, &s, 1);
    s.save = false;
    declares = true;
    late = false;
    assert_int_equal(tutti_world_run("shm", 1, aged_rank, &s, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "has no 'aged.steps/'; it was saved with another model, method, codec"));
    late = true;
    run(aged_rank, &s, 1);
    assert_int_equal(s.states, 2); /* from there on */
    s.save = true;
    run(aged_rank, &s, 1);
    s.save = false;
    run(aged_rank, &s, 1);
    assert_int_equal(s.states, 4); /* what is there is read */
    drop(&s);
}

/* A residual is a group's: what it would be for other groups is not known. */
static void checkpoint_of_teams_is_rejected_by_other_teams(void **state)
{
    static const struct { const char *saved, *hierarchy; int n; const char *sentence; } rows[] = {
        { "2", "4", 8,
          "the checkpoint was saved by 8 workers in teams of 2, and this run has 8 in teams of 4: what a codec "
          "keeps is a team's, and of other teams it would be another; resume it with -n 8 and codec-hierarchy=2" },
        { "2", "2", 4, "and this run has 4 in teams of 2" },
        { "2", NULL, 8, "and this run has 8 in teams of 1" },
        { NULL, "2", 8, "saved by 8 workers in teams of 1" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        saved_run s = fresh("ddp", "sgd(lr=0.05)", "constant");
        tutti_error err = { .rank = -1 };
        s.t.options.codec = "ef(topk(ratio=0.05))";
        s.t.options.codec_hierarchy = rows[k].saved;
        run(save_rank, &s, 8);
        s.t.options.codec_hierarchy = rows[k].hierarchy;
        if (tutti_world_run("shm", rows[k].n, load_rank, &s, &err) != TUTTI_ERR_USAGE ||
            strstr(err.text, rows[k].sentence) == NULL)
            fail_msg("wanted '%s', got '%s'", rows[k].sentence, err.text);
        drop(&s);
    }
}

/* Equal replicas: a checkpoint of n workers is one of m workers too, as
   long as a step has the same samples. */
static void a_checkpoint_of_equal_replicas_loads_at_any_number_of_workers(void **state)
{
    static const char *const methods[] = {
        "ddp", "parameter-server", "herring(node=none)", "byteps", "backup-workers(backup=0)", "parallax"
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        saved_run s = fresh(methods[k], "sgd(lr=0.05,momentum=0.9)", "constant");
        uint64_t three;
        s.t.options.data_samples = 0;
        s.t.options.batch = 4;
        run(save_rank, &s, 3);
        run(load_rank, &s, 3);
        three = s.loaded;
        for (int n = 1; n <= 6; n += n == 1 ? 1 : 4) { /* 12 samples a step: 12 x 1, 6 x 2, 2 x 6 */
            s.t.options.batch = 12 / n;
            run(load_rank, &s, n);
            assert_int_equal(s.loaded, three); /* every element, whichever workers saved it and read it */
        }
        drop(&s);
    }
}

/* Values at servers: all begin at the servers' model then, whatever each worker had. */
static void a_checkpoint_of_servers_loads_at_any_number_of_workers(void **state)
{
    static const char *const methods[] = {
        "asgd", "asgd(softsync=2,compensate=adaptive)", "ssp", "ringmaster-asgd", "ringleader-asgd",
        "ringleader-asgd(table=worker)", "dude-asgd", "dude-asgd(table=worker,group=1)", "oscars(interval=3)",
        "decoupled-diloco(period=2)", "decoupled-diloco(period=2,quorum=1,outer=adam(lr=0.01))",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        saved_run s = fresh(methods[k], "sgd(lr=0.01,momentum=0.9)", "constant");
        uint64_t two = 0;
        s.t.options.data_samples = 0;
        s.t.options.batch = 4;
        run(save_rank, &s, 3);
        for (int n = 2; n <= 6; n += n == 2 ? UNLESS_SANITIZED(2, 4) : 1) {
            s.off = s.quotas = 0;
            run(load_rank, &s, n);
            if (strncmp(methods[k], "ringmaster", 10) == 0)
                assert_true(s.off == 0);
            if (strncmp(methods[k], "oscars", 6) == 0)
                assert_true(s.quotas == n);
            two = n == 2 ? s.loaded : two;
            assert_int_equal(s.loaded, two);
        }
        drop(&s);
    }
}

typedef struct told { const char *directory; int64_t numbers[3]; } told;

static tutti_status told_rank(tutti_world *world, void *arg, tutti_error *err)
{
    told *t = arg;
    const tutti_saved item = {
        .state = "engine.members", .tensor = "", .keep = TUTTI_SAME, .dtype = TUTTI_I64, .owner = -1, .count = 3,
        .begin = 0, .end = 3, .data = t->numbers,
    };

    return tutti_checkpoint_save(world, t->directory, SAVE_AT, &item, tutti_world_rank(world) == 0, "{}", 1, err);
}

static void checkpoint_with_inconsistent_worker_counts_is_rejected(void **state)
{
    static const int64_t numbers[][3] = {
        { 1, 0, 1 }, { 3, 0, 3 }, { 3, 1, 0 }, { 3, 1, 1 }, { 3, -1, 1 }, { INT64_MAX, 0, 1 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(numbers); k++) {
        saved_run s = fresh("dude-asgd", "sgd(lr=0.05)", "constant");
        told t = { .directory = s.directory, .numbers = { numbers[k][0], numbers[k][1], numbers[k][2] } };
        tutti_error err = { .rank = -1 };
        assert_int_equal(tutti_world_run("shm", 2, told_rank, &t, &err), TUTTI_OK);
        assert_int_equal(tutti_world_run("shm", 2, load_rank, &s, &err), TUTTI_ERR_CORRUPT);
        assert_non_null(strstr(err.text, "of the 2 that were left; use an older one"));
        drop(&s);
    }
}

static void per_worker_state_requires_the_same_number_of_workers(void **state)
{
    saved_run s = fresh("single", "sgd(lr=0.05,momentum=0.9)", "constant");
    tutti_error err = { .rank = -1 };

    (void)state;
    run(save_rank, &s, 2);
    assert_int_equal(tutti_world_run("shm", 3, load_rank, &s, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "the checkpoint was saved by 2 workers and each worker of 'single' has a state of "
                                  "its own; resume it with -n 2 instead of 3");
    drop(&s);
}

/* What the model has still to receive: the mean of what workers hold back, and what the owners of
   the mean's parts do. */
typedef struct owed { double mean[4096], owner[4096], momentum[4096]; } owed;

static void add_up(const tutti_engine *e, const char *name, double by, double *sum)
{
    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, i, &memory);
        for (size_t k = 0; strcmp(s->name, name) == 0 && k < s->count && k < 4096; k++)
            sum[k] += by * (double)((float *)memory)[k];
    }
}

typedef struct regrown { saved_run s; bool load; owed owed; int stranded; pthread_mutex_t lock; } regrown;

/* Tensors whose owner's residual this worker has loaded and not used since. */
static int stranded(const tutti_engine *e, const double *given)
{
    const tutti_layout *l = tutti_engine_method(e)->layout;
    double now[4096] = { 0 };
    int found = 0;

    add_up(e, "codec.owner", 1, now);
    for (int t = 0; t < l->n_tensors; t++) {
        bool any = false, used = false;
        for (size_t i = l->tensor[t].first; i < l->tensor[t].first + l->tensor[t].count; i++) {
            any = any || given[i] != 0;
            used = used || now[i] != given[i];
        }
        found += any && !used;
    }
    return found;
}

static tutti_status regrown_rank(tutti_world *world, void *arg, tutti_error *err)
{
    regrown *g = arg;
    toy t = g->s.t;
    tutti_engine *e;
    tutti_status status = TUTTI_OK;
    double given[4096] = { 0 };

    TUTTI_TRY(toy_open(&e, world, &t, err));
    if (g->load) {
        tutti_checkpoint *c;
        char found[512];
        status = tutti_checkpoint_find(tutti_world_runtime(world), g->s.directory, found, sizeof found, NULL, 0, err);
        if (status == TUTTI_OK)
            status = tutti_checkpoint_open(&c, tutti_world_runtime(world), found, err);
        if (status == TUTTI_OK) {
            status = tutti_engine_load(e, c, err);
            tutti_checkpoint_close(c);
        }
    } else
        for (int k = 0; k < SAVE_AT && status == TUTTI_OK; k++)
            status = toy_step(e, &t, err);
    pthread_mutex_lock(&g->lock);
    add_up(e, strncmp(t.options.codec, "dgc", 3) == 0 ? "codec.v" : "codec.e", 1.0 / tutti_engine_method(e)->workers,
           g->owed.mean);
    add_up(e, "codec.owner", 1, g->owed.owner);
    add_up(e, "codec.owner", 1, given);
    add_up(e, strncmp(t.options.codec, "dgc", 3) == 0 ? "codec.u" : "codec.momentum", 1, g->owed.momentum);
    pthread_mutex_unlock(&g->lock);
    if (status == TUTTI_OK && !g->load)
        status = tutti_engine_save(e, g->s.directory, "{}", 2, err);
    for (int k = SAVE_AT; k < STEPS && status == TUTTI_OK && g->load; k++)
        status = toy_step(e, &t, err);
    if (g->load)
        __atomic_add_fetch(&g->stranded, stranded(e, given), __ATOMIC_RELAXED);
    tutti_engine_close(e);
    return status;
}

static void residuals_are_preserved_for_another_number_of_workers(void **state)
{
    static const char *const codecs[] = { "ef(topk)", "ef(sign,server=on)", "dgc", "ef(topk,momentum=0.9)",
                                          "ef(chunk-topk(topk=8,chunk=16),server=on)" };
    static const int from[] = { 3, 5, 4, 2, 5 }, to[] = { 2, 4, 7, 1, 4 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(codecs); c++)
        for (int grows = 0; grows < 2; grows++) {
            static regrown before, after;
            tutti_error err = { .rank = -1 };
            double held = 0;
            before = (regrown){ .s = fresh("ddp", "sgd(lr=0.05)", "constant"), .lock = PTHREAD_MUTEX_INITIALIZER };
            before.s.t.options.codec = codecs[c];
            after = before;
            after.load = true;
            assert_int_equal(tutti_world_run("shm", grows ? to[c] : from[c], regrown_rank, &before, &err), TUTTI_OK);
            if (tutti_world_run("shm", grows ? from[c] : to[c], regrown_rank, &after, &err) != TUTTI_OK)
                fail_msg("%s: %s", codecs[c], err.text);
            for (size_t i = 0; i < 2151; i++) { /* the toy's elements */
                held = fmax(held, fabs(before.owed.mean[i]));
                if (!(fabs(after.owed.mean[i] - before.owed.mean[i]) < 1e-6) ||
                    !(fabs(after.owed.owner[i] - before.owed.owner[i]) < 1e-6) || after.owed.momentum[i] != 0)
                    fail_msg("%s, %d to %d workers, element %zu: held back %g, %g, then %g, %g", codecs[c],
                             grows ? to[c] : from[c], grows ? from[c] : to[c], i, before.owed.mean[i],
                             before.owed.owner[i], after.owed.mean[i], after.owed.owner[i]);
            }
            assert_true(held > 0.1);
            assert_int_equal(after.stranded, 0);
            drop(&before.s);
        }
}

static void merged_step_sums_require_the_same_number_of_workers(void **state)
{
    saved_run s = fresh("accordion(mode=batch)", "sgd(lr=0.05)", "constant");
    tutti_error err = { .rank = -1 };

    (void)state;
    run(save_rank, &s, 3);
    assert_int_equal(tutti_world_run("shm", 2, load_rank, &s, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "the checkpoint was saved by 3 workers, and each has 'engine.merge-mine' of its own, "
                                  "which would be lost with a worker; resume it with -n 3 instead of 2");
    drop(&s);
}

static void checkpoint_of_another_optimizer_is_rejected_by_missing_state(void **state)
{
    saved_run s = fresh("ddp", "sgd(lr=0.05,momentum=0.9)", "constant");
    tutti_error err = { .rank = -1 };

    (void)state;
    run(save_rank, &s, 2);
    s.t.options.optimizer = "adam(lr=0.01)";
    assert_int_equal(tutti_world_run("shm", 2, load_rank, &s, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "optim.exp_avg"));
    drop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_ends_with_the_same_bits),
        cmocka_unit_test(codecs_resume_in_the_epoch_they_were_saved_in),
        cmocka_unit_test(zeroing_any_non_scratch_state_changes_the_resumed_run),
        cmocka_unit_test(state_absent_from_older_checkpoints_is_saved_afterwards),
        cmocka_unit_test(checkpoint_of_teams_is_rejected_by_other_teams),
        cmocka_unit_test(a_checkpoint_of_equal_replicas_loads_at_any_number_of_workers),
        cmocka_unit_test(a_checkpoint_of_servers_loads_at_any_number_of_workers),
        cmocka_unit_test(checkpoint_with_inconsistent_worker_counts_is_rejected),
        cmocka_unit_test(per_worker_state_requires_the_same_number_of_workers),
        cmocka_unit_test(residuals_are_preserved_for_another_number_of_workers),
        cmocka_unit_test(merged_step_sums_require_the_same_number_of_workers),
        cmocka_unit_test(checkpoint_of_another_optimizer_is_rejected_by_missing_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
