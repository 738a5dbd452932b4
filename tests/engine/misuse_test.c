/* Goal: a method that uses a facility against its contract is refused by a sentence, before a
   client computes by it: samples by name (names.c) and gradients that are applied late (late.c).
   Method: methods that do it wrong, beside one of each that does the same right at the border. */
#include "toy.h"

enum { SET = 50, STEPS = 2 };
enum { NAMES, NAMES_BEYOND, NAMES_UNDECLARED, ASKS_UNDECLARED, ASKS };

typedef struct misuser { int64_t what, late; bool merges, whole; } misuser;

static const tutti_option misuser_options[] = {
    { "what", TUTTI_INT, TUTTI_AT(misuser, what), 0, 0, 9, NULL, "" },
    { "late", TUTTI_INT, TUTTI_AT(misuser, late), 0, 0, 99, NULL, "" },
    { "merges", TUTTI_BOOL, TUTTI_AT(misuser, merges), 0, 0, 1, NULL, "" },
    { "whole", TUTTI_BOOL, TUTTI_AT(misuser, whole), 0, 0, 1, NULL, "" },
    { 0 }
};

static tutti_status names_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const misuser *s = m->self;

    (void)plan;
    return s->what == NAMES_UNDECLARED || s->what == ASKS_UNDECLARED ? TUTTI_OK : tutti_names_declare(m, err);
}

static tutti_status names_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    static const uint64_t last[4] = { 0, 1, 7, SET - 1 }, beyond[4] = { 0, 1, 7, SET };
    static _Thread_local float losses[4];
    const misuser *s = m->self;

    CHECK(p->samples == 4);
    if (s->what <= NAMES_UNDECLARED)
        p->ids = s->what == NAMES_BEYOND ? beyond : last;
    if (s->what >= ASKS_UNDECLARED)
        p->losses = losses;
    return TUTTI_OK;
}

static tutti_status late_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const misuser *s = m->self;

    if (s->merges)
        TUTTI_TRY(tutti_merge_declare(m, plan, err));
    m->whole = s->whole;
    return tutti_late_declare(m, plan, (int)s->late, 0, true, err);
}

static const tutti_method_ops
    names_ops = { .name = "names", .options = misuser_options, .self_bytes = sizeof(misuser),
                  .traits = TUTTI_REPLICAS_EQUAL, .declare = names_declare, .pass = names_pass,
                  .exchange = tutti_base_exchange },
    late_ops = { .name = "late", .options = misuser_options, .self_bytes = sizeof(misuser),
                 .traits = TUTTI_REPLICAS_EQUAL, .declare = late_declare, .exchange = tutti_base_exchange },
    apart_ops = { .name = "apart", .options = misuser_options, .self_bytes = sizeof(misuser), .declare = late_declare,
                  .exchange = tutti_base_exchange },
    paced_ops = { .name = "paced", .options = misuser_options, .self_bytes = sizeof(misuser),
                  .traits = TUTTI_REPLICAS_EQUAL | TUTTI_OWN_PACE, .declare = late_declare,
                  .exchange = tutti_base_exchange },
    silent_ops = { .name = "silent", .options = misuser_options, .self_bytes = sizeof(misuser),
                   .traits = TUTTI_REPLICAS_EQUAL, .declare = late_declare };
static const tutti_method_ops *const methods[] = { &names_ops,  &late_ops,   &apart_ops,
                                                   &paced_ops, &silent_ops, NULL };

typedef struct job { tutti_engine_options options; int passes[2]; } job;

static tutti_status job_rank(tutti_world *world, void *arg, tutti_error *err)
{
    job *j = arg;
    const tutti_param param = { .name = "a", .dims = 1, .dim = { 20 } };
    tutti_engine *e;
    tutti_status status;
    tutti_pass p;

    status = tutti_engine_open_from(&e, world, &param, 1, &j->options, methods, err);
    for (int s = 0; status == TUTTI_OK && s < STEPS; s++) {
        while ((status = tutti_engine_pass(e, &p, err)) == TUTTI_OK) {
            j->passes[tutti_world_rank(world)]++;
            for (int64_t k = 0; p.losses != NULL && k < p.samples; k++)
                p.losses[k] = 1;
            status = tutti_engine_ready(e, 0, err);
            if (status == TUTTI_OK)
                status = tutti_engine_passed(e, 1, err);
            if (status != TUTTI_OK)
                break;
        }
        status = status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

/* sentence NULL: it goes well. */
static void expect(job *j, const char *sentence)
{
    tutti_error err = { .rank = -1 };
    const tutti_status status = tutti_world_run("shm", 2, job_rank, j, &err);

    if (sentence == NULL && status != TUTTI_OK)
        fail_msg("%s: %s", j->options.method, err.text);
    if (sentence != NULL && (status == TUTTI_OK || strstr(err.text, sentence) == NULL))
        fail_msg("%s: wanted '%s', got '%s'", j->options.method, sentence, err.text);
    for (int r = 0; r < 2; r++) /* refused before anything is computed */
        assert_int_equal(j->passes[r], sentence == NULL ? STEPS : 0);
}

static job job_of(const char *method)
{
    return (job){ .options = { .method = method, .optimizer = "sgd(lr=0.1)", .batch = 4, .data_samples = SET,
                               .seed = 3, .names = true } };
}

static void samples_are_named_within_the_training_set_and_after_declaring_it(void **state)
{
    static const struct { const char *method, *sentence; } cases[] = {
        { "names(what=0)", NULL },
        { "names(what=1)", "method 'names' names sample 50 in a pass; the training set has 50" },
        { "names(what=2)", "names samples or asks for losses in a pass; that is legal after tutti_names_declare" },
        { "names(what=3)", "names samples or asks for losses in a pass; that is legal after tutti_names_declare" },
        { "names(what=4)", NULL },
    };
    static const uint64_t part_first[3] = { 0, 25, 50 };
    static uint32_t part_sample[SET];
    static const tutti_parts parts = { part_first, part_sample };
    job j;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        j = job_of(cases[k].method);
        expect(&j, cases[k].sentence);
    }
    for (uint32_t i = 0; i < SET; i++)
        part_sample[i] = i;
    j = job_of("names");
    j.options.names = false;
    expect(&j, "for which the client takes samples by name and tells the loss of each");
    j = job_of("names");
    j.options.data_samples = 0;
    expect(&j, "nobody says how many there are; give data_samples");
    j = job_of("names");
    j.options.parts = &parts;
    expect(&j, "each worker has samples of its own that stay with it");
}

static void late_gradients_are_of_equal_replicas_that_exchange_in_every_step(void **state)
{
    static const char *const apart = "applies gradients late, for which all workers exchange them in every step";
    const struct { const char *method, *sentence; } cases[] = {
        { "late(late=15)", NULL }, /* TUTTI_LATE_MOST */
        { "late(late=16)", "method 'late' applies gradients 16 steps late; the most is 15" },
        { "apart(late=1)", apart },
        { "paced(late=1)", apart },
        { "silent(late=1)", apart },
        { "late(late=1,merges=on)", apart },
        { "late(late=1,whole=on)", "looks at the whole gradient of a step before it is exchanged (whole), but its "
                                   "exchanges are late" },
        { "late(whole=on)", NULL }, /* nothing is late */
        { "apart", NULL },
    };

    (void)state;
    assert_int_equal(TUTTI_LATE_MOST, 15);
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        job j = job_of(cases[k].method);
        expect(&j, cases[k].sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_named_within_the_training_set_and_after_declaring_it),
        cmocka_unit_test(late_gradients_are_of_equal_replicas_that_exchange_in_every_step),
    };
    return cmocka_run_group_tests_name("engine/misuse", tests, NULL, NULL);
}
