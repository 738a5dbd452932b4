/* sgp: stochastic gradient push, SGD on push-sum. A worker decides alone how to split what it has,
   and directed graphs need no weights that agree. Assran, Loizou, Ballas, Rabbat, ICML 2019, arXiv
   1811.10792, algorithms 1 and 2.
     overlap=0    x_i <- x_i - eta opt(g_i(z_i));  (x_i, w_i) <- sum_j P_ij (x_j, w_j);
                  z_i = x_i / w_i
     overlap=tau  at the beginning of every tau-th step what was sent tau steps ago is added, then
                  (x, w) is split and sent again; gradients are taken and applied meanwhile
   P is the graph's, of the sender: columns sum to 1 (topology.h, tutti_graph_open_push).
   What is kept here is z and w; x = w z is never formed (src/gossip/mixer.c). So a step on x is one
   of eta / w on z. With w = 1, which regular graphs keep for ever, this is d-psgd(order=atc) to the
   bit. Gradients, weight decay and momentum are of z, and local. w is a whole number of parts, so
   the weights of all, and of what is under way, sum to exactly the number of workers. That is
   looked at whenever the agreed model is made.
   Chosen here: what has come is added after exactly tau steps, and not "if it has arrived". So
   every run has the same bits. One exchange in tau steps is what is sent. What is in flight is
   saved as it is and not drained, so saving disturbs nothing.
   The agreed model is the sum of all x over the sum of all w: push-sum's mean, and not the mean of
   z. What a lost worker held is gone; the others' weights are those of what is left. */
#include "tutti/gossip.h"

typedef struct sgp {
    const char *graph;
    int64_t overlap;
    tutti_mixer *mixer;

    tutti_mass mass;      /* w; overlapping: the mixer's until what was started has come, then of both. Declared */
    bool whole;           /* this process has seen the run from its beginning */
    float *agreed;        /* numerator, digits of the weight, whether it is whole: summed over all at once */

    /* overlapping only; declared */
    tutti_mass kept;      /* w meanwhile */
    float *sent, *mixed;  /* n each: z as it was split; what the round made of it */
} sgp;

/* A weight as floats whose sums over up to 2^14 workers are exact. */
enum { DIGITS = 6, DIGIT_BITS = 10 };

static const tutti_option sgp_options[] = {
    { "graph", TUTTI_SPEC, TUTTI_AT(sgp, graph), 0, 0, 0, "one-peer-exponential",
      "who sends to whom, weights=push included; `tutti topology` lists them" },
    { "overlap", TUTTI_INT, TUTTI_AT(sgp, overlap), 0, 0, 1e6, NULL,
      "steps that an exchange may take, hidden behind their gradients; 0: exchange after each step" },
    { 0 }
};

static bool overlaps(const tutti_method *m)
{
    return ((const sgp *)m->self)->overlap > 0 && m->workers > 1;
}

static tutti_status sgp_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    sgp *s = m->self;

    s->mass = s->kept = TUTTI_MASS_ONE;
    tutti_declare_value(plan, "sgp.mass", TUTTI_OWN_SUM, &s->mass, sizeof s->mass);
    if (m->workers > 1)
        tutti_declare(plan, &(tutti_state){ .name = "sgp.agreed", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32,
                                            .count = m->n + DIGITS + 1 }, &s->agreed);
    if (overlaps(m)) {
        tutti_declare_value(plan, "sgp.kept", TUTTI_OWN_ZERO, &s->kept, sizeof s->kept);
        tutti_declare_vector(plan, "sgp.sent", TUTTI_OWN_ZERO, &s->sent);
        tutti_declare_vector(plan, "sgp.mixed", TUTTI_OWN_ZERO, &s->mixed);
    }
    return tutti_mixer_declare(
        &s->mixer, m, plan, &(tutti_mixer_options){ .graph = s->graph, .push = true, .ahead = overlaps(m) }, err);
}

static tutti_status check_weight(const tutti_method *m, tutti_mass mass, tutti_error *err)
{
    const sgp *s = m->self;

    if (mass >= TUTTI_MASS_ONE / 1000000)
        return TUTTI_OK;
    return tutti_fail_rank(err, TUTTI_ERR_NUMBER, m->rank,
                           "worker %d is starved: its push-sum weight has fallen to %g in step %llu, since graph '%s' "
                           "brings it less than it gives away; use a graph "
                           "that sends it more (`tutti topology` shows the weights)",
                           m->rank, tutti_mass_real(mass), (unsigned long long)m->step, s->graph);
}

/* The model once what has come is added: mixed is (kept sent + what came) / mass, and z has moved
   since by what its own kept share weighs. */
static void merged(const tutti_method *m, const sgp *s, float *z)
{
    const size_t n = m->layout->used;
    const double share = tutti_mass_real(s->kept) / tutti_mass_real(s->mass);

    tutti_diff(m->device, n, (float)share, z, s->sent, z);
    tutti_add(m->device, n, s->mixed, z);
}

static tutti_status sgp_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    sgp *s = m->self;

    if (p->index > 0)
        return TUTTI_OK;
    s->whole = s->whole || m->step == 0;
    if (!overlaps(m) || m->step % (uint64_t)s->overlap != 0)
        return TUTTI_OK;
    if (m->step > 0) {
        TUTTI_TRY(tutti_mix_wait(s->mixer, err));
        TUTTI_TRY(check_weight(m, s->mass, err));
        merged(m, s, m->x);
    }
    tutti_copy(m->device, m->layout->used, m->x, s->sent);
    tutti_mix_start(s->mixer, m->step / (uint64_t)s->overlap, s->sent, s->mixed, &s->mass);
    s->kept = s->mass;
    return check_weight(m, s->kept, err);
}

static tutti_status sgp_step(tutti_method *m, tutti_error *err)
{
    sgp *s = m->self;
    const bool ahead = overlaps(m);

    TUTTI_TRY(tutti_base_step_on(m, m->x, NULL, 1 / tutti_mass_real(ahead ? s->kept : s->mass), err));
    if (ahead)
        return TUTTI_OK;
    TUTTI_TRY(tutti_mix(s->mixer, m->step, m->x, m->x, &s->mass, err));
    return check_weight(m, s->mass, err);
}

/* Sum of all numerators over the sum of all weights, in one collective: of two a loss may end the
   first on some workers only, and the others would wait in the second. */
static tutti_status sgp_agree(tutti_method *m, tutti_error *err)
{
    sgp *s = m->self;
    const size_t n = m->layout->used;
    tutti_mass all = 0;
    int whole;

    if (m->workers == 1)
        return TUTTI_OK;
    if (overlaps(m) && m->step > 0)
        merged(m, s, m->x);
    tutti_copy(m->device, n, m->x, s->agreed);
    tutti_scale(m->device, n, (float)(tutti_mass_real(s->mass) / m->workers), s->agreed);
    for (int k = 0; k < DIGITS; k++)
        s->agreed[n + (size_t)k] = (float)(s->mass >> DIGIT_BITS * k & ((1 << DIGIT_BITS) - 1));
    /* not all need to have heard of a loss */
    s->agreed[n + DIGITS] = s->whole && tutti_world_events(m->world, 0, NULL, 0) == 0;
    TUTTI_TRY(tutti_allreduce(&m->all, TUTTI_SUM, tutti_f32(m->device, s->agreed, n + DIGITS + 1), err));
    whole = (int)s->agreed[n + DIGITS];
    for (int k = 0; k < DIGITS; k++)
        all += (tutti_mass)s->agreed[n + (size_t)k] << DIGIT_BITS * k;
    if (whole == m->workers && all != m->workers * TUTTI_MASS_ONE)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the workers' push-sum weights sum to %.15g instead of %d after step %llu, so a model was "
                          "lost or counted twice; this is a fault of the program: "
                          "please report it",
                          tutti_mass_real(all), m->workers, (unsigned long long)m->step);
    tutti_copy(m->device, n, s->agreed, m->x);
    tutti_scale(m->device, n, (float)(m->workers / tutti_mass_real(all)), m->x);
    return TUTTI_OK;
}

static const char *const sgp_constraints[] = {
    "the graph may be directed and its weights the sender's alone (weights=push, file): "
    "columns of W sum to 1, rows need not",
    "where graph or losses leave a worker a small push-sum weight w its steps on z are 1 / w times as long, and with "
    "overlap its own share counts alone: lower the learning rate then, or take overlap=0",
    "overlap=T exchanges once in T steps, added after exactly T: the bits do not depend on how fast messages are",
    "the model that is evaluated, shown and saved at the end is the de-biased one: "
    "the sum of all numerators over the sum of all weights",
    ("a lost worker is left out where the transport survives the loss (shm, tcp, sim): what it held is gone, what was "
     "on its way to it is taken back, the others go on; with on-loss=stop, and on other "
     "transports, it ends the run (exit code 3)"),
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved it: after a loss "
    "with as many as were left",
    NULL
};

const tutti_method_ops tutti_method_sgp = {
    .name = "sgp",
    .title = "Stochastic gradient push",
    .authors = "Assran, Loizou, Ballas, Rabbat",
    .year = 2019,
    .family = "gossip",
    .axes = { "directed graph", "every step, neighbours", "fp32", "overlap", "a model each", "any" },
    .constraints = sgp_constraints,
    .options = sgp_options,
    .self_bytes = sizeof(sgp),
    .traits = TUTTI_GOES_ON,
    .declare = sgp_declare,
    .pass = sgp_pass,
    .step = sgp_step,
    .agree = sgp_agree,
};
