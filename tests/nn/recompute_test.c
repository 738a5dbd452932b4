/* Goal: a network that drops activations and computes them again has the bits of one that keeps
   them: losses, gradients, running statistics; it holds as much less memory as the formula
   states; it needs a segment's units before it computes them again, and charges for it. Method:
   each model with recompute=on compared with the same with off, over passes of one block and of
   several, precisions, threads, both backends; hooks that refuse what comes in another order, and
   memory that is void outside need and done. */
#include "subject.h"

/* model: a format with one %s, for on and off. */
static void check(const char *model, tutti_nn_task task, int64_t samples, tutti_nn_options options)
{
    char on[160], off[160], what[240];
    const int64_t some[] = { samples, 1, samples / 2 + 1, samples };

    snprintf(on, sizeof on, model, "on");
    snprintf(off, sizeof off, model, "off");
    subject s = subject_of(off, task, samples);
    options.batch = samples;
    side a = side_of(&s, off, &options), b = side_of(&s, on, &options);
    for (size_t i = 0; i < TUTTI_LENGTH(some); i++) {
        snprintf(what, sizeof what, "%s, %s, %lld samples", on, tutti_dtype_name(options.precision),
                 (long long)some[i]);
        tutti_nn_draw(a.nn, 5, 100 * i);
        tutti_nn_draw(b.nn, 5, 100 * i);
        run(&s, &a, some[i], i == 3, NULL);
        run(&s, &b, some[i], i == 3, NULL);
        same_bits(what, &s, &a, &b);
    }
    side_free(&s, &a);
    side_free(&s, &b);
    subject_free(&s);
}

static const char *const gpts[] = {
    "gpt(layers=3,dim=16,heads=2,recompute=%s)",
    "gpt(layers=1,dim=16,heads=2,recompute=%s)",
    "gpt(layers=3,dim=16,heads=2,dropout=0.1,tiles=3,recompute=%s)",
    "gpt(layers=2,dim=24,heads=2,dropout=0.2,recompute=%s)",
    "gpt(layers=3,dim=16,heads=2,dropout=0.1,norm=rms,positions=rotary,tied=on,recompute=%s)",
};

static void recomputed_token_networks_match_stored_ones_bitwise(void **state)
{
    const tutti_nn_task task = { .classes = 19, .context = 300 }; /* blocks of two windows */

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(gpts); i++)
        check(gpts[i], task, 5, (tutti_nn_options){ .threads = i == 0 ? 2 : 1 });
    for (size_t i = 0; i < TUTTI_LENGTH(gpts); i += TUTTI_LENGTH(gpts) - 1) {
        check(gpts[i], task, 2, (tutti_nn_options){ .precision = TUTTI_BF16 });
        check(gpts[i], task, 2, (tutti_nn_options){ .precision = TUTTI_F16 });
    }
}

static void recomputed_image_networks_match_stored_ones_bitwise(void **state)
{
    const tutti_nn_task task = { .channels = 1, .height = 12, .width = 12, .classes = 5 };

    (void)state;
    check("resnet(depth=8,recompute=%s)", task, 70, (tutti_nn_options){ .threads = 1 });
    check("resnet(depth=8,recompute=%s)", task, 3, (tutti_nn_options){ .precision = TUTTI_BF16 });
    check("resnet(depth=8,recompute=%s)", task, 2, (tutti_nn_options){ .backend = "reference" });
    check("vgg(recompute=%s)", task, 3, (tutti_nn_options){ .threads = 1 });
    check("cnn(recompute=%s)", task, 150, (tutti_nn_options){ .threads = 1 });
    check("cnn(recompute=%s)", (tutti_nn_task){ .channels = 1, .height = 28, .width = 28, .classes = 10 }, 64,
          (tutti_nn_options){ .threads = 1 });
    check("cnn(recompute=%s)", task, 13, (tutti_nn_options){ .precision = TUTTI_BF16 });
    check("cnn(recompute=%s)", task, 2, (tutti_nn_options){ .backend = "reference" });
    check("blstm(layers=3,hidden=6,recompute=%s)", task, 70, (tutti_nn_options){ .threads = 1 });
}

/* Lists that no model has. A product that ends a segment behind attention is not computed again,
   but in 16 bits its gradient wants what attention has given rounded. */
static void check_list(const tutti_layer *list, int count, tutti_nn_task task, tutti_dtype precision)
{
    enum { MOST = 24, SAMPLES = 3, VALUES = 4096 };
    static float values[MOST][VALUES], gradients[2][MOST][VALUES];
    const float *pointers[MOST];
    uint32_t tokens[SAMPLES * 8], next[SAMPLES * 8];
    int params = 0;
    double loss[2];

    for (size_t i = 0; i < TUTTI_LENGTH(tokens); i++) {
        tokens[i] = (uint32_t)(i * 5) % (uint32_t)task.classes;
        next[i] = (uint32_t)(i * 7) % (uint32_t)task.classes;
    }
    memset(gradients, 0, sizeof gradients);
    for (int on = 0; on < 2; on++) {
        tutti_layer layers[MOST];
        tutti_nn_param of[MOST];
        float *to[MOST];
        nn_net net;
        tutti_nn *nn;
        for (int i = 0; i < count; i++) {
            layers[i] = list[i];
            layers[i].segment = on && list[i].segment;
        }
        assert_int_equal(tutti_nn_net_build(&net, layers, count, &task, NULL), TUTTI_OK);
        params = tutti_nn_net_param_count(&net);
        tutti_nn_net_params(&net, of, MOST);
        for (int k = 0; k < params; k++) {
            assert_in_range(of[k].count, 1, VALUES);
            for (size_t i = 0; i < of[k].count; i++)
                values[k][i] = 0.3F * (float)tutti_normal((tutti_rng){ 3, (uint64_t)k, 0 }, i);
            pointers[k] = values[k];
            to[k] = gradients[on][k];
        }
        assert_int_equal(
            tutti_nn_open_net(&nn, &net, &(tutti_nn_options){ .batch = SAMPLES, .precision = precision }, NULL),
            TUTTI_OK);
        assert_int_equal(
            tutti_nn_pass_tokens(
                nn, &(tutti_nn_samples){ .count = SAMPLES, .tokens = tokens, .next = next },
                &(tutti_nn_step){ 1, false, false, pointers, to, NULL }, &loss[on], NULL),
            TUTTI_OK);
        tutti_nn_close(nn);
    }
    assert_true(loss[0] == loss[1]);
    for (int k = 0; k < params; k++)
        assert_memory_equal(gradients[0][k], gradients[1][k], sizeof gradients[0][k]);
}

static void segments_may_end_anywhere(void **state)
{
    static const tutti_dtype precisions[] = { TUTTI_F32, TUTTI_BF16, TUTTI_F16 };
    const tutti_nn_task text = { .classes = 9, .context = 8 };
    const tutti_layer embed = { .kind = TUTTI_LAYER_EMBEDDING, .out = 12 }, branch = { .kind = TUTTI_LAYER_BRANCH },
                      join = { .kind = TUTTI_LAYER_JOIN }, to36 = { .kind = TUTTI_LAYER_LINEAR, .out = 36 },
                      to12 = { .kind = TUTTI_LAYER_LINEAR, .out = 12 }, relu = { .kind = TUTTI_LAYER_RELU },
                      gelu = { .kind = TUTTI_LAYER_GELU }, head = { .kind = TUTTI_LAYER_LINEAR, .out = 9 },
                      attention = { .kind = TUTTI_LAYER_ATTENTION, .heads = 2 },
                      drop = { .kind = TUTTI_LAYER_DROPOUT, .rate = 0.25 },
                      norm = { .kind = TUTTI_LAYER_LAYER_NORM, .segment = true },
                      lstm = { .kind = TUTTI_LAYER_LSTM, .out = 12, .segment = true };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(precisions); k++) {
        check_list((tutti_layer[]){ embed, norm, to36, attention, to12, norm, head }, 7, text, precisions[k]);
        check_list((tutti_layer[]){ embed, branch, norm, to36, attention, to12, join, norm, head }, 9, text,
                   precisions[k]);
        check_list((tutti_layer[]){ embed, to36, attention, norm, to12, relu, norm, head }, 8, text, precisions[k]);
        check_list((tutti_layer[]){ embed, drop, branch, norm, to12, gelu, join, branch, norm, to12, relu, join, norm,
                                    head }, 14, text, precisions[k]);
        check_list((tutti_layer[]){ embed, lstm, drop, lstm, branch, lstm, join, norm, gelu, lstm, head }, 11, text,
                   precisions[k]);
        check_list((tutti_layer[]){ embed, to12, gelu, norm, norm, drop, norm, head }, 8, text, precisions[k]);
    }
}

/* ---- hooks ---- */
/* Memory in the network's hands has no valid contents except from need to done. */
typedef struct guard {
    const subject *s;
    side *d;
    float *kept[ROOM];
    char calls[1024];
} guard;

static void note(guard *g, char what, int unit, bool backward)
{
    const size_t at = strlen(g->calls);
    snprintf(g->calls + at, sizeof g->calls - at, "%c%d%s ", what, unit, backward ? "" : "f");
}

static tutti_status on_need(void *user, int unit, bool backward, tutti_error *err)
{
    guard *g = user;

    (void)err;
    note(g, 'n', unit, backward);
    for (int k = 0; k < g->s->count; k++)
        if (g->s->params[k].unit == unit)
            memcpy(g->d->values[k], g->kept[k], g->s->params[k].count * sizeof(float));
    return TUTTI_OK;
}

static tutti_status on_done(void *user, int unit, bool backward, tutti_error *err)
{
    guard *g = user;

    (void)err;
    note(g, 'd', unit, backward);
    for (int k = 0; k < g->s->count; k++)
        for (size_t i = 0; g->s->params[k].unit == unit && i < g->s->params[k].count; i++)
            g->d->values[k][i] = NAN;
    return TUTTI_OK;
}

static void check_hooks(const char *model, tutti_nn_task task, int64_t samples, const char *calls)
{
    char on[160], off[160];

    snprintf(on, sizeof on, model, "on");
    snprintf(off, sizeof off, model, "off");
    subject s = subject_of(off, task, samples);
    side a = side_of(&s, off, &(tutti_nn_options){ .batch = samples }),
         b = side_of(&s, on, &(tutti_nn_options){ .batch = samples });
    guard g = { .s = &s, .d = &b };
    const tutti_nn_hooks hooks = { .user = &g, .unit_acquire = on_need, .unit_release = on_done };
    for (int k = 0; k < s.count; k++) {
        g.kept[k] = calloc(s.params[k].count, sizeof(float));
        memcpy(g.kept[k], b.values[k], s.params[k].count * sizeof(float));
    }
    run(&s, &a, samples, false, NULL);
    run(&s, &b, samples, false, &hooks);
    same_bits(on, &s, &a, &b);
    assert_string_equal(strstr(g.calls, calls) != NULL ? calls : g.calls, calls);
    g.calls[0] = '\0';
    run(&s, &b, 0, false, &hooks); /* the same without any samples */
    assert_string_equal(strstr(g.calls, calls) != NULL ? calls : g.calls, calls);
    for (int k = 0; k < s.count; k++)
        free(g.kept[k]);
    side_free(&s, &a);
    side_free(&s, &b);
    subject_free(&s);
}

/* Units of a segment are needed, the first first, before it is computed again; the last of them,
   whose output is not, when its turn comes. Each is needed once. */
static void segment_units_are_acquired_before_recomputation(void **state)
{
    const tutti_nn_task task = { .classes = 19, .context = 300 };

    (void)state;
    /* e pe | l1 qkv o l2 f1 f2 | l1 qkv o l2 f1 f2 ln head */
    check_hooks("gpt(layers=2,dim=16,heads=2,recompute=%s)", task, 3,
                "n15 d15 n14 d14 n13 d13 n12 d12 n11 d11 n10 d10 n9 d9 n8 d8 "
                "n2 n3 n4 n5 n6 n7 d7 d6 d5 d4 d3 d2 n1 d1 n0 d0 ");
    check_hooks("gpt(layers=2,dim=16,heads=2,norm=rms,positions=rotary,tied=on,recompute=%s)", task, 3,
                "n0 n13 d13 n12 d12 n11 d11 n10 d10 n9 d9 n8 d8 n7 d7 n1 n2 n3 n4 n5 n6 d6 d5 d4 d3 d2 d1 d0 ");
}

/* ---- memory ---- */
static size_t bytes_of(const char *model, const char *recompute, const tutti_nn_task *task, int64_t batch)
{
    char text[160];
    tutti_nn *nn;
    size_t bytes;

    snprintf(text, sizeof text, model, recompute);
    assert_int_equal(tutti_nn_open(&nn, text, task, &(tutti_nn_options){ .batch = batch }, NULL), TUTTI_OK);
    bytes = tutti_nn_bytes(nn);
    tutti_nn_close(nn);
    return bytes;
}

/* gpt(L,256,4), 8 windows of 128: rows of 256 floats are 1 MiB. A block keeps 16 of them, and one
   if it is computed again; then the last keeps all. In addition there are slopes, statistics,
   logits. */
static void recomputed_blocks_store_only_their_inputs(void **state)
{
    const tutti_nn_task task = { .classes = 256, .context = 128 };
    const size_t unit = (size_t)1 << 20, off4 = bytes_of("gpt(4,256,4,recompute=%s)", "off", &task, 8),
                 off6 = bytes_of("gpt(6,256,4,recompute=%s)", "off", &task, 8),
                 on4 = bytes_of("gpt(4,256,4,recompute=%s)", "on", &task, 8),
                 on6 = bytes_of("gpt(6,256,4,recompute=%s)", "on", &task, 8);

    (void)state;
    assert_in_range(off6 - off4, 2 * 16 * unit, 2 * 16 * unit + unit / 4);
    assert_in_range(on6 - on4, 2 * unit, 2 * unit + unit / 4);
    assert_in_range(off4, 4 * 16 * unit, (4 * 16 + 10) * unit);
    assert_in_range(on4, (16 + 3) * unit, (16 + 3 + 10) * unit);
}

/* Of 64 images, the outputs of both convolutions behind their pooling, and the places of what was
   largest, a byte each. Kept is a tile of 8. Rows for the linear layers stay. */
static void recomputed_convolutions_store_one_tile_of_outputs(void **state)
{
    const tutti_nn_task task = { .channels = 1, .height = 28, .width = 28, .classes = 10 };
    const size_t image = (13 * 13 * 32 + 5 * 5 * 64) * 5, off = bytes_of("cnn(recompute=%s)", "off", &task, 64),
                 on = bytes_of("cnn(recompute=%s)", "on", &task, 64);

    (void)state;
    assert_in_range(off - on, (64 - 8) * image * 9 / 10, (64 - 8) * image * 11 / 10);
}

/* Depth 20 has two blocks a stage more than depth 8, of four maps each, and a stage's maps are half
   of those before. Kept are inputs of blocks: most of them in backward of the first stage, whose
   maps are largest, when those of later stages are gone. */
static void recomputed_residual_blocks_store_only_inputs(void **state)
{
    const tutti_nn_task task = { .channels = 3, .height = 32, .width = 32, .classes = 10 };
    const size_t map = 64 * 32 * 32 * 16 * sizeof(float), /* of the first stage */
        off = bytes_of("resnet(depth=20,recompute=%s)", "off", &task, 64) -
              bytes_of("resnet(depth=8,recompute=%s)", "off", &task, 64),
                 on = bytes_of("resnet(depth=20,recompute=%s)", "on", &task, 64) -
                      bytes_of("resnet(depth=8,recompute=%s)", "on", &task, 64);

    (void)state;
    assert_in_range(off, 13 * map, 14 * map + map / 4);
    assert_in_range(on, 2 * map, 2 * map + map / 4);
}

/* Recomputation is charged: for a block all products but the last. */
static void flops_include_recomputation(void **state)
{
    const tutti_nn_task task = { .classes = 256, .context = 128 };
    const double rows = 128, dim = 64, attention = 4 * rows * rows * dim / 2,
                 again = 2 * rows * dim * (3 * dim + dim + 4 * dim) + attention;
    double forward[2], backward[2];
    tutti_nn *nn;

    (void)state;
    for (int on = 0; on < 2; on++) {
        assert_int_equal(tutti_nn_open(&nn, on ? "gpt(3,64,4,recompute=on)" : "gpt(3,64,4)", &task,
                                       &(tutti_nn_options){ .batch = 1 }, NULL), TUTTI_OK);
        tutti_nn_flops(nn, &forward[on], &backward[on]);
        tutti_nn_close(nn);
    }
    assert_true(forward[0] == forward[1]);
    assert_true(backward[1] == backward[0] + 2 * again);
}

/* ---- lists ---- */
static void refused(const tutti_layer *layers, int count, tutti_nn_task task, const char *sentence)
{
    nn_net net;
    tutti_error err;

    assert_int_equal(tutti_nn_net_build(&net, layers, count, &task, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' without '%s'", err.text, sentence);
    tutti_nn_net_close(&net);
}

static void invalid_segment_starts_are_rejected(void **state)
{
    const tutti_nn_task text = { .classes = 9, .context = 4 },
                        images = { .channels = 1, .height = 8, .width = 8, .classes = 3 };
    const tutti_layer embed = { .kind = TUTTI_LAYER_EMBEDDING, .out = 6 }, branch = { .kind = TUTTI_LAYER_BRANCH },
                      join = { .kind = TUTTI_LAYER_JOIN }, to6 = { .kind = TUTTI_LAYER_LINEAR, .out = 6 },
                      head = { .kind = TUTTI_LAYER_LINEAR, .out = 9 }, three = { .kind = TUTTI_LAYER_LINEAR, .out = 3 },
                      norm = { .kind = TUTTI_LAYER_RMS_NORM, .segment = true },
                      conv = { .kind = TUTTI_LAYER_CONV2D, .out = 4, .kernel = 3, .padding = 1 },
                      batch = { .kind = TUTTI_LAYER_BATCH_NORM };
    tutti_layer linear = to6, second = conv, normed = batch,
                plain = { .kind = TUTTI_LAYER_CONV2D, .out = 4, .kernel = 3 },
                relu = { .kind = TUTTI_LAYER_RELU, .segment = true };

    (void)state;
    linear.segment = second.segment = normed.segment = true;
    refused((tutti_layer[]){ embed, branch, to6, norm, join, head }, 6, text, "within the branch of layer 1");
    refused((tutti_layer[]){ embed, linear, head }, 3, text, "layer 1 (linear) begins a segment; only a norm or an");
    refused((tutti_layer[]){ conv, branch, conv, second, join, three }, 6, images, "within the branch of layer 1");
    refused((tutti_layer[]){ conv, normed, three }, 3, images, "layer 1 (batch norm) begins a segment");
    refused((tutti_layer[]){ conv, batch, relu, three }, 4, images, "layer 2 (relu) begins a segment");
    refused((tutti_layer[]){ plain, relu, three }, 3, images, "layer 1 (relu) begins a segment");
    linear.out = 3;
    refused((tutti_layer[]){ to6, linear }, 2, images, "only the first linear layer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputed_token_networks_match_stored_ones_bitwise),
        cmocka_unit_test(recomputed_image_networks_match_stored_ones_bitwise),
        cmocka_unit_test(segments_may_end_anywhere),
        cmocka_unit_test(segment_units_are_acquired_before_recomputation),
        cmocka_unit_test(recomputed_blocks_store_only_their_inputs),
        cmocka_unit_test(recomputed_convolutions_store_one_tile_of_outputs),
        cmocka_unit_test(recomputed_residual_blocks_store_only_inputs),
        cmocka_unit_test(flops_include_recomputation),
        cmocka_unit_test(invalid_segment_starts_are_rejected),
    };
    return cmocka_run_group_tests_name("nn/recompute", tests, NULL, NULL);
}
