/* member.c: a program of the library for the tests of starting: a member of a run, whichever
   launcher starts it. It opens a world, adds up its ranks, and prints the result on one line:

     member [TRANSPORT [MODE]]

   TRANSPORT "": what the library takes for itself. MODE:
     once     (default) one sum, then it leaves
     twice    a world after the other
     on       sums for ever; a failure is printed with the time since the last sum
     alone    nothing more: it waits for its end
     late     waits a second before it opens the world
     fork     each has a child that closes its copy of the world; another sum
     family   as `on`, each with a child that has its descriptors and lives until it is killed
     exit:R:N rank R ends with exit code N after the first sum, the others continue as under `on`
     die:R    rank R kills itself after the first sum
     outlive:R    the same, and the others leave in order a second later */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tutti/tutti.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static tutti_status sum(tutti_world *w, float *value, tutti_error *err)
{
    tutti_group all = tutti_group_workers(w, tutti_port_of("member", 0, 0));

    *value = (float)tutti_world_rank(w) + 1;
    return tutti_allreduce(&all, TUTTI_SUM, tutti_host(value, 1, TUTTI_F32), err);
}

static int fail(const tutti_error *err, double since)
{
    printf("failed: status %d rank %d after %.3f s: %s\n", (int)err->status, err->rank, now() - since, err->text);
    fflush(stdout);
    return err->status == TUTTI_ERR_USAGE ? 2 : err->status == TUTTI_ERR_PEER ? 3 : 1;
}

static void say(void *user, const char *line)
{
    (void)user;
    printf("waits: %s\n", line);
    fflush(stdout);
}

static const char *or_none(const char *text)
{
    return text != NULL ? text : "-";
}

static int member(const char *transport, const char *mode)
{
    tutti_error err = { .rank = -1 };
    double since = now();
    tutti_world *w;
    float value;
    int who = -1, code = 0, rank;

    sscanf(mode, "exit:%d:%d", &who, &code);
    sscanf(mode, "die:%d", &who);
    sscanf(mode, "outlive:%d", &who);
    if (tutti_world_open_telling(&w, transport, say, NULL, &err) != TUTTI_OK)
        return fail(&err, since);
    rank = tutti_world_rank(w);
    if (sum(w, &value, &err) != TUTTI_OK)
        return fail(&err, since);
    if (strcmp(mode, "family") == 0 && fork() == 0) {
        for (int fd = 0; fd < 3; fd++)
            close(fd);
        sleep(300);
        _exit(0);
    }
    printf("rank %d of %d over %s: %g; pid %ld; RANK %s LOCAL_RANK %s/%s MASTER %s THREADS %s\n", rank,
           tutti_world_size(w), tutti_world_transport(w), (double)value, (long)getpid(), or_none(getenv("RANK")),
           or_none(getenv("LOCAL_RANK")), or_none(getenv("LOCAL_WORLD_SIZE")), or_none(getenv("MASTER_ADDR")),
           or_none(getenv("OMP_NUM_THREADS")));
    fflush(stdout);
    if (rank == who && strncmp(mode, "exit:", 5) == 0)
        exit(code);
    if (rank == who)
        raise(SIGKILL);
    if (strcmp(mode, "fork") == 0) {
        const pid_t child = fork();
        if (child == 0) {
            tutti_world_close(w);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &code, 0) != child || code != 0)
            return 1;
        if (sum(w, &value, &err) != TUTTI_OK)
            return fail(&err, since);
    }
    if (strncmp(mode, "outlive:", 8) == 0) {
        sleep(1);
        who = -1;
    }
    while (strcmp(mode, "on") == 0 || strcmp(mode, "family") == 0 || who >= 0) {
        since = now();
        if (sum(w, &value, &err) != TUTTI_OK) {
            code = fail(&err, since);
            tutti_world_failure_report(w, &err);
            tutti_world_close(w);
            return code;
        }
        usleep(10000);
    }
    while (strcmp(mode, "alone") == 0) /* waits for no other rank; the launcher or the test ends it */
        usleep(10000);
    tutti_world_close(w);
    return 0;
}

int main(int argc, char **argv)
{
    const char *transport = argc > 1 ? argv[1] : NULL, *mode = argc > 2 ? argv[2] : "once";
    int code;

    if (strcmp(mode, "late") == 0)
        sleep(1);
    code = member(transport, mode);
    if (code == 0 && strcmp(mode, "twice") == 0)
        code = member(transport, mode);
    return code;
}
