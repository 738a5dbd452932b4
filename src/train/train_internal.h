/* train_internal.h: what the trainer's files share. One run = one worker's view of it. */
#ifndef TUTTI_TRAIN_INTERNAL_H
#define TUTTI_TRAIN_INTERNAL_H
#include <jansson.h>
#include <stdio.h>

#include "tutti/data.h"
#include "tutti/nn.h"
#include "tutti/train.h"

enum { TUTTI_TRAIN_FIGURES = 8 };

typedef struct tutti_run {
    tutti_world *world;
    tutti_runtime *rt;
    tutti_group all;                 /* the trainer's own collectives */
    const tutti_train_config *config;
    const tutti_train_io *io;
    tutti_data *data;
    tutti_nn_task task;
    tutti_nn_param *params; int n_params;
    size_t parameters;               /* elements in all */
    tutti_nn *nn;
    tutti_engine *engine;
    tutti_loader *loader;
    tutti_share share;
    const float **values;            /* n_params: the engine's */
    float **gradients;
    uint64_t steps, first_step;      /* of the whole run; where this process begins */
    int64_t *batch_of;               /* workers: shares of a pass (share.h); NULL: even */
    bool automatic_shares;
    double *sample_seconds;          /* workers: smoothed, for automatic shares */
    int64_t shares_compute_ns;       /* compute time and samples of mine at the last look */
    double shares_samples;
    double slow;                     /* factor of this step, 1: not slowed */
    int64_t computing_since_ns;      /* the part of the computation that is not stretched yet began then */
    /* since the last report, this worker */
    double loss_sum, loss_samples;
    int64_t reported_ns;
    double reported_samples;
    tutti_figures reported;          /* as they were then */
    double *told;                    /* workers x TUTTI_TRAIN_FIGURES: what they tell at a report and at the end */
    /* evaluation room */
    float *eval_x; uint8_t *eval_labels; uint64_t *eval_ids;
    double test_loss, test_accuracy; /* of the last evaluation; accuracy < 0: none yet */
    double time_to_target;           /* seconds; < 0: not reached */
    bool target_reached;
    tutti_file *metrics;             /* rank 0 */
} tutti_run;

json_t *tutti_train_config_object(const tutti_train_config *c);
tutti_status tutti_train_parse_target(const char *text, bool *accuracy, double *value, tutti_error *err);
/* slow.c: the factor of a worker's step; stretch sleeps it off, called whenever a part of the computation is done. */
tutti_status tutti_train_check_slow(const char *spec, int64_t workers, tutti_error *err);
double tutti_train_slow_factor(const char *spec, uint64_t seed, int rank, uint64_t step);
void tutti_train_stretch(tutti_run *run);
/* shares.c */
tutti_status tutti_train_parse_shares(const char *text, int64_t workers, double *weight, bool *automatic, tutti_error *err); /* weight: workers, or NULL to check only */
tutti_status tutti_train_shares_open(tutti_run *run, tutti_error *err);
tutti_status tutti_train_shares_adapt(tutti_run *run, uint64_t done, tutti_error *err);
/* train.c: from `step` on */
tutti_status tutti_train_open_loader(tutti_run *run, uint64_t step, tutti_error *err);
/* evaluate.c: mean loss and accuracy of the engine's values over a split, shared among the workers. Collective. */
tutti_status tutti_train_evaluate(tutti_run *run, tutti_split split, double *loss, double *accuracy, tutti_error *err);
/* report.c */
tutti_status tutti_train_report_open(tutti_run *run, tutti_error *err);
tutti_status tutti_train_report(tutti_run *run, tutti_error *err);                 /* collective */
tutti_status tutti_train_report_evaluation(tutti_run *run, tutti_error *err);
void tutti_train_say(const tutti_run *run, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
tutti_status tutti_train_put_json(tutti_run *run, json_t *object, tutti_error *err); /* a line of metrics.jsonl; takes the object */
/* resume.c */
char *tutti_train_facts(const tutti_run *run);                                     /* free() it */
tutti_status tutti_train_resume(tutti_run *run, tutti_error *err);
/* results.c */
tutti_status tutti_train_results(tutti_run *run, double train_loss, tutti_error *err); /* collective */
#endif
