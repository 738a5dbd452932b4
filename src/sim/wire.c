/* wire.c: transfers. Two wires carry one: the sender's host puts, the receiver's gets, in a mailbox that belongs to the transfer and
   is used again. Only wires touch SimGrid's comms, and only by sg_comm_wait: it is the one wait that gives a failure as a code and
   never leaves a comm behind. The simulated size counts the note; the pointer that travels is not looked at.

   A rank has SIM_WIRES / (2 n) wires each way at most, so that stacks do not run out; further transfers queue for one. Up to 100 ranks
   that is more than there are peers, and nothing queues unless a rank has several messages with each. */
#include <stdio.h>
#include "sim_internal.h"

static void transfer_give(sim_run *run, sim_transfer *t)
{
    t->next = run->free_transfers;
    run->free_transfers = t;
}

void sim_take_back(sim_transfer *t)
{
    sim_list_remove(&t->link);
    t->send = t->recv = NULL;
}

bool sim_fly(sim_thread *self, sim_op *send, sim_op *recv)
{
    /* Naming a new mailbox lets others run, and this must not: a new slot is named when the transfer starts. */
    sim_run *run = self->run;
    sim_transfer *t = run->free_transfers;

    if (t != NULL)
        run->free_transfers = t->next;
    else {
        t = tutti_alloc(1, sizeof *t);
        if (t == NULL)
            return false;
        sim_list_init(&t->link);
        sim_list_init(&t->queue);
        t->all = run->transfers;
        run->transfers = t;
    }
    t->send = send;
    t->recv = recv;
    t->from = send->rank;
    t->to = recv->rank;
    t->bytes = send->bytes;
    t->users = 0;
    send->transfer = recv->transfer = t;
    send->state = recv->state = SIM_FLYING;
    sim_list_insert(&run->ranks[t->to].flight, &t->link);
    sim_act_on(self, SIM_START, t);
    return true;
}

/* The transfer has ended, well or not, and is still wanted. */
static void arrive(sim_thread *self, sim_transfer *t, bool well)
{
    sim_run *run = self->run;
    sim_op *send = t->send, *recv = t->recv;

    if (!sg_host_is_on(run->ranks[t->from].host))
        sim_lost(self, t->from);
    else if (!sg_host_is_on(run->ranks[t->to].host))
        sim_lost(self, t->to);
    else if (well) {
        sim_take_back(t);
        sim_deliver(self, send, recv);
    } else { /* a link failed */
        sim_rank *const ends[2] = { &run->ranks[t->from], &run->ranks[t->to] };
        for (int k = 0; k < 2; k++)
            if (ends[k]->cut < 0) {
                ends[k]->cut = ends[1 - k]->rank;
                ends[k]->cut_at = simgrid_get_clock();
            }
        sim_take_back(t);
        sim_end(self, send, TUTTI_ERR_PEER, t->to);
        sim_end(self, recv, TUTTI_ERR_PEER, t->from);
    }
}

/* A wire of this end is free again: one transfer that waits for it may try. Those taken back meanwhile go out of the line. */
static void next_in_line(sim_thread *self, bool receives)
{
    sim_rank *at = &self->run->ranks[self->rank];

    at->carried[receives]--;
    while (!sim_list_empty(&at->queue[receives])) {
        sim_transfer *t = SIM_OWNER(sim_transfer, queue, at->queue[receives].next);
        const bool wanted = t->send != NULL;
        sim_list_remove(&t->queue);
        sim_act_on(self, SIM_START, t); /* it may have to wait for its other end */
        if (wanted)
            return;
    }
}

static void wire_main(void *arg)
{
    sim_wire *w = arg;
    sim_thread *self = sim_self();
    sim_run *run = self->run;

    sg_actor_daemonize(sg_actor_self());
    for (;;) {
        sim_transfer *t;
        void *got = NULL;
        sg_error_t code;
        bool receives;
        while (w->job == NULL)
            sim_block(self, SIM_IN_SLEEP, NULL, TUTTI_FOREVER);
        t = w->job;
        receives = w->receives;
        w->job = NULL;
        code = sg_comm_wait(receives ? sg_mailbox_get_async(t->mailbox, &got) : sg_mailbox_put_async(t->mailbox, t, (long)t->bytes + SIM_HEADER_BYTES));
        if (t->send != NULL && (receives || code != SG_OK))
            arrive(self, t, code == SG_OK);
        next_in_line(self, receives);
        if (--t->users == 0)
            transfer_give(run, t);
        w->idle = run->ranks[self->rank].idle;
        run->ranks[self->rank].idle = w;
        sim_play(self);
    }
}

static bool employ(sim_thread *self, int rank, sim_transfer *t, bool receives)
{
    sim_rank *at = &self->run->ranks[rank];
    sim_wire *w = at->idle;

    if (w != NULL) {
        at->idle = w->idle;
        w->job = t;
        w->receives = receives;
        sg_sem_release(w->thread->semaphore);
        return true;
    }
    w = tutti_alloc(1, sizeof *w);
    if (w == NULL)
        return false;
    w->job = t;
    w->receives = receives;
    w->thread = sim_thread_make(self->run, rank, at->host, "wire", wire_main, w, SIM_SERVICE_STACK_KIB, NULL);
    if (w->thread == NULL) {
        tutti_free(w);
        return false;
    }
    return true;
}

void sim_start(sim_thread *self, sim_transfer *t)
{
    sim_rank *const ends[2] = { &self->run->ranks[t->from], &self->run->ranks[t->to] };
    char name[32];

    for (int k = 0; k < 2 && t->send != NULL; k++)
        if (ends[k]->carried[k] >= self->run->wires) {
            sim_link *const others = &ends[1 - k]->queue[1 - k]; /* whoever waits for t's other end, with a wire to spare, goes first */
            sim_list_insert(&ends[k]->queue[k], &t->queue);
            if (ends[1 - k]->carried[1 - k] < self->run->wires && !sim_list_empty(others)) {
                sim_transfer *next = SIM_OWNER(sim_transfer, queue, others->next);
                sim_list_remove(&next->queue);
                sim_act_on(self, SIM_START, next);
            }
            return;
        }
    if (t->send != NULL && t->mailbox == NULL) {
        snprintf(name, sizeof name, "tutti-%zu", self->run->slots++);
        t->mailbox = sg_mailbox_by_name(name); /* others run */
    }
    if (t->send != NULL && !sg_host_is_on(self->run->ranks[t->from].host))
        sim_lost(self, t->from);
    if (t->send != NULL && !sg_host_is_on(self->run->ranks[t->to].host))
        sim_lost(self, t->to);
    if (t->send == NULL) { /* taken back before it began */
        transfer_give(self->run, t);
        return;
    }
    t->users = 2;
    ends[0]->carried[0]++;
    ends[1]->carried[1]++;
    if (!employ(self, t->from, t, false))
        sim_out_of_memory(self);
    if (!sg_host_is_on(self->run->ranks[t->to].host)) { /* it failed while the first wire was called: that one is left waiting, and its slot */
        if (t->send != NULL)
            sim_lost(self, t->to);
        return;
    }
    if (!employ(self, t->to, t, true))
        sim_out_of_memory(self);
}
