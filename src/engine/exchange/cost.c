/* cost.c: does the run's codec pay? Predicts what an exchange takes with it and without, by a
   model whose numbers are measured on this run's own tensors, workers and network. The result is
   reported and, if asked for, acted upon. (Agarwal et al., MLSys 2022: in most networks it does
   not pay.)

     uncompressed T = the all-reduces of all pieces
     codec        T = t_encode + its collectives + t_decode

   The usual model prices a collective as calls a + bytes / B, with one a and B for all. Of m
   bytes of payload 2 (W - 1) / W m are summed (all-reduce), (W - 1) m gathered, and (W - 1) / W m
   go to the owners of shards and as much from them. Here the calls themselves are measured, each
   kind that is needed, from next to nothing (its a) to a size that takes some milliseconds (its
   B). A call is priced by linear interpolation between the two nearest sizes. This covers an
   algorithm that is used from some size on, shared windows and the adding of sums, and none of
   their formulas has to be right. t_decode: what is summed is decoded once, what is gathered W
   times, by the route of owners twice (and a shard is encoded once more). Accounting for what was
   sent in a residual counts as encoding.

   The codec that is measured is a second one, opened on the same tensors and closed again: no
   state, draw or order of the run's is touched. It encodes normal random numbers, at a late step,
   so that warm-ups are over. How much a threshold sends of these is not representative of
   gradients; all other codecs are independent of scale. A table that would be sent by rows counts
   whole. Nothing is overlapped: with a lane some of either time is hidden.

   Times are the slowest worker's, so all decide the same. The decision is state: a resumed run
   continues with it. A codec that was turned off keeps its states as they were when the run
   began: nothing of the step depends on them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exchange_internal.h"
#include "state/plan.h"
#include "codec/codec.h"
#include "kernels/device.h"

typedef enum { SUM_F32, SUM_F16, SUM_BF16, GATHER, TO_OWNERS, WAYS } route;
static const char *const route_names[WAYS] = { "all-reduce of fp32", "all-reduce of fp16",
                                               "all-reduce of bf16", "all-gather", "all-to-all" };
enum { POINTS = 12, TIMES = 3, PREFIX = 4 };
/* times of one kind of call by size in bytes; n is 0: not measured yet */
typedef struct curve { int n; double bytes[POINTS], seconds[POINTS]; } curve;
/* The measurement: the network as far as it was needed, and what an exchange takes, in
   seconds. */
typedef struct weighing {
    tutti_engine *engine;
    tutti_group group;
    int workers;
    curve of[WAYS];
    char *room[2];               /* `most` and the rounding of a part */
    size_t most;
    double plain, wire, encode, decode, payload;
} weighing;

static const double pays_from =
    1.05; /* the codec is turned off if predicted to be slower by this factor */
static const size_t most_bytes = 16 << 20;
static const double long_enough = 4e-3;
static const int64_t try_ns =
    100000000; /* a tensor that takes longer is not tried again and again */

/* ---- the network ---- */

/* Makes one call; bytes: of the vector, or of all parts together. */
static tutti_status call(weighing *w, route how, size_t bytes, tutti_error *err)
{
    static const tutti_dtype types[] = { TUTTI_F32, TUTTI_F16, TUTTI_BF16 };
    const size_t part = bytes / (size_t)w->workers, all = part * (size_t)w->workers;

    if (how == GATHER)
        return tutti_allgather(&w->group, tutti_host(w->room[0], part, TUTTI_U8),
                               tutti_host(w->room[1], all, TUTTI_U8), err);
    if (how == TO_OWNERS)
        return tutti_alltoall(&w->group, tutti_host(w->room[0], all, TUTTI_U8),
                              tutti_host(w->room[1], all, TUTTI_U8), err);
    return tutti_allreduce(&w->group, TUTTI_MEAN,
                           (tutti_buffer){ w->engine->m.device, w->room[0],
                                           bytes / tutti_dtype_bytes(types[how]), types[how] },
                           err);
}

static double sent_in(route how, double bytes, int workers)
{
    return (how < GATHER ? 2.0 : 1.0) * (workers - 1) / workers * bytes;
}

/* The best of some calls, since other load of the machine can only lengthen one. A call takes as
   long as on the worker that began it first: a worker that is late finds the others waiting, and
   does not count their wait. So the longest time of each call is taken, not each worker's own
   best. */
static tutti_status time_of(weighing *w, route how, size_t bytes, double *seconds, tutti_error *err)
{
    tutti_runtime *rt = w->engine->rt;
    double of[TIMES];

    for (int k = -1; k < TIMES; k++) { /* once unmeasured */
        const int64_t begin = tutti_now_ns(rt);
        TUTTI_TRY(call(w, how, bytes, err));
        if (k >= 0)
            of[k] = (double)(tutti_now_ns(rt) - begin) * 1e-9;
    }
    TUTTI_TRY(tutti_reduce_double(&w->group, TUTTI_MAX, of, TIMES, err));
    *seconds = of[0];
    for (int k = 1; k < TIMES; k++)
        *seconds = fmin(*seconds, of[k]);
    return TUTTI_OK;
}

/* Measures from next to nothing on, four times as much each time, until a call takes long enough
   or the maximum is reached. */
static tutti_status measure(weighing *w, route how, tutti_error *err)
{
    curve *c = &w->of[how];

    for (size_t bytes = 64 * (size_t)w->workers; c->n < POINTS;
         bytes = 4 * bytes < w->most ? 4 * bytes : w->most) {
        TUTTI_TRY(time_of(w, how, bytes, &c->seconds[c->n], err));
        c->bytes[c->n++] = (double)bytes;
        if (bytes >= w->most || c->seconds[c->n - 1] >= long_enough)
            break;
    }
    /* a shorter call can take no longer than a longer one: the excess was other load of the
       machine */
    for (int k = c->n - 1; k > 0; k--)
        c->seconds[k - 1] = fmin(c->seconds[k - 1], c->seconds[k]);
    return TUTTI_OK;
}

/* *seconds += what a call takes: interpolated between the measured points, extrapolated beyond
   the last two. All workers ask for the same kinds in the same order, whatever bytes they
   have. */
static tutti_status add_call(weighing *w, route how, double bytes, double *seconds,
                             tutti_error *err)
{
    const curve *c = &w->of[how];
    int k = 1;

    if (w->workers == 1)
        return TUTTI_OK;
    if (c->n == 0)
        TUTTI_TRY(measure(w, how, err));
    while (k < c->n - 1 && bytes > c->bytes[k])
        k++;
    if (c->n == 1 || bytes <= c->bytes[0])
        *seconds += c->seconds[0];
    else
        *seconds += fmax(c->seconds[0], c->seconds[k - 1] + (c->seconds[k] - c->seconds[k - 1]) *
                                                                (bytes - c->bytes[k - 1]) /
                                                                (c->bytes[k] - c->bytes[k - 1]));
    return TUTTI_OK;
}

/* ---- the codec ---- */

/* A second codec and the buffers for one tensor. */
typedef struct probe {
    tutti_plan *plan;
    tutti_codec *codec;
    float *x, *y;
    tutti_exchange_buffer scratch, message, wire[TUTTI_EXCHANGE_ROUNDS];
    uint8_t checksum[TUTTI_CHECKSUM_BYTES];
} probe;

/* What the codec of one tensor sends, and how long it takes. */
typedef struct trial {
    bool fixed, owned;
    int rounds;
    tutti_dtype number;
    double bytes, of_round[TUTTI_EXCHANGE_ROUNDS]; /* payload */
    double encode, decode;       /* s, of once */
} trial;

static tutti_status own_sum(void *with, size_t n, float *numbers, tutti_error *err)
{
    (void)with, (void)n, (void)numbers, (void)err;
    return TUTTI_OK;
}

static tutti_status open_probe(tutti_engine *e, probe *p, tutti_error *err)
{
    const tutti_engine_exchange *x = e->sums.exchange;
    const tutti_codec_moment late = {
        .step = TUTTI_EXCHANGE_LATE, .epoch = TUTTI_EXCHANGE_LATE, .lr = e->m.lr, .sum = own_sum
    };

    TUTTI_TRY(tutti_plan_open(&p->plan, e->m.n, err));
    TUTTI_TRY(tutti_codec_declare(&p->codec, p->plan, x->spec, "codec", &x->space, err));
    TUTTI_TRY(tutti_plan_carry_out(p->plan, NULL, err));
    tutti_codec_open(p->codec);
    TUTTI_TRY(tutti_codec_begin(p->codec, &late, err));
    p->x = tutti_alloc(e->m.n + 1, sizeof *p->x);
    p->y = tutti_alloc(e->m.n + 1, sizeof *p->y);
    if (p->x == NULL || p->y == NULL)
        return tutti_fail(
            err, TUTTI_ERR_MEMORY, ENOMEM,
            "no memory for the %zu numbers to measure codec '%.60s' with; leave codec-cost off",
            2 * e->m.n, x->spec);
    tutti_fill_normal(e->m.device, e->m.n, (tutti_rng){ 1, (uint64_t)e->m.rank + 1, 0 }, p->x);
    return TUTTI_OK;
}

static void close_probe(probe *p)
{
    tutti_codec_close(p->codec);
    tutti_plan_close(p->plan);
    tutti_free(p->x);
    tutti_free(p->y);
    tutti_free(p->scratch.at);
    tutti_free(p->message.at);
    for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
        tutti_free(p->wire[r].at);
}

/* Encodes a tensor as exchange.c and message.c do, for one worker alone, and measures the time. */
static tutti_status time_encode(const tutti_engine *e, probe *p, const tutti_exchange_unit *u,
                                trial *t, tutti_error *err)
{
    const tutti_codec_ops *ops = u->codec->ops;
    const int64_t begin = tutti_now_ns(e->rt);
    const float *x;
    void *wire[TUTTI_EXCHANGE_ROUNDS];

    t->bytes = 0;
    for (int r = 0; r < ops->rounds; r++)
        wire[r] = p->wire[r].at;
    x = ops->rounds > 0 ? tutti_codec_fold_first(p->codec, &u->view, u->x, p->scratch.at, wire)
                        : tutti_codec_before(p->codec, &u->view, u->x);
    for (int r = 0; r < ops->rounds; r++) {
        if (r > 0)
            ops->fold(u->codec, &u->view, r, x, p->scratch.at, wire);
        t->of_round[r] = (double)(ops->width(u->codec, &u->view, r) * tutti_dtype_bytes(t->number));
        t->bytes += t->of_round[r];
    }
    if (ops->rounds == 0)
        t->bytes = u->view.count > 0
                       ? (double)ops->encode(u->codec, &u->view, x, p->scratch.at, p->message.at)
                       : 0;
    if (ops->rounds == 0 && u->checked)
        tutti_checksum_put(u->codec, &u->view, e->m.rank, p->message.at, (size_t)t->bytes,
                           p->checksum);
    if (ops->rounds > 0)
        tutti_codec_sent_rounds(p->codec, &u->view, x, p->scratch.at, wire);
    else
        TUTTI_TRY(tutti_codec_sent(p->codec, &u->view, p->message.at, (size_t)t->bytes, err));
    t->encode = (double)(tutti_now_ns(e->rt) - begin) * 1e-9;
    return TUTTI_OK;
}

static tutti_status time_decode(const tutti_engine *e, probe *p, const tutti_exchange_unit *u,
                                trial *t, tutti_error *err)
{
    const tutti_codec_ops *ops = u->codec->ops;
    const int64_t begin = tutti_now_ns(e->rt);
    void *wire[TUTTI_EXCHANGE_ROUNDS];

    for (int r = 0; r < ops->rounds; r++)
        wire[r] = p->wire[r].at;
    if (ops->rounds > 0)
        ops->unfold(u->codec, &u->view, p->scratch.at, wire, u->y);
    else if (u->checked)
        TUTTI_TRY(tutti_checksum_check(u->codec, &u->view, e->m.rank,
                                       &(tutti_codec_message){ p->message.at, (size_t)t->bytes },
                                       p->checksum, err));
    if (ops->rounds == 0 && u->view.count > 0)
        TUTTI_TRY(
            ops->decode_add(u->codec, &u->view, p->message.at, (size_t)t->bytes, 1, u->y, err));
    tutti_codec_after(p->codec, &u->view, u->y);
    t->decode = (double)(tutti_now_ns(e->rt) - begin) * 1e-9;
    return TUTTI_OK;
}

/* The best of some tries after the first one, which touches its pages. */
static tutti_status try_tensor(const tutti_engine *e, probe *p, int tensor, int workers, trial *t,
                               tutti_error *err)
{
    tutti_exchange_unit u = { .view = e->sums.exchange->space.tensor[tensor],
                              .codec = p->codec,
                              .turn = e->sums.exchange->turn != NULL
                                          ? e->sums.exchange->turn[tensor]
                                          : -1,
                              .checked = e->sums.exchange->checked };
    const int64_t begin = tutti_now_ns(e->rt);
    struct { double encode, decode; } best = { INFINITY, INFINITY };
    const tutti_codec_ops *ops;

    u.view.step = TUTTI_EXCHANGE_LATE;
    u.x = p->x + u.view.first;
    u.y = p->y + u.view.first;
    /* no more wrappers than exchange.c takes */
    for (; u.codec->ops->choose != NULL; u.codec = u.codec->ops->choose(u.codec, &u.view))
        u.wrapper[u.n_wrappers++] = u.codec;
    ops = u.codec->ops;
    *t = (trial){ .rounds = ops->rounds,
                  .fixed = (tutti_codec_traits(u.codec) & TUTTI_CODEC_FIXED) != 0,
                  .number = ops->rounds > 0 ? tutti_codec_number(u.codec, &u.view) : TUTTI_U8,
                  .owned =
                      ops->rounds == 0 && tutti_exchange_by_owners(&u, workers, e->sums.route) };
    TUTTI_TRY(tutti_exchange_grow(
        &p->scratch, (ops->scratch != NULL ? ops->scratch(u.codec, &u.view) : 0) + 1, 1, err));
    for (int r = 0; r < ops->rounds; r++)
        TUTTI_TRY(tutti_exchange_grow(
            &p->wire[r], ops->width(u.codec, &u.view, r) * tutti_dtype_bytes(t->number) + 1, 1,
            err));
    if (ops->rounds == 0)
        TUTTI_TRY(tutti_exchange_grow(&p->message, ops->bound(u.codec, &u.view) + 1, 1, err));
    for (int k = -1; k < TIMES && (k < 1 || tutti_now_ns(e->rt) - begin < try_ns); k++) {
        TUTTI_TRY(time_encode(e, p, &u, t, err));
        TUTTI_TRY(time_decode(e, p, &u, t, err));
        best.encode = k < 0 ? INFINITY : fmin(best.encode, t->encode);
        best.decode = k < 0 ? INFINITY : fmin(best.decode, t->decode);
    }
    t->encode = best.encode;
    t->decode = best.decode;
    return TUTTI_OK;
}

/* Adds what the tensors of a piece send together, and the time they take. */
static tutti_status try_piece(weighing *w, probe *p, const tutti_piece *piece, tutti_error *err)
{
    static const tutti_dtype types[] = { TUTTI_F32, TUTTI_F16, TUTTI_BF16 };
    double gathered = 0, owned = 0, of[TUTTI_EXCHANGE_ROUNDS][TUTTI_LENGTH(types)] = { { 0 } };
    /* of each: workers first exchange how much they send */
    bool gathers = false, owns = false, lengths[2] = { false, false };

    for (int i = 0; i < piece->tensors; i++) {
        trial t;
        TUTTI_TRY(try_tensor(w->engine, p, piece->first_tensor + i, w->workers, &t, err));
        for (size_t k = 0; k < TUTTI_LENGTH(types); k++)
            for (int r = 0; r < t.rounds && t.number == types[k]; r++)
                of[r][k] += t.of_round[r];
        if (t.rounds == 0) {
            *(t.owned ? &owns : &gathers) = true;
            *(t.owned ? &owned : &gathered) +=
                t.bytes + (t.fixed ? 0 : PREFIX) +
                (w->engine->sums.exchange->checked ? TUTTI_CHECKSUM_BYTES : 0);
            lengths[t.owned] = lengths[t.owned] || !t.fixed;
        }
        w->encode += (t.owned ? 1 + 1.0 / w->workers : 1) * t.encode;
        w->decode += (t.rounds > 0 ? 1 : t.owned ? 2 : w->workers) * t.decode;
        w->payload += t.bytes;
    }
    for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
        for (size_t k = 0; k < TUTTI_LENGTH(types); k++)
            if (of[r][k] > 0)
                TUTTI_TRY(add_call(w, (route)(SUM_F32 + k), of[r][k], &w->wire, err));
    if (gathers && lengths[0])
        TUTTI_TRY(add_call(w, GATHER, 0, &w->wire, err));
    if (gathers)
        TUTTI_TRY(add_call(w, GATHER, w->workers * gathered, &w->wire, err));
    for (int k = 0; k < 2 && owns; k++) {
        if (lengths[1])
            TUTTI_TRY(add_call(w, k == 0 ? TO_OWNERS : GATHER, 0, &w->wire, err));
        TUTTI_TRY(add_call(w, k == 0 ? TO_OWNERS : GATHER, owned, &w->wire, err));
    }
    return add_call(w, SUM_F32, 4.0 * (double)piece->count, &w->plain, err);
}

/* ---- the report ---- */

/* "1.2 (3.4 GB/s of fp32)", ms; no rate if no simulated time is charged */
static void put_time(char *text, size_t room, double seconds, double bytes)
{
    const size_t used = (size_t)snprintf(text, room, "%.4g", seconds * 1e3);

    if (seconds > 0)
        snprintf(text + used, room - used, " (%.3g GB/s of fp32)", bytes / seconds * 1e-9);
}

static void report_choice(const weighing *w, double all)
{
    tutti_engine *e = w->engine;
    tutti_method *m = &e->m;
    const double raw = 4.0 * (double)e->layout.used;
    char wires[300] = "", even[120] = "nothing is saved on the wire, however fast the codec",
         encoding[60], decoding[60];
    size_t used = 0;

    tutti_metric(m, "codec_cost_plain_seconds", -1, w->plain);
    tutti_metric(m, "codec_cost_seconds", -1, all);
    tutti_metric(m, "codec_cost_encode_seconds", -1, w->encode);
    tutti_metric(m, "codec_cost_decode_seconds", -1, w->decode);
    tutti_metric(m, "codec_cost_payload_bytes", -1, w->payload);
    if (m->rank > 0)
        return;
    for (int k = 0; k < WAYS; k++) {
        const curve *c = &w->of[k];
        const int last = c->n - 1;
        if (last < 0 || used >= sizeof wires)
            continue;
        used += (size_t)snprintf(
            wires + used, sizeof wires - used, "%s%s %.3g us a call, %.4g MB/s a worker",
            used > 0 ? "; " : "", route_names[k], c->seconds[0] * 1e6,
            sent_in((route)k, c->bytes[last], w->workers) /
                fmax(fmax(c->seconds[last] - c->seconds[0], 0.5 * c->seconds[last]), 1e-9) * 1e-6);
    }
    if (w->plain > w->wire)
        snprintf(even, sizeof even,
                 "it pays from %.3g GB/s of fp32 on, encoding and decoding together",
                 raw / (w->plain - w->wire) * 1e-9);
    put_time(encoding, sizeof encoding, w->encode, raw);
    put_time(decoding, sizeof decoding, w->decode, raw);
    tutti_event(
        m, "codec-cost",
        "an exchange of %zu numbers in %d piece%s by %d worker%s, nothing overlapped; measured: %s",
        e->layout.used, e->layout.n_pieces, e->layout.n_pieces == 1 ? "" : "s", w->workers,
        w->workers == 1 ? ", who sends nothing" : "s", w->workers > 1 ? wires : "the codec alone");
    tutti_event(m, "codec-cost", "as they are: %.4g MB of payload, %.4g ms, all of it on the wire",
                raw * 1e-6, w->plain * 1e3);
    tutti_event(
        m, "codec-cost",
        "%.80s: %.4g MB of payload (%.3g of it), %.4g ms: encoding %s, wire %.4g, decoding %s; %s",
        e->sums.exchange->spec, w->payload * 1e-6, w->payload / raw, all * 1e3, encoding,
        w->wire * 1e3, decoding, even);
    if (all > w->plain)
        tutti_event(m, "codec-cost",
                    "predicted: the exchange is sooner done without the codec, by %.3g ms",
                    (all - w->plain) * 1e3);
    else
        tutti_event(m, "codec-cost", "predicted: the exchange is %.3g times as fast with the codec",
                    w->plain / fmax(all, 1e-9));
}

static tutti_status weigh(weighing *w, probe *p, tutti_error *err)
{
    tutti_engine *e = w->engine;
    const size_t whole = e->layout.used * sizeof(float), unit = 64 * (size_t)w->workers;
    double numbers[4];

    w->most = whole < unit ? unit : whole > most_bytes ? most_bytes : whole;
    for (int k = 0; k < 2 && w->workers > 1; k++)
        if ((w->room[k] = tutti_alloc(w->most + unit, 1)) == NULL)
            return tutti_fail(
                err, TUTTI_ERR_MEMORY, ENOMEM,
                "no memory for %zu bytes to measure the network with; leave codec-cost off",
                w->most + unit);
    TUTTI_TRY(open_probe(e, p, err));
    for (int k = 0; k < e->layout.n_pieces; k++)
        TUTTI_TRY(try_piece(w, p, &e->pieces[k], err));
    numbers[0] = w->encode, numbers[1] = w->decode, numbers[2] = w->payload, numbers[3] = w->wire;
    if (w->workers > 1)
        TUTTI_TRY(tutti_reduce_double(&w->group, TUTTI_MAX, numbers, TUTTI_LENGTH(numbers), err));
    w->encode = numbers[0], w->decode = numbers[1], w->payload = numbers[2], w->wire = numbers[3];
    return TUTTI_OK;
}

tutti_status tutti_exchange_weigh(tutti_engine *e, tutti_error *err)
{
    tutti_engine_exchange *x = e->sums.exchange;
    weighing w = { .engine = e,
                   .group = tutti_group_keyed(tutti_engine_together(e),
                                              tutti_port_of("what a codec costs", 0, 0), 0) };
    probe p = { 0 };
    tutti_status status;
    double all;

    w.group.uncounted = true;
    w.group.algorithm = e->sums.collective;
    w.workers = w.group.size;
    status = weigh(&w, &p, err);
    close_probe(&p);
    tutti_free(w.room[0]);
    tutti_free(w.room[1]);
    TUTTI_TRY(status);
    all = w.encode + w.wire + w.decode;
    report_choice(&w, all);
    if (e->options.codec_cost != TUTTI_CODEC_COST_AUTO_OFF)
        return TUTTI_OK;
    x->verdict = all > pays_from * w.plain ? TUTTI_EXCHANGE_PLAIN : TUTTI_EXCHANGE_CODED;
    tutti_metric(&e->m, "codec_cost_off", -1, x->verdict == TUTTI_EXCHANGE_PLAIN);
    if (x->verdict == TUTTI_EXCHANGE_PLAIN && e->m.rank == 0)
        tutti_event(&e->m, "codec",
                    "codec '%.80s' is not used in this run: an exchange is predicted to take %.4g "
                    "ms with it and %.4g ms without (codec-cost=auto-off)",
                    x->spec, all * 1e3, w.plain * 1e3);
    return TUTTI_OK;
}
