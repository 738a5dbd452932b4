/* sample_exchange.c: workers send each other raw samples, and a pass computes on its own and on
   those received (steps.h). Only the client knows what a sample is. It writes bytes, and reads them
   where they were received.

     each pair that exchanges any    one message, n x sample_bytes, from sender to receiver

   Receives are posted before the first send, so there is no circular wait. A worker sends to one
   after the other, beginning with the next rank, through one buffer: `most` x sample_bytes in, as
   many out, whatever the number of workers. The bytes are counted in the mesh's counters as those
   of any message, and nothing else is sent: both sides know beforehand how many samples go to
   which worker. */
#include <errno.h>

#include "engine/engine_internal.h"
#include "engine/refuse.h"
#include "sample_exchange.h"

typedef struct given {
    int64_t most;            /* the most samples received in a pass, and sent to one worker */
    uint8_t *in, *out;       /* [most][sample_bytes], declared */
    tutti_request *receives; /* [workers] */
    tutti_request **wanted;  /* [workers]: scratch, the receives that are waited for */
} given;

static void close_given(void *self)
{
    given *g = self;

    tutti_free(g->receives);
    tutti_free(g->wanted);
    tutti_free(g);
}

static const tutti_facility_ops facility = { .close = close_given };

tutti_status tutti_samples_send_declare(tutti_method *m, tutti_plan *plan, int64_t most,
                                        tutti_error *err)
{
    const tutti_engine *e = m->engine;
    given *g;
    size_t bytes;

    if (e->options.sample_bytes == 0 || e->options.give == NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method '%s' sends raw samples from worker to worker, and this client has none to "
            "give; switch that off, or take one that has (tutti train; engine_options.give)",
            m->ops->name);
    if (most < 1 || !tutti_size_mul((size_t)most, e->options.sample_bytes, &bytes))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': %lld samples of %zu bytes are to be on their way to a "
                          "worker; let it be fewer",
                          m->ops->name, (long long)most, e->options.sample_bytes);
    g = tutti_alloc(1, sizeof *g);
    if (g == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for samples of %d workers",
                          m->workers);
    tutti_facility_add(m, &facility, g);
    g->receives = tutti_alloc((size_t)m->workers, sizeof *g->receives);
    g->wanted = tutti_alloc((size_t)m->workers, sizeof *g->wanted);
    if (g->receives == NULL || g->wanted == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for samples of %d workers",
                          m->workers);
    g->most = most;
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "engine.given", .keep = TUTTI_SCRATCH, .dtype = TUTTI_U8, .count = bytes },
        &g->in);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "engine.gives", .keep = TUTTI_SCRATCH, .dtype = TUTTI_U8, .count = bytes },
        &g->out);
    return TUTTI_OK;
}

int64_t tutti_engine_received_most(const tutti_engine *e)
{
    const given *g = tutti_facility_self(&e->m, &facility);

    return g != NULL ? g->most : 0;
}

int tutti_sample_label(const tutti_method *m, uint64_t id)
{
    const tutti_engine *e = m->engine;

    return e->options.label != NULL ? e->options.label(e->options.user, id) : -1;
}

/* Samples that go to each worker, and come from each. */
typedef struct exchanged {
    const int64_t *to, *from;
} exchanged;

/* Checks the counts of every worker. *come: the total received. An error here is the method's. */
static tutti_status check_counts(const tutti_method *m, const given *g, const tutti_pass *p,
                                 const exchanged *of, int64_t *come, tutti_error *err)
{
    const int64_t most = g != NULL ? g->most : 0, *to = of->to, *from = of->from;
    bool good =
        most > 0 && p->index == 0 && p->received == 0 && to[m->rank] == 0 && from[m->rank] == 0;

    *come = 0;
    for (int w = 0; w < m->workers && good; w++) {
        good = to[w] >= 0 && to[w] <= most && from[w] >= 0 && from[w] <= most - *come;
        *come += from[w];
    }
    return good ? TUTTI_OK
                : tutti_fail(err, TUTTI_ERR_STATE, 0,
                             "method '%s': tutti_samples_send is legal once, in a step's first "
                             "pass, and with at most %lld samples to each and of all others "
                             "(steps.h)",
                             m->ops->name, (long long)most);
}

static tutti_status post_receives(tutti_engine *e, given *g, tutti_port port, const int64_t *from,
                                  tutti_error *err)
{
    const size_t bytes = e->options.sample_bytes;
    uint8_t *at = g->in;

    for (int w = 0; w < e->m.workers; w++) {
        g->receives[w] = (tutti_request){ 0 };
        g->wanted[w] = &g->receives[w];
        if (from[w] > 0)
            TUTTI_TRY(tutti_post_recv(e->world, &g->receives[w], w, port,
                                      tutti_host(at, (size_t)from[w] * bytes, TUTTI_U8), err));
        at += (size_t)from[w] * bytes;
    }
    return TUTTI_OK;
}

static tutti_status hand_out(tutti_engine *e, given *g, tutti_port port, const uint64_t *ids,
                             const int64_t *to, tutti_error *err)
{
    const int workers = e->m.workers;

    for (int k = 1; k < workers; k++) {
        const int w = (e->m.rank + k) % workers;
        size_t first = 0;
        if (to[w] == 0)
            continue;
        for (int before = 0; before < w; before++)
            first += (size_t)to[before];
        TUTTI_TRY(e->options.give(e->options.user, ids + first, (size_t)to[w], g->out, err));
        TUTTI_TRY(tutti_send(e->world, w, port, NULL,
                             tutti_host(g->out, (size_t)to[w] * e->options.sample_bytes, TUTTI_U8),
                             err));
    }
    return TUTTI_OK;
}

static tutti_status receive_samples(tutti_engine *e, given *g, const int64_t *from,
                                    tutti_error *err)
{
    TUTTI_TRY(tutti_wait_some(e->world, g->wanted, (size_t)e->m.workers, (size_t)e->m.workers,
                              TUTTI_FOREVER, NULL, err));
    for (int w = 0; w < e->m.workers; w++)
        if (from[w] > 0 && g->receives[w].note.bytes != (uint64_t)from[w] * e->options.sample_bytes)
            return tutti_fail_rank(
                err, TUTTI_ERR_CORRUPT, w,
                "worker %d sent %llu bytes of samples, and %lld samples of %zu bytes were expected",
                w, (unsigned long long)g->receives[w].note.bytes, (long long)from[w],
                e->options.sample_bytes);
    return TUTTI_OK;
}

tutti_status tutti_samples_send(tutti_method *m, tutti_pass *p, const uint64_t *ids,
                                const int64_t *to, const int64_t *from, tutti_error *err)
{
    tutti_engine *e = m->engine;
    given *g = tutti_facility_self(m, &facility);
    const tutti_port port = tutti_port_of("given", m->step, 0);
    tutti_doing was;
    int64_t begin, come;
    tutti_status status;

    TUTTI_TRY(check_counts(m, g, p, &(exchanged){ to, from }, &come, err));
    was = tutti_engine_expose(e);
    begin = tutti_now_ns(e->rt);
    status = post_receives(e, g, port, from, err);
    if (status == TUTTI_OK)
        status = hand_out(e, g, port, ids, to, err);
    if (status == TUTTI_OK)
        status = receive_samples(e, g, from, err);
    for (int w = 0; w < m->workers && status != TUTTI_OK; w++)
        tutti_cancel(e->world, &g->receives[w]);
    tutti_engine_comm(e, "give", 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    p->received = come;
    p->given = come > 0 ? g->in : NULL;
    p->samples += come;
    return tutti_fail_within(err, status, "samples on their way");
}

tutti_status tutti_await_samples_declare(const tutti_method *m, tutti_error *err)
{
    static const tutti_conflict stream = {
        TUTTI_ASKED_STREAM, "has a model of its own of samples that arrive", NULL,
        " and give the rates to the method (rates=r0:r1:...)"
    };

    return tutti_refuse(m, &stream, 1, err);
}

void tutti_await_samples(tutti_method *m, int64_t until_ns)
{
    tutti_engine *e = m->engine;
    const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_DATA);

    tutti_sleep_until(e->rt, until_ns);
    tutti_engine_doing(e, was);
}
