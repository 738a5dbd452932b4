/* codec.c: a codec of your own in a program of your own. docs/ADD-A-CODEC.md explains each part.
   Build: cc codec.c -ltutti -lm. Four workers each know one point, and together compute the mean of
   the four, with gradients of 8 bits an element. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tutti/codec.h>
#include <tutti/tutti.h>

/* block8: x in blocks of `block` elements, each with a scale, the largest magnitude, and a signed
   byte an element, rounded to nearest. A block with a number that is not finite has scale NaN, and
   decodes to NaN, so that all workers see it. A message is the scales, then the bytes. */
typedef struct block8 { int64_t block; } block8;

static const tutti_option block8_options[] = {
    { "block", TUTTI_INT, TUTTI_AT(block8, block), 256, 1, 1 << 20, NULL, "elements that share a scale", NULL, NULL },
    { 0 }
};

static size_t blocks_of(const tutti_codec *c, size_t count)
{
    const size_t block = (size_t)((const block8 *)c->self)->block;

    return (count + block - 1) / block;
}

/* Every message has bound() bytes, so no length is sent; what is lost is less than |x|^2. */
static unsigned block8_traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_FIXED | TUTTI_CODEC_CONTRACTIVE;
}

static size_t block8_bound(const tutti_codec *c, const tutti_view *v)
{
    return blocks_of(c, v->count) * sizeof(float) + v->count;
}

static size_t block8_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, uint8_t *out)
{
    const size_t block = (size_t)((const block8 *)c->self)->block;
    int8_t *code = (int8_t *)(out + blocks_of(c, v->count) * sizeof(float));

    (void)scratch;
    for (size_t first = 0, k = 0; first < v->count; first += block, k++) {
        const size_t end = first + block < v->count ? first + block : v->count;
        float scale = 0;
        for (size_t i = first; i < end; i++) /* a NaN makes it NaN: no comparison with one holds */
            scale = isfinite(x[i]) ? (fabsf(x[i]) > scale ? fabsf(x[i]) : scale) : NAN;
        for (size_t i = first; i < end; i++)
            code[i] = scale > 0 ? (int8_t)lrintf(x[i] / scale * 127) : 0;
        memcpy(out + k * sizeof scale, &scale, sizeof scale);
    }
    return block8_bound(c, v);
}

/* y += a * decoded. The message is checked in full before y is changed. */
static tutti_status block8_decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes, float a,
                                      float *y, tutti_error *err)
{
    const size_t block = (size_t)((const block8 *)c->self)->block;
    const int8_t *code = (const int8_t *)(in + blocks_of(c, v->count) * sizeof(float));
    float scale;

    if (bytes != block8_bound(c, v))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "codec 'block8': a message of %zu bytes, not %zu", bytes,
                          block8_bound(c, v));
    for (size_t i = 0; i < v->count; i++) {
        memcpy(&scale, in + i / block * sizeof scale, sizeof scale);
        y[i] += a * (scale * (float)code[i] / 127);
    }
    return TUTTI_OK;
}

static const tutti_codec_ops codec_block8 = {
    .name = "block8",
    .paper = "none: an example",
    .help = "8 bits an element, a scale a block",
    .options = block8_options,
    .self_bytes = sizeof(block8),
    .traits = block8_traits,
    .bound = block8_bound,
    .encode = block8_encode,
    .decode_add = block8_decode_add,
};

/* ---- the program: what any client of the engine does ---- */

enum { WORKERS = 4, DIM = 8, STEPS = 200 };
static const tutti_codec_ops *const mine[] = { &codec_block8, NULL };
static float point(int worker, int k) { return (float)(worker * worker + 1) / (float)(k + 3); }

typedef struct job { const char *codec, *method; float x[DIM]; uint64_t bytes; } job;

static tutti_status worker(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param params[] = { { .name = "x", .dims = 1, .dim = { DIM } } };
    const int rank = tutti_world_rank(world);
    job *j = arg;
    const tutti_engine_options options = { .method = j->method, .optimizer = "sgd(lr=0.05)", .batch = 1,
                                           .codec = j->codec, .codecs = mine };
    tutti_engine *e;
    tutti_pass pass;
    tutti_figures figures;
    bool more;
    tutti_status status = tutti_engine_open(&e, world, params, 1, &options, err);

    while (status == TUTTI_OK && (status = tutti_engine_more(e, STEPS, &more, err)) == TUTTI_OK && more) {
        while ((status = tutti_engine_pass_begin(e, &pass, err)) == TUTTI_OK) {
            const float *x = tutti_engine_values(e, 0);
            float *g = tutti_engine_gradient(e, 0), loss = 0;
            for (int k = 0; k < DIM; k++) { /* the loss of its one sample: |x - point|^2 / 2 */
                const float off = x[k] - point(rank, k);
                g[k] = off * (float)pass.samples / (float)pass.divisor;
                loss += off * off / 2;
            }
            tutti_engine_grad_ready(e, 0, err);
            tutti_engine_pass_end(e, loss, err);
        }
        if (status == TUTTI_CLOSED)
            status = tutti_engine_step(e, err);
    }
    status = status == TUTTI_OK ? tutti_engine_finish(e, err) : status;
    if (status == TUTTI_OK && rank == 0) {
        tutti_engine_figures(e, &figures);
        j->bytes = figures.bytes_sent;
        memcpy(j->x, tutti_engine_values(e, 0), sizeof j->x);
    }
    tutti_engine_close(e);
    return status;
}

int main(int argc, char **argv)
{
    tutti_error err;
    job j = { .codec = argc > 1 ? argv[1] : "ef(block8)", .method = argc > 2 ? argv[2] : "ddp" };
    float worst = 0;

    if (tutti_world_run("shm", WORKERS, worker, &j, &err) != TUTTI_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    for (int k = 0; k < DIM; k++) {
        float off = j.x[k];
        for (int r = 0; r < WORKERS; r++)
            off -= point(r, k) / WORKERS;
        worst = fabsf(off) > worst ? fabsf(off) : worst;
    }
    printf("off the mean by %.1g; worker 0 sent %llu bytes\n", worst, (unsigned long long)j.bytes);
    return worst > 1e-2;
}
