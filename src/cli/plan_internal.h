/* plan_internal.h: what the files of `tutti plan` share. A plan is a comparison
   (compare_internal.h) of one seed, whose runs are short and simulated. */
#ifndef TUTTI_CLI_PLAN_INTERNAL_H
#define TUTTI_CLI_PLAN_INTERNAL_H
#include "compare_internal.h"

/* ---- plan_methods.c ---- */

/* Runs of these methods by flags of train, argv[1..] and `more` (NULL-ended, or NULL; the later one
   of two counts), each checked; what is refused is excluded. json_decref it. */
tutti_status tutti_plan_of(int argc, char **argv, const char *const *more, const char *methods,
                           const char *codecs, json_t **plan, tutti_error *err);

/* ---- plan_measure.c: this machine, as a platform ---- */

typedef struct tutti_measured {
    double pass_seconds;         /* of a worker's pass over its batch, all of them at work */
    double update_seconds;       /* of a step of a worker, besides: batches, updates */
    /* The rest is not there (platform "") of hosts and links that are known. */
    double latency, rate;        /* of a message from each worker to the next one: s, bit/s */
    double speed;                /* flop/s at which a simulated update takes as long as it does */
    char platform[160];          /* the spec of `tutti platform` that follows */
} tutti_measured;
/* c, argv: the run, as the user requested it. links: measure those, too, and write
   DIRECTORY/platform.xml. directory: where the runs of the measurement may be. Takes seconds:
   runs without any exchange, and messages. Blocks. */
tutti_status tutti_plan_measure(tutti_measured *m, tutti_runtime *rt, const tutti_train_config *c,
                                int argc, char **argv, bool links, const char *directory,
                                int *signal, tutti_error *err);

/* ---- plan_findings.c ---- */

/* The known effect of a method on the course of training: a word and a sentence. */
typedef struct tutti_effect { const char *name, *text; } tutti_effect;
const tutti_effect *tutti_plan_effect(const char *method, const char *codec);

/* Steps of a method that settles late are this many times `over`, at most. */
enum { TUTTI_PLAN_LOOKS = 10 };
typedef struct tutti_planned { /* a row that was simulated */
    const char *method, *codec;
    const char *condition;       /* "batch-share=auto", "" */
    const json_t *simulated;     /* words */
    /* Steps that its figures exclude, and those that they would have to exclude: more, where the
       plan is too short for that (TUTTI_SETTLES_UNKNOWN: it cannot be predicted). */
    uint64_t settled, settles;
    const json_t *command;       /* words */
    const tutti_effect *effect;
    /* A step is one batch of each worker. seconds: of a step; exposed: the fraction of the
       workers' time that they wait, 0 to 1; memory: of the worker that has most; bytes: sent in a
       step, by all ranks over the number of workers. */
    double seconds, exposed, memory, bytes;
    char reason[600];
} tutti_planned;

typedef struct tutti_plan_findings {
    const tutti_train_config *config;
    const tutti_measured *measured; /* NULL: nothing was */
    const char *platform, *slow;    /* as given, "" */
    double step_time;               /* as given; 0 */
    int64_t over;
    bool optimizer;                 /* was given, for all methods */
    tutti_planned *rows;            /* the fastest first, after shares by speed if these pay */
    size_t n;
    const tutti_planned *fastest, *shares; /* NULL: there is none */
    const tutti_planned *synchronous; /* the fastest one with ddp's mathematics; NULL */
    json_t *refused;                /* {method, codec, why} */
} tutti_plan_findings;
/* asked, simulated: the plans; runs of the latter have `settled` and `settles`, texts of numbers.
   directory: of the runs. cut: as of tutti_compare_limit. The rest of f is set. */
tutti_status tutti_plan_find(tutti_plan_findings *f, tutti_runtime *rt, const json_t *asked,
                             const json_t *simulated, const char *directory, const bool *cut,
                             tutti_error *err);
void tutti_plan_drop(tutti_plan_findings *f); /* zeroed, too */
tutti_status tutti_plan_print(const tutti_plan_findings *f, tutti_error *err);
json_t *tutti_plan_json(const tutti_plan_findings *f);
#endif
