/* launch_record.h: what a worker of the launcher's tests records for the test. */
#ifndef TUTTI_TESTS_LAUNCH_RECORD_H
#define TUTTI_TESTS_LAUNCH_RECORD_H
#include <stdint.h>
typedef struct launch_record {
    int64_t pid, parent, killed_ns;
    int64_t cores;
    uint64_t core_bits;          /* the first 64 */
    char omp[64];                /* "OMP_NUM_THREADS OMP_WAIT_POLICY" */
    int64_t looks;               /* GOMP_SPINCOUNT; -1: not set */
} launch_record;
#endif
