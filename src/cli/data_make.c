/* data_make.c: the subcommands of `tutti data` that make files: bpe learns an encoding from a text,
   tokens converts a text to token ids, clicks converts a click log. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "cli_internal.h"
#include "data/clicks.h"
#include "data/data.h"
#include "data/text.h"
#include "runtime/files.h"
#include "base/options.h"

typedef struct given {
    const char *word;             /* the one argument without a flag; NULL: none */
    const char *out, *bpe;
    int64_t vocab;
    int64_t samples, seed, values;
    double zipf, spread, bias, missing;
} given;

/* Checks that there is a file to write, and one to read where one is read; EXIT_DONE: there is. */
static int check_files(bool reads, const given *g, const char *verb)
{
    if (!reads && g->out[0] == '\0')
        return tutti_cli_usage(
            "data", "%s needs --out: tutti data %s --samples 100000 --out clicks.tsv", verb, verb);
    if (reads && (g->word == NULL || g->out[0] == '\0'))
        return tutti_cli_usage(
            "data", "%s needs a text and --out: tutti data %s book.txt --out book.%s", verb, verb,
            strcmp(verb, "bpe") == 0 ? "bpe --vocab 4096" : "tokens");
    return EXIT_DONE;
}

/* Flags of the table, "--name value" or "--name=value", and, where a file is read, one word.
   EXIT_DONE, or what to leave with. */
static int read_given(const tutti_option *options, bool reads, given *g, int argc, char **argv)
{
    tutti_error err = { .rank = -1 };

    tutti_options_default(options, g);
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        char name[40] = "";
        const tutti_option *o;
        if (strncmp(argv[i], "--", 2) != 0) {
            if (argv[i][0] == '-')
                return tutti_cli_usage("data", "%s has no option '%s'", argv[0], argv[i]);
            if (!reads || g->word != NULL)
                return tutti_cli_usage("data", "%s takes %s, not '%s'", argv[0],
                                       reads ? "one file" : "options only", argv[i]);
            g->word = argv[i];
            continue;
        }
        snprintf(name, sizeof name, "%.*s",
                 (int)(equals != NULL && equals - argv[i] < 40 ? equals - argv[i] - 2 : 39),
                 argv[i] + 2);
        o = tutti_option_find(options, name);
        if (o == NULL)
            return tutti_cli_usage("data", "%s has no option '%s'", argv[0], argv[i]);
        if (equals == NULL && i + 1 == argc)
            return tutti_cli_usage("data", "%s: %s needs a value", argv[0], argv[i]);
        if (tutti_option_set(o, argv[0], equals != NULL ? equals + 1 : argv[++i], g, &err) !=
            TUTTI_OK)
            return tutti_cli_fail(&err);
    }
    return check_files(reads, g, argv[0]);
}

/* Refuses a file that exists already. Called before the work. */
static tutti_status check_out(tutti_runtime *rt, const char *out, tutti_error *err)
{
    return tutti_file_exists(rt, out)
               ? tutti_fail(err, TUTTI_ERR_USAGE, EEXIST,
                            "'%s' is not written; remove it or choose another name", out)
               : TUTTI_OK;
}

/* ids: space for as many as the text has bytes. */
static tutti_status encode_text(const tutti_bpe *bpe, const char *path, const tutti_contents *text,
                                uint32_t **ids, uint64_t *count, tutti_error *err)
{
    size_t bytes;

    *count = 0;
    *ids = tutti_size_mul((size_t)text->bytes, sizeof **ids, &bytes) ? tutti_alloc(bytes + 1, 1)
                                                                     : NULL;
    if (*ids == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "memory for the tokens of '%s' (%llu bytes)", path,
                          (unsigned long long)text->bytes);
    if (bpe != NULL)
        return tutti_bpe_encode(bpe, text->at, text->bytes, *ids, count, err);
    for (uint64_t i = 0; i < text->bytes; i++)
        (*ids)[i] = text->at[i];
    *count = text->bytes;
    return TUTTI_OK;
}

int tutti_cli_data_bpe(int argc, char **argv)
{
    static const tutti_option options[] = {
        { "out", TUTTI_TEXT, TUTTI_AT(given, out), 0, 0, 0, "", "the file that is written" },
        { "vocab", TUTTI_INT, TUTTI_AT(given, vocab), 4096, 256, TUTTI_BPE_VOCABULARY_MOST, NULL,
          "ids: 256 bytes and the merges" }, { 0 }
    };
    given g = { 0 };
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt = NULL;
    tutti_contents text = { 0 };
    tutti_bpe *bpe = NULL;
    uint32_t *ids = NULL;
    uint64_t count = 0;
    int64_t began = 0, learnt = 0;
    tutti_status status;
    const int code = read_given(options, true, &g, argc, argv);

    if (code != EXIT_DONE)
        return code;
    status = tutti_runtime_open_posix(&rt, &err);
    if (status == TUTTI_OK)
        status = check_out(rt, g.out, &err);
    if (status == TUTTI_OK)
        status = tutti_contents_open(&text, rt, g.word, &err);
    if (status == TUTTI_OK && text.bytes == 0)
        status = tutti_fail(&err, TUTTI_ERR_USAGE, 0, "'%s' is empty; give a text", g.word);
    if (status == TUTTI_OK) {
        began = tutti_now_ns(rt);
        status = tutti_bpe_train(&bpe, text.at, text.bytes, (uint32_t)g.vocab, &err);
        learnt = tutti_now_ns(rt);
    }
    if (status == TUTTI_OK)
        status = encode_text(bpe, g.word, &text, &ids, &count, &err);
    if (status == TUTTI_OK)
        status = tutti_bpe_write(bpe, rt, g.out, &err);
    if (status == TUTTI_OK)
        printf(
            "%s: %u ids learnt from %llu bytes in %.2f s; the text has %llu tokens of %.2f bytes\n",
            g.out, tutti_bpe_vocabulary(bpe), (unsigned long long)text.bytes,
            (double)(learnt - began) * 1e-9, (unsigned long long)count,
            (double)text.bytes / (double)count);
    tutti_free(ids);
    tutti_bpe_close(bpe);
    tutti_contents_close(&text);
    tutti_runtime_close(rt);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}

int tutti_cli_data_tokens(int argc, char **argv)
{
    static const tutti_option options[] = { { "out", TUTTI_TEXT, TUTTI_AT(given, out), 0, 0, 0, "",
                                              "the file that is written" },
                                            { "bpe", TUTTI_TEXT, TUTTI_AT(given, bpe), 0, 0, 0, "",
                                              "encoding, from tutti data bpe; none: bytes" },
                                            { 0 } };
    given g = { 0 };
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt = NULL;
    tutti_contents text = { 0 };
    tutti_bpe *bpe = NULL;
    uint32_t *ids = NULL;
    uint64_t count = 0;
    int64_t began = 0, ended = 0;
    tutti_status status;
    const int code = read_given(options, true, &g, argc, argv);

    if (code != EXIT_DONE)
        return code;
    status = tutti_runtime_open_posix(&rt, &err);
    if (status == TUTTI_OK)
        status = check_out(rt, g.out, &err);
    if (status == TUTTI_OK && g.bpe[0] != '\0')
        status = tutti_data_given(tutti_bpe_read(&bpe, rt, g.bpe, &err), &err);
    if (status == TUTTI_OK)
        status = tutti_contents_open(&text, rt, g.word, &err);
    if (status == TUTTI_OK && text.bytes == 0)
        status = tutti_fail(&err, TUTTI_ERR_USAGE, 0, "'%s' is empty; give a text", g.word);
    if (status == TUTTI_OK) {
        began = tutti_now_ns(rt);
        status = encode_text(bpe, g.word, &text, &ids, &count, &err);
        ended = tutti_now_ns(rt);
    }
    if (status == TUTTI_OK)
        status = tutti_tokens_write(
            rt, g.out,
            &(tutti_token_ids){ ids, count, bpe != NULL ? tutti_bpe_vocabulary(bpe) : 256 },
            bpe != NULL ? tutti_bpe_hash(bpe) : 0, &err);
    if (status == TUTTI_OK)
        printf("%s: %llu tokens of %u kinds from %llu bytes, encoded in %.2f s\n", g.out,
               (unsigned long long)count, bpe != NULL ? tutti_bpe_vocabulary(bpe) : 256,
               (unsigned long long)text.bytes, (double)(ended - began) * 1e-9);
    tutti_free(ids);
    tutti_bpe_close(bpe);
    tutti_contents_close(&text);
    tutti_runtime_close(rt);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}

/* The drawn samples' probabilities of a click and labels, [samples] each. */
typedef struct drawn {
    size_t samples;
    double *p;
    uint8_t *labels;
} drawn;

static tutti_status write_clicks(tutti_runtime *rt, const tutti_click_model *m, const char *out,
                                 const drawn *to, uint64_t *bytes, tutti_error *err)
{
    enum { BUFFER = 1 << 20 };
    char *text = tutti_alloc(BUFFER, 1);
    tutti_file *file = NULL;
    size_t used = 0;
    tutti_status status = text != NULL
                              ? tutti_file_begin(&file, rt, out, false, err)
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing '%s'", out);

    for (size_t k = 0; k < to->samples && status == TUTTI_OK; k++) {
        tutti_click click;
        tutti_click_draw(m, k, &click, &to->p[k]);
        to->labels[k] = click.label;
        used += tutti_click_print(&click, text + used);
        if (used + TUTTI_CLICKS_LINE_MOST > BUFFER || k + 1 == to->samples) {
            status = tutti_file_write(file, text, used, err);
            used = 0;
        }
    }
    *bytes = file != NULL ? tutti_file_bytes(file) : 0;
    tutti_free(text);
    return tutti_file_end(file, status, err);
}

int tutti_cli_data_clicks(int argc, char **argv)
{
    static const tutti_option options[] = {
        { "out", TUTTI_TEXT, TUTTI_AT(given, out), 0, 0, 0, "", "the file that is written" },
        { "samples", TUTTI_INT, TUTTI_AT(given, samples), 100000, 1, 1e9, NULL, "clicks" },
        { "seed", TUTTI_INT, TUTTI_AT(given, seed), 0, 0, 9007199254740992.0, NULL,
          "of all draws" },
        { "values", TUTTI_INT, TUTTI_AT(given, values), 10000, 1, 4294967296.0, NULL,
          "different values of each category" },
        { "zipf", TUTTI_REAL, TUTTI_AT(given, zipf), 1.1, 0.01, 10, NULL,
          "exponent of their frequencies" },
        { "spread", TUTTI_REAL, TUTTI_AT(given, spread), 1.5, 0, 100, NULL,
          "deviation of the logit: 0 cannot be predicted, 5 nearly always can" },
        { "bias", TUTTI_REAL, TUTTI_AT(given, bias), -1, -50, 50, NULL,
          "added to the logit: below 0, clicks are rarer than not" },
        { "missing", TUTTI_REAL, TUTTI_AT(given, missing), 0.1, 0, 0.99, NULL,
          "probability that a field is empty" },
        { 0 }
    };
    given g = { 0 };
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt = NULL;
    double *p = NULL, expected = 0, seen = 0, positive = 0;
    uint8_t *labels = NULL;
    uint64_t bytes = 0;
    tutti_status status;
    const int code = read_given(options, false, &g, argc, argv);

    if (code != EXIT_DONE)
        return code;
    status = tutti_runtime_open_posix(&rt, &err);
    if (status == TUTTI_OK)
        status = check_out(rt, g.out, &err);
    if (status == TUTTI_OK) {
        p = tutti_alloc((size_t)g.samples, sizeof *p);
        labels = tutti_alloc((size_t)g.samples, 1);
        if (p == NULL || labels == NULL)
            status =
                tutti_fail(&err, TUTTI_ERR_MEMORY, ENOMEM,
                           "memory for the probabilities of %lld clicks", (long long)g.samples);
    }
    if (status == TUTTI_OK)
        status = write_clicks(rt,
                              &(tutti_click_model){ (uint64_t)g.seed, (uint64_t)g.values, g.zipf,
                                                    g.spread, g.bias, g.missing },
                              g.out, &(drawn){ (size_t)g.samples, p, labels }, &bytes, &err);
    if (status == TUTTI_OK)
        status = tutti_click_auc(p, labels, (size_t)g.samples, &expected, &seen, &err);
    for (int64_t k = 0; k < g.samples && status == TUTTI_OK; k++)
        positive += labels[k];
    if (status == TUTTI_OK) {
        printf("%s: %lld clicks, %.1f %% of them positive, %llu bytes\n", g.out,
               (long long)g.samples, 100 * positive / (double)g.samples, (unsigned long long)bytes);
        if (isnan(seen))
            printf("Bayes AUC: none, all labels are equal\n");
        else
            printf("Bayes AUC %.4f (%.4f on these labels)\n", expected, seen);
    }
    tutti_free(p);
    tutti_free(labels);
    tutti_runtime_close(rt);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
