/* tutti.h: the public API: distributed training of a client's model. The native trainer and
   bindings are such clients; nothing in the engine knows which one it serves.

     tutti_engine_open(...)
     while (tutti_engine_more_epochs(e, epochs, &more, err) == TUTTI_OK && more) {
         while (tutti_engine_pass_begin(e, &pass, err) == TUTTI_OK) { // TUTTI_CLOSED: no more
             load pass.samples samples from (pass.epoch, pass.position), or pass.ids where a method
                 lists them; the last pass.received of them are at pass.given; with pass.again those
                 of the previous pass again (tutti_pass)
             tables with asks_rows: tutti_engine_rows_acquire(e, tensor, ids, n, err)
             forward, unit by unit:
                 tutti_engine_unit_acquire(e, u, false, err)
                 run unit u
                 tutti_engine_unit_release(e, u, false, err)
             backward, unit by unit:
                 tutti_engine_unit_acquire(e, u, true, err)
                 run unit u backward; for each of its tensors:
                     tutti_engine_grad_ready(e, tensor, err)
                 tutti_engine_unit_release(e, u, true, err)
             tutti_engine_pass_end(e, loss_sum, err)
         }
         tutti_engine_step(e, err)
     }
     tutti_engine_finish(e, err)

   *Quiescent*: between steps, when all clients have entered a collective call (save, save_begin,
   eval_begin, finish), the engine quiesces the method's services. They finish their work and stop,
   and no message of theirs is in flight. They resume at the next step.

   Calls must never overlap. They may come from any thread, even from a different one each time,
   as autograd's do. In the comments "client thread" is the thread that makes the call. Two
   transports bind a rank to the thread that opened its world: MPI where it has
   MPI_THREAD_FUNNELED only, and the simulator. A call blocks only if its comment ends with
   "Blocks." After a failure only figures, trace and close are legal. */
#ifndef TUTTI_H
#define TUTTI_H
#include "checkpoint.h"
#include "engine.h"
#endif
