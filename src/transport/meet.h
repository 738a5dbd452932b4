/* meet.h: the rendezvous of a run over tcp. Every rank connects to it once, proves that it knows
   the run's key, reports the address at which it listens, and receives the table of all ranks. It
   keeps the connection for the run's life. Through it the rendezvous learns how ranks end
   (failure report, lost connection, silence) and notifies the others.

   A launcher serves one within its own loop. Among ranks that another launcher has started rank 0
   serves it (TUTTI_MEET_AT_RANK_0=1), inside the transport.

   Environment variables of a rank (set by tutti_launch; only the transport `tcp` reads them):
     TUTTI_RANK, TUTTI_SIZE   its rank and the number of ranks
     TUTTI_MEET               where: "10.0.0.1:29500", "[fe80::1%eth0]:29500", "name:29500", or
                              "unix:NAME" (an abstract socket of this host: tutti_meet_where)
     TUTTI_RUN_ID             32 hexadecimal digits; not secret. Under another launcher it may be
                              absent: it is then made of TUTTI_MEET and that launcher's
                              variables (launch.h)
     TUTTI_RUN_KEY            64 hexadecimal digits
     TUTTI_RUN_KEY_FILE       instead: a file with the digits that only its owner may read (0600);
                              both together are refused
     TUTTI_MEET_AT_RANK_0     1: rank 0 serves the rendezvous at TUTTI_MEET's port, the others
                              connect to it */
#ifndef TUTTI_MEET_H
#define TUTTI_MEET_H
#include "tutti/runtime.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MEET_VARIABLE "TUTTI_MEET"
#define TUTTI_MEET_VARIABLE_ID "TUTTI_RUN_ID"
#define TUTTI_MEET_VARIABLE_KEY "TUTTI_RUN_KEY"
#define TUTTI_MEET_VARIABLE_KEY_FILE "TUTTI_RUN_KEY_FILE"
#define TUTTI_MEET_VARIABLE_AT_0 "TUTTI_MEET_AT_RANK_0"

/* ---- the run's id, and the secret that its ranks share. Never on a command line; wiped after
   use. ---- */
typedef struct tutti_run_id { uint8_t bytes[16]; } tutti_run_id;
typedef struct tutti_run_key { uint8_t bytes[32]; } tutti_run_key;
enum { TUTTI_RUN_ID_TEXT = 33, TUTTI_RUN_KEY_TEXT = 65 }; /* bytes of the texts, the NUL included */

void tutti_run_id_make(tutti_runtime *rt, tutti_run_id *id); /* from the system's entropy */
void tutti_run_id_text(const tutti_run_id *id, char text[TUTTI_RUN_ID_TEXT]);
tutti_status tutti_run_id_parse(tutti_run_id *id, const char *text, tutti_error *err);

void tutti_run_key_make(tutti_runtime *rt, tutti_run_key *key);
void tutti_run_key_text(const tutti_run_key *key, char text[TUTTI_RUN_KEY_TEXT]);
/* The sentence does not repeat the text. */
tutti_status tutti_run_key_parse(tutti_run_key *key, const char *text, tutti_error *err);
/* Refuses a file that others may read or write. */
tutti_status tutti_run_key_read(tutti_run_key *key, const char *path, tutti_error *err);
void tutti_run_key_wipe(tutti_run_key *key);                 /* not optimised away; accepts NULL */

/* ---- the rendezvous: one thread at a time ---- */
typedef struct tutti_meet tutti_meet;
typedef struct tutti_meet_options {
    /* To bind: "0.0.0.0", "::", "127.0.0.1", a name of this host. "unix": no port, for ranks of
       this host only; "unix:NAME" under that name, of at most 15 bytes. NULL: "0.0.0.0". */
    const char *address;
    int port;                    /* 0: the kernel chooses */
    int size;                    /* ranks of the run */
    tutti_run_id id;
    tutti_run_key key;           /* copied */
    int64_t gather_ns;           /* from open until all must have arrived; 0: 5 minutes */
    int64_t silence_ns;          /* after which a silent rank is lost; 0: 3 s */
} tutti_meet_options;

/* TUTTI_ERR_IO: the address or the port cannot be used; the sentence states which and why.
   Allocates. */
tutti_status tutti_meet_open(tutti_meet **out, tutti_runtime *rt,
                             const tutti_meet_options *options, tutti_error *err);

/* Notifies the ranks that are still connected that the rendezvous closes in order. Does not wait.
   Accepts NULL. */
void tutti_meet_close(tutti_meet *m);
int tutti_meet_port(const tutti_meet *m); /* 0: unix */

/* The value of TUTTI_MEET for ranks of this host or of another; returns strlen, as snprintf.
   `host` is the name or address by which they reach this host. NULL: the bound address (useless
   for "0.0.0.0" or "::"). Ignored with "unix". */
int tutti_meet_where(const tutti_meet *m, const char *host, char *text, size_t bytes);

/* A descriptor to be polled for reading together with the caller's. When it is readable, and at
   least every tutti_meet_wait_ns, call progress.

   wait_ns: from now; at most half a second. progress: does what can be done without waiting. It
   returns TUTTI_TIMEOUT once, when gather_ns has passed and ranks are missing. The sentence names
   them; the ranks that have joined were notified of it and end by themselves. */
int tutti_meet_fd(const tutti_meet *m);
int64_t tutti_meet_wait_ns(const tutti_meet *m);
tutti_status tutti_meet_progress(tutti_meet *m, tutti_error *err);

/* Returns how many ranks have not joined yet; writes as many of them to ranks (may be NULL) as
   fit. */
int tutti_meet_missing(const tutti_meet *m, int *ranks, int room);

/* Have all ranks joined and received the table? */
bool tutti_meet_complete(const tutti_meet *m);

/* ---- state of the ranks ---- */
typedef enum {
    TUTTI_MEET_ABSENT,
    TUTTI_MEET_RUNNING,
    TUTTI_MEET_LEFT,             /* in order */
    TUTTI_MEET_FAILED,           /* left a failure report */
    TUTTI_MEET_LOST              /* its connection ended, it fell silent, or the launcher reported
                                    it */
} tutti_meet_state;
typedef struct tutti_meet_rank {
    tutti_meet_state state;
    int host;                    /* 0, 1, ... by arrival, equal for ranks of one host; -1: absent */
    char host_name[64];          /* its own name for itself; "" */
    char address[64];            /* where it listens, "10.0.0.2:41234" */
    long pid;
    int blame;                   /* FAILED: the rank that caused its failure, or -1 */
    int signal;                  /* LOST: the signal that killed it, if the launcher knows; or 0 */
    tutti_status status;         /* FAILED, LOST */
    int64_t order;               /* FAILED, LOST: 0 for the first of the run, then 1, ... */
    int64_t noticed_ns;          /* FAILED, LOST: when, on the runtime's clock */
    char words[480];             /* FAILED: its failure report; LOST: how */
} tutti_meet_rank;

/* Its contents change only in tutti_meet_progress and tutti_meet_lost. */
const tutti_meet_rank *tutti_meet_rank_of(const tutti_meet *m, int rank);
int tutti_meet_host_of(const tutti_meet *m, int rank); /* = rank_of(rank)->host */

/* The next rank that joined, left, failed or was lost since the last call, once each and in
   order; -1: none. Its new state is in tutti_meet_rank_of. */
int tutti_meet_event(tutti_meet *m);

/* For a launcher to report the end of a rank: a process that has ended (signal or exit code), an
   ssh that returned. All ranks are notified. Nothing changes for a rank that has already sent a
   failure report, or that left in order and did not fail afterwards (signal 0, why->status OK).

   A launcher that has pidfds should call this at once. A lost connection alone is not announced
   for 200 ms, so that "was killed by signal 9" can arrive first. */
void tutti_meet_lost(tutti_meet *m, int rank, const tutti_error *why, int signal);

/* culprit: the rank that caused a failure: one that was killed, else the first that failed by
   itself, else the first that failed because of another. -1: none failed. describe: the sentence
   about a rank. */
int tutti_meet_culprit(const tutti_meet *m);
void tutti_meet_describe(const tutti_meet *m, int rank, char *text, size_t bytes);

/* Number of connections that were not of this run: garbage, too slow, of another run, of another
   key. They are counted, never answered. */
uint64_t tutti_meet_strangers(const tutti_meet *m);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
