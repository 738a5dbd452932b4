/* pipeline.h: a method whose pieces are cut, ordered and updated as its options prescribe. Else it
   is ddp. */
#ifndef TUTTI_TESTS_CUT_H
#define TUTTI_TESTS_CUT_H
#include <stdio.h>

#include "tutti/tutti.h"
#include "tutti/method/steps.h"
#include "engine/modes/late.h"
#include "engine/modes/merge.h"
#include "engine/modes/offload.h"

typedef struct cut {
    int64_t bytes, first, close, least, width, credit, recut_step, recut_bytes, teams;
    bool inside, by_piece, forward, whole, late, merge, held, disk, delayed;
    int order;
} cut;

static const tutti_option cut_options[] = {
    { "bytes", TUTTI_INT, TUTTI_AT(cut, bytes), 4096, 1, 1e12, NULL, "of a piece" },
    { "first", TUTTI_INT, TUTTI_AT(cut, first), 0, 0, 1e12, NULL, "of the first; 0: as the others" },
    { "close", TUTTI_INT, TUTTI_AT(cut, close), 0, 0, 1e12, NULL, "close_bytes" },
    { "least", TUTTI_INT, TUTTI_AT(cut, least), 0, 0, 1e12, NULL, "piece_bytes_least" },
    { "width", TUTTI_INT, TUTTI_AT(cut, width), 1, 1, 8, NULL, "threads of the lane" },
    { "credit", TUTTI_INT, TUTTI_AT(cut, credit), 0, 0, 1e12, NULL, "bytes under way" },
    { "recut_step", TUTTI_INT, TUTTI_AT(cut, recut_step), -1, -1, 1e9, NULL, "from which on they are cut anew" },
    { "recut_bytes", TUTTI_INT, TUTTI_AT(cut, recut_bytes), 0, 0, 1e12, NULL, "and to what" },
    { "inside", TUTTI_BOOL, TUTTI_AT(cut, inside), 1, 0, 1, NULL, "cut_bytes" },
    { "by_piece", TUTTI_BOOL, TUTTI_AT(cut, by_piece), 0, 0, 1, NULL, "by_piece" },
    { "forward", TUTTI_BOOL, TUTTI_AT(cut, forward), 0, 0, 1, NULL, "forward_first" },
    { "whole", TUTTI_BOOL, TUTTI_AT(cut, whole), 0, 0, 1, NULL, "whole" },
    { "late", TUTTI_BOOL, TUTTI_AT(cut, late), 0, 0, 1, NULL, "gradients are applied late" },
    { "merge", TUTTI_BOOL, TUTTI_AT(cut, merge), 0, 0, 1, NULL, "steps are merged" },
    { "held", TUTTI_BOOL, TUTTI_AT(cut, held), 0, 0, 1, NULL, "gradients are held by piece" },
    { "disk", TUTTI_BOOL, TUTTI_AT(cut, disk), 0, 0, 1, NULL, "what is away is on a disk" },
    { "delayed", TUTTI_BOOL, TUTTI_AT(cut, delayed), 0, 0, 1, NULL, "updates of what is away are delayed" },
    { "teams", TUTTI_INT, TUTTI_AT(cut, teams), 1, 1, 8, NULL, "of shards, where they can be" },
    { "order", TUTTI_CHOICE, TUTTI_AT(cut, order), 0, 0, 0, "ready|led", "order" },
    { 0 }
};

static tutti_status cut_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const cut *s = m->self;

    m->piece_bytes = (size_t)s->bytes;
    m->first_piece_bytes = (size_t)(s->first > 0 ? s->first : s->bytes);
    m->close_bytes = (size_t)s->close;
    m->piece_bytes_least = (size_t)s->least;
    m->lane_width = (int)s->width;
    m->credit = (size_t)s->credit;
    m->cut_bytes = s->inside;
    m->forward_first = s->forward;
    m->whole = s->whole;
    m->order = (tutti_order)s->order;
    if (s->by_piece)
        TUTTI_TRY(tutti_by_piece_declare(m, err));
    if (s->merge)
        TUTTI_TRY(tutti_merge_declare(m, plan, err));
    m->held = s->held ? TUTTI_HELD_BY_PIECE : TUTTI_HELD_WHOLE;
    return tutti_late_declare(m, plan, s->late, 0, true, err);
}

/* `teams` groups, or one if the workers of each would be no power of two. */
static tutti_status cut_teams(tutti_method *m, tutti_error *err)
{
    const cut *s = m->self;
    const int team = m->workers / (int)s->teams;
    char group[16] = "none";

    if (s->teams > 1 && team > 0 && m->workers % s->teams == 0 && (team & (team - 1)) == 0)
        snprintf(group, sizeof group, "%d", team);
    return tutti_shards_group(m, "group", group, err);
}

static tutti_status cut_declare_shards(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    TUTTI_TRY(cut_declare(m, plan, err));
    TUTTI_TRY(cut_teams(m, err));
    return tutti_shards_declare(m, plan, err);
}

static tutti_status cut_declare_offload(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const cut *s = m->self;
    const tutti_offload_options options = {
        .tier = s->disk ? "nvme(path=.,direct=off)" : "host",
        .tile_bytes = 1, .threads = 1, .delayed = s->delayed, .warmup = 1,
    };

    TUTTI_TRY(cut_declare(m, plan, err));
    TUTTI_TRY(cut_teams(m, err));
    return tutti_offload_declare(m, plan, &options, err);
}

static tutti_status cut_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    const cut *s = m->self;

    return p->index == 0 && s->recut_step >= 0 && m->step == (uint64_t)s->recut_step
               ? tutti_recut(m, (size_t)s->recut_bytes, (size_t)s->recut_bytes, err)
               : TUTTI_OK;
}

#define CUT(name_, traits_) \
    .name = name_, .title = "Pieces", .family = "baseline", .options = cut_options, \
    .self_bytes = sizeof(cut), .traits = traits_, .declare = cut_declare, .pass = cut_pass
/* blind: rows are not known to the method, so a table is cut like anything else. The others are
   the settings that exclude updates by piece. */
static const tutti_method_ops cut_method = {
    CUT("cut", TUTTI_REPLICAS_EQUAL | TUTTI_TAKES_CODEC | TUTTI_SPARSE_ROWS),
    .exchange = tutti_base_exchange,
};
static const tutti_method_ops cut_blind = {
    CUT("cut-blind", TUTTI_REPLICAS_EQUAL), .exchange = tutti_base_exchange,
};
static const tutti_method_ops cut_step = {
    CUT("cut-step", TUTTI_REPLICAS_EQUAL), .exchange = tutti_base_exchange,
    .step = tutti_base_step,
};
static const tutti_method_ops cut_direction = {
    CUT("cut-direction", TUTTI_REPLICAS_EQUAL | TUTTI_NON_GRADIENT_UPDATE),
    .exchange = tutti_base_exchange,
};
static const tutti_method_ops cut_apart = { CUT("cut-apart", 0), .exchange = tutti_base_exchange };
static const tutti_method_ops cut_alone = { CUT("cut-alone", TUTTI_REPLICAS_EQUAL) };
/* Each worker updates its part of each piece; and the settings that exclude that. */
#define SHARDS(name_, traits_) \
    .name = name_, .title = "Shards", .family = "baseline", .options = cut_options, \
    .self_bytes = sizeof(cut), .traits = traits_, .declare = cut_declare_shards, \
    .step = tutti_shards_step
static const tutti_method_ops cut_shards = {
    SHARDS("cut-shards", TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER),
    .exchange = tutti_shards_exchange,
};
/* And the state needed for that is off the device. */
static const tutti_method_ops cut_offload = {
    .name = "cut-offload", .title = "Away", .family = "baseline", .options = cut_options,
    .self_bytes = sizeof(cut), .traits = TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER,
    .declare = cut_declare_offload, .step = tutti_offload_step, .exchange = tutti_shards_exchange,
};
static const tutti_method_ops cut_shards_whole = {
    SHARDS("cut-shards-whole", TUTTI_REPLICAS_EQUAL), .exchange = tutti_shards_exchange,
};
static const tutti_method_ops cut_shards_apart = {
    SHARDS("cut-shards-apart", TUTTI_SHARDED_OPTIMIZER), .exchange = tutti_shards_exchange,
};
static const tutti_method_ops cut_shards_alone = {
    SHARDS("cut-shards-alone", TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER),
};
static const tutti_method_ops cut_shards_rows = {
    SHARDS("cut-shards-rows", TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER | TUTTI_SPARSE_ROWS),
    .exchange = tutti_shards_exchange,
};
static const tutti_method_ops *const cut_methods[] = {
    &cut_method, &cut_blind, &cut_step, &cut_direction, &cut_apart, &cut_alone, &cut_shards,
    &cut_offload, &cut_shards_whole, &cut_shards_apart, &cut_shards_alone, &cut_shards_rows, NULL
};

#endif
