/* match_pool.h: what match.c takes its sends, receives, messages and buffers from. */
#ifndef TUTTI_TRANSPORT_MATCH_POOL_H
#define TUTTI_TRANSPORT_MATCH_POOL_H
#include "match.h"

void tutti_match_pool_init(match_pool *pool, size_t thing_bytes, uint32_t first);
void tutti_match_pool_fini(match_pool *pool);                       /* also of a zeroed one */

/* more: a further chunk; false: no memory */
bool tutti_match_op_more(tutti_match *m);
/* NULL: no memory. Its content is what it was */
match_op *tutti_match_op_take(tutti_match *m);
void tutti_match_op_give(tutti_match *m, match_op *op);             /* takes it out of its lists */
match_op *tutti_match_op_find(tutti_match *m, uint64_t id);         /* NULL: not any more */
bool tutti_match_message_more(tutti_match *m);
match_message *tutti_match_message_take(tutti_match *m);
void tutti_match_message_give(tutti_match *m, match_message *message);
match_message *tutti_match_message_find(tutti_match *m, uint64_t id);
bool tutti_match_payload_more(tutti_match *m);
unsigned char *tutti_match_payload_take(tutti_match *m);
#endif
