/* lane_led.c: how the members of a leader-ordered lane agree on the order of their jobs.

   The leader (member 0) announces the job of each sequence number to the other members and runs
   it at once. Only when the job is over does the thread wait until the announcements were
   received, which by then they usually are. The sequence number is in the port, so announcements
   of several threads need no order among themselves. The fan-out is flat, size - 1 messages per
   number: they have no payload, and what a job exchanges is more.

   Another member receives one announcement at a time, and only while a job waits here. It knows
   the job before the job may begin: then that job is admitted next, as soon as it is started here
   and the credit allows, and the next announcement is received after it. No thread is blocked
   meanwhile.

   Why this cannot deadlock. Take the earliest number t whose job is not over everywhere. At a
   member where it has not begun, all that was admitted is over, since jobs before t are and jobs
   after t come later. So the whole credit is free, and a thread. Either the job of t is known,
   and begins when its owner starts it, or a job waits and the announcement of t is being
   received: the leader sent it without waiting for any member. If a later job could begin first,
   it could occupy the last thread and wait in its collective for a member whose thread is
   occupied by t.

   If a member has failed, nothing more is admitted there, but what was admitted must end, in jobs
   that others have to begin. So the leader withdraws no announcement. If width and credit are
   then the same everywhere, whatever runs concurrently with the failed job here can run
   concurrently with it there.

   The thread that receives waits for an announcement or for a control message of its own rank to
   itself, which reports that the lane was given up. */
#include <errno.h>

#include "lane_internal.h"
#include "engine/lane.h"

static tutti_port port_of_turn(const tutti_lane *lane, uint64_t turn)
{
    return tutti_port_of("turn", lane->port, turn);
}

static tutti_port port_of_word(const tutti_lane *lane)
{
    return tutti_port_of("word", lane->port, 0);
}

bool tutti_lane_leads(const tutti_lane *lane)
{
    return lane->is_led && lane->lead.index == 0;
}

bool tutti_lane_follows(const tutti_lane *lane)
{
    return lane->is_led && lane->lead.index > 0;
}

tutti_status tutti_lane_led_open(tutti_lane *lane, const char *name, const tutti_group *lead,
                                 tutti_error *err)
{
    if (lead->index < 0 || lead->index >= lead->size)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "opening lane '%s': rank %d is no member of the group that orders its jobs", name,
            tutti_world_rank(lead->world));
    lane->is_led = true;
    lane->lead = *lead;
    lane->port = tutti_port_of(name, lead->context, 0);
    for (int k = 0; k < lane->width && tutti_lane_leads(lane); k++) {
        lane->worker[k].notes = tutti_alloc((size_t)lead->size, sizeof *lane->worker[k].notes);
        if (lane->worker[k].notes == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening lane '%s'", name);
    }
    return TUTTI_OK;
}

void tutti_lane_led_close(tutti_lane *lane)
{
    for (int i = 0; i < lane->width; i++)
        tutti_free(lane->worker[i].notes);
    if (!lane->is_led)
        return;
    tutti_cancel(lane->lead.world, &lane->word);
    tutti_cancel(lane->lead.world, &lane->wake_send);
}

/* ---- member 0 ---- */

tutti_status tutti_lane_announce(tutti_lane_worker *w, const tutti_job *job, tutti_error *err)
{
    const tutti_lane *lane = w->lane;
    const tutti_header note = { .a = job->index, .b = (int64_t)job->bytes };
    const tutti_port port = port_of_turn(lane, job->turn);

    for (int k = 1; tutti_lane_leads(lane) && k < lane->lead.size; k++)
        TUTTI_TRY(tutti_post_send(lane->lead.world, &w->notes[k], tutti_group_rank(&lane->lead, k),
                                  port, &note, tutti_nothing(), err));
    return TUTTI_OK;
}

bool tutti_lane_is_received(const tutti_lane_worker *w)
{
    bool all = true;

    for (int k = 1; k < w->lane->lead.size; k++)
        all = all && tutti_request_done(&w->notes[k]) && w->notes[k].status == TUTTI_OK;
    return all;
}

tutti_status tutti_lane_announced(tutti_lane_worker *w, tutti_error *err)
{
    const tutti_lane *lane = w->lane;
    tutti_status status = TUTTI_OK;

    for (int k = 1; k < lane->lead.size; k++) {
        tutti_request *note = &w->notes[k];
        tutti_error why;
        const tutti_status one =
            tutti_wait_some(lane->lead.world, &note, 1, 1, TUTTI_FOREVER, NULL, &why);
        if (status == TUTTI_OK && one != TUTTI_OK) {
            *err = why;
            status = one;
        }
    }
    return tutti_fail_within(err, status, "telling a turn of a lane");
}

/* ---- the others ---- */

void tutti_lane_wake_receiver(tutti_lane *lane)
{
    tutti_world *world = lane->lead.world;

    if (lane->receiving)
        tutti_post_send(world, &lane->wake_send, tutti_world_rank(world), port_of_word(lane), NULL,
                        tutti_nothing(), NULL);
}

bool tutti_lane_wants_turn(const tutti_lane *lane)
{
    return tutti_lane_follows(lane) && lane->first != NULL && !lane->named && !lane->receiving;
}

/* The monitor is locked. Posting does not block. */
static tutti_status post_turn(tutti_lane *lane, tutti_request *turn, tutti_error *err)
{
    tutti_world *world = lane->lead.world;

    if (!lane->word.posted)
        TUTTI_TRY(tutti_post_recv(world, &lane->word, tutti_world_rank(world), port_of_word(lane),
                                  tutti_nothing(), err));
    return tutti_post_recv(world, turn, tutti_group_rank(&lane->lead, 0),
                           port_of_turn(lane, lane->turns), tutti_nothing(), err);
}

void tutti_lane_receive(tutti_lane *lane)
{
    tutti_world *world = lane->lead.world;
    tutti_request turn;
    tutti_request *const wanted[] = { &turn, &lane->word };
    tutti_error why = { .rank = -1 };
    tutti_status status = post_turn(lane, &turn, &why);

    if (status == TUTTI_OK) {
        lane->receiving = true;
        tutti_unlock(lane->monitor);
        status = tutti_wait_some(world, wanted, 2, 1, TUTTI_FOREVER, NULL, &why);
        tutti_cancel(world, &turn); /* does nothing if it has arrived */
        tutti_lock(lane->monitor);
        lane->receiving = false;
    }
    if (status != TUTTI_OK)
        tutti_lane_give_up(lane, tutti_fail_within(&why, status, "waiting for a turn of a lane"),
                           &why);
    else if (lane->status == TUTTI_OK) {
        lane->named = true;
        lane->name = turn.note.a;
        lane->named_bytes = (uint64_t)turn.note.b;
    }
}
