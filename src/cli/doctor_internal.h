/* doctor_internal.h: what `tutti doctor` finds, and the parts that look. Included by the files
   doctor*.c. */
#ifndef TUTTI_CLI_DOCTOR_INTERNAL_H
#define TUTTI_CLI_DOCTOR_INTERNAL_H
#include "cli_internal.h"
#include "tutti/base.h"

typedef enum tutti_finding_state {
    FINDING_WORKS,
    FINDING_LIMITED,             /* works, and something else will not, or less well */
    FINDING_ABSENT,              /* is not here, and only what asks for it needs it */
    FINDING_FAILS,               /* does not work, and Tutti needs it here */
    FINDING_STATES
} tutti_finding_state;
const char *tutti_finding_state_name(tutti_finding_state state); /* "works" */

typedef struct tutti_finding {
    tutti_finding_state state;
    char name[24], found[420], mend[420]; /* mend "": there is nothing to mend */
} tutti_finding;
enum { FINDINGS_MOST = 48 };
typedef struct tutti_findings {
    tutti_finding list[FINDINGS_MOST];
    int n;
} tutti_findings;
/* Adds a finding, if there is room. Texts are cut where they are too long. */
void tutti_finding_add(tutti_findings *f, const char *name, tutti_finding_state state,
                       const char *mend, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* ---- doctor_host.c: cores, memory, /dev/shm, names, network ---- */
void tutti_doctor_host(tutti_findings *f);

/* ---- doctor_parts.c: transports, MPI, SimGrid, drivers of cards ---- */
void tutti_doctor_parts(tutti_findings *f, tutti_runtime *rt);

/* ---- doctor_child.c: questions whose answer may crash or hang are asked in a child ---- */
typedef struct tutti_doctor_answer {
    char text[16384];            /* what it wrote to standard output and standard error */
    bool late;                   /* it was killed at the limit, with all that it had started */
    int code;                    /* exit code; 128 + the signal that ended it; -1: not started */
} tutti_doctor_answer;
/* Calls run(user) in a child and waits for its end, limit_ns at most. */
void tutti_doctor_ask(tutti_runtime *rt, int64_t limit_ns, void (*run)(void *user), void *user,
                      tutti_doctor_answer *out);

/* ---- doctor_python.c: Python, PyTorch, its cards, the package. python "": that of the virtual
   environment, else python3 of PATH. ---- */
void tutti_doctor_python(tutti_findings *f, tutti_runtime *rt, const char *python,
                         int64_t limit_ns);
#endif
