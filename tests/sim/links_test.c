/* Goal: no worker of a server waits for another's slow link. Method: a toy client whose computation
   takes a given time, a dedicated server, hosts on links with given rates, in
   virtual time; bounds follow from bytes and rates. A message takes latency + bytes / rate,
   and messages share a link evenly. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "forked.h"
#include "tutti/tutti.h"
#include "tutti/method.h"

enum {
    MOST = 8,
    STEPS_MOST = 700,
    PARAMETERS = 7850,
    HEADER = 40
}; /* logistic regression on images of 28 x 28; HEADER: of a message */
#define COMPUTES_S 0.01
#define LATENCY_S 1e-4 /* from host to host */
#define BYTES (4.0 * PARAMETERS + HEADER)

/* What the ranks share; the server is the last. */
typedef struct links {
    const char *method;
    int workers;
    double mbps[MOST];  /* of each rank's link, each way */
    uint64_t gradients; /* of all; of methods whose workers make the same steps: steps of each */
    char spec[80];
    int n[MOST];
    int64_t begun_ns, ended_ns[MOST][STEPS_MOST]; /* a step of each */
} links;

static links *links_of(const char *method, int workers, uint64_t gradients)
{
    links *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(l != MAP_FAILED);
    l->method = method;
    l->workers = workers;
    l->gradients = gradients;
    for (int r = 0; r <= workers; r++)
        l->mbps[r] = 1000;
    return l;
}

static tutti_status one_step(tutti_engine *e, links *l, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        if (l->begun_ns == 0)
            l->begun_ns = tutti_now_ns(m->rt);
        tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + (int64_t)(COMPUTES_S * 1e9));
        memset(m->g, 0, m->n * sizeof *m->g);
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    if (status == TUTTI_CLOSED)
        status = tutti_engine_step(e, err);
    if (status == TUTTI_OK && l->n[m->rank] < STEPS_MOST)
        l->ended_ns[m->rank][l->n[m->rank]++] = tutti_now_ns(m->rt);
    return status;
}

static tutti_status train(tutti_world *world, void *arg, tutti_error *err)
{
    links *l = arg;
    const tutti_param param = { .name = "w", .dims = 1, .dim = { PARAMETERS } };
    const tutti_engine_options options = {
        .method = l->method, .optimizer = "sgd(lr=0.01)", .batch = 1, .seed = 3, .servers = 1
    };
    bool more = true;
    tutti_engine *e;
    tutti_status status = tutti_engine_open(&e, world, &param, 1, &options, err);

    while (status == TUTTI_OK && more) {
        status = tutti_engine_more(e, l->gradients, &more, err);
        if (status == TUTTI_OK && more)
            status = one_step(e, l, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

static tutti_status in_child(void *arg, tutti_error *err)
{
    links *l = arg;
    return tutti_world_run(l->spec, l->workers + 1, train, l, err);
}

static void run(links *l)
{
    char path[] = "/tmp/tutti-links-XXXXXX";
    const int fd = mkstemp(path), hosts = l->workers + 1;
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    tutti_error err;

    assert_non_null(file);
    fprintf(file, "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n<platform "
                  "version=\"4.1\"><zone id=\"z\" routing=\"Full\">\n");
    for (int r = 0; r < hosts; r++)
        fprintf(file, "<host id=\"h%d\" speed=\"100Gf\"/>\n", r);
    for (int r = 0; r < 2 * hosts; r++)
        fprintf(file, "<link id=\"%s%d\" bandwidth=\"%gMbps\" latency=\"%gs\" sharing_policy=\"SHARED\"/>\n",
                r % 2 == 0 ? "up" : "down", r / 2, l->mbps[r / 2], LATENCY_S / 2);
    for (int r = 0; r < hosts * hosts; r++)
        if (r / hosts != r % hosts)
            fprintf(file,
                    "<route src=\"h%d\" dst=\"h%d\" symmetrical=\"NO\"><link_ctn id=\"up%d\"/><link_ctn "
                    "id=\"down%d\"/></route>\n",
                    r / hosts, r % hosts, r / hosts, r % hosts);
    fprintf(file, "</zone></platform>\n");
    assert_int_equal(fclose(file), 0);
    snprintf(l->spec, sizeof l->spec, "sim(platform=%s)", path);
    if (forked(in_child, l, &err) != TUTTI_OK)
        fail_msg("%s: %s", l->method, err.text);
    assert_int_equal(unlink(path), 0);
}

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

/* Of a worker between its first step and its last: steps a second. */
static double rate_of(const links *l, int rank)
{
    assert_true(l->n[rank] > 10);
    return (l->n[rank] - 1) / seconds(l->ended_ns[rank][l->n[rank] - 1] - l->ended_ns[rank][0]);
}

/* Until the last step of all. */
static double took_s(const links *l)
{
    int64_t last = 0;

    for (int r = 0; r < l->workers; r++)
        if (l->n[r] > 0 && l->ended_ns[r][l->n[r] - 1] > last)
            last = l->ended_ns[r][l->n[r] - 1];
    return seconds(last - l->begun_ns);
}

/* Alone, a worker computes, sends and receives. The slow link is a
   thousand times slower: 0.25 s each way. */
static void a_slow_link_does_not_slow_other_workers(void **state)
{
    static const char *const methods[] = {
        "asgd", "ringmaster-asgd", "ringmaster-asgd(stops=on)", "ringleader-asgd", "dude-asgd", "ssp(staleness=1000)"
    };
    const double alone = 1 / (COMPUTES_S + 2 * (LATENCY_S + BYTES * 8 / 1e9));

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        links *l = links_of(methods[k], 4, methods[k][0] == 's' ? 100 : 400);
        l->mbps[3] = 1;
        run(l);
        for (int r = 0; r < 3; r++)
            if (rate_of(l, r) < 0.9 * alone)
                fail_msg("%s: worker %d makes %.1f gradients a second, alone %.1f", l->method, r, rate_of(l, r), alone);
        assert_true(l->n[3] >= 2); /* its own come as ever */
        munmap(l, sizeof *l);
    }
}

/* All links are equal, so the server's link carries all gradients one way, and all
   answers the other way at the same time. */
static void server_link_is_saturated_in_both_directions(void **state)
{
    static const char *const methods[] = { "asgd", "ringmaster-asgd" };
    enum { GRADIENTS = 600 };
    const double one_way = GRADIENTS * BYTES * 8 / 1e7;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        links *l = links_of(methods[k], 6, GRADIENTS);
        for (int r = 0; r <= 6; r++)
            l->mbps[r] = 10;
        run(l);
        if (took_s(l) > 1.05 * one_way || took_s(l) < one_way)
            fail_msg("%s: %.2f s; its link takes %.2f s for all gradients, or all answers", l->method, took_s(l),
                     one_way);
        for (int r = 0; r < 6; r++) /* by arrival, none before another */
            assert_true(abs(l->n[r] - GRADIENTS / 6) <= 2);
        munmap(l, sizeof *l);
    }
}

/* Here the workers' links are narrow and the server's is wide: answers that waited for each
   other would take six times as long. */
static void replies_over_narrow_links_are_sent_concurrently(void **state)
{
    const double alone = 1 / (COMPUTES_S + 2 * (LATENCY_S + BYTES * 8 / 1e7));
    links *l = links_of("asgd", 6, 240);

    (void)state;
    for (int r = 0; r < 6; r++)
        l->mbps[r] = 10;
    run(l);
    for (int r = 0; r < 6; r++)
        if (rate_of(l, r) < 0.95 * alone)
            fail_msg("worker %d makes %.1f gradients a second, alone %.1f", r, rate_of(l, r), alone);
    munmap(l, sizeof *l);
}

/* Both wait for the slowest in each step and answer all then. */
static void workers_released_by_ssp_receive_replies_concurrently(void **state)
{
    static const double mbps[] = { 1000, 50, 20, 200 };
    links *l[2] = { links_of("parameter-server", 4, 40), links_of("ssp(staleness=0)", 4, 40) };

    (void)state;
    for (int k = 0; k < 2; k++) {
        memcpy(l[k]->mbps, mbps, sizeof mbps);
        run(l[k]);
    }
    if (took_s(l[1]) > 1.01 * took_s(l[0]))
        fail_msg("ssp takes %.3f s, parameter-server %.3f s", took_s(l[1]), took_s(l[0]));
    for (int k = 0; k < 2; k++)
        munmap(l[k], sizeof *l[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_link_does_not_slow_other_workers),
        cmocka_unit_test(server_link_is_saturated_in_both_directions),
        cmocka_unit_test(replies_over_narrow_links_are_sent_concurrently),
        cmocka_unit_test(workers_released_by_ssp_receive_replies_concurrently),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
