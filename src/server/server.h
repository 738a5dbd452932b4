/* server.h: calls of servers that single methods and the parts of this module use, beside those of
   tutti/method/server.h. Those of a rule run on its thread. */
#ifndef TUTTI_SERVER_SERVER_H
#define TUTTI_SERVER_SERVER_H
#include "tutti/method/server.h"
#include "kernels/compensate.h"
#pragma GCC visibility push(default)

/* Ranks that take the place of a server that is lost (standby.c). For methods with one server that
   keeps values, and TUTTI_FAULT_TOLERANT.

   The server is the first rank in an order that is not lost: the ranks that serve without losses,
   then `ranks` workers, ascending. The next one in that order is the standby. All of them declare
   what a server declares, begin with the same state and load it. The rule applies an update to its
   values, sends it to the standby (tutti_server_copy), and only then lets any worker see it. So a
   standby that takes the server's place has all that any worker has seen. Where the loss makes
   another rank the standby, it is sent all SLICE states.

   copied: on the standby's thread: makes the update that `values` (the elements of the shard; NULL:
   there is none) and the note describe, as the server has made it. write: writes the note, of
   note_bytes. Both parts of the method's state that are no SLICE, and counts, belong there. */
typedef struct tutti_server_standby {
    int ranks;                   /* how many workers may take the server's place */
    size_t note_bytes;
    void (*write)(tutti_method *m, void *note);
    tutti_status (*copied)(tutti_method *m, float *values, const void *note, tutti_error *err);
} tutti_server_standby;
/* tutti_server_declare with standbys. Where no run continues after losses there are none. */
tutti_status tutti_server_declare_standby(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                          const tutti_server_setup *setup,
                                          const tutti_server_standby *standby, tutti_error *err);
/* For a rule: sends the standby, if there is one, an update that has been applied to the values:
   its `values` (this whole shard; NULL: none), and the note. Blocks until the standby has it. */
tutti_status tutti_server_copy(tutti_server *s, const float *values, tutti_error *err);
/* Returns whether a push has failed because its server is lost, and another rank serves now: make
   it again. What it was to send may have been overwritten, and `into` is undefined. */
bool tutti_server_moved(const tutti_server *s, tutti_status status, const tutti_error *err);
/* Returns whether this rank is the server now, and not a standby. While services rest. */
bool tutti_server_is_here(const tutti_server *s);
/* Returns the rank that serves without losses. */
int tutti_server_original(const tutti_server *s);

/* Within declare(), after tutti_server_declare, for rules that do not keep replicas equal:
   declares a counter per shard, at *slot where this worker serves (else NULL), 0 at first. When a
   checkpoint with other shards is loaded, it becomes the largest of the shards that it overlaps.
   So use it for a count that is equal on all shards when the run is quiescent. */
void tutti_server_declare_count(tutti_server *s, tutti_plan *plan, const char *name,
                                int64_t **slot);
/* May an `in` arrive that does not stay, as in half precision? If not, a rule needs no memory to
   keep one. From declare() on. */
bool tutti_server_keeps(const tutti_server *s);
int tutti_server_count(const tutti_server *s); /* S */

/* The version of shard 0 that this worker has. Client thread. */
uint64_t tutti_server_got(const tutti_server *s);

/* This worker has received that version by other means than push: the delay of its next request
   counts from it. Client thread. */
void tutti_server_took(tutti_server *s, uint64_t version);

/* For an exchange hook, on its thread: sends the piece's gradient to its servers, and overwrites
   it with their replies. */
tutti_status tutti_server_exchange(tutti_server *s, const tutti_piece *p, int64_t b,
                                   tutti_error *err);

/* Figures of this process so far. Read them while no exchange is in progress, and the `served`
   ones while the run is quiescent. hidden_seconds needs tutti_server_sums_watch. */
typedef struct tutti_server_sums_figures {
    int under_way_most;          /* pieces in flight at a time */
    double under_way_mean;       /* mean of that while there were any */
    double trip_seconds, trip_seconds_most; /* from sending to servers until all have replied */
    double busy_seconds;         /* pieces were in flight */
    double hidden_seconds;       /* of that, while the client computed */
    int server;                  /* index of this rank's server; -1: none */
    double imbalance;            /* largest ratio of a server's bytes of all pieces to its part */
    uint64_t served_bytes, sums; /* of this rank's sums: their bytes, as sent to one worker, and
                                    their number */
} tutti_server_sums_figures;
void tutti_server_sums_figures_of(const tutti_server_sums *s, tutti_server_sums_figures *f);

/* Replaces the stale gradient r->in (not NULL; setup.reads) by a first-order estimate of the
   gradient at the current values (delay compensation, tutti_compensate). The stale values are
   those that the worker last received; for tables, rows as of the worker's last request for them.
   mean: this whole shard, or NULL; of tables it changes only where r->in has rows. */
void tutti_server_compensate(tutti_server *s, const tutti_server_request *r,
                             const tutti_compensation *c, float *mean);

/* Returns the tree sum of weights[k] parts[k], each an `in` of a request about r's shard: in
   parts[0] or in the server's memory, valid until the next reply. *words: its length, as of an
   `in`. The bits are those of a sum of full vectors. */
float *tutti_server_sum(tutti_server *s, const tutti_server_request *r, int n, float *const *parts,
                        const float *weights, size_t *words);

/* Replies to the n requests that brought parts[0 .. n), in any order, with that sum; each part is
   overwritten. If all of them `stay`, none is copied. */
tutti_status tutti_server_answer_sum(tutti_server *s, const tutti_server_request *r,
                                     const tutti_header *requests, int n, uint32_t kind,
                                     float *const *parts, const float *weights, tutti_error *err);

/* Upper bound of the `words` of a request about this server's part of a range. */
size_t tutti_server_words(const tutti_server *s, size_t first, size_t count);

/* By how much that may exceed the even part of a range, from declare() on. */
size_t tutti_server_slack(const tutti_method *m);

/* values := a v + (1 - a) values, where v is this whole shard; increments the version. With a = 1
   the result is v, to the bit. */
void tutti_server_blend(tutti_server *s, float a, const float *v);

/* The rule has written to the values: increments the version. */
void tutti_server_changed(tutti_server *s);

/* tutti_server_update, then tutti_server_give; where possible the values are copied to the
   replies while they are in cache. */
tutti_status tutti_server_update_give(tutti_server *s, const float *g, const tutti_rate *rate,
                                      const tutti_header *requests, int n, uint32_t kind,
                                      tutti_error *err);

/* tutti_server_give to n + late requests: the first n are of workers that have the previous
   version, the `late` others come after them. along (`words` floats) is the gradient of the last
   update. Of tables only its rows have changed, so the first n are sent only those. It is
   overwritten. */
tutti_status tutti_server_give_update(tutti_server *s, const tutti_header *requests, int n,
                                      int late, uint32_t kind, float *along, size_t words,
                                      tutti_error *err);

/* Replies with a payload as long as the shard, instead of its values, and with the shard's
   version. */
tutti_status tutti_server_give_own(tutti_server *s, const tutti_header *requests, int n,
                                   uint32_t kind, float *payload, tutti_error *err);

/* Sends a request to that service of a worker (setup.tells): this shard of values as it is now,
   and its version in the header's a. The reply is empty and not waited for. *told: false, and
   nothing is sent, while that worker has not replied to the previous one, or if it is lost. */
tutti_status tutti_server_tell(tutti_server *s, int service, int worker, bool *told,
                               tutti_error *err);
#pragma GCC visibility pop
#endif
