/* turns.c: the schedule of a stage (plan.h). */
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"

tutti_pipeline_action tutti_pipeline_next(const tutti_pipeline_schedule *t, int64_t entered,
                                          int64_t returned)
{
    const int behind = t->stages - t->stage; /* this one included */
    const int64_t most = t->in_flight < behind ? t->in_flight : behind,
                  open = t->forwards - t->backwards;
    const bool last = behind == 1;

    if (open > 0 && (last || returned > t->backwards))
        return TUTTI_PIPELINE_BACKWARD;
    return entered > t->forwards && open < most ? TUTTI_PIPELINE_FORWARD : TUTTI_PIPELINE_WAIT;
}

double tutti_pipeline_bubble(int stages, int64_t count)
{
    return (double)(stages - 1) / (double)(count + stages - 1);
}
