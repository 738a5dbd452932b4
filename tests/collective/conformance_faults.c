/* Goal: ports carry what was sent; wrong calls are refused; members that disagree, die or leave
   end the calls that need them, with a sentence that names them. Method: see conformance.c. */
#include "conformance_internal.h"
#include "collective/table.h"

/* ---- small things that a caller can see ---- */

tutti_status double_main(tutti_world *world, void *arg, tutti_error *err)
{
    under_test *t = arg;
    tutti_group g = tutti_group_workers(world, 4);
    double x[3] = { 1, tutti_world_rank(world), -tutti_world_rank(world) };
    const uint32_t before = g.sequence;

    TUTTI_TRY(tutti_reduce_double(&g, TUTTI_SUM, x, 3, err));
    CHECK(x[0] == t->p && x[1] == t->p * (t->p - 1) / 2.0 && x[2] == -x[1], "the sum of doubles is %g %g %g", x[0],
          x[1], x[2]);
    x[0] = tutti_world_rank(world);
    TUTTI_TRY(tutti_reduce_double(&g, TUTTI_MAX, x, 1, err));
    CHECK(x[0] == t->p - 1, "the maximum is %g", x[0]);
    CHECK(g.sequence == before + 2, "two collectives, but the sequence went from %u to %u", before, g.sequence);
    return TUTTI_OK;
}

void small_host_values_are_reduced(void **state)
{
    run_ranks(*state, 1, double_main);
    run_ranks(*state, 6, double_main);
}

/* The same group made twice uses the same tags twice, and the second round may begin on one
   rank while another is in the first. */
tutti_status again_main(tutti_world *world, void *arg, tutti_error *err)
{
    const int rank = tutti_world_rank(world);
    float x;

    (void)arg;
    for (uint32_t k = 0; k < 300; k++) {
        tutti_group g = tutti_group_workers(world, 8);
        x = (float)(rank == 0 ? k : 0);
        TUTTI_TRY(tutti_broadcast(&g, 0, tutti_f32(NULL, &x, 1), err));
        CHECK(x == (float)k, "round %u on rank %d received %g", k, rank, (double)x);
        if (tutti_random((tutti_rng){ 8, (uint64_t)rank, k }, 0) % 64 == 0)
            tutti_sleep_until(tutti_world_runtime(world), tutti_now_ns(tutti_world_runtime(world)) + 50000);
    }
    return TUTTI_OK;
}

void a_group_made_again_does_not_mix_with_the_first(void **state)
{
    run_ranks(*state, 4, again_main);
}

static tutti_status usage_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const int others[] = { 1 };
    static const struct { const char *algorithm, *sentence; } wishes[] = {
        { "ring", "'ring' does not keep the one order of summation" },
        { "ring(order=tree)", "write ring(order=any)" },
        { "stragglar(straggler=1)", "write stragglar(order=any)" },
        { "stragglar(straggler=2,order=any)", "straggler is 2; the members are 0 to 1" },
        { "stragglar(straggler=-1,order=any)", "straggler" },
        { "stragglar(straggler=1.5,order=any)", "1.5" },
        { "direct(straggler=1)", "'direct' has no straggler" },
        { "ring(oder=any)", "algorithm 'ring' has no option 'oder'; there are order and straggler" },
        { "ring(order=all)", "'all'" },
        { "ring(order=any", "write NAME or NAME(key=value,...)" },
        { "ring(order=any))", "write NAME or NAME(key=value,...)" },
        { "ring(any)", "write NAME or NAME(key=value,...)" },
        { "ring(order=any,)", "write NAME or NAME(key=value,...)" },
        { "(order=any)", "write NAME or NAME(key=value,...)" },
        { "", "write NAME or NAME(key=value,...)" },
    };
    tutti_error e = { 0 };
    float x[8] = { 0 };
    int32_t n[4] = { 0 };
    const int me = tutti_world_rank(world);
    tutti_group g = tutti_group_workers(world, 5), strange = tutti_group_of(world, others, 1, 5);

    (void)arg;
    g.algorithm = "bulter";
    CHECK(tutti_allreduce(&g, TUTTI_SUM, tutti_f32(NULL, x, 8), &e) == TUTTI_ERR_USAGE &&
              strstr(e.text, "'bulter'") != NULL &&
              strstr(e.text, "exchange, doubling, tree, direct, halving, hierarchy, ring, stragglar, stragglar-greedy, "
                             "flat, scatter, dissemination, pairwise, window") != NULL,
          "unknown algorithm: %s", e.text);
    for (size_t k = 0; k < TUTTI_LENGTH(wishes); k++) {
        g.algorithm = wishes[k].algorithm;
        CHECK(tutti_allreduce(&g, TUTTI_SUM, tutti_f32(NULL, x, 8), &e) == TUTTI_ERR_USAGE &&
                  strstr(e.text, wishes[k].sentence) != NULL,
              "'%s': %s", wishes[k].algorithm, e.text);
        CHECK(tutti_algorithm_check(wishes[k].algorithm, 2, &e) == TUTTI_ERR_USAGE &&
                  strstr(e.text, wishes[k].sentence) != NULL,
              "check of '%s': %s", wishes[k].algorithm, e.text);
    }
    CHECK(tutti_algorithm_check("halving", 6, &e) == TUTTI_ERR_USAGE &&
              strstr(e.text, "'halving' needs a power of two of members, and there are 6") != NULL,
          "%s", e.text);
    CHECK(tutti_algorithm_check("halving", 8, &e) == TUTTI_OK &&
              tutti_algorithm_check("ring(order=any)", 5, &e) == TUTTI_OK &&
              tutti_algorithm_check("direct(order=any)", 5, &e) == TUTTI_OK &&
              tutti_algorithm_check(NULL, 5, &e) == TUTTI_OK,
          "%s", e.text);
    g.algorithm = NULL;
    if (me != 1)
        CHECK(tutti_barrier(&strange, &e) == TUTTI_ERR_USAGE && strstr(e.text, "not a member") != NULL, "stranger: %s",
              e.text);
    CHECK(tutti_allreduce(&g, TUTTI_MEAN, tutti_host(n, 4, TUTTI_I32), &e) == TUTTI_ERR_USAGE &&
              strstr(e.text, "F32 or F64") != NULL,
          "mean: %s", e.text);
    g.algorithm = "doubling";
    CHECK(tutti_allreduce(&g, TUTTI_SUM, tutti_host(n, 4, TUTTI_BF16), &e) == TUTTI_ERR_USAGE &&
              strstr(e.text,
                     "all-reduce 'doubling' sends partial sums, which BF16 would round on their way; 'direct'") != NULL,
          "BF16: %s", e.text);
    g.algorithm = "halving";
    CHECK(tutti_allreduce(&g, TUTTI_MAX, tutti_host(n, 4, TUTTI_F16), &e) == TUTTI_ERR_USAGE &&
              strstr(e.text, "F16") != NULL,
          "F16: %s", e.text);
    g.algorithm = NULL;
    CHECK(tutti_allreduce(&g, (tutti_reduction)9, tutti_host(n, 4, TUTTI_I32), &e) == TUTTI_ERR_USAGE,
          "operation 9: %s", e.text);
    CHECK(tutti_allreduce_weighted(&g, 1, tutti_host(x, 4, TUTTI_F64), &e) == TUTTI_ERR_USAGE, "weighted F64: %s",
          e.text);
    CHECK(tutti_allgather(&g, tutti_f32(NULL, x, 3), tutti_f32(NULL, x, 8), &e) == TUTTI_ERR_USAGE &&
              strstr(e.text, "equal parts") != NULL,
          "parts: %s", e.text);
    CHECK(tutti_allgather(&g, tutti_f32(NULL, x + 1, 4), tutti_f32(NULL, x, 8), &e) == TUTTI_ERR_USAGE &&
              strstr(e.text, "overlaps") != NULL,
          "overlap: %s", e.text);
    CHECK(tutti_broadcast(&g, 2, tutti_f32(NULL, x, 3), &e) == TUTTI_ERR_USAGE && strstr(e.text, "index 2") != NULL,
          "root: %s", e.text);
    return tutti_barrier(&g, err); /* none of these took part in anything; `sequence` advanced equally on both */
}

void invalid_collective_calls_are_rejected_with_a_message(void **state)
{
    run_ranks(*state, 2, usage_main);
}

static tutti_status insists_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const size_t counts[] = { 10, 5000 };
    tutti_group g = tutti_group_workers(world, 11);
    tutti_error e = { 0 };
    counts_sent sent;
    rank_memory m;

    (void)arg;
    TUTTI_TRY(memory_open(&m, world, err));
    take_counts(world, &sent);
    g.algorithm = "window";
    for (size_t c = 0; c < TUTTI_LENGTH(counts); c++) {
        float *x = (float *)(void *)vector_of(&m, WINDOW, g.index, 4);
        values_reduce(TUTTI_F32, TUTTI_SUM, 1, g.size, NULL, 0, counts[c], m.expected);
        if (world->ops->publish != NULL)
            TUTTI_TRY(one_allreduce(&g, &m, &sent, TUTTI_F32, TUTTI_SUM, counts[c], WINDOW, m.expected, err));
        else
            CHECK(tutti_allreduce(&g, TUTTI_SUM, tutti_f32(NULL, x, counts[c]), &e) == TUTTI_ERR_USAGE &&
                  strstr(e.text, "needs a transport with shared windows") != NULL, "without windows: %s", e.text);
    }
    /* A broadcast from private memory cannot: all members are notified, none has begun. */
    CHECK(tutti_broadcast(&g, 0, tutti_f32(NULL, (float *)(void *)m.private, 5000), &e) == TUTTI_ERR_USAGE &&
              strstr(e.text, "'window'") != NULL,
          "private memory: %s", e.text);
    g.algorithm = NULL;
    TUTTI_TRY(one_broadcast(&g, &m, &sent, TUTTI_F32, 5000, 0, PRIVATE, err));
    memory_close(&m);
    return TUTTI_OK;
}

void insisting_on_windows_works_or_is_refused(void **state)
{
    run_ranks(*state, 3, insists_main);
}

/* ---- disagreement and death ---- */

static tutti_status disagree(under_test *t, tutti_group *g, float *x, tutti_error *err)
{
    const bool odd_one = g->index == 1;
    int32_t *n = (int32_t *)(void *)x;

    switch (t->variant) {
    case 0: return tutti_allreduce(g, TUTTI_SUM, tutti_f32(NULL, x, odd_one ? 101 : 100), err);
    case 1: return tutti_allreduce(g, TUTTI_SUM, tutti_f32(NULL, x, odd_one ? 5001 : 5000), err);
    case 2: return tutti_allreduce(g, TUTTI_SUM, tutti_f32(NULL, x, odd_one ? 5000 : 100), err);
    case 3: return tutti_allreduce(g, odd_one ? TUTTI_MAX : TUTTI_SUM, tutti_f32(NULL, x, 100), err);
    case 4:
        return tutti_allreduce(g, TUTTI_SUM, odd_one ? tutti_f32(NULL, x, 2000) : tutti_host(n, 2000, TUTTI_I32), err);
    case 5: return odd_one ? tutti_barrier(g, err) : tutti_allreduce(g, TUTTI_SUM, tutti_f32(NULL, x, 2000), err);
    case 6:
    case 7:
        TUTTI_TRY(tutti_group_compare(g, odd_one ? 0x7ff : 0x3ff, err)); /* the highest of the bits */
        return tutti_allreduce(g, TUTTI_SUM, tutti_f32(NULL, x, t->variant == 6 ? 100 : 5000), err);
    default: return tutti_allreduce(g, TUTTI_SUM, tutti_f32(NULL, x, odd_one ? 0 : 7), err);
    }
}

static tutti_status disagree_main(tutti_world *world, void *arg, tutti_error *err)
{
    under_test *t = arg;
    tutti_group g = tutti_group_workers(world, 6);
    tutti_error *e = &t->errors[g.index];
    rank_memory m;
    tutti_status status;

    TUTTI_TRY(memory_open(&m, world, err));
    status = disagree(t, &g, (float *)(void *)vector_of(&m, t->variant % 2 == 0 ? WINDOW : PRIVATE, g.index, 4), e);
    memory_close(&m);
    *err = *e;
    return status;
}

/* Each member learns of it from a message or entry of the odd one; or, if that one learned first
   and left, from its failure report. */
void mismatched_calls_are_reported_with_both_versions(void **state)
{
    static const char *const said[][2] = {
        { "100 F32", "101 F32" }, { "5000 F32", "5001 F32" }, { "5000 F32", "100 F32" }, { "(sum", "(max" },
        { "2000 F32", "2000 I32" }, { "2000 F32", "barrier" },
        { "of 100 ", "all members of a group must make the same calls" },
        { "5000", "all members of a group must make the same calls" }, { "0 F32", "7 F32" },
    };
    under_test *t = *state;

    for (t->variant = 0; t->variant < (int)TUTTI_LENGTH(said); t->variant++)
        for (t->p = 2; t->p <= 4; t->p++) {
            tutti_error err = { 0 };
            memset(t->errors, 0, sizeof t->errors);
            assert_int_equal(t->ops != NULL ? tutti_world_run_on(t->ops, t->spec, t->p, disagree_main, t, &err) :
                                              tutti_world_run(t->spec, t->p, disagree_main, t, &err), TUTTI_ERR_STATE);
            for (int r = 0; r < t->p; r++) {
                const tutti_error *e = &t->errors[r];
                if (strstr(e->text, said[t->variant][0]) == NULL || strstr(e->text, said[t->variant][1]) == NULL ||
                    (e->status != TUTTI_ERR_STATE && e->status != TUTTI_ERR_PEER) || e->rank < 0 || e->rank == r)
                    fail_msg("variant %d, rank %d of %d: %s", t->variant, r, t->p, e->text);
            }
        }
}

static tutti_status dying_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const size_t counts[] = { 10, 3000, 200000 };
    under_test *t = arg;
    const int rank = tutti_world_rank(world);
    tutti_group g = tutti_group_workers(world, 6);
    tutti_error *e = &t->errors[rank];
    rank_memory m;
    tutti_status status;

    TUTTI_TRY(memory_open(&m, world, err));
    status = tutti_barrier(&g, e); /* a member that is late in it may learn there what has
                                      happened to others in the next */
    if (status == TUTTI_OK && rank == t->dying) {
        memory_close(&m);
        return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "the loss is not finite");
    }
    if (status == TUTTI_OK)
        status = t->variant == 3
                     ? tutti_barrier(&g, e)
                     : tutti_allreduce(
                           &g, TUTTI_SUM,
                           tutti_f32(NULL, (float *)(void *)vector_of(&m, t->variant == 1 ? WINDOW : PRIVATE, rank, 4),
                                     counts[t->variant]),
                           e);
    memory_close(&m);
    *err = *e;
    return status;
}

void a_failed_member_ends_other_calls_with_its_rank(void **state)
{
    under_test *t = *state;

    for (t->variant = 0; t->variant < 4; t->variant++)
        for (t->dying = 0; t->dying < 4; t->dying += 3) {
            tutti_error err = { 0 };
            tutti_status status;
            t->p = 4;
            memset(t->errors, 0, sizeof t->errors);
            status = t->ops != NULL ? tutti_world_run_on(t->ops, t->spec, 4, dying_main, t, &err)
                                    : tutti_world_run(t->spec, 4, dying_main, t, &err);
            assert_int_equal(status, TUTTI_ERR_NUMBER); /* the root failure */
            assert_non_null(strstr(err.text, "the loss is not finite"));
            for (int r = 0; r < 4; r++)
                if (r != t->dying && (t->errors[r].status != TUTTI_ERR_PEER || t->errors[r].rank != t->dying))
                    fail_msg("rank %d was told of rank %d: %s", r, t->errors[r].rank, t->errors[r].text);
        }
}

/* A rank that leaves in good order ends the calls that wait for it, and only those. */
tutti_status leaving_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const int stay[] = { 0, 2 };
    tutti_group all = tutti_group_workers(world, 6), rest = tutti_group_of(world, stay, 2, 7);
    tutti_error e = { 0 };
    float x[10] = { 0 };

    (void)arg;
    TUTTI_TRY(tutti_barrier(&all, err));
    if (tutti_world_rank(world) == 1)
        return TUTTI_OK;
    CHECK(tutti_allreduce(&rest, TUTTI_SUM, tutti_f32(NULL, x, 10), err) == TUTTI_OK,
          "a group without the one who left: %s", err->text);
    CHECK(tutti_allreduce(&all, TUTTI_SUM, tutti_f32(NULL, x, 10), &e) == TUTTI_ERR_PEER,
          "a group with the one who left");
    CHECK(e.rank == 1, "told of rank %d: %s", e.rank, e.text);
    return tutti_barrier(&rest, err);
}

void a_departed_rank_ends_only_calls_that_need_it(void **state)
{
    run_ranks(*state, 3, leaving_main);
}

/* All except the lost one learn of it, by whatever chain of messages, while all of them live on;
   and they continue without it, for more failed calls than the rendezvous table has entries. */
static tutti_status survivors_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const char *const algorithms[] = { NULL, "exchange", "doubling", "tree", "direct" };
    under_test *t = arg;
    const int rank = tutti_world_rank(world);
    int left[P_MAX], n = 0;
    tutti_group all = tutti_group_workers(world, 20);
    rank_memory m;

    for (int r = 0; r < t->p; r++)
        if (r != t->dying)
            left[n++] = r;
    tutti_group rest = tutti_group_of(world, left, n, 21);
    TUTTI_TRY(memory_open(&m, world, err));
    TUTTI_TRY(tutti_barrier(&all, err));
    for (uint32_t k = 0; k < 200 && rank != t->dying; k++) {
        static const size_t counts[] = { 8, 2000, 200000 };
        tutti_group g = tutti_group_keyed(&all, k, 0);
        const tutti_buffer x =
            tutti_f32(NULL, (float *)(void *)vector_of(&m, (memory_kind)(k / 3 % MEMORIES), rank, 4), counts[k % 3]);
        tutti_error e = { 0 };
        tutti_status status;
        g.algorithm = algorithms[k / 6 % TUTTI_LENGTH(algorithms)];
        status = k % 6 == 4   ? tutti_broadcast(&g, t->dying, x, &e)
                 : k % 6 == 5 ? tutti_barrier(&g, &e)
                              : tutti_allreduce(&g, TUTTI_SUM, x, &e);
        CHECK(status == TUTTI_ERR_PEER && e.rank == t->dying, "call %u on rank %d of %d: %s, rank %d: %s", k, rank,
              t->p, tutti_status_name(status), e.rank, e.text);
        TUTTI_TRY(tutti_allreduce(&rest, TUTTI_SUM, x, err));
    }
    memory_close(&m);
    return TUTTI_OK;
}

void survivors_learn_the_lost_rank_and_continue(void **state)
{
    under_test *t = *state;
    static const struct { int p, dying; } cases[] = { { 3, 1 }, { 5, 4 }, { 5, 0 }, { 8, 7 }, { 8, 2 } };

    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        t->dying = cases[k].dying;
        run_ranks(t, cases[k].p, survivors_main);
    }
}

/* Rank 1 fails in a broadcast, whose root may be through it already, and lives on. The others learn
   of it in what follows: a call that waits for messages of rank 1, or (odd variant) more broadcasts
   than a table has entries. Rank 1 waits for that, for ten seconds at most. */
static tutti_status fails_alone_main(tutti_world *world, void *arg, tutti_error *err)
{
    const under_test *t = arg;
    const int rank = tutti_world_rank(world);
    const bool named = t->variant / 2 == 1;
    const int64_t limit = tutti_now_ns(tutti_world_runtime(world)) + INT64_C(10000000000);
    tutti_group g = tutti_group_workers(world, 30);
    tutti_error e = { 0 };
    float x[64] = { 0 };
    tutti_status status;

    g.algorithm = named ? "flat" : NULL;
    status = tutti_broadcast(&g, 0, tutti_f32(NULL, x, rank == 1 ? 9 : 8), &e);
    CHECK(rank != 1 || status == TUTTI_ERR_STATE, "rank 1: %s, %s", tutti_status_name(status), e.text);
    for (int k = 0; k < 200 && t->variant % 2 == 1 && status == TUTTI_OK; k++)
        status = tutti_broadcast(&g, 0, tutti_f32(NULL, x, 8), &e);
    g.algorithm = "direct";
    if (status == TUTTI_OK)
        status = tutti_allreduce(&g, TUTTI_SUM, tutti_f32(NULL, x, 64), &e);
    CHECK(status == TUTTI_ERR_STATE || status == TUTTI_ERR_PEER, "rank %d: %s, %s", rank, tutti_status_name(status),
          e.text);
    for (int r = 0; r < t->p && rank == 1; r++)
        if (r != 1)
            TUTTI_TRY(tutti_recv(world, r, tutti_port_of("learned", 0, 0), NULL, tutti_nothing(), limit, err));
    return rank == 1 ? TUTTI_OK : tutti_send(world, 1, tutti_port_of("learned", 0, 0), NULL, tutti_nothing(), err);
}

void a_member_that_fails_and_lives_on_keeps_no_other_waiting(void **state)
{
    under_test *t = *state;

    for (t->variant = 0; t->variant < 4; t->variant++)
        for (int p = 2; p <= 4; p++)
            run_ranks(t, p, fails_alone_main);
}

/* Rank 1 gives up each of many groups, before or while rank 0 makes a call of it (small, large, a
   barrier). Each of these fails, and the ranks continue in another group. The cause that rank
   1 names is rank 0, which so need not wait for a report of it. */
static tutti_status many_fail_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const size_t counts[] = { 8, 20000 };
    const int rank = tutti_world_rank(world);
    tutti_group all = tutti_group_workers(world, 40), rest = tutti_group_workers(world, 41);
    rank_memory m;

    (void)arg;
    TUTTI_TRY(memory_open(&m, world, err));
    for (uint32_t k = 0; k < 120; k++) {
        tutti_group g = tutti_group_keyed(&all, k, 0);
        const tutti_buffer x =
            tutti_f32(NULL, (float *)(void *)vector_of(&m, WINDOW, rank, 4), counts[k / 3 % 2]);
        tutti_error e = { 0 };
        tutti_status status = TUTTI_ERR_PEER;
        if (rank == 1)
            tutti_group_give_up(&g, 0);
        else
            status = k % 3 == 2 ? tutti_barrier(&g, &e) : tutti_allreduce(&g, TUTTI_SUM, x, &e);
        CHECK(status == TUTTI_ERR_PEER, "call %u: %s, %s", k, tutti_status_name(status), e.text);
        TUTTI_TRY(tutti_allreduce(&rest, TUTTI_SUM, x, err));
    }
    memory_close(&m);
    return TUTTI_OK;
}

void failed_groups_take_no_place_from_others(void **state)
{
    run_ranks(*state, 2, many_fail_main);
}

/* The last rank comes to its call only when all others have ended theirs. Both then name it. */
static tutti_status late_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const struct { const char *algorithm; size_t count; } calls[] = {
        { NULL, 8 }, { NULL, 200000 }, { "direct", 2000 }
    };
    const under_test *t = arg;
    const int rank = tutti_world_rank(world), late = t->p - 1;
    const tutti_port port = tutti_port_of("late", 0, 0);
    char missing[160];
    rank_memory m;

    TUTTI_TRY(memory_open(&m, world, err));
    snprintf(missing, sizeof missing, "over %d members has not ended within 0.6 s; missing: rank %d (host %d); see",
             t->p, late, tutti_world_host(world, late));
    for (uint64_t k = 0; k < TUTTI_LENGTH(calls); k++) {
        tutti_group g = tutti_group_workers(world, 31 + k);
        const tutti_buffer x =
            tutti_f32(NULL, (float *)(void *)vector_of(&m, (memory_kind)(k % MEMORIES), rank, 4), calls[k].count);
        tutti_error e = { 0 };
        g.timeout_ns = 600000000;
        g.algorithm = calls[k].algorithm;
        for (int r = 0; r < late && rank == late; r++)
            TUTTI_TRY(tutti_recv(world, r, port, NULL, tutti_nothing(), TUTTI_FOREVER, err));
        tutti_status status = tutti_allreduce(&g, TUTTI_SUM, x, &e);
        CHECK(status == TUTTI_TIMEOUT && e.rank == late && strstr(e.text, missing) != NULL,
              "call %llu on rank %d of %d: %s, rank %d: %s", (unsigned long long)k, rank, t->p,
              tutti_status_name(status), e.rank, e.text);
        CHECK(tutti_barrier(&g, &e) == TUTTI_TIMEOUT, "call %llu on rank %d: the group goes on: %s",
              (unsigned long long)k, rank, e.text);
        if (rank != late)
            TUTTI_TRY(tutti_send(world, late, port, NULL, tutti_nothing(), err));
    }
    memory_close(&m);
    tutti_group end = tutti_group_workers(world, 40); /* a rank that left would be gone for the others */
    return tutti_barrier(&end, err);
}

void a_timeout_names_the_missing_rank_on_all_members(void **state)
{
    run_ranks(*state, 4, late_main);
}

/* Members that wait for each other are not missing. */
static tutti_status crossed_main(tutti_world *world, void *arg, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 41);
    float mine[4] = { 0 }, all[8];
    tutti_error e = { 0 };

    (void)arg;
    g.timeout_ns = 300000000;
    CHECK(tutti_gather_parts(&g, g.index, tutti_f32(NULL, mine, 4), tutti_f32(NULL, all, 8), &e) == TUTTI_TIMEOUT &&
              e.rank == -1 && strstr(e.text, "no member is missing") != NULL,
          "rank %d: %s", g.index, e.text);
    g = tutti_group_workers(world, 40);
    return tutti_barrier(&g, err);
}

void a_timeout_of_different_roots_names_no_member(void **state)
{
    run_ranks(*state, 2, crossed_main);
}

/* What ends in time is as without a timeout: the bits, and the bytes and messages to each. */
static tutti_status in_time_main(tutti_world *world, void *arg, tutti_error *err)
{
    static const size_t counts[] = { 10, 5000, 200000 };
    tutti_group g = tutti_group_workers(world, 42);
    counts_sent sent;
    rank_memory m;

    (void)arg;
    TUTTI_TRY(memory_open(&m, world, err));
    take_counts(world, &sent);
    g.timeout_ns = INT64_C(600000000000);
    for (size_t c = 0; c < TUTTI_LENGTH(counts); c++)
        for (int memory = 0; memory < MEMORIES; memory++) {
            values_reduce(TUTTI_F32, TUTTI_SUM, 1, g.size, NULL, 0, counts[c], m.expected);
            TUTTI_TRY(one_allreduce(&g, &m, &sent, TUTTI_F32, TUTTI_SUM, counts[c], (memory_kind)memory, m.expected,
                                    err));
            TUTTI_TRY(one_broadcast(&g, &m, &sent, TUTTI_F32, counts[c], 1, (memory_kind)memory, err));
        }
    memory_close(&m);
    return TUTTI_OK;
}

void a_timeout_does_not_change_what_ends_in_time(void **state)
{
    run_ranks(*state, 3, in_time_main);
}

/* ---- ports ---- */

tutti_status ports_main(tutti_world *world, void *arg, tutti_error *err)
{
    under_test *t = arg;
    const int rank = tutti_world_rank(world), p = t->p, right = (rank + 1) % p, left = (rank + p - 1) % p;
    tutti_runtime *rt = tutti_world_runtime(world);
    uint64_t bytes, messages, bytes_after, messages_after;
    int32_t out[1000], in[1000];
    tutti_request s, r, *both[2] = { &s, &r };
    tutti_header note = { .kind = 3, .a = -5, .b = INT64_MAX };
    tutti_error e = { 0 };
    size_t done;

    tutti_world_sent(world, right, &bytes, &messages);
    for (int size = 0; size <= 1000; size += 250) {
        for (int k = 0; k < size; k++)
            out[k] = rank * 1000 + k;
        TUTTI_TRY(tutti_post_recv(world, &r, left, tutti_port_of("ring", (uint64_t)size, 0),
                                  tutti_host(in, 1000, TUTTI_I32), err));
        TUTTI_TRY(tutti_post_send(world, &s, right, tutti_port_of("ring", (uint64_t)size, 0), &note,
                                  tutti_host(out, (size_t)size, TUTTI_I32), err));
        TUTTI_TRY(tutti_wait_some(world, both, 2, 2, TUTTI_FOREVER, &done, err));
        CHECK(done == 2 && r.note.from == left && r.note.kind == 3 && r.note.a == -5 && r.note.b == INT64_MAX &&
                  r.note.bytes == (uint64_t)size * 4,
              "the note came changed");
        for (int k = 0; k < size; k++)
            CHECK(in[k] == left * 1000 + k, "element %d came changed", k);
    }
    tutti_world_sent(world, right, &bytes_after, &messages_after);
    CHECK(p == 1 || (bytes_after - bytes == 4 * (250 + 500 + 750 + 1000) && messages_after - messages == 5),
          "counted %llu bytes", (unsigned long long)(bytes_after - bytes));

    /* No message comes: a time-out, and no receive stays posted in which a later message could be
       lost. */
    CHECK(tutti_recv(world, TUTTI_ANY, tutti_port_of("late", 0, 0), &note, tutti_host(in, 1, TUTTI_I32),
                     tutti_now_ns(rt) + 2000000, &e) == TUTTI_TIMEOUT,
          "a receive of nothing: %s", e.text);
    TUTTI_TRY(tutti_post_recv(world, &r, TUTTI_ANY, tutti_port_of("never", 0, 0), tutti_host(in, 4, TUTTI_I32), err));
    CHECK(tutti_wait_some(world, both + 1, 1, 1, 0, &done, &e) == TUTTI_TIMEOUT && done == 0, "a test of nothing");
    tutti_cancel(world, &r);
    if (rank != 0) {
        TUTTI_TRY(tutti_send(world, 0, tutti_port_of("late", 1, 0), NULL, tutti_host(out, 2, TUTTI_I32), err));
    } else {
        for (int k = 1; k < p; k++) {
            TUTTI_TRY(tutti_recv(world, TUTTI_ANY, tutti_port_of("late", 1, 0), &note, tutti_host(in, 4, TUTTI_I32),
                                 TUTTI_FOREVER, err));
            CHECK(note.bytes == 8 && note.kind == 0 && in[0] == note.from * 1000, "any: from %d", note.from);
        }
    }
    CHECK(tutti_send(world, p, 1, NULL, tutti_nothing(), &e) == TUTTI_ERR_USAGE && strstr(e.text, "0 to") != NULL,
          "to nobody: %s", e.text);

    /* Too large for the buffer: reported at the receiver with the size. */
    if (p > 1 && rank == 0) {
        TUTTI_TRY(tutti_send(world, 1, tutti_port_of("large", 0, 0), NULL, tutti_host(out, 500, TUTTI_I32), err));
    } else if (rank == 1) {
        CHECK(tutti_recv(world, 0, tutti_port_of("large", 0, 0), &note, tutti_host(in, 10, TUTTI_I32), TUTTI_FOREVER,
                         &e) == TUTTI_ERR_CORRUPT &&
                  strstr(e.text, "2000 bytes") != NULL && note.bytes == 2000,
              "too large: %s", e.text);
    }
    return TUTTI_OK;
}

void ports_carry_headers_and_payloads(void **state)
{
    run_ranks(*state, 1, ports_main);
    run_ranks(*state, 2, ports_main);
    run_ranks(*state, 5, ports_main);
}

tutti_status common_main(tutti_world *world, void *arg, tutti_error *err)
{
    tutti_group g = tutti_group_workers(world, 5);
    void *memory;
    bool fill;
    uint32_t *words;

    (void)arg;
    TUTTI_TRY(tutti_world_common(world, "order", 4096, &memory, &fill, err));
    words = memory;
    CHECK((uintptr_t)words % 64 == 0, "common memory is not aligned");
    if (fill)
        for (uint32_t k = 0; k < 1024; k++) {
            CHECK(words[k] == 0, "common memory is not zeroed");
            words[k] = k * k;
        }
    TUTTI_TRY(tutti_barrier(&g, err));
    for (uint32_t k = 0; k < 1024; k++)
        CHECK(words[k] == k * k, "common memory is not common");
    return tutti_barrier(&g, err);
}

void common_memory_is_filled_once_and_seen_by_all(void **state)
{
    run_ranks(*state, 1, common_main);
    run_ranks(*state, 4, common_main);
}
