/* place.c: finds from the environment which rank of how many this process is, and which launcher
   has started it (tutti_launch_find_place). It depends on the environment only, so that the
   variables of every launcher can be tested without the launcher.

   Launchers are tried in order of certainty:
     1. Tutti's own;
     2. those of MPI, which set their variables for nothing else;
     3. Slurm, whose variables every program inside an allocation inherits;
     4. torchrun, whose variables have common names.
   Only variables that a launcher sets for the processes it starts count: SLURM_NTASKS without
   SLURM_STEP_ID is what sbatch sets for a script that runs once.

   Launchers nest. Slurm starts one daemon a node for mpirun, or one torchrun a node, and its
   variables are inherited by the ranks. That is no contradiction, and the inner launcher decides.
   torchrun shows it itself (GROUP_RANK, GROUP_WORLD_SIZE are then Slurm's); for MPI it shows in a
   step of one task a node. Any other two that disagree are refused, since continuing would train
   two models concurrently, or hang. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "launch_internal.h"
#include "launch/gather.h"
#include "launch.h"

#define RANKS_MAX (1L << 20)     /* most ranks that are believed; bounds the sizes of tables */
/* The port at which the ranks of a Slurm job meet: below those that kernels choose, and different
   for jobs of neighbouring numbers. */
#define SLURM_PORT_FIRST 12000
#define SLURM_PORTS 20000

static const struct {
    tutti_launch_by by;
    const char *name, *rank, *size, *local, *host;
    const char *here;            /* number of ranks on this host */
    /* set for the processes it starts and for no others; NULL: `rank` */
    const char *mark;
    const char *needs;           /* without this one the others do not count; NULL: none */
} launchers[] = {
    { TUTTI_BY_TUTTI, "tutti", "TUTTI_RANK", "TUTTI_SIZE", .mark = "TUTTI_SHM_FD" },
    { TUTTI_BY_OPENMPI, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_LOCAL_RANK", .here = "OMPI_COMM_WORLD_LOCAL_SIZE" },
    { TUTTI_BY_PMI, "PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", .here = "MPI_LOCALNRANKS" },
    { TUTTI_BY_MVAPICH, "MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
      "MV2_COMM_WORLD_LOCAL_RANK", .here = "MV2_COMM_WORLD_LOCAL_SIZE" },
    { TUTTI_BY_SLURM, "Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURMD_NODENAME",
      .needs = "SLURM_STEP_ID" },
    { TUTTI_BY_TORCHRUN, "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", .here = "LOCAL_WORLD_SIZE",
      .mark = "TORCHELASTIC_RUN_ID" },
};

/* A whole number from 0 to `most`, written in digits only. */
static bool parse_rank(const char *text, long most, int *out)
{
    long n;
    char *end;

    *out = -1;
    if (text == NULL || *text < '0' || *text > '9')
        return false;
    errno = 0;
    n = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || n > most)
        return false;
    *out = (int)n;
    return true;
}

static const char *or_not_set(const char *text)
{
    return text != NULL ? text : "(not set)";
}

/* Reads the variables of launcher i. *there: they are set. */
static tutti_status read_launcher(size_t i, char *const *environment, tutti_launch_place *p,
                                  bool *there, tutti_error *err)
{
    const char *rank = tutti_variable(environment, launchers[i].rank),
               *size = tutti_variable(environment, launchers[i].size);
    const char *host =
        launchers[i].host != NULL ? tutti_variable(environment, launchers[i].host) : NULL;

    *p = (tutti_launch_place){
        .size = 1, .local_rank = -1, .by = launchers[i].by, .name = launchers[i].name
    };
    *there =
        (rank != NULL || size != NULL) &&
        (launchers[i].needs == NULL || tutti_variable(environment, launchers[i].needs) != NULL);
    if (!*there)
        return TUTTI_OK;
    if (!parse_rank(size, RANKS_MAX, &p->size) || p->size < 1 ||
        !parse_rank(rank, p->size - 1L, &p->rank))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s is '%.40s' and %s is '%.40s': the size must be 1 to %ld, the rank 0 to size - 1; "
            "both are set by %s%s, unset both to run alone",
            launchers[i].rank, or_not_set(rank), launchers[i].size, or_not_set(size), RANKS_MAX,
            launchers[i].by == TUTTI_BY_TUTTI ? "the launcher" : launchers[i].name,
            launchers[i].by == TUTTI_BY_TUTTI ? "" : "'s launcher");
    if (launchers[i].local != NULL)
        parse_rank(tutti_variable(environment, launchers[i].local), RANKS_MAX, &p->local_rank);
    snprintf(p->found, sizeof p->found, "%s=%d, %s=%d", launchers[i].rank, p->rank,
             launchers[i].size, p->size);
    snprintf(p->host, sizeof p->host, "%s",
             host != NULL && strlen(host) < sizeof p->host ? host : "");
    return TUTTI_OK;
}

static bool same_numbers(char *const *environment, const char *a, const char *b)
{
    int x, y;

    return parse_rank(tutti_variable(environment, a), RANKS_MAX, &x) &&
           parse_rank(tutti_variable(environment, b), RANKS_MAX, &y) && x == y;
}

/* Is `outer`, Slurm, only what started the launcher of `inner`? */
static bool nested(char *const *environment, const tutti_launch_place *inner,
                   const tutti_launch_place *outer)
{
    if (outer->by != TUTTI_BY_SLURM)
        return false;
    if (inner->by == TUTTI_BY_TORCHRUN)
        return same_numbers(environment, "GROUP_RANK", "SLURM_PROCID") &&
               same_numbers(environment, "GROUP_WORLD_SIZE", "SLURM_NTASKS");
    /* mpirun's daemons: one task on each node */
    return outer->size <= inner->size &&
           (same_numbers(environment, "SLURM_NTASKS", "SLURM_STEP_NUM_NODES") ||
            same_numbers(environment, "SLURM_NTASKS", "SLURM_NNODES"));
}

/* ---- lists of hosts ---- */

/* Returns the end of the name or pattern at `at`: the next comma that is not in brackets, or the
   text's end. NULL: a bracket is not closed, or is within another. */
static const char *item_end(const char *at)
{
    bool inside = false;

    for (; *at != '\0' && (inside || *at != ','); at++) {
        if ((*at == '[') == inside && (*at == '[' || *at == ']'))
            return NULL;
        inside = *at == '[' || (inside && *at != ']');
    }
    return inside ? NULL : at;
}

/* The set of numbers in brackets, at[0] = '[': how many (-1: malformed), the `index`-th as text
   with its leading zeros, and where it ends. */
static int64_t bracket(const char *at, int64_t index, char *text, size_t bytes, const char **end)
{
    int64_t count = 0;

    do {
        char *stop;
        const char *first_text = ++at; /* past '[' or ',' */
        long first, last;
        int width;
        if (*at < '0' || *at > '9')
            return -1;
        errno = 0;
        first = last = strtol(at, &stop, 10);
        width = (int)(stop - first_text);
        at = stop;
        if (*at == '-') {
            if (at[1] < '0' || at[1] > '9')
                return -1;
            last = strtol(at + 1, &stop, 10);
            at = stop;
        }
        if (errno != 0 || width > 18 || last < first || last - first >= RANKS_MAX ||
            (*at != ',' && *at != ']'))
            return -1;
        if (index >= count && index - count <= last - first)
            snprintf(text, bytes, "%0*ld", width, first + (long)(index - count));
        count += last - first + 1;
    } while (*at == ',' && count <= RANKS_MAX);
    *end = at + 1;
    return *at == ']' ? count : -1;
}

/* Returns how many names the pattern [at, end) has, and writes name number `index`, if it is one of
   them. -1: malformed or too long. The last bracket varies fastest. */
static int64_t pattern(const char *at, const char *end, int64_t index, char *name, size_t bytes)
{
    int64_t total = 1, below, n;
    size_t used = 0;
    char digits[32];
    const char *p, *next;

    if (at == end)
        return -1;
    for (p = at; p < end; p++) {
        if (*p == '[') {
            n = bracket(p, -1, digits, sizeof digits, &next);
            if (n < 1 || total * n > RANKS_MAX)
                return -1;
            total *= n;
            p = next - 1;
        } else if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@",
                          *p) == NULL)
            return -1;
    }
    if (index < 0 || index >= total)
        return total;
    below = total;
    for (p = at; p < end; p++) {
        if (*p == '[') {
            n = bracket(p, -1, digits, sizeof digits, &next);
            below /= n;
            bracket(p, index / below % n, digits, sizeof digits, &next);
            used += (size_t)snprintf(name + used, used < bytes ? bytes - used : 0, "%s", digits);
            p = next - 1;
        } else {
            if (used + 1 < bytes)
                name[used] = *p;
            used++;
        }
        if (used >= bytes)
            return -1;
    }
    name[used] = '\0';
    return total;
}

tutti_status tutti_launch_host_at(const char *list, int64_t index, char *name, size_t bytes,
                                  tutti_error *err)
{
    const char *at = list, *end;

    if (bytes > 0)
        name[0] = '\0';
    while (index >= 0) {
        int64_t n;
        end = item_end(at);
        n = end == NULL ? -1 : pattern(at, end, index, name, bytes);
        if (n < 0) {
            if (bytes > 0)
                name[0] = '\0';
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "'%.200s' is no list of hosts; write names with commas between, and "
                              "numbers in brackets: node[01-03,7],login",
                              list);
        }
        if (index < n)
            return TUTTI_OK;
        index -= n;
        if (*end == '\0')
            break;
        at = end + 1;
    }
    return TUTTI_CLOSED;
}

/* ---- where the ranks meet ---- */
static tutti_status slurm_meet(char *const *environment, tutti_launch_place *p, tutti_error *err)
{
    const char *list = tutti_variable(environment, "SLURM_STEP_NODELIST"),
               *job = tutti_variable(environment, "SLURM_JOB_ID"),
               *step = tutti_variable(environment, "SLURM_STEP_ID");
    char first[256];
    uint64_t spread = 0;

    if (list == NULL)
        list = tutti_variable(environment, "SLURM_NODELIST");
    if (list == NULL)
        list = tutti_variable(environment, "SLURM_JOB_NODELIST");
    snprintf(p->run, sizeof p->run, "Slurm %.60s.%.60s", job != NULL ? job : "",
             step != NULL ? step : "");
    if (list == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_fail_within(err, tutti_launch_host_at(list, 0, first, sizeof first, err),
                                "Slurm's nodes"));
    for (const char *c = p->run; *c != '\0'; c++)
        spread = spread * 31 + (unsigned char)*c;
    snprintf(p->meet, sizeof p->meet, "%s:%d", first,
             SLURM_PORT_FIRST + (int)(spread % SLURM_PORTS));
    return TUTTI_OK;
}

/* With TORCHELASTIC_USE_AGENT_STORE torchrun itself listens on MASTER_PORT: the next one then. */
static tutti_status torchrun_meet(char *const *environment, tutti_launch_place *p, tutti_error *err)
{
    const char *address = tutti_variable(environment, "MASTER_ADDR"),
               *port_text = tutti_variable(environment, "MASTER_PORT");
    const char *id = tutti_variable(environment, "TORCHELASTIC_RUN_ID"),
               *again = tutti_variable(environment, "TORCHELASTIC_RESTART_COUNT");
    const char *store = tutti_variable(environment, "TORCHELASTIC_USE_AGENT_STORE");
    int port;

    if (address == NULL && port_text == NULL)
        return TUTTI_OK;
    if (address == NULL || address[0] == '\0' || strlen(address) > 250 ||
        !parse_rank(port_text, 65534, &port) || port < 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "MASTER_ADDR is '%.80s' and MASTER_PORT is '%.40s': a name or an address "
                          "and a port from 1 to 65534 are needed, both set by torchrun; or set "
                          "TUTTI_MEET=HOST:PORT",
                          or_not_set(address), or_not_set(port_text));
    port += store != NULL && (strcmp(store, "True") == 0 || strcmp(store, "1") == 0);
    snprintf(p->meet, sizeof p->meet,
             strchr(address, ':') != NULL && address[0] != '[' ? "[%s]:%d" : "%s:%d", address,
             port);
    snprintf(p->run, sizeof p->run, "torchrun %.100s %.40s %.100s", id != NULL ? id : "",
             again != NULL ? again : "", p->meet);
    return TUTTI_OK;
}

/* Is it "host:port" or "unix:NAME", as far as can be seen without resolving the host? Checked here
   because ranks of one host gather before they connect to it. */
static bool is_place(const char *meet)
{
    const char *colon = strrchr(meet, ':');
    int port;

    if (strncmp(meet, "unix:", 5) == 0)
        return meet[5] != '\0';
    return colon != NULL && colon > meet && parse_rank(colon + 1, 65535, &port) && port >= 1;
}

/* Sets where the ranks meet, and the run's name: by the launcher, unless TUTTI_MEET is set. */
static tutti_status meet_of(char *const *environment, tutti_launch_place *p, tutti_error *err)
{
    const char *given = tutti_variable(environment, "TUTTI_MEET"),
               *at_0 = tutti_variable(environment, "TUTTI_MEET_AT_RANK_0");

    if (p->by == TUTTI_BY_SLURM)
        TUTTI_TRY(slurm_meet(environment, p, err));
    else if (p->by == TUTTI_BY_TORCHRUN)
        TUTTI_TRY(torchrun_meet(environment, p, err));
    else if (p->by != TUTTI_BY_TUTTI)
        snprintf(p->run, sizeof p->run, "%s", p->name);
    if (given != NULL && given[0] != '\0') {
        if (strlen(given) >= sizeof p->meet)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "TUTTI_MEET has %zu bytes; at most %zu are possible: HOST:PORT",
                              strlen(given), sizeof p->meet - 1);
        if (!is_place(given))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "TUTTI_MEET='%.200s' is no place to meet: write host:port with a "
                              "port from 1 to 65535, [IPv6 address]:port or unix:NAME",
                              given);
        snprintf(p->meet, sizeof p->meet, "%s", given);
    }
    /* Tutti's launcher, which serves one itself, sets 0. */
    p->meet_at_rank_0 = p->meet[0] != '\0' && (at_0 == NULL || strcmp(at_0, "1") == 0);
    return TUTTI_OK;
}

/* "localhost:1", "127.0.0.1:1", "[::1]:1": only this host's processes can meet there. */
static bool is_loopback(const char *meet)
{
    return strncmp(meet, "localhost:", 10) == 0 || strncmp(meet, "127.", 4) == 0 ||
           strncmp(meet, "[::1]:", 6) == 0;
}

/* Are all ranks on this host? What the launcher sets about it; a step of Slurm on one node,
   whichever launcher started the ranks in it; else the place where they meet may show it. */
static bool on_one_host(char *const *environment, const tutti_launch_place *p)
{
    const char *here = NULL;
    int n, nodes, tasks;

    for (size_t i = 0; i < TUTTI_LENGTH(launchers); i++)
        if (launchers[i].by == p->by)
            here = launchers[i].here;
    if (here != NULL && parse_rank(tutti_variable(environment, here), RANKS_MAX, &n))
        return n == p->size;
    if (p->by != TUTTI_BY_TUTTI && tutti_variable(environment, "SLURM_STEP_ID") != NULL &&
        parse_rank(tutti_variable(environment, "SLURM_NTASKS"), RANKS_MAX, &tasks) &&
        tasks == p->size &&
        (parse_rank(tutti_variable(environment, "SLURM_STEP_NUM_NODES"), RANKS_MAX, &nodes) ||
         parse_rank(tutti_variable(environment, "SLURM_NNODES"), RANKS_MAX, &nodes)))
        return nodes == 1;
    /* of Tutti's launcher, which gives the parts of a run on several hosts a meeting place */
    if (p->by == TUTTI_BY_TUTTI && p->meet[0] == '\0' &&
        tutti_variable(environment, "TUTTI_SHM_FD") != NULL)
        return true;
    return is_loopback(p->meet);
}

const char *tutti_launch_place_mark(const tutti_launch_place *place, char *const *environment)
{
    for (size_t i = 0; i < TUTTI_LENGTH(launchers); i++)
        if (launchers[i].by == place->by) {
            const char *mark = launchers[i].mark != NULL ? launchers[i].mark : launchers[i].rank;
            return tutti_variable(environment, mark) != NULL ? mark : NULL;
        }
    return NULL;
}

/* TUTTI_TAKE_PART=K:N: of the first N ranks only the first K are there, and those behind them move
   up. */
static tutti_status take_part(char *const *environment, tutti_launch_place *p, tutti_error *err)
{
    const char *text = tutti_variable(environment, "TUTTI_TAKE_PART");
    char kept[16];
    int k, n;

    if (text == NULL)
        return TUTTI_OK;
    snprintf(kept, sizeof kept, "%.*s", (int)strcspn(text, ":"), text);
    if (!parse_rank(kept, RANKS_MAX, &k) || k < 1 || strchr(text, ':') == NULL ||
        !parse_rank(strchr(text, ':') + 1, p->size, &n) || n < k || (p->rank >= k && p->rank < n))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "TUTTI_TAKE_PART is '%.40s', for rank %d of %d: write K:N, if the first K of the first "
            "N ranks are there and this is one of them, or one behind them; or unset it",
            text, p->rank, p->size);
    p->rank -= p->rank >= n ? n - k : 0;
    p->size -= n - k;
    return TUTTI_OK;
}

tutti_status tutti_launch_find_place(char *const *environment, tutti_launch_place *out,
                                     tutti_error *err)
{
    tutti_launch_place one;
    bool there;
    int pmix;

    *out = (tutti_launch_place){ .size = 1, .local_rank = -1, .name = "" };
    for (size_t i = 0; i < TUTTI_LENGTH(launchers); i++) {
        TUTTI_TRY(read_launcher(i, environment, &one, &there, err));
        if (!there)
            continue;
        if (out->by == TUTTI_BY_NOBODY) {
            *out = one;
            if (one.by == TUTTI_BY_TUTTI)
                break;
        } else if (out->size == 1) {
            /* a launcher of a single rank inside one of several: the one of several counts */
            if (one.size > 1)
                *out = one;
        } else if (one.size > 1 && (one.rank != out->rank || one.size != out->size)) {
            if (nested(environment, out, &one))
                continue;
            if (nested(environment, &one, out)) {
                *out = one;
                continue;
            }
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "%s reports that this is rank %d of %d (%s), %s that it is rank %d of %d (%s); "
                "unset the variables of one, or set TUTTI_RANK and TUTTI_SIZE",
                out->name, out->rank, out->size, out->found, one.name, one.rank, one.size,
                one.found);
        }
    }
    /* PMIx gives a process only its rank; a rank above 0 shows that there are several. */
    if (out->by == TUTTI_BY_NOBODY && tutti_variable(environment, "PMIX_NAMESPACE") != NULL &&
        parse_rank(tutti_variable(environment, "PMIX_RANK"), RANKS_MAX, &pmix) && pmix > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "PMIX_RANK is %d, and nothing gives the number of ranks; set TUTTI_RANK "
                          "and TUTTI_SIZE, or start the run by mpirun, srun or torchrun",
                          pmix);
    TUTTI_TRY(meet_of(environment, out, err));
    out->one_host = out->size == 1 || on_one_host(environment, out);
    return take_part(environment, out, err);
}

const char *tutti_launch_place_transport(const tutti_launch_place *place)
{
    if (place->by > TUTTI_BY_TUTTI && place->one_host)
        return "shm";
    if (place->by == TUTTI_BY_OPENMPI || place->by == TUTTI_BY_PMI || place->by == TUTTI_BY_MVAPICH)
        return place->size > 1 ? "mpi" : "shm";
    return place->size > 1 && place->meet[0] != '\0' ? "tcp" : "shm";
}

static bool has_key(char *const *environment)
{
    return tutti_variable(environment, "TUTTI_RUN_KEY") != NULL ||
           tutti_variable(environment, "TUTTI_RUN_KEY_FILE") != NULL;
}

bool tutti_launch_gathers(const tutti_launch_place *place, const char *transport,
                          char *const *environment)
{
    if (place->size < 2 || !place->one_host)
        return false;
    if (strcmp(transport, "shm") == 0)
        return place->by > TUTTI_BY_TUTTI || tutti_variable(environment, "TUTTI_SHM_FD") == NULL;
    return strcmp(transport, "tcp") == 0 && (!has_key(environment) || place->meet[0] == '\0');
}

tutti_status tutti_launch_place_meets(const tutti_launch_place *place, char *const *environment,
                                      tutti_error *err)
{
    const char *who = place->by == TUTTI_BY_TUTTI ? "somebody" : place->name;

    if (place->size < 2 || tutti_launch_gathers(place, "tcp", environment))
        return TUTTI_OK;
    if (place->meet[0] == '\0')
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%s has started %d processes (%s), but nothing gives the address where they meet; set "
            "TUTTI_MEET=HOST:PORT for all, with the host of rank 0 and a free port there",
            who, place->size, place->found);
    if (!has_key(environment))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the %d processes that %s has started have no key to know each other by; make one with "
            "`tutti key > FILE` where all can read it, and set TUTTI_RUN_KEY_FILE=FILE for all",
            place->size, who);
    return TUTTI_OK;
}

/* ---- the same, as the environment of a transport ---- */
enum { ADDED = 5, ADDED_BYTES = 340 }; /* variables, and the bytes of the longest: TUTTI_MEET=... */

tutti_status tutti_launch_place_environment(const tutti_launch_place *place,
                                            char *const *environment, char ***out, tutti_error *err)
{
    const char *names[ADDED] = { "TUTTI_RANK", "TUTTI_SIZE", "TUTTI_MEET", "TUTTI_MEET_AT_RANK_0",
                                 "TUTTI_RUN_ID" };
    char values[ADDED][ADDED_BYTES], salted[sizeof place->run + sizeof place->meet + 8];
    size_t n = 0, kept = 0;
    char **list, *text;

    while (environment != NULL && environment[n] != NULL)
        n++;
    *out = list = tutti_alloc(1, (n + ADDED + 1) * sizeof *list + (size_t)ADDED * ADDED_BYTES);
    if (list == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "copying an environment of %zu variables",
                          n);
    text = (char *)(list + n + ADDED + 1);
    for (size_t i = 0; i < n; i++)
        list[kept++] = environment[i];
    if (place->by == TUTTI_BY_NOBODY)
        return TUTTI_OK;
    snprintf(values[0], ADDED_BYTES, "%d", place->rank);
    snprintf(values[1], ADDED_BYTES, "%d", place->size);
    snprintf(values[2], ADDED_BYTES, "%s", place->meet);
    snprintf(values[3], ADDED_BYTES, "%s", place->meet_at_rank_0 ? "1" : "");
    values[4][0] = '\0';
    if (place->meet[0] != '\0') {
        /* no secret, but the same on all ranks and another in the next run */
        const int a = snprintf(salted, sizeof salted, "a %s %s", place->run, place->meet);
        const uint64_t high = tutti_hash(salted, (size_t)a);
        salted[0] = 'b';
        snprintf(values[4], ADDED_BYTES, "%016llx%016llx", (unsigned long long)high,
                 (unsigned long long)tutti_hash(salted, (size_t)a));
    }
    for (size_t i = 0; i < ADDED; i++) {
        if (values[i][0] == '\0' || tutti_variable(environment, names[i]) != NULL)
            continue;
        list[kept++] = text;
        snprintf(text, ADDED_BYTES, "%s=%.300s", names[i], values[i]);
        text += ADDED_BYTES;
    }
    return TUTTI_OK;
}
