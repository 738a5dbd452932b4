/* tcp_conformance_test.c: sockets under the suite: ranks that are threads and ranks that are
   processes, over local sockets and over loopback, with one and with several connections a pair.
   The process ranks are forked here, and the parent plays the launcher: it serves the meeting
   place, and reports to it how each rank ended. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "conformance.h"
#include "conformance_memory.h"
#include "transport/meet.h"
#include "transport/registry.h"

static const struct { const char *name, *spec, *address; bool processes; } forms[] = {
    { "threads", "tcp", "unix", false },
    { "threads-tcp", "tcp(local=tcp)", "127.0.0.1", false },
    { "threads-streams", "tcp(local=tcp,streams=3,chunk=4096,eager=256)", "127.0.0.1", false },
    { "processes", "tcp", "unix", true },
    { "processes-tcp", "tcp(local=tcp,streams=2,wire-check=off)", "127.0.0.1", true },
};
static size_t form; /* of this process: one a run of the program */

static tutti_status as_threads(tutti_runtime *rt, int n, conformance_rank_main rank_main, void *arg, tutti_error *err)
{
    const tutti_launch launch = { .rank = 0, .size = n, .spec = forms[form].spec };

    return tutti_transport_find("tcp")->run(rt, &launch, rank_main, arg, err);
}

static void child(const tutti_meet_options *o, const char *where, int rank, conformance_rank_main rank_main, void *arg)
{
    char meet[120], id[TUTTI_RUN_ID_TEXT], key[TUTTI_RUN_KEY_TEXT], id_text[80], key_text[120];
    char *environment[] = { meet, id_text, key_text, NULL };
    const tutti_launch launch = { .rank = rank, .size = o->size, .spec = forms[form].spec, .environment = environment };
    tutti_error err = { .rank = -1 };

    tutti_run_id_text(&o->id, id);
    tutti_run_key_text(&o->key, key);
    snprintf(meet, sizeof meet, "%s=%s", TUTTI_MEET_VARIABLE, where);
    snprintf(id_text, sizeof id_text, "%s=%s", TUTTI_MEET_VARIABLE_ID, id);
    snprintf(key_text, sizeof key_text, "%s=%s", TUTTI_MEET_VARIABLE_KEY, key);
    _exit(rank_main(&launch, arg, &err) == TUTTI_OK ? 0 : 1);
}

static void note_end(tutti_meet *meet, int rank, pid_t pid, int how)
{
    tutti_error why = { .rank = -1 };

    if (WIFSIGNALED(how))
        tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld was killed by signal %d (%s)", (long)pid, WTERMSIG(how),
                   strsignal(WTERMSIG(how)));
    else if (WEXITSTATUS(how) != 0)
        tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld exited with code %d", (long)pid, WEXITSTATUS(how));
    tutti_meet_lost(meet, rank, &why, WIFSIGNALED(how) ? WTERMSIG(how) : 0);
}

static tutti_status as_processes(tutti_runtime *rt, int n, conformance_rank_main rank_main, void *arg, tutti_error *err)
{
    tutti_meet_options options = { .address = forms[form].address, .size = n };
    tutti_status status = TUTTI_OK;
    tutti_meet *meet;
    char where[80];
    pid_t pids[64];
    int left = n, culprit;

    tutti_run_id_make(rt, &options.id);
    tutti_run_key_make(rt, &options.key);
    TUTTI_TRY(tutti_meet_open(&meet, rt, &options, err));
    tutti_meet_where(meet, NULL, where, sizeof where);
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            child(&options, where, r, rank_main, arg);
    }
    while (left > 0) {
        struct pollfd polled = { .fd = tutti_meet_fd(meet), .events = POLLIN };
        pid_t pid;
        int how;
        poll(&polled, 1, 2);
        while ((pid = waitpid(-1, &how, WNOHANG)) > 0) {
            int r = 0;
            while (pids[r] != pid)
                r++;
            note_end(meet, r, pid, how);
            left--;
        }
        tutti_meet_progress(meet, NULL);
    }
    culprit = tutti_meet_culprit(meet);
    if (culprit >= 0) {
        char text[400];
        tutti_meet_describe(meet, culprit, text, sizeof text);
        status = tutti_fail_rank(err, TUTTI_ERR_PEER, culprit, "%s", text);
    }
    tutti_meet_close(meet);
    return status;
}

int main(int argc, char **argv)
{
    conformance_subject subject = {
        .name = "tcp", .ops = tutti_transport_find("tcp"), .run = as_threads, .edges = { 256, 65536, 256 << 10 },
        .starve = conformance_starve
    };

    for (form = 0; argc > 1 && strcmp(argv[1], forms[form].name) != 0;) {
        if (++form == TUTTI_LENGTH(forms)) {
            fprintf(stderr, "no form '%s'\n", argv[1]);
            return 2;
        }
    }
    subject.name = forms[form].spec;
    if (forms[form].processes) {
        subject.run = as_processes;
        subject.processes = subject.hears_silence = true;
    }
    if (argc > 2) /* one test by name, * and ? allowed */
        cmocka_set_test_filter(argv[2]);
    return conformance_run(&subject);
}
