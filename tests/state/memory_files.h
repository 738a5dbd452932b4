/* memory_files.h: a runtime whose files are in memory, to fail, stop and lose power at any
   operation. Time, threads and locks are those of a real runtime (NULL: none, for code that only
   reads files). One lock makes it safe for ranks that are threads.

   Every file and directory has two states: what a process sees, and what would be there after a
   loss of power. Only sync brings the second one up to date:

     file        its bytes as of the last file_sync
     directory   its entries as of the last directory_sync, and since then none of its changes, or
                 any of them (memory_files_crash_with_some): a disk may take the later of two
                 renames and not the earlier

   Operations that change something are counted: create, write, sync, rename, remove, make, sync of
   a directory. `fault` strikes at number `fault_at` (from 1). STOP is as if the process had been
   killed there: a write is torn in half, and nothing later has an effect. The other faults strike
   once, and with `stop_at` the process is killed at that number after it. `fail_read_at` makes a
   read fail.

   memory_files_open_wide gives files that several threads write at once (reserve and write_at are
   counted too). It needs a real runtime for the threads. With `dawdle_ns` a write_at that succeeds
   returns that much later. So others are in flight at the same time, and a failing one is reported
   first. */
#ifndef TUTTI_TESTS_MEMORY_FILES_H
#define TUTTI_TESTS_MEMORY_FILES_H
#include "tutti/base.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { FAULT_NONE, FAULT_STOP, FAULT_NO_SPACE, FAULT_IO, FAULT_SHORT } memory_fault;
enum { MEMORY_FDS = 64, MEMORY_ENTRIES = 64 };

typedef struct memory_node memory_node;
typedef struct memory_entries {
    size_t n;
    struct {
        char name[80];
        memory_node *node;
    } at[MEMORY_ENTRIES];
} memory_entries;
/* from is this node's no more, to is; "": no such name */
typedef struct memory_change { char from[80], to[80]; memory_node *node; } memory_change;
struct memory_node {
    bool directory;
    uint8_t *data, *synced;
    size_t bytes, synced_bytes;
    memory_entries entries, synced_entries;
    struct { size_t n; memory_change *at; } changes; /* of its entries since they were synced */
    memory_node *next;             /* all nodes, to free them */
};
typedef struct memory_files {
    tutti_runtime rt;              /* give &files->rt to the code under test */
    tutti_runtime_ops wide;        /* its table, if files are wide */
    tutti_runtime *real;
    pthread_mutex_t lock;
    memory_node *root, *all;
    memory_node *fds[MEMORY_FDS];
    uint64_t operations, fault_at, stop_at, reads, fail_read_at, space;
    int64_t dawdle_ns;
    memory_fault fault;
    bool stopped;
} memory_files;

static inline memory_node *memory_node_new(memory_files *m, bool directory)
{
    memory_node *node = calloc(1, sizeof *node);
    if (node == NULL)
        abort();
    node->directory = directory;
    node->next = m->all;
    m->all = node;
    return node;
}

static inline memory_node **memory_entry(memory_entries *e, const char *name)
{
    for (size_t k = 0; k < e->n; k++)
        if (strcmp(e->at[k].name, name) == 0)
            return &e->at[k].node;
    return NULL;
}

static inline void memory_entry_set(memory_entries *e, const char *name, memory_node *node)
{
    memory_node **there = memory_entry(e, name);
    if (there != NULL) {
        *there = node;
        return;
    }
    if (e->n == MEMORY_ENTRIES || strlen(name) >= sizeof e->at[0].name)
        abort();
    strcpy(e->at[e->n].name, name);
    e->at[e->n++].node = node;
}

static inline void memory_entry_drop(memory_entries *e, const char *name)
{
    for (size_t k = 0; k < e->n; k++)
        if (strcmp(e->at[k].name, name) == 0) {
            e->at[k] = e->at[--e->n];
            return;
        }
}

/* Changes the entries, and records the change for a crash. */
static inline void memory_change_entries(memory_node *directory, const char *from, const char *to,
                                         memory_node *node)
{
    memory_change *more = realloc(directory->changes.at, (directory->changes.n + 1) * sizeof *more);
    if (more == NULL)
        abort();
    directory->changes.at = more;
    more += directory->changes.n++;
    *more = (memory_change){ .node = node };
    strcpy(more->from, from);
    strcpy(more->to, to);
    if (from[0] != '\0')
        memory_entry_drop(&directory->entries, from);
    if (to[0] != '\0')
        memory_entry_set(&directory->entries, to, node);
}

static inline void memory_entries_synced(memory_node *directory)
{
    directory->synced_entries = directory->entries;
    directory->changes.n = 0;
}

/* The node of a path; *parent and name (the last component; 80 bytes) also
   when the node itself is not there. */
static inline memory_node *memory_find(memory_files *m, const char *path, memory_node **parent,
                                       char *name)
{
    memory_node *at = m->root;
    *parent = NULL;
    name[0] = '\0';
    while (*path != '\0' && at != NULL) {
        size_t n = strcspn(path, "/");
        if (n > 0 && !(n == 1 && path[0] == '.')) {
            memory_node **child;
            if (!at->directory || n >= 80) {
                *parent = NULL;
                return NULL;
            }
            memcpy(name, path, n);
            name[n] = '\0';
            *parent = at;
            child = memory_entry(&at->entries, name);
            at = child != NULL ? *child : NULL;
            if (at == NULL && path[n + strspn(path + n, "/")] != '\0')
                *parent = NULL;
        } else if (n == 1 && !at->directory) {
            return NULL;
        }
        path += n;
        path += strspn(path, "/");
    }
    return at;
}

/* Under the lock: counts a mutating operation; an errno when the fault requires it. *half: this
   write is to be torn or short. */
static inline int memory_strike(memory_files *m, bool *half)
{
    *half = false;
    if (m->stopped)
        return EIO;
    m->operations++;
    if (m->operations == m->stop_at) {
        m->stopped = *half = true;
        return EIO;
    }
    if (m->fault == FAULT_NONE || m->operations != m->fault_at)
        return 0;
    switch (m->fault) {
    case FAULT_STOP: m->stopped = true; *half = true; return EIO;
    case FAULT_NO_SPACE: return ENOSPC;
    case FAULT_IO: return EIO;
    default: *half = true; return 0;
    }
}

static inline void memory_append(memory_node *node, const void *from, size_t bytes)
{
    uint8_t *more = realloc(node->data, node->bytes + bytes + 1);
    if (more == NULL)
        abort();
    if (bytes > 0)
        memcpy(more + node->bytes, from, bytes);
    node->data = more;
    node->bytes += bytes;
}

static inline void memory_file_synced(memory_node *node)
{
    free(node->synced);
    node->synced = malloc(node->bytes + 1);
    if (node->synced == NULL)
        abort();
    if (node->bytes > 0)
        memcpy(node->synced, node->data, node->bytes);
    node->synced_bytes = node->bytes;
}

#define MEMORY_BEGIN(m)                                                                  \
    memory_files *m = self; memory_node *parent, *node; char name[80];                   \
    bool half = false; int cause = 0;                                                    \
    (void)parent; (void)node; (void)name; (void)half; pthread_mutex_lock(&m->lock)
#define MEMORY_END(m) do { pthread_mutex_unlock(&m->lock); return cause; } while (0)

static inline int memory_open(void *self, const char *path, tutti_file_mode mode, int *fd)
{
    MEMORY_BEGIN(m);
    node = memory_find(m, path, &parent, name);
    cause = 0;
    if (mode == TUTTI_FILE_READ && node == NULL)
        cause = ENOENT;
    else if (mode == TUTTI_FILE_CREATE && node != NULL)
        cause = EEXIST;
    else if (node == NULL && parent == NULL)
        cause = ENOENT;
    else if (mode != TUTTI_FILE_READ)
        cause = memory_strike(m, &half);
    if (cause == 0 && node == NULL) {
        node = memory_node_new(m, false);
        memory_change_entries(parent, "", name, node);
    }
    for (*fd = 0; cause == 0 && m->fds[*fd] != NULL;)
        if (++*fd == MEMORY_FDS)
            cause = EMFILE;
    if (cause == 0)
        m->fds[*fd] = node;
    else
        *fd = -1;
    MEMORY_END(m);
}

static inline int memory_size(void *self, int fd, uint64_t *bytes)
{
    MEMORY_BEGIN(m);
    *bytes = m->fds[fd]->bytes;
    cause = m->fds[fd]->directory ? EISDIR : 0;
    MEMORY_END(m);
}

static inline int memory_read(void *self, int fd, uint64_t offset, void *to, size_t bytes,
                              size_t *done)
{
    MEMORY_BEGIN(m);
    node = m->fds[fd];
    cause = node->directory ? EISDIR : ++m->reads == m->fail_read_at ? EIO : 0;
    *done = 0;
    if (cause == 0 && offset < node->bytes) {
        *done = bytes < node->bytes - offset ? bytes : node->bytes - (size_t)offset;
        memcpy(to, node->data + offset, *done);
    }
    MEMORY_END(m);
}

static inline int memory_write(void *self, int fd, const void *from, size_t bytes, size_t *done)
{
    MEMORY_BEGIN(m);
    cause = memory_strike(m, &half);
    *done = cause == 0 ? half ? (bytes + 1) / 2 : bytes : 0;
    memory_append(m->fds[fd], from, cause == 0 ? *done : half ? bytes / 2 : 0);
    MEMORY_END(m);
}

static inline int memory_reserve(void *self, int fd, uint64_t bytes)
{
    MEMORY_BEGIN(m);
    cause = memory_strike(m, &half);
    node = m->fds[fd];
    if (cause == 0 && node->bytes < bytes) {
        uint8_t *zeros = calloc(1, (size_t)bytes - node->bytes);
        if (zeros == NULL)
            abort();
        memory_append(node, zeros, (size_t)bytes - node->bytes);
        free(zeros);
    }
    MEMORY_END(m);
}

static inline int memory_direct(void *self, int fd, bool on)
{
    (void)self;
    (void)fd;
    (void)on;
    return 0;
}

static inline int memory_write_at(void *self, int fd, uint64_t offset, const void *from,
                                  size_t bytes, size_t *done)
{
    MEMORY_BEGIN(m);
    cause = memory_strike(m, &half);
    *done = cause == 0 ? half ? (bytes + 1) / 2 : bytes : 0;
    node = m->fds[fd];
    if (offset + bytes > node->bytes) /* no code here writes past what was reserved */
        abort();
    memcpy(node->data + offset, from, cause == 0 ? *done : half ? bytes / 2 : 0);
    pthread_mutex_unlock(&m->lock);
    if (cause == 0 && m->dawdle_ns > 0)
        tutti_sleep_until(m->real, tutti_now_ns(m->real) + m->dawdle_ns);
    return cause;
}

static inline int memory_sync(void *self, int fd)
{
    MEMORY_BEGIN(m);
    cause = memory_strike(m, &half);
    if (cause == 0)
        memory_file_synced(m->fds[fd]);
    MEMORY_END(m);
}

static inline int memory_close(void *self, int fd)
{
    MEMORY_BEGIN(m);
    m->fds[fd] = NULL;
    cause = 0;
    MEMORY_END(m);
}

static inline int memory_rename(void *self, const char *from, const char *to)
{
    memory_node *other, *other_parent;
    char other_name[80];
    MEMORY_BEGIN(m);
    node = memory_find(m, from, &parent, name);
    other = memory_find(m, to, &other_parent, other_name);
    cause = node == NULL || other_parent == NULL                        ? ENOENT
            : other != NULL && other->directory && other->entries.n > 0 ? ENOTEMPTY
                                                                        : 0;
    if (cause == 0)
        cause = memory_strike(m, &half);
    if (cause == 0 && parent == other_parent) {
        memory_change_entries(parent, name, other_name, node);
    } else if (cause == 0) {
        memory_change_entries(parent, name, "", node);
        memory_change_entries(other_parent, "", other_name, node);
    }
    MEMORY_END(m);
}

static inline int memory_remove(void *self, const char *path)
{
    MEMORY_BEGIN(m);
    node = memory_find(m, path, &parent, name);
    cause = node == NULL ? ENOENT : node->directory && node->entries.n > 0 ? ENOTEMPTY : 0;
    if (cause == 0)
        cause = memory_strike(m, &half);
    if (cause == 0)
        memory_change_entries(parent, name, "", node);
    MEMORY_END(m);
}

static inline int memory_make(void *self, const char *path)
{
    MEMORY_BEGIN(m);
    node = memory_find(m, path, &parent, name);
    cause = node != NULL ? EEXIST : parent == NULL ? ENOENT : memory_strike(m, &half);
    if (cause == 0)
        memory_change_entries(parent, "", name, memory_node_new(m, true));
    MEMORY_END(m);
}

static inline int memory_sync_directory(void *self, const char *path)
{
    MEMORY_BEGIN(m);
    node = memory_find(m, path, &parent, name);
    cause = node == NULL ? ENOENT : memory_strike(m, &half);
    if (cause == 0)
        memory_entries_synced(node);
    MEMORY_END(m);
}

static inline int memory_list(void *self, const char *path,
                              void (*each)(void *user, const char *name), void *user)
{
    MEMORY_BEGIN(m);
    node = memory_find(m, path, &parent, name);
    cause = node == NULL ? ENOENT : !node->directory ? ENOTDIR : 0;
    for (size_t k = 0; cause == 0 && k < node->entries.n; k++)
        each(user, node->entries.at[k].name);
    MEMORY_END(m);
}

static inline int memory_exists(void *self, const char *path)
{
    MEMORY_BEGIN(m);
    cause = memory_find(m, path, &parent, name) != NULL ? 0 : ENOENT;
    MEMORY_END(m);
}

static inline int memory_space(void *self, const char *path, uint64_t *bytes)
{
    MEMORY_BEGIN(m);
    cause = memory_find(m, path, &parent, name) != NULL ? 0 : ENOENT;
    *bytes = m->space;
    MEMORY_END(m);
}

/* What is not about files goes to the real runtime. */
static inline int64_t memory_now(void *self)
{
    memory_files *m = self;
    return m->real->ops->now(m->real->self);
}
static inline void memory_sleep(void *self, int64_t t)
{
    memory_files *m = self;
    m->real->ops->sleep_until(m->real->self, t);
}
static inline void memory_charge(void *self, double flops, double bytes)
{
    (void)self;
    (void)flops;
    (void)bytes;
}
static inline int memory_thread(void *self, void **thread, const char *name, void (*run)(void *),
                                void *arg)
{
    memory_files *m = self;
    return m->real->ops->thread_open(m->real->self, thread, name, run, arg);
}
static inline void memory_join(void *self, void *thread)
{
    memory_files *m = self;
    m->real->ops->thread_join(m->real->self, thread);
}
static inline int memory_monitor(void *self, void **monitor)
{
    memory_files *m = self;
    return m->real->ops->monitor_open(m->real->self, monitor);
}
static inline void memory_monitor_close(void *self, void *monitor)
{
    memory_files *m = self;
    m->real->ops->monitor_close(m->real->self, monitor);
}
static inline void memory_lock(void *self, void *monitor)
{
    memory_files *m = self;
    m->real->ops->lock(m->real->self, monitor);
}
static inline void memory_unlock(void *self, void *monitor)
{
    memory_files *m = self;
    m->real->ops->unlock(m->real->self, monitor);
}
static inline bool memory_wait(void *self, void *monitor, int64_t t)
{
    memory_files *m = self;
    return m->real->ops->wait(m->real->self, monitor, t);
}
static inline void memory_wake(void *self, void *monitor)
{
    memory_files *m = self;
    m->real->ops->wake(m->real->self, monitor);
}
static inline void memory_entropy(void *self, void *to, size_t bytes)
{
    (void)self;
    memset(to, 0x5a, bytes);
}

static const tutti_runtime_ops memory_ops = {
    .abi = TUTTI_RUNTIME_ABI,
    .bytes = sizeof(tutti_runtime_ops),
    .name = "memory",
    .now = memory_now,
    .sleep_until = memory_sleep,
    .charge = memory_charge,
    .thread_open = memory_thread,
    .thread_join = memory_join,
    .monitor_open = memory_monitor,
    .monitor_close = memory_monitor_close,
    .lock = memory_lock,
    .unlock = memory_unlock,
    .wait = memory_wait,
    .wake = memory_wake,
    .file_open = memory_open,
    .file_size = memory_size,
    .file_read = memory_read,
    .file_write = memory_write,
    .file_sync = memory_sync,
    .file_close = memory_close,
    .file_rename = memory_rename,
    .file_remove = memory_remove,
    .directory_make = memory_make,
    .directory_sync = memory_sync_directory,
    .directory_list = memory_list,
    .exists = memory_exists,
    .space_left = memory_space,
    .entropy = memory_entropy,
};

static inline memory_files *memory_files_open(tutti_runtime *real)
{
    memory_files *m = calloc(1, sizeof *m);
    if (m == NULL)
        abort();
    m->rt.ops = &memory_ops;
    m->rt.self = m;
    m->real = real;
    m->space = (uint64_t)1 << 40;
    pthread_mutex_init(&m->lock, NULL);
    m->root = memory_node_new(m, true);
    return m;
}

static inline memory_files *memory_files_open_wide(tutti_runtime *real)
{
    memory_files *m = memory_files_open(real);
    m->wide = memory_ops;
    m->wide.file_reserve = memory_reserve;
    m->wide.file_direct = memory_direct;
    m->wide.file_write_at = memory_write_at;
    m->rt.ops = &m->wide;
    return m;
}

static inline void memory_files_close(memory_files *m)
{
    while (m->all != NULL) {
        memory_node *node = m->all;
        m->all = node->next;
        free(node->data);
        free(node->synced);
        free(node->changes.at);
        free(node);
    }
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* The process is gone, and what it had open; with power, what was not synced is gone as
   well: contents, entries, or both. */
static inline void memory_files_crash(memory_files *m, bool lose_contents, bool lose_entries)
{
    memset(m->fds, 0, sizeof m->fds);
    m->stopped = false;
    m->fault = FAULT_NONE;
    m->stop_at = 0;
    for (memory_node *node = m->all; node != NULL; node = node->next) {
        if (lose_entries) {
            node->entries = node->synced_entries;
            node->changes.n = 0;
        }
        if (lose_contents && !node->directory) {
            uint8_t *kept = node->synced_bytes > 0 ? malloc(node->synced_bytes) : NULL;
            if (kept != NULL)
                memcpy(kept, node->synced, node->synced_bytes);
            free(node->data);
            node->data = kept;
            node->bytes = node->synced_bytes;
        }
    }
}

/* Changes of entries that may, or may not, be on the disk after a loss of power. */
static inline size_t memory_files_unsynced(const memory_files *m)
{
    size_t n = 0;
    for (const memory_node *node = m->all; node != NULL; node = node->next)
        n += node->changes.n;
    return n;
}

/* A loss of power that finds some of the changes of entries on the disk, whatever their order:
   those that are drawn. Called again it is another outcome of the same loss. */
static inline void memory_files_crash_with_some(memory_files *m, bool lose_contents, tutti_rng draw)
{
    uint64_t k = 0;
    for (memory_node *node = m->all; node != NULL; node = node->next) {
        memory_entries kept = node->synced_entries;
        for (size_t c = 0; c < node->changes.n; c++) {
            const memory_change *change = &node->changes.at[c];
            memory_node **there = memory_entry(&kept, change->from);
            if (tutti_random(draw, k++) % 2 == 0)
                continue;
            /* else the name is another's by now, or never was this one's */
            if (there != NULL && *there == change->node)
                memory_entry_drop(&kept, change->from);
            if (change->to[0] != '\0')
                memory_entry_set(&kept, change->to, change->node);
        }
        node->entries = kept;
    }
    memory_files_crash(m, lose_contents, false);
}

/* A file with these bytes, synced with all that leads to it; replaces one that is there. */
static inline void memory_files_put(memory_files *m, const char *path, const void *data,
                                    size_t bytes)
{
    char part[512];
    memory_node *parent, *node;
    uint8_t *old;
    char name[80];
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        node = memory_find(m, part, &parent, name);
        if (node == NULL)
            memory_entry_set(&parent->entries, name, memory_node_new(m, true));
        if (parent != NULL)
            memory_entries_synced(parent);
    }
    node = memory_find(m, path, &parent, name);
    if (node == NULL) {
        node = memory_node_new(m, false);
        memory_entry_set(&parent->entries, name, node);
    }
    memory_entries_synced(parent);
    old = node->data; /* which `data` may lie in */
    node->data = NULL;
    node->bytes = 0;
    memory_append(node, data, bytes);
    memory_file_synced(node);
    free(old);
}

/* The bytes of a file, to look at and to change; NULL: there is none. */
static inline uint8_t *memory_files_get(memory_files *m, const char *path, size_t *bytes)
{
    memory_node *parent, *node;
    char name[80];
    node = memory_find(m, path, &parent, name);
    *bytes = node == NULL ? 0 : node->bytes;
    return node == NULL || node->directory ? NULL : node->data;
}

/* Entries of a directory whose names begin so. */
static inline size_t memory_files_count(memory_files *m, const char *path, const char *begin)
{
    memory_node *parent, *node;
    char name[80];
    size_t n = 0;
    node = memory_find(m, path, &parent, name);
    for (size_t k = 0; node != NULL && k < node->entries.n; k++)
        n += strncmp(node->entries.at[k].name, begin, strlen(begin)) == 0;
    return n;
}
#endif
