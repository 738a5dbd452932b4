/* train.h: the native trainer, which `tutti train` runs in each rank. Its configuration is one
   table of options, from which flags, TUTTI_* variables, files, help and docs are made. Its results
   are the files of --out.

   Included by the commands (src/cli) and by tests. Implemented in src/train: tutti_train_worker in
   train.c, options and their checks in config.c and pair.c, plans in plan.c, the directory in
   out.c, the spec of the transport in simulation.c. */
#ifndef TUTTI_TRAIN_H
#define TUTTI_TRAIN_H
#include "tutti/tutti.h"
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration ---- */
/* The value of each option of tutti_train_options; docs/OPTIONS.md describes them. Texts are never
   NULL and are borrowed; "": not given. */
typedef struct tutti_train_config {
    const char *model, *data, *method, *optimizer, *lr_schedule, *transport, *target, *out,
        *resume, *init, *slow, *batch_share, *partition, *platform, *fail, *collective,
        *collective_table, *codec, *codec_hierarchy, *loss_scale, *stream, *hosts, *rsh, *meet,
        *device_memory, *trace_steps, *log_to, *metrics_port, *workers;
    int64_t n, servers, epochs, steps, batch, accumulate, seed, threads, report_every,
        codec_report, eval_every, checkpoint_every, checkpoint_keep, min_workers, stream_buffer,
        elastic_shares, restarts, copy_every;
    double validation, clip_norm, step_time, start_timeout, workers_timeout;
    int on_loss, nonfinite, lane, precision, codec_cost, final_eval;
    int checkpoint_async;         /* 0: off */
    bool codec_checksum, checkpoint_on_signal, overwrite, trace, quiet;
    bool continue_on_loss;        /* no option: tutti_train_check sets it, from on_loss */
    int least, most;              /* no options: tutti_train_check sets them, from workers; 0: the
                                     workers are those of the beginning */
} tutti_train_config;
extern const tutti_option tutti_train_options[]; /* {0}-ended */
/* batch-share=auto: steps between measurements of the speeds. The first measurement is earlier. */
enum { TUTTI_SHARES_SETTLE = 10 };
/* Values of precision, final_eval and on_loss. */
enum { TUTTI_PRECISION_FP32, TUTTI_PRECISION_BF16, TUTTI_PRECISION_FP16 };
enum { TUTTI_FINAL_EVAL_OFF, TUTTI_FINAL_EVAL_ON, TUTTI_FINAL_EVAL_ALL };
enum { TUTTI_ON_LOSS_AUTO, TUTTI_ON_LOSS_STOP, TUTTI_ON_LOSS_CONTINUE };

/* Returns the passes of a step, of one worker or of one logical share: accumulate, or in rounds
   (engine/modes/rounds.h) those of all local steps. */
int64_t tutti_train_passes(const tutti_train_config *config);

/* Returns the steps of its method's period (tutti_method_repeats); 1 where a step is a round. */
uint64_t tutti_train_repeats(const tutti_train_config *config);

/* Returns the samples of a full step over all workers. */
int64_t tutti_train_step_samples(const tutti_train_config *config);

/* Completes model and data where one of them is a synthetic problem (problem.h), which is both
   model and data. If only one of the two was given, sets the other from it. If both are the same
   problem, options given to one of them apply to both. Call before tutti_train_check, which refuses
   pairs that do not match. */
void tutti_train_pair(tutti_train_config *config, bool model_given, bool data_given);

/* Checks what option bounds cannot express: combinations, the form of the target, --on-loss
   continue with a method or transport that does not support it. Sets threads if it is 0 (from
   `cores`, those of this machine), continue_on_loss, the default loss_scale of fp16, and trace if
   trace_steps is given. Loads the transport's plug-in where platform, fail or step-time needs
   it. */
tutti_status tutti_train_check(tutti_train_config *config, int cores, tutti_error *err);

/* Does a run of these options continue without a lost worker (continue_on_loss)? Method and
   transport must both be able to. A simulated run knows whether a worker is to fail; if not, a
   thousand workers need not agree on which are there. */
bool tutti_train_continues(const tutti_train_config *config);

/* Sets *spec to the transport's spec with the options platform, fail and start-timeout added, such
   as "sim(platform=...,fail=...)", from which a world is opened; tutti_free it. TUTTI_ERR_USAGE:
   the transport has no option platform or fail, or its spec has another value of it. */
tutti_status tutti_train_transport(const tutti_train_config *config, char **spec,
                                   tutti_error *err);

/* Returns after how many ns the transport considers a silent worker lost, from its option
   peer-timeout; 0: it has no such option. Loads a plug-in. */
int64_t tutti_train_silence_ns(const tutti_train_config *config);

/* Checks that the data set can be opened and that the model accepts its samples, as far as that is
   known before samples are read; of a text that includes its context and vocabulary. The workers
   check the rest. Also checks that init is a safetensors file; rank 0 compares its contents later.
   installed: as installed_data of tutti_train_io. */
tutti_status tutti_train_check_data(tutti_runtime *rt, const tutti_train_config *config,
                                    const char *installed, tutti_error *err);

/* Checks collective-table and metrics-port, if they are given, and makes the output directory.
   TUTTI_ERR_USAGE: the directory has another run's checkpoints or results, and overwrite is false.
   Changes nothing in the directory. Call once, before workers start; if other processes may use the
   directory too, in the process that has claimed it (launch.h). */
tutti_status tutti_train_prepare(tutti_runtime *rt, const tutti_train_config *config,
                                 tutti_error *err);

/* Returns the number of workers with which the newest complete checkpoint of that directory has to
   be resumed; 0: any number can resume it, or there is no checkpoint. *began: the number of workers
   with which its run began, if the result is above 0. rank: the ranks of the workers that were left
   when it was saved, ascending, as many as are returned. Reads the manifest only. */
enum { TUTTI_TRAIN_WORKERS_MOST = 1024 };
int tutti_train_savers(tutti_runtime *rt, const char *directory, int *began,
                       int rank[TUTTI_TRAIN_WORKERS_MOST]);

/* Checks that all ranks have the same values of the options that must be equal, for ranks that were
   not started by one command line. The error names the option, two ranks and both values.
   Collective: all ranks of the world call it. Blocks. */
tutti_status tutti_train_compare(tutti_world *world, const tutti_train_config *config,
                                 tutti_error *err);

/* ---- a rank of a run ---- */
/* Callbacks and surroundings of a rank. Zeroed: none. The callbacks get `user`, and are called on
   the thread that calls tutti_train_worker.

   say: prints a line for the user. Called on the rank that reports (the lowest worker that is
   left). status:
     0  a plain line;
     1  a progress line, which the next line may replace;
     2  a temporary line: do not print it where lines cannot be replaced;
     3  a warning: print it with --quiet, too.

   columns: returns how many columns a line of status 1 or 2 may have now. Its least important
   fields are omitted until it fits. 0, or columns NULL: any number.

   lost: in a run that continues after losses, called on each rank for each loss that it learns
   of. NULL: a launcher reports losses.

   stop: with checkpoint_on_signal, returns the signal by which this process was asked to end, or
   0. Called between steps. NULL: not called. */
typedef struct tutti_train_io {
    void (*say)(void *user, int status, const char *line);
    int (*columns)(void *user);
    void *user;
    const char *installed_data;   /* folder of installed data sets; NULL: none */
    int64_t started_ns;           /* when the command began, for host_seconds; 0: now */
    int least;                    /* a run that continues after losses ends (TUTTI_ERR_PEER) when
                                     fewer workers are left; 0: a launcher does that */
    void (*lost)(void *user, int rank, const char *why);
    int (*stop)(void *user);
    tutti_runtime *host;          /* the clock of started_ns, where the time of the workers is
                                     virtual; NULL: the workers' clock */
} tutti_train_io;

/* Runs one rank completely: data, model, engine, steps, evaluations, files. Every rank calls it
   with the same config, after tutti_train_prepare. Blocks until the run ends.

   Nothing is written until everything has been accepted, including the checkpoint to resume;
   config.json is written first. TUTTI_CLOSED: stopped by `stop`, after a checkpoint of the last
   step was saved. */
tutti_status tutti_train_worker(tutti_world *world, const tutti_train_config *config,
                                const tutti_train_io *io, tutti_error *err);

/* ---- the plan of a run ---- */
/* The memory and traffic of one rank. */
typedef struct tutti_train_plan_rank {
    bool serves;                  /* it only serves */
    bool adds;                    /* it has passes that accumulate gradients */
    uint64_t stage_bytes;         /* memory of its pipeline stage; 0: it has none */
    bool by_unit;                 /* its network computes unit by unit (nn.h) */
    int64_t samples;              /* most samples of a pass; 0: it only serves */
    uint64_t bytes[TUTTI_MEMORY_KINDS]; /* as summary.json of the run would count them;
                                     activations at their maximum */
    uint64_t sent, messages;      /* bytes and messages that it sent in the planned steps */
    tutti_memory_record *record;  /* [n_records]: the components of bytes, except activations */
    size_t n_records;
} tutti_train_plan_rank;

/* Filled by tutti_train_plan_make. */
typedef struct tutti_train_plan {
    int workers, servers;
    uint64_t parameters;          /* elements of the model */
    uint64_t data_bytes;          /* of the samples, which the ranks of a host share */
    uint64_t steps;               /* steps that were made; 0: none, for the reason in unmeasured */
    char unmeasured[240];
    tutti_train_plan_rank *rank;  /* [workers + servers]: workers first */
} tutti_train_plan;

/* Determines the memory and traffic of a run of this config with the code of the run. First the
   methods declare their state without allocating it. Then all ranks, as threads of this process,
   make `over` steps, with random gradients instead of passes through the network, and memory and
   messages are counted. Finally networks are opened, and count the activations. If the engines of
   all ranks need more than three quarters of this machine's memory, no steps are made, and only
   declared state is counted. config: as tutti_train_check leaves it; options that only take time
   (stream, slow, step_time, fail) and output files are ignored. installed: as installed_data of
   tutti_train_io. TUTTI_ERR_USAGE: the run would be refused, or its transport has ranks that are
   not threads. Call tutti_train_plan_drop also after a failure. Blocks. */
tutti_status tutti_train_plan_make(tutti_train_plan *plan, const tutti_train_config *config,
                                   const char *installed, uint64_t over, tutti_error *err);
void tutti_train_plan_drop(tutti_train_plan *plan); /* a zeroed plan is allowed */

/* Sets *json to the content of OUT/config.json: the options, without out, resume, overwrite and
   meet. tutti_free it. */
tutti_status tutti_train_config_json(const tutti_train_config *config, char **json,
                                     tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
