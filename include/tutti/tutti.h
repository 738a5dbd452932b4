/* tutti.h: the engine and all below it. Reading order: base, options, runtime, device, transport,
   comm, state, optim, pass, method, calls, steps, engine. Clients that train their own model need
   this header only. Programs that start worker processes themselves need launch.h too. relay.h is
   for codecs whose messages another library sends. */
#include "engine.h"
