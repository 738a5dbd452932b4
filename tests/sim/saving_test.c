/* Goal: a checkpoint that is written in the background is the same in simulated time, where its
   thread is an actor, and a simulated run is the same each time.
   Method: the client of engine/logical. A simulation has a process of its own (forked.h), so its
   results are files, and what it finds itself. The reference is a blocking save over shm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/checkpoint_files.h"
#include "engine/logical_job.h"
#include "forked.h"

enum { WORKERS = 3, SAVED_AT = 2, UNTIL = 5 };

typedef struct scene {
    job j;
    const char *transport, *directory, *note; /* note: a file for the time at the end; NULL: none */
    bool background;
} scene;

static tutti_status save(const scene *s, tutti_engine *e, tutti_error *err)
{
    return (s->background ? tutti_engine_save_begin : tutti_engine_save)(e, s->directory, "{}", 0, err);
}

/* The virtual time that rank 0 has trained. */
static tutti_status write_note(const scene *s, tutti_engine *e, tutti_error *err)
{
    tutti_figures f;
    FILE *file;

    if (s->note == NULL || tutti_engine_method(e)->rank != 0)
        return TUTTI_OK;
    tutti_engine_figures(e, &f);
    file = fopen(s->note, "w");
    if (file == NULL)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "%s", s->note);
    fprintf(file, "%lld %llu\n", (long long)f.wall_ns, (unsigned long long)f.bytes_sent);
    return fclose(file) == 0 ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_IO, errno, "%s", s->note);
}

static tutti_status train(scene *s, tutti_engine *e, tutti_error *err)
{
    tutti_saves saves;

    for (int step = 0; step < UNTIL; step++) {
        if (step == SAVED_AT)
            TUTTI_TRY(save(s, e, err));
        TUTTI_TRY(job_step(&s->j, e, err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    tutti_engine_saves(e, &saves);
    if (saves.written != s->background)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "%d saves are known to be complete", (int)saves.written);
    return write_note(s, e, err);
}

static tutti_status run_rank(tutti_world *world, void *arg, tutti_error *err)
{
    scene *s = arg;
    tutti_engine *e = NULL;
    tutti_status status = job_open(&e, world, &s->j, err);

    if (status == TUTTI_OK)
        status = train(s, e, err);
    tutti_engine_close(e);
    return status;
}

static tutti_status in_child(void *arg, tutti_error *err)
{
    const scene *s = arg;

    return tutti_world_run(s->transport, WORKERS, run_rank, arg, err);
}

static void play(scene *s)
{
    tutti_error err = { .rank = -1 };

    if (forked(in_child, s, &err) != TUTTI_OK)
        fail_msg("%s over %s: %s", s->j.options.method, s->transport, err.text);
}

static void simulated_files_are_those_of_a_blocking_save(void **state)
{
    static const char *const methods[] = { "ddp", "zero", "local-sgd(period=2)", "d-psgd" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        char blocking[SCRATCH_PATH], background[SCRATCH_PATH];
        scene s = { .j = job_of(methods[k], 0), .transport = "shm", .directory = blocking };
        scratch_make(blocking);
        scratch_make(background);
        play(&s);
        s.transport = "sim";
        s.directory = background;
        s.background = true;
        play(&s);
        checkpoint_assert_same(blocking, background, "step-00000002");
        scratch_remove(blocking);
        scratch_remove(background);
    }
}

static void simulated_run_takes_the_same_time_again(void **state)
{
    char notes[SCRATCH_PATH], note[2][SCRATCH_PATH + 16], text[2][200];

    (void)state;
    scratch_make(notes);
    for (int k = 0; k < 2; k++) {
        char directory[SCRATCH_PATH], name[16];
        scene s = { .j = job_of("ddp", 0), .transport = "sim", .directory = directory, .note = note[k],
                    .background = true };
        scratch_make(directory);
        snprintf(name, sizeof name, "note-%d", k);
        snprintf(note[k], sizeof note[k], "%s/%s", notes, name);
        play(&s);
        text[k][checkpoint_contents(notes, ".", name, text[k], sizeof text[k])] = 0;
        scratch_remove(directory);
    }
    assert_string_equal(text[0], text[1]);
    scratch_remove(notes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulated_files_are_those_of_a_blocking_save),
        cmocka_unit_test(simulated_run_takes_the_same_time_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
