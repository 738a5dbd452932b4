/* The time of an all-reduce of floats between two processes of one machine in hand-written loops.
   Two pinned processes, shared memory, busy waiting, and nothing else: no groups, tags, types,
   errors or losses. src/collective/window.c is compared with it, and is faster at some sizes.

     small        up to 1024 floats: each process writes its vector after a flag, in the same
                  cache line, waits for the other's flag and adds. Bound: the time a line takes
                  from core to core, and for the lines after the first
     registered   both vectors lie in memory that both map: each process adds one half and writes
                  both.
                  Bound: 2 n bytes read and 2 n written by two processes, half of them in the
                  other's cache; above what the caches hold, the bandwidth of memory
     foreign      private vectors, in chunks. Each process copies the half that the other adds into
                  its shared half-stage. It adds the other's staged half to its own, into its vector
                  and back into that stage, and takes its sums from its stage.
                  Bound: n bytes read and n written by each, and three times n / 2 of the stages'
                  lines through the other's cache. (All of a chunk staged by each and added by each
                  for itself took 1.4 to 4 times as long.)

   usage: shm_limit [SECONDS A SIZE [MOST BYTES]]
   Prints method,bytes,median_us,min_us as CSV; the time of a call is the longer of the two
   processes'. Both processes yield in waits that last, so that it ends on a machine that is not
   its own. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CALLS = 20000, CHUNK = 65536, LINE = 128, POLLS = 20000, SMALL = 1024 }; /* CHUNK in floats: 256 KiB */

typedef struct flag { _Alignas(LINE) _Atomic long value; } flag;
typedef struct slot { _Alignas(LINE) _Atomic long turn; float x[SMALL]; } slot;
typedef struct shared {
    flag met[2], staged[2];
    slot small[2][2];
    double seconds[2][MOST_CALLS];
    _Alignas(4096) float stage[2][2][CHUNK];
} shared;

static void await(_Atomic long *f, long value)
{
    for (long n = 0; atomic_load_explicit(f, memory_order_acquire) < value; n++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        if (n > POLLS)
            sched_yield();
    }
}

static void meet(shared *s, int me, long *turn)
{
    ++*turn;
    atomic_store_explicit(&s->met[me].value, *turn, memory_order_release);
    await(&s->met[1 - me].value, *turn);
}

/* Written again two turns later: by then the other has answered the turn between, and so has
   read. */
static void small(shared *s, int me, long *turn, size_t n, float *x)
{
    slot *const mine = &s->small[me][++*turn % 2], *const other = &s->small[1 - me][*turn % 2];

    memcpy(mine->x, x, n * sizeof *x);
    atomic_store_explicit(&mine->turn, *turn, memory_order_release);
    await(&other->turn, *turn);
    for (size_t i = 0; i < n; i++)
        x[i] += other->x[i];
}

static void add_both(size_t n, float *restrict a, float *restrict b)
{
    for (size_t i = 0; i < n; i++) {
        const float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

static void registered(shared *s, int me, long *turn, size_t n, float *a, float *b)
{
    const size_t middle = n / 2 / 16 * 16;

    meet(s, me, turn);
    add_both(me == 0 ? middle : n - middle, a + (me == 0 ? 0 : middle), b + (me == 0 ? 0 : middle));
    meet(s, me, turn);
}

/* Where chunk c of n floats begins, how long it is, and the part of it that `owner` adds. */
typedef struct part { size_t at, first, count; } part;
static part part_of(size_t n, size_t c, int owner)
{
    const size_t at = c * CHUNK, count = n - at < CHUNK ? n - at : CHUNK, middle = count / 2 / 16 * 16;

    return owner == 0 ? (part){ at, 0, middle } : (part){ at, middle, count - middle };
}

/* In a turn chunk c is staged by both, announced, and added by both. A process that has announced
   it has put back the sums of chunk c - 1. */
static void foreign(shared *s, int me, long *turn, size_t n, float *x)
{
    const size_t chunks = (n + CHUNK - 1) / CHUNK;

    for (size_t c = 0; c <= chunks; c++) {
        if (c < chunks) {
            const part p = part_of(n, c, 1 - me);
            memcpy(s->stage[me][c % 2] + p.first, x + p.at + p.first, p.count * sizeof *x);
        }
        atomic_store_explicit(&s->staged[me].value, ++*turn, memory_order_release);
        await(&s->staged[1 - me].value, *turn);
        if (c < chunks) {
            const part p = part_of(n, c, me);
            add_both(p.count, x + p.at + p.first, s->stage[1 - me][c % 2] + p.first);
        }
        if (c > 0) {
            const part p = part_of(n, c - 1, 1 - me);
            memcpy(x + p.at + p.first, s->stage[me][(c - 1) % 2] + p.first, p.count * sizeof *x);
        }
    }
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void *map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        fprintf(stderr, "shm_limit: cannot map %zu bytes: %s\n", bytes, strerror(errno));
        exit(1);
    }
    return memory;
}

static void measure(shared *s, int me, long turns[3], bool windows, size_t n, double seconds, float *x,
                    float *const vector[2])
{
    const double guess = (double)n * 4 / 8e9 + 2e-7;
    int calls = (int)(seconds / guess);
    float *const mine = windows ? vector[me] : x;

    calls = calls < 9 ? 9 : calls > MOST_CALLS ? MOST_CALLS : calls;
    for (int k = -2; k < calls; k++) {
        double start;
        for (size_t i = 0; i < n; i++)
            mine[i] = 1;
        meet(s, me, &turns[0]);
        start = now();
        if (n <= SMALL)
            small(s, me, &turns[2], n, mine);
        else if (windows)
            registered(s, me, &turns[0], n, vector[0], vector[1]);
        else
            foreign(s, me, &turns[1], n, x);
        if (k >= 0)
            s->seconds[me][k] = now() - start;
        if (mine[0] != 2 || mine[n - 1] != 2) {
            fprintf(stderr, "shm_limit: wrong sum\n");
            _exit(1);
        }
    }
    meet(s, me, &turns[0]);
    if (me == 0) {
        for (int k = 0; k < calls; k++)
            s->seconds[0][k] = s->seconds[0][k] > s->seconds[1][k] ? s->seconds[0][k] : s->seconds[1][k];
        qsort(s->seconds[0], (size_t)calls, sizeof(double), ascending);
        printf("%s,%zu,%.3f,%.3f\n", windows ? "registered" : "foreign", n * 4, s->seconds[0][calls / 2] * 1e6,
               s->seconds[0][0] * 1e6);
        fflush(stdout);
    }
    meet(s, me, &turns[0]);
}

int main(int argc, char **argv)
{
    static const size_t bytes[] = { 4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20 };
    const double seconds = argc > 1 ? atof(argv[1]) : 0.1;
    const size_t most = argc > 2 ? strtoull(argv[2], NULL, 10) : bytes[6];
    shared *const s = map_shared(sizeof *s);
    float *const vector[2] = { map_shared(most), map_shared(most) };
    float *x = NULL;
    long turns[3] = { 0, 0, 0 };
    cpu_set_t core;
    pid_t child = fork();
    const int me = child == 0;
    int how = 0;

    if (child < 0 || most < 4 || posix_memalign((void **)&x, 1 << 21, most) != 0) {
        fprintf(stderr, "shm_limit: no process or memory\n");
        return 1;
    }
    if (me == 1)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    CPU_ZERO(&core);
    CPU_SET(me, &core);
    sched_setaffinity(0, sizeof core, &core); /* a wish: not every machine has a core 1 */
    if (me == 0)
        printf("method,bytes,median_us,min_us\n");
    for (int windows = 1; windows >= 0; windows--)
        for (size_t k = 0; k < sizeof bytes / sizeof *bytes && bytes[k] <= most; k++)
            measure(s, me, turns, windows == 1, bytes[k] / 4, seconds, x, vector);
    free(x);
    return me == 0 && waitpid(child, &how, 0) == child && how != 0 ? 1 : 0;
}
