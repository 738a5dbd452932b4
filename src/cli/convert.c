/* convert.c: `tutti convert FROM TO`: writes the model of a run or checkpoint, or weights, as one
   safetensors file or as a folder of them with an index, as Hugging Face's libraries read it. */
#include <errno.h>
#include <string.h>

#include "cli_internal.h"
#include "base/options.h"
#include "runtime/files.h"
#include "state/folder.h"
#include "train/trained.h"

#define SHARD_SIZE "5GiB"

typedef struct convert_config {
    const char *most;
} convert_config;

const tutti_option tutti_cli_convert_options[] = {
    { "max-shard-size", TUTTI_TEXT, TUTTI_AT(convert_config, most), 0, 0, 0, "",
      "bytes of tensors in a file of a folder, such as 500MiB; none: " SHARD_SIZE
      ". A larger tensor has a file of its own" },
    { 0 }
};

static bool ends(const char *text, const char *with)
{
    const size_t n = strlen(text), m = strlen(with);

    return n >= m && strcmp(text + n - m, with) == 0;
}

static bool has(tutti_runtime *rt, const char *folder, const char *name)
{
    char path[4300];

    snprintf(path, sizeof path, "%.4096s/%s", folder, name);
    return tutti_file_exists(rt, path);
}

/* Sets to->most from the name of the target and the flag. */
static tutti_status plan_target(tutti_tensors_target *to, const convert_config *c,
                                tutti_error *err)
{
    static const char *const others[] = { ".pt", ".pth", ".bin", ".ckpt", ".gguf", ".npz", ".onnx" };
    const bool file = ends(to->path, ".safetensors");
    const char *size = c->most[0] != 0 ? c->most : SHARD_SIZE;
    size_t most;

    for (size_t k = 0; k < TUTTI_LENGTH(others); k++)
        if (ends(to->path, others[k]))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "files of the kind '%s' are not written; name a file that ends with "
                              ".safetensors, or a folder",
                              others[k]);
    if (file && c->most[0] != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "--max-shard-size is for a folder of files, and '%.300s' is one file; "
                          "omit it, or name a folder",
                          to->path);
    TUTTI_TRY(tutti_fail_within(err, tutti_bytes_parse(size, strlen(size), &most, err),
                                "max-shard-size"));
    to->most = file ? 0 : most;
    return TUTTI_OK;
}

static tutti_status no_memory(const char *from, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the list of tensors in '%.300s'",
                      from);
}

static tutti_status copy(void *with, const tutti_tensor_entry *e, uint64_t offset, void *to,
                         size_t bytes, tutti_error *err)
{
    tutti_tensor_file *f = with;

    return tutti_safetensors_read(f, tutti_safetensors_find(f, e->name), offset, to, bytes, err);
}

static tutti_status convert_weights(tutti_runtime *rt, const char *from, tutti_tensors_target *to,
                                    tutti_error *err)
{
    tutti_tensor_file *f;
    tutti_tensor_entry *entries;
    bool hashed;
    tutti_status status;

    TUTTI_TRY(tutti_tensors_open(&f, rt, from, err));
    const size_t n = tutti_safetensors_count(f);
    entries = tutti_alloc(n + 1, sizeof *entries);
    status = entries == NULL ? no_memory(from, err) : tutti_tensors_verify(f, &hashed, err);
    for (size_t k = 0; k < n && entries != NULL; k++) {
        entries[k] = *tutti_safetensors_entry(f, k);
        entries[k].copy = copy;
        entries[k].with = f;
    }
    if (status == TUTTI_OK)
        status = tutti_tensors_write(rt, to, entries, n, err);
    tutti_free(entries);
    tutti_safetensors_close(f);
    return status;
}

static tutti_status convert_run(tutti_runtime *rt, const char *from, tutti_tensors_target *to,
                                tutti_error *err)
{
    tutti_trained *t;
    tutti_tensor_entry *entries;
    size_t n;
    tutti_status status;

    TUTTI_TRY(tutti_trained_open(&t, rt, from, 1, err));
    n = tutti_trained_tensors(t, NULL);
    entries = tutti_alloc(n + 1, sizeof *entries);
    status = entries == NULL ? no_memory(from, err) : TUTTI_OK;
    if (status == TUTTI_OK) {
        tutti_trained_tensors(t, entries);
        status = tutti_tensors_write(rt, to, entries, n, err);
    }
    tutti_free(entries);
    tutti_trained_close(t);
    return status;
}

static tutti_status convert(const char *from, const convert_config *c, tutti_tensors_target *to,
                            tutti_error *err)
{
    tutti_runtime *rt;
    tutti_status status;

    TUTTI_TRY(plan_target(to, c, err));
    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    if (has(rt, from, ".metadata"))
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "'%.300s' is a directory of torch.distributed.checkpoint, whose index "
                            "is a pickle; the Python package reads it without running it: "
                            "python -m tutti.dcp '%.300s' FILE.safetensors",
                            from, from);
    else if (!has(rt, from, TUTTI_TENSORS_FILE) && !has(rt, from, TUTTI_TENSORS_INDEX) &&
             (has(rt, from, "manifest.json") || has(rt, from, "model.json") ||
              has(rt, from, "../model.json") || has(rt, from, "checkpoints")))
        status = convert_run(rt, from, to, err);
    else
        status = convert_weights(rt, from, to, err);
    tutti_runtime_close(rt);
    return status;
}

static void print_help(void)
{
    printf("tutti convert FROM TO [--max-shard-size SIZE]\n\n");
    tutti_cli_wrap(stdout, "", 0,
                   "Writes a model for other programs. FROM is a run's directory (its "
                   "model.safetensors, else its newest checkpoint), one checkpoint of `tutti "
                   "train`, a safetensors file, or a folder with model.safetensors.index.json. TO is "
                   "a file if it ends with .safetensors, else a folder; it must not exist, and "
                   "appears when all of it is on the disk. Hashes are written with it, which `tutti "
                   "check` compares. A checkpoint is not made of weights, which lack the "
                   "optimizer's state: begin a run with them, `tutti train --init FROM`.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_convert_options, true);
}

int tutti_cli_convert(int argc, char **argv)
{
    convert_config c;
    tutti_tensors_target to = { 0 };
    tutti_error err = { .rank = -1 };
    bool help = false;

    tutti_options_default(tutti_cli_convert_options, &c);
    if (tutti_cli_take_flags(&(tutti_flag_table){ tutti_cli_convert_options, NULL, &c }, &argc,
                             argv, &help, &err) != TUTTI_OK)
        return tutti_cli_fail(&err);
    if (help) {
        print_help();
        return EXIT_DONE;
    }
    if (argc != 3 || argv[1][0] == '-' || argv[2][0] == '-')
        return tutti_cli_usage("convert", "it takes two paths, FROM and TO");
    to.path = argv[2];
    if (convert(argv[1], &c, &to, &err) != TUTTI_OK)
        return tutti_cli_fail(&err);
    printf("%s: %llu bytes of tensors in %zu file%s, with hashes\n", argv[2],
           (unsigned long long)to.bytes, to.files, to.files == 1 ? "" : "s");
    return EXIT_DONE;
}
