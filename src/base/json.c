/* json.c: see json.h. */
#include "base/json.h"

#include <string.h>

#include "base_internal.h"

const char *tutti_base_json_unknown(json_t *object, const char *const *names, char *near,
                                    size_t bytes)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        size_t n = 0;
        while (names[n] != NULL && strcmp(names[n], key) != 0)
            n++;
        if (names[n] != NULL)
            continue;
        tutti_suggest(key, names, n, near, bytes);
        return key;
    }
    return NULL;
}
