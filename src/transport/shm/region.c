/* region.c: creates, attaches and releases the memory that the ranks of a run share (shm_region.h),
   and records how ranks end.

   The file never has a name in a directory (memfd_create), so a run that is killed at any moment
   leaves nothing behind, and /dev/shm may be as small as containers make it (64 MB). It counts as
   memory of the control group. Its pages are reserved before any process maps it: with ftruncate
   alone, a page that the kernel cannot provide means SIGBUS at the first access; posix_fallocate
   fails here instead. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "shm_region.h"
#include "../events.h"

#define MIB (1024.0 * 1024.0)
/* The limits on the rings of all pairs together, and the least and most of one pair: latency of
   messages hardly gains from more than 64 entries, a copy hardly from a ring beyond the
   second-level cache. */
#define CONTROL_BUDGET ((uint64_t)16 << 20)
#define DATA_BUDGET ((uint64_t)32 << 20)
enum {
    CONTROL_LEAST = 8,
    CONTROL_MOST = 64,
    DATA_LEAST = 4096,
    DATA_MOST = 256 << 10,
    ENTRY_BYTES = 256
};

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* The largest power of two in [least, most] that gives each of `pairs` no more than its part of
   the budget. */
static uint32_t share(uint64_t budget, uint64_t pairs, uint32_t least, uint32_t most)
{
    uint32_t n = most;

    while (n > least && n * pairs > budget)
        n /= 2;
    return n;
}

static tutti_shm_header layout(int size, bool spin)
{
    const uint64_t ranks = (uint64_t)size, pairs = ranks * (ranks - 1);
    tutti_shm_header h = {
        .magic = TUTTI_SHM_MAGIC, .version = TUTTI_SHM_VERSION, .size = size, .spin = spin
    };

    h.control_entries = share(CONTROL_BUDGET / ENTRY_BYTES, pairs, CONTROL_LEAST, CONTROL_MOST);
    h.data_bytes = share(DATA_BUDGET, pairs, DATA_LEAST, DATA_MOST);
    h.expulsions_offset = sizeof h + ranks * sizeof(tutti_shm_rank);
    h.pairs_offset =
        round_up(h.expulsions_offset + 2 * ranks * sizeof(tutti_shm_expulsion), TUTTI_SHM_LINE);
    h.rings_offset = round_up(h.pairs_offset + pairs * sizeof(tutti_shm_pair), 4096);
    h.bytes = round_up(
        h.rings_offset + pairs * ((uint64_t)h.control_entries * ENTRY_BYTES + h.data_bytes), 4096);
    return h;
}

int tutti_shm_reserve(int fd, uint64_t offset, uint64_t bytes)
{
    struct rlimit limit;
    int cause;

    if (offset > INT64_MAX - bytes || bytes > INT64_MAX)
        return EFBIG;
    /* Beyond this limit the kernel would not refuse but kill (SIGXFSZ). */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        offset + bytes > limit.rlim_cur)
        return EFBIG;
    if (bytes == 0)
        return 0;
    do
        cause = posix_fallocate(fd, (off_t)offset, (off_t)bytes);
    while (cause == EINTR);
    return cause;
}

static tutti_shm_header *map(int fd, uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* Maps it; the rest of the beginning of `planned`. */
static tutti_status begin_region(tutti_shm_region *out, const tutti_shm_header *planned,
                                 tutti_error *err)
{
    out->header = map(out->fd, planned->bytes);
    if (out->header == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, errno,
                          "cannot map the %" PRIu64 " bytes of the shared memory of %d workers",
                          planned->bytes, planned->size);
    /* fresh pages are zero, which is every counter's and state's start */
    memcpy(out->header, planned, sizeof *planned);
    for (int r = 0; r < planned->size; r++)
        out->header->ranks[r].blame = -1;
    return TUTTI_OK;
}

static tutti_status check_size(int size, tutti_error *err)
{
    if (size < 1 || size > TUTTI_SHM_RANKS)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d workers asked for; one host takes from 1 to %d", size,
                          TUTTI_SHM_RANKS);
    return TUTTI_OK;
}

tutti_status tutti_shm_region_own(tutti_shm_region *out, int size, bool spin, tutti_error *err)
{
    tutti_shm_header planned;

    *out = (tutti_shm_region){ .fd = -1, .owned = true };
    TUTTI_TRY(check_size(size, err));
    planned = layout(size, spin);
    return begin_region(out, &planned, err);
}

tutti_status tutti_shm_region_open(tutti_shm_region *out, int size, bool spin, tutti_error *err)
{
    tutti_shm_header planned;
    tutti_status status = TUTTI_OK;
    int cause;

    *out = (tutti_shm_region){ .fd = -1, .owned = true };
    TUTTI_TRY(check_size(size, err));
    planned = layout(size, spin);
    out->fd = memfd_create("tutti", MFD_CLOEXEC);
    if (out->fd < 0 || fchmod(out->fd, 0600) != 0) {
        status = tutti_fail(err, TUTTI_ERR_IO, errno,
                            "cannot make the shared memory of %d workers (memfd_create); let the "
                            "container make it, or give --transport tcp",
                            size);
        goto out;
    }
    cause = tutti_shm_reserve(out->fd, 0, planned.bytes);
    if (cause == EFBIG) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, cause,
                            "the shared memory of %d workers needs a file of %" PRIu64
                            " bytes (%.1f MiB); raise the limit of file size (ulimit -f)",
                            size, planned.bytes, (double)planned.bytes / MIB);
        goto out;
    }
    if (cause != 0) {
        status =
            tutti_fail(err, TUTTI_ERR_MEMORY, cause,
                       "the shared memory of %d workers needs %" PRIu64
                       " bytes (%.1f MiB), and the kernel gives no more memory; use fewer workers",
                       size, planned.bytes, (double)planned.bytes / MIB);
        goto out;
    }
    status = begin_region(out, &planned, err);
out:
    if (status != TUTTI_OK)
        tutti_shm_region_close(out);
    return status;
}

static bool same_layout(const tutti_shm_header *a, const tutti_shm_header *b)
{
    return a->bytes == b->bytes && a->expulsions_offset == b->expulsions_offset &&
           a->pairs_offset == b->pairs_offset && a->rings_offset == b->rings_offset &&
           a->control_entries == b->control_entries && a->data_bytes == b->data_bytes;
}

tutti_status tutti_shm_region_attach(tutti_shm_region *out, int fd, int rank, int size,
                                     tutti_error *err)
{
    static const char mend[] =
        "start the workers with the launcher, or unset " TUTTI_SHM_VARIABLE_FD
        ", " TUTTI_SHM_VARIABLE_RANK " and " TUTTI_SHM_VARIABLE_SIZE " to run alone";
    tutti_shm_header claimed, expected;
    struct stat about;
    ssize_t got;

    *out = (tutti_shm_region){ .fd = -1, .owned = true };
    if (fstat(fd, &about) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, errno,
                          TUTTI_SHM_VARIABLE_FD "=%d is not open in this process; %s", fd, mend);
    got = pread(fd, &claimed, sizeof claimed, 0);
    if (!S_ISREG(about.st_mode) || got != (ssize_t)sizeof claimed ||
        claimed.magic != TUTTI_SHM_MAGIC)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          TUTTI_SHM_VARIABLE_FD "=%d is not the shared memory of a run; %s", fd,
                          mend);
    if (claimed.version != TUTTI_SHM_VERSION)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the launcher's shared memory has version %" PRIu32
                          ", this library's has %u; use one version of tutti for both",
                          claimed.version, TUTTI_SHM_VERSION);
    if (claimed.size != size || size < 1 || size > TUTTI_SHM_RANKS || rank < 0 || rank >= size)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "worker %d of %d does not fit a run of %" PRId32 "; %s", rank, size,
                          claimed.size, mend);
    expected = layout(size, claimed.spin != 0);
    if (!same_layout(&claimed, &expected) || (uint64_t)about.st_size < expected.bytes)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "the shared memory of %d workers has %" PRIu64
                          " bytes instead of %" PRIu64
                          "; use one version of tutti for launcher and workers",
                          size, (uint64_t)about.st_size, expected.bytes);
    out->header = map(fd, expected.bytes);
    if (out->header == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, errno,
                          "cannot map the %" PRIu64 " bytes of the shared memory of %d workers",
                          expected.bytes, size);
    /* Its own children are not workers. */
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    out->fd = fd;
    return TUTTI_OK;
}

void tutti_shm_region_close(tutti_shm_region *region)
{
    const int saved = errno;

    if (region->owned && region->header != NULL)
        munmap(region->header, region->header->bytes);
    if (region->owned && region->fd >= 0)
        close(region->fd);
    region->header = NULL;
    region->fd = -1;
    errno = saved;
}

/* ---- wake-ups ---- */
void tutti_shm_wake(tutti_shm_rank *rank)
{
    /* seq_cst on both: together with the sleeper's (wait.c) either we see that it sleeps, or it
       sees the incremented word. */
    atomic_fetch_add_explicit(&rank->wakeups, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&rank->sleepers, memory_order_seq_cst) != 0)
        syscall(SYS_futex, &rank->wakeups, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void tutti_shm_wake_all(tutti_shm_header *header)
{
    for (int r = 0; r < header->size; r++)
        tutti_shm_wake(&header->ranks[r]);
}

static void changed(tutti_shm_header *header)
{
    /* pairs with the acquire in progress.c */
    atomic_fetch_add_explicit(&header->changes, 1, memory_order_release);
    tutti_shm_wake_all(header);
}

/* ---- endings ---- */
void tutti_shm_depart(const tutti_shm_region *region, int rank, tutti_shm_state state,
                      const tutti_error *why, int signal)
{
    tutti_shm_header *h = region->header;
    tutti_shm_rank *line = &h->ranks[rank];
    /* one writer at a time, see the header */
    const uint32_t before = atomic_load_explicit(&line->state, memory_order_acquire);

    if (before >= TUTTI_SHM_FAILED || (before == TUTTI_SHM_CLOSED && state != TUTTI_SHM_FAILED)) {
        /* a rank that was killed just after it had written this down has woken no other */
        changed(h);
        return;
    }
    line->blame = -1;
    if (state != TUTTI_SHM_CLOSED) {
        if (why != NULL && why->status == TUTTI_ERR_PEER && why->rank >= 0 && why->rank < h->size &&
            why->rank != rank)
            line->blame = why->rank;
        line->status = why != NULL ? (uint32_t)why->status : 0;
        line->signal = signal;
        snprintf(line->reason, sizeof line->reason, "%s", why != NULL ? why->text : "");
        /* only a number */
        line->order = atomic_fetch_add_explicit(&h->failures, 1, memory_order_relaxed);
    }
    /* publishes the record and all that the rank has sent */
    atomic_store_explicit(&line->state, state, memory_order_release);
    changed(h);
}

/* ---- expulsion and silence ---- */
static tutti_shm_expulsion *expulsion(const tutti_shm_header *h, uint32_t number)
{
    return (tutti_shm_expulsion *)(void *)((unsigned char *)(uintptr_t)h + h->expulsions_offset) +
           number;
}

bool tutti_shm_expel(const tutti_shm_region *region, int rank, int by, const char *why)
{
    tutti_shm_header *h = region->header;
    uint32_t number, nobody = 0;

    if (tutti_shm_state_of(region, rank) >= TUTTI_SHM_CLOSED)
        return false;
    number = atomic_fetch_add_explicit(&h->expulsions, 1, memory_order_relaxed); /* only a number */
    if (number < 2 * (uint32_t)h->size) {
        expulsion(h, number)->by = by;
        tutti_events_copy(expulsion(h, number)->why, sizeof expulsion(h, number)->why, why);
    }
    /* release: publishes the entry; pairs with the acquire in state_of and expelled */
    if (!atomic_compare_exchange_strong_explicit(&h->ranks[rank].expelled, &nobody, number + 1,
                                                 memory_order_acq_rel, memory_order_acquire))
        return false;
    changed(h);
    return true;
}

bool tutti_shm_expelled(const tutti_shm_region *region, int rank, char *text, size_t bytes)
{
    const tutti_shm_header *h = region->header;
    /* pairs with tutti_shm_expel */
    const uint32_t number = atomic_load_explicit(&h->ranks[rank].expelled, memory_order_acquire);
    const tutti_shm_expulsion *x;

    if (number == 0)
        return false;
    if (number > 2 * (uint32_t)h->size) { /* more expulsions were begun than there is space for */
        snprintf(text, bytes, "another worker has expelled it");
        return true;
    }
    x = expulsion(h, number - 1);
    if (x->by == TUTTI_SHM_PARENT)
        snprintf(text, bytes, "%.*s", (int)sizeof x->why - 1, x->why);
    else
        snprintf(text, bytes, "worker %d has expelled it: %.*s", x->by, (int)sizeof x->why - 1,
                 x->why);
    return true;
}

void tutti_shm_stopped(const tutti_shm_region *region, int rank, bool stopped)
{
    tutti_shm_header *h = region->header;

    /* `changes` orders it */
    if (atomic_exchange_explicit(&h->ranks[rank].stopped, stopped, memory_order_relaxed) != stopped)
        changed(h);
}

tutti_shm_state tutti_shm_state_of(const tutti_shm_region *region, int rank)
{
    const tutti_shm_rank *line = &region->header->ranks[rank];
    /* pairs with depart */
    const uint32_t state = atomic_load_explicit(&line->state, memory_order_acquire);

    /* pairs with expel */
    if (state < TUTTI_SHM_LOST && atomic_load_explicit(&line->expelled, memory_order_acquire) != 0)
        return TUTTI_SHM_LOST;
    return (tutti_shm_state)state;
}

/* May its record be read? A rank that was expelled may just be writing it. */
static bool has_report(const tutti_shm_region *region, int rank)
{
    /* pairs with depart */
    return atomic_load_explicit(&region->header->ranks[rank].state, memory_order_acquire) >=
           TUTTI_SHM_FAILED;
}

int tutti_shm_root(const tutti_shm_region *region, int rank)
{
    int root = rank;

    /* Two that blame each other are equally guilty: stop after as many steps as there are
       ranks. */
    for (int steps = 0; steps < region->header->size; steps++) {
        const int blame = has_report(region, root) ? region->header->ranks[root].blame : -1;
        if (blame < 0 || blame >= region->header->size)
            return root;
        root = blame;
    }
    return rank;
}

int tutti_shm_culprit(const tutti_shm_region *region)
{
    int culprit = -1;
    uint64_t least = UINT64_MAX;

    for (int r = 0; r < region->header->size; r++) {
        const tutti_shm_rank *line = &region->header->ranks[r];
        const tutti_shm_state state = tutti_shm_state_of(region, r);
        uint64_t rank_of_guilt;
        if (state < TUTTI_SHM_FAILED)
            continue;
        if (!has_report(region, r)) /* expelled; its own report is still to come, or never will */
            rank_of_guilt = UINT64_C(1) << 32;
        else
            rank_of_guilt = (uint64_t)(state == TUTTI_SHM_LOST && line->signal != 0 ? 0
                                       : line->status != TUTTI_ERR_PEER             ? 1
                                                                                    : 2)
                                << 32 |
                            line->order;
        if (rank_of_guilt < least) {
            least = rank_of_guilt;
            culprit = r;
        }
    }
    return culprit;
}

void tutti_shm_describe(const tutti_shm_region *region, int rank, char *text, size_t bytes)
{
    const tutti_shm_rank *line = &region->header->ranks[rank];
    tutti_error cut; /* tutti_fail cuts at a whole character */
    char expelled[300];

    if (tutti_shm_expelled(region, rank, expelled, sizeof expelled)) {
        tutti_fail(&cut, TUTTI_ERR_PEER, 0, "worker %d was lost: %s", rank, expelled);
        if (bytes > 0)
            snprintf(text, bytes, "%s", cut.text);
        return;
    }
    switch (tutti_shm_state_of(region, rank)) {
    case TUTTI_SHM_FAILED:
        tutti_fail(&cut, TUTTI_ERR_PEER, 0, "worker %d failed: %.*s", rank,
                   (int)sizeof line->reason, line->reason);
        break;
    case TUTTI_SHM_LOST:
        tutti_fail(&cut, TUTTI_ERR_PEER, 0, "worker %d was lost: %.*s", rank,
                   (int)sizeof line->reason, line->reason);
        break;
    case TUTTI_SHM_CLOSED:
        tutti_fail(&cut, TUTTI_ERR_PEER, 0, "worker %d has left the run", rank);
        break;
    default:
        tutti_fail(&cut, TUTTI_ERR_PEER, 0, "worker %d is there", rank);
        break;
    }
    if (bytes > 0)
        snprintf(text, bytes, "%s", cut.text);
}
