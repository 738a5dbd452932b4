/* log_to.c: the other forms in which rows of metrics.jsonl are written, by their names, and which
   numbers of a row are points of a curve. */
#include <stdio.h>
#include <string.h>

#include "record_internal.h"

static const char *const names[TUTTI_RECORD_FORMS] = { [TUTTI_RECORD_TENSORBOARD] = "tensorboard",
                                                       [TUTTI_RECORD_CSV] = "csv",
                                                       [TUTTI_RECORD_PROMETHEUS] = "prometheus" };

/* Says why there is no such form. */
static tutti_status unknown(const char *name, tutti_error *err)
{
    char near[128];

    if (strcmp(name, "wandb") == 0 || strcmp(name, "mlflow") == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "log-to has '%s', which is a package of Python: scripts have it "
                          "(log_to='%s' of tutti.torch); here there are tensorboard, csv and "
                          "prometheus",
                          name, name);
    tutti_suggest(name, names, TUTTI_RECORD_FORMS, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "log-to has '%.40s'; there are tensorboard, csv and prometheus, and several are written "
                      "as tensorboard,csv%s",
                      name, near);
}

tutti_status tutti_record_log_to(const char *text, unsigned *forms, tutti_error *err)
{
    const char *at = text != NULL ? text : "";

    *forms = 0;
    while (*at != 0) {
        const size_t length = strcspn(at, ",");
        char name[64];
        unsigned form = 0;
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name), at);
        while (form < TUTTI_RECORD_FORMS && strcmp(name, names[form]) != 0)
            form++;
        if (form == TUTTI_RECORD_FORMS)
            return unknown(name, err);
        if ((*forms & 1U << form) != 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "log-to has '%s' twice", name);
        *forms |= 1U << form;
        at += length;
        if (*at == ',' && at[1] == 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "log-to is '%.80s'; it ends with a comma",
                              text);
        at += *at == ',';
    }
    return TUTTI_OK;
}

/* ---- rows ---- */

bool tutti_record_is_about_tensor(const json_t *row)
{
    return json_is_string(json_object_get(row, "tensor"));
}

bool tutti_record_is_evaluation(const json_t *row)
{
    return json_object_get(row, "train_loss") == NULL && tutti_record_evaluates(row);
}

typedef struct walk {
    tutti_record_scalar *each;
    void *user;
    bool lists;                  /* elements of arrays are numbers of a curve each */
    tutti_record_bytes tag;      /* of the value that is looked at */
} walk;

static void add_text(walk *w, const char *text)
{
    tutti_record_add(&w->tag, text, strlen(text));
}

/* Calls each for the numbers and nulls of a value. */
static void go(walk *w, const json_t *value)
{
    const size_t n = w->tag.n;
    const char *name;
    json_t *member;
    char number[24];
    size_t i;

    tutti_record_add(&w->tag, "", 1);
    if ((json_is_number(value) || json_is_null(value)) && !w->tag.failed)
        w->each(w->user, (const char *)w->tag.at, value);
    if (json_is_array(value) && w->lists)
        json_array_foreach(value, i, member) {
            w->tag.n = n;
            snprintf(number, sizeof number, "/%zu", i);
            add_text(w, number);
            go(w, member);
        }
    if (json_is_object(value))
        json_object_foreach((json_t *)value, name, member) {
            w->tag.n = n;
            add_text(w, "/");
            add_text(w, name);
            go(w, member);
        }
    w->tag.n = n;
}

/* Is it a number that places a row on the run's way, which rows of all kinds have? */
static bool is_place(const char *name)
{
    static const char *const places[] = { "epoch", "samples", "wall_seconds", "bytes_sent_total" };

    for (size_t i = 0; i < TUTTI_LENGTH(places); i++)
        if (strcmp(name, places[i]) == 0)
            return true;
    return false;
}

bool tutti_record_scalars(const json_t *row, tutti_record_scalar *each, void *user)
{
    const bool coded = tutti_record_is_about_tensor(row),
               evaluates = tutti_record_is_evaluation(row);
    walk w = { each, user, !coded, { 0 } };
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)row, name, value) {
        if (strcmp(name, "step") == 0)
            continue;
        w.tag.n = 0;
        if (coded) {
            add_text(&w, "codec/");
            add_text(&w, json_string_value(json_object_get(row, "tensor")));
            add_text(&w, "/");
        } else if (evaluates && is_place(name))
            add_text(&w, "evaluation/");
        add_text(&w, name);
        go(&w, value);
    }
    tutti_free(w.tag.at);
    return !w.tag.failed;
}

/* ---- bytes ---- */

void tutti_record_add(tutti_record_bytes *b, const void *from, size_t bytes)
{
    const size_t room = 2 * (b->n + bytes);
    unsigned char *more;

    if (b->failed || bytes == 0)
        return;
    if (b->n + bytes > b->room) {
        more = tutti_alloc(room, 1);
        b->failed = more == NULL;
        if (b->failed)
            return;
        if (b->n > 0)
            memcpy(more, b->at, b->n);
        tutti_free(b->at);
        b->at = more;
        b->room = room;
    }
    memcpy(b->at + b->n, from, bytes);
    b->n += bytes;
}
