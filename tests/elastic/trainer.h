/* trainer.h: a process of an elastic run that trains something whose value after each step is
   known. It shares memory with the process that has forked it: what to do, and where it is.
     trainer.c  on a node of its own
     follower.c as the client of a follower (elastic/follow.h) */
#ifndef TUTTI_TESTS_TRAINER_H
#define TUTTI_TESTS_TRAINER_H
#include "elastic/node.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct trainer {
    /* Set before the fork. */
    int rank, size;              /* of a founder; size 0: a newcomer */
    char meet[80];               /* of the founders' world */
    char contact[TUTTI_ADDRESS_BYTES]; /* of a newcomer */
    tutti_run_id run;
    tutti_run_key key;
    bool follows;                /* follower.c; so are the next six */
    uint64_t begins;             /* the step at which the run begins, of founders */
    bool slow;                   /* in taking parts of a state */
    int64_t dead_ns;
    int most;                    /* members; 0: any number */
    size_t bytes;                /* of a state */
    char pass[100];              /* the file that it keeps; "": none */
    pid_t pid;
    /* What it is to do. */
    _Atomic bool leave, quit;
    _Atomic bool stands;         /* a follower: make no step, and call nothing */
    _Atomic bool fail;           /* a follower: end by an error */
    /* Where it is. */
    _Atomic bool up;             /* `address` is written */
    _Atomic bool acts;
    _Atomic int state, n;
    _Atomic uint64_t epoch, step, agreed, strangers;
    _Atomic uint64_t worlds;     /* worlds that it has trained in */
    _Atomic uint64_t comebacks;  /* how often it was removed and has joined again */
    _Atomic uint64_t fetched;    /* states that it has got from others */
    _Atomic int members, waiting; /* while it stands: of the epoch; newcomers */
    _Atomic bool over;           /* a follower: `status` is how it has ended, and `says` why */
    _Atomic int status;
    char address[TUTTI_ADDRESS_BYTES];
    char says[400];              /* tutti_node_describe, before `up` of a newcomer's first epoch; a
                                    follower's last line for its user */
    char wrong[600];             /* why it has given up; "": it has not */
} trainer;

/* Forks. The process ends by itself, at the latest with its parent. */
void trainer_start(trainer *t);

/* Ends the process: what is wrong. */
void trainer_give_up(trainer *t, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
void follower_main(trainer *t);
#endif
