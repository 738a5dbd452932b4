/* tune.c: a run that tunes itself (steps.h: tutti_tune_declare). Worker 0 measures, asks and
   decides (search.h); the others learn the decision in a broadcast, at steps that all can count,
   and so all change in the same step.

     window     `drop` steps that are not measured, and `steps` that are
     word       a control message of worker 0, 96 bytes: when a window is over, and before that when
                its first quarter may show that it should be abandoned

   The time of a step is what worker 0 needs from its beginning to that of the next: computing,
   waiting, its client in between, but no report, evaluation or checkpoint. The tuner's own time
   is between two steps and is in neither. A resumed run starts its window again. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tune/search.h"

#include "engine/engine_internal.h"
#include "engine/facility.h"
#include "tune/tuner.h"

typedef struct tune {
    tutti_method *m;
    tutti_tune_options options;
    tutti_knob knob[TUTTI_KNOBS_MOST];
    char figure[TUTTI_KNOBS_MOST][TUTTI_KNOB_WORDS]; /* "tune_credit" */
    tutti_tuner *tuner;
    tutti_search_state state;    /* declared */
    tutti_group group;
    bool taken_up;               /* a step has begun in this process */
    uint64_t began, seen;        /* the window's first step; the last step that has begun */
    /* worker 0: */
    int64_t *times_ns;           /* times of the current window's steps */
    size_t n_times;
    int64_t mark_ns;             /* when the last step began */
    int64_t own_ns;              /* time that the tuner has used */
} tune;

typedef struct word {            /* plain numbers of eight bytes */
    int64_t turns;               /* the window is over; else it continues */
    double seconds, high;        /* the window's time */
    tutti_search_window next;
} word;
_Static_assert(sizeof(word) == 96, "the size stated above and in steps.h");

static const tutti_facility_ops facility; /* at the end */

tutti_status tutti_tune_declare(tutti_method *m, tutti_plan *plan, const tutti_tune_options *o, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tune *t;

    if ((m->traits & TUTTI_ASYNC) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' lets every worker go at its own pace, so there is no step in which all could "
                          "change; leave tuning off",
                          m->ops->name);
    if ((m->traits & TUTTI_FAULT_TOLERANT) != 0 && !e->options.stop_on_loss && tutti_world_survives(e->world))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' continues without a lost worker, but tuning needs all workers in the steps in "
                          "which settings change; leave tuning off, or let a loss end the run (on-loss=stop)",
                          m->ops->name);
    if (o->drop < 0 || o->steps < 1 || o->steps > 1 << 20 || o->drop > 1 << 20 || o->apply == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' tunes by windows of %lld steps behind %lld that do not count; there must be one "
                          "to measure, and %d of either at most",
                          m->ops->name, (long long)o->steps, (long long)o->drop, 1 << 20);
    t = tutti_alloc(1, sizeof *t);
    if (t == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the tuner of method '%s'", m->ops->name);
    tutti_facility_add(m, &facility, t);
    t->m = m;
    t->options = *o;
    t->options.tuner.seed = e->options.seed;
    TUTTI_TRY(tutti_tuner_open(&t->tuner, &t->options.tuner, err));
    for (int k = 0; k < o->tuner.n_knobs; k++) {
        t->knob[k] = o->tuner.knobs[k];
        snprintf(t->figure[k], sizeof t->figure[k], "tune_%s", t->knob[k].name);
    }
    t->options.tuner.knobs = t->knob;
    t->times_ns = tutti_alloc((size_t)o->steps, sizeof *t->times_ns);
    if (t->times_ns == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the times of %lld steps", (long long)o->steps);
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
        tutti_knob_text(&t->knob[k], value[k], text + used, TUTTI_KNOB_WORDS);
        used += strlen(text + used);
    }
    return text;
}

static void tell_point(tune *t)
{
    for (int k = 0; k < t->options.tuner.n_knobs; k++)
        tutti_metric(t->m, t->figure[k], -1, t->state.now.value[k]);
    tutti_metric(t->m, "tune_seconds", -1, 1e-9 * (double)t->own_ns);
}

static void tell_window(const tune *t, double seconds)
{
    const tutti_search_state *s = &t->state;
    char text[400];

    point_text(t, s->now.value, text);
    if (s->now.role != TUTTI_SEARCH_POINT)
        tutti_event(t->m, "tune", "again %s: %.6g s a step", text, seconds);
    else if (t->n_times < (size_t)t->options.steps)
        tutti_event(t->m, "tune", "point %lld of %d at most, %s: %.6g s a step; given up after %zu of %lld steps",
                    (long long)s->n + 1, t->options.tuner.points, text, seconds, t->n_times,
                    (long long)t->options.steps);
    else
        tutti_event(t->m, "tune", "point %lld of %d at most, %s: %.6g s a step", (long long)s->n + 1,
                    t->options.tuner.points, text, seconds);
}

static void tell_end(const tune *t)
{
    const tutti_search_state *s = &t->state;
    char first[400], chosen[400];
    int64_t points = 0, again = 0;
    int won;

    for (int64_t i = 0; i < s->n; i++)
        *(s->past[i].role == TUTTI_SEARCH_POINT ? &points : &again) += 1;
    tutti_metric(t->m, "tune_points", -1, (double)points);
    if (tutti_search_chose(s, &won))
        tutti_event(t->m, "tune",
                    "chosen after %lld points: %s; faster in %d of %d pairs of windows than the default, %s",
                    (long long)points, point_text(t, s->now.value, chosen), won, TUTTI_SEARCH_PAIRS,
                    point_text(t, s->past[0].value, first));
    else
        tutti_event(t->m, "tune", "the default stays after %lld points, %s: %s", (long long)points,
                    point_text(t, s->now.value, first),
                    again == 0 ? "no other is expected to be faster"
                               : "the best of them was not faster in every pair of windows, or by too little");
}

/* Reports how long tuning may take: all points and pairs, if none is abandoned. */
static void tell_length(const tune *t)
{
    const int64_t windows = t->options.tuner.points + 2 * TUTTI_SEARCH_PAIRS,
                  all = windows * (t->options.drop + t->options.steps);

    if (t->m->steps > 0 && (uint64_t)all > t->m->steps)
        tutti_event(t->m, "tune",
                    "tuning takes up to %lld steps and the run has %llu, so it may end at a point that is being tried; "
                    "tune by fewer points or shorter windows",
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
    t->began = t->m->step;
    t->n_times = 0;
    if (t->m->rank == 0)
        tell_point(t);
    return TUTTI_OK;
}

/* The first step in this process. */
static tutti_status take_up(tune *t, tutti_error *err)
{
    t->taken_up = true;
    t->group = tutti_group_keyed(&t->m->all, tutti_port_of("tune", 0, 0), 0);
    TUTTI_TRY(tutti_search_check(&t->state, &t->options.tuner, err));
    if (t->m->rank == 0 && !is_over(t)) {
        TUTTI_TRY(tutti_search_tell(&t->state, t->tuner, err));
        tell_length(t);
    }
    return begin_window(t, err);
}

/* Worker 0: decides what comes after the current window, or (look) after its first part. */
static tutti_status decide_window(tune *t, bool look, word *choice, tutti_error *err)
{
    choice->turns = !look || tutti_search_look(&t->state, t->times_ns, t->n_times);
    if (!choice->turns)
        return TUTTI_OK;
    tutti_search_times(t->times_ns, t->n_times, &choice->seconds, &choice->high);
    return tutti_search_decide(&t->state, t->tuner, choice->seconds, &choice->next, err);
}

static tutti_status receive_choice(tune *t, bool look, tutti_error *err)
{
    tutti_engine *e = t->m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(e->rt);
    word choice = { 0 };
    tutti_status status = t->m->rank == 0 ? decide_window(t, look, &choice, err) : TUTTI_OK;

    if (status == TUTTI_OK)
        status = tutti_broadcast(&t->group, 0, tutti_host(&choice, sizeof choice, TUTTI_U8), err);
    t->own_ns += tutti_now_ns(e->rt) - begin;
    tutti_engine_comm(e, "tune", 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    if (status != TUTTI_OK || !choice.turns)
        return status;
    if (t->m->rank == 0)
        tell_window(t, choice.seconds);
    tutti_search_turn(&t->state, choice.seconds, choice.high, &choice.next);
    if (t->m->rank == 0 && is_over(t))
        tell_end(t);
    return begin_window(t, err);
}

static tutti_status begin_step(void *self, tutti_error *err)
{
    tune *t = self;
    tutti_engine *e = t->m->engine;
    const int64_t made = (int64_t)(t->m->step - t->began), drop = t->options.drop, steps = t->options.steps,
                  part = tutti_search_look_at(steps);

    if (t->taken_up && (is_over(t) || t->m->step == t->seen)) /* a step may be restarted */
        return TUTTI_OK;
    t->seen = t->m->step;
    if (!t->taken_up)
        TUTTI_TRY(take_up(t, err));
    else {
        if (t->m->rank == 0 && made > drop)
            t->times_ns[t->n_times++] = tutti_engine_worked_ns(e) - t->mark_ns;
        if (made == drop + steps)
            TUTTI_TRY(receive_choice(t, false, err));
        else if (made == drop + part && t->state.now.role == TUTTI_SEARCH_POINT && t->state.n > 0)
            TUTTI_TRY(receive_choice(t, true, err));
    }
    t->mark_ns = tutti_engine_worked_ns(e);
    return TUTTI_OK;
}

static const tutti_facility_ops facility = { .close = close_tune, .begin = begin_step };
