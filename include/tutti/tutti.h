/* tutti.h: the engine and all below it. Reading order: base, options, runtime, device, transport, comm, state, optim, method, engine.
   Clients that train their own model need this header only; nn.h, data.h and launch.h are for those who want the parts of
   the native trainer too. */
#include "engine.h"
