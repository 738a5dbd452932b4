/* codec.h: encodings that are sent instead of float32. A codec is a table in one of three forms,
   and the form determines which collective an exchange uses:
     linear:  rounds of numbers that may be summed (16-bit casts, random-k, PowerSGD with two
              rounds). An all-reduce per round.
     message: bytes that only their decoder understands (top-k, quantisers, signs). An all-gather,
              or from four workers up an all-to-all and an all-gather; point to point.
     wrapper: has inner codecs, which may be wrappers, and only selects which one encodes what
              (`ef(...)`, `accordion(...)`).
   Its functions are pure except for its declared state: they never send, block or allocate.

   A message has no header. Both ends agree on codec, options, view and step (fingerprint and order
   of calls), and the transport delivers whole messages. Numbers are little-endian, codes are packed
   as in base.h. A message from a peer is checked in full before the first element is changed.

   Numbers that are not finite never stop an encoder: the other workers would only wait. They are
   sent as far as the form allows, so that all receive them and the engine's vote decides:
     - Casts, PowerSGD and sums carry them as arithmetic does.
     - A quantised bucket, chunk or block with one in it has scale NaN and decodes to NaN
       throughout. So does one whose scale is beyond the range of float.
     - For top-k and threshold infinity is the greatest magnitude except NaN.
     - Wangni's message decodes to NaN at element 0.
     - Random-k sends the elements that are drawn. Others stay where they are until they are drawn.
   The state of codecs stays finite. PowerSGD keeps its last finite factor. A residual is protected
   by the exchange: it sends a vector that is not finite unchanged, without `before`, and does not
   call `account` where the decoded mean is not finite: the unsent part stays in the residual. */
#ifndef TUTTI_CODEC_H
#define TUTTI_CODEC_H
#include "base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* A range of the flat space as a codec sees it in one step. Random draws are a function of (seed,
   worker, stage, step, position): the same however the space is partitioned. */
typedef struct tutti_view {
    int tensor;                  /* index in the space's list; -1: not within one tensor */
    size_t first, count;         /* elements [first, first + count) of the space; count < 2^31 */
    /* rows x cols = count, row-major: a whole matrix's shape, 1 x count of everything else. */
    size_t rows, cols;
    /* 0: encoded by the worker; -k: likewise, of its logical share k, counted from 0. 1: an owner
       encodes a sum again, with its own draws, residuals. */
    int stage;
    uint64_t step;
} tutti_view;

struct tutti_codec_ops;
/* What a codec is opened on. Stays unchanged until the codec is closed. */
typedef struct tutti_codec_space {
    size_t n;                    /* elements of the flat space */
    const tutti_view *tensor;    /* whole tensors in order; stage and step are not read */
    const char *const *name;     /* the tensors'; NULL: none; options that use them are refused */
    int n_tensors, rank, workers;
    uint64_t seed;               /* the same on all workers */
    tutti_device *device;
    /* Codecs that a spec may name besides the built-in ones, NULL-ended; NULL: none. */
    const struct tutti_codec_ops *const *more;
} tutti_codec_space;

/* The beginning of a step, for codecs that adapt themselves (alq, amq, accordion): their input,
   and services of the exchange.

   sum: numbers := their sum over the workers, the same bits on all. Blocks.
   say: optional; a line for the run's events. kind: "levels", "accordion", "matrices", "codec". */
typedef struct tutti_codec_moment {
    uint64_t step, epoch;        /* of the step that begins: its views have this step */
    uint64_t steps, epochs;      /* of the whole run, if known; 0: unknown */
    double lr;                   /* learning rate of the step */
    tutti_status (*sum)(void *with, size_t n, float *numbers, tutti_error *err);
    void (*say)(void *with, const char *kind, const char *text);
    void *with;
} tutti_codec_moment;

/* Properties of a codec (tutti_codec_traits). */
enum {
    TUTTI_CODEC_UNBIASED = 1,    /* E[decoded] = x */
    /* E|x - decoded|^2 <= (1 - delta) |x|^2 with delta > 0: error feedback converges. */
    TUTTI_CODEC_CONTRACTIVE = 2,
    TUTTI_CODEC_WHOLE_TENSOR = 4, /* views of its matrices must not be split */
    TUTTI_CODEC_MERGES = 16,     /* adapts to all workers: `begin` requests sums */
    /* Its result is no mean of gradients, even where it loses nothing: it contains momentum. */
    TUTTI_CODEC_MOMENTUM = 64,
    /* Its result is a vote: signs, without a magnitude. For gradients, without compensation. */
    TUTTI_CODEC_VOTES = 128,
    /* The mean of all workers' messages is not the mean of what each is decoded to: its table has
       `mean`, and no message goes from one worker to another. */
    TUTTI_CODEC_JOINT = 32,
    TUTTI_CODEC_FIXED = 8        /* a message always has bound() bytes: no length is sent */
};

typedef struct tutti_codec tutti_codec;

/* n workers' messages of a view: worker r's is first[r stride]. *bad: whose message has failed. */
typedef struct tutti_codec_message { const uint8_t *at; size_t bytes; } tutti_codec_message;
typedef struct tutti_codec_messages {
    const tutti_codec_message *first;
    size_t stride;
    int n, *bad;
} tutti_codec_messages;

/* For reports: receives n numbers under a name. */
typedef struct tutti_codec_listener {
    void (*receive)(void *user, const char *name, size_t n, const double *numbers);
    void *user;
} tutti_codec_listener;

/* ---- the table of a codec. An optional member may be NULL. ---- */
typedef struct tutti_codec_ops {
    const char *name, *paper, *help;
    const tutti_option *options; /* ends with {0}; never NULL */
    size_t self_bytes;           /* of the struct that the options are written to; zeroed */
    int rounds;                  /* > 0: linear; 0: message, or wrapper if `choose` is there */
    tutti_dtype dtype;           /* of the numbers of linear rounds: F32, F16 or BF16 */
    /* Optional: the type by view, where options or shape decide. Call tutti_codec_number. */
    tutti_dtype (*number)(const tutti_codec *c, const tutti_view *v);
    /* Called once the options are applied and inner codecs are declared. */
    unsigned (*traits)(const tutti_codec *c);
    /* Optional: refuses combinations that bounds of options cannot express. */
    tutti_status (*check)(const tutti_codec *c, tutti_error *err);
    void (*declare)(tutti_codec *c, tutti_plan *plan);  /* optional */
    void (*open)(tutti_codec *c);                       /* optional; declared pointers are valid */
    /* Optional: are these states, which may come from a checkpoint, valid? Called before `begin`.
       TUTTI_ERR_CORRUPT: no. */
    tutti_status (*verify)(const tutti_codec *c, tutti_error *err);

    /* Optional: step m->step begins, on all workers equally, with no view in progress. A codec
       sends nothing itself; it returns what is to be merged. Called with round 0, 1, ...: the
       result is the number of *numbers (the codec's memory) to be summed over the workers before
       the next round, the same on all. 0: finished. To gather instead of summing, a worker writes
       to its own position in the numbers, and zeros elsewhere. */
    size_t (*begin)(tutti_codec *c, const tutti_codec_moment *m, int round, float **numbers);
    /* Optional: the step that began last, `step`, is skipped. The states are as `begin` left
       them, as if no view had been encoded in it, and all workers do the same. For codecs that
       count steps or wait for this one's gradients. */
    void (*left_out)(tutti_codec *c, uint64_t step);

    /* ---- below: lane threads. Calls for different views may run concurrently, so state is per
       element or per tensor. `scratch` is the caller's, 64-byte aligned, scratch(c, v) bytes. Its
       contents are kept from the first fold of a view to its unfold. x, y: view.count elements.
       ---- */
    size_t (*scratch)(const tutti_codec *c, const tutti_view *v); /* optional: 0 bytes */

    /* ---- linear: wire[r] has width(c, v, r) elements of dtype ---- */
    size_t (*width)(const tutti_codec *c, const tutti_view *v, int round);
    /* Writes wire[round]. Earlier rounds now hold means, and may be changed, identically on all. */
    void (*fold)(tutti_codec *c, const tutti_view *v, int round, const float *x, void *scratch,
                 void *const *wire);
    /* Optional: fold's round 0 of the elements [from, from + count) of the view, which x holds:
       whole rows of a matrix, any of a vector. Called for one part after the other, from the end
       of the view to its beginning. The same bits as fold's, however the view is split. Call
       tutti_codec_fold_first. */
    void (*fold_part)(tutti_codec *c, const tutti_view *v, size_t from, size_t count,
                      const float *x, void *scratch, void *const *wire);
    /* y += a * (this worker's part, as decoded). The mean of the parts over the workers is the
       result of unfold. x as given to fold; it may be y. wire holds means. Called before unfold. */
    void (*mine)(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                 void *const *wire, float a, float *y);
    /* y = the decoded mean. */
    void (*unfold)(tutti_codec *c, const tutti_view *v, void *scratch, void *const *wire, float *y);

    /* ---- message ---- */
    size_t (*bound)(const tutti_codec *c, const tutti_view *v); /* most bytes of a message */
    /* out: bound(c, v) bytes. Returns the bytes written. */
    size_t (*encode)(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                     uint8_t *out);
    /* y += a * decoded; the product is rounded, then the sum. TUTTI_ERR_CORRUPT: y is as it was. */
    tutti_status (*decode_add)(tutti_codec *c, const tutti_view *v, const uint8_t *in,
                               size_t bytes, float a, float *y, tutti_error *err);
    /* With TUTTI_CODEC_JOINT: y = the mean over the workers. The same bits on all. Called in place
       of decode_add, which decodes what this worker has sent, for wrappers that account for it.
       TUTTI_ERR_CORRUPT: y is undefined. */
    tutti_status (*mean)(tutti_codec *c, const tutti_view *v, const tutti_codec_messages *all,
                         float *y, tutti_error *err);
    /* Optional, for codecs that send some elements and nothing of the others: mark[i] = 1 for
       each element that is sent, whatever its value, of the view's `count`. in: a message that
       decode_add takes. NULL for linear codecs, where positions are a function of the view. NULL
       member: every element is sent. */
    void (*places)(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                   uint8_t *mark);
    /* Optional, linear and message: for reports, codec-specific figures of a view of stage 0 that
       it has just encoded. The same names in every view of a tensor, constant strings. x: what
       was encoded; decoded: its decoded value. Several numbers are counts. Over the parts of one
       tensor the maximum of a single number is used; counts are added. Names in use:
         "bound"   E|x - decoded|^2 <= bound |x|^2, as the paper has it
         "levels"  elements that were rounded to each level, from the least on */
    void (*report)(const tutti_codec *c, const tutti_view *v, const float *x, const float *decoded,
                   const tutti_codec_listener *listener);

    /* ---- wrapper ---- */
    tutti_codec *(*choose)(tutti_codec *c, const tutti_view *v); /* the one that encodes it now */
    /* Optional: observes the worker's x, finite, before any `before`. */
    void (*watch)(tutti_codec *c, const tutti_view *v, const float *x);
    /* Optional: what to encode instead of x, which is finite. */
    const float *(*before)(tutti_codec *c, const tutti_view *v, const float *x);
    /* The result of `before` for an element depends on that element only. So it may be called for
       parts of a view, each once, with results at the same positions. */
    bool by_element;
    /* Optional: requests *into += result * (what this worker sent, as decoded). *into NULL:
       nothing to account for, which depends on options and stage only. It must have no side
       effect, since it is also called to find out whether a stage's error is compensated. */
    float (*account)(tutti_codec *c, const tutti_view *v, float **into);
    /* Optional: memory to mark the elements that this worker sent (`places`), one byte per
       element of the view. NULL: not needed. */
    uint8_t *(*marks)(tutti_codec *c, const tutti_view *v);
    /* Optional, of messages too (TUTTI_CODEC_VOTES): y is the decoded mean and may be changed. */
    void (*after)(tutti_codec *c, const tutti_view *v, float *y);
    /* Optional: from now on this codec encodes tensor t, which `from`, of the same table, did
       before. It copies that codec's state of the tensor. */
    void (*follow)(tutti_codec *c, const tutti_codec *from, int t);
} tutti_codec_ops;

struct tutti_codec {
    const tutti_codec_ops *ops;
    void *self;
    tutti_spec *spec;
    tutti_codec *inner[3];       /* from SPEC options, in table order */
    const tutti_codec_space *space;
    char prefix[128];            /* of its states' names */
};

const tutti_codec_ops *tutti_codec_find(const char *name);

static inline unsigned tutti_codec_traits(const tutti_codec *c)
{
    return c->ops->traits(c);
}

/* The type of the numbers that a linear codec sends of a view, in all rounds. */
static inline tutti_dtype tutti_codec_number(const tutti_codec *c, const tutti_view *v)
{
    return c->ops->number != NULL ? c->ops->number(c, v) : c->ops->dtype;
}

/* ---- the list of codecs, for help and front ends. Specs are for engine_options.codec. ---- */

/* Constant strings. form: "summed" (rounds of numbers that are summed in transit), "message"
   (bytes that only their decoder reads) or "wrapper" (contains codecs). options: ends with {0}. */
typedef struct tutti_codec_about {
    const char *name, *paper, *help, *form;
    const tutti_option *options;
} tutti_codec_about;

/* Codec i; false and zeros beyond the end. */
bool tutti_codec_listed(int i, tutti_codec_about *about);

/* ---- codecs for gradients whose messages are sent by another library's process group. Tutti
   encodes and decodes, and sends nothing. The result is that of the engine's exchange of the same
   gradients with collective=allgather, provided that the caller sums numbers in the fixed order of
   summation (docs/design/numbers.md).

     tutti_relay_open(&r, "ef(topk(ratio=0.01))", tensors, n, rank, workers, seed, &err);
     tutti_parcel_open(&p, r, &err);                      one for each concurrent exchange
     each step, the same on all workers:
       tutti_relay_begin(r, epoch, lr, sum, with, &err);
       for each group of tensors, in any order:
         status = tutti_parcel_send(p, r's tensors, their gradients, how many, &freight, &err);
         while (status == TUTTI_OK) {
             perform the collective that `freight` describes;
             status = tutti_parcel_next(p, &freight, &err);
         }
         TUTTI_CLOSED: the gradients are the mean over the workers. Else it failed.

   Every worker has its own relay and makes the same calls, with the same arguments except rank
   and gradients. A gradient that is not finite bypasses the wrappers. The caller
   decides whether the step counts; the codec is not notified. ---- */

/* A matrix, row-major. Parameters of more dimensions have their first as rows. cols or rows 1: a
   vector. At least one element, and fewer than 2^31. */
typedef struct tutti_relay_tensor {
    const char *name;            /* copied; NULL: none has one; options that use them are refused */
    size_t rows, cols;
} tutti_relay_tensor;

typedef struct tutti_relay tutti_relay;

/* Opens the codec with its states for all tensors, whose order must be the same on all workers
   and affects random draws. seed: the same on all. Allocates.

   TUTTI_ERR_USAGE: an unknown codec, an invalid option; a tensor that is empty or too large. */
tutti_status tutti_relay_open(tutti_relay **out, const char *spec,
                              const tutti_relay_tensor *tensors, int n, int rank, int workers,
                              uint64_t seed, tutti_error *err);

/* Accepts NULL. Close its parcels before. */
void tutti_relay_close(tutti_relay *r);

/* Properties of the codec: TUTTI_CODEC_UNBIASED and the others. */
unsigned tutti_relay_traits(const tutti_relay *r);

/* The i-th of the codec's states and its memory, for a checkpoint; NULL: beyond the end. Those of
   TUTTI_SCRATCH need not be saved. Not while parcels are in use. */
const tutti_state *tutti_relay_state(const tutti_relay *r, size_t i, void **memory);

/* Number of steps that have begun: the index of the next one. Set it when states are loaded. */
uint64_t tutti_relay_steps(const tutti_relay *r);
void tutti_relay_resume(tutti_relay *r, uint64_t steps);

/* Begins a step, with no parcel in use. Codecs that adapt to all workers (alq, accordion) request
   sums: numbers := their sum over the workers, the same bits on all. Most codecs never do. lr: of
   the step. epoch: counts from 0; used by codecs with a schedule by epochs.

   Fails where `sum` does, and with TUTTI_ERR_CORRUPT where a loaded state is invalid. */
tutti_status tutti_relay_begin(tutti_relay *r, uint64_t epoch, double lr,
                               tutti_status (*sum)(void *with, size_t n, float *numbers,
                                                   tutti_error *err),
                               void *with, tutti_error *err);

/* ---- parcels: exchanges of tensors. Calls for one parcel must not overlap; those for different
   ones may. A tensor is sent once per step. ---- */
typedef struct tutti_parcel tutti_parcel;
tutti_status tutti_parcel_open(tutti_parcel **out, tutti_relay *r, tutti_error *err);
void tutti_parcel_close(tutti_parcel *p); /* accepts NULL, and one in use */

typedef enum {
    /* data: count numbers of dtype (F32, F16, BF16), to replace by their mean over the workers. */
    TUTTI_FREIGHT_MEAN,
    /* data: count bytes of this worker. All-gather them: set `all`, `stride` and `counts` before
       the next call. */
    TUTTI_FREIGHT_GATHER
} tutti_freight_kind;

typedef struct tutti_freight {
    tutti_freight_kind kind;
    void *data;                  /* the parcel's memory, until the next call */
    size_t count;
    tutti_dtype dtype;           /* of GATHER: U8 */
    size_t most;                 /* GATHER: most bytes that a worker may have */
    bool fixed;                  /* GATHER: each has `most`; no lengths need to be sent */
    /* GATHER, set by the caller: the counts[i] bytes of worker i begin at all[i stride]. Read
       only by the next call. Every worker decodes the same bytes, its own included. */
    const uint8_t *all;
    size_t stride;
    const size_t *counts;
    /* MEAN: the codec needs this mean on every worker, for its next round or its state. false: a
       worker that does not use the gradients may leave the numbers as they are. GATHER: such a
       worker may give its own bytes for those of all. What it gets as gradients is then undefined,
       and what the codec keeps is the same, unless another worker's gradients are not finite. */
    bool everyone;
} tutti_freight;

/* Encodes. gradient[i]: of tensor[i], replaced by the mean; its memory is used until
   tutti_parcel_next returns TUTTI_CLOSED or fails. Both arrays are read during the call only. */
tutti_status tutti_parcel_send(tutti_parcel *p, const int *tensor, float *const *gradient, int n,
                               tutti_freight *f, tutti_error *err);

/* Call when the collective of *f is done: *f := the next one. TUTTI_CLOSED: none, the gradients
   are means. TUTTI_ERR_CORRUPT: received bytes are no valid message; do not use the gradients. */
tutti_status tutti_parcel_next(tutti_parcel *p, tutti_freight *f, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
