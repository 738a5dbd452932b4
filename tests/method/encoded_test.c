/* Goal: methods that are a codec under synchronous data parallelism are exactly that, with their
   own defaults, and report what they must of it. Method: the toy client on ranks that are
   threads; a second, separate computation where there is a formula. */
#include "encoded.h"

static const int sizes[] = { 1, 2, 4, 5 };

/* ---- a codec under synchronous data parallelism ---- */

/* The same model on all workers after every step as under ddp with that codec
   (NULL: with none), and the same bytes. */
static void same_as_ddp(const char *method, const char *codec, const char *optimizer, int n, int steps)
{
    job *a = job_of(method, NULL, optimizer, steps), *b = job_of("ddp", codec, optimizer, steps);

    run_job(a, n);
    run_job(b, n);
    for (int s = 0; s < steps; s++) {
        if (a->hash[0][s] != b->hash[0][s] || (codec != NULL && a->bytes[s] != b->bytes[s]))
            fail_msg("%s on %d workers, step %d: not ddp with %s", method, n, s, codec);
        for (int r = 1; r < n; r++)
            assert_int_equal(a->hash[r][s], a->hash[0][s]);
    }
    free(a);
    free(b);
}

static void methods_match_ddp_with_their_codec_and_default_options(void **state)
{
    static const struct { const char *method, *codec;
    } cases[] = {
        { "powersgd", "ef(powersgd(rank=1,min_compression_rate=2,start_iter=0,warm_start=on,ef_rule=local))" },
        { "powersgd(rank=3,start_iter=2,min_compression_rate=1,warm_start=off,ef_rule=aggregated)",
          "ef(powersgd(rank=3,min_compression_rate=1,start_iter=2,warm_start=off,ef_rule=aggregated))" },
        { "powersgd(rank=2,error_feedback=off)", "powersgd(rank=2)" },
        { "powersgd(start_iter=100)", NULL },                  /* until then it is ddp */
        { "powersgd(rank=512,min_compression_rate=1)", NULL }, /* as many as the lesser side of each matrix */
        { "qsgd", "large(qsgd(bits=4,bucket=512,norm=max,coding=fixed),min=1024)" },
        { "qsgd(bits=2,norm=l2,code=elias-gamma,skip_below=0,bucket=128)",
          "qsgd(bits=2,norm=l2,coding=elias,bucket=128)" },
        { "qsgd(code=elias-omega,skip_below=2500)", "large(qsgd(coding=omega),min=2500)" },
        { "qsgd(levels=5,exclude=?.bias:[d-z]*,skip_below=0)", "large(qsgd(levels=5),min=0,exclude=[acde].*)" },
        { "qsgd(levels=5,exclude=*,skip_below=0)", NULL },
        { "qsgd(exclude=d.weight)", "large(fp32,min=2500,small=large(qsgd))" },
        { "nuqsgd", "large(nuqsgd(bits=4,bucket=512,norm=l2),min=1024)" },
        { "nuqsgd(bits=3,bucket=64,norm=max,skip_below=0)", "nuqsgd(bits=3,bucket=64,norm=max)" },
        { "nuqsgd(code=elias-gamma,skip_below=0)", "nuqsgd(coding=elias)" },
        { "nuqsgd(bits=3,bucket=64,code=elias-omega,zero_level=off)",
          "large(nuqsgd(bits=3,bucket=64,coding=omega,zero_level=off),min=1024)" },
        { "nuqsgd(tail=dense,exclude=b.weight)", "large(nuqsgd(tail=dense),min=2500)" },
        { "alq", "large(alq(bits=3,bucket=8192,norm=l2,coding=fixed,variant=cd,zero_level=off,fit=mixture,components="
                 "64,weight=norm2,first=100,second=2000,every=10000,on_lr_drop=on),min=8192)" },
        { "alq", NULL }, /* no tensor of the toy has a bucket */
        { "alq(bits=4,bucket=256,norm=max,code=huffman,variant=gd,zero_level=on,components=5,weight=norm,first=2,"
          "second=0,every=0,on_lr_drop=off,skip_below=0)",
          "alq(bits=4,bucket=256,norm=max,coding=huffman,variant=gd,zero_level=on,components=5,weight=norm,first=2,"
          "second=0,every=0,on_lr_drop=off)" },
        { "alq(bucket=128,first=1,second=3,skip_below=0,tail=dense,exclude=*.bias)",
          "large(alq(bucket=128,first=1,second=3,tail=dense),min=34)" },
        { "alq(bucket=128,fit=single,first=1,second=3,skip_below=2500)",
          "large(alq(bucket=128,fit=single,first=1,second=3),min=2500)" },
        { "amq", "large(amq(bits=3,bucket=8192,norm=l2,coding=fixed,fit=mixture,components=64,weight=norm2,first=100,"
                 "second=2000,every=10000,on_lr_drop=on),min=8192)" },
        { "amq(bits=2,bucket=64,norm=max,code=huffman,fit=single,first=0,second=0,every=2,on_lr_drop=off,skip_below=0)",
          "amq(bits=2,bucket=64,norm=max,coding=huffman,fit=single,first=0,second=0,every=2,on_lr_drop=off)" },
        { "accordion", "large(ef(accordion(low=powersgd(rank=4),high=powersgd(rank=1),eta=0.5,interval=10,unit=epoch,"
                       "scope=layer,lr_drop=0.5)),min=1024)" },
        { "accordion(low=topk(ratio=0.1),high=topk(ratio=0.01),eta=2,interval=1,unit=step,scope=model,lr_drop=0.1,min_"
          "numel=0)",
          "ef(accordion(low=topk(ratio=0.1),high=topk(ratio=0.01),eta=2,interval=1,unit=step,scope=model,lr_drop=0.1)"
          ")" },
        { "accordion(low=qsgd(bits=8),high=qsgd(bits=2),eta=0.1,interval=2,unit=step,error_feedback=off)",
          "large(accordion(low=qsgd(bits=8),high=qsgd(bits=2),eta=0.1,interval=2,unit=step),min=1024)" },
        { "gradient-sparsification", "large(wangni(sparsity=0.01),min=1024)" },
        { "gradient-sparsification(solver=closed,epsilon=0.25)", "large(wangni(epsilon=0.25,solver=closed),min=1024)" },
        { "gradient-sparsification(select=topk,ratio=0.05)", "large(ef(topk(ratio=0.05)),min=1024)" },
        { "gradient-sparsification(select=topk,ef=off,min_numel=0)", "topk(ratio=0.01)" },
        /* a step is an epoch here */
        { "gradient-sparsification(select=topk,warmup_ratios=0.5:0.5:0.5:0.5:0.5:0.5:0.5:0.5:0.5:0.5)",
          "large(ef(topk(ratio=0.5)))" },
        { "gradient-sparsification(select=topk,ratio=0.01,warmup=3)", "large(ef(topk(ratio=0.01,warmup=3)))" },
        { "gradient-sparsification(select=topk,ratio=0.05,value_dtype=fp16,index_code=delta,exclude=d.weight)",
          "large(fp32,min=2500,small=large(ef(topk(ratio=0.05,value_dtype=fp16,index_code=delta))))" },
        { "gradient-sparsification(select=randk)", "large(ef(randomk(ratio=0.01)),min=1024)" },
        { "gradient-sparsification(select=blockk,block=64,ef=off,min_numel=0,ratio=0.1)",
          "randomk(ratio=0.1,block=64,unbiased=on)" },
        { "gradient-sparsification(select=topk,ratio=1,min_numel=0)", NULL },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++)
            same_as_ddp(cases[c].method, cases[c].codec, "sgd(lr=0.05,momentum=0.9)", sizes[p], 4);
}

static tutti_status refused_rank(tutti_world *world, void *arg, tutti_error *err)
{
    toy t = *(toy *)arg;
    tutti_engine *e;
    const tutti_status status = toy_open(&e, world, &t, err);

    tutti_engine_close(e);
    return status;
}

static void conflicting_options_are_rejected(void **state)
{
    static const struct { const char *method, *codec, *optimizer, *sentence; double clip; } cases[] = {
        { "powersgd", "topk", NULL, "codec is 'topk', but method 'powersgd' brings its own, 'ef(powersgd(rank=1,", 0 },
        { "qsgd(bits=1)", NULL, NULL, "codec 'qsgd': bits is 1, and a sign and at least one level above 0 take 2", 0 },
        { "qsgd(bits=3,levels=3)", NULL, NULL, "bits is 3 and levels is 3, and either determines the other", 0 },
        { "qsgd(exclude=a.bias:f.*)", NULL, NULL,
          "exclude has 'f.*', and no tensor has such a name; there are e.bias, d.weight, c.bias, b.weight, a.bias", 0 },
        { "gradient-sparsification(value_dtype=fp16)", NULL, NULL, "'value_dtype'", 0 },
        { "gradient-sparsification(epsilon=0.5)", NULL, NULL, "'epsilon'",
          0 }, { "gradient-sparsification(solver=closed,ratio=0.1)", NULL, NULL, "'ratio'", 0 },
        { "gradient-sparsification(select=topk,solver=closed)", NULL, NULL, "'solver'", 0 },
        { "qsgd(bucket=500)", NULL, NULL, "bucket is 500 and must be a power of two", 0 },
        { "nuqsgd(bits=2)", NULL, NULL, "'bits' is 2", 0 },
        { "gradient-sparsification(ratio=1.5)", NULL, NULL, "'ratio' is 1.5", 0 },
        { "alq(bucket=500)", NULL, NULL, "bucket is 500 and must be a power of two", 0 },
        { "alq(first=10,second=5)", NULL, NULL, "second is 5 and must be after first, 10", 0 },
        { "amq(bits=1)", NULL, NULL, "'bits' is 1", 0 },
        { "amq(variant=gd)", NULL, NULL, "'variant'", 0 },
        { "alq", "fp16", NULL, "brings its own, 'large(alq(bits=3,", 0 },
        { "dgc", NULL, "sgd(lr=0.1,momentum=0.9)",
          "method 'dgc' keeps the momentum of what it holds back itself, and a second one would push everything "
          "twice; write --optimizer 'sgd(lr=0.1)', without momentum, instead of 'sgd'", 0 },
        { "dgc", NULL, "adam", "instead of 'adam'", 0 },
        { "dgc", "topk", "sgd(lr=0.1)", "brings its own, 'dgc(codec=large(topk(", 0 },
        { "dgc", NULL, "sgd(lr=0.1)", "clip-norm is 1, but method 'dgc' updates along a direction of its own", 1 },
        { "dgc(ratio=1000)", NULL, "sgd(lr=0.1)",
          "'ratio' is 1000; it must be from 1e-9 to 1 (share of a tensor's elements sent; of a factor of 1000: "
          "0.001", 0 },
        { "dgc(warmup=6,warmup_ratios=0.25:0.063)", NULL, "sgd(lr=0.1)",
          "warmup is 6 epochs, and warmup_ratios gives the ratio of each of 2", 0 },
        { "gradient-sparsification(select=topk,warmup_ratios=0.1:0.2)", NULL, NULL,
          "warmup_ratios: epoch 1 has 0.2 after 0.1", 0 },
        { "gradient-sparsification(warmup=3)", NULL, NULL, "option 'warmup' has no effect with select=wangni", 0 },
        { "accordion(low=topk(ratio=0.01),high=topk(ratio=0.1))", NULL, NULL,
          "low compresses more than high; swap them", 0 },
        { "accordion(low=ef(topk),high=topk,min_numel=0)", NULL, NULL, "low and high are plain ones", 0 },
        { "accordion(low=qsgd(bits=8),high=qsgd(bits=2))", NULL, NULL, "unbiased", 0 },
        { "accordion(low=topq)", NULL, NULL, "unknown codec 'topq'; did you mean 'topk'?", 0 },
        { "accordion(low=)", NULL, NULL, "low", 0 },
        { "accordion(eta=-1)", NULL, NULL, "'eta' is -1", 0 },
        { "accordion", "topk", NULL, "brings its own", 0 },
        { "onebit-adam", NULL, "sgd(lr=0.1,momentum=0.9)",
          "method 'onebit-adam' is an optimiser itself and takes the learning rate of a plain one; write "
          "--optimizer 'sgd(lr=0.001)', without momentum, instead of 'sgd'", 0 },
        { "onebit-adam", NULL, "adam", "instead of 'adam'", 0 },
        { "onebit-adam", NULL, "sgd(lr=0.001)",
          "clip-norm is 1, but method 'onebit-adam' updates along a direction of its own", 1 },
        { "onebit-adam", "fp16", "sgd(lr=0.001)", "brings its own", 0 },
        { "signum", NULL, "sgd(lr=0.1,momentum=0.9)",
          "method 'signum' has a momentum of its own, and its step is a sign times the learning rate of a plain "
          "optimiser; write --optimizer 'sgd(lr=0.0001)'", 0 },
        { "signum", NULL, "sgd(lr=0.001)", "clip-norm is 1, but method 'signum' updates along a direction of its own",
          1 },
        { "local-sgd", "large(sign-vote,min=10)", NULL,
          "codec 'sign-vote' makes a vote of what workers send, and method 'local-sgd' sends how far models have "
          "moved", 0 },
        { "d-psgd", "sign-vote", NULL, "sign-vote", 0 },
        { "qadam", NULL, "adam", "method 'qadam' is an optimiser itself", 0 },
        { "qadam(chunk=9)", NULL, "sgd(lr=0.001)", "chunk is 9", 0 },
        { "onebit-adam(freeze_step=1.5)", NULL, "sgd(lr=0.001)",
          "freeze_step is 1.5, which is neither a whole number of steps nor a share of the run, below 1", 0 },
        { "qadam(warmup_steps=0.5)", NULL, "sgd(lr=0.001)",
          "warmup_steps is 0.5, a share of the run, and how many steps that has is not known; give a number of "
          "steps", 0 },
        { "onebit-adam(beta2=0.9999995)", NULL, "sgd(lr=0.001)", "'beta2' is", 0 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        toy t = toy_default();
        tutti_error err = { .rank = -1 };
        t.options.method = cases[c].method;
        t.options.codec = cases[c].codec;
        t.options.optimizer = cases[c].optimizer;
        t.options.clip_norm = cases[c].clip;
        if (tutti_world_run("shm", 2, refused_rank, &t, &err) != TUTTI_ERR_USAGE ||
            strstr(err.text, cases[c].sentence) == NULL)
            fail_msg("%s: wanted '%s', got '%s'", cases[c].method, cases[c].sentence, err.text);
    }
}

static void too_large_a_variance_is_warned_of(void **state)
{
    static const struct { const char *method, *codec; bool warned; } cases[] = {
        { "nuqsgd",                   NULL,                                    false },
        { "nuqsgd(bits=3)",           NULL,                                    true },
        { "nuqsgd(bits=3,bucket=64)", NULL,                                    false },
        { "ddp",                      "nuqsgd(bits=3)",                        true },
        { "ddp",                      "nuqsgd(bits=3,bucket=64,coding=elias)", false },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        job *j = job_of(cases[c].method, cases[c].codec, "sgd(lr=0.05)", 1);
        run_job(j, 2);
        assert_int_equal(j->events, cases[c].warned);
        free(j);
    }
}

/* ---- alq, amq ---- */

static void levels_are_fitted_on_schedule_or_a_warning_given(void **state)
{
    static const struct { const char *method, *said; bool fits, small; } cases[] = {
        { "alq(bucket=128,first=2,second=0,every=0,skip_below=0)", "levels: alq: step 2: psi ",
          true }, { "amq(bucket=128,first=2,second=0,every=0,skip_below=0)", "levels: amq: step 2: psi ", true },
        { "alq(bucket=128,first=0,second=0,every=0,skip_below=0)", NULL, false },
        { "alq(bucket=256,first=0,second=0,every=0,skip_below=0,initial=powers)",
          "codec: alq: until levels are fitted to gradients, rounding adds about 3.", false },
        { "alq", "codec: no tensor that is quantised has a whole bucket of 8192 elements", false, true },
        { "amq(bucket=2048,skip_below=4000)", "codec: no tensor", false, true },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        job *j = job_of(cases[c].method, NULL, "sgd(lr=0.05)", 3);
        run_job(j, 2);
        /* the levels at the beginning are reported too, and what a method of a codec does not
           encode because it is small */
        assert_int_equal(j->events,
                         (strstr(cases[c].method, "powers") == NULL) + (cases[c].said != NULL) + cases[c].small);
        assert_int_equal(was_said(j, "codec: large: 2 of 2 matrices"), cases[c].small);
        assert_true(cases[c].said == NULL || was_said(j, cases[c].said));
        free(j);
        /* 2 workers, each to the other: scales and 3 bits an element, and before step 2 the
           norms and the levels of a fit too */
        if (cases[c].fits) {
            job *d = job_of(cases[c].method, NULL, "sgd(lr=0.05)", 4);
            uint64_t formula = 0;
            run_job(d, 2);
            for (int t = 0; t < TOY_TENSORS; t++)
                formula += 2 * (4 * ((d->t.count[t] + 127) / 128) + (3 * d->t.count[t] + 7) / 8);
            assert_int_equal(d->bytes[1], formula);
            assert_int_equal(d->bytes[3], formula);
            assert_true(d->bytes[2] > formula);
            free(d);
        }
    }
}

/* ---- dgc ---- */

static void dgc_is_its_codec_under_plain_sgd(void **state)
{
    static const struct { const char *method, *codec;
    } cases[] = {
        { "dgc", "dgc(large(topk(ratio=0.001,warmup=4),min=1024))" },
        { "dgc(ratio=0.02,warmup=0,value_dtype=bf16,index_code=auto,min_numel=0,exclude=\"b.*:[c,e].bias\")",
          "dgc(large(topk(ratio=0.02,value_dtype=bf16,index_code=auto),min=0,exclude=\"b.*:[c,e].bias\"))" },
        { "dgc(ratio=0.02,warmup=0,momentum=0.8,nesterov=on,masking=off,clip=3,server_ef=off,min_numel=2500)",
          "dgc(large(topk(ratio=0.02),min=2500),momentum=0.8,nesterov=on,masking=off,clip=3,server=off)" },
        /* a step is an epoch here */
        { "dgc(warmup_ratios=0.25:0.25:0.25:0.25:0.25)", "dgc(large(topk(ratio=0.25)))" },
        { "dgc(ratio=0.01,warmup=0,warmup_ratios=0.5:0.1)", "dgc(large(topk(ratio=0.01,warmup_ratios=0.5:0.1)))" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (size_t p = 1; p < TUTTI_LENGTH(sizes); p++)
            same_as_ddp(cases[c].method, cases[c].codec, "sgd(lr=0.05)", sizes[p], 5);
}

/* Nothing is held back where all is sent (by ratio or by size) or where there is no peer to send
   to: the result is ordinary momentum, which masking leaves alone. */
static void dgc_without_anything_held_back_is_sgd_with_momentum(void **state)
{
    static const struct { const char *method, *optimizer; bool one; } cases[] = {
        { "dgc(momentum=0.8)", "sgd(lr=0.05,momentum=0.8)", true },
        { "dgc(nesterov=on)", "sgd(lr=0.05,momentum=0.9,nesterov=on)", true },
        { "dgc(momentum=0)", "sgd(lr=0.05)", true },
        { "dgc(ratio=1,warmup=0)", "sgd(lr=0.05,momentum=0.9)", false },
        { "dgc(min_numel=100000,nesterov=on)", "sgd(lr=0.05,momentum=0.9,nesterov=on)", false },
        { "dgc(ratio=1,warmup=0,masking=off,min_numel=0)", "sgd(lr=0.05,momentum=0.9)", false },
        { "dgc", "sgd(lr=0.05,momentum=0.9,weight_decay=0.5)", true },
        { "dgc(momentum=0)", "sgd(lr=0.05,weight_decay=0.5)", true },
        { "dgc(ratio=1,warmup=0)", "sgd(lr=0.05,momentum=0.9,weight_decay=0.5)", false },
        { "dgc(ratio=1,warmup=0,momentum=0)", "sgd(lr=0.05,weight_decay=0.5)", false },
        { "dgc(min_numel=100000,nesterov=on)", "sgd(lr=0.05,momentum=0.9,nesterov=on,weight_decay=0.5)", false },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (size_t p = 0; p < (cases[c].one ? 1 : TUTTI_LENGTH(sizes)); p++) {
            job *a = job_of(cases[c].method, NULL, strstr(cases[c].optimizer, "decay") != NULL
                    ? "sgd(lr=0.05,weight_decay=0.5)" : "sgd(lr=0.05)", 8), *b = job_of("ddp", NULL,
                    cases[c].optimizer, 8);
            run_job(a, sizes[p]);
            run_job(b, sizes[p]);
            for (int i = 0; i < ELEMENTS; i++)
                if (fabs((double)a->x[8][i] - (double)b->x[8][i]) > 1e-5)
                    fail_msg("%s on %d: element %d is %g, with %s %g", cases[c].method, sizes[p], i, (double)a->x[8][i],
                             cases[c].optimizer, (double)b->x[8][i]);
            free(a);
            free(b);
        }
}

/* A weight without gradients shrinks as under SGD with momentum, whatever is held back of the
   others: b <- m b + wd x; x <- x - lr b, nesterov: lr (wd x + m b). */
static void dgc_decays_weights_with_its_momentum(void **state)
{
    enum { N = 12, DEAD = 700 };
    static const struct { const char *method; double momentum; bool nesterov; } cases[] = {
        { "dgc(ratio=0.02,warmup=0)", 0.9, false },
        { "dgc(ratio=0.02,warmup=0,momentum=0.5,nesterov=on)", 0.5, true },
        { "dgc(ratio=0.02,warmup=0,momentum=0)", 0, false },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
            job *j = job_of(cases[c].method, NULL, "sgd(lr=0.125,weight_decay=0.25)", N);
            double x, b = 0, m = cases[c].momentum;
            j->dead = DEAD;
            run_job(j, sizes[p]);
            x = (double)j->x[0][DEAD];
            assert_true(fabs(x) > 0.01);
            for (int s = 0; s < N; s++) {
                b = m * b + 0.25 * x;
                x -= 0.125 * (cases[c].nesterov ? 0.25 * x + m * b : b);
                if (fabs(x - (double)j->x[s + 1][DEAD]) > 1e-5)
                    fail_msg("%s on %d, step %d: a weight of %g became %g and should be %g", cases[c].method,
                            sizes[p], s, (double)j->x[0][DEAD], (double)j->x[s + 1][DEAD], x);
            }
            free(j);
        }
}

/* One worker clips as the others do: a tensor's gradient to at most clip, so that a step without
   momentum moves its weights by at most lr clip. */
static void dgc_clips_tensors_of_a_single_worker(void **state)
{
    job *j = job_of("dgc(momentum=0,clip=20)", NULL, "sgd(lr=0.1)", 4);

    (void)state;
    run_job(j, 1);
    for (int s = 0; s < 4; s++)
        for (int t = 0, at = 0; t < TOY_TENSORS; at += (int)j->t.count[t++]) {
            double moved = 0, norm = 0;
            for (int i = at; i < at + (int)j->t.count[t]; i++) {
                moved += pow((double)j->x[s + 1][i] - (double)j->x[s][i], 2);
                norm += (double)j->g[s][i] * (double)j->g[s][i];
            }
            assert_true(fabs(sqrt(moved) - 0.1 * fmin(20, sqrt(norm))) < 1e-5);
        }
    free(j);
}

/* ---- powersgd ---- */

/* A warm start continues with the columns that were sent before. Without error feedback the run
   reports, once, what becomes of the rest; for any other setting of the two options it reports
   nothing. */
static void powersgd_warns_of_a_warm_start_without_error_feedback(void **state)
{
    static const struct {
        const char *method;
        bool said;
    } cases[] = { { "powersgd(error_feedback=off)", true },
                  { "powersgd", false },
                  { "powersgd(warm_start=off)", false },
                  { "powersgd(error_feedback=off,warm_start=off)", false } };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        job *j = job_of(cases[c].method, NULL, "sgd(lr=0.05)", 2);
        const char *said;
        run_job(j, 2);
        said = strstr(j->event, "without error_feedback the factors of a warm start keep to the directions");
        assert_int_equal(said != NULL, cases[c].said);
        assert_true(said == NULL || strstr(said + 1, "without error_feedback") == NULL);
        free(j);
    }
}

/* ---- accordion ---- */

/* With equal settings, or eta=0, or before the first check it is the static codec, to the bit;
   afterwards, with an eta that nothing reaches, `high` in every byte. */
static void accordion_switches_to_the_high_codec_outside_critical_regimes(void **state)
{
    static const struct { const char *method, *as; int from, until; bool bits; } cases[] = {
        { "accordion(low=powersgd(rank=2),high=powersgd(rank=2),interval=2,unit=step,min_numel=0)",
          "powersgd(rank=2)", 0, 10, true },
        { "accordion(eta=0,interval=2,unit=step,min_numel=0)", "powersgd(rank=4)", 0, 10, true },
        /* two windows, since a norm needs another to compare with */
        { "accordion(eta=1e9,interval=3,unit=step,min_numel=0)", "powersgd(rank=4)", 0, 6, true },
        { "accordion(eta=1e9,interval=3,unit=step,min_numel=0)", "powersgd(rank=1)", 7, 9, false },
        { "accordion(low=topk(ratio=0.1),high=topk(ratio=0.01),eta=1e9,interval=3,unit=step)",
          "gradient-sparsification(select=topk,ratio=0.01)", 7, 9, false },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
            job *a = job_of(cases[c].method, NULL, "sgd(lr=0.05,momentum=0.9)", 10),
                *b = job_of(cases[c].as, NULL, "sgd(lr=0.05,momentum=0.9)", 10);
            run_job(a, sizes[p]);
            run_job(b, sizes[p]);
            for (int s = cases[c].from; s < cases[c].until; s++) {
                const bool check =
                    s > 0 && s % (strstr(cases[c].method, "interval=2") != NULL ? 2 : 3) == 0 && sizes[p] > 1;
                if (cases[c].bits)
                    assert_int_equal(a->hash[0][s], b->hash[0][s]);
                if (check ? a->bytes[s] <= b->bytes[s] : a->bytes[s] != b->bytes[s])
                    fail_msg("%s on %d workers, step %d: %d bytes, %s has %d", cases[c].method, sizes[p], s,
                             (int)a->bytes[s], cases[c].as, (int)b->bytes[s]);
            }
            free(a);
            free(b);
        }
}

static void accordion_is_low_again_when_the_learning_rate_falls(void **state)
{
    job *j = job_of("accordion(eta=1e9,interval=3,unit=step,min_numel=0)", NULL, "sgd(lr=0.05)", 13);

    (void)state;
    j->t.options.lr_schedule = "step(every=10,gamma=0.1)";
    j->t.options.steps = 13;
    run_job(j, 2);
    /* 10: the rate falls; 12: the next check */
    assert_true(j->bytes[8] < j->bytes[1] && j->bytes[10] == j->bytes[1] && j->bytes[11] == j->bytes[1]);
    assert_true(j->bytes[12] < j->bytes[1]);
    free(j);
}

/* An interval as long as the run, or half of it: nothing would ever be compared. The run reports
   that before the first step. */
static void accordion_warns_when_no_check_can_take_effect(void **state)
{
    static const struct { const char *method; uint64_t steps; const char *said;
    } cases[] = {
        { "accordion(mode=batch,interval=5,unit=step)", 10,
          "codec: accordion: no update has batch_high samples in this run: the first check that can do so comes after "
          "10 steps, and the run has 10; take an interval of about 3 % of "
          "the run" },
        { "accordion(mode=batch,interval=5,unit=step)", 11, NULL },
        { "accordion(mode=batch,interval=5,unit=step)", 0, NULL },
        { "accordion(mode=batch,interval=10)", 11,
          "codec: accordion: no update has batch_high samples in this run: the first check that can do so comes after "
          "11 epochs, and the run has 11; take an interval of about 3 % of the run, "
          "or unit=step" },
        { "accordion(mode=batch,interval=10)", 12, NULL },
        { "accordion(mode=batch,interval=5,unit=step,eta=0)", 10, NULL },
        { "accordion(mode=batch,interval=5,unit=step,replay=3.h)", 10, NULL },
        /* as a step's: nothing would grow anyway */
        { "accordion(mode=batch,interval=5,unit=step,batch_high=8)", 10, NULL },
        { "accordion(mode=localsteps,interval=5,unit=step)", 10,
          "codec: accordion: no period has period_high steps in this run: the first check that can do so comes "
          "after 10 steps" },
        { "accordion(mode=localsteps,interval=5,unit=step)", 11, NULL },
        { "accordion(mode=localsteps,interval=5,unit=step,period_low=8)", 10, NULL },
        { "accordion(mode=localsteps,interval=5,unit=step,replay=3.h)", 10, NULL },
        { "accordion(low=topk(ratio=0.5),high=topk,interval=5,unit=step)", 10,
          "codec: accordion: nothing is compressed more in this run: the first check" },
        { "accordion(low=topk(ratio=0.5),high=topk,interval=5,unit=step)", 11, NULL },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        job *j = job_of(cases[c].method, NULL, "sgd(lr=0.05)", 1);
        j->t.options.batch = 4;
        j->t.options.accumulate = 1;
        j->t.options.data_samples = 8; /* a step is an epoch */
        j->t.options.steps = cases[c].steps;
        run_job(j, 2);
        if (j->events != (cases[c].said != NULL) || (cases[c].said != NULL && !was_said(j, cases[c].said)))
            fail_msg("%s in %d steps: %d events, '%s'", cases[c].method, (int)cases[c].steps, j->events, j->event);
        free(j);
    }
}

/* One line a check, with what the decision was based on, in the terms of the mode; in a dry run
   the same with a mark. */
static void accordion_logs_the_norms_behind_each_decision(void **state)
{
    static const struct { const char *method, *low, *high;
    } cases[] = {
        { "accordion(mode=localsteps,interval=2,unit=step,eta=0.02%s)", "an averaging every 1 steps",
          "an averaging every 8 steps" },
        { "accordion(mode=batch,batch_high=24,interval=2,unit=step,eta=0.02%s)", "12 samples an update",
          "24 samples an update" },
    };
    enum { N = 3 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int dry = 0; dry < 2; dry++) {
            char method[100], words[100];
            job *j;
            double was = 0;
            int levels[2] = { 0 };
            snprintf(method, sizeof method, cases[c].method, dry ? ",dry_run=on" : "");
            j = job_of(method, NULL, "sgd(lr=1e-30)", 9);
            j->alike = true;
            j->t.options.batch = 4;
            run_job(j, N);
            assert_int_equal(j->events, 4);
            for (int s = 2; s < 9 && (c == 0 || dry || levels[1] == 0); s += 2) { /* later updates have two steps */
                const char *line, *at;
                double norm = 0;
                bool critical, low;
                for (int i = 0; i < ELEMENTS; i++)
                    norm += pow(((double)j->g[s - 2][i] + (double)j->g[s - 1][i]) / 2, 2);
                norm = sqrt(norm);
                critical = s == 2 || fabs(norm - was) >= 0.02 * was;
                snprintf(words, sizeof words, "accordion: accordion%s: step %d: norm ", dry ? " (dry run)" : "", s);
                line = strstr(j->event, words);
                at = line != NULL ? strstr(line, "-> ") : NULL;
                if (at == NULL || !(fabs(strtod(at + 3, NULL) - norm) < 1e-5 * norm) ||
                    (s > 2 && !(fabs(strtod(line + strlen(words), NULL) - was) < 1e-5 * was)))
                    fail_msg("%s: step %d, norms %.9g and %.9g: %s", method, s, was, norm, j->event);
                low = critical && !(c == 1 && levels[1] > 0); /* a batch only grows */
                snprintf(words, sizeof words, "%s: %s", critical ? ", critical" : ", not critical",
                         low ? cases[c].low : cases[c].high);
                assert_true((at = strstr(line, words)) != NULL && at < line + strcspn(line, "\n"));
                snprintf(words, sizeof words, "replay %d.%c", s, low ? 'l' : 'h');
                assert_true((at = strstr(line, words)) != NULL && at < line + strcspn(line, "\n"));
                levels[!critical]++;
                was = norm;
            }
            assert_true(levels[0] > 0 && levels[1] > 0);
            free(j);
        }
}

/* ---- signum ---- */
/* Through the engine: the vote of momenta is compared with a separate computation in double; a
   momentum within rounding of 0 is not judged. Replicas and bytes are checked too. `against` is
   the number of workers that have the others' gradients with the sign turned. */
static void signum_follows_the_majority_vote_of_momenta(void **state)
{
    enum { N = 8 };
    const double beta = 0.9, lr = 0.0625, wd = 0.5;
    (void)state;

    for (int n = 1; n <= 5; n++) {
        job *j = job_of("signum(bucket_mb=1000)", NULL, "sgd(lr=0.0625,weight_decay=0.5)", N);
        double (*m)[ELEMENTS] = calloc((size_t)n, sizeof *m);
        uint64_t coded = 0;
        int judged = 0, minus = 0;
        run_job(j, n);
        for (int t = 0; t < TOY_TENSORS; t++) {
            const size_t count = j->t.count[t], each = ceil_div(count, (size_t)n * 64) * 64;
            if (n < 4)
                coded += (size_t)n * (size_t)(n - 1) * (count / 8 + 1);
            else
                for (size_t low = 0; low < count; low += each)
                    coded += 2 * (size_t)(n - 1) * ((count - low < each ? count - low : each) / 8 + 1);
        }
        for (int s = 0; s < N; s++) {
            for (int r = 1; r < n; r++)
                assert_int_equal(j->hash[r][s], j->hash[0][s]);
            assert_int_equal(j->bytes[s], coded);
            for (int i = 0; i < ELEMENTS; i++) {
                const double x = (double)j->x[s][i];
                double least = INFINITY;
                int votes = 0;
                for (int r = 0; r < n; r++) {
                    m[r][i] = beta * m[r][i] + (1 - beta) * (x - (double)pull_of(r, i, s));
                    least = fmin(least, fabs(m[r][i]));
                    votes += m[r][i] < 0 ? -1 : 1;
                }
                if (least < 1e-6)
                    continue;
                judged++, minus += votes < 0;
                if (fabs((double)j->x[s + 1][i] - (x - lr * ((votes < 0 ? -1 : 1) + wd * x))) > 1e-6)
                    fail_msg("%d workers, step %d, element %d: from %g to %g with %d votes", n, s, i, x,
                             (double)j->x[s + 1][i], votes);
            }
        }
        assert_true(judged > 3 * N * ELEMENTS / 4 && minus > judged / 8 && minus < judged);
        assert_true(was_said(j, "codec: codec 'sign-vote' is biased, and of a vote nothing can be made good"));
        free(m);
        free(j);
    }
}

/* All workers agree, with fewer than half against them: the bits of the one; half of them: a tie,
   which is +; and more, the other way. */
static void minority_of_adversarial_workers_changes_no_bit(void **state)
{
    static const int liars[] = { 1, 2, 3 };
    job *one = job_of("signum(beta=0)", NULL, "sgd(lr=0.0625)", 6);
    (void)state;

    one->alike = true;
    run_job(one, 1);
    for (int n = 3; n <= 6; n++)
        for (size_t k = 0; k < TUTTI_LENGTH(liars); k++) {
            job *j = job_of("signum(beta=0)", NULL, "sgd(lr=0.0625)", 6);
            j->alike = true;
            j->liars = liars[k];
            run_job(j, n);
            if (2 * liars[k] < n)
                assert_memory_equal(j->x, one->x, 7 * sizeof j->x[0]);
            else if (2 * liars[k] == n)
                for (int i = 0; i < ELEMENTS; i++)
                    assert_true(j->x[6][i] == j->x[0][i] - 6 * 0.0625f ||
                                fabsf(j->x[6][i] - (j->x[0][i] - 6 * 0.0625f)) < 1e-5f);
            else
                assert_memory_not_equal(j->x, one->x, 7 * sizeof j->x[0]);
            free(j);
        }
    free(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods_match_ddp_with_their_codec_and_default_options),
        cmocka_unit_test(conflicting_options_are_rejected),
        cmocka_unit_test(too_large_a_variance_is_warned_of),
        cmocka_unit_test(levels_are_fitted_on_schedule_or_a_warning_given),
        cmocka_unit_test(dgc_is_its_codec_under_plain_sgd),
        cmocka_unit_test(dgc_without_anything_held_back_is_sgd_with_momentum),
        cmocka_unit_test(dgc_decays_weights_with_its_momentum),
        cmocka_unit_test(dgc_clips_tensors_of_a_single_worker),
        cmocka_unit_test(powersgd_warns_of_a_warm_start_without_error_feedback),
        cmocka_unit_test(accordion_switches_to_the_high_codec_outside_critical_regimes),
        cmocka_unit_test(accordion_is_low_again_when_the_learning_rate_falls),
        cmocka_unit_test(accordion_warns_when_no_check_can_take_effect),
        cmocka_unit_test(accordion_logs_the_norms_behind_each_decision),
        cmocka_unit_test(signum_follows_the_majority_vote_of_momenta),
        cmocka_unit_test(minority_of_adversarial_workers_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
