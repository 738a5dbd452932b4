/* epochs_job.h: what the tests of epochs share: the options of a run, and its records. */
#ifndef TESTS_TRAIN_EPOCHS_JOB_H
#define TESTS_TRAIN_EPOCHS_JOB_H
#include <jansson.h>

#include "train/train_internal.h"
#include "scratch.h"

extern char epochs_folder[SCRATCH_PATH]; /* of this program: data and runs */

/* Of a group of tests: make the folder and the data in it, and remove them. */
int epochs_set_up(void **state);
int epochs_tear_down(void **state);

/* Sets *c to a run of 4 workers with that method in that folder, whose name is borrowed: 8 shares
   of 4 samples. The caller sets steps, report_every and eval_every. */
void epochs_configure(tutti_train_config *c, const char *method, const char *out);
enum { EPOCHS_SHARES = 8, EPOCHS_BATCH = 4 };
/* Checks the options and makes the folder, after they are complete. */
void epochs_prepare(tutti_train_config *c);
/* Runs it from its beginning to its end, with the same workers. */
void epochs_undisturbed(tutti_train_config *c);

/* The lines of metrics.jsonl in that folder, and summary.json; json_decref them. */
json_t *epochs_lines(const char *out);
json_t *epochs_summary(const char *out);
double epochs_number(const json_t *line, const char *key);
/* Fails unless that member of a line of `cut` is the one of `whole`. */
void epochs_assert_same(const char *whole, const char *cut, const json_t *one, const json_t *other,
                        const char *key);
/* Are the steps, samples, losses and evaluations of all lines the same ones, exactly? */
void epochs_assert_same_lines(const char *whole, const char *cut);
/* metrics.csv has a line for each of metrics.jsonl, of the same step. */
void epochs_assert_table_follows(const char *out);
/* Are the models the same, byte for byte? */
void epochs_assert_same_model(const char *whole, const char *cut);
#endif
