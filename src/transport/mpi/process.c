/* process.c: starting and finalising MPI. A process can do each of them once, so this belongs to
   the process, not to a world:

   starting    by the first world that is opened, unless the program has started MPI; then the
               program finalises it, too.
   finalising  when the process ends, by on_exit: MPI_Finalize waits for all ranks, and closing a
               world must not. What other ranks send until then is received (closed.c). A process
               that ends with an exit code other than 0 calls MPI_Abort with that code, so that no
               rank is left that waits for it. A rank that fails because of another one waits half
               a second first, so that the job's exit code is that of the cause.

   If Tutti has started MPI and a worker was lost, MPI is not finalised: that would wait for the
   lost worker. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "mpi_internal.h"
#include "../node.h"

#if defined(OPEN_MPI)
#define BUILT_FOR KIND_OPENMPI
#else
#define BUILT_FOR KIND_MPICH
#endif

enum { EXIT_BECAUSE_OF_OTHERS = 3, START_MS = 500, REPORT_MS = 200 };

typedef struct mpi_ending { pid_t process; } mpi_ending;

static void at_exit(int code, void *argument)
{
    /* not in a child that was forked: MPI is its parent's */
    const bool here = getpid() == ((const mpi_ending *)argument)->process;
    int initialised = 0, finalised = 0;

    tutti_free(argument);
    if (here) {
        MPI_Initialized(&initialised);
        MPI_Finalized(&finalised);
    }
    if (!initialised || finalised)
        return;
    if (code != 0) {
        /* and launchers have to fetch the error text before they end all ranks: once it did not
           arrive */
        poll(NULL, 0, code == EXIT_BECAUSE_OF_OTHERS ? START_MS : REPORT_MS);
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    const mpi_process *p = tutti_mpi_find_process();
    if (p == NULL || !p->lost)
        MPI_Finalize();
}

bool tutti_mpi_succeeded(mpi_endpoint *e, int code, const char *doing, int peer)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;

    if (code == MPI_SUCCESS)
        return true;
    if (e->broken.status != TUTTI_OK)
        return false;
    MPI_Error_string(code, text, &length);
    tutti_fail_rank(
        &e->broken, TUTTI_ERR_IO, peer,
        "%s failed, %s reports '%.300s'; look for the first rank that reports a failure", doing,
        tutti_mpi_name(BUILT_FOR), text);
    return false;
}

/* Reports MPI's error text as a failure of opening. */
static tutti_status refused(mpi_endpoint *e, int code, const char *doing, tutti_error *err)
{
    if (tutti_mpi_succeeded(e, code, doing, -1))
        return TUTTI_OK;
    return tutti_fail(err, e->broken.status, 0, "%s", e->broken.text);
}

static tutti_status start_mpi(mpi_endpoint *e, const mpi_options *options, tutti_error *err)
{
    static const int levels[] = { MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE, MPI_THREAD_FUNNELED };
    int initialised, finalised, provided;
    mpi_ending *last;

    TUTTI_TRY(refused(e, MPI_Initialized(&initialised), "asking for the state of MPI", err));
    TUTTI_TRY(refused(e, MPI_Finalized(&finalised), "asking for the state of MPI", err));
    if (finalised)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "MPI has been finalised in this process and cannot be started again; "
                          "open worlds before that");
    if (!initialised) {
        TUTTI_TRY(refused(e, MPI_Init_thread(NULL, NULL, levels[options->threads], &provided),
                          "starting MPI", err));
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        e->owned = true;
        last = tutti_alloc(1, sizeof *last);
        if (last == NULL || on_exit(at_exit, last) != 0) {
            tutti_free(last);
            MPI_Finalize();
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                              "remembering that MPI has to be ended with this process");
        }
        last->process = getpid();
    }
    TUTTI_TRY(refused(e, MPI_Query_thread(&provided), "asking for MPI's thread level", err));
    if (provided < MPI_THREAD_FUNNELED)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "MPI was started by this program with MPI_THREAD_SINGLE; start it by "
                          "MPI_Init_thread with MPI_THREAD_FUNNELED or more");
    e->funneled = provided == MPI_THREAD_FUNNELED || options->threads == THREADS_FUNNELED;
    e->thread = pthread_self();
    return tutti_mpi_join_process(e, err);
}

static tutti_status check_place(const mpi_endpoint *e, const tutti_launch *launch, int rank,
                                int size, tutti_error *err)
{
    mpi_found found;

    if (e->owned && size == 1 && tutti_mpi_launcher(launch->environment, &found) &&
        found.size != 1 && launch->size != 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the launcher reports %s, but %s sees a world of 1: it was started by "
                          "another MPI's launcher; start it with %s",
                          found.text, tutti_mpi_name(BUILT_FOR), tutti_mpi_starter(BUILT_FOR));
    /* A program that has started MPI itself may open a world of its first ranks. */
    if (launch->rank == rank && (e->owned ? launch->size == size : launch->size <= size))
        return TUTTI_OK;
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "this is worker %d of %d, but rank %d of MPI's %d; workers and ranks come from the "
        "launcher (mpirun -n %d), do not set them yourself",
        launch->rank, launch->size, rank, size, launch->size);
}

/* What a rank says of itself to all others while it opens. Its size and `build` are those of all
   versions: ranks of different ones have to read that. */
typedef struct mpi_card {
    uint64_t build;              /* hash of what the ranks of a job have in common */
    uint8_t host[16];            /* tutti_host_here */
    int32_t node;                /* tutti_node_here */
    cpu_set_t cores;             /* those that it may use */
} mpi_card;

/* Header and sizes are those of the build; ranks of different builds would misread each other. */
static uint64_t this_build(void)
{
    const uint32_t build[] = { TUTTI_TRANSPORT_ABI,
                               1,
                               sizeof(mpi_wire),
                               EAGER,
                               CHUNK,
                               WINDOW,
                               sizeof(mpi_departure),
                               TUTTI_VERSION_MAJOR << 16 | TUTTI_VERSION_MINOR };

    return tutti_hash(build, sizeof build);
}

static bool same_host(const mpi_card *a, const mpi_card *b)
{
    return memcmp(a->host, b->host, sizeof a->host) == 0;
}

/* Reads all cards: the builds, where the ranks run, and whether those of this host have a core
   each. Each may be bound to a subset of the cores, so the union counts. */
static tutti_status read_cards(mpi_endpoint *e, const mpi_card *cards, int64_t spin_us,
                               tutti_error *err)
{
    const mpi_card *mine = &cards[e->rank];
    cpu_set_t all;
    int ranks = 0;

    CPU_ZERO(&all);
    for (int r = 0; r < e->size; r++) {
        int lowest = 0;
        if (cards[r].build != mine->build)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the ranks of this job run different versions of Tutti; install the "
                              "same one on all hosts");
        while (!same_host(&cards[lowest], &cards[r]))
            lowest++;
        e->locations[r] = (mpi_location){ .host = lowest, .node = cards[r].node };
        if (!same_host(&cards[r], mine))
            continue;
        CPU_OR(&all, &all, &cards[r].cores);
        ranks++;
    }
    e->spin_ns = CPU_COUNT(&all) >= ranks ? spin_us * 1000 : 0;
    return TUTTI_OK;
}

/* One collective for all that the ranks ask of each other. MPI's own MPI_Comm_split_type is a
   dozen of them, and MPICH polls in each for whole time slices where ranks share cores. */
static tutti_status exchange_cards(mpi_endpoint *e, int64_t spin_us, tutti_error *err)
{
    mpi_card *cards = tutti_alloc((size_t)e->size, sizeof *cards), *mine;
    tutti_status status;

    if (cards == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "worker %d cannot keep account of %d workers", e->rank, e->size);
    mine = &cards[e->rank];
    mine->build = this_build();
    mine->node = tutti_node_here(e->rt);
    tutti_host_here(e->rt, mine->host);
    /* fails on hosts with more than 1024 cores: then no rank spins */
    sched_getaffinity(0, sizeof mine->cores, &mine->cores);
    status = refused(e,
                     MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, cards, (int)sizeof *cards,
                                   MPI_BYTE, e->control),
                     "asking the other ranks for their builds and hosts", err);
    if (status == TUTTI_OK)
        status = read_cards(e, cards, spin_us, err);
    tutti_free(cards);
    return status;
}

tutti_status tutti_mpi_begin(mpi_endpoint *e, const tutti_launch *launch,
                             const mpi_options *options, tutti_error *err)
{
    int initialised = 0, rank, size, found, kind, range[1][3] = { { 0, launch->size - 1, 1 } };
    MPI_Group all, ours;
    void *tag_max;

    MPI_Initialized(&initialised);
    if (options->implementation != KIND_AUTO && options->implementation != BUILT_FOR)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "this is the transport for %s, and %s is asked for; use the transport "
                          "'mpi', which chooses",
                          tutti_mpi_name(BUILT_FOR), tutti_mpi_name(options->implementation));
    if (!initialised)
        TUTTI_TRY(tutti_mpi_check_launcher(BUILT_FOR, launch->environment, &kind, err));
    TUTTI_TRY(start_mpi(e, options, err));
    TUTTI_TRY(refused(e, MPI_Comm_rank(MPI_COMM_WORLD, &rank), "asking for the rank", err));
    TUTTI_TRY(
        refused(e, MPI_Comm_size(MPI_COMM_WORLD, &size), "asking for the number of ranks", err));
    TUTTI_TRY(check_place(e, launch, rank, size, err));

    TUTTI_TRY(
        refused(e, MPI_Comm_group(MPI_COMM_WORLD, &all), "making the world's communicators", err));
    TUTTI_TRY(refused(e, MPI_Group_range_incl(all, 1, range, &ours),
                      "making the world's communicators", err));
    TUTTI_TRY(refused(e, MPI_Comm_create_group(MPI_COMM_WORLD, ours, CONTROL_TAG, &e->control),
                      "making the world's communicators", err));
    MPI_Group_free(&ours);
    MPI_Group_free(&all);
    MPI_Comm_set_errhandler(e->control, MPI_ERRORS_RETURN);
    TUTTI_TRY(
        refused(e, MPI_Comm_dup(e->control, &e->data), "making the world's communicators", err));
    MPI_Comm_set_errhandler(e->data, MPI_ERRORS_RETURN);
    TUTTI_TRY(refused(e, MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_max, &found),
                      "asking for the largest tag", err));
    e->tag_max = found ? *(int *)tag_max : 32767;
    return exchange_cards(e, options->spin, err);
}
