/* exchange_internal.h: what the files of an exchange share: the state of a tensor of a piece
   while it goes through a codec. */
#ifndef TUTTI_ENGINE_EXCHANGE_INTERNAL_H
#define TUTTI_ENGINE_EXCHANGE_INTERNAL_H
#include "../engine_internal.h"
#include "tutti/codec.h"
#include "tutti/tutti.h"

enum { TUTTI_EXCHANGE_WRAPPERS = 4, TUTTI_EXCHANGE_ROUNDS = 8 };
#define TUTTI_EXCHANGE_LATE (UINT64_C(1) << 40) /* a step beyond all warm-ups */
enum { TUTTI_EXCHANGE_UNDECIDED, TUTTI_EXCHANGE_CODED, TUTTI_EXCHANGE_PLAIN };

/* A buffer that grows and is kept: after the first steps nothing is allocated any more. */
typedef struct tutti_exchange_room { void *at; size_t bytes; } tutti_exchange_room;
tutti_status tutti_exchange_grow(tutti_exchange_room *room, size_t count, size_t size,
                                 tutti_error *err);

typedef struct tutti_exchange_unit {
    tutti_view view;             /* the whole tensor */
    tutti_codec *wrapper[TUTTI_EXCHANGE_WRAPPERS]; /* outermost first */
    int n_wrappers;
    tutti_codec *codec;          /* the codec that encodes it in this step */
    const float *x;              /* what is encoded: y, or a wrapper's buffer */
    float *y;                    /* its place in g */
    bool finite;                 /* the gradient is finite, so the wrappers were applied */
    bool owned;                  /* messages: sent by the route of owners of shards */
    bool checked;                /* messages: each begins with its checksum */
    void *scratch, *wire[TUTTI_EXCHANGE_ROUNDS]; /* linear codecs' memory */
} tutti_exchange_unit;

/* The buffers that one piece needs while it is exchanged. */
typedef struct tutti_exchange_slot {
    bool taken;
    tutti_exchange_room units, scratch, wire[TUTTI_EXCHANGE_ROUNDS], send, receive, out, all, sums,
        table, asked, decoded;
} tutti_exchange_slot;

typedef struct tutti_engine_exchange {
    tutti_codec *codec;
    char *spec;
    bool checked;                /* codec-checksum */
    tutti_codec_space space;
    tutti_view *tensor;          /* space.tensor */
    const char **name;           /* space.name */
    int team;                    /* workers whose gradients are summed uncompressed, so that they
                                    send as one worker; 1: each sends its own */
    tutti_leaders leaders;       /* leaders of the node groups; keyed before use */
    size_t first_state, n_states; /* the codec's states in the plan */
    uint8_t *kept;               /* declared if steps may be skipped: a copy of those states,
                                    except scratch, from when the step began; NULL: not needed */
    float *asked;                /* n, declared: a copy of a gradient to be examined (ask.c);
                                    NULL: not used */
    uint8_t *asked_states;       /* declared: a copy of the codec's states meanwhile */
    uint64_t *payload;           /* bytes by tensor, in this process */
    uint64_t report_every, report_from; /* codec_report; steps of the run before this process */
    tutti_codec_record *records; /* n_tensors; NULL: it is 0 */
    struct tutti_exchange_measured *measured; /* n_tensors; of report.c */
    bool weighed;                /* a step has begun in this process: codec-cost has reported what
                                    it has to */
    uint32_t verdict;            /* TUTTI_EXCHANGE_ ...; declared if codec-cost may turn the codec
                                    off. PLAIN: gradients are sent uncompressed */
    tutti_monitor *monitor;      /* mutex of `taken` */
    tutti_exchange_slot *slot;
    int n_slots;                 /* number of threads that may exchange at one time */
} tutti_engine_exchange;

/* One exchange in progress. */
typedef struct tutti_exchange_job {
    tutti_engine_exchange *exchange;
    tutti_exchange_slot *slot;
    tutti_group *group;
    tutti_route route;
    tutti_exchange_unit *unit;
    int n_units;
    const tutti_engine *moves;   /* set if a model's displacement is exchanged, which cannot be
                                    skipped: a number that the codec cannot represent ends the run
                                    where it was encoded. NULL: gradients, which the step
                                    checks */
} tutti_exchange_job;

/* ---- exchange.c ---- */

/* Takes a free slot; NULL with an error if all are taken. */
tutti_exchange_slot *tutti_exchange_take_slot(tutti_engine_exchange *x, tutti_error *err);
void tutti_exchange_give_slot(tutti_engine_exchange *x, tutti_exchange_slot *slot);
/* Lists the tensors of a piece and the codecs that encode them in this step. */
tutti_status tutti_exchange_set_up(tutti_exchange_job *job, const tutti_piece *p, uint64_t step,
                                   tutti_error *err);

/* ---- open.c ---- */

/* Bytes of the codec's states, except scratch. */
size_t tutti_exchange_state_bytes(const tutti_engine_exchange *x, const tutti_plan *plan);
/* kept := those states, or (back) the reverse. */
void tutti_exchange_keep_states(const tutti_engine *e, uint8_t *kept, bool back);

/* Where the run's codec is used, if not in the exchange of gradients (codec_is_used); for
   messages. */
const char *tutti_exchange_elsewhere(const tutti_engine *e);

/* ---- linear.c ---- */

/* Assigns memory for what linear codecs send in each round, one number type after the other, and
   for their scratch. */
tutti_status tutti_exchange_room_for_linear(tutti_exchange_job *job, tutti_error *err);
/* Units whose codec makes sums: u->y := the mean of what the workers sent, as decoded. */
tutti_status tutti_exchange_linear(tutti_exchange_job *job, tutti_error *err);

/* ---- unit.c ---- */

/* The weight with which a wrapper adds what was sent of a view, as decoded, to its own memory.
   *into: that memory; NULL: none. */
float tutti_exchange_account(const tutti_exchange_unit *u, int wrapper, const tutti_view *v,
                             float **into);
/* The first encoding codec, in the order of the spec, for which `is` holds; NULL: none. */
const tutti_codec *tutti_exchange_leaf(const tutti_codec *c, bool (*is)(const tutti_codec *c));

/* ---- checksum.c ---- */

/* Worker 0 reports once what is not checked. */
void tutti_checksum_tell(tutti_engine *e);

/* ---- team.c: node groups ---- */

/* Sets up this worker's node group, and the space as the groups' codecs see it. */
tutti_status tutti_exchange_team_declare(tutti_engine *e, tutti_error *err);
bool tutti_exchange_leads(const tutti_engine *e); /* does this worker encode for its group? */

/* ---- message.c ---- */

/* If collective=alltoall is asked for, checks that the owners of shards of these units may encode
   them again. */
tutti_status tutti_exchange_check_owners(const tutti_engine *e, const tutti_exchange_job *job,
                                         tutti_error *err);
/* Does this unit take the route of owners of shards? */
bool tutti_exchange_by_owners(const tutti_exchange_unit *u, int workers, tutti_route route);
/* The shard of a unit that worker `owner` owns. */
tutti_view tutti_exchange_part_of(const tutti_exchange_unit *u, int owner, int workers, int stage);
/* Units whose codec makes messages: u->y := the mean of what the workers sent, as decoded. */
tutti_status tutti_exchange_messages(tutti_exchange_job *job, tutti_error *err);

/* ---- cost.c ---- */

/* Measures, reports, and decides if that is asked for. Collective, before the first view of a
   step. */
tutti_status tutti_exchange_weigh(tutti_engine *e, tutti_error *err);

/* ---- report.c: all but open do nothing if this exchange is not to be measured ---- */

tutti_status tutti_exchange_report_open(tutti_engine *e, tutti_error *err);
void tutti_exchange_report_close(tutti_engine_exchange *x);
/* Before the wrappers change anything. */
void tutti_exchange_measure_begin(const tutti_exchange_job *job);
/* A view of stage 0 is encoded, and neither x nor a residual is changed yet. message NULL:
   linear. */
tutti_status tutti_exchange_measure(const tutti_exchange_job *job, const tutti_exchange_unit *u,
                                    const tutti_view *v, const float *x, const uint8_t *message,
                                    size_t bytes, tutti_error *err);
/* u->y is the decoded mean. */
void tutti_exchange_measure_end(const tutti_exchange_job *job);
#endif
