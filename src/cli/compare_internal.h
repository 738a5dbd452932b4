/* compare_internal.h: what the files of `tutti compare` (compare*.c) and of `tutti plan`
   (plan_internal.h) share. Each section is named after the file that implements it.

   What is compared is `tutti train`, or a script: `tutti run` of a command that has {method} and
   {seed} in it.

   A comparison is described by its plan, a JSON object, which is stored as DIR/plan.json:
     version    of this format
     command    the words of the command, as they were typed
     directory  working directory of the runs, so that relative paths keep their meaning
     target     "accuracy=0.9" as it was given, or ""
     by         "max:f1" as it was given; absent: it was not
     rows       what is compared: {method, codec, condition}
     points     points of the tuning grid, such as "lr=0.1"; without a grid one point, ""
     left_out   combinations that were refused before anything ran: {row, why}
     runs       {name, row, point, seed, words}, in the order in which they run. name: of the folder
                in DIR/runs; row, point: indexes; words: of `tutti train`, without --out, or of
                `tutti run`
     script     the command of a script, with its {method} and {seed}
     options    those of `tutti run` that were typed; without a script neither is a member */
#ifndef TUTTI_CLI_COMPARE_INTERNAL_H
#define TUTTI_CLI_COMPARE_INTERNAL_H
#include "page_internal.h"

/* The options of `tutti compare`. */
typedef struct tutti_compare_config {
    const char *methods, *codecs, *seeds, *target, *by, *out, *resume;
    int64_t jobs;
    double timeout;              /* seconds of a script's run; 0: no limit */
    bool pictures, quiet;
    const char *grid, *vary;     /* the last --grid and --vary */
    json_t *grids, *varies;      /* all of them: arrays of texts "KEY=A,B" */
    bool of_plan;                /* for `tutti plan`: no evaluations are added, and it is no error
                                    if all combinations of a method are refused */
} tutti_compare_config;
enum { TUTTI_COMPARE_FORMAT = 1 }; /* `version` of a plan */
enum { TUTTI_COMPARE_RUNS_MOST = 10000 };

/* ---- compare_lists.c ---- */

/* Reads a list of texts, in which no text may be twice. Separators within brackets and quotes do
   not count. what: begins the message. empty: elements may be "". *list: json_decref it. */
tutti_status tutti_compare_list(const char *what, const char *text, char separator, bool empty,
                                json_t **list, tutti_error *err);
/* Reads "3", which is 0 to 2, or a list of seeds. *seeds: an array of integers; json_decref it. */
tutti_status tutti_compare_seeds(const char *text, json_t **seeds, tutti_error *err);
/* Converts texts "KEY=A,B" to [{"lr": "0.1", "momentum": "0"}, ...], where the first axis changes
   slowest; without texts to [{}]. flag: for messages. *points: json_decref it. */
tutti_status tutti_compare_combine(const char *flag, const json_t *texts, char separator,
                                   json_t **points, tutti_error *err);
/* Writes "slow=0:5 n=4"; for an empty value "slow=none". */
void tutti_compare_point(json_t *point, char *text, size_t bytes);

/* Refuses a list in which a text is twice. */
tutti_status tutti_compare_once(const char *what, const json_t *list, tutti_error *err);

/* ---- compare_specs.c ---- */

/* Checks the name and the options of a method or a codec (kind). A codec may be "none". own: a name
   that the library does not know is right, and *known tells. known NULL: nobody asks. */
tutti_status tutti_compare_check_spec(const char *kind, const char *text, bool own, bool *known,
                                      tutti_error *err);
/* Has a spec, of those that the library has, an option that is another one in `is`, a spec of the
   same name? */
bool tutti_compare_differs(const char *kind, const char *given, const char *is);

/* The figure of evaluations by which runs are compared. */
typedef struct tutti_compare_by {
    char name[96];                      /* "": loss and accuracy of the test, or training loss */
    bool most;                          /* the largest is the best */
} tutti_compare_by;
/* Parses "max:f1", "min:val/loss", or a name whose better end is known. "" or NULL: none. */
tutti_status tutti_compare_by_of(const char *text, tutti_compare_by *by, tutti_error *err);
/* Parses a target: "NAME=V" of the figure by which runs are compared; without one "accuracy=A"
   (*accuracy) or "loss=L". */
tutti_status tutti_compare_target(const char *text, const tutti_compare_by *by, bool *accuracy,
                                  double *value, tutti_error *err);

/* ---- compare_plan.c ---- */

/* What is compared, each an array: texts; points as of tutti_compare_combine; integers. */
typedef struct tutti_compare_lists {
    json_t *methods, *codecs, *conditions, *points, *seeds;
} tutti_compare_lists;
/* What one run has of each list. */
typedef struct tutti_compare_choice {
    const char *method, *codec;         /* codec "": none */
    json_t *condition, *point;          /* {key: value} */
    json_int_t seed;
} tutti_compare_choice;
/* How the commands of runs are made. */
typedef struct tutti_compare_maker {
    /* Makes the words of a run. TUTTI_ERR_USAGE: they would be refused. *words: json_decref it. */
    tutti_status (*words)(const void *user, const tutti_compare_choice *of, json_t **words,
                          tutti_error *err);
    const void *user;
    bool of_plan;                       /* tutti_compare_config */
} tutti_compare_maker;
/* Reads the lists but `methods`, and the target. tutti_compare_lists_drop also after a failure. */
tutti_status tutti_compare_lists_read(tutti_compare_lists *l, const tutti_compare_config *c,
                                      tutti_error *err);
void tutti_compare_lists_drop(tutti_compare_lists *l);
/* Makes the plan of these lists. *plan: json_decref it, also after a failure. */
tutti_status tutti_compare_fill_plan(const tutti_compare_config *c, const tutti_compare_lists *l,
                                     const tutti_compare_maker *maker, json_t *typed,
                                     json_t **plan, tutti_error *err);

/* Makes a plan, and checks each of its runs. argv: options of `tutti train` for all runs. typed:
   the command, an array of words. *plan: json_decref it. */
tutti_status tutti_compare_make_plan(const tutti_compare_config *c, int argc, char **argv,
                                     json_t *typed, json_t **plan, tutti_error *err);
/* Reads DIR/plan.json. TUTTI_ERR_CORRUPT: it is no such plan. *plan: json_decref it. */
tutti_status tutti_compare_read_plan(tutti_runtime *rt, const char *directory, json_t **plan,
                                     tutti_error *err);
tutti_status tutti_compare_write_plan(tutti_runtime *rt, const char *directory, const json_t *plan,
                                      tutti_error *err);
/* Sets *steps to the number of steps of an epoch of this run, which may be a fraction. */
tutti_status tutti_compare_epoch(const tutti_train_config *c, tutti_runtime *rt, double *steps,
                                 tutti_error *err);
/* Writes the name of a row without its condition: "ddp" or "ddp with fp16". */
void tutti_compare_label(const json_t *row, char *text, size_t bytes);

/* ---- compare_runs.c ---- */

/* A limit of the time of all runs together. */
typedef struct tutti_compare_limit {
    double seconds;              /* after them no run is begun, and those in progress are ended */
    bool *cut;                   /* [runs]: set for runs that have no results for that reason */
} tutti_compare_limit;
/* The runs of a plan, in a directory. */
typedef struct tutti_compare_runs {
    const char *directory;
    const json_t *plan;
    int jobs; /* at a time; 0: simulated runs as many as there are cores and
                                    memory for, others one */
    bool quiet;
    const tutti_compare_limit *limit; /* NULL: none */
    double timeout;               /* seconds of a script's run; 0: no limit */
} tutti_compare_runs;
/* Runs those that have no results yet, each as a child process. *failed: how many runs have ended
   without results; runs that were refused (their rows are excluded) or cut do not count. *signal:
   the signal by which the user has ended the comparison; 0: none. Blocks. */
tutti_status tutti_compare_run_all(tutti_runtime *rt, const tutti_compare_runs *runs, int *failed,
                                   int *signal, tutti_error *err);
/* Writes the last message of a run without results to text. false: the run was not begun. */
bool tutti_compare_failure_report(const char *directory, const char *name, char *text,
                                  size_t bytes);

/* ---- compare_script.c ---- */

/* Returns the index of "--", behind which there is a script's command; argc: there is none. */
int tutti_compare_script_at(int argc, char **argv);
/* Makes the plan of a script: methods and options of `tutti run` before "--", its command behind.
   Prints a note on methods that the library does not know. *plan: json_decref it. */
tutti_status tutti_compare_script_plan(const tutti_compare_config *c, int argc, char **argv,
                                       json_t *typed, json_t **plan, tutti_error *err);
/* Refuses to resume a plan of a script by other words than those by which it was made, since a plan
   may come from a stranger. again: the plan that the words make now; NULL: there are none. */
tutti_status tutti_compare_script_again(const json_t *plan, const json_t *again,
                                        const char *directory, tutti_error *err);
/* Prints how a plan is resumed, as a command. */
void tutti_compare_script_resume(FILE *out, const json_t *plan, const char *directory);

/* ---- compare_record.c ---- */

/* Does a run have results, a summary.json? They are those of a script only if its run has ended
   well, for which DIR/runs/NAME.done.json stands. */
bool tutti_compare_done(tutti_runtime *rt, const char *directory, const json_t *plan,
                        const char *name);
/* Reads the end of a file, of at most room - 1 bytes. Returns how many; below 0: it cannot be
   read. */
ssize_t tutti_compare_tail(const char *path, char *text, size_t room);
/* What is not in the log of a run any more: bytes that were cut, and a hole up to this byte. */
typedef struct tutti_compare_log {
    uint64_t left_out;
    int64_t hole;
} tutti_compare_log;
/* Leaves out the middle of a run's log if it has grown too long. Its writer appends to it, and may
   do so meanwhile. ended: it does not any more. */
void tutti_compare_bound_log(const char *path, bool ended, tutti_compare_log *log);
/* Empties the folder of a script's run before it begins. */
tutti_status tutti_compare_record_begin(tutti_runtime *rt, const char *folder, tutti_error *err);
/* How a script's run has ended. */
typedef struct tutti_compare_end {
    const json_t *plan, *run;
    const char *directory;
    int state;                          /* of waitpid */
    bool late;                          /* it was ended since it took longer than `timeout` */
    double seconds, timeout;
} tutti_compare_end;
/* Returns whether a script's run has left results that can be compared, and says so in
   DIR/runs/NAME.done.json. If not, its log ends with a sentence that says why. */
bool tutti_compare_record_good(tutti_runtime *rt, const tutti_compare_end *end);

/* ---- compare_findings.c ---- */

/* The results of a run. Figures that are not known are NAN. */
typedef struct tutti_compare_result {
    const json_t *run;                  /* in the plan */
    tutti_history h;                    /* h.summary NULL: the run has no results */
    double accuracy;                    /* final, in percent */
    double loss;                        /* final, or the last figure of --by */
    bool lacks;                         /* it has results, and never that figure */
    double seconds;                     /* of training */
    double megabytes;                   /* sent by all ranks */
    double waiting;                     /* percent of its time that a worker waits, mean */
    double rate;                        /* samples a second */
    double best_accuracy;               /* of all evaluations, 0 to 1 */
    double seconds_to, megabytes_to;    /* until the target was reached */
} tutti_compare_result;

/* The results of a row at its best point. Each figure is {median, least, most} over seeds. */
typedef struct tutti_compare_line {
    size_t row, point;                  /* indexes in the plan */
    int seeds;                          /* runs that have results */
    int reached;                        /* runs that reached the target */
    double accuracy[3], loss[3], seconds[3], megabytes[3], waiting[3], rate[3];
    double seconds_to[3], megabytes_to[3];
    bool front;                         /* no row of its condition beats it in time and bytes */
} tutti_compare_line;

typedef struct tutti_findings {
    /* Set by the caller: the plan and its members, their directory. */
    tutti_runtime *rt;
    const json_t *plan, *rows, *points, *runs;
    const char *directory;
    size_t n;                           /* number of runs */
    /* Set by tutti_compare_find. */
    tutti_compare_result *results;      /* [n] */
    tutti_compare_line *lines;          /* [n_lines]: of the rows that have results */
    size_t n_lines;
    tutti_compare_by by;
    bool aims;                          /* there is a target */
    bool accuracy;                      /* the target is an accuracy; else a loss */
    double target;
    bool simulated;                     /* times are virtual */
    bool script;                        /* it is a script that was run */
    bool training;                      /* no run has a loss of a test, so losses are of training */
} tutti_findings;

/* Returns the figure of a moment by which runs are compared: that of --by, else the loss of the
   test, or of training. */
double tutti_compare_loss(const tutti_findings *f, const tutti_moment *m);
/* Returns what that figure is called in a sentence: "test loss". */
const char *tutti_compare_figure(const tutti_findings *f);
/* Returns the member "row" or "point" of a run. */
size_t tutti_compare_index(const json_t *run, const char *what);
/* Writes the value that an option of train has in a run: from its words, else the default. */
void tutti_compare_value(const json_t *run, const tutti_option *option, char *text, size_t bytes);
/* Writes the optimizer of a row at a point, and its learning rate ("": it has none). */
void tutti_compare_optimizer(const tutti_findings *f, size_t row, size_t point, char *text,
                             size_t bytes, char rate[64]);
/* Reads the results of the runs. Call tutti_compare_drop also after a failure. */
tutti_status tutti_compare_find(tutti_findings *f, tutti_error *err);
void tutti_compare_drop(tutti_findings *f);
/* Returns the condition of a row, such as "slow=0:5"; "": none. */
const char *tutti_compare_condition(const tutti_findings *f, size_t row);
/* Have the two rows the same condition? */
bool tutti_compare_together(const tutti_findings *f, const tutti_compare_line *a,
                            const tutti_compare_line *b);
/* Returns the figure by which rows are compared: time, or bytes, to the target; without a target of
   the whole run. */
const double *tutti_compare_judged(const tutti_findings *f, const tutti_compare_line *l,
                                   bool bytes);
/* Returns " (border)" if one of a point's values is the first or the last of its list; else "". */
const char *tutti_compare_border(const tutti_findings *f, size_t point);

/* ---- compare_results.c ---- */

typedef void (*tutti_compare_speaker)(FILE *out, const char *text); /* prints a sentence */
/* Each of these prints sentences by `say`: what all runs have in common (model, data, workers,
   network, slow workers, given options); what the target is; which row of each condition is first;
   which runs have no results, and why. */
void tutti_compare_say_setting(const tutti_findings *f, FILE *out, tutti_compare_speaker say);
void tutti_compare_say_target(const tutti_findings *f, FILE *out, tutti_compare_speaker say);
void tutti_compare_say_answers(const tutti_findings *f, FILE *out, tutti_compare_speaker say);
void tutti_compare_say_missing(const tutti_findings *f, FILE *out, tutti_compare_speaker say);
/* Writes table.txt (and prints it), results.csv, runs.csv and compare.html, from the runs that have
   results. TUTTI_ERR_USAGE: no run has. */
tutti_status tutti_compare_results(tutti_runtime *rt, const char *directory, const json_t *plan,
                                   bool pictures, tutti_error *err);

/* ---- compare_told.c ---- */

/* Prints by which figure runs are compared, and which lack it. */
void tutti_compare_say_by(const tutti_findings *f, FILE *out, tutti_compare_speaker say);
/* Prints what a script seems not to have taken of what it was given. */
void tutti_compare_say_ignored(const tutti_findings *f, FILE *out, tutti_compare_speaker say);

/* ---- compare_page.c ---- */

/* Writes DIR/compare.html. table: the rows. pictures: draw them. */
tutti_status tutti_compare_write_page(const tutti_findings *f, const tutti_cells *table,
                                      bool pictures, tutti_error *err);
#endif
