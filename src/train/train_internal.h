/* train_internal.h: what the trainer's files share. One run = one worker's view of it. */
#ifndef TUTTI_TRAIN_INTERNAL_H
#define TUTTI_TRAIN_INTERNAL_H
#include <jansson.h>
#include <stdio.h>

#include "runtime/arrivals.h"
#include "data/data.h"
#include "nn/nn.h"
#include "runtime/files.h"
#include "tutti/tutti.h"
#include "tutti/method/pipeline.h"
#include "train/train.h"
#include "train/trained.h"

enum { TUTTI_TRAIN_FIGURES = 32 };

/* plan.c: a rank of a planned run: it goes through steps without a network, to measure what they
   take. */
typedef struct tutti_dry {
    bool declares;                   /* now: the engine takes no memory, and there are no steps */
    uint64_t over;                   /* steps to go through */
    int cores;                       /* that a worker of the run would have */
    tutti_train_plan *plan;
    tutti_nn_task *task; bool *evaluates; /* written by rank 0 */
    float *draws;                    /* random values that gradients are made of */
    float *handed;                   /* buffer of the gradients, one tensor at a time; NULL: the
                                        engine has memory for them */
    uint64_t *named; uint32_t *ids;  /* rows of the largest table: a bit each; those of a pass */
} tutti_dry;

typedef struct tutti_train_clock { int of; int64_t at_ns, ahead_ns; } tutti_train_clock;

typedef struct tutti_train_staged tutti_train_staged; /* drive.c */
typedef struct tutti_run {
    tutti_world *world;
    tutti_runtime *rt;
    /* The trainer's own collectives: all workers, then the ranks that only serve; after losses
       those that are left. Index 0 prints and writes. */
    tutti_group all;
    /* Mine, and how many workers there were at the beginning: shares, samples and rows of reports
       go by these. rank >= workers: this rank only serves. */
    int rank, workers;
    const tutti_train_config *config;
    const tutti_train_io *io;

    tutti_dry *dry;                  /* NULL: it trains */

    tutti_data *data;
    tutti_nn_task task;
    tutti_nn_param *params; int n_params;
    size_t parameters;                               /* elements in all */
    /* Of batch norms: the engine's client state. */
    tutti_nn_statistic *statistics; int n_statistics;
    tutti_nn *nn;                    /* NULL, as the loader is, where a rank only serves */
    tutti_train_staged *staged;      /* under a method that runs the passes itself; else NULL */
    tutti_engine *engine;
    tutti_loader *loader;
    size_t loader_bytes, joined_bytes; /* of the loader; of `joined` */
    tutti_share share;               /* the engine's as the loader has it: its array is `cut` */
    int64_t *cut;                    /* workers: batch_of or passes_of of the engine; NULL: even */
    const float **values;            /* n_params: the engine's */
    float **gradients;
    bool by_unit;                    /* values are gathered by the engine, unit by unit */
    bool hands_over;                 /* gradients are the network's, unit by unit, and handed over
                                        when they are ready: the engine has no memory of all */

    bool is_async;                   /* asynchronous: workers meet for evaluations, checkpoints
                                        and the end only */
    bool apart;                      /* they make the same steps, but not at the same time */
    bool takes;                      /* the method decides how many samples a step has
                                        (tutti_engine_takes): the run ends by samples */
    int snapshots;                   /* most snapshots from one meeting to the next; 0:
                                        evaluations are of the current model (snapshots.c) */
    uint64_t met;                    /* apart: how many steps were done at the last of these */
    uint64_t unit;                   /* gradients a step: 1, or the workers with is_async */
    int said;                        /* events of the run that were already checked for warnings */
    uint64_t gradients_in_all, steps, first_step; /* of the whole run; where this process begins */
    double steps_per_epoch;
    uint64_t samples_in_all;         /* takes: of the whole run */
    struct { tutti_tensor_file *file; tutti_status status; tutti_error err; } init; /* init.c */
    tutti_parts parts;               /* of a partition; first is NULL: none */
    tutti_arrivals arrivals;         /* --stream: mine */
    tutti_data_room joined;          /* a batch with samples of other workers (given.c); NULL: the
                                        method sends none */
    uint64_t streamed;               /* one more than the last of the run's samples that was taken
                                        off the stream */

    int64_t *batch_of;               /* workers: shares of a pass (base.h); NULL: even */
    bool automatic_shares;
    double *sample_seconds;          /* workers: smoothed, for automatic shares; below 0: not
                                        measured */
    int64_t shares_compute_ns;       /* compute time and samples of mine at the last check */
    double shares_samples;

    /* trace.c: at my time at_ns my clock was ahead_ns ahead of that of rank `of`; of < 0: not
       measured */
    tutti_train_clock clock;

    /* --step-time: the network's device; NULL: the network charges the world's device */
    tutti_runtime meter; tutti_device *metered;
    double flop_ns, owed_ns;         /* time of a FLOP of this pass; time computed but not slept
                                        yet */
    double slow;                     /* factor of this step, 1: not slowed */
    int64_t computing_since_ns;      /* when the part that is not stretched yet began */

    /* regret.c, of problems whose optimum is known; NULL: none. regret: mine, in this process */
    float *optimum;
    double *curvature, regret;
    bool regret_due;             /* of this step, once its values are needed */

    double loss_sum, loss_samples;   /* since the last report, this worker */
    int64_t reported_ns;
    uint64_t first_samples;          /* of the run, before this process */
    tutti_figures reported;          /* as they were at that report */
    tutti_received received;         /* at the last line of metrics, of an asynchronous method */
    uint64_t codec_reported;         /* step of the last codec records that were written */
    /* A row a worker, at most TUTTI_TRAIN_FIGURES each: the figures they send for a report and at
       the end. */
    double *figures_of;

    /* At the last evaluation: root of the mean of |x_i - mean|^2; 0 where replicas are equal. */
    double consensus_distance;
    /* Of the last evaluation. accuracy < 0: none yet, or none at all (quadratic). */
    double test_loss, test_accuracy;
    /* When that was, as lines of metrics have it, and what all had sent by then. aside: it is, or
       was, of a snapshot. */
    struct { double seconds, bytes, epoch; uint64_t samples, step; bool snapshot; } evaluated;
    /* Likewise, of samples that get one logit; < 0: none, also where all labels are the same. */
    double test_auc;
    /* Of the workers' own models at the end: the one whose test loss is largest. Where replicas are
       equal the agreed model, worker -1. */
    struct { double loss, accuracy; int worker; } worst;
    /* Of the agreed model at the end, and over how many samples; 0: not evaluated. */
    double train_loss; uint64_t train_samples;
    int64_t evaluating_ns;           /* when the progress of an evaluation was last shown */
    /* Index 0, when results have been written: this process's part of the run. Seconds and the
       rest. */
    struct { double wall, compute, exposed, other, bytes, memory; uint64_t samples, steps; } totals;
    double time_to_target;           /* seconds; < 0: not reached */
    bool target_reached;
    /* Checkpoints that were damaged when this run was resumed: lines "step-00000030: why"; NULL:
       none. */
    char *passed_over;
    tutti_file *metrics;             /* of index 0 */
    int watched, lost;               /* events of the world that were already read; how many
                                        workers are lost */
} tutti_run;

json_t *tutti_train_config_object(const tutti_train_config *c);
/* The value of --device-memory; 0: not set. */
tutti_status tutti_train_device_bytes(const tutti_train_config *c, size_t *bytes, tutti_error *err);
typedef enum { TUTTI_TARGET_LOSS, TUTTI_TARGET_ACCURACY, TUTTI_TARGET_AUC } tutti_target;
tutti_status tutti_train_parse_target(const char *text, tutti_target *of, double *value,
                                      tutti_error *err);

/* ---- pair.c: model and data fit each other, the target and the precision ---- */

const char *tutti_train_precision_name(const tutti_train_config *c);
tutti_dtype tutti_train_precision(const tutti_train_config *c);
tutti_status tutti_train_check_pair(const tutti_train_config *c, tutti_error *err);
/* Can the model take data of this kind? */
tutti_status tutti_train_check_samples(const tutti_train_config *c, bool text, bool clicks,
                                       tutti_error *err);
/* The options of a run's networks; the caller that opens one sets device, running and adds. */
tutti_nn_options tutti_train_network(const tutti_train_config *c, int64_t batch, bool hands_over);

/* ---- slow.c ---- */

tutti_status tutti_train_check_slow(const char *spec, int64_t workers, tutti_error *err);
/* The factor of a worker's step. */
double tutti_train_slow_factor(const char *spec, uint64_t seed, int rank, uint64_t step);
/* Sleeps the factor off, after --step-time's part. Called whenever a part of the computation is
   done. */
void tutti_train_stretch(tutti_run *run);

/* ---- partition.c: the workers' own parts of the data, where --partition asks for them ---- */

/* The checks that are possible before the data are open. */
tutti_status tutti_train_check_partition(const tutti_train_config *c, tutti_error *err);
/* Draws the parts, after the data are open. */
tutti_status tutti_train_partition_open(tutti_run *run, tutti_error *err);
/* Adds its members to the summary's row of a worker. */
void tutti_train_partition_describe(const tutti_run *run, int worker, json_t *row);

/* ---- drive.c: under methods that run the passes of stages themselves ---- */

bool tutti_train_drives(const tutti_run *run);
/* Before the engine: its client's model, as far as that has stages; close after the engine. */
tutti_status tutti_train_staged_open(tutti_run *run, tutti_error *err);
void tutti_train_staged_close(tutti_run *run);
const tutti_model *tutti_train_model(const tutti_run *run); /* NULL: none is asked for */
/* measure.c: before the engine, all workers together. seconds: as in tutti_model, with space at
   the end for ranks that only serve. */
tutti_status tutti_train_measure(tutti_run *run, const tutti_model *model, double *seconds,
                                 tutti_error *err);
/* Memory of the stage and its slots. */
size_t tutti_train_stage_bytes(const tutti_run *run);

/* ---- arrivals.c: --stream ---- */

tutti_status tutti_train_check_stream(const tutti_train_config *c, tutti_error *err);
/* Opens the stream, after the shares. */
tutti_status tutti_train_stream_open(tutti_run *run, tutti_error *err);
/* Begins the arrivals, when the training's clock begins. */
void tutti_train_stream_begin(tutti_run *run);
void tutti_train_stream_take(tutti_run *run, int64_t samples); /* blocks until they have come */
/* Adds to the summary's row of the worker whose arrivals they are. */
void tutti_train_stream_describe(const tutti_run *run, const tutti_arrivals *a, json_t *row);

/* ---- given.c: samples of other workers ---- */

/* Callbacks that the engine needs from its client; user: the run. */
tutti_status tutti_train_give(void *user, const uint64_t *ids, size_t n, void *out,
                              tutti_error *err);
int tutti_train_label(void *user, uint64_t id);
/* After the engine, where the method sends any; samples: of a pass at most, in all. */
tutti_status tutti_train_given_open(tutti_run *run, int64_t samples, tutti_error *err);
void tutti_train_given_close(tutti_run *run);
/* Appends the samples received from other workers to a batch of the pass's own samples. */
tutti_status tutti_train_join(tutti_run *run, const tutti_pass *pass, tutti_batch *batch,
                              tutti_error *err);

/* ---- shares.c ---- */

/* Parses batch-share for `workers` workers. weight (may be NULL): all 1 for even, auto and data.
   *automatic: it is "auto". TUTTI_ERR_USAGE: malformed, wrong number, or all 0. */
tutti_status tutti_train_parse_shares(const char *text, int64_t workers, double *weight,
                                      bool *automatic, tutti_error *err);
tutti_status tutti_train_shares_open(tutti_run *run, tutti_error *err);
/* speed[n], in samples a second, from the measured seconds a sample; 0: less than the clock can
   measure. false: a time below 0: a worker was not measured. */
bool tutti_train_speeds(const double *sample_seconds, int n, double *speed);
tutti_status tutti_train_shares_adapt(tutti_run *run, uint64_t done, tutti_error *err);

/* ---- simulation.c ---- */

tutti_status tutti_train_check_simulation(const tutti_train_config *config, tutti_error *err);
bool tutti_train_fails(const tutti_train_config *config);
/* --step-time: open gives the device for the network, start begins a pass, start_of one of a
   model with `flops` operations a sample, pay sleeps for the time that has been counted so far. */
tutti_status tutti_train_meter_open(tutti_run *run, tutti_device **device, tutti_error *err);
void tutti_train_meter_start(tutti_run *run, int64_t samples);
void tutti_train_meter_start_of(tutti_run *run, double flops, int64_t samples);
void tutti_train_meter_pay(tutti_run *run);

/* ---- memory.c ---- */

/* What this rank has, the network's at its most so far: the engine's records, then the trainer's.
   Returns how many there are, writes at most `room` of them. Between steps. */
size_t tutti_train_memory_records(const tutti_run *run, tutti_memory_record *records, size_t room);
/* Their sums. */
tutti_status tutti_train_memory(const tutti_run *run, uint64_t bytes[TUTTI_MEMORY_KINDS],
                                tutti_error *err);

/* ---- dry.c: a pass that computes nothing, of a planned run (plan.c) ---- */

tutti_status tutti_train_dry_open(tutti_run *run, tutti_error *err);
void tutti_train_dry_close(tutti_run *run);
/* In place of a pass through the network: the same calls of hooks, with gradients that are drawn
   and rows that the batch names. */
tutti_status tutti_train_dry_pass(tutti_run *run, const tutti_pass *pass, const tutti_batch *batch,
                                  const tutti_nn_hooks *hooks, double *loss, tutti_error *err);
/* Which of a table's `rows` rows the batch names, ascending: ids of tokens, or of categories with
   one table behind the other. named: rows / 64 + 1 zeros, which it leaves so; ids: rows. */
size_t tutti_train_name_rows(const tutti_run *run, const tutti_batch *batch, size_t rows,
                             uint64_t *named, uint32_t *ids);

/* ---- setup.c ---- */

/* open_samples: the data to train on, and each worker's part of them. open: the engine, the
   network and the loader of a run whose samples are open. close: undoes open, which may be called
   again. close_all: closes the samples too. */
tutti_status tutti_train_open_samples(tutti_run *run, tutti_error *err);
tutti_status tutti_train_open(tutti_run *run, tutti_error *err);
void tutti_train_close(tutti_run *run);
void tutti_train_close_all(tutti_run *run);
/* After a step: if the shares have changed, the loader continues with the new ones. */
tutti_status tutti_train_follow_share(tutti_run *run, uint64_t step, tutti_error *err);
/* The most samples of one pass of this worker, whatever its share becomes. */
int64_t tutti_train_most_samples(const tutti_run *run);

/* ---- step.c ---- */

/* One step with all its passes, of a method that does not run the passes itself. */
tutti_status tutti_train_step(tutti_run *run, tutti_error *err);
/* tutti_engine_unit_acquire; then run->values of that unit are where they are.
   tutti_engine_unit_release, before which they are NULL if values are held by unit. */
tutti_status tutti_train_need(tutti_run *run, int unit, bool backward, tutti_error *err);
tutti_status tutti_train_done(tutti_run *run, int unit, bool backward, tutti_error *err);

/* ---- train.c ---- */

/* A run before anything is opened; sets io->started_ns. TUTTI_ERR_USAGE: no rank is a worker. */
tutti_status tutti_train_begin(tutti_run *run, tutti_world *world, const tutti_train_config *config,
                               tutti_train_io *io, tutti_error *err);
/* All steps of an open run, with what comes between them. TUTTI_CLOSED: a signal has stopped it. */
tutti_status tutti_train_loop(tutti_run *run, tutti_error *err);

/* ---- progress.c ---- */

double tutti_train_epochs(const tutti_run *run); /* completed so far */
/* The remaining work divided by what this process has done; 0: nothing is known yet. */
double tutti_train_left(const tutti_run *run);
/* The interval between evaluations, in steps, or in gradients for asynchronous methods. These do
   not evaluate by default, unless --target is given: each evaluation then takes a meeting, which
   waits for the slowest worker. 0: never. */
uint64_t tutti_train_evaluates_every(const tutti_run *run);
/* The same in samples, where the method decides how many a step has; --eval-every then counts
   steps of `batch` samples a worker, as --steps does. */
uint64_t tutti_train_samples_between(const tutti_run *run);
/* Does the run evaluate, before its end or then? */
bool tutti_train_evaluates(const tutti_run *run);
/* The place of a pass's samples among all that the run takes, so that a sample's random draws are
   the same on every worker that may compute it. With a partition each worker counts its own
   samples. */
uint64_t tutti_train_first_of_run(const tutti_run *run, const tutti_pass *pass);

/* ---- members.c: meetings ---- */

int tutti_train_rank(const tutti_run *run, int index); /* of run->all */
int tutti_train_working(const tutti_run *run);         /* how many of run->all work: the first */
bool tutti_train_serves(const tutti_run *run);         /* this rank only serves: no samples */
/* Checks which workers have been lost; PEER if too few are left. */
tutti_status tutti_train_watch(tutti_run *run, tutti_error *err);
/* Updates run->all to the workers that are left. */
tutti_status tutti_train_regroup(tutti_run *run, tutti_error *err);
/* Calls body on all workers that are left, again if a loss has spoilt it. run->all has these
   workers before, within and after. */
tutti_status tutti_train_meet(tutti_run *run,
                              tutti_status (*body)(tutti_run *run, void *arg, tutti_error *err),
                              void *arg, tutti_error *err);
/* After a meeting at which index 0 has written a file, `mine` on the others TUTTI_OK: all know
   whether it could, and the run ends for all if not. Collective. */
tutti_status tutti_train_written(tutti_run *run, tutti_status mine, tutti_error *err);

/* ---- snapshots.c: evaluations of asynchronous methods, without a meeting for each ---- */

/* The most snapshots in a run with `own` values of client state; 0: it meets for evaluations, or
   makes none. Sets run->asides. Before the engine opens. */
int tutti_train_snapshots_open(tutti_run *run, uint64_t every, size_t own);
/* Evaluates the snapshots since the last meeting, with a line of metrics.jsonl each. Collective. */
tutti_status tutti_train_evaluate_snapshots(tutti_run *run, tutti_error *err);

/* ---- evaluate.c ---- */

/* Mean loss (of a known optimum: its excess), accuracy and area under the ROC curve of the engine's
   values over a split, or over `most` of its samples, drawn (0: all). Shared among the workers.
   accuracy and auc: -1: none; NULL: not wanted. Collective. */
tutti_status tutti_train_evaluate(tutti_run *run, tutti_split split, uint64_t most, double *loss,
                                  double *accuracy, double *auc, tutti_error *err);
/* --validation: how many samples are trained on; whether there are any; the engine's callback
   that gives a method the loss on the samples held out. */
uint64_t tutti_train_samples(const tutti_run *run);
tutti_status tutti_train_check_validation(const tutti_run *run, tutti_error *err);
/* The engine's callback that gives a method the loss on the samples held out. */
tutti_status tutti_train_evaluate_held_out(void *run, double *loss, tutti_error *err);
/* Evaluates the agreed model as --final-eval requests, then the worst. Collective. */
tutti_status tutti_train_evaluate_final(tutti_run *run, tutti_error *err);
/* run->worst; after an evaluation of the agreed model on the test split, which is shown. Each
   worker evaluates its own model. Collective. */
tutti_status tutti_train_evaluate_worst(tutti_run *run, tutti_error *err);

/* ---- regret.c ---- */

tutti_status tutti_train_regret_open(tutti_run *run, tutti_error *err);
/* When a step of mine begins: its part. */
void tutti_train_regret_add(tutti_run *run, uint64_t step);
void tutti_train_regret_close(tutti_run *run);

/* ---- say.c: lines for the user, by index 0 ---- */

void tutti_train_say(const tutti_run *run, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A line of fields with two blanks between them, as many as fit into the terminal's current width.
   The field with the largest rank is omitted first. */
enum { TUTTI_TRAIN_FIELDS = 8 };
typedef struct tutti_train_fields {
    int n;
    struct { int rank; char text[64]; } at[TUTTI_TRAIN_FIELDS];
} tutti_train_fields;
void tutti_train_add_field(tutti_train_fields *f, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void tutti_train_say_fields(const tutti_run *run, int status, tutti_train_fields *f);
/* `done` of an evaluation's samples are evaluated. Shows it a few times a second at most. */
void tutti_train_report_evaluating(tutti_run *run, const char *what, uint64_t done, uint64_t of);
/* Prints the events that are notes for the user (the codec's risks, a model that was never pushed
   and the like) and were not printed yet. */
void tutti_train_say_warnings(tutti_run *run);

/* ---- gather.c ---- */

tutti_status tutti_train_gather_open(tutti_run *run, tutti_error *err);
/* Sends n figures of each worker to run->figures_of of worker 0, a row for each index of run->all;
   on other workers it holds the rows that they passed on. Within a meeting. n <=
   TUTTI_TRAIN_FIGURES. */
tutti_status tutti_train_gather(tutti_run *run, const double *mine, size_t n, tutti_error *err);
/* Sends one list of each worker, of any length and of one type, to index 0: there *all has them
   one after the other, owned by the caller, and elsewhere it is NULL. begin: run->all.size + 1
   places; those of index k stand from begin[k] to before begin[k + 1]. Collective, within a
   meeting. */
tutti_status tutti_train_gather_lists(tutti_run *run, tutti_buffer mine, size_t *begin, void **all,
                                      tutti_error *err);

/* ---- metrics.c: metrics.jsonl, of index 0 ---- */

/* A new run's file is empty. A resumed run keeps the lines up to its checkpoint. */
tutti_status tutti_train_metrics_begin(tutti_run *run, tutti_error *err);
/* Opens it to append to it. */
tutti_status tutti_train_open_metrics(tutti_run *run, tutti_error *err);
/* Writes a line; takes ownership of the object. */
tutti_status tutti_train_put_json(tutti_run *run, json_t *object, tutti_error *err);

/* ---- report.c ---- */

tutti_status tutti_train_report_open(tutti_run *run, tutti_error *err);
tutti_status tutti_train_report(tutti_run *run, tutti_error *err); /* collective */
/* Worker 0 of an asynchronous method, after a step of its own: reports what it has received of
   the others, if a line is due before the meeting at `until`. */
tutti_status tutti_train_report_received(tutti_run *run, uint64_t until, tutti_error *err);
tutti_status tutti_train_report_evaluation(tutti_run *run, tutti_error *err);
/* After a step: the effect of index 0's codec on its gradients, if that was measured in it.
   Local: no worker waits. */
tutti_status tutti_train_report_codec(tutti_run *run, tutti_error *err);
/* The last such measurement; NULL: none. */
json_t *tutti_train_codec_record(const tutti_run *run, int tensor);

/* ---- closing.c, out.c, resume.c ---- */

/* Prints the closing summary of a successful run, from its totals. Index 0. */
void tutti_train_say_totals(const tutti_run *run);
/* After all checks: index 0 writes config.json, and removes what --overwrite discards. */
tutti_status tutti_train_accept(tutti_run *run, tutti_error *err);
char *tutti_train_facts(const tutti_run *run); /* free() it */
tutti_status tutti_train_resume(tutti_run *run, tutti_error *err);

/* ---- weights.c: a safetensors file against the tensors of a network ---- */

typedef struct tutti_tensors {
    const tutti_nn_param *params; int n_params;
    const tutti_nn_statistic *statistics; int n_statistics;
} tutti_tensors;
/* Refuses, in one sentence, a file that lacks any of them, or has others, other shapes or
   elements that are not floats. */
tutti_status tutti_train_weights_open(tutti_tensor_file **out, tutti_runtime *rt, const char *path,
                                      const char *model, const tutti_tensors *of,
                                      tutti_error *err);
/* One of them, as float32. TUTTI_ERR_CORRUPT: an element that is not finite. */
tutti_status tutti_train_weights_read(tutti_tensor_file *f, const char *path, const char *name,
                                      size_t count, float *values, tutti_error *err);

/* ---- init.c: --init ---- */

/* Before the engine: at rank 0 the file is opened. */
tutti_status tutti_train_init_open(tutti_run *run, tutti_error *err);
/* Reads one parameter, at rank 0; a failure is kept until settle. */
void tutti_train_init_read(tutti_run *run, int tensor, float *values);
/* After the engine: running statistics go to all, the file is closed. Collective. */
tutti_status tutti_train_init_settle(tutti_run *run, tutti_error *err);
void tutti_train_init_close(tutti_run *run);

/* ---- model_file.c: OUT/model.json, what the model takes ---- */

/* The run's data as config.json and model.json have them: a path is absolute, so that `tutti eval`
   and --resume find it from elsewhere. */
tutti_status tutti_train_data_stored(const tutti_run *run, char *out, size_t bytes,
                                     tutti_error *err);
tutti_status tutti_train_write_model_file(const tutti_run *run, tutti_error *err);
typedef struct tutti_model_file { tutti_trained_facts facts; json_t *root; } tutti_model_file;
/* facts point into root: json_decref it. */
tutti_status tutti_train_read_model_file(tutti_model_file *m, tutti_runtime *rt, const char *path,
                                         tutti_error *err);

/* ---- delays.c: workers' histograms of staleness, all of them at index 0 ---- */

/* pairs: (value or lower edge, how often), those of the k-th of run->all from begin[k] to below
   begin[k + 1]. */
typedef struct tutti_train_delays { int64_t *pairs; size_t *begin; } tutti_train_delays;
/* Collective, within a meeting; drops what *s had. */
tutti_status tutti_train_delays_gather(tutti_run *run, const tutti_histogram *h,
                                       tutti_train_delays *s, tutti_error *err);
void tutti_train_delays_drop(tutti_train_delays *s);
/* The histogram of one worker, and of all together: [[value, how often], ...]. */
json_t *tutti_train_delays_of(const tutti_train_delays *s, int index);
json_t *tutti_train_delays_of_all(const tutti_run *run, const tutti_train_delays *s);
/* Lower edges of bins that have more than one value, up to the first above all values of this
   summary. In its histograms, those of the method's figures too, such a number means "from here to
   below the next". */
json_t *tutti_train_delays_edges(const tutti_run *run, const tutti_train_delays *s);

/* ---- events.c ---- */

/* At index 0 the run's events for summary.json: its own, and of the others' those that only they
   may know of; taken, in place of what *events had. Else NULL. Collective, within a meeting. */
tutti_status tutti_train_events_gather(tutti_run *run, json_t **events, tutti_error *err);

/* ---- trace.c: what all ranks did when, on one clock ---- */

tutti_status tutti_train_check_trace(tutti_train_config *c, tutti_error *err);
/* Parses config->trace_steps, "" for all: the first step, and how many. */
void tutti_train_trace_steps(const tutti_train_config *c, uint64_t *first, uint64_t *steps);
/* Before the first step: how far the clocks of hosts are apart. Collective. */
tutti_status tutti_train_trace_begin(tutti_run *run, tutti_error *err);
/* At index 0 the text of trace.json, which the owner of the struct must tutti_free; else NULL.
   lost: events of all ranks that did not fit into the buffers. */
typedef struct tutti_train_trace { char *text; size_t length; uint64_t lost; } tutti_train_trace;
/* Collective, within a meeting; drops what *trace had. */
tutti_status tutti_train_trace_gather(tutti_run *run, tutti_train_trace *trace, tutti_error *err);

/* ---- model.c ---- */

/* Written by index 0; collective where values are gathered unit by unit. */
tutti_status tutti_train_write_model(tutti_run *run, tutti_error *err);

/* ---- results.c ---- */

/* The last reported values of tutti_metric. lists: also those that are [at, value]. */
json_t *tutti_train_method_figures(const tutti_run *run, bool lists);
tutti_status tutti_train_results(tutti_run *run, tutti_error *err); /* collective */
#endif
