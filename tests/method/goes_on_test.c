/* Goal: what d-psgd computes after a loss, to the bit where the numbers allow it; what the engine
   counts and reports; what a checkpoint of the remaining workers holds. Method: four threads over
   shm. Those that are to be lost end with a failure before a step, and the others begin it when
   they have learned of the loss, so that all know the same. Initial values, gradients and rates
   have few bits, so sums and products with dyadic weights are exact in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "scratch.h"
#include "tutti/tutti.h"
#include "tutti/method/gossip.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) \
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "line %d: not so: %s", __LINE__, #condition); \
    } while (0)
#define GONE "this worker was told to fail"

enum { N = 4, COUNT = 300, STEPS = 4 };

typedef struct scene {
    const char *method, *codec;
    int lost_before;             /* the step before which they go */
    bool lost[N];
    bool stop;                   /* stop_on_loss */
    const char *directory;       /* saved there at the end */
    float x[N][STEPS + 1][COUNT];/* after each step; last: agreed */
    tutti_figures figures[N];
    char events[N][600];
    tutti_status ended[N];
} scene;

static void initial(void *user, int tensor, float *values)
{
    (void)user;
    (void)tensor;
    for (size_t i = 0; i < COUNT; i++)
        values[i] = (float)(i % 64) / 16 - 2;
}

static float gradient(int rank, int step, size_t i)
{
    return (float)((rank * 37 + step * 11 + (int)(i % 29) * 5) % 32) / 8 - 2;
}

static tutti_status one_step(scene *s, tutti_engine *e, int step, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (size_t i = 0; i < COUNT; i++)
            m->g[i] = gradient(m->rank, step, i);
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    if (status != TUTTI_CLOSED)
        return status;
    TUTTI_TRY(tutti_engine_step(e, err));
    memcpy(s->x[m->rank][step], m->x, sizeof s->x[0][0]);
    return TUTTI_OK;
}

static tutti_status train(scene *s, tutti_engine *e, tutti_world *world, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const tutti_event_record *events;

    for (int step = 0; step < STEPS; step++) {
        if (step == s->lost_before) {
            tutti_group all = tutti_group_workers(world, 77);
            TUTTI_TRY(tutti_barrier(&all, err)); /* no worker leaves while another still makes its step */
            if (s->lost[m->rank])
                return tutti_fail(err, TUTTI_ERR_IO, 0, GONE);
            for (int r = 0; r < N; r++)
                while (s->lost[r] && !tutti_world_lost(world, r, NULL, 0) && tutti_world_survives(world))
                    tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + 1000000);
        }
        TUTTI_TRY(one_step(s, e, step, err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    memcpy(s->x[m->rank][STEPS], m->x, sizeof s->x[0][0]);
    tutti_engine_figures(e, &s->figures[m->rank]);
    for (int k = 0, n = tutti_engine_events(e, &events); k < n; k++) {
        const size_t used = strlen(s->events[m->rank]);
        snprintf(s->events[m->rank] + used, sizeof s->events[0] - used, "%s of %d in %u after %d;", events[k].kind,
                 events[k].worker, events[k].epoch, (int)events[k].step);
    }
    for (int r = 0; r < N; r++)
        CHECK(tutti_engine_has(e, r) == !s->lost[r]);
    if (s->directory != NULL) {
        TUTTI_TRY(tutti_engine_save(e, s->directory, "{\"a\":1}", 0, err));
        TUTTI_TRY(tutti_engine_part(e, err));
    }
    return TUTTI_OK;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    scene *s = arg;
    const tutti_param param = { .name = "a", .dims = 1, .dim = { COUNT } };
    const int rank = tutti_world_rank(world);
    tutti_engine *e;

    s->ended[rank] = tutti_engine_open(&e, world, &param, 1,
                                       &(tutti_engine_options){
                                           .method = s->method, .codec = s->codec, .optimizer = "sgd(lr=0.25)",
                                           .batch = 2, .data_samples = 8, .initial = initial, .stop_on_loss = s->stop,
                                       },
                                       err);
    if (s->ended[rank] == TUTTI_OK) {
        s->ended[rank] = train(s, e, world, err);
        tutti_engine_close(e);
    }
    return s->ended[rank];
}

static void play(scene *s)
{
    tutti_error err = { .rank = -1 };
    const tutti_status status = tutti_world_run("shm", N, rank_main, s, &err);

    if (status != TUTTI_OK && strcmp(err.text, GONE) != 0)
        fail_msg("%s: %s", s->method, err.text);
    for (int r = 0; r < N; r++)
        if (!s->stop)
            assert_int_equal(s->ended[r], s->lost[r] ? TUTTI_ERR_IO : TUTTI_OK);
}

/* What becomes of W without the lost ones: their columns go to the diagonal. */
static void weights(const scene *s, const char *graph, int step, double w[N][N])
{
    tutti_graph *g;
    int in[N], out[N], n_in, n_out;
    double w_in[N], w_out[N], self;

    memset(w, 0, N * sizeof *w);
    assert_int_equal(tutti_graph_open(&g, graph, N, NULL), TUTTI_OK);
    for (int i = 0; i < N; i++) {
        tutti_graph_round(g, (uint64_t)step, i, in, w_in, &n_in, out, w_out, &n_out, &self);
        w[i][i] = self;
        for (int a = 0; a < n_in; a++)
            w[i][step >= s->lost_before && s->lost[in[a]] ? i : in[a]] += w_in[a];
    }
    tutti_graph_close(g);
}

/* All steps and the end by the formula, in double; `exact`: to the bit. */
static void check_models(const scene *s, const char *graph, bool atc, bool exact)
{
    double x[N][COUNT], u[N][COUNT], w[N][N];
    int left = 0;

    for (int r = 0; r < N; r++) {
        left += !s->lost[r];
        for (size_t i = 0; i < COUNT; i++)
            x[r][i] = (double)(i % 64) / 16 - 2;
    }
    for (int step = 0; step < STEPS; step++) {
        weights(s, graph, step, w);
        for (int r = 0; r < N; r++)
            for (size_t i = 0; i < COUNT; i++)
                u[r][i] = x[r][i] - (atc ? 0.25 * gradient(r, step, i) : 0);
        for (int r = 0; r < N; r++) {
            double sum = 0;
            for (int j = 0; j < N; j++)
                sum += w[r][j];
            assert_true(fabs(sum - 1) < 1e-12);
            for (size_t i = 0; i < COUNT; i++) {
                double mixed = 0;
                for (int j = 0; j < N; j++)
                    mixed += w[r][j] * u[j][i];
                x[r][i] = mixed - (atc ? 0 : 0.25 * gradient(r, step, i));
                if (s->lost[r] && step >= s->lost_before)
                    continue;
                if (exact)
                    assert_true((double)s->x[r][step][i] == x[r][i]);
                else
                    assert_true(fabs(s->x[r][step][i] - x[r][i]) < 1e-5);
            }
        }
    }
    for (int r = 0; r < N; r++)
        for (size_t i = 0; i < COUNT && !s->lost[r]; i++) {
            double mean = 0;
            for (int j = 0; j < N; j++)
                mean += s->lost[j] ? 0 : x[j][i] / left;
            assert_true(fabs(s->x[r][STEPS][i] - mean) < 1e-5);
            for (int q = 0; q < N; q++)
                assert_true(s->lost[q] || s->x[q][STEPS][i] == s->x[r][STEPS][i]);
        }
}

static scene *scene_of(const char *method, int lost_before, unsigned lost)
{
    scene *s = calloc(1, sizeof *s);

    assert_non_null(s);
    s->method = method;
    s->lost_before = lost_before;
    for (int r = 0; r < N; r++)
        s->lost[r] = lost >> r & 1;
    return s;
}

static void complete_graph_models_after_losses_match_the_formula(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++)
        for (unsigned lost = 0; lost < 15; lost++)
            for (int before = 0; before < 3; before += 2) {
                scene *s =
                    scene_of(order ? "d-psgd(graph=complete,order=atc)" : "d-psgd(graph=complete)", before, lost);
                play(s);
                check_models(s, "complete", order, true);
                free(s);
            }
}

/* noloco with lr, momentum and gamma 1/2, in double. A worker that is lost within a round has no
   weight in it: small models travel when the round ends. */
static void check_slow_models(const scene *s, const char *graph, int period)
{
    double w[N][N];

    for (size_t i = 0; i < COUNT; i++) {
        double x[N], theta[N], v[N] = { 0 }, pulled[N];
        for (int r = 0; r < N; r++)
            x[r] = theta[r] = (double)(i % 64) / 16 - 2;
        for (int step = 0; step < STEPS; step++) {
            for (int r = 0; r < N; r++)
                x[r] -= 0.25 * gradient(r, step, i);
            if ((step + 1) % period == 0) {
                weights(s, graph, step, w);
                for (int r = 0; r < N; r++) {
                    pulled[r] = -0.5 * theta[r];
                    for (int j = 0; j < N; j++)
                        pulled[r] += w[r][j] * 0.5 * x[j]; /* of D and theta: theta + D is x */
                }
                for (int r = 0; r < N; r++) {
                    v[r] = 0.5 * v[r] + pulled[r];
                    theta[r] += v[r];
                }
                memcpy(x, theta, sizeof x);
            }
            for (int r = 0; r < N; r++)
                assert_true((s->lost[r] && step >= s->lost_before) || fabs(s->x[r][step][i] - x[r]) < 1e-5);
        }
    }
}

static void lost_partner_has_no_weight_in_a_round(void **state)
{
    static const struct { const char *method, *graph; int period; } cases[] = {
        { "noloco(period=2,graph=complete,lr=0.5,momentum=0.5,gamma=0.5)", "complete", 2 },
        { "noloco(period=2,graph=ring,lr=0.5,momentum=0.5,gamma=0.5)", "ring", 2 },
        { "noloco(period=1,lr=0.5,momentum=0.5,gamma=0.5)", "random-matching", 1 }, /* step k is round k */
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (unsigned lost = 1; lost < 15; lost += 3)
            for (int before = 1; before < 4; before++) {
                scene *s = scene_of(cases[c].method, before, lost);
                play(s);
                check_slow_models(s, cases[c].graph, cases[c].period);
                for (int r = 0; r < N; r++)
                    for (int q = 0; q < r; q++)
                        assert_true(s->lost[r] || s->lost[q] ||
                                    memcmp(s->x[r][STEPS], s->x[q][STEPS], sizeof s->x[0][0]) == 0);
                free(s);
            }
}

/* Public copies, through a codec that loses nothing: the same models, and a lost worker has no
   weight though its copy is still there. */
static void lost_workers_have_no_weight_with_a_codec(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++)
        for (unsigned lost = 0; lost < 15; lost++) {
            scene *s = scene_of(order ? "d-psgd(graph=complete,order=atc)" : "d-psgd(graph=complete)", 2, lost);
            s->codec = "fp32";
            play(s);
            check_models(s, "complete", order, true);
            free(s);
        }
}

static void weight_of_lost_workers_moves_to_the_diagonal(void **state)
{
    static const char *const graphs[] = { "ring", "exponential", "one-peer", "directed-ring", "star" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(graphs); k++) {
        tutti_graph *g;
        if (tutti_graph_open(&g, graphs[k], N, NULL) != TUTTI_OK)
            continue;
        tutti_graph_close(g);
        for (unsigned lost = 1; lost < 15; lost += 3) {
            char method[80];
            scene *s;
            snprintf(method, sizeof method, "d-psgd(graph=%s)", graphs[k]);
            s = scene_of(method, 1, lost);
            play(s);
            check_models(s, graphs[k], false, false);
            free(s);
        }
    }
}

/* A sender keeps what it would have given to a lost one. With W symmetric that equals the
   receiver's keeping what it would have received, and weights of 1/2 and 1 are exact. */
static void push_sum_sender_keeps_the_share_of_lost_workers(void **state)
{
    (void)state;
    for (unsigned lost = 0; lost < 15; lost++)
        for (int before = 0; before < 3; before += 2) {
            scene *s = scene_of("sgp(graph=complete)", before, lost);
            play(s);
            check_models(s, "complete", true, true);
            free(s);
            s = scene_of("sgp(graph=ring,overlap=1)", before, lost); /* what is in flight, too */
            play(s);
            for (int r = 0; r < N; r++)
                for (size_t i = 0; i < COUNT && !s->lost[r]; i++)
                    assert_true(fabsf(s->x[r][STEPS][i]) < 8 &&
                                s->x[r][STEPS][i] == s->x[ffs((int)(~lost & 15u)) - 1][STEPS][i]);
            free(s);
        }
}

static void loss_is_reported_and_only_computed_samples_are_counted(void **state)
{
    scene *s = scene_of("d-psgd(graph=ring)", 2, 1u << 3);

    (void)state;
    play(s);
    for (int r = 0; r < 3; r++) {
        assert_string_equal(s->events[r], "lost of 3 in 1 after 3;");
        assert_int_equal(s->figures[r].steps, STEPS);
        /* Steps of 8 samples, two of each worker. Nothing was agreed on before the end, so
           nothing is known for sure of the lost worker's samples. */
        assert_int_equal(s->figures[r].samples, 6 * STEPS);
    }
    free(s);
}

static void disconnected_graph_is_reported(void **state)
{
    static const char *const methods[] = { "d-psgd", "hop" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        char method[40];
        scene *s;
        snprintf(method, sizeof method, "%s(graph=star)", methods[k]);
        s = scene_of(method, 1, 1u << 0);
        play(s);
        for (int r = 1; r < N; r++) {
            assert_non_null(strstr(s->events[r], "disconnected of -1"));
            assert_non_null(strstr(s->events[r], "lost of 0 in 1"));
        }
        free(s);
        snprintf(method, sizeof method, "%s(graph=ring)", methods[k]); /* a path is connected */
        s = scene_of(method, 1, 1u << 0);
        play(s);
        for (int r = 1; r < N; r++)
            assert_null(strstr(s->events[r], "disconnected"));
        free(s);
    }
}

static void stop_on_loss_ends_the_other_workers(void **state)
{
    scene *s = scene_of("d-psgd(graph=complete)", 1, 1u << 2);

    (void)state;
    s->stop = true;
    play(s);
    for (int r = 0; r < N; r++)
        assert_int_equal(s->ended[r], r == 2 ? TUTTI_ERR_IO : TUTTI_ERR_PEER);
    free(s);
}

static void checkpoint_after_a_loss_holds_only_the_remaining_workers(void **state)
{
    char directory[SCRATCH_PATH], found[400];
    scene *s = scene_of("d-psgd(graph=ring)", 1, 1u << 1);
    tutti_runtime *rt;
    tutti_checkpoint *c;
    float x[3][COUNT];
    tutti_saved targets[3];

    (void)state;
    scratch_make(directory);
    s->directory = directory;
    play(s);
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_find(rt, directory, found, sizeof found, NULL, 0, NULL), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_open(&c, rt, found, NULL), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_world(c), 3);
    assert_int_equal(tutti_checkpoint_step(c), STEPS);
    assert_non_null(strstr(tutti_checkpoint_facts(c), "members"));
    for (int i = 0; i < 3; i++)
        targets[i] = (tutti_saved){
            .state = "x", .tensor = "a", .keep = TUTTI_OWN_MEAN, .dtype = TUTTI_F32, .owner = i, .count = COUNT,
            .begin = 0, .end = COUNT, .data = x[i],
        };
    assert_int_equal(tutti_checkpoint_read(c, targets, 3, NULL), TUTTI_OK);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(x[i], s->x[i + (i > 0)][STEPS], sizeof x[i]);
    tutti_checkpoint_close(c);
    tutti_runtime_close(rt);
    free(s);
    scratch_remove(directory);
}

/* ---- a rank's own failures in a meeting ---- */

static tutti_status agree_or_fail(tutti_method *m, tutti_error *err)
{
    return m->rank == 1 ? tutti_fail(err, TUTTI_ERR_MEMORY, 0, GONE) : tutti_average(m, m->x, err);
}

static tutti_status failing_main(tutti_world *world, void *arg, tutti_error *err)
{
    scene *s = arg;
    const tutti_param param = { .name = "a", .dims = 1, .dim = { COUNT } };
    const int rank = tutti_world_rank(world);
    tutti_method_ops ops = *tutti_method_find("d-psgd");
    const tutti_method_ops *const methods[] = { &ops, NULL };
    tutti_engine *e;

    ops.final_model = agree_or_fail;
    s->ended[rank] = tutti_engine_open_from(
        &e, world, &param, 1,
        &(tutti_engine_options){ .method = s->method, .batch = 2, .data_samples = 8, .initial = initial }, methods,
        err);
    if (s->ended[rank] == TUTTI_OK) {
        s->ended[rank] = train(s, e, world, err);
        tutti_engine_close(e);
    }
    return s->ended[rank];
}

/* Goal: a worker that fails before it has done its part of a meeting is lost to the others; none
   waits for another for ever. Method: the agreement on the final model, with an allocation
   failure on one worker. */
static void others_finish_when_a_worker_fails_during_final_averaging(void **state)
{
    scene *s = calloc(1, sizeof *s);
    tutti_error err = { .rank = -1 };

    (void)state;
    *s = (scene){ .method = "d-psgd(graph=complete)", .lost_before = STEPS, .lost = { [1] = true } };
    assert_int_equal(tutti_world_run("shm", N, failing_main, s, &err), TUTTI_ERR_MEMORY);
    assert_string_equal(err.text, GONE);
    for (int r = 0; r < N; r++) {
        if (s->ended[r] != (r == 1 ? TUTTI_ERR_MEMORY : TUTTI_OK))
            fail_msg("worker %d ends with %s", r, tutti_status_name(s->ended[r]));
        if (r != 1)
            assert_memory_equal(s->x[r][STEPS], s->x[0][STEPS], sizeof s->x[0][0]);
    }
    assert_non_null(strstr(s->events[0], "lost of 1 in 1 after 4;"));
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complete_graph_models_after_losses_match_the_formula),
        cmocka_unit_test(lost_partner_has_no_weight_in_a_round),
        cmocka_unit_test(lost_workers_have_no_weight_with_a_codec),
        cmocka_unit_test(weight_of_lost_workers_moves_to_the_diagonal),
        cmocka_unit_test(push_sum_sender_keeps_the_share_of_lost_workers),
        cmocka_unit_test(loss_is_reported_and_only_computed_samples_are_counted),
        cmocka_unit_test(disconnected_graph_is_reported),
        cmocka_unit_test(stop_on_loss_ends_the_other_workers),
        cmocka_unit_test(checkpoint_after_a_loss_holds_only_the_remaining_workers),
        cmocka_unit_test(others_finish_when_a_worker_fails_during_final_averaging),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
