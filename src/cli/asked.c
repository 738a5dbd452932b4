/* asked.c: being asked to end, by SIGTERM or Ctrl-C: of runs that save a checkpoint first, and of
   workers that leave a run. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli_internal.h"

static struct {                          /* written by signal handlers */
    volatile sig_atomic_t by;            /* the first signal; 0: none yet */
    /* it is a second ago, so that another one is a second request */
    volatile sig_atomic_t echo_over;
    /* our launcher started this process, and handles second signals */
    volatile sig_atomic_t has_launcher;
    volatile sig_atomic_t by_launcher;   /* a signal came from our launcher */
} asked;

static void note_time(int number)
{
    (void)number;
    asked.echo_over = 1;
}

/* The handler: records the first signal. A second one ends the process at once, unless it is the
   same signal, sent again by the launcher (launch.h). */
static void note_signal(int number, siginfo_t *from, void *context)
{
    (void)context;
    if (asked.has_launcher && from->si_pid == getppid())
        asked.by_launcher = 1;
    if (asked.by == 0) {
        asked.by = number;
        alarm(1);
    } else if (asked.echo_over && !asked.has_launcher) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

int tutti_cli_asked(void *user)
{
    (void)user;
    return (int)asked.by;
}

/* Installs the handlers, except for signals that are ignored (nohup, a launcher's workers at the
   terminal). Handlers have a stack of their own: oneDNN's matrix kernels for AVX2 move the stack
   pointer into their working memory on the heap, where the frame of a handler would overwrite other
   data. */
void tutti_cli_handle_signals(bool launched)
{
    static char room[1 << 16];
    static const int wanted[] = { SIGTERM, SIGINT };
    const stack_t stack = { .ss_sp = room, .ss_size = sizeof room };
    struct sigaction note = { .sa_sigaction = note_signal,
                              .sa_flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK },
                     now;
    struct sigaction time = { .sa_handler = note_time, .sa_flags = SA_RESTART | SA_ONSTACK };

    sigaltstack(&stack, NULL);
    asked.has_launcher = launched;
    sigemptyset(&note.sa_mask);
    sigemptyset(&time.sa_mask);
    sigaction(SIGALRM, &time, NULL);
    for (size_t i = 0; i < TUTTI_LENGTH(wanted); i++)
        if (sigaction(wanted[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaction(wanted[i], &note, NULL);
}

/* Returns the exit code of a rank that a signal has stopped. A rank that received no signal itself
   ends as the others. Our launcher knows the exit code if it sent the signal; if not, the rank that
   received the signal from elsewhere reports it. */
int tutti_cli_code_of_stop(void)
{
    if (asked.has_launcher && (asked.by_launcher || asked.by == 0))
        return EXIT_DONE;
    return 128 + (asked.by != 0 ? (int)asked.by : SIGTERM);
}

bool tutti_cli_asked_by_launcher(void)
{
    return asked.by_launcher != 0;
}
