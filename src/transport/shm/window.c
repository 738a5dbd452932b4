/* window.c: windows, which are memory that all ranks map, and the barrier of all ranks. A window is
   a range appended to the run's file, with one page-aligned part for each rank. There is no leader:
   the ranks publish the sizes of their parts, each computes the same layout and reserves its own
   part (so that its pages are on its own NUMA node), and all learn whether every rank has
   succeeded.

   Large parts are on huge pages if the kernel provides them: with pages of 4 KiB, page-table
   look-ups are a twentieth of the time of a training step over a vector of some MiB. The mount of a
   memory file seldom offers huge pages, so each rank asks for them once its part exists
   (MADV_COLLAPSE, Linux 6.1).

   If ranks are threads, a window is ordinary memory of their process, whose pages the kernel
   provides when they are touched. A window larger than the machine's memory is refused here, since
   the kernel would not refuse it.

   One call has four barriers: when the sizes are known; when the parts are reserved; when the
   window is mapped (by rank 0 if ranks are threads); when no rank reads the records any more. Every
   rank enters all four, also after a failure, so that all learn of it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "shm_internal.h"
#include "base/machine.h"

#define MIB (1024.0 * 1024.0)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* of the kernel; Debian 12's headers do not have it yet */
#endif

tutti_status tutti_shm_meet(shm_endpoint *e, tutti_error *err)
{
    e->step++;
    tutti_shm_publish(e, &e->self->step, e->step);
    for (int r = 0; r < e->size; r++)
        TUTTI_TRY(tutti_shm_await(e, r, &e->header->ranks[r].step, e->step, TUTTI_FOREVER, err));
    return TUTTI_OK;
}

static uint64_t up(uint64_t n, uint64_t step)
{
    return (n + step - 1) / step * step;
}

/* The layout: *mine is the offset of `rank`'s part from the window's start, *whole the total;
   false when it overflows. Large parts begin on huge pages. */
static bool places(const shm_endpoint *e, int rank, uint64_t *mine, uint64_t *whole)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    *whole = *mine = 0;
    for (int r = 0; r < e->size; r++) {
        const uint64_t bytes = e->header->ranks[r].window_bytes;
        if (bytes > INT64_MAX / 2 || *whole > INT64_MAX / 2)
            return false;
        if (bytes >= SHM_HUGE_BYTES)
            *whole = up(*whole, SHM_HUGE_BYTES);
        if (r == rank)
            *mine = *whole;
        *whole += up(bytes, page);
    }
    return *whole + e->window_end <= INT64_MAX - SHM_HUGE_BYTES;
}

/* Maps it at an address congruent to its place in the file, modulo a huge page: only so can a
   huge page of the file be one of the mapping. */
static void *map(const shm_endpoint *e, uint64_t whole, int32_t *cause)
{
    const int kind = e->region.fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    const uint64_t room = whole + SHM_HUGE_BYTES;
    unsigned char *reserved = mmap(NULL, room, PROT_NONE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
                  *at;
    void *memory;

    *cause = 0;
    if (reserved == MAP_FAILED) {
        *cause = errno;
        return NULL;
    }
    at = reserved + (e->window_end - (uint64_t)(uintptr_t)reserved) % SHM_HUGE_BYTES;
    memory = mmap(at, whole, PROT_READ | PROT_WRITE, kind | MAP_FIXED, e->region.fd,
                  e->region.fd >= 0 ? (off_t)e->window_end : 0);
    if (memory == MAP_FAILED) {
        *cause = errno;
        munmap(reserved, room);
        return NULL;
    }
    if (at > reserved)
        munmap(reserved, (size_t)(at - reserved));
    munmap(at + whole, (size_t)(reserved + room - (at + whole)));
    return memory;
}

/* A hint: what the kernel does not give stays on small pages. EAGAIN: pages were being moved just
   then. */
static void collapse(const shm_endpoint *e, unsigned char *part, size_t bytes)
{
    const size_t whole = bytes / SHM_HUGE_BYTES * SHM_HUGE_BYTES;

    if (e->region.fd < 0) { /* the kernel gives huge pages when it is touched */
        (void)madvise(part, whole, MADV_HUGEPAGE);
        return;
    }
    for (size_t at = 0; at < whole; at += SHM_HUGE_BYTES)
        for (int attempt = 0;
             attempt < 3 && madvise(part + at, SHM_HUGE_BYTES, MADV_COLLAPSE) != 0 &&
             errno == EAGAIN;
             attempt++)
            ;
}

/* The first rank, in order, with another name than rank 0's; or -1. */
static int other_name(const shm_endpoint *e)
{
    for (int r = 1; r < e->size; r++) {
        if (strncmp(e->header->ranks[r].window_name, e->header->ranks[0].window_name,
                    sizeof e->self->window_name) != 0)
            return r;
    }
    return -1;
}

static int first_cause(const shm_endpoint *e, bool mapping)
{
    for (int r = 0; r < e->size; r++) {
        const int cause =
            mapping ? e->header->ranks[r].window_map_cause : e->header->ranks[r].window_cause;
        if (cause != 0)
            return cause;
    }
    return 0;
}

/* Reserves my part, `mine` bytes from the window's start; an errno. Where the machine has not
   that much memory no rank begins to reserve, for the kernel ends processes rather than refuse a
   page. */
static int reserve(const shm_endpoint *e, uint64_t mine, uint64_t bytes, uint64_t whole)
{
    if (e->window_end + whole > tutti_machine_bytes())
        return ENOMEM;
    return e->region.fd >= 0 ? tutti_shm_reserve(e->region.fd, e->window_end + mine, bytes) : 0;
}

/* The same error text on every rank: it is made from what all have published. */
static tutti_status verdict(const shm_endpoint *e, const char *name, uint64_t whole,
                            tutti_error *err)
{
    const int stranger = other_name(e), cause = first_cause(e, false),
              map_cause = first_cause(e, true);
    const int width = (int)sizeof e->self->window_name;

    if (stranger >= 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "worker 0 opens window '%.*s' where worker %d opens '%.*s'; all must "
                          "open the same ones in the same order",
                          width, e->header->ranks[0].window_name, stranger, width,
                          e->header->ranks[stranger].window_name);
    if (cause != 0 && cause != EFBIG)
        return tutti_fail(
            err, TUTTI_ERR_MEMORY, cause,
            "window '%s' of %d workers needs %" PRIu64
            " bytes (%.1f MiB), this machine has %.1f MiB; use fewer workers or a smaller window; "
            "of a container, raise the limit of memory (docker run --memory)",
            name, e->size, whole, (double)whole / MIB, (double)tutti_machine_bytes() / MIB);
    if (cause == EFBIG)
        return tutti_fail(err, TUTTI_ERR_MEMORY, cause,
                          "window '%s' of %d workers needs %" PRIu64
                          " bytes (%.1f MiB) of one file; use fewer workers or raise the limit of "
                          "file size (ulimit -f)",
                          name, e->size, whole, (double)whole / MIB);
    if (map_cause != 0)
        return tutti_fail(err, TUTTI_ERR_MEMORY, map_cause,
                          "cannot map the %" PRIu64
                          " bytes (%.1f MiB) of window '%s' of %d workers; raise the limit of "
                          "address space (ulimit -v)",
                          whole, (double)whole / MIB, name, e->size);
    return TUTTI_OK;
}

/* Maps the window, and keeps it in *kept, which is then NULL. Returns its memory; NULL: it cannot
   be mapped. */
static unsigned char *map_window(shm_endpoint *e, uint64_t whole, shm_window **kept)
{
    shm_window *w = *kept;
    unsigned char *memory;
    memory = map(e, whole, &e->self->window_map_cause);
    for (int r = 0; r < e->size && memory != NULL; r++) {
        uint64_t at, unused;
        places(e, r, &at, &unused);
        if (e->within != NULL || r == e->rank)
            collapse(e, memory + at, e->header->ranks[r].window_bytes);
    }
    if (memory != NULL) {
        shm_window **list = e->within != NULL ? &e->within->windows : &e->windows;
        *w = (shm_window){ *list, memory, whole };
        *list = w;
        *kept = NULL;
    }
    if (e->within != NULL)
        e->within->window = memory;
    return memory;
}

/* Sets where each rank's part of the window is; NULL: it has none. */
static void list_parts(shm_endpoint *e, unsigned char *memory, void **of_rank)
{
    if (e->within != NULL)
        memory = e->within->window;
    for (int r = 0; r < e->size; r++) {
        uint64_t at, unused;
        places(e, r, &at, &unused);
        if (e->header->ranks[r].window_bytes > 0)
            of_rank[r] = memory + at;
    }
}

tutti_status tutti_shm_window_open(void *t, const char *name, size_t bytes, void **of_rank,
                                   tutti_error *err)
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
        self->window_cause = sized ? reserve(e, mine, bytes, whole) : EFBIG;
    status = tutti_shm_meet(e, err);
    if (status != TUTTI_OK)
        goto out;

    if (first_cause(e, false) != 0) {
        /* give mine back before any rank checks how much is left */
        if (self->window_cause == 0 && bytes > 0 && e->region.fd >= 0)
            fallocate(e->region.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)(e->window_end + mine), (off_t)bytes);
    } else if (other_name(e) < 0 && whole > 0 && (e->within == NULL || e->rank == 0)) {
        memory = map_window(e, whole, &w);
    }
    status = tutti_shm_meet(e, err);
    if (status != TUTTI_OK)
        goto out;

    status = verdict(e, name, whole, err);
    if (status == TUTTI_OK) {
        list_parts(e, memory, of_rank);
        /* what lies between has no pages */
        e->window_end = up(e->window_end + whole, SHM_HUGE_BYTES);
    }
    /* until here others read what I published */
    met = tutti_shm_meet(e, status == TUTTI_OK ? err : NULL);
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
