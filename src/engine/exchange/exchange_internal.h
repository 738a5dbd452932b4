/* exchange_internal.h: what the files of an exchange share: one tensor of a piece on its way
   through a codec. */
#ifndef TUTTI_ENGINE_EXCHANGE_INTERNAL_H
#define TUTTI_ENGINE_EXCHANGE_INTERNAL_H
#include "../engine_internal.h"
#include "tutti/codec.h"

enum { TUTTI_EXCHANGE_WRAPPERS = 4, TUTTI_EXCHANGE_ROUNDS = 8 };
#define TUTTI_EXCHANGE_LATE (UINT64_C(1) << 40) /* a step beyond all warm-ups */
enum { TUTTI_EXCHANGE_UNDECIDED, TUTTI_EXCHANGE_CODED, TUTTI_EXCHANGE_PLAIN };

/* Memory that grows and stays: after the first steps nothing is allocated any more. */
typedef struct tutti_exchange_room { void *at; size_t bytes; } tutti_exchange_room;
tutti_status tutti_exchange_grow(tutti_exchange_room *room, size_t count, size_t size,
                                 tutti_error *err);

typedef struct tutti_exchange_unit {
    tutti_view view;             /* the whole tensor */
    tutti_codec *wrapper[TUTTI_EXCHANGE_WRAPPERS]; /* outermost first */
    int n_wrappers;
    tutti_codec *codec;          /* that encodes it in this step */
    const float *x;              /* what is encoded: y, or a wrapper's */
    float *y;                    /* its place in g */
    bool finite;                 /* the gradient is, so the wrappers were asked */
    bool owned;                  /* messages: by way of the parts' owners */
    bool checked;                /* messages: each begins with its checksum */
    void *scratch, *wire[TUTTI_EXCHANGE_ROUNDS]; /* linear */
} tutti_exchange_unit;

/* What one piece needs while it is exchanged. */
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
    int team;                    /* workers whose gradients are summed as they are, so that what
                                    they send is one's; 1: each sends its own */
    tutti_leaders leaders;       /* to be keyed */
    size_t first_state, n_states; /* the codec's, in the plan */
    uint8_t *kept;               /* declared where steps may be left out: those states, but scratch,
                                    as they were when the step began; NULL: not needed */
    float *asked;                /* n, declared: a gradient that is only looked at (ask.c); NULL:
                                    none is */
    uint8_t *asked_states;       /* declared: the codec's states while it is */
    uint64_t *payload;           /* bytes by tensor, in this process */
    uint64_t report_every, report_from; /* codec_report; steps of the run before this process */
    tutti_codec_record *records; /* n_tensors; NULL: it is 0 */
    struct tutti_exchange_measured *measured; /* n_tensors; of report.c */
    bool weighed;                /* a step has begun in this process: whatever codec-cost has to
                                    tell is told */
    uint32_t verdict;            /* TUTTI_EXCHANGE_ ...; declared where codec-cost may leave the
                                    codec away. PLAIN: gradients travel as they are */
    tutti_monitor *monitor;      /* of `taken` */
    tutti_exchange_slot *slot;
    int n_slots;                 /* threads that may exchange at one time */
} tutti_engine_exchange;

/* One exchange under way. */
typedef struct tutti_exchange_job {
    tutti_engine_exchange *exchange;
    tutti_exchange_slot *slot;
    tutti_group *group;
    tutti_way way;
    tutti_exchange_unit *unit;
    int n_units;
    const tutti_engine *moves;   /* what is exchanged moves a model, and nobody may leave it out: a
                                    number that a codec has not got ends the run where it was
                                    encoded. NULL: gradients, which the step looks at */
} tutti_exchange_job;

/* ---- exchange.c ---- */

/* One that nobody has; gives NULL with a sentence where all are taken. */
tutti_exchange_slot *tutti_exchange_take_slot(tutti_engine_exchange *x, tutti_error *err);
void tutti_exchange_give_slot(tutti_engine_exchange *x, tutti_exchange_slot *slot);
/* The tensors of a piece, and who encodes them in this step. */
tutti_status tutti_exchange_set_up(tutti_exchange_job *job, const tutti_piece *p, uint64_t step,
                                   tutti_error *err);

/* ---- open.c ---- */

/* Bytes of the codec's states but scratch. / kept := those, or back. */
size_t tutti_exchange_state_bytes(const tutti_engine_exchange *x, const tutti_plan *plan);
void tutti_exchange_keep_states(const tutti_engine *e, uint8_t *kept, bool back);

/* Where the run's codec is, if that is not in the exchange of gradients (codec_is_used). */
const char *tutti_exchange_elsewhere(const tutti_engine *e);

/* ---- linear.c ---- */

/* Places of what linear codecs send in each round, one number type after the other, and of their
   scratch. */
tutti_status tutti_exchange_room_for_linear(tutti_exchange_job *job, tutti_error *err);
/* Units whose codec makes sums: u->y := the mean of what the workers sent, as decoded. */
tutti_status tutti_exchange_linear(tutti_exchange_job *job, tutti_error *err);

/* ---- unit.c ---- */

/* Of a view of this unit, in its wrappers: `what was sent, as decoded` is added with the weights
   they give. Asks, in `into`, for one wrapper. */
float tutti_exchange_account(const tutti_exchange_unit *u, int wrapper, const tutti_view *v,
                             float **into);
/* The first codec that encodes, in the order of the spec, for which `is` holds; NULL: none. */
const tutti_codec *tutti_exchange_leaf(const tutti_codec *c, bool (*is)(const tutti_codec *c));

/* ---- checksum.c ---- */

/* Worker 0 says once what is not looked at. */
void tutti_checksum_tell(tutti_engine *e);

/* ---- team.c ---- */

/* Which is this worker's team, and the space as the teams' codecs see it. */
tutti_status tutti_exchange_team_declare(tutti_engine *e, tutti_error *err);
bool tutti_exchange_leads(const tutti_engine *e); /* this worker encodes, for its team */

/* ---- message.c ---- */

/* Nothing hinders the owners of parts of these units from encoding anew, where collective=alltoall
   asks for it. */
tutti_status tutti_exchange_check_owners(const tutti_engine *e, const tutti_exchange_job *job,
                                         tutti_error *err);
/* Does this unit go by the owners of its parts? */
bool tutti_exchange_by_owners(const tutti_exchange_unit *u, int workers, tutti_way way);
/* The part of a unit that worker `owner` owns. */
tutti_view tutti_exchange_part_of(const tutti_exchange_unit *u, int owner, int workers, int stage);
/* Units whose codec makes messages: u->y := the mean of what the workers sent, as decoded. */
tutti_status tutti_exchange_messages(tutti_exchange_job *job, tutti_error *err);

/* ---- cost.c ---- */

/* Measures, tells, and decides where that is asked for. Collective, before the first view of a
   step. */
tutti_status tutti_exchange_weigh(tutti_engine *e, tutti_error *err);

/* ---- report.c: all but open do nothing where this exchange is not to be measured ---- */

tutti_status tutti_exchange_report_open(tutti_engine *e, tutti_error *err);
void tutti_exchange_report_close(tutti_engine_exchange *x);
/* What is wrapped is not changed yet. */
void tutti_exchange_measure_begin(const tutti_exchange_job *job);
/* A view of stage 0 is encoded, and neither x nor what was kept of it is changed yet. message NULL:
   linear. */
tutti_status tutti_exchange_measure(const tutti_exchange_job *job, const tutti_exchange_unit *u,
                                    const tutti_view *v, const float *x, const uint8_t *message,
                                    size_t bytes, tutti_error *err);
/* u->y is the mean as decoded. */
void tutti_exchange_measure_end(const tutti_exchange_job *job);
#endif
