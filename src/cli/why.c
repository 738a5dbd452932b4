/* why.c: `tutti why PID|DIR`: what each rank of a run is in now, and who holds it up. */
#include <string.h>

#include "why_internal.h"

typedef struct why_config {
    bool json;
} why_config;

const tutti_option tutti_cli_why_options[] = {
    { "json", TUTTI_BOOL, TUTTI_AT(why_config, json), 0, 0, 1, NULL, "print one JSON object" },
    { 0 }
};

static void print_help(void)
{
    printf("tutti why PID|DIR [--json]\n\n");
    tutti_cli_wrap(stdout, "", 0,
                   "Says what every rank of a running job on this host is in, since when and with "
                   "whom, and which rank holds it up. PID is the process of `tutti train` or "
                   "`tutti run`, of another launcher, or of any worker; DIR the run's directory. "
                   "The run is not disturbed: it keeps this in memory that is read from outside, "
                   "so the answer comes even if all its threads hang. Only your own runs can be "
                   "read. Of several hosts, run it on each.");
    printf("\nExit codes: 0 an answer; 1 a record is damaged; 2 bad usage, or there is no such "
           "run.\n");
}

/* Returns how many ranks of the run are on other hosts. */
static int elsewhere(const why_found *found)
{
    const tutti_activity_about *about = &found->ranks[0].view.about;
    int n = 0;

    for (int r = 0; r < about->size && r < TUTTI_ACTIVITY_RANKS; r++)
        n += (about->here[r / 64] >> r % 64 & 1) == 0;
    return n;
}

static uint64_t step_of(const why_rank *rank)
{
    return rank->view.n_now > 0 && rank->view.now[0].kind == TUTTI_ACTIVITY_CLIENT
               ? rank->view.now[0].step
               : 0;
}

static void print_table(const why_found *found)
{
    const int others = elsewhere(found);

    printf("%-5s %-9s %-8s %-9s %s\n", "rank", "process", "step", "for", "in");
    for (int k = 0; k < found->n; k++) {
        const why_rank *rank = &found->ranks[k];
        char doing[WHY_TEXT], step[24] = "-", number[12] = "-";
        double seconds;
        tutti_why_describe(found, rank, doing, sizeof doing, &seconds);
        if (rank->view.n_now > 0 && rank->view.now[0].kind == TUTTI_ACTIVITY_CLIENT)
            snprintf(step, sizeof step, "%llu", (unsigned long long)step_of(rank));
        if (rank->view.about.rank >= 0)
            snprintf(number, sizeof number, "%d", rank->view.about.rank);
        printf("%-5s %-9ld %-8s %7.1f s %s%s\n", number, rank->process, step,
               seconds, doing, rank->state == 'T' ? " [stopped]" : "");
    }
    if (others > 0)
        printf("%d of the run's %d ranks are on other hosts: run `tutti why` there\n", others,
               found->ranks[0].view.about.size);
}

static json_t *json_of(const why_found *found, const why_rank *rank)
{
    char doing[WHY_TEXT];
    double seconds;

    tutti_why_describe(found, rank, doing, sizeof doing, &seconds);
    return json_pack("{s:o, s:I, s:s#, s:I, s:f, s:s, s:I}", "rank",
                     rank->view.about.rank >= 0 ? json_integer(rank->view.about.rank) : json_null(),
                     "process", (json_int_t)rank->process, "state", &rank->state, rank->state != 0,
                     "step", (json_int_t)step_of(rank), "seconds", seconds, "in", doing, "events",
                     (json_int_t)rank->view.events_ever);
}

static int print_json(const why_found *found, const char *diagnosis, bool certain)
{
    json_t *ranks = json_array(), *all;

    for (int k = 0; k < found->n; k++)
        json_array_append_new(ranks, json_of(found, &found->ranks[k]));
    all = json_pack("{s:i, s:s, s:i, s:o, s:s, s:b}", "size", found->ranks[0].view.about.size,
                    "transport", found->ranks[0].view.about.transport, "elsewhere",
                    elsewhere(found), "ranks", ranks, "diagnosis", diagnosis, "certain", certain);
    if (all == NULL || json_dumpf(all, stdout, JSON_INDENT(2)) != 0)
        return EXIT_TRAINING;
    putchar('\n');
    json_decref(all);
    return EXIT_DONE;
}

static int answer(const why_found *found, bool json)
{
    char diagnosis[4000];
    bool certain;
    int code = EXIT_DONE;

    tutti_why_diagnose(found, diagnosis, sizeof diagnosis, &certain);
    if (json)
        code = print_json(found, diagnosis, certain);
    else {
        print_table(found);
        putchar('\n');
        tutti_cli_wrap(stdout, "", 0, diagnosis);
    }
    if (found->damaged > 0)
        fprintf(stderr, "tutti: %d record%s could not be read: %s\n", found->damaged,
                found->damaged == 1 ? "" : "s", found->why_damaged);
    return code;
}

int tutti_cli_why(int argc, char **argv)
{
    why_config c = { false };
    const tutti_flag_table flags = { tutti_cli_why_options, NULL, &c };
    tutti_error err = { .rank = -1 };
    why_found found;
    bool help = false;
    int code;

    if (tutti_cli_take_flags(&flags, &argc, argv, &help, &err) != TUTTI_OK)
        return tutti_cli_fail(&err);
    if (help) {
        print_help();
        return EXIT_DONE;
    }
    if (argc < 2)
        return tutti_cli_usage("why",
                               "which run? give the number of a process, or the run's directory");
    if (argc > 2 || argv[1][0] == '-')
        return tutti_cli_usage("why", "it takes one process or directory, and --json; not '%.80s'",
                               argv[argc - 1]);
    code = tutti_why_find(&found, argv[1], &err) == TUTTI_OK ? answer(&found, c.json)
                                                             : tutti_cli_fail(&err);
    tutti_why_close(&found);
    return code;
}
