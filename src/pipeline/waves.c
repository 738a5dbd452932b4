/* waves.c: the formulas for waves (plan.h, which defines W, D, p and the clock). Gate c is before
   micro-batch (c + 1) W + s + 1 with s = W - 1, which is (c + 2) W. It opens when all pipelines
   have pushed wave c - D: the least clock is c - D + 1.

   After gate c and before the next one p is below (c + 3) W. All waves up to c - D were pushed,
   which are (c - D + 1) W micro-batches. So at most p - 1 - (c - D + 1) W <= (D + 1) W + W - 2
   updates of another pipeline are missing. */
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"

int64_t tutti_wave_version(int64_t p, int in_flight)
{
    return p > in_flight ? p - in_flight : 0;
}

int64_t tutti_wave_gate(int64_t p, int in_flight, int64_t distance)
{
    const int64_t c = p / in_flight - 2, clock = c - distance + 1;
    return c >= 0 && clock > 0 ? clock : 0;
}

int64_t tutti_wave_staleness(int in_flight, int64_t distance)
{
    return (distance + 2) * in_flight - 2;
}

int64_t tutti_wave_apart(int64_t distance)
{
    return distance + 1;
}

int64_t tutti_wave_of(int64_t p, int in_flight)
{
    return (p - 1) / in_flight;
}

bool tutti_wave_ends(int64_t p, int in_flight)
{
    return p % in_flight == 0;
}
