/* generate.c: `tutti generate RUN`: continues a text with the language model of a run. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli_internal.h"
#include "tutti/launch.h"
#include "data/text.h"
#include "train/trained.h"
#include "launch/launch.h"

typedef struct generate_config {
    const char *prompt, *bpe;
    int64_t length, top_k, seed, threads;
    double temperature;
    bool json;
} generate_config;
#define AT(member) TUTTI_AT(generate_config, member)
const tutti_option tutti_cli_generate_options[] = {
    { "prompt", TUTTI_TEXT, AT(prompt), 0, 0, 0, "",
      "the text to continue: at least one character" },
    { "length", TUTTI_INT, AT(length), 200, 1, 1 << 20, NULL, "tokens to add" },
    { "temperature", TUTTI_REAL, AT(temperature), 1, 0, 1000, NULL,
      "what logits are divided by before one is drawn; 0: always the likeliest" },
    { "top-k", TUTTI_INT, AT(top_k), 0, 0, 1 << 20, NULL,
      "draw among this number of the likeliest; 0: among all" },
    { "seed", TUTTI_INT, AT(seed), 0, 0, 9007199254740992.0, NULL,
      "of the draws: the same seed gives the same text" },
    { "bpe", TUTTI_TEXT, AT(bpe), 0, 0, 0, "",
      "the encoding (`tutti data bpe`) that made the tokens of the run's token file" },
    { "threads", TUTTI_INT, AT(threads), 0, 0, 1024, NULL,
      "compute threads; 0: as many as there are cores" },
    { "json", TUTTI_BOOL, AT(json), 0, 0, 1, NULL, "print one JSON object, with the tokens" },
    { 0 }
};

/* A text as tokens: first those of the prompt, then those that the model adds. */
typedef struct story {
    tutti_bpe *bpe;              /* NULL: tokens are bytes */
    uint32_t *tokens;
    size_t prompt, n;            /* number of tokens: of the prompt, and in total so far */
    uint8_t *text;               /* the added tokens, decoded */
    size_t bytes;                /* of text */
} story;

static tutti_status take_prompt(story *s, const tutti_trained_facts *f, tutti_runtime *rt,
                                const generate_config *c, tutti_error *err)
{
    const size_t bytes = strlen(c->prompt);
    uint64_t count = bytes;

    if (f->task.context == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "model '%.80s' takes no tokens, so it cannot continue a text; gpt and wordlm can",
            f->model);
    if (bytes == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "there is no text to continue; give a --prompt of at least one character");
    if (c->bpe[0] != 0)
        TUTTI_TRY(tutti_data_given(tutti_bpe_read(&s->bpe, rt, c->bpe, err), err));
    if ((s->bpe != NULL ? tutti_bpe_hash(s->bpe) : 0) != f->encoding)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            s->bpe == NULL
                ? "the run's tokens were made by an encoding; give it as --bpe FILE"
                : "'%.200s' is not the encoding that made the run's tokens; give that one%s",
            c->bpe, f->encoding == 0 ? ": none, since they are bytes" : "");
    if (s->bpe == NULL && f->task.classes < 256)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the run's vocabulary has %d tokens, which are neither bytes nor of an encoding",
            f->task.classes);
    s->tokens = tutti_alloc(bytes + (size_t)c->length, sizeof *s->tokens);
    if (s->tokens == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %lld tokens",
                          (long long)c->length);
    for (size_t i = 0; i < bytes && s->bpe == NULL; i++)
        s->tokens[i] = (uint8_t)c->prompt[i];
    if (s->bpe != NULL)
        TUTTI_TRY(
            tutti_bpe_encode(s->bpe, (const uint8_t *)c->prompt, bytes, s->tokens, &count, err));
    s->prompt = s->n = (size_t)count;
    return TUTTI_OK;
}

static tutti_status decode_tokens(story *s, tutti_error *err)
{
    const uint32_t *added = s->tokens + s->prompt;
    const size_t n = s->n - s->prompt;

    s->bytes = s->bpe != NULL ? (size_t)tutti_bpe_decode(s->bpe, added, n, NULL, 0) : n;
    s->text = tutti_alloc(s->bytes + 1, 1);
    if (s->text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu bytes of text", s->bytes);
    if (s->bpe != NULL)
        tutti_bpe_decode(s->bpe, added, n, s->text, s->bytes);
    for (size_t k = 0; k < n && s->bpe == NULL; k++)
        s->text[k] = (uint8_t)added[k];
    return TUTTI_OK;
}

/* Adds c->length tokens, one after another, and decodes them. The second half of `logits` is
   scratch for tutti_sample. */
static tutti_status generate_token(story *s, tutti_trained *t, const generate_config *c,
                                   tutti_error *err)
{
    const tutti_trained_facts *f = tutti_trained_facts_of(t);
    const size_t classes = (size_t)f->task.classes;
    const tutti_sampling how = { c->temperature, c->top_k, (uint64_t)c->seed };
    float *logits = tutti_alloc(classes, 2 * sizeof *logits);
    tutti_status status = logits != NULL
                              ? TUTTI_OK
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                           "memory for the logits of %zu tokens", classes);

    for (int64_t k = 0; k < c->length && status == TUTTI_OK; k++) {
        int64_t next = -1;
        status = tutti_trained_next(t, s->tokens, s->n, logits, err);
        if (status == TUTTI_OK &&
            (next = tutti_sample(&how, logits, classes, (uint64_t)k, logits + classes)) < 0)
            status =
                tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                           "the model gives no numbers any more after %lld tokens", (long long)k);
        s->tokens[s->n] = (uint32_t)next;
        s->n += status == TUTTI_OK;
    }
    tutti_free(logits);
    return status == TUTTI_OK ? decode_tokens(s, err) : status;
}

/* Returns text as a JSON string. Each byte that is no part of a valid UTF-8 character becomes
   U+FFFD. */
static json_t *as_text(const uint8_t *bytes, size_t n)
{
    char *text = tutti_alloc(3 * n + 1, 1);
    size_t used = 0;
    json_t *value;

    for (size_t at = 0; at < n && text != NULL;) {
        const size_t valid = (size_t)tutti_utf8_valid(bytes + at, n - at);
        memcpy(text + used, bytes + at, valid);
        used += valid;
        at += valid;
        if (at < n) {
            memcpy(text + used, "\xef\xbf\xbd", 3);
            used += 3;
            at++;
        }
    }
    value = text != NULL ? json_stringn(text, used) : NULL;
    tutti_free(text);
    return value != NULL ? value : json_null();
}

static tutti_status print_json(const story *s, const char *run, const generate_config *c,
                               tutti_error *err)
{
    json_t *o = json_object(), *tokens = json_array();
    char *text;

    for (size_t k = 0; k < s->n; k++)
        json_array_append_new(tokens, json_integer(s->tokens[k]));
    json_object_set_new(o, "run", as_text((const uint8_t *)run, strlen(run)));
    json_object_set_new(o, "prompt", as_text((const uint8_t *)c->prompt, strlen(c->prompt)));
    json_object_set_new(o, "text", as_text(s->text, s->bytes));
    json_object_set_new(o, "prompt_tokens", json_integer((json_int_t)s->prompt));
    json_object_set_new(o, "tokens", tokens);
    json_object_set_new(o, "temperature", json_real(c->temperature));
    json_object_set_new(o, "top_k", json_integer(c->top_k));
    json_object_set_new(o, "seed", json_integer(c->seed));
    text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(12));
    json_decref(o);
    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "printing %zu tokens", s->n);
    puts(text);
    free(text);
    return TUTTI_OK;
}

static tutti_status generate(const char *run, const generate_config *c, tutti_error *err)
{
    tutti_runtime *rt;
    tutti_trained *t = NULL;
    story s = { .bpe = NULL };
    tutti_status status = tutti_runtime_open_posix(&rt, err);

    if (status == TUTTI_OK)
        status =
            tutti_trained_open(&t, rt, run, c->threads > 0 ? (int)c->threads : tutti_cores(), err);
    if (status == TUTTI_OK)
        status = take_prompt(&s, tutti_trained_facts_of(t), rt, c, err);
    if (status == TUTTI_OK)
        status = generate_token(&s, t, c, err);
    if (status == TUTTI_OK && c->json)
        status = print_json(&s, run, c, err);
    else if (status == TUTTI_OK) {
        fputs(c->prompt, stdout);
        fwrite(s.text, 1, s.bytes, stdout);
        putchar('\n');
    }
    tutti_bpe_close(s.bpe);
    tutti_free(s.tokens);
    tutti_free(s.text);
    tutti_trained_close(t);
    tutti_runtime_close(rt);
    return status;
}

static void print_help(void)
{
    printf("tutti generate RUN --prompt TEXT [--length N] [--temperature T] [--top-k K] [--seed S] "
           "[--bpe FILE] [--json]\n\n");
    tutti_cli_wrap(stdout, "", 0,
                   "Continues a text by the language model (gpt, wordlm) of RUN, as `tutti eval` "
                   "takes it. The model sees as many of the last tokens as its windows have. "
                   "Prints the prompt and what follows; the same seed prints the same.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_generate_options, true);
}

int tutti_cli_generate(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    generate_config c;
    const char *run = NULL;
    bool help = false;
    tutti_status status;

    tutti_options_default(tutti_cli_generate_options, &c);
    status = tutti_cli_take_flags(&(tutti_flag_table){ tutti_cli_generate_options, NULL, &c },
                                  &argc, argv, &help, &err);
    if (status == TUTTI_OK && help) {
        print_help();
        return EXIT_DONE;
    }
    if (status == TUTTI_OK)
        status = tutti_cli_one_run("generate", argc, argv, tutti_cli_generate_options, &run, &err);
    if (status == TUTTI_OK && argc > 2)
        status =
            tutti_fail(&err, TUTTI_ERR_USAGE, 0,
                       "what is '%.80s'? the text to continue is given as --prompt TEXT", argv[2]);
    if (status == TUTTI_OK)
        status = generate(run, &c, &err);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
