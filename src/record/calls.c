/* calls.c: the record of a client that makes calls of its own on a world, without an engine. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record_internal.h"
#include "collective/compare.h"

enum {
    THREADS = 1000,              /* most of a trace */
    FIRST_THREAD = 3,            /* 0 to 2 are the engine's in other traces */
    SUMS = 256,                  /* kinds of calls that are counted apart */
    BUFFERED = 1 << 16           /* bytes of text from which on it is written */
};

/* What a rank did in calls of one group, name and codec. */
typedef struct sum {
    char group[TUTTI_RECORD_NAME], name[TUTTI_RECORD_NAME], codec[TUTTI_RECORD_NAME];
    uint64_t calls, bytes;
    int64_t made_ns, waited_ns;
} sum;

struct tutti_call_record {
    tutti_record_trace t;
    tutti_world *world;
    tutti_monitor *lock;         /* of all below */
    tutti_group measuring;       /* for tutti_call_record_clock, which takes no lock */
    char (*thread)[TUTTI_RECORD_NAME]; /* [THREADS] */
    int n_threads;
    sum *sum;                    /* [SUMS] */
    int n_sums;
    uint64_t report_every, steps, reported;
    uint64_t spans, lost;        /* written; beyond TUTTI_RECORD_EVENTS */
    uint64_t bytes_before, messages_before;
    int64_t begin_ns, made_ns, waited_ns;
    int waiting;                 /* threads that wait */
    int64_t waiting_since_ns;
    double loss_sum, losses;     /* since the last line of metrics.jsonl */
    json_t *logged;              /* the last figures of evaluations; NULL: none */
    tutti_figures last;          /* at that line */
};

/* ---- spans ---- */

/* Is it the text that was written of that one? */
static bool same(const char *written, const char *text)
{
    return strncmp(written, text, TUTTI_RECORD_NAME - 1) == 0;
}

/* Sets *thread to that of a name, which is a new one at first; those that are too many share the
   last one. */
static tutti_status thread_of(tutti_call_record *r, const char *name, int *thread, tutti_error *err)
{
    int k = 0;

    while (k < r->n_threads && !same(r->thread[k], name))
        k++;
    *thread = FIRST_THREAD + (k < THREADS ? k : THREADS - 1);
    if (k < r->n_threads || k == THREADS)
        return TUTTI_OK;
    r->n_threads++;
    snprintf(r->thread[k], TUTTI_RECORD_NAME, "%s", name);
    if (r->t.file == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_record_trace_room(&r->t, TUTTI_RECORD_LINE, err));
    r->t.length +=
        tutti_record_thread_line(r->t.text + r->t.length, r->t.rank, *thread, r->thread[k]);
    return TUTTI_OK;
}

/* thread: its name; NULL: the client's. */
static tutti_status add_line(tutti_call_record *r, const char *thread, tutti_record_named e,
                             tutti_error *err)
{
    if (r->t.file == NULL)
        return TUTTI_OK;
    if (r->spans == TUTTI_RECORD_EVENTS) {
        r->lost++;
        return TUTTI_OK;
    }
    r->spans++;
    if (thread != NULL)
        TUTTI_TRY(thread_of(r, thread, &e.thread, err));
    TUTTI_TRY(tutti_record_trace_room(&r->t, TUTTI_RECORD_LINE, err));
    r->t.length += tutti_record_call_line(r->t.text + r->t.length, r->t.rank, &e);
    return r->t.length >= BUFFERED ? tutti_record_trace_write(&r->t, err) : TUTTI_OK;
}

/* The sums that a call belongs to; the last one has all that are too many. */
static sum *sum_of(tutti_call_record *r, const tutti_call *c)
{
    sum *s;

    for (int i = 0; i < r->n_sums; i++) {
        s = &r->sum[i];
        if (same(s->group, c->group) && same(s->name, c->name) && same(s->codec, c->codec))
            return s;
    }
    if (r->n_sums == SUMS)
        return &r->sum[SUMS - 1];
    s = &r->sum[r->n_sums++];
    if (r->n_sums == SUMS) {
        snprintf(s->name, sizeof s->name, "others");
        return s;
    }
    snprintf(s->group, sizeof s->group, "%s", c->group);
    snprintf(s->name, sizeof s->name, "%s", c->name);
    snprintf(s->codec, sizeof s->codec, "%s", c->codec);
    return s;
}

tutti_status tutti_call_record_call(tutti_call_record *r, const tutti_call *c, tutti_error *err)
{
    tutti_status status;
    sum *s;

    tutti_lock(r->lock);
    s = sum_of(r, c);
    s->calls++;
    s->bytes += c->bytes;
    s->made_ns += c->end_ns - c->begin_ns;
    r->made_ns += c->end_ns - c->begin_ns;
    status = add_line(r, c->group,
                      (tutti_record_named){ .name = c->name,
                                            .category = "call",
                                            .codec = c->codec,
                                            .bytes = c->bytes,
                                            .step = r->steps,
                                            .queued_ns = c->begin_ns - c->asked_ns,
                                            .begin_ns = c->begin_ns,
                                            .end_ns = c->end_ns },
                      err);
    tutti_unlock(r->lock);
    return status;
}

int64_t tutti_call_record_wait(tutti_call_record *r)
{
    const int64_t now = tutti_now_ns(r->t.rt);

    tutti_lock(r->lock);
    if (r->waiting++ == 0)
        r->waiting_since_ns = now;
    tutti_unlock(r->lock);
    return now;
}

tutti_status tutti_call_record_waited(tutti_call_record *r, const tutti_call *c,
                                      const char *thread, tutti_error *err)
{
    const int64_t now = tutti_now_ns(r->t.rt);
    tutti_status status = TUTTI_OK;

    tutti_lock(r->lock);
    if (--r->waiting == 0)
        r->waited_ns += now - r->waiting_since_ns;
    sum_of(r, c)->waited_ns += now - c->begin_ns;
    if (now - c->begin_ns >= 1000)
        status = add_line(r, thread,
                          (tutti_record_named){ .name = c->name,
                                                .category = "wait",
                                                .codec = c->codec,
                                                .bytes = c->bytes,
                                                .step = r->steps,
                                                .begin_ns = c->begin_ns,
                                                .end_ns = now },
                          err);
    tutti_unlock(r->lock);
    return status;
}

/* ---- steps ---- */

/* The figures of this rank so far. */
static tutti_figures figures_of(tutti_call_record *r)
{
    const int64_t now = tutti_now_ns(r->t.rt);
    tutti_figures f = { .steps = r->steps, .own_steps = r->steps };
    uint64_t bytes, messages;

    tutti_world_sent(r->world, -1, &bytes, &messages);
    f.bytes_sent = bytes - r->bytes_before;
    f.messages_sent = messages - r->messages_before;
    f.wall_ns = now - r->begin_ns;
    f.comm_ns = r->made_ns;
    f.exposed_ns = r->waited_ns + (r->waiting > 0 ? now - r->waiting_since_ns : 0);
    f.compute_ns = f.wall_ns - f.exposed_ns;
    return f;
}

/* Writes a line of rank 0's figures. */
static tutti_status write_line(tutti_call_record *r, tutti_error *err)
{
    const tutti_figures f = figures_of(r);
    const double compute = (double)(f.compute_ns - r->last.compute_ns) * 1e-9,
                 wait = (double)(f.exposed_ns - r->last.exposed_ns) * 1e-9;
    const tutti_record_line line = {
        .step = r->steps,
        .epoch = json_null(),
        .samples = json_null(),
        .samples_per_second = json_null(),
        .train_loss = r->losses > 0 ? r->loss_sum / r->losses : (double)NAN,
        .lr = (double)NAN,
        .figures = &f,
        .bytes = r->t.ranks == 1 ? (double)f.bytes_sent : (double)NAN, /* else it is not known */
        .compute = json_pack("[f]", compute),
        .wait = json_pack("[f]", wait),
    };

    r->last = f;
    r->reported = r->steps;
    r->loss_sum = r->losses = 0;
    return tutti_record_trace_stopped(
        &r->t, tutti_record_put(r->t.rows, tutti_record_report(&line), err));
}

void tutti_call_record_loss(tutti_call_record *r, double loss)
{
    tutti_lock(r->lock);
    r->loss_sum += loss;
    r->losses++;
    tutti_unlock(r->lock);
}

tutti_status tutti_call_record_log(tutti_call_record *r, const char *figures, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    tutti_figures f;
    json_t *o;

    TUTTI_TRY(tutti_record_logged(figures, &o, err));
    if (r != NULL && r->t.rank == 0) {
        tutti_lock(r->lock);
        f = figures_of(r);
        if (r->logged == NULL)
            r->logged = json_object();
        json_object_update(r->logged, o);
        status = tutti_record_trace_stopped(
            &r->t,
            tutti_record_put(r->t.rows,
                             tutti_record_logged_line(
                                 &f, false, r->t.ranks == 1 ? (double)f.bytes_sent : (double)NAN, o),
                             err));
        tutti_unlock(r->lock);
    }
    json_decref(o);
    return status;
}

tutti_status tutti_call_record_step(tutti_call_record *r, tutti_error *err)
{
    tutti_status status;
    uint64_t n;

    tutti_lock(r->lock);
    n = ++r->steps;
    status = tutti_record_trace_write(&r->t, err);
    if (status == TUTTI_OK && r->t.rows != NULL &&
        (n % r->report_every == 0 || (n < r->report_every && (n & (n - 1)) == 0)))
        status = write_line(r, err);
    tutti_unlock(r->lock);
    return status;
}

tutti_status tutti_call_record_clock(tutti_call_record *r, tutti_error *err)
{
    tutti_record_clock clock;
    tutti_status status;

    if (!tutti_record_clocks_differ(r->world))
        return TUTTI_OK;
    TUTTI_TRY(tutti_record_clock_compare(&r->measuring, &clock, err));
    tutti_lock(r->lock);
    r->t.clock = clock;
    status = tutti_record_trace_clock(&r->t, r->lost, err);
    tutti_unlock(r->lock);
    return status;
}

/* ---- beginning and end ---- */

static void drop(tutti_call_record *r)
{
    tutti_monitor_close(r->lock);
    json_decref(r->logged);
    tutti_free(r->thread);
    tutti_free(r->sum);
    tutti_free(r);
}

static tutti_status begin(tutti_call_record *r, tutti_group *all, const tutti_record_options *o,
                          tutti_error *err)
{
    json_t *config = NULL;
    tutti_status status = tutti_monitor_open(&r->lock, r->t.rt, err);

    r->measuring = *all;
    r->thread = tutti_alloc(THREADS, sizeof *r->thread);
    r->sum = tutti_alloc(SUMS, sizeof *r->sum);
    if (status == TUTTI_OK && (r->thread == NULL || r->sum == NULL))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a record of calls");
    if (status == TUTTI_OK)
        status = tutti_record_facts(o->facts, &config, err);
    json_object_set_new(config, "transport", json_string(tutti_world_transport(r->world)));
    json_object_set_new(config, "n", json_integer(r->t.ranks));
    json_object_set_new(config, "servers", json_integer(0));
    TUTTI_TRY(tutti_record_trace_open(&r->t, all, o, config, status, err));
    tutti_world_sent(r->world, -1, &r->bytes_before, &r->messages_before);
    r->begin_ns = tutti_now_ns(r->t.rt);
    return TUTTI_OK;
}

tutti_status tutti_call_record_open(tutti_call_record **out, tutti_world *world,
                                    const tutti_record_options *options, tutti_error *err)
{
    const int size = tutti_world_size(world);
    const bool wanted = options->folder != NULL && options->folder[0] != 0;
    tutti_group all = tutti_group_of(world, NULL, size, tutti_port_of("record of calls", 0, 0));
    tutti_error none = { .rank = -1 };
    tutti_call_record *r;
    char text[TUTTI_RECORD_PATH];
    tutti_status status;

    *out = NULL;
    err = err != NULL ? err : &none;
    all.uncounted = true;
    snprintf(text, sizeof text, "trace=%.2000s\n", wanted ? options->folder : "");
    if (size > 1)
        TUTTI_TRY(tutti_compare_text(&all, text, err));
    if (!wanted)
        return TUTTI_OK;
    r = tutti_alloc(1, sizeof *r);
    if (r == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a record of calls");
    r->world = world;
    r->report_every = options->report_every > 0 ? options->report_every : 50;
    r->t = (tutti_record_trace){ .rt = tutti_world_runtime(world),
                                 .rank = tutti_world_rank(world),
                                 .workers = size,
                                 .ranks = size };
    status = begin(r, &all, options, err);
    if (status == TUTTI_OK) {
        *out = r;
        return TUTTI_OK;
    }
    tutti_record_trace_leave_nothing(&r->t);
    tutti_free(r->t.text);
    drop(r);
    return status;
}

static json_t *sums(const tutti_call_record *r)
{
    json_t *array = json_array();

    for (int i = 0; i < r->n_sums; i++) {
        const sum *s = &r->sum[i];
        json_array_append_new(
            array, json_pack("{s:s, s:s, s:s, s:I, s:I, s:f, s:f}", "group", s->group,
                             "call", s->name, "codec", s->codec, "calls", (json_int_t)s->calls,
                             "bytes", (json_int_t)s->bytes, "seconds", (double)s->made_ns * 1e-9,
                             "waited_seconds", (double)s->waited_ns * 1e-9));
    }
    return array;
}

static tutti_status end(tutti_call_record *r, bool ended, tutti_error *err)
{
    const tutti_figures f = figures_of(r);

    if (r->t.file == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_record_trace_clock(&r->t, r->lost, err));
    TUTTI_TRY(tutti_record_trace_write(&r->t, err));
    if (ended && r->t.rows != NULL && r->steps > r->reported)
        TUTTI_TRY(write_line(r, err));
    if (!ended)
        return TUTTI_OK;
    return tutti_record_write_end(
        &r->t, &(tutti_record_end){ .figures = &f,
                                      .events = json_array(),
                                      .calls = sums(r),
                                      .logged = r->logged },
        err);
}

tutti_status tutti_call_record_close(tutti_call_record *r, bool ended, tutti_error *err)
{
    tutti_status status;

    if (r == NULL)
        return TUTTI_OK;
    status = tutti_record_trace_close(&r->t, end(r, ended, err), ended, err);
    drop(r);
    return status;
}
