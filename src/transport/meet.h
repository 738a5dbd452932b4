/* meet.h: the meeting place of a run over tcp: the server through which the ranks find each other
   and learn of losses. Implemented in tcp/meet.c and tcp/meet_losses.c (the server) and
   tcp/key.c (ids and keys). Included by src/launch, which serves it within the launcher's own loop;
   by the transport tcp, where rank 0 serves it if another launcher has started the ranks
   (TUTTI_MEET_AT_RANK_0=1); and by cli/key.c.

   Every rank connects to the meeting place once, proves that it knows the run's key, reports the
   address at which it listens, and receives the table of all ranks. The connection stays open to
   the end of the run. By it the meeting place learns how a rank ends (departure in order, failure
   report, lost connection, silence), and notifies the others.

   Environment variables of a rank (tutti_launch sets them for its workers):
     TUTTI_RANK, TUTTI_SIZE   its rank and the number of ranks
     TUTTI_MEET               address of the meeting place: "10.0.0.1:29500",
                              "[fe80::1%eth0]:29500", "name:29500", or "unix:NAME" (an abstract
                              socket of this host)
     TUTTI_RUN_ID             32 hexadecimal digits; not secret. Under another launcher it may be
                              absent: it is then made of TUTTI_MEET and that launcher's
                              variables (launch.h)
     TUTTI_RUN_KEY            64 hexadecimal digits
     TUTTI_RUN_KEY_FILE       instead of TUTTI_RUN_KEY: a file with the digits that only its owner
                              may read (0600); both together are refused
     TUTTI_MEET_AT_RANK_0     1: rank 0 serves the meeting place at TUTTI_MEET's port, and the
                              others connect to it */
#ifndef TUTTI_MEET_H
#define TUTTI_MEET_H
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MEET_VARIABLE "TUTTI_MEET"
#define TUTTI_MEET_VARIABLE_ID "TUTTI_RUN_ID"
#define TUTTI_MEET_VARIABLE_KEY "TUTTI_RUN_KEY"
#define TUTTI_MEET_VARIABLE_KEY_FILE "TUTTI_RUN_KEY_FILE"
#define TUTTI_MEET_VARIABLE_AT_0 "TUTTI_MEET_AT_RANK_0"

/* ---- the run's id, and the key (a secret) that its ranks share. The key is never on a command
   line, and is wiped from memory after use. ---- */
typedef struct tutti_run_id { uint8_t bytes[16]; } tutti_run_id;
typedef struct tutti_run_key { uint8_t bytes[32]; } tutti_run_key;
enum { TUTTI_RUN_ID_TEXT = 33, TUTTI_RUN_KEY_TEXT = 65 }; /* bytes as text, the NUL included */

/* ..._make: from the system's entropy. ..._text: writes hexadecimal digits. ..._parse: reads them;
   TUTTI_ERR_USAGE for anything else, NULL included; the message about a key does not repeat its
   text. */
void tutti_run_id_make(tutti_runtime *rt, tutti_run_id *id);
void tutti_run_id_text(const tutti_run_id *id, char text[TUTTI_RUN_ID_TEXT]);
tutti_status tutti_run_id_parse(tutti_run_id *id, const char *text, tutti_error *err);

void tutti_run_key_make(tutti_runtime *rt, tutti_run_key *key);
void tutti_run_key_text(const tutti_run_key *key, char text[TUTTI_RUN_KEY_TEXT]);
tutti_status tutti_run_key_parse(tutti_run_key *key, const char *text, tutti_error *err);
/* Reads a key from a file; refuses one that other users may read or write. */
tutti_status tutti_run_key_read(tutti_run_key *key, const char *path, tutti_error *err);
void tutti_run_key_wipe(tutti_run_key *key); /* not optimised away; accepts NULL */

/* ---- the meeting place. One thread at a time may call it. ---- */
typedef struct tutti_meet tutti_meet;
typedef struct tutti_meet_options {
    /* Address to listen at: "0.0.0.0", "::", "127.0.0.1", a name of this host. "unix": an abstract
       Unix socket whose name the kernel chooses, for ranks of this host only; "unix:NAME": under
       that name, of at most 15 bytes. NULL or "": "0.0.0.0". */
    const char *address;
    int port;                    /* 0: the kernel chooses; ignored with "unix" */
    int size;                    /* number of ranks of the run */
    tutti_run_id id;
    tutti_run_key key;
    int64_t gather_ns;           /* time after opening in which all ranks must join; 0: 5 minutes */
    int64_t silence_ns;          /* peer-timeout: a rank that is silent for longer is lost, unless a
                                    full link explains it; 0: 3 s */
} tutti_meet_options;

/* Opens a meeting place and begins to listen. The options are copied. TUTTI_ERR_IO: the address or
   the port cannot be used, or the limit of open files is too low. TUTTI_ERR_USAGE: a size or port
   out of range. *out is NULL on failure. */
tutti_status tutti_meet_open(tutti_meet **out, tutti_runtime *rt,
                             const tutti_meet_options *options, tutti_error *err);

/* Sends the connected ranks that the meeting place closes in order, as far as that needs no
   waiting, and frees it. Accepts NULL. */
void tutti_meet_close(tutti_meet *m);
int tutti_meet_port(const tutti_meet *m); /* 0: it listens at a Unix socket */

/* Writes the value of TUTTI_MEET for ranks, and returns its length, as snprintf. host: the name or
   address by which those ranks reach this host; ignored with "unix". NULL: the address that the
   meeting place is bound to, which is useless if that is "0.0.0.0" or "::". */
int tutti_meet_where(const tutti_meet *m, const char *host, char *text, size_t bytes);

/* Returns a descriptor for the caller's poll. When it is readable, and at the latest after
   tutti_meet_wait_ns, the caller calls tutti_meet_progress. */
int tutti_meet_fd(const tutti_meet *m);
/* Returns the time from now to the next tutti_meet_progress: at most half a second. */
int64_t tutti_meet_wait_ns(const tutti_meet *m);
/* Does all that can be done without waiting. Returns TUTTI_TIMEOUT once, if ranks are missing when
   gather_ns has passed and no rank has ended before. The message names them. The ranks that have
   joined have been notified, and end by themselves. */
tutti_status tutti_meet_progress(tutti_meet *m, tutti_error *err);

/* Returns how many ranks have not joined yet. Writes the first `capacity` of them to ranks, in
   order. ranks: may be NULL. */
int tutti_meet_missing(const tutti_meet *m, int *ranks, int capacity);

/* Have all ranks joined and received the table? */
bool tutti_meet_complete(const tutti_meet *m);

/* ---- state of the ranks ---- */
typedef enum {
    TUTTI_MEET_ABSENT,           /* has not joined */
    TUTTI_MEET_RUNNING,
    TUTTI_MEET_LEFT,             /* left in order */
    TUTTI_MEET_FAILED,           /* sent a failure report */
    TUTTI_MEET_LOST              /* its connection ended, it was silent, another rank expelled it,
                                    or the launcher reported it */
} tutti_meet_state;
typedef struct tutti_meet_rank {
    tutti_meet_state state;
    int host;                    /* 0, 1, ... by arrival, equal for ranks of one host; -1: absent */
    char host_name[64];          /* name of its host, as it reports it; "": absent */
    char address[64];            /* where it listens: "10.0.0.2:41234", "unix:NAME"; "": absent */
    long pid;                    /* on its host; 0: absent */
    int blame;                   /* FAILED: the rank that caused its failure, or -1 */
    int signal;                  /* LOST: the signal that killed it; 0: none, or not known */
    tutti_status status;         /* FAILED: of its failure report; LOST: TUTTI_ERR_... */
    int64_t order;               /* FAILED, LOST: its number among such ranks: 0, 1, ... */
    int64_t noticed_ns;          /* FAILED, LOST: when that was noticed, on the runtime's clock */
    char reason[480];            /* FAILED: its failure report; LOST: how it was lost */
} tutti_meet_rank;

/* Returns the state of a rank, valid until close. It changes in tutti_meet_progress and
   tutti_meet_lost only. */
const tutti_meet_rank *tutti_meet_rank_of(const tutti_meet *m, int rank);
int tutti_meet_host_of(const tutti_meet *m, int rank); /* tutti_meet_rank_of(m, rank)->host */

/* Returns the next rank that has joined, left, failed or been lost, one change a call, in order of
   the changes; -1: none. tutti_meet_rank_of has its present state. */
int tutti_meet_event(tutti_meet *m);

/* The launcher reports that the process of a rank has ended. signal: the one that killed it; 0:
   none. why: the reason; NULL, or with status OK, and signal 0: it ended in order. All ranks are
   notified. Nothing changes for a rank that has failed or is lost already, or if it left in order
   and its process ended in order.

   A launcher should call this as soon as it knows. The end of a connection alone is not announced
   for 200 ms, so that "was killed by signal 9" can arrive first. */
void tutti_meet_lost(tutti_meet *m, int rank, const tutti_error *why, int signal);

/* Returns the rank that caused the failure of the run: the first that was killed by a signal, else
   the first that failed by itself, else the first that failed because of another. -1: none has
   failed or is lost. */
int tutti_meet_culprit(const tutti_meet *m);
/* Writes a sentence about how a rank ended: "worker 2 was lost: ...". */
void tutti_meet_describe(const tutti_meet *m, int rank, char *text, size_t bytes);

/* Returns the number of callers that were turned away without an answer: another key or run, no
   handshake, too slow. */
uint64_t tutti_meet_strangers(const tutti_meet *m);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
