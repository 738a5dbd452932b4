#include "forked.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct outcome { bool ended; tutti_status status; tutti_error err; } outcome;

tutti_status forked(tutti_status (*call)(void *arg, tutti_error *err), void *arg, tutti_error *err)
{
    outcome *const o = mmap(NULL, sizeof *o, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tutti_status status;
    pid_t child;
    int how;

    assert_true(o != MAP_FAILED);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        o->err.rank = -1;
        o->status = call(arg, &o->err);
        o->ended = true;
        _exit(0);
    }
    while (waitpid(child, &how, 0) != child)
        continue;
    if (o->ended) {
        status = o->status;
        *err = o->err;
    } else
        status = tutti_fail(err, TUTTI_ERR_IO, 0, "the child ended with %s %d", WIFSIGNALED(how) ? "signal" : "code",
                            WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    munmap(o, sizeof *o);
    return status;
}

const tutti_transport_ops *forked_sim(void)
{
    const tutti_transport_ops *ops;
    tutti_error err;

    if (tutti_transport_load("sim", &ops, NULL, 0, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    return ops;
}

typedef struct ranks_call {
    const char *spec;
    int n;
    tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err);
    void *arg;
} ranks_call;

static tutti_status run_ranks(void *arg, tutti_error *err)
{
    const ranks_call *c = arg;
    const tutti_launch launch = { .size = c->n, .spec = c->spec };
    tutti_runtime *rt;
    tutti_status status;

    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    status = forked_sim()->run(rt, &launch, c->rank_main, c->arg, err);
    tutti_runtime_close(rt);
    return status;
}

tutti_status forked_ranks(const char *spec, int n,
                          tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err), void *arg,
                          tutti_error *err)
{
    ranks_call c = { spec, n, rank_main, arg };

    return forked(run_ranks, &c, err);
}
