/* Goal: at every instant a valid checkpoint can be found, and it is the old one or the new one,
   whole. Method: the k-th mutating file operation is the last one that the process does, for
   every k until the save succeeds; then the machine continues with all that was done, or loses
   what was not synced: contents, directory entries, or both. The same k-th operation also fails
   with no space, an error, or half the bytes: then the save reports it on every rank, and leaves
   the older checkpoint and no trace. The simulated files know what was synced; a real process
   killed on a real disk stands at the end. */
#include "saved.h"
#include "runtime/files.h"
#include "sanitized.h"
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct scene {
    uint64_t old_step, new_step;  /* 0: there is no old one */
    int old_size, size, keep;
    bool damaged;                 /* the old one is at -old, as after a crash, and what has its name is damaged */
} scene;
static const scene scenes[] = {
    { 10, 20, 1, 1, 1 }, /* the old one is retired */
    { 10, 20, 2, 2, 2 },
    { 10, 10, 1, 2, 1 }, /* the old one is replaced */
    { 0, 20, 1, 1, 2 },  /* the first */
    { 10, 10, 1, 2, 1, true },
};

static memory_files *begin(const scene *s, memory_fault fault, uint64_t at)
{
    memory_files *m = memory_files_open(NULL);

    if (s->old_step != 0)
        assert_int_equal(save_plain(&m->rt, "run/checkpoints", s->old_size, s->old_step, 1, s->keep), TUTTI_OK);
    if (s->damaged) {
        assert_int_equal(
            tutti_file_rename(&m->rt, "run/checkpoints/step-00000010", "run/checkpoints/step-00000010-old", NULL),
            TUTTI_OK);
        memory_files_put(m, "run/checkpoints/step-00000010/manifest.json", "x", 1);
    }
    m->operations = 0;
    m->fault = fault;
    m->fault_at = at;
    return m;
}

/* The generation of what is found, wholly checked; 0: nothing. */
static int found_generation(const scene *s, tutti_runtime *files, const char *dir)
{
    char found[200], was[200], is[200];
    tutti_checkpoint *c;
    int generation;

    if (tutti_checkpoint_find(files, dir, found, sizeof found, NULL, 0, NULL) != TUTTI_OK)
        return 0;
    snprintf(was, sizeof was, "step-%08llu", (unsigned long long)s->old_step);
    snprintf(is, sizeof is, "step-%08llu", (unsigned long long)s->new_step);
    assert_int_equal(tutti_checkpoint_open(&c, files, found, NULL), TUTTI_OK);
    if (s->old_step != s->new_step)
        generation = tutti_checkpoint_step(c) == s->old_step ? 1 : 2;
    else
        generation = tutti_checkpoint_world(c) == s->old_size ? 1 : 2;
    assert_true(tutti_checkpoint_step(c) == s->old_step || tutti_checkpoint_step(c) == s->new_step);
    tutti_checkpoint_close(c);
    expect_whole(files, found, generation == 1 ? s->old_size : s->size, 2, generation);
    return generation;
}

static void crash_at_any_operation_leaves_old_or_new_checkpoint(void **state)
{
    (void)state;
    for (size_t which = 0; which < TUTTI_LENGTH(scenes); which++)
        for (int loss = 0; loss < 4; loss += UNLESS_SANITIZED(1, 3)) {
            const scene *s = &scenes[which];
            uint64_t k = 0, seen[3] = { 0 };
            bool ended = false;
            while (!ended) {
                saving save = {
                    .dir = "run/checkpoints", .facts = "{\"seed\": 7}", .step = s->new_step, .generation = 2,
                    .keep = s->keep,
                };
                memory_files *m = begin(s, FAULT_STOP, ++k);
                tutti_status status;
                int generation;

                save.files = &m->rt;
                status = save_by(&save, s->size);
                ended = !m->stopped;
                memory_files_crash(m, loss & 1, loss & 2);
                generation = found_generation(s, &m->rt, "run/checkpoints");
                seen[generation]++;
                assert_true(generation != 0 || s->old_step == 0);
                if (status == TUTTI_OK) /* what was promised is kept, whatever is lost */
                    assert_int_equal(generation, 2);

                /* The next save works and cleans up. */
                assert_int_equal(save_plain(&m->rt, "run/checkpoints", s->size, s->new_step, 2, s->keep), TUTTI_OK);
                assert_int_equal(found_generation(s, &m->rt, "run/checkpoints"), 2);
                assert_int_equal(memory_files_count(m, "run/checkpoints", "tmp-"), 0);
                assert_int_equal(memory_files_count(m, "run/checkpoints", ""), s->old_step != 0 && s->keep > 1 ? 2 : 1);
                memory_files_close(m);
            }
            assert_true(k > 15 && seen[s->old_step != 0] > 10 && seen[2] > 0); /* both outcomes were met */
        }
}

/* A disk may take a later rename and not the one before it, as long as neither was synced.
   The process is killed at an operation, or some operations after one that has failed,
   while the save puts things back. */
static void crash_with_partial_renames_leaves_old_or_new_checkpoint(void **state)
{
    (void)state;
    for (size_t which = 0; which < TUTTI_LENGTH(scenes); which++)
        for (uint64_t later = 0; later <= 2; later += UNLESS_SANITIZED(1, 2)) {
            const scene *s = &scenes[which];
            uint64_t k = 0, seen[3] = { 0 };
            bool ended = false;
            while (!ended) {
                saving save = {
                    .dir = "run/checkpoints", .facts = "{\"seed\": 7}", .step = s->new_step, .generation = 2,
                    .keep = s->keep,
                };
                memory_files *m = begin(s, FAULT_IO, ++k);
                uint64_t draws;
                tutti_status status;

                save.files = &m->rt;
                m->stop_at = k + later;
                status = save_by(&save, s->size);
                ended = m->operations < k;
                draws = (uint64_t)1 << (memory_files_unsynced(m) < 5 ? memory_files_unsynced(m) : 5);
                for (uint64_t draw = 0; draw < draws; draw++) {
                    int generation;
                    memory_files_crash_with_some(m, true, (tutti_rng){ 3, which, 100 * k + draw });
                    generation = found_generation(s, &m->rt, "run/checkpoints");
                    seen[generation]++;
                    assert_true(generation != 0 || s->old_step == 0);
                    if (status == TUTTI_OK)
                        assert_int_equal(generation, 2);
                }
                memory_files_close(m);
            }
            assert_true(seen[s->old_step != 0] > 50 && seen[2] > 0);
        }
}

static void failing_operation_fails_all_ranks_and_leaves_no_files(void **state)
{
    (void)state;
    for (size_t which = 0; which < TUTTI_LENGTH(scenes); which++)
        for (memory_fault fault = FAULT_NO_SPACE; fault <= FAULT_SHORT; fault++) {
            const scene *s = &scenes[which];
            uint64_t k = 0, failed = 0;
            bool ended = false;
            while (!ended) {
                saving save = {
                    .dir = "run/checkpoints", .facts = "{\"seed\": 7}", .step = s->new_step, .generation = 2,
                    .keep = s->keep,
                };
                memory_files *m = begin(s, fault, ++k);
                tutti_status status;
                int generation;

                save.files = &m->rt;
                status = save_by(&save, s->size);
                ended = m->operations < k;
                generation = found_generation(s, &m->rt, "run/checkpoints");
                if (status == TUTTI_OK) {
                    assert_int_equal(generation, 2);
                } else {
                    failed++;
                    assert_int_equal(status, TUTTI_ERR_IO);
                    assert_true(fault != FAULT_SHORT); /* the rest of a short write is written */
                    assert_int_equal(save.err[0].cause, fault == FAULT_NO_SPACE ? ENOSPC : EIO);
                    assert_true(save.err[0].rank >= 0 && save.err[0].rank < s->size);
                    assert_non_null(strstr(save.err[0].text, "cannot save the checkpoint of step "));
                    assert_non_null(strstr(save.err[0].text, fault == FAULT_NO_SPACE ? "(No space left on device)"
                                                                                     : "(Input/output error)"));
                    assert_int_equal(generation, s->old_step != 0 ? 1 : 0);
                    assert_int_equal(memory_files_count(m, "run/checkpoints", "tmp-"), 0);
                    assert_true(s->damaged || memory_files_count(m, "run/checkpoints", "") == (s->old_step != 0));
                    /* it has its name back */
                    assert_true(s->damaged || memory_files_count(m, "run/checkpoints", "step-00000010-old") == 0);
                }
                memory_files_close(m);
            }
            assert_true(fault == FAULT_SHORT || failed >= 12);
        }
}

static void the_rank_whose_disk_is_full_is_named(void **state)
{
    const scene s = { 0, 20, 0, 3, 1 };
    bool named[3] = { false };

    (void)state;
    for (uint64_t k = 1; k < 30; k++) {
        saving save = { .dir = "a", .facts = "{\"seed\": 7}", .step = 20, .keep = 1 };
        memory_files *m = begin(&s, FAULT_NO_SPACE, k);
        char text[200], path[64];
        save.files = &m->rt;
        if (save_by(&save, 3) != TUTTI_OK && strstr(save.err[2].text, "cannot write") != NULL &&
            strstr(save.err[2].text, "rank-") != NULL) {
            const int rank = save.err[2].rank;
            snprintf(path, sizeof path, "rank-%05d-of-00003.safetensors.part", rank);
            snprintf(text, sizeof text, "cannot save the checkpoint of step 20: rank %d: cannot write ", rank);
            assert_memory_equal(save.err[2].text, text, strlen(text));
            assert_non_null(strstr(save.err[2].text, path));
            assert_non_null(
                strstr(save.err[2].text, "; free space there or choose another place (No space left on device)"));
            named[rank] = true;
        }
        memory_files_close(m);
    }
    assert_true(named[0] && named[1] && named[2]);
}

/* ---- a real process on a real disk ---- */

typedef struct counter { tutti_runtime rt; tutti_runtime_ops ops; tutti_runtime *real; int left; } counter;

/* The process ends before the operation, without warning. */
static void *count_down(void *self)
{
    counter *c = self;
    if (c->left-- == 0)
        _exit(99);
    return c->real->self;
}

static int killed_open(void *self, const char *path, tutti_file_mode mode, int *fd)
{
    counter *c = self;
    return c->real->ops->file_open(mode == TUTTI_FILE_READ ? c->real->self : count_down(self), path, mode, fd);
}
static int killed_write(void *self, int fd, const void *from, size_t bytes, size_t *done)
{
    counter *c = self;
    if (c->left == 0)
        c->real->ops->file_write(c->real->self, fd, from, bytes / 2, done); /* torn */
    return c->real->ops->file_write(count_down(self), fd, from, bytes, done);
}
static int killed_sync(void *self, int fd) { counter *c = self; return c->real->ops->file_sync(count_down(self), fd); }
static int killed_rename(void *self, const char *from, const char *to)
{
    counter *c = self;
    return c->real->ops->file_rename(count_down(self), from, to);
}
static int killed_remove(void *self, const char *path)
{
    counter *c = self;
    return c->real->ops->file_remove(count_down(self), path);
}
static int killed_make(void *self, const char *path)
{
    counter *c = self;
    return c->real->ops->directory_make(count_down(self), path);
}
static int killed_directory_sync(void *self, const char *path)
{
    counter *c = self;
    return c->real->ops->directory_sync(count_down(self), path);
}
static int plain_size(void *self, int fd, uint64_t *bytes)
{
    counter *c = self;
    return c->real->ops->file_size(c->real->self, fd, bytes);
}
static int plain_read(void *self, int fd, uint64_t at, void *to, size_t bytes, size_t *done)
{
    counter *c = self;
    return c->real->ops->file_read(c->real->self, fd, at, to, bytes, done);
}
static int plain_close(void *self, int fd) { counter *c = self; return c->real->ops->file_close(c->real->self, fd); }
static int plain_list(void *self, const char *path, void (*each)(void *user, const char *name), void *user)
{
    counter *c = self;
    return c->real->ops->directory_list(c->real->self, path, each, user);
}
static int plain_exists(void *self, const char *path)
{
    counter *c = self;
    return c->real->ops->exists(c->real->self, path);
}
static int plain_space(void *self, const char *path, uint64_t *bytes)
{
    counter *c = self;
    return c->real->ops->space_left(c->real->self, path, bytes);
}
static void plain_entropy(void *self, void *to, size_t bytes)
{
    counter *c = self;
    c->real->ops->entropy(c->real->self, to, bytes);
}

static void open_counter(counter *c, tutti_runtime *real, int left)
{
    *c = (counter){ .real = real, .left = left };
    c->ops = (tutti_runtime_ops){
        .abi = TUTTI_RUNTIME_ABI, .bytes = sizeof c->ops, .name = "killed", .file_open = killed_open,
        .file_size = plain_size, .file_read = plain_read, .file_write = killed_write, .file_sync = killed_sync,
        .file_close = plain_close, .file_rename = killed_rename, .file_remove = killed_remove,
        .directory_make = killed_make, .directory_sync = killed_directory_sync, .directory_list = plain_list,
        .exists = plain_exists, .space_left = plain_space, .entropy = plain_entropy,
    };
    c->rt.ops = &c->ops;
    c->rt.self = c;
}

static tutti_status remove_entry(void *user, const char *name, tutti_error *err)
{
    char path[300];
    (void)err;
    snprintf(path, sizeof path, "%s/%s", (const char *)user, name);
    remove(path);
    return TUTTI_OK;
}

static void remove_folder(tutti_runtime *rt, const char *path)
{
    tutti_directory_list(rt, path, remove_entry, (void *)(uintptr_t)path, NULL);
    rmdir(path);
}

static void kill_at_any_operation_leaves_old_or_new_checkpoint(void **state)
{
    const scene s = { 10, 20, 1, 1, 1 };
    char base[] = "/tmp/tutti-crash-XXXXXX", dir[100], path[200];
    tutti_runtime *rt;
    int outcome = 99, k, seen[3] = { 0 };

    (void)state;
    assert_non_null(mkdtemp(base));
    snprintf(dir, sizeof dir, "%s/checkpoints", base);
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    for (k = 0; outcome == 99; k++) {
        pid_t child;
        int ended, generation;
        snprintf(path, sizeof path, "%s/step-00000020", dir); /* each time from the same beginning */
        remove_folder(rt, path);
        assert_int_equal(save_plain(rt, dir, 1, 10, 1, 1), TUTTI_OK);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            saving save = { .dir = dir, .facts = "{\"seed\": 7}", .step = 20, .generation = 2, .keep = 1 };
            counter c;
            open_counter(&c, rt, k);
            save.files = &c.rt;
            _exit(save_by(&save, 1) == TUTTI_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(WIFEXITED(ended));
        outcome = WEXITSTATUS(ended);
        assert_true(outcome == 99 || outcome == 0);
        generation = found_generation(&s, rt, dir);
        seen[generation]++;
        assert_true(generation != 0 && (outcome != 0 || generation == 2));
    }
    assert_true(k > 15 && seen[1] > 10 && seen[2] > 4);
    snprintf(path, sizeof path, "%s/step-00000020", dir);
    remove_folder(rt, path);
    assert_int_equal(rmdir(dir), 0); /* nothing else is left */
    assert_int_equal(rmdir(base), 0);
    tutti_runtime_close(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crash_at_any_operation_leaves_old_or_new_checkpoint),
        cmocka_unit_test(crash_with_partial_renames_leaves_old_or_new_checkpoint),
        cmocka_unit_test(failing_operation_fails_all_ranks_and_leaves_no_files),
        cmocka_unit_test(the_rank_whose_disk_is_full_is_named),
        cmocka_unit_test(kill_at_any_operation_leaves_old_or_new_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
