/* Goal: a step allocates nothing of ours once it is warm: not the engine, the network, the
   loader, a lane, a service, a collective or the transport. Method: the trainer itself, its ranks
   threads of this program, in which malloc and its relatives are ours and count.
   tutti_engine_pass_begin and tutti_engine_step are wrapped by the linker, so that a rank's own
   thread counts from the first pass of a step to the step's end and not while it reports or
   evaluates; all other threads (lanes, loaders, services) count from when every rank is warm
   until one comes near its end. oneDNN allocates when it executes (5 to 7 times a primitive, and
   no setting avoids it): calls that come from its library, or from the C++ and OpenMP libraries
   under it, are recognised by their return address and not counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/train_internal.h"
#include "mnist.h"
#include "scratch.h"
#include "data/clicks.h"
#include "tutti/base.h"
#include "tutti/tutti.h"

enum { STEPS = 150, WARM = 60, NEAR_END = STEPS - 5, FRAMES = 16, LIBRARIES_MOST = 8 };

typedef struct range { uintptr_t begin, end; } range;
static range foreign[LIBRARIES_MOST];
static int n_foreign;

static _Atomic int warm, ranks;              /* ranks that are warm, of `ranks` */
static _Atomic bool ended;
static _Atomic uint64_t ours, theirs, watched; /* allocations of the warm; watched: steps that counted */
static void *first_trace[FRAMES];            /* where the first of ours came from */
static int first_frames;

static _Thread_local enum { OTHER, RESTING, STEPPING } doing; /* OTHER: not a rank's own thread */
static _Thread_local uint64_t steps_here;

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
static _Thread_local bool tracing;           /* backtrace may allocate */

static void count(const void *caller)
{
    const uintptr_t at = (uintptr_t)caller;

    if (tracing || !(doing == STEPPING ? steps_here >= WARM : doing == OTHER && ranks > 0 && warm == ranks && !ended))
        return;
    for (int i = 0; i < n_foreign; i++)
        if (at >= foreign[i].begin && at < foreign[i].end) {
            theirs++;
            return;
        }
    if (ours++ == 0) {
        tracing = true;
        first_frames = backtrace(first_trace, FRAMES);
        tracing = false;
    }
}

void *malloc(size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *memory, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_realloc(memory, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    count(__builtin_return_address(0));
    *out = __libc_memalign(alignment, bytes);
    return *out != NULL ? 0 : ENOMEM;
}

static int note_library(struct dl_phdr_info *info, size_t size, void *unused)
{
    static const char *const names[] = { "libdnnl", "libstdc++", "libgomp" };

    (void)size, (void)unused;
    for (size_t k = 0; k < TUTTI_LENGTH(names); k++)
        for (int i = 0; strstr(info->dlpi_name, names[k]) != NULL && i < info->dlpi_phnum; i++) {
            const ElfW(Phdr) *part = &info->dlpi_phdr[i];
            if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0 && n_foreign < LIBRARIES_MOST)
                foreign[n_foreign++] =
                    (range){ info->dlpi_addr + part->p_vaddr, info->dlpi_addr + part->p_vaddr + part->p_memsz };
        }
    return 0;
}

/* ---- the wrapped calls ---- */
tutti_status __real_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err);
tutti_status __real_tutti_engine_step(tutti_engine *e, tutti_error *err);
tutti_status __wrap_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err);
tutti_status __wrap_tutti_engine_step(tutti_engine *e, tutti_error *err);

tutti_status __wrap_tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err)
{
    if (doing == RESTING && steps_here == WARM)
        warm++;
    if (doing == RESTING && steps_here == NEAR_END)
        ended = true;
    doing = STEPPING;
    return __real_tutti_engine_pass_begin(e, pass, err);
}

tutti_status __wrap_tutti_engine_step(tutti_engine *e, tutti_error *err)
{
    const tutti_status status = __real_tutti_engine_step(e, err);

    doing = RESTING;
    watched += steps_here >= WARM;
    steps_here++;
    return status;
}

/* ---- */
static char folder[SCRATCH_PATH];

/* 600 windows of 8 bytes, and 600 clicks. */
static void make_data(void)
{
    const tutti_click_model m = { .seed = 1, .values = 30, .zipf = 1, .spread = 1, .missing = 0.1 };
    char path[300], line[TUTTI_CLICKS_LINE_MOST];
    FILE *f;

    snprintf(path, sizeof path, "%s/text", folder);
    f = fopen(path, "w");
    for (int i = 0; i < 5000 && f != NULL; i++)
        putc("abcdefgh \n"[tutti_random((tutti_rng){ .seed = 1 }, (uint64_t)i) % 10], f);
    assert_true(f != NULL && fclose(f) == 0);
    snprintf(path, sizeof path, "%s/clicks", folder);
    f = fopen(path, "w");
    for (uint64_t k = 0; k < 600 && f != NULL; k++) {
        tutti_click click;
        double p;
        tutti_click_draw(&m, k, &click, &p);
        fwrite(line, 1, tutti_click_print(&click, line), f);
    }
    assert_true(f != NULL && fclose(f) == 0);
}

static int set_up(void **state)
{
    void *frames[2];

    (void)state;
    dl_iterate_phdr(note_library, NULL);
    backtrace(frames, 2); /* loads what it needs */
    scratch_make(folder);
    make_data();
    small_mnist(folder, "data", 600, 200);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_train_io io = { 0 };
    tutti_status status;

    doing = RESTING;
    steps_here = 0;
    status = tutti_train_worker(world, arg, &io, err);
    ended = true;
    doing = OTHER;
    return status;
}

/* An epoch of 600 samples is shorter than the warm-up, so that its last, shorter step and an
   evaluation come before it ends. */
static void watch_on(const char *spec, const char *method, const char *model, const char *codec, int n,
                     int64_t accumulate)
{
    char data[600], out[600];
    tutti_train_config c;
    tutti_runtime *rt;
    tutti_error err = { .rank = -1 };
    tutti_status status;

    snprintf(data, sizeof data, spec, folder); /* a spec of the data with the folder in it */
    snprintf(out, sizeof out, "%s/%s-%s", folder, method, model);
    tutti_options_default(tutti_train_options, &c);
    c.data = data;
    c.out = out;
    c.model = model;
    c.method = method;
    c.codec = codec;
    c.n = n;
    c.steps = STEPS;
    c.batch = 8;
    c.accumulate = accumulate;
    c.threads = 1;
    c.quiet = true;
    c.final_eval = TUTTI_FINAL_EVAL_OFF;
    c.overwrite = true; /* the same directory again */
    c.report_every = 10;
    assert_int_equal(tutti_train_check(&c, 2, &err), TUTTI_OK);
    assert_int_equal(tutti_runtime_open_posix(&rt, &err), TUTTI_OK);
    assert_int_equal(tutti_train_prepare(rt, &c, &err), TUTTI_OK);
    tutti_runtime_close(rt);

    ended = false;
    warm = 0;
    ranks = n;
    ours = theirs = watched = 0;
    first_frames = 0;
    status = tutti_world_run("shm", n, rank_main, &c, &err);
    ranks = 0;
    if (status != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_true(watched >= STEPS - WARM); /* in an asynchronous run one rank may have made most of them */
    if (ours > 0) {
        backtrace_symbols_fd(first_trace, first_frames, STDERR_FILENO);
        fail_msg("%s, %s: %llu allocations of ours in %llu steps; the first came from the trace above (addr2line -fe)",
                 method, model, (unsigned long long)ours, (unsigned long long)watched);
    }
}

static void watch(const char *method, const char *model, int n, int64_t accumulate)
{
    watch_on("%s/data", method, model, NULL, n, accumulate);
}

static void allocation_counter_counts_library_allocations(void **state)
{
    (void)state;
    steps_here = WARM;
    ours = 0;
    doing = STEPPING;
    tutti_free(tutti_alloc(3, 5));
    doing = RESTING;
    tutti_free(tutti_alloc(3, 5));
    assert_int_equal(ours, 1);
}

static void warm_step_of_ddp_allocates_no_library_memory(void **state)
{
    (void)state;
    watch("ddp", "mlp(hidden=300)", 2, 1); /* its gradients are pieces large enough for the lane */
    watch("ddp(bucket_mb=0.3)", "mlp(hidden=300)", 3, 2);
    watch("ddp", "cnn", 2, 1);
}

/* Messages of lengths that differ from step to step: to all, and to their owners and back. */
static void warm_step_with_a_codec_allocates_no_library_memory(void **state)
{
    (void)state;
    watch_on("%s/data", "ddp", "mlp(hidden=40)", "qsgd(bits=4,coding=elias)", 2, 1);
    watch_on("%s/data", "ddp", "mlp(hidden=40)", "qsgd(bits=4,coding=elias)", 4, 1);
}

static void warm_step_of_local_sgd_allocates_no_library_memory(void **state)
{
    (void)state;
    watch("local-sgd(period=4)", "mlp(hidden=40)", 3, 1);
}

static void warm_step_of_d_psgd_allocates_no_library_memory(void **state)
{
    (void)state;
    watch("d-psgd", "mlp(hidden=40)", 4, 1);
}

static void warm_step_of_ad_psgd_allocates_no_library_memory(void **state)
{
    (void)state;
    watch("ad-psgd", "mlp(hidden=40)", 4, 1);
}

static void warm_step_on_tokens_allocates_no_library_memory(void **state)
{
    (void)state;
    watch_on("text(file=%s/text,context=8)", "ddp", "gpt(layers=1,dim=16,heads=2,context=8)", NULL, 2, 2);
}

/* Between workers the number of rows that travel differs from step to step. */
static void warm_step_on_clicks_allocates_no_library_memory(void **state)
{
    (void)state;
    watch_on("clicks(file=%s/clicks,rows=1000)", "ddp", "ctr(dim=4,layers=1,hidden=8)", NULL, 1, 2);
    watch_on("clicks(file=%s/clicks,rows=1000)", "ddp", "ctr(dim=4,layers=1,hidden=8)", NULL, 3, 2);
    watch_on("clicks(file=%s/clicks,rows=1000)", "parameter-server", "ctr(dim=4,layers=1,hidden=8)", NULL, 2, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocation_counter_counts_library_allocations),
        cmocka_unit_test(warm_step_of_ddp_allocates_no_library_memory),
        cmocka_unit_test(warm_step_on_tokens_allocates_no_library_memory),
        cmocka_unit_test(warm_step_on_clicks_allocates_no_library_memory),
        cmocka_unit_test(warm_step_with_a_codec_allocates_no_library_memory),
        cmocka_unit_test(warm_step_of_local_sgd_allocates_no_library_memory),
        cmocka_unit_test(warm_step_of_d_psgd_allocates_no_library_memory),
        cmocka_unit_test(warm_step_of_ad_psgd_allocates_no_library_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
