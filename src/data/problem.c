/* problem.c: the samples of a synthetic problem as a data set. They are drawn once, by the rank
   that fills the block, since a run uses each sample many times. The block is that of dataset.c,
   with floats in place of pixels and, for a quadratic, the path of its optimum after them:

     0      data_facts
     64     training samples (samples x dim floats), training labels, test samples, test labels,
            each at a multiple of 64
     path   from: dim doubles, way: dim doubles (problem.h)

   A drift moves all samples equally: a sample at step t is the sample at step 0 plus place(t) way
   (problem.h), rounded once. */
#include "data_internal.h"
#include <assert.h>
#include <string.h>

tutti_status tutti_data_problem_open(tutti_data **out, tutti_runtime *rt,
                                     const tutti_problem *problem, tutti_error *err)
{
    tutti_data *d = tutti_alloc(1, sizeof *d);
    size_t total = DATA_ALIGNMENT;

    *out = NULL;
    if (d == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to open the data of a problem");
    d->rt = rt;
    d->problem = *problem;
    d->pixels = (size_t)problem->dim;
    d->shape = (tutti_data_shape){ .channels = 1,
                                   .height = 1,
                                   .width = (int)problem->dim,
                                   .value_bytes = (int)sizeof(float),
                                   .deviation = 1 };
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++) {
        const uint64_t n = d->shape.samples[split] = tutti_problem_samples(problem, split);
        /* Below 2^34 bytes: tutti_problem_read bounds samples x dim. */
        tutti_data_place(&total, n * d->pixels * sizeof(float), &d->parts[split][DATA_X].offset);
        tutti_data_place(&total, n, &d->parts[split][DATA_LABELS].offset);
    }
    if (problem->kind == TUTTI_PROBLEM_QUADRATIC)
        tutti_data_place(&total, 2 * d->pixels * sizeof(double), &d->path);
    d->shape.bytes = total;
    *out = d;
    return TUTTI_OK;
}

static double *path_of(const tutti_data *d, uint8_t *block)
{
    return d->path > 0 ? (double *)(void *)(block + d->path) : NULL;
}

tutti_status tutti_data_problem_fill(tutti_data *d, uint8_t *block, tutti_error *err)
{
    data_facts *f = (data_facts *)(void *)block;
    uint64_t hashes[2];
    char spec[512];

    memset(block, 0, (size_t)d->shape.bytes); /* the hash goes over the gaps too */
    for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++)
        TUTTI_TRY(tutti_problem_draw(&d->problem, split,
                                     (float *)(void *)(block + d->parts[split][DATA_X].offset),
                                     block + d->parts[split][DATA_LABELS].offset, err));
    if (d->path > 0)
        TUTTI_TRY(
            tutti_problem_path(&d->problem, path_of(d, block), path_of(d, block) + d->pixels, err));
    f->classes = (int32_t)d->problem.classes;
    f->deviation = 1;
    hashes[0] = tutti_data_hash_block(d, block);
    memset(spec, 0, sizeof spec);
    /* what is not in the samples: how they move */
    tutti_problem_print(&d->problem, spec, sizeof spec);
    hashes[1] = tutti_hash(spec, strlen(spec));
    f->hash = tutti_hash(hashes, sizeof hashes);
    return TUTTI_OK;
}

void tutti_data_problem_move(const tutti_data *d, uint64_t step, float *x, size_t n)
{
    const double *way = d->path > 0 ? path_of(d, d->block) + d->pixels : NULL;
    const double place = way != NULL ? tutti_problem_position(&d->problem, way, step) : 0;

    for (size_t i = 0; i < n && place > 0; i++)
        for (size_t j = 0; j < d->pixels; j++)
            x[i * d->pixels + j] = (float)((double)x[i * d->pixels + j] + place * way[j]);
}

void tutti_data_problem_gather(const tutti_data *d, tutti_split split, const uint64_t *ids,
                               size_t n, uint64_t step, float *x, uint8_t *labels)
{
    const float *all = (const float *)(const void *)(d->block + d->parts[split][DATA_X].offset);

    for (size_t i = 0; i < n; i++) {
        assert(ids[i] < d->shape.samples[split]);
        labels[i] = d->block[d->parts[split][DATA_LABELS].offset + ids[i]];
        memcpy(x + i * d->pixels, all + ids[i] * d->pixels, d->pixels * sizeof *x);
    }
    tutti_data_problem_move(d, step, x, n);
}

bool tutti_data_optimum(const tutti_data *data, uint64_t step, float *x)
{
    const double *from, *way;
    double place;

    if (data->path == 0)
        return false;
    assert(data->block != NULL);
    from = path_of(data, data->block);
    way = from + data->pixels;
    place = tutti_problem_position(&data->problem, way, step);
    for (size_t j = 0; j < data->pixels; j++)
        x[j] = (float)(from[j] + place * way[j]);
    return true;
}
