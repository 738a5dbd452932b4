/* locks.h: locks of a vector in memory that all workers share, for asynchronous updates in place
   (the method asgd). Implemented by locks.c. */
#ifndef TUTTI_ENGINE_LOCKS_H
#define TUTTI_ENGINE_LOCKS_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* Locks of a vector of the layout in memory that all workers share (tutti_world_common), each a
   word of that memory, 0 at first (src/engine/locks.c). With `rows` there is one lock per row of
   each matrix or table and one per vector, in the order of the tensors, else a single lock. A
   lock is held for an update or a copy; one held by a lost worker is taken over. Client thread. */
typedef struct tutti_locks { uint32_t *word; bool rows; } tutti_locks;
size_t tutti_locks_count(const tutti_method *m, bool rows);       /* words */
void tutti_locks_take(const tutti_method *m, uint32_t *word);
void tutti_locks_leave(uint32_t *word);

/* tutti_base_step_on, each part of the update under its lock. */
tutti_status tutti_base_step_locked(tutti_method *m, float *x, const tutti_locks *locks,
                                    tutti_error *err);

/* m->x := from (n elements), each part under its lock, except tables whose rows are requested
   (asks_rows). */
void tutti_locked_read(tutti_method *m, const tutti_locks *locks, const float *from);

/* The same for the n rows ids of such a table. */
void tutti_locked_read_rows(tutti_method *m, const tutti_locks *locks, const float *from,
                            int tensor, const uint32_t *ids, size_t n);
#pragma GCC visibility pop
#endif
