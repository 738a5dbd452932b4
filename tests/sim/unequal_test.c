/* Goal: unequal workers, hosts and links, in virtual time. hetero-ring finds the balance
   that it promises: the time of a pass is given here, so times are known exactly
   (docs/methods/hetero-ring.md). It takes the all-reduce that is faster on the links. After the
   services have quiesced all workers continue together. */
#include <unistd.h>
#include "forked.h"
#include "method/dealt.h"
#include "scratch.h"

static double speed_of[DEALT_RANKS];       /* micro-batches of one sample in a millisecond */
static double overhead_of[DEALT_RANKS];    /* milliseconds a step */
static int changes_at, changed;            /* from that step on the worker `changed` takes twice as long; 0: never */

static double say(int rank, uint64_t step, int64_t pass, int64_t samples)
{
    const double times = changes_at > 0 && step >= (uint64_t)changes_at && rank == changed ? 2 : 1;
    return 1e-3 * (times * (double)samples / speed_of[rank] + (pass == 0 ? overhead_of[rank] : 0));
}

static void workers(int n, const double *speed, const double *overhead)
{
    for (int r = 0; r < n; r++) {
        speed_of[r] = speed[r];
        overhead_of[r] = overhead != NULL ? overhead[r] : 0;
    }
    changes_at = 0;
}

typedef struct sim_call { dealt *d; int n; const char *spec; } sim_call;

static tutti_status in_child(void *arg, tutti_error *err)
{
    const sim_call *c = arg;
    return tutti_world_run(c->spec, c->n, dealt_main, c->d, err);
}

static void run_on(const char *spec, dealt *d, int n)
{
    tutti_error err;
    sim_call c = { d, n, spec };

    d->seconds = say;
    if (forked(in_child, &c, &err) != TUTTI_OK)
        fail_msg("%s on %d: %s", d->method, n, err.text);
}

static void run(dealt *d, int n)
{
    run_on("sim", d, n);
}

/* A platform of hosts in two islands of `island` each, whose links have no latency to speak of, and
   a bridge of `bytes_a_second` each way with `latency`. spec: "sim(platform=PATH)". */
enum { ISLAND_PATH = 64, ISLAND_SPEC = 96 };
static void two_islands(int island, double bytes_a_second, double latency, char path[ISLAND_PATH],
                        char spec[ISLAND_SPEC])
{
    const int n = 2 * island;
    int fd;
    FILE *file;

    snprintf(path, ISLAND_PATH, "/tmp/tutti-islands-XXXXXX");
    fd = mkstemp(path);
    file = fd >= 0 ? fdopen(fd, "w") : NULL;
    assert_non_null(file);
    fprintf(file, "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                  "<platform version=\"4.1\"><zone id=\"z\" routing=\"Full\">\n");
    for (int r = 0; r < n; r++)
        fprintf(file, "<host id=\"h%d\" speed=\"100Gf\"/><link id=\"out%d\" bandwidth=\"10GBps\" latency=\"1ns\"/>"
                      "<link id=\"in%d\" bandwidth=\"10GBps\" latency=\"1ns\"/>\n", r, r, r);
    for (int way = 0; way < 2; way++)
        fprintf(file, "<link id=\"bridge%d\" bandwidth=\"%.9gBps\" latency=\"%.9gs\"/>\n", way, bytes_a_second,
                latency);
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++) {
            if (from == to)
                continue;
            fprintf(file, "<route src=\"h%d\" dst=\"h%d\" symmetrical=\"NO\"><link_ctn id=\"out%d\"/>", from, to, from);
            if (from / island != to / island)
                fprintf(file, "<link_ctn id=\"bridge%d\"/>", from / island);
            fprintf(file, "<link_ctn id=\"in%d\"/></route>\n", to);
        }
    fprintf(file, "</zone></platform>\n");
    assert_int_equal(fclose(file), 0);
    snprintf(spec, ISLAND_SPEC, "sim(platform=%s)", path);
}

static double ideal_ms(int n, int64_t step_samples)
{
    double speed = 0;
    for (int r = 0; r < n; r++)
        speed += speed_of[r] / (r == changed && changes_at > 0 ? 2 : 1);
    return (double)step_samples / speed;
}

static double slowest_ms(const dealt *d, int n, int step)
{
    int64_t most = 0;
    for (int r = 0; r < n; r++)
        most = d->rank[r].compute_ns[step] > most ? d->rank[r].compute_ns[step] : most;
    return (double)most * 1e-6;
}

static void constant_speeds_are_balanced_after_one_update_and_then_nothing_moves(void **state)
{
    static const double speeds[][5] = { { 2, 1 }, { 1, 1.0 / 3 }, { 1, 2, 3 }, { 5, 1, 5, 5 }, { 1, 1, 1, 1, 0.7 } };
    static const int n[] = { 2, 2, 3, 4, 5 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(n); c++) {
        int64_t want[5];
        dealt d = dealt_of("hetero-ring(adapt_every=5)", 8, 1, 30);
        workers(n[c], speeds[c], NULL);
        run(&d, n[c]);
        tutti_share_apportion(8 * n[c], n[c], speeds[c], 1, want);
        for (int s = 0; s < 30; s++)
            for (int r = 0; r < n[c]; r++) {
                assert_int_equal(d.rank[n[c] - 1].passes[s][r], s < 5 ? 8 : want[r]);
                assert_true(
                    fabs((double)d.rank[r].compute_ns[s] * 1e-6 - (s < 5 ? 8 : (double)want[r]) / speeds[c][r]) < 1e-3);
            }
        assert_int_equal(d.rank[0].events, 4); /* the all-reduce; what was found, the decision, that it stays */
        assert_non_null(strstr(d.rank[0].event[3], "; kept"));
        dealt_drop(&d);
    }
}

/* 3 % slower than the others: within the default of 5 % of the mean. */
static void small_differences_move_nothing_unless_the_tolerance_is_smaller(void **state)
{
    dealt wide = dealt_of("hetero-ring(adapt_every=5,micro_batch=1)", 64, 1, 20),
          narrow = dealt_of("hetero-ring(adapt_every=5,micro_batch=1,tolerance=0)", 64, 1, 20);

    (void)state;
    workers(3, (const double[]){ 1, 0.97, 1 }, NULL);
    run(&wide, 3);
    run(&narrow, 3);
    assert_int_equal(wide.rank[0].passes[19][1], 64);
    assert_int_equal(wide.rank[0].events, 2);
    assert_int_equal(narrow.rank[0].passes[19][1], 63);
    dealt_drop(&wide);
    dealt_drop(&narrow);
}

static void events_report_measured_and_predicted_times(void **state)
{
    dealt d = dealt_of("hetero-ring(adapt_every=5)", 8, 1, 12);

    (void)state;
    workers(2, (const double[]){ 2, 1 }, NULL);
    run(&d, 2);
    assert_string_equal(d.rank[0].event[1], "4 allocation: micro-batches by worker: 8 (4 ms, idle 50 %), 8 (8 ms, idle "
                                            "0 %); a step computes for 8 ms, with an equal split 8 ms");
    assert_string_equal(d.rank[0].event[2], "4 allocation: from step 5 on: 11, 5; predicted 5.5 ms");
    assert_string_equal(d.rank[0].event[3], "9 allocation: micro-batches by worker: 11 (5.5 ms, idle 0 %), 5 (5 ms, "
                                            "idle 9 %); a step computes for 5.5 ms, with an equal split 8 ms; kept");
    dealt_drop(&d);
}

/* Equal: 8 units of the slow one; then 11/2 and 5: 1.4545 of the compute part. Whole steps with
   their exchange, after the first window. */
static void speeds_of_two_to_one_make_steps_1_4_times_as_fast_as_an_equal_split(void **state)
{
    dealt equal = dealt_of("hetero-ring(allocation=equal)", 64, 1, 40),
          adaptive = dealt_of("hetero-ring(adapt_every=10)", 64, 1, 40);
    double took[2] = { 0, 0 };

    (void)state;
    workers(2, (const double[]){ 2, 1 }, NULL);
    run(&equal, 2);
    run(&adaptive, 2);
    for (int s = 10; s < 40; s++) {
        took[0] += (double)equal.rank[0].step_ns[s];
        took[1] += (double)adaptive.rank[0].step_ns[s];
    }
    assert_true(took[0] / took[1] >= 1.4 && took[0] / took[1] <= 1.5);
    assert_true(dealt_apart(&equal, &adaptive) < 1e-6);
    dealt_drop(&equal);
    dealt_drop(&adaptive);
}

/* t_i = o_i + a_i / v_i is not proportional to a_i: it takes more than one update, but not more
   than four. 64 micro-batches each, so that rounding is below the tolerance. */
static void overheads_are_balanced_within_four_updates(void **state)
{
    static const double speeds[4] = { 1, 2, 1.5, 0.5 }, overheads[4] = { 10, 0, 20, 5 };
    dealt d = dealt_of("hetero-ring(adapt_every=5,micro_batch=1,tolerance=0.05)", 64, 1, 40);

    (void)state;
    workers(4, speeds, overheads);
    run(&d, 4);
    for (int s = 25; s < 40; s++) {
        double mean = 0;
        for (int r = 0; r < 4; r++)
            mean += (double)d.rank[r].compute_ns[s] / 4;
        for (int r = 0; r < 4; r++)
            assert_true(fabs((double)d.rank[r].compute_ns[s] - mean) <= 0.05 * mean);
        assert_memory_equal(d.rank[0].passes[s], d.rank[0].passes[25], sizeof d.rank[0].passes[s]);
    }
    assert_true(slowest_ms(&d, 4, 3) > 1.5 * slowest_ms(&d, 4, 30));
    dealt_drop(&d);
}

/* In the middle of a window: the first look after it sees a mixture, the second the new speed. */
static void a_worker_that_slows_down_in_mid_run_is_balanced_within_two_windows(void **state)
{
    static const char *const methods[] = {
        "hetero-ring(adapt_every=10,micro_batch=1)", "hetero-ring(adapt_every=epoch,micro_batch=1)",
    };

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        dealt d = dealt_of(methods[c], 32, 1, 60);
        workers(3, (const double[]){ 2, 1, 1 }, NULL);
        d.options.data_samples = 96 * 10; /* an epoch is 10 steps */
        changes_at = 25;
        changed = 0;
        run(&d, 3);
        for (int s = 0; s < 60; s++) {
            int64_t sum = 0;
            for (int r = 0; r < 3; r++)
                sum += d.rank[1].passes[s][r];
            assert_int_equal(sum, 96);
            if (s >= 50)
                assert_true(slowest_ms(&d, 3, s) <= 1.05 * ideal_ms(3, 96));
            if (s >= 40) /* two windows after the one of the change has begun */
                assert_true((double)d.rank[1].step_ns[s] * 1e-6 <= 1.1 * ideal_ms(3, 96));
            if (s >= 10 && s < 25)
                assert_true(slowest_ms(&d, 3, s) <= 1.1 * 96 / 4);
        }
        assert_true(slowest_ms(&d, 3, 27) > 1.5 * 96 / 4); /* the change was felt */
        dealt_drop(&d);
    }
}

/* Due 32 / 3.02 x 0.02 of 32 micro-batches: less than one. With one it takes 50 ms a
   step; without it the others take 11. */
static void very_slow_worker_is_excluded_only_if_requested(void **state)
{
    dealt kept = dealt_of("hetero-ring(adapt_every=5)", 8, 1, 20),
          out = dealt_of("hetero-ring(adapt_every=5,exclude_below=0.1)", 8, 1, 20);
    dealt near = dealt_of("hetero-ring(adapt_every=5,exclude_below=0.6)", 8, 1, 20);

    (void)state;
    workers(4, (const double[]){ 1, 1, 0.02, 1 }, NULL);
    run(&kept, 4);
    run(&out, 4);
    assert_int_equal(kept.rank[0].passes[19][2], 1);
    assert_true(fabs(slowest_ms(&kept, 4, 19) - 50) < 0.01);
    assert_int_equal(out.rank[0].passes[19][2], 0);
    assert_int_equal(out.rank[2].computed[19], 0);
    assert_true(fabs(slowest_ms(&out, 4, 19) - 11) < 0.01);
    assert_non_null(strstr(out.rank[0].event[3],
                           "excluded: worker 2 takes 50 ms for a micro-batch and computes nothing from step 5 on"));
    assert_true(dealt_apart(&kept, &out) < 2e-6);
    workers(4, (const double[]){ 1, 1, 0.5, 1 }, NULL); /* below 0.6 of the mean, but without it steps are longer */
    run(&near, 4);
    assert_true(near.rank[0].passes[19][2] > 0);
    dealt_drop(&kept);
    dealt_drop(&out);
    dealt_drop(&near);
}

/* The all-reduce of 300 floats by up to 16 workers is one message from each to each: here n / 2
   times n / 2 of them cross the bridge each way. The ring has one on the bridge each way at a
   time, 2 (n - 1) in all, of a shard: whole cache lines, so some are longer than others. A
   message's header has 40 bytes. */
static double usual_seconds(int n, double bytes_a_second, double latency)
{
    return latency + 0.25 * n * n * (4.0 * DEALT_SIZE + 40) / bytes_a_second;
}

static double ring_seconds(int n, double slice, double bytes_a_second, double latency)
{
    return 2 * (n - 1) * (latency + (4 * slice + 40) / bytes_a_second);
}

/* Either all-reduce is the faster one on some links, and the run has its bits and its time, and
   reports it: steps are as long as computing, 8 ms, and the faster of the two. */
static void all_workers_use_the_faster_all_reduce(void **state)
{
    static const struct { int n; double bytes_a_second, latency; bool ring; } cases[] = {
        { 4, 1e6, 1e-6, true }, { 8, 1e6, 1e-6, true }, { 4, 1e6, 1e-2, false }, { 8, 1e6, 1e-2, false },
        { 2, 1e6, 1e-6, false }, /* both are the same bytes */
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const int n = cases[c].n;
        const double bytes_a_second = cases[c].bytes_a_second, latency = cases[c].latency;
        const double usual = usual_seconds(n, bytes_a_second, latency);
        const double ring = ring_seconds(n, 16 * ceil(300.0 / 16 / n), bytes_a_second, latency);
        char path[ISLAND_PATH], spec[ISLAND_SPEC];
        dealt best = dealt_of("hetero-ring(allocation=equal)", 8, 1, 10);
        dealt ringed = dealt_of("hetero-ring(allocation=equal,collective=ring)", 8, 1, 10);
        dealt plain = dealt_of("hetero-ring(allocation=equal,collective=auto)", 8, 1, 10);
        dealt *const all[] = { &best, &ringed, &plain };
        const dealt *const faster = cases[c].ring ? &ringed : &plain, *const slower = cases[c].ring ? &plain : &ringed;
        double took[3] = { 0 };

        workers(n, (const double[]){ 1, 1, 1, 1, 1, 1, 1, 1 }, NULL);
        two_islands(n / 2, bytes_a_second, latency, path, spec);
        for (int k = 0; k < 3; k++) {
            all[k]->real = true;
            run_on(spec, all[k], n);
            for (int s = 2; s < 9; s++)
                took[k] += 1e-9 * (double)all[k]->rank[0].step_ns[s] / 7;
        }
        assert_true(dealt_same(&best, faster));
        assert_true(n == 2 || !dealt_same(&best, slower)); /* or nothing here shows which one was taken */
        assert_true(fabs(took[0] - (faster == &ringed ? took[1] : took[2])) < 1e-6 * took[0]);
        if (took[1] - 8e-3 < 0.95 * ring_seconds(n, 300.0 / n, bytes_a_second, latency) || took[1] - 8e-3 > 1.05 * ring)
            fail_msg("%d workers: a ring takes %g s, and at most %g are due", n, took[1] - 8e-3, ring);
        if (fabs(took[2] - 8e-3 - usual) > 0.05 * usual)
            fail_msg("%d workers: the run's all-reduce takes %g s, and %g are due", n, took[2] - 8e-3, usual);
        assert_true((ring < usual / 1.2) == cases[c].ring);
        assert_int_equal(best.rank[0].events, 1);
        if (strstr(best.rank[0].event[0], "0 collective: ") != best.rank[0].event[0] ||
            strstr(best.rank[0].event[0],
                   cases[c].ring ? ": the ring is taken for all" : ": the ring is taken for none") == NULL)
            fail_msg("%d workers: %s", n, best.rank[0].event[0]);
        for (int r = 1; r < n; r++)
            assert_memory_equal(best.rank[0].x, best.rank[r].x, sizeof best.rank[0].x);
        for (int k = 0; k < 3; k++)
            dealt_drop(all[k]);
        assert_int_equal(unlink(path), 0);
    }
}

static dealt saved_run(const char *spec, const char *directory, bool load, int zero)
{
    dealt d = dealt_of("hetero-ring(adapt_every=10,micro_batch=1,exclude_below=0.1)", 32, 1, 60);

    d.options.optimizer = "sgd(lr=0.1,momentum=0.9)";
    d.options.data_samples = 1000;
    d.real = true;
    d.directory = directory;
    d.save_at = 33;
    d.load = load;
    d.zero = zero;
    run_on(spec, &d, 4);
    return d;
}

/* From the checkpoint on: the model, the assigned shares, the events. */
static bool went_on_alike(const dealt *whole, const dealt *part)
{
    const int before = whole->rank[0].events - part->rank[0].events;
    bool same = dealt_same(whole, part) &&
                memcmp(whole->rank[0].passes[33], part->rank[0].passes[33], 27 * sizeof part->rank[0].passes[0]) == 0 &&
                before == 5;

    for (int k = 0; same && k < part->rank[0].events; k++)
        same = strcmp(part->rank[0].event[k], whole->rank[0].event[before + k]) == 0;
    return same;
}

/* Saved in the middle of a window, with a worker excluded. If a speed changes within that
   window, the continuation depends on the window so far; if it changes later, on whether the
   window's figures have been reported before; in either case on the assigned shares, the excluded
   worker's speed, and, where the ring is taken, the figures by which that was decided. So each
   declared state, zeroed after the load, must show in one of the two. */
static void a_resumed_run_ends_with_the_same_bits_and_every_state_matters(void **state)
{
    char directory[SCRATCH_PATH], name[16][64] = { "" };
    char path[ISLAND_PATH], spec[ISLAND_SPEC];
    bool matters[16] = { false };
    int states = 0;

    (void)state;
    two_islands(2, 1e6, 1e-6, path, spec);
    for (int turn = 0; turn < 2; turn++) {
        scratch_make(directory);
        workers(4, (const double[]){ 2, 1, 0.02, 1.5 }, NULL);
        changes_at = turn == 0 ? 36 : 46;
        changed = 0;
        dealt whole = saved_run(spec, directory, false, -1);
        dealt again = saved_run(spec, directory, true, -1);
        assert_int_equal(whole.rank[0].passes[59][2], 0);
        assert_memory_not_equal(whole.rank[0].passes[33], whole.rank[0].passes[59],
                                sizeof whole.rank[0].passes[33]);
        assert_true(again.rank[0].events > 0 && went_on_alike(&whole, &again));
        states = *again.states;
        for (int zero = 0; zero < states; zero++) {
            dealt part = saved_run(spec, directory, true, zero);
            matters[zero] = matters[zero] || !went_on_alike(&whole, &part);
            snprintf(name[zero], sizeof name[zero], "%s", part.zeroed);
            dealt_drop(&part);
        }
        dealt_drop(&whole);
        dealt_drop(&again);
        scratch_remove(directory);
    }
    assert_int_equal(states, 8); /* x, passes, progress, momentum, window, prices, seconds, told */
    for (int k = 0; k < states; k++)
        if (!matters[k])
            fail_msg("'%s' zeroed without a trace", name[k]);
    assert_int_equal(unlink(path), 0);
}

/* ---- service in order of arrival continues after a checkpoint as it would have without ---- */

enum { LEAVERS = 4, PHASES = 3 };
typedef struct leaving { const char *method; int64_t left_ns[PHASES][LEAVERS]; } leaving;

static tutti_status whole_step(tutti_engine *e, tutti_error *err)
{
    tutti_status status;
    tutti_pass p;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        memset(tutti_engine_method(e)->g, 0, tutti_engine_method(e)->n * sizeof(float));
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

/* The order in which workers arrive at a meeting differs from phase to phase, by fractions of a
   nanosecond too. */
static tutti_status leave_main(tutti_world *world, void *arg, tutti_error *err)
{
    leaving *l = arg;
    tutti_runtime *rt = tutti_world_runtime(world);
    const int rank = tutti_world_rank(world);
    tutti_engine *e;
    bool more;

    TUTTI_TRY(tutti_engine_open(
        &e, world, &(tutti_param){ .name = "w", .dims = 1, .dim = { 64 } }, 1,
        &(tutti_engine_options){ .method = l->method, .optimizer = "sgd(lr=0.25)", .batch = 1, .seed = 3 }, err));
    for (int phase = 0; phase < PHASES; phase++) {
        const int late = (rank + phase) % LEAVERS;
        tutti_sleep_until(rt, tutti_now_ns(rt) + late * late * (phase == 1 ? 1234567 : 77));
        TUTTI_TRY(tutti_engine_more(e, (uint64_t)(phase + 1) * 2 * LEAVERS, &more, err));
        for (l->left_ns[phase][rank] = tutti_now_ns(rt); more;) {
            TUTTI_TRY(whole_step(e, err));
            TUTTI_TRY(tutti_engine_more(e, (uint64_t)(phase + 1) * 2 * LEAVERS, &more, err));
        }
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    tutti_engine_close(e);
    return TUTTI_OK;
}

typedef struct leave_call { leaving *l; const char *spec; } leave_call;

static tutti_status leave_in_child(void *arg, tutti_error *err)
{
    const leave_call *c = arg;
    return tutti_world_run(c->spec, LEAVERS, leave_main, c->l, err);
}

static void all_workers_continue_at_the_same_virtual_time(void **state)
{
    static const double latency_us[LEAVERS] = { 13.7, 1013.3, 50.05, 407.9 };
    char path[] = "/tmp/tutti-links-XXXXXX", spec[80];
    leaving *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    tutti_error err;

    (void)state;
    assert_true(l != MAP_FAILED && file != NULL);
    fprintf(file, "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n<platform "
                  "version=\"4.1\"><zone id=\"z\" routing=\"Full\">\n");
    for (int r = 0; r < LEAVERS; r++)
        fprintf(file, "<host id=\"h%d\" speed=\"%dGf\"/>\n", r, 7 + 12 * r);
    for (int r = 0; r < LEAVERS; r++)
        fprintf(file, "<link id=\"l%d\" bandwidth=\"%dMBps\" latency=\"%gus\"/>\n", r, 3 + 11 * r, latency_us[r]);
    for (int r = 0; r < LEAVERS; r++)
        for (int o = 0; o < r; o++)
            fprintf(file, "<route src=\"h%d\" dst=\"h%d\"><link_ctn id=\"l%d\"/><link_ctn id=\"l%d\"/></route>\n", r, o,
                    r, o);
    fprintf(file, "</zone></platform>\n");
    assert_int_equal(fclose(file), 0);
    snprintf(spec, sizeof spec, "sim(platform=%s)", path);
    for (int k = 0; k < 4; k++) {
        l->method = k % 2 == 0 ? "ad-psgd" : "asgd";
        if (forked(leave_in_child, &(leave_call){ l, k < 2 ? "sim" : spec }, &err) != TUTTI_OK)
            fail_msg("%s: %s", l->method, err.text);
        for (int phase = 0; phase < PHASES; phase++)
            for (int r = 1; r < LEAVERS; r++)
                if (l->left_ns[phase][r] != l->left_ns[phase][0])
                    fail_msg("%s on %s links, phase %d: worker %d goes on %lld ns after worker 0", l->method,
                             k < 2 ? "equal" : "unequal", phase, r,
                             (long long)(l->left_ns[phase][r] - l->left_ns[phase][0]));
    }
    munmap(l, sizeof *l);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_speeds_are_balanced_after_one_update_and_then_nothing_moves),
        cmocka_unit_test(small_differences_move_nothing_unless_the_tolerance_is_smaller),
        cmocka_unit_test(events_report_measured_and_predicted_times),
        cmocka_unit_test(speeds_of_two_to_one_make_steps_1_4_times_as_fast_as_an_equal_split),
        cmocka_unit_test(overheads_are_balanced_within_four_updates),
        cmocka_unit_test(a_worker_that_slows_down_in_mid_run_is_balanced_within_two_windows),
        cmocka_unit_test(very_slow_worker_is_excluded_only_if_requested),
        cmocka_unit_test(all_workers_use_the_faster_all_reduce),
        cmocka_unit_test(a_resumed_run_ends_with_the_same_bits_and_every_state_matters),
        cmocka_unit_test(all_workers_continue_at_the_same_virtual_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
