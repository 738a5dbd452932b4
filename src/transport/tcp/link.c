/* link.c: a connection between two ranks (tcp_link): its end, and what match.h asks of its carrier.
   link_write.c sends frames, link_read.c receives them.

   A pair of ranks has `streams` connections. All control frames and whole messages go over the
   first, so that they keep their order. Pieces of large messages go over any of the others that is
   writable, so that no control frame waits behind megabytes of them. A pair with one connection
   sends everything over it. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include "tcp_internal.h"

/* ---- endings ---- */
void tutti_tcp_link_drop(tcp_link *l)
{
    tutti_tcp_hang_up(&l->fd);
    tutti_free(l->spill);
    l->spill = NULL;
    l->payload = NULL;
    l->out_op = l->in_op = NULL;
    l->piece = NULL;
    l->writing = l->blocked = false;
    l->read_ended = l->write_ended = true;
}

void tutti_tcp_peer_cut(tcp_endpoint *e, int rank, const char *how)
{
    tcp_peer *p = &e->peers[rank];

    if (e->match.peers[rank].gone || p->cut_ns != 0)
        return;
    p->cut_ns = tutti_now_ns(e->rt);
    snprintf(p->how, sizeof p->how, "%.199s", how);
    if (p->reported_ns == 0)
        e->uncertain++;
}

void tutti_tcp_link_ended(tcp_endpoint *e, tcp_link *l, const char *how)
{
    struct epoll_event nothing = { 0 };

    if (l->read_ended)
        return;
    l->read_ended = l->write_ended = true;
    if (l->fd >= 0)
        /* its end would be reported for ever */
        epoll_ctl(e->epoll, EPOLL_CTL_DEL, l->fd, &nothing);
    tutti_tcp_peer_cut(e, l->peer, how);
}

void tutti_tcp_link_broken(tcp_endpoint *e, tcp_link *l, const tutti_error *why)
{
    tcp_departure d = {
        .rank = l->peer, .state = TUTTI_MEET_LOST, .blame = -1, .status = TUTTI_ERR_CORRUPT
    };

    snprintf(d.reason, sizeof d.reason,
             "what came over its connection cannot be trusted: %.300s; the connection was closed",
             why->text);
    tutti_tcp_link_ended(e, l, why->text);
    tutti_tcp_hang_up(&l->fd);
    tutti_tcp_departed(e, &d, TCP_BY_CLOCK);
}

/* ---- what the matcher asks for ---- */
static void flush(void *self, int to)
{
    tcp_endpoint *e = self;
    tcp_peer *p = &e->peers[to];

    if (p->links == NULL || e->match.peers[to].gone)
        return;
    for (int64_t s = 0; s < e->options.streams; s++) {
        tcp_link *l = &p->links[s];
        if (l->fd >= 0 && !l->blocked && !l->write_ended &&
            (s == 0 || !match_list_empty(&e->match.peers[to].streams)))
            tutti_tcp_link_write(e, l);
    }
}

static void release_buffer(void *self, match_op *op)
{
    tcp_endpoint *e = self;
    const int rank = op->state == MATCH_OP_MATCHED ? op->message->from : op->peer;

    if (rank < 0 || rank == e->rank || e->peers[rank].links == NULL)
        return;
    for (int64_t s = 0; s < e->options.streams; s++) {
        tcp_link *l = &e->peers[rank].links[s];
        if (l->in_op == op) {
            if (l->frame.kind == TCP_ANNOUNCE) {
                /* the rest of the message is read into the link's buffer, which is empty */
                memcpy(l->in, l->piece, l->piece_have);
                l->in_used = 0;
                l->in_have = l->piece_have;
                l->direct = false;
            }
            l->in_op = NULL;
            l->piece = NULL;
        }
        if (l->out_op != op)
            continue;
        l->out_op = NULL;
        l->out_whole = false;
        if (l->payload_sent < l->payload_bytes && l->fd >= 0 && !l->write_ended) {
            const size_t left = l->payload_bytes - l->payload_sent;
            l->spill = tutti_alloc(left, 1);
            if (l->spill == NULL)
                /* a part of the frame is sent: the connection cannot be used any more, and the peer
                   will find this rank lost */
                l->write_ended = true;
            else
                memcpy(l->spill, l->payload + l->payload_sent, left);
            l->payload = l->spill;
            l->payload_bytes = left;
            l->payload_sent = 0;
        }
    }
}

static void consumed(void *self, int from)
{
    tcp_endpoint *e = self;

    e->peers[from].credit_to_return++;
    if (e->peers[from].credit_to_return >= TCP_CREDITS / 2)
        flush(e, from);
}

const match_carrier tutti_tcp_carrier = { .flush = flush,
                                          .release_buffer = release_buffer,
                                          .consumed = consumed };
