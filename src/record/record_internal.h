/* record_internal.h: what run.c and merge.c share: the files of ranks in a record's folder. */
#ifndef TUTTI_RECORD_INTERNAL_H
#define TUTTI_RECORD_INTERNAL_H
#include "record/files.h"

enum { TUTTI_RECORD_PATH = 4096, TUTTI_RECORD_RANKS = 100000 };

/* The names of a rank's files, "trace-00003.json". */
#define TUTTI_RECORD_TRACE "trace-%05d.json"
#define TUTTI_RECORD_CLOSED "rank-%05d.json"
/* Returns the rank whose file it is, of that form; -1: no such file. */
int tutti_record_rank_of(const char *form, const char *name);
/* Sets path to that of a rank's file. */
void tutti_record_path(char path[TUTTI_RECORD_PATH], const char *folder, const char *form,
                       int rank);

/* ---- lines.c ---- */
enum { TUTTI_RECORD_US = 32 };
/* Writes a time as microseconds with three decimals, whatever the locale is. Returns text. */
char *tutti_record_us(char text[TUTTI_RECORD_US], int64_t ns);

/* ---- merge.c ---- */

/* Call when this rank has closed: if it was the last one, merges and removes the files of ranks. */
tutti_status tutti_record_merge_if_last(tutti_runtime *rt, const char *folder, int ranks,
                                        tutti_error *err);

/* ---- closed.c ---- */

/* Writes this rank's file of its end. */
tutti_status tutti_record_write_closed(tutti_engine *engine, const char *folder, bool samples,
                                       tutti_error *err);
/* Writes summary.json from the files of all ranks, and config.json. */
tutti_status tutti_record_summarise(tutti_runtime *rt, const char *folder, int ranks,
                                    tutti_error *err);
#endif
