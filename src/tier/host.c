/* host.c: the tier `host`: memory of this process, counted. A request is a copy, made by the
   thread that posts it. Callers that need no copy work at the address. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "tier_internal.h"
#include "runtime/files.h"
#include "tier/tier.h"
#include "base/machine.h"

typedef struct host { void *memory; } host;

static tutti_status host_open(tutti_tier *t, tutti_error *err)
{
    const size_t have = tutti_machine_bytes();
    host *h = t->self;

    /* The kernel hands out more than there is, and kills a process when it is used. */
    if (t->bytes > have)
        return tutti_fail(
            err, TUTTI_ERR_MEMORY, 0,
            "%" PRIu64 " bytes are needed and this process may have %zu; use more workers, or nvme",
            t->bytes, have);
    return tutti_arena_take(t->arena, "tier host", (size_t)t->bytes, TUTTI_FILE_BLOCK, &h->memory,
                            err);
}

static void host_close(tutti_tier *t)
{
    host *h = t->self;

    tutti_arena_give(t->arena, h->memory);
}

static void host_post(tutti_tier *t, tutti_io *io)
{
    host *h = t->self;
    char *const here = (char *)h->memory + io->at;

    memcpy(io->write ? here : io->memory, io->write ? io->memory : here, io->bytes);
    tutti_lock(t->monitor);
    tutti_tier_ended(t, io);
    tutti_unlock(t->monitor);
}

static int host_describe(tutti_tier *t, char *out, size_t bytes)
{
    return snprintf(out, bytes, "host: %.1f MiB of memory", (double)t->bytes / (1 << 20));
}

static void *host_address(tutti_tier *t)
{
    host *h = t->self;

    return h->memory;
}

const tier_ops tutti_tier_host = {
    .kind = &tutti_tiers[0],
    .self_bytes = sizeof(host),
    .open = host_open,
    .close = host_close,
    .post = host_post,
    .describe = host_describe,
    .address = host_address,
};
