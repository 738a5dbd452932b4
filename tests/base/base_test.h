/* base_test.h: what the tests of this module share: cmocka with what it needs, and a table with
   one option of each type. */
#ifndef TUTTI_BASE_TEST_H
#define TUTTI_BASE_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tutti/base.h"

typedef struct {
    int64_t batch;
    double rate, wide;
    bool nesterov;
    int wire;
    const char *data, *inner, *schedule;
    char guard[8]; /* behind the last member: nothing may write here */
} subject;

static const tutti_option subject_options[] = {
    { "batch", TUTTI_INT, TUTTI_AT(subject, batch), 32, 1, 4096, NULL, "samples per rank" },
    { "rate", TUTTI_REAL, TUTTI_AT(subject, rate), 0.1, 0, 10, NULL, "learning rate" },
    { "wide", TUTTI_REAL, TUTTI_AT(subject, wide), 0, -1e308, 1e308, NULL, "" },
    { "nesterov", TUTTI_BOOL, TUTTI_AT(subject, nesterov), 0, 0, 0, NULL, "look ahead" },
    { "wire", TUTTI_CHOICE, TUTTI_AT(subject, wire), 1, 0, 0, "fp32|fp16|bf16",
      "format of messages" },
    { "data", TUTTI_TEXT, TUTTI_AT(subject, data), 0, 0, 0, NULL, "folder" },
    { "inner", TUTTI_SPEC, TUTTI_AT(subject, inner), 0, 0, 0, "sgd", "optimizer" },
    { "lr-schedule", TUTTI_SPEC, TUTTI_AT(subject, schedule), 0, 0, 0, NULL,
      "schedule or nothing" },
    { 0 }
};

static inline const tutti_option *subject_option(const char *name)
{
    const tutti_option *option = tutti_option_find(subject_options, name);

    assert_non_null(option);
    return option;
}
#endif
