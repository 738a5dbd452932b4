/* void_options.c: options of `tutti train` that have no effect with the others of a run. As flags
   they are refused, and commands that Tutti makes leave them out. */
#include <string.h>

#include "cli_internal.h"
#include "base/settings.h"
#include "collective/world.h"

static bool has_checkpoints(const tutti_train_config *c)
{
    return c->checkpoint_every > 0 || c->checkpoint_on_signal;
}

static bool is_written(const tutti_train_config *c)
{
    return has_checkpoints(c) || !c->checkpoint_async;
}

static bool has_hosts(const tutti_train_config *c)
{
    return c->hosts[0] != 0;
}

static bool has_others(const tutti_train_config *c)
{
    return c->hosts[0] != 0 || c->workers[0] != 0;
}

static bool is_real(const tutti_train_config *c)
{
    return !tutti_world_simulated(c->transport);
}

static bool may_overwrite(const tutti_train_config *c)
{
    return c->out[0] != 0 || c->resume[0] != 0 || !c->overwrite;
}

/* A simulated run without failures has no losses, whatever this number is. */
static bool may_go_on(const tutti_train_config *c)
{
    return c->continue_on_loss || c->min_workers == 1 || !is_real(c);
}

/* Options that do nothing where counts() does not hold. by_run: that depends on what a comparison
   sets for each of its runs. */
static const struct {
    const char *name;
    bool (*counts)(const tutti_train_config *c);
    bool by_run;
    const char *needs;
} voids[] = {
    { "checkpoint-keep", has_checkpoints, false,
      "without checkpoints; give checkpoint-every too, or omit it" },
    { "checkpoint-async", is_written, false,
      "without checkpoints; give checkpoint-every too, or omit it" },
    { "rsh", has_hosts, false, "without other hosts; give -H HOST:N,HOST:N too, or omit it" },
    { "meet", has_others, false,
      "on one machine; give -H HOST:N,HOST:N, or workers, FEWEST:MOST, too, or omit it" },
    { "start-timeout", is_real, true, "in a simulated run, whose workers are all there; omit it" },
    { "min-workers", may_go_on, true,
      "where the run ends with the first loss; give on-loss=continue, with a method that can, or "
      "omit it" },
    { "overwrite", may_overwrite, true,
      "for the new directory that the run makes; give --out too, or omit it" },
};

bool tutti_cli_is_void(const char *name, const tutti_train_config *config)
{
    for (size_t k = 0; k < TUTTI_LENGTH(voids); k++)
        if (strcmp(name, voids[k].name) == 0)
            return !voids[k].counts(config);
    return false;
}

tutti_status tutti_cli_check_void(const tutti_cli_settings *s, bool one, tutti_error *err)
{
    for (size_t k = 0; k < TUTTI_LENGTH(voids); k++)
        if ((one || !voids[k].by_run) && !voids[k].counts(&s->config) &&
            tutti_settings_origin(s->settings, voids[k].name, NULL) == TUTTI_FROM_FLAG)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s is given, and it does nothing %s",
                              voids[k].name, voids[k].needs);
    return TUTTI_OK;
}
