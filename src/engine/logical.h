/* logical.h: logical shares: a step whose bits do not depend on the number of workers. Included by
   declare.c; implemented by logical.c, which has the rule. */
#ifndef TUTTI_ENGINE_LOGICAL_H
#define TUTTI_ENGINE_LOGICAL_H
#include "tutti/tutti.h"

#pragma GCC visibility push(default)     /* for modules, not exported by the library */

/* Within declare, once method and codec are declared: adds the facility if the run asks for it
   (engine_options.elastic_shares). TUTTI_ERR_USAGE: method or options do not allow it. */
tutti_status tutti_engine_logical_declare(tutti_engine *e, tutti_error *err);

#pragma GCC visibility pop
#endif
