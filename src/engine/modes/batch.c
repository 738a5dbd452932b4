/* batch.c: variable batches (steps.h): a step has as many samples as its workers take, and all
   workers learn how many those were.

   Positions of all epochs are concatenated: position p of epoch e is e D + p. The total taken so
   far (progress.samples) is the same number on all workers between steps, and so are the leases.
   So which worker takes which position is a function of counts that all know, and no message is
   needed for it.

   Counts known before the first pass: the step takes the positions from progress.samples on, and
   is shortened where an epoch ends. Nothing else has to be stored.

   Counts known afterwards: each worker has a lease, a few ranges of positions. It takes samples
   from the front of it, and is leased more, from the first position that was not leased yet, once
   it has less than it may take in a step. A lease has a bounded number of ranges, however slow a
   worker is, and leases continue from one epoch to the next.

   Once the run's last position is leased, what is left of the leases is moved between workers in
   proportion to what each took in the last step, so that all finish together. A stalled worker
   does not block the epoch. And no step is tiny, which would be a step along the gradient of a
   few samples at the full rate: if fewer samples are left than in two steps, each of the last two
   takes half. The last step takes all that is left, whatever the time, since that is no more than
   the step before it had. */
#include <errno.h>
#include <string.h>

#include "batch.h"
#include "engine/refuse.h"

static const tutti_facility_ops facility;

static uint64_t epoch_samples(const tutti_batches *t)
{
    return t->e->division.share.samples;
}

/* ---- leases ---- */

static tutti_batch_range *lease_of(const tutti_batches *t, int worker)
{
    return t->lease + TUTTI_BATCH_RANGES * worker;
}

static uint64_t length(const tutti_batch_range *range)
{
    return range->end - range->first;
}

static uint64_t held(const tutti_batch_range *lease)
{
    uint64_t sum = 0;

    for (int k = 0; k < TUTTI_BATCH_RANGES; k++)
        sum += length(&lease[k]);
    return sum;
}

/* The most samples that a worker may take in a step. It is bounded by a part of the epoch so that a
   lease does not extend over many epochs. */
static uint64_t most_in_step(const tutti_batches *t)
{
    const uint64_t part = epoch_samples(t) / (4 * (uint64_t)t->e->m.workers),
                   pass = (uint64_t)t->pass, cap = part > pass ? part : pass;

    return (uint64_t)t->most < cap ? (uint64_t)t->most : cap;
}

/* Appends a range to the lease, or extends its last range. false: the lease is full. */
static bool add_range(tutti_batch_range *lease, tutti_batch_range more)
{
    for (int k = 0; k < TUTTI_BATCH_RANGES; k++)
        if (length(&lease[k]) == 0) {
            if (k > 0 && lease[k - 1].end == more.first)
                lease[k - 1].end = more.end;
            else
                lease[k] = more;
            return true;
        }
    return false;
}

static void take_from(tutti_batch_range *lease, uint64_t n)
{
    int used = 0;

    while (used < TUTTI_BATCH_RANGES && n >= length(&lease[used]) && length(&lease[used]) > 0)
        n -= length(&lease[used++]);
    for (int k = 0; k < TUTTI_BATCH_RANGES; k++)
        lease[k] = k + used < TUTTI_BATCH_RANGES ? lease[k + used] : (tutti_batch_range){ 0, 0 };
    lease[0].first += n;
}

/* Moves up to n positions from the end of worker `from`'s lease to worker `to`. Returns how
   many. */
static uint64_t move(tutti_batches *t, int from, int to, uint64_t n)
{
    tutti_batch_range *lease = lease_of(t, from), *last = lease;

    for (int k = 1; k < TUTTI_BATCH_RANGES; k++)
        last = length(&lease[k]) > 0 ? &lease[k] : last;
    n = n < length(last) ? n : length(last);
    if (n == 0 || !add_range(lease_of(t, to), (tutti_batch_range){ last->end - n, last->end }))
        return 0;
    last->end -= n;
    if (length(last) == 0)
        *last = (tutti_batch_range){ 0, 0 };
    return n;
}

/* Moves samples between leases until each worker has the number of samples that t->due states: from
   workers that have more, the largest surplus first. Differences below `least` stay. */
static void balance(tutti_batches *t, uint64_t least)
{
    for (int to = 0; to < t->e->m.workers; to++)
        for (int tries = 0; tries < TUTTI_BATCH_RANGES; tries++) {
            const int64_t lacks = t->due[to] - (int64_t)held(lease_of(t, to));
            int64_t most = 0;
            int from = to;
            for (int q = 0; q < t->e->m.workers; q++) {
                const int64_t over = (int64_t)held(lease_of(t, q)) - t->due[q];
                from = over > most ? q : from;
                most = over > most ? over : most;
            }
            if (from == to || lacks < (int64_t)least || most < (int64_t)least ||
                move(t, from, to, (uint64_t)(lacks < most ? lacks : most)) == 0)
                break;
        }
}

/* Extends the lease of each worker that has fewer than `size` samples by as many. */
static void extend_leases(tutti_batches *t, uint64_t size)
{
    const uint64_t end = t->limit > 0 ? t->limit : UINT64_MAX;

    for (int r = 0; r < t->e->m.workers; r++) {
        const uint64_t left = t->next < end ? end - t->next : 0, n = left < size ? left : size;
        if (n > 0 && held(lease_of(t, r)) < size &&
            add_range(lease_of(t, r), (tutti_batch_range){ t->next, t->next + n }))
            t->next += n;
    }
}

/* Computes what this worker may take in this step, and whether it is the run's last. */
static void allow(tutti_batches *t)
{
    const uint64_t size = most_in_step(t), done = t->e->counts.progress.samples,
                   left = t->limit > done ? t->limit - done : 0;
    const bool parts = t->e->division.share.parts != NULL;
    uint64_t before = 0, mine;

    for (int r = 0; r < t->e->m.workers; r++)
        before += (uint64_t)t->of[r];
    for (int r = 0; r < t->e->m.workers; r++)
        t->weight[r] = before > 0 ? (double)t->of[r] : 1;
    if (t->limit > 0)
        tutti_share_apportion((int64_t)left, t->e->m.workers, t->weight, 0, t->due);
    t->last = t->limit > 0 && left <= before;
    if (!parts) {
        extend_leases(t, size);
        if (t->limit > 0 && t->next >= t->limit)
            balance(t, left < 2 * before ? 1 : (uint64_t)t->pass);
        mine = held(lease_of(t, t->e->m.rank));
    } else
        mine = t->limit > 0 ? (uint64_t)t->due[t->e->m.rank] : size;
    if (t->limit > 0 && left > before && left < 2 * before) {
        const uint64_t half = ((uint64_t)t->due[t->e->m.rank] + 1) / 2;
        mine = mine < half ? mine : half;
    }
    t->allowed = mine < size ? mine : size;
}

/* ---- where a pass is ---- */

/* The number of worker r's samples that come before this worker's pass a, in a step that was not
   shortened. */
static uint64_t samples_before(const tutti_batches *t, int r, uint64_t a)
{
    const uint64_t pass = (uint64_t)t->pass, has = (uint64_t)t->of[r],
                   until = (a + (r < t->e->m.rank)) * pass;
    return has < until ? has : until;
}

static int64_t place_of(const tutti_batches *t, int64_t pass, uint64_t *epoch, uint64_t *position)
{
    const tutti_method *m = &t->e->m;
    const uint64_t d = epoch_samples(t), a = (uint64_t)pass, at = a * (uint64_t)t->pass;
    const int64_t left = t->known ? t->of[m->rank] - (int64_t)at : 0;
    uint64_t first = 0;

    *epoch = t->e->counts.progress.samples / d;
    for (int r = 0; r < m->workers && t->known; r++)
        first += t->cut ? (r < m->rank ? (uint64_t)t->of[r] : 0) : samples_before(t, r, a);
    if (t->cut)
        first += at;
    *position = t->e->division.share.parts != NULL ? t->mine + at
                                                   : t->e->counts.progress.samples % d + first;
    return left <= 0 ? 0 : left < t->pass ? left : t->pass;
}

int64_t tutti_batch_position(const tutti_method *m, int64_t pass, uint64_t *epoch,
                             uint64_t *position)
{
    return place_of(tutti_facility_self(m, &facility), pass, epoch, position);
}

static void lent_pass(const tutti_batches *t, tutti_pass *p)
{
    const uint64_t d = epoch_samples(t), taken = (uint64_t)t->taken, may = t->allowed;
    uint64_t n = may > taken ? may - taken : 0;

    if (n > (uint64_t)t->pass)
        n = (uint64_t)t->pass;
    if (t->e->division.share.parts != NULL) {
        p->epoch = t->e->counts.progress.samples / d;
        p->position = t->mine + taken;
    } else if (n > 0) {
        const tutti_batch_range *range = lease_of(t, t->e->m.rank);
        uint64_t at = taken, end;
        for (; at >= length(range); range++)
            at -= length(range);
        at += range->first;
        end = range->end < (at / d + 1) * d ? range->end : (at / d + 1) * d;
        n = n < end - at ? n : end - at;
        p->epoch = at / d;
        p->position = at % d;
    }
    if (t->replay != NULL) {
        const uint64_t step = t->e->counts.progress.step,
                       /* not cut */
                       recorded = step < t->replay_steps ? (uint64_t)t->replay[step] : 0;
        n = recorded <= taken ? 0 : n < recorded - taken ? n : recorded - taken;
    }
    p->samples = (int64_t)n;
    p->divisor = n > 0 ? t->pass : 0;
    p->more = true;
    p->exchange = false;
}

static void next_pass(const void *self, tutti_pass *p)
{
    const tutti_batches *t = self;

    if (t->leased) {
        lent_pass(t, p);
        return;
    }
    p->samples = place_of(t, p->index, &p->epoch, &p->position);
    p->divisor = t->e->m.samples;
    p->more = t->known && p->samples > 0 && (p->index + 1) * t->pass < t->e->m.samples;
    p->exchange = !p->more;
}

/* ---- a step ---- */

static void begin_step(void *self)
{
    tutti_batches *t = self;

    t->known = t->closed = t->cut = false;
    t->taken = 0;
    t->e->m.samples = 0;
    t->e->m.weight = 0;
    t->e->m.epoch = t->e->counts.progress.samples / epoch_samples(t);
    if (t->leased)
        allow(t);
}

static uint64_t nominal_step(const void *self)
{
    const tutti_batches *t = self;

    return t->e->counts.progress.samples /
           (uint64_t)(t->e->options.batch * t->e->options.accumulate * t->e->m.workers);
}

static tutti_status check_pass(void *self, const tutti_pass *p, tutti_error *err)
{
    tutti_batches *t = self;
    tutti_pass most = { .index = p->index };
    const int64_t own = p->samples - p->received; /* without those of other workers */

    if (p->again)
        return TUTTI_OK;
    if (t->leased ? t->closed : !t->known)
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            t->leased
                ? "method '%s' has closed the step (tutti_batch_close) and begins another pass"
                : "method '%s' begins a step without saying how many samples it takes "
                  "(tutti_batch_exchange, tutti_batch_set)",
            t->e->m.ops->name);
    if (t->leased)
        next_pass(t, &most);
    else
        most.samples = t->of[t->e->m.rank] - t->taken;
    if (own < 0 || own > most.samples || own > t->pass)
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "method '%s' takes %lld samples in a pass; it may take up to %lld (steps.h)",
            t->e->m.ops->name, (long long)own,
            (long long)(most.samples < t->pass ? most.samples : t->pass));
    t->taken += own;
    if (t->leased)
        t->e->m.samples = t->taken;
    return TUTTI_OK;
}

/* Scales the piece's gradient to the right divisor. */
static void scale_gradient(void *self, tutti_piece *p)
{
    const tutti_batches *t = self;

    if (t->leased && t->closed && t->over != (double)t->pass)
        tutti_engine_scale_piece(t->e, p, (float)((double)t->pass / t->over));
}

static tutti_status end_step(void *self, tutti_error *err)
{
    tutti_batches *t = self;

    if (t->leased ? !t->closed : t->taken != t->of[t->e->m.rank])
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' has taken %lld samples in a step %s", t->e->m.ops->name,
                          (long long)t->taken,
                          t->leased ? "that it did not close (tutti_batch_close)"
                                    : "for which it declared another number");
    TUTTI_TRY(tutti_batch_file_write(t, err));
    for (int r = 0; r < t->e->m.workers; r++) {
        t->e->counts.progress.samples += (uint64_t)t->of[r];
        if (t->leased && t->e->division.share.parts == NULL)
            take_from(lease_of(t, r), (uint64_t)t->of[r]);
    }
    t->mine += (uint64_t)t->taken;
    return TUTTI_OK;
}

static bool more_samples(void *self, uint64_t samples)
{
    tutti_batches *t = self;

    t->limit = samples;
    return t->e->counts.progress.samples < samples;
}

static bool is_closed(const void *self)
{
    return ((const tutti_batches *)self)->closed;
}

int tutti_engine_takes(const tutti_engine *e)
{
    const tutti_batches *t = tutti_facility_self(&e->m, &facility);

    return t == NULL ? 0 : t->even ? 1 : t->leased ? 3 : 2;
}

/* True if every position below `next` was taken or is leased. Otherwise a run would wait for
   samples that no worker has, or take some twice. */
static bool leases_fit(const tutti_batches *t)
{
    const uint64_t done = t->e->counts.progress.samples, next = t->next;
    uint64_t left = next - done;

    for (int r = 0; r < t->e->m.workers; r++)
        for (int k = 0; k < TUTTI_BATCH_RANGES; k++) {
            const tutti_batch_range *range = &lease_of(t, r)[k];
            if (range->first > range->end || range->end > next || length(range) > left)
                return false;
            left -= length(range);
        }
    return next >= done && left == 0;
}

static tutti_status check_loaded(const void *self, tutti_error *err)
{
    const tutti_batches *t = self;
    const uint64_t done = t->e->counts.progress.samples;
    const char *wrong = NULL;

    if (!t->leased)
        return TUTTI_OK;
    for (int r = 0; r < t->e->m.workers; r++)
        if (t->of[r] < 0 || (uint64_t)t->of[r] > done)
            wrong = "what each took in the last step (take.of)";
    if (t->lease != NULL && !leases_fit(t))
        wrong = "what each leases (take.loan, take.next)";
    if (t->e->division.share.parts != NULL && t->mine > done)
        wrong = "what this worker has taken of its part (take.mine)";
    return wrong == NULL ? TUTTI_OK
                         : tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                      "method '%s': %s does not fit the %llu samples that the run "
                                      "has taken; use another checkpoint",
                                      t->e->m.ops->name, wrong, (unsigned long long)done);
}

/* ---- what methods call ---- */

static void take_close(void *self)
{
    tutti_batch_file_close(self);
    tutti_free(self);
}

static tutti_status take_load(void *self, tutti_checkpoint *checkpoint, const tutti_saved_run *run,
                              tutti_error *err)
{
    const tutti_batches *t = self;

    (void)checkpoint;
    return t->leased && run->changed
               ? tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the checkpoint has the samples that each of another number of workers "
                            "leased; method '%s' continues only with the number of workers that "
                            "saved it",
                            t->e->m.ops->name)
               : TUTTI_OK;
}

static const tutti_step_sizes sizes = { .begin = begin_step,
                                        .pass = next_pass,
                                        .check = check_pass,
                                        .closed = is_closed,
                                        .end = end_step,
                                        .more = more_samples,
                                        .nominal = nominal_step };
static const tutti_facility_ops facility = { .provides = TUTTI_SIZES_STEPS,
                                             .excludes = TUTTI_MERGES_STEPS,
                                             .sizes = &sizes,
                                             .close = take_close,
                                             .load = take_load,
                                             .loaded = check_loaded,
                                             .take_in = scale_gradient };

static tutti_status refuse_take(const tutti_engine *e, const tutti_batch_options *o,
                                tutti_error *err)
{
    static const tutti_conflict shares = {
        TUTTI_ASKED_BATCH_SHARE, "decides itself how much of it each computes", NULL, NULL
    };
    const tutti_rule rules[] = {
        { e->options.whole_batches && (o->leased || !o->even),
          "{method} decides while it runs how many samples a worker takes in a step, so a loader of "
          "equal batches will not do; give a client that takes as many as it is asked for (in "
          "Python prepare(sampler=tutti.torch.sampler(dataset, batch)))" },
        { o->record != NULL && o->record[0] != 0 && o->replay != NULL && o->replay[0] != 0,
          "{method}: record and replay are both given, but what a replayed run takes is written down "
          "already; give one of them" },
    };
    const int64_t pass = o->pass > 0 ? o->pass : e->options.batch;

    TUTTI_TRY(tutti_refuse_method(&e->m, "decide how many samples a step has, with all workers",
                                  TUTTI_OWN_PACE | TUTTI_GOES_ON, err));
    TUTTI_TRY(tutti_refuse(&e->m, &shares, 1, err));
    TUTTI_TRY(tutti_refuse_rules(&e->m, rules, TUTTI_LENGTH(rules), err));
    if (pass < 1 || pass > 1 << 24 || o->most < 0 || (o->most > 0 && o->most < pass && o->leased))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': a step of up to %lld samples a worker in passes of %lld; a "
                          "pass has 1 to %d, and a step at least one whole pass",
                          e->m.ops->name, (long long)o->most, (long long)pass, 1 << 24);
    return TUTTI_OK;
}

tutti_status tutti_batch_declare(tutti_method *m, tutti_plan *plan, const tutti_batch_options *o,
                                 tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_batches *t;
    const size_t n = (size_t)m->workers;
    const tutti_state
        of = { .name = "take.of",
               .keep = o->leased ? TUTTI_SAME : TUTTI_SCRATCH,
               .dtype = TUTTI_I64,
               .count = n,
               .of_workers = true },
        due = { .name = "take.due", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
        weight = { .name = "take.weight", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F64, .count = n };

    TUTTI_TRY(refuse_take(e, o, err));
    t = tutti_alloc(1, sizeof *t);
    if (t == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the samples of %zu workers",
                          n);
    tutti_facility_add(m, &facility, t);
    t->e = e;
    t->leased = o->leased;
    t->even = o->even && !o->leased;
    t->pass = o->pass > 0 ? o->pass : e->options.batch;
    t->most = o->most > 0 ? o->most : e->options.batch * e->options.accumulate;
    if (t->most < t->pass && o->leased)
        t->most = t->pass;
    t->record_path = o->record != NULL ? o->record : "";
    t->replay_path = o->replay != NULL ? o->replay : "";
    e->division.share.batch = t->pass;
    if (e->options.data_samples == 0) /* size of an epoch unknown: it never ends */
        e->division.share.samples = INT64_MAX / 2;
    tutti_declare(plan, &of, &t->of);
    if (t->leased) {
        tutti_declare(plan, &due, &t->due);
        tutti_declare(plan, &weight, &t->weight);
    }
    if (t->leased && e->options.parts == NULL) {
        tutti_declare(plan,
                      &(tutti_state){ .name = "take.loan",
                                      .keep = TUTTI_SAME,
                                      .dtype = TUTTI_I64,
                                      .count = n * 2 * TUTTI_BATCH_RANGES,
                                      .of_workers = true },
                      &t->lease);
        tutti_declare_value(plan, "take.next", TUTTI_SAME, &t->next, sizeof t->next);
    }
    if (e->options.parts != NULL)
        tutti_declare_value(plan, "take.mine", TUTTI_OWN_ZERO, &t->mine, sizeof t->mine);
    return tutti_batch_file_open(t, err);
}

int64_t tutti_batch_left(const tutti_method *m)
{
    const tutti_batches *t = tutti_facility_self(m, &facility);

    if (!t->leased)
        return (t->known ? t->of[m->rank] : t->most) - t->taken;
    return (int64_t)t->allowed - t->taken;
}

/* All counts are in take.of: shortens the step at the end of its epoch or of the run. */
static void settle_counts(tutti_batches *t, tutti_pass *p, bool was_cut, int64_t *of)
{
    const uint64_t d = epoch_samples(t), at = t->e->counts.progress.samples,
                   n = (uint64_t)t->e->m.workers;
    /* else there are no epochs */
    uint64_t most = t->e->options.data_samples > 0 ? d - at % d : UINT64_MAX;
    uint64_t sum = 0, below = 0;
    bool even = true;

    if (t->limit > 0)
        most = t->limit <= at ? 0 : t->limit - at < most ? t->limit - at : most;
    for (uint64_t r = 0; r < n; r++) {
        sum += (uint64_t)t->of[r];
        even = even && t->of[r] == t->of[0];
    }
    t->cut = sum > most || was_cut;
    for (uint64_t r = 0; r < n && sum > most; r++) {
        const uint64_t up = below + (uint64_t)t->of[r];
        t->of[r] = (int64_t)(even ? most / n + (r < most % n)
                                  : (uint64_t)((unsigned __int128)most * up / sum) -
                                        (uint64_t)((unsigned __int128)most * below / sum));
        below = up;
    }
    sum = sum > most ? most : sum;
    t->known = true;
    t->e->m.samples = t->of[t->e->m.rank];
    t->e->m.weight = sum > 0 ? (double)t->e->m.samples / (double)sum : 0;
    if (of != NULL)
        memcpy(of, t->of, (size_t)n * sizeof *of);
    next_pass(t, p);
}

static tutti_status wrong_time(const tutti_method *m, const char *call, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "method '%s': %s is legal within pass, once a step, after "
                      "tutti_batch_declare %s leased (steps.h)",
                      m->ops->name, call,
                      strcmp(call, "tutti_batch_close") == 0 ? "with" : "without");
}

static tutti_status check_count(const tutti_batches *t, int worker, int64_t count, tutti_error *err)
{
    if (count >= 0 && count <= t->most && (!t->even || count == 0 || count == t->most))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "method '%s': worker %d takes %lld samples in a step; it may be 0 %s %lld",
                      t->e->m.ops->name, worker, (long long)count, t->even ? "or" : "to",
                      (long long)t->most);
}

/* Gathers the counts of all workers into take.of. */
static tutti_status gather_counts(tutti_batches *t, int64_t mine, tutti_error *err)
{
    const tutti_doing was = tutti_engine_expose(t->e);
    const int64_t begin = tutti_now_ns(t->e->rt);
    const tutti_status status =
        tutti_allgather(&t->e->m.all, tutti_host(&mine, 1, TUTTI_I64),
                        tutti_host(t->of, (size_t)t->e->m.workers, TUTTI_I64), err);

    tutti_engine_comm(t->e, "counts", 0, begin, tutti_now_ns(t->e->rt));
    tutti_engine_doing(t->e, was);
    return status;
}

tutti_status tutti_batch_exchange(tutti_method *m, tutti_pass *p, int64_t mine, int64_t *of,
                                  tutti_error *err)
{
    tutti_batches *t = tutti_facility_self(m, &facility);
    int64_t recorded;
    bool cut;

    if (t == NULL || t->leased || t->known || p->index != 0)
        return wrong_time(m, "tutti_batch_exchange", err);
    TUTTI_TRY(tutti_batch_file_count(t, &recorded, &cut, err));
    if (recorded >= 0)
        mine = recorded;
    TUTTI_TRY(check_count(t, m->rank, mine, err));
    TUTTI_TRY(gather_counts(t, mine, err));
    settle_counts(t, p, cut, of);
    return TUTTI_OK;
}

static tutti_status check_replay(const tutti_batches *t, int64_t recorded, int64_t taken,
                                 tutti_error *err)
{
    const tutti_method *m = &t->e->m;

    return recorded < 0 || recorded == taken
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "replay is '%.200s', in which worker %d took %lld samples in step "
                            "%llu; here it takes %lld, so it is the record of another run",
                            t->replay_path, m->rank, (long long)recorded,
                            (unsigned long long)m->step, (long long)taken);
}

tutti_status tutti_batch_set(tutti_method *m, tutti_pass *p, const int64_t *wanted, int64_t *of,
                             tutti_error *err)
{
    tutti_batches *t = tutti_facility_self(m, &facility);
    int64_t recorded;
    bool cut;

    if (t == NULL || t->leased || t->known || p->index != 0)
        return wrong_time(m, "tutti_batch_set", err);
    for (int r = 0; r < m->workers; r++)
        TUTTI_TRY(check_count(t, r, wanted[r], err));
    memcpy(t->of, wanted, (size_t)m->workers * sizeof *wanted);
    settle_counts(t, p, false, of);
    TUTTI_TRY(tutti_batch_file_count(t, &recorded, &cut, err));
    return check_replay(t, recorded, m->samples, err);
}

bool tutti_batch_next_pass(tutti_method *m, bool wanted)
{
    const tutti_batches *t = tutti_facility_self(m, &facility);
    tutti_pass next = { .index = 0 };

    if (t == NULL || !t->leased || t->closed)
        return false;
    next_pass(t, &next);
    return next.samples > 0 && (wanted || t->last || t->replay != NULL);
}

tutti_status tutti_batch_close(tutti_method *m, int64_t *of, tutti_error *err)
{
    tutti_batches *t = tutti_facility_self(m, &facility);
    uint64_t sum = 0;
    int64_t recorded;
    bool cut;

    if (t == NULL || !t->leased || t->closed || t->e->stage != STAGE_BETWEEN)
        return wrong_time(m, "tutti_batch_close", err);
    TUTTI_TRY(tutti_batch_file_count(t, &recorded, &cut, err));
    TUTTI_TRY(check_replay(t, recorded, t->taken, err));
    TUTTI_TRY(gather_counts(t, t->taken, err));
    for (int r = 0; r < m->workers; r++)
        sum += (uint64_t)t->of[r];
    t->closed = true;
    t->over = m->samples > 0 ? (double)m->samples : 1;
    m->weight = sum > 0 ? (double)m->samples / (double)sum : 0;
    if (of != NULL)
        memcpy(of, t->of, (size_t)m->workers * sizeof *of);
    return TUTTI_OK;
}

void tutti_batch_divide_by(tutti_method *m, double samples)
{
    tutti_batches *t = tutti_facility_self(m, &facility);

    t->over = samples;
}
