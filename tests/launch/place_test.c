/* place_test.c: which rank of how many, from environments: the order of launchers, what
   counts as one, contradictions, launchers within launchers, the words for a transport; and
   the lists of hosts, of Slurm and of -H. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "launch/gather.h"
#include "launch/launch_internal.h"
#include "launch/launch.h"

#define SLURM "SLURM_STEP_ID=0", "SLURM_JOB_ID=4711"
#define LIST(...) ((char *const *)(uintptr_t)(const char *const[]){ __VA_ARGS__, NULL })

static tutti_launch_place found(char *const *environment)
{
    tutti_launch_place p;
    tutti_error err = { 0 };

    if (tutti_launch_find_place(environment, &p, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return p;
}

static void refused(char *const *environment, const char *sentence)
{
    tutti_launch_place p;
    tutti_error err = { 0 };

    assert_int_equal(tutti_launch_find_place(environment, &p, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' should contain '%s'", err.text, sentence);
}

static void is_place(char *const *environment, tutti_launch_by by, int rank, int size, const char *says)
{
    const tutti_launch_place p = found(environment);

    assert_int_equal(p.by, by);
    assert_int_equal(p.rank, rank);
    assert_int_equal(p.size, size);
    assert_string_equal(p.found, says);
}

/* Three workers of four continue, and two ranks serve: 0 1 2 (3) 4 5 become 0 1 2 and 3 4. */
static void ranks_are_renumbered_if_only_some_take_part(void **state)
{
    static const int now[] = { 0, 1, 2, -1, 3, 4 };
    char rank[8];

    (void)state;
    for (int r = 0; r < 6; r++) {
        snprintf(rank, sizeof rank, "RANK=%d", r);
        if (now[r] < 0) {
            refused(LIST(rank, "WORLD_SIZE=6", "TUTTI_TAKE_PART=3:4"),
                    "TUTTI_TAKE_PART is '3:4', for rank 3 of 6: write K:N, if the first K of the first N ranks");
            continue;
        }
        assert_int_equal(found(LIST(rank, "WORLD_SIZE=6", "TUTTI_TAKE_PART=3:4")).rank, now[r]);
        assert_int_equal(found(LIST(rank, "WORLD_SIZE=6", "TUTTI_TAKE_PART=3:4")).size, 5);
    }
    is_place(LIST("RANK=1", "WORLD_SIZE=2", "TUTTI_TAKE_PART=2:2"), TUTTI_BY_TORCHRUN, 1, 2, "RANK=1, WORLD_SIZE=2");
    for (int k = 0; k < 6; k++) {
        static const char *const wrong[] = { "3", "0:2", "3:2", "1:7", "a:2", "1:-2" };
        char text[40];
        snprintf(text, sizeof text, "TUTTI_TAKE_PART=%s", wrong[k]);
        refused(LIST("RANK=0", "WORLD_SIZE=6", text), "write K:N");
    }
}

static void rank_and_size_are_read_from_launcher_variables(void **state)
{
    (void)state;
    is_place(NULL, TUTTI_BY_NOBODY, 0, 1, "");
    is_place(LIST("PATH=/bin", "RANKS=3", "WORLD_SIZES=4"), TUTTI_BY_NOBODY, 0, 1, "");
    is_place(LIST("TUTTI_RANK=2", "TUTTI_SIZE=3"), TUTTI_BY_TUTTI, 2, 3, "TUTTI_RANK=2, TUTTI_SIZE=3");
    is_place(LIST("OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_LOCAL_RANK=0"), TUTTI_BY_OPENMPI,
             1, 4, "OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4");
    is_place(LIST("PMI_SIZE=2", "PMI_RANK=0"), TUTTI_BY_PMI, 0, 2, "PMI_RANK=0, PMI_SIZE=2");
    is_place(LIST("MV2_COMM_WORLD_SIZE=2", "MV2_COMM_WORLD_RANK=1"), TUTTI_BY_MVAPICH, 1, 2,
             "MV2_COMM_WORLD_RANK=1, MV2_COMM_WORLD_SIZE=2");
    is_place(LIST(SLURM, "SLURM_NTASKS=8", "SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURMD_NODENAME=n7"), TUTTI_BY_SLURM,
             3, 8, "SLURM_PROCID=3, SLURM_NTASKS=8");
    is_place(LIST("WORLD_SIZE=2", "RANK=1", "LOCAL_RANK=1"), TUTTI_BY_TORCHRUN, 1, 2, "RANK=1, WORLD_SIZE=2");
    assert_int_equal(found(LIST(SLURM, "SLURM_NTASKS=8", "SLURM_PROCID=3", "SLURM_LOCALID=1")).local_rank, 1);
    assert_int_equal(found(LIST("WORLD_SIZE=2", "RANK=1")).local_rank, -1);
    assert_string_equal(found(LIST(SLURM, "SLURM_NTASKS=8", "SLURM_PROCID=3", "SLURMD_NODENAME=n7")).host, "n7");
}

static void batch_script_variables_give_no_rank(void **state)
{
    (void)state;
    is_place(LIST("SLURM_NTASKS=8"), TUTTI_BY_NOBODY, 0, 1, "");
    is_place(LIST("SLURM_NTASKS=8", "SLURM_PROCID=0", "SLURM_JOB_ID=3"), TUTTI_BY_NOBODY, 0, 1, "");
}

static void incomplete_rank_and_size_are_rejected_with_both_values(void **state)
{
    (void)state;
    refused(LIST("TUTTI_RANK=1"), "TUTTI_RANK is '1' and TUTTI_SIZE is '(not set)': the size must be 1 to 1048576, the "
                                  "rank 0 to size - 1; both are set by the launcher, unset both to run alone");
    refused(LIST("WORLD_SIZE=2"), "RANK is '(not set)' and WORLD_SIZE is '2'");
    refused(LIST("RANK=2", "WORLD_SIZE=2"), "RANK is '2' and WORLD_SIZE is '2': the size must be 1 to 1048576, the "
                                            "rank 0 to size - 1; both are set by torchrun's launcher");
    refused(LIST(SLURM, "SLURM_NTASKS=2"), "SLURM_PROCID is '(not set)' and SLURM_NTASKS is '2'");
    refused(LIST("OMPI_COMM_WORLD_SIZE=4x", "OMPI_COMM_WORLD_RANK=0"), "OMPI_COMM_WORLD_SIZE is '4x'");
    refused(LIST("OMPI_COMM_WORLD_SIZE=0", "OMPI_COMM_WORLD_RANK=0"), "OMPI_COMM_WORLD_SIZE is '0'");
    refused(LIST("PMI_SIZE=", "PMI_RANK=0"), "PMI_SIZE is ''");
    refused(LIST("PMI_SIZE=4", "PMI_RANK=-1"), "PMI_RANK is '-1'");
    refused(LIST("PMI_SIZE=4", "PMI_RANK= 1"), "PMI_RANK is ' 1'");
    refused(LIST("PMI_SIZE=99999999999999999999", "PMI_RANK=1"), "PMI_SIZE is '99999999999999999999'");
    refused(LIST("PMIX_RANK=3", "PMIX_NAMESPACE=x"), "PMIX_RANK is 3, and nothing gives the number of ranks");
    is_place(LIST("PMIX_RANK=0", "PMIX_NAMESPACE=x"), TUTTI_BY_NOBODY, 0, 1, "");
}

static void launchers_that_disagree_are_refused_with_both_values(void **state)
{
    (void)state;
    refused(LIST("OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1", "RANK=2", "WORLD_SIZE=4"),
            "Open MPI reports that this is rank 1 of 4 (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4), torchrun that "
            "it is rank 2 of 4 (RANK=2, WORLD_SIZE=4); unset the variables of "
            "one, or set TUTTI_RANK and TUTTI_SIZE");
    refused(LIST(SLURM, "SLURM_NTASKS=8", "SLURM_PROCID=3", "RANK=3", "WORLD_SIZE=4"),
            "Slurm reports that this is rank 3 of 8");
    is_place(LIST(SLURM, "SLURM_NTASKS=8", "SLURM_PROCID=3", "RANK=3", "WORLD_SIZE=8"), TUTTI_BY_SLURM, 3, 8,
             "SLURM_PROCID=3, SLURM_NTASKS=8");
    is_place(LIST(SLURM, "SLURM_NTASKS=8", "SLURM_PROCID=3", "PMI_RANK=3", "PMI_SIZE=8"), TUTTI_BY_PMI, 3, 8,
             "PMI_RANK=3, PMI_SIZE=8");
    /* ours settles it */
    is_place(LIST("RANK=2", "WORLD_SIZE=4", "PMI_RANK=0", "PMI_SIZE=3", "TUTTI_RANK=0", "TUTTI_SIZE=2"), TUTTI_BY_TUTTI,
             0, 2, "TUTTI_RANK=0, TUTTI_SIZE=2");
    /* one rank alone is an allocation's shell, not a run */
    is_place(LIST(SLURM, "SLURM_NTASKS=1", "SLURM_PROCID=0", "RANK=3", "WORLD_SIZE=8"), TUTTI_BY_TORCHRUN, 3, 8,
             "RANK=3, WORLD_SIZE=8");
    is_place(LIST("PMI_RANK=3", "PMI_SIZE=8", "WORLD_SIZE=1", "RANK=0"), TUTTI_BY_PMI, 3, 8, "PMI_RANK=3, PMI_SIZE=8");
}

static void slurm_below_another_launcher_is_no_contradiction(void **state)
{
    (void)state;
    /* srun started one torchrun a node */
    is_place(LIST(SLURM, "SLURM_NTASKS=2", "SLURM_PROCID=1", "RANK=11", "WORLD_SIZE=16", "GROUP_RANK=1",
                  "GROUP_WORLD_SIZE=2"),
             TUTTI_BY_TORCHRUN, 11, 16, "RANK=11, WORLD_SIZE=16");
    refused(LIST(SLURM, "SLURM_NTASKS=2", "SLURM_PROCID=1", "RANK=11", "WORLD_SIZE=16", "GROUP_RANK=0",
                 "GROUP_WORLD_SIZE=2"),
            "torchrun that it is rank 11 of 16");
    /* mpirun started its daemons by srun, one a node */
    is_place(LIST(SLURM, "SLURM_NTASKS=2", "SLURM_PROCID=1", "SLURM_NNODES=2", "OMPI_COMM_WORLD_RANK=5",
                  "OMPI_COMM_WORLD_SIZE=8"),
             TUTTI_BY_OPENMPI, 5, 8, "OMPI_COMM_WORLD_RANK=5, OMPI_COMM_WORLD_SIZE=8");
    refused(LIST(SLURM, "SLURM_NTASKS=4", "SLURM_PROCID=1", "SLURM_NNODES=2", "OMPI_COMM_WORLD_RANK=5",
                 "OMPI_COMM_WORLD_SIZE=8"),
            "Slurm that it is rank 1 of 4");
}

/* Every launcher present or not, agreeing or not, alone or of several: the winner is the first of
   several ranks in the order, unless two of several differ. */
static void launcher_precedence_holds_for_any_mixture(void **state)
{
    static const struct { const char *rank, *size; tutti_launch_by by; } names[] = {
        { "TUTTI_RANK",           "TUTTI_SIZE",           TUTTI_BY_TUTTI },
        { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", TUTTI_BY_OPENMPI },
        { "PMI_RANK",             "PMI_SIZE",             TUTTI_BY_PMI },
        { "MV2_COMM_WORLD_RANK",  "MV2_COMM_WORLD_SIZE",  TUTTI_BY_MVAPICH },
        { "SLURM_PROCID",         "SLURM_NTASKS",         TUTTI_BY_SLURM },
        { "RANK",                 "WORLD_SIZE",           TUTTI_BY_TORCHRUN },
    };
    (void)state;
    for (uint64_t trial = 0; trial < 20000; trial++) {
        const tutti_rng rng = { 7, 11, trial };
        char text[16][48];
        char *environment[17];
        tutti_launch_by by = TUTTI_BY_NOBODY;
        int rank = 0, size = 1, n = 0;
        bool contradiction = false;
        tutti_launch_place p;
        tutti_status status;
        strcpy(text[n++], "SLURM_STEP_ID=1");
        for (size_t i = 0; i < TUTTI_LENGTH(names); i++) {
            const uint64_t draw = tutti_random(rng, i);
            const int its_size = (draw >> 8) % 3 == 0   ? 1
                                 : (draw >> 8) % 3 == 1 ? 4
                                                        : 6,
                      its_rank = its_size == 1 ? 0 : (int)((draw >> 16) % 8 == 0);
            if (draw % 2 == 0)
                continue;
            snprintf(text[n++], sizeof *text, "%s=%d", names[i].rank, its_rank);
            snprintf(text[n++], sizeof *text, "%s=%d", names[i].size, its_size);
            if (by == TUTTI_BY_TUTTI)
                continue;
            if (by == TUTTI_BY_NOBODY || (size == 1 && its_size > 1)) {
                by = names[i].by;
                rank = its_rank;
                size = its_size;
            } else if (its_size > 1 && (its_rank != rank || its_size != size))
                contradiction = true;
        }
        for (int i = 0; i < n; i++) /* in an order of its own */
            environment[i] = text[(i + (int)(trial % 13)) % n];
        environment[n] = NULL;
        status = tutti_launch_find_place(environment, &p, NULL);
        assert_int_equal(status, contradiction ? TUTTI_ERR_USAGE : TUTTI_OK);
        if (contradiction)
            continue;
        assert_int_equal(p.by, by);
        assert_int_equal(p.rank, rank);
        assert_int_equal(p.size, size);
    }
}

static void ranks_learn_where_to_meet(void **state)
{
    tutti_launch_place p = found(LIST("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500"));

    (void)state;
    assert_string_equal(p.meet, "10.0.0.1:29500");
    assert_true(p.meet_at_rank_0);
    assert_string_equal(tutti_launch_place_transport(&p), "tcp");
    p = found(LIST("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=fe80::1", "MASTER_PORT=29500",
                   "TORCHELASTIC_USE_AGENT_STORE=True"));
    assert_string_equal(p.meet, "[fe80::1]:29501"); /* torchrun itself listens on the other */
    p = found(LIST("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1", "TUTTI_MEET=b:7"));
    assert_string_equal(p.meet, "b:7");
    refused(LIST("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a"), "MASTER_ADDR is 'a' and MASTER_PORT is '(not set)'");
    refused(LIST("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65536"), "MASTER_PORT is '65536'");
    p = found(LIST(SLURM, "SLURM_NTASKS=8", "SLURM_PROCID=3", "SLURM_NODELIST=gpu[07-09,12],login"));
    assert_memory_equal(p.meet, "gpu07:", 6);
    assert_in_range(atoi(p.meet + 6), 12000, 31999);
    assert_string_equal(p.run, "Slurm 4711.0");
    refused(LIST(SLURM, "SLURM_NTASKS=8", "SLURM_PROCID=3", "SLURM_NODELIST=gpu[07-"),
            "Slurm's nodes: 'gpu[07-' is no list of hosts");
    p = found(LIST("PMI_RANK=1", "PMI_SIZE=4"));
    assert_string_equal(p.meet, "");
    assert_string_equal(tutti_launch_place_transport(&p), "mpi");
    p = found(LIST("TUTTI_RANK=1", "TUTTI_SIZE=4"));
    assert_string_equal(tutti_launch_place_transport(&p), "shm");
    p = found(LIST("TUTTI_RANK=1", "TUTTI_SIZE=4", "TUTTI_MEET=h:1"));
    assert_false(p.one_host);
    assert_true(p.meet_at_rank_0); /* set by a user; a launcher of ours sets 0 */
    assert_string_equal(tutti_launch_place_transport(&p), "tcp");
    p = found(LIST("TUTTI_RANK=1", "TUTTI_SIZE=4", "TUTTI_MEET=h:1", "TUTTI_MEET_AT_RANK_0=1"));
    assert_true(p.meet_at_rank_0);
    p = found(LIST("TUTTI_RANK=1", "TUTTI_SIZE=4", "TUTTI_MEET=h:1", "TUTTI_MEET_AT_RANK_0=0"));
    assert_false(p.meet_at_rank_0);
    p = found(LIST("TUTTI_RANK=1", "TUTTI_SIZE=4", "TUTTI_MEET=unix:0002a"));
    assert_string_equal(p.meet, "unix:0002a");
    for (const char *const *at = (const char *const[]){ "h:abc", "h:0", "h:65536", "h:", ":7", "h", "unix:", NULL };
         *at != NULL; at++) {
        char meet[40];
        snprintf(meet, sizeof meet, "TUTTI_MEET=%s", *at);
        refused(LIST("TUTTI_RANK=1", "TUTTI_SIZE=4", meet), "is no place to meet: write host:port with a port from 1");
    }
}

/* What each launcher reports of it, a step of Slurm around it, or an address that no host
   shares. */
static void ranks_learn_whether_they_are_on_one_host(void **state)
{
    static const struct { const char *words[8]; bool one_host; const char *transport; } cases[] = {
        { { "RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1" }, true, "shm" },
        { { "RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=localhost", "MASTER_PORT=1" }, false, "tcp" },
        { { "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=1" }, true, "shm" },
        { { "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.3", "MASTER_PORT=1" }, true, "shm" },
        { { "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=::1", "MASTER_PORT=1" }, true, "shm" },
        { { "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1" }, false, "tcp" },
        { { "RANK=1", "WORLD_SIZE=2" }, false, "shm" }, /* refused with a sentence when it is opened */
        { { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=4" }, true, "shm" },
        { { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2" }, false, "mpi" },
        { { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4" }, false, "mpi" },
        { { "PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=4" }, true, "shm" },
        { { "PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=x" }, false, "mpi" },
        { { "MV2_COMM_WORLD_RANK=1", "MV2_COMM_WORLD_SIZE=4", "MV2_COMM_WORLD_LOCAL_SIZE=4" }, true, "shm" },
        { { SLURM, "SLURM_NTASKS=8", "SLURM_PROCID=3", "SLURM_STEP_NUM_NODES=1", "SLURM_NODELIST=a" }, true, "shm" },
        { { SLURM, "SLURM_NTASKS=8", "SLURM_PROCID=3", "SLURM_NNODES=1", "SLURM_NODELIST=a" }, true, "shm" },
        { { SLURM, "SLURM_NTASKS=8", "SLURM_PROCID=3", "SLURM_STEP_NUM_NODES=2", "SLURM_NODELIST=a,b" }, false, "tcp" },
        { { SLURM, "SLURM_NTASKS=4", "SLURM_PROCID=1", "SLURM_NNODES=1", "PMI_RANK=1", "PMI_SIZE=4" }, true, "shm" },
        { { "TUTTI_RANK=1", "TUTTI_SIZE=4", "TUTTI_MEET=127.0.0.1:5" }, true, "tcp" },
        { { "TUTTI_RANK=1", "TUTTI_SIZE=4", "TUTTI_SHM_FD=5" }, true, "shm" },
        { { "TUTTI_RANK=1", "TUTTI_SIZE=4", "TUTTI_SHM_FD=5", "TUTTI_MEET=h:5" }, false, "tcp" },
        { { "PATH=x" }, true, "shm" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        const tutti_launch_place p = found((char *const *)(uintptr_t)cases[k].words);
        if (p.one_host != cases[k].one_host)
            print_error("case %zu: %s\n", k, cases[k].words[0]);
        assert_int_equal(p.one_host, cases[k].one_host);
        assert_string_equal(tutti_launch_place_transport(&p), cases[k].transport);
    }
}

static void ranks_on_one_host_gather_missing_launcher_variables(void **state)
{
    char *const *torch = LIST("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=1");
    char *const *with_key = LIST("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=1", "TUTTI_RUN_KEY=k");
    char *const *far = LIST("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1");
    char *const *ours = LIST("TUTTI_RANK=1", "TUTTI_SIZE=2", "TUTTI_SHM_FD=5");
    char *const *mpi = LIST("PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALNRANKS=2", "TUTTI_RUN_KEY=k");
    char *const *alone = LIST("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=localhost", "MASTER_PORT=1");
    const struct { char *const *environment; bool shm, tcp; } cases[] = {
        { torch, true, true }, { with_key, true, false }, { far, false, false }, { ours, false, true },
        { mpi, true, true }, { alone, false, false },
    };
    tutti_error err = { 0 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        const tutti_launch_place p = found(cases[k].environment);
        assert_int_equal(tutti_launch_gathers(&p, "shm", cases[k].environment), cases[k].shm);
        assert_int_equal(tutti_launch_gathers(&p, "tcp", cases[k].environment), cases[k].tcp);
        assert_false(tutti_launch_gathers(&p, "mpi", cases[k].environment));
        assert_int_equal(tutti_launch_place_meets(&p, cases[k].environment, &err),
                         cases[k].environment == far ? TUTTI_ERR_USAGE : TUTTI_OK);
    }
}

static const char *value(char **environment, const char *name)
{
    const size_t n = strlen(name);

    for (; *environment != NULL; environment++)
        if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=')
            return *environment + n + 1;
    return NULL;
}

static void rank_and_meeting_place_are_translated_to_tutti_variables(void **state)
{
    char **a, **b, **c;
    tutti_launch_place p = found(LIST("PATH=x", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=29500"));

    (void)state;
    assert_int_equal(tutti_launch_place_environment(&p, LIST("PATH=x", "TUTTI_RUN_KEY=k"), &a, NULL), TUTTI_OK);
    assert_string_equal(value(a, "PATH"), "x");
    assert_string_equal(value(a, "TUTTI_RUN_KEY"), "k");
    assert_string_equal(value(a, "TUTTI_RANK"), "1");
    assert_string_equal(value(a, "TUTTI_SIZE"), "2");
    assert_string_equal(value(a, "TUTTI_MEET"), "h:29500");
    assert_string_equal(value(a, "TUTTI_MEET_AT_RANK_0"), "1");
    assert_int_equal(strlen(value(a, "TUTTI_RUN_ID")), 32);
    p.rank = 0; /* the other rank of the run, then another run */
    assert_int_equal(tutti_launch_place_environment(&p, LIST("X=y"), &b, NULL), TUTTI_OK);
    assert_string_equal(value(a, "TUTTI_RUN_ID"), value(b, "TUTTI_RUN_ID"));
    strcpy(p.run, "torchrun other");
    assert_int_equal(tutti_launch_place_environment(&p, LIST("TUTTI_MEET=mine:1"), &c, NULL), TUTTI_OK);
    assert_string_not_equal(value(a, "TUTTI_RUN_ID"), value(c, "TUTTI_RUN_ID"));
    assert_string_equal(value(c, "TUTTI_MEET"), "mine:1");
    tutti_free(a);
    tutti_free(b);
    tutti_free(c);
    p = found(LIST("TUTTI_RANK=1", "TUTTI_SIZE=2"));
    assert_int_equal(tutti_launch_place_environment(&p, LIST("TUTTI_RANK=1", "TUTTI_SIZE=2"), &a, NULL), TUTTI_OK);
    assert_string_equal(a[1], "TUTTI_SIZE=2");
    assert_null(a[2]);
    tutti_free(a);
}

/* Rank, size, place and key are all that a user has to give. */
static void manually_set_rank_and_size_need_no_run_id(void **state)
{
    static const char *const keys[] = { "TUTTI_RUN_KEY=k", "TUTTI_RUN_KEY_FILE=f" };
    char **a, **b;
    tutti_error err = { 0 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(keys); k++) {
        char *const *zero = LIST("TUTTI_RANK=0", "TUTTI_SIZE=2", "TUTTI_MEET=h:7", keys[k]);
        char *const *one = LIST("TUTTI_RANK=1", "TUTTI_SIZE=2", "TUTTI_MEET=h:7", keys[k]);
        tutti_launch_place p = found(zero), q = found(one);
        assert_int_equal(tutti_launch_place_meets(&p, zero, &err), TUTTI_OK);
        assert_int_equal(tutti_launch_place_environment(&p, zero, &a, NULL), TUTTI_OK);
        assert_int_equal(tutti_launch_place_environment(&q, one, &b, NULL), TUTTI_OK);
        assert_int_equal(strlen(value(a, "TUTTI_RUN_ID")), 32);
        assert_string_equal(value(a, "TUTTI_RUN_ID"), value(b, "TUTTI_RUN_ID"));
        assert_string_equal(value(a, "TUTTI_MEET_AT_RANK_0"), "1");
        assert_string_equal(value(b, "TUTTI_RANK"), "1");
        tutti_free(a);
        tutti_free(b);
    }
    for (int k = 0; k < 2; k++) { /* nowhere to meet, or no key */
        char *const *half = k == 0 ? LIST("TUTTI_RANK=0", "TUTTI_SIZE=2", "TUTTI_RUN_KEY=k")
                                   : LIST("TUTTI_RANK=0", "TUTTI_SIZE=2", "TUTTI_MEET=h:7");
        const tutti_launch_place p = found(half);
        assert_int_equal(tutti_launch_place_meets(&p, half, &err), TUTTI_ERR_USAGE);
        assert_non_null(strstr(err.text, k == 0 ? "somebody has started 2 processes (TUTTI_RANK=0, TUTTI_SIZE=2), but "
                                                  "nothing gives the address where they meet; set "
                                                  "TUTTI_MEET=HOST:PORT for all"
                                                : "the 2 processes that somebody has started have no key to know each "
                                                  "other by; make one with `tutti key > FILE`"));
    }
}

/* ---- lists ---- */
static void hosts_are(const char *list, const char *expected)
{
    char all[2000] = "", name[64];
    tutti_status status;

    for (int64_t i = 0; (status = tutti_launch_host_at(list, i, name, sizeof name, NULL)) == TUTTI_OK; i++) {
        strcat(all, i > 0 ? " " : "");
        strcat(all, name);
    }
    assert_int_equal(status, TUTTI_CLOSED);
    assert_string_equal(all, expected);
}

static void lists_of_hosts_are_expanded_as_slurm_writes_them(void **state)
{
    static const char *const bad[] = {
        "", ",", "a,", "a,,b", "a[", "a]", "a[]", "a[1", "a[1-]", "a[-1]", "a[2-1]", "a[1,]", "a[[1]]", "a[1]]", "a b",
        "a;b", "a[x]", "a[1-99999999999999999999]", "a[0-99999999]", "a[0-9999][0-9999]", "$(x)", "a'b",
    };
    char name[8];

    (void)state;
    hosts_are("login", "login");
    hosts_are("a,b.c-d,e_f", "a b.c-d e_f");
    hosts_are("node[01-03,7],login", "node01 node02 node03 node7 login");
    hosts_are("n[8-11]", "n8 n9 n10 n11");
    hosts_are("n[08-11]", "n08 n09 n10 n11");
    hosts_are("r[1-2]c[3-4]x", "r1c3x r1c4x r2c3x r2c4x");
    hosts_are("[1-2]", "1 2");
    for (size_t i = 0; i < TUTTI_LENGTH(bad); i++) {
        tutti_error err = { 0 };
        char first[64];
        tutti_status status = TUTTI_OK;
        for (int64_t k = 0; status == TUTTI_OK && k < 10; k++)
            status = tutti_launch_host_at(bad[i], k, first, sizeof first, &err);
        if (status != TUTTI_ERR_USAGE)
            fail_msg("'%s' should be refused", bad[i]);
        assert_non_null(strstr(
            err.text,
            "is no list of hosts; write names with commas between, and numbers in brackets: node[01-03,7],login"));
    }
    /* too long for the buffer: refused, not cut */
    assert_int_equal(tutti_launch_host_at("abcdefgh", 0, name, sizeof name, NULL), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_launch_host_at("abcdefg", 0, name, sizeof name, NULL), TUTTI_OK);
}

/* Against a list written out by hand. */
static void random_lists_are_expanded_in_order(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 2000; trial++) {
        const tutti_rng rng = { 3, 5, trial };
        char list[600] = "", expected[2000] = "", one[64];
        const int items = 1 + (int)(tutti_random(rng, 0) % 4);
        for (int i = 0; i < items; i++) {
            const int first = (int)(tutti_random(rng, 10 + (uint64_t)i) % 120),
                      n = 1 + (int)(tutti_random(rng, 20 + (uint64_t)i) % 5),
                      width = (int)(tutti_random(rng, 30 + (uint64_t)i) % 5);
            snprintf(one, sizeof one, "%sh%d-[%0*d-%d]z", i > 0 ? "," : "", i, width, first, first + n - 1);
            strcat(list, one);
            for (int k = 0; k < n; k++) {
                snprintf(one, sizeof one, "%sh%d-%0*dz", i + k > 0 ? " " : "", i, width, first + k);
                strcat(expected, one);
            }
        }
        hosts_are(list, expected);
    }
}

static void hosts_of_a_run_have_workers_and_first_ranks(void **state)
{
    static const struct { const char *text, *sentence;
    } bad[] = {
        { "a:0", "'a:0' is no host with its workers; write NAME or NAME:WORKERS with 1 to 65536 workers" },
        { "a:", "is no list of hosts" },
        { ":4", "':4' is no host with its workers" },
        { "a:4,a:2", "host 'a' is named twice; write it once with all its workers, a:6" },
        { "a,n[1-2],n2", "host 'n2' is named twice" },
        { "-oProxyCommand=x", "is no list of hosts" },
        { "-x", "host '-x' begins with '-'" },
        { "me@-x", "host 'me@-x' begins with '-'" },
        { "a:65536,b", "more than 65536 workers or 4096 hosts" },
        { "a[0-4096]", "more than 65536 workers or 4096 hosts" },
        { "", "is no host" },
        { "a:4 b:4", "is no list of hosts" },
        { "a:99999999999999999999", "is no host with its workers" },
    };
    tutti_launch_host *hosts;
    int n, workers;

    (void)state;
    assert_int_equal(tutti_launch_parse_hosts("a:4,me@n[01-02]:2,c", &hosts, &n, &workers, NULL), TUTTI_OK);
    assert_int_equal(n, 4);
    assert_int_equal(workers, 9);
    assert_string_equal(hosts[2].name, "me@n02");
    assert_int_equal(hosts[2].workers, 2);
    assert_int_equal(hosts[2].first, 6);
    assert_int_equal(hosts[3].first, 8);
    assert_int_equal(hosts[3].workers, 1);
    tutti_free(hosts);
    for (size_t i = 0; i < TUTTI_LENGTH(bad); i++) {
        tutti_error err = { 0 };
        assert_int_equal(tutti_launch_parse_hosts(bad[i].text, &hosts, &n, &workers, &err), TUTTI_ERR_USAGE);
        assert_null(hosts);
        if (strstr(err.text, bad[i].sentence) == NULL || strncmp(err.text, "hosts: ", 7) != 0)
            fail_msg("'%s': '%s' should contain '%s'", bad[i].text, err.text, bad[i].sentence);
    }
}

static void a_command_is_split_at_blanks_outside_quotes(void **state)
{
    const char **words;
    size_t n;

    (void)state;
    assert_int_equal(tutti_launch_split_command("  ssh -o 'A B' \"c'd\"e\t'' $x;y ", 1, &words, &n, NULL), TUTTI_OK);
    assert_int_equal(n, 6);
    assert_string_equal(words[2], "A B");
    assert_string_equal(words[3], "c'de");
    assert_string_equal(words[4], "");
    assert_string_equal(words[5], "$x;y"); /* no shell looks at it */
    assert_null(words[6]);
    tutti_free(words);
    assert_int_equal(tutti_launch_split_command("a 'b", 0, &words, &n, NULL), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_launch_split_command("  ", 0, &words, &n, NULL), TUTTI_ERR_USAGE);
    assert_null(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_and_size_are_read_from_launcher_variables),
        cmocka_unit_test(batch_script_variables_give_no_rank),
        cmocka_unit_test(incomplete_rank_and_size_are_rejected_with_both_values),
        cmocka_unit_test(launchers_that_disagree_are_refused_with_both_values),
        cmocka_unit_test(slurm_below_another_launcher_is_no_contradiction),
        cmocka_unit_test(launcher_precedence_holds_for_any_mixture),
        cmocka_unit_test(ranks_learn_where_to_meet),
        cmocka_unit_test(ranks_learn_whether_they_are_on_one_host),
        cmocka_unit_test(ranks_on_one_host_gather_missing_launcher_variables),
        cmocka_unit_test(rank_and_meeting_place_are_translated_to_tutti_variables),
        cmocka_unit_test(manually_set_rank_and_size_need_no_run_id),
        cmocka_unit_test(lists_of_hosts_are_expanded_as_slurm_writes_them),
        cmocka_unit_test(ranks_are_renumbered_if_only_some_take_part),
        cmocka_unit_test(random_lists_are_expanded_in_order),
        cmocka_unit_test(hosts_of_a_run_have_workers_and_first_ranks),
        cmocka_unit_test(a_command_is_split_at_blanks_outside_quotes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
