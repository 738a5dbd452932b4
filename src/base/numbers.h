/* numbers.h: numbers within a text that is not an option's whole value, such as the rates of
   r0:r1:... Implemented in numbers.c. */
#ifndef TUTTI_BASE_NUMBERS_H
#define TUTTI_BASE_NUMBERS_H
#include <stdbool.h>
#pragma GCC visibility push(default)

/* Reads the number that begins a text, [+-]digits[.digits][e[+-]digits] with '.' in every locale:
   as the value of an option is read. *end: behind it. false: none begins it, or one of more than
   127 characters. */
bool tutti_number_begins(const char *text, double *out, const char **end);
#pragma GCC visibility pop
#endif
