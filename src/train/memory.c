/* memory.c: the memory of a rank, by kind: of the engine, of the network, and of the trainer itself
   while the run lasts. The figures of summary.json and of a plan (plan.c) both come from here. */
#include "train_internal.h"

size_t tutti_train_memory_records(const tutti_run *run, tutti_memory_record *records,
                                  size_t capacity)
{
    const size_t values = run->parameters;
    const tutti_memory_record own[] = {
        { "train.network", TUTTI_MEMORY_ACTIVATIONS,
          run->nn != NULL ? tutti_nn_bytes_most(run->nn) : (size_t)run->activations },
        { "train.stage", TUTTI_MEMORY_ACTIVATIONS, tutti_train_stage_bytes(run) },
        { "train.batches", TUTTI_MEMORY_BUFFERS, run->loader_bytes + run->joined_bytes },
        { "train.optimum", TUTTI_MEMORY_BUFFERS,
          run->optimum != NULL ? values * (sizeof *run->optimum + sizeof *run->curvature) : 0 },
    };
    size_t n = tutti_engine_memory(run->engine, records, capacity);

    for (size_t i = 0; i < TUTTI_LENGTH(own); i++) {
        if (own[i].bytes == 0)
            continue;
        if (n < capacity)
            records[n] = own[i];
        n++;
    }
    return n;
}

tutti_status tutti_train_memory(const tutti_run *run, uint64_t bytes[TUTTI_MEMORY_KINDS],
                                tutti_error *err)
{
    const size_t n = tutti_train_memory_records(run, NULL, 0);
    tutti_memory_record *records = tutti_alloc(n, sizeof *records);

    for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
        bytes[k] = 0;
    if (records == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "counting the memory of %zu states", n);
    tutti_train_memory_records(run, records, n);
    for (size_t i = 0; i < n; i++)
        bytes[records[i].kind] += records[i].bytes;
    tutti_free(records);
    return TUTTI_OK;
}
