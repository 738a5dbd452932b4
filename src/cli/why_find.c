/* why_find.c: finds the records of a run's ranks (runtime/activity.h) among this user's processes,
   by /proc. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "why_internal.h"

enum { TRIES = 8, PAUSE_NS = 2000000, PARENTS_MOST = 64 };

/* Reads state and parent of a process from /proc/PID/stat. false: there is no such process. */
static bool stat_of(long pid, char *state, long *parent)
{
    char path[64], text[1024];
    const char *end = NULL;
    FILE *file;
    size_t n;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    end = strrchr(text, ')'); /* of the program's name, which may have anything in it */
    return end != NULL && sscanf(end, ") %c %20ld", state, parent) == 2;
}

/* Is `pid` the process `of`, or has that started it, or a process that it started? */
static bool is_below(long pid, long of)
{
    char state;

    for (int k = 0; pid > 1 && k < PARENTS_MOST; k++) {
        if (pid == of)
            return true;
        if (!stat_of(pid, &state, &pid))
            return false;
    }
    return false;
}

/* Is `inside` the number of process `pid` in its innermost namespace? Children that were forked
   from a rank have its descriptors, and so its record too. */
static bool is_itself(long pid, long inside)
{
    char path[64], line[256];
    long last = -1;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "NSpid:", 6) == 0) {
            char *at = line + 6, *end;
            for (long id = strtol(at, &end, 10); end != at; id = strtol(at, &end, 10)) {
                last = id;
                at = end;
            }
        }
    fclose(file);
    return last < 0 ? pid == inside : last == inside;
}

/* Reads the record at fd into `rank`, again while entries of it are being written. */
static tutti_status read_record(tutti_runtime *rt, int fd, why_rank *rank, tutti_error *err)
{
    const size_t bytes = tutti_activity_size();
    /* of each copy: a byte more than a record has, and the second one aligned as the first */
    const size_t apart = (bytes + 1 + 63) / 64 * 64;
    unsigned char *copy = tutti_alloc(2, apart);
    tutti_status status =
        copy != NULL ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading a record");

    rank->view.changing = 1;
    for (int k = 0; k < TRIES && status == TUTTI_OK && (k == 0 || rank->view.changing > 0); k++) {
        ssize_t n[2];
        if (k > 0)
            tutti_sleep_until(rt, tutti_now_ns(rt) + PAUSE_NS);
        for (int i = 0; i < 2; i++)
            /* a byte more: is it longer? */
            n[i] = pread(fd, copy + (size_t)i * apart, bytes + 1, 0);
        if (n[0] < 0 || n[1] < 0)
            status = tutti_fail(err, TUTTI_ERR_IO, errno, "reading the record of process %ld",
                                rank->process);
        else
            status = tutti_activity_read(&rank->view, copy, copy + apart,
                                         (size_t)(n[0] < n[1] ? n[0] : n[1]), err);
    }
    tutti_free(copy);
    return status;
}

/* Makes room for a rank more. NULL: no memory. */
static why_rank *next_rank(why_found *found)
{
    if (found->n == found->room) {
        const int room = 2 * found->room + 8;
        why_rank *more = tutti_alloc((size_t)room, sizeof *more);
        if (more == NULL)
            return NULL;
        if (found->n > 0)
            memcpy(more, found->ranks, (size_t)found->n * sizeof *more);
        tutti_free(found->ranks);
        found->ranks = more;
        found->room = room;
    }
    memset(&found->ranks[found->n], 0, sizeof *found->ranks);
    return &found->ranks[found->n];
}

static tutti_status take_record(why_found *found, long pid, const char *path, tutti_error *err)
{
    tutti_error why = { .rank = -1 };
    why_rank *rank = next_rank(found);
    long parent;
    const int fd = rank != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (rank == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "finding the ranks of a run");
    if (fd < 0)
        return TUTTI_OK; /* it has ended meanwhile */
    rank->process = pid;
    if (read_record(found->rt, fd, rank, &why) != TUTTI_OK) {
        /* other processes may have records of another version */
        const bool asked = found->asked > 0 && !found->asked_damaged && is_below(pid, found->asked);
        found->asked_damaged = found->asked_damaged || asked;
        if (found->damaged++ == 0 || asked)
            snprintf(found->why_damaged, sizeof found->why_damaged, "process %ld: %.300s", pid,
                     why.text);
    } else if (is_itself(pid, (long)rank->view.about.process)) {
        if (!stat_of(pid, &rank->state, &parent))
            rank->state = 0;
        found->n++;
    }
    close(fd);
    return TUTTI_OK;
}

/* The records of one process: those of its descriptors that have the name of a record. */
static tutti_status take_process(why_found *found, long pid, tutti_error *err)
{
    static const char wanted[] = "/memfd:" TUTTI_ACTIVITY_FILE;
    char folder[64], path[400], target[sizeof wanted + 32];
    tutti_status status = TUTTI_OK;
    const struct dirent *entry;
    DIR *list;

    snprintf(folder, sizeof folder, "/proc/%ld/fd", pid);
    list = opendir(folder);
    while (list != NULL && status == TUTTI_OK && (entry = readdir(list)) != NULL) {
        ssize_t n;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strncmp(target, wanted, sizeof wanted - 1) == 0)
            status = take_record(found, pid, path, err);
    }
    if (list != NULL)
        closedir(list);
    return status;
}

static tutti_status take_all(why_found *found, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    const struct dirent *entry;
    DIR *all = opendir("/proc");

    if (all == NULL)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "listing /proc, where the ranks of a run are found");
    while (status == TUTTI_OK && (entry = readdir(all)) != NULL)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            status = take_process(found, strtol(entry->d_name, NULL, 10), err);
    closedir(all);
    found->now_ns = tutti_now_ns(found->rt);
    return status;
}

/* ---- which of them ---- */

static bool is_number(const char *text, long *number)
{
    char *end;

    errno = 0;
    *number = strtol(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

static bool is_asked(const why_rank *rank, const char *folder, long pid)
{
    return folder != NULL ? strcmp(rank->view.folder, folder) == 0 : is_below(rank->process, pid);
}

static int by_rank(const void *a, const void *b)
{
    const tutti_activity_about *x = &((const why_rank *)a)->view.about,
                               *y = &((const why_rank *)b)->view.about;

    if (x->rank != y->rank)
        return (unsigned)x->rank < (unsigned)y->rank ? -1 : 1; /* -1 is last */
    return x->opened_ns < y->opened_ns ? -1 : x->opened_ns > y->opened_ns;
}

/* Does the process have a record in [0, n) that is (member) a member's, or else a rank's? */
static bool has_record(const why_rank *ranks, int n, long process, bool member)
{
    for (int k = 0; k < n; k++)
        if (ranks[k].process == process && (ranks[k].view.about.rank < 0) == member)
            return true;
    return false;
}

/* Keeps of each rank the newest record, since a process may have had several worlds, and of members
   those that are in no world. Two members may be in worlds of two epochs, and have the same rank
   there. Returns how many are left. */
static int keep_one_each(why_found *found)
{
    const int n = found->n;
    why_rank *const r = found->ranks;
    int kept = 0;

    for (int k = 0; k < n; k++) {
        const bool member = has_record(r, n, r[k].process, true);
        r[k].replaced = r[k].view.about.rank < 0 && has_record(r, n, r[k].process, false);
        for (int i = k + 1; i < n && r[i].view.about.rank == r[k].view.about.rank; i++)
            r[k].replaced = r[k].replaced || !member || r[i].process == r[k].process;
    }
    for (int k = 0; k < n; k++)
        if (!r[k].replaced)
            r[kept++] = r[k];
    return kept;
}

/* Does `a` tell better than `b` what run is asked for? A member does: it may have the world of the
   founders still, which is of another run. Else the newer one. */
static bool is_better(const tutti_activity_about *a, const tutti_activity_about *b)
{
    const bool member = a->rank < 0, other = b->rank < 0;

    return member != other ? member : a->opened_ns > b->opened_ns;
}

/* Keeps what is of the run that was asked for. Returns how many are left. */
static int keep_run(why_found *found, const char *folder, long pid)
{
    const why_rank *of = NULL;
    uint64_t run;
    int n = 0;

    for (int k = 0; k < found->n; k++)
        if (is_asked(&found->ranks[k], folder, pid) &&
            (of == NULL || is_better(&found->ranks[k].view.about, &of->view.about)))
            of = &found->ranks[k];
    if (of == NULL)
        return 0;
    run = of->view.about.run;
    for (int k = 0; k < found->n; k++)
        if (found->ranks[k].view.about.run == run)
            found->ranks[n++] = found->ranks[k];
    found->n = n;
    qsort(found->ranks, (size_t)n, sizeof *found->ranks, by_rank);
    return keep_one_each(found);
}

static tutti_status none_of_process(const why_found *found, long pid, tutti_error *err)
{
    char path[64];
    struct stat about;

    snprintf(path, sizeof path, "/proc/%ld", pid);
    if (pid <= 0 || stat(path, &about) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "there is no process %ld: the run has ended, or is on another host", pid);
    if (about.st_uid != geteuid() && geteuid() != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "process %ld belongs to another user (number %ld), who alone can look into it", pid,
            (long)about.st_uid);
    if (found->asked_damaged)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "no rank of a run can be read: %s",
                          found->why_damaged);
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "process %ld is no rank of a run of Tutti, and has started none that has joined its run; "
        "give the process of `tutti train` or `tutti run`, that of a worker, or the run's "
        "directory",
        pid);
}

tutti_status tutti_why_find(why_found *found, const char *given, tutti_error *err)
{
    long pid = 0;
    const bool process = is_number(given, &pid);
    char *folder = process ? NULL : realpath(given, NULL);
    tutti_status status;

    memset(found, 0, sizeof *found);
    found->asked = pid;
    if (!process && folder == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, errno,
                          "'%.300s' is neither the number of a process nor a directory", given);
    status = tutti_runtime_open_posix(&found->rt, err);
    if (status == TUTTI_OK)
        status = take_all(found, err);
    if (status == TUTTI_OK) {
        found->n = keep_run(found, folder, pid);
        if (found->n == 0 && process)
            status = none_of_process(found, pid, err);
        else if (found->n == 0)
            status = tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "no process of this host has '%.300s' as its run's directory: the run has ended, "
                "is on another host or of another user; a script names its directory with "
                "trace=DIR, or give a process",
                folder);
    }
    free(folder);
    return status;
}

void tutti_why_close(why_found *found)
{
    tutti_free(found->ranks);
    found->ranks = NULL;
    tutti_runtime_close(found->rt);
    found->rt = NULL;
}
