/* sequence_forward.c: computes forward of each layer of the backend of sequence_run.h. */
#include "sequence_run.h"

static const float norm_eps = 1e-5F;
/* Stream of dropout's draws, plus the layer's index: far from the streams of initial values. */
static const uint64_t draws_stream = (uint64_t)1 << 32;

tutti_status tutti_nn_seq_logits(sequence *b, int first, int *count, tutti_error *err)
{
    const int head = head_index(b), left = outputs_of(b) - first;
    const size_t in = (size_t)b->net->nodes[head].in;
    const float *bias = value(b, head, 1);
    void *const pointers[] = { at(b, b->layout->place[head].in),
                               (void *)(value(b, head, 0) + (size_t)first * in),
                               at(b, b->layout->place[head].out),
                               bias != NULL ? (void *)(bias + first) : NULL };

    *count = left < HEAD_CHUNK ? left : HEAD_CHUNK;
    return tutti_nn_dn_op_run(&b->core, &chunk_plan(b, first)->forward, pointers, err);
}

static void entropy_part(void *arg, size_t first, size_t count, int thread)
{
    const loop_args *loop = arg;
    const sequence *b = loop->b;

    (void)thread;
    b->math->entropy(&(nn_logits){ count, loop->class, loop->columns, loop->columns,
                                   loop->rows + first * loop->columns },
                     b->labels + first, (nn_entropy *)at(b, b->layout->state) + first);
}

/* Copies the logits of `count` classes from `first` on to the run's outputs. */
static void keep_outputs(const sequence *b, int first, int count)
{
    const size_t length = (size_t)b->net->nodes[head_index(b)].length,
                 samples = (size_t)b->run.samples, all = (size_t)b->net->classes,
                 many = (size_t)count;
    const size_t begin = b->run.position < 0 || length == 1 ? 0 : (size_t)b->run.position,
                 end = b->run.position < 0 ? length : begin + 1;
    const float *rows = at(b, b->layout->place[head_index(b)].out);
    float *to = b->run.outputs + first;

    for (size_t k = 0; k < samples; k++)
        for (size_t t = begin; t < end; t++, to += all)
            memcpy(to,
                   rows + (b->net->time_major ? t * (size_t)b->windows + k : k * length + t) * many,
                   many * sizeof *to);
}

static tutti_status head_forward(sequence *b, tutti_error *err)
{
    const int head = head_index(b);
    /* labels of windows that are filled up: none, or 0 */
    const size_t rows =
        b->net->time_major ? rows_of(b, head) : (size_t)(b->run.samples * b->net->context);

    if (b->net->tables > 0) {
        const float *z = at(b, b->layout->place[head].out);
        float *pairs = at(b, b->layout->pairs);
        loop_args loop = { .b = b, .i = head, .columns = 2, .rows = pairs };
        int one;
        TUTTI_TRY(tutti_nn_seq_logits(b, 0, &one, err));
        for (int64_t i = 0; i < b->run.samples; i++)
            pairs[2 * i] = 0, pairs[2 * i + 1] = z[i];
        run_parallel(b, (size_t)b->run.samples, loop.columns, entropy_part, &loop);
        return TUTTI_OK;
    }
    for (int first = 0, count; first < b->net->classes; first += count) {
        loop_args loop = {
            .b = b, .i = head, .class = (size_t)first, .rows = at(b, b->layout->place[head].out)
        };
        TUTTI_TRY(tutti_nn_seq_logits(b, first, &count, err));
        if (b->run.outputs != NULL)
            keep_outputs(b, first, count);
        loop.columns = (size_t)count;
        run_parallel(b, rows, loop.columns, entropy_part, &loop);
    }
    return TUTTI_OK;
}

void tutti_nn_seq_rotate(const sequence *b, int i, size_t first, size_t count, bool back, float *x)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t context = (size_t)b->net->context, heads = 2 * (size_t)n->layer.heads,
                 width = (size_t)n->in / (3 * (size_t)n->layer.heads), in = (size_t)n->in;

    b->math->rotary(&(nn_rotation){ context, heads, width, in, b->angles[i],
                                    b->angles[i] + context * (width / 2) },
                    count * context, back, x + first * context * in);
}

void tutti_nn_seq_drop(const sequence *b, int i, size_t first, size_t count, const float *x,
                       float *y)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t width = (size_t)n->out, length = (size_t)n->length, values = length * width,
                 windows = (size_t)b->windows;
    const uint64_t stream = draws_stream + (uint64_t)(i + b->net->offset);

    for (size_t t = first; t < first + count && b->net->time_major; t++)
        for (size_t w = 0; w < windows; w++) {
            const size_t row = (t * windows + w) * width;
            tutti_nn_dropout(b->math, b->draws,
                             (tutti_rng){ b->run.seed, stream, b->run.first + w }, t * width, width,
                             (float)n->layer.rate, x + row, y + row);
        }
    for (size_t w = first; w < first + count && !b->net->time_major; w++)
        tutti_nn_dropout(b->math, b->draws, (tutti_rng){ b->run.seed, stream, b->run.first + w }, 0,
                         values, (float)n->layer.rate, x + w * values, y + w * values);
}

/* run->x is windows x frames x values. */
static void place_frames(const sequence *b, size_t width, float *y)
{
    const size_t length = (size_t)b->net->context, windows = (size_t)b->windows,
                 samples = (size_t)b->run.samples;

    for (size_t t = 0; t < length; t++, y += windows * width) {
        for (size_t w = 0; w < samples; w++)
            memcpy(y + w * width, b->run.x + (w * length + t) * width, width * sizeof *y);
        memset(y + samples * width, 0, (windows - samples) * width * sizeof *y);
    }
}

/* Writes a row of each table, then the sample's other values. */
static void place_tables(const sequence *b, int i, float *y)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t tables = (size_t)b->net->tables, values = (size_t)b->net->values,
                 wide = (size_t)n->layer.out;

    for (size_t r = 0; r < rows_of(b, i); r++, y += n->out) {
        b->math->gather(tables, wide, b->run.tokens + r * tables, value(b, i, 0), y);
        if (r < (size_t)b->run.samples)
            memcpy(y + tables * wide, b->run.x + r * values, values * sizeof *y);
        else
            memset(y + tables * wide, 0, values * sizeof *y);
    }
}

/* Writes the mean of `length` time steps of n values each. */
static void mean_of_steps(const sequence *b, size_t n, int length, const float *x, float *y)
{
    const float factor = (float)(1 / (double)length);

    b->math->sum(n, x, x + n, y);
    for (int t = 2; t < length; t++)
        b->math->sum(n, y, x + (size_t)t * n, y);
    for (size_t i = 0; i < n; i++)
        y[i] *= factor;
}

static tutti_status lstm_forward(sequence *b, int i, tutti_error *err)
{
    dn_lstm_run r = lstm_run(b, i);

    r.scratch = at(b, b->layout->place[i].forward_scratch);
    return tutti_nn_dn_lstm_forward(&b->core, &plan_of(b)->lstm[b->net->nodes[i].lstm], b->math, &r,
                                    err);
}

/* Computes rows [first, first + count) of a norm or a GELU; y: memory for them. */
static void rows_of_node(const sequence *b, int i, size_t first, size_t count, float *y)
{
    const nn_node *n = &b->net->nodes[i];
    const seq_place *p = &b->layout->place[i];
    const size_t width = (size_t)n->out;
    const float *x = (const float *)at(b, p[-1].out) + first * width;
    float *stats = at(b, p->stats);

    switch (n->layer.kind) {
    case TUTTI_LAYER_LAYER_NORM:
        b->math->layer_norm(&(nn_norm){ count, width, value(b, i, 0), value(b, i, 1), norm_eps }, x,
                            y,
                            &(nn_row_statistics){ stats + first, stats + rows_of(b, i) + first });
        break;
    case TUTTI_LAYER_RMS_NORM:
        b->math->rms_norm(&(nn_norm){ count, width, value(b, i, 0), NULL, norm_eps }, x, y,
                          stats + first);
        break;
    default: b->math->gelu(count * width, x, y);
    }
}

/* Computes the same rows a few at a time, in 16 bits for the next, linear node. */
static void narrow_part(const sequence *b, int i, size_t first, size_t count, int thread)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t width = (size_t)n->out, step = rows_at_once(n), end = first + count;
    float *scratch =
        (float *)at(b, b->layout->place[i].forward_scratch) + (size_t)thread * step * width;
    uint16_t *to = at(b, b->layout->place[i + 1].in);

    for (size_t some; first < end; first += some) {
        some = end - first < step ? end - first : step;
        rows_of_node(b, i, first, some, scratch);
        tutti_cast(b->core.device, tutti_host(scratch, some * width, TUTTI_F32),
                   tutti_host(to + first * width, some * width, b->core.precision));
    }
}

static void forward_part(void *arg, size_t first, size_t count, int thread)
{
    const loop_args *loop = arg;
    const sequence *b = loop->b;
    const int i = loop->i;
    const nn_node *n = &b->net->nodes[i];
    const seq_place *p = &b->layout->place[i];
    const size_t width = (size_t)n->out, at_row = first * width, context = (size_t)b->net->context;
    float *const out = at(b, p->out), *const in = i > 0 ? at(b, p[-1].out) : NULL,
                 *y = out != NULL ? out + at_row : NULL;
    const float *x = in != NULL ? in + at_row : NULL;

    switch (n->layer.kind) {
    case TUTTI_LAYER_EMBEDDING:
        b->math->gather(count, width, b->run.tokens + first, value(b, i, 0), y);
        break;
    case TUTTI_LAYER_POSITIONS:
        b->math->positions(count, context * width, value(b, i, 0), out + first * context * width);
        break;
    case TUTTI_LAYER_JOIN:
        b->math->sum(count * width, (float *)at(b, b->layout->place[n->partner].out) + at_row, x,
                     y);
        break;
    case TUTTI_LAYER_LAYER_NORM: case TUTTI_LAYER_RMS_NORM: case TUTTI_LAYER_GELU:
        if (narrows(b, i))
            narrow_part(b, i, first, count, thread);
        else
            rows_of_node(b, i, first, count, y);
        break;
    case TUTTI_LAYER_ROTARY:
        tutti_nn_seq_rotate(b, i, first, count, false, out);
        break;
    case TUTTI_LAYER_DROPOUT: tutti_nn_seq_drop(b, i, first, count, in, out); break;
    case TUTTI_LAYER_ATTENTION: {
        const nn_attention a = attention_of(b, i, b->windows);
        b->math->attention(
            &a, first, count,
            &(nn_attention_values){ in, in + width, in + 2 * width, out, at(b, p->stats) },
            (float *)at(b, p->forward_scratch) + (size_t)thread * tutti_nn_attention_scratch(&a));
        break;
    }
    default: break;
    }
}

tutti_status tutti_nn_seq_forward(sequence *b, int i, tutti_error *err)
{
    const nn_node *n = &b->net->nodes[i];
    const seq_place *p = &b->layout->place[i];
    const size_t width = (size_t)n->out;
    loop_args loop = { .b = b, .i = i };

    switch (n->layer.kind) {
    case TUTTI_LAYER_TABLES: place_tables(b, i, at(b, p->out)); break;
    case TUTTI_LAYER_ENTER:
        memcpy(at(b, p->out), b->run.x, rows_of(b, i) * width * sizeof(float));
        break;
    case TUTTI_LAYER_LEAVE:
        memcpy(b->run.out, at(b, p->out), rows_of(b, i) * width * sizeof(float));
        break;
    case TUTTI_LAYER_FRAMES: place_frames(b, width, at(b, p->out)); break;
    case TUTTI_LAYER_MEAN:
        mean_of_steps(b, rows_of(b, i) * width, n[-1].length, at(b, p[-1].out), at(b, p->out));
        break;
    case TUTTI_LAYER_LSTM: return lstm_forward(b, i, err);
    case TUTTI_LAYER_LINEAR: {
        void *const pointers[] = { at(b, p->in), (void *)value(b, i, 0), columns_of(b, i, p->out),
                                   (void *)value(b, i, 1) };
        b->core.scratch = at(b, p->forward_scratch);
        if (nn_first_tile(n) && !narrows(b, i - 1))
            give_operand(b, rows_of(b, i) * (size_t)n->in, at(b, p[-1].out), p->in);
        return i == head_index(b)
                   ? head_forward(b, err)
                   : tutti_nn_dn_op_run(&b->core, &plan_of(b)->linear[i].forward, pointers, err);
    }
    case TUTTI_LAYER_BRANCH: case TUTTI_LAYER_RELU: break; /* nothing moves */
    case TUTTI_LAYER_DROPOUT:
        if (!b->run.train)
            break;
        run_parallel(b, items_of(b, i), values_of(b, i), forward_part, &loop);
        break;
    default: run_parallel(b, items_of(b, i), values_of(b, i), forward_part, &loop);
    }
    return TUTTI_OK;
}
