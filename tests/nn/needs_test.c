/* Goal: of every kind of network and backend a pass reads the values of a unit only from need to
   done of that unit, and its gradients are its own only from need to ready: weights are prepared
   when their unit runs, and nothing is written ahead. So under a method that updates piece by piece
   the first units compute while the values of later ones are still on their way; and a unit's
   values may stand elsewhere each time that they are needed, and nowhere between. Method: there are
   no values outside, and gradients are marked; the bits are those of a pass without hooks. */
#include "kinds.h"

typedef struct guard {
    int count;
    const tutti_nn_param *params;
    float **values, *const *gradients;       /* the pass's */
    float *const *real, *const *taken;       /* what values are; gradients when they were ready */
    bool needed[MOST], spoilt;
} guard;

enum { MARK = 777 };

static void mark(const guard *g, int param)
{
    for (size_t i = 0; i < g->params[param].count; i++)
        g->gradients[param][i] = MARK;
}

static void look(guard *g, int param)
{
    for (size_t i = 0; i < g->params[param].count; i++)
        g->spoilt = g->spoilt || g->gradients[param][i] != (float)MARK;
}

static tutti_status on_need(void *user, int unit, bool backward, tutti_error *err)
{
    guard *g = user;

    (void)err, (void)backward;
    for (int k = 0; k < g->count; k++)
        if (g->params[k].unit == unit) {
            if (g->values[k] == NULL) /* else it is needed for something else, too */
                g->values[k] = malloc(g->params[k].count * sizeof(float));
            memcpy(g->values[k], g->real[k], g->params[k].count * sizeof(float));
            if (!g->needed[k])
                look(g, k); /* it has not been written before */
            g->needed[k] = true;
        }
    return TUTTI_OK;
}

static tutti_status on_done(void *user, int unit, bool backward, tutti_error *err)
{
    guard *g = user;

    (void)err, (void)backward;
    for (int k = 0; k < g->count; k++)
        if (g->params[k].unit == unit) {
            for (size_t i = 0; i < g->params[k].count; i++)
                g->values[k][i] = NAN;
            free(g->values[k]);
            g->values[k] = NULL;
        }
    return TUTTI_OK;
}

static tutti_status on_ready(void *user, int param, tutti_error *err)
{
    guard *g = user;

    (void)err;
    memcpy(g->taken[param], g->gradients[param], g->params[param].count * sizeof(float));
    mark(g, param);
    return TUTTI_OK;
}

static float **memory_for(const tutti_nn_param *params, int count)
{
    float **memory = calloc((size_t)count, sizeof *memory);

    for (int k = 0; k < count; k++)
        memory[k] = calloc(params[k].count, sizeof(float));
    return memory;
}

static void drop_memory(float **memory, int count)
{
    for (int k = 0; k < count; k++)
        free(memory[k]);
    free(memory);
}

/* n: of all kinds one block and several, and none. */
static void try(size_t kind, tutti_dtype precision, int64_t n, bool by_unit)
{
    static tutti_nn_param params[MOST];
    const char *const model = kinds[kind].model;
    samples s = samples_of(&kinds[kind].task);
    tutti_error err = { 0 };
    guard g = { .params = params };
    float **real, **values, **gradients, **taken, **expected;
    tutti_nn *nn;

    if (tutti_nn_params(model, &s.task, params, MOST, &g.count, &err) != TUTTI_OK || g.count > MOST ||
        tutti_nn_open(&nn, model, &s.task,
                      &(tutti_nn_options){ .backend = kinds[kind].backend, .batch = N, .precision = precision,
                                           .by_unit = by_unit },
                      &err) != TUTTI_OK)
        fail_msg("%s: %s", model, err.text);
    real = memory_for(params, g.count), values = calloc((size_t)g.count, sizeof *values);
    gradients = memory_for(params, g.count), taken = memory_for(params, g.count);
    expected = memory_for(params, g.count);
    g.values = values, g.gradients = gradients, g.real = real, g.taken = taken;
    for (int k = 0; k < g.count; k++) {
        tutti_nn_initialise(&params[k], 2 * params[k].unit + (params[k].dims == 1), 5, real[k]);
        mark(&g, k);
    }
    for (int turn = 0; turn < 2; turn++) { /* what the last pass has prepared is of other values now */
        const tutti_nn_hooks hooks = {
            .user = &g, .unit_acquire = on_need, .unit_release = on_done, .grad_ready = on_ready
        };
        double loss, want;
        for (int k = 0; k < g.count; k++) {
            real[k][0] += 0.25f;
            g.needed[k] = false;
        }
        want = pass_over(nn, &s, 0, n, real, expected, NULL);
        loss = pass_over(nn, &s, 0, n, values, gradients, &hooks);
        if (loss != want || g.spoilt)
            fail_msg("%s of %s, %d samples: %s", model, kinds[kind].backend, (int)n,
                     g.spoilt ? "gradients are written before their unit is needed" : "another loss");
        for (int k = 0; k < g.count; k++) {
            if (memcmp(taken[k], expected[k], params[k].count * sizeof(float)) != 0)
                fail_msg("%s of %s, %d samples: the gradient of %s is another", model, kinds[kind].backend, (int)n,
                         params[k].name);
            look(&g, k); /* nor after it was ready */
        }
        assert_false(g.spoilt);
    }
    tutti_nn_close(nn);
    drop_memory(real, g.count), drop_memory(values, g.count), drop_memory(gradients, g.count);
    drop_memory(taken, g.count), drop_memory(expected, g.count);
    samples_free(&s);
}

static void values_and_gradients_are_accessed_only_while_acquired(void **state)
{
    static const int64_t sizes[] = { 20, N, 0 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (size_t i = 0; i < TUTTI_LENGTH(sizes); i++)
            for (int by_unit = 0; by_unit < 2; by_unit++)
                try(k, TUTTI_F32, sizes[i], by_unit == 1);
}

/* Copies of weights in 16 bits are made when their unit runs. */
static void sixteen_bit_weight_copies_are_made_only_while_acquired(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        if (strcmp(kinds[k].backend, "onednn") == 0 && strncmp(kinds[k].model, "quadratic", 9) != 0)
            for (int by_unit = 0; by_unit < 2; by_unit++)
                try(k, TUTTI_BF16, 70, by_unit == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_gradients_are_accessed_only_while_acquired),
        cmocka_unit_test(sixteen_bit_weight_copies_are_made_only_while_acquired),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
