/* accusations.h: which ranks accuse which others of being lost, as members.c collects and sends it.
   All work and all messages are in proportion to the number of the accused, which is small, and not
   to the square of the number of ranks. Private to this module. */
#ifndef TUTTI_COLLECTIVE_ACCUSATIONS_H
#define TUTTI_COLLECTIVE_ACCUSATIONS_H
#include "tutti/base.h"

typedef struct tutti_accusations {
    int size;                    /* ranks */
    size_t row;                  /* bytes of a row: a bit for each rank */
    int n;                       /* ranks that are accused */
    int *accused;                /* [n]: these, ascending */
    uint8_t *by;                 /* [size][row]: which ranks accuse a rank; 0 in rows of others */
} tutti_accusations;

/* Makes an empty collection; false: no memory. */
bool tutti_accusations_open(tutti_accusations *a, int size);
/* Frees it; *a may be zeroed. */
void tutti_accusations_close(tutti_accusations *a);
void tutti_accusations_clear(tutti_accusations *a);
void tutti_accuse(tutti_accusations *a, int who, int whom);
static inline bool tutti_accuses(const tutti_accusations *a, int who, int whom)
{
    return (a->by[(size_t)whom * a->row + (size_t)who / 8] >> who % 8 & 1) != 0;
}
bool tutti_accusations_same(const tutti_accusations *a, const tutti_accusations *b);
/* Adds those of `from`. */
void tutti_accusations_merge(tutti_accusations *into, const tutti_accusations *from);
/* Returns how many members, those with members[rank], accuse `whom`. */
int tutti_accusers(const tutti_accusations *a, int whom, const bool *members);

/* A packed table: of each accused rank, ascending, its number (4 bytes, little-endian) and its row.
   Returns the bytes of the table; of the largest that a collection of that many ranks has. */
size_t tutti_accusations_bytes(const tutti_accusations *a);
size_t tutti_accusations_bytes_most(const tutti_accusations *a);
/* Writes the table. to: [tutti_accusations_bytes] */
void tutti_accusations_pack(const tutti_accusations *a, uint8_t *to);
/* Replaces *a by a table; false: it is none, and *a is empty. */
bool tutti_accusations_unpack(tutti_accusations *a, const uint8_t *from, size_t bytes);
#endif
