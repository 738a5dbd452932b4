/* Runs files, or all files of a folder, through a fuzz target's function, without libFuzzer: every
   input that ever broke something stays a test. With --changed N also N damaged copies of each, the
   same in every run: some bits or bytes of it are others, or a part is missing, doubled, or another
   input's. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tutti/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    char *path;
    uint8_t *data;
    size_t size;
} input;

static input *inputs;
static int inputs_n;

static void add(const char *path)
{
    FILE *f = fopen(path, "rb");
    input new = { strdup(path), NULL, 0 };
    long size;

    if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0) {
        perror(path);
        exit(1);
    }
    rewind(f);
    new.size = (size_t)size;
    new.data = malloc(new.size + 1);
    inputs = realloc(inputs, ((size_t)inputs_n + 1) * sizeof *inputs);
    if (inputs == NULL || new.data == NULL || fread(new.data, 1, new.size, f) != new.size) {
        perror(path);
        exit(1);
    }
    fclose(f);
    inputs[inputs_n++] = new;
}

static void add_folder(const char *path, DIR *dir)
{
    struct dirent *entry;

    while ((entry = readdir(dir)) != NULL) {
        char file[4096];
        struct stat st;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (stat(file, &st) == 0 && S_ISREG(st.st_mode))
            add(file);
    }
    closedir(dir);
}

static int by_path(const void *a, const void *b) { return strcmp(((const input *)a)->path, ((const input *)b)->path); }

/* In memory exactly as long as the input: a read past the end is seen. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size + (size == 0));

    if (exact == NULL)
        exit(1);
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static size_t draw(size_t below) /* 0 to below - 1; 0 of none */
{
    static uint64_t index;

    return below == 0 ? 0 : (size_t)(tutti_random((tutti_rng){ .seed = 1 }, index++) % below);
}

static void run_changed(const input *from)
{
    static const uint8_t telling[] = { 0, 1, 0x7f, 0x80, 0xff, '"', '{', '\n' };
    const input *other = &inputs[draw((size_t)inputs_n)];
    const size_t at = draw(from->size), n = draw(from->size - at + 1), there = draw(other->size),
                 theirs = draw(other->size - there + 1);
    uint8_t *data = malloc(from->size + n + theirs + 1);
    size_t size = from->size;

    if (data == NULL)
        exit(1);
    memcpy(data, from->data, size);
    switch (size == 0 ? 4 : draw(6)) {
    case 0:
    case 1: /* bits and bytes are others */
        for (size_t left = 1 + draw(4); left > 0; left--) {
            uint8_t *byte = &data[draw(size)];
            *byte = draw(2) == 0 ? *byte ^ (uint8_t)(1u << draw(8)) : telling[draw(sizeof telling)];
        }
        break;
    case 2: /* the end is missing */
        size = at;
        break;
    case 3: /* a part is missing */
        memmove(data + at, data + at + n, size - at - n);
        size -= n;
        break;
    case 4: /* the rest is another input's */
        memcpy(data + at, other->data + there, theirs);
        size = at + theirs;
        break;
    default: /* a part is doubled */
        memmove(data + at + n, data + at, size - at);
        size += n;
    }
    run(data, size);
    free(data);
}

int main(int argc, char **argv)
{
    int changed = 0;

    for (int i = 1; i < argc; i++) {
        DIR *dir;
        if (strcmp(argv[i], "--changed") == 0 && i + 1 < argc)
            changed = atoi(argv[++i]);
        else if ((dir = opendir(argv[i])) == NULL)
            add(argv[i]);
        else
            add_folder(argv[i], dir);
    }
    if (inputs_n > 0)
        qsort(inputs, (size_t)inputs_n, sizeof *inputs, by_path); /* folders have no order */
    for (int k = 0; k < inputs_n; k++) {
        run(inputs[k].data, inputs[k].size);
        for (int c = 0; c < changed; c++)
            run_changed(&inputs[k]);
    }
    printf("%d inputs replayed, and %d changed ones of each\n", inputs_n, changed);
    for (int k = 0; k < inputs_n; k++) {
        free(inputs[k].path);
        free(inputs[k].data);
    }
    free(inputs);
    return inputs_n > 0 ? 0 : 1; /* an empty corpus proves nothing */
}
