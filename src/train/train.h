/* train.h: the native trainer: what `tutti train` runs in each worker. Its configuration is one
   option table (flags, TUTTI_*, files, help and docs come from it). Its results are the files of
   --out. */
#ifndef TUTTI_TRAIN_H
#define TUTTI_TRAIN_H
#include "tutti/tutti.h"
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration ---- */
/* One member per option (tutti_train_options), except continue_on_loss. */
typedef struct tutti_train_config {
    const char *model, *data, *method, *optimizer, *lr_schedule, *transport, *target, *out,
        *resume, *init, *slow, *batch_share, *partition, *platform, *fail, *collective,
        *collective_table, *codec, *codec_hierarchy, *loss_scale, *stream, *hosts, *rsh, *meet,
        *device_memory, *trace_steps;
    int64_t n, servers, epochs, steps, batch, accumulate, seed, threads, report_every,
        codec_report, eval_every, checkpoint_every, checkpoint_keep, min_workers, stream_buffer;
    double validation, clip_norm, step_time, start_timeout;
    int on_loss, nonfinite, lane, precision, codec_cost, final_eval;
    bool codec_checksum, checkpoint_on_signal, overwrite, trace, quiet;
    /* Set by tutti_train_check from on_loss; without the check the run stops. */
    bool continue_on_loss;
} tutti_train_config;
extern const tutti_option tutti_train_options[];
/* batch-share=auto: steps between measurements of the speeds; the first is earlier. */
enum { TUTTI_SHARES_SETTLE = 10 };
enum { TUTTI_PRECISION_FP32, TUTTI_PRECISION_BF16, TUTTI_PRECISION_FP16 };
enum { TUTTI_FINAL_EVAL_OFF, TUTTI_FINAL_EVAL_ON, TUTTI_FINAL_EVAL_ALL };
enum { TUTTI_ON_LOSS_AUTO, TUTTI_ON_LOSS_STOP, TUTTI_ON_LOSS_CONTINUE };

/* A synthetic problem (problem.h) is both model and data. If only one of the two was given, sets
   the other from it. If both are the same problem, options given to one of them apply to both.
   Changes nothing else. Call before tutti_train_check, which refuses pairs that do not match. */
void tutti_train_pair(tutti_train_config *config, bool model_given, bool data_given);

/* Checks what option bounds cannot express: combinations, the target's form, --on-loss continue
   with a method or transport that does not support it. Fills in threads = 0, continue_on_loss and
   the loss_scale of fp16. Loads the transport's plug-in where platform, fail or step-time needs it.
   */
tutti_status tutti_train_check(tutti_train_config *config, int cores, tutti_error *err);

/* The transport's spec with platform and fail added, for the world: "sim(platform=...,fail=...)".
   tutti_free it. Refuses them where the transport does not have these options, or has other
   values. */
tutti_status tutti_train_transport(const tutti_train_config *config, char **spec,
                                   tutti_error *err);

/* The time after which the transport considers a silent worker lost: its option peer-timeout, in
   ns. 0: it has none. Loads a plug-in. */
int64_t tutti_train_silence_ns(const tutti_train_config *config);

/* Does the model accept these samples? Checks what is known before the set is read: of a text,
   whether it exists, its context and vocabulary. Of other sets nothing is known, and the workers
   check. Also checks whether init is a safetensors file; rank 0 compares its contents. installed:
   as in tutti_train_io. */
tutti_status tutti_train_check_data(tutti_runtime *rt, const tutti_train_config *config,
                                    const char *installed, tutti_error *err);

/* Reads the collective-table, if there is one, and makes the output directory. Refuses one that
   holds another run's checkpoints or results, unless overwrite. Changes nothing in it. Once,
   before workers start; if other processes may use the directory too, by the process that has
   claimed it (launch.h). */
tutti_status tutti_train_prepare(tutti_runtime *rt, const tutti_train_config *config,
                                 tutti_error *err);

/* Number of workers of the newest complete checkpoint in that directory, if no other number can
   resume it; 0: any number can, or there is no checkpoint. began: number of workers with which
   its run began. rank: which of those remain, in order. Reads the manifest. */
enum { TUTTI_TRAIN_WORKERS_MOST = 1024 };
int tutti_train_savers(tutti_runtime *rt, const char *directory, int *began,
                       int rank[TUTTI_TRAIN_WORKERS_MOST]);

/* Do all ranks have the same values of the options that must be equal? For ranks that were not
   started by one command line. The sentence names the option, two ranks and both values.
   Collective. */
tutti_status tutti_train_compare(tutti_world *world, const tutti_train_config *config,
                                 tutti_error *err);

/* ---- a worker ---- */
/* say: lines for the user (rank 0). NULL: no output. By status:
     0  A plain line.
     1  A progress line that the next one may replace.
     2  A temporary line. Do not print it where lines cannot be replaced.
     3  A warning, to be printed with --quiet too.

   columns: returns the width that a line of status 1 or 2 may have now. Its least important
   fields are dropped until it fits. NULL, 0: any width.

   lost: in a run that continues after losses, called on each worker for each loss that it learns
   of. NULL: a launcher reports them.

   stop: for checkpoint_on_signal: returns the signal by which this process was asked to end, or
   0. Each rank calls it after its steps. NULL: not called. */
typedef struct tutti_train_io {
    void (*say)(void *user, int status, const char *line);
    int (*columns)(void *user);
    void *user;
    const char *installed_data;   /* where installed data sets are, or NULL */
    int64_t started_ns;           /* clock at the command's start, for host_seconds; 0: now */
    /* A run that continues after losses ends (TUTTI_ERR_PEER) when fewer workers than this
       remain. 0: a launcher does that. */
    int least;
    void (*lost)(void *user, int rank, const char *why);
    int (*stop)(void *user);
    /* The runtime of that clock, where the workers' time is virtual. NULL: the workers' own. */
    tutti_runtime *host;
} tutti_train_io;

/* Runs one worker completely: data, model, engine, loop, evaluation, files. Blocks until the end.
   Every rank calls it with the same config, in a directory that was prepared.

   Writes nothing there until everything has been accepted, including the checkpoint to resume;
   config.json is written first. TUTTI_CLOSED: stopped by `stop`, and a checkpoint of the last
   step was saved. */
tutti_status tutti_train_worker(tutti_world *world, const tutti_train_config *config,
                                const tutti_train_io *io, tutti_error *err);

/* ---- the plan of a run ---- */
/* The plan of a rank. bytes: as the summary of the run will count them, activations at their
   peak.
   record: their components, except activations. sent, messages: by the steps that were
   simulated. */
typedef struct tutti_train_plan_rank {
    bool serves;
    bool adds;                    /* it has passes that accumulate gradients */
    uint64_t stage_bytes;         /* of its stage, under a pipeline schedule; else 0 */
    bool by_unit;                 /* its network computes unit by unit (nn.h) */
    int64_t samples;              /* most samples of a pass; 0: it only serves */
    uint64_t bytes[TUTTI_MEMORY_KINDS], sent, messages;
    tutti_memory_record *record; size_t n_records;
} tutti_train_plan_rank;

typedef struct tutti_train_plan {
    int workers, servers;         /* rows: workers, then servers */
    uint64_t parameters;
    uint64_t data_bytes;          /* of the samples, shared by the ranks of a host */
    uint64_t steps;               /* simulated; 0: none, for the reason in `unmeasured` */
    char unmeasured[240];
    tutti_train_plan_rank *rank;
} tutti_train_plan;

/* Computes the memory and traffic of a run of this config with the run's own code. Methods
   declare their state, without allocating. Then all ranks, as threads of this process, make
   `over` steps of the run, with random gradients instead of passes through the network, and
   count. At last one network is opened. The engines of all ranks together must fit into three
   quarters of this machine's memory; otherwise no steps are made, and only declared state is
   counted. config: as tutti_train_check leaves it; options that only take time (stream, slow,
   step_time, fail) and output files are ignored. TUTTI_ERR_USAGE: the run would be refused; a
   transport whose ranks are not threads. Blocks. */
tutti_status tutti_train_plan_make(tutti_train_plan *plan, const tutti_train_config *config,
                                   const char *installed, uint64_t over, tutti_error *err);
void tutti_train_plan_drop(tutti_train_plan *plan); /* accepts a zeroed one */

/* Writes DIRECTORY/name atomically: a temporary file in the same folder, then renamed. */
tutti_status tutti_train_write_file(tutti_runtime *rt, const char *directory, const char *name,
                                    const char *text, size_t bytes, tutti_error *err);

/* The settings as JSON, without out, resume, overwrite and meet: DIR/config.json. tutti_free it. */
tutti_status tutti_train_config_json(const tutti_train_config *config, char **json,
                                     tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
