/* shm_test.c: what is shm's own: finding the region, its sentences, damaged rings, which rank is
   to blame, and memory: none is allocated in a steady state, and any allocation may fail. Linked
   with --wrap=tutti_alloc. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "conformance.h"
#include "transport/shm/shm_internal.h"
#include "transport/registry.h"

/* ---- the n-th allocation of the library fails ---- */
static _Atomic long allocations, fail_at; /* 0: none */
void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size)
{
    return atomic_fetch_add(&allocations, 1) + 1 == atomic_load(&fail_at) ? NULL : __real_tutti_alloc(count, size);
}

static const tutti_transport_ops *shm(void) { return tutti_transport_find("shm"); }

static int setup(void **state)
{
    return tutti_runtime_open_posix((tutti_runtime **)state, NULL) == TUTTI_OK ? 0 : -1;
}

static int teardown(void **state)
{
    tutti_runtime_close(*state);
    return 0;
}

static void assert_says(const char *text, const char *wanted)
{
    if (strstr(text, wanted) == NULL)
        fail_msg("'%s' should contain '%s'", text, wanted);
}

/* Goal: a transport that is written but not registered, or the reverse, is seen. */
static void the_registry_lists_each_folder(void **state)
{
    DIR *directory = opendir(TUTTI_SOURCE_DIR "/src/transport");
    struct dirent *entry;
    size_t folders = 0, registered = 0;

    (void)state;
    assert_non_null(directory);
    while ((entry = readdir(directory)) != NULL) {
        char path[600];
        struct stat about;
        snprintf(path, sizeof path, "%s/src/transport/%s", TUTTI_SOURCE_DIR, entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
            continue;
        snprintf(path, sizeof path, "%s/src/transport/%s/CMakeLists.txt", TUTTI_SOURCE_DIR, entry->d_name);
        if (stat(path, &about) == 0) /* a plug-in, built by itself */
            continue;
        folders++;
        if (tutti_transport_find(entry->d_name) == NULL)
            fail_msg("src/transport/%s is not in registry.c", entry->d_name);
    }
    closedir(directory);
    for (; tutti_transports[registered] != NULL; registered++) {
        assert_int_equal(tutti_transports[registered]->abi, TUTTI_TRANSPORT_ABI);
        assert_int_equal(tutti_transports[registered]->bytes, sizeof(tutti_transport_ops));
    }
    assert_int_equal(folders, registered);
    assert_null(tutti_transport_find("nothing"));
    assert_null(tutti_transport_find(""));
}

static tutti_status open_as(tutti_runtime *rt, int rank, int size, const char *spec, const char *variable, void **t,
                            tutti_error *err)
{
    char copy[100];
    char *environment[] = { copy, NULL };
    const tutti_launch launch = {
        .rank = rank, .size = size, .spec = spec, .environment = variable != NULL ? environment : NULL
    };

    snprintf(copy, sizeof copy, "%s", variable != NULL ? variable : "");
    return shm()->open(t, rt, &launch, err);
}

static void invalid_ranks_and_shared_memory_are_rejected(void **state)
{
    char file[] = "/tmp/tutti-shm-XXXXXX", not_ours[40];
    const int fd = mkstemp(file);
    const struct { int rank, size; const char *spec, *variable; tutti_status status; const char *says;
    } cases[] = {
        { 1, 4, "shm", NULL, TUTTI_ERR_USAGE,
          "worker 1 of 4 has no shared memory: TUTTI_SHM_FD is not set; start the workers with the launcher" },
        { 0, 2, "shm", "TUTTI_SHM_FD=", TUTTI_ERR_USAGE, "TUTTI_SHM_FD='' is not the number of a file descriptor" },
        { 0, 2, "shm", "TUTTI_SHM_FD=7x", TUTTI_ERR_USAGE, "TUTTI_SHM_FD='7x' is not the number" },
        { 0, 2, "shm", "TUTTI_SHM_FD=-1", TUTTI_ERR_USAGE, "TUTTI_SHM_FD='-1' is not the number" },
        { 0, 2, "shm", "TUTTI_SHM_FD=99999999999999999999", TUTTI_ERR_USAGE, "is not the number" },
        { 0, 2, "shm", "TUTTI_SHM_FD=1000000", TUTTI_ERR_USAGE, "TUTTI_SHM_FD=1000000 is not open in this process" },
        { 0, 2, "shm", not_ours, TUTTI_ERR_USAGE,
          "is not the shared memory of a run; start the workers with the launcher, or unset TUTTI_SHM_FD, TUTTI_RANK "
          "and TUTTI_SIZE to run alone" },
        { -1, 2, "shm", NULL, TUTTI_ERR_USAGE, "worker -1 of 2 cannot be" },
        { 2, 2, "shm", NULL, TUTTI_ERR_USAGE, "worker 2 of 2 cannot be" },
        { 0, 0, "shm", NULL, TUTTI_ERR_USAGE, "worker 0 of 0 cannot be" },
        { 0, 5000, "shm", NULL, TUTTI_ERR_USAGE, "sizes are 1 to 1024" },
        { 0, 1, "shm(spin=-1)", NULL, TUTTI_ERR_USAGE, "spin" },
        { 0, 1, "shm(spine=1)", NULL, TUTTI_ERR_USAGE, "spin" },
        { 0, 1, "shm(", NULL, TUTTI_ERR_USAGE, "shm(" },
    };

    snprintf(not_ours, sizeof not_ours, "TUTTI_SHM_FD=%d", fd);
    for (int round = 0; round < 2; round++) { /* an empty file, then a long one */
        for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
            tutti_error err = { 0 };
            void *t = &err;
            assert_int_equal(open_as(*state, cases[i].rank, cases[i].size, cases[i].spec, cases[i].variable, &t, &err),
                             cases[i].status);
            assert_null(t);
            assert_says(err.text, cases[i].says);
            assert_int_equal(open_as(*state, cases[i].rank, cases[i].size, cases[i].spec, cases[i].variable, &t, NULL),
                             cases[i].status);
        }
        assert_int_equal(ftruncate(fd, 100000), 0);
    }
    close(fd);
    unlink(file);
}

static void a_mismatched_memory_region_is_rejected(void **state)
{
    tutti_shm_region region;
    tutti_error err = { 0 };
    char variable[40];
    void *t;

    assert_int_equal(tutti_shm_region_open(&region, 3, false, &err), TUTTI_OK);
    snprintf(variable, sizeof variable, "TUTTI_SHM_FD=%d", region.fd);
    assert_int_equal(open_as(*state, 0, 2, "shm", variable, &t, &err), TUTTI_ERR_USAGE);
    assert_says(err.text, "worker 0 of 2 does not fit a run of 3");
    region.header->version = 9;
    assert_int_equal(open_as(*state, 0, 3, "shm", variable, &t, &err), TUTTI_ERR_USAGE);
    assert_says(err.text, "has version 9, this library's has 2");
    region.header->version = TUTTI_SHM_VERSION;
    region.header->rings_offset += 64;
    assert_int_equal(open_as(*state, 0, 3, "shm", variable, &t, &err), TUTTI_ERR_CORRUPT);
    tutti_shm_region_close(&region);
    for (int n = -1; n <= TUTTI_SHM_RANKS + 1; n += TUTTI_SHM_RANKS + 2)
        assert_int_equal(tutti_shm_region_open(&region, n, false, &err), TUTTI_ERR_USAGE);
}

static void a_rank_can_be_claimed_only_once(void **state)
{
    tutti_shm_region region;
    tutti_error err = { 0 };
    char variable[40];
    void *t;

    assert_int_equal(tutti_shm_region_open(&region, 1, false, &err), TUTTI_OK);
    snprintf(variable, sizeof variable, "TUTTI_SHM_FD=%d", dup(region.fd)); /* close() closes it */
    assert_int_equal(open_as(*state, 0, 1, "shm", variable, &t, &err), TUTTI_OK);
    shm()->close(t);
    snprintf(variable, sizeof variable, "TUTTI_SHM_FD=%d", dup(region.fd));
    assert_int_equal(open_as(*state, 0, 1, "shm", variable, &t, &err), TUTTI_ERR_STATE);
    assert_says(err.text, "the place of worker 0 of 1 is taken already; a worker process opens one world in its life");
    tutti_shm_region_close(&region);
}

static void a_rank_may_be_alone(void **state)
{
    tutti_error err = { 0 };
    void *t, *part;

    for (int i = 0; i < 3; i++) { /* its own region each time */
        assert_int_equal(open_as(*state, 0, 1, i == 0 ? "" : i == 1 ? "shm" : "shm(spin=0)", NULL, &t, &err), TUTTI_OK);
        assert_int_equal(shm()->window(t, "w", 100, &part, &err), TUTTI_OK);
        memset(part, 1, 100);
        assert_int_equal(shm()->dead_peer(t, NULL, 0), -1);
        shm()->close(t);
    }
    shm()->close(NULL);
}

static void the_rings_of_many_ranks_stay_small(void **state)
{
    tutti_shm_region region;
    struct stat about;

    (void)state;
    assert_int_equal(tutti_shm_region_open(&region, 64, false, NULL), TUTTI_OK);
    assert_int_equal(fstat(region.fd, &about), 0);
    assert_true(about.st_size <= 64 << 20);
    assert_true((uint64_t)about.st_blocks * 512 >= region.header->bytes); /* reserved, not promised */
    assert_int_equal(about.st_nlink, 0);                                  /* it has no name */
    assert_int_equal(about.st_mode & 0777, 0600);
    tutti_shm_region_close(&region);
}

/* A file beyond the limit of size would raise SIGXFSZ. */
static void a_file_size_limit_is_reported_as_an_error(void **state)
{
    const pid_t pid = fork();
    int how;

    (void)state;
    if (pid == 0) {
        const struct rlimit limit = { 10000, 10000 };
        tutti_shm_region region;
        tutti_error err = { 0 };
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(tutti_shm_region_open(&region, 2, false, &err) == TUTTI_ERR_MEMORY &&
                      strstr(err.text, "ulimit -f") != NULL
                  ? 0
                  : 1);
    }
    waitpid(pid, &how, 0);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

/* ---- which rank is to blame ---- */
static void fail_rank(const tutti_shm_region *region, int rank, tutti_status status, int because, int signal)
{
    tutti_error err = { .status = status, .rank = because };

    snprintf(err.text, sizeof err.text, "words of %d", rank);
    tutti_shm_depart(region, rank, signal != 0 ? TUTTI_SHM_LOST : TUTTI_SHM_FAILED, &err, signal);
}

static void failures_are_attributed_to_the_root_cause(void **state)
{
    tutti_shm_region region;
    char text[100], small[10];

    (void)state;
    assert_int_equal(tutti_shm_region_open(&region, 6, false, NULL), TUTTI_OK);
    assert_int_equal(tutti_shm_culprit(&region), -1);
    tutti_shm_depart(&region, 5, TUTTI_SHM_CLOSED, NULL, 0);
    assert_int_equal(tutti_shm_culprit(&region), -1);
    fail_rank(&region, 0, TUTTI_ERR_PEER, 1, 0);
    assert_int_equal(tutti_shm_culprit(&region), 0);
    fail_rank(&region, 1, TUTTI_ERR_PEER, 2, 0);
    assert_int_equal(tutti_shm_root(&region, 0), 2); /* not known to have failed, but blamed */
    fail_rank(&region, 2, TUTTI_ERR_NUMBER, -1, 0);
    assert_int_equal(tutti_shm_root(&region, 0), 2);
    assert_int_equal(tutti_shm_culprit(&region), 2);
    fail_rank(&region, 3, TUTTI_ERR_NUMBER, -1, 0); /* later */
    assert_int_equal(tutti_shm_culprit(&region), 2);
    fail_rank(&region, 4, TUTTI_ERR_STATE, -1, SIGSEGV); /* killed beats reports */
    assert_int_equal(tutti_shm_culprit(&region), 4);
    fail_rank(&region, 2, TUTTI_ERR_USAGE, -1, 0); /* the first failure report stays */
    assert_int_equal(region.header->ranks[2].status, TUTTI_ERR_NUMBER);
    tutti_shm_describe(&region, 2, text, sizeof text);
    assert_string_equal(text, "worker 2 failed: words of 2");
    tutti_shm_describe(&region, 4, text, sizeof text);
    assert_string_equal(text, "worker 4 was lost: words of 4");
    tutti_shm_describe(&region, 5, small, sizeof small);
    assert_string_equal(small, "worker 5 ");
    tutti_shm_region_close(&region);

    assert_int_equal(tutti_shm_region_open(&region, 2, false, NULL), TUTTI_OK); /* a circle */
    fail_rank(&region, 0, TUTTI_ERR_PEER, 1, 0);
    fail_rank(&region, 1, TUTTI_ERR_PEER, 0, 0);
    assert_in_range(tutti_shm_root(&region, 0), 0, 1);
    assert_int_equal(tutti_shm_culprit(&region), 0);
    tutti_shm_region_close(&region);
}

/* ---- damage: a rank writes nonsense into its rings ---- */
typedef enum { BAD_KIND, BAD_TAIL, BAD_DATA_TAIL, BAD_FRAGMENT, STRANGE_IDS, DAMAGES } damage;

static tutti_status damage_rings(shm_endpoint *e, damage how)
{
    shm_peer *p = &e->peers[0];
    shm_entry entry = { .kind = SHM_CLEAR, .send_id = UINT64_MAX, .message_id = 12345 };

    pthread_mutex_lock(&e->lock);
    switch (how) {
    case BAD_KIND:
        entry.kind = 77;
        tutti_shm_put(e, p, &entry, NULL, 0);
        break;
    case BAD_TAIL:
        atomic_store(&p->out->control_tail, p->out_control_tail + 1000);
        break;
    case BAD_DATA_TAIL:
        atomic_store(&p->out->data_tail, UINT32_C(1) << 30);
        break;
    case BAD_FRAGMENT:
        memcpy(p->out_data, &(shm_fragment){ .message_id = 0, .bytes = 4000 }, sizeof(shm_fragment));
        atomic_store(&p->out->data_tail, 32);
        break;
    default:
        /* answers to what was never asked, of slots that are free, in use, or do not exist */
        for (uint64_t i = 0; i < 60; i++) {
            static const shm_kind kinds[] = { SHM_CLEAR, SHM_TAKEN, SHM_REWIND, SHM_WITHDRAW };
            entry.kind = kinds[i % 4];
            entry.send_id = i < 30 ? i : i << 32 | i % 3;
            tutti_shm_put(e, p, &entry, NULL, 0);
        }
        memcpy(p->out_data, &(shm_fragment){ .message_id = 5, .bytes = 16 }, sizeof(shm_fragment));
        atomic_store(&p->out->data_tail, 32);
        break;
    }
    tutti_shm_send_wakeups(e, 0);
    pthread_mutex_unlock(&e->lock);
    return TUTTI_OK;
}

static tutti_status damaged(const tutti_launch *launch, void *arg, tutti_error *err)
{
    const damage how = *(const damage *)arg;
    tutti_request r = { 0 }, *list = &r;
    tutti_runtime *rt;
    tutti_status status;
    size_t done;
    void *t;

    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    status = shm()->open(&t, rt, launch, err);
    if (status == TUTTI_OK && launch->rank == 0) {
        status = shm()->recv(t, &r, 1, 1, tutti_nothing(), err);
        if (status == TUTTI_OK)
            status = shm()->wait_some(t, &list, 1, 1, TUTTI_FOREVER, &done, err);
        if (status == TUTTI_OK && r.status != TUTTI_OK)
            status = tutti_fail_rank(err, r.status, r.rank, "the receive ended");
        shm()->cancel(t, &r);
    } else if (status == TUTTI_OK) {
        damage_rings(t, how);
        if (how == STRANGE_IDS) {
            status = shm()->send(t, &r, 0, 1, NULL, tutti_nothing(), err);
            if (status == TUTTI_OK)
                status = shm()->wait_some(t, &list, 1, 1, TUTTI_FOREVER, &done, err);
        }
    }
    if (t != NULL)
        /* the other one learns that this one has left, and looks at the data ring then */
        shm()->close(t);
    tutti_runtime_close(rt);
    return status;
}

static void damaged_rings_are_reported_as_corrupt(void **state)
{
    for (damage how = BAD_KIND; how < DAMAGES; how++) {
        const tutti_launch launch = { .size = 2, .spec = "shm" };
        tutti_error err = { 0 };
        const tutti_status status = shm()->run(*state, &launch, damaged, &how, &err);
        if (how == STRANGE_IDS) {
            if (status != TUTTI_OK)
                fail_msg("%s", err.text);
        } else {
            assert_int_equal(status, TUTTI_ERR_CORRUPT);
            assert_says(err.text, "worker 1 ");
            assert_says(err.text, "its memory is damaged");
        }
    }
}

/* ---- memory ---- */
enum { SLOTS = 8, MOST = 100000 };

static tutti_status one_round(const shm_endpoint *e, void *t, tutti_request *requests, unsigned char *out,
                              unsigned char *in, tutti_error *err)
{
    static const size_t sizes[SLOTS] = { 0, 8, TUTTI_SHM_INLINE, TUTTI_SHM_INLINE + 1, 5000, MOST, 1, 70000 };
    tutti_request *list[2 * SLOTS];
    size_t done;

    for (uint64_t i = 0; i < SLOTS; i++) {
        list[i] = &requests[i];
        list[SLOTS + i] = &requests[SLOTS + i];
        TUTTI_TRY(shm()->send(t, list[i], (e->rank + 1) % e->size, i, NULL, tutti_host(out, sizes[i], TUTTI_U8), err));
    }
    for (uint64_t i = 0; i < SLOTS; i++)
        TUTTI_TRY(shm()->recv(t, list[SLOTS + i], (e->rank + e->size - 1) % e->size, i,
                              tutti_host(in, sizes[i], TUTTI_U8), err));
    TUTTI_TRY(shm()->wait_some(t, list, 2 * SLOTS, 2 * SLOTS, TUTTI_FOREVER, &done, err));
    for (size_t i = 0; i < 2 * SLOTS; i++) {
        if (requests[i].status != TUTTI_OK)
            return tutti_fail_rank(err, requests[i].status, requests[i].rank, "a request failed");
    }
    return TUTTI_OK;
}

static tutti_status rounds(void *t, int n, unsigned char *out, unsigned char *in, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    for (int round = 0; round < n && status == TUTTI_OK; round++) {
        tutti_request requests[2 * SLOTS];
        memset(requests, 0, sizeof requests);
        status = one_round(t, t, requests, out, in, err);
        for (size_t i = 0; i < 2 * SLOTS; i++)
            shm()->cancel(t, &requests[i]);
    }
    return status;
}

typedef struct { _Atomic long before, after; int rounds; } counts;

static tutti_status count_allocations(const tutti_launch *launch, void *arg, tutti_error *err)
{
    static const unsigned char zeros[MOST];
    unsigned char *out = (unsigned char *)(uintptr_t)zeros, *in = malloc(MOST);
    counts *c = arg;
    tutti_runtime *rt;
    tutti_status status;
    void *t = NULL, *parts[8];

    status = tutti_runtime_open_posix(&rt, err);
    if (status == TUTTI_OK)
        status = shm()->open(&t, rt, launch, err);
    if (status == TUTTI_OK)
        status = shm()->window(t, "w", 100, parts, err);
    if (status == TUTTI_OK)
        status = rounds(t, 3, out, in, err);
    if (status == TUTTI_OK && c->rounds > 0) {
        tutti_shm_meet(t, err);
        if (launch->rank == 0)
            c->before = atomic_load(&allocations);
        tutti_shm_meet(t, err);
        status = rounds(t, c->rounds, out, in, err);
        tutti_shm_meet(t, err);
        if (launch->rank == 0)
            c->after = atomic_load(&allocations);
        tutti_shm_meet(t, err);
    }
    if (status != TUTTI_OK && t != NULL)
        shm()->failure_report(t, err);
    if (t != NULL)
        shm()->close(t);
    tutti_runtime_close(rt);
    free(in);
    return status;
}

static void nothing_is_allocated_in_a_steady_state(void **state)
{
    for (int n = 1; n <= 5; n += 2) {
        const tutti_launch launch = { .size = n, .spec = "shm" };
        counts c = { .rounds = 60 };
        tutti_error err = { 0 };
        if (shm()->run(*state, &launch, count_allocations, &c, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        assert_int_equal(c.before, c.after);
        assert_true(c.before > 0);
    }
}

/* Method: fail the 1st, 2nd, 3rd ... allocation until the run needs no more. No hang, no leak
   (the address sanitizer sees), and a status that fits what happened. */
static void any_allocation_may_fail(void **state)
{
    long k;
    tutti_status status = TUTTI_ERR_MEMORY;

    for (k = 1; k < 200; k++) {
        const tutti_launch launch = { .size = 3, .spec = "shm" };
        counts c = { .rounds = 0 };
        tutti_error err = { 0 };
        atomic_store(&allocations, 0);
        atomic_store(&fail_at, k);
        status = shm()->run(*state, &launch, count_allocations, &c, &err);
        atomic_store(&fail_at, 0);
        if (status == TUTTI_OK && atomic_load(&allocations) < k)
            break;
        if (status != TUTTI_OK && status != TUTTI_ERR_MEMORY)
            fail_msg("allocation %ld: %s: %s", k, tutti_status_name(status), err.text);
    }
    assert_int_equal(status, TUTTI_OK);
    assert_true(k > 15);
}

/* ---- run ---- */
static int threads_left;
static int few_threads(void *self, void **thread, const char *name, void (*run)(void *arg), void *arg)
{
    tutti_runtime *below = self;

    return threads_left-- > 0 ? below->ops->thread_open(below->self, thread, name, run, arg) : EAGAIN;
}

static void threads_that_cannot_be_started_end_the_run(void **state)
{
    tutti_runtime *below = *state;
    tutti_runtime_ops ops = *below->ops;
    tutti_runtime made = { &ops, below };
    const tutti_launch launch = { .size = 4, .spec = "shm" };

    ops.thread_open = few_threads;
    for (int n = 0; n < 4; n++) {
        counts c = { .rounds = 0 };
        tutti_error err = { 0 };
        threads_left = n;
        assert_int_equal(shm()->run(&made, &launch, count_allocations, &c, &err), TUTTI_ERR_IO);
        assert_says(err.text, "cannot start thread 'worker-");
    }
}

static tutti_status come_unless_one(const tutti_launch *launch, void *arg, tutti_error *err)
{
    tutti_runtime *rt;
    tutti_status status;
    void *t;

    if (launch->rank == 1)
        return *(tutti_status *)arg; /* never opens, and reports nothing */
    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    status = shm()->open(&t, rt, launch, err);
    if (status == TUTTI_OK)
        shm()->close(t);
    tutti_runtime_close(rt);
    return status;
}

static void a_rank_that_never_joins_does_not_hang_others(void **state)
{
    const tutti_launch launch = { .size = 3, .spec = "shm" };
    tutti_status says = TUTTI_ERR_USAGE;
    tutti_error err = { 0 };

    assert_int_equal(shm()->run(*state, &launch, come_unless_one, &says, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "worker 1 ended with 'usage' and no sentence");
    says = TUTTI_OK;
    assert_int_equal(shm()->run(*state, &launch, come_unless_one, &says, &err), TUTTI_ERR_PEER);
    assert_string_equal(err.text, "worker 1 has left the run");
    assert_int_equal(err.rank, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_registry_lists_each_folder),
        cmocka_unit_test(invalid_ranks_and_shared_memory_are_rejected),
        cmocka_unit_test(a_mismatched_memory_region_is_rejected),
        cmocka_unit_test(a_rank_can_be_claimed_only_once),
        cmocka_unit_test(a_rank_may_be_alone),
        cmocka_unit_test(the_rings_of_many_ranks_stay_small),
        cmocka_unit_test(a_file_size_limit_is_reported_as_an_error),
        cmocka_unit_test(failures_are_attributed_to_the_root_cause),
        cmocka_unit_test(damaged_rings_are_reported_as_corrupt),
        cmocka_unit_test(nothing_is_allocated_in_a_steady_state),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(threads_that_cannot_be_started_end_the_run),
        cmocka_unit_test(a_rank_that_never_joins_does_not_hang_others),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
