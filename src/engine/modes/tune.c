/* tune.c: tunes a method's knobs while the run trains (tutti_tune_declare in steps.h; used by bagua
   and bytescheduler). Worker 0 measures step times and decides by search.h what to try next. It
   broadcasts the decision in a step whose number every worker can compute, so all workers change
   the knobs in the same step.

     window     a sequence of steps with one setting of the knobs: `drop` steps that are not
                measured, then `steps` that are
     decision   what worker 0 broadcasts, 96 bytes: at the end of a window, and in the window of a
                point other than the default once after the first quarter of its measured steps,
                when the point may be abandoned as too slow

   A step's time is measured on worker 0, from the beginning of one step to the beginning of the
   next. It includes computing, waiting and the client's code between steps. It excludes reports,
   evaluations, checkpoints and the tuner's own time. A resumed run repeats the window that was
   interrupted. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tune/search.h"

#include "engine/engine_internal.h"
#include "engine/facility.h"
#include "tune/tuner.h"
#include "engine/refuse.h"

typedef struct tune {
    tutti_method *m;
    tutti_tune_options options;
    tutti_knob knob[TUTTI_KNOBS_MOST];
    /* names of metrics: "tune_" + the knob's name */
    char metric[TUTTI_KNOBS_MOST][TUTTI_KNOB_TEXT_BYTES];
    tutti_tuner *tuner;
    tutti_search_state state;    /* saved in checkpoints */
    tutti_group group;
    bool started;                /* a step has begun in this process */
    uint64_t first_step;         /* the current window's */
    uint64_t last_step;          /* the last that has begun */
    /* worker 0: */
    int64_t *times_ns;           /* times of the current window's steps */
    size_t n_times;
    int64_t step_began_ns;       /* when last_step began */
    int64_t tuner_ns;            /* time spent in the search and its broadcasts */
} tune;

typedef struct decision {        /* plain numbers of eight bytes */
    int64_t window_over;         /* 0: the window continues, and the rest is unused */
    double seconds, high;        /* median and upper quartile of its step times */
    tutti_search_window next;
} decision;
_Static_assert(sizeof(decision) == 96, "the size stated above and in steps.h");

static const tutti_facility_ops facility; /* at the end */

tutti_status tutti_tune_declare(tutti_method *m, tutti_plan *plan, const tutti_tune_options *o,
                                tutti_error *err)
{
    tutti_engine *e = m->engine;
    const tutti_rule rules[] = {
        { (m->traits & TUTTI_ASYNC) != 0,
          "{method} lets every worker go at its own pace, so there is no step in which all could "
          "change; leave tuning off" },
        { (m->traits & TUTTI_FAULT_TOLERANT) != 0 && !e->options.stop_on_loss &&
              tutti_world_survives(e->world),
          "{method} continues without a lost worker, but tuning needs all workers in the steps in "
          "which settings change; leave tuning off, or let a loss end the run (on-loss=stop)" },
        { o->apply == NULL, "{method} tunes, but has no function that sets its knobs; give "
                            "tutti_tune_options.apply" },
    };
    tune *t;

    TUTTI_TRY(tutti_refuse_rules(m, rules, TUTTI_LENGTH(rules), err));
    if (o->drop < 0 || o->steps < 1 || o->steps > 1 << 20 || o->drop > 1 << 20)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': a tuning window of %lld measured and %lld unmeasured "
                          "steps; measure at least 1, and give at most %d of each",
                          m->ops->name, (long long)o->steps, (long long)o->drop, 1 << 20);
    t = tutti_alloc(1, sizeof *t);
    if (t == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the tuner of method '%s'",
                          m->ops->name);
    tutti_facility_add(m, &facility, t);
    t->m = m;
    t->options = *o;
    t->options.tuner.seed = e->options.seed;
    TUTTI_TRY(tutti_tuner_open(&t->tuner, &t->options.tuner, err));
    for (int k = 0; k < o->tuner.n_knobs; k++) {
        t->knob[k] = o->tuner.knobs[k];
        snprintf(t->metric[k], sizeof t->metric[k], "tune_%s", t->knob[k].name);
    }
    t->options.tuner.knobs = t->knob;
    t->times_ns = tutti_alloc((size_t)o->steps, sizeof *t->times_ns);
    if (t->times_ns == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the times of %lld steps",
                          (long long)o->steps);
    tutti_search_begin(&t->state, &t->options.tuner);
    if (m->workers == 1) /* nothing is exchanged */
        t->state.now.role = TUTTI_SEARCH_OVER;
    tutti_declare_value(plan, "engine.tune", TUTTI_SAME, &t->state, sizeof t->state);
    return TUTTI_OK;
}

static void close_tune(void *self)
{
    tune *t = self;

    tutti_tuner_close(t->tuner);
    tutti_free(t->times_ns);
    tutti_free(t);
}

/* ---- reports ---- */

static const char *point_text(const tune *t, const double *value, char text[400])
{
    size_t used = 0;

    for (int k = 0; k < t->options.tuner.n_knobs && used < 300; k++) {
        if (k > 0)
            text[used++] = ' ';
        tutti_knob_text(&t->knob[k], value[k], text + used, TUTTI_KNOB_TEXT_BYTES);
        used += strlen(text + used);
    }
    return text;
}

static void report_point(tune *t)
{
    for (int k = 0; k < t->options.tuner.n_knobs; k++)
        tutti_metric(t->m, t->metric[k], -1, t->state.now.value[k]);
    tutti_metric(t->m, "tune_seconds", -1, 1e-9 * (double)t->tuner_ns);
}

static void report_window(const tune *t, double seconds)
{
    const tutti_search_state *s = &t->state;
    char text[400];

    point_text(t, s->now.value, text);
    if (s->now.role != TUTTI_SEARCH_POINT)
        tutti_event(t->m, "tune", "measured again, %s: %.6g s a step", text, seconds);
    else if (t->n_times < (size_t)t->options.steps)
        tutti_event(
            t->m, "tune",
            "point %lld of %d at most, %s: %.6g s a step; abandoned after %zu of %lld steps",
            (long long)s->n + 1, t->options.tuner.points, text, seconds, t->n_times,
            (long long)t->options.steps);
    else
        tutti_event(t->m, "tune", "point %lld of %d at most, %s: %.6g s a step",
                    (long long)s->n + 1, t->options.tuner.points, text, seconds);
}

static void report_end(const tune *t)
{
    const tutti_search_state *s = &t->state;
    char first[400], chosen[400];
    int64_t points = 0, again = 0;
    int won;

    for (int64_t i = 0; i < s->n; i++)
        if (s->past[i].role == TUTTI_SEARCH_POINT)
            points++;
        else
            again++;
    tutti_metric(t->m, "tune_points", -1, (double)points);
    if (tutti_search_chose(s, &won))
        tutti_event(t->m, "tune",
                    "chosen after %lld points: %s; faster in %d of %d pairs of windows than the "
                    "default, %s",
                    (long long)points, point_text(t, s->now.value, chosen), won, TUTTI_SEARCH_PAIRS,
                    point_text(t, s->past[0].value, first));
    else
        tutti_event(
            t->m, "tune", "the default is kept after %lld points, %s: %s", (long long)points,
            point_text(t, s->now.value, first),
            again == 0
                ? "no other is expected to be faster"
                : "the best other point was not faster in every pair of windows, or not by 1 %");
}

/* Reports how long tuning may take: all points and pairs, if none is abandoned. */
static void report_length(const tune *t)
{
    const int64_t windows = t->options.tuner.points + 2 * TUTTI_SEARCH_PAIRS,
                  all = windows * (t->options.drop + t->options.steps);

    if (t->m->steps > 0 && (uint64_t)all > t->m->steps)
        tutti_event(t->m, "tune",
                    "tuning may take %lld steps and the run has %llu, so the run may end while a "
                    "point is being tried; use fewer points or shorter windows",
                    (long long)all, (unsigned long long)t->m->steps);
}

/* ---- windows ---- */

static bool is_over(const tune *t)
{
    return t->state.now.role == TUTTI_SEARCH_OVER;
}

static tutti_status begin_window(tune *t, tutti_error *err)
{
    TUTTI_TRY(t->options.apply(t->m, t->state.now.value, err));
    t->first_step = t->m->step;
    t->n_times = 0;
    if (t->m->rank == 0)
        report_point(t);
    return TUTTI_OK;
}

/* Called in the first step of a process, with new or resumed state: checks the state, replays
   finished windows to the tuner, applies the current knobs. */
static tutti_status start(tune *t, tutti_error *err)
{
    t->started = true;
    t->group = tutti_group_keyed(&t->m->all, tutti_port_of("tune", 0, 0), 0);
    TUTTI_TRY(tutti_search_check(&t->state, &t->options.tuner, err));
    if (t->m->rank == 0 && !is_over(t)) {
        TUTTI_TRY(tutti_search_replay(&t->state, t->tuner, err));
        report_length(t);
    }
    return begin_window(t, err);
}

/* Worker 0: fills *choice. early: only a quarter of the window is measured; decides whether to
   abandon it. Otherwise the window is over: chooses the next. */
static tutti_status decide_window(tune *t, bool early, decision *choice, tutti_error *err)
{
    choice->window_over = !early || tutti_search_is_slow(&t->state, t->times_ns, t->n_times);
    if (!choice->window_over)
        return TUTTI_OK;
    tutti_search_times(t->times_ns, t->n_times, &choice->seconds, &choice->high);
    return tutti_search_decide(&t->state, t->tuner, choice->seconds, &choice->next, err);
}

/* Worker 0 decides and broadcasts; all apply the decision. */
static tutti_status exchange_decision(tune *t, bool early, tutti_error *err)
{
    tutti_engine *e = t->m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(e->rt);
    decision choice = { 0 };
    tutti_status status = t->m->rank == 0 ? decide_window(t, early, &choice, err) : TUTTI_OK;

    if (status == TUTTI_OK)
        status = tutti_broadcast(&t->group, 0, tutti_host(&choice, sizeof choice, TUTTI_U8), err);
    t->tuner_ns += tutti_now_ns(e->rt) - begin;
    tutti_engine_comm(e, "tune", 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    if (status != TUTTI_OK || !choice.window_over)
        return status;
    if (t->m->rank == 0)
        report_window(t, choice.seconds);
    tutti_search_record(&t->state, choice.seconds, choice.high, &choice.next);
    if (t->m->rank == 0 && is_over(t))
        report_end(t);
    return begin_window(t, err);
}

static tutti_status begin_step(void *self, tutti_error *err)
{
    tune *t = self;
    tutti_engine *e = t->m->engine;

    /* a restarted step is not counted twice; its time includes the attempt that was aborted */
    if (t->started && (is_over(t) || t->m->step == t->last_step))
        return TUTTI_OK;
    t->last_step = t->m->step;
    if (!t->started)
        TUTTI_TRY(start(t, err));
    else {
        const int64_t steps_made = (int64_t)(t->m->step - t->first_step), drop = t->options.drop,
                      steps = t->options.steps, early_at = tutti_search_early_step(steps);
        if (t->m->rank == 0 && steps_made > drop)
            t->times_ns[t->n_times++] = tutti_engine_worked_ns(e) - t->step_began_ns;
        if (steps_made == drop + steps)
            TUTTI_TRY(exchange_decision(t, false, err));
        else if (steps_made == drop + early_at && t->state.now.role == TUTTI_SEARCH_POINT &&
                 t->state.n > 0)
            TUTTI_TRY(exchange_decision(t, true, err));
    }
    t->step_began_ns = tutti_engine_worked_ns(e);
    return TUTTI_OK;
}

static const tutti_facility_ops facility = { .close = close_tune, .begin = begin_step };
