/* hosts_job.c: the job of an agent: the program and its arguments, directory, ranks, environment
   and the address of the meeting place. It contains the run's key, so it is wiped once it is
   sent. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "hosts_internal.h"
#include "launch.h"

extern char **environ;

#define NS_PER_MS ((int64_t)1000000)

typedef struct job_text { char *text; size_t n, room; bool full; } job_text;

static void append_variable(job_text *j, const char *name, const char *value)
{
    const size_t need = strlen(name) + strlen(value) + 2;

    if (j->full || j->n + need > j->room) {
        j->full = true;
        return;
    }
    j->n += (size_t)snprintf(j->text + j->n, j->room - j->n, "%s=%s", name, value) + 1;
}

static void add_number(job_text *j, const char *name, long value)
{
    char text[24];

    snprintf(text, sizeof text, "%ld", value);
    append_variable(j, name, text);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Does this variable go to the workers of other hosts? The rank and size of a worker are set there,
   and times of this host's clock mean nothing there. */
static bool handed_on(const tutti_launch_hosts_options *o, const char *entry)
{
    static const char *const yes[] = { "TUTTI_",        "OMP_",           "GOMP_",
                                       "KMP_",          "OPENBLAS_",      "MKL_",
                                       "DNNL_",         "ONEDNN_",        "LD_LIBRARY_PATH=",
                                       "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS=",
                                       "LSAN_OPTIONS=" };
    static const char *const no[] = { "TUTTI_RANK=",  "TUTTI_SIZE=", "TUTTI_SHM_",
                                      "TUTTI_MEET",   "TUTTI_RUN_",  "TUTTI_STARTED_NS=",
                                      "TUTTI_HOSTS=", "TUTTI_N=" };

    for (size_t i = 0; i < TUTTI_LENGTH(no); i++)
        if (begins(entry, no[i]))
            return false;
    for (size_t i = 0; i < TUTTI_LENGTH(yes); i++)
        if (begins(entry, yes[i]))
            return true;
    if (o->torch && (begins(entry, "MASTER_ADDR=") || begins(entry, "MASTER_PORT=")))
        return true;
    for (const char *at = o->exports != NULL ? o->exports : ""; *at != '\0';
         at += strcspn(at, ","), at += *at == ',')
        if (strcspn(entry, "=") == strcspn(at, ",") && strncmp(entry, at, strcspn(at, ",")) == 0)
            return true;
    return false;
}

/* Adds the addresses of the meeting place that this host may try, the likeliest first. */
static void add_meets(const far_launcher *l, const far_host *h, job_text *j)
{
    const char *address = l->options->address;
    char where[400];

    if (address != NULL && address[0] != '\0') {
        const char *colon = strrchr(address, ':');
        char name[256];
        const bool port = colon != NULL && (strchr(address, ':') == colon || address[0] == '[');
        snprintf(name, sizeof name, "%.*s", (int)(port ? colon - address : (long)strlen(address)),
                 address);
        if (name[0] == '[') {
            name[strcspn(name, "]")] = '\0';
            memmove(name, name + 1, strlen(name));
        }
        tutti_meet_where(l->meet, name, where, sizeof where);
        append_variable(j, "meet", where);
        return;
    }
    if (h->route[0] != '\0') {
        tutti_meet_where(l->meet, h->route, where, sizeof where);
        append_variable(j, "meet", where);
    }
    if (h->address_seen[0] != '\0' && strcmp(h->address_seen, h->route) != 0) {
        tutti_meet_where(l->meet, h->address_seen, where, sizeof where);
        append_variable(j, "meet", where);
    }
}

static tutti_status write_job(const far_launcher *l, far_host *h, int threads, const char *id,
                              const char *key, tutti_error *err)
{
    const tutti_launch_hosts_options *o = l->options;
    char *const *environment = o->environment != NULL ? o->environment : environ;
    char word[32], head[32];
    job_text j = { .room = TUTTI_AGENT_JOB };
    int n;

    j.text = tutti_alloc(j.room + sizeof head, 1);
    if (j.text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing the job of host %s",
                          h->spec->name);
    j.text += sizeof head; /* the head, whose length is known last, is put before it */
    append_variable(&j, "host", h->spec->name);
    append_variable(&j, "dir", o->directory);
    add_number(&j, "workers", h->spec->workers);
    add_number(&j, "first", h->spec->first);
    add_number(&j, "size", l->size);
    add_number(&j, "local_first", h->local_first);
    add_number(&j, "local_size", h->local_size);
    add_number(&j, "threads", threads);
    add_number(&j, "pin", o->pin);
    add_number(&j, "grace", (long)(o->grace_ns / NS_PER_MS));
    add_number(&j, "stop", (long)(o->stop_ns / NS_PER_MS));
    add_number(&j, "silence", (long)(o->silence_ns / NS_PER_MS));
    add_number(&j, "goes_on", o->continue_on_loss);
    add_number(&j, "torch", o->torch);
    add_number(&j, "tag", o->tag);
    for (int i = 0; o->argv[i] != NULL; i++) {
        snprintf(word, sizeof word, "--threads=%d", threads);
        append_variable(&j, "arg", i > 0 && i == o->threads_word ? word : o->argv[i]);
    }
    for (size_t i = 0; environment[i] != NULL; i++)
        if (handed_on(o, environment[i]))
            append_variable(&j, "env", environment[i]);
    if (l->meet != NULL) {
        char secret[16 + TUTTI_RUN_KEY_TEXT], name[16 + TUTTI_RUN_ID_TEXT];
        add_meets(l, h, &j);
        snprintf(name, sizeof name, TUTTI_MEET_VARIABLE_ID "=%s", id);
        snprintf(secret, sizeof secret, TUTTI_MEET_VARIABLE_KEY "=%s", key);
        append_variable(&j, "env", name);
        append_variable(&j, "env", secret);
        append_variable(&j, "env", TUTTI_MEET_VARIABLE_AT_0 "=0"); /* the launcher serves it */
        explicit_bzero(secret, sizeof secret);
    }
    j.text -= sizeof head;
    if (j.full) {
        tutti_free(j.text);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "arguments and environment have more than %d bytes together; unset what "
                          "the workers do not need",
                          TUTTI_AGENT_JOB);
    }
    n = snprintf(head, sizeof head, "JOB %zu\n", j.n);
    memmove(j.text + n, j.text + sizeof head, j.n);
    memcpy(j.text, head, (size_t)n);
    h->job = j.text;
    h->job_bytes = (size_t)n + j.n;
    h->job_sent = 0;
    return TUTTI_OK;
}

void tutti_launch_far_job_close(far_host *h)
{
    if (h->job != NULL)
        explicit_bzero(h->job, h->job_bytes);
    tutti_free(h->job);
    h->job = NULL;
}

/* Returns the address at which the meeting place listens: the one that all hosts are given, or, if
   they are given several, all addresses. */
static const char *bind_address(const far_launcher *l)
{
    const char *only = l->hosts[0].route, *given = l->options->address;
    bool six = false, several = only[0] == '\0';

    if (given != NULL && given[0] != '\0')
        return strchr(given, ':') != strrchr(given, ':') ? "::" : "0.0.0.0";
    for (int i = 0; i < l->n; i++) {
        const far_host *h = &l->hosts[i];
        six = six || strchr(h->route, ':') != NULL || strchr(h->address_seen, ':') != NULL;
        several = several || strcmp(h->route, only) != 0 ||
                  (h->address_seen[0] != '\0' && strcmp(h->address_seen, only) != 0);
    }
    return !several ? only : six ? "::" : "0.0.0.0";
}

static int port_of(const char *address)
{
    const char *colon = address != NULL ? strrchr(address, ':') : NULL;

    return colon != NULL && (strchr(address, ':') == colon || address[0] == '[') ? atoi(colon + 1)
                                                                                 : 0;
}

/* Counts the workers that share each host's cores, and numbers its own among them. Two hosts may be
   one machine: it may have two names, or a second agent for servers. Hosts whose affinities overlap
   in part count each other's workers fully, so that no core is used twice. */
static void count_locals(far_launcher *l)
{
    for (int i = 0; i < l->n; i++) {
        far_host *h = &l->hosts[i];
        h->local_first = h->local_size = 0;
        for (int k = 0; k < l->n; k++) {
            const int workers =
                k == i || tutti_launch_cores_shared(h->which_cores, l->hosts[k].which_cores)
                    ? l->hosts[k].spec->workers
                    : 0;
            h->local_first += k < i ? workers : 0;
            h->local_size += workers;
        }
    }
}

tutti_status tutti_launch_far_send_jobs(far_launcher *l, tutti_error *err)
{
    const tutti_launch_hosts_options *o = l->options;
    tutti_meet_options m = { .size = l->size,
                             .port = port_of(o->address),
                             .gather_ns = l->give_up_at - tutti_now_ns(l->rt),
                             .silence_ns = o->silence_ns };
    char id[TUTTI_RUN_ID_TEXT] = "", key[TUTTI_RUN_KEY_TEXT] = "";
    int threads = o->threads;
    tutti_status status = TUTTI_OK;

    count_locals(l);
    for (int i = 0; i < l->n && o->threads == 0; i++) {
        const int mine = l->hosts[i].cores / l->hosts[i].local_size;
        threads = i == 0 || mine < threads ? mine : threads;
    }
    if (threads < 1)
        threads = 1;
    if (o->meet) {
        m.address = bind_address(l);
        tutti_run_id_make(l->rt, &m.id);
        tutti_run_key_make(l->rt, &m.key);
        tutti_run_id_text(&m.id, id);
        tutti_run_key_text(&m.key, key);
        status = tutti_meet_open(&l->meet, l->rt, &m, err);
        tutti_run_key_wipe(&m.key);
    }
    for (int i = 0; status == TUTTI_OK && i < l->n; i++) {
        status = write_job(l, &l->hosts[i], threads, id, key, err);
        l->hosts[i].stage = RUNNING;
    }
    explicit_bzero(key, sizeof key);
    return status;
}

void tutti_launch_far_push_job(far_host *h)
{
    while (h->job != NULL && h->in >= 0) {
        const ssize_t n = write(h->in, h->job + h->job_sent, h->job_bytes - h->job_sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* full for now, or the agent is gone, which its end shows */
        h->job_sent += (size_t)n;
        if (h->job_sent == h->job_bytes)
            tutti_launch_far_job_close(h);
    }
}

