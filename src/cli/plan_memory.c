/* plan_memory.c: `tutti plan memory`: prints what tutti_train_plan_make determines of a run, as a
   table or as JSON (docs/PLAN.md has its members). Ranks with the same figures are one row. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli_internal.h"
#include "plan_internal.h"
#include "tutti/launch.h"
#include "tutti/tutti.h"
#include "collective/world.h"
#include "launch/launch.h"

enum { OVER = 16, OVER_MOST = 100000 }; /* steps that are simulated */

/* Consecutive ranks of one role. Each kind of memory differs from that of the first rank by at most
   a hundredth of the total. The most that one of them has is shown. */
typedef struct group {
    int first, last, most;       /* most: the rank with the largest total */
    uint64_t sent;               /* the most that one of them sent */
} group;

static uint64_t total_of(const tutti_train_plan_rank *r)
{
    uint64_t total = 0;

    for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
        total += r->bytes[k];
    return total;
}

static bool alike(const tutti_train_plan_rank *a, const tutti_train_plan_rank *b)
{
    const uint64_t much = total_of(a) / 100;

    for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
        if (a->bytes[k] > b->bytes[k] + much || b->bytes[k] > a->bytes[k] + much)
            return false;
    return a->serves == b->serves;
}

/* Returns the groups, *n of them; tutti_free it. */
static group *group_ranks(const tutti_train_plan *plan, int *n)
{
    const int ranks = plan->workers + plan->servers;
    group *groups = tutti_alloc((size_t)ranks, sizeof *groups);

    *n = 0;
    for (int r = 0; r < ranks && groups != NULL; r++) {
        group *g = &groups[*n - (*n > 0)];
        if (*n == 0 || !alike(&plan->rank[g->first], &plan->rank[r])) {
            g = &groups[(*n)++];
            *g = (group){ .first = r, .most = r };
        }
        g->last = r;
        if (total_of(&plan->rank[r]) > total_of(&plan->rank[g->most]))
            g->most = r;
        if (plan->rank[r].sent > g->sent)
            g->sent = plan->rank[r].sent;
    }
    return groups;
}

/* ---- for people ---- */

typedef struct unit { const char *name; double bytes; } unit;

/* Chooses a unit for all figures: that in which the largest has two to four digits before its
   point. */
static unit unit_of(uint64_t most)
{
    static const unit units[] = {
        { "bytes", 1 }, { "KiB", 1024 }, { "MiB", 1048576 }, { "GiB", 1073741824 }
    };
    size_t k = 0;

    while (k + 1 < TUTTI_LENGTH(units) && (double)most >= 10 * units[k + 1].bytes)
        k++;
    return units[k];
}

static void name_group(const tutti_train_plan *plan, const group *g, char *text, size_t bytes)
{
    const bool serves = plan->rank[g->first].serves;
    const int from = g->first - (serves ? plan->workers : 0),
              to = g->last - (serves ? plan->workers : 0);
    const char *role = serves ? "server" : "worker";

    if (from == to)
        snprintf(text, bytes, "%s %d", role, from);
    else
        snprintf(text, bytes, "%s %d-%d", role, from, to);
}

/* Prints the table, which is as wide as a page for names up to "worker 0-999". */
enum { NAME = 12, FIGURE = 8 };
static int width_of(int kind)
{
    const int name = (int)strlen(tutti_memory_name((tutti_memory)kind));
    return name > FIGURE ? name : FIGURE;
}

/* Prints the components that have at least a hundredth of the total. */
static void print_parts(const tutti_train_plan *plan, const group *g, unit u)
{
    const tutti_train_plan_rank *r = &plan->rank[g->most];

    for (size_t i = 0; i < r->n_records; i++)
        if (r->record[i].bytes > 0 && r->record[i].bytes >= total_of(r) / 100)
            printf("  %-32s %-12s %10.2f\n", r->record[i].name,
                   tutti_memory_name(r->record[i].kind), (double)r->record[i].bytes / u.bytes);
}

static void print_wire(const tutti_train_plan *plan)
{
    uint64_t bytes = 0, messages = 0;

    if (plan->steps == 0) {
        printf("wire: not counted; %s\n", plan->unmeasured);
        return;
    }
    for (int r = 0; r < plan->workers + plan->servers; r++) {
        bytes += plan->rank[r].sent;
        messages += plan->rank[r].messages;
    }
    printf("wire: %.6g bytes and %.6g messages a step by all ranks, the mean of %llu step%s\n",
           (double)bytes / (double)plan->steps, (double)messages / (double)plan->steps,
           (unsigned long long)plan->steps, plan->steps > 1 ? "s" : "");
}

static void print_plan(const tutti_train_plan *plan, const tutti_train_config *c,
                       const group *groups, int n)
{
    uint64_t most = 0;
    char name[48];
    unit u;

    for (int i = 0; i < n; i++)
        most = total_of(&plan->rank[groups[i].most]) > most ? total_of(&plan->rank[groups[i].most])
                                                            : most;
    u = unit_of(most);
    printf("%s on %s: %llu parameters, %s, %d worker%s", c->model, c->data,
           (unsigned long long)plan->parameters, c->method, plan->workers,
           plan->workers > 1 ? "s" : "");
    if (plan->servers > 0)
        printf(" and %d that only serve%s", plan->servers, plan->servers > 1 ? "" : "s");
    printf(", %s\n\n%-*s", c->transport, NAME, u.name);
    for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
        printf(" %*s", width_of(k), tutti_memory_name((tutti_memory)k));
    printf(" %*s%s\n", FIGURE, "total", plan->steps > 0 ? " sent/step" : "");
    for (int i = 0; i < n; i++) {
        const tutti_train_plan_rank *r = &plan->rank[groups[i].most];
        name_group(plan, &groups[i], name, sizeof name);
        printf("%-*s", NAME, name);
        for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
            printf(" %*.2f", width_of(k), (double)r->bytes[k] / u.bytes);
        printf(" %*.2f", FIGURE, (double)total_of(r) / u.bytes);
        if (plan->steps > 0)
            printf(" %*.2f", (int)strlen("sent/step"),
                   (double)groups[i].sent / (double)plan->steps / u.bytes);
        printf("\n");
    }
    for (int i = 0; i < n; i++)
        if (i == 0 ||
            plan->rank[groups[i].first].serves != plan->rank[groups[i - 1].first].serves) {
            name_group(plan, &groups[i], name, sizeof name);
            printf("\n%s: what that is, from a hundredth of the total on\n", name);
            print_parts(plan, &groups[i], u);
        }
    printf("\n");
    if (plan->data_bytes > 0)
        printf("data: %.2f %s, which the ranks of a host share where they can\n",
               (double)plan->data_bytes / u.bytes, u.name);
    print_wire(plan);
}

/* ---- for programs ---- */

static json_t *memory_of(const tutti_train_plan_rank *r)
{
    json_t *o = json_object();

    for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
        json_object_set_new(o, tutti_memory_name((tutti_memory)k),
                            json_integer((json_int_t)r->bytes[k]));
    json_object_set_new(o, "total", json_integer((json_int_t)total_of(r)));
    return o;
}

static json_t *a_step(const tutti_train_plan *plan, uint64_t figure)
{
    return plan->steps > 0 ? json_real((double)figure / (double)plan->steps) : json_null();
}

static json_t *parts_of(const tutti_train_plan_rank *r)
{
    json_t *array = json_array();

    for (size_t i = 0; i < r->n_records; i++)
        json_array_append_new(array, json_pack("{s:s, s:s, s:I}", "name", r->record[i].name, "kind",
                                               tutti_memory_name(r->record[i].kind), "bytes",
                                               (json_int_t)r->record[i].bytes));
    return array;
}

static json_t *groups_of(const tutti_train_plan *plan, const group *groups, int n)
{
    json_t *array = json_array();

    for (int i = 0; i < n; i++) {
        const tutti_train_plan_rank *most = &plan->rank[groups[i].most];
        json_t *o = json_pack("{s:s, s:i, s:i}", "role", most->serves ? "server" : "worker",
                              "first_rank", groups[i].first, "last_rank", groups[i].last);
        json_object_set_new(o, "memory", memory_of(most));
        json_object_set_new(o, "bytes_sent_a_step", a_step(plan, groups[i].sent));
        json_object_set_new(o, "parts", parts_of(most));
        json_array_append_new(array, o);
    }
    return array;
}

static json_t *json_of(const tutti_train_plan *plan, const tutti_train_config *c,
                       const group *groups, int n)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i}", "schema",
                          "tutti-plan-memory-1", "version", tutti_version(), "model", c->model,
                          "data", c->data, "method", c->method, "transport", c->transport,
                          "optimizer", c->optimizer, "codec", c->codec, "workers", plan->workers,
                          "servers", plan->servers),
           *ranks = json_array();
    uint64_t bytes = 0, messages = 0;

    for (int r = 0; r < plan->workers + plan->servers; r++) {
        const tutti_train_plan_rank *mine = &plan->rank[r];
        json_t *row =
            json_pack("{s:i, s:s}", "rank", r, "role", mine->serves ? "server" : "worker");
        bytes += mine->sent;
        messages += mine->messages;
        json_object_set_new(row, "memory", memory_of(mine));
        json_object_set_new(row, "bytes_sent_a_step", a_step(plan, mine->sent));
        json_object_set_new(row, "messages_sent_a_step", a_step(plan, mine->messages));
        json_array_append_new(ranks, row);
    }
    json_object_set_new(o, "batch", json_integer(c->batch));
    json_object_set_new(o, "accumulate", json_integer(c->accumulate));
    json_object_set_new(o, "params", json_integer((json_int_t)plan->parameters));
    json_object_set_new(o, "data_bytes", json_integer((json_int_t)plan->data_bytes));
    json_object_set_new(o, "steps", json_integer((json_int_t)plan->steps));
    json_object_set_new(o, "unmeasured",
                        plan->steps == 0 ? json_string(plan->unmeasured) : json_null());
    json_object_set_new(o, "bytes_sent_total",
                        plan->steps > 0 ? json_integer((json_int_t)bytes) : json_null());
    json_object_set_new(o, "messages_sent_total",
                        plan->steps > 0 ? json_integer((json_int_t)messages) : json_null());
    json_object_set_new(o, "groups", groups_of(plan, groups, n));
    json_object_set_new(o, "ranks", ranks);
    return o;
}

/* ---- the command ---- */

static void print_help(void)
{
    printf("tutti plan memory [FILE] [--over STEPS] [--json] [--OPTION VALUE ...]\n\n");
    tutti_cli_wrap(stdout, "", 0,
                   "What `tutti train` with the same arguments would take, before it is begun: "
                   "bytes of values, gradients, states, activations and buffers on each rank, and "
                   "what a step sends. They are those that the run's summary.json counts "
                   "(`memory`, `bytes_sent_total`). Nothing is trained and no file is written: the "
                   "method declares what it keeps, all ranks go through some steps in this process "
                   "with drawn gradients, and one network is opened.");
    printf("\n");
    tutti_cli_wrap(stdout, "  --over STEPS", 18,
                   "steps to go through, 1 to 100000 [16, and of a method that sends in some steps "
                   "only whole periods], at most as many as the run has");
    tutti_cli_wrap(stdout, "  --json", 18, "as JSON; docs/PLAN.md has its members");
    printf("\n");
    tutti_cli_wrap(
        stdout, "", 0,
        "Options that set when, how fast or how long (slow, stream, step-time, fail, target, "
        "epochs) and where results go change nothing. Where the engines of all ranks do not fit "
        "into three quarters of this machine no steps are run, which is reported; then the traffic "
        "is not counted.");
    printf("\nExamples:\n"
           "  tutti plan memory --model cnn -n 4 --method 'zero(stage=2)'\n"
           "  tutti plan memory -n 8 --servers 2 --method asgd --transport tcp --json\n");
}

/* Removes "--over N" or "--over=N" from the words, and sets its value; 0: there is none. */
static tutti_status take_over(int *argc, char **argv, uint64_t *over, tutti_error *err)
{
    int n = 1;

    *over = 0;
    for (int i = 1; i < *argc; i++) {
        const bool apart = strcmp(argv[i], "--over") == 0;
        const char *text = apart && i + 1 < *argc ? argv[i + 1] : "";
        char *end;
        if (!apart && strncmp(argv[i], "--over=", strlen("--over=")) != 0) {
            argv[n++] = argv[i];
            continue;
        }
        if (!apart)
            text = argv[i] + strlen("--over=");
        errno = 0;
        *over = strtoull(text, &end, 10);
        if (text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 || *over < 1 ||
            *over > OVER_MOST)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "over is '%.40s'; it must be a number of steps, 1 to %d", text,
                              OVER_MOST);
        i += apart;
    }
    *argc = n;
    return TUTTI_OK;
}

/* Makes the settings those that `train` has when it starts workers. */
static tutti_status settle(tutti_cli_settings *s, tutti_error *err)
{
    tutti_train_config *c = &s->config;

    if (c->hosts[0] != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "hosts is '%.200s', and a plan is made on this machine alone; give -n, "
                          "and --transport tcp",
                          c->hosts);
    TUTTI_TRY(tutti_cli_method_defaults(s, err));
    TUTTI_TRY(tutti_world_check(c->transport, err));
    if (tutti_world_simulated(c->transport) && c->threads == 0)
        c->threads = 1;
    return tutti_train_check(c, tutti_cores(), err);
}

static tutti_status show(const tutti_train_plan *plan, const tutti_train_config *c, bool json,
                         tutti_error *err)
{
    int n;
    group *groups = group_ranks(plan, &n);
    json_t *o;

    if (groups == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "showing a plan");
    if (json) {
        o = json_of(plan, c, groups, n);
        json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        putchar('\n');
        json_decref(o);
    } else
        print_plan(plan, c, groups, n);
    tutti_free(groups);
    return TUTTI_OK;
}

int tutti_cli_plan_memory(int argc, char **argv)
{
    static const char *const extra[] = { "json", NULL };
    tutti_error err = { .rank = -1 };
    tutti_cli_settings s = { 0 };
    tutti_train_plan plan = { 0 };
    char installed[4096];
    uint64_t over;
    tutti_status status = take_over(&argc, argv, &over, &err);

    if (status == TUTTI_OK)
        status = tutti_cli_read(&s, argc, argv, extra, &err);
    if (status == TUTTI_OK && s.help)
        print_help();
    else if (status == TUTTI_OK) {
        tutti_cli_installed(installed, sizeof installed, "data");
        status = settle(&s, &err);
        if (status == TUTTI_OK)
            status = tutti_train_check_data(s.rt, &s.config, installed, &err);
        if (status == TUTTI_OK && over == 0)
            over = tutti_plan_whole(OVER, tutti_train_repeats(&s.config));
        if (status == TUTTI_OK)
            status = tutti_train_plan_make(&plan, &s.config, installed, over, &err);
        if (status == TUTTI_OK)
            status = show(&plan, &s.config, s.extra != 0, &err);
    }
    tutti_train_plan_drop(&plan);
    tutti_cli_close(&s);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
