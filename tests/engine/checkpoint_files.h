/* checkpoint_files.h: what directories of checkpoints hold, for tests that compare them. */
#ifndef TUTTI_TESTS_CHECKPOINT_FILES_H
#define TUTTI_TESTS_CHECKPOINT_FILES_H
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "scratch.h"
#include "runtime/files.h"
#include "tutti/files.h"

/* The newest complete checkpoint, every hash checked; its step, or -1. */
static inline int checkpoint_newest(const char *directory, char found[SCRATCH_PATH + 64])
{
    tutti_runtime *rt;
    tutti_checkpoint *c;
    tutti_error err = { 0 };
    int step = -1;

    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    if (tutti_checkpoint_find(rt, directory, found, SCRATCH_PATH + 64, NULL, 0, NULL) == TUTTI_OK) {
        assert_int_equal(tutti_checkpoint_open(&c, rt, found, NULL), TUTTI_OK);
        if (tutti_checkpoint_verify(c, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        step = (int)tutti_checkpoint_step(c);
        tutti_checkpoint_close(c);
    }
    tutti_runtime_close(rt);
    return step;
}

typedef struct checkpoint_listing { char text[4000]; } checkpoint_listing;

static inline tutti_status checkpoint_add(void *user, const char *name, tutti_error *err)
{
    checkpoint_listing *of = user;
    const size_t used = strlen(of->text);

    (void)err;
    snprintf(of->text + used, sizeof of->text - used, "%s ", name);
    return TUTTI_OK;
}

/* The names in a directory, each followed by a space. */
static inline checkpoint_listing checkpoint_names(const char *directory)
{
    checkpoint_listing of = { 0 };
    tutti_runtime *rt;

    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    assert_int_equal(tutti_directory_list(rt, directory, checkpoint_add, &of, NULL), TUTTI_OK);
    tutti_runtime_close(rt);
    return of;
}

static inline size_t checkpoint_contents(const char *directory, const char *checkpoint,
                                         const char *name, char *to, size_t most)
{
    char path[2 * SCRATCH_PATH];
    FILE *f;
    size_t bytes;

    snprintf(path, sizeof path, "%s/%s/%s", directory, checkpoint, name);
    f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("%s: %s", path, strerror(errno));
    bytes = fread(to, 1, most, f);
    fclose(f);
    assert_true(bytes > 0 && bytes < most);
    return bytes;
}

/* Both directories have that checkpoint, with the same files of the same bytes. */
static inline void checkpoint_assert_same(const char *a, const char *b, const char *checkpoint)
{
    enum { MOST = 1 << 20 };
    char path[2 * SCRATCH_PATH], *one = test_malloc(MOST), *other = test_malloc(MOST), *rest;
    checkpoint_listing of_a, of_b;

    snprintf(path, sizeof path, "%s/%s", a, checkpoint);
    of_a = checkpoint_names(path);
    snprintf(path, sizeof path, "%s/%s", b, checkpoint);
    of_b = checkpoint_names(path);
    assert_string_equal(of_a.text, of_b.text);
    for (char *name = strtok_r(of_a.text, " ", &rest); name != NULL;
         name = strtok_r(NULL, " ", &rest)) {
        const size_t bytes = checkpoint_contents(a, checkpoint, name, one, MOST);
        assert_int_equal(bytes, checkpoint_contents(b, checkpoint, name, other, MOST));
        assert_memory_equal(one, other, bytes);
    }
    test_free(one);
    test_free(other);
}
#endif
