/* wire.c: transfers of matched messages. Two service actors, the wires, carry a transfer: the
   sender's wire puts it into the mailbox of the receiving rank, and a wire of the receiver gets it.
   Only wires use SimGrid's comms, and they wait by sg_comm_wait only, which returns a failure as a
   code and always frees the comm. (On a platform without failures puts are detached: their end,
   which is that of the get, is not needed.) The simulated size includes the header; what travels is
   a pointer to the transfer.

   Receiving wires post their get before there is anything to get, and it does not matter which of
   them gets a transfer. A put always finds one (see sim_start), so a transfer begins when it is
   put. That saves waking the receiver's side, a third of a message's calls of SimGrid.

   A rank has a limited number of wires in each direction, so that the memory for stacks suffices
   (limit_wires in run.c). Further transfers wait in a queue. */
#include <stdio.h>
#include "sim_internal.h"

static void transfer_give(sim_run *run, sim_transfer *t)
{
    t->next = run->free_transfers;
    run->free_transfers = t;
}

void sim_take_back(sim_run *run, sim_transfer *t)
{
    sim_list_remove(&t->link);
    t->send = t->recv = NULL;
    if (t->halted && t->users == 0)
        transfer_give(run, t);
}

/* One of its hosts has failed. The ranks that wait for it learn of that in peer-timeout. */
static void halt(sim_transfer *t)
{
    t->halted = true;
}

static void leave(sim_run *run, sim_transfer *t)
{
    if (--t->users == 0 && !(t->halted && t->send != NULL))
        transfer_give(run, t);
}

bool sim_fly(sim_thread *self, sim_op *send, sim_op *recv)
{
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
    sim_log_act(self, SIM_START, t);
    return true;
}

/* The transfer has ended, well or not, and is still wanted. */
static void end_transfer(sim_thread *self, sim_transfer *t, bool well)
{
    sim_run *run = self->run;
    sim_op *send = t->send, *recv = t->recv;

    if (!sim_both_are_on(run, t))
        halt(t);
    else if (well) {
        sim_take_back(run, t);
        sim_deliver(self, send, recv);
    } else
        sim_cut(self, t->from, t->to);
}

/* Starts one transfer that waits for a wire of this end, if one is free. Those taken back
   meanwhile leave the queue. */
static void start_queued(sim_thread *self, int rank, bool receives)
{
    sim_rank *at = &self->run->ranks[rank];

    while (!sim_list_empty(&at->queue[receives]) && at->carried[receives] < self->run->wires) {
        sim_transfer *t = SIM_OWNER(sim_transfer, queue, at->queue[receives].next);
        const bool wanted = t->send != NULL;
        sim_list_remove(&t->queue);
        sim_log_act(self, SIM_START, t); /* it may have to wait for its other end */
        if (wanted)
            return;
    }
}

/* A wire of this end is free again. */
static void wire_is_free(sim_thread *self, int rank, bool receives)
{
    self->run->ranks[rank].carried[receives]--;
    start_queued(self, rank, receives);
}

/* A put that cannot fail need not be waited for. */
static void put_and_forget(sim_run *run, sim_transfer *t)
{
    sg_comm_detach(
        sg_mailbox_put_init(run->ranks[t->to].mailbox, t, (long)t->bytes + SIM_HEADER_BYTES), NULL);
}

static void sent(sim_thread *self, sim_transfer *t)
{
    wire_is_free(self, self->rank, false);
    leave(self->run, t);
}

static void sending_main(void *arg)
{
    sim_wire *w = arg;
    sim_thread *self = sim_self();
    sim_run *run = self->run;

    sg_actor_daemonize(sg_actor_self());
    for (;;) {
        sim_transfer *t;
        sg_error_t code;
        while (w->job == NULL)
            sim_block(self, SIM_IN_SLEEP, NULL, TUTTI_FOREVER);
        t = w->job;
        w->job = NULL;
        if (run->steady) {
            put_and_forget(run, t);
            code = SG_OK;
        } else
            code = sg_comm_wait(sg_mailbox_put_async(run->ranks[t->to].mailbox, t,
                                                     (long)t->bytes + SIM_HEADER_BYTES));
        if (t->send != NULL && code != SG_OK)
            end_transfer(self, t, false);
        sent(self, t);
        w->idle = run->ranks[self->rank].idle;
        run->ranks[self->rank].idle = w;
        sim_play(self);
    }
}

static void receiving_main(void *arg)
{
    sim_rank *at = arg;
    sim_thread *self = sim_self();
    sim_run *run = self->run;

    sg_actor_daemonize(sg_actor_self());
    for (;;) {
        void *got = NULL;
        if (sg_comm_wait(sg_mailbox_get_async(at->mailbox, &got)) == SG_OK) {
            sim_transfer *t = got;
            if (t->send != NULL)
                end_transfer(self, t, true);
            leave(run, t);
        } /* else a link or the sender's host has failed; if a link, the sender's wire gets the failure as well */
        wire_is_free(self, self->rank, true);
        sim_play(self);
    }
}

static void assign_sender(sim_thread *self, sim_transfer *t)
{
    sim_rank *at = &self->run->ranks[t->from];
    sim_wire *w = at->idle;

    if (self->run->steady && self->rank == t->from) {
        /* the source is the host of the putting actor: right here */
        put_and_forget(self->run, t);
        sent(self, t);
        return;
    }
    if (w != NULL) {
        at->idle = w->idle;
        w->job = t;
        sg_sem_release(w->thread->semaphore);
        return;
    }
    w = tutti_alloc(1, sizeof *w);
    if (w == NULL)
        sim_out_of_memory(self);
    w->job = t;
    w->thread = sim_thread_make(
        self->run,
        &(sim_thread_plan){ t->from, at->host, "wire", sending_main, w, SIM_SERVICE_STACK_KIB },
        NULL);
    if (w->thread == NULL) {
        tutti_free(w);
        sim_out_of_memory(self);
    }
}

void sim_start(sim_thread *self, sim_transfer *t)
{
    sim_run *run = self->run;
    sim_rank *const ends[2] = { &run->ranks[t->from], &run->ranks[t->to] };

    if (t->send == NULL || !sim_both_are_on(run, t)) {
        /* taken back before it began, or it can never begin */
        if (t->send != NULL)
            halt(t);
        else
            transfer_give(run, t);
        for (int k = 0; k < 2; k++)
            start_queued(self, ends[k]->rank, k == 1);
        return;
    }
    for (int k = 0; k < 2; k++)
        if (ends[k]->carried[k] >= run->wires) {
            /* if t's other end has a wire free, a transfer that waits for that end goes first */
            sim_link *const others = &ends[1 - k]->queue[1 - k];
            sim_list_insert(&ends[k]->queue[k], &t->queue);
            if (ends[1 - k]->carried[1 - k] < run->wires && !sim_list_empty(others)) {
                sim_transfer *next = SIM_OWNER(sim_transfer, queue, others->next);
                sim_list_remove(&next->queue);
                sim_log_act(self, SIM_START, next);
            }
            return;
        }
    ends[0]->carried[0]++;
    ends[1]->carried[1]++;
    if (ends[1]->carried[1] > ends[1]->receivers) {
        ends[1]->receivers++;
        if (sim_thread_make(run,
                            &(sim_thread_plan){ t->to, ends[1]->host, "receiver", receiving_main,
                                                ends[1], SIM_SERVICE_STACK_KIB },
                            NULL) == NULL)
            sim_out_of_memory(self);
        if (t->send == NULL || !sim_both_are_on(run, t)) { /* changed while the receiver was made */
            ends[0]->carried[0]--;
            ends[1]->carried[1]--;
            sim_start(self, t);
            return;
        }
    }
    t->users = 2;
    assign_sender(self, t);
}
