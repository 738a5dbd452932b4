/* rounds.h: a step that is a round of local steps (periodic methods with logical shares).
   Implemented by rounds.c. */
#ifndef TUTTI_ENGINE_MODES_ROUNDS_H
#define TUTTI_ENGINE_MODES_ROUNDS_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* ---- rounds of local steps (src/engine/modes/rounds.c) ---- */

typedef struct tutti_rounds tutti_rounds;

/* Within declare(), of methods that have TUTTI_LOGICAL_SHARES without TUTTI_REPLICAS_EQUAL. With
   engine_options.elastic_shares a step is a round. Each share begins with the common model and
   makes `repeats` steps of the run's optimiser, whose slots begin at 0. What it comes to, its model
   or with `displaced` start - x, is exchanged as if it were a gradient, by tutti_base_exchange.
   Then step() calls tutti_rounds_end, which asks whether the round is to be made: so the method
   changes state of its own only after that. *out: NULL: there are no logical shares, and steps are
   as ever. */
tutti_status tutti_rounds_declare(tutti_rounds **out, tutti_method *m, tutti_plan *plan,
                                  bool displaced, tutti_error *err);

/* before(m) is called before the update of each local step. m->x is the model of the share, where
   the gradient was computed. Within declare(). */
void tutti_rounds_before_update(tutti_rounds *s,
                                tutti_status (*before)(tutti_method *m, tutti_error *err));

/* [n]: the model with which the round began, from open on. After tutti_rounds_end it may change. */
float *tutti_rounds_start(const tutti_rounds *s);

/* In place of tutti_base_step. x := the mean of the shares' models; or with `displaced` the model
   with which the round began, and g has the mean displacement. TUTTI_ERR_PEER: the round is not
   made, as in tutti_base_check. */
tutti_status tutti_rounds_end(tutti_rounds *s, tutti_error *err);
#pragma GCC visibility pop
#endif
