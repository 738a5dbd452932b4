/* tables.h: tables at servers, which keep and update them (the method parallax). Implemented by
   tables.c. */
#ifndef TUTTI_SERVER_TABLES_H
#define TUTTI_SERVER_TABLES_H
#include "tutti/method/server.h"
#pragma GCC visibility push(default)

/* ---- tables at servers (src/server/tables.c) ----

   Shared by methods that send tables by rows to servers, which keep and update them, and that
   exchange all other tensors among the workers. A table is at the servers if its rows are
   requested (asks_rows) and there are several workers: then server k keeps its part of the
   table's values and of the run's optimiser. x and m->optim of a worker still contain the table,
   as it was when the run was last quiescent, except for the rows that were fetched since. An
   update at the workers (tutti_base_step) does not change it.

     lane       tutti_server_push_rows: the rows of a table's gradient, to the servers of each
     server     once all have pushed: their sum, in the fixed order of summation, and one step of
                the optimiser along it. Only then does it reply
     client     tutti_server_need_rows, before a pass reads them

   So a worker that reads has pushed: it reads all pushes of the step before and none of this one.
   The bits are those of tutti_exchange and tutti_base_step, however rows are partitioned.

   Checkpoints. Before one is saved the servers' parts are copied to x and m->optim of all workers,
   and after a load servers take theirs from there. So a checkpoint does not depend on servers, and
   any number of workers and servers can load it. The copy is also made before an evaluation and at
   the end.

   A push and a pull get one reply from each server that has a part. Every loss ends the run. */
typedef struct tutti_server_tables tutti_server_tables;
enum { TUTTI_SERVER_CHUNKS = 64 };

/* Within declare(), for tutti_server_run, tutti_server_count and _index. node: workers of
   consecutive ranks that push as one (push_rows); a power of two, or all. TUTTI_ERR_USAGE: more
   servers than workers; and where a table is at servers: options that need the whole gradient, or
   a vote of all workers, before an update (clip-norm, nonfinite=skip, loss-scale), or the
   client's own optimiser. */
tutti_status tutti_server_tables_declare(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                         int service, int servers, int node, tutti_error *err);

/* Is the table at servers? From declare() on. */
bool tutti_server_has_table(const tutti_server *s, int tensor);

/* For an exchange hook, of a piece that is such a table: sends its rows of g, times `weight`, to
   the servers. chunks: number of messages, each of whole rows, into which each server's part is
   split, from 1 to TUTTI_SERVER_CHUNKS, the same on all workers in a step; at most one per row.
   Workers of a node sum their rows among themselves, the first of them pushes, and the others
   wait for it. Blocks until the servers have updated. */
tutti_status tutti_server_push_rows(tutti_server *s, tutti_piece *p, float weight, int chunks,
                                    tutti_error *err);

/* Within pass(), of a step's first pass, on all workers in the same step: moves the table from
   the servers to x and m->optim; the workers exchange and update it from this step on. Blocks;
   exposed time. Checkpoints record it. */
tutti_status tutti_server_take_table(tutti_server *s, int tensor, tutti_error *err);
#pragma GCC visibility pop
#endif
