/* plan_internal.h: what the files of `tutti plan` (plan*.c) share. A plan is a comparison
   (compare_internal.h) with one seed, whose runs are short and simulated. Each section is named
   after the file that implements it. */
#ifndef TUTTI_CLI_PLAN_INTERNAL_H
#define TUTTI_CLI_PLAN_INTERNAL_H
#include "compare_internal.h"
#include "train/measured.h"

/* ---- plan_methods.c ---- */

/* Flags of train: argv[1] to argv[argc - 1], then `more` (NULL-ended, or NULL); the last value of
   an option counts. */
typedef struct tutti_plan_flags {
    int argc;
    char **argv;
    const char *const *more;
} tutti_plan_flags;
/* Makes a plan of runs of these methods and codecs, and checks each run; those that are refused are
   excluded. *plan: json_decref it. */
tutti_status tutti_plan_of(const tutti_plan_flags *flags, const char *methods, const char *codecs,
                           json_t **plan, tutti_error *err);

/* ---- plan_measure.c: this machine, as a platform ---- */

/* Measurements of this machine. */
typedef struct tutti_measured {
    double pass_seconds;         /* of a worker's pass over its batch, while all workers compute */
    double update_seconds;       /* of the rest of a worker's step: batches, updates */
    /* Set only with `links`. */
    double latency, rate;        /* of a message from each worker to the next: s, bit/s */
    double speed;                /* FLOP/s at which a simulated update takes update_seconds */
    char platform[160];          /* spec of `tutti platform` with these values; "": no `links` */
} tutti_measured;
/* A measurement. config, argv: the run, as the user requested it. directory: for its own runs.
 *signal: as of tutti_compare_run_all. */
typedef struct tutti_plan_measurement {
    tutti_runtime *rt;
    const tutti_train_config *config;
    int argc;
    char **argv;
    const char *directory;
    int *signal;
    const tutti_measured_model *known; /* its times are known, and only links are measured; NULL:
                                          the model is of this library */
} tutti_plan_measurement;
/* Measures this machine by runs without any exchange. links: also by messages, and writes
   DIRECTORY/platform.xml. Takes seconds. Blocks. */
tutti_status tutti_plan_measure(tutti_measured *m, const tutti_plan_measurement *at, bool links,
                                tutti_error *err);

/* ---- plan_findings.c ---- */

/* The effect of a method on the course of training: a word, and a sentence. */
typedef struct tutti_effect { const char *name, *text; } tutti_effect;
/* Returns the effect of a method with a codec ("": none), from its traits and description. */
const tutti_effect *tutti_plan_effect(const char *method, const char *codec);

/* Returns the least multiple of `repeats`, `least` or more: whole periods of a method
   (tutti_method_repeats). If that is more than TUTTI_PLAN_WHOLE_MOST, `least`. */
enum { TUTTI_PLAN_WHOLE_MOST = 100000 };
static inline uint64_t tutti_plan_whole(uint64_t least, uint64_t repeats)
{
    const uint64_t whole = (least + repeats - 1) / repeats * repeats;

    return whole <= TUTTI_PLAN_WHOLE_MOST || whole == least ? whole : least;
}

/* The first steps of some methods differ from the later ones. A plan simulates them, and leaves
   them out of its figures, if they are at most this many times --over. */
enum { TUTTI_PLAN_LOOKS = 10 };
/* A row that was simulated. A step is one batch of each worker. */
typedef struct tutti_planned {
    const char *method, *codec;  /* codec "": none */
    const char *condition;       /* "batch-share=auto"; "": none */
    const json_t *simulated;     /* words of the simulated run */
    uint64_t settled;            /* first steps that its figures leave out */
    uint64_t steps;              /* steps that its figures are of */
    uint64_t repeats;            /* its period (tutti_method_repeats) */
    uint64_t settles;            /* first steps that they should leave out: more, if the run is too
                                    short for that. TUTTI_SETTLES_UNKNOWN: not known */
    const json_t *command;       /* words of the run that the user would start */
    const tutti_effect *effect;
    double seconds;              /* of a step */
    double exposed;              /* fraction of the workers' time in which they wait, 0 to 1 */
    double memory;               /* bytes of the worker that has most */
    double bytes;                /* sent in a step by all ranks, over the number of workers */
    char reason[700];            /* for its speed, compared with ddp if that is a row */
} tutti_planned;

typedef struct tutti_plan_findings {
    /* Set by the caller. */
    const tutti_train_config *config;
    const tutti_measured *measured; /* NULL: nothing was measured */
    const char *platform, *slow;    /* as given; "": not given */
    double step_time;               /* as given; 0: not given */
    int64_t over;                   /* --over: steps of each method that the figures are of */
    const char *script;             /* the name of a measured network, which a script trains; NULL:
                                       the model is of this library */
    bool optimizer;                 /* an optimizer was given, which all methods have */
    /* Set by tutti_plan_find. */
    tutti_planned *rows;            /* [n]: fastest first, after `shares` if there is one */
    size_t n;
    const tutti_planned *fastest;   /* NULL: no rows */
    const tutti_planned *shares;    /* the row with shares by speed; NULL: they do not pay */
    const tutti_planned *synchronous; /* the fastest row with ddp's mathematics; NULL: none */
    json_t *refused;                /* array of {method, codec, why} */
} tutti_plan_findings;
/* The plans of the runs that the user would start, and of those that were simulated, whose runs
   have the members `settled`, `settles`, `steps` and `repeats` (numbers as texts). */
typedef struct tutti_plan_simulated {
    const json_t *asked, *simulated;
    const char *directory; /* of the simulated runs */
    const bool *cut;       /* [runs], as of tutti_compare_limit */
} tutti_plan_simulated;
/* Reads the results. */
tutti_status tutti_plan_find(tutti_plan_findings *f, tutti_runtime *rt,
                             const tutti_plan_simulated *in, tutti_error *err);
void tutti_plan_drop(tutti_plan_findings *f); /* zeroed is allowed */
tutti_status tutti_plan_print(const tutti_plan_findings *f, tutti_error *err);
/* Returns the findings as docs/PLAN.md describes them, owned by the caller. */
json_t *tutti_plan_json(const tutti_plan_findings *f);
#endif
