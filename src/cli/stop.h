/* stop.h: being asked to end by a signal, of runs that save a checkpoint first. Implemented in
   stop.c. Included by train.c and simulate.c. */
#ifndef TUTTI_CLI_STOP_H
#define TUTTI_CLI_STOP_H
#include "train/train.h"

enum { TUTTI_CLI_STOP_SECONDS = 120 }; /* to save a checkpoint; then the run is ended without one */

/* Installs the handlers, except for signals that are ignored (nohup, a launcher's workers at the
   terminal), and sets io->stop. launched: our launcher has started this process. */
void tutti_cli_handle_signals(tutti_train_io *io, bool launched);
/* Returns the exit code of a rank that a signal has stopped. A rank that received no signal itself
   ends as the others. Our launcher knows the exit code if it sent the signal; if not, the rank that
   received the signal from elsewhere reports it. */
int tutti_cli_code_of_stop(void);
#endif
