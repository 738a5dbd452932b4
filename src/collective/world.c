/* world.c: opens and closes a world, which is one rank's transport, runtime, device, counters and
   shared windows. */
#include "collective_internal.h"
#include "launch/gather.h"
#include "runtime/activity.h"
#include "tutti/launch.h"
#include "tutti/comm.h"
#include "base/machine.h"
#include "world.h"
#include "kernels/device.h"
#include "launch/launch.h"
#include "transport/registry.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

#define RANKS_MAX (1 << 20) /* far more than any run; keeps sizes of tables sane */

#if defined(__x86_64__)
#define CPU_LEVELS "scalar, avx2 or avx512"
#elif defined(__aarch64__)
#define CPU_LEVELS "scalar or neon"
#else
#define CPU_LEVELS "scalar"
#endif

/* TUTTI_CPU lowers the level that kernels use, for tests and comparisons. */
static tutti_status cpu_of(char *const *environment, tutti_cpu *cpu, tutti_error *err)
{
    const char *text = tutti_variable(environment, "TUTTI_CPU");

    *cpu = tutti_cpu_best();
    if (text == NULL || text[0] == '\0')
        return TUTTI_OK;
    for (int level = TUTTI_CPU_SCALAR; strcmp(tutti_cpu_name((tutti_cpu)level), "unknown") != 0;
         level++)
        if (strcmp(text, tutti_cpu_name((tutti_cpu)level)) == 0) {
            *cpu = (tutti_cpu)level < *cpu ? (tutti_cpu)level : *cpu;
            return TUTTI_OK;
        }
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "TUTTI_CPU is '%.40s'; it must be " CPU_LEVELS,
                      text);
}

static tutti_status find_transport(const char *spec_text, const tutti_transport_ops **ops,
                                   tutti_error *err)
{
    static const char *const plug_ins[] = { "sim", "mpi" };
    char known[160] = "", near[120], tried[400];
    const char *names[32];
    size_t n = 0, used = 0;
    bool is_ours = false;
    tutti_spec *spec;

    *ops = NULL;
    TUTTI_TRY(tutti_spec_open(&spec, spec_text, err));
    if (tutti_transport_load(tutti_spec_name(spec), ops, tried, sizeof tried, err) != TUTTI_OK &&
        tried[0] != '\0') {
        for (; tutti_transports[n] != NULL && n < TUTTI_LENGTH(names); n++) {
            names[n] = tutti_transports[n]->name;
            if (used < sizeof known)
                used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                         n > 0 ? ", " : "", names[n]);
        }
        for (size_t k = 0; k < TUTTI_LENGTH(plug_ins) && n < TUTTI_LENGTH(names); k++) {
            is_ours = is_ours || strcmp(plug_ins[k], tutti_spec_name(spec)) == 0;
            names[n++] = plug_ins[k];
        }
        tutti_suggest(tutti_spec_name(spec), names, n, near, sizeof near);
        if (is_ours)
            tutti_fail(err, TUTTI_ERR_USAGE, 0,
                       "transport '%s' is a plug-in that this build is without: there is no "
                       "'%.200s'; known: %s",
                       tutti_spec_name(spec), tried, known);
        else
            tutti_fail(err, TUTTI_ERR_USAGE, 0,
                       "no transport is named '%.80s'%s; known: %s, and as plug-ins sim, mpi; nor "
                       "is there a plug-in '%.200s'",
                       tutti_spec_name(spec), near, known, tried);
    }
    tutti_spec_close(spec);
    return *ops != NULL ? TUTTI_OK : TUTTI_ERR_USAGE;
}

/* rt: the runtime that it is to run on, if the caller has opened one; else NULL. If the
   transport's ABI number differs, the position of `name` in its struct is unknown. */
static tutti_status check_abi(const tutti_transport_ops *ops, const tutti_runtime *rt,
                              tutti_error *err)
{
    char whose[80] = "the transport";

    if (ops->abi == TUTTI_TRANSPORT_ABI)
        snprintf(whose, sizeof whose, "the transport '%.60s'", ops->name);
    TUTTI_TRY(tutti_transport_check(ops, whose, err));
    return rt != NULL ? tutti_runtime_check(rt, "the runtime that the caller opened", err)
                      : TUTTI_OK;
}

/* TUTTI_NODES sets how many nodes (NUMA) each host has, its workers on them in equal blocks, in
   the order of their ranks, whatever the machine reports: for tests, and where the machine does
   not report it. *nodes 0: it is not set. */
static tutti_status nodes_of(char *const *environment, int *nodes, tutti_error *err)
{
    const char *text = tutti_variable(environment, "TUTTI_NODES");
    char *end;
    long n;

    *nodes = 0;
    if (text == NULL || text[0] == 0)
        return TUTTI_OK;
    n = strtol(text, &end, 10);
    if (*end != 0 || n < 1 || n > 1024)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "TUTTI_NODES is '%.40s'; it must be the number of NUMA nodes of each host, 1 to 1024",
            text);
    *nodes = (int)n;
    return TUTTI_OK;
}

/* The node of a rank on its host, or -1. */
static int node_of(const tutti_world *world, int nodes, int rank)
{
    int here = 0, before = 0;

    if (nodes == 0)
        return world->ops->node(world->transport, rank);
    for (int r = 0; r < world->size; r++) {
        if (world->host != NULL && world->host[r] != world->host[rank])
            continue;
        here++;
        before += r < rank;
    }
    return (int)((int64_t)before * nodes / here);
}

static tutti_status know_nodes(tutti_world *world, int nodes, tutti_error *err)
{
    if (nodes == 0 && world->ops->node == NULL)
        return TUTTI_OK;
    /* [size + r]: as reported */
    world->node = tutti_alloc(2 * (size_t)world->size, sizeof *world->node);
    if (world->node == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the nodes of %d ranks",
                          world->size);
    for (int r = 0; r < world->size; r++) {
        int *const node_given = world->node + world->size, first = 0;
        node_given[r] = node_of(world, nodes, r);
        while (node_given[first] != node_given[r] ||
               (world->host != NULL && world->host[first] != world->host[r]))
            first++;
        world->node[r] = node_given[r] >= 0 ? first : -1;
    }
    return TUTTI_OK;
}

static tutti_status know_hosts(tutti_world *world, tutti_error *err)
{
    bool several = false;

    if (world->ops->host == NULL)
        return TUTTI_OK;
    world->host = tutti_alloc((size_t)world->size, sizeof *world->host);
    if (world->host == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the hosts of %d ranks",
                          world->size);
    for (int r = 0; r < world->size; r++) {
        world->host[r] = world->ops->host(world->transport, r);
        several = several || world->host[r] != world->host[0];
    }
    if (!several) {
        tutti_free(world->host);
        world->host = NULL;
    }
    return TUTTI_OK;
}

static tutti_status open_parts(tutti_world *world, const tutti_launch *launch, tutti_error *err)
{
    tutti_cpu cpu;
    int nodes;

    if (world->sent == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a world of %d ranks",
                          launch->size);
    TUTTI_TRY(check_abi(world->ops, world->rt, err));
    TUTTI_TRY(cpu_of(launch->environment, &cpu, err));
    TUTTI_TRY(nodes_of(launch->environment, &nodes, err));
    if (world->rt == NULL) {
        TUTTI_TRY(tutti_runtime_open_posix(&world->rt, err));
        world->owns_rt = true;
    }
    TUTTI_TRY(tutti_monitor_open(&world->monitor, world->rt, err));
    TUTTI_TRY(tutti_device_open_host(&world->device, world->rt, cpu, err));
    TUTTI_TRY(world->ops->open(&world->transport, world->rt, launch, err));
    TUTTI_TRY(know_hosts(world, err));
    TUTTI_TRY(know_nodes(world, nodes, err));
    if (world->ops->publish != NULL && world->size > 1)
        TUTTI_TRY(tutti_rendezvous_open(world, err));
    tutti_noted_open(world, launch->environment);
    return TUTTI_OK;
}

tutti_status tutti_world_open_on(tutti_world **out, const tutti_transport_ops *ops,
                                 const tutti_launch *launch, tutti_runtime *rt, tutti_error *err)
{
    tutti_world *world = tutti_alloc(1, sizeof *world);
    tutti_status status;

    *out = NULL;
    if (world == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a world");
    world->ops = ops;
    world->process = (long)getpid();
    world->rt = rt;
    world->rank = launch->rank;
    world->size = launch->size;
    world->sent = tutti_alloc((size_t)launch->size, sizeof *world->sent);
    status = open_parts(world, launch, err);
    if (status == TUTTI_OK)
        *out = world;
    else {
        if (world->transport != NULL)
            tutti_world_failure_report(world, err);
        tutti_world_close(world);
    }
    return status;
}

/* The transport of that text; *self: its options, which tutti_free takes. */
static tutti_status read_transport(const char *text, const tutti_transport_ops **ops, void **self,
                                   tutti_error *err)
{
    tutti_spec *spec = NULL;
    tutti_status status;
    char what[80];

    *self = NULL;
    TUTTI_TRY(find_transport(text, ops, err));
    TUTTI_TRY(check_abi(*ops, NULL, err));
    *self = tutti_alloc((*ops)->options_bytes + 1, 1);
    if (*self == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the options of '%s'",
                          (*ops)->name);
    snprintf(what, sizeof what, "transport '%s'", (*ops)->name);
    status = tutti_spec_open(&spec, text, err);
    if (status == TUTTI_OK)
        status = tutti_spec_apply(spec, what, (*ops)->options, *self, err);
    tutti_spec_close(spec);
    return status;
}

tutti_status tutti_world_check(const char *transport_spec, tutti_error *err)
{
    const char *text = transport_spec == NULL || transport_spec[0] == '\0' ? "shm" : transport_spec;
    const tutti_transport_ops *ops;
    tutti_status status;
    tutti_cpu cpu;
    void *self;
    int nodes;

    TUTTI_TRY(cpu_of(environ, &cpu, err));
    TUTTI_TRY(nodes_of(environ, &nodes, err));
    status = read_transport(text, &ops, &self, err);
    tutti_free(self);
    return status;
}

/* How long this process waits for the others of its host: the transport's patience. */
static tutti_status patience(const char *transport_spec, int64_t *wait_ns, tutti_error *err)
{
    const tutti_transport_ops *ops = NULL;
    const tutti_option *option = NULL;
    double seconds = 0;
    void *self;
    tutti_status status = read_transport(transport_spec, &ops, &self, err);

    if (status == TUTTI_OK)
        option = tutti_option_find(ops->options, "open-timeout");
    if (option != NULL)
        memcpy(&seconds, (const char *)self + option->offset, sizeof seconds);
    tutti_free(self);
    *wait_ns = (int64_t)(seconds * 1e9);
    return status;
}

bool tutti_world_simulated(const char *transport_spec)
{
    const tutti_transport_ops *ops;

    return transport_spec != NULL && transport_spec[0] != '\0' &&
           find_transport(transport_spec, &ops, NULL) == TUTTI_OK &&
           check_abi(ops, NULL, NULL) == TUTTI_OK && ops->simulated;
}

bool tutti_world_can_survive(const char *transport_spec)
{
    const tutti_transport_ops *ops;

    return transport_spec != NULL && transport_spec[0] != '\0' &&
           find_transport(transport_spec, &ops, NULL) == TUTTI_OK &&
           check_abi(ops, NULL, NULL) == TUTTI_OK && ops->events != NULL;
}

tutti_status tutti_world_open(tutti_world **out, const char *transport_spec, tutti_error *err)
{
    return tutti_world_open_telling(out, transport_spec, NULL, NULL, err);
}

tutti_status tutti_world_open_telling(tutti_world **out, const char *transport_spec,
                                      void (*waits)(void *user, const char *line), void *user,
                                      tutti_error *err)
{
    const tutti_transport_ops *ops;
    tutti_launch_gathering *gathering = NULL;
    tutti_launch_place place;
    tutti_launch launch;
    char **environment;
    tutti_status status = TUTTI_OK;
    int64_t wait_ns = 0;
    bool gathers;

    *out = NULL;
    TUTTI_TRY(tutti_launch_find_place(environ, &place, err));
    if (transport_spec == NULL || transport_spec[0] == '\0')
        transport_spec = tutti_variable(environ, "TUTTI_TRANSPORT"); /* as `tutti run` passes it */
    if (transport_spec == NULL || transport_spec[0] == '\0')
        transport_spec = tutti_launch_place_transport(&place);
    TUTTI_TRY(find_transport(transport_spec, &ops, err));
    gathers = tutti_launch_gathers(&place, ops->name, environ);
    if (place.size > 1 && strcmp(ops->name, "shm") == 0 && !gathers &&
        (place.by > TUTTI_BY_TUTTI || tutti_variable(environ, "TUTTI_SHM_FD") == NULL))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s has started %d processes (%s), and nothing shows that all of them "
                          "are on one host, as transport shm needs; use transport tcp%s, or start "
                          "the run with 'tutti run -n N -- COMMAND'",
                          place.by > TUTTI_BY_TUTTI ? place.name : "another program", place.size,
                          place.found,
                          place.by > TUTTI_BY_TUTTI
                              ? " or mpi"
                              : ", with TUTTI_MEET=HOST:PORT and a key for all (`tutti key`)");
    if (strcmp(ops->name, "tcp") == 0)
        TUTTI_TRY(tutti_launch_place_meets(&place, environ, err));
    if (gathers) /* no rank waits for one whose options are refused */
        TUTTI_TRY(tutti_world_check(transport_spec, err));
    if (gathers)
        TUTTI_TRY(patience(transport_spec, &wait_ns, err));
    TUTTI_TRY(tutti_launch_place_environment(&place, environ, &environment, err));
    if (gathers)
        status = tutti_launch_gather(&gathering, &place, ops->name, environment, wait_ns, waits,
                                     user, err);
    launch = (tutti_launch){ .rank = place.rank,
                             .size = place.size,
                             .spec = transport_spec,
                             .environment =
                                 gathering != NULL ? tutti_launch_gathered(gathering) : environment,
                             .waits = waits,
                             .user = user };
    if (status == TUTTI_OK)
        status = tutti_world_open_on(out, ops, &launch, NULL, err);
    if (status == TUTTI_OK)
        (*out)->gathering = gathering;
    else
        tutti_launch_gather_close(gathering);
    tutti_free(environment);
    return status;
}

static void drop_window(tutti_shared_window *w)
{
    if (w->of_rank == NULL)
        tutti_free(w->mine);
    tutti_free(w->of_rank);
    tutti_free(w->name);
    *w = (tutti_shared_window){ 0 };
}

void tutti_world_close(tutti_world *world)
{
    if (world == NULL || world->process != (long)getpid())
        return; /* a forked child's copy: the rank, its threads and what the others see of it are the parent's */
    tutti_rendezvous_close(world);
    /* relaxed: no other thread is left */
    for (uint32_t k = 0; k < atomic_load_explicit(&world->n_windows, memory_order_relaxed); k++)
        drop_window(&world->windows[k]);
    tutti_orphans_close(world);
    tutti_activity_close(world->activity);
    if (world->transport != NULL)
        world->ops->close(world->transport);
    tutti_launch_gather_close(world->gathering);
    tutti_device_close(world->device);
    tutti_cache_close(world);
    tutti_compared_close(world);
    tutti_table_close(world);
    tutti_monitor_close(world->monitor);
    if (world->owns_rt)
        tutti_runtime_close(world->rt);
    tutti_free(world->sent);
    tutti_free(world->host);
    tutti_free(world->node);
    tutti_free(world);
}

typedef struct rank_job {
    const tutti_transport_ops *ops;
    tutti_runtime *rt;
    tutti_status (*rank_main)(tutti_world *world, void *arg, tutti_error *err);
    void *arg;
} rank_job;

static tutti_status run_rank(const tutti_launch *launch, void *arg, tutti_error *err)
{
    const rank_job *job = arg;
    tutti_error own;
    tutti_world *world;
    tutti_status status;

    if (err == NULL) {
        memset(&own, 0, sizeof own);
        err = &own; /* a failure report needs an error text */
    }
    TUTTI_TRY(tutti_world_open_on(&world, job->ops, launch,
                                  launch->rt != NULL ? launch->rt : job->rt, err));
    status = job->rank_main(world, job->arg, err);
    if (status != TUTTI_OK)
        tutti_world_failure_report(world, err);
    tutti_world_close(world);
    return status;
}

tutti_status tutti_world_run_on(const tutti_transport_ops *ops, const char *spec, int n,
                                tutti_status (*rank_main)(tutti_world *world, void *arg,
                                                          tutti_error *err),
                                void *arg, tutti_error *err)
{
    const tutti_launch launch = { .size = n, .spec = spec, .environment = environ };
    rank_job job = { .ops = ops, .rank_main = rank_main, .arg = arg };
    tutti_status status;

    if (n < 1 || n > RANKS_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a run of %d ranks: it takes 1 to %d", n,
                          RANKS_MAX);
    TUTTI_TRY(check_abi(ops, NULL, err));
    if (ops->run == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the ranks of the transport '%s' are processes, not threads; start them "
                          "with the launcher",
                          ops->name);
    TUTTI_TRY(tutti_runtime_open_posix(&job.rt, err));
    status = ops->run(job.rt, &launch, run_rank, &job, err);
    tutti_runtime_close(job.rt);
    return status;
}

tutti_status tutti_world_run(const char *transport_spec, int n,
                             tutti_status (*rank_main)(tutti_world *world, void *arg,
                                                       tutti_error *err),
                             void *arg, tutti_error *err)
{
    const char *spec = transport_spec == NULL || transport_spec[0] == '\0' ? "shm" : transport_spec;
    const tutti_transport_ops *ops;

    TUTTI_TRY(find_transport(spec, &ops, err));
    return tutti_world_run_on(ops, spec, n, rank_main, arg, err);
}

tutti_runtime *tutti_world_runtime(tutti_world *world) { return world->rt; }
tutti_device *tutti_world_device(tutti_world *world) { return world->device; }
int tutti_world_rank(const tutti_world *world) { return world->rank; }
int tutti_world_size(const tutti_world *world) { return world->size; }
const char *tutti_world_transport(const tutti_world *world) { return world->ops->name; }

int tutti_world_dead(tutti_world *world, char *why, size_t bytes)
{
    return world->ops->dead_peer(world->transport, why, bytes);
}

void tutti_world_failure_report(tutti_world *world, const tutti_error *err)
{
    world->ops->failure_report(world->transport, err);
}

int tutti_world_host(const tutti_world *world, int rank)
{
    return world->host != NULL ? world->host[rank] : 0;
}

int tutti_world_node(const tutti_world *world, int rank)
{
    return world->node != NULL ? world->node[rank] : -1;
}

bool tutti_world_survives(const tutti_world *world)
{
    return world->ops->events != NULL;
}

int tutti_world_events(tutti_world *world, int first, tutti_peer_event *out, int room)
{
    return world->ops->events != NULL ? world->ops->events(world->transport, first, out, room) : 0;
}

bool tutti_world_lost(tutti_world *world, int rank, char *why, size_t bytes)
{
    tutti_peer_event event;

    for (int i = 0; tutti_world_events(world, i, &event, 1) > i; i++)
        if (event.rank == rank && event.change == TUTTI_PEER_LOST) {
            if (why != NULL && bytes > 0)
                snprintf(why, bytes, "%s", event.why);
            return true;
        }
    return false;
}

void tutti_world_expel(tutti_world *world, int rank, const char *why)
{
    if (world->ops->expel != NULL)
        world->ops->expel(world->transport, rank, why);
}

/* Relaxed: the counters order nothing; a reader that wants the counts of a call has synchronised
   with it already. */
void tutti_world_account(tutti_world *world, int to, uint64_t bytes, uint64_t messages)
{
    atomic_fetch_add_explicit(&world->sent[to].bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&world->sent[to].messages, messages, memory_order_relaxed);
}

void tutti_world_sent(const tutti_world *world, int to, uint64_t *bytes, uint64_t *messages)
{
    *bytes = *messages = 0;
    for (int rank = 0; rank < world->size; rank++) {
        if (rank == world->rank || (to != TUTTI_ANY && to != rank))
            continue;
        *bytes += atomic_load_explicit(&world->sent[rank].bytes, memory_order_relaxed);
        *messages += atomic_load_explicit(&world->sent[rank].messages, memory_order_relaxed);
    }
}

/* Makes window number n_windows. Only the thread that calls window and common (in the same order
   on all ranks) writes the table. */
static tutti_status make_window(tutti_world *world, const char *name, size_t bytes, bool shared,
                                tutti_shared_window **out, tutti_error *err)
{
    /* relaxed: this thread wrote it */
    const uint32_t n = atomic_load_explicit(&world->n_windows, memory_order_relaxed);
    tutti_shared_window *w = &world->windows[n];

    *out = NULL;
    if (n == TUTTI_WINDOWS)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "window '%s' would be number %d of this world, which has at most %d; put "
                          "several vectors into one window",
                          name, TUTTI_WINDOWS + 1, TUTTI_WINDOWS);
    w->bytes = bytes;
    w->name = tutti_copy_text(name);
    if (!shared)
        w->mine = bytes > 0 ? tutti_alloc(bytes, 1) : NULL;
    else
        w->of_rank = tutti_alloc((size_t)world->size, sizeof *w->of_rank);
    if (w->name == NULL || (shared ? w->of_rank == NULL : bytes > 0 && w->mine == NULL)) {
        drop_window(w);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the %zu bytes of window '%s'",
                          bytes, name);
    }
    if (shared) {
        tutti_status status;
        if (world->ops->publish != NULL)
            tutti_rendezvous_window(world, n, bytes);
        status = world->ops->window(world->transport, name, bytes, w->of_rank, err);
        if (status != TUTTI_OK) {
            drop_window(w);
            return status;
        }
        w->mine = bytes > 0 ? w->of_rank[world->rank] : NULL;
    }
    *out = w;
    atomic_store_explicit(&world->n_windows, n + 1, memory_order_release);
    return TUTTI_OK;
}

int tutti_windows_find(const tutti_world *world, const void *x, size_t bytes, uint64_t *offset)
{
    const uint32_t n =
        atomic_load_explicit(&((tutti_world *)(uintptr_t)world)->n_windows, memory_order_acquire);
    const uintptr_t address = (uintptr_t)x;

    *offset = 0;
    for (uint32_t k = 0; k < n; k++) {
        const tutti_shared_window *w = &world->windows[k];
        const uintptr_t base = (uintptr_t)w->mine;
        if (w->of_rank != NULL && address >= base && address - base <= w->bytes &&
            bytes <= w->bytes - (address - base)) {
            *offset = address - base;
            return (int)k;
        }
    }
    return -1;
}

tutti_status tutti_world_window(tutti_world *world, const char *name, size_t bytes, void **mine,
                                tutti_error *err)
{
    tutti_shared_window *w;

    *mine = NULL;
    /* without flags no other rank reads it */
    TUTTI_TRY(make_window(world, name, bytes, world->ops->publish != NULL, &w, err));
    *mine = w->mine;
    return TUTTI_OK;
}

bool tutti_world_shares(const tutti_world *world)
{
    return world->ops->publish != NULL;
}

void *tutti_world_there(tutti_world *world, const char *window, size_t offset, size_t bytes,
                        int rank)
{
    const uint32_t n = atomic_load_explicit(&world->n_windows, memory_order_acquire);
    uint32_t k = 0;
    uint64_t room;

    while (k < n &&
           (world->windows[k].of_rank == NULL || strcmp(world->windows[k].name, window) != 0))
        k++;
    if (k == n)
        return NULL;
    room =
        rank == world->rank ? world->windows[k].bytes : tutti_rendezvous_window_of(world, rank, k);
    return offset <= room && bytes <= room - offset
               ? (unsigned char *)world->windows[k].of_rank[rank] + offset
               : NULL;
}

void tutti_world_sent_there(tutti_world *world, int to, uint64_t bytes)
{
    tutti_world_account(world, to, bytes, 0);
}

bool tutti_world_take(tutti_world *world)
{
    /* relaxed: nothing is published by it */
    return !atomic_exchange_explicit(&world->taken, true, memory_order_relaxed);
}

void tutti_world_give_back(tutti_world *world)
{
    atomic_store_explicit(&world->taken, false, memory_order_relaxed);
}

/* Rank 0's window, while the others bring none. All ranks of a transport with windows are on one
   host. */
tutti_status tutti_world_common(tutti_world *world, const char *name, size_t bytes, void **memory,
                                bool *fill, tutti_error *err)
{
    const bool shared = world->ops->window != NULL;
    tutti_shared_window *w;

    *memory = NULL;
    *fill = false;
    TUTTI_TRY(make_window(world, name, !shared || world->rank == 0 ? bytes : 0, shared, &w, err));
    *memory = shared ? w->of_rank[0] : w->mine;
    *fill = !shared || world->rank == 0;
    return TUTTI_OK;
}
