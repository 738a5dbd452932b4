/* trace_part.c: this process's part of the trace of a run whose workers come and go.

   Clocks. The run's clock is that of the first member that has measured one. In each epoch all
   clocks are compared with that of index 0; the first index that knows the run's clock says by how
   much index 0's is ahead of it. So the clock of the run outlives the member whose clock it was. */
#include <errno.h>
#include <stdio.h>

#include "trace.h"
#include "trace_part.h"
#include "record/merge.h"
#include "train/say.h"

struct tutti_train_part {
    tutti_record_part *file;  /* NULL: not opened yet, or it could not be written */
    uint64_t number;          /* of the run */
    int64_t worker;           /* this process; -1: none */
    int64_t opened;           /* the worker whose part was opened, or cannot be; -1: none */
    bool measured;            /* clock is set */
    tutti_record_clock clock; /* over the run's clock, which is "reference" 0 */
    size_t events;            /* of the epoch's engine: in the file */
    bool inside;              /* the epoch has begun, and is not over in the file */
};

/* Goes on without a part after a failure. */
static void keep(const tutti_run *run, tutti_status status, const tutti_error *why)
{
    tutti_train_part *p = run->part;

    if (status == TUTTI_OK)
        return;
    tutti_train_say_here(run, 3, "note: trace.json lacks what worker %lld does from here on: %s",
                         (long long)p->worker, why->text);
    tutti_record_part_close(p->file, NULL, NULL);
    p->file = NULL;
}

tutti_status tutti_train_part_open(tutti_run *run, tutti_error *err)
{
    if (!run->config->trace)
        return TUTTI_OK;
    run->part = tutti_alloc(1, sizeof *run->part);
    if (run->part == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a worker's part of a trace");
    run->part->worker = run->part->opened = -1;
    return TUTTI_OK;
}

void tutti_train_part_turn(tutti_run *run, uint64_t number, int64_t worker)
{
    if (run->part == NULL)
        return;
    run->part->number = number;
    run->part->worker = worker;
}

size_t tutti_train_part_events(const tutti_run *run)
{
    const tutti_train_part *p = run->part;
    size_t left;

    if (p == NULL || p->opened != p->worker || p->worker < 0)
        return TUTTI_RECORD_EVENTS;
    left = tutti_record_part_left(p->file);
    return left > 0 ? left : 1; /* it counts those that do not fit */
}

tutti_status tutti_train_part_accept(tutti_run *run, bool keeps, tutti_error *err)
{
    const char *const folder = run->config->out;

    if (!keeps || run->config->trace)
        TUTTI_TRY(tutti_record_parts_remove(run->rt, folder, err));
    return run->part != NULL ? tutti_record_parts_begin(run->rt, folder, run->part->number, err)
                             : TUTTI_OK;
}

tutti_status tutti_train_part_clock(tutti_run *run, tutti_error *err)
{
    tutti_train_part *p = run->part;
    tutti_record_clock now;
    int64_t first = p->measured ? run->all.index : run->all.size, zero[2] = { 0 };

    TUTTI_TRY(tutti_record_clock_compare(&run->all, &now, err));
    if (p->measured) { /* index 0's */
        zero[0] = p->clock.ahead_ns - now.ahead_ns;
        zero[1] = p->clock.within_ns + now.within_ns;
    }
    TUTTI_TRY(tutti_allreduce(&run->all, TUTTI_MIN, tutti_host(&first, 1, TUTTI_I64), err));
    if (first < run->all.size)
        TUTTI_TRY(tutti_broadcast(&run->all, (int)first, tutti_host(zero, 2, TUTTI_I64), err));
    if (first == run->all.index) /* its own is as it was */
        zero[1] = p->clock.within_ns - now.within_ns;
    p->clock = (tutti_record_clock){ .at_ns = now.at_ns,
                                     .ahead_ns = now.ahead_ns + zero[0],
                                     .within_ns = now.within_ns + zero[1] };
    p->measured = true;
    return TUTTI_OK;
}

/* Opens the part of the worker that this process is now. One that was taken for lost comes back as
   another worker. */
static tutti_status open_file(tutti_run *run, tutti_error *err)
{
    tutti_train_part *p = run->part;
    tutti_record_part *const earlier = p->file;

    p->opened = p->worker;
    p->file = NULL;
    TUTTI_TRY(tutti_record_part_close(earlier, NULL, err));
    return tutti_record_part_open(&p->file,
                                  &(tutti_record_member){ .rt = run->rt,
                                                          .folder = run->config->out,
                                                          .run = p->number,
                                                          .worker = (int)p->worker,
                                                          .most = TUTTI_RECORD_EVENTS,
                                                          .most_workers = run->config->most },
                                  err);
}

void tutti_train_part_begin(tutti_run *run)
{
    tutti_train_part *p = run->part;
    tutti_error why = { .rank = -1 };
    tutti_status status = TUTTI_OK;

    if (p == NULL || p->worker < 0)
        return;
    if (p->opened != p->worker)
        status = open_file(run, &why);
    p->events = 0;
    p->inside = true;
    if (status == TUTTI_OK && p->file != NULL)
        status = tutti_record_part_clock(p->file, &p->clock, &why);
    if (status == TUTTI_OK && p->file != NULL)
        status =
            tutti_record_part_in(p->file, run->epoch.number, run->entered_step, run->workers, &why);
    keep(run, status, &why);
}

static tutti_status add_events(tutti_run *run, tutti_error *err)
{
    tutti_train_part *p = run->part;
    const tutti_trace_event *events;
    const size_t n = tutti_engine_trace(run->engine, &events);

    for (; p->events < n; p->events++) {
        const tutti_trace_event *e = &events[p->events];
        const char *tensor =
            e->index >= 0 && e->index < run->n_params ? run->params[e->index].name : NULL;
        TUTTI_TRY(tutti_record_part_add(p->file, tensor, e, err));
    }
    return TUTTI_OK;
}

void tutti_train_part_step(tutti_run *run)
{
    tutti_error why = { .rank = -1 };
    tutti_status status;

    if (run->part == NULL || run->part->file == NULL || !run->part->inside)
        return;
    status = add_events(run, &why);
    if (status == TUTTI_OK)
        status = tutti_record_part_write(run->part->file, false, &why);
    keep(run, status, &why);
}

/* ended: the run has. */
static void over(tutti_run *run, bool ended)
{
    tutti_train_part *p = run->part;
    tutti_error why = { .rank = -1 };
    tutti_status status;

    if (p->file == NULL || !p->inside)
        return;
    p->inside = false;
    status = add_events(run, &why);
    if (status == TUTTI_OK && ended)
        status = tutti_record_part_clock(p->file, &p->clock, &why);
    if (status == TUTTI_OK)
        status = tutti_record_part_over(p->file, ended, tutti_engine_trace_lost(run->engine), &why);
    keep(run, status, &why);
}

tutti_status tutti_train_part_gather(tutti_run *run, tutti_error *err)
{
    TUTTI_TRY(tutti_train_part_clock(run, err));
    over(run, true);
    return tutti_barrier(&run->all, err); /* index 0 reads what all have written */
}

void tutti_train_part_merge(tutti_run *run)
{
    const char *const folder = run->config->out;
    tutti_error why = { .rank = -1 };
    uint64_t lost = 0;
    int parts = 0;

    if (run->part == NULL)
        return;
    if (tutti_record_merge_members(run->rt, folder, &parts, &lost, &why) != TUTTI_OK)
        tutti_train_say_here(run, 3,
                             "note: there is no trace.json yet: %s; tutti report %.300s makes it",
                             why.text, folder);
    else if (parts == 0)
        tutti_train_say_here(
            run, 3,
            "note: this worker has none of the parts of trace.json: tutti report, with the run's "
            "folder on the host where the run began, makes it");
    else if (lost > 0)
        tutti_train_say_here(
            run, 3,
            "note: trace.json lacks %llu events, since that of a run has an upper limit; "
            "--trace-steps A:B traces fewer steps",
            (unsigned long long)lost);
}

void tutti_train_part_over(tutti_run *run)
{
    if (run->part != NULL)
        over(run, false);
}

void tutti_train_part_close(tutti_run *run, const char *gone)
{
    if (run->part == NULL)
        return;
    tutti_record_part_close(run->part->file, gone, NULL);
    tutti_free(run->part);
    run->part = NULL;
}
