/* Goal: workers that update a shard of each piece train the bits of workers that update all of
   it, with gradients held whole or by piece, by one group or several: whatever the sizes, the
   optimiser, the number of workers, clipping, skipped steps, lanes and transports. Values are
   there when they are acquired. Any number of workers resumes from any other, with shards and
   without. A failure is reported and nothing hangs. What does not go together is refused. Method:
   pieces.h; the reference is the same method without shards. */
#include "pieces_job.h"
#include "sanitized.h"
#include "scratch.h"

/* Numbers of workers from here on: where threads are watched the largest alone, which has all of
   them at work. */
enum { FEWEST = UNLESS_SANITIZED(1, RANKS) };

/* n workers that update all of it. */
static job *all_of_it(const job *like, int n)
{
    job *j = job_like(like, "cut(bytes=512)");

    job_run(j, "shm", n);
    return j;
}

/* `teams` groups that update shards see and leave what the workers of the reference do. */
static void compare_teams(const job *a, const char *options, const char *transport, int n, bool held, int teams)
{
    char method[200];
    job *b;

    snprintf(method, sizeof method, "cut-shards(teams=%d,%s%s%s)", teams,
             strstr(options, "bytes=") != NULL ? "close=0" : "bytes=512", options, held ? ",held=yes" : "");
    b = job_like(a, method);
    b->own_memory = a->own_memory || held;
    job_run(b, transport, n);
    job_same(a, b, n, 0);
    assert_int_equal(a->figures[n - 1].samples, b->figures[n - 1].samples);
    assert_int_equal(a->figures[n - 1].skipped, b->figures[n - 1].skipped);
    drop(b);
}

/* One group, and also two or one per worker where that is possible. */
static void compare(const job *a, const char *options, const char *transport, int n, bool held)
{
    compare_teams(a, options, transport, n, held, 1);
    if (n % 2 == 0 || held)
        compare_teams(a, options, transport, n, held, n % 2 == 0 ? 2 : n);
}

/* Gradients are held whole, and by piece. Each with some options, the last of them NULL. */
static void same_with(const job *like, const char *const *options, const char *transport, int n)
{
    job *a = all_of_it(like, n);

    for (; *options != NULL; options++) {
        compare(a, *options, transport, n, false);
        compare(a, *options, transport, n, true);
    }
    drop(a);
}

static void same(const job *like, const char *options, const char *transport, int n)
{
    same_with(like, (const char *const[]){ options, NULL }, transport, n);
}

static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9,nesterov=true)", "adamw(lr=0.01)", "sgd(lr=0.05)" };

/* Several blocks of the norm, and sizes that no number of workers divides. */
static job *large(const char *optimizer)
{
    static const size_t count[TENSORS] = { 10, 9001, 33, 5003, 1, 130, 250 };
    job *j = job_of("", optimizer);

    memcpy(j->count, count, sizeof count);
    return j;
}

static void sharded_updates_match_unsharded_workers_bit_for_bit(void **state)
{
    /* the first is less than a line for each */
    static const char *const options[] = { ",bytes=120", "", ",inside=no,width=3", NULL };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (int n = FEWEST; n <= RANKS; n++) {
            job *j = job_of("", optimizers[o]);
            same_with(j, o == 0 ? options : options + 1, "shm", n);
            drop(j);
        }
}

static void clipping_matches_a_worker_with_the_whole_gradient(void **state)
{
    static const char *const cuts[] = { ",bytes=2880", ",bytes=16384", ",bytes=30000,inside=no", ",bytes=100000" };
    static const double norms[] = { 0.25, 1e9 }; /* the second is asked for, and does nothing */

    (void)state;
    for (int n = FEWEST; n <= RANKS; n++)
        for (int o = 0; o < 2; o++)
            for (int k = 0; k < UNLESS_SANITIZED(2, 1); k++) {
                job *j = large(optimizers[o]), *a;
                j->options.clip_norm = norms[k];
                a = all_of_it(j, n);
                for (size_t c = (size_t)o; c < TUTTI_LENGTH(cuts); c += 2)
                    compare(a, cuts[c], "shm", n, (n + k) % 2 == 1);
                drop(a);
                drop(j);
            }
}

static void nonfinite_steps_are_skipped_by_all_workers(void **state)
{
    (void)state;
    for (int n = UNLESS_SANITIZED(1, 3); n <= 3; n++) {
        job *j = job_of("", optimizers[1]);
        j->options.nonfinite = TUTTI_NONFINITE_SKIP;
        j->options.clip_norm = 0.5;
        j->bad_rank = n - 1, j->bad_tensor = 3, j->bad_step = 2, j->bad_element = 7;
        same(j, "", "shm", n);
        j->options.nonfinite = TUTTI_NONFINITE_STOP;
        j->options.loss_scale = "dynamic(init=1024)";
        same(j, "", "shm", n);
        drop(j);
    }
}

static void values_stay_while_they_are_in_use(void **state)
{
    job *j = job_of("", optimizers[0]);

    (void)state;
    j->dawdles = true;
    same(j, "", "shm", 3);
    same(j, ",inside=no", "shm", 2);
    drop(j);
}

static void results_without_threads_are_the_same(void **state)
{
    job *j = job_of("", optimizers[0]);

    (void)state;
    j->options.lane = -1;
    j->options.clip_norm = 0.5;
    for (int n = 1; n <= 3; n++)
        same(j, "", "shm", n);
    drop(j);
}

static void passes_schedules_and_short_steps_give_the_same_bits(void **state)
{
    job *j = job_of("", optimizers[1]);

    (void)state;
    j->options.lr_schedule = "cosine(warmup=2)";
    j->options.steps = STEPS;
    j->options.accumulate = 3;
    for (int n = 1; n <= 3; n++) {
        job *a = all_of_it(j, n);
        compare(a, "", "shm", n, false);
        drop(a);
    }
    j->options.accumulate = 1;
    j->options.data_samples = 9; /* in short steps some have no samples */
    for (int n = 2; n <= RANKS; n++)
        same(j, "", "shm", n);
    drop(j);
}

/* Announced later than their place, too: then incomplete pieces hold all buffers. */
static void parameters_without_or_with_late_gradients_are_updated(void **state)
{
    static const int units[2][TENSORS] = { { 0, 1, 2, 3, 0, 1, 2 }, { 0, 0, 1, 1, 2, 3, 3 } };
    job *j = job_of("", optimizers[1]); /* weights decay without a gradient */

    (void)state;
    j->unused = 3;
    same(j, "", "shm", 3);
    same(j, ",inside=no", "shm", 2);
    j->unused = -1;
    for (int u = 0; u < UNITS; u++) {
        j->frozen = u;
        same(j, "", "shm", 2);
    }
    j->frozen = -1;
    for (int o = 0; o < 2; o++) {
        memcpy(j->unit, units[o], sizeof units[o]);
        same(j, "", "shm", 3);
        same(j, ",bytes=2000,inside=no", "shm", 2);
    }
    drop(j);
}

static void every_kind_of_client_has_current_values_when_needed(void **state)
{
    job *j = job_of("", optimizers[0]);

    (void)state;
    for (int own = 0; own < 2; own++)
        for (int forgets = 0; forgets < 2; forgets++) {
            j->own_memory = own == 1;
            j->forgets = forgets == 1;
            for (int n = UNLESS_SANITIZED(1, 3); n <= 3; n++)
                same(j, "", "shm", n);
        }
    j->shows = 2;
    same(j, "", "shm", 2);
    drop(j);
}

static void tables_are_sharded_like_other_tensors(void **state)
{
    static const char *const rules[] = { "sgd(lr=0.1)", "adam(lr=0.01)", "adamw(lr=0.01)" };
    static const char *const options[] = { "", ",inside=no", NULL };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(rules); o++)
        for (int n = UNLESS_SANITIZED(1, 2); n <= 3; n++) {
            job *j = job_of("", rules[o]);
            j->table[1] = j->table[5] = true;
            j->by_rows = o != 2;
            j->own_memory = n == 2;
            same_with(j, options, "shm", n);
            drop(j);
        }
}

static void results_over_sockets_match_the_reference(void **state)
{
    job *j = large(optimizers[0]);

    (void)state;
    j->options.clip_norm = 0.5;
    same(j, "", "tcp", 3);
    same(j, ",width=2", "tcp(local=tcp)", 2);
    drop(j);
}

/* ---- resuming ---- */

enum { METHODS_MOST = 6 };

static job *resumable(const char *method, const char *directory)
{
    job *j = job_of(method, optimizers[1]);

    j->directory = directory;
    j->options.data_samples = 0;
    j->own_memory = true;
    return j;
}

/* `to` workers continue from the checkpoint in that directory. */
static job *goes_on(const char *method, const char *directory, int to)
{
    job *j = resumable(method, directory);

    j->load_at = 3;
    job_run(j, "shm", to);
    return j;
}

/* n workers save under each of the methods. From each of these checkpoints any number up to
   `most` continues, with the methods in turn, and sees and leaves what as many workers of the
   first method do when they continue from the first. */
static void resumes(const char *const *methods, int n_methods, int n, int most)
{
    char directory[METHODS_MOST][SCRATCH_PATH];
    job *saved[METHODS_MOST];

    for (int from = 0; from < n_methods; from++) {
        scratch_make(directory[from]);
        saved[from] = resumable(methods[from], directory[from]);
        saved[from]->save_at = 3;
        job_run(saved[from], "shm", n);
    }
    for (int to = 1; to <= most; to++) {
        job *first = goes_on(methods[0], directory[0], to);
        for (int from = 0; from < n_methods; from++) {
            job *other = goes_on(methods[(from + n + to) % n_methods], directory[from], to);
            job_same(first, other, to, 3);
            if (to == n)
                job_same(saved[from], first, n, 3);
            drop(other);
        }
        drop(first);
    }
    for (int from = 0; from < n_methods; from++) {
        drop(saved[from]);
        scratch_remove(directory[from]);
    }
}

static void any_number_of_workers_resumes_from_any_other(void **state)
{
    static const char *const methods[METHODS_MOST] = { "cut(bytes=512)", "cut-shards(bytes=700)",
                                                       "cut-shards(bytes=300,held=yes,teams=2)",
                                                       "cut-offload(bytes=500,teams=2)",
                                                       "cut-offload(bytes=400,disk=yes)",
                                                       "cut-shards(bytes=200,teams=4)" };

    (void)state;
    for (int n = FEWEST; n <= RANKS; n++)
        resumes(methods, METHODS_MOST, n, RANKS);
}

/* The checkpoint waits for the update in progress, and has it in masters alone. */
static void checkpoint_includes_a_delayed_update_in_progress(void **state)
{
    static const char *const methods[] = { "cut-offload(bytes=500,delayed=yes)",
                                           "cut-offload(bytes=300,disk=yes,delayed=yes)" };

    (void)state;
    for (int n = 1; n <= 3; n += 2)
        resumes(methods, 2, n, 3);
}

/* ---- failures ---- */

static void a_gradient_that_is_not_finite_ends_the_run_wherever_it_is(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n += 2)
        for (int k = 0; k < TENSORS; k++)
            job_has_nan(k % 2 == 1 ? "cut-shards(bytes=512,held=yes)" : "cut-shards(bytes=512)", k % 2 == 1, n, k,
                        k % 3);
}

static void worker_failing_mid_run_ends_the_run_of_all(void **state)
{
    (void)state;
    job_is_left("cut-shards(bytes=512)", true, 0);
    job_is_left("cut-shards(bytes=512,width=3)", true, 1);
    job_is_left("cut-shards(bytes=512,held=yes)", true, 2);
    job_is_left("cut-shards(bytes=512,teams=3)", true, 1);
}

/* ---- what is refused ---- */

static void refuse(job *j, const char *method, const char *sentence)
{
    snprintf(j->method, sizeof j->method, "%s", method);
    job_refused(j, sentence);
}

static job *plain(void)
{
    return job_of("", "sgd(lr=0.1)");
}

static void options_incompatible_with_sharding_are_rejected(void **state)
{
    static const struct {
        const char *method, *why;
    } methods[] = {
        { "cut-shards-whole", "has slots of the optimiser for all of the model" },
        { "cut-shards-apart", "keeps a model of its own on each worker" },
        { "cut-shards-alone", "exchanges no gradients" },
        { "cut-shards-rows", "exchanges tables by rows" },
        { "cut-shards(by_piece=yes)", "updates each piece as soon as it is exchanged" },
        { "cut-shards(order=led)", "has an order of its own for pieces" },
        { "cut-shards(merge=yes)", "makes one update of several steps" },
        { "cut-shards(late=yes)", "applies gradients some steps late" },
    };
    job *j;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        char sentence[200];
        snprintf(sentence, sizeof sentence,
                 "method '%.*s' would update a shard of each piece on each worker, but it %s",
                 (int)strcspn(methods[k].method, "("), methods[k].method, methods[k].why);
        j = plain();
        refuse(j, methods[k].method, sentence);
    }
    j = job_of("", "client");
    refuse(j, "cut-shards",
           "optimizer is 'client', whose buffers are whole on each worker, but method 'cut-shards' cuts them over the "
           "workers; give its rule, as sgd(lr=0.05,momentum=0.9) (in Python tutti.torch.prepare does so for SGD, Adam "
           "and AdamW), or take ddp");
    j = job_of("", "adam(lazy=on)");
    refuse(j, "cut-shards",
           "optimizer is lazy, but method 'cut-shards' sends tables' gradients whole, and which rows a step has "
           "touched is not known; omit lazy, or take ddp");
    refuse(plain(), "cut(held=yes)",
           "method 'cut' would hold gradients by piece, but it has no place for what its exchange leaves");
    refuse(plain(), "cut-shards(held=yes,whole=yes)",
           "method 'cut-shards' would hold gradients by piece, but it looks at the whole gradient before it is "
           "exchanged");
}

/* tests/engine/misuse_test.c has the others. */
static tutti_status misuse(tutti_world *world, void *arg, tutti_error *err)
{
    static float memory[3];
    const tutti_engine_options options = { .method = "cut-shards(held=yes)", .optimizer = "sgd(lr=0.1)" };
    const tutti_param params[] = { { .name = "w", .dims = 1, .dim = { 3 } } };
    tutti_error said;
    tutti_engine *e;
    tutti_pass pass;

    (void)arg;
    TUTTI_TRY(tutti_engine_open_from(&e, world, params, 1, &options, cut_methods, err));
    CHECK(tutti_engine_gradient(e, 0) == NULL && tutti_engine_values(e, 0) != NULL);
    TUTTI_TRY(tutti_engine_pass_begin(e, &pass, err));
    CHECK(tutti_engine_grad_ready(e, 0, &said) == TUTTI_ERR_USAGE);
    CHECK(strcmp(said.text, "grad_ready was called for w, but method 'cut-shards' holds gradients by piece and the "
                            "client has none of its memory; hand the gradient over by grad_ready_from") == 0);
    TUTTI_TRY(tutti_engine_grad_ready_from(e, 0, memory, TUTTI_F32, err));
    TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    TUTTI_TRY(tutti_engine_step(e, err));
    TUTTI_TRY(tutti_engine_finish(e, err));
    tutti_engine_close(e);
    return TUTTI_OK;
}

static void client_without_gradient_memory_must_hand_gradients_over(void **state)
{
    tutti_error err = { .rank = -1 };

    (void)state;
    if (tutti_world_run("shm", 1, misuse, NULL, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharded_updates_match_unsharded_workers_bit_for_bit),
        cmocka_unit_test(clipping_matches_a_worker_with_the_whole_gradient),
        cmocka_unit_test(nonfinite_steps_are_skipped_by_all_workers),
        cmocka_unit_test(values_stay_while_they_are_in_use),
        cmocka_unit_test(results_without_threads_are_the_same),
        cmocka_unit_test(passes_schedules_and_short_steps_give_the_same_bits),
        cmocka_unit_test(parameters_without_or_with_late_gradients_are_updated),
        cmocka_unit_test(every_kind_of_client_has_current_values_when_needed),
        cmocka_unit_test(tables_are_sharded_like_other_tensors),
        cmocka_unit_test(results_over_sockets_match_the_reference),
        cmocka_unit_test(any_number_of_workers_resumes_from_any_other),
        cmocka_unit_test(checkpoint_includes_a_delayed_update_in_progress),
        cmocka_unit_test(a_gradient_that_is_not_finite_ends_the_run_wherever_it_is),
        cmocka_unit_test(worker_failing_mid_run_ends_the_run_of_all),
        cmocka_unit_test(options_incompatible_with_sharding_are_rejected),
        cmocka_unit_test(client_without_gradient_memory_must_hand_gradients_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
