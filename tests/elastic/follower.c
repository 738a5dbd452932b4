/* A process that takes part by a follower. Its state is the number of its steps, in many bytes. */
#include "elastic/follow_internal.h"
#include "trainer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATE_MOST = 1 << 30, NOTE_RANGE = TUTTI_NODE_KINDS + 2, SLOW_MS = 150 };

static bool is_slow;

bool __real_tutti_carrier_note(void *carrier, const tutti_node_note *note);
bool __wrap_tutti_carrier_note(void *carrier, const tutti_node_note *note);
bool __wrap_tutti_carrier_note(void *carrier, const tutti_node_note *note)
{
    if (is_slow && note->kind == NOTE_RANGE)
        usleep(1000 * SLOW_MS);
    return __real_tutti_carrier_note(carrier, note);
}

static tutti_image *image_of_step(const trainer *t, uint64_t step)
{
    char facts[] = "{}";
    const tutti_image of = { .step = step, .world = 1, .workers = 1, .whole = true, .facts = facts };
    const size_t bytes = t->bytes > sizeof step ? t->bytes : sizeof step;
    uint8_t *const data = calloc(bytes, 1);
    const tutti_saved piece = { .state = "steps", .tensor = "", .dtype = TUTTI_U8, .keep = TUTTI_SAME, .owner = -1,
                                .count = bytes, .end = bytes, .data = data };
    tutti_image *image = NULL;

    if (data == NULL)
        return NULL;
    memcpy(data, &step, sizeof step);
    if (tutti_image_copy(&image, &of, &piece, 1, NULL) != TUTTI_OK)
        image = NULL;
    free(data);
    return image;
}

static void check_image(trainer *t, const tutti_turn *turn)
{
    uint64_t step = 0;

    if (turn->image != NULL)
        memcpy(&step, turn->image->pieces[0].data, sizeof step);
    if (step != turn->step)
        trainer_give_up(t, "an epoch of step %llu begins with the state of %llu", (unsigned long long)turn->step,
                        (unsigned long long)step);
}

/* What a program does that is at work for long. */
static void stand(trainer *t, tutti_follower *f)
{
    uint64_t ids[TUTTI_CONTACTS_MAX];
    tutti_node_view view;

    while (t->stands && !t->fail && !t->quit) {
        tutti_node_look(f->node, &view);
        t->members = view.n;
        t->waiting = tutti_node_waiting(f->node, ids, TUTTI_CONTACTS_MAX);
        usleep(1000);
    }
}

/* Until the epoch is over, or this process is to end. Returns the steps that it has made. */
static uint64_t work(trainer *t, tutti_follower *f, const tutti_turn *turn)
{
    uint64_t step = turn->step;

    t->n = tutti_world_size(turn->world);
    t->epoch = turn->epoch;
    t->state = TUTTI_MEMBER;
    t->acts = true;
    for (;; usleep(500)) {
        tutti_group g = tutti_group_workers(turn->world, step + 1);
        double x = 1;
        stand(t, f);
        if (t->quit || t->fail ||
            tutti_allreduce(&g, TUTTI_SUM, (tutti_buffer){ NULL, &x, 1, TUTTI_F64 }, NULL) != TUTTI_OK ||
            !tutti_follower_commit(f, step))
            break;
        if (x != t->n)
            trainer_give_up(t, "step %llu of %d members has the sum %g", (unsigned long long)step, t->n, x);
        t->step = t->agreed = ++step;
    }
    t->acts = false;
    return step;
}

static void note_end(trainer *t, tutti_status status, const tutti_error *err)
{
    if (status != TUTTI_OK)
        snprintf(t->says, sizeof t->says, "%.399s", err->text);
    t->status = (int)status;
    t->over = true;
}

static void follow(trainer *t, tutti_follower *f)
{
    tutti_error err = { .rank = -1 };
    tutti_turn turn;

    while (!t->quit && !t->fail) {
        const tutti_status status = tutti_follower_next(f, &turn, &err);
        uint64_t step;
        if (status != TUTTI_OK || turn.world == NULL) {
            note_end(t, status, &err);
            return;
        }
        check_image(t, &turn);
        step = work(t, f, &turn);
        tutti_world_close(turn.world);
        if (tutti_follower_over(f, image_of_step(t, step), NULL, &err) != TUTTI_OK)
            trainer_give_up(t, "%s", err.text);
    }
    if (t->fail)
        tutti_follower_fail(f);
}

static bool leaves(void *user) { return ((trainer *)user)->leave || ((trainer *)user)->quit; }

static void listens(void *user, const char *address)
{
    trainer *const t = user;

    snprintf(t->address, sizeof t->address, "%s", address);
    t->up = true;
}

static void say(void *user, const char *line)
{
    snprintf(((trainer *)user)->says, sizeof ((trainer *)user)->says, "%.399s", line);
}

void follower_main(trainer *t)
{
    const char *const contact = t->contact;
    tutti_follow_options o = { .node = { .run = t->run, .key = t->key, .heartbeat_ns = 20 * FOLLOW_MS,
                                         .dead_ns = t->dead_ns, .retry_ns = 200 * FOLLOW_MS,
                                         .boundary_ns = 200 * FOLLOW_MS, .most = t->most },
                               .contacts = &contact, .n = t->size > 0 ? 0 : 1, .least = 1, .most = STATE_MOST,
                               .pass = t->pass[0] != '\0' ? t->pass : NULL, .leaves = leaves, .listens = listens,
                               .say = say, .user = t };
    tutti_error err = { .rank = -1 };
    tutti_world *founders = NULL;
    tutti_follower *f = NULL;
    tutti_runtime *rt;
    tutti_status status = tutti_runtime_open_posix(&rt, &err);

    is_slow = t->slow;
    if (status == TUTTI_OK && t->size > 0)
        status = tutti_world_open(&founders, "tcp", &err);
    o.founders = founders;
    o.image = t->begins > 0 && founders != NULL ? image_of_step(t, t->begins) : NULL;
    if (status == TUTTI_OK)
        status = tutti_follower_open(&f, rt, &o, &err);
    if (status != TUTTI_OK)
        trainer_give_up(t, "no follower: %s", err.text);
    follow(t, f);
    tutti_follower_close(f);
    tutti_world_close(founders);
    tutti_runtime_close(rt);
}
