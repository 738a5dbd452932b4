/* config.c: the table of the trainer's options, whose names are those of the flags without dashes,
   and the checks of options that depend on others. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"
#include "train_internal.h"
#include "collective/compare.h"
#include "nn/nn.h"
#include "base/numbers.h"
#include "base/options.h"
#include "collective/world.h"
#include "engine/check.h"
#include "method/registry.h"
#include "transport/registry.h"

#define AT(member) TUTTI_AT(tutti_train_config, member)
const tutti_option tutti_train_options[] = {
    { "model", TUTTI_SPEC, AT(model), 0, 0, 0, "mlp",
      "network: mlp, cnn, resnet, vgg, gpt, wordlm, blstm, ctr, logistic, quadratic, with options, "
      "as cnn(recompute=on), which keeps fewer activations and computes them again; naming a "
      "problem (logistic, quadratic) names its data too" },
    { "data", TUTTI_TEXT, AT(data), 0, 0, 0, "mnist",
      "mnist, mnist(distort=0.5), cifar10, quadratic, logistic, moby-dick, speech, a text's path, "
      "clicks(file=PATH), images(dir=PATH,size=32), or a directory of images: IDX files with the "
      "four MNIST names (plain or .gz), CIFAR-10's files, PNG and JPEG files by class; "
      "docs/DATA.md" },
    { "n", TUTTI_INT, AT(n), 1, 1, 1024, NULL,
      "workers on this machine; with several hosts what they add up to" },
    { "workers", TUTTI_TEXT, AT(workers), 0, 0, 0, "",
      "FEWEST:MOST: workers come, leave and are lost, and the run goes on with the same bits: `tutti "
      "join` brings one, SIGTERM to one makes it leave. It begins with n (FEWEST, if n is not given) "
      "on this machine, and waits while there are fewer than FEWEST. Over tcp; elastic-shares is "
      "MOST unless it is given. For which methods: docs/CLUSTERS.md" },
    { "restarts", TUTTI_INT, AT(restarts), 3, 0, 1000000, NULL,
      "with workers: how often each lost worker of this machine is started again, as a newcomer, "
      "after 1 s; 2 s, 4 s ... up to 30 s if it is lost within 10 s each time" },
    { "copy-every", TUTTI_INT, AT(copy_every), 16, 1, 1000000, NULL,
      "with workers and powersgd or a codec, which keep a residual of each share: steps after which "
      "each worker copies what the next one keeps; after a change also the 1st, 2nd, 4th ... step. "
      "When workers are lost the run goes back to the last such step" },
    { "workers-timeout", TUTTI_REAL, AT(workers_timeout), 600, 0.1, 1e7, NULL,
      "with workers: seconds for which the run waits with fewer than FEWEST workers, or after the "
      "loss of so many at once that the others may not go on alone; then it ends (exit code 3)" },
    { "servers", TUTTI_INT, AT(servers), 0, 0, 1023, NULL,
      "ranks that only serve, in addition to the n workers, for methods with servers; with hosts "
      "on each in turn, from the last; 0: workers serve while they compute" },
    { "hosts", TUTTI_TEXT, AT(hosts), 0, 0, 0, "",
      "hosts with their workers, a:4,b:4 or gpu[01-16]:8, started by ssh; @FILE, '|COMMAND': as a "
      "hosts file has them, or a command prints them, with workers again and again; "
      "docs/CLUSTERS.md", NULL,
      "starts programs on other machines" },
    { "rsh", TUTTI_TEXT, AT(rsh), 0, 0, 0, "",
      "several hosts: what starts a command on one, as `RSH HOST COMMAND`, instead of ssh", NULL,
      "starts a program" },
    { "meet", TUTTI_TEXT, AT(meet), 0, 0, 0, "",
      "several hosts: ADDRESS or ADDRESS:PORT by which they reach this one; default: the one that "
      "the route to them has",
      NULL, "opens a port" },
    { "start-timeout", TUTTI_REAL, AT(start_timeout), 60, 0.1, 86400, NULL,
      "over tcp, or started by another launcher: seconds until all workers must have come" },
    { "method", TUTTI_SPEC, AT(method), 0, 0, 0, "ddp",
      "training method; `tutti methods` lists them" },
    { "epochs", TUTTI_INT, AT(epochs), 1, 1, 1000000, NULL,
      "times over the training set, counted from the run's beginning" },
    { "steps", TUTTI_INT, AT(steps), 0, 0, 1e15, NULL,
      "steps of each worker instead of epochs, counted from the run's beginning; 0: by epochs" },
    { "collective-table", TUTTI_TEXT, AT(collective_table), 0, 0, 0, "",
      "with collective=auto: a file that specifies the algorithm for each size, as `tutti bench "
      "allreduce --tune FILE` writes it; it changes times, not results" },
    { "collective", TUTTI_SPEC, AT(collective), 0, 0, 0, "auto",
      "all-reduce of gradients: auto, exchange, doubling, tree, direct, halving, hierarchy (of "
      "hosts and nodes); in an order of their own: ring(order=any), "
      "stragglar(straggler=R,order=any); of messages of codecs that cannot be summed: allgather, "
      "alltoall (and encoded again by the owners of parts)" },
    { "codec", TUTTI_SPEC, AT(codec), 0, 0, 0, "",
      "how gradients (under d-psgd: models) travel: fp16, bf16, int8, qsgd(bits=4), "
      "ef(topk(ratio=0.01)), ef(powersgd(rank=4)) ...; `tutti codecs` lists them; none: as they "
      "are" },
    { "codec-cost", TUTTI_CHOICE, AT(codec_cost), 0, 0, 0, "off|explain|auto-off",
      "with a codec: measure it and the network before the first step and print what an exchange "
      "takes with it and without, and why (explain); and report and disable it where it is "
      "predicted to take over 5 % longer (auto-off)" },
    { "codec-report", TUTTI_INT, AT(codec_report), 0, 0, 1e15, NULL,
      "with a codec: steps between measurements of its effect on each tensor's gradient (bits an "
      "element, share of it that is lost and its bound, elements left, residual over gradient): a "
      "line a tensor in metrics.jsonl, the last in summary.json (docs/CODECS.md); 0: never" },
    { "codec-checksum", TUTTI_BOOL, AT(codec_checksum), 0, 0, 1, NULL,
      "with a codec that makes messages: a hash of eight bytes with each, looked at before it is "
      "decoded, so that what was damaged on its way ends the run and is not learnt from" },
    { "codec-hierarchy", TUTTI_TEXT, AT(codec_hierarchy), 0, 0, 0, "none",
      "with a codec: the workers of a machine (machine), or N of consecutive ranks (N), sum their "
      "gradients as they are, and the codec is between the machines: for slow networks between "
      "fast machines" },
    { "batch", TUTTI_INT, AT(batch), 64, 1, 1 << 20, NULL, "samples a worker a pass" },
    { "batch-share", TUTTI_TEXT, AT(batch_share), 0, 0, 0, "even",
      "samples of a pass by worker: even, auto (by measured speed), data (by the sizes of their "
      "parts), or weights w0:w1:...; with elastic-shares: shares by worker" },
    { "elastic-shares", TUTTI_INT, AT(elastic_shares), 0, 0, 1024, NULL,
      "shares into which each step is cut, of `batch` samples a pass each, at least as many as "
      "workers: a worker computes several, and results have the same bits with any number of "
      "workers, also when a run is resumed with another; ddp, bytescheduler, zero; 0: a share is a "
      "worker" },
    { "partition", TUTTI_SPEC, AT(partition), 0, 0, 0, "iid",
      "which worker has which samples: iid (all draw from all), dirichlet(alpha=A), class(k=K), "
      "shard(k=K); docs/DATA.md" },
    { "validation", TUTTI_REAL, AT(validation), 0, 0, 1e15, NULL,
      "samples at the end of the training set that no worker trains on, or below 1 their share of "
      "it: by the loss on them a method (hermes) decides what to send; 0: none" },
    { "accumulate", TUTTI_INT, AT(accumulate), 1, 1, 4096, NULL,
      "passes whose gradients are added up before one exchange and update" },
    { "precision", TUTTI_CHOICE, AT(precision), 0, 0, 0, "fp32|bf16|fp16",
      "what operands of the network's products are rounded to; sums, weights, gradients and the "
      "rest stay fp32 (docs/PRECISION.md)" },
    { "loss-scale", TUTTI_SPEC, AT(loss_scale), 0, 0, 0, "",
      "loss scaling: off, static(scale=1024), "
      "dynamic(init=65536,growth=2,backoff=0.5,interval=2000,hysteresis=1,min=1,on_min=error); "
      "steps that overflow are skipped; default: dynamic with fp16 where the method can skip a "
      "step, else off" },
    { "optimizer", TUTTI_SPEC, AT(optimizer), 0, 0, 0, "sgd(lr=0.05,momentum=0.9)",
      "update rule: sgd, adam, adamw with options" },
    { "lr-schedule", TUTTI_SPEC, AT(lr_schedule), 0, 0, 0, "constant",
      "factor on the learning rate: constant, step, cosine, linear, each with warmup=STEPS" },
    { "clip-norm", TUTTI_REAL, AT(clip_norm), 0, 0, 1e30, NULL,
      "largest 2-norm of the exchanged gradient; 0: no clipping" },
    { "nonfinite", TUTTI_CHOICE, AT(nonfinite), 0, 0, 0, "stop|skip",
      "when a gradient is NaN or infinite: stop the run, or leave the step out" },
    { "seed", TUTTI_INT, AT(seed), 0, 0, 9007199254740992.0, NULL,
      "of initial values and of the order of samples" },
    { "threads", TUTTI_INT, AT(threads), 0, 0, 1024, NULL,
      "compute threads a worker; 0: max(1, cores / workers). Part of what fixes the bits" },
    { "device-memory", TUTTI_TEXT, AT(device_memory), 0, 0, 0, "",
      "bytes that a worker may have for parameters, gradients, states that are not kept elsewhere "
      "and activations, as 512MiB: a run that needs more is refused with what takes it; none: what "
      "the machine has" },
    { "lane", TUTTI_CHOICE, AT(lane), 0, 0, 0, "auto|on|off",
      "exchange on a thread of its own during the computation: auto uses none where its work would "
      "take the computation's core (shm without a core to spare)" },
    { "transport", TUTTI_SPEC, AT(transport), 0, 0, 0, "shm",
      "what carries messages: shm (this machine), tcp (any hosts), mpi, sim, with options; `tutti "
      "transports`" },
    { "platform", TUTTI_TEXT, AT(platform), 0, 0, 0, "",
      "simulated runs: SimGrid platform file, as sim(platform=FILE); `tutti platform` writes "
      "them" },
    { "fail", TUTTI_TEXT, AT(fail), 0, 0, 0, "",
      "simulated runs: RANK@SECONDS:..., whose host fails when, in virtual time, or @FILE, of "
      "`tutti platform 'spot(...)'`, as sim(fail=...)" },
    { "step-time", TUTTI_REAL, AT(step_time), 0, 0, 1e9, NULL,
      "simulated runs: seconds a pass of `batch` samples takes on each worker, before --slow; 0: "
      "its FLOPs over the host's speed" },
    { "report-every", TUTTI_INT, AT(report_every), 50, 1, 1e9, NULL,
      "steps between lines of metrics.jsonl and of progress" },
    { "log-to", TUTTI_TEXT, AT(log_to), 0, 0, 0, "",
      "other forms of the lines of metrics.jsonl, by commas: tensorboard (a file of events in --out, "
      "for `tensorboard --logdir`), csv (metrics.csv), prometheus (the latest figures in "
      "metrics.prom, for node exporter)" },
    { "metrics-port", TUTTI_TEXT, AT(metrics_port), 0, 0, 0, "",
      "answer GET /metrics with the latest figures, as Prometheus reads them, on the first worker's "
      "host: at a port that this host alone can reach, as 9400, or at ADDRESS:PORT, as "
      "0.0.0.0:9400 for everybody",
      NULL, "opens a port" },
    { "eval-every", TUTTI_INT, AT(eval_every), 0, 0, 1e15, NULL,
      "steps between evaluations on the test set; 0: at the end of each epoch (asynchronous "
      "methods: only with --target). With a method that decides how many samples a step has: after "
      "as many samples as that many steps of `batch`. Methods without steps in common save copies "
      "of models and evaluate them when all workers synchronize anyway, for a checkpoint or the "
      "end; with --target all synchronize for each evaluation" },
    { "final-eval", TUTTI_CHOICE, AT(final_eval), TUTTI_FINAL_EVAL_ON, 0, 0, "off|on|all",
      "evaluate the final model on the test set (on) and the whole training set (all); with on, "
      "final_train_loss is of a fixed draw of training samples, as many as the test set has, at "
      "most 2000" },
    { "target", TUTTI_TEXT, AT(target), 0, 0, 0, "",
      "stop when an evaluation reaches it: accuracy=0.98, loss=0.1 or, of clicks, auc=0.75 (on the "
      "test set)" },
    { "checkpoint-every", TUTTI_INT, AT(checkpoint_every), 0, 0, 1e15, NULL,
      "steps between checkpoints; 0: none" },
    { "checkpoint-keep", TUTTI_INT, AT(checkpoint_keep), 2, 1, 1000000, NULL,
      "newest checkpoints that are kept" },
    { "checkpoint-async", TUTTI_CHOICE, AT(checkpoint_async), 0, 0, 0, "off|on",
      "on: a checkpoint is copied to memory and written while the run continues. The copy takes each "
      "worker the memory of what it writes; the run reports how much. The files are the same, and "
      "until they are complete the previous checkpoint counts" },
    { "checkpoint-on-signal", TUTTI_BOOL, AT(checkpoint_on_signal), 0, 0, 1, NULL,
      "on SIGTERM or Ctrl-C end the step, save a checkpoint and end, as preempted jobs need "
      "(within 2 minutes); a second signal ends at once. Methods whose workers do not all meet in "
      "every step save at the next multiple of report-every. With workers: when all of them are "
      "asked; one alone leaves" },
    { "resume", TUTTI_TEXT, AT(resume), 0, 0, 0, "",
      "continue from a run's --out (its newest valid checkpoint) or from one checkpoint; auto: "
      "from --out if it has a checkpoint, else start" },
    { "init", TUTTI_TEXT, AT(init), 0, 0, 0, "",
      "begin with the weights of a safetensors file (F32, F16 or BF16), or of a folder of them "
      "with model.safetensors.index.json, that has the names and shapes of PyTorch's state_dict, "
      "in place of drawn ones: docs/PYTORCH-MODELS.md; a run that is resumed does not look at it" },
    { "slow", TUTTI_TEXT, AT(slow), 0, 0, 0, "",
      "emulate unequal workers: RANK:FACTOR, RANK:FACTOR:P, *:FACTOR:P (in a step with probability "
      "P), by commas; more than 8 times the processor time of a layer is not multiplied" },
    { "stream", TUTTI_TEXT, AT(stream), 0, 0, 0, "",
      "samples come at a rate, and a pass waits for its own: samples a second of every worker, or "
      "of each: R0:R1:...; docs/DATA.md" },
    { "stream-buffer", TUTTI_INT, AT(stream_buffer), 0, 0, 1e15, NULL,
      "with stream: samples that may wait on a worker; what comes while that many do is dropped; "
      "0: all wait" },
    { "on-loss", TUTTI_CHOICE, AT(on_loss), 0, 0, 0, "auto|stop|continue",
      "when a worker is lost: stop (exit code 3), or continue without it; auto: continue where "
      "method and transport can, in simulated runs if a worker is to fail" },
    { "min-workers", TUTTI_INT, AT(min_workers), 1, 1, 1024, NULL,
      "with on-loss=continue: stop (exit code 3) when fewer workers than these are left" },
    { "out", TUTTI_TEXT, AT(out), 0, 0, 0, "", "directory of the results; default runs/TIME-METHOD",
      NULL, "determines where files are written" },
    { "overwrite", TUTTI_BOOL, AT(overwrite), 0, 0, 1, NULL,
      "what an earlier run has left in --out, checkpoints too, goes once this one has begun; "
      "without it such a directory is refused",
      NULL, "removes files" },
    { "trace", TUTTI_BOOL, AT(trace), 0, 0, 1, NULL,
      "write OUT/trace.json (Chrome, Perfetto): passes, exchanges, updates of all workers, on one "
      "clock" },
    { "trace-steps", TUTTI_TEXT, AT(trace_steps), 0, 0, 0, "",
      "A:B: trace the steps from A to B only (the first is 0); without --trace, too" },
    { "quiet", TUTTI_BOOL, AT(quiet), 0, 0, 1, NULL, "no progress; errors are always shown" },
    { 0 }
};

tutti_status tutti_train_parse_target(const char *text, tutti_target *of, double *value,
                                      tutti_error *err)
{
    static const struct {
        const char *name;
        tutti_target of;
    } names[] = { { "accuracy=", TUTTI_TARGET_ACCURACY },
                  { "auc=", TUTTI_TARGET_AUC },
                  { "loss=", TUTTI_TARGET_LOSS } };
    const char *end = "?";

    *value = 0;
    *of = TUTTI_TARGET_LOSS;
    for (size_t i = 0; i < TUTTI_LENGTH(names); i++) {
        const size_t n = strlen(names[i].name);
        if (strncmp(text, names[i].name, n) != 0)
            continue;
        *of = names[i].of;
        if (!tutti_number_begins(text + n, value, &end))
            end = "?";
    }
    if (*end != 0 || !(*value > 0 && *value < 1e30) ||
        (*of != TUTTI_TARGET_LOSS && *value > 1))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "target is '%.80s'; write accuracy=A with A from 0 to 1, loss=L with L "
                          "above 0, or, of clicks, auc=A",
                          text);
    return TUTTI_OK;
}

/* Appends a name, after ", " if it is not the first. */
static void add_name(char *text, size_t room, const char *name)
{
    const size_t used = strlen(text);

    snprintf(text + used, room - used, "%s%s", used > 0 ? ", " : "", name);
}

static tutti_status check_servers(const tutti_train_config *c, tutti_error *err)
{
    char name[64], have[200] = "";
    const tutti_method_ops *method;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(c->method, "("), c->method);
    method = tutti_method_find(name);
    if (c->n + c->servers > 1024)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%lld workers and %lld servers; at most 1024 ranks are possible",
                          (long long)c->n, (long long)c->servers);
    /* a method that does not exist is reported elsewhere */
    if (c->servers == 0 || method == NULL || (method->traits & TUTTI_PARAMETER_SERVERS) != 0)
        return TUTTI_OK;
    for (size_t i = 0; tutti_methods[i] != NULL; i++)
        if ((tutti_methods[i]->traits & TUTTI_PARAMETER_SERVERS) != 0)
            add_name(have, sizeof have, tutti_methods[i]->name);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "servers is %lld, but method '%.60s' has no servers; leave servers at 0, or "
                      "take a method that has (%s)",
                      (long long)c->servers, c->method, have);
}

/* Checks that a run that is to continue after losses can. traits: of the method in this run. votes:
   whether its workers exchange in every step. */
static tutti_status check_continues(const tutti_train_config *c, const tutti_method_ops *method,
                                    unsigned traits, bool votes, tutti_error *err)
{
    unsigned unused;
    const bool survives = tutti_world_can_survive(c->transport),
               known = tutti_method_traits(c->method, &unused);
    char can[320] = "";
    if ((traits & TUTTI_FAULT_TOLERANT) != 0 && votes)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "on-loss is 'continue', but with %s the workers of '%.60s' have a word among all in "
            "every step; omit it, or use on-loss=stop",
            c->nonfinite == TUTTI_NONFINITE_SKIP ? "nonfinite=skip" : "loss-scale", c->method);
    if (known && method != NULL && (method->traits & TUTTI_FAULT_TOLERANT) != 0 &&
        (method->traits & TUTTI_PARAMETER_SERVERS) != 0 &&
        !(traits & (TUTTI_FAULT_TOLERANT | TUTTI_FAIL_STOP)))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "on-loss is 'continue', but with '%.60s' every worker has a slice of the "
                          "model, which is lost with it; use on-loss=stop, or --servers S, or a "
                          "number of servers in the method's spec below the number of workers",
                          c->method);
    if (known && !(traits & TUTTI_FAULT_TOLERANT)) { /* an invalid spec is reported elsewhere */
        for (size_t i = 0; tutti_methods[i] != NULL; i++)
            if (tutti_methods[i]->traits & TUTTI_FAULT_TOLERANT)
                add_name(can, sizeof can, tutti_methods[i]->name);
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "on-loss is 'continue', but '%.60s' needs every worker in every step; use on-loss=stop "
            "and resume from a checkpoint, or a method that continues (%s)",
            c->method, can);
    }
    if (!survives) {
        for (size_t i = 0; tutti_transports[i] != NULL; i++)
            if (tutti_transports[i]->events != NULL)
                add_name(can, sizeof can, tutti_transports[i]->name);
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "on-loss is 'continue', but transport '%.60s' does not outlive the loss of a worker; "
            "use on-loss=stop, or a transport that does (%s)",
            c->transport, can);
    }
    return TUTTI_OK;
}

/* The traits of the method in this run; *method NULL: it is none. */
static unsigned traits_of(const tutti_train_config *c, const tutti_method_ops **method)
{
    char name[64];
    unsigned traits = 0;
    const bool known = tutti_method_traits(c->method, &traits);

    snprintf(name, sizeof name, "%.*s", (int)strcspn(c->method, "("), c->method);
    *method = tutti_method_find(name);
    if (known && *method != NULL && c->servers > 0 &&
        (traits & TUTTI_FAIL_STOP) == 0) /* no shards then */
        traits |= (*method)->traits & TUTTI_FAULT_TOLERANT;
    return traits;
}

/* Do all workers exchange in every step whether it is skipped? */
static bool has_votes(const tutti_train_config *c, unsigned traits)
{
    return (traits & TUTTI_THROUGH_SERVERS) != 0 &&
           (c->nonfinite == TUTTI_NONFINITE_SKIP ||
            (c->loss_scale[0] != 0 && strcmp(c->loss_scale, "off") != 0));
}

/* A simulated run knows whether a worker is to fail. If none is, a thousand workers need not agree
   in each step on which of them are there. */
bool tutti_train_continues(const tutti_train_config *c)
{
    const tutti_method_ops *method;
    const unsigned traits = traits_of(c, &method);

    return c->on_loss != TUTTI_ON_LOSS_STOP && c->n > 1 &&
           tutti_world_can_survive(c->transport) && (traits & TUTTI_FAULT_TOLERANT) != 0 &&
           !has_votes(c, traits) &&
           (c->on_loss == TUTTI_ON_LOSS_CONTINUE || !tutti_world_simulated(c->transport) ||
            tutti_train_fails(c));
}

/* Sets c->continue_on_loss. on_loss stays as it was given: where the run is resumed the answer may
   be another. */
static tutti_status check_on_loss(tutti_train_config *c, tutti_error *err)
{
    const tutti_method_ops *method;
    const unsigned traits = traits_of(c, &method);

    if (c->min_workers > c->n)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "min-workers is %lld, but the run has %lld from its beginning; give at most %lld",
            (long long)c->min_workers, (long long)c->n, (long long)c->n);
    c->continue_on_loss = tutti_train_continues(c);
    if (c->on_loss != TUTTI_ON_LOSS_CONTINUE)
        return TUTTI_OK;
    return check_continues(c, method, traits, has_votes(c, traits), err);
}

tutti_status tutti_train_device_bytes(const tutti_train_config *c, size_t *bytes, tutti_error *err)
{
    *bytes = 0;
    return c->device_memory[0] == 0
               ? TUTTI_OK
               : tutti_fail_within(
                     err, tutti_bytes_parse(c->device_memory, strlen(c->device_memory), bytes, err),
                     "device-memory");
}

/* Is a step a round of local steps? */
static bool makes_rounds(const tutti_train_config *c)
{
    unsigned traits;

    return c->elastic_shares > 0 && tutti_method_traits(c->method, &traits) &&
           (traits & TUTTI_LOGICAL_SHARES) != 0 && (traits & TUTTI_REPLICAS_EQUAL) == 0;
}

int64_t tutti_train_passes(const tutti_train_config *c)
{
    const uint64_t steps = makes_rounds(c) ? tutti_method_repeats(c->method) : 1;

    return steps <= 1 << 20 ? c->accumulate * (int64_t)steps
                            : c->accumulate; /* the engine refuses it */
}

uint64_t tutti_train_repeats(const tutti_train_config *c)
{
    return makes_rounds(c) ? 1 : tutti_method_repeats(c->method);
}

int64_t tutti_train_step_samples(const tutti_train_config *c)
{
    return (c->elastic_shares > 0 ? c->elastic_shares : c->n) * c->batch * tutti_train_passes(c);
}

/* What the method does not allow is refused by the engine, for all clients. */
static tutti_status check_elastic(const tutti_train_config *c, tutti_error *err)
{
    if (c->elastic_shares == 0)
        return TUTTI_OK;
    if (c->elastic_shares < c->n)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "elastic-shares is %lld for %lld workers; it must be at least the number "
                          "of workers, since each computes at least one share",
                          (long long)c->elastic_shares, (long long)c->n);
    if (strcmp(c->batch_share, "data") == 0 ||
        (strcmp(c->batch_share, "auto") == 0 && c->workers[0] == 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "elastic-shares is %lld, and batch-share '%.80s' is %s; give weights, as "
                          "2:1:1, or leave it at even",
                          (long long)c->elastic_shares, c->batch_share,
                          strcmp(c->batch_share, "data") == 0
                              ? "by parts of the data, which there are not"
                              : "for workers that come and go then (workers)");
    if (strncmp(c->partition, "iid", 3) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "elastic-shares is %lld, and partition '%.80s' would give each worker "
                          "samples of its own; leave it at iid",
                          (long long)c->elastic_shares, c->partition);
    return TUTTI_OK;
}

static tutti_status check_validation(const tutti_train_config *c, tutti_error *err)
{
    if (c->validation > 1 && c->validation != floor(c->validation))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "validation is %.12g, which is neither a whole number of samples nor a "
                          "share of the training set, below 1",
                          c->validation);
    return TUTTI_OK;
}

/* Checks the algorithm of the collectives, or their table. */
static tutti_status check_collective(const tutti_train_config *c, tutti_error *err)
{
    TUTTI_TRY(tutti_collective_check(c->collective, (int)c->n, err));
    if (strcmp(c->collective, "auto") != 0 && c->collective_table[0] != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "collective is '%.80s', so collective-table '%.200s' would not be asked; "
                          "give one of the two",
                          c->collective, c->collective_table);
    return TUTTI_OK;
}

static tutti_status check_metrics_port(const tutti_train_config *c, tutti_error *err)
{
    TUTTI_TRY(tutti_record_port_check(c->metrics_port, false, err));
    if (c->metrics_port[0] != 0 && tutti_world_simulated(c->transport))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "metrics-port is '%.80s', but the run is simulated, and its time is "
                          "virtual; use --log-to, or another transport",
                          c->metrics_port);
    return TUTTI_OK;
}

tutti_status tutti_train_check(tutti_train_config *c, int cores, tutti_error *err)
{
    tutti_target of;
    bool automatic;
    unsigned traits, forms;
    double value;
    size_t bytes;

    if (c->threads == 0)
        c->threads = cores / (c->n + c->servers) > 1 ? cores / (c->n + c->servers) : 1;
    TUTTI_TRY(check_servers(c, err));
    TUTTI_TRY(tutti_train_check_simulation(c, err));
    TUTTI_TRY(tutti_train_check_slow(c->slow, c->n, err));
    TUTTI_TRY(tutti_train_parse_shares(c->batch_share, c->n, NULL, &automatic, err));
    TUTTI_TRY(tutti_train_check_pair(c, err));
    TUTTI_TRY(tutti_train_check_partition(c, err));
    TUTTI_TRY(tutti_train_check_stream(c, err));
    TUTTI_TRY(check_validation(c, err));
    TUTTI_TRY(tutti_train_check_workers(c, err));
    TUTTI_TRY(check_elastic(c, err));
    if (c->loss_scale[0] == 0 && c->precision == TUTTI_PRECISION_FP16)
        c->loss_scale = makes_rounds(c) || (tutti_method_traits(c->method, &traits) &&
                                            (traits & TUTTI_NEVER_SKIPS) != 0)
                            ? "off"
                            : "dynamic";
    TUTTI_TRY(tutti_loss_scale_check(c->loss_scale, err));
    if (strcmp(c->optimizer, "client") == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "optimizer is 'client', which is for programs with an optimiser of their "
                          "own (tutti.h), and the trainer has none; give sgd, adam or adamw");
    TUTTI_TRY(check_collective(c, err));
    if (strlen(c->out) > 3800)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the name of the output directory has %zu bytes; at most 3800 are possible",
            strlen(c->out));
    if (c->target[0] != 0)
        TUTTI_TRY(tutti_train_parse_target(c->target, &of, &value, err));
    if (c->init[0] != 0 && tutti_problem_named(c->model) != NULL &&
        strncmp(c->model, "quadratic", 9) == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "init is '%.160s', but model '%.80s' starts at the point of its problem; omit init",
            c->init, c->model);
    TUTTI_TRY(tutti_train_device_bytes(c, &bytes, err));
    TUTTI_TRY(tutti_train_check_trace(c, err));
    TUTTI_TRY(tutti_record_log_to(c->log_to, &forms, err));
    TUTTI_TRY(check_metrics_port(c, err));
    return check_on_loss(c, err);
}

static bool named_in(const char *const *names, const char *name)
{
    while (*names != NULL && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* Options that concern how a process is started, and do not describe the run. */
static const char *const of_this_start[] = { "out", "resume", "overwrite", "meet", NULL };

json_t *tutti_train_config_object(const tutti_train_config *c)
{
    json_t *object = json_object();

    for (const tutti_option *o = tutti_train_options; o->name != NULL; o++) {
        const char *at = (const char *)c + o->offset;
        char text[4096];
        json_t *value;
        if (named_in(of_this_start, o->name))
            continue;
        switch (o->type) {
        case TUTTI_INT: value = json_integer(*(const int64_t *)at); break;
        case TUTTI_REAL: value = json_real(*(const double *)at); break;
        case TUTTI_BOOL: value = json_boolean(*(const bool *)at); break;
        case TUTTI_TEXT:
        /* as it was given: quotes are for a place within a spec */
        case TUTTI_SPEC: value = json_string(*(const char *const *)at); break;
        default:
            tutti_option_print(o, c, text, sizeof text);
            value = json_string(text);
        }
        json_object_set_new(object, o->name, value);
    }
    return object;
}

tutti_status tutti_train_config_json(const tutti_train_config *c, char **json, tutti_error *err)
{
    json_t *object = tutti_train_config_object(c);
    char *text = json_dumps(object, JSON_INDENT(2));

    *json = text != NULL ? tutti_copy_text(text) : NULL;
    free(text);
    json_decref(object);
    return *json != NULL ? TUTTI_OK
                         : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing the configuration");
}

/* Options that may differ between ranks: addresses and files, which may be elsewhere on each host
   (data are compared by their hash), properties of the host, and --slow, which may be given to the
   slow worker alone. */
static const char *const of_a_rank[] = { "out",   "init", "overwrite",     "quiet",
                                         "hosts", "rsh",  "meet",          "start-timeout",
                                         "n",     "data", "transport",     "platform",
                                         "lane",  "slow", "device-memory", NULL };

tutti_status tutti_train_compare(tutti_world *world, const tutti_train_config *c, tutti_error *err)
{
    const size_t room = 65536;
    tutti_group all = tutti_group_workers(world, tutti_port_of("options", 0, 0));
    char *text = tutti_alloc(room, 1), value[4096];
    size_t n = 0;
    tutti_status status;

    all.uncounted = true;
    for (const tutti_option *o = tutti_train_options; o->name != NULL && text != NULL; o++) {
        const char *const *at = (const char *const *)(const void *)((const char *)c + o->offset);
        if (named_in(of_a_rank, o->name))
            continue;
        if (strcmp(o->name, "collective-table") == 0)
            snprintf(value, sizeof value, "%s", c->collective_table[0] != 0 ? "a file" : "");
        else if (o->type == TUTTI_TEXT || o->type == TUTTI_SPEC)
            snprintf(value, sizeof value, "%s", *at);
        else
            tutti_option_print(o, c, value, sizeof value);
        n += (size_t)snprintf(text + n, room - n, "%s=%s\n", o->name, value);
        if (n >= room)
            n = room - 1;
    }
    status = tutti_compare_text(&all, text, err);
    tutti_free(text);
    return status;
}
