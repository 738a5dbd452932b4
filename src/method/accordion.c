/* accordion: synchronous data parallelism that compresses little while a layer's gradients change, and much while they do not. Agarwal, Wang, Lee, Venkataraman, Papailiopoulos, "Accordion:
   Adaptive Gradient Communication via Critical Learning Regime Identification", MLSys 2021, arXiv 2010.16248. Sheet: accordion.md.
     every `interval` epochs, each tensor   n <- norm of the gradients of one epoch, added up;  critical iff |n' - n| >= eta n', n' of the check before;  codec `low` if critical, else `high`
     when the learning rate falls           `low` for all, until the next check. The first interval is critical.
   The rule, the norms' merging and the switch are the codec's (src/codec/accordion.c, where its differences from the authors' code are listed); the residual is one for both levels
   (ef.c), since it is kept when a level changes. The settings are any two codecs; by default the paper's ranks 4 and 1 of PowerSGD. Tensors of fewer than min_numel elements travel as they
   are: the paper does not compress those of one dimension, which PowerSGD leaves alone by itself and a selection would not. They take no decision under scope=layer and are no part
   of the model's norm under scope=model. */
#include <stdio.h>
#include "tutti/method.h"

typedef struct accordion { const char *low, *high; double eta, lr_drop, bucket_mb; int64_t interval, min_numel; int unit, scope; bool error_feedback; } accordion;

static const tutti_option accordion_options[] = {
    { "low", TUTTI_SPEC, TUTTI_AT(accordion, low), 0, 0, 0, "powersgd(rank=4)", "the codec of low compression, for critical regimes; `tutti codecs` lists them" },
    { "high", TUTTI_SPEC, TUTTI_AT(accordion, high), 0, 0, 0, "powersgd(rank=1)", "the codec of high compression" },
    { "eta", TUTTI_REAL, TUTTI_AT(accordion, eta), 0.5, 0, 1e9, NULL, "relative change of a norm from which on a regime is critical; 0: always low" },
    { "interval", TUTTI_INT, TUTTI_AT(accordion, interval), 10, 1, 1e9, NULL, "epochs or steps from check to check" },
    { "unit", TUTTI_CHOICE, TUTTI_AT(accordion, unit), 0, 0, 0, "epoch|step", "of the interval; step where epochs are few and long, with about 3 % of the run" },
    { "scope", TUTTI_CHOICE, TUTTI_AT(accordion, scope), 0, 0, 0, "layer|model", "a decision for each tensor, or one for all" },
    { "lr_drop", TUTTI_REAL, TUTTI_AT(accordion, lr_drop), 0.5, 0, 0.999, NULL, "a fall of the learning rate to this part of itself or less is critical; a cosine's small ones are not" },
    { "error_feedback", TUTTI_BOOL, TUTTI_AT(accordion, error_feedback), 1, 0, 1, NULL, "what was not sent is added to the next gradient; off for unbiased codecs (qsgd, nuqsgd, wangni)" },
    { "min_numel", TUTTI_INT, TUTTI_AT(accordion, min_numel), 1024, 0, 1e12, NULL, "tensors of fewer elements travel as they are" },
    { "bucket_mb", TUTTI_REAL, TUTTI_AT(accordion, bucket_mb), 25, 1.0 / 1048576, 65536, NULL, "gradients in MiB that are exchanged as one" },
    { 0 }
};

static tutti_status accordion_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const char form[] = "%s%saccordion(low=%s,high=%s,eta=%.17g,interval=%lld,unit=%s,scope=%s,lr_drop=%.17g)%s%s";
    const accordion *s = m->self;
    char spec[1024], min[40] = "";

    m->piece_bytes = (size_t)(s->bucket_mb * 1048576);
    m->first_piece_bytes = m->piece_bytes < m->first_piece_bytes ? m->piece_bytes : m->first_piece_bytes;
    if (s->min_numel > 0)
        snprintf(min, sizeof min, ",min=%lld)", (long long)s->min_numel);
    if ((size_t)snprintf(spec, sizeof spec, form, min[0] != 0 ? "large(" : "", s->error_feedback ? "ef(" : "", s->low, s->high, s->eta, (long long)s->interval, s->unit == 0 ? "epoch" : "step", s->scope == 0 ? "layer" : "model",
                         s->lr_drop, s->error_feedback ? ")" : "", min) >= sizeof spec)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "method 'accordion': low and high have more than %zu characters together; leave their defaults away", sizeof spec - sizeof form - 120);
    return tutti_exchange_declare(m, plan, spec, err);
}

static const char *const accordion_constraints[] = {
    "low may not send fewer bytes than high",
    "low and high are plain codecs: error feedback is the method's, one residual for both",
    "residuals and sums are each worker's own: a checkpoint is resumed with the number of workers that saved it",
    "clip-norm and weight decay act on the decoded mean",
    "codec is part of the method: codec must be left away",
    NULL
};

const tutti_method_ops tutti_method_accordion = {
    .name = "accordion", .title = "Accordion", .authors = "Agarwal, Wang, Lee, Venkataraman, Papailiopoulos", .year = 2021, .family = "all-reduce", .sheet = "accordion.md",
    .constraints = accordion_constraints, .options = accordion_options, .self_bytes = sizeof(accordion), .traits = TUTTI_REPLICAS_EQUAL,
    .axes = { "its codecs'", "every step", "one of two by the regime, error feedback", "buckets, overlap", "replicated", "any" }, .declare = accordion_declare,
    .exchange = tutti_base_exchange,
};
