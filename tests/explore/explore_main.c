/* explore: the command. Each seed has a child process, so that a crash, or what a killed rank
   leaves behind, affects one seed only. */
#include "explore.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern const explore_piece explore_collective_pieces[], explore_port_pieces[], explore_train_pieces[],
    explore_gossip_pieces[], explore_async_pieces[], explore_hop_pieces[], explore_server_pieces[],
    explore_requests_pieces[], explore_members_pieces[], explore_chosen_pieces[], explore_given_pieces[],
    explore_lane_pieces[], explore_by_piece_pieces[], explore_taken_pieces[], explore_tune_pieces[],
    explore_tier_pieces[], explore_pipe_pieces[], explore_drive_pieces[], explore_diloco_pieces[],
    explore_epochs_pieces[], explore_logical_pieces[], explore_copies_pieces[], explore_state_pieces[],
    explore_saving_pieces[];
static const struct {
    const char *name;
    const explore_piece *pieces;
} tables[] = { { "collective", explore_collective_pieces },
               { "ports", explore_port_pieces },
               { "train", explore_train_pieces },
               { "fragments", explore_diloco_pieces },
               { "gossip", explore_gossip_pieces },
               { "async", explore_async_pieces },
               { "hop", explore_hop_pieces },
               { "servers", explore_server_pieces },
               { "requests", explore_requests_pieces },
               { "losses", explore_members_pieces },
               { "chosen", explore_chosen_pieces },
               { "given", explore_given_pieces },
               { "lanes", explore_lane_pieces },
               { "updates", explore_by_piece_pieces },
               { "taken", explore_taken_pieces },
               { "tuned", explore_tune_pieces },
               { "tiers", explore_tier_pieces },
               { "pipes", explore_pipe_pieces },
               { "methods that drive", explore_drive_pieces },
               { "epochs", explore_epochs_pieces },
               { "shares", explore_logical_pieces },
               { "copies of parts", explore_copies_pieces },
               { "state", explore_state_pieces },
               { "saves", explore_saving_pieces } };

enum { SECONDS_A_SEED = 10 }; /* of real time: a loop outside of the library's calls */

typedef struct outcome {
    bool ended;
    tutti_status status;
    explore_report report;
} outcome;

static double clock_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const explore_piece *find(const char *name)
{
    for (size_t t = 0; t < TUTTI_LENGTH(tables); t++)
        for (const explore_piece *p = tables[t].pieces; p->name != NULL; p++)
            if (strcmp(p->name, name) == 0)
                return p;
    return NULL;
}

/* True: the seed found nothing. */
static bool one(const explore_piece *piece, uint64_t seed, bool verbose, outcome *o)
{
    pid_t child;
    int how = 0;

    memset(o, 0, offsetof(outcome, report.log));
    o->report.log_used = 0;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        alarm(SECONDS_A_SEED);
        o->status = explore_run(piece, seed, verbose, &o->report);
        o->ended = true;
        _exit(0);
    }
    while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR)
        continue;
    if (o->ended)
        return o->status == TUTTI_OK;
    o->status = TUTTI_ERR_STATE;
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM)
        snprintf(o->report.text, sizeof o->report.text,
                 "livelock: the process has run for %d s outside of the library's calls", SECONDS_A_SEED);
    else
        snprintf(o->report.text, sizeof o->report.text, "crash: the process ended with %s %d",
                 WIFSIGNALED(how) ? "signal" : "code", WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    return false;
}

static void tell(const explore_piece *piece, uint64_t seed, const outcome *o, bool verbose)
{
    printf("%s, seed %" PRIu64 ": %s\n", piece->name, seed, o->report.text);
    printf("  the last events (virtual seconds, worker, thread):\n");
    for (size_t at = 0; at < o->report.log_used;) {
        const char *const line = o->report.log + at, *const next = memchr(line, '\n', o->report.log_used - at);
        const size_t length = next != NULL ? (size_t)(next - line) : o->report.log_used - at;
        printf("    %.*s\n", (int)length, line);
        at += length + 1;
    }
    printf("  replay: explore %s --seed %" PRIu64 "%s\n", piece->name, seed, verbose ? "" : " --verbose");
}

/* How many of the seeds find something: the strength of a piece against a mutant. */
static void count(const explore_piece *piece, uint64_t first, uint64_t last, outcome *o)
{
    uint64_t found = 0;

    for (uint64_t seed = first; seed <= last; seed++)
        found += !one(piece, seed, false, o);
    printf("%s: %" PRIu64 " of %" PRIu64 " seeds find something\n", piece->name, found, last - first + 1);
}

/* Has the table been named, or all of them? t TUTTI_LENGTH(tables): has any? */
static bool is_chosen(const char *name, size_t t)
{
    bool any = strcmp(name, "all") == 0;

    for (size_t k = 0; k < TUTTI_LENGTH(tables) && t == TUTTI_LENGTH(tables); k++)
        any = any || strcmp(name, tables[k].name) == 0;
    return any || (t < TUTTI_LENGTH(tables) && strcmp(name, tables[t].name) == 0);
}

static bool sweep(const explore_piece *piece, uint64_t first, uint64_t last, outcome *o)
{
    const double begin = clock_s();
    uint64_t steps = 0, hash;

    for (uint64_t seed = first; seed <= last; seed++) {
        if (!one(piece, seed, false, o)) {
            tell(piece, seed, o, false);
            return false;
        }
        steps += o->report.steps;
    }
    /* A seed is worth something only if it gives the same run again. */
    hash = o->report.events_hash;
    (void)one(piece, last, false, o);
    if (hash != o->report.events_hash) {
        printf("%s: seed %" PRIu64 " gives another run the second time\n", piece->name, last);
        return false;
    }
    printf("%-28s seeds %" PRIu64 "..%" PRIu64 ": nothing found, %" PRIu64 " steps, %.2f s\n", piece->name, first, last,
           steps, clock_s() - begin);
    return true;
}

static int usage(void)
{
    printf("explore PIECE|TABLE|all [--seeds A..B] [--count] | PIECE --seed N [--verbose] | --list\n"
           "Runs a piece under the schedules of seeds (1..200) and tells the first that finds something; code 1 then. "
           "--count: how many do. TABLE, of which each piece is run:");
    for (size_t t = 0; t < TUTTI_LENGTH(tables); t++)
        printf(" %s", tables[t].name);
    printf(".\n");
    return 2;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, last = 200;
    const char *name = NULL;
    bool verbose = false, single = false, counts = false, well = true;
    outcome *o;

    for (int k = 1; k < argc; k++) {
        if (strcmp(argv[k], "--list") == 0) {
            for (size_t t = 0; t < TUTTI_LENGTH(tables); t++)
                for (const explore_piece *p = tables[t].pieces; p->name != NULL; p++)
                    printf("%-28s %s\n", p->name, p->help);
            return 0;
        }
        if (strcmp(argv[k], "--verbose") == 0)
            verbose = true;
        else if (strcmp(argv[k], "--count") == 0)
            counts = true;
        else if (strcmp(argv[k], "--seed") == 0 && k + 1 < argc && sscanf(argv[k + 1], "%" SCNu64, &first) == 1) {
            single = true;
            last = first;
            k++;
        } else if (strcmp(argv[k], "--seeds") == 0 && k + 1 < argc &&
                   sscanf(argv[k + 1], "%" SCNu64 "..%" SCNu64, &first, &last) == 2 && first <= last)
            k++;
        else if (name == NULL && argv[k][0] != '-')
            name = argv[k];
        else
            return usage();
    }
    if (name == NULL || (is_chosen(name, TUTTI_LENGTH(tables)) && (single || counts)))
        return usage();
    o = mmap(NULL, sizeof *o, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (o == MAP_FAILED)
        return 2;
    if (is_chosen(name, TUTTI_LENGTH(tables))) {
        for (size_t t = 0; t < TUTTI_LENGTH(tables); t++)
            for (const explore_piece *p = tables[t].pieces; p->name != NULL && is_chosen(name, t); p++)
                well = sweep(p, first, last, o) && well;
        return !well;
    }
    const explore_piece *const piece = find(name);
    if (piece == NULL) {
        printf("no piece is named '%s'; explore --list names them\n", name);
        return 2;
    }
    if (counts) {
        count(piece, first, last, o);
        return 0;
    }
    if (!single)
        return !sweep(piece, first, last, o);
    if (one(piece, first, verbose, o)) {
        snprintf(o->report.text, sizeof o->report.text, "nothing found in %" PRIu64 " steps, %.9f virtual seconds",
                 o->report.steps, o->report.seconds);
        if (verbose)
            tell(piece, first, o, verbose);
        else
            printf("%s, seed %" PRIu64 ": %s\n", piece->name, first, o->report.text);
        return 0;
    }
    tell(piece, first, o, verbose);
    return 1;
}
