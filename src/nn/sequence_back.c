/* sequence_back.c: computes backward of each layer of the backend of sequence_run.h. */
#include "sequence_run.h"

static void mean_back(size_t n, int length, const float *slope, float *back)
{
    const float factor = (float)(1 / (double)length);

    for (size_t i = 0; i < n; i++)
        back[i] = factor * slope[i];
    for (int t = 1; t < length; t++)
        memcpy(back + (size_t)t * n, back, n * sizeof *back);
}

static void store_sum(const sequence *b, size_t n, const float *sum, float *gradient_of)
{
    if (b->run.add)
        b->loops->add(n, sum, gradient_of);
    else
        memcpy(gradient_of, sum, n * sizeof *sum);
}

static size_t rows_of_part(size_t rows, size_t k)
{
    return rows - k * NN_ROWS < NN_ROWS ? rows - k * NN_ROWS : NN_ROWS;
}

/* Sums the columns of a slope for the bias gradient, and converts the slope for its products. */
static void bias_part(void *arg, size_t first, size_t count, int thread)
{
    const loop_args *loop = arg;
    const sequence *b = loop->b;
    uint16_t *narrow =
        b->core.precision != TUTTI_F32 ? at(b, b->layout->place[loop->i].given) : NULL;

    (void)thread;
    for (size_t k = first; k < first + count; k++) {
        const size_t place_of = k * NN_ROWS * loop->columns,
                     rows = rows_of_part(rows_of(b, loop->i), k);
        b->loops->bias(rows, loop->columns, NULL, loop->rows + place_of,
                       loop->sums + k * loop->columns, false);
        if (narrow != NULL) /* while they are in the cache */
            tutti_cast(b->core.device,
                       tutti_host(loop->rows + place_of, rows * loop->columns, TUTTI_F32),
                       tutti_host(narrow + place_of, rows * loop->columns, b->core.precision));
    }
}

/* The slope of a linear layer's output, and where the gradients are written; bias NULL: it has
 * none. */
typedef struct linear_slopes {
    float *slope, *weights, *bias;
} linear_slopes;

static tutti_status linear_weights(sequence *b, int i, dn_linear *op, size_t columns,
                                   const linear_slopes *to, tutti_error *err)
{
    float *slope = to->slope, *weights = to->weights, *bias = to->bias;
    const nn_node *n = &b->net->nodes[i];
    const seq_place *p = &b->layout->place[i];
    void *const pointers[] = { operand_of(b, i, p->given), at(b, p->in), weights };
    const size_t rows = rows_of(b, i), wide = n->layer.tiles > 1 ? (size_t)n->wide : columns;

    if (makes_operand_late(b, i))
        give_operand(b, rows * (size_t)n->in, at(b, b->layout->place[i - 1 - n->layer.tile].out),
                     p->in);
    if (bias != NULL && nn_last_tile(n)) {
        loop_args loop = {
            .b = b, .i = i, .columns = wide, .rows = slope, .sums = at(b, p->parts)
        };
        run_parallel(b, tutti_nn_dn_partials(rows), NN_ROWS * wide, bias_part, &loop);
        tutti_nn_dn_add_partials(b->loops, rows, wide, loop.sums);
    } else if (nn_last_tile(n))
        give_operand(b, rows * wide, slope, p->given);
    if (bias != NULL)
        store_sum(b, columns, columns_of(b, i, p->parts), bias);
    return tutti_nn_dn_op_run(&b->core, b->run.add ? &op->weights_add : &op->weights, pointers,
                              err);
}

static void entropy_back_part(void *arg, size_t first, size_t count, int thread)
{
    const loop_args *loop = arg;
    const sequence *b = loop->b;
    float *rows = loop->rows + first * loop->columns;

    (void)thread;
    b->math->entropy_back(&(nn_logits){ count, loop->class, loop->columns, loop->columns, rows },
                          b->labels + first, (nn_entropy *)at(b, b->layout->state) + first,
                          b->scale, rows);
}

static tutti_status head_back(sequence *b, tutti_error *err)
{
    const int head = head_index(b);
    const seq_place *p = &b->layout->place[head];
    const size_t in = (size_t)b->net->nodes[head].in, rows = rows_of(b, head);
    float *slope = at(b, p->out), *bias = gradient(b, head, 1);

    if (b->net->tables > 0) {
        float *pairs = at(b, b->layout->pairs);
        loop_args loop = { .b = b, .i = head, .columns = 2, .rows = pairs };
        run_parallel(b, rows, loop.columns, entropy_back_part, &loop);
        for (size_t i = 0; i < rows; i++)
            slope[i] = pairs[2 * i + 1];
    }
    for (int first = 0, count = outputs_of(b); first < outputs_of(b); first += count) {
        dn_linear *op = chunk_plan(b, first);
        void *const pointers[] = { at(b, p->given),
                                   (void *)(value(b, head, 0) + (size_t)first * in),
                                   at(b, p->back) };
        loop_args loop = { .b = b, .i = head, .class = (size_t)first, .rows = slope };
        if (outputs_of(b) > HEAD_CHUNK)
            TUTTI_TRY(tutti_nn_seq_logits(b, first, &count, err));
        loop.columns = (size_t)count;
        if (b->net->tables == 0)
            run_parallel(b, rows, loop.columns, entropy_back_part, &loop);
        TUTTI_TRY(linear_weights(b, head, op, (size_t)count,
                                 &(linear_slopes){ slope, gradient(b, head, 0) + (size_t)first * in,
                                                   bias != NULL ? bias + first : NULL },
                                 err));
        TUTTI_TRY(
            tutti_nn_dn_op_run(&b->core, first > 0 ? &op->data_add : &op->data, pointers, err));
    }
    return TUTTI_OK;
}

static tutti_status lstm_weights(sequence *b, int i, tutti_error *err)
{
    const seq_place *p = &b->layout->place[i];
    dn_lstm_run r = lstm_run(b, i);

    r.scratch = at(b, p->back_scratch);
    r.slope = at(b, p->slope);
    return tutti_nn_dn_lstm_weights(&b->core, &plan_of(b)->lstm[b->net->nodes[i].lstm], b->math,
                                    b->loops, &r, err);
}

/* Adds to the columns [first, first + count) of a table. Split by columns, so that a row's sum
   keeps the order of the tokens. */
static void embedding_part(void *arg, size_t first, size_t count, int thread)
{
    const loop_args *loop = arg;
    const sequence *b = loop->b;

    (void)thread;
    b->math->scatter_add(rows_of(b, loop->i), &(nn_columns){ loop->columns, first, count },
                         b->run.tokens, loop->rows, loop->sums);
}

/* Moves the slopes of the categories' rows together: removes the slopes of a sample's other
   values. */
static void remove_values(const sequence *b, int i, float *slope)
{
    const size_t width = (size_t)b->net->nodes[i].out, wide = width - (size_t)b->net->values;

    for (size_t r = 1; r < rows_of(b, i); r++)
        memmove(slope + r * wide, slope + r * width, wide * sizeof *slope);
}

static void table_part(void *arg, size_t first, size_t count, int thread)
{
    const loop_args *loop = arg;
    const sequence *b = loop->b;
    const size_t n = ids_of(b, b->windows);
    const uint32_t *order = (const uint32_t *)((const uint64_t *)b->core.scratch + 2 * n),
                   *begin = order + n;

    (void)thread;
    b->math->sum_rows(loop->columns, first, count, &(nn_grouped){ order, begin }, loop->rows,
                      loop->sums);
}

/* Computes the rows of a table's gradient. slope: a row for each id. */
static void sum_table(sequence *b, int i, float *slope)
{
    const size_t n = ids_of(b, b->windows);
    nn_rows *rows = &b->run.tables[b->net->nodes[i].param];
    uint64_t *scratch = b->core.scratch;
    uint32_t *order = (uint32_t *)(scratch + 2 * n);
    loop_args loop = {
        .b = b, .i = i, .columns = rows->width, .rows = slope, .sums = rows->values
    };

    rows->n = tutti_nn_unique(n, b->run.tokens, rows->ids, order, order + n, scratch);
    run_parallel(b, rows->n, n * rows->width / rows->n, table_part, &loop);
}

static void norm_part(void *arg, size_t first, size_t count, int thread)
{
    const loop_args *loop = arg;
    const sequence *b = loop->b;
    const nn_node *n = &b->net->nodes[loop->i];
    const seq_place *p = &b->layout->place[loop->i];
    const size_t width = (size_t)n->out, rows = rows_of(b, loop->i);
    const float *x = at(b, p[-1].out);
    float *mean = at(b, p->stats), *slope = at(b, p->slope), *back = at(b, p->back),
          *scratch = (float *)at(b, p->back_scratch) + (size_t)thread * 4 * width;
    const bool add = n[-1].layer.kind == TUTTI_LAYER_BRANCH;

    for (size_t k = first; k < first + count; k++) {
        const size_t row = k * NN_ROWS, some = rows_of_part(rows, k), place_of = row * width;
        float *sums = loop->sums + k * 2 * width;
        if (n->layer.kind == TUTTI_LAYER_LAYER_NORM)
            b->math->layer_norm_back(
                &(nn_norm){ some, width, value(b, loop->i, 0), NULL, 0 }, x + place_of,
                &(nn_row_statistics){ mean + row, mean + rows + row }, slope + place_of,
                &(nn_norm_slopes){ back + place_of, add, sums, sums + width, false }, scratch);
        else
            b->math->rms_norm_back(&(nn_norm){ some, width, value(b, loop->i, 0), NULL, 0 },
                                   x + place_of, mean + row, slope + place_of,
                                   &(nn_norm_slopes){ back + place_of, add, sums, NULL, false },
                                   scratch);
    }
}

static void norm_back(sequence *b, int i)
{
    const size_t width = (size_t)b->net->nodes[i].out, rows = rows_of(b, i);
    loop_args loop = { .b = b, .i = i, .sums = at(b, b->layout->place[i].parts) };

    run_parallel(b, tutti_nn_dn_partials(rows), NN_ROWS * width, norm_part, &loop);
    tutti_nn_dn_add_partials(b->loops, rows, 2 * width, loop.sums);
    for (int k = 0; k < b->net->nodes[i].params; k++)
        store_sum(b, width, loop.sums + (size_t)k * width, gradient(b, i, k));
}

static void back_part(void *arg, size_t first, size_t count, int thread)
{
    const loop_args *loop = arg;
    const sequence *b = loop->b;
    const int i = loop->i;
    const nn_node *n = &b->net->nodes[i];
    const seq_place *p = &b->layout->place[i];
    const size_t width = (size_t)n->out, at_row = first * width;
    float *const slope = at(b, p->slope), *const back = at(b, p->back),
                 *const in = at(b, p[-1].out);

    switch (n->layer.kind) {
    case TUTTI_LAYER_RELU:
        if (back != slope)
            memcpy(back + at_row, slope + at_row, count * width * sizeof *back);
        b->loops->mask(count * width, (float *)at(b, p->out) + at_row, back + at_row);
        break;
    case TUTTI_LAYER_GELU:
        b->math->gelu_back(count * width, in + at_row, slope + at_row, back + at_row);
        break;
    case TUTTI_LAYER_BRANCH:
        b->math->sum(count * width, back + at_row, slope + at_row, back + at_row);
        break;
    case TUTTI_LAYER_ROTARY:
        tutti_nn_seq_rotate(b, i, first, count, true, back);
        break;
    case TUTTI_LAYER_DROPOUT: tutti_nn_seq_drop(b, i, first, count, slope, back); break;
    case TUTTI_LAYER_ATTENTION: {
        const nn_attention a = attention_of(b, i, b->windows);
        b->math->attention_back(
            &a, first, count,
            &(nn_attention_values){ in, in + width, in + 2 * width, at(b, p->out),
                                    at(b, p->stats) },
            &(nn_attention_slopes){ slope, back, back + width, back + 2 * width },
            (float *)at(b, p->back_scratch) + (size_t)thread * tutti_nn_attention_scratch(&a));
        break;
    }
    default: break;
    }
}

tutti_status tutti_nn_seq_weights(sequence *b, int i, tutti_error *err)
{
    const nn_node *n = &b->net->nodes[i];
    const seq_place *p = &b->layout->place[i];
    const size_t width = (size_t)n->out;
    loop_args loop = { .b = b, .i = i };

    b->core.scratch = at(b, p->back_scratch);
    switch (n->layer.kind) {
    case TUTTI_LAYER_TABLES:
        remove_values(b, i, at(b, p->slope));
        sum_table(b, i, at(b, p->slope));
        break;
    case TUTTI_LAYER_EMBEDDING:
        if (!b->net->tied) {
            sum_table(b, i, at(b, p->slope));
            break;
        }
        loop.columns = width; /* added to the head's gradient */
        loop.rows = at(b, p->slope);
        loop.sums = gradient(b, i, 0);
        run_parallel(b, width, rows_of(b, i), embedding_part, &loop);
        break;
    case TUTTI_LAYER_POSITIONS:
        b->math->positions_back((size_t)b->windows, (size_t)b->net->context * width,
                                at(b, p->slope), gradient(b, i, 0), b->run.add);
        break;
    case TUTTI_LAYER_LSTM: return lstm_weights(b, i, err);
    case TUTTI_LAYER_MEAN:
        mean_back(rows_of(b, i) * width, n[-1].length, at(b, p->slope), at(b, p->back));
        break;
    case TUTTI_LAYER_LAYER_NORM: case TUTTI_LAYER_RMS_NORM: norm_back(b, i); break;
    case TUTTI_LAYER_LINEAR:
        return i == head_index(b)
                   ? head_back(b, err)
                   : linear_weights(
                         b, i, &plan_of(b)->linear[i], width,
                         &(linear_slopes){ at(b, p->slope), gradient(b, i, 0), gradient(b, i, 1) },
                         err);
    case TUTTI_LAYER_FRAMES: break;
    case TUTTI_LAYER_LEAVE:
        memcpy(at(b, p->slope), b->run.slope, rows_of(b, i) * width * sizeof(float));
        break;
    case TUTTI_LAYER_JOIN:
        break; /* body and branch read its slope unchanged */
    case TUTTI_LAYER_BRANCH:
        if (is_norm(&n[1])) /* it has added the slope of its input to the stream's already */
            break;
        run_parallel(b, items_of(b, i), values_of(b, i), back_part, &loop);
        break;
    default: run_parallel(b, items_of(b, i), values_of(b, i), back_part, &loop);
    }
    return TUTTI_OK;
}

static tutti_status linear_data(sequence *b, int i, tutti_error *err)
{
    const seq_place *p = &b->layout->place[i];
    dn_linear *op = &plan_of(b)->linear[i];
    void *const pointers[] = { operand_of(b, i, p->given), (void *)value(b, i, 0), at(b, p->back) };

    b->core.scratch = at(b, p->back_scratch);
    return tutti_nn_dn_op_run(&b->core, nn_last_tile(&b->net->nodes[i]) ? &op->data : &op->data_add,
                              pointers, err);
}

static tutti_status lstm_data(sequence *b, int i, tutti_error *err)
{
    const seq_place *p = &b->layout->place[i];
    dn_lstm_run r = lstm_run(b, i);

    r.scratch = at(b, p->back_scratch);
    r.back = at(b, p->back);
    return tutti_nn_dn_lstm_data(&b->core, &plan_of(b)->lstm[b->net->nodes[i].lstm], &r, err);
}

tutti_status tutti_nn_seq_data(sequence *b, int i, tutti_error *err)
{
    if (is_linear(b, i) && i != head_index(b))
        return linear_data(b, i, err);
    /* other layers have computed it along with the weights */
    return b->net->nodes[i].layer.kind == TUTTI_LAYER_LSTM ? lstm_data(b, i, err) : TUTTI_OK;
}
