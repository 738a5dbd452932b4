/* simulation.c: the options of simulated runs, --platform, --fail and --step-time, and the options
   that are passed on to the transport.

   --step-time S: a pass of `batch` samples costs S seconds of virtual time on every worker instead
   of its FLOPs over the host's speed; other passes cost in proportion, and --slow multiplies. The
   time is spread over the layers in proportion to their FLOPs, so that gradients become ready one
   after another. Exchanges and updates cost what the platform says. The network charges a device
   of its own, run->metered, whose runtime only counts. */
#include <errno.h>
#include <string.h>

#include "train_internal.h"
#include "base/options.h"
#include "collective/world.h"
#include "kernels/device.h"

/* An option of the transport that is also an option of `tutti train`, and its value there. */
typedef struct passed_on { const char *name, *value; } passed_on;
enum { PASSED_ON = 2 };

static tutti_status pass_on(const tutti_train_config *c, const tutti_transport_ops *ops, void *self,
                            const passed_on *p, tutti_error *err)
{
    const tutti_option *option = tutti_option_find(ops->options, p->name);
    const char **given;

    if (p->value[0] == 0)
        return TUTTI_OK;
    if (option == NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s is '%.200s', but transport '%s' has no %s; use it with --transport sim", p->name,
            p->value, ops->name, p->name);
    given = (const char **)(void *)((char *)self + option->offset);
    if ((*given)[0] != 0 && strcmp(*given, p->value) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s is '%.200s', but the transport is '%.200s'; name the %s once",
                          p->name, p->value, c->transport, p->name);
    *given = p->value;
    return TUTTI_OK;
}

/* Sets the transport's open-timeout to --start-timeout, unless its spec has another value than the
   default. */
static void pass_on_patience(const tutti_train_config *c, const tutti_transport_ops *ops,
                             void *self)
{
    const tutti_option *option = tutti_option_find(ops->options, "open-timeout");
    double *seconds = option != NULL ? (double *)(void *)((char *)self + option->offset) : NULL;

    if (seconds != NULL && *seconds == option->initial)
        *seconds = c->start_timeout;
}

/* Returns whether options of the run are passed on to its transport. */
static bool takes_options(const tutti_train_config *c)
{
    return c->platform[0] != 0 || c->fail[0] != 0 || strncmp(c->transport, "tcp", 3) == 0 ||
           strncmp(c->transport, "shm", 3) == 0;
}

tutti_status tutti_train_transport(const tutti_train_config *c, char **spec_text, tutti_error *err)
{
    const passed_on flags[PASSED_ON] = { { "platform", c->platform }, { "fail", c->fail } };
    /* quotes may double their length */
    const size_t room = strlen(c->transport) + 2 * strlen(c->platform) + 2 * strlen(c->fail) + 64;
    const tutti_transport_ops *ops = NULL;
    tutti_spec *spec = NULL;
    void *self = NULL;
    tutti_status status;

    *spec_text = NULL;
    if (!takes_options(c)) {
        *spec_text = tutti_copy_text(c->transport);
        return *spec_text != NULL
                   ? TUTTI_OK
                   : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading the transport");
    }
    status = tutti_spec_open(&spec, c->transport, err);
    if (status == TUTTI_OK)
        status = tutti_transport_load(tutti_spec_name(spec), &ops, NULL, 0, err);
    if (status != TUTTI_OK)
        goto out;
    self = tutti_alloc(ops->options_bytes + 1, 1);
    *spec_text = tutti_alloc(room, 1);
    if (self == NULL || *spec_text == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading the transport");
    if (status == TUTTI_OK)
        status = tutti_spec_apply(spec, "transport", ops->options, self, err);
    for (int k = 0; k < PASSED_ON && status == TUTTI_OK; k++)
        status = pass_on(c, ops, self, &flags[k], err);
    if (status == TUTTI_OK)
        pass_on_patience(c, ops, self);
    if (status == TUTTI_OK)
        tutti_spec_print(ops->name, ops->options, self, *spec_text, room);
out:
    if (status != TUTTI_OK) {
        tutti_free(*spec_text);
        *spec_text = NULL;
    }
    tutti_free(self);
    tutti_spec_close(spec);
    return status;
}

/* Copies the value of an option of the transport, of type const char * or double, to *value. false:
   the transport has no option of that name. A text belongs to *spec, which the caller always
   closes. */
static bool own_option(const tutti_train_config *c, const char *name, void *value, size_t bytes,
                       tutti_spec **spec)
{
    const tutti_transport_ops *ops;
    const tutti_option *option = NULL;
    void *self = NULL;
    bool has = false;

    if (tutti_spec_open(spec, c->transport, NULL) == TUTTI_OK &&
        tutti_transport_load(tutti_spec_name(*spec), &ops, NULL, 0, NULL) == TUTTI_OK &&
        (option = tutti_option_find(ops->options, name)) != NULL &&
        (self = tutti_alloc(ops->options_bytes + 1, 1)) != NULL)
        has = tutti_spec_apply(*spec, "transport", ops->options, self, NULL) == TUTTI_OK;
    if (has)
        memcpy(value, (char *)self + option->offset, bytes);
    tutti_free(self);
    return has;
}

bool tutti_train_fails(const tutti_train_config *c)
{
    const char *fail = "";
    tutti_spec *spec = NULL;
    const bool fails =
        c->fail[0] != 0 || (own_option(c, "fail", &fail, sizeof fail, &spec) && fail[0] != 0);

    tutti_spec_close(spec);
    return fails;
}

int64_t tutti_train_silence_ns(const tutti_train_config *c)
{
    double seconds = 0;
    tutti_spec *spec = NULL;
    const bool has = own_option(c, "peer-timeout", &seconds, sizeof seconds, &spec);

    tutti_spec_close(spec);
    return has ? (int64_t)(seconds * 1e9) : 0;
}

tutti_status tutti_train_check_simulation(const tutti_train_config *c, tutti_error *err)
{
    char *spec;

    TUTTI_TRY(tutti_train_transport(c, &spec, err));
    tutti_free(spec);
    if (c->step_time > 0 && !tutti_world_simulated(c->transport)) {
        TUTTI_TRY(tutti_world_check(c->transport, err));
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "step-time is %g s, but with transport '%.80s' time is real; use it with "
                          "--transport sim, or slow workers down with --slow",
                          c->step_time, c->transport);
    }
    return TUTTI_OK;
}

/* The charge hook of run->meter. The layers charge FLOPs without bytes. A charge with bytes is that
   of a kernel that adds up the blocks of a pass, which is part of the layers' time. */
static void count(void *self, double flops, double bytes)
{
    tutti_run *run = self;

    if (bytes == 0)
        run->pending_ns += flops * run->flop_ns;
}

tutti_status tutti_train_meter_open(tutti_run *run, tutti_device **device, tutti_error *err)
{
    static const tutti_runtime_ops ops = {
        .abi = TUTTI_RUNTIME_ABI, .bytes = sizeof ops, .name = "meter", .charge = count
    };

    *device = run->metered != NULL ? run->metered : tutti_world_device(run->world);
    if (run->config->step_time > 0 && run->metered == NULL) {
        run->meter = (tutti_runtime){ &ops, run };
        TUTTI_TRY(
            tutti_device_open_host(&run->metered, &run->meter, tutti_device_cpu(*device), err));
        *device = run->metered;
    }
    return TUTTI_OK;
}

void tutti_train_meter_start(tutti_run *run, int64_t samples)
{
    double forward, backward;

    if (run->metered != NULL) {
        tutti_nn_flops(run->nn, &forward, &backward);
        tutti_train_meter_start_of(run, forward + backward, samples);
    }
}

void tutti_train_meter_start_of(tutti_run *run, double flops, int64_t samples)
{
    if (run->metered != NULL) {
        const double pass_ns =
            run->config->step_time * 1e9 * (double)samples / (double)run->config->batch;
        run->flop_ns = samples > 0 && flops > 0 ? pass_ns / (flops * (double)samples) : 0;
        /* no layer charges FLOPs: pending at once */
        run->pending_ns = run->flop_ns > 0 ? 0 : pass_ns;
    }
}

void tutti_train_meter_pay(tutti_run *run)
{
    if (run->pending_ns >= 0.5) { /* of the meter, or a measured network's */
        const int64_t whole = (int64_t)(run->pending_ns + 0.5);
        tutti_sleep_until(run->rt, tutti_now_ns(run->rt) + whole);
        run->pending_ns -= (double)whole; /* the rest, a fraction of a nanosecond, stays pending */
    }
}
