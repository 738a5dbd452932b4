/* wavelet_profile.h: the profile of a micro-batch of method wavelet: seconds and bytes of each
   part, and what follows from them. A part is the forward or the backward of a unit of the model:
   first the forwards, then the backwards in reverse order (tutti/method/pipeline.h, tick and tock).
   waves.c uses it and wavelet_profile.c implements it. The client thread makes all calls.

   The offset between two micro-batches and the predicted peak of memory follow from the profile of
   the first WAVELET_MEASURED_MOST micro-batches. Then the profile is settled: the offset is fixed,
   and the peak is measured for comparison. */
#ifndef TUTTI_WAVELET_PROFILE_H
#define TUTTI_WAVELET_PROFILE_H
#include "tutti/method/pipeline.h"
#include "pipeline/ticktock.h"

typedef struct wavelet_profile {
    int waves;                   /* micro-batches in progress */
    double share;                /* the requested offset, as a fraction of a micro-batch's seconds;
                                    0: it follows from the profile */
    int capacity;                /* parts that fit into the arrays */
    double *seconds;             /* [capacity]: shortest time of each part; 0: not measured yet */
    double *bytes;               /* [capacity]: most bytes held in that part, by a micro-batch that
                                    was alone */
    tutti_ticktock_profile of;   /* refers to the two arrays; of.parts 0: no micro-batch measured */
    int measured;                /* number of micro-batches measured */
    double offset;               /* seconds */
    double predicted;            /* peak of bytes held by all waves, by the profile */
    double peak;                 /* the same, as measured since the profile is settled */
    double held;                 /* integral of the bytes held over time, in byte-seconds, since
                                    then */
    double watched;              /* seconds of that integral */
    double exchange;             /* seconds of the shortest exchange; 0: there was none */
} wavelet_profile;
enum { WAVELET_MEASURED_MOST = 6 };

/* Initialises a profile of that many units. TUTTI_ERR_MEMORY; close it then, too. */
tutti_status tutti_wavelet_open(wavelet_profile *p, int units, int waves, double share,
                                tutti_error *err);
/* Releases the memory. p may be zeroed. */
void tutti_wavelet_close(wavelet_profile *p);
/* Units [first, end) of a model. */
typedef struct wavelet_units {
    int first, end;
} wavelet_units;
/* *bytes := the predicted peak of bytes per sample of `waves` micro-batches through units [first,
   end), by the operations and bytes that the model states. share: as above. TUTTI_ERR_MEMORY. */
tutti_status tutti_wavelet_planned(const tutti_model *model, wavelet_units of, int waves,
                                   double share, double *bytes, tutti_error *err);

/* Records a computed part. seconds: its time; held: bytes held by all micro-batches while it was
   computed; alone: there was only this micro-batch. */
void tutti_wavelet_part(wavelet_profile *p, int part, double seconds, double held, bool alone);
/* Records that a micro-batch is complete, and computes offset and predicted peak, until the
   profile is settled. forwards, parts: the number of its parts in forward, and in all. */
void tutti_wavelet_micro(wavelet_profile *p, int forwards, int parts);
bool tutti_wavelet_settled(const wavelet_profile *p);
/* Records the time of an exchange. */
void tutti_wavelet_exchanged(wavelet_profile *p, double seconds);
/* Returns the seconds of a micro-batch; 0: not measured. */
double tutti_wavelet_seconds(const wavelet_profile *p);
#endif
