/* Goal: pieces may be cut anywhere. Cutting them, and cutting them again differently, changes
   no bit of what is trained, whatever the number of workers, lanes, passes and tables; a
   number that is not finite is found where it is; and what needs whole tensors refuses to be
   cut. Method: pieces.h. The reference is the same method with pieces that end between
   tensors, which is ddp. */
#include "pieces_job.h"

/* n workers under ddp. */
static job *ddp(const job *like, int n)
{
    job *j = job_like(like, "cut(inside=no)");

    job_run(j, "shm", n);
    return j;
}

/* Those of that method are as these. */
static void same(const job *a, const char *method, int n)
{
    job *b = job_like(a, method);

    job_run(b, "shm", n);
    job_same(a, b, n, 0);
    assert_int_equal(a->figures[0].skipped, b->figures[0].skipped);
    drop(b);
}

static void same_as_ddp(const job *like, const char *method, int n)
{
    job *a = ddp(like, n);

    same(a, method, n);
    drop(a);
}

static void any_cut_trains_the_same_bits(void **state)
{
    static const char *const cuts[] = {
        "cut(bytes=64)",
        "cut(bytes=65)",
        "cut(bytes=192,first=64)",
        "cut(bytes=1000)",
        "cut(bytes=4096,first=100)",
        "cut(bytes=2048,close=1)",
        "cut(bytes=2048,close=300)",
        "cut(bytes=1000000)",
        "cut(bytes=512,width=3,order=led,forward=yes)",
        "cut(bytes=512,order=led,credit=600)",
    };
    job *j = job_of("", "sgd(lr=0.1,momentum=0.9)");

    (void)state;
    for (int n = 1; n <= RANKS; n++) {
        job *a = ddp(j, n);
        for (size_t c = 0; c < TUTTI_LENGTH(cuts); c++)
            same(a, cuts[c], n);
        drop(a);
    }
    drop(j);
}

static void clipping_loss_scales_passes_and_skips_match_ddp(void **state)
{
    job *j = job_of("", "adamw(lr=0.01)");

    (void)state;
    j->options.clip_norm = 1;
    j->options.accumulate = 2;
    j->options.loss_scale = "static(scale=1024)";
    j->bad_rank = 1, j->bad_tensor = 3, j->bad_step = 2, j->bad_element = 777;
    for (int n = 2; n <= 3; n++)
        same_as_ddp(j, "cut(bytes=320)", n);
    j->options.loss_scale = NULL;
    j->options.nonfinite = TUTTI_NONFINITE_SKIP;
    j->options.data_samples = 10; /* some steps are short: workers weigh differently, and may have no samples */
    j->unused = 1;
    for (int n = 2; n <= 3; n++)
        same_as_ddp(j, "cut(bytes=320)", n);
    drop(j);
}

static void tables_under_cut_pieces_match_ddp(void **state)
{
    static const char *const optimizers[] = { "sgd(lr=0.1)", "adam(lr=0.01,lazy=on)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (int n = 1; n <= 3; n++) {
            job *j = job_of("", optimizers[o]);
            j->table[1] = j->table[6] = true;
            j->by_rows = true;
            same_as_ddp(j, "cut(bytes=128)", n);
            if (o == 0) {
                j->by_rows = n % 2 == 0;
                same_as_ddp(j, "cut-blind(bytes=128)", n);
            }
            drop(j);
        }
}

static void recutting_pieces_changes_no_bit(void **state)
{
    job *j = job_of("", "sgd(lr=0.1,momentum=0.9)");

    (void)state;
    for (int n = 1; n <= 3; n++) {
        job *a = ddp(j, n);
        same(a, "cut(bytes=4096,least=128,recut_step=2,recut_bytes=128)", n);
        same(a, "cut(bytes=128,least=128,recut_step=4,recut_bytes=100000)", n);
        same(a, "cut(inside=no,bytes=1,least=1,recut_step=3,recut_bytes=2000)", n);
        drop(a);
    }
    drop(j);
}

/* ---- how they are cut ---- */

typedef struct layout {
    const char *method;
    size_t bytes, first, close;
    bool knows, table;
} layout;

static tutti_status look_at_pieces(tutti_world *world, void *arg, tutti_error *err)
{
    const layout *want = arg;
    static const size_t count[] = { 10, 700, 33, 1000 };
    const tutti_param params[] = {
        { .name = "d", .dims = 1, .dim = { 10 }, .unit = 2 },
        { .name = "c", .dims = 1, .dim = { 700 }, .unit = 1 },
        { .name = "b", .dims = 1, .dim = { 33 }, .unit = 1 },
        { .name = "a", .dims = 2, .dim = { 200, 5 }, .unit = 0, .row_sparse = want->table },
    };
    const tutti_engine_options options = { .method = want->method };
    tutti_engine *e;
    const tutti_layout *l;
    size_t at = 0;

    TUTTI_TRY(tutti_engine_open_from(&e, world, params, 4, &options, cut_methods, err));
    l = tutti_engine_method(e)->layout;
    for (int k = 0; k < l->n_pieces; k++) {
        const tutti_piece *p = &l->piece[k];
        const tutti_tensor *first = &l->tensor[p->first_tensor], *last = first + p->tensors - 1;
        const bool table = want->knows && want->table && p->first_tensor == 3;
        const size_t full = (k == 0 ? want->first : want->bytes) / sizeof(float);
        CHECK(p->index == k && p->first == at && p->count > 0 && p->tensors > 0);
        CHECK(p->g == tutti_engine_method(e)->g + at && p->x == tutti_engine_method(e)->x + at);
        at += p->count;
        CHECK(first->first <= p->first && p->first < first->first + first->count);
        CHECK(last->first < at && at <= last->first + last->count);
        CHECK((p->rows != NULL) == table);
        if (table)
            CHECK(p->count == count[3] && p->tensors == 1);
        else if (at < (want->knows && want->table ? 743 : l->used) && want->close == 0)
            CHECK(p->count == full);
        else
            CHECK(p->count <= full);
        if (want->close > 0 && p->count < full && k + 1 < l->n_pieces) /* it ends with a tensor, and not before */
            CHECK(at == last->first + last->count && p->count * sizeof(float) >= want->close);
    }
    CHECK(at == l->used && l->used == 1743);
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void pieces_are_full_and_cover_the_reported_tensors(void **state)
{
    static const layout layouts[] = {
        { "cut(bytes=64)", 64, 64, 0, true, false },
        { "cut(bytes=100,first=1)", 128, 64, 0, true, false },
        { "cut(bytes=1024)", 1024, 1024, 0, true, true },
        { "cut-blind(bytes=1024)", 1024, 1024, 0, false, true },
        { "cut(bytes=1024,close=1)", 1024, 1024, 1, true, false },
        { "cut(bytes=1024,close=200)", 1024, 1024, 200, true, false },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(layouts); k++)
        for (int n = 1; n <= 2; n++) {
            layout want = layouts[k];
            tutti_error err = { .rank = -1 };
            if (tutti_world_run("shm", n, look_at_pieces, &want, &err) != TUTTI_OK)
                fail_msg("%s: %s", want.method, err.text);
        }
}

/* ---- what is not finite ---- */

static void a_number_that_is_not_finite_is_named_by_tensor_and_element(void **state)
{
    static const struct { const char *method, *mend; } cases[] = {
        { "cut(bytes=64)", ", clip the gradient (clip-norm) or leave such steps out (nonfinite=skip)" },
        { "cut(bytes=64,by_piece=yes)", "" }, /* it refuses both */
    };
    char sentence[200];
    tutti_error err;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        job *j = job_of(cases[k].method, "sgd(lr=0.1)");
        j->bad_rank = 1, j->bad_tensor = 3, j->bad_step = 2, j->bad_element = 777;
        assert_int_equal(job_try(j, "shm", 3, &err), TUTTI_ERR_NUMBER);
        snprintf(sentence, sizeof sentence,
                 "worker 1: the gradient of d is nan at element 777 in step 2; lower the learning rate%s",
                 cases[k].mend);
        assert_string_equal(err.text, sentence);
        drop(j);
    }
}

/* ---- what is refused ---- */

static void refused(const char *method, const char *codec, const char *sentence)
{
    job *j = job_of(method, "sgd(lr=0.1)");

    j->options.codec = codec;
    job_refused(j, sentence);
}

static void options_incompatible_with_cut_pieces_are_rejected(void **state)
{
    (void)state;
    refused("cut", "topk",
            "codec is 'topk', which encodes whole tensors, but method 'cut' cuts pieces inside of them; "
            "omit codec, or take a method whose pieces end between tensors (ddp)");
    refused("cut(recut_step=1,recut_bytes=64)", NULL,
            "method 'cut' cannot split its pieces again: its declare() has not set how small they may become");
    refused("cut(least=256,recut_step=1,recut_bytes=128)", NULL,
            "method 'cut' cuts pieces of 128 bytes, the first of 128; they may have 256 and more, and the first no "
            "more than the others");
    refused("cut(inside=no,least=64,recut_step=1,recut_bytes=128)", "fp16",
            "method 'cut' cannot split its pieces again: a codec's memory is for those that there were when the run "
            "began");
    refused("cut(order=led,whole=yes)", NULL,
            "method 'cut' would order the exchanges that begin while a step is computed, but it looks at the whole "
            "gradient before it is exchanged");
}

/* Two workers fail by themselves in different pieces that are in flight at the same time: neither
   waits for the other in its piece. */
static void two_workers_failing_in_different_pieces_do_not_deadlock(void **state)
{
    static const char *const methods[] = {
        "cut(bytes=100000,close=1,width=3,order=led)", "cut(bytes=100000,close=1,width=3,order=led,by_piece=yes)",
        "cut(bytes=300,width=4,order=led,forward=yes)", "cut(bytes=300,width=3,by_piece=yes)",
    };

    (void)state;
    for (size_t m = 0; m < TUTTI_LENGTH(methods); m++)
        for (int k = 0; k < 20; k++) {
            job *j = job_of(methods[m], "sgd(lr=0.1)");
            tutti_error err;
            tutti_status status;
            j->bad_step = 1 + k % 3;
            j->bad_rank = k % 2, j->bad_tensor = k % TENSORS;
            j->other_rank = 1 - j->bad_rank, j->other_tensor = (k + 1 + k / TENSORS) % TENSORS;
            status = job_try(j, "shm", 2 + k % 2, &err);
            if (status != TUTTI_ERR_NUMBER || strstr(err.text, ": the gradient of ") == NULL)
                fail_msg("%s, case %d: %s: %s", methods[m], k, tutti_status_name(status), err.text);
            drop(j);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_trains_the_same_bits),
        cmocka_unit_test(clipping_loss_scales_passes_and_skips_match_ddp),
        cmocka_unit_test(tables_under_cut_pieces_match_ddp),
        cmocka_unit_test(recutting_pieces_changes_no_bit),
        cmocka_unit_test(pieces_are_full_and_cover_the_reported_tensors),
        cmocka_unit_test(a_number_that_is_not_finite_is_named_by_tensor_and_element),
        cmocka_unit_test(options_incompatible_with_cut_pieces_are_rejected),
        cmocka_unit_test(two_workers_failing_in_different_pieces_do_not_deadlock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
