/* Goal: saddle.md's invariants, on ranks that are threads: both recursions, compared with a
   separate computation in double; the perturbation itself, as the client sees it in each pass;
   the exchange of gradients as a transpose; traffic; what is refused. Resuming is in
   tests/engine/state_test.c, losses in goes_on_test.c, what the second pass does to a network in
   tests/cli/saddle_test.py. */
#include "trial.h"
#include "tutti/method/gossip.h"

enum { D = 1533, PASSES = 8 };

/* ---- the recursions ---- */

typedef struct rule {
    bool n, nesterov;
    const char *graph;
    double rho, momentum, decay;
    int every;
} rule;

static const double eta = 0.125;

/* The gradient of |x - b_r|^2 / 2, at x or as far away as the rule gives. */
static void sam(const rule *p, int r, int step, const double *x, double *g)
{
    double norm = 0;

    for (size_t i = 0; i < D; i++) {
        g[i] = x[i] + (double)trial_quadratic(r, 0, i, 0); /* x - b; at 0 it is -b */
        norm += g[i] * g[i];
    }
    for (size_t i = 0; i < D && step % p->every == 0; i++)
        g[i] += p->rho * g[i] / (sqrt(norm) + 1e-12);
}

typedef struct row { int in[TRIAL_RANKS], n; double w[TRIAL_RANKS], self; } row;

static row row_of(const tutti_graph *g, int step, int r)
{
    int out[TRIAL_RANKS], n_out;
    double w_out[TRIAL_RANKS];
    row w;

    tutti_graph_round(g, (uint64_t)step, r, w.in, w.w, &w.n, out, w_out, &n_out, &w.self);
    return w;
}

static double mixed(const row *w, double x[][D], int r, size_t i)
{
    double sum = w->self * x[r][i];
    for (int a = 0; a < w->n; a++)
        sum += w->w[a] * x[w->in[a]][i];
    return sum;
}

static void expect(trial *t, const rule *p, const tutti_graph *graph)
{
    static double x[TRIAL_RANKS][D], half[TRIAL_RANKS][D], buffer[TRIAL_RANKS][D], g[D], one[D];
    const int n = t->workers;

    memset(buffer, 0, sizeof buffer);
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < D; i++)
            x[r][i] = (double)trial_initial_value(i);
    for (int s = 0; s < t->steps; s++) {
        for (int r = 0; r < n; r++) {
            const row w = row_of(graph, s, r);
            sam(p, r, s, x[r], g);
            for (size_t i = 0; i < D && p->n; i++)
                g[i] *= w.self;
            for (int a = 0; a < w.n && p->n; a++) {
                sam(p, w.in[a], s, x[r], one);
                for (size_t i = 0; i < D; i++)
                    g[i] += w.w[a] * one[i];
            }
            for (size_t i = 0; i < D; i++) {
                const double m = p->momentum * buffer[r][i] + g[i], along = p->nesterov ? g[i] + p->momentum * m : m;
                half[r][i] = (p->n ? mixed(&w, x, r, i) : x[r][i]) - eta * along;
                buffer[r][i] = p->n ? m : buffer[r][i];
            }
        }
        for (int r = 0; r < n; r++) {
            const row w = row_of(graph, s, r);
            for (size_t i = 0; i < D; i++) {
                const double to = p->n ? half[r][i] : mixed(&w, half, r, i);
                if (!p->n)
                    buffer[r][i] = p->decay * buffer[r][i] + (1 - p->decay) * (x[r][i] - to) / eta;
                if (!(fabs(to - (double)t->x[r][s][i]) < 2e-5 * fmax(1, fabs(to))))
                    fail_msg("%s on %d, step %d, worker %d, element %zu: %.9g, expected %.9g", t->method, n, s, r, i,
                             (double)t->x[r][s][i], to);
                x[r][i] = to; /* nothing here reads another's x any more */
            }
        }
    }
}

static void both_recursions_are_followed_on_every_graph(void **state)
{
    static const struct { rule rule; int n; } rows[] = {
        { { .graph = "ring", .rho = 3, .momentum = 0.9, .decay = 0.9, .every = 1, .nesterov = true }, 5 },
        { { .graph = "one-peer-exponential", .rho = 3, .momentum = 0.5, .decay = 0, .every = 2 }, 4 },
        { { .graph = "directed-ring", .rho = 0.5, .momentum = 0.9, .decay = 0.5, .every = 3 }, 3 },
        { { .graph = "star", .rho = 0, .momentum = 0.9, .decay = 0.9, .every = 1 }, 4 },
        { { .graph = "ring", .rho = 3, .momentum = 0, .decay = 0.9, .every = 1 }, 1 },
        { { .n = true, .graph = "ring", .rho = 3, .momentum = 0.9, .every = 1, .nesterov = true }, 5 },
        { { .n = true, .graph = "star", .rho = 3, .momentum = 0.5, .every = 2 }, 4 },
        { { .n = true, .graph = "hypercube", .rho = 3, .momentum = 0, .every = 1 }, 8 },
        { { .n = true, .graph = "random-matching", .rho = 3, .momentum = 0.9, .every = 1 }, 5 },
        { { .n = true, .graph = "complete", .rho = 0, .momentum = 0.9, .every = 1 }, 3 },
        { { .n = true, .graph = "ring", .rho = 3, .momentum = 0.9, .every = 1 }, 2 },
        { { .n = true, .graph = "ring", .rho = 3, .momentum = 0.9, .every = 1 }, 1 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        const rule *p = &rows[k].rule;
        char method[300], optimizer[100], decay[40] = "";
        tutti_graph *graph;
        trial t;
        if (!p->n)
            snprintf(decay, sizeof decay, ",decay=%g", p->decay);
        snprintf(method, sizeof method, "saddle(variant=%s,graph=%s,rho=%g,sam_every=%d%s)", p->n ? "n" : "q", p->graph,
                 p->rho, p->every, decay);
        snprintf(optimizer, sizeof optimizer, "sgd(lr=0.125,momentum=%g%s)", p->momentum,
                 p->nesterov ? ",nesterov=true" : "");
        t = trial_of(method, optimizer, 6);
        trial_run(&t, rows[k].n);
        assert_int_equal(tutti_graph_open(&graph, p->graph, rows[k].n, NULL), TUTTI_OK);
        expect(&t, p, graph);
        tutti_graph_close(graph);
        trial_drop(&t);
    }
}

/* Without the perturbation it is qg-dsgdm, in as many passes. */
static void without_rho_it_is_qg_dsgdm_bit_for_bit(void **state)
{
    static const char *const rest[] = { "", "graph=star,decay=0.5", "graph=exponential,period=3" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rest); k++)
        for (int n = 1; n <= 5; n += 2) {
            char saddle[100], base[100];
            trial a, b;
            snprintf(saddle, sizeof saddle, "saddle(rho=0%s%s)", rest[k][0] != 0 ? "," : "", rest[k]);
            snprintf(base, sizeof base, "qg-dsgdm(%s)", rest[k]);
            a = trial_of(saddle, "sgd(lr=0.1,momentum=0.9,nesterov=true)", 7);
            b = trial_of(base, a.options.optimizer, 7);
            trial_run(&a, n);
            trial_run(&b, n);
            for (int r = 0; r < n; r++)
                for (int s = 0; s <= 7; s++)
                    assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* ---- the perturbation, as the client sees it ---- */

/* Of each rank: x in the passes of the step under way. */
static struct seen { int64_t step; int passes; float x[PASSES][D]; float start[D]; } seen[TRIAL_RANKS];

static void look(int rank, uint64_t step, size_t i, float x)
{
    struct seen *s = &seen[rank];

    if (i == 0) {
        s->passes = s->step == (int64_t)step ? s->passes + 1 : 1;
        s->step = (int64_t)step;
    }
    if (s->passes <= PASSES)
        s->x[s->passes - 1][i] = x;
}

static float looked_at(int rank, uint64_t step, size_t i, float x)
{
    look(rank, step, i, x);
    return trial_constant(rank, step, i, x);
}

static float flat(int rank, uint64_t step, size_t i, float x)
{
    look(rank, step, i, x);
    return 0;
}

/* F = x^T A x / 2, A diagonal. */
static double curvature(size_t i)
{
    return 1.0 / (double)(1 + i % 10);
}

static float bowl(int rank, uint64_t step, size_t i, float x)
{
    (void)rank;
    (void)step;
    return (float)curvature(i) * x;
}

static void perturbation_has_norm_rho_and_is_zero_without_gradient(void **state)
{
    trial t = trial_of("saddle(rho=8)", "sgd(lr=0.125)", 2), flat_one = trial_of("saddle(rho=8)", "sgd(lr=0.125)", 2);
    double norm = 0;

    (void)state;
    memset(seen, 0, sizeof seen);
    t.gradient = looked_at;
    trial_run(&t, 2);
    for (int r = 0; r < 2; r++) {
        double e = 0;
        assert_int_equal(seen[r].passes, 2);
        for (size_t i = 0; i < D; i++) {
            const double moved = (double)seen[r].x[1][i] - (double)seen[r].x[0][i];
            e += moved * moved;
        }
        if (!(fabs(sqrt(e) - 8) < 8e-6))
            fail_msg("worker %d is %.9g away", r, sqrt(e));
    }
    memset(seen, 0, sizeof seen);
    flat_one.gradient = flat;
    trial_run(&flat_one, 2);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(seen[r].passes, 2);
        assert_memory_equal(seen[r].x[0], seen[r].x[1], sizeof seen[r].x[0]);
        for (size_t i = 0; i < D; i++)
            norm += fabs((double)flat_one.x[r][1][i] - (double)trial_initial_value(i));
    }
    assert_true(norm == 0);
    trial_drop(&t);
    trial_drop(&flat_one);
}

/* gtil = A (x + rho A x / |A x|). */
static void one_worker_without_momentum_is_sam_in_closed_form(void **state)
{
    trial t = trial_of("saddle(rho=2)", "sgd(lr=0.125)", 8);
    double x[D];

    (void)state;
    t.gradient = bowl;
    trial_run(&t, 1);
    for (size_t i = 0; i < D; i++)
        x[i] = (double)trial_initial_value(i);
    for (int s = 0; s < 8; s++) {
        double norm = 0;
        for (size_t i = 0; i < D; i++)
            norm += curvature(i) * curvature(i) * x[i] * x[i];
        for (size_t i = 0; i < D; i++) {
            x[i] -= 0.125 * curvature(i) * (x[i] + 2 * curvature(i) * x[i] / (sqrt(norm) + 1e-12));
            assert_true(fabs(x[i] - (double)t.x[0][s][i]) < 4e-6);
        }
    }
    trial_drop(&t);
}

/* ---- sharpness ---- */

/* F_r = sum over pairs of (u v - c_r)^2 / 2. All points with u v = c are minima, flatter where u
   and v are closer to each other. It begins in steep ones. */
enum { PAIRS = 8, VALLEY_RANKS = 4, VALLEY_STEPS = 300 };
static const double valley_rho = 0.25;
typedef struct valley { const char *method; float x[VALLEY_RANKS][2 * PAIRS]; } valley;

static double valley_c(int rank)
{
    return 1 + (rank - (VALLEY_RANKS - 1) / 2.0) / 8;
}

static void valley_begin(void *user, int tensor, float *values)
{
    (void)user;
    (void)tensor;
    for (int i = 0; i < PAIRS; i++) {
        values[2 * i] = 2 + (float)i / 8;
        values[2 * i + 1] = 0.125f;
    }
}

static tutti_status valley_step(tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (int i = 0; i < 2 * PAIRS; i++)
            m->g[i] = m->x[i ^ 1] * (float)((double)m->x[i] * (double)m->x[i ^ 1] - valley_c(m->rank));
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status valley_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "a", .dims = 1, .dim = { 2 * PAIRS } };
    valley *v = arg;
    tutti_engine *e;
    tutti_status status = tutti_engine_open(&e, world, &param, 1,
                                            &(tutti_engine_options){ .method = v->method, .batch = 2,
                                                                     .optimizer = "sgd(lr=0.03,momentum=0.9)",
                                                                     .initial = valley_begin },
                                            err);

    for (int s = 0; s < VALLEY_STEPS && status == TUTTI_OK; s++)
        status = valley_step(e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK)
        memcpy(v->x[tutti_world_rank(world)], tutti_engine_method(e)->x, sizeof v->x[0]);
    tutti_engine_close(e);
    return status;
}

/* The mean F of the workers at x + far * d; its gradient there, unless NULL. */
static double valley_at(const float *x, double far, const double *d, double *gradient)
{
    double sum = 0;

    for (int i = 0; i < PAIRS; i++) {
        const double u = (double)x[2 * i] + far * d[2 * i], v = (double)x[2 * i + 1] + far * d[2 * i + 1];
        double off = 0;
        for (int r = 0; r < VALLEY_RANKS; r++) {
            off += (u * v - valley_c(r)) / VALLEY_RANKS;
            sum += (u * v - valley_c(r)) * (u * v - valley_c(r)) / 2 / VALLEY_RANKS;
        }
        if (gradient != NULL) {
            gradient[2 * i] = off * v;
            gradient[2 * i + 1] = off * u;
        }
    }
    return sum;
}

/* F(x + e) - F(x) of the model at the end: e is the SAM step, or the worst of ten random ones. */
typedef struct sharpness { double loss, sam, random; } sharpness;

static sharpness sharpness_of(const char *method)
{
    static const double nowhere[2 * PAIRS];
    valley v = { .method = method };
    tutti_error err = { .rank = -1 };
    sharpness s = { 0 };
    double e[2 * PAIRS];

    if (tutti_world_run("shm", VALLEY_RANKS, valley_rank, &v, &err) != TUTTI_OK)
        fail_msg("%s: %s", method, err.text);
    s.loss = valley_at(v.x[0], 0, nowhere, e);
    for (int k = 0; k <= 10; k++) { /* 0: along the gradient */
        double norm = 0, more;
        for (int i = 0; i < 2 * PAIRS; i++) {
            e[i] = k > 0 ? tutti_uniform((tutti_rng){ 9, (uint64_t)k, 0 }, (uint64_t)i) - 0.5 : e[i];
            norm += e[i] * e[i];
        }
        more = valley_at(v.x[0], valley_rho / (sqrt(norm) + 1e-12), e, NULL) - s.loss;
        *(k > 0 ? &s.random : &s.sam) = k > 1 ? fmax(s.random, more) : more;
    }
    return s;
}

/* Invariant 10: where both have fitted, the perturbed one's minimum is half as sharp. */
static void at_equal_loss_it_is_less_sharp_than_qg_dsgdm(void **state)
{
    static const char *const methods[] = { "saddle(rho=0.25)", "saddle(rho=0.25,variant=n)" };
    const sharpness base = sharpness_of("qg-dsgdm");

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        const sharpness s = sharpness_of(methods[k]);
        if (!(fabs(s.loss - base.loss) < 0.03 * base.loss && s.sam < 0.75 * base.sam && s.random < 0.75 * base.random))
            fail_msg("%s: loss %g (qg-dsgdm %g), sharpness by a SAM step %g (%g), at random %g (%g)", methods[k],
                     s.loss, base.loss, s.sam, base.sam, s.random, base.random);
    }
}

static void one_worker_without_rho_and_momentum_matches_single(void **state)
{
    static const char *const methods[] = { "saddle(rho=0)", "saddle(variant=n,rho=0)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial a = trial_of(methods[k], "sgd(lr=0.1)", 7), b = trial_of("single", "sgd(lr=0.1)", 7);
        trial_run(&a, 1);
        trial_run(&b, 1);
        for (int s = 0; s <= 7; s++)
            assert_true(trial_same(&a, a.x[0][s], b.x[0][s]));
        assert_int_equal(a.bytes[0][0] + a.figures[0].bytes_sent, 0);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* Gradients that do not depend on x: the model may not show where it was perturbed. */
static void nothing_of_the_perturbation_stays_in_the_model(void **state)
{
    static const char *const methods[][2] = {
        { "saddle(rho=0.7)", "saddle(rho=0)" },
        { "saddle(rho=0.7,decay=0.5,period=2)", "saddle(rho=0,decay=0.5,period=2)" },
        { "saddle(variant=n,rho=0.7)", "saddle(variant=n,rho=0)" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (int n = 1; n <= 4; n++) {
            trial a = trial_of(methods[k][0], "sgd(lr=0.1,momentum=0.9)", 6),
                  b = trial_of(methods[k][1], "sgd(lr=0.1,momentum=0.9)", 6);
            a.gradient = b.gradient = trial_constant;
            a.show = true;
            trial_run(&a, n);
            trial_run(&b, n);
            for (int r = 0; r < n; r++)
                for (int s = 0; s <= 6; s++)
                    assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
            trial_drop(&a);
            trial_drop(&b);
        }
}

static void sam_every_sets_which_steps_have_extra_passes(void **state)
{
    static const struct { const char *method; int passes[2]; } rows[] = {
        { "saddle(sam_every=2)", { 2, 1 } },
        { "saddle(rho=0)", { 1, 1 } },
        { "saddle(variant=n,sam_every=2)", { 6, 3 } },
        { "saddle(variant=n)", { 6, 6 } },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++)
        for (int steps = 1; steps <= 4; steps++) {
            trial t = trial_of(rows[k].method, "sgd(lr=0.1)", steps);
            memset(seen, 0, sizeof seen);
            for (int r = 0; r < TRIAL_RANKS; r++)
                seen[r].step = -1;
            t.gradient = looked_at;
            trial_run(&t, 4);
            for (int r = 0; r < 4; r++)
                assert_int_equal(seen[r].passes, rows[k].passes[(steps - 1) % 2]);
            assert_int_equal(t.figures[0].samples, 4 * 2 * steps);
            trial_drop(&t);
        }
}

/* ---- gradients that go back ---- */

/* F_i(x) = c_i^T x on graphs whose weights are powers of two: G_i = sum_j W_ij c_j, exactly. */
static void returned_gradients_use_the_transposed_weights_bit_for_bit(void **state)
{
    static const struct { const char *graph; int n; } rows[] = { { "complete", 4 }, { "hypercube", 8 }, { "ring", 2 } };

    (void)state;
    for (size_t k = 0; k < 2 * TUTTI_LENGTH(rows); k++) {
        const int n = rows[k / 2].n;
        tutti_graph *graph;
        char method[100];
        trial t;
        snprintf(method, sizeof method, "saddle(variant=n,graph=%s,rho=%g)", rows[k / 2].graph,
                 k % 2 == 0 ? 0 : 0.5);
        t = trial_of(method, "sgd(lr=0.25)", 1);
        t.gradient = trial_constant;
        trial_run(&t, n);
        assert_int_equal(tutti_graph_open(&graph, rows[k / 2].graph, n, NULL), TUTTI_OK);
        for (int r = 0; r < n; r++) {
            const row w = row_of(graph, 0, r);
            for (size_t i = 0; i < D; i++) {
                double sum = w.self * (double)trial_constant(r, 0, i, 0);
                for (int a = 0; a < w.n; a++)
                    sum += w.w[a] * (double)trial_constant(w.in[a], 0, i, 0);
                assert_true((double)t.x[r][0][i] == (double)trial_initial_value(i) - 0.25 * sum);
            }
        }
        tutti_graph_close(graph);
        trial_drop(&t);
    }
}

/* W = J and equal data: G_i is one's own SAM gradient, so four workers are one. */
static void equal_data_on_a_complete_graph_match_one_worker(void **state)
{
    static const char *const methods[] = { "saddle(variant=n,graph=complete,rho=2)", "saddle(graph=complete,rho=2)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial a = trial_of(methods[k], "sgd(lr=0.1,momentum=0.9)", 6),
              b = trial_of(methods[k], "sgd(lr=0.1,momentum=0.9)", 6);
        a.gradient = b.gradient = trial_alike;
        trial_run(&a, 4);
        trial_run(&b, 1);
        for (int s = 0; s < 6; s++)
            for (int r = 0; r < 4; r++)
                assert_true(trial_same(&a, a.x[r][s], b.x[0][s]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* ---- traffic ---- */

static void edge_traffic_is_a_model_plus_optional_gradient(void **state)
{
    static const char *const graphs[] = { "ring", "star", "complete", "hypercube" };

    (void)state;
    for (size_t k = 0; k < 2 * TUTTI_LENGTH(graphs); k++) {
        const bool back = k % 2 == 1;
        const int n = k / 2 == 3 ? 8 : 5, steps = 3;
        tutti_graph *graph;
        char method[100];
        trial t;
        snprintf(method, sizeof method, "saddle(graph=%s,variant=%s)", graphs[k / 2], back ? "n" : "q");
        t = trial_of(method, "sgd(lr=0.1)", steps);
        trial_run(&t, n);
        assert_int_equal(tutti_graph_open(&graph, graphs[k / 2], n, NULL), TUTTI_OK);
        for (int r = 0; r < n; r++) {
            const row w = row_of(graph, 0, r);
            uint64_t each[TRIAL_RANKS] = { 0 };
            for (int a = 0; a < w.n; a++)
                each[w.in[a]] = (uint64_t)steps * (back ? 2 : 1);
            for (int to = 0; to < n; to++)
                if (to != r) /* the mean at the end is an all-reduce: two messages a pair */
                    assert_int_equal(t.messages[r][to], each[to] + 2);
            assert_int_equal(t.figures[r].bytes_sent - t.end_bytes[r],
                             (back ? 2u : 1u) * (uint64_t)steps * (uint64_t)w.n * 4 * D);
        }
        tutti_graph_close(graph);
        trial_drop(&t);
    }
}

/* With a model of three chunks: still one gradient a neighbour; by the mixer's thread or without,
   the same bits. */
static void overlap_changes_no_bit(void **state)
{
    trial a = trial_of("saddle(variant=n)", "sgd(lr=0.1)", 2), b = trial_of("saddle(variant=n)", "sgd(lr=0.1)", 2);

    (void)state;
    a.count[0] = b.count[0] = 2200000;
    b.options.lane = -1;
    trial_run(&a, 3);
    trial_run(&b, 3);
    assert_int_equal(a.messages[0][1], 2 * (3 + 1) + 2);
    for (int r = 0; r < 3; r++)
        for (int s = 0; s <= 2; s++)
            assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
    trial_drop(&a);
    trial_drop(&b);
}

/* ---- codecs ---- */

static void a_codec_that_loses_nothing_changes_rounding_alone(void **state)
{
    static const char *const methods[] = { "saddle", "saddle(variant=n)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial a = trial_of(methods[k], "sgd(lr=0.125,momentum=0.9)", 6),
              b = trial_of(methods[k], "sgd(lr=0.125,momentum=0.9)", 6);
        a.options.codec = "fp32";
        trial_run(&a, 5);
        trial_run(&b, 5);
        for (int r = 0; r < 5; r++)
            for (int s = 0; s < 6; s++)
                assert_true(trial_apart(&a, a.x[r][s], b.x[r][s]) < 1e-5);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* What is lost of cross-gradients is made good: constant ones have moved the models equally far,
   in the end, except for one residual. And bytes of both are those of the codec. */
static void compression_error_of_cross_gradients_stays_bounded(void **state)
{
    static const char *const codecs[] = { "int8", "sign", "topk(ratio=0.2)", "fp16" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(codecs); k++) {
        trial a = trial_of("saddle(variant=n)", "sgd(lr=0.0625)", TRIAL_STEPS), b = a, q = a;
        double lost = 0, moved = 0;
        b.method = "saddle(variant=n)";
        q.method = "saddle";
        a.options.codec = q.options.codec = codecs[k];
        a.gradient = b.gradient = q.gradient = trial_constant;
        trial_run(&a, 3);
        trial_run(&b, 3);
        trial_run(&q, 3);
        for (size_t i = 0; i < D; i++) { /* the mean over workers, which gossip keeps */
            double apart = 0, way = 0;
            for (int r = 0; r < 3; r++) {
                apart += ((double)a.x[r][TRIAL_STEPS - 1][i] - (double)b.x[r][TRIAL_STEPS - 1][i]) / 3;
                way += ((double)b.x[r][TRIAL_STEPS - 1][i] - (double)trial_initial_value(i)) / 3;
            }
            lost += apart * apart;
            moved += way * way;
        }
        if (!(sqrt(lost / moved) < 0.3))
            fail_msg("%s: %g of the way is lost", codecs[k], sqrt(lost / moved));
        if (strncmp(codecs[k], "topk", 4) != 0) /* whose messages may be shorter */
            assert_int_equal(a.figures[0].bytes_sent - a.end_bytes[0], 2 * (q.figures[0].bytes_sent - q.end_bytes[0]));
        trial_drop(&a);
        trial_drop(&b);
        trial_drop(&q);
    }
}

/* ---- what is not finite, and what is refused ---- */

static void nonfinite_gradient_ends_the_run_or_skips_the_step(void **state)
{
    trial q = trial_of("saddle", "sgd(lr=0.1)", 6), n = trial_of("saddle(variant=n)", "sgd(lr=0.1)", 6);
    tutti_error err;

    (void)state;
    trial_ends_when_not_finite(&q);
    trial_run(&q, 4);
    trial_left_out_by_one(&q);
    n.gradient = trial_bad;
    assert_int_equal(trial_try(&n, 4, &err), TUTTI_ERR_NUMBER);
    n.options.nonfinite = TUTTI_NONFINITE_SKIP;
    trial_run(&n, 4);
    for (int r = 0; r < 4; r++) /* worker 1's neighbours on the ring had its gradient in theirs */
        assert_int_equal(n.figures[r].skipped, r != 3);
    for (size_t i = 0; i < D; i++)
        for (int r = 0; r < 4; r++)
            assert_true(isfinite(n.x[r][5][i]) && isfinite(q.x[r][5][i]));
    trial_drop(&q);
    trial_drop(&n);
}

static void invalid_options_are_rejected(void **state)
{
    static const struct { const char *method, *codec; int64_t accumulate; bool once; const char *sentence; } rows[] = {
        { .method = "saddle", .once = true,
          .sentence = "method 'saddle' computes the samples of a step again at other values, but this client computes "
                      "every batch once" },
        { .method = "saddle(rho=0)", .once = true },
        { .method = "saddle(rho=0,variant=n)", .once = true, .sentence = "computes the samples of a step again" },
        { .method = "saddle", .accumulate = 2,
          .sentence = "method 'saddle': accumulate is 2, but the second pass is over all samples of the step at once, "
                      "and those of earlier passes are gone; give a batch 2 times as large and accumulate 1, or "
                      "rho=0" },
        { .method = "saddle(rho=0)", .accumulate = 2 },
        { .method = "saddle(variant=n,graph=directed-ring)",
          .sentence = "method 'saddle': gradients go back to where models came from, but graph 'directed-ring' is not "
                      "symmetric" },
        { .method = "saddle(rho=-1)", .sentence = "rho" },
        { .method = "saddle(sam_every=0)", .sentence = "sam_every" },
        { .method = "saddle(gamma=1.5)", .sentence = "gamma" },
        { .method = "saddle(variant=n,gamma=0.5)", .sentence = "gamma is 0.5, but models travel without a codec" },
        { .method = "saddle(decay=1)", .sentence = "decay" },
        { .method = "saddle(graph=one-peer-exponential)", .codec = "int8", .sentence = "changes from round to round" },
        { .method = "saddle", .codec = "qsgd", .sentence = "may lose as much as it is given" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        trial t = trial_of(rows[k].method, "sgd(lr=0.1)", 2);
        tutti_error err;
        tutti_status status;
        t.options.once = rows[k].once;
        t.options.accumulate = rows[k].accumulate;
        t.options.codec = rows[k].codec;
        status = trial_try(&t, 3, &err);
        if (rows[k].sentence == NULL ? status != TUTTI_OK
                                     : status != TUTTI_ERR_USAGE || strstr(err.text, rows[k].sentence) == NULL)
            fail_msg("%s: %s", rows[k].method, status == TUTTI_OK ? "taken" : err.text);
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_recursions_are_followed_on_every_graph),
        cmocka_unit_test(without_rho_it_is_qg_dsgdm_bit_for_bit),
        cmocka_unit_test(perturbation_has_norm_rho_and_is_zero_without_gradient),
        cmocka_unit_test(one_worker_without_momentum_is_sam_in_closed_form),
        cmocka_unit_test(at_equal_loss_it_is_less_sharp_than_qg_dsgdm),
        cmocka_unit_test(one_worker_without_rho_and_momentum_matches_single),
        cmocka_unit_test(nothing_of_the_perturbation_stays_in_the_model),
        cmocka_unit_test(sam_every_sets_which_steps_have_extra_passes),
        cmocka_unit_test(returned_gradients_use_the_transposed_weights_bit_for_bit),
        cmocka_unit_test(equal_data_on_a_complete_graph_match_one_worker),
        cmocka_unit_test(edge_traffic_is_a_model_plus_optional_gradient),
        cmocka_unit_test(overlap_changes_no_bit),
        cmocka_unit_test(a_codec_that_loses_nothing_changes_rounding_alone),
        cmocka_unit_test(compression_error_of_cross_gradients_stays_bounded),
        cmocka_unit_test(nonfinite_gradient_ends_the_run_or_skips_the_step),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
