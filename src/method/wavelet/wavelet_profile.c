/* wavelet_profile.c: the profile of wavelet_profile.h. The shortest time of a part counts, since
   other load of the machine can only lengthen it. */
#include <errno.h>

#include "wavelet_profile.h"
#include "pipeline/ticktock.h"

static const double least_seconds = 1e-9; /* in runs without computation parts take no time */

tutti_status tutti_wavelet_open(wavelet_profile *p, int units, int waves, double share,
                                tutti_error *err)
{
    *p = (wavelet_profile){ .waves = waves, .share = share, .capacity = 2 * units };
    p->seconds = tutti_alloc((size_t)p->capacity, sizeof *p->seconds);
    p->bytes = tutti_alloc((size_t)p->capacity, sizeof *p->bytes);
    p->of.seconds = p->seconds;
    p->of.bytes = p->bytes;
    return p->seconds != NULL && p->bytes != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a profile of %d units", units);
}

void tutti_wavelet_close(wavelet_profile *p)
{
    tutti_free(p->seconds);
    tutti_free(p->bytes);
}

bool tutti_wavelet_settled(const wavelet_profile *p)
{
    return p->measured >= WAVELET_MEASURED_MOST;
}

double tutti_wavelet_seconds(const wavelet_profile *p)
{
    double all = 0;

    for (int k = 0; k < p->of.parts; k++)
        all += p->seconds[k];
    return all;
}

static void choose_offset(wavelet_profile *p)
{
    p->offset = p->share > 0 ? p->share * tutti_wavelet_seconds(p)
                             : tutti_ticktock_offset(&p->of, p->waves);
    p->predicted = tutti_ticktock_peak(&p->of, p->waves, p->offset);
}

tutti_status tutti_wavelet_planned(const tutti_model *model, wavelet_units of, int waves,
                                   double share, double *bytes, tutti_error *err)
{
    const int first = of.first, end = of.end;
    wavelet_profile p;
    const int units = end - first;
    double held = 0;
    const tutti_status status = tutti_wavelet_open(&p, units, waves, share, err);

    for (int i = 0; i < 2 * units && status == TUTTI_OK; i++) {
        const tutti_model_unit *u = &model->unit[i < units ? first + i : end - 1 - (i - units)];
        held += i < units ? (double)u->kept : 0;
        p.seconds[i] = (i < units ? u->forward : u->backward) + least_seconds;
        p.bytes[i] = held;
        held -= i < units ? 0 : (double)u->given;
    }
    p.of.forwards = units;
    p.of.parts = 2 * units;
    if (status == TUTTI_OK)
        choose_offset(&p);
    *bytes = p.predicted;
    tutti_wavelet_close(&p);
    return status;
}

void tutti_wavelet_part(wavelet_profile *p, int part, double seconds, double held, bool alone)
{
    seconds = seconds > least_seconds ? seconds : least_seconds;
    if (tutti_wavelet_settled(p)) {
        p->peak = held > p->peak ? held : p->peak;
        p->held += held * seconds;
        p->watched += seconds;
        return;
    }
    if (alone && held > p->bytes[part])
        p->bytes[part] = held;
    if (p->seconds[part] <= 0 || seconds < p->seconds[part])
        p->seconds[part] = seconds;
}

void tutti_wavelet_micro(wavelet_profile *p, int forwards, int parts)
{
    if (tutti_wavelet_settled(p))
        return;
    p->of.forwards = forwards;
    p->of.parts = parts;
    p->measured++;
    choose_offset(p);
}

void tutti_wavelet_exchanged(wavelet_profile *p, double seconds)
{
    if (seconds > 0 && (p->exchange <= 0 || seconds < p->exchange))
        p->exchange = seconds;
}
