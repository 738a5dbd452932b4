/* chunks.c: requests of any offset, size and address as transfers of whole blocks.

   A request whose offset, size and address are multiples of a block is transferred directly, in
   chunks of the option `block`. Other requests are staged:

     - Offset and address are equally far from a block: only the ends are staged, a block each.
     - They are not: all of it goes through staging.

   A staged read reads the whole blocks and copies its part out. A staged write first reads those of
   its outer blocks that it does not fill, then copies its part in and writes. Two requests that do
   not overlap may have parts of the same block. So of two such writes only one is under way at a
   time: the other is split into chunks when the first has ended. A read may be under way at the
   same time, since its own bytes do not change. */
#include <assert.h>
#include <string.h>
#include "nvme.h"
#include "tier/tier.h"

/* True if another write is changing the outer block at `block`. */
static bool end_taken(const nvme *n, uint64_t block, size_t unit)
{
    for (int64_t k = 0; k < n->depth; k++) {
        const nvme_chunk *p = &n->chunk[k];
        if (p->io != NULL && p->io->write && p->stage != NULL &&
            (p->first == block || p->first + p->size - unit == block))
            return true;
    }
    return false;
}

static int fixed_of(const nvme *n, const char *memory, size_t bytes)
{
    for (int k = 0; k < n->pins; k++)
        if (memory >= n->pinned[k].memory && bytes <= n->pinned[k].bytes &&
            (size_t)(memory - n->pinned[k].memory) <= n->pinned[k].bytes - bytes)
            return n->pinned[k].fixed;
    return -1;
}

static void leave_list(nvme *n)
{
    n->head = n->head->next;
    if (n->head == NULL)
        n->tail = NULL;
    n->waiting--;
}

nvme_chunk *tutti_nvme_next_chunk(tutti_tier *t)
{
    nvme *n = t->self;
    tutti_io *io = n->head;
    const size_t unit = t->block, block = (size_t)n->block;
    nvme_chunk *p = n->chunk;
    size_t left, past, bytes;
    bool alike, straight;
    uint64_t at;
    char *memory;

    if (io == NULL || n->under_way == n->depth)
        return NULL;
    at = io->at + io->cut;
    memory = io->memory + io->cut;
    left = io->bytes - io->cut;
    past = (size_t)(at % unit);
    alike = (uintptr_t)memory % unit == past;
    straight = alike && past == 0 && left >= unit;
    bytes = straight ? block : alike ? unit - past : block - past;
    if (bytes > left)
        bytes = straight ? left - left % unit : left;
    if (!straight) {
        const uint64_t first = at - past, last = (at + bytes - 1) / unit * unit;
        if (n->free_stages == 0 || (io->write && (end_taken(n, first, unit) || end_taken(n, last, unit))))
            return NULL;
    }

    while (p->io != NULL)
        p++;
    *p = (nvme_chunk){ .io = io, .at = at, .first = at - past, .bytes = bytes, .memory = memory };
    p->size = (past + bytes + unit - 1) / unit * unit;
    if (!straight)
        p->stage = n->free_stage[--n->free_stages];
    p->transfer.file = n->file;
    p->transfer.user = p;
    p->transfer.fixed = fixed_of(n, straight ? memory : p->stage, p->size);
    if (++n->under_way > t->sum.under_way_peak)
        t->sum.under_way_peak = n->under_way;
    io->cut += bytes;
    if (io->cut == io->bytes) {
        leave_list(n);
        tutti_wake(t->monitor); /* there is space to post */
    }
    return p;
}

static bool transfer(nvme_chunk *p, bool write, uint64_t offset, size_t bytes)
{
    p->transfer.write = write;
    p->transfer.offset = offset;
    p->transfer.memory = p->stage != NULL ? p->stage + (offset - p->first) : p->memory;
    p->transfer.bytes = bytes;
    *(write ? &p->disk_written : &p->disk_read) += bytes;
    return true;
}

bool tutti_nvme_step(tutti_tier *t, nvme_chunk *p)
{
    const uint64_t end = p->at + p->bytes, whole = p->first + p->size;
    const bool merge = p->stage != NULL && p->io->write;

    if (p->step == NVME_BEGIN) {
        p->step = NVME_HEAD;
        if (merge && p->at != p->first)
            return transfer(p, false, p->first, t->block);
    }
    if (p->step == NVME_HEAD) {
        p->step = NVME_TAIL;
        if (merge && end != whole && (p->size > t->block || p->at == p->first))
            return transfer(p, false, whole - t->block, t->block);
    }
    if (p->step == NVME_TAIL) {
        p->step = NVME_MOVE;
        if (merge)
            memcpy(p->stage + (p->at - p->first), p->memory, p->bytes);
        return transfer(p, p->io->write, p->first, p->size);
    }
    if (p->stage != NULL && !p->io->write)
        memcpy(p->memory, p->stage + (p->at - p->first), p->bytes);
    return false;
}

void tutti_nvme_ended(tutti_tier *t, nvme_chunk *p, tutti_status status, const tutti_error *why)
{
    nvme *n = t->self;
    tutti_io *io = p->io;

    if (status == TUTTI_OK) {
        t->sum.disk_read += p->disk_read;
        t->sum.disk_written += p->disk_written;
        t->sum.staged += p->stage != NULL ? p->bytes : 0;
    } else if (io->status == TUTTI_OK) {
        io->status = status;
        io->err = *why;
        if (io->cut < io->bytes) { /* what is left of it need not be tried */
            assert(n->head == io);
            io->left -= io->bytes - io->cut;
            leave_list(n);
        }
    }
    if (p->stage != NULL)
        n->free_stage[n->free_stages++] = p->stage;
    p->io = NULL;
    n->under_way--;
    io->left -= p->bytes;
    if (io->left == 0)
        tutti_tier_ended(t, io);
    else
        tutti_wake(t->monitor);
}
