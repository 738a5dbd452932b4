/* doctor.c: `tutti doctor`: what of this machine and its software works for Tutti, what does not,
   and what mends it. For people, who paste it into reports of bugs, or as JSON. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "doctor_internal.h"

typedef struct doctor_config {
    const char *python;
    double limit;
    bool json;
} doctor_config;
#define AT(member) TUTTI_AT(doctor_config, member)
const tutti_option tutti_cli_doctor_options[] = {
    { "python", TUTTI_TEXT, AT(python), 0, 0, 0, "",
      "the Python that is asked for PyTorch; none: that of $VIRTUAL_ENV, else python3 of $PATH" },
    { "limit", TUTTI_REAL, AT(limit), 60, 0.1, 3600, NULL,
      "seconds that Python may take for its answers" },
    { "json", TUTTI_BOOL, AT(json), 0, 0, 1, NULL, "print one JSON object" },
    { 0 }
};

const char *tutti_finding_state_name(tutti_finding_state state)
{
    static const char *const names[FINDING_STATES] = { "works", "limited", "absent", "fails" };

    return names[state];
}

/* Other programs' words can be of any bytes, or were cut within a letter. */
static void make_plain(char *text)
{
    json_t *const as_it_is = json_string(text); /* NULL: no UTF-8 */

    for (char *at = text; *at != 0; at++)
        if ((unsigned char)*at < ' ')
            *at = ' ';
        else if ((unsigned char)*at > '~' && as_it_is == NULL)
            *at = '?';
    json_decref(as_it_is);
}

void tutti_finding_add(tutti_findings *f, const char *name, tutti_finding_state state,
                       const char *mend, const char *format, ...)
{
    tutti_finding *const to = &f->list[f->n];
    va_list args;

    if (f->n == FINDINGS_MOST)
        return;
    f->n++;
    to->state = state;
    snprintf(to->name, sizeof to->name, "%s", name);
    snprintf(to->mend, sizeof to->mend, "%s", mend);
    va_start(args, format);
    vsnprintf(to->found, sizeof to->found, format, args);
    va_end(args);
    make_plain(to->found);
    make_plain(to->mend);
}

static bool all_work(const tutti_findings *f)
{
    for (int i = 0; i < f->n; i++)
        if (f->list[i].state == FINDING_FAILS)
            return false;
    return true;
}

static tutti_status print_json(const tutti_findings *f, const char *system, tutti_error *err)
{
    json_t *list = json_array(), *o;
    char *text;

    for (int i = 0; i < f->n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", f->list[i].name,
                                              "state", tutti_finding_state_name(f->list[i].state),
                                              "found", f->list[i].found, "mend", f->list[i].mend));
    o = json_pack("{s:s, s:s, s:b, s:o}", "tutti", tutti_version(), "system", system, "works",
                  all_work(f), "findings", list);
    text = json_dumps(o, JSON_INDENT(2));
    json_decref(o);
    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "printing the findings");
    puts(text);
    free(text);
    return TUTTI_OK;
}

static void print_plain(const tutti_findings *f, const char *system)
{
    char lead[64];
    int failures = 0;

    printf("Tutti %s on %s\n\n", tutti_version(), system);
    for (int i = 0; i < f->n; i++) {
        const tutti_finding *const one = &f->list[i];
        failures += one->state == FINDING_FAILS;
        snprintf(lead, sizeof lead, "%-7s  %s", tutti_finding_state_name(one->state), one->name);
        tutti_cli_wrap(stdout, lead, 24, one->found);
        if (one->mend[0] != 0)
            tutti_cli_wrap(stdout, "           to mend it", 24, one->mend);
    }
    if (failures == 0)
        printf("\nAll that Tutti needs works.\n");
    else
        printf("\n%d of what Tutti needs do%s not work.\n", failures, failures == 1 ? "es" : "");
}

static void print_help(void)
{
    printf("tutti doctor [--json] [--python FILE] [--limit SECONDS]\n\n");
    tutti_cli_wrap(
        stdout, "", 0,
        "Looks at this machine and its software: cores, memory, /dev/shm, network, transports, "
        "MPI, SimGrid, drivers of cards, and Python with PyTorch, its cards and Tutti's package. A "
        "line each says what was found, and what mends it. Put all of it into a report of a bug. "
        "Nothing is changed.");
    putchar('\n');
    tutti_cli_wrap(
        stdout, "", 0,
        "Each is one of: works; limited (works, but something else will not, or less well); absent "
        "(only what asks for it needs it); fails (Tutti needs it here). The exit code is 1 if "
        "anything fails, else 0.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_doctor_options, true);
}

static tutti_status look(const doctor_config *c, tutti_findings *f, tutti_error *err)
{
    char system[256] = "an unknown system";
    struct utsname about;
    tutti_runtime *rt;

    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    if (uname(&about) == 0)
        snprintf(system, sizeof system, "%.60s %.100s, %.60s", about.sysname, about.release,
                 about.machine);
    tutti_doctor_host(f);
    tutti_doctor_parts(f, rt);
    tutti_doctor_python(f, rt, c->python, (int64_t)(c->limit * 1e9));
    tutti_runtime_close(rt);
    if (c->json)
        return print_json(f, system, err);
    print_plain(f, system);
    return TUTTI_OK;
}

int tutti_cli_doctor(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    tutti_findings f = { .n = 0 };
    doctor_config c;
    bool help = false;
    tutti_status status;

    tutti_options_default(tutti_cli_doctor_options, &c);
    status = tutti_cli_take_flags(&(tutti_flag_table){ tutti_cli_doctor_options, NULL, &c }, &argc,
                                  argv, &help, &err);
    if (status == TUTTI_OK && help) {
        print_help();
        return EXIT_DONE;
    }
    if (status == TUTTI_OK && argc > 1)
        return tutti_cli_usage("doctor", "it takes no '%.80s'", argv[1]);
    if (status == TUTTI_OK)
        status = look(&c, &f, &err);
    if (status != TUTTI_OK)
        return tutti_cli_fail(&err);
    return all_work(&f) ? EXIT_DONE : EXIT_TRAINING;
}
