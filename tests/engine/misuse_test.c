/* Goal: a method that uses a facility against its contract is refused by a sentence, before a
   client computes by it: samples by name (names.c), gradients that are applied late (late.c), and
   what is missing in a method's table (table.c). Method: methods that do it wrong, and one of
   each that does the same right at the limit. */
#include "toy.h"
#include "tutti/method/steps.h"
#include "engine/modes/late.h"
#include "engine/modes/merge.h"

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
                  .traits = TUTTI_REPLICAS_EQUAL | TUTTI_ASYNC, .declare = late_declare,
                  .exchange = tutti_base_exchange },
    silent_ops = { .name = "silent", .options = misuser_options, .self_bytes = sizeof(misuser),
                   .traits = TUTTI_REPLICAS_EQUAL, .declare = late_declare, .step = tutti_base_step };
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
        while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
            j->passes[tutti_world_rank(world)]++;
            for (int64_t k = 0; p.losses != NULL && k < p.samples; k++)
                p.losses[k] = 1;
            status = tutti_engine_grad_ready(e, 0, err);
            if (status == TUTTI_OK)
                status = tutti_engine_pass_end(e, 1, err);
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

static void naming_samples_requires_declaration_and_valid_indices(void **state)
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
    expect(&j, "for which the client takes samples by name and reports the loss of each");
    j = job_of("names");
    j.options.data_samples = 0;
    expect(&j, "but their number is not given; give data_samples");
    j = job_of("names");
    j.options.parts = &parts;
    expect(&j, "partition gives each worker samples of its own that stay with it, but method 'names' chooses among all "
               "samples; leave partition at iid");
}

static void late_gradients_require_equal_replicas_exchanging_every_step(void **state)
{
    const struct { const char *method, *sentence; } cases[] = {
        { "late(late=15)", NULL }, /* TUTTI_LATE_MOST */
        { "late(late=16)", "method 'late' applies gradients 16 steps late; the most is 15" },
        { "apart(late=1)", "method 'apart' would apply gradients some steps late, but it keeps a model of its own on "
                           "each worker" },
        { "paced(late=1)", "would apply gradients some steps late, but it keeps a model of its own on each worker" },
        { "silent(late=1)", "would apply gradients some steps late, but it exchanges no gradients" },
        { "late(late=1,merges=on)", "method 'late' applies gradients some steps late, but it also makes one update of "
                                    "several steps; it can do one of them" },
        { "late(late=1,whole=on)", "method 'late' applies gradients some steps late, but it also looks at the whole "
                                   "gradient before it is exchanged; it can do one of them" },
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

/* ---- tables of methods written by a user, with something forgotten or wrong ---- */

static tutti_status mine_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    float **const theta = m->self; /* the first member of its struct; NULL without .self_bytes */

    (void)err;
    tutti_declare_vector(plan, "mine.theta", TUTTI_SAME, theta);
    return TUTTI_OK;
}

static tutti_status nameless_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static float *at;
    const tutti_state nameless = { .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = 3 };

    (void)m;
    (void)err;
    tutti_declare(plan, &nameless, &at);
    return TUTTI_OK;
}

static tutti_status by_piece_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    (void)plan;
    (void)err;
    m->by_piece = true; /* without tutti_by_piece_declare */
    return TUTTI_OK;
}

static tutti_status mine_run(tutti_method *m, tutti_error *err) { (void)m, (void)err; return TUTTI_OK; }
static tutti_status mine_drive(tutti_method *m, uint64_t until, tutti_error *err)
{
    (void)m, (void)until, (void)err;
    return TUTTI_OK;
}
static bool mine_serves(const void *self) { (void)self; return false; }

static const tutti_service mine_none[] = { { 0 } }, mine_idle[] = { { "idle", NULL }, { 0 } },
                           mine_many[] = { { "a", mine_run }, { "b", mine_run }, { "c", mine_run }, { "d", mine_run },
                                           { "e", mine_run }, { 0 } };
static const tutti_option mine_beyond[] = {
    { "late", TUTTI_INT, TUTTI_AT(misuser, late), 100, 0, 99, NULL, "" }, { 0 }
};
static const tutti_method_default mine_void[] = { { "optimizer", NULL }, { 0 } },
                                  mine_unknown[] = { { "optimiser", "sgd" }, { 0 } },
                                  mine_underscore[] = { { "lr_schedule", "constant" }, { 0 } },
                                  mine_of_the_command[] = { { "batch-share", "auto" }, { 0 } },
                                  mine_nowhere[] = { { "optimizer", "sgd", "parts=2" }, { 0 } },
                                  mine_completes[] = { { "optimizer", "adam(eps=1)", "optimizer=adam" }, { 0 } },
                                  mine_completes_no_optimizer[] = { { "lr-schedule", "cosine(0.1)",
                                                                      "lr-schedule=cosine" }, { 0 } };

#define WHOLE .name = "mine", .options = misuser_options, .self_bytes = sizeof(misuser), \
              .traits = TUTTI_REPLICAS_EQUAL, .exchange = tutti_base_exchange
/* What is set twice below is what is wrong. */
#pragma GCC diagnostic ignored "-Woverride-init"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#endif
static const struct { tutti_method_ops ops; const char *sentence; } tables[] = {
    { { WHOLE }, NULL },
    { { WHOLE, .declare = by_piece_declare }, "method 'mine' sets by_piece; call tutti_by_piece_declare (steps.h)" },
    { { WHOLE, .self_bytes = 0 }, "method 'mine': option 'what' of its table is to be written to a struct of 0 bytes; "
                                  "set .self_bytes to the size of the struct" },
    { { WHOLE, .self_bytes = 8 }, "option 'late' of its table is to be written to bytes 8 to 15 of a struct of 8" },
    { { WHOLE, .options = mine_beyond }, "option 'late' of its table is 100 by default, and it must be "
                                         "from 0 to 99" },
    { { WHOLE, .options = NULL, .self_bytes = 0, .declare = mine_declare },
      "state 'mine.theta' is declared into a struct that is not there; set .self_bytes" },
    { { WHOLE, .declare = nameless_declare }, "a state without a name is declared; set its .name" },
    { { WHOLE, .name = NULL }, "method 1 of the list has no name; set .name" },
    { { WHOLE, .name = "my method" }, "method 1 of the list is named 'my method', which no program can request" },
    { { WHOLE, .name = "" }, "method 1 of the list is named '', which no program can request" },
    { { WHOLE, .name = "a-name-that-is-as-long-as-a-sentence-and-longer-than-any-page-is-wide-to-show-it-on-one-line" },
      "which no program can request: a name has a letter, then letters, digits, '_', '-' and '.', at most 48 in all" },
    { { WHOLE, .services = mine_none }, NULL },
    { { WHOLE, .services = mine_idle }, "service 'idle' of method 'mine' has nothing to run; set its .run" },
    { { WHOLE, .services = mine_many }, "method 'mine' has more than 4 services" },
    { { WHOLE, .serves = mine_serves }, "method 'mine' has a hook `serves`, for which it needs a service" },
    { { WHOLE, .traits = TUTTI_PARAMETER_SERVERS },
      "method 'mine' has the trait TUTTI_PARAMETER_SERVERS, for which it needs a service" },
    { { WHOLE, .traits = TUTTI_UNSYNCHRONIZED_STEPS },
      "method 'mine' has the trait TUTTI_UNSYNCHRONIZED_STEPS, for which it needs a service" },
    { { WHOLE, .traits = 1u << 30 }, "method 'mine' has traits 0x40000000, of which 0x40000000 do not exist" },
    { { WHOLE, .traits = TUTTI_PIPELINE_SCHEDULE },
      "method 'mine' has the trait TUTTI_PIPELINE_SCHEDULE and no hook `drive`" },
    { { WHOLE, .drive = mine_drive }, "method 'mine' has a hook `drive` without the trait TUTTI_PIPELINE_SCHEDULE" },
    { { WHOLE, .traits = TUTTI_PIPELINE_SCHEDULE, .drive = mine_drive },
      "method 'mine' drives: that goes with TUTTI_REPLICAS_" },
    { { WHOLE, .exchange = NULL }, "declares TUTTI_REPLICAS_EQUAL, but exchanges nothing, so that workers would each" },
    { { WHOLE, .exchange = NULL, .traits = 0 }, NULL },
    { { WHOLE, .defaults = mine_void }, "a default of option 'optimizer' without a value; give one" },
    { { WHOLE, .defaults = mine_unknown }, "a default of option 'optimiser', which there is not; did you mean 'opt" },
    { { WHOLE, .defaults = mine_underscore }, "a default of option 'lr_schedule', which there is not; did you mean" },
    { { WHOLE, .defaults = mine_of_the_command }, NULL },
    { { WHOLE, .defaults = mine_nowhere }, "a default of option 'optimizer' where 'parts=2', which is no condition" },
    { { WHOLE, .defaults = mine_completes }, NULL },
    { { WHOLE, .defaults = mine_completes_no_optimizer }, "a default of option 'lr-schedule' where 'lr-schedule=cos" },
};

typedef struct listed { const tutti_method_ops *const *methods; int passes; } listed;

static tutti_status listed_rank(tutti_world *world, void *arg, tutti_error *err)
{
    listed *l = arg;
    const tutti_param param = { .name = "a", .dims = 1, .dim = { 20 } };
    const tutti_engine_options options = { .method = "mine", .optimizer = "sgd(lr=0.1)", .batch = 4, .steps = 1 };
    tutti_engine *e;
    tutti_status status = tutti_engine_open_from(&e, world, &param, 1, &options, l->methods, err);

    if (status == TUTTI_OK && tutti_world_rank(world) == 0)
        l->passes++;
    tutti_engine_close(e);
    return status;
}

static void incomplete_method_tables_are_rejected(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(tables); k++) {
        const tutti_method_ops *const list[] = { &tables[k].ops, NULL };
        listed l = { list, 0 };
        tutti_error err = { .rank = -1 };
        const tutti_status status = tutti_world_run("shm", 2, listed_rank, &l, &err);
        if (tables[k].sentence == NULL && (status != TUTTI_OK || l.passes != 1))
            fail_msg("table %zu is refused: %s", k, err.text);
        if (tables[k].sentence != NULL && (status != TUTTI_ERR_STATE || strstr(err.text, tables[k].sentence) == NULL))
            fail_msg("table %zu: wanted '%s', got '%s'", k, tables[k].sentence, err.text);
    }
}

/* However long the list is; the names of the other methods count, too. */
static void method_list_is_checked_to_its_end(void **state)
{
    enum { OTHERS = 100 };
    static char names[OTHERS][16];
    static tutti_method_ops others[OTHERS];
    const tutti_method_ops *list[OTHERS + 3] = { NULL };
    tutti_error err = { .rank = -1 };
    listed l = { list, 0 };

    (void)state;
    for (int i = 0; i < OTHERS; i++) {
        snprintf(names[i], sizeof names[i], "other-%d", i);
        others[i].name = names[i];
        list[i] = &others[i];
    }
    list[OTHERS] = &tables[0].ops;
    if (tutti_world_run("shm", 2, listed_rank, &l, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    list[OTHERS + 1] = &tables[0].ops;
    assert_int_equal(tutti_world_run("shm", 2, listed_rank, &l, &err), TUTTI_ERR_STATE);
    assert_non_null(
        strstr(err.text, "methods 101 and 102 of the list are both named 'mine'; give one of them another"));
    l.methods = NULL;
    assert_int_equal(tutti_world_run("shm", 2, listed_rank, &l, &err), TUTTI_ERR_STATE);
    assert_non_null(strstr(err.text, "the engine is given no list of methods"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(naming_samples_requires_declaration_and_valid_indices),
        cmocka_unit_test(late_gradients_require_equal_replicas_exchanging_every_step),
        cmocka_unit_test(incomplete_method_tables_are_rejected),
        cmocka_unit_test(method_list_is_checked_to_its_end),
    };
    return cmocka_run_group_tests_name("engine/misuse", tests, NULL, NULL);
}
