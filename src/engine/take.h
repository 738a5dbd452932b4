/* take.h: free sample counts (take.c). */
#ifndef TUTTI_ENGINE_TAKE_H
#define TUTTI_ENGINE_TAKE_H
#include "engine_facility.h"

/* Positions of all epochs, one behind the other: position p of epoch e is e x samples + p. */
typedef struct tutti_take_range { uint64_t first, end; } tutti_take_range;
/* What a worker is lent: in this order, empty ones last. */
enum { TUTTI_TAKE_RANGES = 8 };

typedef struct tutti_engine_take {
    bool on, lent, even;
    int64_t pass, most;          /* most: as the method has it; with `lent` see loan() */
    uint64_t limit;              /* samples of the run; 0: not known */
    int64_t *of;                 /* workers: of this step, once they are known. lent: before that
                                    of the last one; declared */
    int64_t *due;                /* lent, workers: of what is left of the run */
    double *weight;              /* scratch of it */
    tutti_take_range *loan;      /* lent: TUTTI_TAKE_RANGES of each worker; declared */
    uint64_t next;               /* lent: the first position that nobody was lent; declared */
    uint64_t mine;               /* with parts: what I have taken of mine; declared */

    /* this step */
    bool known, closed;
    bool cut;                    /* known: it goes to the end of an epoch or of the run */
    int64_t taken;               /* in passes, by me */
    uint64_t allowed;            /* lent: of this step, mine */
    bool last;                   /* lent: of the run, as it was asked for */
    double over;                 /* lent, closed: samples that the gradient is over */

    /* take_file.c */
    const char *record_path, *replay_path;
    tutti_file *record;          /* worker 0's; NULL: not open yet */
    int64_t *replay;             /* my counts by step; -1 - count: the step was cut; NULL: none */
    uint64_t replay_steps;
    char *line;                  /* room for one */
    size_t line_bytes;
} tutti_engine_take;

/* ---- take.c, called by the step ---- */

void tutti_engine_take_begin(tutti_engine *e);
/* The next pass as it is without the method. */
void tutti_engine_take_pass(const tutti_engine *e, tutti_pass *p);
/* The hook has left it so: these samples are taken. TUTTI_ERR_STATE: it may not. */
tutti_status tutti_engine_take_check(tutti_engine *e, const tutti_pass *p, tutti_error *err);
/* The gradient of the piece is over what it is to be over. */
void tutti_engine_take_scale(tutti_engine *e, tutti_piece *p);
/* The step is over. */
tutti_status tutti_engine_take_end(tutti_engine *e, tutti_error *err);
/* Is there another step before the run has so many samples? */
bool tutti_engine_take_more(tutti_engine *e, uint64_t samples);
/* Declared state has become that of another run: TUTTI_ERR_CORRUPT: of none that can be. */
tutti_status tutti_engine_take_loaded(const tutti_engine *e, tutti_error *err);
/* The schedule's step. */
uint64_t tutti_engine_take_turn(const tutti_engine *e);

/* ---- take_file.c ---- */

tutti_status tutti_take_file_open(tutti_engine *e, tutti_error *err);
void tutti_take_file_close(tutti_engine *e);
/* The count of the file for this step, and whether it was cut; -1: there is no replay.
   TUTTI_ERR_USAGE: it has none. */
tutti_status tutti_take_file_count(const tutti_engine *e, int64_t *count, bool *cut,
                                   tutti_error *err);
tutti_status tutti_take_file_write(tutti_engine *e, tutti_error *err);
#endif
