/* foreign.c: was this process started by somebody else's launcher? Then it has a place in a run that no transport of ours can
   join yet, and going on alone would train N models side by side without a word. Only a number of ranks above 1 counts; and
   only variables that a launcher sets for the processes it starts, not those a job script sees (SLURM_NTASKS alone is set by
   sbatch for a script that runs once). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/launch.h"

static const struct {
    const char *size;      /* number of ranks */
    const char *needs[2];  /* must be there too; NULL: nothing */
    const char *by;
} launchers[] = {
    { "OMPI_COMM_WORLD_SIZE", { NULL, NULL }, "Open MPI" },
    { "SLURM_NTASKS", { "SLURM_PROCID", "SLURM_STEP_ID" }, "Slurm" },
    { "PMI_SIZE", { "PMI_RANK", NULL }, "MPICH or another with PMI" },
    { "MV2_COMM_WORLD_SIZE", { NULL, NULL }, "MVAPICH2" },
    { "WORLD_SIZE", { "RANK", NULL }, "torchrun" },
};

static const char *variable(char *const *environment, const char *name)
{
    const size_t length = strlen(name);

    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return *environment + length + 1;
    }
    return NULL;
}

/* The whole number in `text` if it is at least `least`, else 0. */
static long number(const char *text, long least)
{
    char *end;
    long n;

    if (text == NULL || *text < '0' || *text > '9')
        return 0;
    errno = 0;
    n = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && n >= least ? n : 0;
}

const char *tutti_launch_foreign(char *const *environment, char *text, size_t bytes)
{
    if (bytes > 0)
        text[0] = '\0';
    if (environment == NULL)
        return NULL;
    for (size_t i = 0; i < TUTTI_LENGTH(launchers); i++) {
        const long n = number(variable(environment, launchers[i].size), 2);
        bool there = n > 0;
        for (size_t k = 0; k < TUTTI_LENGTH(launchers[i].needs); k++)
            there = there && (launchers[i].needs[k] == NULL || variable(environment, launchers[i].needs[k]) != NULL);
        if (!there)
            continue;
        snprintf(text, bytes, "%s=%ld (%s)", launchers[i].size, n, launchers[i].by);
        return text;
    }
    /* PMIx tells a process its rank only; one that is not the first proves that there are several. */
    if (variable(environment, "PMIX_NAMESPACE") != NULL && number(variable(environment, "PMIX_RANK"), 1) > 0) {
        snprintf(text, bytes, "PMIX_RANK=%s (PMIx)", variable(environment, "PMIX_RANK"));
        return text;
    }
    return NULL;
}
