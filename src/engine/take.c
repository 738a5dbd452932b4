/* take.c: variable batches (steps.h): a step has as many samples as its workers take, and all
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
#include <string.h>

#include "engine_internal.h"
#include "engine/facility.h"

static uint64_t epoch_samples(const tutti_engine *e)
{
    return e->share.samples;
}

/* ---- leases ---- */

static tutti_take_range *loan_of(const tutti_engine *e, int worker)
{
    return e->take.lease + TUTTI_TAKE_RANGES * worker;
}

static uint64_t length(const tutti_take_range *range)
{
    return range->end - range->first;
}

static uint64_t held(const tutti_take_range *lease)
{
    uint64_t sum = 0;

    for (int k = 0; k < TUTTI_TAKE_RANGES; k++)
        sum += length(&lease[k]);
    return sum;
}

/* What a worker may take in a step: bounded so that a lease does not span many epochs. */
static uint64_t loan_size(const tutti_engine *e)
{
    const uint64_t part = epoch_samples(e) / (4 * (uint64_t)e->m.workers), pass = (uint64_t)e->take.pass,
                   cap = part > pass ? part : pass;

    return (uint64_t)e->take.most < cap ? (uint64_t)e->take.most : cap;
}

/* Appends a range to the lease, or extends its last range. false: the lease is full. */
static bool add_range(tutti_take_range *lease, tutti_take_range more)
{
    for (int k = 0; k < TUTTI_TAKE_RANGES; k++)
        if (length(&lease[k]) == 0) {
            if (k > 0 && lease[k - 1].end == more.first)
                lease[k - 1].end = more.end;
            else
                lease[k] = more;
            return true;
        }
    return false;
}

static void take_from(tutti_take_range *lease, uint64_t n)
{
    int used = 0;

    while (used < TUTTI_TAKE_RANGES && n >= length(&lease[used]) && length(&lease[used]) > 0)
        n -= length(&lease[used++]);
    for (int k = 0; k < TUTTI_TAKE_RANGES; k++)
        lease[k] = k + used < TUTTI_TAKE_RANGES ? lease[k + used] : (tutti_take_range){ 0, 0 };
    lease[0].first += n;
}

/* Moves up to n positions from the end of worker `from`'s lease to worker `to`. Returns how
   many. */
static uint64_t move(tutti_engine *e, int from, int to, uint64_t n)
{
    tutti_take_range *lease = loan_of(e, from), *last = lease;

    for (int k = 1; k < TUTTI_TAKE_RANGES; k++)
        last = length(&lease[k]) > 0 ? &lease[k] : last;
    n = n < length(last) ? n : length(last);
    if (n == 0 || !add_range(loan_of(e, to), (tutti_take_range){ last->end - n, last->end }))
        return 0;
    last->end -= n;
    if (length(last) == 0)
        *last = (tutti_take_range){ 0, 0 };
    return n;
}

/* Gives each worker its due, from workers that have more, the largest surplus first. */
static void balance(tutti_engine *e, uint64_t least)
{
    for (int to = 0; to < e->m.workers; to++)
        for (int tries = 0; tries < TUTTI_TAKE_RANGES; tries++) {
            const int64_t lacks = e->take.due[to] - (int64_t)held(loan_of(e, to));
            int64_t most = 0;
            int from = to;
            for (int q = 0; q < e->m.workers; q++) {
                const int64_t over = (int64_t)held(loan_of(e, q)) - e->take.due[q];
                from = over > most ? q : from;
                most = over > most ? over : most;
            }
            if (from == to || lacks < (int64_t)least || most < (int64_t)least ||
                move(e, from, to, (uint64_t)(lacks < most ? lacks : most)) == 0)
                break;
        }
}

static void lend(tutti_engine *e, uint64_t size)
{
    const uint64_t end = e->take.limit > 0 ? e->take.limit : UINT64_MAX;

    for (int r = 0; r < e->m.workers; r++) {
        const uint64_t left = e->take.next < end ? end - e->take.next : 0, n = left < size ? left : size;
        if (n > 0 && held(loan_of(e, r)) < size &&
            add_range(loan_of(e, r), (tutti_take_range){ e->take.next, e->take.next + n }))
            e->take.next += n;
    }
}

/* Computes what this worker may take in this step, and whether it is the run's last. */
static void allow(tutti_engine *e)
{
    const uint64_t size = loan_size(e), done = e->progress.samples,
                   left = e->take.limit > done ? e->take.limit - done : 0;
    const bool parts = e->share.parts != NULL;
    uint64_t before = 0, mine;

    for (int r = 0; r < e->m.workers; r++)
        before += (uint64_t)e->take.of[r];
    for (int r = 0; r < e->m.workers; r++)
        e->take.weight[r] = before > 0 ? (double)e->take.of[r] : 1;
    if (e->take.limit > 0)
        tutti_share_apportion((int64_t)left, e->m.workers, e->take.weight, 0, e->take.due);
    e->take.last = e->take.limit > 0 && left <= before;
    if (!parts) {
        lend(e, size);
        if (e->take.limit > 0 && e->take.next >= e->take.limit)
            balance(e, left < 2 * before ? 1 : (uint64_t)e->take.pass);
        mine = held(loan_of(e, e->m.rank));
    } else
        mine = e->take.limit > 0 ? (uint64_t)e->take.due[e->m.rank] : size;
    if (e->take.limit > 0 && left > before && left < 2 * before) {
        const uint64_t half = ((uint64_t)e->take.due[e->m.rank] + 1) / 2;
        mine = mine < half ? mine : half;
    }
    e->take.allowed = mine < size ? mine : size;
}

/* ---- where a pass is ---- */

/* The number of worker r's samples that come before this worker's pass a, in a step that was not
   shortened. */
static uint64_t samples_before(const tutti_engine *e, int r, uint64_t a)
{
    const uint64_t pass = (uint64_t)e->take.pass, has = (uint64_t)e->take.of[r],
                   until = (a + (r < e->m.rank)) * pass;
    return has < until ? has : until;
}

int64_t tutti_take_place(const tutti_method *m, int64_t pass, uint64_t *epoch, uint64_t *position)
{
    const tutti_engine *e = m->engine;
    const uint64_t d = epoch_samples(e), a = (uint64_t)pass, at = a * (uint64_t)e->take.pass;
    const int64_t left = e->take.known ? e->take.of[m->rank] - (int64_t)at : 0;
    uint64_t first = 0;

    *epoch = e->progress.samples / d;
    for (int r = 0; r < m->workers && e->take.known; r++)
        first += e->take.cut ? (r < m->rank ? (uint64_t)e->take.of[r] : 0) : samples_before(e, r, a);
    if (e->take.cut)
        first += at;
    *position = e->share.parts != NULL ? e->take.mine + at : e->progress.samples % d + first;
    return left <= 0 ? 0 : left < e->take.pass ? left : e->take.pass;
}

static void lent_pass(const tutti_engine *e, tutti_pass *p)
{
    const uint64_t d = epoch_samples(e), taken = (uint64_t)e->take.taken, may = e->take.allowed;
    uint64_t n = may > taken ? may - taken : 0;

    if (n > (uint64_t)e->take.pass)
        n = (uint64_t)e->take.pass;
    if (e->share.parts != NULL) {
        p->epoch = e->progress.samples / d;
        p->position = e->take.mine + taken;
    } else if (n > 0) {
        const tutti_take_range *range = loan_of(e, e->m.rank);
        uint64_t at = taken, end;
        for (; at >= length(range); range++)
            at -= length(range);
        at += range->first;
        end = range->end < (at / d + 1) * d ? range->end : (at / d + 1) * d;
        n = n < end - at ? n : end - at;
        p->epoch = at / d;
        p->position = at % d;
    }
    if (e->take.replay != NULL) {
        const uint64_t step = e->progress.step,
                       recorded = step < e->take.replay_steps ? (uint64_t)e->take.replay[step] : 0; /* not cut */
        n = recorded <= taken ? 0 : n < recorded - taken ? n : recorded - taken;
    }
    p->samples = (int64_t)n;
    p->divisor = n > 0 ? e->take.pass : 0;
    p->more = true;
    p->exchange = false;
}

void tutti_engine_take_pass(const tutti_engine *e, tutti_pass *p)
{
    if (e->take.leased) {
        lent_pass(e, p);
        return;
    }
    p->samples = tutti_take_place(&e->m, p->index, &p->epoch, &p->position);
    p->divisor = e->m.samples;
    p->more = e->take.known && p->samples > 0 && (p->index + 1) * e->take.pass < e->m.samples;
    p->exchange = !p->more;
}

/* ---- a step ---- */

void tutti_engine_take_begin(tutti_engine *e)
{
    e->take.known = e->take.closed = e->take.cut = false;
    e->take.taken = 0;
    e->m.samples = 0;
    e->m.weight = 0;
    e->m.epoch = e->progress.samples / epoch_samples(e);
    if (e->take.leased)
        allow(e);
}

uint64_t tutti_engine_take_turn(const tutti_engine *e)
{
    return e->progress.samples / (uint64_t)(e->options.batch * e->options.accumulate * e->m.workers);
}

tutti_status tutti_engine_take_check(tutti_engine *e, const tutti_pass *p, tutti_error *err)
{
    tutti_pass most = { .index = p->index };
    const int64_t own = p->samples - p->received; /* without those of other workers */

    if (p->again)
        return TUTTI_OK;
    if (e->take.leased ? e->take.closed : !e->take.known)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          e->take.leased ? "method '%s' has closed the step (tutti_take_close) and begins another pass"
                                       : "method '%s' begins a step without saying how many samples it takes "
                                         "(tutti_take_tell, tutti_take_known)",
                          e->m.ops->name);
    if (e->take.leased)
        tutti_engine_take_pass(e, &most);
    else
        most.samples = e->take.of[e->m.rank] - e->take.taken;
    if (own < 0 || own > most.samples || own > e->take.pass)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' takes %lld samples in a pass; it may take up to %lld (steps.h)", e->m.ops->name,
                          (long long)own,
                          (long long)(most.samples < e->take.pass ? most.samples : e->take.pass));
    e->take.taken += own;
    if (e->take.leased)
        e->m.samples = e->take.taken;
    return TUTTI_OK;
}

void tutti_engine_take_scale(tutti_engine *e, tutti_piece *p)
{
    if (e->take.leased && e->take.closed && e->take.over != (double)e->take.pass)
        tutti_engine_scale_piece(e, p, (float)((double)e->take.pass / e->take.over));
}

tutti_status tutti_engine_take_end(tutti_engine *e, tutti_error *err)
{
    if (e->take.leased ? !e->take.closed : e->take.taken != e->take.of[e->m.rank])
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' has taken %lld samples in a step %s", e->m.ops->name, (long long)e->take.taken,
                          e->take.leased ? "that it did not close (tutti_take_close)"
                                       : "for which it declared another number");
    TUTTI_TRY(tutti_take_file_write(e, err));
    for (int r = 0; r < e->m.workers; r++) {
        e->progress.samples += (uint64_t)e->take.of[r];
        if (e->take.leased && e->share.parts == NULL)
            take_from(loan_of(e, r), (uint64_t)e->take.of[r]);
    }
    e->take.mine += (uint64_t)e->take.taken;
    return TUTTI_OK;
}

bool tutti_engine_take_more(tutti_engine *e, uint64_t samples)
{
    e->take.limit = samples;
    return e->progress.samples < samples;
}

int tutti_engine_takes(const tutti_engine *e)
{
    return !e->take.on ? 0 : e->take.even ? 1 : e->take.leased ? 3 : 2;
}

/* Every position below `next` was taken or is leased. Otherwise a run would wait for samples that
   no worker has, or take some twice. */
static bool loans_fit(const tutti_engine *e)
{
    const uint64_t done = e->progress.samples, next = e->take.next;
    uint64_t left = next - done;

    for (int r = 0; r < e->m.workers; r++)
        for (int k = 0; k < TUTTI_TAKE_RANGES; k++) {
            const tutti_take_range *range = &loan_of(e, r)[k];
            if (range->first > range->end || range->end > next || length(range) > left)
                return false;
            left -= length(range);
        }
    return next >= done && left == 0;
}

tutti_status tutti_engine_take_loaded(const tutti_engine *e, tutti_error *err)
{
    const uint64_t done = e->progress.samples;
    const char *wrong = NULL;

    if (!e->take.on || !e->take.leased)
        return TUTTI_OK;
    for (int r = 0; r < e->m.workers; r++)
        if (e->take.of[r] < 0 || (uint64_t)e->take.of[r] > done)
            wrong = "what each took in the last step (take.of)";
    if (e->take.lease != NULL && !loans_fit(e))
        wrong = "what each leases (take.loan, take.next)";
    if (e->share.parts != NULL && e->take.mine > done)
        wrong = "what this worker has taken of its part (take.mine)";
    return wrong == NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                            "method '%s': %s does not fit the %llu samples that the run has taken; use another "
                            "checkpoint", e->m.ops->name, wrong, (unsigned long long)done);
}

/* ---- what methods call ---- */

static void take_close(void *self)
{
    tutti_take_file_close(self);
}

static tutti_status take_load(void *self, tutti_checkpoint *checkpoint, const tutti_saved_run *run, tutti_error *err)
{
    const tutti_engine *e = self;

    (void)checkpoint;
    return e->take.leased && run->changed
               ? tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the checkpoint has the samples that each of another number of workers leased; method "
                            "'%s' continues only with the number of workers that saved it",
                            e->m.ops->name)
               : TUTTI_OK;
}

static const tutti_facility_ops take_ops = { .close = take_close, .load = take_load };

static tutti_status refuse_take(const tutti_engine *e, const tutti_take_options *o, tutti_error *err)
{
    const int64_t pass = o->pass > 0 ? o->pass : e->options.batch;

    if (e->m.traits & (TUTTI_ASYNC | TUTTI_FAULT_TOLERANT))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' has free sample counts, which all learn of all in every step; so it makes steps "
                          "together and ends with a lost worker",
                          e->m.ops->name);
    if (e->options.batch_of != NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method '%s' decides itself how much of a step each worker computes; use it with even shares (batch-share)",
            e->m.ops->name);
    if (e->options.whole_batches && (o->leased || !o->even))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' decides while it runs how many samples a worker takes in a step, so a loader of "
                          "equal batches will not do; give a client that takes as many as it is asked for (in Python "
                          "prepare(sampler=tutti.torch.sampler(dataset, batch)))",
                          e->m.ops->name);
    if (pass < 1 || pass > 1 << 24 || o->most < 0 || (o->most > 0 && o->most < pass && o->leased))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': a step of up to %lld samples a worker in passes of %lld; a pass has 1 to %d, "
                          "and a step at least one whole pass",
                          e->m.ops->name, (long long)o->most, (long long)pass, 1 << 24);
    if (o->record != NULL && o->record[0] != 0 && o->replay != NULL && o->replay[0] != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "record is '%.200s' and replay '%.200s': what a replayed run takes is written down already; "
                          "give one of them",
                          o->record, o->replay);
    return TUTTI_OK;
}

tutti_status tutti_take_declare(tutti_method *m, tutti_plan *plan, const tutti_take_options *o, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const size_t n = (size_t)m->workers;
    const tutti_state of = { .name = "take.of", .keep = o->leased ? TUTTI_SAME : TUTTI_SCRATCH, .dtype = TUTTI_I64,
                             .count = n, .of_workers = true },
                      due = { .name = "take.due", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
                      weight = { .name = "take.weight", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F64, .count = n };

    TUTTI_TRY(refuse_take(e, o, err));
    e->take.on = true;
    e->take.leased = o->leased;
    e->take.even = o->even && !o->leased;
    e->take.pass = o->pass > 0 ? o->pass : e->options.batch;
    e->take.most = o->most > 0 ? o->most : e->options.batch * e->options.accumulate;
    if (e->take.most < e->take.pass && o->leased)
        e->take.most = e->take.pass;
    e->take.record_path = o->record != NULL ? o->record : "";
    e->take.replay_path = o->replay != NULL ? o->replay : "";
    e->share.batch = e->take.pass;
    if (e->options.data_samples == 0) /* size of an epoch unknown: it never ends */
        e->share.samples = INT64_MAX / 2;
    tutti_facility_add(m, &take_ops, e);
    tutti_declare(plan, &of, &e->take.of);
    if (e->take.leased) {
        tutti_declare(plan, &due, &e->take.due);
        tutti_declare(plan, &weight, &e->take.weight);
    }
    if (e->take.leased && e->options.parts == NULL) {
        tutti_declare(plan,
                      &(tutti_state){ .name = "take.loan",
                                      .keep = TUTTI_SAME,
                                      .dtype = TUTTI_I64,
                                      .count = n * 2 * TUTTI_TAKE_RANGES,
                                      .of_workers = true },
                      &e->take.lease);
        tutti_declare_value(plan, "take.next", TUTTI_SAME, &e->take.next, sizeof e->take.next);
    }
    if (e->options.parts != NULL)
        tutti_declare_value(plan, "take.mine", TUTTI_OWN_ZERO, &e->take.mine, sizeof e->take.mine);
    return tutti_take_file_open(e, err);
}

int64_t tutti_take_left(const tutti_method *m)
{
    const tutti_engine *e = m->engine;

    if (!e->take.leased)
        return (e->take.known ? e->take.of[m->rank] : e->take.most) - e->take.taken;
    return (int64_t)e->take.allowed - e->take.taken;
}

/* All counts are in take.of: shortens the step at the end of its epoch or of the run. */
static void settle_counts(tutti_engine *e, tutti_pass *p, bool was_cut, int64_t *of)
{
    const uint64_t d = epoch_samples(e), at = e->progress.samples, n = (uint64_t)e->m.workers;
    uint64_t most = e->options.data_samples > 0 ? d - at % d : UINT64_MAX; /* else there are no epochs */
    uint64_t sum = 0, below = 0;
    bool even = true;

    if (e->take.limit > 0)
        most = e->take.limit <= at ? 0 : e->take.limit - at < most ? e->take.limit - at : most;
    for (uint64_t r = 0; r < n; r++) {
        sum += (uint64_t)e->take.of[r];
        even = even && e->take.of[r] == e->take.of[0];
    }
    e->take.cut = sum > most || was_cut;
    for (uint64_t r = 0; r < n && sum > most; r++) {
        const uint64_t up = below + (uint64_t)e->take.of[r];
        e->take.of[r] = (int64_t)(even ? most / n + (r < most % n)
                                       : (uint64_t)((unsigned __int128)most * up / sum) -
                                             (uint64_t)((unsigned __int128)most * below / sum));
        below = up;
    }
    sum = sum > most ? most : sum;
    e->take.known = true;
    e->m.samples = e->take.of[e->m.rank];
    e->m.weight = sum > 0 ? (double)e->m.samples / (double)sum : 0;
    if (of != NULL)
        memcpy(of, e->take.of, (size_t)n * sizeof *of);
    tutti_engine_take_pass(e, p);
}

static tutti_status wrong_time(const tutti_engine *e, const char *call, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "method '%s': %s is legal within pass, once a step, after tutti_take_declare %s leased (steps.h)",
                      e->m.ops->name, call, strcmp(call, "tutti_take_close") == 0 ? "with" : "without");
}

static tutti_status check_count(const tutti_engine *e, int worker, int64_t count, tutti_error *err)
{
    if (count >= 0 && count <= e->take.most && (!e->take.even || count == 0 || count == e->take.most))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "method '%s': worker %d takes %lld samples in a step; it may be 0 %s %lld", e->m.ops->name,
                      worker, (long long)count, e->take.even ? "or" : "to", (long long)e->take.most);
}

/* Gathers the counts of all workers into take.of. */
static tutti_status gather_counts(tutti_engine *e, int64_t mine, tutti_error *err)
{
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(e->rt);
    const tutti_status status = tutti_allgather(&e->m.all, tutti_host(&mine, 1, TUTTI_I64),
                                                tutti_host(e->take.of, (size_t)e->m.workers, TUTTI_I64), err);

    tutti_engine_comm(e, "counts", 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_take_tell(tutti_method *m, tutti_pass *p, int64_t mine, int64_t *of, tutti_error *err)
{
    tutti_engine *e = m->engine;
    int64_t recorded;
    bool cut;

    if (!e->take.on || e->take.leased || e->take.known || p->index != 0)
        return wrong_time(e, "tutti_take_tell", err);
    TUTTI_TRY(tutti_take_file_count(e, &recorded, &cut, err));
    if (recorded >= 0)
        mine = recorded;
    TUTTI_TRY(check_count(e, m->rank, mine, err));
    TUTTI_TRY(gather_counts(e, mine, err));
    settle_counts(e, p, cut, of);
    return TUTTI_OK;
}

tutti_status tutti_take_known(tutti_method *m, tutti_pass *p, const int64_t *wanted, int64_t *of, tutti_error *err)
{
    tutti_engine *e = m->engine;
    int64_t recorded;
    bool cut;

    if (!e->take.on || e->take.leased || e->take.known || p->index != 0)
        return wrong_time(e, "tutti_take_known", err);
    for (int r = 0; r < m->workers; r++)
        TUTTI_TRY(check_count(e, r, wanted[r], err));
    memcpy(e->take.of, wanted, (size_t)m->workers * sizeof *wanted);
    settle_counts(e, p, false, of);
    TUTTI_TRY(tutti_take_file_count(e, &recorded, &cut, err));
    return recorded < 0 || recorded == m->samples
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "replay is '%.200s', in which worker %d took %lld samples in step %llu; here it takes "
                            "%lld, so it is the record of another run",
                            e->take.replay_path, m->rank, (long long)recorded, (unsigned long long)m->step,
                            (long long)m->samples);
}

bool tutti_take_another(tutti_method *m, bool wanted)
{
    const tutti_engine *e = m->engine;
    tutti_pass next = { .index = 0 };

    if (!e->take.leased || e->take.closed)
        return false;
    tutti_engine_take_pass(e, &next);
    return next.samples > 0 && (wanted || e->take.last || e->take.replay != NULL);
}

tutti_status tutti_take_close(tutti_method *m, int64_t *of, tutti_error *err)
{
    tutti_engine *e = m->engine;
    uint64_t sum = 0;
    int64_t recorded;
    bool cut;

    if (!e->take.leased || e->take.closed || e->stage != STAGE_BETWEEN)
        return wrong_time(e, "tutti_take_close", err);
    TUTTI_TRY(tutti_take_file_count(e, &recorded, &cut, err));
    if (recorded >= 0 && recorded != e->take.taken)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "replay is '%.200s', in which worker %d took %lld samples in step %llu; here it may "
                          "take %lld, so it is the record of another run",
                          e->take.replay_path, m->rank, (long long)recorded, (unsigned long long)m->step,
                          (long long)e->take.taken);
    TUTTI_TRY(gather_counts(e, e->take.taken, err));
    for (int r = 0; r < m->workers; r++)
        sum += (uint64_t)e->take.of[r];
    e->take.closed = true;
    e->take.over = m->samples > 0 ? (double)m->samples : 1;
    m->weight = sum > 0 ? (double)m->samples / (double)sum : 0;
    if (of != NULL)
        memcpy(of, e->take.of, (size_t)m->workers * sizeof *of);
    return TUTTI_OK;
}

void tutti_take_divide(tutti_method *m, double samples)
{
    ((tutti_engine *)m->engine)->take.over = samples;
}
