/* codec.c: opens a codec from its spec (options, inner codecs, declared state), and makes the
   calls that involve a codec and the codecs inside it. What codecs share is in common.c. */
#include "codec_internal.h"
#include "codec.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* PART: elements that stay in the second cache with what a wrapper reads and keeps of them */
enum { NAMES_MAX = 32, NESTED_MAX = 4, PART = 1 << 14 };

/* The built-in codecs, then those of the space's owner; NULL beyond the last. */
static const tutti_codec_ops *codec_at(const tutti_codec_space *space, size_t i)
{
    size_t n = 0;

    for (; tutti_codecs[n] != NULL; n++)
        if (n == i)
            return tutti_codecs[n];
    for (size_t k = 0; space->more != NULL && space->more[k] != NULL; k++, n++)
        if (n == i)
            return space->more[k];
    return NULL;
}

static const tutti_codec_ops *find(const tutti_codec_space *space, const char *name)
{
    for (size_t i = 0; codec_at(space, i) != NULL; i++)
        if (strcmp(codec_at(space, i)->name, name) == 0)
            return codec_at(space, i);
    return NULL;
}

static tutti_status unknown(const tutti_codec_space *space, const char *name, tutti_error *err)
{
    const char *names[NAMES_MAX];
    char near[160], all[240];
    size_t n = 0, used = 0;

    all[0] = '\0';
    for (; n < NAMES_MAX && codec_at(space, n) != NULL && used < sizeof all; n++) {
        names[n] = codec_at(space, n)->name;
        used +=
            (size_t)snprintf(all + used, sizeof all - used, "%s%s", n == 0 ? "" : ", ", names[n]);
    }
    tutti_suggest(name, names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "unknown codec '%.60s'%s (there are %s)", name, near,
                      all);
}

static tutti_status declare(tutti_codec **out, tutti_plan *plan, const char *spec,
                            const char *prefix, const tutti_codec_space *space, int depth,
                            tutti_error *err);

/* Names all required codecs in one sentence, so that the user is not asked for the next one
   afterwards. */
static tutti_status wraps_none(const tutti_codec *c, const char *option, tutti_error *err)
{
    char all[200] = "";

    for (const tutti_option *o = c->ops->options; o->name != NULL; o++)
        if (o->type == TUTTI_SPEC && o->text[0] == '\0')
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s=topk(ratio=0.01)",
                     all[0] != '\0' ? "," : "", o->name);
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "codec '%s' wraps another one, '%s', and was given none; write %s(%s), for example",
        c->ops->name, option, c->ops->name, all);
}

/* The SPEC options of the table, in order. */
static tutti_status declare_inner(tutti_codec *c, tutti_plan *plan, int depth, tutti_error *err)
{
    size_t n = 0;

    for (const tutti_option *o = c->ops->options; o != NULL && o->name != NULL; o++) {
        const char *spec;
        char prefix[sizeof c->prefix];
        if (o->type != TUTTI_SPEC)
            continue;
        memcpy(&spec, (const char *)c->self + o->offset, sizeof spec);
        if (spec[0] == '\0')
            return wraps_none(c, o->name, err);
        if (depth == NESTED_MAX)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "codec '%s': codecs are nested more than %d deep; unwrap some",
                              c->ops->name, NESTED_MAX);
        if ((size_t)snprintf(prefix, sizeof prefix, "%s.%s", c->prefix, o->name) >= sizeof prefix)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "codec '%s': its states' names would have more than %zu bytes; give "
                              "a shorter prefix than '%.20s...'",
                              c->ops->name, sizeof prefix - 1, c->prefix);
        assert(n < TUTTI_LENGTH(c->inner));
        TUTTI_TRY(tutti_fail_within(
            err, declare(&c->inner[n++], plan, spec, prefix, c->space, depth + 1, err),
            "within codec '%s'", c->ops->name));
    }
    return TUTTI_OK;
}

static tutti_status declare(tutti_codec **out, tutti_plan *plan, const char *spec,
                            const char *prefix, const tutti_codec_space *space, int depth,
                            tutti_error *err)
{
    tutti_codec *c = tutti_alloc(1, sizeof *c);
    tutti_status status;
    char what[64];

    *out = NULL;
    if (c == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for codec '%.60s'", spec);
        goto out;
    }
    c->space = space;
    if ((size_t)snprintf(c->prefix, sizeof c->prefix, "%s", prefix) >= sizeof c->prefix) {
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "codec '%.60s': its states' prefix has %zu bytes and may have %zu; "
                            "give a shorter one than '%.20s...'",
                            spec, strlen(prefix), sizeof c->prefix - 1, prefix);
        goto out;
    }
    status = tutti_fail_within(err, tutti_spec_open(&c->spec, spec, err), "codec");
    if (status != TUTTI_OK)
        goto out;
    c->ops = find(space, tutti_spec_name(c->spec));
    if (c->ops == NULL) {
        status = unknown(space, tutti_spec_name(c->spec), err);
        goto out;
    }
    status = tutti_codec_check_table(c->ops, err);
    if (status != TUTTI_OK)
        goto out;
    if (c->ops->self_bytes > 0 && (c->self = tutti_alloc(1, c->ops->self_bytes)) == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for codec '%.60s'", spec);
        goto out;
    }
    snprintf(what, sizeof what, "codec '%s'", c->ops->name);
    status = tutti_spec_apply(c->spec, what, c->ops->options, c->self, err);
    if (status == TUTTI_OK)
        status = declare_inner(c, plan, depth, err);
    if (status == TUTTI_OK && c->ops->check != NULL)
        status = tutti_fail_within(err, c->ops->check(c, err), "%s", what);
    if (status == TUTTI_OK)
        status = tutti_codec_check_mean(c->ops, tutti_codec_traits(c), err);
    if (status == TUTTI_OK && c->ops->declare != NULL)
        c->ops->declare(c, plan);
out:
    if (status == TUTTI_OK)
        *out = c;
    else
        tutti_codec_close(c);
    return status;
}

tutti_status tutti_codec_declare(tutti_codec **out, tutti_plan *plan, const char *spec,
                                 const char *prefix, const tutti_codec_space *space,
                                 tutti_error *err)
{
    return declare(out, plan, spec, prefix, space, 1, err);
}

void tutti_codec_open(tutti_codec *c)
{
    for (size_t i = 0; i < TUTTI_LENGTH(c->inner); i++)
        if (c->inner[i] != NULL)
            tutti_codec_open(c->inner[i]);
    if (c->ops->open != NULL)
        c->ops->open(c);
}

tutti_status tutti_codec_begin(tutti_codec *c, const tutti_codec_moment *m, tutti_error *err)
{
    float *numbers = NULL;
    size_t n;

    for (size_t i = 0; i < TUTTI_LENGTH(c->inner); i++)
        if (c->inner[i] != NULL)
            TUTTI_TRY(tutti_codec_begin(c->inner[i], m, err));
    if (c->ops->verify != NULL)
        TUTTI_TRY(tutti_fail_within(err, c->ops->verify(c, err), "codec '%s', before step %llu",
                                    c->ops->name, (unsigned long long)m->step));
    if (c->ops->begin == NULL)
        return TUTTI_OK;
    for (int round = 0; (n = c->ops->begin(c, m, round, &numbers)) > 0; round++)
        TUTTI_TRY(tutti_fail_within(err, m->sum(m->with, n, numbers, err),
                                    "codec '%s': merging %zu numbers before step %llu",
                                    c->ops->name, n, (unsigned long long)m->step));
    return TUTTI_OK;
}

void tutti_codec_left_out(tutti_codec *c, uint64_t step)
{
    for (size_t i = 0; i < TUTTI_LENGTH(c->inner); i++)
        if (c->inner[i] != NULL)
            tutti_codec_left_out(c->inner[i], step);
    if (c->ops->left_out != NULL)
        c->ops->left_out(c, step);
}

void tutti_codec_close(tutti_codec *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < TUTTI_LENGTH(c->inner); i++)
        tutti_codec_close(c->inner[i]);
    tutti_free(c->self);
    tutti_spec_close(c->spec);
    tutti_free(c);
}

tutti_codec *tutti_codec_chosen(tutti_codec *c, const tutti_view *v)
{
    while (c->ops->choose != NULL)
        c = c->ops->choose(c, v);
    return c;
}

static void codec_watch(tutti_codec *c, const tutti_view *v, const float *x)
{
    for (; c->ops->choose != NULL; c = c->ops->choose(c, v))
        if (c->ops->watch != NULL)
            c->ops->watch(c, v, x);
}

/* Calls `before` of the wrappers for a part of the view v, or for all of it. */
static const float *codec_before(tutti_codec *c, const tutti_view *v, const tutti_view *part,
                                 const float *x)
{
    for (; c->ops->choose != NULL; c = c->ops->choose(c, v))
        if (c->ops->before != NULL)
            x = c->ops->before(c, part, x);
    return x;
}

const float *tutti_codec_before(tutti_codec *c, const tutti_view *v, const float *x)
{
    codec_watch(c, v, x);
    return codec_before(c, v, v, x);
}

/* Elements of a part: whole rows, in fours, since that is how products of rows go best; all: the
   view cannot be split, or no codec has work to do before it is folded. */
static size_t part_of(tutti_codec *c, const tutti_view *v)
{
    const size_t cols = v->rows > 1 ? v->cols : 1, rows = PART / 4 / (cols > 0 ? cols : 1);
    bool asked = false;

    for (; c->ops->choose != NULL; c = c->ops->choose(c, v)) {
        if (c->ops->before != NULL && !c->ops->by_element)
            return v->count;
        asked = asked || c->ops->before != NULL;
    }
    return asked && c->ops->fold_part != NULL ? 4 * (rows > 0 ? rows : 1) * cols : v->count;
}

const float *tutti_codec_fold_first(tutti_codec *c, const tutti_view *v, const float *x,
                                    void *scratch, void *const *wire)
{
    tutti_codec *leaf = tutti_codec_chosen(c, v);
    const size_t most = part_of(c, v);

    codec_watch(c, v, x);
    if (most >= v->count) {
        x = codec_before(c, v, v, x);
        leaf->ops->fold(leaf, v, 0, x, scratch, wire);
        return x;
    }
    for (size_t end = v->count, from; end > 0; end = from) {
        const float *folded;
        tutti_view part = *v;
        from = (end - 1) / most * most;
        part.first += from;
        part.count = end - from;
        part.rows = v->rows > 1 ? part.count / v->cols : 1;
        part.cols = part.count / part.rows;
        folded = codec_before(c, v, &part, x + from);
        leaf->ops->fold_part(leaf, v, from, part.count, folded, scratch, wire);
        if (from == 0)
            x = folded;
    }
    return x;
}

static void mark(tutti_codec *c, tutti_codec *leaf, const tutti_view *v, const uint8_t *in,
                 size_t bytes)
{
    uint8_t *to = c->ops->marks != NULL ? c->ops->marks(c, v) : NULL;

    if (to != NULL && leaf->ops->places != NULL)
        leaf->ops->places(leaf, v, in, bytes, to);
    else if (to != NULL)
        memset(to, 1, v->count);
}

tutti_status tutti_codec_sent(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                              tutti_error *err)
{
    tutti_codec *leaf = tutti_codec_chosen(c, v);

    for (; c->ops->choose != NULL && v->count > 0; c = c->ops->choose(c, v)) {
        float *into = NULL;
        const float a = c->ops->account != NULL ? c->ops->account(c, v, &into) : 0;
        if (into != NULL)
            TUTTI_TRY(leaf->ops->decode_add(leaf, v, in, bytes, a, into, err));
        mark(c, leaf, v, in, bytes);
    }
    return TUTTI_OK;
}

void tutti_codec_sent_rounds(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                             void *const *wire)
{
    tutti_codec *leaf = tutti_codec_chosen(c, v);

    for (; c->ops->choose != NULL; c = c->ops->choose(c, v)) {
        float *into = NULL;
        const float a = c->ops->account != NULL ? c->ops->account(c, v, &into) : 0;
        if (into != NULL)
            leaf->ops->mine(leaf, v, x, scratch, wire, a, into);
        mark(c, leaf, v, NULL, 0);
    }
}

void tutti_codec_after(tutti_codec *c, const tutti_view *v, float *y)
{
    if (c->ops->choose != NULL)
        tutti_codec_after(c->ops->choose(c, v), v, y);
    if (c->ops->after != NULL)
        c->ops->after(c, v, y);
}

size_t tutti_codec_mean_levels(int n)
{
    size_t levels = 0;

    for (; n > 2; n = (n + 1) / 2)
        levels++;
    return levels;
}

/* The messages of all workers, which are decoded times a. *bad: the worker whose message was
   decoded last. */
typedef struct tree {
    tutti_codec *c;
    const tutti_view *v;
    const tutti_codec_message *all;
    size_t stride;
    float a;
    int *bad;
} tree;

/* y += the sum of n messages from m on, in the order of the tree. sums: buffers for right
   branches. */
static tutti_status add_tree(const tree *t, const tutti_codec_message *m, int n, float *y,
                             float *sums, tutti_error *err)
{
    const int first = (int)((size_t)(m - t->all) / t->stride);
    const tutti_view *v = t->v;
    int half = 1;

    if (n == 1) {
        *t->bad = first;
        return v->count == 0 ? TUTTI_OK
                             : t->c->ops->decode_add(t->c, v, m->at, m->bytes, t->a, y, err);
    }
    while (2 * half < n)
        half *= 2;
    TUTTI_TRY(add_tree(t, m, half, y, sums, err));
    m += (size_t)half * t->stride;
    if (n - half == 1)
        return add_tree(t, m, 1, y, sums, err);
    tutti_fill(t->c->space->device, v->count, 0, sums);
    TUTTI_TRY(add_tree(t, m, n - half, sums, sums + v->count, err));
    tutti_add(t->c->space->device, v->count, sums, y);
    return TUTTI_OK;
}

tutti_status tutti_codec_mean(tutti_codec *c, const tutti_view *v, const tutti_codec_message *m,
                              size_t stride, int n, float *y, float *sums, int *bad,
                              tutti_error *err)
{
    if ((tutti_codec_traits(c) & TUTTI_CODEC_JOINT) != 0 && v->count > 0)
        return c->ops->mean(c, v, &(tutti_codec_messages){ m, stride, n, bad }, y, err);
    tutti_fill(c->space->device, v->count, 0, y);
    return add_tree(&(tree){ c, v, m, stride, (float)(1.0 / n), bad }, m, n, y, sums, err);
}
