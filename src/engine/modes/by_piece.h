/* by_piece.h: whether pieces can be updated one by one, and a credit that changes (the method
   bytescheduler). Implemented by by_piece.c and pieces.c. */
#ifndef TUTTI_ENGINE_MODES_BY_PIECE_H
#define TUTTI_ENGINE_MODES_BY_PIECE_H
#include "tutti/method/steps.h"
#pragma GCC visibility push(default)

/* The same check, as far as is known by now: for a method that does without where it must. */
tutti_status tutti_by_piece_check(const tutti_method *m, tutti_error *err);

/* Sets m->credit from now on. Under LED worker 0's credit decides how much is in flight. Client
   thread; where pieces have no order or no thread it has no effect. */
void tutti_credit(tutti_method *m, size_t bytes);
#pragma GCC visibility pop
#endif
