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

bool tutti_method_traits(const char *text, unsigned *traits)
{
    const tutti_method_ops *ops = NULL;
    bool right = false;
    tutti_spec *spec;
    void *self = NULL;

    *traits = 0;
    if (tutti_spec_open(&spec, text, NULL) != TUTTI_OK)
        return false;
    ops = tutti_method_find(tutti_spec_name(spec));
    if (ops != NULL)
        self = tutti_alloc(ops->self_bytes + (ops->self_bytes == 0), 1);
    if (self != NULL)
        right = tutti_spec_apply(spec, "method", ops->options, self, NULL) == TUTTI_OK;
    if (right)
        *traits = ops->traits_of != NULL ? ops->traits_of(self) : ops->traits;
    tutti_free(self);
    tutti_spec_close(spec);
    return right;
}
