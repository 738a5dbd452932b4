/* cli_internal.h: the table of commands and the functions that commands share. Included by all
   files of src/cli. Each command is a function in a file of the same name, which gets its arguments
   and returns the exit code of the process. Each section is named after the file that implements
   it. */
#ifndef TUTTI_CLI_INTERNAL_H
#define TUTTI_CLI_INTERNAL_H
#include <jansson.h>
#include <stdio.h>

#include "base/settings.h"
#include "train/train.h"
#include "tutti/launch.h"
#include "launch/launch.h"

typedef struct tutti_cli_settings tutti_cli_settings;
typedef struct tutti_command {
    const char *name;
    const char *arguments;             /* as help prints them; "": none */
    const char *help;                  /* one sentence; NULL: only programs call the command */
    int (*run)(int argc, char **argv); /* argv[0]: the command's name */
    const tutti_option *tables[2];     /* tables of its flags, {0}-ended each; NULL: none */
    const struct tutti_command *sub;   /* its subcommands, {0}-ended; NULL: none */
    bool computes;                     /* it computes in this process, with several threads */
} tutti_command;
extern const tutti_command tutti_cli_benchmarks[], tutti_cli_plans[]; /* {0}-ended */
/* All commands, {0}-ended. main() sets it before it calls a command. */
extern const tutti_command *tutti_commands;
/* The flags of commands, {0}-ended each. */
extern const tutti_option tutti_cli_run_options[], tutti_cli_compare_options[],
    tutti_cli_report_options[], tutti_cli_plan_options[], tutti_cli_eval_options[],
    tutti_cli_predict_options[], tutti_cli_generate_options[], tutti_cli_doctor_options[],
    tutti_cli_why_options[], tutti_cli_convert_options[], tutti_cli_join_options[],
    tutti_cli_leave_options[];
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
    tutti_cli_doctor(int argc, char **argv),
    tutti_cli_man(int argc, char **argv), tutti_cli_eval(int argc, char **argv),
    tutti_cli_predict(int argc, char **argv), tutti_cli_generate(int argc, char **argv),
    tutti_cli_why(int argc, char **argv), tutti_cli_convert(int argc, char **argv),
    tutti_cli_join(int argc, char **argv), tutti_cli_dismiss(int argc, char **argv);

/* eval.c: sets *run to the first of the arguments that are left after the command's flags were
   taken. TUTTI_ERR_USAGE: there is none, or a flag is among them. options: the command's, for a
   suggestion. */
tutti_status tutti_cli_one_run(const char *command, int argc, char **argv,
                               const tutti_option *options, const char **run, tutti_error *err);

int tutti_cli_data_bpe(int argc, char **argv), tutti_cli_data_tokens(int argc, char **argv),
    tutti_cli_data_clicks(int argc, char **argv); /* data_make.c; argv[0]: bpe, tokens, clicks */

int tutti_cli_plan_memory(int argc, char **argv),  /* plan_memory.c; argv[0]: memory */
    tutti_cli_plan_stages(int argc, char **argv),  /* plan_stages.c; argv[0]: stages */
    tutti_cli_plan_methods(int argc, char **argv); /* plan_methods.c; argv[0]: plan */

/* ---- common.c and output.c ---- */

enum { EXIT_DONE = 0, EXIT_TRAINING = 1, EXIT_USAGE = 2, EXIT_LOST = 3 };
/* Returns the exit code of a status. */
int tutti_cli_code(tutti_status status);
/* Prints "tutti: SENTENCE" to standard error, and returns the exit code of the status. */
int tutti_cli_fail(const tutti_error *err);
/* Prints "tutti COMMAND: SENTENCE; see ..." to standard error, and returns EXIT_USAGE. */
int tutti_cli_usage(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns the path of DIR/../share/tutti/FOLDER, where DIR is the directory of this program; "": it
   is not known. path: buffer for the result. */
const char *tutti_cli_installed(char *path, size_t bytes, const char *folder);
/* For a command whose results are files: it continues when the reader of standard output has closed
   it. Call first, and tutti_cli_flush instead of fflush. */
void tutti_cli_keep_running(void);
/* Flushes standard output. If that fails (its reader has closed it, the disk is full), this is
   reported once, and further output is discarded. TUTTI_ERR_IO: it cannot be discarded. */
tutti_status tutti_cli_flush(tutti_error *err);

/* ---- asked.c: being asked to end ---- */

/* Installs handlers of SIGTERM and SIGINT. From then on tutti_cli_asked returns the first signal.
   launched: by our launcher, which handles second signals. */
void tutti_cli_handle_signals(bool launched);
/* `stop` of tutti_train_io: the signal that has come; 0: none. */
int tutti_cli_asked(void *user);
bool tutti_cli_asked_by_launcher(void); /* did a signal come from our launcher? */
/* Returns the exit code of a rank that a signal has stopped. */
int tutti_cli_code_of_stop(void);

/* ---- member.c: runs whose workers come and go ---- */

/* The launcher's part: starts the workers, and waits for all of this machine. words: their command
   line. stop_ns: the time that they have to leave after a signal; 0: the usual. */
tutti_status tutti_cli_launch_members(const tutti_cli_settings *s, const char *const *words,
                                      int64_t stop_ns, tutti_launch_result *result,
                                      tutti_error *err);
/* Sets the run's id and key: from the environment, where a cluster gives them; else new ones. */
tutti_status tutti_cli_member_secrets(tutti_runtime *rt, tutti_launch_elastic_options *o,
                                      tutti_error *err);
/* A worker's: takes part until the run ends, or until it leaves. Returns the exit code. */
int tutti_cli_work_member(tutti_cli_settings *s, const tutti_train_io *io, int rank,
                          tutti_error *err);

/* ---- screen.c: the terminal ---- */

typedef struct tutti_screen {
    bool terminal; /* standard output is a terminal on which lines can be replaced */
    bool open;     /* the cursor is at the end of a line that the next one may replace */
} tutti_screen;
/* Is standard output a terminal on which lines can be replaced (TERM is not "dumb")? */
bool tutti_screen_replaces(void);
/* `say` and `columns` of tutti_train_io. screen: a tutti_screen. */
void tutti_screen_say(void *screen, int status, const char *line);
int tutti_screen_columns(void *screen);
/* Ends an open line. */
void tutti_screen_end(tutti_screen *screen);
/* Returns the width of the terminal at fd, or else the value of COLUMNS; 0: fd is no terminal, or
   its width is not known. */
int tutti_cli_columns(int fd);
/* Returns the width of pages on standard output, 40 to 120; 80 if that is no terminal. */
int tutti_cli_page_width(void);
/* Prints `lead`, then text from column `indent` on, in lines of the page's width. A lead that
   reaches past `indent` gets its own line. */
void tutti_cli_wrap(FILE *out, const char *lead, int indent, const char *text);

/* ---- started.c: what train and run share ---- */

struct tutti_launch_host;

/* The workers that a checkpoint has to be resumed with (tutti_train_savers). */
typedef struct tutti_cli_savers {
    int n;                                /* their number; 0: any number can resume it */
    int began;                            /* number of workers with which its run began */
    int rank[TUTTI_TRAIN_WORKERS_MOST];   /* [n]: ranks in its run, ascending */
} tutti_cli_savers;
/* Reduces *workers to of->n: if the hosts have of->began workers, keeps on each host the workers
   whose ranks are in of->rank; else the first of->n workers. Hosts without workers are removed.
   Does nothing if of->n is 0 or not less than *workers. */
void tutti_cli_keep_left(const tutti_cli_savers *of, struct tutti_launch_host *hosts, int *n_hosts,
                         int *workers);
/* Adds `servers` ranks that only serve, after all workers, to the hosts in turn, from the last host
   on. A host that gets some is listed once more. *hosts is replaced, tutti_free it. */
tutti_status tutti_cli_place_servers(struct tutti_launch_host **hosts, int *n_hosts, int servers,
                                     int workers, tutti_error *err);
/* Callbacks `output` of tutti_launch_hosts_options and `lost` of tutti_launch_options. */
void tutti_cli_show_output(void *user, int stream, const char *text, size_t bytes);
void tutti_cli_show_loss(void *user, const char *line);

/* ---- void_options.c ---- */
/* Has that option of `tutti train` no effect with these others? After tutti_train_check. */
bool tutti_cli_is_void(const char *name, const tutti_train_config *config);
/* Refuses flags that do nothing. In the process that starts the run, or all runs of a comparison:
   `one` is false then, and those that count in some of its runs pass. */
tutti_status tutti_cli_check_void(const tutti_cli_settings *s, bool one, tutti_error *err);

/* ---- flags.c ---- */

/* A command's options, and where their values go. each: called with each flag; NULL: the values are
   written to `user`, which is the table's struct with its defaults. */
typedef struct tutti_flag_table {
    const tutti_option *options;
    tutti_status (*each)(void *user, const tutti_option *option, const char *value,
                         tutti_error *err);
    void *user;
} tutti_flag_table;
/* Removes the flags of this table, with their values, from the arguments; the others stay, in their
   order. argv[*argc] is NULL, before and after. -h and --help set *help, and the rest is
   ignored. */
tutti_status tutti_cli_take_flags(const tutti_flag_table *table, int *argc, char **argv, bool *help,
                                  tutti_error *err);
/* Returns the value of the flag at argv[*at]: `given` (after '=') if it is not NULL; "true" for a
   switch, which is a boolean that is off by default, unless the next argument is on or off; else
   the next argument. *at moves to the argument that is taken. NULL: the value is missing. */
const char *tutti_cli_flag_value(const tutti_option *option, const char *given, int argc,
                                 char **argv, int *at);

/* ---- run.c ---- */

/* Checks the option argv[*at] of `tutti run`, and moves *at to its last word. */
tutti_status tutti_cli_run_option(int argc, char **argv, int *at, tutti_error *err);
/* Checks all that `tutti run` checks before it starts a process. argv[0] is "run". */
tutti_status tutti_cli_run_check(int argc, char **argv, tutti_error *err);

/* ---- help.c ---- */

/* Prints the help of `tutti train`. all: with all options. */
void tutti_cli_train_help(FILE *out, bool all);
/* Returns the name of the option that does what that flag does in other programs; NULL: none. */
const char *tutti_cli_known_elsewhere(const char *flag);

/* ---- complete.c ---- */

/* Returns the options of entry `name` in the registry that `option` (method, codec, tier ...)
   chooses from; NULL: there is no such registry or entry. */
const tutti_option *tutti_cli_options_of(const char *option, const char *name);

/* ---- folder.c: settings in a run's folder, which is not trusted ---- */

/* Returns the option whose value reaches beyond the folder (tutti_option.reach): this one, or one
   within the spec that is its value; NULL: none. */
const tutti_option *tutti_cli_reach(const tutti_option *option, const char *value);

/* A setting of a run's folder that is ignored, since it reaches beyond the folder. */
typedef struct tutti_cli_left {
    const tutti_option *option;
    const tutti_option *by;      /* the option that reaches: `option`, or one within its spec */
    char where[200];             /* file and line */
    char value[4200];
    struct tutti_cli_left *next;
} tutti_cli_left;

/* ---- settings.c ---- */

/* The settings of a run, from arguments, environment and files. */
/* Where the hosts of -H stand, if not there (elsewhere.h). {0}: they do. */
typedef struct tutti_cli_hosts {
    const char *source;          /* @FILE or |COMMAND; NULL: the list itself was given */
    char *text;                  /* the list that was read; tutti_free it */
} tutti_cli_hosts;

struct tutti_cli_settings {
    tutti_train_config config;
    tutti_settings *settings;    /* knows where each value comes from */
    tutti_runtime *rt;
    const char *file;            /* the configuration file; NULL: none */
    char out[4096];              /* --out, else the directory of the resumed run; "": the command
                                    has to choose one */
    unsigned extra;              /* bit i: flag extra[i] was given */
    bool help, help_all;         /* -h or --help was given; --help all */
    bool transport_saved;        /* the transport is that of the resumed run */
    tutti_cli_hosts hosts;       /* of config.hosts, once they were read */
    tutti_cli_savers savers;     /* of the resumed run; n 0: the user gives a number of workers */
    tutti_cli_left *left;        /* settings of the resumed run that are ignored, and that the user
                                    has not given again; NULL: none */
};
/* Reads the settings; *s is overwritten. argv[0] is skipped. One argument that is no flag may be
   given: the configuration file. extra: NULL-ended list of the command's own flags, names without
   dashes, which have no value; NULL: none. Call tutti_cli_close also after a failure. */
tutti_status tutti_cli_read(tutti_cli_settings *s, int argc, char **argv, const char *const *extra,
                            tutti_error *err);
/* Sets the options for which the method has defaults of its own, unless the user has set them. Call
   once, when method and number of workers are known: the defaults may depend on both. */
tutti_status tutti_cli_method_defaults(tutti_cli_settings *s, tutti_error *err);
void tutti_cli_close(tutti_cli_settings *s);

/* ---- folder.c, for commands that resume runs ---- */

/* The filter for tutti_settings_file_filtered, for files of a run's folder. settings: a
   tutti_cli_settings. false: the setting is ignored, and was added to `left`. */
bool tutti_cli_leave(void *settings, const tutti_option *option, const char *value,
                     const char *where);
/* Call when all has been read: removes from `left` what the user has given again. TUTTI_ERR_USAGE:
   a spec remains in `left` because of one option within it, so the rest of the spec would be
   missing. */
tutti_status tutti_cli_given_again(tutti_cli_settings *s, tutti_error *err);
/* Prints a line for each setting in `left` to standard error. */
void tutti_cli_say_left(const tutti_cli_settings *s);
/* Empties `left`. */
void tutti_cli_forget_left(tutti_cli_settings *s);
/* Prints `tutti train --resume OUT` with the arguments that OUT does not contain: the number of
   workers, if only that number can resume it, and settings that reach beyond OUT. */
void tutti_cli_print_resume(const tutti_cli_settings *s, FILE *out);

/* Prints a table of options (settings.c). flags: names begin with dashes. */
void tutti_cli_print_options(FILE *out, const tutti_option *options, bool flags);

/* ---- catalogue.c: commands that list the entries of a registry ---- */

/* A registry. Entries have the numbers 0, 1, ... */
typedef struct tutti_cli_catalogue {
    const char *command;         /* "methods" */
    const char *kind;            /* "method" */
    const char *help;            /* the command's description */
    const char *(*name)(size_t i);                    /* NULL: i is after the last entry */
    json_t *(*json)(size_t i);                        /* all about an entry, owned by the caller */
    void (*print)(size_t i);                          /* prints all about an entry */
    const char *(*group)(size_t i);                   /* name of the entry's group */
    const char *(*group_title)(const char *group);    /* printed above the group in the list */
    void (*line)(size_t i, char *text, size_t bytes); /* the entry's line in the list */
    int room;                    /* columns for names in the list */
    const char *advice;          /* printed after the list */
} tutti_cli_catalogue;
/* Runs `tutti COMMAND [NAME] [--json]` and returns its exit code. */
int tutti_cli_list(const tutti_cli_catalogue *c, int argc, char **argv);
json_t *tutti_cli_option_json(const tutti_option *o); /* owned by the caller */

/* ---- words.c ---- */

/* Prints a word, quoted such that a shell reads it as this word. */
void tutti_word_print(FILE *out, const char *word);
extern char **environ;
#endif
