/* place.h: how a rank comes from its environment to a connection with the meeting place of its run,
   which open.c then uses to find the others. Implemented by place.c. */
#ifndef TUTTI_TCP_PLACE_H
#define TUTTI_TCP_PLACE_H
#include <poll.h>
#include "tcp_internal.h"

/* A rank that looks for the others of its run. */
typedef struct tcp_finder {
    tcp_endpoint *e;
    tutti_run_key key;
    tutti_run_id id;
    tcp_address place;           /* the meeting place */
    char where[300];             /* the same as text */
    tcp_listener listener;       /* for connections from higher ranks */
    tcp_call *calls;             /* [n_calls]: the links to lower ranks */
    size_t n_calls;
    size_t missing;              /* links, to lower and from higher ranks, not connected yet */
    int64_t deadline_ns;
    int64_t beat_ns;             /* when the next heartbeat to the meeting place is due */
    int64_t peers_beat_ns;       /* when the next heartbeat to the peers is due */
} tcp_finder;

/* Reads id, key and meeting place from the environment, or from launch->within. TUTTI_ERR_USAGE:
   the environment has one without the other. */
tutti_status tutti_tcp_read_place(tcp_finder *f, const tutti_launch *launch, tutti_error *err);

/* Looks up f->where. A name that is not known may be that of a host or a pod that is being started
   too, so it is looked up again until the deadline. Blocks. */
tutti_status tutti_tcp_find_place(tcp_finder *f, tutti_error *err);

/* Serves the meeting place, as rank 0 of a run whose launcher does not know Tutti. The acceptor
   listens on all of this host's addresses: rank 0 cannot know which of them the others use. */
tutti_status tutti_tcp_serve_place(tcp_finder *f, tutti_error *err);

/* Connects e->control with the meeting place. TUTTI_ERR_IO: not before the deadline. Blocks. */
tutti_status tutti_tcp_call_place(tcp_finder *f, tutti_error *err);

/* Waits for polled[0..n), and for ended_fd in polled[n], which the caller leaves free, for at most
   that time. TUTTI_CLOSED: opening is to end. */
tutti_status tutti_tcp_finder_sleep(const tcp_finder *f, struct pollfd *polled, nfds_t n,
                                    int64_t ns, tutti_error *err);
#endif
