/* choose.c: the plug-in `mpi`. It finds which launcher has started this process, opens the plug-in
   for that implementation of MPI in the same folder, and forwards all calls to it. Two libraries of
   MPI cannot be in one process, since they export the same names.

   RTLD_GLOBAL is needed for Open MPI: it loads its components itself, and in some builds these take
   libmpi's symbols from the program without naming the library. Debian's name it, but a build that
   does not would fail with "undefined symbol: ompi_..." in MPI_Init. MPICH does not need it. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "mpi_launcher.h"

typedef struct chosen { const tutti_transport_ops *ops; void *t; } chosen;

#pragma GCC visibility push(default)
extern const tutti_transport_ops tutti_transport_plugin;
#pragma GCC visibility pop

/* The folder of this file and the name of the implementation in it. */
static bool path_of(int kind, char *path, size_t bytes)
{
    Dl_info about;
    const char *slash;

    if (dladdr(&tutti_transport_plugin, &about) == 0 || about.dli_fname == NULL)
        return false;
    slash = strrchr(about.dli_fname, '/');
    if (slash == NULL)
        return false;
    return snprintf(path, bytes, "%.*s/libtutti_transport_mpi-%s.so",
                    (int)(slash - about.dli_fname), about.dli_fname,
                    kind == KIND_MPICH ? "mpich" : "openmpi") < (int)bytes;
}

static tutti_status load(int kind, const tutti_transport_ops **ops, tutti_error *err)
{
    char path[4096], whose[260];
    tutti_status status;
    void *file;

    *ops = NULL;
    if (!path_of(kind, path, sizeof path))
        return tutti_fail(err, TUTTI_ERR_IO, 0,
                          "cannot find the folder of the transport 'mpi'; reinstall Tutti");
    if (access(path, F_OK) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "this process was started by the launcher of %s, for which this Tutti "
                          "has no transport (there is no '%.200s'); build Tutti where %s is "
                          "installed with its headers, or start it with %s",
                          tutti_mpi_name(kind), path, tutti_mpi_name(kind),
                          tutti_mpi_starter(kind == KIND_MPICH ? KIND_OPENMPI : KIND_MPICH));
    file = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (file == NULL) {
        const char *why = dlerror();
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the transport for %s cannot be loaded: %.380s",
                          tutti_mpi_name(kind), why != NULL ? why : path);
    }
    *ops = dlsym(file, "tutti_transport_plugin");
    if (*ops == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%.300s' is no transport of Tutti's: it exports no "
                          "tutti_transport_plugin; reinstall it",
                          path);
    snprintf(whose, sizeof whose, "'%.250s'", path);
    status = tutti_transport_check(*ops, whose, err);
    if (status != TUTTI_OK)
        *ops = NULL;
    return status;
}

/* Under a launcher that does not show which MPI it is for: the one that is installed. */
static int installed(void)
{
    char path[4096];

    return path_of(KIND_OPENMPI, path, sizeof path) && access(path, F_OK) == 0 ? KIND_OPENMPI
                                                                               : KIND_MPICH;
}

static tutti_status choose_open(void **t, tutti_runtime *rt, const tutti_launch *launch,
                                tutti_error *err)
{
    mpi_options options;
    chosen *c;
    int kind;
    tutti_status status;

    *t = NULL;
    TUTTI_TRY(tutti_mpi_parse(launch->spec, &options, err));
    TUTTI_TRY(tutti_mpi_check_launcher(options.implementation, launch->environment, &kind, err));
    c = tutti_alloc(1, sizeof *c);
    if (c == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the transport 'mpi'");
    status = load(kind == KIND_AUTO ? installed() : kind, &c->ops, err);
    if (status == TUTTI_OK)
        status = c->ops->open(&c->t, rt, launch, err);
    if (status != TUTTI_OK) {
        tutti_free(c);
        return status;
    }
    *t = c;
    return TUTTI_OK;
}

static void choose_close(void *t)
{
    chosen *c = t;

    if (c == NULL)
        return;
    c->ops->close(c->t);
    tutti_free(c);
}

static tutti_status choose_send(void *t, tutti_request *r, int to, uint64_t tag,
                                const tutti_header *header, tutti_buffer payload, tutti_error *err)
{
    const chosen *c = t;
    return c->ops->send(c->t, r, to, tag, header, payload, err);
}

static tutti_status choose_recv(void *t, tutti_request *r, int from, uint64_t tag,
                                tutti_buffer room, tutti_error *err)
{
    const chosen *c = t;
    return c->ops->recv(c->t, r, from, tag, room, err);
}

static tutti_status choose_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                                     int64_t deadline_ns, size_t *n_done, tutti_error *err)
{
    const chosen *c = t;
    return c->ops->wait_some(c->t, r, n, need, deadline_ns, n_done, err);
}

static void choose_cancel(void *t, tutti_request *r)
{
    const chosen *c = t;
    c->ops->cancel(c->t, r);
}

static int choose_dead_peer(void *t, char *why, size_t bytes)
{
    const chosen *c = t;
    return c->ops->dead_peer(c->t, why, bytes);
}

static void choose_failure_report(void *t, const tutti_error *err)
{
    const chosen *c = t;
    c->ops->failure_report(c->t, err);
}

static int choose_host(void *t, int rank)
{
    const chosen *c = t;
    return c->ops->host(c->t, rank);
}

static int choose_node(void *t, int rank)
{
    const chosen *c = t;
    return c->ops->node(c->t, rank);
}

const tutti_transport_ops tutti_transport_plugin = {
    .abi = TUTTI_TRANSPORT_ABI,
    .bytes = sizeof(tutti_transport_ops),
    .runtime_abi = TUTTI_RUNTIME_ABI,
    .runtime_bytes = sizeof(tutti_runtime_ops),
    .name = "mpi",
    .help = "processes started by mpirun, over Open MPI or MPICH",
    .options = tutti_mpi_options,
    .options_bytes = sizeof(mpi_options),
    .open = choose_open,
    .close = choose_close,
    .send = choose_send,
    .recv = choose_recv,
    .wait_some = choose_wait_some,
    .cancel = choose_cancel,
    .dead_peer = choose_dead_peer,
    .failure_report = choose_failure_report,
    .host = choose_host,
    .node = choose_node,
};
