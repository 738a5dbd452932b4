/* Goal: demo is DeMo: its exchange is error feedback with decay around the codec dct, whose own
   tests are codec/dct; its update is the sign of what has arrived. Method: the toy client on ranks
   that are threads. The published recursion, computed in double; equalities to the bit with ddp
   under that codec; sign-SGD where everything is sent and nothing remembered. Its bytes:
   method/encoded-traffic. */
#include "encoded.h"
#include "../codec/dct_reference.h"

#define ALL "topk=16384,decay=0"

static void replicas_are_equal(const job *j, int n)
{
    for (int s = 0; s < j->t.steps; s++)
        for (int r = 1; r < n; r++)
            assert_int_equal(j->hash[r][s], j->hash[0][s]);
}

/* ---- DeMo's own recursion, in double ---- */

enum { TRIED = 6, TRIED_WORKERS = 3, TOPK = 4, CHUNK = 16 };

typedef struct recursion {
    size_t cols, topk, cells, apart;
    const float *x, *next;       /* of the tensor before and after the step */
    double *m[TRIED_WORKERS];    /* momenta */
} recursion;

/* The k greatest of n magnitudes; of the others 0. */
static void keep_greatest(size_t n, size_t k, double *q)
{
    double *size = malloc(n * sizeof *size), least;

    for (size_t i = 0; i < n; i++)
        size[i] = fabs(q[i]);
    for (size_t have = 0; have < k; have++)
        for (size_t i = have + 1; i < n; i++)
            if (size[i] > size[have]) {
                const double other = size[i];
                size[i] = size[have], size[have] = other;
            }
    least = k > 0 ? size[k - 1] : INFINITY;
    for (size_t i = 0; i < n; i++)
        q[i] = fabs(q[i]) < least ? 0 : q[i];
    free(size);
}

/* q_r <- the greatest coefficients of m_r; m_r <- m_r - IDCT(q_r). The model moves by IDCT of the
   mean over the workers that have sent one. A cell in which it does not is counted: coefficients
   may be equal but for rounding, and another of them chosen. */
static void step_cell(void *user, const reference_cell *cell)
{
    recursion *of = user;
    const size_t n = cell->h * cell->w, k = n < of->topk ? n : of->topk;
    double *x = calloc(4 * n, sizeof *x), *q = x + n, *sum = q + n, *senders = sum + n;
    bool apart = false;

    for (int r = 0; r < TRIED_WORKERS; r++) {
        double *m = of->m[r] + cell->row * of->cols + cell->col;
        for (size_t i = 0; i < n; i++)
            x[i] = m[i / cell->w * of->cols + i % cell->w];
        reference_transform(cell, 0, x, q);
        keep_greatest(n, k, q);
        reference_transform(cell, 1, q, x);
        for (size_t i = 0; i < n; i++) {
            m[i / cell->w * of->cols + i % cell->w] -= x[i];
            sum[i] += q[i];
            senders[i] += q[i] != 0;
        }
    }
    for (size_t i = 0; i < n; i++)
        sum[i] /= senders[i] > 0 ? senders[i] : 1;
    reference_transform(cell, 1, sum, x);
    for (size_t i = 0; i < n; i++) {
        const size_t at = (cell->row + i / cell->w) * of->cols + cell->col + i % cell->w;
        apart = apart || fabs((double)of->x[at] - (double)of->next[at] - x[i]) > 1e-5;
    }
    of->cells++, of->apart += apart;
    free(x);
}

/* m_r <- b m_r + lr g_r with a rate that is halved after two steps: that the method keeps m / lr
   makes no difference. */
static void momenta_follow_the_recursion_of_demo(void **state)
{
    static double momenta[TRIED_WORKERS][ELEMENTS];
    job *j = job_of("demo(topk=4,chunk=16,decay=0.75,sign=off)", NULL, "sgd(lr=0.125)", TRIED);
    size_t first = 0, cells = 0, apart = 0;
    (void)state;

    memset(momenta, 0, sizeof momenta);
    j->t.options.lr_schedule = "step(every=2,gamma=0.5)";
    run_job(j, TRIED_WORKERS);
    for (int t = 0; t < TOY_TENSORS; first += j->t.count[t++]) {
        const size_t rows = j->t.rows[t] > 0 ? j->t.rows[t] : 1;
        for (int s = 0; s < TRIED; s++) {
            recursion of = { j->t.count[t] / rows, TOPK, 0, 0, j->x[s] + first, j->x[s + 1] + first, { NULL } };
            for (int r = 0; r < TRIED_WORKERS; r++) {
                of.m[r] = momenta[r] + first;
                for (size_t i = 0; i < j->t.count[t]; i++)
                    of.m[r][i] = 0.75 * of.m[r][i] + 0.125 * pow(0.5, s / 2) *
                                                         ((double)j->x[s][first + i] -
                                                          (double)pull_of(r, (int)(first + i), s));
            }
            reference_cells(rows, of.cols, CHUNK, step_cell, &of);
            cells += of.cells, apart += of.apart;
        }
    }
    if (apart > cells / 50)
        fail_msg("%zu of %zu cells have moved otherwise", apart, cells);
    free(j);
}

/* With decay 0 and all coefficients sent nothing remains at a worker: the step is lr times the sign
   of the mean gradient, and lr wd x. A gradient within rounding of 0 is not judged. */
static void all_coefficients_without_memory_are_sign_sgd(void **state)
{
    enum { N = 6 };
    const double lr = 0.0625, wd = 0.5;
    (void)state;

    for (int n = 1; n <= 5; n++) {
        job *j = job_of(n % 2 ? "demo(" ALL ")" : "demo(" ALL ",mean=all)", NULL,
                        "sgd(lr=0.0625,weight_decay=0.5)", N);
        int judged = 0, minus = 0;
        run_job(j, n);
        replicas_are_equal(j, n);
        for (int s = 0; s < N; s++)
            for (int i = 0; i < ELEMENTS; i++) {
                const double x = (double)j->x[s][i];
                double g = 0;
                for (int r = 0; r < n; r++)
                    g += (x - (double)pull_of(r, i, s)) / n;
                if (fabs(g) < 1e-4)
                    continue;
                judged++, minus += g < 0;
                if (fabs((double)j->x[s + 1][i] - (x - lr * ((g < 0 ? -1 : 1) + wd * x))) > 1e-6)
                    fail_msg("%d workers, step %d, element %d: from %g to %g with the gradient %g", n, s, i, x,
                             (double)j->x[s + 1][i], g);
            }
        assert_true(judged > 9 * N * ELEMENTS / 10 && minus > judged / 8 && minus < judged);
        free(j);
    }
}

/* Without signs it is ddp with the codec, to the bit and byte. */
static void without_signs_it_is_ddp_with_its_codec(void **state)
{
    static const struct { const char *method, *codec; } cases[] = {
        { "demo(sign=off)",
          "ef(dct(topk=32,chunk=64,value_dtype=fp32,mean=senders),decay=0.999,lr=inside)" },
        { "demo(sign=off,topk=4,chunk=16,decay=0.9,mean=all,value_dtype=bf16)",
          "ef(dct(topk=4,chunk=16,value_dtype=bf16,mean=all),decay=0.9,lr=inside)" },
        { "demo(sign=off,decay=1,topk=1,chunk=128)",
          "ef(dct(topk=1,chunk=128,mean=senders),lr=inside)" },
    };
    enum { N = 5 };
    (void)state;

    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = 1; n <= 5; n += 2) {
            job *a = job_of(cases[c].method, NULL, "sgd(lr=0.05)", N),
                *b = job_of("ddp", cases[c].codec, "sgd(lr=0.05)", N);
            run_job(a, n);
            run_job(b, n);
            replicas_are_equal(a, n);
            for (int s = 0; s < N; s++) {
                assert_int_equal(a->hash[0][s], b->hash[0][s]);
                assert_int_equal(a->bytes[s], b->bytes[s]);
            }
            free(a);
            free(b);
        }
}

/* In the first step both runs have the same model and the same mean: with sign=on each element
   moves by lr in the direction in which it moves without. */
static void the_update_is_the_sign_of_what_has_arrived(void **state)
{
    enum { N = 1 };
    const float lr = 0.0625f;
    (void)state;

    for (int n = 1; n <= 4; n++) {
        job *with = job_of("demo(topk=4)", NULL, "sgd(lr=0.0625)", N),
            *without = job_of("demo(topk=4,sign=off)", NULL, "sgd(lr=0.0625)", N);
        int moved = 0;
        run_job(with, n);
        run_job(without, n);
        for (int i = 0; i < ELEMENTS; i++) {
            const float x = with->x[0][i], by = x - without->x[1][i];
            assert_true(x == without->x[0][i]);
            if (by != 0) /* else it may be less than a rounding */
                assert_true(with->x[1][i] == x - (by > 0 ? lr : -lr));
            moved += by != 0;
        }
        assert_true(moved > ELEMENTS / 2);
        free(with);
        free(without);
    }
}

/* An element without a gradient, in a cell of its own: all send 0 of it, and it stays as it is. */
static void weights_without_a_gradient_stay(void **state)
{
    job *j = job_of("demo(chunk=1)", NULL, "sgd(lr=0.0625)", 3);
    (void)state;

    j->dead = 20;
    run_job(j, 3);
    assert_true(j->x[3][20] == j->x[0][20]);
    assert_true(j->x[3][21] != j->x[0][21]);
    free(j);
}

/* Two workers with the same gradients are one. */
static void equal_workers_are_one_worker(void **state)
{
    enum { N = 6 };
    job *one = job_of("demo(topk=4,chunk=16,decay=0.9)", NULL, "sgd(lr=0.0625)", N),
        *two = job_of("demo(topk=4,chunk=16,decay=0.9)", NULL, "sgd(lr=0.0625)", N);
    (void)state;

    one->alike = two->alike = true;
    run_job(one, 1);
    run_job(two, 2);
    assert_memory_equal(one->x, two->x, (N + 1) * sizeof one->x[0]);
    assert_int_equal(one->bytes[0], 0);
    free(one);
    free(two);
}

/* ---- refusals ---- */

static tutti_status refused(tutti_world *world, void *arg, tutti_error *err)
{
    toy t = *(toy *)arg;
    tutti_engine *e;
    const tutti_status status = toy_open(&e, world, &t, err);

    tutti_engine_close(e);
    return status;
}

static void options_that_do_not_fit_are_refused(void **state)
{
    static const struct { const char *method, *codec, *optimizer, *collective, *sentence; double clip; } cases[] = {
        { "demo", NULL, "sgd(lr=0.1,momentum=0.9)", NULL, "method 'demo' has a momentum of its own", 0 },
        { "demo", NULL, "adam", NULL, "without momentum, instead of 'adam'", 0 },
        { "demo", "topk", "sgd(lr=0.1)", NULL, "'topk', but method 'demo' brings its own, 'ef(dct(topk=32", 0 },
        { "demo", NULL, "sgd(lr=0.1)", NULL, "clip-norm is 1, but method 'demo' updates along a direction of its own",
          1 },
        { "demo(chunk=129)", NULL, "sgd(lr=0.1)", NULL, "chunk", 0 },
        { "demo(topk=0)", NULL, "sgd(lr=0.1)", NULL, "topk", 0 },
        { "demo(decay=1.1)", NULL, "sgd(lr=0.1)", NULL, "decay", 0 },
        { "demo", NULL, "sgd(lr=0.1)", "alltoall", "codec 'dct' loses again where the owners", 0 },
    };
    (void)state;

    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        job *j = job_of(cases[c].method, cases[c].codec, cases[c].optimizer, 1);
        tutti_error err = { .rank = -1 };
        j->t.options.collective = cases[c].collective;
        j->t.options.clip_norm = cases[c].clip;
        assert_int_equal(tutti_world_run("shm", 2, refused, &j->t, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].sentence) == NULL)
            fail_msg("%s: '%s' instead of '%s'", cases[c].method, err.text, cases[c].sentence);
        free(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(momenta_follow_the_recursion_of_demo),
        cmocka_unit_test(all_coefficients_without_memory_are_sign_sgd),
        cmocka_unit_test(without_signs_it_is_ddp_with_its_codec),
        cmocka_unit_test(the_update_is_the_sign_of_what_has_arrived),
        cmocka_unit_test(weights_without_a_gradient_stay),
        cmocka_unit_test(equal_workers_are_one_worker),
        cmocka_unit_test(options_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
