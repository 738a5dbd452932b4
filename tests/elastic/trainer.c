#include "trainer.h"
#include "tutti/comm.h"
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MS INT64_C(1000000)
enum {
    SHARES = 840,                /* of a step; its sum is SHARES * (step + 1) for any members */
    ASK = TUTTI_NODE_KINDS,      /* notes: send me the state of epoch `tag`; here it is */
    STATE,
    PADDING = 200000             /* bytes of a state, so that it travels in pieces */
};

/* A state: what a member keeps, and what a newcomer gets. */
typedef struct state {
    uint64_t epoch;              /* in which it is held; 0: it is not */
    uint64_t step;
    double model;
} state;

typedef struct self {
    trainer *t;
    tutti_node *node;
    tutti_world *world;
    uint64_t epoch;              /* that it has seen last */
    uint64_t spent;              /* the epoch whose world has failed, or could not be opened */
    uint64_t agreed;             /* the largest that it has seen */
    bool ready;
    /* Under the lock. */
    pthread_mutex_t lock;
    tutti_node *answers;         /* node, once on_note may use it */
    state mine, got;
} self;

void trainer_give_up(trainer *t, const char *format, ...)
{
    va_list words;

    va_start(words, format);
    vsnprintf(t->wrong, sizeof t->wrong, format, words);
    va_end(words);
    _exit(1);
}

/* ---- states travel as notes ---- */
static void on_ask(self *s, const tutti_node_note *note)
{
    uint8_t *const bytes = malloc(sizeof(state) + PADDING);

    pthread_mutex_lock(&s->lock);
    if (bytes != NULL && s->answers != NULL && s->mine.epoch == note->tag) {
        memcpy(bytes, &s->mine, sizeof s->mine);
        for (size_t k = 0; k < PADDING; k++)
            bytes[sizeof(state) + k] = (uint8_t)(31 * k + s->mine.step);
        tutti_node_send(s->answers, note->from, STATE, note->tag, bytes, sizeof(state) + PADDING, 0, NULL);
    }
    pthread_mutex_unlock(&s->lock);
    free(bytes);
}

static void on_state(self *s, const tutti_node_note *note)
{
    state got;

    if (note->n != sizeof got + PADDING)
        trainer_give_up(s->t, "a state of %zu bytes", note->n);
    memcpy(&got, note->bytes, sizeof got);
    for (size_t k = 0; k < PADDING; k++)
        if (note->bytes[sizeof got + k] != (uint8_t)(31 * k + got.step))
            trainer_give_up(s->t, "byte %zu of a state is wrong", k);
    pthread_mutex_lock(&s->lock);
    s->got = got;
    pthread_mutex_unlock(&s->lock);
}

static void on_note(void *user, const tutti_node_note *note)
{
    if (note->kind == ASK)
        on_ask(user, note);
    else
        on_state(user, note);
}

static double model_of(uint64_t step) { return (double)SHARES * (double)(step * (step + 1) / 2); }

static void fetch(self *s)
{
    static tutti_epoch e; /* large */
    state got;

    tutti_node_epoch(s->node, &e);
    for (int i = 0; i < e.n; i++)
        if (e.members[i].holds && e.members[i].id != tutti_node_id(s->node))
            tutti_node_send(s->node, e.members[i].id, ASK, e.number, NULL, 0, 0, NULL);
    for (int k = 0; k < 100; k++) {
        pthread_mutex_lock(&s->lock);
        got = s->got;
        pthread_mutex_unlock(&s->lock);
        if (got.epoch == e.number)
            break;
        usleep(1000);
    }
    if (got.epoch != e.number || !tutti_node_hold(s->node, got.step))
        return;
    if (got.model != model_of(got.step))
        trainer_give_up(s->t, "a model of %.0f after step %llu", got.model, (unsigned long long)got.step);
    pthread_mutex_lock(&s->lock);
    s->mine = got;
    pthread_mutex_unlock(&s->lock);
    s->t->fetched++;
}

/* ---- training ---- */
static void open_world(self *s, const tutti_node_view *view)
{
    tutti_error err = { .rank = -1 };
    const tutti_status status = tutti_node_world(&s->world, s->node, view->epoch, NULL, &err);

    if (status == TUTTI_OK && (tutti_world_rank(s->world) != view->index || tutti_world_size(s->world) != view->n))
        trainer_give_up(s->t, "rank %d of %d in an epoch where it is %d of %d", tutti_world_rank(s->world),
                tutti_world_size(s->world), view->index, view->n);
    if (status == TUTTI_OK) {
        s->t->worlds++;
        return;
    }
    s->spent = view->epoch;
    if (status != TUTTI_CLOSED && status != TUTTI_ERR_PEER)
        trainer_give_up(s->t, "epoch %llu has no world: %s", (unsigned long long)view->epoch, err.text);
}

static void make_step(self *s, const tutti_node_view *view)
{
    const int n = view->n, i = view->index;
    const int shares = SHARES * (i + 1) / n - SHARES * i / n;
    const uint64_t step = s->mine.step + 1;
    double x[2] = { (double)shares * (double)step, 1 };
    tutti_group g = tutti_group_workers(s->world, step);
    tutti_error err = { .rank = -1 };
    const tutti_status status =
        tutti_allreduce(&g, TUTTI_SUM, (tutti_buffer){ NULL, x, 2, TUTTI_F64 }, &err);

    if (status == TUTTI_OK && (x[0] != (double)SHARES * (double)step || x[1] != n))
        trainer_give_up(s->t, "step %llu of %d members has the sum %.17g of %.17g", (unsigned long long)step, n, x[0],
                        x[1]);
    if (status != TUTTI_OK) {
        if (status != TUTTI_ERR_PEER && status != TUTTI_CLOSED)
            trainer_give_up(s->t, "step %llu fails: %s", (unsigned long long)step, err.text);
        tutti_world_close(s->world);
        s->world = NULL;
        s->spent = view->epoch;
        return;
    }
    pthread_mutex_lock(&s->lock);
    if (tutti_node_step(s->node, view->epoch, step)) {
        s->mine.step = step;
        s->mine.model += x[0];
    }
    pthread_mutex_unlock(&s->lock);
    if (s->mine.model != model_of(s->mine.step))
        trainer_give_up(s->t, "the model is %.0f after step %llu", s->mine.model, (unsigned long long)s->mine.step);
    usleep(500);
}

/* The first look at an epoch. */
static void enter(self *s, const tutti_node_view *view)
{
    tutti_world_close(s->world);
    s->world = NULL;
    s->epoch = view->epoch;
    if (view->step < s->agreed)
        trainer_give_up(s->t, "epoch %llu begins at step %llu, and %llu was agreed", (unsigned long long)view->epoch,
                (unsigned long long)view->step, (unsigned long long)s->agreed);
    pthread_mutex_lock(&s->lock);
    s->mine.epoch = view->holds ? view->epoch : 0;
    pthread_mutex_unlock(&s->lock);
    if (view->holds && s->mine.step != view->step)
        trainer_give_up(s->t, "holds step %llu in an epoch that begins at %llu", (unsigned long long)s->mine.step,
                (unsigned long long)view->step);
}

static void open_node(self *s, const char *const *contacts, int n)
{
    tutti_node_options o = { .run = s->t->run,
                             .key = s->t->key,
                             .heartbeat_ns = 20 * MS,
                             .dead_ns = 400 * MS,
                             .retry_ns = 200 * MS,
                             .boundary_ns = 200 * MS,
                             .on_note = on_note,
                             .user = s };
    tutti_error err = { .rank = -1 };
    tutti_world *world = NULL;
    tutti_status status = TUTTI_OK;

    if (n == 0)
        status = tutti_world_open(&world, "tcp", &err);
    if (status == TUTTI_OK)
        status = n == 0 ? tutti_node_found(&s->node, world, &o, &err)
                        : tutti_node_join(&s->node, contacts, n, &o, &err);
    tutti_world_close(world);
    if (status != TUTTI_OK)
        trainer_give_up(s->t, "no node: %s", err.text);
    s->ready = false;
    s->epoch = s->spent = 0;
    pthread_mutex_lock(&s->lock);
    s->answers = s->node;
    pthread_mutex_unlock(&s->lock);
    snprintf(s->t->address, sizeof s->t->address, "%s", tutti_node_address(s->node));
    s->t->up = true;
}

static void close_node(self *s)
{
    pthread_mutex_lock(&s->lock);
    s->answers = NULL;
    s->mine.epoch = 0;
    pthread_mutex_unlock(&s->lock);
    tutti_world_close(s->world);
    s->world = NULL;
    tutti_node_close(s->node);
}

/* It was removed: it comes back as a newcomer, by the addresses that it knows. */
static void come_back(self *s)
{
    static tutti_epoch e;
    const char *contacts[TUTTI_CONTACTS_MAX];
    int n = 0;

    tutti_node_epoch(s->node, &e);
    close_node(s);
    for (; n < e.n && n < TUTTI_CONTACTS_MAX; n++)
        contacts[n] = e.members[n].address;
    open_node(s, contacts, n);
    s->t->comebacks++;
}

static void publish(self *s, const tutti_node_view *view)
{
    trainer *const t = s->t;

    t->state = (int)view->state;
    t->n = view->n;
    t->acts = view->acts;
    t->epoch = view->epoch;
    t->agreed = view->agreed;
    t->strangers = tutti_node_strangers(s->node);
    t->step = s->mine.step;
    if (view->agreed > s->agreed && view->state == TUTTI_MEMBER)
        s->agreed = view->agreed;
    if (view->epoch == 0)
        tutti_node_describe(s->node, t->says, sizeof t->says);
}

static void wait_for_change(self *s, const tutti_node_view *view)
{
    tutti_node_view next;

    tutti_node_wait(s->node, view->changes, tutti_node_now(s->node) + 10 * MS, &next, NULL);
}

static void as_member(self *s, const tutti_node_view *view)
{
    if (view->epoch != s->epoch)
        enter(s, view);
    if (!view->holds)
        fetch(s);
    else if (!view->acts || s->spent == view->epoch)
        wait_for_change(s, view);
    else if (s->world == NULL)
        open_world(s, view);
    else
        make_step(s, view);
}

static void train(self *s)
{
    trainer *const t = s->t;
    const char *const contact = t->contact;
    bool leaves = false;
    tutti_node_view view;

    open_node(s, &contact, t->size > 0 ? 0 : 1);
    for (;;) {
        tutti_node_look(s->node, &view);
        publish(s, &view);
        if (t->quit || view.state == TUTTI_LEFT)
            break;
        if (t->leave && !leaves) {
            tutti_node_leave(s->node);
            leaves = true;
        } else if (view.state == TUTTI_REMOVED)
            come_back(s);
        else if (view.state == TUTTI_MEMBER)
            as_member(s, &view);
        else {
            if (!s->ready)
                tutti_node_ready(s->node);
            s->ready = true;
            wait_for_change(s, &view);
        }
    }
    close_node(s);
}

static void set_number(const char *name, int x)
{
    char text[16];

    snprintf(text, sizeof text, "%d", x);
    setenv(name, text, 1);
}

void trainer_start(trainer *t)
{
    const pid_t parent = getpid(), child = fork();
    self s = { .t = t };

    if (child != 0) {
        t->pid = child;
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    alarm(300);
    if (t->size > 0) {
        char id[TUTTI_RUN_ID_TEXT], key[TUTTI_RUN_KEY_TEXT];
        tutti_run_id_text(&t->run, id);
        tutti_run_key_text(&t->key, key);
        setenv(TUTTI_MEET_VARIABLE, t->meet, 1);
        setenv(TUTTI_MEET_VARIABLE_ID, id, 1);
        setenv(TUTTI_MEET_VARIABLE_KEY, key, 1);
        setenv(TUTTI_MEET_VARIABLE_AT_0, "0", 1);
        set_number("TUTTI_RANK", t->rank);
        set_number("TUTTI_SIZE", t->size);
    }
    pthread_mutex_init(&s.lock, NULL);
    if (t->follows)
        follower_main(t);
    else
        train(&s);
    _exit(0);
}
