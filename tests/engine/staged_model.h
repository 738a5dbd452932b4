/* staged_model.h: a model that can be partitioned into stages: a chain of units y := tanh(w y +
   b), element by element, over samples that are drawn. Its loss is half the square of the
   distance from a draw. The weights of the first unit may be a table: a micro-batch names some of
   its rows, and the others count as 0 for it. */
#ifndef TUTTI_TESTS_STAGED_MODEL_H
#define TUTTI_TESTS_STAGED_MODEL_H
#include <math.h>
#include <string.h>

#include "tutti/tutti.h"
#include "tutti/method/pipeline.h"

enum { UNITS = 5, WIDTH = 24, SAMPLES_MOST = 64, TABLE_ROWS = 6, TABLE_COLS = WIDTH / TABLE_ROWS };
#define STAGED_VALUES ((size_t)UNITS * 2 * WIDTH)

static const tutti_model_unit staged_units[UNITS] = {
    { .cut = true, .forward = 1e3, .backward = 2e3, .enters = 0, .kept = 4 * WIDTH, .given = 4 * WIDTH },
    { .cut = true, .forward = 1e3, .backward = 2e3, .enters = WIDTH, .kept = 4 * WIDTH, .given = 4 * WIDTH },
    { .cut = true, .forward = 1e3, .backward = 2e3, .enters = WIDTH, .kept = 4 * WIDTH, .given = 4 * WIDTH },
    { .cut = true, .forward = 1e3, .backward = 2e3, .enters = WIDTH, .kept = 4 * WIDTH, .given = 4 * WIDTH },
    { .cut = true, .forward = 1e3, .backward = 2e3, .enters = WIDTH, .kept = 4 * WIDTH, .given = 4 * WIDTH },
};
static const tutti_model_unit staged_uncut[UNITS] = { { .cut = true } };

static inline void staged_initial(void *user, int tensor, float *values)
{
    (void)user;
    for (size_t i = 0; i < WIDTH; i++)
        values[i] = (float)tutti_uniform((tutti_rng){ 7, 1 + (uint64_t)tensor, 0 }, i) - 0.4f;
}

/* Tensors are listed from the last unit to the first: bias, weight. */
static inline size_t staged_place(int unit, bool bias)
{
    return ((size_t)(UNITS - 1 - unit) * 2 + !bias) * WIDTH;
}

static inline void staged_draw(const tutti_share *share, const tutti_pass *p, uint64_t stream,
                               float *y)
{
    for (int64_t s = 0; s < p->samples; s++) {
        const uint64_t id = tutti_share_sample(share, p->epoch, p->position + (uint64_t)s);
        for (size_t i = 0; i < WIDTH; i++)
            y[(size_t)s * WIDTH + i] =
                (float)tutti_uniform((tutti_rng){ 11, stream, id }, i) * 2 - 1;
    }
}

static inline void staged_unit_forward(const float *w, const float *b, int64_t samples,
                                       const float *in, float *out)
{
    for (size_t k = 0; k < (size_t)samples * WIDTH; k++)
        out[k] = tanhf(w[k % WIDTH] * in[k] + b[k % WIDTH]);
}

/* What a micro-batch names of the table: ids, and the weights as it sees them. Gives their
   number. */
static inline size_t staged_named(const tutti_pass *p, uint32_t ids[TABLE_ROWS],
                                  bool named[WIDTH])
{
    const tutti_rng rng = { 13, 1 + p->epoch, p->position };
    size_t n = 0;

    for (uint32_t r = 0; r < TABLE_ROWS; r++) {
        const bool is = tutti_uniform(rng, r) < 0.4;
        ids[n] = r;
        n += is;
        for (size_t i = 0; i < TABLE_COLS; i++)
            named[r * TABLE_COLS + i] = is;
    }
    return n;
}

static inline void staged_masked(const float *w, const bool named[WIDTH], float to[WIDTH])
{
    for (size_t i = 0; i < WIDTH; i++)
        to[i] = named[i] ? w[i] : 0;
}

/* slope of `out` becomes that of `in`. keep: gradients are added to. named: of a table; else
   NULL. */
static inline void staged_unit_backward(const float *w, int64_t samples, const float *in,
                                        const float *out, const float *slope, bool keep,
                                        const bool *named, float *gw, float *gb, float *back)
{
    if (!keep) {
        memset(gw, 0, WIDTH * sizeof *gw);
        memset(gb, 0, WIDTH * sizeof *gb);
    }
    for (size_t k = 0; k < (size_t)samples * WIDTH; k++) {
        const float d = slope[k] * (1 - out[k] * out[k]);
        gw[k % WIDTH] += named == NULL || named[k % WIDTH] ? d * in[k] : 0;
        gb[k % WIDTH] += d;
        if (back != NULL)
            back[k] = d * w[k % WIDTH];
    }
}

static inline double staged_loss(const float *target, const float *y, size_t n, double divisor,
                                 float *slope)
{
    double loss = 0;

    for (size_t k = 0; k < n; k++) {
        const float d = y[k] - target[k];
        loss += (double)d * d / 2;
        slope[k] = (float)(d / divisor);
    }
    return loss;
}
#endif
