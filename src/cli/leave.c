/* leave.c: `tutti leave`: has a worker leave a run whose workers come and go, as SIGTERM to it
   would, from any machine; or lists the workers. */
#include <stdlib.h>
#include <string.h>

#include "member.h"

enum { ANSWER_MS = 5000, LEAVE_MS = 30000 };

typedef struct leave_config {
    const char *key;
    bool json;
} leave_config;

const tutti_option tutti_cli_leave_options[] = {
    { "key", TUTTI_TEXT, TUTTI_AT(leave_config, key), 0, 0, 0, "",
      "with ADDRESS: the file `join` of the run's --out, or that of its --pass, or a copy, which you "
      "alone can read; none: TUTTI_RUN_ID, and TUTTI_RUN_KEY or TUTTI_RUN_KEY_FILE" },
    { "json", TUTTI_BOOL, TUTTI_AT(leave_config, json), 0, 0, 1, NULL,
      "print one JSON object: epoch, its first step, the workers with rank and address" },
    { 0 }
};

static tutti_status print_json(const tutti_epoch *e, tutti_error *err)
{
    json_t *workers = json_array(), *all;
    bool written;

    for (int i = 0; i < e->n; i++)
        json_array_append_new(workers, json_pack("{s:I, s:s}", "rank", (json_int_t)e->members[i].rank,
                                                 "address", e->members[i].address));
    all = json_pack("{s:I, s:I, s:o}", "epoch", (json_int_t)e->number, "step", (json_int_t)e->step,
                    "workers", workers);
    written = all != NULL && json_dumpf(all, stdout, JSON_INDENT(2)) == 0;
    putchar('\n');
    json_decref(all);
    return written ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_IO, 0, "cannot print the workers");
}

static tutti_status print(const tutti_epoch *e, int64_t left, bool json, tutti_error *err)
{
    const char *s = e->n == 1 ? "" : "s";

    if (json)
        TUTTI_TRY(print_json(e, err));
    else if (left >= 0)
        printf("worker %lld has left the run: %d worker%s from step %llu\n", (long long)left, e->n, s,
               (unsigned long long)e->step);
    else {
        printf("epoch %llu: %d worker%s from step %llu\n", (unsigned long long)e->number, e->n, s,
               (unsigned long long)e->step);
        for (int i = 0; i < e->n; i++)
            printf("worker %u at %s\n", e->members[i].rank, e->members[i].address);
    }
    return tutti_cli_flush(err);
}

/* The rank of the second argument; -1: it is none. */
static int64_t rank_of(const char *text)
{
    const size_t digits = strspn(text, "0123456789");

    return digits > 0 && digits < 10 && text[digits] == '\0' ? strtoll(text, NULL, 10) : -1;
}

static tutti_status leave(const leave_config *c, const char *where, int64_t rank, tutti_error *err)
{
    const tutti_train_dismissal what = { .rank = rank,
                                         .answer_ns = ANSWER_MS * INT64_C(1000000),
                                         .leave_ns = LEAVE_MS * INT64_C(1000000) };
    tutti_cli_member m = { .tell_fd = -1, .newcomer = true };
    tutti_epoch *epoch = tutti_alloc(1, sizeof *epoch);
    tutti_status status =
        epoch != NULL ? tutti_cli_member_find(&m, c->key, where, err)
                      : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the members of a run");

    if (status == TUTTI_OK)
        status = tutti_cli_member_host(&m, "", err);
    if (status == TUTTI_OK)
        status = tutti_train_dismiss(&m.how.node, m.contacts, m.pass.n, &what, epoch, err);
    if (status == TUTTI_OK)
        status = print(epoch, rank, c->json, err);
    tutti_cli_member_close(&m);
    tutti_free(epoch);
    return status;
}

static void print_help(void)
{
    printf("tutti leave OUT|PASS|ADDRESS [RANK] [--key FILE] [--json]\n\n");
    tutti_cli_wrap(stdout, "", 0,
                   "Has worker RANK of a run of `tutti train --workers FEWEST:MOST` or `tutti run "
                   "--workers FEWEST:MOST` leave it after its step, as SIGTERM to its process would, "
                   "and waits until the others go on without it. Without RANK the workers are "
                   "listed. OUT is the directory of a run of `tutti train`, on this machine or one "
                   "that both see, and PASS the file of --pass of `tutti run`, or a copy of it. "
                   "ADDRESS is HOST:PORT of any member.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_leave_options, true);
}

int tutti_cli_dismiss(int argc, char **argv)
{
    leave_config c;
    tutti_error err = { .rank = -1 };
    int64_t rank = -1;
    bool help = false;

    tutti_options_default(tutti_cli_leave_options, &c);
    if (tutti_cli_take_flags(&(tutti_flag_table){ tutti_cli_leave_options, NULL, &c }, &argc, argv,
                             &help, &err) != TUTTI_OK)
        return tutti_cli_fail(&err);
    if (help) {
        print_help();
        return EXIT_DONE;
    }
    if (argc < 2 || argc > 3 || argv[1][0] == '-')
        return tutti_cli_usage("leave", "it takes the directory or the pass of a run, or HOST:PORT of "
                                        "a member, and the number of a worker");
    if (argc == 3 && (rank = rank_of(argv[2])) < 0)
        return tutti_cli_usage("leave", "'%.40s' is no number of a worker", argv[2]);
    return leave(&c, argv[1], rank, &err) == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
