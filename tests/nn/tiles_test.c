/* Goal: a linear layer in tiles is the layer. Method: gpt in tiles against gpt whole, of the same
   values split by rows: losses and gradients to rounding, in float32 and bf16, written and added,
   with segments; names and units of the tiles. That the values of a tile are touched only while
   they are needed is nn/needs, and that the formulas are kept nn/sequence. */
#include "subject.h"
#include <math.h>

/* "b.0.f1.2.weight" is of "b.0.f1.weight"; others are of themselves. */
static int whole_of(const subject *whole, const char *name)
{
    char of[64];
    const char *dot = strrchr(name, '.'), *number = dot;

    while (number > name && number[-1] >= '0' && number[-1] <= '9')
        number--;
    snprintf(of, sizeof of, "%s", name);
    if (strncmp(name, "b.", 2) == 0 && number < dot && number[-1] == '.')
        snprintf(of, sizeof of, "%.*s%s", (int)(number - 1 - name), name, dot);
    for (int k = 0; k < whole->count; k++)
        if (strcmp(whole->params[k].name, of) == 0)
            return k;
    fail_msg("'%s' is of no '%s'", name, of);
    return -1;
}

/* Parameter k of the tiled one is n values of `whole_of` from *first on. */
static void places(const subject *whole, const subject *tiled, int of[ROOM], size_t first[ROOM])
{
    size_t used[ROOM] = { 0 };

    for (int unit = 0; unit <= tiled->params[0].unit; unit++)
        for (int k = 0; k < tiled->count; k++)
            if (tiled->params[k].unit == unit) {
                of[k] = whole_of(whole, tiled->params[k].name);
                first[k] = used[of[k]];
                used[of[k]] += tiled->params[k].count;
            }
    for (int k = 0; k < whole->count; k++)
        assert_int_equal(used[k], whole->params[k].count);
}

static void check(const char *options, int tiles, tutti_nn_task task, int64_t samples, tutti_dtype precision)
{
    char model[2][160];
    int of[ROOM];
    size_t first[ROOM];

    snprintf(model[0], sizeof model[0], "gpt(%s)", options);
    snprintf(model[1], sizeof model[1], "gpt(%s,tiles=%d)", options, tiles);
    subject s = subject_of(model[0], task, samples), t = subject_of(model[1], task, samples);
    side a = side_of(&s, model[0], &(tutti_nn_options){ .batch = samples, .precision = precision }),
         b = side_of(&t, model[1], &(tutti_nn_options){ .batch = samples, .precision = precision });
    places(&s, &t, of, first);
    for (int k = 0; k < t.count; k++)
        memcpy(b.values[k], a.values[of[k]] + first[k], t.params[k].count * sizeof(float));
    for (int add = 0; add < 2; add++) {
        run(&s, &a, samples, add == 1, NULL);
        run(&t, &b, samples, add == 1, NULL);
        if (fabs(a.loss - b.loss) > 1e-6 * a.loss)
            fail_msg("%s: losses %.17g and %.17g", model[1], a.loss, b.loss);
        for (int k = 0; k < t.count; k++) {
            const float *want = a.gradients[of[k]] + first[k];
            double apart = 0, length = 0;
            for (size_t i = 0; i < t.params[k].count; i++)
                apart += pow((double)b.gradients[k][i] - (double)want[i], 2), length += pow((double)want[i], 2);
            if (!(sqrt(apart) <= (precision == TUTTI_F32 ? 1e-5 : 2e-2) * sqrt(length) + 1e-9))
                fail_msg("%s: gradient of %s is %g apart of %g", model[1], t.params[k].name, sqrt(apart), sqrt(length));
        }
    }
    side_free(&s, &a);
    side_free(&t, &b);
    subject_free(&s);
    subject_free(&t);
}

static void a_tiled_layer_matches_the_untiled_layer(void **state)
{
    const tutti_nn_task text = { .classes = 19, .context = 50 };

    (void)state;
    check("layers=2,dim=16,heads=2", 4, text, 13, TUTTI_F32);
    check("layers=1,dim=16,heads=2", 16, text, 3, TUTTI_F32);
    check("layers=2,dim=24,heads=2,positions=rotary,norm=rms,tied=on,recompute=on", 5, text, 30, TUTTI_F32);
    check("layers=1,dim=160,heads=4", 2, text, 5, TUTTI_F32);
    check("layers=1,dim=160,heads=4", 7, text, 5, TUTTI_F32);
    check("layers=2,dim=32,heads=2", 3, text, 13, TUTTI_BF16);
    check("layers=2,dim=32,heads=2,recompute=on", 3, text, 13, TUTTI_BF16);
}

static void tile_parameters_have_distinct_names(void **state)
{
    static const char *const names[] = { "b.0.f1.2.weight", "b.0.f1.2.bias", "b.0.f1.1.weight", "b.0.f1.1.bias",
                                         "b.0.f1.0.weight", "b.0.f1.0.bias" };
    static const size_t rows[] = { 10, 10, 11, 11, 11, 11 };
    subject s = subject_of("gpt(layers=1,dim=8,heads=2,tiles=3)", (tutti_nn_task){ .classes = 19, .context = 4 }, 1);
    int k = 0;

    (void)state;
    while (k < s.count && strcmp(s.params[k].name, names[0]) != 0)
        k++;
    assert_in_range(k + 6, 6, s.count);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(s.params[k + i].name, names[i]);
        assert_int_equal(s.params[k + i].rows, rows[i]);
        assert_int_equal(s.params[k + i].unit, s.params[k].unit - i / 2); /* the last is ready first */
    }
    subject_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tiled_layer_matches_the_untiled_layer),
        cmocka_unit_test(tile_parameters_have_distinct_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
