/* meet.h: the meeting place of a run over tcp. Every rank comes here once, shows that it knows the run's key, tells where it listens, gets the table of all
   ranks, and keeps the connection for the run's life: through it the meeting place hears of ends (last words, lost connections, silence) and tells the others.
   A launcher serves one beside its own loop; among ranks that were started by somebody else rank 0 does (TUTTI_MEET_AT_RANK_0=1), inside the transport.

   What a rank finds in its environment (of tutti_launch; the transport `tcp` reads it, nothing else does):
     TUTTI_RANK, TUTTI_SIZE            its place
     TUTTI_MEET                        where: "10.0.0.1:29500", "[fe80::1%eth0]:29500", "name:29500", or "unix:NAME" (an abstract socket of this host: tutti_meet_where)
     TUTTI_RUN_ID                      32 hexadecimal digits; not secret. Where the launcher is not ours it may be left out: the place is made of TUTTI_MEET and the launcher's words (launch.h)
     TUTTI_RUN_KEY or TUTTI_RUN_KEY_FILE   64 hexadecimal digits, or a file of them that only its owner may read (0600); both: refused
     TUTTI_MEET_AT_RANK_0              1: rank 0 serves the meeting place at TUTTI_MEET's port, the others go there */
#ifndef TUTTI_MEET_H
#define TUTTI_MEET_H
#include "runtime.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MEET_VARIABLE "TUTTI_MEET"
#define TUTTI_MEET_VARIABLE_ID "TUTTI_RUN_ID"
#define TUTTI_MEET_VARIABLE_KEY "TUTTI_RUN_KEY"
#define TUTTI_MEET_VARIABLE_KEY_FILE "TUTTI_RUN_KEY_FILE"
#define TUTTI_MEET_VARIABLE_AT_0 "TUTTI_MEET_AT_RANK_0"

/* ---- which run, and the secret its ranks share. Never on a command line; wiped when done with. ---- */
typedef struct tutti_run_id { uint8_t bytes[16]; } tutti_run_id;
typedef struct tutti_run_key { uint8_t bytes[32]; } tutti_run_key;
enum { TUTTI_RUN_ID_TEXT = 33, TUTTI_RUN_KEY_TEXT = 65 };              /* bytes of the texts, the NUL included */
void tutti_run_id_make(tutti_runtime *rt, tutti_run_id *id);           /* from the system's entropy */
void tutti_run_id_text(const tutti_run_id *id, char text[TUTTI_RUN_ID_TEXT]);
tutti_status tutti_run_id_parse(tutti_run_id *id, const char *text, tutti_error *err);
void tutti_run_key_make(tutti_runtime *rt, tutti_run_key *key);
void tutti_run_key_text(const tutti_run_key *key, char text[TUTTI_RUN_KEY_TEXT]);
tutti_status tutti_run_key_parse(tutti_run_key *key, const char *text, tutti_error *err); /* the sentence does not repeat the text */
tutti_status tutti_run_key_read(tutti_run_key *key, const char *path, tutti_error *err);  /* refuses a file that others may read or write */
void tutti_run_key_wipe(tutti_run_key *key);                           /* cannot be optimised away; takes NULL */

/* ---- the meeting place: one thread at a time ---- */
typedef struct tutti_meet tutti_meet;
typedef struct tutti_meet_options {
    const char *address;         /* to bind: "0.0.0.0", "::", "127.0.0.1", a name of this host; "unix": no port at all, for ranks of this host only. NULL: "0.0.0.0" */
    int port;                    /* 0: the kernel chooses */
    int size;                    /* ranks of the run */
    tutti_run_id id;
    tutti_run_key key;           /* copied */
    int64_t gather_ns;           /* how long, from open, until all must have come; 0: 5 minutes */
    int64_t silence_ns;          /* of a rank that is then taken for lost; 0: 3 s */
} tutti_meet_options;
/* Allocates. TUTTI_ERR_IO: the address or the port cannot be had; the sentence says which and why. */
tutti_status tutti_meet_open(tutti_meet **out, tutti_runtime *rt, const tutti_meet_options *options, tutti_error *err);
/* Tells who is still connected that the meeting place closes in order; waits for nobody. Takes NULL. */
void tutti_meet_close(tutti_meet *m);
int tutti_meet_port(const tutti_meet *m);                              /* 0: unix */
/* The value of TUTTI_MEET for ranks of this host or of another: `host` is how they reach this one (a name or an address, NULL: the address bound to;
   of no use after "0.0.0.0" or "::"); ignored with "unix". Gives strlen, as snprintf. */
int tutti_meet_where(const tutti_meet *m, const char *host, char *text, size_t bytes);

/* To be polled for reading beside one's own descriptors; then, and at least every tutti_meet_wait_ns, progress is called: it does what can be done without
   waiting. Gives TUTTI_TIMEOUT once, when gather_ns has passed and ranks are missing: the sentence names them, those that came have been told the same and end by themselves. */
int tutti_meet_fd(const tutti_meet *m);
int64_t tutti_meet_wait_ns(const tutti_meet *m);                       /* from now; at most half a second */
tutti_status tutti_meet_progress(tutti_meet *m, tutti_error *err);

/* Ranks that have not come yet: how many; the first `room` of them to ranks (may be NULL). */
int tutti_meet_missing(const tutti_meet *m, int *ranks, int room);
bool tutti_meet_complete(const tutti_meet *m);                         /* all came, and the table was handed out */

typedef enum { TUTTI_MEET_ABSENT, TUTTI_MEET_RUNNING, TUTTI_MEET_LEFT, TUTTI_MEET_FAILED, TUTTI_MEET_LOST } tutti_meet_state;
typedef struct tutti_meet_rank { /* what is known of one rank */
    tutti_meet_state state;      /* LEFT: in order; FAILED: left last words; LOST: its connection ended, it fell silent, or the launcher said so */
    int host;                    /* 0, 1, ... in order of arrival, ranks of one host alike; -1: has not come */
    char host_name[64];          /* as it calls itself; "" */
    char address[64];            /* where it listens, "10.0.0.2:41234" */
    long pid;
    int blame;                   /* FAILED: the rank it failed because of, or -1 */
    int signal;                  /* LOST: that killed it, where the launcher knows; or 0 */
    tutti_status status;         /* FAILED, LOST */
    int64_t order;               /* FAILED, LOST: 0 for the first of the run, then 1, ... */
    int64_t noticed_ns;          /* FAILED, LOST: when, on the runtime's clock */
    char words[480];             /* FAILED: its last words; LOST: how */
} tutti_meet_rank;
const tutti_meet_rank *tutti_meet_rank_of(const tutti_meet *m, int rank); /* its contents change in progress and lost only */
int tutti_meet_host_of(const tutti_meet *m, int rank);                 /* = rank_of(rank)->host */

/* The next rank that came, left, failed or was lost since the last call, once each and in order; -1: none. What happened is in tutti_meet_rank_of. */
int tutti_meet_event(tutti_meet *m);

/* What the launcher knows of an end: a process that is gone (signal or exit code), an ssh that came back. Handed on to all ranks. Of a rank that has said
   last words already, or left in order and did not fail afterwards (signal 0, why->status OK), nothing changes. A launcher that has pidfds should call this at once:
   a lost connection alone is not announced for 200 ms, so that "was killed by signal 9" can come first. */
void tutti_meet_lost(tutti_meet *m, int rank, const tutti_error *why, int signal);
/* Whom a failure is about: a rank that was killed, else the first that failed by itself, else the first echo; -1: nobody failed. And the sentence about a rank. */
int tutti_meet_culprit(const tutti_meet *m);
void tutti_meet_describe(const tutti_meet *m, int rank, char *text, size_t bytes);

/* Connections that came and were not of this run: garbage, slow, of another run, of another key; counted, never answered. */
uint64_t tutti_meet_strangers(const tutti_meet *m);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
