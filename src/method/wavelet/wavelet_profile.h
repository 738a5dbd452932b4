/* wavelet_profile.h: the profile of a micro-batch of `wavelet`, part by part: seconds and bytes,
   first as the model's units state them, then as measured. The offset and the predicted peak
   follow from it; the measured peak is kept next to it for comparison. */
#ifndef TUTTI_WAVELET_PROFILE_H
#define TUTTI_WAVELET_PROFILE_H
#include "tutti/method/pipeline.h"

typedef struct wavelet_profile {
    int waves;
    double share;                /* the requested offset as a share of a micro-batch's time; 0:
                                    none */
    int room;                    /* capacity in parts */
    double *seconds, *bytes;
    tutti_ticktock_profile of;   /* parts 0: unknown */
    int measured;                /* micro-batches; settled from MOST on: the offset is fixed
                                    then */
    double offset;
    double predicted, peak;      /* maximum of bytes held; peak: measured since it is settled */
    double held, watched;        /* bytes x seconds, seconds since then */
    double exchange;             /* seconds of the shortest exchange; 0: there was none */
} wavelet_profile;
enum { WAVELET_MEASURED_MOST = 6 };

/* TUTTI_ERR_MEMORY. A zeroed one may be closed. */
tutti_status tutti_wavelet_open(wavelet_profile *p, int units, int waves, double share,
                                tutti_error *err);
void tutti_wavelet_close(wavelet_profile *p);
/* The most bytes per sample that `waves` micro-batches through units [first, end) hold, by the
   model's operations and bytes. */
tutti_status tutti_wavelet_planned(const tutti_model *model, int first, int end, int waves,
                                   double share, double *bytes, tutti_error *err);

/* A part was computed: forward or backward of the next unit. alone: no other micro-batch was
   under way, so `held`, the bytes while it was computed, is its own. */
void tutti_wavelet_part(wavelet_profile *p, int part, double seconds, double held, bool alone);
/* A micro-batch of that many parts is over. */
void tutti_wavelet_micro(wavelet_profile *p, int forwards, int parts);
bool tutti_wavelet_settled(const wavelet_profile *p);
void tutti_wavelet_exchanged(wavelet_profile *p, double seconds);
/* Seconds of a micro-batch; 0: unknown. */
double tutti_wavelet_seconds(const wavelet_profile *p);
#endif
