/* simulate.c: `tutti train` with simulated workers: all run in this process; their time is virtual,
   host_seconds real. */
#include "simulate.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tutti/tutti.h"
#include "collective/world.h"
#include "launch/launch.h"

typedef struct simulated {
    bool lost;                   /* its loss has been reported */
    bool ended;                  /* with this status and error */
    tutti_status status;
    tutti_error err;
} simulated;
typedef struct simulation {
    const tutti_train_config *config;
    tutti_train_io io;
    tutti_screen display;
    simulated *workers;
    int left;
    bool stopped;
} simulation;

static void say_simulated(void *user, int status, const char *line)
{
    tutti_screen_say(&((simulation *)user)->display, status, line);
}

static int simulated_columns(void *user)
{
    return tutti_screen_columns(&((simulation *)user)->display);
}

/* Called by every worker that learns of a loss; the first call prints it. */
static void show_simulated_loss(void *user, int rank, const char *why)
{
    simulation *sim = user;

    if (sim->workers[rank].lost)
        return;
    sim->workers[rank].lost = true;
    sim->left--;
    if (sim->left >= sim->config->min_workers)
        fprintf(stderr, "tutti: %s; if the others can, the run continues with %d worker%s\n", why,
                sim->left, sim->left == 1 ? "" : "s");
}

static tutti_status simulated_worker(tutti_world *world, void *arg, tutti_error *err)
{
    simulation *sim = arg;
    simulated *w = &sim->workers[tutti_world_rank(world)];

    w->status = tutti_train_worker(world, sim->config, &sim->io, err);
    if (w->status == TUTTI_CLOSED) {
        sim->stopped = true;
        w->status = TUTTI_OK;
    }
    w->ended = true;
    if (w->status != TUTTI_OK)
        w->err = *err;
    return w->status;
}

/* Returns whether a worker's failure comes before that of `than`, which may be NULL. */
static bool is_worse(const simulated *w, const simulated *than)
{
    return than == NULL || (than->status == TUTTI_ERR_PEER && w->status != TUTTI_ERR_PEER);
}

/* Returns the status of a simulated run that has ended with `status`. In a run that continues after
   losses the workers that were left decide it; a worker's own failure comes before one caused by
   others. A worker that neither ended nor was missed by another failed when the others no longer
   needed it, unless all are stuck. */
static tutti_status outcome(const simulation *sim, tutti_status status, tutti_error *err)
{
    const simulated *worst = NULL;
    bool well = false;

    if (!sim->config->continue_on_loss || sim->left == 0)
        return status;
    for (const simulated *w = sim->workers;
         w < sim->workers + sim->config->n + sim->config->servers; w++) {
        if (!w->lost && !w->ended && status != TUTTI_ERR_PEER)
            return status;
        well = well || (!w->lost && w->ended && w->status == TUTTI_OK);
        if (!w->lost && w->status != TUTTI_OK && is_worse(w, worst))
            worst = w;
    }
    /* no worker could continue, because of the losses */
    if (worst == NULL || (!well && sim->left >= sim->config->min_workers &&
                          (worst->status == TUTTI_ERR_PEER || worst->status == TUTTI_ERR_STATE)))
        return well ? TUTTI_OK : status;
    *err = worst->err;
    return worst->status;
}

int tutti_cli_simulate(tutti_cli_settings *s, int64_t started_ns, tutti_error *err)
{
    simulation sim = { .config = &s->config,
                       .display = { .terminal = tutti_screen_replaces() },
                       .left = (int)s->config.n,
                       .io = { .say = say_simulated,
                               .columns = simulated_columns,
                               .started_ns = started_ns,
                               .host = s->rt,
                               .least = (int)s->config.min_workers,
                               .lost = show_simulated_loss } };
    char installed[4096], *transport = NULL;
    tutti_status status;

    sim.io.user = &sim;
    sim.io.installed_data = tutti_cli_installed(installed, sizeof installed, "data");
    if (s->config.checkpoint_on_signal) {
        tutti_cli_handle_signals(false);
        sim.io.stop = tutti_cli_asked;
    }
    sim.workers = tutti_alloc((size_t)(s->config.n + s->config.servers), sizeof *sim.workers);
    if (sim.workers == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %lld simulated workers",
                            (long long)s->config.n);
    else
        status = tutti_train_transport(&s->config, &transport, err);
    if (status == TUTTI_OK)
        status = outcome(&sim,
                         tutti_world_run(transport, (int)(s->config.n + s->config.servers),
                                         simulated_worker, &sim, err),
                         err);
    tutti_free(transport);
    tutti_free(sim.workers);
    tutti_screen_end(&sim.display);
    if (status == TUTTI_OK)
        status = tutti_cli_flush(err);
    if (status == TUTTI_OK && sim.stopped) {
        fprintf(stderr, "tutti: stopped by signal %d (SIG%s)\n", tutti_cli_code_of_stop() - 128,
                tutti_launch_signal_name(tutti_cli_code_of_stop() - 128));
        return tutti_cli_code_of_stop();
    }
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(err);
}
