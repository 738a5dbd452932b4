/* send.h: messages of a run's bookkeeping over ports, for modules above. Implemented in
   message.c. */
#ifndef TUTTI_COLLECTIVE_SEND_H
#define TUTTI_COLLECTIVE_SEND_H
#include "tutti/comm.h"
#pragma GCC visibility push(default)

/* As tutti_send, but tutti_world_sent does not count it: for messages that no method sends, at
   moments that depend on nothing but time (tutti_group.uncounted). */
tutti_status tutti_send_uncounted(tutti_world *world, int to, tutti_port port,
                                  const tutti_header *note, tutti_buffer payload,
                                  tutti_error *err);
#pragma GCC visibility pop
#endif
