/* say.c: prints lines for the user while a run trains. Only index 0 prints. */
#include <stdarg.h>
#include <string.h>

#include "say.h"
#include "train_internal.h"

static void print_line(const tutti_run *run, int status, const char *format, va_list args)
{
    char line[4400]; /* the directory's name may be 3800 long */

    if (run->io->say == NULL || (run->config->quiet && status != 3))
        return;
    vsnprintf(line, sizeof line, format, args);
    run->io->say(run->io->user, status, line);
}

void tutti_train_say(const tutti_run *run, int status, const char *format, ...)
{
    va_list args;

    if (run->all.index != 0)
        return;
    va_start(args, format);
    print_line(run, status, format, args);
    va_end(args);
}

void tutti_train_say_here(const tutti_run *run, int status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_line(run, status, format, args);
    va_end(args);
}

void tutti_train_add_field(tutti_train_fields *f, int rank, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(f->at[f->n].text, sizeof f->at[f->n].text, format, args);
    va_end(args);
    f->at[f->n++].rank = rank;
}

void tutti_train_say_fields(const tutti_run *run, int status, tutti_train_fields *f)
{
    const int room =
        run->io->columns != NULL && run->io->say != NULL ? run->io->columns(run->io->user) : 0;
    char line[TUTTI_TRAIN_FIELDS * 66];
    size_t used;

    for (;;) {
        int last = 0;
        used = 0;
        for (int i = 0; i < f->n; i++) {
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", i > 0 ? "  " : "",
                                     f->at[i].text);
            last = f->at[i].rank > f->at[last].rank ? i : last;
        }
        if (room == 0 || used <= (size_t)room || f->n == 1)
            break;
        memmove(&f->at[last], &f->at[last + 1], (size_t)(f->n - last - 1) * sizeof f->at[0]);
        f->n--;
    }
    tutti_train_say(run, status, "%s", line);
}

void tutti_train_report_evaluating(tutti_run *run, const char *what, uint64_t done, uint64_t of)
{
    tutti_runtime *clock = run->io->host != NULL ? run->io->host : run->rt;
    tutti_train_fields f = { 0 };
    int64_t now;

    if (run->io->say == NULL || run->all.index != 0 || run->config->quiet)
        return;
    now = tutti_now_ns(clock);
    if (done > 0 && now - run->evaluating_ns < 200 * 1000 * 1000)
        return;
    run->evaluating_ns = now;
    tutti_train_add_field(&f, 0, "evaluating");
    tutti_train_add_field(&f, 2, "%s", what);
    tutti_train_add_field(&f, 1, "%.0f %%", 100 * (double)done / (double)of);
    tutti_train_add_field(&f, 3, "step %llu",
                          (unsigned long long)tutti_engine_method(run->engine)->step);
    tutti_train_say_fields(run, 2, &f);
}

void tutti_train_say_warnings(tutti_run *run)
{
    static const char *const notes[] = { "codec", "never-pushed", "groups-of-all", "mixing",
                                         "clock", "checkpoint" };
    const tutti_event_record *events;
    const int n = tutti_engine_events(run->engine, &events);

    for (; run->events_checked < n; run->events_checked++) {
        for (size_t k = 0; k < TUTTI_LENGTH(notes); k++)
            if (strcmp(events[run->events_checked].kind, notes[k]) == 0)
                tutti_train_say(run, 0, "note: %s", events[run->events_checked].text);
        if (strcmp(events[run->events_checked].kind, "codec-cost") == 0)
            tutti_train_say(run, 0, "codec-cost: %s", events[run->events_checked].text);
    }
}
