/* doctor_parts.c: what `tutti doctor` finds out about what Tutti loads at need, MPI and SimGrid,
   and about drivers of cards. */
#include <errno.h>
#include <glob.h>
#include <string.h>
#include <unistd.h>

#include "doctor_internal.h"
#include "transport/registry.h"
#include "tutti/transport.h"

static const int64_t load_ns = INT64_C(20) * 1000000000;

static void built_in(tutti_findings *f)
{
    char names[128] = "";

    for (size_t i = 0; tutti_transports[i] != NULL; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i > 0 ? ", " : "",
                 tutti_transports[i]->name);
    tutti_finding_add(f, "transports", FINDING_WORKS, "", "built in: %s", names);
}

/* Codes with which the child below ends. */
enum { NOT_THERE = 3, NOT_LOADED = 4, WITHOUT_LIBRARY = 5 };

static void load(void *user)
{
    tutti_error err = { .rank = -1 };
    const tutti_transport_ops *ops;
    char tried[4096] = "";

    if (tutti_transport_load(user, &ops, tried, sizeof tried, &err) == TUTTI_OK)
        return;
    printf("%s\n", err.text);
    fflush(stdout);
    if (tried[0] != 0 && access(tried, F_OK) != 0)
        _exit(NOT_THERE);
    _exit(err.cause == ENOENT ? WITHOUT_LIBRARY : NOT_LOADED);
}

/* Loads a plug-in in a child: two libraries of MPI cannot be in one process. `headers` and
   `library` are Debian's packages: for a build that is to have the plug-in, and one that has it.
   Their numbers are those of the library's file, but of Open MPI's before Debian 13. */
static void plugin(tutti_findings *f, tutti_runtime *rt, const char *title, const char *name,
                   const char *headers, const char *library)
{
    static tutti_doctor_answer a;
    char word[64], absent[120], missing[200];

    snprintf(word, sizeof word, "%s", name);
    snprintf(absent, sizeof absent, "install %s and build again; only --transport %.3s needs it",
             headers, name);
    snprintf(missing, sizeof missing,
             "install that %s (Debian's package %s), or %s and Tutti from its "
             "source; only --transport %.3s needs it",
             title, library, headers, name);
    tutti_doctor_ask(rt, load_ns, load, word, &a);
    a.text[strcspn(a.text, "\n")] = 0;
    if (a.code == 0 && !a.late)
        tutti_finding_add(f, title, FINDING_WORKS, "", "the transport %s can be loaded", name);
    else if (a.code == NOT_THERE)
        tutti_finding_add(f, title, FINDING_ABSENT, absent, "this installation has no transport %s",
                          name);
    else if (a.code == WITHOUT_LIBRARY && !a.late) {
        a.text[strcspn(a.text, ";")] = 0; /* the rest advises to run this command */
        tutti_finding_add(f, title, FINDING_LIMITED, missing, "%s", a.text);
    }
    else
        tutti_finding_add(
            f, title, FINDING_LIMITED, "install again what it names, or build Tutti again here",
            "the transport %s cannot be loaded: %s", name, a.late ? "it hangs" : a.text);
}

/* The number of files whose path matches, and in `first` the first. */
static size_t matching(const char *pattern, char *first, size_t bytes)
{
    glob_t found = { 0 };
    size_t n = 0;

    if (glob(pattern, 0, NULL, &found) == 0) {
        n = found.gl_pathc;
        snprintf(first, bytes, "%s", found.gl_pathv[0]);
    }
    globfree(&found);
    return n;
}

/* The version in the first line of /proc/driver/nvidia/version: its first word that begins with a
   digit and has a dot. */
static void version_of_nvidia(char *version, size_t bytes)
{
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    char line[256] = "", *rest = NULL;

    snprintf(version, bytes, "of an unknown version");
    if (file == NULL)
        return;
    if (fgets(line, sizeof line, file) == NULL)
        line[0] = 0;
    fclose(file);
    for (char *word = strtok_r(line, " \t\n", &rest); word != NULL;
         word = strtok_r(NULL, " \t\n", &rest))
        if (word[0] >= '0' && word[0] <= '9' && strchr(word, '.') != NULL) {
            snprintf(version, bytes, "%s", word);
            return;
        }
}

static void drivers(tutti_findings *f)
{
    char first[256] = "", version[64];
    const size_t nvidia = matching("/dev/nvidia[0-9]*", first, sizeof first);

    version_of_nvidia(version, sizeof version);
    if (nvidia > 0)
        tutti_finding_add(f, "driver", FINDING_WORKS, "", "NVIDIA %s, %zu card%s", version, nvidia,
                          nvidia == 1 ? "" : "s");
    else if (access("/proc/driver/nvidia/version", F_OK) == 0)
        tutti_finding_add(f, "driver", FINDING_LIMITED, "docker run --gpus all",
                          "NVIDIA %s is loaded, and there is no /dev/nvidia0 here", version);
    else if (access("/dev/kfd", F_OK) == 0)
        tutti_finding_add(f, "driver", FINDING_WORKS, "", "AMD (/dev/kfd), %zu of /dev/dri",
                          matching("/dev/dri/renderD*", first, sizeof first));
    else
        tutti_finding_add(
            f, "driver", FINDING_ABSENT, "",
            "none of NVIDIA (/dev/nvidia0) and none of AMD (/dev/kfd): no card is used");
}

void tutti_doctor_parts(tutti_findings *f, tutti_runtime *rt)
{
    built_in(f);
    plugin(f, rt, "Open MPI", "mpi-openmpi", "libopenmpi-dev", "libopenmpi40, libopenmpi3 before Debian 13");
    plugin(f, rt, "MPICH", "mpi-mpich", "libmpich-dev", "libmpich of the same number");
    plugin(f, rt, "SimGrid", "sim", "libsimgrid-dev", "libsimgrid of the same number");
    drivers(f);
}
