/* drawn.h: random problems of placement, for the tests of this module. */
#ifndef TUTTI_TESTS_PLACEMENT_DRAWN_H
#define TUTTI_TESTS_PLACEMENT_DRAWN_H
#include "placement/placement.h"
#include <math.h>
#include <stdio.h>

/* Some layers are slow to compute and others to communicate, types differ in both and in price. A
   floor that `easy` of what one unit of each type does, all layers on it, would reach. */
static inline tutti_placement_problem drawn_problem(uint64_t seed, int layers, int types, int units,
                                                    double easy)
{
    const tutti_rng rng = { seed, 5, 0 };
    tutti_placement_problem p = { .layers = layers, .types = types, .batch = 32, .examples = 1e6 };
    uint64_t i = 0;
    double least = INFINITY;

    for (int t = 0; t < types; t++) {
        snprintf(p.type[t].name, sizeof p.type[t].name, "type%d", t);
        p.type[t].price = 0.1 * pow(20, tutti_uniform(rng, i++));
        p.type[t].units = units;
    }
    for (int l = 0; l < layers; l++) {
        const int kind = (int)(3 * tutti_uniform(rng, i++));
        snprintf(p.layer[l].name, sizeof p.layer[l].name, "layer%d", l);
        snprintf(p.layer[l].kind, sizeof p.layer[l].kind, "kind%d", kind);
        p.layer[l].enters = 1e3 * tutti_uniform(rng, i++);
        p.layer[l].values = 1e6 * tutti_uniform(rng, i++);
        for (int t = 0; t < types; t++) {
            tutti_placement_time *time = &p.time[l][t];
            time->compute = 1e-3 * pow(30, tutti_uniform(rng, i++));
            time->communicate = 1e-3 * pow(30, tutti_uniform(rng, i++));
            time->compute_share = 0.9 + 0.1 * tutti_uniform(rng, i++);
            time->communicate_share = 0.8 + 0.2 * tutti_uniform(rng, i++);
        }
    }
    for (int t = 0; t < types; t++) {
        double seconds = 0;
        for (int l = 0; l < layers; l++)
            seconds += fmax(p.time[l][t].compute, p.time[l][t].communicate) / p.batch;
        least = fmin(least, seconds);
    }
    p.floor = easy / least;
    return p;
}
#endif
