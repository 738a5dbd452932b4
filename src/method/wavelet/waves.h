/* waves.h: the state of method wavelet, shared by wavelet.c, which declares, opens and closes it,
   and by waves.c, which trains. The client thread makes all calls. */
#ifndef TUTTI_WAVES_H
#define TUTTI_WAVES_H
#include "tutti/method.h"
#include "wavelet_profile.h"
#include "pipeline/ticktock.h"

enum { WAVES_MOST = TUTTI_TICKTOCK_WAVES_MOST, SLOTS_MOST = TUTTI_PIPELINE_STAGES_MOST };
enum { SHARED, AVERAGE, ACCUMULATE };

typedef struct track {                   /* a micro-batch that is in progress */
    tutti_pass pass;
    /* part: computed next; forwards: parts of its forward, once that is over */
    int part, forwards;
    bool back;
} track;

typedef struct wavelet {
    int64_t waves, rounds, stages;
    int mode;
    double offset, memory;

    tutti_method *m;
    int k, pipelines;                    /* stages; number of pipelines */
    int64_t micro, passes;               /* samples of a micro-batch; micro-batches of a step */
    int first[TUTTI_PIPELINE_STAGES_MOST + 1];
    int *worker;                         /* pipelines x k */
    size_t enters, leaves;               /* floats per sample */
    tutti_pipe *pipe;                    /* NULL: one stage */

    /* shared: x after step t of this call of drive is values[t mod waves]. average: the model of
       each wave. accumulate: the only one. */
    float *values[WAVES_MOST], *spare[WAVES_MOST], *gradient[WAVES_MOST];
    tutti_optim *optim[WAVES_MOST];

    /* Within this call: steps, micro-batches and updates are counted from 0. */
    uint64_t base;                       /* its first step */
    int64_t last;                        /* micro-batches */
    int64_t started, applied;            /* updates whose sum was started; updates made */
    int64_t admitted;                    /* micro-batches that may begin */
    int64_t piped;                       /* micro-batches of earlier calls, as the pipe counts */
    tutti_ticktock tick;
    track track[SLOTS_MOST];             /* by slot: number mod waves, or the pipe's */
    wavelet_profile profile;
    bool reported;
} wavelet;

/* Hook `drive` of tutti_method_ops: makes the steps up to `until`, that one excluded. */
tutti_status tutti_waves_drive(tutti_method *m, uint64_t until, tutti_error *err);
#endif
