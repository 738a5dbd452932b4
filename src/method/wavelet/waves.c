/* waves.c: implements waves.h: the micro-batches of method wavelet, which update each starts from,
   the sums of gradients and the updates. The equations are in wavelet.c. */
#include <string.h>

#include "tutti/method/pipeline.h"
#include "engine/modes/drive.h"
#include "waves.h"

/* ---- the numbers of micro-batches, updates and waves ---- */

static int64_t step_of(const wavelet *s, int64_t p)
{
    return p / s->passes;
}

/* Groups of k micro-batches are assigned to the waves in rotation. */
static int wave_of(const wavelet *s, int64_t p)
{
    return (int)(p % s->passes / s->k % s->waves);
}

/* Updates are counted over all waves that have one each. */
static int64_t updates_a_step(const wavelet *s)
{
    return s->mode == AVERAGE ? s->waves : 1;
}

static float *gradient_of(const wavelet *s, int64_t p)
{
    return s->gradient[s->mode == SHARED ? step_of(s, p) % s->waves : wave_of(s, p)];
}

/* Is it the first to write to that gradient? ends: does its update end with it? */
static bool begins(const wavelet *s, int64_t p)
{
    const int64_t i = p % s->passes;
    return s->mode == SHARED ? i == 0 : i < s->waves * s->k && i % s->k == 0;
}

static bool ends(const wavelet *s, int64_t p)
{
    const int64_t i = p % s->passes;
    return s->mode == AVERAGE ? i >= s->passes - s->waves * s->k && i % s->k == s->k - 1
                              : i == s->passes - 1;
}

static bool synchronises(const wavelet *s, int64_t step)
{
    return s->mode == AVERAGE && (s->base + (uint64_t)step) % (uint64_t)s->rounds == 0;
}

static const float *values_of(const wavelet *s, int64_t p)
{
    const int64_t seen = step_of(s, p) + 1; /* x_{t-K+1} is in the place of x_{t+1} */
    return s->values[s->mode == SHARED ? seen % s->waves : s->mode == AVERAGE ? wave_of(s, p) : 0];
}

/* May it begin once that number of updates was made: are its values ready, and is its gradient
   free? */
static bool may_begin_after(const wavelet *s, int64_t p, int64_t applied)
{
    const int64_t step = step_of(s, p);

    if (p >= s->last)
        return false;
    if (s->mode == SHARED)
        return applied >= step - s->waves + 1;
    if (s->mode == ACCUMULATE || synchronises(s, step))
        return applied >= step * updates_a_step(s);
    return applied > (step - 1) * s->waves + wave_of(s, p);
}

static bool may_begin(const wavelet *s, int64_t p)
{
    return may_begin_after(s, p, s->applied);
}

/* Samples of a step's wave, or of the step where waves have one update: of this pipeline, or of
   all. */
static int64_t samples_of(const wavelet *s, uint64_t step, int wave, bool all)
{
    const tutti_method *m = s->m;
    int64_t sum = 0;

    if (s->mode != AVERAGE)
        return tutti_share_step(m->share, step, all ? -1 : m->member);
    for (int v = all ? 0 : m->member; v <= (all ? s->pipelines - 1 : m->member); v++)
        for (int64_t i = 0; i < s->passes; i++) {
            uint64_t epoch, position;
            if (wave_of(s, i) == wave)
                sum += tutti_share_pass(m->share, step, v, i, &epoch, &position);
        }
    return sum;
}

static uint64_t run_step(const wavelet *s, int64_t p)
{
    return s->base + (uint64_t)step_of(s, p);
}

static void pass_of(const wavelet *s, int64_t p, tutti_pass *pass)
{
    tutti_drive_pass(s->m, run_step(s, p), p % s->passes, pass);
    if (pass->samples > 0)
        pass->divisor = samples_of(s, run_step(s, p), wave_of(s, p), false);
    pass->keep = !begins(s, p);
}

/* ---- updates ---- */

/* The number of updates of a wave's model up to this step, included. The last step of an epoch
   may have no samples for the last waves. */
static uint64_t made(const wavelet *s, uint64_t step, int wave)
{
    const uint64_t each = tutti_share_steps(s->m->share), epochs = step / each;
    const bool empty = s->mode == AVERAGE && epochs > 0 && samples_of(s, each - 1, wave, true) == 0;

    return step + 1 - (empty ? epochs : 0);
}

static void mean_of_waves(const wavelet *s, float *to)
{
    tutti_device *d = s->m->device;
    const size_t n = s->m->own.count;

    if (to != s->values[0])
        tutti_copy(d, n, s->values[0], to);
    for (int w = 1; w < s->waves; w++)
        tutti_add(d, n, s->values[w], to);
    tutti_scale(d, n, 1 / (float)s->waves, to);
}

static void spread(const wavelet *s, const float *from)
{
    for (int w = 0; w < s->waves; w++)
        if (s->values[w] != from)
            tutti_copy(s->m->device, s->m->own.count, from, s->values[w]);
}

/* Makes the next update; its sum is ready. */
static tutti_status apply_update(wavelet *s, tutti_error *err)
{
    tutti_method *m = s->m;
    const int64_t step = s->applied / updates_a_step(s);
    const int wave = s->mode == AVERAGE ? (int)(s->applied % s->waves) : 0,
              which = s->mode == SHARED ? (int)(step % s->waves) : wave;
    const uint64_t now = s->base + (uint64_t)step;
    float *x = s->values[s->mode == SHARED ? (step + 1) % s->waves : wave];
    tutti_rate rate = tutti_drive_rate(m, now, made(s, now, wave));

    if (s->mode == SHARED && s->waves > 1)
        tutti_copy(m->device, m->own.count, s->values[step % s->waves], x);
    if (s->mode != AVERAGE || samples_of(s, now, wave, true) > 0)
        TUTTI_TRY(tutti_drive_update(m, s->optim[wave], x, s->gradient[which], &rate, err));
    s->applied++;
    if (s->applied % updates_a_step(s) == 0 && synchronises(s, step + 1)) {
        mean_of_waves(s, s->values[0]);
        spread(s, s->values[0]);
    }
    return TUTTI_OK;
}

static int sum_of(const wavelet *s, int64_t update)
{
    return (int)(update % s->waves);
}

/* A micro-batch and all before it are over. */
static void finish_micro_batch(wavelet *s, int64_t p)
{
    tutti_method *m = s->m;
    const uint64_t step = run_step(s, p), late = s->mode == SHARED ? (uint64_t)s->waves - 1 : 0;
    const int wave = wave_of(s, p);
    float *g = gradient_of(s, p);
    int64_t all;

    if (!ends(s, p))
        return;
    if (s->mode == ACCUMULATE) {
        g = s->gradient[0];
        for (int w = 1; w < s->waves; w++)
            tutti_add(m->device, m->own.count, s->gradient[w], g);
    }
    all = samples_of(s, step, wave, true);
    tutti_stale(m, step < late ? step : late);
    tutti_drive_sum_start(m, sum_of(s, s->started++),
                          all > 0 ? (double)samples_of(s, step, wave, false) / (double)all : 0, g);
}

/* Makes the next update, whose sum was started. Blocks. */
static tutti_status await_update(wavelet *s, tutti_error *err)
{
    const int which = sum_of(s, s->applied);
    const bool waits = !tutti_drive_sum_over(s->m, which);
    double seconds;
    tutti_status status;

    if (waits)
        tutti_drive_waits(s->m, true);
    status = tutti_drive_sum_wait(s->m, which, &seconds, err);
    if (waits)
        tutti_drive_waits(s->m, false);
    TUTTI_TRY(status);
    tutti_wavelet_exchanged(&s->profile, seconds);
    return apply_update(s, err);
}

/* Makes the updates whose sums are over. */
static tutti_status apply_ready(wavelet *s, tutti_error *err)
{
    while (s->applied < s->started && tutti_drive_sum_over(s->m, sum_of(s, s->applied)))
        TUTTI_TRY(await_update(s, err));
    return TUTTI_OK;
}

/* ---- one stage: unit by unit ---- */

static int slot_of(const wavelet *s, int64_t p)
{
    return (int)(p % s->waves);
}

/* Computes the next part of a micro-batch; *over: it was the last. */
static tutti_status compute(wavelet *s, int64_t p, bool alone, bool *over, tutti_error *err)
{
    tutti_method *m = s->m;
    const int slot = slot_of(s, p);
    track *t = &s->track[slot];
    const double before = (double)tutti_drive_held(m);
    const int64_t since = tutti_now_ns(m->rt);
    const bool turn = t->part > 0 && t->part == t->forwards && !t->back;
    bool ended;

    t->back = t->back || turn;
    if (t->part == 0)
        TUTTI_TRY(tutti_drive_begin_forward(m, run_step(s, p), slot, &t->pass, values_of(s, p),
                                            NULL, NULL, &ended, err));
    else if (turn)
        TUTTI_TRY(tutti_drive_begin_backward(m, run_step(s, p), slot, &t->pass, values_of(s, p),
                                             NULL, gradient_of(s, p), NULL, &ended, err));
    else
        TUTTI_TRY(tutti_drive_go_on(m, run_step(s, p), slot, &t->pass, t->back, &ended, err));
    *over = ended && t->back;
    if (t->pass.samples > 0) {
        const double held = t->back ? before : (double)tutti_drive_held(m), full = (double)s->micro;
        tutti_wavelet_part(&s->profile, t->part, 1e-9 * (double)(tutti_now_ns(m->rt) - since),
                             alone ? held * full / (double)t->pass.samples : held, alone);
    }
    t->part++;
    if (ended && !t->back)
        t->forwards = t->part;
    if (*over && t->pass.samples == s->micro)
        tutti_wavelet_micro(&s->profile, t->forwards, t->part);
    return TUTTI_OK;
}

/* Computes a whole micro-batch while no other is in progress: the first one, which is profiled, and
   those without samples. */
static tutti_status compute_alone(wavelet *s, int64_t p, tutti_error *err)
{
    bool over = false;

    while (!over)
        TUTTI_TRY(compute(s, p, true, &over, err));
    s->tick.begun = s->tick.over = p + 1;
    finish_micro_batch(s, p);
    return TUTTI_OK;
}

static tutti_status tick_tock(wavelet *s, tutti_error *err)
{
    tutti_ticktock *const t = &s->tick;

    for (;;) {
        const bool quiet = t->begun == t->over, known = s->profile.of.parts > 0;
        bool may = t->begun < s->last, over;
        int64_t p;

        TUTTI_TRY(apply_ready(s, err));
        may = may && may_begin(s, t->begun);
        if (may) {
            track *next = &s->track[slot_of(s, t->begun)];
            if (t->begun - t->over < s->waves) {
                *next = (track){ .part = 0 };
                pass_of(s, t->begun, &next->pass);
            }
            if (quiet && (next->pass.samples == 0 || !known)) {
                TUTTI_TRY(compute_alone(s, t->begun, err));
                continue;
            }
            may = t->begun - t->over < s->waves && next->pass.samples > 0 && known;
        }
        t->profile = &s->profile.of;
        t->offset = s->profile.offset;
        p = tutti_ticktock_next(t, may);
        if (p < 0 && s->applied < s->started)
            TUTTI_TRY(await_update(s, err));
        else if (p < 0)
            return TUTTI_OK;
        else {
            TUTTI_TRY(compute(s, p, false, &over, err));
            tutti_ticktock_ran(t, p);
            if (over)
                finish_micro_batch(s, p);
        }
    }
}

/* ---- several stages: micro-batches travel as messages; they are counted from 1 here ---- */

static int64_t here(const wavelet *s, int64_t piped)
{
    return piped - 1 - s->piped;
}

static tutti_status forward(void *self, int64_t at, int slot, const float *in, size_t entered,
                            float *out, size_t *left, tutti_error *err)
{
    wavelet *s = self;
    const int64_t p = here(s, at);
    tutti_pass *pass = &s->track[slot].pass;

    (void)entered;
    while (!may_begin(s, p)) /* it was admitted, so these sums are over */
        TUTTI_TRY(await_update(s, err));
    pass_of(s, p, pass);
    *left = (size_t)pass->samples * s->leaves;
    return tutti_drive_forward(s->m, run_step(s, p), slot, pass, values_of(s, p), in, out, err);
}

static tutti_status backward(void *self, int64_t at, int slot, const float *slope, float *back,
                             tutti_error *err)
{
    wavelet *s = self;
    const int64_t p = here(s, at);

    TUTTI_TRY(tutti_drive_backward(s->m, run_step(s, p), slot, &s->track[slot].pass,
                                   values_of(s, p), slope, gradient_of(s, p), back, err));
    finish_micro_batch(s, p);
    return TUTTI_OK;
}

static int64_t admitted(void *self)
{
    wavelet *s = self;
    int64_t made_then = s->applied;

    while (made_then < s->started && tutti_drive_sum_over(s->m, sum_of(s, made_then)))
        made_then++;
    while (may_begin_after(s, s->admitted, made_then))
        s->admitted++;
    return s->admitted + s->piped;
}

/* Nothing is in progress here, so what it waits for was started. */
static tutti_status await_pass(void *self, int64_t at, tutti_error *err)
{
    wavelet *s = self;

    while (!may_begin(s, here(s, at)))
        TUTTI_TRY(await_update(s, err));
    return TUTTI_OK;
}

static void waits(void *self, bool now)
{
    tutti_drive_waits(((wavelet *)self)->m, now);
}

static tutti_status through_stages(wavelet *s, tutti_error *err)
{
    const tutti_pipe_work work = { .self = s,
                                   .forward = forward,
                                   .backward = backward,
                                   .admitted = admitted,
                                   .await = await_pass,
                                   .waits = waits };

    TUTTI_TRY(tutti_pipe_run(s->pipe, s->piped + s->last, &work, err));
    s->piped += s->last;
    while (s->applied < s->started)
        TUTTI_TRY(await_update(s, err));
    return TUTTI_OK;
}
/* ---- a call of drive ---- */

/* Sets the buffers of the values for this call's steps. */
static void begin_call(wavelet *s, uint64_t until)
{
    tutti_method *m = s->m;
    const int k = (int)s->waves;

    s->base = m->step;
    s->last = (int64_t)(until - m->step) * s->passes;
    s->started = s->applied = s->admitted = 0;
    s->tick.begun = s->tick.over = 0;
    s->values[0] = s->spare[0] != NULL ? s->spare[0] : m->own_x;
    for (int w = 1; w < k && s->mode != ACCUMULATE; w++)
        /* shared: version w is x after step -w */
        s->values[s->mode == SHARED ? k - w : w] = s->spare[w];
    if (s->mode == AVERAGE && s->rounds == 1)
        spread(s, m->own_x);
}

/* Writes the resulting model to own_x, and the versions before it to their slots. */
static void end_call(wavelet *s)
{
    tutti_method *m = s->m;
    const int k = (int)s->waves, turn = (int)(s->applied % k);
    float *const place[WAVES_MOST] = { m->own_x, s->spare[1], s->spare[2], s->spare[3] };
    enum { CHUNK = 256 };

    if (s->mode == AVERAGE && s->rounds > 1 &&
        synchronises(s, s->last / s->passes)) /* they are equal */
        tutti_copy(m->device, m->own.count, s->values[0], m->own_x);
    else if (s->mode == AVERAGE && s->rounds > 1)
        mean_of_waves(s, m->own_x);
    /* x_{-w} of the next call is x_{turn - w} of this one: the content of slot (w - turn) mod k */
    for (size_t first = 0; first < m->own.count && s->mode == SHARED && turn > 0; first += CHUNK) {
        const size_t n = m->own.count - first < CHUNK ? m->own.count - first : CHUNK;
        float was[WAVES_MOST][CHUNK];
        for (int w = 0; w < k; w++)
            memcpy(was[w], place[w] + first, n * sizeof(float));
        for (int w = 0; w < k; w++)
            memcpy(place[w] + first, was[(w - turn + k) % k], n * sizeof(float));
    }
}

/* Records the figures that this worker has measured. */
static void report_profile(wavelet *s)
{
    tutti_method *m = s->m;
    const wavelet_profile *p = &s->profile;
    const double t = tutti_wavelet_seconds(p);

    if (s->k > 1 || !tutti_wavelet_settled(p) || p->peak <= 0)
        return;
    tutti_metric(m, "predicted_peak_bytes", m->rank, p->predicted);
    tutti_metric(m, "peak_bytes", m->rank, p->peak);
    tutti_metric(m, "valley_fill", m->rank, p->held / (p->watched * p->peak));
    if (s->reported || s->waves == 1 || s->pipelines == 1 || m->rank > 0)
        return;
    s->reported = true;
    if (t / (t + p->exchange) > 0.7)
        tutti_event(m, "compute-bound",
                    "a micro-batch takes %.3g ms to compute and its exchange %.3g ms, so that "
                    "waves gain little time: take ddp, or waves=1, where memory does not matter",
                    1e3 * t, 1e3 * p->exchange);
}

tutti_status tutti_waves_drive(tutti_method *m, uint64_t until, tutti_error *err)
{
    wavelet *s = m->self;

    begin_call(s, until);
    TUTTI_TRY(s->pipe != NULL ? through_stages(s, err) : tick_tock(s, err));
    end_call(s);
    report_profile(s);
    return TUTTI_OK;
}
