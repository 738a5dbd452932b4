/* check.c: `tutti check DIR|FILE`: reads the checkpoints of a run, or weights in a safetensors file
   or in a folder of them, and verifies every hash. */
#include <string.h>

#include "cli_internal.h"
#include "runtime/files.h"
#include "state/folder.h"
#include "state/read.h"

static tutti_status check_one(tutti_runtime *rt, const char *directory, tutti_error *err)
{
    tutti_checkpoint *c;

    TUTTI_TRY(tutti_checkpoint_open(&c, rt, directory, err));
    tutti_checkpoint_alone(c);
    const tutti_status status = tutti_checkpoint_verify(c, err);
    if (status == TUTTI_OK)
        printf("%s: whole; step %llu, saved by %d worker%s\n", directory,
               (unsigned long long)tutti_checkpoint_step(c), tutti_checkpoint_world(c),
               tutti_checkpoint_world(c) == 1 ? "" : "s");
    tutti_checkpoint_close(c);
    return status;
}

static tutti_status check_weights(tutti_runtime *rt, const char *path, tutti_error *err)
{
    tutti_tensor_file *f;
    bool hashed;

    TUTTI_TRY(tutti_tensors_open(&f, rt, path, err));
    const tutti_status status = tutti_tensors_verify(f, &hashed, err);
    if (status == TUTTI_OK)
        printf("%s: %s; %zu tensors\n", path,
               hashed ? "whole"
                      : "the lengths and names fit, but it has no hashes to compare its values "
                        "with (`tutti convert` writes them)",
               tutti_safetensors_count(f));
    tutti_safetensors_close(f);
    return status;
}

static bool has(tutti_runtime *rt, const char *folder, const char *name)
{
    char path[4200];

    snprintf(path, sizeof path, "%.4096s/%s", folder, name);
    return tutti_file_exists(rt, path);
}

/* Weights: a file, or a folder of them that is no run's. */
static bool is_weights(tutti_runtime *rt, const char *path)
{
    tutti_file *file;

    if (tutti_file_open(&file, rt, path, TUTTI_FILE_READ, NULL) == TUTTI_OK) {
        tutti_file_close(file, NULL);
        return true;
    }
    return has(rt, path, TUTTI_TENSORS_INDEX) ||
           (has(rt, path, TUTTI_TENSORS_FILE) && !has(rt, path, "model.json") &&
            !has(rt, path, "checkpoints"));
}

typedef struct search { tutti_runtime *rt; const char *parent; int found, damaged; } search;

static tutti_status each(void *user, const char *name, tutti_error *err)
{
    search *s = user;
    tutti_error why = { .rank = -1 };
    char path[4096];

    (void)err;
    /* step-N-optimizer is no checkpoint: it has what a PyTorch script keeps beside one */
    if (strncmp(name, "step-", 5) != 0 || strstr(name, "-optimizer") != NULL)
        return TUTTI_OK;
    snprintf(path, sizeof path, "%s/%s", s->parent, name);
    s->found++;
    if (check_one(s->rt, path, &why) != TUTTI_OK) {
        s->damaged++;
        printf("%s: damaged; %s\n", path, why.text);
    }
    return TUTTI_OK;
}

int tutti_cli_check(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    search s = { 0 };
    char path[4096];
    tutti_status status;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("tutti check DIR|FILE\n\nDIR is a run's directory, its checkpoints folder, one "
               "checkpoint, or a folder of weights with " TUTTI_TENSORS_INDEX
               " or " TUTTI_TENSORS_FILE "; FILE a safetensors file. Reads everything and checks "
               "every hash; exit code 1 if any is damaged.\n");
        return EXIT_DONE;
    }
    if (argc != 2)
        return tutti_cli_usage("check", "it takes one directory or file, not %d arguments", argc - 1);
    status = tutti_runtime_open_posix(&s.rt, &err);
    if (status == TUTTI_OK) {
        snprintf(path, sizeof path, "%s/manifest.json", argv[1]);
        if (tutti_file_exists(s.rt, path))
            status = check_one(s.rt, argv[1], &err);
        else if (is_weights(s.rt, argv[1]))
            status = check_weights(s.rt, argv[1], &err);
        else {
            snprintf(path, sizeof path, "%s/checkpoints", argv[1]);
            s.parent = tutti_file_exists(s.rt, path) ? path : argv[1];
            status = tutti_directory_list(s.rt, s.parent, each, &s, &err);
            if (status == TUTTI_OK && s.found == 0)
                status = tutti_fail(
                    &err, TUTTI_ERR_USAGE, 0,
                    "%s holds no checkpoint; a run writes them with --checkpoint-every N", argv[1]);
            if (status == TUTTI_OK && s.damaged > 0)
                status =
                    tutti_fail(&err, TUTTI_ERR_CORRUPT, 0, "%d of %d checkpoints in %s are damaged",
                               s.damaged, s.found, s.parent);
        }
    }
    tutti_runtime_close(s.rt);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
