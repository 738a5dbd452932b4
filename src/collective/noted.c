/* noted.c: what a rank notes of its collectives and waits in its record (runtime/activity.h), for
   `tutti why` and for the flight record. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "collective_internal.h"
#include "noted.h"

/* Returns a number that the ranks of one run on this host have in common, and other runs have not:
   of the variables by which they find each other, else of the process that has started them. */
static uint64_t run_of(char *const *environment, int size)
{
    static const char *const names[] = { "TUTTI_RUN_ID", "TUTTI_MEET", "MASTER_ADDR", "MASTER_PORT",
                                         "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID" };
    uint64_t words[TUTTI_LENGTH(names) + 2] = { 0 };
    bool found = false;

    for (size_t k = 0; k < TUTTI_LENGTH(names); k++) {
        const char *value = tutti_variable(environment, names[k]);
        if (value == NULL || value[0] == '\0')
            continue;
        words[k] = tutti_hash(value, strlen(value));
        found = true;
    }
    words[TUTTI_LENGTH(names)] = (uint64_t)size;
    words[TUTTI_LENGTH(names) + 1] = found ? 0 : (uint64_t)getppid();
    return tutti_hash(words, sizeof words);
}

void tutti_noted_open(tutti_world *world, char *const *environment)
{
    tutti_activity_about about = { .rank = world->rank, .size = world->size };

    if (world->ops->simulated)
        return;
    about.run = run_of(environment, world->size);
    snprintf(about.transport, sizeof about.transport, "%s", world->ops->name);
    for (int r = 0; r < world->size && r < TUTTI_ACTIVITY_RANKS; r++)
        if (tutti_world_host(world, r) == tutti_world_host(world, world->rank))
            about.here[r / 64] |= UINT64_C(1) << r % 64;
    world->activity = tutti_activity_open(&about);
}

tutti_activity *tutti_world_activity(const tutti_world *world)
{
    return world->activity;
}

void tutti_world_run_number(tutti_world *world, uint64_t run)
{
    tutti_activity_run(world->activity, run);
}

void tutti_world_folder(tutti_world *world, const char *directory)
{
    tutti_activity_folder(world->activity, directory);
}

/* Bit r: rank r is a member. 0: a rank is too high for it. */
static uint64_t members_of(const tutti_group *g)
{
    uint64_t members = 0;

    if (g->ranks == NULL)
        return g->size > TUTTI_ACTIVITY_MEMBERS ? 0 : UINT64_MAX >> (64 - g->size);
    for (int k = 0; k < g->size; k++) {
        const int rank = tutti_group_rank(g, k);
        if (rank < 0 || rank >= TUTTI_ACTIVITY_MEMBERS)
            return 0;
        members |= UINT64_C(1) << rank;
    }
    return members;
}

/* `what` of the entry is all zeros. snprintf took a fifth of the time of a small collective. */
static void set_what(tutti_activity_entry *entry, const char *what)
{
    memcpy(entry->what, what, strnlen(what, sizeof entry->what - 1));
}

int tutti_noted_enter(const tutti_group *g, tutti_collective kind, uint64_t call, size_t count)
{
    tutti_activity_entry entry = { .kind = TUTTI_ACTIVITY_COLLECTIVE,
                                   .call = call,
                                   .group = g->context,
                                   .count = count,
                                   .number = g->sequence,
                                   .index = -1,
                                   .peer = -1 };

    if (g->world->activity == NULL || g->size < 2)
        return -1;
    entry.members = members_of(g);
    set_what(&entry, tutti_collective_name(kind));
    return tutti_activity_enter(g->world->activity, &entry);
}

int tutti_noted_wait(const tutti_world *world, int rank, const char *what)
{
    tutti_activity_entry entry = { .kind = TUTTI_ACTIVITY_MESSAGE, .index = -1, .peer = rank };

    if (world->activity == NULL || rank < 0 || rank == world->rank)
        return -1;
    set_what(&entry, what);
    return tutti_activity_enter(world->activity, &entry);
}
