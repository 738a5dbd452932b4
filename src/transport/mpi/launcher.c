/* launcher.c: finds which launcher has started this process (mpi_launcher.h). A program that is
   built for one MPI and started by the launcher of another does not fail: each process believes
   that it is alone, and N models are trained independently. So the launcher is determined from the
   environment before MPI is started. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mpi_launcher.h"

const tutti_option tutti_mpi_options[] = {
    { .name = "implementation",
      .type = TUTTI_CHOICE,
      .offset = TUTTI_AT(mpi_options, implementation),
      .text = "auto|openmpi|mpich",
      .help = "which MPI; auto: that of the launcher which started this process" },
    { .name = "threads",
      .type = TUTTI_CHOICE,
      .offset = TUTTI_AT(mpi_options, threads),
      .text = "serialized|multiple|funneled",
      .help = "thread level to ask MPI for; with funneled only the thread that opened may send, "
              "receive and wait" },
    { .name = "spin",
      .type = TUTTI_INT,
      .offset = TUTTI_AT(mpi_options, spin),
      .initial = 100,
      .min = 0,
      .max = 1000000,
      .help = "microseconds a waiting thread polls before it begins to sleep between polls; with "
              "fewer cores than ranks on a host it never spins" },
    { 0 },
};

static int parse_rank(const char *text)
{
    char *end;
    long n;

    if (text == NULL || *text < '0' || *text > '9')
        return -1;
    errno = 0;
    n = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && n <= INT32_MAX ? (int)n : -1;
}

bool tutti_mpi_launcher(char *const *environment, mpi_found *found)
{
    /* Open MPI's first: a job script of it may have been started under another's PMI. */
    static const struct { const char *size, *needs; mpi_kind kind; } known[] = {
        { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", KIND_OPENMPI },
        { "PMI_SIZE", "PMI_RANK", KIND_MPICH },
        { "SLURM_STEP_NUM_TASKS", "PMIX_RANK", KIND_AUTO },
        { "PMIX_RANK", "PMIX_NAMESPACE", KIND_AUTO },
    };

    *found = (mpi_found){ .kind = KIND_AUTO, .size = -1 };
    for (size_t i = 0; i < TUTTI_LENGTH(known); i++) {
        const char *text = tutti_variable(environment, known[i].size);
        if (text == NULL || tutti_variable(environment, known[i].needs) == NULL)
            continue;
        found->kind = known[i].kind;
        if (strcmp(known[i].size, "PMIX_RANK") != 0)
            found->size = parse_rank(text);
        snprintf(found->text, sizeof found->text, "%s=%.40s", known[i].size, text);
        return true;
    }
    return false;
}

const char *tutti_mpi_name(int kind)
{
    return kind == KIND_MPICH ? "MPICH" : "Open MPI";
}

const char *tutti_mpi_starter(int kind)
{
    return kind == KIND_MPICH ? "mpiexec.mpich" : "mpirun.openmpi";
}

tutti_status tutti_mpi_check_launcher(int wanted, char *const *environment, int *kind,
                                      tutti_error *err)
{
    mpi_found found;

    *kind = KIND_AUTO;
    if (!tutti_mpi_launcher(environment, &found))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the transport 'mpi' joins the processes that MPI's launcher has started, and this one "
            "was not; start it with 'mpirun -n 4 tutti train ...', or omit --transport and use "
            "'tutti train -n 4'");
    if (found.kind != KIND_AUTO && wanted != KIND_AUTO && wanted != (int)found.kind)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the transport is for %s, but this process was started by the launcher of %s (%s): "
            "each process would be alone in a world of 1; start it with %s, or use "
            "implementation=%s",
            tutti_mpi_name(wanted), tutti_mpi_name((int)found.kind), found.text,
            tutti_mpi_starter(wanted), found.kind == KIND_MPICH ? "mpich" : "openmpi");
    *kind = wanted != KIND_AUTO ? wanted : (int)found.kind;
    return TUTTI_OK;
}

tutti_status tutti_mpi_parse(const char *spec_text, mpi_options *options, tutti_error *err)
{
    tutti_spec *spec;
    tutti_status status =
        tutti_spec_open(&spec, spec_text != NULL && *spec_text != '\0' ? spec_text : "mpi", err);

    tutti_options_default(tutti_mpi_options, options);
    if (status == TUTTI_OK)
        status = tutti_spec_apply(spec, "transport 'mpi'", tutti_mpi_options, options, err);
    tutti_spec_close(spec);
    return status;
}
