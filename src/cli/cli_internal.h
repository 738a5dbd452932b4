/* cli_internal.h: what the commands share. One file a command; each is a function of its
   arguments that gives the exit code. */
#ifndef TUTTI_CLI_INTERNAL_H
#define TUTTI_CLI_INTERNAL_H
#include <jansson.h>
#include <stdio.h>

#include "base/settings.h"
#include "train/train.h"
#include "tutti/launch.h"

typedef struct tutti_command {
    const char *name, *arguments, *help;
    int (*run)(int argc, char **argv); /* argv[0]: the command's name */
    const tutti_option *tables[2];     /* of its flags; NULL: no more */
    const struct tutti_command *sub;   /* {0}-ended; NULL: none */
    bool computes;                     /* in this process, with several threads */
} tutti_command;
/* {0}-ended. help NULL: nothing for people */
extern const tutti_command tutti_cli_benchmarks[], tutti_cli_plans[];
/* All commands: main() sets it before it calls one. */
extern const tutti_command *tutti_commands;
extern const tutti_option tutti_cli_run_options[], tutti_cli_compare_options[],
    tutti_cli_report_options[], tutti_cli_plan_options[], tutti_cli_eval_options[],
    tutti_cli_predict_options[], tutti_cli_generate_options[];
int tutti_cli_train(int argc, char **argv), tutti_cli_methods(int argc, char **argv),
    tutti_cli_config(int argc, char **argv), tutti_cli_data(int argc, char **argv),
    tutti_cli_check(int argc, char **argv), tutti_cli_version(int argc, char **argv),
    tutti_cli_platform(int argc, char **argv), tutti_cli_topology(int argc, char **argv),
    tutti_cli_bench(int argc, char **argv), tutti_cli_agent(int argc, char **argv),
    tutti_cli_key(int argc, char **argv), tutti_cli_codecs(int argc, char **argv),
    tutti_cli_transports(int argc, char **argv),
    tutti_cli_run(int argc, char **argv), tutti_cli_plan(int argc, char **argv),
    tutti_cli_report(int argc, char **argv), tutti_cli_compare(int argc, char **argv),
    tutti_cli_complete(int argc, char **argv), tutti_cli_completion(int argc, char **argv),
    tutti_cli_man(int argc, char **argv), tutti_cli_eval(int argc, char **argv),
    tutti_cli_predict(int argc, char **argv), tutti_cli_generate(int argc, char **argv);

/* eval.c: what is left of the arguments when the command's flags were taken: no other flag, and a
   run at their head. */
tutti_status tutti_cli_one_run(const char *command, int argc, char **argv,
                               const tutti_option *options, const char **run, tutti_error *err);

int tutti_cli_data_bpe(int argc, char **argv), tutti_cli_data_tokens(int argc, char **argv),
    tutti_cli_data_clicks(int argc, char **argv); /* data_make.c; argv[0]: bpe, tokens, clicks */

int tutti_cli_plan_memory(int argc, char **argv),  /* plan_memory.c; argv[0]: memory */
    tutti_cli_plan_stages(int argc, char **argv),  /* plan_stages.c; argv[0]: stages */
    tutti_cli_plan_methods(int argc, char **argv); /* plan_methods.c; argv[0]: plan */

enum { EXIT_DONE = 0, EXIT_TRAINING = 1, EXIT_USAGE = 2, EXIT_LOST = 3 };
int tutti_cli_code(tutti_status status);
/* "tutti: sentence" on standard error; gives the exit code of the status. */
int tutti_cli_fail(const tutti_error *err);
/* For commands whose work is worth more than what they print: they live on when the reader of
   standard output has gone. flush: fflush(stdout); once the reader has gone, this is reported
   once and further output is discarded. TUTTI_ERR_IO: any other failure. */
void tutti_cli_keep_running(void);
tutti_status tutti_cli_flush(tutti_error *err);
int tutti_cli_usage(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- screen.c: the terminal ---- */

typedef struct tutti_screen {
    bool terminal; /* lines can be taken back there */
    bool open;     /* a line that the next may replace stands without its end */
} tutti_screen;
bool tutti_screen_replaces(void); /* is standard output such a terminal (TERM is not "dumb")? */
/* `say` and `columns` of tutti_train_io. */
void tutti_screen_say(void *screen, int status, const char *line);
int tutti_screen_columns(void *screen);
void tutti_screen_end(tutti_screen *screen);
/* The terminal's width now, else the value of COLUMNS; 0: no terminal, or its width is unknown. */
int tutti_cli_columns(int fd);
int tutti_cli_page_width(void); /* of pages on standard output: 80 where that is no terminal */
/* `lead`, then text from column `indent` on, in lines of the page's width; a lead that reaches
   past `indent` has a line of its own. */
void tutti_cli_wrap(FILE *out, const char *lead, int indent, const char *text);

/* ---- started.c: what train and run share ---- */

struct tutti_launch_host;

/* The workers of the run whose checkpoint is resumed (train.h: tutti_train_savers). n 0: any
   number of workers will do. */
typedef struct tutti_cli_savers { int n, began, rank[TUTTI_TRAIN_WORKERS_MOST]; } tutti_cli_savers;
/* Leaves of each host those that are left, or, where the hosts are not those of its run, as many as
   they were, from the first host on. With fewer workers than that nothing changes. */
void tutti_cli_keep_left(const tutti_cli_savers *of, struct tutti_launch_host *hosts, int *n_hosts,
                         int *workers);
/* Ranks that only serve: on each host in turn, from the last one on. */
tutti_status tutti_cli_place_servers(struct tutti_launch_host **hosts, int *n_hosts, int servers,
                                     int workers, tutti_error *err);
/* `output` of tutti_launch_hosts_options, `lost` of tutti_launch_options. */
void tutti_cli_show_output(void *user, int stream, const char *text, size_t bytes);
void tutti_cli_show_loss(void *user, const char *line);

/* ---- flags.c ---- */

/* Takes the flags of this table, with their values, out of the arguments; the others stay, in their
   order. argv has a NULL behind its end, as main's has. each: has them set; NULL: they are set in
   user, the table's struct, where the defaults have been written before. -h, --help: *help = true,
   and nothing else counts. */
tutti_status tutti_cli_take_flags(const tutti_option *options, int *argc, char **argv,
                                  tutti_status (*each)(void *user, const tutti_option *option,
                                                       const char *value, tutti_error *err),
                                  void *user, bool *help, tutti_error *err);

/* ---- help.c ---- */

void tutti_cli_train_help(FILE *out, bool all);
/* Our option for a flag known from other tools, or NULL. */
const char *tutti_cli_known_elsewhere(const char *flag);

/* ---- complete.c ---- */

/* For an option whose value is a name of a registry (method, codec, tier ...): the options of
   `name` in that registry. NULL: none. */
const tutti_option *tutti_cli_options_of(const char *option, const char *name);

/* ---- folder.c: which settings of a folder count, as it may be a stranger's ---- */

/* The option whose value reaches beyond the folder (base.h): this one, or one within the spec
   that is its value. NULL: none does. */
const tutti_option *tutti_cli_reach(const tutti_option *option, const char *value);

/* A value of a run's folder that is not taken, since it reaches beyond it. */
typedef struct tutti_cli_left {
    const tutti_option *option, *by; /* by: which reaches, the option or one within its spec */
    char where[200], value[4200];
    struct tutti_cli_left *next;
} tutti_cli_left;

/* ---- settings.c ---- */

/* The trainer's settings from arguments, environment and files, with the flags `extra`
   (own, NULL-ended list of names without dashes that take no value) reported by bits.
   argv[0] is skipped. One positional argument: the configuration file. help: -h or --help
   was there; help_all: with "all" behind it. */
typedef struct tutti_cli_settings {
    tutti_train_config config;
    tutti_settings *settings;
    tutti_runtime *rt;
    const char *file;
    char out[4096]; /* --out, or the default; empty until tutti_cli_default_out has made it */
    unsigned extra;
    bool help, help_all;
    bool transport_saved; /* that of the run which this one resumes; not overridden */
    tutti_cli_savers savers; /* of the run that is resumed, unless the user gives a number of
                                workers */
    tutti_cli_left *left; /* folder.c: that run's settings that are neither taken nor given again */
} tutti_cli_settings;
tutti_status tutti_cli_read(tutti_cli_settings *s, int argc, char **argv, const char *const *extra,
                            tutti_error *err);
/* Sets the method's own defaults, which may depend on the number of workers n, where the user has
   set nothing. Once, after both are known. */
tutti_status tutti_cli_method_defaults(tutti_cli_settings *s, tutti_error *err);
void tutti_cli_close(tutti_cli_settings *s);

/* ---- folder.c, for settings.c and what resumes runs ---- */

/* The filter for a file in a run's folder (base.h; settings: tutti_cli_settings): records what
   is not taken. */
bool tutti_cli_leave(void *settings, const tutti_option *option, const char *value,
                     const char *where);
/* When all has been read: removes from `left` what the user has given again. TUTTI_ERR_USAGE: a
   spec is still left because of one option within it, so the rest of the spec would be missing. */
tutti_status tutti_cli_given_again(tutti_cli_settings *s, tutti_error *err);
/* Prints a line for each value that is left, on standard error. */
void tutti_cli_say_left(const tutti_cli_settings *s);
void tutti_cli_forget_left(tutti_cli_settings *s);
/* Prints `tutti train --resume OUT` with what OUT does not contain: how many workers are left, if
   no other number can resume, and the values that would be left. */
void tutti_cli_print_resume(const tutti_cli_settings *s, FILE *out);

/* ---- catalogue.c ---- */

/* The entries of a kind, by number from 0 on; name gives NULL after the last. help: the command's
   description, printed before that of --json. */
typedef struct tutti_cli_catalogue {
    const char *command, *kind, *help;
    const char *(*name)(size_t i);
    json_t *(*json)(size_t i);
    void (*print)(size_t i);                          /* all of one */
    const char *(*group)(size_t i);                   /* its group's name */
    const char *(*group_title)(const char *group);    /* what stands above the group in the list */
    void (*line)(size_t i, char *text, size_t bytes); /* its line in the list */
    int room;                                         /* columns for its name there */
    const char *advice;                               /* at the list's end */
} tutti_cli_catalogue;
/* COMMAND [NAME] [--json]; an exit code. */
int tutti_cli_list(const tutti_cli_catalogue *c, int argc, char **argv);
void tutti_cli_print_options(FILE *out, const tutti_option *options, bool flags);
json_t *tutti_cli_option_json(const tutti_option *o);

void tutti_word_print(FILE *out, const char *word); /* words.c: as a shell reads it */

/* DIR/../share/tutti/FOLDER, where DIR is the running command's directory; "" if unknown. */
const char *tutti_cli_installed(char *path, size_t bytes, const char *folder);
extern char **environ;
#endif
