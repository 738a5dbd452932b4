/* json.h: what readers of JSON files share (placement/file.c, train/measured.c). */
#ifndef TUTTI_BASE_JSON_H
#define TUTTI_BASE_JSON_H
#include <jansson.h>
#include <stddef.h>
#pragma GCC visibility push(default)

/* Returns the first member of the object whose name is not one of `names`, which ends with NULL;
   NULL: there is none. near, of `bytes`: what tutti_suggest says of it. */
const char *tutti_base_json_unknown(json_t *object, const char *const *names, char *near,
                                    size_t bytes);
#pragma GCC visibility pop
#endif
