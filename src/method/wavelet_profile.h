/* wavelet_profile.h: what a micro-batch of `wavelet` takes, part by part: seconds and bytes, first
   as the model's units say, then as measured. From it come the offset and the peak that is
   predicted; what is held beside it is the peak that came. */
#ifndef TUTTI_WAVELET_PROFILE_H
#define TUTTI_WAVELET_PROFILE_H
#include "tutti/drive.h"
#include "tutti/pipeline.h"

typedef struct wavelet_profile {
    int waves;
    double share;                /* of a micro-batch's time: the offset asked for; 0: none was */
    int room;                    /* parts */
    double *seconds, *bytes;
    tutti_ticktock_profile of;   /* parts 0: nothing is known */
    int measured;                /* micro-batches; settled from MOST on, when the offset stays */
    double offset;
    double predicted, peak;      /* bytes held at most; peak: since it is settled */
    double held, watched;        /* bytes x seconds, seconds since then */
    double exchange;             /* seconds of the shortest exchange; 0: there was none */
} wavelet_profile;
enum { WAVELET_MEASURED_MOST = 6 };

/* TUTTI_ERR_MEMORY. A zeroed one may be closed. */
tutti_status tutti_wavelet_open(wavelet_profile *p, int units, int waves, double share,
                                tutti_error *err);
void tutti_wavelet_close(wavelet_profile *p);
/* Bytes a sample that `waves` micro-batches through units [first, end) hold at most, by the model's
   operations and bytes. */
tutti_status tutti_wavelet_planned(const tutti_model *model, int first, int end, int waves,
                                   double share, double *bytes, tutti_error *err);

/* A part was computed: forward or backward of the unit that came next. alone: no other micro-batch
   was under way, so that `held` is its own: bytes while it was computed. */
void tutti_wavelet_part(wavelet_profile *p, int part, double seconds, double held, bool alone);
/* A micro-batch is over, which had so many parts. */
void tutti_wavelet_micro(wavelet_profile *p, int forwards, int parts);
bool tutti_wavelet_settled(const wavelet_profile *p);
void tutti_wavelet_exchanged(wavelet_profile *p, double seconds);
/* Seconds of a micro-batch; 0: not known. */
double tutti_wavelet_seconds(const wavelet_profile *p);
#endif
