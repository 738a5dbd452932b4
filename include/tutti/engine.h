/* engine.h: the public API. Two clients, the native trainer and bindings, and nothing in it knows which.

     tutti_engine_open(...)
     while (tutti_engine_more_epochs(e, epochs, &more) == TUTTI_OK && more) {
         while (tutti_engine_pass(e, &pass, err) == TUTTI_OK) {   // TUTTI_CLOSED: the step's passes are over
             load pass.samples samples from (pass.epoch, pass.position)
             tables that ask for rows: tutti_engine_need_rows(e, tensor, ids, n)
             forward:  tutti_engine_need(e, u, false); run unit u; tutti_engine_done(e, u, false)
             backward: tutti_engine_need(e, u, true);  ...  tutti_engine_ready(e, tensor); tutti_engine_done(e, u, true)
             tutti_engine_passed(e, loss_sum)
         }
         tutti_engine_step(e)
     }
     tutti_engine_finish(e)

   *Quiet*: between steps, when all clients have come to a collective call (save, show, finish), the engine holds the method's services: they
   finish what they are doing and rest, and no message of theirs is under way. They go on at the next step.

   One thread calls (the client thread). Only the calls marked * block. After a failure only figures, trace and close are legal. */
#ifndef TUTTI_ENGINE_H
#define TUTTI_ENGINE_H
#include "checkpoint.h"
#include "method.h"
#include "share.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_engine tutti_engine;
typedef struct tutti_param {             /* in the order gradients become ready, as far as the client knows it */
    const char *name;                    /* copied; unique */
    int dims; uint64_t dim[4];           /* shape, row-major; at least one dimension, none 0 */
    int unit;                            /* layer group, from the input: 0, 1, ... */
    bool row_sparse;                     /* of two dimensions and more: a table of dim[0] rows, of which a pass touches few; announced by ready_rows, or by ready as any other. Its gradient in the
                                            engine's memory is 0 when a pass without `keep` begins, and only touched rows may be changed */
    bool asks_rows;                      /* of row_sparse: each pass says by need_rows, before it reads them, which rows it will, and touches no others. So a method with servers need not bring the whole table */
    float *values, *gradient;            /* NULL: the engine owns them, inside x and g (the zero-copy way). Else the client's memory, kept: initial values
                                            are read from it on rank 0; new values are copied to it by pass() whenever they changed, gradients from it by ready() */
} tutti_param;
typedef enum { TUTTI_NONFINITE_STOP, TUTTI_NONFINITE_SKIP } tutti_nonfinite;
typedef enum { TUTTI_CODEC_COST_OFF, TUTTI_CODEC_COST_EXPLAIN, TUTTI_CODEC_COST_AUTO_OFF } tutti_codec_cost;
typedef struct tutti_engine_options {    /* zero means default */
    const char *method;                  /* "ddp" */
    const char *optimizer;               /* the method's default (tutti_method_ops), else "sgd(lr=0.05,momentum=0.9)" */
    const char *lr_schedule;             /* the method's default, else "constant" */
    const char *collective;              /* of the workers' sums, of pieces and of tutti_average: "auto", or an algorithm (comm.h, tutti_group); of messages that only their decoder understands (codec): "allgather", all to all workers,
                                            decoded by each; "alltoall", to the owners of their parts, who encode the mean anew; auto: the first up to three workers, from four up the second */
    const char *codec;                   /* of gradients, under d-psgd of models, for methods with TUTTI_ENCODES: a spec of codec.h; NULL, "" or "none": they travel as they are */
    tutti_codec_cost codec_cost;         /* EXPLAIN: before the first step codec and network are measured, for some milliseconds, and events of kind "codec-cost" tell what an exchange takes with the codec and without. AUTO_OFF:
                                            and where it is predicted to take over 5 % longer with it, gradients travel as they are, which an event of kind "codec" says; a resumed run goes on as it was */
    uint64_t codec_report;               /* every so many steps each worker measures what the codec made of its gradients (tutti_engine_codec_records): one more decoding, some passes over them, and no bit of the run; 0: never */
    bool codec_checksum;                 /* each message of the codec has a hash of eight bytes in front, and is refused (TUTTI_ERR_CORRUPT) where it is not what was sent; no bit of a model depends on it. TUTTI_ERR_USAGE
                                            where nothing that the codec sends can be looked at: fp16, powersgd and what else is summed on its way */
    const char *codec_hierarchy;         /* with a codec: "none"; "machine": the gradients of the workers of a machine are summed as they are, and what goes through the codec is the machines' means, once a machine; a
                                            number: of the same of that many workers of consecutive ranks */
    int64_t batch, accumulate;           /* samples a worker a pass (64), passes a step (1) */
    const int64_t *batch_of;             /* workers: samples of each in a pass, summing to workers x batch (unequal workers); NULL: batch each. Copied; declared state */
    const tutti_parts *parts;            /* every worker has samples of its own (share.h): the same on all. Kept. NULL: a common order */
    uint64_t data_samples;               /* size of the training set: the share of each step follows from it; 0: every step is full */
    uint64_t steps;                      /* of the whole run, for the schedule: of each worker, whatever the method; 0: unknown (constant and step schedules only) */
    uint64_t seed;
    double clip_norm;                    /* of the exchanged gradient; 0: off */
    tutti_nonfinite nonfinite;
    const char *loss_scale;              /* "" or "off", "static(scale=1024)", "dynamic(init=65536,...)": the client multiplies the loss by pass.scale, the engine divides it out; a gradient that is then
                                            not finite is an overflow, and the step is left out (src/engine/scaler.c has the rule) */
    const char *fingerprint;             /* the client's own "key=value\n" lines, compared over ranks with the engine's */
    void (*initial)(void *user, int tensor, float *values); void *user; /* values of tensors without memory of the client; called on rank 0 only; NULL: 0 */
    /* *loss: mean loss of the values that stand in params[].values, or x, over samples that the client holds out of training, the same ones on all workers: forward only. For methods that ask for it (tutti_evaluate):
       called within tutti_engine_step; calls nothing of the engine. NULL: nothing is held out, and such methods are refused while opening. */
    tutti_status (*evaluate)(void *user, double *loss, tutti_error *err);
    int lane;                            /* lane width: 0 default (the method's), -1 none: pieces are exchanged on the client's thread at the end of the step, k > 0: k threads */
    size_t trace_events;                 /* room for that many trace events; 0: no trace */
    bool stop_on_loss;                   /* a lost worker ends the run, whatever the method could */
    int servers;                         /* so many ranks, the last of the world, only serve (method: TUTTI_SERVERS): they have no samples and make no steps, and everything that is counted by workers leaves them out.
                                    Their clients call what the workers' call between steps, and tutti_engine_more, which says that there is no step for them */
    size_t own_values;                   /* floats of client state: what the client computes along with gradients, no parameters, never exchanged in a step (running statistics of
                                            batch norms); the same on all ranks. See tutti_engine_own */
} tutti_engine_options;
/* TUTTI_ERR_USAGE: `collective` is neither "auto" nor "allgather" nor "alltoall" nor an algorithm for so many workers. */
tutti_status tutti_collective_check(const char *collective, int workers, tutti_error *err);

/* * Refuses bad options, then compares the fingerprints of all ranks (version, shapes, options): a mismatch is TUTTI_ERR_USAGE on every rank, naming
   the rank, the key and both values. Rank 0's values are broadcast. A world is for one engine: methods' services have the same ports in each, and what
   the first has left under way would be taken for the second's. So whoever trains again opens another world; a second engine is TUTTI_ERR_STATE before anything is done or sent, also once the first is closed or
   has failed. One that was refused (TUTTI_ERR_USAGE) before the workers' fingerprints were found to be equal is none. */
tutti_status tutti_engine_open(tutti_engine **out, tutti_world *world, const tutti_param *params, int n_params,
                               const tutti_engine_options *options, tutti_error *err);
/* * The same with methods of the caller's own: a NULL-ended list instead of the built-in registry. */
tutti_status tutti_engine_open_from(tutti_engine **out, tutti_world *world, const tutti_param *params, int n_params,
                                    const tutti_engine_options *options, const tutti_method_ops *const *methods, tutti_error *err);
tutti_status tutti_loss_scale_check(const char *text, tutti_error *err); /* refuses what loss_scale may not be */
void tutti_engine_close(tutti_engine *e);                        /* * waits for its lanes */
const tutti_method *tutti_engine_method(const tutti_engine *e);  /* layout, counters; read only */
float *tutti_engine_values(tutti_engine *e, int tensor);         /* where the engine put them; NULL: there is no such tensor */
float *tutti_engine_gradient(tutti_engine *e, int tensor);
/* The client state: own_values floats, 0 at open, this worker's own, NULL if none were asked for. The client reads and writes them between pass() and passed(), and sets the first
   values before load. While the model is shown, and from finish on, the mean over the workers stands there, the same bits on all, of those who have had samples; resume brings
   the worker's own back, so who looks changes nothing. Saved and loaded with the run; a checkpoint of another number of workers gives each the mean. */
float *tutti_engine_own(tutti_engine *e);
/* * Is there another step for this worker before the run has `until` of them? Counted in steps of all workers together; for a method at its own pace
   (TUTTI_OWN_PACE) in gradients computed by whoever is free, which this call hands out one by one: true obliges the caller to one step. Until all
   workers have been told false they pass the same `until`; then all are between steps and may call what is collective. A client that does
   not ask takes part with steps of its own: step s of worker r is gradient s x workers + r.
   **The unit of `until` depends on the method: the same number trains a method at its own pace 1 / workers as long as
   the others.** Who wants the same training whatever the method is called asks by epochs or samples: */
tutti_status tutti_engine_more(tutti_engine *e, uint64_t until, bool *more, tutti_error *err);
/* * The same before the run has gone so many times over data_samples: exactly as many samples under every method, since
   the last step of an epoch is cut. Counted from the run's beginning. TUTTI_ERR_USAGE: data_samples is 0. */
tutti_status tutti_engine_more_epochs(tutti_engine *e, uint64_t epochs, bool *more, tutti_error *err);
/* * The same before the run has had so many samples, by all workers: it ends with the step, or the gradient at one's own
   pace, in which it has that many. So methods differ by less than a step, and by nothing where whole steps have them.
   Counted from the run's beginning; what lost workers left out counts as well. */
tutti_status tutti_engine_more_samples(tutti_engine *e, uint64_t samples, bool *more, tutti_error *err);
/* The method has ended the run before it had as many gradients as were asked for (tutti_end): the same on all ranks once `more` has said false to all, and then it says nothing else. An event of kind "ended" tells it. */
bool tutti_engine_ended(const tutti_engine *e);
/* What worker 0 has heard of a phase of `more` so far: gradients handed out, samples and losses of those computed (reports without a meeting). */
typedef struct tutti_heard { uint64_t gradients; double samples, loss_sum; } tutti_heard;
void tutti_engine_heard(tutti_engine *e, tutti_heard *heard);
tutti_status tutti_engine_pass(tutti_engine *e, tutti_pass *pass, tutti_error *err);              /* * */
tutti_status tutti_engine_need(tutti_engine *e, int unit, bool backward, tutti_error *err);       /* * */
/* * For a tensor with asks_rows, once a pass and before it reads them: the rows ids[0] < ids[1] < ... are all that this pass reads, and touches. They are in the client's memory, where it has its own, afterwards. */
tutti_status tutti_engine_need_rows(tutti_engine *e, int tensor, const uint32_t *ids, size_t n, tutti_error *err);
/* TUTTI_CLOSED: the step begins anew, and what was computed of it is dropped: leave the pass, or end it as ever, and call tutti_engine_pass, which gives its first pass again (restarts of tutti_figures). */
tutti_status tutti_engine_done(tutti_engine *e, int unit, bool backward, tutti_error *err);
/* The gradient of the tensor is final for this pass. Each tensor once a pass, in any order; a second time is an error. */
tutti_status tutti_engine_ready(tutti_engine *e, int tensor, tutti_error *err);
/* The same for a tensor with row_sparse: its rows ids[0] < ids[1] < ... are all that this pass has touched. They are taken from the client's memory, where it has its own. */
tutti_status tutti_engine_ready_rows(tutti_engine *e, int tensor, const uint32_t *ids, size_t n, tutti_error *err);
tutti_status tutti_engine_passed(tutti_engine *e, double loss_sum, tutti_error *err);             /* tensors never announced count as 0 and are named once in the events */
tutti_status tutti_engine_step(tutti_engine *e, tutti_error *err);                                /* * */
/* * Between steps, the same on all ranks, for engines opened with batch_of: new shares from the next step on; the sum stays. The positions that a step
   uses do not change, only who computes which. Services come to rest first (quiet), since they read shares. */
tutti_status tutti_engine_reshare(tutti_engine *e, const int64_t *batch_of, tutti_error *err);
const tutti_share *tutti_engine_share(const tutti_engine *e);            /* as it is now; batch_of is the engine's. Under OWN_PACE of one worker: gradient k is its step k */
tutti_status tutti_engine_finish(tutti_engine *e, tutti_error *err);     /* * drains, agrees on the final model, ends the clock */
/* * The model as it would be agreed on now, at `values` of params without client memory (evaluation, export) until the next resume. For methods whose
   replicas are equal nothing moves. Between steps only. */
tutti_status tutti_engine_show(tutti_engine *e, tutti_error *err);
tutti_status tutti_engine_resume(tutti_engine *e, tutti_error *err);
/* While it is shown, and after finish: how far this worker's own model is from it, |x_i - x|; 0 where replicas are equal. Writes over gradients. */
double tutti_engine_apart(tutti_engine *e);
/* While it is shown, and after finish: the agreed model and this worker's own, as it was before they agreed, change places, and so do the means of client state and its own. Called in pairs, and nothing else between
   but looking: whoever wants to know how good a worker's own model is. false: replicas are equal, or it is not shown: nothing was done. Local; writes over gradients. */
bool tutti_engine_swap(tutti_engine *e);
/* * all ranks, between steps. facts: JSON object stored with it. */
tutti_status tutti_engine_save(tutti_engine *e, const char *directory, const char *facts, int keep, tutti_error *err);
/* * all ranks, before the first pass: every declared state of exactly that checkpoint. Another number of workers is legal for methods whose replicas are equal:
   states of each worker then become what state.h says. Residuals of error feedback are owed to the model as their mean, so each worker gets the mean; local momenta start from 0. */
tutti_status tutti_engine_load(tutti_engine *e, tutti_checkpoint *checkpoint, tutti_error *err);

/* ---- runs that go on after losses: a method with TUTTI_GOES_ON on a world that survives them, unless stop_on_loss. Everywhere else settle gives `mine` back, has everybody, and
   nothing is sent. A worker that is lost before the engine is open, or within load, ends the run.
   A step leaves lost neighbours out. show, finish and save are held again by themselves when a loss spoils them. What the client does together with all others besides (its own
   collectives) goes so:

     do {
         tutti_engine_regroup(e, &group, key);               // those who are left: sums over them, index 0 writes
         status = what is done together, over the group;     // nothing in it that cannot be done twice; collectives of one group, as many as it likes
         if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
             return status;                                  // it leaves with its last words, and is lost to the others
         status = tutti_engine_settle(e, status, &again, err);
     } while (status == TUTTI_OK && again);

   Who fails by itself before it has done its part must not settle: the others wait for it in what is done together, and it would wait for them. Only a failure after that, with which
   nobody is waited for (a file that one writes for all), is told in a settle of its own, and ends the run.
   m->rank, m->workers, the graph and the shares stay those of the beginning, the samples of a lost worker are computed by nobody; m->all becomes those who are left. */
bool tutti_engine_goes_on(const tutti_engine *e);
bool tutti_engine_has(const tutti_engine *e, int worker);        /* is it, as last agreed, still there? */
/* group := those who are there, if that has changed since `group` was made by the caller or taken from here (then true). Over messages; its ranks are the engine's. */
bool tutti_engine_regroup(const tutti_engine *e, tutti_group *group, uint64_t key);
/* * All who are there: see tutti_members_agree (comm.h), which it is, for the engine's own groups and counts as well. */
tutti_status tutti_engine_settle(tutti_engine *e, tutti_status mine, bool *again, tutti_error *err);
/* * After the last settle, before the world is closed: nobody leaves while another still waits for its word. finish has one of its own. */
tutti_status tutti_engine_part(tutti_engine *e, tutti_error *err);

/* Under a codec: bytes of payload that this worker's gradients were encoded to in this process, by tensor, in the order of params: its messages and the numbers it put into sums, however a collective then hands them on.
   NULL: there is no codec. Between steps. */
const uint64_t *tutti_engine_payload(const tutti_engine *e);
/* Under codec_report: what the codec made of this worker's gradient of a tensor, g, of n elements, when it was last measured: in the first exchange after as many steps as make a multiple of codec_report, which is the
   step itself where all exchange. a: what was encoded, which is g, or g with what a wrapper had kept; d: the same as decoded. What is not a number: there is none, or g or a is 0 or not finite. */
typedef struct tutti_codec_figure { const char *name; size_t n; const double *value; } tutti_codec_figure;
typedef struct tutti_codec_record {
    uint64_t step;                       /* steps done with it; 0: not measured yet, and nothing else is valid */
    const char *codec;                   /* who encoded it, inside of all wrappers */
    uint64_t bytes;                      /* a encoded: payload without the lengths before messages, and without what an owner of a part encodes anew */
    double bits;                         /* an element: 8 bytes / n */
    double norm;                         /* |g| */
    double rho;                          /* |a|_1 / (sqrt(n) |a|): 1 where all magnitudes are equal, 1 / sqrt(n) where one is all */
    double lost;                         /* |a - d|^2 / |a|^2: the variance factor where E[d] = a; 1 - delta of what contracts */
    double density, union_density;       /* elements that are not 0, as a share of n: of d, and of the mean of all workers' as it was decoded */
    double residual;                     /* |a - d| / |g| where that is made good later (error feedback): |e| / |g| of this worker */
    int n_figures; const tutti_codec_figure *figure; /* what only the codec knows (codec.h: tell) */
} tutti_codec_record;
/* A record a tensor, in the order of params, valid until the next step; NULL: nothing is measured. Between steps. */
const tutti_codec_record *tutti_engine_codec_records(const tutti_engine *e);

/* What the client thread is doing, for the clock: the engine sets COMPUTE when pass() returns OK and OTHER when passed(), step() return; a client that
   loads its batch after pass() says DATA and COMPUTE itself (time as OTHER, and told apart); the client's own reports over the wire are REPORT (time as OTHER, bytes not counted);
   evaluation and checkpoints are OUTSIDE (neither time nor bytes). */
typedef enum { TUTTI_DOING_COMPUTE, TUTTI_DOING_EXPOSED, TUTTI_DOING_DATA, TUTTI_DOING_OTHER, TUTTI_DOING_REPORT, TUTTI_DOING_OUTSIDE } tutti_doing;
tutti_doing tutti_engine_doing(tutti_engine *e, tutti_doing what);       /* gives what it was */
typedef struct tutti_figures {           /* of this rank, from the first pass to the end of the drain, without OUTSIDE */
    int64_t wall_ns, compute_ns, comm_ns, exposed_ns, other_ns, data_ns; /* comm: lanes and client together, whether hidden or not; data: of other, what was waited for batches */
    uint64_t bytes_sent, messages_sent;  /* by the method: evaluation, reports and checkpoints are not counted */
    uint64_t gradients;                  /* of the run, in the unit of tutti_engine_more: steps, or gradients by whoever under OWN_PACE, as of the last quiet */
    uint64_t steps, samples, skipped;    /* of the run, resumed parts included; samples: of all workers; skipped: steps without an update, of this worker where replicas differ. Steps and samples under OWN_PACE
                                            as of the last quiet: steps per worker, rounded up */
    double loss_scale;                   /* of this worker's next pass; 0: the loss is not scaled */
    /* Of this worker in the whole run, resumed parts included; with another number of workers from there. */
    uint64_t own_steps;
    uint64_t restarts;                   /* steps that its method had begun anew */
    uint64_t staleness_max;              /* of its gradients, in the method's count */
    uint64_t staleness_gradients;        /* how many it counts it of: of a team, its first worker alone */
    double staleness_mean;
    const tutti_histogram *staleness; /* of the same; the engine's, as of now */
} tutti_figures;
void tutti_engine_figures(tutti_engine *e, tutti_figures *figures);
/* What happened: skipped steps, unused parameters, workers that were lost. worker, epoch: of "lost", "silent" and "back" (transport.h); else -1 and 0. step: how many this worker had done. */
typedef struct tutti_event_record { uint64_t step; const char *kind, *text; int worker; uint32_t epoch; } tutti_event_record;
int tutti_engine_events(const tutti_engine *e, const tutti_event_record **events); /* oldest first */
/* What the method tells of itself (tutti_metric), in the order in which it was first told. */
typedef struct tutti_metric_record { const char *name; int worker; double value; int64_t at; } tutti_metric_record; /* worker -1: of the run; at -1: a value by itself (tutti_metric_at) */
int tutti_engine_metrics(const tutti_engine *e, const tutti_metric_record **metrics);

typedef struct tutti_trace_event { const char *what; int32_t index; uint8_t thread; uint64_t step; int64_t begin_ns, end_ns; } tutti_trace_event; /* thread: 0 client, 1 lane; begin = end: an instant */
size_t tutti_engine_trace(const tutti_engine *e, const tutti_trace_event **events); /* the first trace_events ones */
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
