/* h-adpsgd: the workers of a machine are one super-learner, which sums its gradients in every
   step as ddp does. Super-learners are asynchronous, and their models are averaged in pairs,
   concurrently with the computation. Zhang, Cui, Finkler, Saon, Kayi, Buyuktosunoglu, Kingsbury,
   Kung, Picheny, INTERSPEECH 2019, arXiv 1907.05701. The averaging is ad-psgd's
   (src/gossip/pairs.c).
     inside     g <- mean of the gradients of the c workers, weighted by samples (all-reduce);
                all apply it
     between    the first worker of each machine asks and answers on the one model of the machine,
                and sends it to the others before every step
   A machine takes c gradients of the run together, the next c in order (src/engine/pace.c). So an
   epoch is every sample once, and a slow machine delays no other. From ad-psgd's view there are n
   / c workers with c times the batch. One machine is ddp; super_learner=none is ad-psgd.
   Chosen here:
   1. Super-learners are workers of consecutive ranks and equal in number. Under every launcher
      the workers of equal machines are.
   2. The model travels inside the machine, and not the difference that the averagings made to it.
      That is as many bytes, and the replicas are the same to the bit.
   3. `exchanges` is counted for each step of a machine, that is for c gradients. */
#include "tutti/method/gossip.h"

typedef struct h_adpsgd {
    const char *super_learner;
    tutti_pairs_options options;
    tutti_pairs *pairs;
} h_adpsgd;
enum { ASK, ANSWER };           /* services */

static const tutti_option h_adpsgd_options[] = {
    { "super_learner", TUTTI_TEXT, TUTTI_AT(h_adpsgd, super_learner), 0, 0, 0, "machine",
      "which workers sum gradients in every step: the workers of a machine, that many workers of "
      "consecutive ranks, or none" },
    TUTTI_PAIRS_OPTIONS(h_adpsgd, options, "super-learners"),
    { 0 }
};

static tutti_status h_adpsgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const int services[2] = { ASK, ANSWER };
    h_adpsgd *s = m->self;

    TUTTI_TRY(tutti_fail_within(
        err, tutti_team_parse(m, "super_learner", s->super_learner, &m->team, err),
        "method 'h-adpsgd'"));
    return tutti_pairs_declare(&s->pairs, m, plan, &s->options, services, err);
}

static tutti_status h_adpsgd_open(tutti_method *m, tutti_error *err)
{
    (void)err;
    if (m->team == m->workers && m->workers > 1)
        tutti_event(m, "one super-learner",
                    "all %d workers are one super-learner: they sum gradients in every step, as "
                    "ddp, and no models are averaged; super_learner=N, with N a part of %d, makes "
                    "several",
                    m->workers, m->workers);
    return TUTTI_OK;
}

static tutti_status h_adpsgd_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    return p->index > 0 ? TUTTI_OK : tutti_pairs_read(((h_adpsgd *)m->self)->pairs, err);
}

static tutti_status h_adpsgd_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_allreduce_weighted(&p->group, (float)m->weight,
                                    tutti_f32(m->device, p->g, p->count), err);
}

static tutti_status h_adpsgd_step(tutti_method *m, tutti_error *err)
{
    return tutti_pairs_update(((h_adpsgd *)m->self)->pairs, err);
}

/* The mean of equal models, one machine's, need not be that model to the bit. */
static tutti_status h_adpsgd_final_model(tutti_method *m, tutti_error *err)
{
    return m->workers == m->team ? TUTTI_OK : tutti_average(m, m->x, err);
}

static tutti_status ask_thread(tutti_method *m, tutti_error *err)
{
    return tutti_pairs_ask(((h_adpsgd *)m->self)->pairs, err);
}

static tutti_status answer_thread(tutti_method *m, tutti_error *err)
{
    return tutti_pairs_answer(((h_adpsgd *)m->self)->pairs, err);
}

static const tutti_service h_adpsgd_services[] = {
    [ASK] = { "ask", ask_thread }, [ANSWER] = { "answer", answer_thread }, { 0 }
};

static const char *const h_adpsgd_constraints[] = {
    "asynchronous: --steps N is N x workers gradients by whichever worker is free; runs differ in "
    "their bits, except simulated ones and those of one super-learner",
    "super_learner=machine needs machines with equally many workers, of consecutive ranks; on one "
    "machine it is ddp: give a number there (super_learner=2)",
    "a lost worker is excluded where the transport survives the loss (shm, tcp, sim), and with it "
    "its whole machine, whose sums need it; the other machines continue; with on-loss=stop, and on "
    "other transports, it ends the run (exit code 3)",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    NULL
};

const tutti_method_ops tutti_method_h_adpsgd = {
    .name = "h-adpsgd",
    .title = "Hierarchical AD-PSGD: machines as super-learners",
    .authors = "Zhang, Cui, Finkler, Saon, Kayi, Buyuktosunoglu, Kingsbury, Kung, Picheny",
    .year = 2019,
    .family = "gossip",
    .axes = { "all-reduce inside machines, graph between", "every step inside; none between, pairs",
              "fp32", "buckets inside, overlap between", "a model each machine", "any" },
    .constraints = h_adpsgd_constraints,
    .options = h_adpsgd_options,
    .self_bytes = sizeof(h_adpsgd),
    .traits = TUTTI_ASYNC | TUTTI_FAULT_TOLERANT,
    .services = h_adpsgd_services,
    .declare = h_adpsgd_declare,
    .open = h_adpsgd_open,
    .pass = h_adpsgd_pass,
    .exchange = h_adpsgd_exchange,
    .step = h_adpsgd_step,
    .final_model = h_adpsgd_final_model,
};
