/* parse.h: the parsers of files of a checkpoint by themselves, for fuzz targets, and a save by a
   group. Implemented by safetensors.c, manifest.c and save.c. */
#ifndef TUTTI_STATE_PARSE_H
#define TUTTI_STATE_PARSE_H
#include "tutti/tutti.h"
#pragma GCC visibility push(default)

/* The header alone, for the fuzz target: head has 8 + N bytes or less, file_bytes is the assumed
   size of the file. */
tutti_status tutti_safetensors_parse(tutti_tensor_file **out, const char *path,
                                     const uint8_t *head, size_t have, uint64_t file_bytes,
                                     tutti_error *err);

/* tutti_checkpoint_save by the members of a group, as a run of group->size workers. Ranks, files
   and owners (tutti_saved.owner) are their indexes. err->rank is a rank of the world. Messages use
   ports of the group's context and no collective. So it may run on any thread, concurrently with
   collectives, and a save that has failed may be repeated with another context. */
tutti_status tutti_checkpoint_save_group(const tutti_group *group, const char *dir, uint64_t step,
                                         const tutti_saved *items, size_t n, const char *facts,
                                         int keep, tutti_error *err);

/* The manifest alone, for the fuzz target. */
tutti_status tutti_checkpoint_parse(tutti_checkpoint **out, const char *path, const char *text,
                                    size_t bytes, tutti_error *err);
#pragma GCC visibility pop
#endif
