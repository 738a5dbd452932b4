/* Goal: networks of tokens keep every promise of nn.h that networks of images keep. Method: equal
   bits of blocks, evaluation runs and sums; the order of hooks; refusals; every allocation failing
   in turn. The formulas are in sequence_test.c. */
#include "allocations.h"
#include "kernels/device.h"
#include "sequence_examples.h"

/* ---- bits ---- */
static float **copy_gradients(const text *t)
{
    float **copy = calloc((size_t)t->count, sizeof *copy);

    for (int k = 0; k < t->count; k++) {
        copy[k] = calloc(t->net.sequence->params[k].count, sizeof(float));
        memcpy(copy[k], t->gradients[k], t->net.sequence->params[k].count * sizeof(float));
    }
    return copy;
}

static void free_gradients(const text *t, float **copy)
{
    for (int k = 0; k < t->count; k++)
        free(copy[k]);
    free(copy);
}

/* A context of 300 has blocks of two windows: seven windows are ((0 1)(2 3)) ((4 5)(6)). */
static void check_tree(const char *model)
{
    nn_net net = gpt_net(model, 300, 11);
    tutti_nn *nn = open_net(&net, NULL, 7);
    text t = text_of(&net, 7, 3);
    float **part[4], **first = NULL;
    double sum = 0;

    for (int add = 0; add < 2; add++) {
        double loss = pass(nn, &t, 7, add, NULL);
        if (add == 0)
            first = copy_gradients(&t);
        for (int b = 0; b < 4 && add == 0; b++) {
            text some = t;
            double one;
            some.tokens += b * 600;
            some.next += b * 600;
            assert_int_equal(tutti_nn_pass_tokens(nn,
                                                  &(tutti_nn_samples){ .count = b < 3 ? 2 : 1,
                                                                       .tokens = some.tokens,
                                                                       .next = some.next },
                                                  &(tutti_nn_step){ 7, false, false,
                                                                    (const float *const *)t.values,
                                                                    t.gradients, NULL },
                                                  &one, NULL),
                             TUTTI_OK);
            part[b] = copy_gradients(&t);
            sum += one;
        }
        assert_true(loss == sum);
        for (int k = 0; k < t.count; k++)
            for (size_t i = 0; i < net.sequence->params[k].count; i++) {
                const float tree = (part[0][k][i] + part[1][k][i]) + (part[2][k][i] + part[3][k][i]);
                if (add == 0 && first[k][i] != tree)
                    fail_msg("%s[%zu]: %.9g, not %.9g", net.sequence->params[k].name, i, (double)first[k][i],
                             (double)tree);
                if (add == 1 && t.gradients[k][i] != part[3][k][i] + tree) /* on what the last block left */
                    fail_msg("added, %s[%zu]: %.9g", net.sequence->params[k].name, i, (double)t.gradients[k][i]);
            }
    }
    for (int b = 0; b < 4; b++)
        free_gradients(&t, part[b]);
    free_gradients(&t, first);
    tutti_nn_close(nn);
    text_free(&t);
}

static void a_pass_is_bitwise_the_tree_sum_of_blocks(void **state)
{
    (void)state;
    check_tree("gpt(layers=1,dim=8,heads=2)");
    check_tree("gpt(layers=1,dim=8,heads=2,tied=on)");
}

/* Masks belong to samples: not to the pass, the block or the place in them. And a network whose
   rate is 0 has the bits of one without dropout. */
static void dropped_values_depend_on_the_sample_alone(void **state)
{
    nn_net net = gpt_net("gpt(layers=1,dim=8,heads=2,dropout=0.3)", 300, 11),
           plain = gpt_net("gpt(layers=1,dim=8,heads=2)", 300, 11);
    tutti_nn *nn = open_net(&net, NULL, 4), *kept = open_net(&plain, NULL, 4);
    text t = text_of(&net, 4, 3);
    double all, other, one, sum = 0, whole, again;
    float **once, **half = NULL;
    int64_t correct;

    (void)state;
    tutti_nn_draw(nn, 7, 100);
    all = pass(nn, &t, 4, false, NULL);
    once = copy_gradients(&t);
    assert_true(pass(nn, &t, 4, false, NULL) == all);
    tutti_nn_draw(nn, 7, 101);
    other = pass(nn, &t, 4, false, NULL);
    assert_true(other != all);
    tutti_nn_draw(nn, 8, 100);
    assert_true(pass(nn, &t, 4, false, NULL) != all);
    for (uint64_t b = 0; b < 2; b++) {
        text some = t;
        some.tokens += b * 600;
        some.next += b * 600;
        tutti_nn_draw(nn, 7, 100 + 2 * b);
        assert_int_equal(
            tutti_nn_pass_tokens(
                nn, &(tutti_nn_samples){ .count = 2, .tokens = some.tokens, .next = some.next },
                &(tutti_nn_step){ 4, false, false, (const float *const *)t.values, t.gradients,
                                  NULL },
                &one, NULL),
            TUTTI_OK);
        sum += one;
        if (b == 0)
            half = copy_gradients(&t);
    }
    assert_true(sum == all);
    for (int k = 0; k < t.count; k++)
        for (size_t i = 0; i < net.sequence->params[k].count; i++)
            assert_true(once[k][i] == half[k][i] + t.gradients[k][i]);
    assert_int_equal(tutti_nn_evaluate_tokens(
                         nn, &(tutti_nn_samples){ .count = 4, .tokens = t.tokens, .next = t.next },
                         (const float *const *)t.values, &whole, &correct, NULL),
                     TUTTI_OK);
    assert_int_equal(tutti_nn_evaluate_tokens(
                         kept,
                         &(tutti_nn_samples){ .count = 4, .tokens = t.tokens, .next = t.next },
                         (const float *const *)t.values, &again, &correct, NULL),
                     TUTTI_OK);
    assert_true(whole == again);
    free_gradients(&t, once);
    free_gradients(&t, half);
    tutti_nn_close(kept);
    tutti_nn_close(nn);
    text_free(&t);
}

/* Within a block a pass that adds need not round as an addition of the finished gradient
   would, but agrees to its last digits. */
static void adding_passes_accumulate_gradients(void **state)
{
    nn_net net = gpt_net("gpt(layers=2,dim=12,heads=3,dropout=0.1,norm=rms,positions=rotary,tied=on)", 9, 4500);
    tutti_nn *nn = open_net(&net, NULL, 4);
    text t = text_of(&net, 4, 8);
    float **once;

    (void)state;
    pass(nn, &t, 4, false, NULL);
    once = copy_gradients(&t);
    pass(nn, &t, 4, true, NULL);
    for (int k = 0; k < t.count; k++) {
        double most = 0;
        for (size_t i = 0; i < net.sequence->params[k].count; i++)
            most = fmax(most, fabs((double)once[k][i]));
        for (size_t i = 0; i < net.sequence->params[k].count; i++)
            assert_true(fabs((double)t.gradients[k][i] - 2 * (double)once[k][i]) <= 1e-5 * most);
    }
    pass(nn, &t, 4, false, NULL);
    for (int k = 0; k < t.count; k++)
        assert_memory_equal(t.gradients[k], once[k], net.sequence->params[k].count * sizeof(float));
    free_gradients(&t, once);
    tutti_nn_close(nn);
    text_free(&t);
}

static void window_losses_do_not_depend_on_evaluation_batch_size(void **state)
{
    static const int contexts[] = { 1, 5, 16, 100 };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(contexts); c++) {
        nn_net net = gpt_net("gpt(layers=1,dim=24,heads=2)", contexts[c], 31);
        tutti_nn *nn = open_net(&net, NULL, 3);
        text t = text_of(&net, 40, 3);
        const size_t context = (size_t)contexts[c];
        double all, sum = 0, one;
        int64_t correct, hits = 0, some;

        assert_int_equal(tutti_nn_evaluate_tokens(
                             nn,
                             &(tutti_nn_samples){ .count = 40, .tokens = t.tokens, .next = t.next },
                             (const float *const *)t.values, &all, &correct, NULL),
                         TUTTI_OK);
        for (size_t w = 0; w < 40; w++) {
            double again;
            assert_int_equal(
                tutti_nn_evaluate_tokens(nn,
                                         &(tutti_nn_samples){ .count = 1,
                                                              .tokens = t.tokens + w * context,
                                                              .next = t.next + w * context },
                                         (const float *const *)t.values, &one, &some, NULL),
                TUTTI_OK);
            sum += one;
            hits += some;
            if (w < 39) {
                assert_int_equal(
                    tutti_nn_evaluate_tokens(nn,
                                             &(tutti_nn_samples){ .count = 2,
                                                                  .tokens = t.tokens + w * context,
                                                                  .next = t.next + w * context },
                                             (const float *const *)t.values, &again, &some, NULL),
                    TUTTI_OK);
                assert_int_equal(tutti_nn_evaluate_tokens(
                                     nn,
                                     &(tutti_nn_samples){ .count = 1,
                                                          .tokens = t.tokens + (w + 1) * context,
                                                          .next = t.next + (w + 1) * context },
                                     (const float *const *)t.values, &all, &some, NULL),
                                 TUTTI_OK);
                assert_true(fabs(again - (one + all)) <= 1e-13 * again); /* two sums in double */
            }
        }
        assert_int_equal(tutti_nn_evaluate_tokens(
                             nn,
                             &(tutti_nn_samples){ .count = 40, .tokens = t.tokens, .next = t.next },
                             (const float *const *)t.values, &all, &correct, NULL),
                         TUTTI_OK);
        assert_true(fabs(all - sum) <= 1e-12 * all);
        assert_int_equal(correct, hits);
        tutti_nn_close(nn);
        text_free(&t);
    }
}

/* ---- hooks ---- */
typedef struct calls { char text[1024]; } calls;

static tutti_status note(calls *c, char what, int unit, bool backward)
{
    const size_t at = strlen(c->text);
    snprintf(c->text + at, sizeof c->text - at, "%c%d%c ", what, unit, backward ? 'b' : 'f');
    return TUTTI_OK;
}
static tutti_status on_need(void *user, int unit, bool backward, tutti_error *err)
{
    (void)err;
    return note(user, 'n', unit, backward);
}
static tutti_status on_done(void *user, int unit, bool backward, tutti_error *err)
{
    (void)err;
    return note(user, 'd', unit, backward);
}
static tutti_status on_ready(void *user, int param, tutti_error *err)
{
    (void)err;
    return note(user, 'r', param, true);
}

/* A tied matrix stays needed from the embedding to the head, and is
   announced once, with the embedding. */
static void hooks_come_in_one_order_whatever_the_number_of_samples(void **state)
{
    const tutti_layer apart[] = { embed, positions, norm, head }, together[] = { embed, positions, norm, tied };
    static const char *const orders[] = {
        "n0f d0f n1f d1f n2f d2f n3f d3f n3b r0b d3b n2b r1b r2b d2b n1b r3b d1b n0b r4b d0b ",
        "n0f n1f d1f n2f d2f d0f n0b n2b r0b r1b d2b n1b r2b d1b r3b d0b "
    };

    (void)state;
    for (int64_t which = 0; which < 8; which++) {
        const int64_t n = which / 2;
        const char *const expected = orders[which % 2];
        nn_net net = build(which % 2 == 0 ? apart : together, 4, 4, 9);
        tutti_nn *nn = open_net(&net, NULL, 3);
        text t = text_of(&net, 3, 1);
        calls c = { "" };
        const tutti_nn_hooks hooks = { &c, on_need, on_done, on_ready };
        pass(nn, &t, n, false, &hooks);
        assert_string_equal(c.text, expected);
        if (n == 0)
            for (int k = 0; k < t.count; k++)
                for (size_t i = 0; i < net.sequence->params[k].count; i++)
                    assert_true(t.gradients[k][i] == 0);
        tutti_nn_close(nn);
        text_free(&t);
    }
}

/* ---- refusals ---- */
static void refused_list(const tutti_layer *layers, int count, tutti_nn_task task, const char *sentence)
{
    tutti_error err = { 0 };
    nn_net net;

    assert_int_equal(tutti_nn_net_build(&net, layers, count, &task, &err), TUTTI_ERR_USAGE);
    assert_null(net.sequence);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not contain '%s'", err.text, sentence);
}

static void lists_that_make_no_network_of_tokens_are_refused(void **state)
{
    const tutti_nn_task task = { .classes = 9, .context = 4 };
    const tutti_layer twice[] = { embed, embed, head }, late[] = { embed, norm, positions, head },
                      open[] = { embed, branch, norm, head }, shut[] = { embed, join, head },
                      idle[] = { embed, branch, norm, join, head }, unequal[] = { embed, branch, to11, join, head },
                      heads[] = { embed, to11, attention, head },
                      three[] = { embed, { .kind = TUTTI_LAYER_LINEAR, .out = 12 }, attention, head },
                      none[] = { embed, { .kind = TUTTI_LAYER_ATTENTION }, head }, end[] = { embed, head, gelu },
                      narrow[] = { embed, to6 }, relu[] = { embed, { .kind = TUTTI_LAYER_RELU }, head },
                      zero[] = { { .kind = TUTTI_LAYER_EMBEDDING }, head },
                      wide[] = { embed, { .kind = TUTTI_LAYER_LINEAR, .out = 1 << 21 }, head },
                      joined[] = { embed, branch, to6, branch, to6, join, join, head },
                      images[] = { LINEAR(4), gelu, LINEAR(9) }, fine[] = { embed, head };

    (void)state;
    refused_list(twice, 3, task,
                 "layer 1 (embedding): a network of tokens begins with an embedding and has no other, one of frames "
                 "with frames");
    refused_list(late, 4, task, "layer 2 (positions) must follow the embedding");
    refused_list(open, 4, task, "layer 1 (branch) is never joined");
    refused_list(shut, 3, task, "layer 1 (join) has no branch to join");
    refused_list(idle, 5, task, "layer 3 (join): its branch, layer 1, has no linear or lstm layer");
    refused_list(unequal, 5, task, "layer 3 (join): rows of 11 values cannot be added to the 6 of its branch, layer 1");
    refused_list(heads, 4, task, "layer 2 (attention) of 3 heads on rows of 11 values");
    refused_list(three, 4, task, "layer 2 (attention) of 3 heads on rows of 12 values");
    refused_list(none, 3, task, "layer 1 (attention) of 0 heads on rows of 6 values");
    refused_list(end, 3, task, "as many outputs as there are tokens (9); this one ends in gelu with 9");
    refused_list(narrow, 2, task, "ends in linear with 6");
    refused_list(relu, 3, task, "layer 1 (relu) must follow a linear layer");
    refused_list(zero, 2, task, "layer 0 (embedding) has a matrix of 9 x 0");
    refused_list(wide, 3, task, "layer 1 (linear) has a matrix of 2097152 x 6");
    refused_list(joined, 8, task, "layer 6 (join) directly follows another; put a layer between");
    refused_list(fine, 2, (tutti_nn_task){ .classes = 9, .context = 65537 },
                 "a task of windows of 65537 tokens out of 9: windows must have from 1 to 65536");
    refused_list(fine, 2, (tutti_nn_task){ .classes = 1, .context = 3 }, "windows of 3 tokens out of 1");
    refused_list(images, 3, (tutti_nn_task){ 1, 4, 4, 9, 0 },
                 "layer 1 (gelu) works on tokens or frames; a network of tokens begins with an embedding");
}

static void misplaced_layers_are_rejected(void **state)
{
    const tutti_nn_task task = { .classes = 9, .context = 4 };
    const tutti_layer alone[] = { embed, to18, rotary3, head }, others[] = { embed, to18, rotary3, attention1, head },
                      odd[] = { embed, { .kind = TUTTI_LAYER_LINEAR, .out = 27 }, rotary3, attention, head },
                      normed[] = { embed, norm, rotary3, attention, head }, last[] = { embed, to18, rotary3 },
                      certain[] = { embed, { .kind = TUTTI_LAYER_DROPOUT, .rate = 1 }, head },
                      never[] = { embed, { .kind = TUTTI_LAYER_DROPOUT, .rate = -0.1 }, head },
                      wide[] = { embed, to11, tied },
                      early[] = { embed, { .kind = TUTTI_LAYER_LINEAR, .out = 6, .bare = true, .tied = true }, head },
                      biased_tie[] = { embed, { .kind = TUTTI_LAYER_LINEAR, .out = 9, .tied = true } },
                      images[] = { LINEAR(4), drop, LINEAR(9) },
                      short_of[] = { embed, TILE(0, 3, 2), TILE(1, 3, 2), head },
                      second[] = { embed, TILE(1, 2, 2), head }, beyond[] = { embed, to6, to6, TILE(2, 2, 2), head },
                      ended[] = { embed, to6, TILE(0, 2, 5), TILE(1, 2, 4) },
                      masked[] = { embed, TILE(0, 2, 5), TILE(1, 2, 4), { .kind = TUTTI_LAYER_RELU }, head };

    (void)state;
    refused_list(alone, 4, task,
                 "layer 2 (rotary) of 3 heads must stand between a linear layer and an attention of as many heads");
    refused_list(others, 5, task, "layer 2 (rotary) of 3 heads must stand between");
    refused_list(normed, 5, task, "layer 2 (rotary) of 3 heads must stand between");
    refused_list(last, 3, task, "layer 2 (rotary) of 3 heads must stand between");
    refused_list(odd, 5, task, "layer 2 (rotary) of 3 heads on rows of 27 values: heads must be of an even width");
    refused_list(certain, 3, task, "layer 1 (dropout) has the rate 1; it must be from 0 to below 1");
    refused_list(never, 3, task, "layer 1 (dropout) has the rate -0.1");
    refused_list(wide, 3, task,
                 "layer 2 (linear) is tied to the embedding's matrix of 9 x 6: it must be the last layer, have no "
                 "bias, and its rows of 11 values must be as wide");
    refused_list(early, 3, task, "layer 1 (linear) is tied to the embedding's matrix");
    refused_list(short_of, 4, task,
                 "layer 2 (linear) is tile 1 of 3: tiles stand one after another, from 0 to the last");
    refused_list(second, 3, task, "layer 1 (linear) is tile 1 of 2: tiles stand one after another");
    refused_list(beyond, 5, task, "layer 3 (linear) is tile 2 of 2: tiles stand one after another");
    refused_list(ended, 4, task, "layer 3 (linear) is tile 1 of 2: the last layer cannot be in tiles");
    refused_list(masked, 5, task, "layer 2 (linear) is tile 1 of 2: a layer with a relu behind it cannot be in tiles");
    refused_list(biased_tie, 2, task, "layer 1 (linear) is tied to the embedding's matrix");
    refused_list(images, 3, (tutti_nn_task){ 1, 4, 4, 9, 0 }, "layer 1 (dropout) works on tokens");
}

static void refused_model(const char *model, tutti_nn_task task, const char *sentence)
{
    tutti_error err = { 0 };
    int count = 9;

    assert_int_equal(tutti_nn_params(model, &task, NULL, 0, &count, &err), TUTTI_ERR_USAGE);
    assert_int_equal(count, 0);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' does not contain '%s'", err.text, sentence);
}

static void mismatched_models_and_tasks_are_rejected_with_a_message(void **state)
{
    const tutti_nn_task windows = { .classes = 256, .context = 128 };

    (void)state;
    refused_model("gpt", (tutti_nn_task){ 1, 28, 28, 10, 0 },
                  "gpt needs windows of tokens; this task has samples of 1 x 28 x 28 values");
    refused_model("gpt(dim=10,heads=3)", windows, "gpt with dim=10 and heads=3: dim must be a multiple of heads");
    refused_model("gpt(dim=6,heads=2,positions=rotary)", windows,
                  "rotary positions turn pairs, so heads must be of an even width, not 3");
    refused_model("gpt(dropout=1)", windows, "dropout");
    refused_model("gpt(norm=batch)", windows, "norm");
    refused_model("gpt(context=64)", windows,
                  "gpt with context=64 on windows of 128 tokens; give both the same context, the data as "
                  "--data 'text(file=F,context=64)'");
    refused_model("gpt(vocab=300)", windows, "gpt with vocab=300 on data of 256 different tokens");
    refused_model("gpt(layers=0)", windows, "layers");
    refused_model("gpt(dim=8,heads=2,tiles=9)", windows,
                  "gpt with tiles=9 and dim=8: a tile has one output at least, so tiles must be 8 or fewer");
    assert_true(tutti_nn_takes_tokens("gpt(2,8,2)"));
    assert_false(tutti_nn_takes_tokens("mlp"));
    assert_false(tutti_nn_takes_tokens("gtp"));
    assert_false(tutti_nn_takes_tokens("gpt("));
    refused_model(
        "mlp", windows,
        "this network takes images or vectors, and the task has windows of 128 tokens; gpt and wordlm take tokens");
}

static void invalid_passes_are_rejected_with_a_message(void **state)
{
    nn_net net = gpt_net("gpt(layers=1,dim=4,heads=1)", 4, 5);
    const nn_net mlp = net_of("mlp(hidden=3)", 1, 2, 2, 3);
    tutti_nn *nn = open_net(&net, NULL, 2), *images = open_net(&mlp, NULL, 2);
    text t = text_of(&net, 2, 1);
    const float *const *values = (const float *const *)t.values;
    tutti_error err = { 0 };
    int64_t correct;
    double loss;

    (void)state;
    t.tokens[6] = 5;
    assert_int_equal(tutti_nn_pass_tokens(
                         nn, &(tutti_nn_samples){ .count = 2, .tokens = t.tokens, .next = t.next },
                         &(tutti_nn_step){ 2, false, false, values, t.gradients, NULL }, &loss,
                         &err),
                     TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "the token of place 2 of sample 1 is 5; the vocabulary is 0 to 4");
    t.tokens[6] = 0;
    t.next[1] = UINT32_MAX;
    assert_int_equal(tutti_nn_evaluate_tokens(
                         nn, &(tutti_nn_samples){ .count = 2, .tokens = t.tokens, .next = t.next },
                         values, &loss, &correct, &err),
                     TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "the label of place 1 of sample 0 is 4294967295; the vocabulary is 0 to 4");
    t.next[1] = 0;
    assert_int_equal(tutti_nn_pass_tokens(
                         nn, &(tutti_nn_samples){ .count = 3, .tokens = t.tokens, .next = t.next },
                         &(tutti_nn_step){ 2, false, false, values, t.gradients, NULL }, &loss,
                         &err),
                     TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a pass of 3 samples; the network was opened for 0 to 2");
    assert_int_equal(tutti_nn_pass(nn, &(tutti_nn_samples){ .count = 0 },
                                   &(tutti_nn_step){ 1, false, false, values, t.gradients, NULL },
                                   &loss, &err),
                     TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a pass of images or vectors through a network that takes tokens");
    assert_int_equal(
        tutti_nn_evaluate(nn, &(tutti_nn_samples){ .count = 0 }, values, &loss, &correct, &err),
        TUTTI_ERR_USAGE);
    assert_int_equal(
        tutti_nn_pass_tokens(
            images, &(tutti_nn_samples){ .count = 0, .tokens = t.tokens, .next = t.next },
            &(tutti_nn_step){ 1, false, false, values, t.gradients, NULL }, &loss, &err),
        TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a pass of tokens through a network that takes images or vectors");
    tutti_nn_close(images);
    images = NULL;
    assert_int_equal(tutti_nn_open(&images, "gpt", &(tutti_nn_task){ .classes = 5, .context = 4 },
                                   &(tutti_nn_options){ .backend = "reference", .batch = 1 }, &err),
                     TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "the backend 'reference' has no layers for tokens or frames; use onednn");
    assert_null(images);
    pass(nn, &t, 2, false, NULL);
    tutti_nn_close(nn);
    text_free(&t);
}

/* ---- memory that runs out ---- */
static void failed_allocations_are_errors_and_later_calls_succeed(void **state)
{
    const tutti_nn_task task = { .classes = 7, .context = 300 };
    nn_net net = gpt_net("gpt(layers=1,dim=8,heads=2,dropout=0.1,positions=rotary)", 300, 7);
    text t = text_of(&net, 5, 1);
    const float *const *values = (const float *const *)t.values;
    tutti_status status = TUTTI_ERR_MEMORY;
    tutti_error err = { 0 };
    tutti_nn *nn = NULL, *fresh;
    int64_t correct;
    double loss, again;
    int n;

    (void)state;
    for (n = 0; status != TUTTI_OK; n++) {
        allocations_left = n;
        status = tutti_nn_open(&nn, "gpt(layers=1,dim=8,heads=2,dropout=0.1,positions=rotary)", &task,
                               &(tutti_nn_options){ .batch = 5 }, &err);
        allocations_left = -1;
        assert_true(status == TUTTI_OK ? nn != NULL : nn == NULL);
        if (status != TUTTI_OK)
            assert_int_equal(status, TUTTI_ERR_MEMORY);
    }
    assert_true(n > 12);
    for (n = 0, status = TUTTI_ERR_MEMORY; status != TUTTI_OK; n++) {
        allocations_left = n;
        status = tutti_nn_evaluate_tokens(
            nn, &(tutti_nn_samples){ .count = 5, .tokens = t.tokens, .next = t.next }, values,
            &loss, &correct, NULL);
        allocations_left = -1;
        assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
    }
    for (n = 0, status = TUTTI_ERR_MEMORY; status != TUTTI_OK; n++) {
        allocations_left = n;
        status = tutti_nn_pass_tokens(
            nn, &(tutti_nn_samples){ .count = 1, .tokens = t.tokens, .next = t.next },
            &(tutti_nn_step){ 1, false, false, values, t.gradients, NULL }, &loss, NULL);
        allocations_left = -1;
        assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
    }
    loss = pass(nn, &t, 5, false, NULL);
    allocations_left = 0; /* of sizes known by now */
    assert_true(pass(nn, &t, 5, false, NULL) == loss);
    pass(nn, &t, 1, true, NULL);
    allocations_left = -1;
    fresh = open_net(&net, NULL, 5);
    again = pass(fresh, &t, 5, false, NULL);
    assert_true(again == loss);
    assert_int_equal(tutti_nn_bytes(nn), tutti_nn_bytes(fresh)); /* what the evaluation took was given back */
    tutti_nn_close(fresh);
    tutti_nn_close(nn);
    text_free(&t);
}

/* gpt(4,256,4,128), 8 windows: outputs kept for backward are 16 values a dim, row and block, 16 MiB
   each; slopes, logits and the ends share. */
static void memory_stays_within_what_is_kept_for_backward(void **state)
{
    nn_net net = gpt_net("gpt(4,256,4,128)", 128, 256);
    tutti_nn *nn = open_net(&net, NULL, 8);

    (void)state;
    assert_in_range(tutti_nn_bytes(nn), 60 << 20, 80 << 20);
    tutti_nn_close(nn);
}

static void describe_lists_matrix_products_without_reference_kernels(void **state)
{
    nn_net net = gpt_net("gpt(layers=1,dim=64,heads=2)", 16, 96);
    tutti_nn *nn = open_net(&net, NULL, 8);
    char lines[8192];
    const int n = tutti_nn_describe(nn, lines, sizeof lines);

    (void)state;
    assert_int_equal(n, strlen(lines));
    assert_null(strstr(lines, ": ref"));
    assert_non_null(strstr(lines, "linear 4 forward: "));
    assert_non_null(strstr(lines, "linear 15 data: "));
    tutti_nn_close(nn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_is_bitwise_the_tree_sum_of_blocks),
        cmocka_unit_test(dropped_values_depend_on_the_sample_alone),
        cmocka_unit_test(adding_passes_accumulate_gradients),
        cmocka_unit_test(window_losses_do_not_depend_on_evaluation_batch_size),
        cmocka_unit_test(hooks_come_in_one_order_whatever_the_number_of_samples),
        cmocka_unit_test(lists_that_make_no_network_of_tokens_are_refused),
        cmocka_unit_test(misplaced_layers_are_rejected),
        cmocka_unit_test(mismatched_models_and_tasks_are_rejected_with_a_message),
        cmocka_unit_test(invalid_passes_are_rejected_with_a_message),
        cmocka_unit_test(failed_allocations_are_errors_and_later_calls_succeed),
        cmocka_unit_test(memory_stays_within_what_is_kept_for_backward),
        cmocka_unit_test(describe_lists_matrix_products_without_reference_kernels),
    };
    return cmocka_run_group_tests_name("nn/sequence_promises", tests, NULL, NULL);
}
