/* read.h: how a checkpoint is read. Implemented in read.c. */
#ifndef TUTTI_STATE_READ_H
#define TUTTI_STATE_READ_H
#include "tutti/files.h"
#pragma GCC visibility push(default)

/* The caller is the only process of its host that reads this checkpoint. Large files of it are then
   read past the page cache, by which workers of a host share what one of them has read. */
void tutti_checkpoint_alone(tutti_checkpoint *c);
#pragma GCC visibility pop
#endif
