/* sgp: stochastic gradient push, SGD on push-sum. A worker decides alone how to split its model
   and weight, and directed graphs need no doubly stochastic weights. Assran, Loizou, Ballas,
   Rabbat, ICML 2019, arXiv 1811.10792, algorithms 1 and 2.
     overlap=0    x_i <- x_i - eta opt(g_i(z_i));  (x_i, w_i) <- sum_j P_ij (x_j, w_j);
                  z_i = x_i / w_i
     overlap=tau  at the beginning of every tau-th step what was sent tau steps ago is added, then
                  (x, w) is split and sent again; gradients are taken and applied meanwhile
   The step is in push-sum.h, which defines x, w, z and P. With w = 1, which does not change on
   regular graphs, this is d-psgd(order=atc) to the bit. Gradients, weight decay and momentum are of
   z, and local. w is an integer in units of 1 / TUTTI_MASS_ONE, so the weights of all workers and
   of messages in flight sum to exactly the number of workers. That is checked whenever the agreed
   model is computed.
   Chosen here: a message is added after exactly tau steps, and not when it arrives. So every run
   has the same bits. There is one exchange in tau steps. A checkpoint contains the messages in
   flight, so saving changes nothing.
   The agreed model is the sum of all x divided by the sum of all w: push-sum's mean, and not the
   mean of z. The x and w of a lost worker are lost; the sums are over the survivors. */
#include "push-sum.h"

static const tutti_option sgp_options[] = {
    { "graph", TUTTI_SPEC, TUTTI_AT(push_sum, graph), 0, 0, 0, "one-peer-exponential",
      "which workers send to which, weights=push included; `tutti topology` lists them" },
    PUSH_SUM_OVERLAP(TUTTI_AT(push_sum, overlap), NULL),
    { 0 }
};

static tutti_status sgp_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    return push_sum_declare(m->self, m, plan, err);
}

static tutti_status sgp_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    return push_sum_pass(m->self, m, p, err);
}

static tutti_status sgp_step(tutti_method *m, tutti_error *err)
{
    return push_sum_step(m->self, m, err);
}

static tutti_status sgp_final_model(tutti_method *m, tutti_error *err)
{
    return push_sum_final_model(m->self, m, err);
}

static const char *const sgp_constraints[] = {
    "the graph may be directed and its weights the sender's alone (weights=push, file): columns of "
    "W sum to 1, rows need not",
    "where graph or losses leave a worker a small push-sum weight w its steps on z are 1 / w times "
    "as long, and with overlap its own share counts alone: lower the learning rate then, or take "
    "overlap=0",
    "overlap=T exchanges once in T steps, added after exactly T: the bits do not depend on how "
    "fast messages are",
    "the model that is evaluated, shown and saved at the end is the de-biased one: the sum of all "
    "numerators over the sum of all weights",
    ("a lost worker is excluded where the transport survives the loss (shm, tcp, sim): what it "
     "held is gone, what was on its way to it is taken back, the others continue; with "
     "on-loss=stop, and on other transports, it ends the run (exit code 3)"),
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it: after a loss with as many as were left",
    NULL
};

const tutti_method_ops tutti_method_sgp = {
    .name = "sgp",
    .title = "Stochastic gradient push",
    .authors = "Assran, Loizou, Ballas, Rabbat",
    .year = 2019,
    .family = "gossip",
    .axes = { "directed graph", "every step, neighbours", "fp32", "overlap", "a model each",
              "any" },
    .constraints = sgp_constraints,
    .options = sgp_options,
    .self_bytes = sizeof(push_sum),
    .traits = TUTTI_FAULT_TOLERANT | TUTTI_ASKS_FOR_VALUES,
    .declare = sgp_declare,
    .pass = sgp_pass,
    .step = sgp_step,
    .final_model = sgp_final_model,
};
