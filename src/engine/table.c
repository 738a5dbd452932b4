/* table.c: checks that the definition of a method is complete. A program may define methods of its
   own (tutti_engine_open_from). What its author has forgotten is reported when the engine opens,
   before a missing function is called or a missing value is used. */
#include <string.h>

#include "engine_internal.h"
#include "refuse.h"

enum { NAME_BYTES = 48, KNOWN_TRAITS = 2 * TUTTI_STATES_OF_SHARES - 1 };

/* True if the name can be written in a spec (its grammar is in base.h). */
static bool can_be_asked_for(const char *name)
{
    static const char characters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    const size_t bytes = strlen(name), letters = 52;

    return bytes > 0 && bytes <= NAME_BYTES && memchr(characters, name[0], letters) != NULL &&
           strspn(name, characters) == bytes;
}

tutti_status tutti_engine_check_names(const tutti_method_ops *const *methods, tutti_error *err)
{
    if (methods == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the engine is given no list of methods; give tutti_methods or one of "
                          "your own that ends with NULL");
    for (size_t i = 0; methods[i] != NULL; i++) {
        if (methods[i]->name == NULL)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "method %zu of the list has no name; set .name", i + 1);
        if (!can_be_asked_for(methods[i]->name))
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "method %zu of the list is named '%.60s', which no program can "
                              "request: a name has a letter, then letters, digits, '_', '-' and "
                              "'.', at most %d in all",
                              i + 1, methods[i]->name, NAME_BYTES);
        for (size_t k = 0; k < i; k++)
            if (strcmp(methods[k]->name, methods[i]->name) == 0)
                return tutti_fail(err, TUTTI_ERR_STATE, 0,
                                  "methods %zu and %zu of the list are both named '%s'; give one "
                                  "of them another name",
                                  k + 1, i + 1, methods[i]->name);
    }
    return TUTTI_OK;
}

static tutti_status check_services(const tutti_method_ops *ops, tutti_error *err)
{
    for (int n = 0; ops->services != NULL && ops->services[n].name != NULL; n++) {
        if (n == TUTTI_SERVICES_MOST)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "method '%s' has more than %d services; let one do the work of two",
                              ops->name, TUTTI_SERVICES_MOST);
        if (ops->services[n].run == NULL)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "service '%s' of method '%s' has nothing to run; set its .run",
                              ops->services[n].name, ops->name);
    }
    return TUTTI_OK;
}

static tutti_status check_defaults(const tutti_method_ops *ops, tutti_error *err)
{
    static const char *const known[] = { "optimizer", "lr-schedule" };

    for (const tutti_method_default *d = ops->defaults; d != NULL && d->option != NULL; d++) {
        char near[128];
        bool is_known = false;
        if (d->value == NULL || strlen(d->value) > TUTTI_METHOD_DEFAULT_LONGEST)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "method '%s' has a default of option '%s' %s", ops->name, d->option,
                              d->value == NULL ? "without a value; give one"
                                               : "that is too long; shorten it");
        for (size_t k = 0; k < TUTTI_LENGTH(known); k++)
            is_known = is_known || strcmp(d->option, known[k]) == 0;
        tutti_suggest(d->option, known, TUTTI_LENGTH(known), near, sizeof near);
        if (!is_known &&
            near[0] != 0) /* the command has options of its own that the engine does not know */
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "method '%s' has a default of option '%s', which there is not%s",
                              ops->name, d->option, near);
        if (!tutti_method_default_can_hold(ops, d))
            return tutti_fail(
                err, TUTTI_ERR_STATE, 0,
                "method '%s' has a default of option '%s' where '%.80s', which is no condition; "
                "write one on an option of the method, as \"choice=a|b\", or \"%s=NAME\", the "
                "value a spec of that name",
                ops->name, d->option, d->when, d->option);
    }
    return TUTTI_OK;
}

static tutti_status check_traits(const tutti_method_ops *ops, int workers, tutti_error *err)
{
    const bool drives = ops->traits & TUTTI_PIPELINE_SCHEDULE,
               no_services = ops->services == NULL || ops->services[0].name == NULL,
               brings = ops->exchange != NULL || ops->step != NULL || ops->pass != NULL ||
                        ops->unit_acquire != NULL || ops->unit_release != NULL ||
                        ops->rows_acquire != NULL || ops->drive != NULL || ops->services != NULL;
    const tutti_rule rules[] = {
        { drives && ops->drive == NULL,
          "has the trait TUTTI_PIPELINE_SCHEDULE and no hook `drive`; set both or neither" },
        { !drives && ops->drive != NULL,
          "has a hook `drive` without the trait TUTTI_PIPELINE_SCHEDULE; set both or neither" },
        { drives && (ops->exchange != NULL || (ops->traits & TUTTI_REPLICAS_EQUAL) == 0 ||
                     (ops->traits & TUTTI_SHARDED_OPTIMIZER) == 0),
          "drives: that goes with TUTTI_REPLICAS_EQUAL and TUTTI_SHARDED_OPTIMIZER, and with no hook "
          "`exchange`" },
        { (ops->traits & TUTTI_ASKS_FOR_VALUES) != 0 &&
              (ops->traits & (TUTTI_ASYNC | TUTTI_UNSYNCHRONIZED_STEPS)) != 0,
          "has the trait TUTTI_ASKS_FOR_VALUES, and one by which snapshots read x in any step "
          "(TUTTI_ASYNC, TUTTI_UNSYNCHRONIZED_STEPS); remove the first" },
        { workers > 1 && !brings && (ops->traits & TUTTI_REPLICAS_EQUAL) != 0,
          "declares TUTTI_REPLICAS_EQUAL, but exchanges nothing, so that workers would each have a "
          "model of their own; set .exchange (tutti_base_exchange averages gradients), or remove "
          "the trait" },
        { no_services && ops->serves != NULL,
          "has a hook `serves`, for which it needs a service; set .services" },
        { no_services && (ops->traits & TUTTI_PARAMETER_SERVERS) != 0,
          "has the trait TUTTI_PARAMETER_SERVERS, for which it needs a service; set .services" },
        { no_services && (ops->traits & TUTTI_UNSYNCHRONIZED_STEPS) != 0,
          "has the trait TUTTI_UNSYNCHRONIZED_STEPS, for which it needs a service; set .services" },
    };

    if ((ops->traits & ~(unsigned)KNOWN_TRAITS) != 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' has traits 0x%x, of which 0x%x do not exist; take those of "
                          "method.h",
                          ops->name, ops->traits, ops->traits & ~(unsigned)KNOWN_TRAITS);
    for (size_t k = 0; k < TUTTI_LENGTH(rules); k++)
        if (rules[k].broken)
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "method '%s' %s", ops->name,
                              rules[k].sentence);
    return TUTTI_OK;
}

tutti_status tutti_engine_check_table(const tutti_method_ops *ops, int workers, tutti_error *err)
{
    char what[NAME_BYTES + 20] = "method '";

    strcat(strcat(what, ops->name), "'");
    TUTTI_TRY(tutti_options_check(ops->options, what, ops->self_bytes, err));
    TUTTI_TRY(check_services(ops, err));
    TUTTI_TRY(check_defaults(ops, err));
    return check_traits(ops, workers, err);
}
