/* window.c: memory that all ranks map. A window is a range appended to the run's file, one page-aligned part a rank. There is
   no leader: the parts' sizes are laid open, each rank computes the same places, reserves its own part (so its pages lie on
   its own memory node), and all learn whether all could.

   The meetings of one call: sizes are known; parts are reserved; the window is mapped (of thread ranks by rank 0); nobody
   reads the lines any more. Every rank attends all four whatever went wrong, so a failure is told to all. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "shm_internal.h"

#define MIB (1024.0 * 1024.0)
#define HUGE_BYTES ((uint64_t)2 << 20)

tutti_status tutti_shm_meet(shm_endpoint *e, tutti_error *err)
{
    e->step++;
    tutti_shm_publish(e, &e->self->step, e->step);
    for (int r = 0; r < e->size; r++)
        TUTTI_TRY(tutti_shm_await(e, r, &e->header->ranks[r].step, e->step, TUTTI_FOREVER, err));
    return TUTTI_OK;
}

/* Where the parts lie: of rank `rank` at *mine from the window's start; gives the whole, or false when it overflows. */
static bool places(const shm_endpoint *e, int rank, uint64_t *mine, uint64_t *whole)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    *whole = *mine = 0;
    for (int r = 0; r < e->size; r++) {
        const uint64_t bytes = e->header->ranks[r].window_bytes;
        if (bytes > INT64_MAX / 2 || *whole > INT64_MAX / 2)
            return false;
        if (r == rank)
            *mine = *whole;
        *whole += (bytes + page - 1) / page * page;
    }
    return *whole + e->window_end <= INT64_MAX;
}

static void *map(const shm_endpoint *e, uint64_t whole, int32_t *cause)
{
    void *memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, e->region.fd, (off_t)e->window_end);

    *cause = 0;
    if (memory == MAP_FAILED) {
        *cause = errno;
        return NULL;
    }
    if (whole >= HUGE_BYTES)
        madvise(memory, whole, MADV_HUGEPAGE); /* a wish: the mount decides */
    return memory;
}

/* The first rank, in order, with another name than rank 0's; or -1. */
static int other_name(const shm_endpoint *e)
{
    for (int r = 1; r < e->size; r++) {
        if (strncmp(e->header->ranks[r].window_name, e->header->ranks[0].window_name, sizeof e->self->window_name) != 0)
            return r;
    }
    return -1;
}

static int first_cause(const shm_endpoint *e, bool mapping)
{
    for (int r = 0; r < e->size; r++) {
        const int cause = mapping ? e->header->ranks[r].window_map_cause : e->header->ranks[r].window_cause;
        if (cause != 0)
            return cause;
    }
    return 0;
}

/* The same sentence on every rank: it is made of what all have laid open. */
static tutti_status verdict(const shm_endpoint *e, const char *name, uint64_t whole, tutti_error *err)
{
    const int stranger = other_name(e), cause = first_cause(e, false), map_cause = first_cause(e, true);
    const int width = (int)sizeof e->self->window_name;
    uint64_t have;

    if (stranger >= 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "worker 0 opens window '%.*s' where worker %d opens '%.*s'; all must open the same ones in the same order",
                          width, e->header->ranks[0].window_name, stranger, width, e->header->ranks[stranger].window_name);
    if (cause == EFBIG)
        return tutti_fail(err, TUTTI_ERR_MEMORY, cause, "window '%s' of %d workers needs %" PRIu64 " bytes (%.1f MiB) of one file; use fewer workers or raise the limit of file size (ulimit -f)",
                          name, e->size, whole, (double)whole / MIB);
    if (cause != 0) {
        have = tutti_shm_space_left(e->region.fd);
        return tutti_fail(err, TUTTI_ERR_MEMORY, cause, "window '%s' of %d workers needs %" PRIu64 " bytes (%.1f MiB) of /dev/shm, which has %" PRIu64
                          " bytes (%.1f MiB) left; enlarge /dev/shm (mount -o remount,size=...) or use fewer workers",
                          name, e->size, whole, (double)whole / MIB, have, (double)have / MIB);
    }
    if (map_cause != 0)
        return tutti_fail(err, TUTTI_ERR_MEMORY, map_cause, "cannot map the %" PRIu64 " bytes (%.1f MiB) of window '%s' of %d workers; raise the limit of address space (ulimit -v)",
                          whole, (double)whole / MIB, name, e->size);
    return TUTTI_OK;
}

tutti_status tutti_shm_window_open(void *t, const char *name, size_t bytes, void **of_rank, tutti_error *err)
{
    shm_endpoint *e = t;
    tutti_shm_rank *self = e->self;
    shm_window *w = tutti_alloc(1, sizeof *w);
    unsigned char *memory = NULL;
    uint64_t mine, whole = 0;
    tutti_status status, met;
    bool sized;

    for (int r = 0; r < e->size; r++)
        of_rank[r] = NULL;
    self->window_bytes = bytes;
    self->window_cause = w == NULL ? ENOMEM : 0;
    self->window_map_cause = 0;
    snprintf(self->window_name, sizeof self->window_name, "%s", name);
    status = tutti_shm_meet(e, err);
    if (status != TUTTI_OK)
        goto out;

    sized = places(e, e->rank, &mine, &whole);
    if (self->window_cause == 0 && other_name(e) < 0)
        self->window_cause = sized ? tutti_shm_reserve(e->region.fd, e->window_end + mine, bytes) : EFBIG;
    status = tutti_shm_meet(e, err);
    if (status != TUTTI_OK)
        goto out;

    if (first_cause(e, false) != 0) {
        if (self->window_cause == 0 && bytes > 0) /* give mine back before anybody looks what is left */
            fallocate(e->region.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(e->window_end + mine), (off_t)bytes);
    } else if (other_name(e) < 0 && whole > 0 && (e->within == NULL || e->rank == 0)) {
        memory = map(e, whole, &self->window_map_cause);
        if (memory != NULL) {
            shm_window **list = e->within != NULL ? &e->within->windows : &e->windows;
            *w = (shm_window){ *list, memory, whole };
            *list = w;
            w = NULL;
        }
        if (e->within != NULL)
            e->within->window = memory;
    }
    status = tutti_shm_meet(e, err);
    if (status != TUTTI_OK)
        goto out;

    status = verdict(e, name, whole, err);
    if (status == TUTTI_OK) {
        if (e->within != NULL)
            memory = e->within->window;
        for (int r = 0; r < e->size; r++) {
            uint64_t at, unused;
            places(e, r, &at, &unused);
            if (e->header->ranks[r].window_bytes > 0)
                of_rank[r] = memory + at;
        }
        e->window_end += whole;
    }
    met = tutti_shm_meet(e, status == TUTTI_OK ? err : NULL); /* until here others read what I laid open */
    if (status == TUTTI_OK)
        status = met;
out:
    if (status != TUTTI_OK) {
        for (int r = 0; r < e->size; r++)
            of_rank[r] = NULL;
    }
    tutti_free(w);
    return status;
}

void tutti_shm_windows_close(shm_window *list)
{
    while (list != NULL) {
        shm_window *next = list->next;
        munmap(list->memory, list->bytes);
        tutti_free(list);
        list = next;
    }
}
