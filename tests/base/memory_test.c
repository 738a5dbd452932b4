/* Goal: memory is zeroed, aligned and refused rather than wrapped round; hashes and CPU levels
   agree with independent sources. */
#include "base_test.h"
#include "base/crc32c.h"
#include "base/machine.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/base_internal.h"

static void memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes <= 300; bytes++) {
        for (int again = 0; again < 2; again++) { /* the second time from memory that was just written */
            unsigned char *memory = tutti_alloc(bytes, 1);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 64, 0);
            for (size_t i = 0; i < bytes; i++)
                assert_int_equal(memory[i], 0);
            memset(memory, 0xFF, bytes);
            tutti_free(memory);
        }
    }
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    static const size_t pairs[][2] = {
        { SIZE_MAX, 2 },
        { 2, SIZE_MAX },
        { SIZE_MAX, SIZE_MAX },
        { SIZE_MAX / 2, 3 },
        { SIZE_MAX, 1 },
        { 1, SIZE_MAX - 62 },
        { (size_t)1 << 32, (size_t)1 << 32 },
        { PTRDIFF_MAX, 1 },
        { (size_t)PTRDIFF_MAX + 1, 1 },
    };
    size_t out;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(pairs); i++) {
        errno = 0;
        assert_null(tutti_alloc(pairs[i][0], pairs[i][1]));
        assert_int_equal(errno, ENOMEM);
    }
    out = 5;
    assert_false(tutti_size_mul(SIZE_MAX, 2, &out));
    assert_int_equal(out, 0);
    assert_true(tutti_size_mul(SIZE_MAX, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_true(tutti_size_mul(0, SIZE_MAX, &out));
    assert_int_equal(out, 0);
    out = 5;
    assert_false(tutti_size_add(SIZE_MAX, 1, &out));
    assert_int_equal(out, 0);
    assert_true(tutti_size_add(SIZE_MAX, 0, &out));
    assert_true(out == SIZE_MAX);
}

static void a_copy_of_text_is_a_copy(void **state)
{
    static const char text[] = "na\xC3\xAFve";
    char *copy = tutti_copy_text(text), *empty = tutti_copy_text("");

    (void)state;
    assert_string_equal(copy, text);
    assert_ptr_not_equal(copy, text);
    assert_string_equal(empty, "");
    tutti_free(copy);
    tutti_free(empty);
}

/* Known answers of XXH3_64bits with seed 0, as other implementations publish them. */
static void hashes_are_xxh3(void **state)
{
    (void)state;
    assert_true(tutti_hash("", 0) == UINT64_C(0x2D06800538D394C2));
    assert_true(tutti_hash("a", 1) == UINT64_C(0xE6C632B61E964E1F));
    assert_true(tutti_hash("abc", 3) == UINT64_C(0x78AF5F94892F3950));
}

/* The examples of RFC 3720, appendix B.4, and the check value of the catalogues of CRCs. */
static void crc32c_is_that_of_rfc_3720(void **state)
{
    unsigned char bytes[32] = { 0 };

    (void)state;
    assert_int_equal(tutti_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(tutti_crc32c("", 0), 0);
    assert_int_equal(tutti_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(tutti_crc32c(bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(tutti_crc32c(bytes, 32), 0x46dd794e);
}

static void the_cpu_level_matches_compiler_detection(void **state)
{
    const tutti_cpu best = tutti_cpu_best();

    (void)state;
    assert_string_equal(tutti_cpu_name(TUTTI_CPU_SCALAR), "scalar");
    assert_string_equal(tutti_cpu_name((tutti_cpu)9), "unknown");
#if defined(__x86_64__)
    assert_string_equal(tutti_cpu_name(TUTTI_CPU_AVX2), "avx2");
    assert_string_equal(tutti_cpu_name(TUTTI_CPU_AVX512), "avx512");
    __builtin_cpu_init();
    {
        const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        const int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
        assert_int_equal(best, avx512 ? TUTTI_CPU_AVX512 : avx2 ? TUTTI_CPU_AVX2 : TUTTI_CPU_SCALAR);
    }
#elif defined(__aarch64__)
    assert_string_equal(tutti_cpu_name(TUTTI_CPU_NEON), "neon");
    assert_string_equal(tutti_cpu_name(TUTTI_CPU_AVX512), "unknown");
    assert_int_equal(best, TUTTI_CPU_NEON);
#else
    assert_int_equal(best, TUTTI_CPU_SCALAR);
#endif
}

/* A variable's whole name counts, not its beginning; the first one counts, and an empty value is
   a value. */
static void a_variable_is_found_by_its_whole_name(void **state)
{
    char longer[] = "RANKS=8", none[] = "RANK", first[] = "RANK=3", second[] = "RANK=4", empty[] = "EMPTY=";
    char *const environment[] = { longer, none, first, second, empty, NULL };

    (void)state;
    assert_ptr_equal(tutti_variable(environment, "RANK"), first + 5);
    assert_string_equal(tutti_variable(environment, "RANKS"), "8");
    assert_string_equal(tutti_variable(environment, "EMPTY"), "");
    assert_null(tutti_variable(environment, "RAN"));
    assert_null(tutti_variable(NULL, "RANK"));
}

/* ---- control groups: files in the places of Linux's ---- */
static int remove_entry(const char *path, const struct stat *s, int kind, struct FTW *where)
{
    (void)s; (void)kind; (void)where;
    return remove(path);
}

typedef struct { const char *path, *text; } made_file;

/* Files below a folder of their own, which is removed afterwards. */
static void limits_are(const made_file *files, int cores, size_t bytes)
{
    char root[] = "/tmp/tutti_cgroup_XXXXXX", path[400];

    assert_non_null(mkdtemp(root));
    for (; files->path != NULL; files++) {
        FILE *f;
        snprintf(path, sizeof path, "%s/%s", root, files->path);
        for (char *slash = path + sizeof root; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
            *slash = '\0';
            mkdir(path, 0755);
        }
        assert_non_null(f = fopen(path, "w"));
        fputs(files->text, f);
        fclose(f);
    }
    assert_int_equal(tutti_base_quota_of(root), cores);
    assert_true(tutti_base_memory_of(root) == bytes);
    nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}
#define GROUP "proc/self/cgroup"
#define TOP "sys/fs/cgroup"

static void limits_of_control_groups_are_read(void **state)
{
    (void)state;
    limits_are((made_file[]){ { NULL, NULL } }, INT_MAX, SIZE_MAX); /* no control groups at all */
    /* docker --cpus=1.5 --memory=1g, version 2: the container's root is the group */
    limits_are((made_file[]){ { GROUP, "0::/\n" },
                              { TOP "/cpu.max", "150000 100000\n" },
                              { TOP "/memory.max", "1073741824\n" },
                              { NULL, NULL } },
               1, 1u << 30);
    limits_are(
        (made_file[]){
            { GROUP, "0::/\n" }, { TOP "/cpu.max", "max 100000\n" }, { TOP "/memory.max", "max\n" }, { NULL, NULL } },
        INT_MAX, SIZE_MAX);
    /* a quarter of a core is one thread */
    limits_are((made_file[]){ { GROUP, "0::/\n" }, { TOP "/cpu.max", "25000 100000\n" }, { NULL, NULL } }, 1, SIZE_MAX);
    /* the least limit on the path counts, whichever group has it; groups off the path do not
       count */
    limits_are((made_file[]){ { GROUP, "0::/slice/job/step\n" },
                              { TOP "/slice/cpu.max", "400000 100000\n" },
                              { TOP "/slice/job/cpu.max", "300000 100000\n" },
                              { TOP "/slice/job/step/cpu.max", "max 100000\n" },
                              { TOP "/slice/other/cpu.max", "100000 100000\n" },
                              { TOP "/slice/memory.max", "4096000\n" },
                              { TOP "/slice/job/memory.max", "8192000\n" },
                              { NULL, NULL } },
               3, 4096000);
    /* version 1, a folder a controller, in a container that sees its host's path */
    limits_are(
        (made_file[]){
            { GROUP, "12:pids:/docker/abc\n4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/docker/abc\n" },
            { TOP "/cpu/cpu.cfs_quota_us", "200000\n" },
            { TOP "/cpu/cpu.cfs_period_us", "100000\n" },
            { TOP "/memory/memory.limit_in_bytes", "536870912\n" },
            { NULL, NULL } },
        2, 1u << 29);
    limits_are((made_file[]){ { GROUP, "4:memory:/a\n3:cpu,cpuacct:/a\n" },
                              { TOP "/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n" },
                              { TOP "/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n" },
                              /* no limit, as version 1 says it */
                              { TOP "/memory/a/memory.limit_in_bytes", "9223372036854771712\n" },
                              { NULL, NULL } },
               INT_MAX, SIZE_MAX);
    limits_are((made_file[]){ { GROUP, "3:cpu,cpuacct:/a\n" },
                              { TOP "/cpu,cpuacct/a/cpu.cfs_quota_us", "700000\n" },
                              { TOP "/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n" },
                              { NULL, NULL } },
               7, SIZE_MAX);
    /* not in it */
    limits_are((made_file[]){ { GROUP, "3:cpuset:/a\n" },
                              { TOP "/cpu/a/cpu.cfs_quota_us", "100000\n" },
                              { TOP "/cpu/a/cpu.cfs_period_us", "100000\n" },
                              { NULL, NULL } },
               INT_MAX, SIZE_MAX);
    /* nonsense sets no limit */
    limits_are((made_file[]){ { GROUP, "rubbish\n::\n0:\n0::relative\n0::/\n" },
                              { TOP "/cpu.max", "100000\n" },
                              { TOP "/memory.max", "" },
                              { NULL, NULL } },
               INT_MAX, SIZE_MAX);
    limits_are((made_file[]){ { GROUP, "0::/\n" }, { TOP "/cpu.max", "100000 0\n" }, { NULL, NULL } }, INT_MAX,
               SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_variable_is_found_by_its_whole_name),
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(a_copy_of_text_is_a_copy),
        cmocka_unit_test(hashes_are_xxh3),
        cmocka_unit_test(crc32c_is_that_of_rfc_3720),
        cmocka_unit_test(the_cpu_level_matches_compiler_detection),
        cmocka_unit_test(limits_of_control_groups_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
