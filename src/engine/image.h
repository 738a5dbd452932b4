/* image.h: the state of an engine in memory (src/state/image.h). Implemented by saved.c and
   copies.c. */
#ifndef TUTTI_ENGINE_IMAGE_H
#define TUTTI_ENGINE_IMAGE_H
#include "state/image.h"
#include "tutti/tutti.h"
#pragma GCC visibility push(default)

/* Copies all that this rank has of what tutti_engine_save would write now: what is the same on all
   ranks whole, its part of the rest, and its own. The images of all ranks together are the
   checkpoint, whichever of them gives what several have; tutti_engine_load reads it
   (tutti_image_checkpoint). It sends nothing, unless services have to quiesce first: then all ranks
   call it. Between steps, or where the state is whole all the same, as in tutti_engine_state.
   Blocks.

   facts: as tutti_engine_save; the engine adds its own. Close the image with tutti_image_close. */
tutti_status tutti_engine_image(tutti_engine *e, const char *facts, tutti_image **image,
                                tutti_error *err);
/* That, and copies of what the worker after this one (cyclically) has alone, so that image->copies
   is 1: its parts in the engine's memory are sent, and what has arrived has the hash that it was
   sent with (TUTTI_ERR_CORRUPT). Where a worker has all, or copies already (zero, with commit), it
   is that image. Collective, between two steps. */
tutti_status tutti_engine_image_copied(tutti_engine *e, const char *facts, tutti_image **image,
                                       tutti_error *err);
/* When image may be called: copies what this worker has of a neighbouring step, and others may
   lack: its shards, and its copies of the next worker's, at the step before its own, or at the one
   that has failed, if all that the update needs had come. *image NULL: it has none. The image has
   no facts. Blocks. */
tutti_status tutti_engine_image_beside(tutti_engine *e, tutti_image **image, tutti_error *err);
#pragma GCC visibility pop
#endif
