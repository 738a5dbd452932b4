/* codec.h: what is on the wire instead of float32. A codec is a table in one of three forms; whoever exchanges picks the collective by the form:
     linear:  rounds of numbers that may be summed (16-bit casts, random-k, PowerSGD: two rounds)  -> all-reduce a round
     message: bytes that only their decoder understands (top-k, quantisers, signs)                 -> all-gather, or all-to-all and all-gather
                                                                                                      from four workers up; point to point
     wrapper: has inner codecs and only says who encodes what (`ef(...)`, `accordion(...)`), which may be a wrapper in turn
   The functions of a codec are pure but for its declared state: they send nothing, block nowhere and allocate nothing.

   A message has no header: codec, options, view and step are agreed on by both ends (fingerprint and order of calls), the transport delivers
   whole messages. Numbers are little-endian, codes are packed as kernels.h says. A message that came from a peer is checked in full before the
   first element is changed.

   Numbers that are not finite never stop an encoder, since the other workers could only wait: they travel as far as the form allows, so that
   every worker hears of them alike and the engine's vote on finite gradients decides. Casts, PowerSGD and sums carry them as arithmetic does.
   A quantised bucket, chunk or block with one in it (or with a scale beyond the range of float) has scale NaN and decodes to NaN throughout.
   To top-k and threshold infinity is the greatest magnitude but for NaN. Wangni's message decodes to NaN at element 0. Random-k sends what
   the draw falls on: a number that is not drawn stays where it is and is heard when it is drawn. What codecs keep stays finite: PowerSGD keeps its
   last finite factor; a residual is protected by whoever exchanges, who sends a vector that is not finite as it is, past `before`, and leaves
   `account` out where the decoded mean is not finite (what was to be sent then stays in the residual). */
#ifndef TUTTI_CODEC_H
#define TUTTI_CODEC_H
#include "kernels.h"
#include "options.h"
#include "state.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* A range of the flat space as a codec sees it in one step. */
typedef struct tutti_view {
    int tensor;                  /* index in the space's list; -1: not within one tensor */
    size_t first, count;         /* elements [first, first + count) of the flat space; count < 2^31 */
    size_t rows, cols;           /* rows x cols = count, row-major; whole matrices have their shape, all else is 1 x count */
    int stage;                   /* 0: from the worker; 1: the owner's re-encoding of a sum (draws and residuals of its own) */
    uint64_t step;               /* draws are a function of (seed, worker, stage, step, place): the same however the space is cut */
} tutti_view;
/* What a codec is opened on. Stays unchanged until it is closed. */
typedef struct tutti_codec_space {
    size_t n;                    /* elements of the flat space */
    const tutti_view *tensor;    /* whole tensors in order; stage and step are not read */
    const char *const *name;     /* theirs; NULL: they have none, and options that go by names are refused */
    int n_tensors;
    int rank, workers;
    uint64_t seed;               /* the same on all workers */
    tutti_device *device;
} tutti_codec_space;

/* A step that begins, for codecs that adapt themselves (alq, amq, accordion): what they go by, and what whoever exchanges does for them. */
typedef struct tutti_codec_moment {
    uint64_t step, epoch;        /* of the step that begins: its views have this step */
    uint64_t steps, epochs;      /* of the whole run, as far as it is known: 0: it is not */
    double lr;                   /* its learning rate */
    /* numbers := their sum over the workers, the same bits on all; blocks. */
    tutti_status (*sum)(void *with, size_t n, float *numbers, tutti_error *err);
    void (*say)(void *with, const char *kind, const char *text); /* optional: one line for the run's events; kind: "levels", "accordion", "matrices", "codec" (for the person who waits) */
    void *with;
} tutti_codec_moment;

enum {
    TUTTI_CODEC_UNBIASED = 1,    /* E[decoded] = x */
    TUTTI_CODEC_CONTRACTIVE = 2, /* E|x - decoded|^2 <= (1 - delta) |x|^2 with delta > 0: error feedback converges */
    TUTTI_CODEC_WHOLE_TENSOR = 4, /* views of its matrices must not be cut */
    TUTTI_CODEC_MERGES = 16,     /* learns from all workers: `begin` asks for sums */
    TUTTI_CODEC_MOMENTUM = 64,   /* what it gives is no mean of gradients, even where it loses nothing: momentum is in it */
    TUTTI_CODEC_VOTES = 128,     /* what comes out is a vote and no mean: signs, without a size. For gradients alone; nothing can be made good */
    TUTTI_CODEC_FIXED = 8        /* a message always has bound() bytes: nobody needs to be told how many */
};

typedef struct tutti_codec tutti_codec;
/* For reports: who is told the numbers of that name, n of them. */
typedef struct tutti_codec_listener { void (*hear)(void *with, const char *name, size_t n, const double *numbers); void *with; } tutti_codec_listener;
typedef struct tutti_codec_ops {
    const char *name, *paper, *help;
    const tutti_option *options; /* ends with {0}; never NULL */
    size_t self_bytes;           /* of the struct the options are written to; zeroed */
    int rounds;                  /* > 0: linear; 0: message, or wrapper if `choose` is there */
    tutti_dtype dtype;           /* of the numbers of linear rounds: F32, F16 or BF16 */
    tutti_dtype (*number)(const tutti_codec *c, const tutti_view *v);                      /* optional: by view, where options or shape decide. Ask tutti_codec_number */
    unsigned (*traits)(const tutti_codec *c);                                              /* options applied, inner codecs declared */
    tutti_status (*check)(const tutti_codec *c, tutti_error *err);                         /* optional: combinations that bounds cannot say */
    void (*declare)(tutti_codec *c, tutti_plan *plan);                                     /* optional */
    void (*open)(tutti_codec *c);                                                          /* optional; declared pointers are valid */
    /* Optional: whether states, which may come from a checkpoint, can be gone on from; TUTTI_ERR_CORRUPT. Before `begin`. */
    tutti_status (*verify)(const tutti_codec *c, tutti_error *err);
    /* Optional: step m->step begins; on all workers alike, no view under way. A codec sends nothing; what it wants merged it gives out: round 0 and on,
       result: how many of *numbers (the codec's memory) are to be summed over the workers, the same on all, before the next round; 0: that was all.
       What is not a sum is one too: a worker's own place in the numbers, zeros elsewhere. */
    size_t (*begin)(tutti_codec *c, const tutti_codec_moment *m, int round, float **numbers);
    /* Optional: the step that began last, `step`, is left out; its states are as `begin` left them, as if no view of it had been, and all workers do the same. For who counts steps, or waits for this one's gradients. */
    void (*left_out)(tutti_codec *c, uint64_t step);
    /* Below: lane threads; calls for different views may run at once, so state is per element or per tensor. `scratch` is the caller's, 64-byte
       aligned, scratch(c, v) bytes; its contents stay from the first fold of a view to its unfold. x, y: view.count elements. */
    size_t (*scratch)(const tutti_codec *c, const tutti_view *v);                          /* optional: 0 bytes */
    /* linear; wire[r] has width(c, v, r) elements of dtype */
    size_t (*width)(const tutti_codec *c, const tutti_view *v, int round);
    /* Writes wire[round]; the earlier ones hold means over the workers by now and may be changed, the same way on all. */
    void (*fold)(tutti_codec *c, const tutti_view *v, int round, const float *x, void *scratch, void *const *wire);
    /* Optional: fold's round 0 of the elements [from, from + count) of the view, which x holds: whole rows of a matrix, any of a vector. What stands at the end comes first, and all parts of a view come one after the
       other. The same bits as fold's, however the view is cut. Ask tutti_codec_fold_first. */
    void (*fold_part)(tutti_codec *c, const tutti_view *v, size_t from, size_t count, const float *x, void *scratch, void *const *wire);
    /* y += a * (this worker's part, as decoded; the mean of the parts over the workers is what unfold gives). x as given to fold, may be y; wire holds
       means. Called before unfold. */
    void (*mine)(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, void *const *wire, float a, float *y);
    void (*unfold)(tutti_codec *c, const tutti_view *v, void *scratch, void *const *wire, float *y); /* y = decoded mean */
    /* message */
    size_t (*bound)(const tutti_codec *c, const tutti_view *v);                            /* most bytes of a message */
    /* out: bound(c, v) bytes. Gives the bytes written. */
    size_t (*encode)(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, uint8_t *out);
    /* y += a * decoded: a * decoded is rounded, then the sum. On failure (TUTTI_ERR_CORRUPT) y is as it was. */
    tutti_status (*decode_add)(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes, float a, float *y, tutti_error *err);
    /* Optional, of those that send some elements and nothing of the others: mark[i] = 1 for each element that is
       sent, whatever its value, of the view's `count`; in: a message that decode_add takes, NULL where rounds
       are summed, whose places are a function of the view. NULL: every element is sent. */
    void (*places)(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes, uint8_t *mark);
    /* Optional, of linear and message: what only this codec knows of a view of stage 0 that it has just encoded, for reports: the same names in every view of a tensor, constant texts. x: what was encoded; decoded: what
       that is decoded to. Several are counts. Of the parts of one tensor a single number is the greatest of theirs, counts are added. "bound": E|x - decoded|^2 <= bound |x|^2, as the paper has it; "levels": elements
       that were rounded to each level, from the least on. */
    void (*tell)(const tutti_codec *c, const tutti_view *v, const float *x, const float *decoded, const tutti_codec_listener *to);
    /* wrapper */
    tutti_codec *(*choose)(tutti_codec *c, const tutti_view *v);                           /* who encodes this view now */
    void (*watch)(tutti_codec *c, const tutti_view *v, const float *x);                    /* optional: x as the worker has it, finite, before any `before` */
    const float *(*before)(tutti_codec *c, const tutti_view *v, const float *x);           /* optional: what to encode instead of x, which is finite */
    bool by_element;             /* what `before` makes of an element depends on that one alone: it may be asked for parts of a view, each once, whose results lie as the parts do */
    /* Optional: *into += result * (what I sent, as decoded); *into NULL: nothing to account for, which depends on options and stage only. Has no effect but
       its answer: it is also asked beforehand, whether a stage's loss is made good. */
    float (*account)(tutti_codec *c, const tutti_view *v, float **into);
    /* Optional: where the places of what I sent are to be marked (`places`), one byte an element of the view; NULL: nobody needs them. */
    uint8_t *(*marks)(tutti_codec *c, const tutti_view *v);
    void (*after)(tutti_codec *c, const tutti_view *v, float *y);                          /* optional, of messages too (TUTTI_CODEC_VOTES): y is the decoded mean, may change it */
    /* Optional: this codec encodes tensor t from now on, which `from`, of the same table, did: takes over what that one has learnt of it. */
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

extern const tutti_codec_ops *const tutti_codecs[];                                        /* NULL-ended registry */
const tutti_codec_ops *tutti_codec_find(const char *name);
/* Within a declare(): opens `spec` ("ef(topk(ratio=0.01))") with its inner codecs and declares their states as "<prefix>...". keeps `space`. */
tutti_status tutti_codec_declare(tutti_codec **out, tutti_plan *plan, const char *spec, const char *prefix, const tutti_codec_space *space,
                                 tutti_error *err);
void tutti_codec_open(tutti_codec *c);                                                     /* once the plan is carried out: initial state */
/* Before the first view of every step, by whoever exchanges, on all workers: `begin` of the codecs inside and of c, with the sums they ask for. Few
   steps ask for any. Fails where m->sum does, and with TUTTI_ERR_CORRUPT where a state that was loaded makes no sense. */
tutti_status tutti_codec_begin(tutti_codec *c, const tutti_codec_moment *m, tutti_error *err);
/* By whoever exchanges, once it has put all declared states back to what they were after tutti_codec_begin: that step is left out. */
void tutti_codec_left_out(tutti_codec *c, uint64_t step);
void tutti_codec_close(tutti_codec *c);
/* A codec with the wrappers round it as one; c need not be a wrapper. Who encodes this view now; what to encode instead of x, which is finite (from the
   outermost wrapper in); where what was sent is accounted for (one wrapper of a nest at most does); the decoded mean on its way to the model (from the
   innermost out). The engine's exchange takes the same steps for the tensors of a piece at once. */
tutti_codec *tutti_codec_chosen(tutti_codec *c, const tutti_view *v);
const float *tutti_codec_before(tutti_codec *c, const tutti_view *v, const float *x);
/* tutti_codec_before, and round 0 of fold of who encodes, which is linear: where both can be asked for parts, part by part, so that what the wrappers make of x goes through memory once. Gives what the other rounds fold. */
const float *tutti_codec_fold_first(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, void *const *wire);
/* Wrappers hear what I have sent of a view, by their `account` and `marks`: the message in[0, bytes); or the rounds
   on `wire`, made of x. For a vector that was asked for (tutti_codec_before), and not where the decoded mean
   is not finite. TUTTI_ERR_CORRUPT: the message is none of this view. */
tutti_status tutti_codec_sent(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes, tutti_error *err);
void tutti_codec_sent_rounds(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, void *const *wire);
void tutti_codec_after(tutti_codec *c, const tutti_view *v, float *y);
/* Point to point (src/codec/point.c): what a worker sends of a view is decoded by another without anybody else's part. check: TUTTI_ERR_USAGE for codecs that have no such message: more than one summed
   round (powersgd), wrappers that feed back, codecs that learn from all workers. The others for what it lets pass only. scratch: 64-byte aligned, point_scratch bytes, nothing of it is kept. */
tutti_status tutti_codec_check_point(const tutti_codec *c, tutti_error *err);
size_t tutti_codec_point_bound(const tutti_codec *c, const tutti_view *v);                 /* most bytes of a message; exactly so many where a codec is summed or TUTTI_CODEC_FIXED */
size_t tutti_codec_point_scratch(const tutti_codec *c, const tutti_view *v);
size_t tutti_codec_pack(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, uint8_t *out); /* out: point_bound bytes. Gives the bytes written */
/* y += a * decoded: the same bits whoever decodes it, the sender included. On failure (TUTTI_ERR_CORRUPT) y is as it was. */
tutti_status tutti_codec_unpack_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes, float a, float *y, void *scratch, tutti_error *err);
static inline unsigned tutti_codec_traits(const tutti_codec *c) { return c->ops->traits(c); }
/* Of the numbers that a linear codec sends of a view, in all rounds. */
static inline tutti_dtype tutti_codec_number(const tutti_codec *c, const tutti_view *v) { return c->ops->number != NULL ? c->ops->number(c, v) : c->ops->dtype; }
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
