/* sample_exchange.h: workers send each other raw samples, and wait for those that arrive (the
   method scadles). Implemented by sample_exchange.c. */
#ifndef TUTTI_ENGINE_MODES_SAMPLE_EXCHANGE_H
#define TUTTI_ENGINE_MODES_SAMPLE_EXCHANGE_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* ---- sample exchange (src/engine/modes/sample_exchange.c) ---- */

/* Within declare(): workers send each other raw samples. A pass has at most `most` samples of
   other workers, and a worker sends any other worker at most `most` of its own in a step.
   TUTTI_ERR_USAGE: the client cannot send samples (engine_options.give). */
tutti_status tutti_samples_send_declare(tutti_method *m, tutti_plan *plan, int64_t most,
                                        tutti_error *err);

/* The class of a sample of the training set, as the client reports it; -1: it has none. */
int tutti_sample_label(const tutti_method *m, uint64_t id);

/* Within pass(), of a step's first pass, at most once per step, on all workers together: sends
   samples between pairs of workers, and sets p->received, p->given and p->samples to include
   those received. The hook must set p->divisor.

   ids: the samples that this worker sends, indexes in the training set; to[w] of them for worker
   w, concatenated by rank. from[w]: how many it receives from worker w. `workers` entries each, 0
   at the own rank. The sent number must equal the expected one: TUTTI_ERR_CORRUPT with both
   numbers where they differ. A worker that expects samples from one that sends it none blocks
   forever; that is not detected. Received samples are ordered by the sender's rank, then in the
   sender's order. A pair with samples sends one message, of sample_bytes per sample; others send
   none. Blocks. */
tutti_status tutti_samples_send(tutti_method *m, tutti_pass *p, const uint64_t *ids,
                                const int64_t *to, const int64_t *from, tutti_error *err);

/* await_samples: called within pass(); waits until the time until_ns of tutti_now_ns, accounted as
   waiting for samples (data_ns of tutti.h). Blocks. declare: within declare(), by a method that
   simulates the arrival of samples. TUTTI_ERR_USAGE: the client has arrivals of its own
   (engine_options.streams), and both waits would be unrelated. */
tutti_status tutti_await_samples_declare(const tutti_method *m, tutti_error *err);
void tutti_await_samples(tutti_method *m, int64_t until_ns);
#pragma GCC visibility pop
#endif
