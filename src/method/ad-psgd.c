/* ad-psgd: asynchronous decentralised parallel SGD. Every worker is asynchronous, and its model
   is averaged with one neighbour's at a time, concurrently with the computation. Lian, Zhang,
   Zhang, Liu, ICML 2018, arXiv 1710.06952. The averaging is src/gossip/pairs.c.
     roles=any        every worker asks and answers
     roles=bipartite  the paper's: one group asks and one answers, each averaging atomic, a = 1/2;
                      refuses graphs with odd cycles
   Chosen here: one averaging for every gradient of a worker that asks. The paper's workers
   average continuously (exchanges=0). At most `outstanding` averagings are pending when the next
   gradient begins, 1 by default: that overlaps fully, and a slow network cannot build up a queue.
   outstanding=0 is the serial variant.
   Pending averagings are made before a checkpoint, an evaluation or the end. So bytes are exactly
   4 params x 2 x exchanges x gradients of the workers that ask. Staleness counts the averagings
   that s took part in between snapshot and update. The final model is the mean. Momentum stays
   local. */
#include "tutti/method/gossip.h"

typedef struct ad_psgd {
    tutti_pairs_options options;
    tutti_pairs *pairs;
} ad_psgd;
enum { ASK, ANSWER };           /* services */

static const tutti_option ad_psgd_options[] = {
    TUTTI_PAIRS_OPTIONS(ad_psgd, options, "workers"),
    { 0 }
};

static tutti_status ad_psgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const int services[2] = { ASK, ANSWER };
    ad_psgd *s = m->self;
    return tutti_pairs_declare(&s->pairs, m, plan, &s->options, services, err);
}

static tutti_status ad_psgd_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    return p->index > 0 ? TUTTI_OK : tutti_pairs_read(((ad_psgd *)m->self)->pairs, err);
}

static tutti_status ad_psgd_step(tutti_method *m, tutti_error *err)
{
    return tutti_pairs_update(((ad_psgd *)m->self)->pairs, err);
}

static tutti_status ask_thread(tutti_method *m, tutti_error *err)
{
    return tutti_pairs_ask(((ad_psgd *)m->self)->pairs, err);
}

static tutti_status answer_thread(tutti_method *m, tutti_error *err)
{
    return tutti_pairs_answer(((ad_psgd *)m->self)->pairs, err);
}

static const tutti_service ad_psgd_services[] = {
    [ASK] = { "ask", ask_thread }, [ANSWER] = { "answer", answer_thread }, { 0 }
};

static const char *const ad_psgd_constraints[] = {
    "asynchronous: --steps N is N x workers gradients by whichever worker is free; runs differ in "
    "their bits, except simulated ones",
    "roles=bipartite, the paper's form, needs a graph without odd cycles; roles=any takes every "
    "graph",
    "a lost worker is excluded where the transport survives the loss (shm, tcp, sim): no worker "
    "averages with it, what it was given to compute is not computed, the others continue; with "
    "on-loss=stop, and on other transports, it ends the run (exit code 3)",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    NULL
};

const tutti_method_ops tutti_method_ad_psgd = {
    .name = "ad-psgd",
    .title = "Asynchronous decentralised parallel SGD",
    .authors = "Lian, Zhang, Zhang, Liu",
    .year = 2018,
    .family = "gossip",
    .axes = { "graph", "none, pairs", "fp32", "overlap", "a model each", "any" },
    .constraints = ad_psgd_constraints,
    .options = ad_psgd_options,
    .self_bytes = sizeof(ad_psgd),
    .traits = TUTTI_ASYNC | TUTTI_FAULT_TOLERANT,
    .services = ad_psgd_services,
    .declare = ad_psgd_declare,
    .pass = ad_psgd_pass,
    .step = ad_psgd_step,
};
