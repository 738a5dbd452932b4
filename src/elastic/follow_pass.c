/* follow_pass.c: the pass of the run (launch/launch.h), kept by its members: the file by which
   others join has the addresses of the members of the newest epoch, since those that the run began
   with, and their launcher, may be gone. Each member writes what is not there yet. It is removed
   where the run ends, and stays where this process ends without the others. The launcher makes it,
   so another file is never changed, nor that of another run: this one has come back after its
   end. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "follow_internal.h"
#include "launch/launch.h"

static bool same_run(const tutti_launch_pass *a, const tutti_launch_pass *b)
{
    return memcmp(&a->id, &b->id, sizeof a->id) == 0;
}

static bool same_addresses(const tutti_launch_pass *a, const tutti_launch_pass *b)
{
    if (a->n != b->n)
        return false;
    for (int k = 0; k < a->n; k++)
        if (strcmp(a->at[k], b->at[k]) != 0)
            return false;
    return true;
}

void tutti_follower_write_pass(tutti_follower *f)
{
    tutti_launch_pass pass = { .id = f->o.node.run, .key = f->o.node.key }, there;
    tutti_error why = { .rank = -1 };
    bool well = true, writes;

    if (f->o.pass == NULL)
        return;
    tutti_node_epoch(f->node, f->newest);
    for (; pass.n < f->newest->n && pass.n < TUTTI_LAUNCH_CONTACTS; pass.n++)
        snprintf(pass.at[pass.n], sizeof *pass.at, "%.63s", f->newest->members[pass.n].address);
    if (tutti_launch_pass_read(&there, f->o.pass, &why) == TUTTI_OK)
        writes = same_run(&pass, &there) && !same_addresses(&pass, &there);
    else
        writes = why.cause == ENOENT; /* another file is none of this run's */
    if (writes)
        well = tutti_launch_pass_write(&pass, f->o.pass, &why) == TUTTI_OK ||
               why.cause == ENOENT; /* on another machine, without the folder: it keeps nothing */
    if (!well && !f->pass_failed && f->o.say != NULL)
        f->o.say(f->o.user, why.text);
    f->pass_failed = !well;
    tutti_run_key_wipe(&pass.key);
    tutti_run_key_wipe(&there.key);
}

void tutti_follower_remove_pass(const tutti_follower *f)
{
    tutti_launch_pass there;

    if (f->o.pass == NULL || f->o.pass_stays)
        return;
    if (tutti_launch_pass_read(&there, f->o.pass, NULL) == TUTTI_OK &&
        same_run(&there, &(tutti_launch_pass){ .id = f->o.node.run }))
        unlink(f->o.pass);
    tutti_run_key_wipe(&there.key);
}
