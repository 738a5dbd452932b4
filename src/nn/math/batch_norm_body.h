/* batch_norm_body.h: private: batch norm (math.h). Included by math_body.h. Lanes are channels.
   Mean and squared deviations are computed for at most NN_ROWS positions at a time, in two passes
   while the values are in the first cache, and merged in double: one pass over memory, and no
   cancellation. The second pass also finds the rounding error of the first pass's mean (Chan,
   Golub, LeVeque 1983). */

enum { STRIP = 64 }; /* channels that are computed at a time: a row of them is a few cache lines */
/* Channels [lane, lane + count) of a group; the other members are as in nn_channels. */
typedef struct strip { size_t images, groups, positions, width, group, lane, count; } strip;

/* Returns the strip that begins at a lane. With one group the images' positions are contiguous; the
   strip then has one image with all positions, so that blocks of NN_ROWS positions are full. */
static strip strip_of(const nn_channels *c, size_t group, size_t lane)
{
    const bool joined = c->groups == 1;
    return (strip){ joined ? 1 : c->images,
                    c->groups,
                    joined ? c->images * c->positions : c->positions,
                    c->width,
                    group,
                    lane,
                    c->width - lane < STRIP ? c->width - lane : STRIP };
}

/* Returns the index of the strip's first channel. */
INLINE size_t strip_at(const strip *s, size_t image, size_t position)
{
    return ((image * s->groups + s->group) * s->positions + position) * s->width + s->lane;
}

/* Runs the statements for each block of at most NN_ROWS positions: at: index of the first, rows:
   how many. */
#define EACH_BLOCK(s, at, rows, ...)                                    \
    for (size_t image_ = 0; image_ < (s)->images; image_++)             \
        for (size_t p_ = 0; p_ < (s)->positions; p_ += NN_ROWS) {       \
            const size_t at = strip_at(s, image_, p_);                  \
            const size_t left_ = (s)->positions - p_;                   \
            const size_t rows = left_ < NN_ROWS ? left_ : NN_ROWS;      \
            __VA_ARGS__                                                 \
        }
/* Runs the statements for each strip s of all channels. */
#define EACH_STRIP(c, s, ...)                                          \
    for (size_t group_ = 0; group_ < (c)->groups; group_++)            \
        for (size_t lane_ = 0; lane_ < (c)->width; lane_ += STRIP) {   \
            const strip s = strip_of(c, group_, lane_);                \
            __VA_ARGS__                                                \
        }

/* For each channel of a strip, over `count` positions: mean, and sum of squared deviations from
   it. */
typedef struct statistics { double count, mean[STRIP], squares[STRIP]; } statistics;

/* Merges the statistics of a block of `count` positions into *m. The block's mean is mean +
   rest. */
static void merge_statistics(statistics *m, size_t channels, double count, const float *mean,
                          const float *rest, const float *squares)
{
    const double all = m->count + count;

    for (size_t j = 0; j < channels; j++) {
        const double away = ((double)mean[j] - m->mean[j]) + (double)rest[j];
        m->mean[j] += away * (count / all);
        m->squares[j] += (double)squares[j] + away * away * (m->count * count / all);
    }
    m->count = all;
}

static void strip_statistics(const strip *s, const float *x, statistics *m)
{
    memset(m, 0, sizeof *m);
    EACH_BLOCK(s, at, rows, {
        float mean[STRIP];
        float rest[STRIP];
        float squares[STRIP];
        EACH_VECTOR(s->count, {
            const float *const v = x + at + i;
            lanes total = lanes_all(0);
            lanes left = lanes_all(0);
            lanes spread = lanes_all(0);
            for (size_t r = 0; r < rows; r++)
                total = lanes_add(total, load(v + r * s->width, k));
            total = lanes_div(total, lanes_all((float)rows));
            for (size_t r = 0; r < rows; r++) {
                const lanes away = lanes_sub(load(v + r * s->width, k), total);
                left = lanes_add(left, away);
                spread = lanes_fma(away, away, spread);
            }
            store(mean + i, k, total);
            store(rest + i, k, lanes_div(left, lanes_all((float)rows)));
            store(squares + i, k,
                  lanes_fnma(left, lanes_div(left, lanes_all((float)rows)), spread));
        });
        merge_statistics(m, s->count, (double)rows, mean, rest, squares);
    })
}

/* Writes the normalised values of a strip. first: its first channel. of: its statistics. */
static void strip_apply(const strip *s, size_t first, const nn_batch_norm *p, const float *x,
                        const nn_row_statistics *of, float *y)
{
    const float *gamma = p->gamma + first, *beta = p->beta + first, *mean = of->mean,
                *rstd = of->rstd;
    const bool relu = p->relu;

    EACH_BLOCK(s, at, rows, EACH_VECTOR(s->count, {
        const lanes m = load(mean + i, k);
        const lanes f = load(rstd + i, k);
        const lanes g = load(gamma + i, k);
        const lanes b = load(beta + i, k);
        for (size_t r = 0; r < rows; r++) {
            const size_t index = at + i + r * s->width;
            const lanes v = lanes_fma(lanes_mul(lanes_sub(load(x + index, k), m), f), g, b);
            store(y + index, k,
                  relu ? lanes_pick(lanes_below(v, lanes_all(0)), lanes_all(0), v) : v);
        }
    });)
}

static void batch_norm(const nn_channels *c, const nn_batch_norm *p, const float *x, float *y,
                       const nn_row_statistics *kept, const nn_running *running)
{
    float *mean = kept->mean, *rstd = kept->rstd;

    EACH_STRIP(c, s, {
        const size_t first = s.group * c->width + s.lane;
        statistics m;
        strip_statistics(&s, x, &m);
        for (size_t j = 0; j < s.count; j++) {
            const double variance = m.squares[j] / m.count;
            mean[first + j] = (float)m.mean[j];
            rstd[first + j] = (float)(1 / sqrt(variance + (double)p->eps));
            if (running != NULL) {
                running->mean[first + j] +=
                    running->momentum * (float)(m.mean[j] - (double)running->mean[first + j]);
                running->variance[first + j] +=
                    running->momentum *
                    (float)(m.squares[j] / (m.count - 1) - (double)running->variance[first + j]);
            }
        }
        strip_apply(&s, first, p, x, &(nn_row_statistics){ mean + first, rstd + first }, y);
    })
}

static void batch_norm_given(const nn_channels *c, const nn_batch_norm *p, const float *x,
                             const float *mean, const float *variance, float *y){ EACH_STRIP(
    c, s,
    {
        const size_t first = s.group * c->width + s.lane;
        float rstd[STRIP];
        for (size_t j = 0; j < s.count; j++)
            rstd[j] = (float)(1 / sqrt((double)variance[first + j] + (double)p->eps));
        strip_apply(&s, first, p, x, &(nn_row_statistics){ (float *)mean + first, rstd }, y);
    }) }

/* Returns the slope dy, masked by the relu if y is not NULL. */
INLINE lanes masked(const float *dy, const float *y, size_t index, size_t k)
{
    const lanes d = load(dy + index, k);
    return y == NULL ? d
                     : lanes_pick(lanes_below(lanes_all(0), load(y + index, k)), d, lanes_all(0));
}

/* Computes a strip's backward. With h = (x - mean) rstd and N values in a channel:
   dbeta = sum of dy, dgamma = sum of dy h, dx = gamma rstd (dy - dbeta / N - h dgamma / N). */
static void strip_back(const strip *s, size_t first, const nn_batch_norm_kept *kept,
                       const nn_batch_norm_slopes *to, double *dgamma, double *dbeta)
{
    const float *x = kept->x, *y = kept->y, *gamma = kept->gamma + first,
                *mean = kept->mean + first, *rstd = kept->rstd + first, *dy = to->dy;
    float *dx = to->dx;
    const double n = (double)s->images * (double)s->positions;
    float mean_gamma[STRIP], mean_beta[STRIP];

    for (size_t j = 0; j < s->count; j++)
        dgamma[j] = dbeta[j] = 0;
    EACH_BLOCK(s, at, rows, {
        float part_gamma[STRIP];
        float part_beta[STRIP];
        EACH_VECTOR(s->count, {
            const lanes m = load(mean + i, k);
            const lanes f = load(rstd + i, k);
            lanes to_gamma = lanes_all(0);
            lanes to_beta = lanes_all(0);
            for (size_t r = 0; r < rows; r++) {
                const size_t index = at + i + r * s->width;
                const lanes d = masked(dy, y, index, k);
                to_gamma = lanes_fma(d, lanes_mul(lanes_sub(load(x + index, k), m), f), to_gamma);
                to_beta = lanes_add(to_beta, d);
            }
            store(part_gamma + i, k, to_gamma);
            store(part_beta + i, k, to_beta);
        });
        for (size_t j = 0; j < s->count; j++) {
            dgamma[j] += (double)part_gamma[j];
            dbeta[j] += (double)part_beta[j];
        }
    })
    for (size_t j = 0; j < s->count; j++) {
        mean_gamma[j] = (float)(dgamma[j] / n);
        mean_beta[j] = (float)(dbeta[j] / n);
    }
    EACH_BLOCK(s, at, rows, EACH_VECTOR(s->count, {
        const lanes m = load(mean + i, k);
        const lanes f = load(rstd + i, k);
        const lanes g = lanes_mul(f, load(gamma + i, k));
        const lanes a = load(mean_beta + i, k);
        const lanes b = load(mean_gamma + i, k);
        for (size_t r = 0; r < rows; r++) {
            const size_t index = at + i + r * s->width;
            const lanes h = lanes_mul(lanes_sub(load(x + index, k), m), f);
            store(dx + index, k,
                  lanes_mul(g, lanes_fnma(h, b, lanes_sub(masked(dy, y, index, k), a))));
        }
    });)
}

static void batch_norm_back(const nn_channels *c, const nn_batch_norm_kept *kept,
                            const nn_batch_norm_slopes *to)
{
    float *dgamma = to->dgamma, *dbeta = to->dbeta;

    EACH_STRIP(c, s, {
        const size_t first = s.group * c->width + s.lane;
        double to_gamma[STRIP];
        double to_beta[STRIP];
        strip_back(&s, first, kept, to, to_gamma, to_beta);
        for (size_t j = 0; j < s.count; j++) {
            dgamma[first + j] = (float)to_gamma[j] + (to->add ? dgamma[first + j] : 0);
            dbeta[first + j] = (float)to_beta[j] + (to->add ? dbeta[first + j] : 0);
        }
    })
}
