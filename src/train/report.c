/* report.c: reports while a run trains, to the user and in metrics.jsonl: the training of all
   workers, in each interval of --report-every; each evaluation; the effect of the codec. Index 0
   writes. */
#include <errno.h>
#include <math.h>

#include "gather.h"
#include "say.h"
#include "sums.h"
#include "train_internal.h"

/* The figures that each worker sends for a report. LOSS, SAMPLES, COMPUTE and WAIT count since the
   last report; the others are the latest values. */
enum { LOSS, SAMPLES, BYTES, COMPUTE, WAIT, SKIPPED, SCALE, REPORTED };

tutti_status tutti_train_rows_place(const tutti_run *run, bool goes_on, tutti_record_place *place,
                                    tutti_error *err)
{
    tutti_error why = { .rank = -1 };

    *place = (tutti_record_place){ .rt = run->rt,
                                   .folder = run->config->out,
                                   .port = run->config->metrics_port };
    if (goes_on && tutti_record_port_check(place->port, true, &why) != TUTTI_OK) {
        tutti_train_say(run, 3, "the run continues without metrics-port: %s", why.text);
        place->port = NULL;
    }
    return tutti_record_log_to(run->config->log_to, &place->forms, err);
}

tutti_status tutti_train_report_open(tutti_run *run, tutti_error *err)
{
    tutti_record_place place;

    if (run->reported_ns == 0)
        run->reported_ns = tutti_now_ns(run->rt);
    TUTTI_TRY(tutti_train_sums_open(run, err));
    TUTTI_TRY(tutti_train_gather_open(run, err));
    if (run->all.index != 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_train_rows_place(run, run->epoch.number > 1, &place, err));
    /* another index 0 may be frozen, and write a line when it goes on */
    place.anew = run->epoch.number > 1 && run->led + 1 != run->epoch.number;
    run->led = run->epoch.number;
    return tutti_record_rows_begin(&run->metrics, &place, run->entered_step > 0, run->recorded,
                                   err);
}

static void print_time(double seconds, char *text, size_t bytes)
{
    const long s = seconds < 0 ? 0 : (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, bytes, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, bytes, "%ld:%02ld", s / 60, s % 60);
}

/* Returns [figure `what` of worker 0, of worker 1, ...]; null: a lost worker. */
static json_t *by_worker(const tutti_run *run, const double *figures_of, int what)
{
    json_t *array = json_array();

    for (int r = 0, index = 0; r < run->workers; r++) {
        const bool there = index < run->all.size && tutti_train_rank(run, index) == r;
        json_array_append_new(array,
                              there ? json_real(figures_of[index * REPORTED + what]) : json_null());
        index += there;
    }
    return array;
}

static tutti_status write_report(tutti_run *run, const tutti_figures *f, const double *figures_of,
                                 double seconds, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(run->engine);
    const double left = tutti_train_left(run) * (double)f->wall_ns * 1e-9,
                 epoch = tutti_train_epochs(run);
    double sum[REPORTED] = { 0 }, skipped = 0, scale = figures_of[SCALE], loss, rate;
    tutti_train_fields line = { 0 };
    char time[32];

    for (int i = 0; i < run->all.size * REPORTED; i++)
        sum[i % REPORTED] += figures_of[i];
    sum[BYTES] = tutti_train_told_bytes(run, sum[BYTES]);
    for (int i = 0; i < tutti_train_working(run); i++) { /* workers may differ: report the worst */
        skipped = fmax(skipped, figures_of[i * REPORTED + SKIPPED]);
        scale = fmin(scale, figures_of[i * REPORTED + SCALE]);
    }
    if (run->is_async) { /* since the last line, not the last meeting */
        tutti_received received;
        tutti_engine_received(run->engine, &received);
        sum[LOSS] = received.loss_sum - run->received.loss_sum;
        sum[SAMPLES] = received.samples - run->received.samples;
        run->received = received;
    }
    loss = sum[SAMPLES] > 0 ? sum[LOSS] / sum[SAMPLES] : 0;
    rate = seconds > 0 ? sum[SAMPLES] / seconds : 0;
    print_time(left, time, sizeof time);
    tutti_train_add_field(&line, 6, "epoch %.2f", epoch);
    if (run->variable_batch) /* their number is not known in advance */
        tutti_train_add_field(&line, 0, "step %llu", (unsigned long long)m->step);
    else
        tutti_train_add_field(&line, 0, "step %llu/%llu", (unsigned long long)m->step,
                              (unsigned long long)run->steps);
    tutti_train_add_field(&line, 1, "loss %.4f", loss);
    if (run->test_accuracy >= 0)
        tutti_train_add_field(&line, 4, "accuracy %.2f %%", 100 * run->test_accuracy);
    if (skipped > 0)
        tutti_train_add_field(&line, 3, "%.0f steps skipped", skipped);
    tutti_train_add_field(&line, 5, "%.0f samples/s", rate);
    tutti_train_add_field(&line, 7, "%.1f MB sent", sum[BYTES] * 1e-6);
    tutti_train_add_field(&line, 2, "%s left", time);
    tutti_train_say_fields(run, 1, &line);
    return tutti_record_put(
        run->metrics,
        tutti_record_report(&(tutti_record_line){ .step = m->step,
                                                  .epoch = json_real(epoch),
                                                  .samples = json_integer((json_int_t)f->samples),
                                                  .samples_per_second = json_real(rate),
                                                  .train_loss = loss,
                                                  .lr = tutti_train_sums_lr(run),
                                                  .figures = f,
                                                  .bytes = sum[BYTES],
                                                  .skipped = skipped,
                                                  .scale = scale,
                                                  .compute = by_worker(run, figures_of, COMPUTE),
                                                  .wait = by_worker(run, figures_of, WAIT) }),
        err);
}

tutti_status tutti_train_report_received(tutti_run *run, uint64_t until, tutti_error *err)
{
    const uint64_t every = (uint64_t)run->config->report_every * run->step_gradients;
    tutti_received received;
    tutti_figures f;
    tutti_train_fields line = { 0 };
    double seconds, step, loss, rate;
    tutti_status status;

    tutti_engine_received(run->engine, &received);
    if (run->all.index != 0 || received.gradients / every <= run->received.gradients / every ||
        received.gradients >= until)
        return TUTTI_OK;
    /* without bytes_sent_total, which would need a meeting */
    tutti_train_figures(run, &f);
    seconds = (double)(tutti_now_ns(run->rt) - run->reported_ns) * 1e-9;
    step = (double)received.gradients / (double)run->step_gradients;
    loss = received.samples > run->received.samples ? (received.loss_sum - run->received.loss_sum) /
                                                          (received.samples - run->received.samples)
                                                    : 0;
    rate = seconds > 0 ? (received.samples - run->received.samples) / seconds : 0;
    tutti_train_add_field(&line, 3, "epoch %.2f", step / run->steps_per_epoch);
    tutti_train_add_field(&line, 0, "step %.0f/%llu", step, (unsigned long long)run->steps);
    tutti_train_add_field(&line, 1, "loss %.4f", loss);
    tutti_train_add_field(&line, 2, "%.0f samples/s", rate);
    tutti_train_say_fields(run, 1, &line);
    status = tutti_record_put(
        run->metrics,
        json_pack("{s:I, s:f, s:I, s:o, s:f, s:f, s:f, s:f, s:f, s:f}", "step", (json_int_t)step,
                  "epoch", step / run->steps_per_epoch, "samples",
                  (json_int_t)(run->first_samples + (uint64_t)received.samples), "train_loss",
                  tutti_record_number(loss), "lr", tutti_engine_method(run->engine)->lr,
                  "samples_per_second", rate, "wall_seconds", (double)f.wall_ns * 1e-9,
                  "compute_seconds", (double)f.compute_ns * 1e-9, "exposed_comm_seconds",
                  (double)f.exposed_ns * 1e-9, "other_seconds", (double)f.other_ns * 1e-9),
        err);
    run->received = received;
    run->reported_ns = tutti_now_ns(run->rt);
    return status;
}

static tutti_status gather_report(tutti_run *run, void *figures, tutti_error *err)
{
    double *mine = figures;

    TUTTI_TRY(tutti_train_sums_report(run, &mine[LOSS], &mine[SAMPLES], err));
    return tutti_train_gather(run, mine, REPORTED, err);
}

tutti_status tutti_train_report(tutti_run *run, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(run->engine, TUTTI_DOING_REPORT);
    const double seconds = (double)(tutti_now_ns(run->rt) - run->reported_ns) * 1e-9;
    double mine[REPORTED];
    tutti_figures f;
    tutti_status status;

    tutti_train_figures(run, &f);
    mine[BYTES] = (double)f.bytes_sent;
    mine[COMPUTE] = (double)(f.compute_ns - run->reported.compute_ns) * 1e-9;
    mine[SKIPPED] = (double)f.skipped;
    mine[SCALE] = f.loss_scale;
    mine[WAIT] = (double)(f.exposed_ns - run->reported.exposed_ns) * 1e-9;
    status = tutti_train_meet(run, gather_report, mine, err);
    if (tutti_engine_fault_tolerant(run->engine)) {
        /* a lost worker may have computed less than was counted */
        tutti_figures now;
        tutti_train_figures(run, &now);
        f.samples = now.samples;
    }
    if (status == TUTTI_OK)
        status = tutti_train_written(
            run,
            run->all.index == 0 ? write_report(run, &f, run->figures_of, seconds, err) : TUTTI_OK,
            err);
    tutti_train_sums_reported(run);
    run->reported = f;
    run->reported_ns = tutti_now_ns(run->rt);
    tutti_engine_doing(run->engine, was);
    return status;
}

/* Adds the figures of the worst worker to the line of the final evaluation, if workers have models
   of their own. */
static void add_worst(const tutti_run *run, json_t *line)
{
    if (run->worst.worker < 0)
        return;
    json_object_set_new(line, "worst_worker", json_integer(run->worst.worker));
    json_object_set_new(line, "worst_test_loss", tutti_record_number(run->worst.loss));
    if (run->worst.accuracy >= 0) {
        json_object_set_new(line, "worst_test_accuracy", json_real(run->worst.accuracy));
        tutti_train_say(run, 0,
                        "  the worst of the workers' own models, worker %d's: test accuracy %.2f "
                        "%%  test loss %.4f",
                        run->worst.worker, 100 * run->worst.accuracy, run->worst.loss);
    } else
        tutti_train_say(
            run, 0,
            "  the worst of the workers' own models, worker %d's: test loss above the optimum %.6g",
            run->worst.worker, run->worst.loss);
}

/* Adds the method's figures, so that their course over the run can be seen. All services were
   quiescent for the evaluation. */
static void add_figures(const tutti_run *run, json_t *line)
{
    json_t *figures = run->evaluated.snapshot
                          ? NULL
                          : tutti_record_method_figures(run->engine, run->workers, false);

    if (json_object_size(figures) > 0)
        json_object_set(line, "method_figures", figures);
    json_decref(figures);
}

/* Adds the coordinates of the evaluation on a curve. The time is index 0's, as on all lines; for a
   snapshot it is that of the worker that took its snapshot last. */
static void add_place(const tutti_run *run, json_t *line)
{
    json_object_set_new(line, "samples", json_integer((json_int_t)run->evaluated.samples));
    json_object_set_new(line, "wall_seconds", json_real(run->evaluated.seconds));
    json_object_set_new(line, "bytes_sent_total", json_real(run->evaluated.bytes));
}

static tutti_status write_evaluation(tutti_run *run, tutti_error *err)
{
    const uint64_t step = run->evaluated.step;
    const double epoch = run->evaluated.epoch;
    char auc[32] = "";
    json_t *line;

    if (run->test_accuracy < 0) {
        tutti_train_say(run, 0, "epoch %.2f  step %llu  test loss above the optimum %.6g", epoch,
                        (unsigned long long)step, run->test_loss);
        line = json_pack("{s:I, s:f, s:o, s:n, s:o}", "step", (json_int_t)step, "epoch", epoch,
                         "test_loss", tutti_record_number(run->test_loss), "test_accuracy",
                         "consensus_distance", tutti_record_number(run->consensus_distance));
        add_place(run, line);
        add_worst(run, line);
        add_figures(run, line);
        return tutti_record_put(run->metrics, line, err);
    }
    line = json_pack("{s:I, s:f, s:o, s:f, s:o}", "step", (json_int_t)step,
                     "epoch", epoch, "test_loss", tutti_record_number(run->test_loss),
                     "test_accuracy", run->test_accuracy,
                     "consensus_distance", tutti_record_number(run->consensus_distance));
    if (run->test_auc >= 0) {
        snprintf(auc, sizeof auc, "  AUC %.4f", run->test_auc);
        json_object_set_new(line, "test_auc", json_real(run->test_auc));
    }
    tutti_train_say(run, 0, "epoch %.2f  step %llu  test accuracy %.2f %%  test loss %.4f%s",
                    epoch, (unsigned long long)step, 100 * run->test_accuracy,
                    run->test_loss, auc);
    add_place(run, line);
    add_worst(run, line);
    add_figures(run, line);
    return tutti_record_put(run->metrics, line, err);
}

tutti_status tutti_train_report_evaluation(tutti_run *run, tutti_error *err)
{
    return tutti_train_written(run, run->all.index == 0 ? write_evaluation(run, err) : TUTTI_OK,
                               err);
}

/* ---- the effect of the codec on gradients ---- */

tutti_status tutti_train_report_codec(tutti_run *run, tutti_error *err)
{
    const tutti_codec_record *records = tutti_engine_codec_records(run->engine);
    uint64_t last = run->codec_reported;
    tutti_doing was;
    tutti_status status = TUTTI_OK;

    if (records == NULL)
        return TUTTI_OK;
    was = tutti_engine_doing(run->engine, TUTTI_DOING_REPORT);
    for (int i = 0; i < run->n_params && status == TUTTI_OK; i++) {
        if (records[i].step <= run->codec_reported)
            continue;
        last = records[i].step;
        if (run->all.index == 0)
            status = tutti_record_put(run->metrics, tutti_record_codec(run->engine, i), err);
    }
    run->codec_reported = last;
    tutti_engine_doing(run->engine, was);
    return status;
}
