/* meet_internal.h: the meeting place's state, which meet.c and meet_losses.c share. */
#ifndef TUTTI_MEET_INTERNAL_H
#define TUTTI_MEET_INTERNAL_H
#include "tcp_internal.h"

/* most changes of a rank's state: it joins, leaves, fails; one spare */
enum { TCP_MEET_EVENTS = 4 };

struct tutti_meet {
    tutti_runtime *rt;
    tcp_listener listener;
    tutti_run_key key;
    tcp_address address;         /* bound to; zeroed: a Unix socket */
    char local[16];              /* name of that Unix socket; "": none */
    int epoll;
    int size;                    /* ranks of the run */
    int joined;                  /* ranks that have joined */
    int hosts;                   /* hosts that are known */
    bool complete;               /* all ranks have joined, and the table is sent */
    bool gave_up;                /* ranks were missing at gather_until_ns */
    bool gone_before;            /* a rank has ended before all had joined */
    int64_t gather_until_ns;     /* deadline for all ranks to join */
    int64_t silence_ns;          /* peer-timeout */
    int64_t beat_ns;             /* when the next heartbeats are due */
    int64_t passed_ns;           /* when tutti_tcp_meet_check_clock last ran */
    int64_t late_ns;             /* the largest delay on the lines from here */
    int64_t patience_ns;         /* longest silence: silence_ns and the delays that are known */
    tcp_line *lines;             /* [size] */
    int64_t *cut_ns;             /* [size]: when its line ended without DEPART; 0: it has not */
    char (*how)[120];            /* [size]: how its line ended */
    /* [size * size]: [a * size + b]: rank a receives nothing from rank b */
    bool *silent;
    tcp_membership membership;
    uint8_t *table;              /* [size * TCP_ENTRY_BYTES]: as sent in TABLE */
    uint8_t (*host_ids)[16];     /* [size]: of hosts 0 to hosts - 1 (tcp_entry.host) */
    /* [size * TCP_MEET_EVENTS]: ranks whose state has changed, in order */
    int *events;
    size_t n_events, events_sent; /* events recorded; returned by tutti_meet_event */
};

/* ---- meet.c ---- */
/* Sends a frame to all ranks that have joined, but for `except` (-1: none). A failure ends that
   rank's connection, and is handled there. */
void tutti_tcp_meet_send_all(tutti_meet *m, tcp_frame *frame, const void *payload, int except);
/* Records that the state of a rank has changed (tutti_meet_event). */
void tutti_tcp_meet_event(tutti_meet *m, int rank);

/* ---- meet_losses.c ---- */
/* Records how a rank has ended, and notifies the others; nothing if that was known. */
void tutti_tcp_meet_depart(tutti_meet *m, const tcp_departure *d);
/* Declares a rank lost. how: what has shown it. */
void tutti_tcp_meet_lost(tutti_meet *m, int rank, const char *how);
/* A rank reports whether it receives from another one, and what it wants done about it. */
void tutti_tcp_meet_view(tutti_meet *m, int from, const tcp_view *v);
/* Declares the ranks lost that have been silent, or cut off, for too long, and sends heartbeats. */
void tutti_tcp_meet_check_clock(tutti_meet *m);
#endif
