/* partition.c: --partition: divides the training samples into a part for each worker, from which
   the worker then draws. One worker of each host draws the parts into memory that the workers of
   the host share. The status of the drawing is stored in front of the parts, so that after a
   failure all workers of the host report the same error. */
#include <string.h>

#include "train_internal.h"

typedef struct drawn { int64_t status; char text[480]; } drawn;

tutti_status tutti_train_check_partition(const tutti_train_config *c, tutti_error *err)
{
    tutti_partition p;

    TUTTI_TRY(tutti_partition_read(&p, c->partition, err));
    if (p.kind == TUTTI_PARTITION_IID && strcmp(c->batch_share, "data") == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "batch-share is 'data', but with partition 'iid' no worker has a part of its own; give "
            "a partition, or leave batch-share at even");
    if (p.kind != TUTTI_PARTITION_IID && strcmp(c->batch_share, "auto") == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "batch-share is 'auto', but with partition '%.80s' how far a worker is in its own part "
            "must follow from the step, not from the clock; give it even, data or weights",
            c->partition);
    return TUTTI_OK;
}

tutti_status tutti_train_partition_open(tutti_run *run, tutti_error *err)
{
    const tutti_data_shape *shape = tutti_data_shape_of(run->data);
    tutti_partition p;
    size_t bytes;
    void *memory;
    drawn *d;
    bool fill;

    TUTTI_TRY(tutti_partition_read(&p, run->config->partition, err));
    if (p.kind == TUTTI_PARTITION_IID)
        return TUTTI_OK;
    if (tutti_data_labels(run->data, TUTTI_TRAIN) == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "partition is '%.80s', but data '%.120s' is a text, which has no labels "
                          "to cut it by; leave it at iid",
                          run->config->partition, run->config->data);
    if (!tutti_partition_bytes(tutti_train_samples(run), run->workers, &bytes) ||
        !tutti_size_add(bytes, sizeof *d, &bytes))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the parts of %llu samples do not fit in memory",
                          (unsigned long long)tutti_train_samples(run));
    TUTTI_TRY(tutti_world_common(run->world, "partition", bytes, &memory, &fill, err));
    d = memory;
    if (fill) {
        tutti_error said = { .rank = -1 };
        d->status = tutti_partition_draw(
            &p,
            &(tutti_partition_labels){ tutti_data_labels(run->data, TUTTI_TRAIN),
                                       tutti_train_samples(run), shape->classes },
            run->workers, (uint64_t)run->config->seed, d + 1, &said);
        memcpy(d->text, said.text, sizeof d->text);
    }
    TUTTI_TRY(tutti_barrier(&run->all, err));
    if (d->status != TUTTI_OK)
        return tutti_fail(err, (tutti_status)d->status, 0, "%s", d->text);
    tutti_partition_at(&run->parts, d + 1, run->workers);
    return TUTTI_OK;
}

void tutti_train_partition_describe(const tutti_run *run, int worker, json_t *row)
{
    const tutti_data_shape *shape = tutti_data_shape_of(run->data);
    uint64_t count[256] = { 0 };
    json_t *classes;
    double distance;

    if (run->parts.first == NULL)
        return;
    classes = json_array();
    distance =
        tutti_partition_histogram(&run->parts, worker, tutti_data_labels(run->data, TUTTI_TRAIN),
                                  tutti_train_samples(run), shape->classes, count);
    for (int c = 0; c < shape->classes; c++)
        json_array_append_new(classes, json_integer((json_int_t)count[c]));
    json_object_set_new(
        row, "part_samples",
        json_integer((json_int_t)(run->parts.first[worker + 1] - run->parts.first[worker])));
    json_object_set_new(row, "part_classes", classes);
    json_object_set_new(row, "part_distance", json_real(distance));
}
