/* data.c: `tutti data`: lists the data sets, shows the contents of one, verifies it, and shows the
   parts that workers would have. Subcommands that make files are in data_make.c. */
#include <errno.h>
#include <string.h>

#include "cli_internal.h"
#include "data/data.h"
#include "base/options.h"

/* A data set that is open: close_set closes it. path: where it lies. */
typedef struct opened_set {
    tutti_data *data;
    void *memory;
    char path[2048];
} opened_set;

static void close_set(opened_set *s)
{
    tutti_data_close(s->data);
    tutti_free(s->memory);
}

static tutti_status open_set(opened_set *s, tutti_runtime *rt, const char *name, tutti_error *err)
{
    char installed[4096];

    s->memory = NULL;
    TUTTI_TRY(tutti_data_find(rt, name, tutti_cli_installed(installed, sizeof installed, "data"),
                              s->path, sizeof s->path, err));
    TUTTI_TRY(tutti_data_given(tutti_data_open_spec(&s->data, rt, name, installed, err), err));
    s->memory = tutti_alloc((size_t)tutti_data_shape_of(s->data)->bytes, 1);
    if (s->memory == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the %llu bytes of %s",
                          (unsigned long long)tutti_data_shape_of(s->data)->bytes, s->path);
    return tutti_data_given(tutti_data_attach(s->data, s->memory, true, err), err);
}

/* Prints a data set. place: its path; NULL: not printed. */
static void print_known(const tutti_data_set *set, const char *place)
{
    char text[300];

    if (place == NULL)
        putchar('\n');
    snprintf(text, sizeof text, "%s: %s", set->name, set->title);
    tutti_cli_wrap(stdout, "", 0, text);
    if (place != NULL)
        printf("  %s\n", place);
    if (set->options != NULL) {
        printf("\n  option               type   default                    meaning\n");
        tutti_cli_print_options(stdout, set->options, false);
    }
}

static void print_classes(const tutti_data *data)
{
    const tutti_data_shape *shape = tutti_data_shape_of(data);
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

static void print_set(const tutti_data *data, const char *path, const char *name)
{
    const tutti_data_shape *shape = tutti_data_shape_of(data);

    if (shape->context > 0) {
        printf("%s%s%s\n  training windows %llu, validation windows %llu\n"
               "  each %d tokens of %d kinds\n  contents %016llx\n",
               path, strcmp(path, name) != 0 ? " as " : "", strcmp(path, name) != 0 ? name : "",
               (unsigned long long)shape->samples[TUTTI_TRAIN],
               (unsigned long long)shape->samples[TUTTI_TEST], shape->context, shape->classes,
               (unsigned long long)tutti_data_hash(data));
        return;
    }
    printf(
        "%s%s%s\n  training samples %llu, test samples %llu\n  each %d x %d x %d %s, %d classes\n",
        path, strcmp(path, name) != 0 ? " as " : "", strcmp(path, name) != 0 ? name : "",
        (unsigned long long)shape->samples[TUTTI_TRAIN],
        (unsigned long long)shape->samples[TUTTI_TEST], shape->channels, shape->height,
        shape->width, shape->value_bytes == 1 ? "bytes" : "floats", shape->classes);
    if (shape->tables > 0)
        printf("  and %d categories, rows of tables of %u\n", shape->tables, shape->rows);
    if (shape->value_bytes == 1)
        printf("  pixels / 255: mean %.4f, deviation %.4f\n", (double)shape->mean,
               (double)shape->deviation);
    if (tutti_data_class_name(data, 0) != NULL) {
        printf("  classes:");
        for (int c = 0; c < shape->classes && tutti_data_class_name(data, c) != NULL; c++)
            printf("%s %s", c > 0 ? "," : "", tutti_data_class_name(data, c));
        putchar('\n');
    }
    printf("  contents %016llx\n", (unsigned long long)tutti_data_hash(data));
    print_classes(data);
}

/* ---- tutti data partition ---- */

static void print_partitions(void)
{
    printf("\nPartitions:\n");
    for (const tutti_partition_set *set = tutti_partitions; set->name != NULL; set++) {
        char text[300];
        putchar('\n');
        snprintf(text, sizeof text, "%s: %s", set->name, set->title);
        tutti_cli_wrap(stdout, "", 0, text);
        if (set->options != NULL)
            tutti_cli_print_options(stdout, set->options, false);
    }
}

static void print_parts(const tutti_data *data, const tutti_parts *parts, int workers)
{
    const tutti_data_shape *shape = tutti_data_shape_of(data);
    double sum = 0, most = 0;

    printf("  worker  samples  classes  distance  samples of each class\n");
    for (int r = 0; r < workers; r++) {
        uint64_t count[256] = { 0 };
        const double distance =
            tutti_partition_histogram(parts, r, tutti_data_labels(data, TUTTI_TRAIN),
                                      shape->samples[TUTTI_TRAIN], shape->classes, count);
        int has = 0;
        for (int c = 0; c < shape->classes; c++)
            has += count[c] > 0;
        printf("  %6d %8llu %8d %9.3f ", r,
               (unsigned long long)(parts->first[r + 1] - parts->first[r]), has, distance);
        for (int c = 0; c < shape->classes; c++)
            printf(" %llu", (unsigned long long)count[c]);
        putchar('\n');
        sum += distance;
        most = distance > most ? distance : most;
    }
    printf("distance between a worker's mixture of classes and that of the whole set, from 0 "
           "(equal) to 2 (nothing in common): mean %.3f, largest %.3f\n",
           sum / workers, most);
}

static tutti_status partition_set(const tutti_data *data, const char *spec, int workers,
                                  uint64_t seed, tutti_error *err)
{
    const tutti_data_shape *shape = tutti_data_shape_of(data);
    tutti_partition p;
    tutti_parts parts;
    void *memory;
    size_t bytes;
    tutti_status status;

    TUTTI_TRY(tutti_partition_read(&p, spec, err));
    if (tutti_data_labels(data, TUTTI_TRAIN) == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the set is a text, which has no labels to cut it by; partitions are for "
                          "sets with labels");
    if (p.kind == TUTTI_PARTITION_IID) {
        printf("partition iid has no parts: all workers draw from all %llu samples\n",
               (unsigned long long)shape->samples[TUTTI_TRAIN]);
        return TUTTI_OK;
    }
    if (!tutti_partition_bytes(shape->samples[TUTTI_TRAIN], workers, &bytes) ||
        (memory = tutti_alloc(bytes, 1)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the parts of %llu samples",
                          (unsigned long long)shape->samples[TUTTI_TRAIN]);
    status = tutti_partition_draw(&p,
                                  &(tutti_partition_labels){ tutti_data_labels(data, TUTTI_TRAIN),
                                                             shape->samples[TUTTI_TRAIN],
                                                             shape->classes },
                                  workers, seed, memory, err);
    tutti_partition_at(&parts, memory, workers);
    if (status == TUTTI_OK)
        print_parts(data, &parts, workers);
    tutti_free(memory);
    return status;
}

/* What `tutti data partition` is asked for. */
typedef struct partition_asked {
    const char *words[2];
    int64_t n, seed;
} partition_asked;

/* Reads the arguments of `tutti data partition`; EXIT_DONE: they are right. */
static int read_partition(int argc, char **argv, partition_asked *asked)
{
    static const tutti_option n_option = { "n", TUTTI_INT, 0, 1, 1, 1024, NULL, "workers" },
                              seed_option = { "seed", TUTTI_INT,          0,    0,
                                              0,      9007199254740992.0, NULL, "of the run" };
    tutti_error err = { .rank = -1 };
    int given = 0;
    for (int i = 1; i < argc; i++) {
        const bool is_n = strcmp(argv[i], "-n") == 0 || strcmp(argv[i], "--n") == 0,
                   is_seed = strcmp(argv[i], "--seed") == 0;
        if ((is_n || is_seed) && i + 1 == argc)
            return tutti_cli_usage("data", "%s needs a number", argv[i]);
        if (is_n || is_seed) {
            if (tutti_option_set(is_n ? &n_option : &seed_option, "data partition", argv[i + 1],
                                 is_n ? &asked->n : &asked->seed, &err) != TUTTI_OK)
                return tutti_cli_fail(&err);
            i++;
        } else if (argv[i][0] == '-')
            return tutti_cli_usage("data", "partition has no option '%s'", argv[i]);
        else if (given == 2)
            return tutti_cli_usage(
                "data", "partition takes a data set and a partition, not '%s' as well", argv[i]);
        else
            asked->words[given++] = argv[i];
    }
    if (given < 2)
        return tutti_cli_usage("data", "partition takes a data set and a partition: tutti data "
                                       "partition mnist 'dirichlet(alpha=0.1)' -n 4");
    return EXIT_DONE;
}

static int partition(int argc, char **argv)
{
    partition_asked asked = { .n = 4 };
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt = NULL;
    opened_set set = { .data = NULL };
    int code;
    tutti_status status;

    code = read_partition(argc, argv, &asked);
    if (code != EXIT_DONE)
        return code;
    status = tutti_runtime_open_posix(&rt, &err);
    if (status == TUTTI_OK)
        status = open_set(&set, rt, asked.words[0], &err);
    if (status == TUTTI_OK)
        status = partition_set(set.data, asked.words[1], (int)asked.n, (uint64_t)asked.seed, &err);
    close_set(&set);
    tutti_runtime_close(rt);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}

static void print_help(void)
{
    static const char clicks[] =
        "clicks --samples N --out OUT [--seed S --values V --zipf Z --spread D --bias B --missing "
        "P]";
    const char *const uses[] = { "list | inspect NAME | verify NAME",
                                 "partition NAME PARTITION [-n N] [--seed S]",
                                 "bpe FILE --vocab N --out OUT",
                                 "tokens FILE --out OUT [--bpe FILE]", clicks };

    for (size_t i = 0; i < TUTTI_LENGTH(uses); i++)
        tutti_cli_wrap(stdout, "tutti data", 11, uses[i]);
    putchar('\n');
    tutti_cli_wrap(stdout, "", 0,
                   "NAME is a name of `list`, with options or without (mnist, "
                   "'mnist(distort=0.5)'), or a path: of a directory of images (IDX files, "
                   "CIFAR-10's binary files, PNG and JPEG files by class), of a token file or of a "
                   "text in UTF-8. mnist, cifar10, moby-dick and speech (which tools/speech-data "
                   "makes) are looked for in $TUTTI_DATA, ./data, then where Tutti is installed; "
                   "quadratic and logistic are drawn from their options.");
    tutti_cli_wrap(stdout, "", 0,
                   "inspect prints shapes, classes and statistics; verify reads every byte and "
                   "checks sizes, counts and gzip checksums; partition shows what each of N "
                   "workers (default 4) would have with that --partition: samples, classes, "
                   "distance from the whole. bpe learns a byte-pair encoding of N ids from a text; "
                   "tokens writes a text as a file of token ids, bytes unless an encoding is "
                   "given; clicks writes a click log in Criteo's format whose truth is known, and "
                   "prints how well it can be predicted (the AUC of the true probabilities). "
                   "docs/DATA.md has the formats.");
    for (const tutti_data_set *set = tutti_data_sets; set->name != NULL; set++)
        print_known(set, NULL);
    print_partitions();
}

static int list_sets(void)
{
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt = NULL;
    char installed[4096], path[2048], absent[120];
    const tutti_status status = tutti_runtime_open_posix(&rt, &err);

    if (status == TUTTI_OK) {
        tutti_cli_installed(installed, sizeof installed, "data");
        for (const tutti_data_set *set = tutti_data_sets; set->name != NULL; set++) {
            const bool here =
                tutti_data_find(rt, set->name, installed, path, sizeof path, NULL) == TUTTI_OK;
            const bool named = (set->text && set->file == NULL) || set->clicks || set->pictures;
            if (set->maker != NULL)
                snprintf(absent, sizeof absent, "not made yet: %.80s makes it", set->maker);
            else
                snprintf(absent, sizeof absent,
                         "not found in $TUTTI_DATA, ./data or where Tutti is installed");
            print_known(set, set->drawn ? "drawn from its options"
                             : here     ? path
                             : named    ? set->pictures ? "the directory that you name"
                                                        : "the file that you name"
                                        : absent);
        }
    }
    tutti_runtime_close(rt);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}

/* Is this a data set, so that only the verb is missing? */
static bool is_data(const char *text)
{
    char installed[4096], path[2048];
    tutti_runtime *rt = NULL;
    const bool is =
        tutti_runtime_open_posix(&rt, NULL) == TUTTI_OK &&
        tutti_data_find(rt, text, tutti_cli_installed(installed, sizeof installed, "data"), path,
                        sizeof path, NULL) == TUTTI_OK;

    tutti_runtime_close(rt);
    return is;
}

/* Checks the arguments of inspect and verify; EXIT_DONE: they are right. */
static int check_verb(int argc, const char *verb)
{
    if (argc == 2 && is_data(verb))
        return tutti_cli_usage(
            "data",
            "'%s' is a data set, and what is wanted of it comes first: tutti data inspect %s", verb,
            verb);
    if (argc == 2 && (strcmp(verb, "inspect") == 0 || strcmp(verb, "verify") == 0))
        return tutti_cli_usage("data", "%s wants a name of `tutti data list` or a path", verb);
    if ((strcmp(verb, "inspect") != 0 && strcmp(verb, "verify") != 0) || argc != 3)
        return tutti_cli_usage(
            "data",
            argc < 2 ? "give list, inspect, verify, partition, bpe, tokens or clicks; "
                       "--help explains them"
                     : "'%s' with %d argument%s is not known",
            verb, argc - 2, argc == 3 ? "" : "s");
    return EXIT_DONE;
}

/* The verbs that have arguments of their own. */
static const struct {
    const char *verb;
    int (*run)(int argc, char **argv);
} verbs[] = {
    { "partition", partition },
    { "bpe", tutti_cli_data_bpe },
    { "tokens", tutti_cli_data_tokens },
    { "clicks", tutti_cli_data_clicks },
};

int tutti_cli_data(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt = NULL;
    opened_set set = { .data = NULL };
    tutti_status status;
    int code;

    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) {
        print_help();
        return EXIT_DONE;
    }
    if (strcmp(verb, "list") == 0 && argc == 2)
        return list_sets();
    for (size_t i = 0; i < TUTTI_LENGTH(verbs); i++)
        if (strcmp(verb, verbs[i].verb) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    code = check_verb(argc, verb);
    if (code != EXIT_DONE)
        return code;
    status = tutti_runtime_open_posix(&rt, &err);
    if (status == TUTTI_OK)
        status = open_set(&set, rt, argv[2], &err);
    if (status == TUTTI_OK && strcmp(verb, "inspect") == 0)
        print_set(set.data, set.path, argv[2]);
    else if (status == TUTTI_OK)
        printf("%s: whole; %llu + %llu samples, contents %016llx\n", set.path,
               (unsigned long long)tutti_data_shape_of(set.data)->samples[TUTTI_TRAIN],
               (unsigned long long)tutti_data_shape_of(set.data)->samples[TUTTI_TEST],
               (unsigned long long)tutti_data_hash(set.data));
    close_set(&set);
    tutti_runtime_close(rt);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
