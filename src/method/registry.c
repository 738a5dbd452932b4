/* registry.c: the table of the built-in methods, made from methods.def. A test compares it with the
   files of the folder. */
#include <string.h>

#include "tutti/method.h"
#include "base/options.h"
#include "registry.h"

#define METHOD(name) extern const tutti_method_ops tutti_method_##name;
#include "methods.def"
#undef METHOD

const tutti_method_ops *const tutti_methods[] = {
#define METHOD(name) &tutti_method_##name,
#include "methods.def"
#undef METHOD
    NULL
};

const tutti_method_ops *tutti_method_find(const char *name)
{
    for (size_t i = 0; tutti_methods[i] != NULL; i++)
        if (strcmp(tutti_methods[i]->name, name) == 0)
            return tutti_methods[i];
    return NULL;
}

/* A built-in method with its options; ops is NULL where the spec is wrong. */
typedef struct chosen {
    const tutti_method_ops *ops;
    tutti_spec *spec;
    void *self;
} chosen;

static chosen choose_method(const char *text)
{
    chosen c = { 0 };
    const tutti_method_ops *ops;

    if (tutti_spec_open(&c.spec, text, NULL) != TUTTI_OK)
        return (chosen){ 0 };
    ops = tutti_method_find(tutti_spec_name(c.spec));
    if (ops != NULL)
        c.self = tutti_alloc(ops->self_bytes + (ops->self_bytes == 0), 1);
    if (c.self != NULL &&
        tutti_spec_apply(c.spec, "method", ops->options, c.self, NULL) == TUTTI_OK)
        c.ops = ops;
    return c;
}

static void drop(chosen *c)
{
    tutti_free(c->self);
    tutti_spec_close(c->spec);
}

bool tutti_method_traits(const char *text, unsigned *traits)
{
    chosen c = choose_method(text);
    const tutti_method_ops *ops = c.ops;

    *traits = ops == NULL ? 0 : ops->traits_of != NULL ? ops->traits_of(c.self) : ops->traits;
    drop(&c);
    return ops != NULL;
}

bool tutti_method_alike(const char *spec, const char *other)
{
    chosen c[2] = { choose_method(spec), choose_method(other) };
    bool same = c[0].ops != NULL && c[0].ops == c[1].ops;
    char text[2][4096];

    for (int i = 0; i < 2 && same; i++) {
        if (c[i].ops->ignore_on_resume != NULL)
            c[i].ops->ignore_on_resume(c[i].self);
        same = (size_t)tutti_spec_print(c[i].ops->name, c[i].ops->options, c[i].self, text[i],
                                        sizeof text[i]) < sizeof text[i];
    }
    same = same && strcmp(text[0], text[1]) == 0;
    drop(&c[0]);
    drop(&c[1]);
    return same;
}

uint64_t tutti_method_settles(const char *spec, uint64_t steps, uint64_t epoch)
{
    chosen c = choose_method(spec);
    const uint64_t settles =
        c.ops != NULL && c.ops->settles != NULL ? c.ops->settles(c.self, steps, epoch) : 0;

    drop(&c);
    return settles;
}

uint64_t tutti_method_repeats(const char *spec)
{
    chosen c = choose_method(spec);
    const uint64_t repeats =
        c.ops != NULL && c.ops->repeats != NULL ? c.ops->repeats(c.self) : 0;

    drop(&c);
    return repeats > 0 ? repeats : 1;
}
