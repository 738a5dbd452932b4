/* pipe.h: slots and counts of a pipe. Implemented by pipe.c. */
#ifndef TUTTI_PIPELINE_PIPE_H
#define TUTTI_PIPELINE_PIPE_H
#include "tutti/method/pipeline.h"
#pragma GCC visibility push(default)

/* Most micro-batches that a rank of that stage has between forward and backward: as many as keep
   it busy while the first of them goes to the last stage and back, if all stages are equally
   fast. That is the sum of the widths from that stage on divided by its own, rounded up, and at
   most in_flight. */
int tutti_pipe_slots(const tutti_pipe_options *options, int stage);

/* Numbers of messages and bytes that this rank has sent. */
void tutti_pipe_sent(const tutti_pipe *pipe, uint64_t *messages, uint64_t *bytes);
#pragma GCC visibility pop
#endif
