/* conformance_memory.h: for programs of the suite that are linked with --wrap=tutti_alloc. */
#ifndef TUTTI_TESTS_CONFORMANCE_MEMORY_H
#define TUTTI_TESTS_CONFORMANCE_MEMORY_H
#include <stdbool.h>
void conformance_starve(bool on); /* conformance_subject.starve */
#endif
