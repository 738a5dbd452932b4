/* options_subject.h: for the fuzz targets of options: a table with one option of each type. */
#ifndef TUTTI_FUZZ_SUBJECT_H
#define TUTTI_FUZZ_SUBJECT_H
#include "tutti/base.h"

typedef struct {
    int64_t batch;
    double rate;
    bool nesterov;
    int wire;
    const char *data, *inner;
} subject;

static const tutti_option subject_options[] = {
    { "batch", TUTTI_INT, TUTTI_AT(subject, batch), 32, 1, 4096, NULL, "samples per rank" },
    { "rate", TUTTI_REAL, TUTTI_AT(subject, rate), 0.1, -1e300, 1e300, NULL, "learning rate" },
    { "nesterov", TUTTI_BOOL, TUTTI_AT(subject, nesterov), 0, 0, 0, NULL, "look ahead" },
    { "wire", TUTTI_CHOICE, TUTTI_AT(subject, wire), 1, 0, 0, "fp32|fp16|bf16",
      "format of messages" },
    { "data-folder", TUTTI_TEXT, TUTTI_AT(subject, data), 0, 0, 0, NULL, "folder" },
    { "inner", TUTTI_SPEC, TUTTI_AT(subject, inner), 0, 0, 0, "sgd", "optimizer" },
    { 0 }
};
#endif
