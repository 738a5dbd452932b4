/* closed.c: worlds that are closed and still receive. Closing waits for no rank, so others may
   still send to a closed world, and its own messages may still be under way. MPI releases neither
   side of a message that is never received (MPICH over UCX moves 15 KB only when it is). So a
   closed world continues to receive, with the rest of its endpoint, until every peer has sent
   DEPART, which is its last message. No thread makes progress for closed worlds alone: they make
   progress when a world is opened or closed in this process, and when MPI is finalised, until all
   is received.

   The state of the process (mpi_process) is an attribute of MPI_COMM_SELF, which MPI_Finalize
   deletes before it does anything else. The name of MPI_COMM_SELF contains the attribute's key,
   since that name is what all worlds of the process can find. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mpi_internal.h"

static const char record_name[] = "tutti: attribute ";
enum { LOST_MS = 2000 };

/* ---- receiving ---- */
static void free_endpoint(mpi_endpoint *e)
{
    match_list_remove(&e->of_process);
    tutti_mpi_pool_fini(&e->frames);
    tutti_mpi_pool_fini(&e->transfer_pool);
    tutti_free(e);
}

/* Discards all that arrives, but records that a peer has departed. */
static void discard_frames(mpi_endpoint *e)
{
    while (e->departs_missing > 0) {
        mpi_frame *f = e->ring[e->ring_head];
        int done = 0;
        if (f == NULL || MPI_Test(&f->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            e->departs_missing = 0; /* MPI has failed: nothing more comes */
            return;
        }
        if (!done)
            return;
        if (f->wire.kind == WIRE_DEPART) {
            e->departs_missing--;
            if (((const mpi_departure *)(const void *)f->payload)->failed)
                e->process->lost = true;
        }
        if (MPI_Irecv(&f->wire, FRAME_BYTES, MPI_BYTE, MPI_ANY_SOURCE, CONTROL_TAG, e->control,
                      &f->request) != MPI_SUCCESS)
            e->departs_missing = 0;
        e->ring_head = (e->ring_head + 1) % RING;
    }
}

/* Takes back the posted receives once no peer sends any more. Cancelling one is local, and ends
   at once but for an MPI that has failed. */
static bool ring_is_over(mpi_endpoint *e)
{
    bool over = true;

    for (int i = RING - 1; i >= 0 && !e->receives_cancelled; i--) {
        if (e->ring[i] != NULL && e->ring[i]->request != MPI_REQUEST_NULL)
            MPI_Cancel(&e->ring[i]->request);
    }
    e->receives_cancelled = true;
    for (int i = 0; i < RING; i++) {
        int done = 1;
        if (e->ring[i] != NULL && e->ring[i]->request != MPI_REQUEST_NULL &&
            (MPI_Test(&e->ring[i]->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done))
            over = false;
    }
    return over;
}

/* Frees what MPI has completed. False: it still holds something. */
static bool rest_is_over(mpi_endpoint *e)
{
    for (match_link *at = e->under_way.next, *next; at != &e->under_way; at = next) {
        int done = 0;
        next = at->next;
        if (MPI_Test(&MATCH_OWNER(mpi_frame, link, at)->request, &done, MPI_STATUS_IGNORE) ==
                MPI_SUCCESS &&
            done)
            match_list_remove(at);
    }
    for (match_link *at = e->stale.next, *next; at != &e->stale; at = next) {
        mpi_transfer *t = MATCH_OWNER(mpi_transfer, link, at);
        int done = 1;
        next = at->next;
        while (t->head != t->tail && done) {
            if (MPI_Test(&t->requests[t->head % WINDOW], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
                done = 0;
            t->head += done != 0;
        }
        if (t->head == t->tail) {
            tutti_free(t->trash);
            match_list_remove(at);
        }
    }
    return match_list_empty(&e->under_way) && match_list_empty(&e->stale);
}

/* Makes progress once for each closed world. Returns how many are not over. Under
   process->lock. */
static int drive_closed(mpi_process *p)
{
    int left = 0;

    for (match_link *at = p->worlds.next, *next; at != &p->worlds; at = next) {
        mpi_endpoint *e = MATCH_OWNER(mpi_endpoint, of_process, at);
        bool over;
        next = at->next;
        if (!e->closed)
            continue;
        discard_frames(e);
        over = rest_is_over(e);
        if (e->departs_missing == 0 && ring_is_over(e) && over)
            free_endpoint(e);
        else
            left++;
    }
    return left;
}

void tutti_mpi_closed(mpi_endpoint *e)
{
    mpi_process *p = e->process;

    if (p == NULL) { /* nothing was ever passed to MPI */
        match_list_init(&e->of_process);
        free_endpoint(e);
        return;
    }
    while (!match_list_empty(&e->transfers)) {
        mpi_transfer *t = MATCH_OWNER(mpi_transfer, link, e->transfers.next);
        for (uint32_t k = t->tail; k != t->head && !t->stopping; k--)
            MPI_Cancel(&t->requests[(k - 1) % WINDOW]);
        match_list_remove(&t->link);
        match_list_insert(&e->stale, &t->link);
    }
    pthread_mutex_lock(&p->lock);
    e->departs_missing = e->joined && e->broken.status == TUTTI_OK ? e->size - 1 - e->gone : 0;
    e->closed = true;
    drive_closed(p);
    pthread_mutex_unlock(&p->lock);
}

/* ---- the process ---- */
/* A program ends without having closed its world. The others wait for this. */
static void send_departs(const mpi_endpoint *e)
{
    struct {
        mpi_wire wire;
        mpi_departure d;
    } depart = { .wire.kind = WIRE_DEPART, .d.root = e->rank };

    for (int r = 0; r < e->size && !e->depart_sent; r++) {
        if (r != e->rank)
            MPI_Send(&depart, (int)sizeof depart, MPI_BYTE, r, CONTROL_TAG, e->control);
    }
}

/* MPI_Finalize would wait for the others too, but on a busy core, and MPICH complains of each
   message that was not received. Where a rank was lost, not all may ever come. */
static int at_finalize(MPI_Comm self, int keyval, void *attribute, void *unused)
{
    mpi_process *p = attribute;
    int waited = 0, left;

    (void)self;
    (void)keyval;
    (void)unused;
    for (match_link *at = p->worlds.next; at != &p->worlds; at = at->next) {
        if (!MATCH_OWNER(mpi_endpoint, of_process, at)->closed && !p->lost)
            send_departs(MATCH_OWNER(mpi_endpoint, of_process, at));
    }
    do {
        pthread_mutex_lock(&p->lock);
        left = drive_closed(p);
        pthread_mutex_unlock(&p->lock);
        if (left > 0)
            poll(NULL, 0, 1);
    } while (left > 0 && (!p->lost || waited++ < LOST_MS));
    if (match_list_empty(&p->worlds)) { /* else MPI holds memory of theirs, or the program does */
        pthread_mutex_destroy(&p->lock);
        tutti_free(p);
    }
    return MPI_SUCCESS;
}

mpi_process *tutti_mpi_find_process(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length, found = 0;
    void *value = NULL;

    if (MPI_Comm_get_name(MPI_COMM_SELF, name, &length) != MPI_SUCCESS ||
        strncmp(name, record_name, strlen(record_name)) != 0)
        return NULL;
    if (MPI_Comm_get_attr(MPI_COMM_SELF, (int)strtol(name + strlen(record_name), NULL, 10), &value,
                          &found) != MPI_SUCCESS ||
        !found)
        return NULL;
    return value;
}

tutti_status tutti_mpi_join_process(mpi_endpoint *e, tutti_error *err)
{
    mpi_process *p = tutti_mpi_find_process();
    char name[sizeof record_name + 16];
    int keyval;

    if (p == NULL) {
        p = tutti_alloc(1, sizeof *p);
        if (p == NULL || pthread_mutex_init(&p->lock, NULL) != 0) {
            tutti_free(p);
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                              "keeping account of the worlds of this process");
        }
        match_list_init(&p->worlds);
        if (!tutti_mpi_succeeded(
                e, MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &keyval, NULL),
                "making an attribute", -1) ||
            !tutti_mpi_succeeded(e, MPI_Comm_set_attr(MPI_COMM_SELF, keyval, p),
                                 "setting an attribute", -1)) {
            pthread_mutex_destroy(&p->lock);
            tutti_free(p);
            return tutti_fail(err, e->broken.status, 0, "%s", e->broken.text);
        }
        snprintf(name, sizeof name, "%s%d", record_name, keyval);
        MPI_Comm_set_name(MPI_COMM_SELF, name);
    }
    pthread_mutex_lock(&p->lock);
    drive_closed(p);
    match_list_insert(&p->worlds, &e->of_process);
    e->process = p;
    pthread_mutex_unlock(&p->lock);
    return TUTTI_OK;
}
