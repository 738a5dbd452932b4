/* tier.c: what all tiers share: parsing the spec, checking the bounds of requests, waiting for
   them, counting bytes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "tier_internal.h"
#include "tier/tier.h"

const struct tutti_tier_kind tutti_tiers[] = {
    { "host", "memory of this process", NULL },
    { "nvme", "a file on a disk, past the page cache", tutti_tier_nvme_options },
    { 0 },
};
static const tier_ops *const all[] = { &tutti_tier_host, &tutti_tier_nvme };

static tutti_status unknown(const char *name, tutti_error *err)
{
    const char *names[TUTTI_LENGTH(all)];
    char near[160];

    for (size_t k = 0; k < TUTTI_LENGTH(all); k++)
        names[k] = tutti_tiers[k].name;
    tutti_suggest(name, names, TUTTI_LENGTH(all), near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "unknown tier '%.60s'%s (there are host and nvme(path=DIR))", name, near);
}

tutti_status tutti_tier_open(tutti_tier **out, tutti_runtime *rt, const char *spec, uint64_t bytes,
                             tutti_arena *arena, tutti_error *err)
{
    tutti_tier *t = tutti_alloc(1, sizeof *t);
    char what[40];
    tutti_status status;

    *out = NULL;
    if (t == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening tier '%.100s'", spec);
    t->rt = rt;
    t->bytes = bytes;
    t->arena = arena;
    t->block = 1;
    status = tutti_fail_within(err, tutti_spec_open(&t->spec, spec, err), "tier");
    if (status != TUTTI_OK)
        goto out;
    for (size_t k = 0; k < TUTTI_LENGTH(all) && t->ops == NULL; k++)
        if (strcmp(tutti_tiers[k].name, tutti_spec_name(t->spec)) == 0)
            t->ops = all[k];
    if (t->ops == NULL) {
        status = unknown(tutti_spec_name(t->spec), err);
        goto out;
    }
    snprintf(what, sizeof what, "tier '%s'", t->ops->kind->name);
    if (bytes == 0 || bytes > INT64_MAX) {
        status =
            tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s holds 1 to %" PRId64 " bytes, not %" PRIu64,
                       what, INT64_MAX, bytes);
        goto out;
    }
    if (arena == NULL)
        status = tutti_arena_open(&t->own, rt, what, "", TUTTI_UNBOUNDED, err);
    if (status == TUTTI_OK)
        status = tutti_monitor_open(&t->monitor, rt, err);
    if (status == TUTTI_OK)
        status = tutti_options_check(t->ops->kind->options, what, t->ops->self_bytes, err);
    if (status == TUTTI_OK && (t->self = tutti_alloc(1, t->ops->self_bytes)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening %s", what);
    if (status == TUTTI_OK)
        status = tutti_spec_apply(t->spec, what, t->ops->kind->options, t->self, err);
    if (arena == NULL)
        t->arena = t->own;
    if (status == TUTTI_OK)
        status = tutti_fail_within(err, t->ops->open(t, err), "%s", what);
out:
    if (status == TUTTI_OK)
        *out = t;
    else
        tutti_tier_close(t);
    return status;
}

void tutti_tier_close(tutti_tier *t)
{
    if (t == NULL)
        return;
    if (t->self != NULL)
        t->ops->close(t);
    tutti_free(t->self);
    if (t->monitor != NULL)
        tutti_monitor_close(t->monitor);
    tutti_arena_close(t->own);
    tutti_spec_close(t->spec);
    tutti_free(t);
}

void tutti_tier_ended(tutti_tier *t, tutti_io *io)
{
    if (io->status == TUTTI_OK) {
        t->sum.requests++;
        *(io->write ? &t->sum.written : &t->sum.read) += io->bytes;
    }
    io->under_way = false;
    tutti_wake(t->monitor);
}

static tutti_status post_io(tutti_tier *t, tutti_io *io, const tutti_io *asked, tutti_error *err)
{
    const uint64_t at = asked->at;
    const size_t bytes = asked->bytes;
    bool twice;

    if (at > t->bytes || bytes > t->bytes - at)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "tier '%s' has %" PRIu64 " bytes, and %zu of them cannot be %s from %" PRIu64 " on",
            t->ops->kind->name, t->bytes, bytes, asked->write ? "written" : "read", at);
    tutti_lock(t->monitor);
    twice = io->under_way;
    if (!twice) {
        *io = (tutti_io){
            .at = at, .memory = asked->memory, .bytes = bytes, .left = bytes, .write = asked->write
        };
        io->under_way = bytes > 0;
    }
    tutti_unlock(t->monitor);
    if (twice)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "a request to tier '%s' is posted that is still under way",
                          t->ops->kind->name);
    if (bytes > 0)
        t->ops->post(t, io);
    return TUTTI_OK;
}

tutti_status tutti_tier_read(tutti_tier *t, tutti_io *io, uint64_t at, void *to, size_t bytes,
                             tutti_error *err)
{
    return post_io(t, io, &(tutti_io){ .at = at, .memory = to, .bytes = bytes, .write = false },
                   err);
}

tutti_status tutti_tier_write(tutti_tier *t, tutti_io *io, uint64_t at, const void *from,
                              size_t bytes, tutti_error *err)
{
    return post_io(
        t, io,
        &(tutti_io){ .at = at, .memory = (char *)(uintptr_t)from, .bytes = bytes, .write = true },
        err);
}

tutti_status tutti_tier_wait(tutti_tier *t, tutti_io *const *io, size_t n, tutti_error *err)
{
    const tutti_io *failed = NULL;

    tutti_lock(t->monitor);
    for (size_t k = 0; k < n; k++) {
        while (io[k]->under_way)
            tutti_wait(t->monitor, TUTTI_FOREVER, NULL);
        if (io[k]->status != TUTTI_OK && failed == NULL)
            failed = io[k];
    }
    tutti_unlock(t->monitor);
    if (failed == NULL)
        return TUTTI_OK;
    if (err != NULL)
        *err = failed->err;
    return failed->status;
}

bool tutti_tier_done(tutti_tier *t, const tutti_io *io)
{
    bool done;

    tutti_lock(t->monitor);
    done = !io->under_way;
    tutti_unlock(t->monitor);
    return done;
}

size_t tutti_tier_block(const tutti_tier *t)
{
    return t->block;
}

uint64_t tutti_tier_bytes(const tutti_tier *t)
{
    return t->bytes;
}

void *tutti_tier_address(tutti_tier *t)
{
    return t->ops->address != NULL ? t->ops->address(t) : NULL;
}

bool tutti_tier_pin(tutti_tier *t, void *memory, size_t bytes)
{
    return t->ops->pin != NULL && bytes > 0 && t->ops->pin(t, memory, bytes);
}

int tutti_tier_describe(tutti_tier *t, char *out, size_t bytes)
{
    return t->ops->describe(t, out, bytes);
}

tutti_tier_sum tutti_tier_count(tutti_tier *t)
{
    tutti_tier_sum sum;

    tutti_lock(t->monitor);
    sum = t->sum;
    tutti_unlock(t->monitor);
    return sum;
}
