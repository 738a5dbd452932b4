/* ticktock.c: tick and tock (tutti/method/pipeline.h). The rules never make a worker wait: if no
   part can be computed, no micro-batch is in progress. */
#include "tutti/method/pipeline.h"
#include "ticktock.h"

static int slot_of(const tutti_ticktock *t, int64_t micro)
{
    return (int)(micro % t->waves);
}

static bool may_begin_now(const tutti_ticktock *t)
{
    const int64_t last = t->begun - 1;

    if (t->begun - t->over >= t->waves)
        return false;
    if (last < t->over)
        return true;
    return t->of[slot_of(t, last)].next >= t->profile->forwards && t->of[slot_of(t, last)].at >= t->offset;
}

int64_t tutti_ticktock_next(const tutti_ticktock *t, bool may_begin)
{
    int64_t best = -1;

    if (may_begin && may_begin_now(t))
        return t->begun;
    for (int64_t k = t->over; k < t->begun; k++) {
        const bool behind = k == t->over || t->of[slot_of(t, k)].next < t->of[slot_of(t, k - 1)].next;
        if (behind && (best < 0 || t->of[slot_of(t, k)].since < t->of[slot_of(t, best)].since))
            best = k;
    }
    return best;
}

bool tutti_ticktock_ran(tutti_ticktock *t, int64_t micro)
{
    const int i = slot_of(t, micro);

    if (micro == t->begun) {
        t->begun++;
        t->of[i].next = 0;
        t->of[i].at = 0;
        for (int k = 0; k < t->waves; k++)
            t->of[k].since = 0;
    }
    t->of[i].at += t->profile->seconds[t->of[i].next];
    t->of[i].since += t->profile->seconds[t->of[i].next];
    t->of[i].next++;
    if (t->of[i].next < t->profile->parts)
        return false;
    t->over++;
    return true;
}

double tutti_ticktock_peak(const tutti_ticktock_profile *profile, int waves, double offset)
{
    enum { MICRO_BATCHES = 16 };
    tutti_ticktock t = { .profile = profile, .waves = waves, .offset = offset };
    double most = 0;

    while (t.over < MICRO_BATCHES) {
        const int64_t micro = tutti_ticktock_next(&t, t.begun < MICRO_BATCHES);
        double held = 0;
        const int part = micro == t.begun ? 0 : t.of[slot_of(&t, micro)].next;
        for (int64_t k = t.over; k < t.begun;
             k++) /* the others hold what the part before has left them */
            if (k != micro) {
                const int next = t.of[slot_of(&t, k)].next;
                held += next < profile->forwards ? profile->bytes[next - 1] : profile->bytes[next];
            }
        held += profile->bytes[part];
        most = held > most ? held : most;
        tutti_ticktock_ran(&t, micro);
    }
    return most;
}

double tutti_ticktock_offset(const tutti_ticktock_profile *profile, int waves)
{
    double all = 0, best, least, at = 0;

    for (int k = 0; k < profile->parts; k++)
        all += profile->seconds[k];
    best = all / waves;
    least = tutti_ticktock_peak(profile, waves, best);
    for (int k = 0; k < profile->parts; k++) {
        at += profile->seconds[k];
        if (at < all / waves) {
            const double peak = tutti_ticktock_peak(profile, waves, at);
            if (peak < least || (peak <= least && at > best)) {
                best = at;
                least = peak;
            }
        }
    }
    return best;
}
