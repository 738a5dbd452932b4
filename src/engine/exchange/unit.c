/* unit.c: what the files of an exchange share: buffers that grow, the codec that encodes, and
   what a wrapper accounts for. */
#include <errno.h>

#include "exchange_internal.h"

tutti_status tutti_exchange_grow(tutti_exchange_buffer *buffer, size_t count, size_t size,
                                 tutti_error *err)
{
    size_t bytes;
    void *more;

    if (!tutti_size_mul(count, size, &bytes))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "a piece of %zu x %zu bytes does not fit in this machine's addresses",
                          count, size);
    if (bytes <= buffer->bytes)
        return TUTTI_OK;
    more = tutti_alloc(bytes, 1);
    if (more == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "no memory for the %zu bytes that a piece needs on its way through the "
                          "codec; use smaller buckets",
                          bytes);
    tutti_free(buffer->at);
    *buffer = (tutti_exchange_buffer){ more, bytes };
    return TUTTI_OK;
}

bool tutti_exchange_is_message(const tutti_codec *c)
{
    return c->ops->rounds == 0;
}

const tutti_codec *tutti_exchange_leaf(const tutti_codec *c, bool (*is)(const tutti_codec *c))
{
    const tutti_codec *found = c->ops->choose == NULL && is(c) ? c : NULL;

    for (size_t i = 0; found == NULL && i < TUTTI_LENGTH(c->inner); i++)
        if (c->inner[i] != NULL)
            found = tutti_exchange_leaf(c->inner[i], is);
    return found;
}

float tutti_exchange_account(const tutti_exchange_unit *u, int wrapper, const tutti_view *v,
                             float **into)
{
    tutti_codec *c = u->wrapper[wrapper];

    *into = NULL;
    return c->ops->account != NULL ? c->ops->account(c, v, into) : 0;
}
