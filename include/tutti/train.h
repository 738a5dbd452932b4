/* train.h: the native trainer: what `tutti train` runs in each worker. Its configuration is one
   option table (flags, TUTTI_*, files, help and docs come from it). Its results are the files of
   --out. */
#ifndef TUTTI_TRAIN_H
#define TUTTI_TRAIN_H
#include "engine.h"
#include "options.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration ---- */
/* A member an option (tutti_train_options), but for goes_on. */
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
    /* What tutti_train_check makes of on_loss; unchecked the run stops. */
    bool goes_on;
} tutti_train_config;
extern const tutti_option tutti_train_options[];
/* batch-share=auto: steps from look to look at the speeds, behind an earlier first one. */
enum { TUTTI_SHARES_SETTLE = 10 };
enum { TUTTI_PRECISION_FP32, TUTTI_PRECISION_BF16, TUTTI_PRECISION_FP16 };
enum { TUTTI_FINAL_EVAL_OFF, TUTTI_FINAL_EVAL_ON, TUTTI_FINAL_EVAL_ALL };
enum { TUTTI_ON_LOSS_AUTO, TUTTI_ON_LOSS_STOP, TUTTI_ON_LOSS_CONTINUE };

/* A synthetic problem (problem.h) is a model with its data. Where one of the two was not given, the
   other names it. Where both are the same problem, options given to one of them hold for both.
   Changes nothing else. Before tutti_train_check, which refuses pairs that do not fit. */
void tutti_train_pair(tutti_train_config *config, bool model_given, bool data_given);

/* What the option bounds cannot say: combinations, the target's form, --on-loss continue where the
   method or the transport cannot. Fills in threads = 0, goes_on and the loss_scale of fp16. Loads
   the transport's plug-in where platform, fail or step-time needs it. */
tutti_status tutti_train_check(tutti_train_config *config, int cores, tutti_error *err);

/* The transport with platform and fail in it, for the world: "sim(platform=...,fail=...)".
   tutti_free it. Refuses them where the transport has none or others. */
tutti_status tutti_train_transport(const tutti_train_config *config, char **spec,
                                   tutti_error *err);

/* How long the transport lets a worker be silent before that is lost: its option peer-timeout, in
   ns. 0: it has none. Loads a plug-in. */
int64_t tutti_train_silence_ns(const tutti_train_config *config);

/* Does the model take these samples? It says what is known before the set is read: of a text,
   whether it is there, its context and vocabulary. Of others nothing is known, and their workers
   say it. Also whether init is a safetensors file; what is in it rank 0 compares. installed: as in
   tutti_train_io. */
tutti_status tutti_train_check_data(tutti_runtime *rt, const tutti_train_config *config,
                                    const char *installed, tutti_error *err);

/* Reads the collective-table, if there is one, and makes the output directory. Refuses one that
   holds another run's checkpoints or results, unless overwrite. Changes nothing in it. Once, before
   workers start; where others may want the directory too, by the process that has claimed it
   (launch.h). */
tutti_status tutti_train_prepare(tutti_runtime *rt, const tutti_train_config *config,
                                 tutti_error *err);

/* Of how many workers the newest whole checkpoint of that directory is, where no other number can
   resume it; 0: it does not matter, or there is none. began: how many its run had when it began.
   rank: which of those are left, in order. Reads the manifest. */
enum { TUTTI_TRAIN_WORKERS_MOST = 1024 };
int tutti_train_savers(tutti_runtime *rt, const char *directory, int *began,
                       int rank[TUTTI_TRAIN_WORKERS_MOST]);

/* Have all ranks the options that must be the same? For ranks that were not started by one command
   line. The sentence names the option, two ranks and both values. Collective. */
tutti_status tutti_train_compare(tutti_world *world, const tutti_train_config *config,
                                 tutti_error *err);

/* ---- a worker ---- */
/* say: lines for the person (rank 0). NULL: silence. By status:
     0  A plain line.
     1  A progress line that the next one may replace.
     2  A line for a moment. It is left out where lines cannot be replaced.
     3  A warning, which comes under quiet too.

   columns: that a line of status 1 or 2 may have now. Its least important fields are left out until
   it fits. NULL, 0: any number.

   lost: of a run that goes on after losses: each worker, of each loss that it hears of. NULL: a
   launcher tells.

   stop: for checkpoint_on_signal: the signal by which this process was asked to end, or 0. Each
   rank asks after its steps. NULL: none is asked. */
typedef struct tutti_train_io {
    void (*say)(void *user, int status, const char *line);
    int (*columns)(void *user);
    void *user;
    const char *installed_data;   /* where installed data sets are, or NULL */
    int64_t started_ns;           /* clock when the command began, for host_seconds; 0: now */
    /* A run that goes on after losses ends (TUTTI_ERR_PEER) when fewer workers than these are left.
       0: a launcher sees to that. */
    int least;
    void (*lost)(void *user, int rank, const char *why);
    int (*stop)(void *user);
    /* Whose clock that is, where the workers' time is virtual. NULL: the workers' own. */
    tutti_runtime *host;
} tutti_train_io;

/* One worker, all of it: data, model, engine, loop, evaluation, files. Blocks until the end. Every
   rank calls with the same config, in a directory that was prepared.

   Writes nothing there before all has been accepted, the checkpoint that it goes on from too;
   config.json is the first. TUTTI_CLOSED: stop said so, and a checkpoint of the last step is
   there. */
tutti_status tutti_train_worker(tutti_world *world, const tutti_train_config *config,
                                const tutti_train_io *io, tutti_error *err);

/* ---- a run before it is begun ---- */
/* A rank. bytes: as the summary of the run will count them, activations at their most. record: what
   they are, but activations. sent, messages: by the steps that were gone through. */
typedef struct tutti_train_plan_rank {
    bool serves;
    bool adds;                    /* it has passes that add up gradients */
    uint64_t stage_bytes;         /* of its stage, under a method that drives; else 0 */
    bool by_unit;                 /* its network computes unit by unit (nn.h) */
    int64_t samples;              /* of a pass at most; 0: it only serves */
    uint64_t bytes[TUTTI_MEMORY_KINDS], sent, messages;
    tutti_memory_record *record; size_t n_records;
} tutti_train_plan_rank;

typedef struct tutti_train_plan {
    int workers, servers;         /* rows: workers, then servers */
    uint64_t parameters;
    uint64_t data_bytes;          /* of the samples, which the ranks of a host share */
    uint64_t steps;               /* that were gone through; 0: none, and `unmeasured` says why */
    char unmeasured[240];
    tutti_train_plan_rank *rank;
} tutti_train_plan;

/* What a run of this config would take, from its own parts. Methods declare, without any memory.
   Then all ranks, as threads of this process, go through `over` steps of the run, with drawn
   gradients in place of passes through the network, and count. Last one network is opened. The
   engines of all ranks together have to fit into three quarters of this machine; where they do not
   there are no steps, and only what was declared is counted. config: as tutti_train_check leaves
   it; what only takes time (stream, slow, step_time, fail) and what is written is left out.
   TUTTI_ERR_USAGE: what the run would refuse; a transport whose ranks are no threads. Blocks. */
tutti_status tutti_train_plan_make(tutti_train_plan *plan, const tutti_train_config *config,
                                   const char *installed, uint64_t over, tutti_error *err);
void tutti_train_plan_drop(tutti_train_plan *plan); /* zeroed, too */

/* DIRECTORY/name, whole or not at all: written beside, then renamed. */
tutti_status tutti_train_write_file(tutti_runtime *rt, const char *directory, const char *name,
                                    const char *text, size_t bytes, tutti_error *err);

/* Keys of the settings as JSON, without out, resume, overwrite and meet: DIR/config.json.
   tutti_free it. */
tutti_status tutti_train_config_json(const tutti_train_config *config, char **json,
                                     tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
