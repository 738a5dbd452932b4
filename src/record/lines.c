/* lines.c: the lines of trace.json, one JSON object each: the form of Chrome and Perfetto. */
#include <stdio.h>
#include <string.h>

#include "record/files.h"
#include "record_internal.h"

char *tutti_record_us(char text[TUTTI_RECORD_US], int64_t ns)
{
    const uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;

    snprintf(text, TUTTI_RECORD_US, "%s%llu.%03u", ns < 0 ? "-" : "",
             (unsigned long long)(size / 1000), (unsigned)(size % 1000));
    return text;
}

/* Replaces what a text of JSON cannot hold as it is. */
static void make_plain(char *text)
{
    for (; *text != 0; text++)
        if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
            *text = '?';
}

size_t tutti_record_event(char *to, int rank, const char *tensor, const tutti_trace_event *e,
                          int64_t ahead_ns)
{
    const bool instant = e->begin_ns == e->end_ns;
    char name[64], category[32], how_long[48], at[TUTTI_RECORD_US], us[TUTTI_RECORD_US];

    snprintf(category, sizeof category, "%s", e->what);
    make_plain(category);
    if (strcmp(e->what, "ready") == 0 && tensor != NULL)
        snprintf(name, sizeof name, "ready %s", tensor);
    else if (strcmp(e->what, "update") == 0 || e->index < 0)
        snprintf(name, sizeof name, "%s", e->what);
    else
        snprintf(name, sizeof name, "%s %d", e->what, e->index);
    make_plain(name);
    if (instant)
        snprintf(how_long, sizeof how_long, "\"s\":\"t\"");
    else
        snprintf(how_long, sizeof how_long, "\"dur\":%s",
                 tutti_record_us(us, e->end_ns - e->begin_ns));
    return (size_t)snprintf(
        to, TUTTI_RECORD_LINE,
        "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%s,%s,"
        "\"args\":{\"step\":%llu}},\n",
        name, category, instant ? "i" : "X", rank, e->thread,
        tutti_record_us(at, e->begin_ns - ahead_ns), how_long, (unsigned long long)e->step);
}

size_t tutti_record_call_line(char *to, int rank, const tutti_record_named *e)
{
    char name[TUTTI_RECORD_NAME], codec[TUTTI_RECORD_NAME], at[TUTTI_RECORD_US],
        us[TUTTI_RECORD_US], queued[TUTTI_RECORD_US];

    snprintf(name, sizeof name, "%s", e->name);
    snprintf(codec, sizeof codec, "%s", e->codec);
    make_plain(name);
    make_plain(codec);
    return (size_t)snprintf(
        to, TUTTI_RECORD_LINE,
        "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%s,\"dur\":%s,"
        "\"args\":{\"step\":%llu,\"bytes\":%llu,\"codec\":\"%s\",\"queued_us\":%s}},\n",
        name, e->category, rank, e->thread, tutti_record_us(at, e->begin_ns),
        tutti_record_us(us, e->end_ns - e->begin_ns), (unsigned long long)e->step,
        (unsigned long long)e->bytes, codec, tutti_record_us(queued, e->queued_ns));
}

size_t tutti_record_thread_line(char *to, int rank, int thread, const char *name)
{
    char plain[TUTTI_RECORD_NAME];

    snprintf(plain, sizeof plain, "%s", name);
    make_plain(plain);
    return (size_t)snprintf(to, TUTTI_RECORD_LINE, /* merge.c takes lines that have a time */
                            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                            "\"ts\":0.000,\"args\":{\"name\":\"%s\"}},\n",
                            rank, thread, plain);
}

size_t tutti_record_process_line(char *to, int rank, const char *host, long process)
{
    char plain[TUTTI_RECORD_NAME];

    snprintf(plain, sizeof plain, "%s", host);
    make_plain(plain);
    return (size_t)snprintf(to, TUTTI_RECORD_LINE, /* with a time, as above */
                            "{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":%d,\"ts\":0.000,"
                            "\"args\":{\"labels\":\"%s, process %ld\"}},\n",
                            rank, plain, process);
}

size_t tutti_record_head(char *to, int rank, int workers, const tutti_record_clock *clock,
                         uint64_t lost)
{
    const bool serves = rank >= workers;
    char ahead[TUTTI_RECORD_US], within[TUTTI_RECORD_US];

    return (size_t)snprintf(
        to, (size_t)5 * TUTTI_RECORD_LINE,
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"%s %d\"}},\n"
        "{\"name\":\"clock\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"ahead_us\":%s,\"within_us\":%s,"
        "\"lost\":%llu}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":"
        "\"compute\"}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":1,\"args\":{\"name\":\"lane\"}},"
        "\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":2,\"args\":{\"name\":"
        "\"checkpoints\"}},\n",
        rank, serves ? "server" : "worker", serves ? rank - workers : rank, rank,
        tutti_record_us(ahead, clock->ahead_ns), tutti_record_us(within, clock->within_ns),
        (unsigned long long)lost, rank, rank, rank);
}
