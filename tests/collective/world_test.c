/* Goal: a world opens only where it has a place, reports what is wrong otherwise, and a
   collective that has run before allocates nothing. Method: environments set by hand; the
   allocator underneath counted. */
#include "collective/collective_internal.h"
#include "collective/table.h"
#include "tutti/launch.h"
#include "tutti/comm.h"
#include "sanitized.h"
#include "base/machine.h"
#include "collective/world.h"
#include "kernels/device.h"
#include "transport/registry.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_int allocations;
#if !SANITIZED
void *aligned_alloc(size_t alignment, size_t bytes) /* in place of libc's: what tutti_alloc calls */
{
    void *memory = NULL;

    atomic_fetch_add(&allocations, 1);
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : NULL;
}
#endif

static int clean(void **state)
{
    static const char *const names[] = {
        "TUTTI_RANK", "TUTTI_SIZE", "TUTTI_CPU", "TUTTI_SHM_FD", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(names); k++)
        unsetenv(names[k]);
    return 0;
}

static void refused(const char *spec, const char *sentence)
{
    tutti_error err = { 0 };
    tutti_world *world = (tutti_world *)(uintptr_t)1;

    assert_int_equal(tutti_world_open(&world, spec, &err), TUTTI_ERR_USAGE);
    assert_null(world);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("'%s' lacks '%s'", err.text, sentence);
}

static void without_a_launcher_it_is_rank_0_of_1(void **state)
{
    tutti_error err = { 0 };
    tutti_world *world;
    float x[3] = { 1, 2, 3 };
    uint64_t bytes, messages;
    void *memory;
    bool fill;

    (void)state;
    if (tutti_world_open(&world, "", &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(tutti_world_rank(world), 0);
    assert_int_equal(tutti_world_size(world), 1);
    assert_string_equal(tutti_world_transport(world), "shm");
    assert_int_equal(tutti_world_dead(world, NULL, 0), -1);
    tutti_group g = tutti_group_workers(world, 0);
    assert_int_equal(tutti_allreduce(&g, TUTTI_MEAN, tutti_f32(tutti_world_device(world), x, 3), &err), TUTTI_OK);
    assert_int_equal(tutti_allreduce_weighted(&g, 0.5f, tutti_f32(NULL, x, 3), &err), TUTTI_OK);
    assert_true(x[0] == 0.5f && x[1] == 1.0f && x[2] == 1.5f);
    assert_int_equal(tutti_world_window(world, "w", 100, &memory, &err), TUTTI_OK);
    memset(memory, 1, 100);
    assert_int_equal(tutti_world_common(world, "c", 100, &memory, &fill, &err), TUTTI_OK);
    assert_true(fill);
    memset(memory, 1, 100);
    tutti_world_sent(world, TUTTI_ANY, &bytes, &messages);
    assert_int_equal(bytes + messages, 0);
    tutti_world_close(world);
}

static void invalid_rank_and_size_settings_are_rejected(void **state)
{
    static const struct {
        const char *rank, *size;
    } places[] = { { "0", NULL },    { NULL, "2" }, { "2", "2" },  { "-1", "2" },
                   { "0", "0" },     { "", "2" },   { "0x", "2" }, { "0", "99999999999999999999" },
                   { "zero", "one" } };

    for (size_t k = 0; k < TUTTI_LENGTH(places); k++) {
        clean(state);
        if (places[k].rank != NULL)
            setenv("TUTTI_RANK", places[k].rank, 1);
        if (places[k].size != NULL)
            setenv("TUTTI_SIZE", places[k].size, 1);
        refused("shm", "unset both to run alone");
    }
}

static void other_launchers_are_refused(void **state)
{
    (void)state;
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    refused("shm", "OMPI_COMM_WORLD_RANK is '(not set)' and OMPI_COMM_WORLD_SIZE is '4'");
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    refused("shm", "Open MPI has started 4 processes (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4), and nothing "
                   "shows that all of them are on one host, as transport shm needs; use transport tcp or mpi");
    setenv("TUTTI_SIZE", "3", 1); /* by hand: it settles the place, but brings no memory */
    setenv("TUTTI_RANK", "2", 1);
    refused("shm", "another program has started 3 processes (TUTTI_RANK=2, TUTTI_SIZE=3), and nothing shows that all "
                   "of them are on one host, as transport shm needs; use transport tcp, with TUTTI_MEET=HOST:PORT and "
                   "a key for all (`tutti key`), or start the run with 'tutti run -n N -- COMMAND'");
    refused("", "another program has started 3 processes (TUTTI_RANK=2, TUTTI_SIZE=3), and nothing shows");
    unsetenv("TUTTI_SIZE");
    unsetenv("TUTTI_RANK");
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    tutti_world *world;
    assert_int_equal(tutti_world_open(&world, "shm", NULL), TUTTI_OK);
    tutti_world_close(world);
}

static void unknown_transports_are_rejected_listing_known_ones(void **state)
{
    tutti_error err = { 0 };

    (void)state;
    refused("smh", "no transport is named 'smh'");
    refused("smh", "known: shm, tcp, and as plug-ins sim, mpi; nor is there a plug-in '");
    refused("smi", "no transport is named 'smi'; did you mean");
    refused("mpj", "no transport is named 'mpj'; did you mean 'mpi'");
    refused("shm(", "shm");
    assert_int_equal(tutti_world_run("telepathy", 2, NULL, NULL, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "telepathy"));
    assert_int_equal(tutti_world_run("shm", 0, NULL, NULL, &err), TUTTI_ERR_USAGE);
}

static void the_cpu_level_can_be_lowered_by_name_only(void **state)
{
    tutti_world *world;

    (void)state;
    setenv("TUTTI_CPU", "scalar", 1);
    assert_int_equal(tutti_world_open(&world, "", NULL), TUTTI_OK);
    assert_int_equal(tutti_device_cpu(tutti_world_device(world)), TUTTI_CPU_SCALAR);
    tutti_world_close(world);
    setenv("TUTTI_CPU", tutti_cpu_name(tutti_cpu_best()), 1);
    assert_int_equal(tutti_world_open(&world, "", NULL), TUTTI_OK);
    assert_int_equal(tutti_device_cpu(tutti_world_device(world)), tutti_cpu_best());
    tutti_world_close(world);
    setenv("TUTTI_CPU", "sse9", 1);
#if defined(__x86_64__)
    refused("", "TUTTI_CPU is 'sse9'; it must be scalar, avx2 or avx512");
    setenv("TUTTI_CPU", "avx512", 1); /* above this machine's best, maybe */
    assert_int_equal(tutti_world_open(&world, "", NULL), TUTTI_OK);
    assert_int_equal(tutti_device_cpu(tutti_world_device(world)), tutti_cpu_best());
    tutti_world_close(world);
    setenv("TUTTI_CPU", "neon", 1); /* another architecture's */
    refused("", "TUTTI_CPU is 'neon'; it must be scalar, avx2 or avx512");
#elif defined(__aarch64__)
    refused("", "TUTTI_CPU is 'sse9'; it must be scalar or neon");
    setenv("TUTTI_CPU", "avx2", 1); /* another architecture's */
    refused("", "TUTTI_CPU is 'avx2'; it must be scalar or neon");
#endif
    setenv("TUTTI_CPU", "unknown", 1); /* tutti_cpu_name's word for none */
    refused("", "TUTTI_CPU is 'unknown'; it must be scalar");
}

/* Also a transport whose runtime has another version, whether it would hand that over or receive
   it, and such a runtime alone. */
static void transports_of_another_version_are_refused(void **state)
{
    const tutti_transport_ops now = *tutti_transport_find("shm");
    const tutti_launch launch = { .size = 1, .spec = "shm" };
    tutti_transport_ops old[4];
    tutti_error err = { 0 };
    tutti_runtime *rt;
    tutti_world *world;

    (void)state;
    for (size_t k = 0; k < 4; k++)
        old[k] = now;
    old[0].abi++;
    old[1].bytes--;
    old[2].runtime_abi++;
    old[3].runtime_bytes--;
    for (size_t k = 0; k < 4; k++) {
        char says[120];
        snprintf(says, sizeof says, "was built for %s interface %lu (%lu bytes), this library offers %d (%zu bytes)",
                 k < 2 ? "transport" : "runtime", (unsigned long)(k < 2 ? old[k].abi : old[k].runtime_abi),
                 (unsigned long)(k < 2 ? old[k].bytes : old[k].runtime_bytes),
                 k < 2 ? TUTTI_TRANSPORT_ABI : TUTTI_RUNTIME_ABI, k < 2 ? sizeof now : sizeof(tutti_runtime_ops));
        assert_int_equal(tutti_world_open_on(&world, &old[k], &launch, NULL, &err), TUTTI_ERR_USAGE);
        assert_non_null(strstr(err.text, says));
        assert_non_null(strstr(err.text, "same version"));
    }
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    for (int k = 0; k < 2; k++) {
        tutti_runtime_ops ops = *rt->ops;
        tutti_runtime another = { &ops, rt->self };
        ops.abi += k == 0;
        ops.bytes -= k == 1;
        assert_int_equal(tutti_world_open_on(&world, &now, &launch, &another, &err), TUTTI_ERR_USAGE);
        assert_non_null(strstr(err.text, "the runtime that the caller opened was built for runtime interface"));
    }
    assert_int_equal(tutti_world_open_on(&world, &now, &launch, rt, &err), TUTTI_OK);
    tutti_world_close(world);
    tutti_runtime_close(rt);
}

static void ports_and_keyed_groups_are_pure_functions(void **state)
{
    tutti_world world = { .rank = 1, .size = 4 };
    const int ranks[] = { 3, 1, 0 };
    const tutti_group g = tutti_group_of(&world, ranks, 3, 42), all = tutti_group_workers(&world, 42);
    const tutti_group a = tutti_group_keyed(&g, 1, 2), b = tutti_group_keyed(&g, 2, 1), c = tutti_group_keyed(&g, 1, 2);

    (void)state;
    assert_int_equal(g.index, 1);
    assert_int_equal(all.index, 1);
    assert_int_equal(all.size, 4);
    assert_true(a.context != b.context && a.context == c.context && a.context != g.context);
    assert_int_equal(a.sequence, 2);
    assert_true(tutti_port_of("hop", 1, 2) == tutti_port_of("hop", 1, 2));
    assert_true(tutti_port_of("hop", 1, 2) != tutti_port_of("hop", 2, 1));
    assert_true(tutti_port_of("hop", 1, 2) != tutti_port_of("pop", 1, 2));
}

/* ---- nothing allocates in a steady state ---- */

static tutti_status one_step(tutti_group *g, float *window, float *private, tutti_error *err)
{
    static const char *const algorithms[] = { NULL, "direct", "tree", "doubling" };
    static const size_t counts[] = { 20, 0, 30 };
    double small[4] = { 0 };

    for (size_t a = 0; a < TUTTI_LENGTH(algorithms); a++)
        for (size_t count = 10; count <= 100000; count *= 10) {
            g->algorithm = algorithms[a];
            TUTTI_TRY(tutti_allreduce(g, TUTTI_MEAN, tutti_f32(NULL, window, count), err));
            TUTTI_TRY(tutti_allreduce_weighted(g, 0.5f, tutti_f32(NULL, private, count), err));
            TUTTI_TRY(tutti_broadcast(g, 1, tutti_f32(NULL, private, count), err));
            TUTTI_TRY(tutti_reduce(g, TUTTI_SUM, 1, tutti_f32(NULL, private, count), err));
            TUTTI_TRY(tutti_gather_parts_v(g, 1, counts, tutti_f32(NULL, private, counts[g->index]),
                                           tutti_f32(NULL, private + 100, 50), err));
            TUTTI_TRY(tutti_alltoall(g, tutti_f32(NULL, private, count / 3 * 3),
                                     tutti_f32(NULL, private, count / 3 * 3), err));
        }
    g->algorithm = NULL;
    TUTTI_TRY(tutti_allreduce(g, TUTTI_MEAN, tutti_host(private, 5000, TUTTI_F16), err));
    TUTTI_TRY(tutti_reduce_double(g, TUTTI_SUM, small, 4, err));
    return tutti_barrier(g, err);
}

/* Parts whose lengths differ each time (turn). */
static tutti_status varying_step(tutti_group *g, uint64_t turn, float *private, tutti_error *err)
{
    static const char *const algorithms[] = { NULL, "direct", "tree" };
    const size_t p = (size_t)g->size, i = (size_t)g->index;
    size_t counts[8], each[16], all = 0, sent = 0, received = 0;

    for (size_t j = 0; j < p; j++) {
        counts[j] = tutti_random((tutti_rng){ 7, turn, 0 }, j) % 4 * 100 + turn % 3;
        each[j] = tutti_random((tutti_rng){ 7, turn, 1 }, p * i + j) % 1000;
        each[p + j] = tutti_random((tutti_rng){ 7, turn, 1 }, p * j + i) % 1000;
        all += counts[j];
        sent += each[j];
        received += each[p + j];
    }
    for (size_t a = 0; a < TUTTI_LENGTH(algorithms); a++) {
        g->algorithm = algorithms[a];
        TUTTI_TRY(tutti_allgather_v(g, counts, tutti_f32(NULL, private, counts[i]),
                                    tutti_f32(NULL, private + 5000, all), err));
        TUTTI_TRY(tutti_reduce_scatter_v(g, TUTTI_SUM, counts, tutti_f32(NULL, private, all),
                                         tutti_f32(NULL, private + 5000, counts[i]), err));
        TUTTI_TRY(tutti_gather_parts_v(g, 1, counts, tutti_f32(NULL, private, counts[i]),
                                       tutti_f32(NULL, private + 5000, all), err));
        TUTTI_TRY(tutti_scatter_parts_v(g, 1, counts, tutti_f32(NULL, private, all),
                                        tutti_f32(NULL, private + 5000, counts[i]), err));
        TUTTI_TRY(
            tutti_alltoall_v(g, each, tutti_f32(NULL, private, sent), tutti_f32(NULL, private + 50000, received), err));
    }
    g->algorithm = NULL;
    return TUTTI_OK;
}

static tutti_status steady_main(tutti_world *world, void *arg, tutti_error *err)
{
    /* in builds where nothing is counted, an allocation would not be seen later either */
    enum { STEPS = SANITIZED ? 4 : 100 };
    tutti_group g = tutti_group_workers(world, 1);
    float *private = tutti_alloc(100000, sizeof(float));
    void *window;
    int before = 0;

    (void)arg;
    TUTTI_TRY(tutti_world_window(world, "w", 100000 * sizeof(float), &window, err));
    for (int k = 0; k < STEPS; k++) {
        if (k == STEPS / 2)
            before = atomic_load(&allocations);
        TUTTI_TRY(one_step(&g, window, private, err));
        TUTTI_TRY(varying_step(&g, (uint64_t)k, private, err));
    }
    if (atomic_load(&allocations) != before)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "%d allocations in %d steps", atomic_load(&allocations) - before,
                          STEPS / 2);
    TUTTI_TRY(tutti_barrier(&g, err)); /* no rank frees before all have counted */
    tutti_free(private);
    return TUTTI_OK;
}

static void collectives_that_have_run_before_allocate_nothing(void **state)
{
    tutti_error err = { 0 };

    (void)state;
    if (tutti_world_run("shm", 3, steady_main, NULL, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
#if !SANITIZED
    assert_true(atomic_load(&allocations) > 0); /* they are counted at all */
#endif
}

/* More lists than the cache holds, in use and not, from several threads: every borrower gets the
   list it asked for. Those with counts share one set of eight, so that a list is mostly asked for
   while another thread writes over it. */
static tutti_status borrow_main(void *arg, tutti_error *err)
{
    enum { P = 48 };
    tutti_world *world = arg;
    size_t counts[P];

    for (uint64_t k = 0; k < UNLESS_SANITIZED(3000, 600); k++) {
        const size_t count = (size_t)(tutti_random((tutti_rng){ 5, (uintptr_t)err, 0 }, k) % 900), shift = count % 12;
        const tutti_schedule_key key = {
            TUTTI_ALLREDUCE, tutti_algorithm_find(TUTTI_ALLREDUCE, "tree"), 8, 3, 0, count
        };
        const tutti_schedule_key parts = {
            TUTTI_ALLGATHER, tutti_algorithm_find(TUTTI_ALLGATHER, "direct"), P, 0, 0, 3 * P + shift, counts
        };
        tutti_schedule *s;
        TUTTI_TRY(tutti_schedule_borrow(world, &key, &s, err));
        if (s->key.count != count || s->scratch != count) /* "tree" has scratch for one vector */
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "asked for %zu, got %zu", count, s->key.count);
        tutti_schedule_return(world, s);
        for (size_t j = 0; j < P; j++)
            counts[j] = j + 1 < P ? 3 : 3 + shift; /* the last one received */
        TUTTI_TRY(tutti_schedule_borrow(world, &parts, &s, err));
        if (s->n_steps != 2 * (P - 1) + 2 || s->steps[2 * (P - 1) - 1].count != 3 + shift)
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "asked for a last part of %zu, got %zu steps", 3 + shift,
                              s->n_steps);
        tutti_schedule_return(world, s);
    }
    return TUTTI_OK;
}

static void the_schedule_cache_returns_the_requested_schedules(void **state)
{
    tutti_thread *threads[3];
    tutti_error err = { 0 };
    tutti_world *world;

    (void)state;
    assert_int_equal(tutti_world_open(&world, "", &err), TUTTI_OK);
    for (int k = 0; k < 3; k++)
        assert_int_equal(
            tutti_thread_open(&threads[k], tutti_world_runtime(world), "borrower", borrow_main, world, &err), TUTTI_OK);
    for (int k = 0; k < 3; k++)
        if (tutti_thread_join(threads[k], &err) != TUTTI_OK)
            fail_msg("%s", err.text);
    for (int set = 0; set < TUTTI_CACHE_SETS; set++)
        for (int way = 0; way < TUTTI_CACHE_WAYS; way++)
            assert_true(world->schedules[set][way] == NULL || world->schedules[set][way]->users == 0);
    tutti_world_close(world);
}

/* Counts are part of what fixes a list: counts of equal sum that differ in order only make
   another list. */
static void the_schedule_cache_distinguishes_counts(void **state)
{
    enum { P = 6, SHIFTS = 400 };
    tutti_error err = { 0 };
    tutti_world *world;

    (void)state;
    assert_int_equal(tutti_world_open(&world, "", &err), TUTTI_OK);
    for (size_t k = 0; k < 3 * SHIFTS; k++) {
        const size_t shift = k % SHIFTS, counts[P] = { 3 + shift, 1000 - shift, 5, 0, 2 * shift, 2000 - 2 * shift };
        const tutti_schedule_key key = {
            TUTTI_ALLGATHER, tutti_algorithm_find(TUTTI_ALLGATHER, "direct"), P, 4, 0, 3008, counts
        };
        tutti_schedule *s;
        uint64_t elements, messages;
        assert_int_equal(tutti_schedule_borrow(world, &key, &s, &err), TUTTI_OK);
        tutti_schedule_sent(s, 0, &elements, &messages);
        assert_int_equal(elements, 2 * shift);
        tutti_schedule_return(world, s);
    }
    tutti_world_close(world);
}

static const char *chosen(const tutti_world *world, tutti_collective kind, int size, size_t bytes, tutti_dtype dtype)
{
    const int row = tutti_table_choose(world, kind, size, bytes, dtype);

    return row >= 0 ? tutti_algorithms[row].name : "";
}

static void a_table_is_read_from_a_file(void **state)
{
    char path[] = "/tmp/tutti-table-XXXXXX";
    const char *const text = "# written by a benchmark\nreduce 4 * flat\nreduce * 100 tree # many\nall-to-all 8 4096 "
                             "pairwise\nall-reduce * * halving\n";
    tutti_error err = { 0 };
    tutti_world *world;
    FILE *file = NULL;
    const int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && (file = fdopen(fd, "w")) != NULL);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
    assert_int_equal(tutti_world_open(&world, "", &err), TUTTI_OK);
    assert_string_equal(chosen(world, TUTTI_REDUCE, 2, 8, TUTTI_F32), "");
    if (tutti_collective_table_load(world, path, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_string_equal(chosen(world, TUTTI_REDUCE, 4, 1u << 30, TUTTI_F32), "flat");
    assert_string_equal(chosen(world, TUTTI_REDUCE, 5, 100, TUTTI_F32), "tree");
    assert_string_equal(chosen(world, TUTTI_REDUCE, 5, 101, TUTTI_F32), "");
    assert_string_equal(chosen(world, TUTTI_REDUCE, 5, 100, TUTTI_BF16), "");
    assert_string_equal(chosen(world, TUTTI_ALLTOALL, 8, 4096, TUTTI_BF16), "pairwise");
    assert_string_equal(chosen(world, TUTTI_ALLTOALL, 9, 4096, TUTTI_F32), "");
    assert_string_equal(chosen(world, TUTTI_ALLREDUCE, 8, 5, TUTTI_I64), "halving");
    assert_string_equal(chosen(world, TUTTI_ALLREDUCE, 9, 5, TUTTI_I64), "");
    /* the old one stays */
    assert_int_equal(tutti_collective_table_text(world, "t", "all-reduce", 10, &err), TUTTI_ERR_USAGE);
    assert_string_equal(chosen(world, TUTTI_ALLREDUCE, 8, 5, TUTTI_I64), "halving");
    tutti_world_close(world);
    remove(path);
}

/* Text of any bytes, without an end of its own: read or refused. */
static void mutilated_tables_are_read_or_refused(void **state)
{
    static const char whole[] = "all-reduce 16 4096 exchange # few\nreduce * 100 tree\r\n\tall-to-all 8 * pairwise\n";
    tutti_error err = { 0 };
    tutti_world *world;
    size_t read = 0;

    (void)state;
    assert_int_equal(tutti_world_open(&world, "", &err), TUTTI_OK);
    for (uint64_t k = 0; k < 3000; k++) {
        const tutti_rng rng = { 9, k, 0 };
        const size_t bytes = (size_t)(tutti_random(rng, 0) % sizeof whole);
        char *const text = tutti_alloc(bytes, 1);
        tutti_status status;
        if (bytes > 0)
            memcpy(text, whole, bytes);
        for (uint64_t m = tutti_random(rng, 1) % 4; m > 0 && bytes > 0; m--)
            /* any byte, or any letter */
            text[tutti_random(rng, 2 * m) % bytes] = (char)(tutti_random(rng, 2 * m + 1) >> (m % 2 == 0 ? 57 : 56));
        status = tutti_collective_table_text(world, "table", text, bytes, &err);
        assert_true(status == TUTTI_OK || (status == TUTTI_ERR_USAGE && strncmp(err.text, "table:", 6) == 0));
        read += status == TUTTI_OK;
        tutti_free(text);
    }
    assert_true(read > 100 && read < 2900);
    tutti_world_close(world);
}

typedef struct comparing {
    tutti_world *world;
    uint32_t what;
    atomic_int *wrong;
} comparing;

static tutti_status compare_again_and_again(void *arg, tutti_error *err)
{
    const comparing *c = arg;

    for (uint64_t k = 0; k < UNLESS_SANITIZED(1000000, 30000); k++) {
        const tutti_group g = tutti_group_workers(c->world, c->what); /* the same each time */
        TUTTI_TRY(tutti_group_compare(&g, c->what, err));
        *c->wrong += tutti_group_compared(&g) != c->what;
        TUTTI_TRY(tutti_group_compare(&g, 0, err));
        *c->wrong += tutti_group_compared(&g) != 0;
    }
    return TUTTI_OK;
}

/* Each takes the entry that another has just given back. */
static void groups_that_begin_and_end_at_one_time_compare_what_is_theirs(void **state)
{
    tutti_error err = { 0 };
    tutti_thread *threads[3];
    comparing of[3];
    atomic_int wrong = 0;
    tutti_world *world;

    (void)state;
    assert_int_equal(tutti_world_open(&world, NULL, &err), TUTTI_OK);
    for (uint32_t k = 0; k < 3; k++) {
        of[k] = (comparing){ world, k + 1, &wrong };
        assert_int_equal(tutti_thread_open(&threads[k], tutti_world_runtime(world), "compares", compare_again_and_again,
                                           &of[k], &err),
                         TUTTI_OK);
    }
    for (int k = 0; k < 3; k++)
        assert_int_equal(tutti_thread_join(threads[k], &err), TUTTI_OK);
    assert_int_equal(wrong, 0);
    tutti_world_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_a_launcher_it_is_rank_0_of_1, clean),
        cmocka_unit_test_setup(invalid_rank_and_size_settings_are_rejected, clean),
        cmocka_unit_test_setup(other_launchers_are_refused, clean),
        cmocka_unit_test_setup(unknown_transports_are_rejected_listing_known_ones, clean),
        cmocka_unit_test_setup(the_cpu_level_can_be_lowered_by_name_only, clean),
        cmocka_unit_test_setup(transports_of_another_version_are_refused, clean),
        cmocka_unit_test_setup(ports_and_keyed_groups_are_pure_functions, clean),
        cmocka_unit_test_setup(collectives_that_have_run_before_allocate_nothing, clean),
        cmocka_unit_test_setup(groups_that_begin_and_end_at_one_time_compare_what_is_theirs, clean),
        cmocka_unit_test_setup(the_schedule_cache_returns_the_requested_schedules, clean),
        cmocka_unit_test_setup(the_schedule_cache_distinguishes_counts, clean),
        cmocka_unit_test_setup(a_table_is_read_from_a_file, clean),
        cmocka_unit_test_setup(mutilated_tables_are_read_or_refused, clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
