/* Any text as a spec: it is refused with a sentence, or what was
   read is printed and read back equal. */
#include "options_subject.h"
#include "base/options.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* The deepest bracket, at most: those in quotes are counted too. */
static int levels(const char *text)
{
    int level = 0, deepest = 0;

    for (; *text != '\0'; text++) {
        level += *text == '(';
        deepest = level > deepest ? level : deepest;
    }
    return deepest;
}

static void read_back(const subject *self)
{
    const size_t bytes = (size_t)tutti_spec_print("x", subject_options, self, NULL, 0) + 1;
    char *text = malloc(bytes);
    tutti_spec *spec;
    subject back;

    require(text != NULL && (size_t)tutti_spec_print("x", subject_options, self, text, bytes) == bytes - 1);
    if (tutti_spec_open(&spec, text, NULL) != TUTTI_OK) {
        /* Quotes and written-out names may make it too long, or a quoted spec a level too deep;
           nothing else fails. */
        require(bytes - 1 > 4096 || levels(self->inner) >= 16);
    } else {
        require(tutti_spec_apply(spec, "again", subject_options, &back, NULL) == TUTTI_OK);
        require(back.batch == self->batch && memcmp(&back.rate, &self->rate, sizeof back.rate) == 0);
        require(back.nesterov == self->nesterov && back.wire == self->wire);
        require(strcmp(back.data, self->data) == 0 && strcmp(back.inner, self->inner) == 0);
    }
    tutti_spec_close(spec);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    tutti_error err = { 0 };
    tutti_status status;
    tutti_spec *spec;
    subject self;

    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    status = tutti_spec_open(&spec, text, &err);
    free(text);
    if (status == TUTTI_OK)
        status = tutti_spec_apply(spec, "fuzz", subject_options, &self, &err);
    if (status == TUTTI_OK)
        read_back(&self);
    else
        require(status == TUTTI_ERR_USAGE && err.status == status && err.text[0] != '\0' &&
                strlen(err.text) < sizeof err.text);
    tutti_spec_close(spec);
    return 0;
}
