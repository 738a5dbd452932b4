/* data.c: `tutti data`: what sets there are, what is in one, is it whole. */
#include <errno.h>
#include <string.h>

#include "cli_internal.h"
#include "tutti/data.h"

static tutti_status open_set(tutti_data **data, tutti_runtime *rt, const char *name, void **memory, char *path, size_t bytes, tutti_error *err)
{
    char installed[4096];

    *memory = NULL;
    TUTTI_TRY(tutti_data_find(rt, name, tutti_cli_installed(installed, sizeof installed, "data"), path, bytes, err));
    TUTTI_TRY(tutti_data_open_spec(data, rt, name, installed, err));
    *memory = tutti_alloc((size_t)tutti_data_shape_of(*data)->bytes, 1);
    if (*memory == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for the %llu bytes of %s", (unsigned long long)tutti_data_shape_of(*data)->bytes, path);
    return tutti_data_attach(*data, *memory, true, err);
}

/* place: where it is, or NULL to leave that out. */
static void print_known(const tutti_data_set *set, const char *place)
{
    printf("%s%s: %s%s%s\n", place == NULL ? "\n" : "", set->name, set->title, place != NULL ? "\n  " : "", place != NULL ? place : "");
    if (set->options != NULL) {
        printf("\n  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, set->options, false);
    }
}

static void print_set(const tutti_data *data, const char *path, const char *name)
{
    const tutti_data_shape *shape = tutti_data_shape_of(data);

    printf("%s%s%s\n  training samples %llu, test samples %llu\n  each %d x %d x %d %s, %d classes\n", path, strcmp(path, name) != 0 ? " as " : "",
           strcmp(path, name) != 0 ? name : "", (unsigned long long)shape->samples[TUTTI_TRAIN], (unsigned long long)shape->samples[TUTTI_TEST], shape->channels,
           shape->height, shape->width, shape->value_bytes == 1 ? "bytes" : "floats", shape->classes);
    if (shape->value_bytes == 1)
        printf("  pixels / 255: mean %.4f, deviation %.4f\n", (double)shape->mean, (double)shape->deviation);
    printf("  contents %016llx\n", (unsigned long long)tutti_data_hash(data));
    for (int split = 0; split < 2; split++) {
        uint64_t count[256] = { 0 };
        const uint8_t *labels = tutti_data_labels(data, (tutti_split)split);
        for (uint64_t i = 0; i < shape->samples[split]; i++)
            count[labels[i]]++;
        printf("  %s samples of each class:", split == TUTTI_TRAIN ? "training" : "test");
        for (int c = 0; c < shape->classes; c++)
            printf(" %llu", (unsigned long long)count[c]);
        putchar('\n');
    }
}

int tutti_cli_data(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt = NULL;
    tutti_data *data = NULL;
    void *memory = NULL;
    char path[2048];
    tutti_status status;

    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) {
        printf("tutti data list | inspect NAME | verify NAME\n\nNAME is a name of `list`, with options or without (mnist, 'mnist(distort=0.5)'), or a directory of IDX files. `mnist` is "
               "looked for in\n$TUTTI_DATA/mnist, ./data/mnist, then where Tutti is installed; quadratic and logistic are drawn from their options.\n"
               "inspect prints shapes, classes and statistics; verify reads every byte and checks sizes, counts and gzip checksums.\n");
        for (const tutti_data_set *set = tutti_data_sets; set->name != NULL; set++)
            print_known(set, NULL);
        return EXIT_DONE;
    }
    if (strcmp(verb, "list") == 0 && argc == 2) {
        status = tutti_runtime_open_posix(&rt, &err);
        if (status == TUTTI_OK) {
            char installed[4096];
            tutti_cli_installed(installed, sizeof installed, "data");
            for (const tutti_data_set *set = tutti_data_sets; set->name != NULL; set++) {
                const bool here = tutti_data_find(rt, set->name, installed, path, sizeof path, NULL) == TUTTI_OK;
                print_known(set, set->drawn ? "drawn from its options" : here ? path : "not found: put the four IDX files in ./data/mnist");
            }
        }
        tutti_runtime_close(rt);
        return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
    }
    if ((strcmp(verb, "inspect") != 0 && strcmp(verb, "verify") != 0) || argc != 3)
        return tutti_cli_usage("data", argc < 2 ? "say list, inspect NAME or verify NAME" : "'%s' with %d argument%s is not known", verb, argc - 2, argc == 3 ? "" : "s");
    status = tutti_runtime_open_posix(&rt, &err);
    if (status == TUTTI_OK)
        status = open_set(&data, rt, argv[2], &memory, path, sizeof path, &err);
    if (status == TUTTI_OK && strcmp(verb, "inspect") == 0)
        print_set(data, path, argv[2]);
    else if (status == TUTTI_OK)
        printf("%s: whole; %llu + %llu samples, contents %016llx\n", path, (unsigned long long)tutti_data_shape_of(data)->samples[TUTTI_TRAIN],
               (unsigned long long)tutti_data_shape_of(data)->samples[TUTTI_TEST], (unsigned long long)tutti_data_hash(data));
    tutti_data_close(data);
    tutti_free(memory);
    tutti_runtime_close(rt);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
