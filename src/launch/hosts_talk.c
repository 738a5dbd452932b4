/* hosts_talk.c: parses what an agent sends and acts on it; prefixes the workers' lines with the
   name of their host. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "hosts_internal.h"

/* ---- lines ---- */
void tutti_launch_far_flush(const far_launcher *l, const far_host *h, int stream, line *of)
{
    char text[LINE + sizeof h->spec->name + 4];
    const int n = snprintf(text, sizeof text, "%s: %.*s\n", h->spec->name, (int)of->n, of->text);

    if (of->n > 0)
        l->options->output(l->options->user, stream, text, (size_t)n);
    of->n = 0;
}

static void pass_lines(const far_launcher *l, const far_host *h, int stream, line *of,
                       const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\n' || of->n == LINE)
            tutti_launch_far_flush(l, h, stream, of);
        if (text[i] != '\n')
            of->text[of->n++] = text[i];
    }
}

/* ---- what an agent sends ---- */

_Static_assert(LAUNCH_CORES_TEXT == 296, "the width in CORES_FORMAT is one less");
#define CORES_FORMAT "%295s"

/* Reads the greeting, which is one line. Lines that a login prints before it are passed on. */
static void receive_greeting(far_launcher *l, far_host *h)
{
    const size_t mark = strlen(TUTTI_AGENT_GREETING);
    char version[40], seen[112];
    int rest = 0;
    uint8_t *end;

    while (h->stage == STARTING && (end = memchr(h->received, '\n', h->n_received)) != NULL) {
        const size_t n = (size_t)(end - h->received);
        *end = '\0';
        if (n > mark && memcmp(h->received, TUTTI_AGENT_GREETING, mark) == 0 &&
            sscanf((const char *)h->received + mark, "%39s %n", version, &rest) == 1) {
            h->stage = ANSWERED;
            if (strcmp(version, tutti_version()) != 0)
                tutti_launch_far_give_up(
                    l, 2,
                    "host %s has Tutti %s, this one %s; install the same version on every host",
                    h->spec->name, version, tutti_version());
            else if (sscanf((const char *)h->received + mark + rest, "%9d %111s " CORES_FORMAT,
                            &h->cores, seen, h->which_cores) != 3)
                tutti_launch_far_give_up(
                    l, 2,
                    "host %s greets as no agent of this version would ('%.80s'); install the same "
                    "version on every host",
                    h->spec->name, (const char *)h->received);
            else
                snprintf(h->address_seen, sizeof h->address_seen, "%s",
                         strcmp(seen, "-") != 0 ? seen : "");
        } else {
            pass_lines(l, h, 2, &h->err_line, (const char *)h->received, n);
            tutti_launch_far_flush(l, h, 2, &h->err_line);
        }
        h->n_received -= n + 1;
        memmove(h->received, end + 1, h->n_received);
    }
}

static bool is_of_host(const far_host *h, int rank)
{
    return rank >= h->spec->first && rank < h->spec->first + h->spec->workers;
}

static void receive_frame(far_launcher *l, far_host *h, char type, char *body, size_t bytes)
{
    int rank, code, signal, memory, at = 0;
    long pid;

    switch (type) {
    case 'o':
        if (h->spec->first == 0)
            l->options->output(l->options->user, 1, body, bytes);
        else
            pass_lines(l, h, 1, &h->out_line, body, bytes);
        return;
    case 'e': pass_lines(l, h, 2, &h->err_line, body, bytes); return;
    default: break;
    }
    body[bytes] = '\0'; /* `received` has a byte more for it */
    if (type == 's' && sscanf(body, "%9d %19ld", &rank, &pid) == 2 && is_of_host(h, rank))
        l->workers[rank].pid = pid;
    else if (type == 'd' &&
             sscanf(body, "%9d %19ld %9d %9d %9d", &rank, &pid, &code, &signal, &memory) == 5 &&
             is_of_host(h, rank))
        tutti_launch_far_ended(l, &l->workers[rank], rank, code, signal, memory == 1);
    else if (type == 'r' &&
             sscanf(body, "%9d %9d %19ld %9d %n", &code, &rank, &pid, &signal, &at) == 4) {
        h->stage = DONE;
        h->result =
            (tutti_launch_result){ .exit_code = code, .rank = rank, .pid = pid, .signal = signal };
        snprintf(h->result.text, sizeof h->result.text, "%s", body + at);
        if (code != 0 && l->user_signal == 0 && !l->stopping)
            tutti_launch_far_noticed(l);
    } else if (type == 'x' && sscanf(body, "%9d %n", &code, &at) == 1) {
        h->stage = DONE;
        tutti_launch_far_give_up(l, code == TUTTI_ERR_USAGE ? 2 : 1, "host %s: %s", h->spec->name,
                                 body + at);
    } else
        tutti_launch_far_give_up(
            l, 1, "host %s sends what no agent of this version would (frame '%c' of %zu bytes)",
            h->spec->name, type, bytes);
}

static void receive_frames(far_launcher *l, far_host *h)
{
    size_t at = 0;

    while (h->n_received - at >= TUTTI_AGENT_HEAD) {
        uint8_t *p = h->received + at;
        const size_t bytes =
            (size_t)p[1] | (size_t)p[2] << 8 | (size_t)p[3] << 16 | (size_t)p[4] << 24;
        uint8_t after;
        if (bytes > TUTTI_AGENT_FRAME) {
            tutti_launch_far_give_up(
                l, 1, "host %s sends what no agent of this version would (a frame of %zu bytes)",
                h->spec->name, bytes);
            h->n_received = 0;
            return;
        }
        if (h->n_received - at < TUTTI_AGENT_HEAD + bytes)
            break;
        after = p[TUTTI_AGENT_HEAD + bytes];
        receive_frame(l, h, (char)p[0], (char *)p + TUTTI_AGENT_HEAD, bytes);
        p[TUTTI_AGENT_HEAD + bytes] = after;
        at += TUTTI_AGENT_HEAD + bytes;
    }
    h->n_received -= at;
    memmove(h->received, h->received + at, h->n_received);
}

/* Reads what has come; false: the stream has ended. */
bool tutti_launch_far_read_out(far_launcher *l, far_host *h)
{
    for (;;) {
        const ssize_t n = read(h->out, h->received + h->n_received, RECEIVE_BYTES - h->n_received);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0)
            return false;
        h->n_received += (size_t)n;
        receive_greeting(l, h);
        if (h->stage != STARTING)
            receive_frames(l, h);
        else if (h->n_received == RECEIVE_BYTES)
            h->n_received = 0; /* no greeting has lines that long */
    }
}

bool tutti_launch_far_read_err(const far_launcher *l, far_host *h)
{
    char text[4096];

    for (;;) {
        const ssize_t n = read(h->err, text, sizeof text);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0)
            return false;
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] == '\n' || text[i] == '\r') {
                if (h->rsh_line.n > 0)
                    snprintf(h->last_error, sizeof h->last_error, "%.*s", (int)h->rsh_line.n,
                             h->rsh_line.text);
                tutti_launch_far_flush(l, h, 2, &h->rsh_line);
            } else if (h->rsh_line.n < LINE)
                h->rsh_line.text[h->rsh_line.n++] = text[i];
        }
    }
}

