/* Goal: prague.md's invariants 1, 2, 4, 5, 6, 10 on ranks that are real threads, whatever the
   schedule was: one worker, groups of all, the sum, exact bytes, the log of groups. The
   generator alone is
   groups_test.c's; schedules in their hundreds, losses and resuming are tests/explore's. */
#include "trial.h"

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = { "prague", "prague(generator=static,overlap=on)",
                                           "prague(generator=random,sync_every=3)" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
        trial a = trial_of(methods[i], "adamw(lr=0.01)", 7), b = trial_of("single", "adamw(lr=0.01)", 7);
        trial_run(&a, 1);
        trial_run(&b, 1);
        assert_true(trial_same(&a, a.x[0][7], b.x[0][7]));
        assert_int_equal(a.figures[0].bytes_sent + a.figures[0].messages_sent, 0);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* Invariant 1: a group of all after every step is synchronous training: local-sgd with period 1
   to the bit, and ddp except for the order of sums. */
static void groups_of_all_are_synchronous_training(void **state)
{
    static const char *const generators[] = { "smart", "random", "static" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(generators); k++)
        for (int n = 2; n <= 5; n++)
            for (int every = 1; every <= 2; every++) {
                char method[100], local[60];
                trial a, b, c;
                snprintf(method, sizeof method, "prague(generator=%s,group_size=%d,sync_every=%d)", generators[k], n,
                         every);
                snprintf(local, sizeof local, "local-sgd(period=%d)", every);
                a = trial_of(method, "sgd(lr=0.05)", 8);
                b = trial_of(local, "sgd(lr=0.05)", 8);
                c = trial_of("ddp", "sgd(lr=0.05)", 8);
                trial_run(&a, n);
                trial_run(&b, n);
                trial_run(&c, n);
                for (int s = 0; s + 1 < 8; s++) /* x has what step s + 1 was begun at */
                    for (int r = 0; r < n; r++)
                        assert_true((s + 1) % every != 0 || trial_same(&a, a.x[r][s + 1], b.x[r][s]));
                assert_true(trial_apart(&a, a.x[0][8], b.x[0][8]) < 1e-6); /* a mean of equal models */
                assert_true(every > 1 || trial_apart(&a, a.x[0][8], c.x[0][8]) < 1e-5);
                trial_drop(&a);
                trial_drop(&b);
                trial_drop(&c);
            }
}

/* ---- invariant 2: a P-Reduce is a projection ---- */

/* In its first step a worker moves elements of its own by 1; then nothing but P-Reduces moves
   any. */
static float own_elements(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    return step == 0 && i % TRIAL_RANKS == (size_t)rank ? -1 : 0;
}

/* What the first P-Reduces, of disjoint groups, made of the models: X F, where X has a 1 for each
   worker. */
static void check_projection(const trial *t, int n)
{
    double f[TRIAL_RANKS][TRIAL_RANKS] = { { 0 } }, trace = 0;

    for (int r = 0; r < n; r++) {
        for (size_t j = 0; j < (size_t)n; j++)
            f[r][j] = (double)t->x[r][1][j] - (double)trial_initial_value(j);
        for (size_t i = 0; i < trial_size(t); i++)
            assert_true(fabs((double)t->x[r][1][i] - (double)trial_initial_value(i) - f[r][i % TRIAL_RANKS]) < 1e-6);
        trace += f[r][r];
    }
    assert_true(trace < n - 0.5); /* not the identity */
    for (int r = 0; r < n; r++) {
        double row = 0, column = 0;
        for (int j = 0; j < n; j++) {
            double square = 0;
            row += f[r][j];
            column += f[j][r];
            for (int k = 0; k < n; k++)
                square += f[r][k] * f[k][j];
            assert_true(f[r][j] > -1e-6 && fabs(f[r][j] - f[j][r]) < 1e-6 && fabs(square - f[r][j]) < 2e-6);
        }
        assert_true(fabs(row - 1) < 2e-6 && fabs(column - 1) < 2e-6);
    }
}

static void a_partial_reduce_is_symmetric_doubly_stochastic_and_a_projection(void **state)
{
    static const char *const methods[] = {
        "prague(group_size=2,overlap=off)", "prague(group_size=3,overlap=off)",
        "prague(generator=static,group_size=2)", "prague(generator=static,group_size=3)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int n = 4; n <= TRIAL_RANKS; n++) {
            trial t = trial_of(methods[k], "sgd(lr=1)", 3);
            t.gradient = own_elements;
            trial_run(&t, n);
            check_projection(&t, n);
            trial_drop(&t);
        }
}

/* The same group again and again: equal models stay equal. */
static void a_partial_reduce_of_equal_models_changes_nothing(void **state)
{
    static const char *const generators[] = { "smart", "random", "static" };
    enum { STEPS = 6 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(generators); k++)
        for (int n = 2; n <= TRIAL_RANKS; n++) {
            char method[80];
            trial t;
            snprintf(method, sizeof method, "prague(generator=%s,group_size=%d)", generators[k], n);
            t = trial_of(method, "sgd(lr=1)", STEPS);
            t.gradient = own_elements;
            trial_run(&t, n);
            for (int r = 0; r < n; r++)
                for (int s = 1; s < STEPS; s++) { /* to the bit, where 1/n is exact */
                    assert_true((n & (n - 1)) != 0 || trial_same(&t, t.x[r][s], t.x[0][1]));
                    assert_true(trial_apart(&t, t.x[r][s], t.x[0][1]) < 1e-6);
                }
            trial_drop(&t);
        }
}

/* ---- the log ---- */

/* COUNT is the number of elements. Members' parts of them, in lines of 16, are equal in groups of
   up to 6. */
enum { LOG = 4096, COUNT = 960 };
typedef struct line { long long id, begin_ns, end_ns; int by, member[TRIAL_RANKS], n; } line;
typedef struct diary {
    line line[TRIAL_RANKS][LOG];
    int n[TRIAL_RANKS];
    int steps[TRIAL_RANKS];
    const char *method;
    size_t count;
    uint64_t bytes[TRIAL_RANKS], end_bytes[TRIAL_RANKS];
    double sum[TRIAL_RANKS];
    int gradients;
    bool slow;
} diary;

static void read_line(const char *text, line *l)
{
    const char *at;
    char *end;

    l->id = strtoll(text, &end, 10);
    l->by = (int)strtol(end + 4, &end, 10);
    at = end + 2;
    do {
        l->member[l->n++] = (int)strtol(at, &end, 10);
        at = end + 1;
    } while (*end == ',');
    assert_int_equal(sscanf(end, " from %lld to %lld ns", &l->begin_ns, &l->end_ns), 2);
}

static void fill(void *user, int tensor, float *values)
{
    (void)user;
    (void)tensor;
    for (size_t i = 0; i < COUNT; i++)
        values[i] = trial_initial_value(i);
}

static tutti_status log_rank(tutti_world *world, void *arg, tutti_error *err)
{
    diary *d = arg;
    const tutti_param param = { .name = "a", .dims = 1, .dim = { d->count } };
    const int rank = tutti_world_rank(world), n = tutti_world_size(world);
    const tutti_event_record *events;
    tutti_engine *e;
    const tutti_method *m;
    uint64_t before, after, messages;
    bool more = true;
    tutti_status status = tutti_engine_open(&e, world, &param, 1,
                                            &(tutti_engine_options){ .method = d->method, .optimizer = "sgd(lr=0.0625)",
                                                                     .batch = 2, .initial = fill },
                                            err);

    if (status != TUTTI_OK) {
        tutti_engine_close(e);
        return status;
    }
    m = tutti_engine_method(e);
    tutti_world_sent(world, TUTTI_ANY, &before, &messages);
    while (status == TUTTI_OK &&
           (status = tutti_engine_more(e, (uint64_t)(d->gradients * n), &more, err)) == TUTTI_OK && more) {
        tutti_pass p;
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            for (size_t i = 0; i < d->count; i++)
                m->g[i] = trial_constant(rank, 0, i, 0);
            if (d->slow && rank == 1)
                tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + 2000000);
            TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
            TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
        }
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
        d->steps[rank] += status == TUTTI_OK;
    }
    tutti_world_sent(world, TUTTI_ANY, &after, &messages);
    d->bytes[rank] = after - before;
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_world_sent(world, TUTTI_ANY, &before, &messages);
    d->end_bytes[rank] = before - after;
    for (int k = 0, many = tutti_engine_events(e, &events); status == TUTTI_OK && k < many; k++)
        if (strcmp(events[k].kind, "group") == 0 && d->n[rank] < LOG)
            read_line(events[k].text, &d->line[rank][d->n[rank]++]);
    for (size_t i = 0; i < d->count; i++)
        d->sum[rank] += m->x[i];
    tutti_engine_close(e);
    return status;
}

static void check_diary(const diary *d, int n)
{
    uint64_t due[TRIAL_RANKS] = { 0 };

    for (int r = 0; r < n; r++) {
        assert_true(d->n[r] > 0);
        for (int k = 0; k < d->n[r]; k++) {
            const line *l = &d->line[r][k];
            assert_int_equal(l->by, r);
            assert_true(l->n >= 2);
            assert_true(l->begin_ns <= l->end_ns);
            if (k > 0) { /* no overlap, and in the order of ids at all */
                assert_true(l->begin_ns >= d->line[r][k - 1].end_ns);
                assert_true(l->id > d->line[r][k - 1].id);
            }
            for (int j = 0; j < l->n; j++) { /* each member has made it, with the same members */
                int found = 0;
                for (int i = 0; i < d->n[l->member[j]]; i++) {
                    const line *its = &d->line[l->member[j]][i];
                    found += its->id == l->id && its->n == l->n &&
                             memcmp(its->member, l->member, sizeof l->member) == 0;
                }
                assert_int_equal(found, 1);
            }
            assert_true(l->n <= 6);
            due[r] += 2 * (uint64_t)(l->n - 1) * d->count / (uint64_t)l->n * sizeof(float);
            if (r != 0) { /* the list of members: from worker 0, and back for the verdict */
                due[0] += 4 * (uint64_t)l->n;
                due[r] += 4 * (uint64_t)l->n;
            }
        }
    }
    for (int r = 0; r < n; r++) /* without the mean of the end */
        if (d->bytes[r] != due[r])
            fail_msg("%s on %d: worker %d sent %llu bytes; its groups in the log, with their words, send %llu",
                     d->method, n, r, (unsigned long long)d->bytes[r], (unsigned long long)due[r]);
}

static void logged_groups_are_disjoint_and_traffic_matches_the_formula(void **state)
{
    static const char *const methods[] = {
        "prague(log=on,overlap=off)", "prague(log=on,generator=random)", "prague(log=on,overlap=on)",
        "prague(log=on,group_size=2)",
        "prague(log=on,inter_intra=2)", "prague(log=on,generator=random,group_size=4,sync_every=2)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int n = 4; n <= 8; n += 2) {
            diary *d = calloc(1, sizeof *d);
            tutti_error err = { .rank = -1 };
            assert_non_null(d);
            d->method = methods[k];
            d->count = COUNT;
            d->gradients = 20;
            d->slow = n == 6;
            if (tutti_world_run("shm", n, log_rank, d, &err) != TUTTI_OK)
                fail_msg("%s on %d: %s", methods[k], n, err.text);
            check_diary(d, n);
            for (int r = 0; r < n; r++) { /* no gradient is lost: sum of models */
                double x = 0;
                for (size_t i = 0; i < d->count; i++) {
                    x += (double)trial_initial_value(i);
                    for (int q = 0; q < n; q++)
                        x -= 0.0625 * d->steps[q] * (double)trial_constant(q, 0, i, 0) / n;
                }
                assert_true(fabs(d->sum[r] - x) < 0.05);
            }
            free(d);
        }
}

static tutti_status refused(const char *method, int n, tutti_error *err)
{
    trial t = trial_of(method, "sgd(lr=0.1)", 2);
    const tutti_status status = trial_try(&t, n, err);
    trial_drop(&t);
    return status;
}

static void invalid_options_are_rejected(void **state)
{
    tutti_error err;

    (void)state;
    assert_int_equal(refused("prague(group_size=5)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'prague': group_size is 5 and there are 4 workers; ask for no more than "
                                  "that, or for 0");
    assert_int_equal(refused("prague(group_size=1)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'prague': group_size is 1, and a group of one averages nothing; it must be 2 "
                                  "to the number of workers, or 0 for 2");
    assert_int_equal(refused("prague(inter_intra=yes)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'prague': inter_intra is 'yes'; it must be auto, off, or how many workers of "
                                  "consecutive ranks make a machine: 2 to 3 of these 4");
    assert_int_equal(refused("prague(inter_intra=4)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("prague(inter_intra=1)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("prague(filter_threshold=-1)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("prague(sync_every=0)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("prague(group_timeout=0)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("prague(generator=clever)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("prague(group_size=4,inter_intra=3,filter_threshold=0,sync_every=1000000000)", 4, &err),
                     TUTTI_OK);
}

static void a_schedule_gives_the_same_bits_every_time(void **state)
{
    (void)state;
    for (int n = 2; n <= 7; n++) {
        trial a = trial_of("prague(generator=static,group_size=2)", "sgd(lr=0.1,momentum=0.9)", 9), b = a;
        trial_run(&a, n);
        trial_run(&b, n);
        assert_true(trial_same(&a, a.x[0][9], b.x[0][9]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

static void nonfinite_gradient_is_fatal_or_skipped_by_its_worker(void **state)
{
    (void)state;
    trial_not_finite("prague", "sgd(lr=0.0625)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(groups_of_all_are_synchronous_training),
        cmocka_unit_test(a_partial_reduce_is_symmetric_doubly_stochastic_and_a_projection),
        cmocka_unit_test(a_partial_reduce_of_equal_models_changes_nothing),
        cmocka_unit_test(logged_groups_are_disjoint_and_traffic_matches_the_formula),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(a_schedule_gives_the_same_bits_every_time),
        cmocka_unit_test(nonfinite_gradient_is_fatal_or_skipped_by_its_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
