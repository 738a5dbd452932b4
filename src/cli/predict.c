/* predict.c: `tutti predict RUN FILE...`: classifies pictures with the model of a run. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli_internal.h"
#include "tutti/launch.h"
#include "data/pictures.h"
#include "data/text.h"
#include "train/trained.h"
#include "launch/launch.h"

typedef struct predict_config {
    int64_t top, threads;
    bool logits, json;
} predict_config;
#define AT(member) TUTTI_AT(predict_config, member)
const tutti_option tutti_cli_predict_options[] = {
    { "top", TUTTI_INT, AT(top), 1, 1, 256, NULL, "how many classes to name, the likeliest first" },
    { "logits", TUTTI_BOOL, AT(logits), 0, 0, 1, NULL,
      "with json: what the model gives for all classes, too" },
    { "threads", TUTTI_INT, AT(threads), 0, 0, 1024, NULL,
      "compute threads; 0: as many as there are cores" },
    { "json", TUTTI_BOOL, AT(json), 0, 0, 1, NULL, "print a JSON object a file, each on a line" },
    { 0 }
};

/* Sets order[classes] to the classes, likeliest first; equally likely ones in their order. */
static void rank(const double *p, int classes, int *order)
{
    for (int k = 0; k < classes; k++) {
        int at = k;
        for (; at > 0 && p[order[at - 1]] < p[k]; at--)
            order[at] = order[at - 1];
        order[at] = k;
    }
}

static json_t *class_of(const tutti_trained_facts *f, int k)
{
    return f->classes_named > 0 ? json_string(f->class_name[k]) : json_integer(k);
}

typedef struct seer {
    tutti_trained *t;
    const tutti_trained_facts *f;
    uint8_t *pixels;
    float *logits;
    double *p;
    int *order;
} seer;

static tutti_status print_json(const seer *s, const char *file, const predict_config *c,
                               tutti_error *err)
{
    json_t *o = json_object(), *top = json_array(), *all = json_array();
    char *text;

    json_object_set_new(o, "file",
                        json_stringn(file, tutti_utf8_valid((const uint8_t *)file, strlen(file))));
    json_object_set_new(o, "class", class_of(s->f, s->order[0]));
    json_object_set_new(o, "probability", json_real(s->p[s->order[0]]));
    for (int k = 0; k < c->top && k < s->f->task.classes; k++)
        json_array_append_new(top, json_pack("{s:o, s:f}", "class", class_of(s->f, s->order[k]),
                                             "probability", s->p[s->order[k]]));
    for (int k = 0; k < s->f->task.classes; k++)
        json_array_append_new(all, json_real((double)s->logits[k]));
    json_object_set_new(o, "top", top);
    if (c->logits)
        json_object_set(o, "logits", all);
    json_decref(all);
    text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(o);
    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "printing what was seen in '%.300s'",
                          file);
    puts(text);
    free(text);
    return TUTTI_OK;
}

static void print_plain(const tutti_trained_facts *f, const char *file, const double *p,
                        const int *order, const predict_config *c)
{
    printf("%s:", file);
    for (int k = 0; k < c->top && k < f->task.classes; k++) {
        if (f->classes_named > 0)
            printf("%s %s %.4f", k > 0 ? "," : "", f->class_name[order[k]], p[order[k]]);
        else
            printf("%s %d %.4f", k > 0 ? "," : "", order[k], p[order[k]]);
    }
    putchar('\n');
}

static tutti_status take_room(seer *s, tutti_error *err)
{
    const size_t classes = (size_t)s->f->task.classes;

    s->pixels = tutti_alloc((size_t)s->f->task.channels * (size_t)s->f->task.height,
                            (size_t)s->f->task.width);
    s->logits = tutti_alloc(classes, sizeof *s->logits);
    s->p = tutti_alloc(classes, sizeof *s->p);
    s->order = tutti_alloc(classes, sizeof *s->order);
    return s->pixels != NULL && s->logits != NULL && s->p != NULL && s->order != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a picture of %d x %d",
                            s->f->task.height, s->f->task.width);
}

static tutti_status see(seer *s, tutti_runtime *rt, const char *file, const predict_config *c,
                        tutti_error *err)
{
    const int classes = s->f->task.classes;

    TUTTI_TRY(tutti_data_given(
        tutti_picture_read(rt, file, s->f->task.channels, s->f->task.height, s->pixels, err), err));
    TUTTI_TRY(tutti_trained_classify(s->t, s->pixels, 1, s->logits, err));
    tutti_probabilities(s->logits, (size_t)classes, s->p);
    rank(s->p, classes, s->order);
    if (c->json)
        return print_json(s, file, c, err);
    print_plain(s->f, file, s->p, s->order, c);
    return TUTTI_OK;
}

/* A file that cannot be used does not prevent the others' predictions. */
static tutti_status predict(const char *run, char **files, const predict_config *c,
                            tutti_error *err)
{
    tutti_runtime *rt;
    seer s = { .t = NULL };
    tutti_error why;
    tutti_status status = tutti_runtime_open_posix(&rt, err), worst = TUTTI_OK;

    if (status == TUTTI_OK)
        status = tutti_trained_open(&s.t, rt, run, c->threads > 0 ? (int)c->threads : tutti_cores(),
                                    err);
    if (status == TUTTI_OK)
        status = tutti_trained_takes_pictures(s.t, err);
    if (status == TUTTI_OK) {
        s.f = tutti_trained_facts_of(s.t);
        status = take_room(&s, err);
    }
    for (; status == TUTTI_OK && *files != NULL; files++) {
        why = (tutti_error){ .rank = -1 };
        if (see(&s, rt, *files, c, &why) == TUTTI_OK)
            continue;
        if (worst != TUTTI_OK)
            fprintf(stderr, "tutti: %s\n", err->text);
        *err = why;
        worst = why.status;
    }
    tutti_free(s.pixels);
    tutti_free(s.logits);
    tutti_free(s.p);
    tutti_free(s.order);
    tutti_trained_close(s.t);
    tutti_runtime_close(rt);
    return status != TUTTI_OK ? status : worst;
}

static void print_help(void)
{
    printf("tutti predict RUN FILE... [--top K] [--json [--logits]] [--threads T]\n\n");
    tutti_cli_wrap(
        stdout, "", 0,
        "Which class the model of RUN sees in each PNG or JPEG file, and with which probability. "
        "RUN: as `tutti eval` takes it, of a run on images. A picture is brought to the size of "
        "the run's: its middle square, scaled. Classes have the names of the run's folders, else "
        "their numbers.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_predict_options, true);
}

int tutti_cli_predict(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    predict_config c;
    const char *run = NULL;
    bool help = false;
    tutti_status status;

    tutti_options_default(tutti_cli_predict_options, &c);
    status = tutti_cli_take_flags(&(tutti_flag_table){ tutti_cli_predict_options, NULL, &c }, &argc,
                                  argv, &help, &err);
    if (status == TUTTI_OK && help) {
        print_help();
        return EXIT_DONE;
    }
    if (status == TUTTI_OK)
        status = tutti_cli_one_run("predict", argc, argv, tutti_cli_predict_options, &run, &err);
    if (status == TUTTI_OK && argc < 3)
        status = tutti_fail(&err, TUTTI_ERR_USAGE, 0,
                            "which pictures? give PNG or JPEG files behind the run");
    if (status == TUTTI_OK && c.logits && !c.json)
        status = tutti_fail(&err, TUTTI_ERR_USAGE, 0, "--logits is for --json; give both");
    if (status == TUTTI_OK)
        status = predict(run, argv + 2, &c, &err);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
