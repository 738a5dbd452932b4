/* registry.h: what the tutti command asks about built-in methods. Implemented by registry.c and,
   for defaults, by the engine. */
#ifndef TUTTI_METHOD_REGISTRY_H
#define TUTTI_METHOD_REGISTRY_H
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* Does the row add to a given value of its option? */
bool tutti_method_default_completes(const tutti_method_default *row);

/* Do both specs have the same built-in method and, as far as checkpoints require
   (tutti_method_ops), the same options? false where one is wrong. Allocates. */
bool tutti_method_alike(const char *spec, const char *other);

/* What `settles` of that method returns; 0 where the spec is wrong. Allocates. */
uint64_t tutti_method_settles(const char *spec, uint64_t steps, uint64_t epoch);

/* What `repeats` of that method returns, and 1 in place of 0 or without it; 1 where the spec is
   wrong. Allocates. */
uint64_t tutti_method_repeats(const char *spec);
#pragma GCC visibility pop
#endif
