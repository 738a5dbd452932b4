/* sim.c: the sim transport's table, which the plug-in exports. There are no flags in windows:
   collectives use messages, whose time is simulated. There are windows, so that data that all
   workers read is in memory once. */
#include "sim_internal.h"

const tutti_option sim_option_table[] = {
    { .name = "platform",
      .type = TUTTI_TEXT,
      .offset = TUTTI_AT(sim_options, platform),
      .text = "",
      .help = "SimGrid platform (XML file), a host a worker in the order of names; none: 100 "
              "Gflop/s, 10 Gbit/s full duplex, 50 us" },
    { .name = "fail",
      .type = TUTTI_TEXT,
      .offset = TUTTI_AT(sim_options, fail),
      .text = "",
      .help = "RANK@SECONDS:...: the host of worker RANK fails at that many seconds of virtual "
              "time; a worker that has ended by then is unaffected. @FILE: a file of `tutti platform "
              "'spot(...)'`; a host that it gives back gets no worker, since a run does not grow" },
    { .name = "peer-timeout",
      .type = TUTTI_REAL,
      .offset = TUTTI_AT(sim_options, peer_timeout),
      .initial = 3,
      .min = 0,
      .max = 3600,
      .help = "seconds of virtual time from a host's failure until the others learn of it" },
    { .name = "seed",
      .type = TUTTI_INT,
      .offset = TUTTI_AT(sim_options, seed),
      .initial = 1,
      .min = 0,
      .max = 9007199254740991.0,
      .help = "of what a real run draws from the system's entropy" },
    { 0 },
};

#pragma GCC visibility push(default)
extern const tutti_transport_ops tutti_transport_plugin;
#pragma GCC visibility pop
const tutti_transport_ops tutti_transport_plugin = {
    .abi = TUTTI_TRANSPORT_ABI,
    .bytes = sizeof(tutti_transport_ops),
    .runtime_abi = TUTTI_RUNTIME_ABI,
    .runtime_bytes = sizeof(tutti_runtime_ops),
    .name = "sim",
    .help = "simulated workers in virtual time, on SimGrid",
    .options = sim_option_table,
    .options_bytes = sizeof(sim_options),
    .open = sim_open,
    .close = sim_close,
    .send = sim_send,
    .recv = sim_recv,
    .wait_some = sim_wait_some,
    .cancel = sim_cancel,
    .dead_peer = sim_dead_peer,
    .failure_report = sim_failure_report,
    .window = sim_window_open,
    .run = sim_run_ranks,
    .simulated = true,
    .events = sim_events,
    .expel = sim_expel,
};
