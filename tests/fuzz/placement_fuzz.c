/* Any text as a file of resources or as a schedule (src/placement/file.c): it is refused with a
   sentence, or is what placement.h defines: a sound problem, stages that follow one another. */
#include "placement/placement.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tutti_placement_problem p;
    tutti_placement_speed speed[TUTTI_PLACEMENT_TYPES_MOST];
    tutti_placement_schedule s;
    tutti_placement_plan plan;
    tutti_error err = { .text = "" };
    const char *text = (const char *)data;

    if (tutti_placement_parse("r.json", text, size, &p, speed, &err) != TUTTI_OK)
        require(strncmp(err.text, "r.json", 6) == 0);
    else if (p.layers > 0) {
        require(tutti_placement_check(&p, NULL) == TUTTI_OK);
        if (tutti_placement_find(&p, "greedy", &plan, &err) == TUTTI_OK)
            require(plan.stages > 0 && plan.rate >= p.floor * (1 - 1e-9) && plan.cost >= 0);
    }
    if (tutti_placement_read("s.json", text, size, &s, &err) != TUTTI_OK) {
        require(strncmp(err.text, "s.json", 6) == 0);
        return 0;
    }
    for (int q = 0; q < s.stages; q++)
        require(s.stage[q].units > 0 && s.stage[q].end > s.stage[q].first &&
                s.stage[q].first == (q > 0 ? s.stage[q - 1].end : 0) && (s.model[0] == 0 || s.unit[q + 1] > s.unit[q]));
    return 0;
}
