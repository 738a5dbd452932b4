/* check.c: once a method has declared what it exchanges: refuses options that are about messages
   of a codec where there are none. */
#include <stdio.h>
#include <string.h>

#include "exchange_internal.h"
#include "codec/codec.h"

/* Why no gradient goes through a codec. */
static const char *without_codec(const tutti_engine *e)
{
    if (!e->sums.codec_is_used)
        return e->m.ops->exchange != NULL
                   ? "gradients travel as they are: there is no codec"
                   : "what workers send each other travels as it is: there is no codec";
    return (e->m.traits & TUTTI_THROUGH_SERVERS) != 0
               ? "the codec is between workers and servers, and no gradients are exchanged through it"
               : "the codec is of models, between neighbours, and no gradients are exchanged "
                 "through it";
}

/* Refuses options about a codec of gradients if there is none. */
static tutti_status check_codec(const tutti_engine *e, tutti_error *err)
{
    const tutti_engine_options *o = &e->options;
    char report[24];
    const struct { const char *name, *value, *off; bool given; } options[] = {
        { "codec-hierarchy", o->codec_hierarchy, "at none",
          e->m.workers > 1 && strcmp(o->codec_hierarchy, "none") != 0 },
        { "codec-cost", o->codec_cost == TUTTI_CODEC_COST_EXPLAIN ? "explain" : "auto-off", "off",
          o->codec_cost != TUTTI_CODEC_COST_OFF },
        { "codec-report", report, "at 0", o->codec_report > 0 },
        { "codec-checksum", "on", "off: transport tcp checks all it carries (wire-check)",
          o->codec_checksum && !e->sums.codec_is_used }, /* models have checksums, too */
    };

    snprintf(report, sizeof report, "%llu", (unsigned long long)o->codec_report);
    for (size_t k = 0; k < TUTTI_LENGTH(options); k++)
        if (options[k].given)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0, "%s is '%.40s', but %s; %sleave %s %s", options[k].name,
                options[k].value, without_codec(e),
                !e->sums.codec_is_used && (e->m.traits & TUTTI_TAKES_CODEC) != 0 ? "give one, or " : "",
                options[k].name, options[k].off);
    return TUTTI_OK;
}

/* Refuses to leave away a codec without which the training is another one. */
static tutti_status check_cost(const tutti_engine *e, tutti_error *err)
{
    const unsigned traits = tutti_codec_traits(e->sums.exchange->codec);
    const char *why =
        e->options.codec[0] == 0 ? "is what makes the method, which is another one without it"
        : (traits & TUTTI_CODEC_VOTES) != 0
            ? "makes a vote, whose learning rate is none for gradients as they are"
        : (traits & TUTTI_CODEC_MOMENTUM) != 0
            ? "has the momentum of the update in it, which would be missing without it"
            : NULL;

    return e->options.codec_cost != TUTTI_CODEC_COST_AUTO_OFF || why == NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "codec-cost is 'auto-off', but under method '%s' codec '%.80s' %s; "
                            "take codec-cost=explain",
                            e->m.ops->name, e->sums.exchange->spec, why);
}

tutti_status tutti_exchange_check_options(const tutti_engine *e, tutti_error *err)
{
    const tutti_engine_exchange *x = e->sums.exchange;
    const bool routed = tutti_exchange_route(e->options.collective) != TUTTI_ROUTE_AUTO &&
                        e->m.workers > 1;

    if (x != NULL && tutti_exchange_leaf(x->codec, tutti_exchange_is_message) == NULL &&
        e->options.codec_checksum)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec-checksum is 'on', but what codec '%.60s' sends is summed on its "
                          "way, and no worker knows the bytes that a sum should have; leave "
                          "codec-checksum off: transport tcp checks all it carries (wire-check)",
                          x->spec);
    if (routed && (x == NULL || tutti_exchange_leaf(x->codec, tutti_exchange_is_message) == NULL))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "collective is '%s', a way for messages of codecs that cannot be summed "
                          "(topk, qsgd), but %s%.60s%s; leave collective at auto",
                          e->options.collective, x == NULL ? without_codec(e) : "codec '",
                          x == NULL ? "" : x->spec, x == NULL ? "" : "' is summed");
    return x == NULL ? check_codec(e, err) : check_cost(e, err);
}
