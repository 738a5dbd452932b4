/* large.c: wrapper large: one codec for large tensors, and another (fp32 by default) for small
   ones. Alistarh et al., NeurIPS 2017, skip layers of fewer than 10000 elements and still quantise
   more than 99 % of the parameters. Biases and the parameters of norms, which decide how a layer
   behaves, are small, so they are sent exactly. Other tensors to send exactly are given by patterns
   of their names (fnmatch), in which '*' matches '.' and '/' too. */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"
#include <fnmatch.h>
#include <stdio.h>

typedef struct large { const char *codec, *small, *exclude; int64_t min; } large;
static const tutti_option options[] = {
    { "codec", TUTTI_SPEC, TUTTI_AT(large, codec), 0, 0, 0, "",
      "of tensors of at least `min` elements" },
    { "min", TUTTI_INT, TUTTI_AT(large, min), 1024, 0, 1e12, NULL,
      "elements from which on a tensor is large" },
    { "small", TUTTI_SPEC, TUTTI_AT(large, small), 0, 0, 0, "fp32", "codec of smaller tensors" },
    TUTTI_ROW_LARGE_EXCLUDE(TUTTI_AT(large, exclude),
                            "tensors that count as small whatever their size"),
    { 0 }
};

/* The next pattern of a list; false: that was the last, or it is longer than names are. */
enum { PATTERN = 256 };
static bool next(const char **list, char pattern[PATTERN])
{
    const size_t length = strcspn(*list, ":");

    if (**list == 0 || length >= PATTERN)
        return false;
    memcpy(pattern, *list, length);
    pattern[length] = 0;
    *list += length + ((*list)[length] == ':');
    return true;
}

static bool is_excluded(const tutti_codec *c, int tensor)
{
    const char *list = ((const large *)c->self)->exclude;
    char pattern[PATTERN];

    while (next(&list, pattern))
        if (fnmatch(pattern, c->space->name[tensor], 0) == 0)
            return true;
    return false;
}

/* A pattern that matches no name is refused as a mistake: the user believes that a tensor is
   excluded. */
static tutti_status large_check(const tutti_codec *c, tutti_error *err)
{
    const tutti_codec_space *space = c->space;
    const char *list = ((const large *)c->self)->exclude;
    char pattern[PATTERN], names[200] = "";
    size_t used = 0;

    if (list[0] != 0 && space->name == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "exclude is '%.80s', and the tensors have no names here; omit it", list);
    for (int t = 0; space->name != NULL && t < space->n_tensors && used < sizeof names; t++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", t == 0 ? "" : ", ",
                                 space->name[t]);
    if (used >= sizeof names)
        memcpy(names + sizeof names - 4, "...", 4);
    while (next(&list, pattern)) {
        bool found = false;
        for (int t = 0; t < space->n_tensors && !found; t++)
            found = fnmatch(pattern, space->name[t], 0) == 0;
        if (!found)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "exclude has '%.80s', and no tensor has such a name; there are %s",
                              pattern, names);
    }
    if (*list != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "exclude has a pattern of %zu bytes, '%.40s...', and patterns have at most %d",
            strcspn(list, ":"), list, PATTERN - 1);
    return TUTTI_OK;
}

static unsigned large_traits(const tutti_codec *c)
{
    const unsigned a = tutti_codec_traits(c->inner[0]), b = tutti_codec_traits(c->inner[1]);

    return (a & b) | ((a | b) & (TUTTI_CODEC_WHOLE_TENSOR | TUTTI_CODEC_MERGES |
                                 TUTTI_CODEC_MOMENTUM | TUTTI_CODEC_VOTES | TUTTI_CODEC_JOINT));
}

/* Sends nothing, asks for nothing: reports once which matrices are too small. Vectors are not
   listed, since they are expected to be. */
static size_t large_begin(tutti_codec *c, const tutti_codec_moment *m, int round, float **numbers)
{
    const large *s = c->self;
    size_t small = 0, matrices = 0, elements = 0;
    char text[240];

    (void)round, (void)numbers;
    for (int t = 0; t < c->space->n_tensors; t++) {
        const tutti_view *v = &c->space->tensor[t];
        const bool is_small = v->rows > 1 && v->count < (size_t)s->min && !is_excluded(c, t);
        matrices += v->rows > 1;
        small += is_small;
        elements += is_small ? v->count : 0;
    }
    if (small == 0 || m->step > 0 || m->say == NULL)
        return 0;
    snprintf(text, sizeof text,
             "large: %zu of %zu matrices, %zu elements together, are smaller than min, %lld, and "
             "travel as %.40s; a smaller min encodes them",
             small, matrices, elements, (long long)s->min, s->small);
    m->say(m->with, "codec", text);
    return 0;
}

static tutti_codec *large_choose(tutti_codec *c, const tutti_view *v)
{
    const large *s = c->self;
    const size_t count = v->tensor >= 0 ? c->space->tensor[v->tensor].count : v->count;

    return c
        ->inner[count >= (size_t)s->min && (v->tensor < 0 || !is_excluded(c, v->tensor)) ? 0 : 1];
}

const tutti_codec_ops tutti_codec_large = {
    .name = "large",
    .paper = "Alistarh et al., NeurIPS 2017, section 5",
    .help = "a codec for large tensors only",
    .options = options,
    .self_bytes = sizeof(large),
    .check = large_check,
    .traits = large_traits,
    .begin = large_begin,
    .choose = large_choose,
};
