/* ask.h: parts of the exchange that single methods use. Implemented by ask.c, exchange.c, open.c
   and team.c. */
#ifndef TUTTI_ENGINE_EXCHANGE_ASK_H
#define TUTTI_ENGINE_EXCHANGE_ASK_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* tutti_exchange that bypasses the method's codec: sums g uncompressed. The codec's state,
   residuals included, does not change. Requires tutti_exchange_declare. */
tutti_status tutti_exchange_plain(tutti_method *m, tutti_piece *p, double weight, tutti_error *err);

/* How would tutti_exchange encode this worker's gradient, with that weight, if all its pieces
   were exchanged now? For each tensor, in the order of the layout, whole[t] is the squared norm
   of what would be encoded, including what wrappers have retained; sent[t] is that of what would
   be sent, as decoded. Nothing is sent, and the codecs' state does not change. All are NaN for a
   gradient that is not finite, which wrappers pass through. Within the exchange of a step's first
   piece, with `m->whole`. It uses the same views as an exchange: where owners of parts add, those
   parts.

   declare: within declare(), after tutti_exchange_declare. TUTTI_ERR_USAGE where not every
   worker's own gradient is encoded (codec-hierarchy, codec-cost=auto-off), or the codec sums a
   part of it. Tensors that are summed uncompressed count as sent in full. */
tutti_status tutti_exchange_ask_declare(tutti_method *m, tutti_plan *plan, tutti_error *err);
tutti_status tutti_exchange_ask(tutti_method *m, double weight, double *whole, double *sent,
                                tutti_error *err);

/* TUTTI_ERR_NUMBER, naming the tensor, if p->g, which is element p->first of a displacement of the
   whole model, is not finite and so cannot be sent. Any thread. */
tutti_status tutti_exchange_check_displacement(const tutti_method *m, const tutti_piece *p,
                                               tutti_error *err);

/* After tutti_exchange_declare, within declare(): gradients are encoded only once and all-gathered,
   whatever the number of workers: no owner of a part adds and encodes the sum again.
   TUTTI_ERR_USAGE, naming `option` ("requantize=off"), where collective=alltoall requests exactly
   that. */
tutti_status tutti_exchange_once(tutti_method *m, const char *option, tutti_error *err);

/* Within declare(), before tutti_exchange_declare: sums are hierarchical, through the leaders of
   groups of `team` workers (comm.h). The codec, if there is one, is used between leaders, as with
   codec-hierarchy for a run. TUTTI_ERR_USAGE, naming `option`: the run has a codec-hierarchy too,
   or an algorithm for sums over all. */
tutti_status tutti_exchange_teams(tutti_method *m, const char *option, int team, tutti_error *err);
#pragma GCC visibility pop
#endif
