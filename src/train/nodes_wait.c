/* nodes_wait.c: what becomes of a run that cannot go on, since too few others are left or all have
   been asked to leave (elastic/follow.h): its last state is written as the checkpoint of a run of
   one worker, with which another run goes on. */
#include <errno.h>
#include <string.h>

#include "nodes_internal.h"
#include "state/image.h"

enum { PATH_SHOWN = 180 }; /* bytes: a longer one would not fit into an error */

bool tutti_node_trainer_saves(const tutti_train_config *config)
{
    return config->checkpoint_every > 0 || config->checkpoint_on_signal;
}

typedef struct saving {
    const tutti_train_config *config;
    const tutti_image *image;
    tutti_saved *pieces; /* [n] */
    size_t n;
} saving;

static tutti_status save_main(tutti_world *world, void *arg, tutti_error *err)
{
    const saving *s = arg;
    char directory[4096];

    snprintf(directory, sizeof directory, "%s/checkpoints", s->config->out);
    return tutti_checkpoint_save(world, directory, s->image->step, s->pieces, s->n, s->image->facts,
                                 (int)s->config->checkpoint_keep, err);
}

/* State of a worker's own is the same on all (logical shares): that of the first is saved. */
static tutti_status save(const node_trainer *t, const tutti_image *image, tutti_error *err)
{
    saving s = { .config = t->run->config,
                 .image = image,
                 .pieces = tutti_alloc(image->n + 1, sizeof *s.pieces) };
    tutti_status status;

    if (s.pieces == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory to save the state of step %llu",
                          (unsigned long long)image->step);
    for (size_t k = 0; k < image->n; k++)
        if (image->pieces[k].owner <= 0)
            s.pieces[s.n++] = image->pieces[k];
    status = tutti_world_run("shm", 1, save_main, &s, err);
    tutti_free(s.pieces);
    return status;
}

/* The step of the newest checkpoint, and where it is; 0: there is none. */
static uint64_t newest_checkpoint(const node_trainer *t, char *found, size_t bytes)
{
    tutti_checkpoint *checkpoint = NULL;
    uint64_t step = 0;

    found[0] = '\0';
    if (tutti_checkpoint_find(t->run->rt, t->run->config->out, found, bytes, NULL, 0, NULL) ==
            TUTTI_OK &&
        tutti_checkpoint_open(&checkpoint, t->run->rt, found, NULL) == TUTTI_OK)
        step = tutti_checkpoint_step(checkpoint);
    tutti_checkpoint_close(checkpoint);
    return step;
}

tutti_status tutti_node_trainer_save(void *user, const tutti_image *image, tutti_error *err)
{
    const node_trainer *t = user;
    char found[4096];

    if (newest_checkpoint(t, found, sizeof found) >= image->step)
        return TUTTI_OK;
    return save(t, image, err);
}

/* Writes the command that continues the run from a path; a path that is too long is described. */
static void say_command(const char *workers, const char *path, char *text, size_t bytes)
{
    const bool fits = strlen(path) <= PATH_SHOWN;

    snprintf(text, bytes,
             "continue by tutti train --resume %.*s --workers %.20s, or with -n N%s", PATH_SHOWN,
             fits ? path : "PATH", workers, fits ? "" : ", where PATH is the run's folder (--out)");
}

void tutti_node_trainer_mends(void *user, bool saves, char *text, size_t bytes)
{
    const node_trainer *t = user;
    const tutti_train_config *c = t->run->config;
    char found[4096];

    if (saves)
        say_command(c->workers, c->out, text, bytes);
    else if (newest_checkpoint(t, found, sizeof found) > 0)
        say_command(c->workers, found, text, bytes);
    else
        snprintf(text, bytes, "there is no checkpoint%s, so begin again",
                 tutti_node_trainer_saves(c) ? " yet" : ", since checkpoint-every is 0");
}
