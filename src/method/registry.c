/* registry.c: the table of the built-in methods, made from methods.def. A test compares it with the
   files of the folder. */
#include <string.h>

#include "tutti/method.h"

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

/* The method of a spec, and its self with the options of it, which tutti_free frees; NULL: the spec
   is wrong. */
static void *apply(const char *text, const tutti_method_ops **ops)
{
    bool right = false;
    tutti_spec *spec;
    void *self = NULL;

    if (tutti_spec_open(&spec, text, NULL) != TUTTI_OK)
        return NULL;
    *ops = tutti_method_find(tutti_spec_name(spec));
    if (*ops != NULL)
        self = tutti_alloc((*ops)->self_bytes + ((*ops)->self_bytes == 0), 1);
    if (self != NULL)
        right = tutti_spec_apply(spec, "method", (*ops)->options, self, NULL) == TUTTI_OK;
    tutti_spec_close(spec);
    if (right)
        return self;
    tutti_free(self);
    return NULL;
}

bool tutti_method_traits(const char *text, unsigned *traits)
{
    const tutti_method_ops *ops = NULL;
    void *self = apply(text, &ops);

    *traits = self == NULL ? 0 : ops->traits_of != NULL ? ops->traits_of(self) : ops->traits;
    tutti_free(self);
    return self != NULL;
}

uint64_t tutti_method_settles(const char *text, uint64_t steps, uint64_t epoch)
{
    const tutti_method_ops *ops = NULL;
    void *self = apply(text, &ops);
    const uint64_t settles = self != NULL && ops->settles != NULL ? ops->settles(self, steps, epoch) : 0;

    tutti_free(self);
    return settles;
}
