/* train_internal.h: the structures and functions that the .c files of src/train share. Only these
   files, trained_internal.h and tests of the trainer include it. Each section is named after the
   .c file that implements it; config.c implements what stands before the first section. These have
   a header of their own: delays.h, gather.h, model_file.h, say.h, sums.h, trace.h,
   trace_part.h, weights.h.

   Words that are used below:
     worker      a rank that computes gradients: ranks 0 to workers - 1. The ranks after the
                 workers only serve (--servers): they have no samples, no loader and no network.
     index       the position of a rank in run->all. Index 0 prints, and writes the files of --out.
     collective  every rank of run->all calls the function, in the same order as the others.
     meeting     a call of tutti_train_meet (members.c): an exchange among run->all that is made
                 again when the loss of a worker has spoilt it.
     step        an update of the model. An asynchronous method counts gradients instead; `workers`
                 of its gradients are one step.

   A run is used by one thread, that of its rank. Functions with a tutti_error return TUTTI_OK, or
   a status and a sentence in *err. */
#ifndef TUTTI_TRAIN_INTERNAL_H
#define TUTTI_TRAIN_INTERNAL_H
#include <jansson.h>
#include <stdio.h>

#include "runtime/arrivals.h"
#include "data/data.h"
#include "nn/nn.h"
#include "record/files.h"
#include "runtime/files.h"
#include "state/image.h"
#include "tutti/tutti.h"
#include "tutti/method/pipeline.h"
#include "train/epoch.h"
#include "train/measured.h"
#include "train/train.h"
#include "train/trained.h"

enum { TUTTI_TRAIN_FIGURES = 32 }; /* most figures of a worker in one tutti_train_gather */

/* What a rank of a planned run (plan.c) has in addition. A planned run makes its steps without a
   network (dry.c), in order to measure memory and messages. */
typedef struct tutti_dry {
    bool declares;                   /* first phase: the engine declares its state without
                                        allocating it, and no step is made */
    uint64_t steps;                  /* most steps to make */
    int cores;                       /* that a worker of the real run would have */
    tutti_train_plan *plan;          /* shared by all ranks; each writes its own row */
    tutti_nn_task *task;             /* rank 0 writes the run's task there */
    bool *evaluates;                 /* rank 0 writes there whether the run evaluates */
    float *draws;                    /* random values for gradients */
    float *handed;                   /* buffer for the gradient of one tensor; NULL: the engine has
                                        memory for the gradients */
    uint64_t *named;                 /* scratch of tutti_train_name_rows, for the largest table */
    uint32_t *ids;                   /* [rows of the largest table]: result of the same */
} tutti_dry;

typedef struct tutti_train_staged tutti_train_staged; /* drive.c */

/* A run as one rank has it, from tutti_train_begin to tutti_train_close_all. A process may train in
   several worlds, one after the other (epoch.h). Of the world that it is in are: world, epoch, all,
   rank, workers; the share; named, watched, lost and events_checked; what tutti_train_leave closes.
   All others are of the process. */
typedef struct tutti_train_part tutti_train_part;
typedef struct tutti_run {
    tutti_world *world;              /* NULL: it is in none */
    tutti_train_epoch epoch;
    tutti_runtime *rt;               /* of the process: time and files */
    tutti_group all;                 /* the group of the trainer's own collectives: workers, then
                                        ranks that only serve; after losses those that remain */
    int rank;                        /* this rank in the world; >= workers: it only serves */
    int workers;                     /* workers at the run's beginning. Losses do not change it:
                                        shares, samples and rows of reports are counted by it */
    const tutti_train_config *config;
    tutti_train_config of_epoch;     /* with epochs config is this one: its n is `workers` */
    const tutti_train_io *io;
    tutti_dry *dry;                  /* NULL: the run trains; else it is planned */
    tutti_measured_model *measured;  /* the network, if its shapes and times alone are known (then
                                        nn is NULL, and nothing is evaluated); else NULL */
    float *draws, *handed;           /* of the passes of `measured`, as those of tutti_dry */
    uint64_t activations;            /* of `measured`, in bytes */

    tutti_data *data;
    void *samples;                   /* their memory; NULL: it is the world's */
    tutti_nn_task task;              /* shape of a sample, number of classes */
    tutti_nn_param *params;          /* [n_params] */
    int n_params;
    size_t parameters;               /* elements of all params together */
    tutti_nn_statistic *statistics;  /* [n_statistics]: running statistics of batch norms, stored
                                        in the engine's client state */
    int n_statistics;
    tutti_nn *nn;                    /* NULL: this rank only serves, or the run is planned */
    tutti_train_staged *staged;      /* NULL: the trainer runs the passes, not the method */
    tutti_engine *engine;
    tutti_loader *loader;            /* NULL: this rank only serves */
    size_t loader_bytes;             /* memory of the loader */
    size_t joined_bytes;             /* memory of `joined` */
    tutti_share share;               /* the engine's share as the loader uses it: its batch_of or
                                        passes_of is share_copy */
    int64_t *share_copy;             /* [workers]: copy of the engine's batch_of or passes_of, which
                                        the loader's thread reads; NULL: the share is even */
    const float **values;            /* [n_params]: where the engine has the values. With by_unit
                                        NULL except between acquire and release of the unit */
    float **gradients;               /* [n_params]: where a pass writes the gradient */
    bool by_unit;                    /* the engine gathers values unit by unit */
    bool hands_over;                 /* gradients are in memory of the network, and are handed to
                                        the engine when they are ready; the engine has no memory
                                        for all of them */

    bool is_async;                   /* TUTTI_ASYNC: workers meet only for evaluations, checkpoints
                                        and the end */
    bool unsynchronized;             /* TUTTI_UNSYNCHRONIZED_STEPS: workers make the same steps,
                                        but not at the same time */
    bool variable_batch;             /* tutti_engine_takes: the method decides how many samples a
                                        step has, and the run ends by samples */
    int snapshots;                   /* most snapshots between two evaluations of them; 0: none are
                                        taken, the current model is evaluated (snapshots.c) */
    uint64_t snapshots_from;         /* gradients done when the snapshots were last dropped */
    uint64_t step_gradients;         /* gradients of a step: 1, or `workers` with is_async */
    int events_checked;              /* events of the engine that say_warnings has examined */
    uint64_t gradients_in_all;       /* of the whole run: step_gradients in each step, in the last
                                        one perhaps fewer */
    uint64_t steps;                  /* of the whole run */
    uint64_t first_step;             /* step at which this process began: 0, or a checkpoint's */
    uint64_t entered_step;           /* step at which it began in this world */
    uint64_t resumed_step;           /* of the checkpoint with which epoch 1 begins; 0: none */
    char *resumed_facts;             /* that checkpoint's, until the sums are taken; NULL: none */
    uint64_t recorded;               /* the last step whose report and evaluation are done here */
    uint64_t led;                    /* the last epoch of the members in which this was index 0 */
    bool begun;                      /* tutti_train_loop has been called */
    bool finished;                   /* it has made the last step of the run */
    double steps_per_epoch;
    uint64_t samples_in_all;         /* variable_batch: samples after which the run ends */
    struct {
        tutti_tensor_file *file;     /* NULL: no --init, or this is not rank 0 */
        tutti_status status;         /* first failure of tutti_train_init_read, with its sentence */
        tutti_error err;
    } init;                          /* init.c */
    tutti_parts parts;               /* --partition; first is NULL: workers draw from all samples */
    tutti_arrivals arrivals;         /* --stream: the samples that arrive at this worker */
    tutti_data_buffers joined;       /* a batch that includes samples of other workers (given.c);
                                        all NULL: the method sends no samples */
    uint64_t streamed;               /* samples of the run, in its order, that this worker has taken
                                        from its stream: those below this number */

    int64_t *batch_of;               /* [workers]: samples of each worker in a pass, according to
                                        --batch-share when the run begins; NULL: even */
    bool automatic_shares;           /* --batch-share auto */
    double *sample_seconds;          /* [workers]: smoothed time of a sample, for automatic shares;
                                        below 0: not measured yet */
    double own_sample_seconds;       /* of this worker, over epochs of the members */
    bool shares_were_slow;           /* another division was better at the last measurement */
    int64_t shares_compute_ns;       /* this worker's compute time at the last measurement */
    double shares_samples;           /* samples that this worker computed since then */

    tutti_record_clock clock;        /* measured before the first step, for trace.json */
    tutti_train_part *part;          /* --trace in epochs (trace_part.h); NULL: none */

    tutti_runtime meter;             /* --step-time: counts the FLOPs that the network charges */
    tutti_device *metered;           /* the network's device, on `meter`; NULL: no --step-time, and
                                        the network charges the world's device */
    double flop_ns;                  /* virtual time of a FLOP in this pass */
    double pending_ns;               /* virtual time that was counted and not slept yet */
    double slow;                     /* --slow: factor of this step; 1: not slowed; 0: not known */
    struct {                         /* when the computation began that is not stretched yet */
        int64_t since_ns;
        int64_t processor_ns;        /* processor time of its thread by then */
    } computing;

    float *optimum;                  /* [parameters]: optimum of the problem at a step (regret.c);
                                        NULL: the optimum is not known */
    double *curvature;               /* [parameters]: of the problem's loss; NULL with optimum */
    double regret;                   /* sum over this worker's steps in this process; with epochs
                                        over all workers' */
    bool regret_due;                 /* the regret of this step has to be added, as soon as the
                                        values of its first unit are there */

    /* sums.c, since the last report: this worker's; with epochs loss_samples and share_loss are
       those of all workers, up to the last step that was made. */
    double loss_sum, loss_samples;
    double *share_loss;              /* [logical shares]: loss_sum by share, 0 for those of other
                                        workers; NULL: no logical shares */
    struct {
        double *sums;                /* what they become with this step, as far as this worker
                                        knows; NULL: no epochs */
        tutti_status status;         /* of their exchange, with its sentence */
        tutti_error err;
        double lr;                   /* of the last step that was made; epochs only */
    } step;
    int64_t reported_ns;             /* time of the last report */
    uint64_t first_samples;          /* samples of the run before this process */
    tutti_figures reported;          /* the engine's figures at the last report */
    tutti_received received;         /* asynchronous: at the last line of metrics */
    uint64_t codec_reported;         /* step of the last codec records that were written */
    double *figures_of;              /* result of tutti_train_gather: a row of figures for each
                                        index, at most TUTTI_TRAIN_FIGURES in a row */

    double consensus_distance;       /* of the last evaluation: root of the mean over workers of
                                        |x_i - mean|^2; 0 where replicas are equal */
    double test_loss;                /* of the last evaluation */
    double test_accuracy;            /* of the last evaluation; -1: none yet, or the model does not
                                        classify (quadratic) */
    double test_auc;                 /* of the last evaluation, where a sample has one logit; -1:
                                        none, or all labels are equal */
    struct {
        double seconds, bytes, epoch; /* bytes: sent by all ranks so far */
        uint64_t samples, step;
        bool snapshot;               /* a snapshot is being evaluated, not the current model */
    } evaluated;                     /* when the evaluated model was there, for metrics.jsonl */
    struct {
        double loss, accuracy;       /* accuracy -1: the model does not classify */
        int worker;                  /* -1: replicas are equal, or nothing was evaluated yet */
    } worst;                         /* of the workers' own models at the end, the one whose test
                                        loss is largest */
    double train_loss;               /* of the agreed model at the end, over train_samples */
    uint64_t train_samples;          /* 0: not evaluated */
    int64_t evaluating_ns;           /* when the progress of an evaluation was last shown */
    struct {
        double wall, compute, exposed, other; /* seconds */
        double bytes;                /* sent by all ranks */
        double memory;               /* bytes: the largest peak_rss of a worker */
        uint64_t samples, steps;
    } totals;                        /* index 0, after the results were written: what this process
                                        has done of the run */
    double time_to_target;           /* seconds of the slowest worker; -1: not reached */
    bool target_reached;
    char *passed_over;               /* checkpoints that were found damaged while resuming: lines
                                        "step-00000030: why"; NULL: none */
    tutti_record_rows *metrics;      /* metrics.jsonl; NULL: this is not index 0 */
    tutti_figures before;            /* times and traffic in worlds that are closed (epoch.c) */
    json_t *events_before;           /* the events of their engines; NULL: none */
    int64_t counted_ns;              /* until when `before` counts time */
    struct {
        tutti_image *image;          /* of the last named step (epoch.h) that was agreed; NULL:
                                        there is none in this epoch */
        tutti_image *other;          /* of the one before, or of the one after; NULL: none */
    } named;
    uint64_t handed_over;            /* the step with which the last epoch ended that no loss did */
    double gone_bytes;               /* sent by processes that are no members any more */
    double told_bytes;               /* most bytes of the run that this process knows of */
    int watched;                     /* events of the world that tutti_train_watch has read */
    int lost;                        /* workers that are lost */
} tutti_run;

/* Returns the options as a JSON object, without those that concern only how a process is started
   (out, resume, overwrite, meet). The caller owns it. */
json_t *tutti_train_config_object(const tutti_train_config *c);
/* Parses --device-memory. *bytes 0: not set. */
tutti_status tutti_train_device_bytes(const tutti_train_config *c, size_t *bytes, tutti_error *err);
typedef enum { TUTTI_TARGET_LOSS, TUTTI_TARGET_ACCURACY, TUTTI_TARGET_AUC } tutti_target;
/* Parses --target, such as "loss=0.1". */
tutti_status tutti_train_parse_target(const char *text, tutti_target *of, double *value,
                                      tutti_error *err);

/* ---- pair.c: do model, data, target and precision match? ---- */

/* Returns "fp32", "bf16" or "fp16". */
const char *tutti_train_precision_name(const tutti_train_config *c);
tutti_dtype tutti_train_precision(const tutti_train_config *c);
/* Checks what is known from the options alone. */
tutti_status tutti_train_check_pair(const tutti_train_config *c, tutti_error *err);
/* Checks that the model accepts the kind of the samples: tokens of a text, categories of clicks,
   or (both false) plain values. */
tutti_status tutti_train_check_samples(const tutti_train_config *c, bool text, bool clicks,
                                       tutti_error *err);
/* Returns the options of a network of this run, for passes of at most `batch` samples. The caller
   sets device, running and adds. */
tutti_nn_options tutti_train_network(const tutti_train_config *c, int64_t batch, bool hands_over);

/* ---- slow.c: --slow ---- */

/* Checks the syntax of --slow, and that the ranks in it are workers. */
tutti_status tutti_train_check_slow(const char *spec, int64_t workers, tutti_error *err);
/* Returns by what factor the worker is slowed in that step; 1: it is not. */
double tutti_train_slow_factor(const char *spec, uint64_t seed, int rank, uint64_t step);
/* Call where a part of the computation begins, on its thread. */
void tutti_train_computes(tutti_run *run);
/* Call whenever a part of the computation is done: sleeps for the virtual time that is pending
   (--step-time), then, if run->slow > 1, so long that the part took run->slow times its time. The
   next part begins. */
void tutti_train_stretch(tutti_run *run);

/* ---- partition.c: --partition: each worker draws from its own part of the data ---- */

/* Checks what can be checked before the data are open. */
tutti_status tutti_train_check_partition(const tutti_train_config *c, tutti_error *err);
/* Draws the parts into run->parts, after the data are open. Collective. */
tutti_status tutti_train_partition_open(tutti_run *run, tutti_error *err);
/* Adds a description of the worker's part to its row of summary.json; without a partition
   nothing. */
void tutti_train_partition_describe(const tutti_run *run, int worker, json_t *row);

/* ---- drive.c: methods that run the passes of stages themselves (pipeline.h) ---- */

/* Is the run's method one of these (TUTTI_PIPELINE_SCHEDULE)? */
bool tutti_train_drives(const tutti_run *run);
/* Makes run->staged and the description of the model for the engine. A model without stages is
   no failure here: the description contains the reason. Before the engine opens; close after the
   engine is closed. Collective where the method asks for the time of units. */
tutti_status tutti_train_staged_open(tutti_run *run, tutti_error *err);
void tutti_train_staged_close(tutti_run *run);
/* Returns the description of the model for the engine; NULL: run->staged is NULL. */
const tutti_model *tutti_train_model(const tutti_run *run);
/* Returns the bytes of this rank's stage with all slots in use; 0: it has none. */
size_t tutti_train_stage_bytes(const tutti_run *run);

/* ---- measure.c ---- */

/* Measures the time of each unit of the model on each rank. seconds: [run->all.size][model->units],
   of a sample, forward and backward. Before the engine opens. Collective. Blocks. */
tutti_status tutti_train_measure(tutti_run *run, const tutti_model *model, double *seconds,
                                 tutti_error *err);

/* ---- arrivals.c: --stream. Without it these functions have no effect. ---- */

tutti_status tutti_train_check_stream(const tutti_train_config *c, tutti_error *err);
/* The options of a run whose workers come and go. Sets least, most and, unless it is given,
   elastic_shares. */
tutti_status tutti_train_check_workers(tutti_train_config *c, tutti_error *err);
/* Has each logical share a state, on the worker that has the share? So may it with a codec. */
bool tutti_train_keeps_by_share(const tutti_train_config *c);
/* Sets this worker's rate. After the shares are known. */
tutti_status tutti_train_stream_open(tutti_run *run, tutti_error *err);
/* Begins the arrivals, at the time when the training begins. */
void tutti_train_stream_begin(tutti_run *run);
/* Blocks until that many samples have arrived, and takes them. */
void tutti_train_stream_take(tutti_run *run, int64_t samples);
/* Adds the arrivals of a worker to its row of summary.json. */
void tutti_train_stream_describe(const tutti_run *run, const tutti_arrivals *a, json_t *row);

/* ---- given.c: samples that workers send each other ---- */

/* These two are callbacks of the engine (tutti_engine_options.give and .label); user: the run. */
tutti_status tutti_train_give(void *user, const uint64_t *ids, size_t n, void *out,
                              tutti_error *err);
int tutti_train_label(void *user, uint64_t id);
/* Allocates run->joined if the method sends samples. After the engine is open. samples: most of a
   pass, those of other workers included. */
tutti_status tutti_train_given_open(tutti_run *run, int64_t samples, tutti_error *err);
void tutti_train_given_close(tutti_run *run);
/* If the pass has samples of other workers, replaces *batch by one in run->joined that has them
   after the batch's own. */
tutti_status tutti_train_join(tutti_run *run, const tutti_pass *pass, tutti_batch *batch,
                              tutti_error *err);

/* ---- shares.c: --batch-share ---- */

/* Parses --batch-share. weight: [workers], set to the weights that are given, or to 1 each; NULL:
   only check. *automatic: it is "auto". TUTTI_ERR_USAGE: malformed, another number of weights than
   workers, or all are 0. */
tutti_status tutti_train_parse_shares(const char *text, int64_t workers, double *weight,
                                      bool *automatic, tutti_error *err);
/* Sets run->batch_of unless shares are even. Collective, in an epoch of members. */
tutti_status tutti_train_shares_open(tutti_run *run, tutti_error *err);
/* Sets speed[n], in samples a second, from sample_seconds[n]. Times below 1 ns count as 1 ns.
   false: some time is below 0, that is, not measured. */
bool tutti_train_speeds(const double *sample_seconds, int n, double *speed);
/* After `done` steps: with --batch-share auto measures all workers, every TUTTI_SHARES_SETTLE
   steps, and changes the engine's shares if that is worthwhile, or asks for the next epoch
   (tutti_train_epoch.divides). Collective. */
tutti_status tutti_train_shares_adapt(tutti_run *run, uint64_t done, tutti_error *err);

/* ---- simulation.c: --platform, --fail, --step-time ---- */

tutti_status tutti_train_check_simulation(const tutti_train_config *config, tutti_error *err);
/* Will a worker fail, by --fail or the transport's option of that name? */
bool tutti_train_fails(const tutti_train_config *config);
/* The meter of --step-time. Without --step-time the functions after open do nothing. */
/* Sets *device to the device that a network of this run has to charge. */
tutti_status tutti_train_meter_open(tutti_run *run, tutti_device **device, tutti_error *err);
/* Begins a pass of run->nn with that many samples. */
void tutti_train_meter_start(tutti_run *run, int64_t samples);
/* Begins a pass of a model that computes `flops` FLOPs a sample. */
void tutti_train_meter_start_of(tutti_run *run, double flops, int64_t samples);
/* Sleeps for the virtual time that is pending. */
void tutti_train_meter_pay(tutti_run *run);

/* ---- memory.c: the memory of this rank ---- */

/* Writes at most `capacity` records, the engine's and then the trainer's, and returns how many
   there are. The network's memory is its maximum so far. Between steps. */
size_t tutti_train_memory_records(const tutti_run *run, tutti_memory_record *records,
                                   size_t capacity);
/* Sets bytes[kind] to the sum of the records of each kind. */
tutti_status tutti_train_memory(const tutti_run *run, uint64_t bytes[TUTTI_MEMORY_KINDS],
                                tutti_error *err);

/* ---- measured_pass.c: passes of a measured network; see also measured.h ---- */

/* Allocates what passes need, and registers the activations. After the engine is open. */
tutti_status tutti_measured_begin(tutti_run *run, tutti_error *err);
void tutti_measured_end(tutti_run *run);
/* Takes the time of a pass of run->measured and calls its hooks, with random gradients. */
tutti_status tutti_measured_pass(tutti_run *run, const tutti_pass *pass, const tutti_batch *batch,
                                 const tutti_nn_hooks *hooks, double *loss, tutti_error *err);

/* ---- dry.c: passes of a planned run, which compute nothing ---- */

/* Returns random values as large as a gradient's, for the next two functions; tutti_free them.
   NULL: no memory. */
float *tutti_train_draws(const tutti_run *run);
/* Returns one of them; i may be any number. */
float tutti_train_drawn(const float *draws, size_t i);
/* Where a gradient goes: to[n]. keep: it is added to what is there. */
typedef struct tutti_drawn_gradient { float *to; size_t n; bool keep; } tutti_drawn_gradient;
/* Draws the gradient of a parameter, another one in each step and pass. */
void tutti_train_draw_gradient(const tutti_run *run, const float *draws, const tutti_pass *pass,
                               int param, const tutti_drawn_gradient *g);

/* Allocates the members of run->dry. After the engine is open. */
tutti_status tutti_train_dry_open(tutti_run *run, tutti_error *err);
void tutti_train_dry_close(tutti_run *run);
/* Calls the hooks that a pass through the network would call, with random gradients and the rows
   that the batch reads. */
tutti_status tutti_train_dry_pass(tutti_run *run, const tutti_pass *pass, const tutti_batch *batch,
                                  const tutti_nn_hooks *hooks, double *loss, tutti_error *err);
/* Writes the rows of a table that the batch reads to ids, each once and in ascending order, and
   returns how many there are. A row is the id of a token; for a click log, whose tables are stored
   one after another, table x rows of a table + category. rows: of all tables. named: scratch of
   rows / 64 + 1 zeros, and zeros again on return. ids: space for `rows`. */
size_t tutti_train_name_rows(const tutti_run *run, const tutti_batch *batch, size_t rows,
                             uint64_t *named, uint32_t *ids);

/* ---- setup.c: opening and closing a run ---- */

/* Opens the data, and lists the parameters and running statistics of the model. In a world it is
   collective, and the ranks of a host share the samples, which end with the world. In none this
   process has its own. */
tutti_status tutti_train_open_samples(tutti_run *run, tutti_error *err);
/* Determines each worker's part and share of the samples. After open_samples. Collective. */
tutti_status tutti_train_divide(tutti_run *run, tutti_error *err);
/* Opens engine, network and loader, and loads the state with which the run begins. After divide.
   Collective. */
tutti_status tutti_train_open(tutti_run *run, tutti_error *err);
/* Closes what tutti_train_open has opened, which may then be called again. */
void tutti_train_close(tutti_run *run);
/* Leaves the world: closes all that is of it, before the world. tutti_train_enter may follow. */
void tutti_train_leave(tutti_run *run);
/* Closes all that is open. */
void tutti_train_close_all(tutti_run *run);
/* Call after a step: if the engine's share has changed, opens the loader again with it. */
tutti_status tutti_train_follow_share(tutti_run *run, uint64_t step, tutti_error *err);
/* Returns the most samples that a pass of run->nn can have, whatever this worker's share becomes;
   1 with run->staged, where run->nn only evaluates. */
int64_t tutti_train_most_samples(const tutti_run *run);

/* ---- step.c ---- */

/* Makes one step with all its passes. For methods that do not run the passes themselves. */
tutti_status tutti_train_step(tutti_run *run, tutti_error *err);
/* Calls tutti_engine_unit_acquire; then run->values of that unit are set. */
tutti_status tutti_train_unit_acquire(tutti_run *run, int unit, bool backward, tutti_error *err);
/* Calls tutti_engine_unit_release; with by_unit first sets run->values of that unit to NULL. */
tutti_status tutti_train_unit_release(tutti_run *run, int unit, bool backward, tutti_error *err);

/* ---- train.c ---- */

/* Sets *run to a run with nothing open yet, and io->started_ns if it is 0. rt: for files, and the
   clock of its worlds. */
void tutti_train_begin(tutti_run *run, tutti_runtime *rt, const tutti_train_config *config,
                       tutti_train_io *io);
/* Enters a world: sets run->all, rank and workers, and loads the table of collectives.
   TUTTI_ERR_USAGE: --servers leaves no worker. Collective. */
tutti_status tutti_train_enter(tutti_run *run, tutti_world *world, tutti_error *err);
/* Makes the steps of an open run, with its reports, evaluations and checkpoints, to its end
   (run->finished) or that of the epoch. TUTTI_CLOSED: a signal has stopped it, and its state was
   saved. Collective. Blocks. */
tutti_status tutti_train_loop(tutti_run *run, tutti_error *err);

/* ---- progress.c ---- */

/* Returns how many epochs are done. */
double tutti_train_epochs(const tutti_run *run);
/* Returns the remaining work divided by what this process has done; 0: it has done nothing yet,
   or nothing remains. */
double tutti_train_left(const tutti_run *run);
/* Returns the interval between evaluations: in steps; of asynchronous methods in gradients; 0: no
   evaluation before the end. An asynchronous run evaluates by default only with --target. */
uint64_t tutti_train_evaluates_every(const tutti_run *run);
/* Returns that interval in samples, for variable_batch: --eval-every then counts steps of `batch`
   samples a worker, as --steps does. */
uint64_t tutti_train_samples_between(const tutti_run *run);
/* Does the run evaluate at any time, the end included? */
bool tutti_train_evaluates(const tutti_run *run);
/* Returns the position of a pass's first sample among all samples of the run, from which random
   draws for the sample follow: they are the same on every worker that may compute it. With a
   partition each worker counts its own samples. */
uint64_t tutti_train_first_of_run(const tutti_run *run, const tutti_pass *pass);
/* Returns how many samples of the training set are trained on: all but those of --validation. */
uint64_t tutti_train_samples(const tutti_run *run);
/* Checks that --validation leaves samples to train on. */
tutti_status tutti_train_check_validation(const tutti_run *run, tutti_error *err);

/* ---- members.c: the ranks of run->all, and meetings ---- */

/* Returns the rank at that index of run->all. */
int tutti_train_rank(const tutti_run *run, int index);
/* Returns how many workers run->all has. They have the indexes from 0. */
int tutti_train_working(const tutti_run *run);
/* Does this rank only serve? */
bool tutti_train_serves(const tutti_run *run);
/* Counts the workers that were lost since the last call, and calls io->lost for each. Local.
   TUTTI_ERR_PEER: fewer than io->least are left. */
tutti_status tutti_train_watch(tutti_run *run, tutti_error *err);
/* Reduces run->all to the ranks that are left. A new index 0 opens metrics.jsonl. Local. */
tutti_status tutti_train_regroup(tutti_run *run, tutti_error *err);
/* Calls body on all ranks of run->all, and again, on those that are left, when a loss has spoilt
   it. A failure of body other than TUTTI_ERR_PEER is returned at once. Collective. Blocks. */
tutti_status tutti_train_meet(tutti_run *run,
                              tutti_status (*body)(tutti_run *run, void *arg, tutti_error *err),
                              void *arg, tutti_error *err);
/* After index 0 has written a file: all ranks learn whether that succeeded, and fail if not.
   mine: this rank's status; TUTTI_OK if it had nothing to write. Collective. */
tutti_status tutti_train_written(tutti_run *run, tutti_status mine, tutti_error *err);

/* ---- snapshots.c: evaluations of asynchronous methods, without a meeting for each ---- */

/* Sets run->snapshots and returns it. every: interval of evaluations, in gradients. client_values:
   floats of client state. Before the engine opens. */
int tutti_train_snapshots_open(tutti_run *run, uint64_t every, size_t client_values);
/* Evaluates and drops the snapshots that the engine has, with a line of metrics.jsonl for each.
   Collective. */
tutti_status tutti_train_evaluate_snapshots(tutti_run *run, tutti_error *err);

/* ---- evaluate.c ---- */

/* Where an evaluation writes. loss: the mean; where the optimum is known, its excess over the
   least. accuracy, auc: -1: none; auc NULL: not requested. */
typedef struct tutti_train_scores {
    double *loss, *accuracy, *auc;
} tutti_train_scores;
/* Evaluates the engine's values on a split, or on `most` samples that are drawn from it (0: on
   all). The samples are divided among the workers. Collective. */
tutti_status tutti_train_evaluate(tutti_run *run, tutti_split split, uint64_t most,
                                  const tutti_train_scores *to, tutti_error *err);
/* Is the engine's callback `evaluate` (user: the run): sets *loss to the mean loss on the samples
   of --validation. Local. */
tutti_status tutti_train_evaluate_held_out(void *user, double *loss, tutti_error *err);
/* Evaluates the final model as --final-eval requests, then calls tutti_train_evaluate_worst.
   Collective. */
tutti_status tutti_train_evaluate_final(tutti_run *run, tutti_error *err);
/* Sets run->worst: each worker evaluates its own model on the test split. After
   tutti_train_evaluate has evaluated the agreed model there. Collective. */
tutti_status tutti_train_evaluate_worst(tutti_run *run, tutti_error *err);

/* ---- regret.c: where the optimum is not known these functions do nothing ---- */

tutti_status tutti_train_regret_open(tutti_run *run, tutti_error *err);
/* Adds the regret of run->values at that step to run->regret. */
void tutti_train_regret_add(tutti_run *run, uint64_t step);
void tutti_train_regret_close(tutti_run *run);

/* ---- report.c: reports while a run trains ---- */

/* Sets *place to where the rows of metrics.jsonl go, in which forms. goes_on: the run has begun
   elsewhere, and a port that cannot be had here is left out with a warning. */
tutti_status tutti_train_rows_place(const tutti_run *run, bool goes_on, tutti_record_place *place,
                                    tutti_error *err);
/* Opens metrics.jsonl at index 0, and allocates what gather.c needs. */
tutti_status tutti_train_report_open(tutti_run *run, tutti_error *err);
/* Reports the training since the last report. Collective. */
tutti_status tutti_train_report(tutti_run *run, tutti_error *err);
/* Asynchronous methods, after a step of this worker: index 0 reports what it has received from the
   others so far, if a report is due before the meeting at `until` gradients. Local. */
tutti_status tutti_train_report_received(tutti_run *run, uint64_t until, tutti_error *err);
/* Reports the last evaluation. Collective. */
tutti_status tutti_train_report_evaluation(tutti_run *run, tutti_error *err);
/* Call after a step: index 0 writes the effect of its codec on its gradients, if that was measured
   in the step. Local. */
tutti_status tutti_train_report_codec(tutti_run *run, tutti_error *err);

/* ---- closing.c ---- */

/* Prints the closing summary of a successful run, from run->totals. Index 0. */
void tutti_train_say_totals(const tutti_run *run);
void tutti_train_say_begin(tutti_run *run); /* what is trained, by whom and how; train.c */

/* ---- out.c ---- */

/* Call when all checks have passed: index 0 removes what --overwrite discards, and writes
   config.json and model.json. */
tutti_status tutti_train_accept(tutti_run *run, tutti_error *err);

/* ---- resume.c ---- */

/* Returns what a checkpoint or an image stores about its run, as JSON text; free() it. saved: for a
   checkpoint, which the ranks save together after what is due at the step. NULL: no memory. */
char *tutti_train_facts(const tutti_run *run, bool saved);
/* Loads the checkpoint that --resume names, or the newest valid one. Sets run->first_step and
   run->passed_over. Collective. */
tutti_status tutti_train_resume(tutti_run *run, tutti_error *err);

/* ---- init.c: --init. Without it, and in a resumed or planned run, these do nothing. ---- */

/* Opens the file, at rank 0. Before the engine opens. */
tutti_status tutti_train_init_open(tutti_run *run, tutti_error *err);
/* Reads one parameter, at rank 0. A failure is kept in run->init for settle. */
void tutti_train_init_read(tutti_run *run, int tensor, float *values);
/* Returns a failure of init_read; else sends the running statistics to all ranks. After the
   engine is open. Collective. */
tutti_status tutti_train_init_settle(tutti_run *run, tutti_error *err);
/* Closes the file, if it is open. */
void tutti_train_init_close(tutti_run *run);

/* ---- events.c ---- */

/* Returns tutti_record_events, with the events of earlier worlds and, unless own, of resuming;
   json_decref it. */
json_t *tutti_train_events(const tutti_run *run, bool own);
/* *events: at index 0 the events of the run for summary.json: index 0's own, and those that only
   another rank knows of, sorted by step; NULL on other ranks. The previous *events is released.
   Collective, within a meeting. */
tutti_status tutti_train_events_gather(tutti_run *run, json_t **events, tutti_error *err);

/* ---- model.c ---- */

/* Writes model.safetensors. With by_unit collective; else only index 0 calls it. */
tutti_status tutti_train_write_model(tutti_run *run, tutti_error *err);

/* ---- results.c ---- */

/* Writes summary.json, model.safetensors and trace.json. Collective. */
tutti_status tutti_train_results(tutti_run *run, tutti_error *err);
#endif
