/* launch.h: parts of the launcher for the tutti command: its agents on other hosts, claims of
   directories, cores, how OpenMP waits. Implemented by agent.c, hosts.c, claim.c, cores.c and
   waits.c. */
#ifndef TUTTI_LAUNCH_LAUNCH_H
#define TUTTI_LAUNCH_LAUNCH_H
#include "tutti/launch.h"
#include "transport/meet.h"
#pragma GCC visibility push(default)

/* For a program that computes in this process, without a launcher: makes its waiting OpenMP
   threads spin as long as those of workers that have a core each. The OpenMP library reads that
   setting when it is loaded, so this executes the program again, with argv (NULL-ended, the
   program's name first). It returns if the environment already states how they wait
   (OMP_WAIT_POLICY, GOMP_SPINCOUNT), as in that second execution, or if the program cannot be
   started. Call it before anything else. */
void tutti_launch_patient(tutti_runtime *rt, char *const argv[]);

/* ---- several hosts ---- */
typedef struct tutti_launch_host {
    char name[128];
    int workers, first;          /* ranks first ... first + workers - 1 */
} tutti_launch_host;

/* Reads "a:4,b:4", "gpu[01-16]:8", "me@c": hosts with their workers (1 where none are given), in
   the order of the ranks. *hosts: tutti_free it. *workers: in total. TUTTI_ERR_USAGE: invalid
   list, a host twice, too many workers. */
tutti_status tutti_launch_parse_hosts(const char *text, tutti_launch_host **hosts, int *n_hosts,
                                      int *workers, tutti_error *err);

/* Do hosts stand elsewhere? "@FILE": in a file; "|COMMAND": a command of the shell prints them. A
   line each: HOST, HOST:N or HOST slots=N, as in hosts files of MPI; one in several lines has the
   workers of all; "#" begins a comment. */
bool tutti_launch_hosts_moves(const char *hosts);
/* Reads them; blocks for at most 60 s. *hosts: tutti_free it. TUTTI_ERR_USAGE: there is no such
   file, the command fails, or a line is no host. */
tutti_status tutti_launch_hosts_read(const char *source, tutti_launch_host **hosts, int *n,
                                     tutti_error *err);
/* "a:4,b:4". tutti_free it; NULL: no memory. */
char *tutti_launch_hosts_text(const tutti_launch_host *hosts, int n);

/* rsh: what starts a command on a host, as `RSH HOST COMMAND`: words between blanks, quotes keep
   blanks, no shell reads it. NULL, "": ssh.

   environment: NULL: this process's. Passed on are TUTTI_*, the usual variables of OpenMP, BLAS
   and sanitizers, and LD_LIBRARY_PATH.

   threads: per worker. 0: the minimum over the hosts of cores / workers on them, at least 1.
   Hosts that are names of one machine share its cores, unless their affinities have none in
   common.

   output: receives the text for the user. stream 1: the workers' standard output, in whole lines:
   those of worker 0's host unchanged, those of others prefixed by "HOST: ". stream 2: standard
   error, and which workers are still missing. Never NULL. */
typedef struct tutti_launch_hosts_options {
    const tutti_launch_host *hosts;
    int n_hosts;
    const char *rsh;
    const char *agent;           /* path of the tutti command on the hosts, which runs `agent` */
    const char *const *argv;     /* of the workers, as in tutti_launch_options */
    int threads_word;            /* argv[threads_word] becomes "--threads=N"; 0: no word does */
    char *const *environment;
    const char *directory;       /* to work in, on every host */
    int threads;
    bool pin;
    /* Serve a rendezvous (tcp). Without it the workers of different hosts do not find each
       other. */
    bool meet;
    /* Address by which the hosts reach this one: "10.0.0.1" or "10.0.0.1:29500". NULL, "": that
       of the route to them. */
    const char *address;
    int64_t start_ns;            /* until all agents answered and all workers joined; 0: 60 s */
    int64_t grace_ns;            /* as above */
    bool continue_on_loss;       /* as above; lines go to output; only with meet, after it */
    int servers;                 /* as above */
    int least;
    int64_t stop_ns;             /* as above */
    int64_t silence_ns;          /* as above */
    bool torch;                  /* as above; and MASTER_ADDR, MASTER_PORT are passed on */
    bool tag;                    /* each line of a worker begins with its rank: "[3] " */
    /* "NAME,NAME": further variables to pass on. NULL: none. */
    const char *exports;
    void (*output)(void *user, int stream, const char *text, size_t bytes);
    void *user;
} tutti_launch_hosts_options;

/* As tutti_launch_run, over several hosts. On each one `RSH HOST 'AGENT agent'` is started. It
   receives everything else, the key included, on its standard input. Workers end when their agent
   does, an agent when its input closes. Missing workers are named after 2 s and then every 5 s.
   Signals are handled as in tutti_launch_run. */
tutti_status tutti_launch_hosts(const tutti_launch_hosts_options *options,
                                tutti_launch_result *result, tutti_error *err);

/* The agent on a host: reads a job from `in`, runs it, reports on `out`. Returns the exit code.
   For a process with one thread that does nothing else. */
int tutti_launch_agent(int in, int out);

/* ---- a run whose workers come and go (docs/design/membership.md) ---- */
enum { TUTTI_LAUNCH_CONTACTS = 16 };
/* The pass of a run: what a process needs to join it. A file of lines (pass.c). */
typedef struct tutti_launch_pass {
    tutti_run_id id;
    tutti_run_key key;           /* wipe it after use */
    char at[TUTTI_LAUNCH_CONTACTS][64]; /* [n]: addresses of members */
    int n;
} tutti_launch_pass;
/* Replaces the file by one that only its owner can read. */
tutti_status tutti_launch_pass_write(const tutti_launch_pass *pass, const char *path,
                                     tutti_error *err);
/* Writes the lines of the pass to a descriptor. */
tutti_status tutti_launch_pass_print(const tutti_launch_pass *pass, int fd, tutti_error *err);
/* The lines of a pass as a text, ended by a NUL; returns its length. Wipe it after use. */
enum { TUTTI_LAUNCH_PASS_BYTES = 4096 };
size_t tutti_launch_pass_text(const tutti_launch_pass *pass, char text[TUTTI_LAUNCH_PASS_BYTES]);
/* Reads such a text, which it changes. TUTTI_ERR_USAGE: it is no pass. */
tutti_status tutti_launch_pass_parse(tutti_launch_pass *pass, char *text, tutti_error *err);
/* May that file be replaced, and removed, by a pass? TUTTI_ERR_USAGE: it is there, and is none. */
tutti_status tutti_launch_pass_replaces(const char *path, tutti_error *err);
/* TUTTI_ERR_USAGE: there is no such file, others can read it, or it is no pass. */
tutti_status tutti_launch_pass_read(tutti_launch_pass *pass, const char *path, tutti_error *err);

/* Variables of its workers. The first: the descriptor of the pipe by which they tell the launcher
   what it has to know (elastic.c). The second, of newcomers only: the file of the pass. They also
   have the variables of meet.h for the run's id and key. The third, of any program's workers:
   FEWEST:MOST:SECONDS, how many they are to be, and how long they wait for others. */
#define TUTTI_LAUNCH_TELL "TUTTI_TELL"
#define TUTTI_LAUNCH_JOIN "TUTTI_JOIN"
/* The file of the pass, of workers that are to keep it (elastic/follow.h). */
#define TUTTI_LAUNCH_PASS "TUTTI_KEEPS_PASS"
#define TUTTI_LAUNCH_WORKERS "TUTTI_WORKERS"
/* The text of the pass, of `tutti join -` on another host. */
#define TUTTI_LAUNCH_PASS_TEXT "TUTTI_JOIN_PASS"
/* HOST PORT, of workers that others than those of this machine reach there; 0: any port. */
#define TUTTI_LAUNCH_NODE "TUTTI_NODE"
/* What such a worker answers those that ask what is trained: this word, the value of
   TUTTI_LAUNCH_WORKERS, the threads of a worker, and lines of facts of its program. */
#define TUTTI_LAUNCH_SCRIPT "script"
enum { TUTTI_LAUNCH_LINE = 1200 }; /* most bytes of a line of that pipe */
/* What a worker prints that has left the run before its end; `tutti join --host` looks for it. */
#define TUTTI_LAUNCH_LEFT "this worker has left the run"

typedef struct tutti_launch_elastic_options {
    int workers;                 /* that the run begins with, on this host */
    int threads;                 /* of each */
    const char *const *argv;     /* as in tutti_launch_options */
    /* [n_hosts]: this one, and others. Workers of those are newcomers, once all of this one have
       met. source: where they stand (tutti_launch_hosts_moves), which is read again and again:
       workers come and leave with their lines, and there are `most` in all; NULL: hosts stay. */
    const tutti_launch_host *hosts;
    int n_hosts, most;
    const char *source;
    /* The command of this host that runs a worker on another one, and ends with its code; as argv.
       It reports only that it has seen the end of the run. NULL: no memory. */
    const char *const *(*command)(void *commands, const char *host);
    void *commands;
    int restarts;                /* how often each lost one is started again */
    bool script;                 /* of any program, whose exit code 2 does not mean that it has
                                    printed why */
    bool joins;                  /* one worker, a newcomer of a run that is under way. The pass is
                                    read only, and it is not started again */
    int64_t leave_ns;            /* that they have to leave after a signal, then they are killed;
                                    0: 30 s */
    const char *pass;            /* the file; the launcher makes it, and its workers keep it */
    bool keeps;                  /* joins: they keep it too, and it stays */
    tutti_run_id id;
    tutti_run_key key;
    void (*say)(void *user, const char *line); /* a loss, and what comes of it; NULL: not called */
    void *user;
} tutti_launch_elastic_options;
/* Starts the founders, and blocks until all workers of this host have ended. The founders meet by
   the transport shm. exit_code: 0 if one has seen the end of the run, or all have left it; else as
   of tutti_launch_run. joins: also 0 if it has left it after a signal. */
tutti_status tutti_launch_elastic(const tutti_launch_elastic_options *options,
                                  tutti_launch_result *result, tutti_error *err);

/* Writes the address of this host on the route to `host`, as digits; "": the name is not known, or
   there is no route. Blocks for the name service. */
void tutti_launch_route(const char *host, char *text, size_t bytes);
/* address: as digits */
bool tutti_launch_is_loopback(const char *address);

/* ---- exclusive use of a directory while a run writes into it ---- */
typedef struct tutti_launch_claim tutti_launch_claim;

/* Makes the directory, with those above it, and claims it for this process by a lock on its file
   `lock`. TUTTI_ERR_USAGE, with process and host of the owner, while another process holds it.
   The kernel releases the lock when its owner ends, in whatever way. On a file system without
   locks (some NFS) it succeeds without a claim. */
tutti_status tutti_launch_claim_open(tutti_launch_claim **out, tutti_runtime *rt,
                                     const char *directory, tutti_error *err);

/* The same of the file of a pass, by a lock on PASS.lock. Its directory is not made. */
tutti_status tutti_launch_claim_pass(tutti_launch_claim **out, tutti_runtime *rt, const char *pass,
                                     tutti_error *err);

/* Releases the claim, and removes the directories that open has made if they are still empty.
   Accepts NULL. */
void tutti_launch_claim_close(tutti_launch_claim *claim);

/* The transport for a place where none was named: "shm" where another launcher has started all
   ranks on one host. Else "mpi" under an MPI launcher, "tcp" where there is a rendezvous address,
   "shm" otherwise. */
const char *tutti_launch_place_transport(const tutti_launch_place *place);

/* ---- ranks of one host that were not started by Tutti's launcher ---- */
typedef struct tutti_launch_gathering tutti_launch_gathering;

/* Cores that this process may use: by its affinity, and by the time that control groups leave it
   (tutti_machine_quota). */
int tutti_cores(void);

/* "KILL" of SIGKILL; "?": it has no name. */
const char *tutti_launch_signal_name(int number);
#pragma GCC visibility pop
#endif
