/* exchange_internal.h: the state of the run's codec of gradients, and of a piece while it goes
   through the codec. Included by the files of src/engine/exchange only.

   A piece's exchange is a job (tutti_exchange_job) that has a slot of buffers. It treats each
   tensor of the piece as a unit (tutti_exchange_unit; not a unit of the model). */
#ifndef TUTTI_ENGINE_EXCHANGE_INTERNAL_H
#define TUTTI_ENGINE_EXCHANGE_INTERNAL_H
#include "../engine_internal.h"
#include "tutti/codec.h"
#include "tutti/tutti.h"
#include "codec/codec.h"
#include "collective/leaders.h"

/* The most wrappers around an encoding codec, and the most rounds of a codec that makes sums. */
enum { TUTTI_EXCHANGE_WRAPPERS = 4, TUTTI_EXCHANGE_ROUNDS = 8 };
#define TUTTI_EXCHANGE_LATE (UINT64_C(1) << 40) /* a step beyond all warm-ups */
#define TUTTI_EXCHANGE_NO_STEP UINT64_MAX
/* Values of tutti_engine_exchange.verdict: what codec-cost=auto-off has decided. */
enum { TUTTI_EXCHANGE_UNDECIDED, TUTTI_EXCHANGE_CODED, TUTTI_EXCHANGE_PLAIN };

/* A buffer that grows when needed and is kept, so that after the first steps nothing is allocated
   any more. */
typedef struct tutti_exchange_buffer { void *at; size_t bytes; } tutti_exchange_buffer;
/* Makes sure that the buffer has at least count x size bytes. Does not keep its contents.
   (unit.c) */
tutti_status tutti_exchange_grow(tutti_exchange_buffer *buffer, size_t count, size_t size,
                                 tutti_error *err);

/* A tensor of the piece that is exchanged. */
typedef struct tutti_exchange_unit {
    tutti_view view;             /* the whole tensor */
    tutti_codec *wrapper[TUTTI_EXCHANGE_WRAPPERS]; /* [n_wrappers], the outermost first */
    int n_wrappers;
    tutti_codec *codec;          /* the codec within them that encodes the tensor in this step */
    const float *x;              /* what is encoded: y, or a wrapper's buffer */
    float *y;                    /* the tensor in p->g: the gradient, and then the decoded mean */
    bool finite;                 /* there are wrappers and the gradient is finite, so that they are
                                    applied */
    bool owned;                  /* its messages go by owners of shards */
    int turn;                    /* at least 0: it is one shard, the turn-th that is dealt out to
                                    owners; -1: it is split into shards */
    bool checked;                /* each of its messages begins with a checksum */
    void *scratch;               /* if the codec makes sums: its scratch memory */
    void *wire[TUTTI_EXCHANGE_ROUNDS]; /* likewise: what it sends in each round */
} tutti_exchange_unit;

/* The buffers of one piece while it is exchanged. */
typedef struct tutti_exchange_slot {
    bool taken;                  /* a job uses it; under the exchange's monitor */
    tutti_exchange_buffer units;     /* job.unit */
    tutti_exchange_buffer scratch;   /* scratch memory of codecs */
    tutti_exchange_buffer wire[TUTTI_EXCHANGE_ROUNDS]; /* [rounds]: what codecs that make sums send
                                        in each round */
    tutti_exchange_buffer send, receive; /* messages */
    tutti_exchange_buffer out, all;  /* messages of the second encoding, by owners of shards: this
                                        worker's, and those of all */
    tutti_exchange_buffer sums;      /* partial sums of decoded messages */
    tutti_exchange_buffer table;     /* where each worker's message of each unit is */
    tutti_exchange_buffer wrapped;   /* a bool for each unit: wrappers took part in its second
                                        encoding */
    tutti_exchange_buffer decoded;   /* a message decoded once more, to be measured */
} tutti_exchange_slot;

/* Logical shares through the codec (shares.c). */
typedef struct tutti_exchange_shares {
    int mine, all;               /* this worker's shares, and those of all; 0: its gradient is
                                    encoded as one */
    size_t *width_at;            /* [n_tensors + 1]: where a tensor's part of a round is in nodes of
                                    the tree (logical.h); the last: the elements of all */
    size_t *scratch_at;          /* [n_tensors + 1]: likewise, in the scratch memory of a share;
                                    bytes */
    char *scratch;               /* declared, [mine][scratch_at[n_tensors]]; NULL: not needed */
    float *x;                    /* declared, [mine][elements of the model]: what was folded, of a
                                    codec that keeps it in no residual; NULL: not needed */
    const float **folded;        /* [mine][n_tensors]: what was folded; NULL: it is not there any
                                    more */
    bool *finite;                /* [mine][n_tensors]: it has passed the wrappers */
    int stage;                   /* with options.commit: how far the step is (shares.c) */
    uint64_t beside;             /* likewise: the step that `kept` has the states of, if it is not
                                    this worker's own; TUTTI_EXCHANGE_NO_STEP: none */
} tutti_exchange_shares;

typedef struct tutti_engine_exchange {
    tutti_codec *codec;
    char *spec;                  /* the codec's, owned */
    bool checked;                /* codec-checksum is on */
    tutti_codec_space space;     /* the tensors, as the codec sees them */
    tutti_view *tensor;          /* [n_tensors]: space.tensor */
    const char **name;           /* [n_tensors]: space.name */
    int team;                    /* number of workers whose gradients are summed uncompressed and
                                    sent as one worker's; 1: each sends its own */
    tutti_leaders leaders;       /* if team > 1: the node groups and their leaders; keyed before
                                    use */
    size_t first_state, n_states; /* the codec's states are [first_state, first_state + n_states)
                                     of the plan */
    uint8_t *kept;               /* declared if steps may be skipped: a copy of the codec's states,
                                    except scratch, from the beginning of the step; NULL: not
                                    needed */
    float *asked;                /* [n], declared: the gradient that tutti_exchange_ask encodes
                                    (ask.c); NULL: the method does not use it */
    uint8_t *asked_states;       /* declared: a copy of the codec's states meanwhile; NULL
                                    likewise */
    int *turn;                   /* [n_tensors]: the unit's `turn`; NULL: all are split */
    tutti_exchange_shares shares;
    uint64_t *payload;           /* [n_tensors]: bytes that this worker has sent of each tensor in
                                    this process */
    uint64_t report_every;       /* option codec_report: every how many steps; 0: never */
    uint64_t report_from;        /* steps of the run before this process */
    tutti_codec_record *records; /* [n_tensors]; NULL: report_every is 0 */
    struct tutti_exchange_measured *measured; /* [n_tensors] (report.c); NULL likewise */
    struct tutti_engine_begun *held; /* [held_most], the first n_held in use: steps of the codec
                                    that begin later (exchange.h); NULL: they begin at once */
    int held_most, n_held;
    bool weighed;                /* tutti_engine_exchange_weigh was called in this process */
    uint32_t verdict;            /* TUTTI_EXCHANGE_ ... above; declared with codec-cost=auto-off.
                                    PLAIN: gradients are sent uncompressed */
    tutti_monitor *monitor;      /* mutex of the slots' `taken` */
    tutti_exchange_slot *slot;   /* [n_slots] */
    int n_slots;                 /* number of threads that may exchange concurrently */
} tutti_engine_exchange;

/* The exchange of a piece, in progress. */
typedef struct tutti_exchange_job {
    tutti_engine_exchange *exchange;
    tutti_exchange_slot *slot;
    tutti_group *group;          /* the workers that exchange encoded gradients */
    tutti_route route;
    tutti_exchange_unit *unit;   /* [n_units], in slot->units */
    int n_units;
    const tutti_engine *moves;   /* the engine, if the displacement of a model is exchanged, which
                                    cannot be skipped: a number that the codec cannot represent
                                    ends the run on the worker that encodes it. NULL: gradients,
                                    which the step checks */
} tutti_exchange_job;

/* ---- exchange.c ---- */

/* Returns a free slot, which the caller must give back; NULL, with an error: all are in use. */
tutti_exchange_slot *tutti_exchange_take_slot(tutti_engine_exchange *x, tutti_error *err);
void tutti_exchange_give_slot(tutti_engine_exchange *x, tutti_exchange_slot *slot);
/* Sets job->unit to the tensors of the piece, each with the codecs that encode it in that step. */
tutti_status tutti_exchange_set_up(tutti_exchange_job *job, const tutti_piece *p, uint64_t step,
                                   tutti_error *err);

/* Applies `after` of the wrappers to the decoded means. */
void tutti_exchange_unwrap(const tutti_exchange_job *job);

/* ---- open.c ---- */

/* Does it send anything else than sums of float32? For tutti_exchange_leaf. */
bool tutti_exchange_is_no_float_sum(const tutti_codec *c);

/* Returns the bytes of the codec's states, except scratch. */
size_t tutti_exchange_state_bytes(const tutti_engine_exchange *x, const tutti_plan *plan);
/* Copies those states to `kept`; with `back` copies them from `kept`. kept NULL: does nothing. */
void tutti_exchange_keep_states(const tutti_engine *e, uint8_t *kept, bool back);
/* Exchanges them with what is in `kept`. */
void tutti_exchange_swap_states(const tutti_engine *e, uint8_t *kept);
/* Returns what `kept` has of the state at that address; NULL: it is none of these. */
void *tutti_exchange_kept_of(const tutti_engine *e, uint8_t *kept, const void *memory);

/* ---- linear.c: codecs that make sums ---- */

/* Assigns memory to the units whose codec makes sums: scratch, and what they send in each round,
   so that all units of one number type are contiguous. */
tutti_status tutti_exchange_reserve_linear(tutti_exchange_job *job, tutti_error *err);
/* Exchanges these units: sets each u->y to the mean of what the workers sent, as decoded. */
tutti_status tutti_exchange_linear(tutti_exchange_job *job, tutti_error *err);

/* Returns the number of elements that the unit has in that round; 0: none. */
size_t tutti_exchange_round_width(const tutti_exchange_unit *u, int round);
/* Returns whether all that the unit has on the wire is finite. */
bool tutti_exchange_wire_is_finite(tutti_device *d, const tutti_exchange_unit *u);

/* ---- shares.c: logical shares ---- */

/* tutti_exchange of a piece whose p->g has the gradient of this worker's last share. */
tutti_status tutti_exchange_last_share(tutti_engine *e, tutti_piece *p, tutti_error *err);
void tutti_exchange_shares_close(tutti_exchange_shares *s);
/* With options.commit: waits until all workers have made the step before. Collective. */
tutti_status tutti_exchange_shares_ready(tutti_engine *e, tutti_error *err);
/* A step has begun, and `kept` has the states of its beginning. */
void tutti_exchange_shares_begin(tutti_engine_exchange *x);

/* ---- unit.c ---- */

/* Returns the weight with which a wrapper of the unit adds what was sent of the view, as decoded,
   to its memory *into. *into NULL: this wrapper has no such memory. */
float tutti_exchange_account(const tutti_exchange_unit *u, int wrapper, const tutti_view *v,
                             float **into);
/* Returns the first encoding codec within c, in the order of the spec, for which `is` is true;
   NULL: none. */
const tutti_codec *tutti_exchange_leaf(const tutti_codec *c, bool (*is)(const tutti_codec *c));
/* Does it make messages, which no worker sums? For tutti_exchange_leaf. */
bool tutti_exchange_is_message(const tutti_codec *c);

/* ---- checksum.c ---- */

/* On worker 0: records once, as an event, which part of what is sent has no checksum. */
void tutti_checksum_tell(tutti_engine *e);

/* ---- team.c: node groups ---- */

/* Opens the node groups of e->sums.codec_team workers. TUTTI_ERR_USAGE: incompatible options. */
tutti_status tutti_exchange_team_declare(tutti_engine *e, tutti_error *err);
/* Returns whether this worker encodes for its node group. */
bool tutti_exchange_leads(const tutti_engine *e);

/* ---- message.c: codecs that make messages ---- */

/* With collective=alltoall: checks that the owners of shards of these units may encode them again.
   TUTTI_ERR_USAGE. */
tutti_status tutti_exchange_check_owners(const tutti_engine *e, const tutti_exchange_job *job,
                                         tutti_error *err);
/* Sets x->turn, where a codec of the run makes messages of whole tensors: their order by size. */
tutti_status tutti_exchange_deal(tutti_engine_exchange *x, tutti_error *err);
/* Returns whether this unit's messages go by owners of shards. */
bool tutti_exchange_by_owners(const tutti_exchange_unit *u, int workers, tutti_route route);
/* Returns the view of the unit's shard that worker `owner` owns. stage: 0: first encoding; 1: that
   of the owner. */
tutti_view tutti_exchange_part_of(const tutti_exchange_unit *u, int owner, int workers, int stage);
/* Exchanges the units whose codec makes messages: sets each u->y to the mean of what the workers
   sent, as decoded. */
tutti_status tutti_exchange_messages(tutti_exchange_job *job, tutti_error *err);

/* ---- cost.c ---- */

/* Measures what an exchange takes with the codec and without, reports it as an event and, with
   codec-cost=auto-off, decides. Collective, before the first exchange of a step. */
tutti_status tutti_exchange_weigh(tutti_engine *e, tutti_error *err);

/* ---- report.c: the codec report; the measure functions do nothing for an exchange that is not to
   be measured ---- */

tutti_status tutti_exchange_report_open(tutti_engine *e, tutti_error *err);
void tutti_exchange_report_close(tutti_engine_exchange *x);
/* Before the wrappers change anything: measures the gradient. */
void tutti_exchange_measure_begin(const tutti_exchange_job *job);
/* Measures what the first encoding of a view loses, before x or a residual is changed. x: what was
   encoded. message: the `bytes` that were encoded; NULL: the codec makes sums. */
tutti_status tutti_exchange_measure(const tutti_exchange_job *job, const tutti_exchange_unit *u,
                                    const tutti_view *v, const float *x,
                                    const tutti_codec_message *sent, tutti_error *err);
/* Measures the decoded means u->y, and completes the records. */
void tutti_exchange_measure_end(const tutti_exchange_job *job);
#endif
