/* idx.c: parses the header of an IDX file (Y. LeCun, "The MNIST database of handwritten digits",
   file formats):

     0 0 TYPE RANK, then RANK dimensions as 32-bit big-endian numbers, then the data, row-major.

   Only unsigned bytes are accepted: the data sets that we train on have nothing else. */
#include "data_internal.h"

static const char *type_name(unsigned type)
{
    switch (type) {
    case 0x08: return "unsigned byte";
    case 0x09: return "signed byte";
    case 0x0B: return "16-bit integer";
    case 0x0C: return "32-bit integer";
    case 0x0D: return "float";
    case 0x0E: return "double";
    default: return "no type of the format";
    }
}

tutti_status tutti_idx_parse(const char *path, const uint8_t *head, size_t have,
                             tutti_idx_header *header, tutti_error *err)
{
    tutti_idx_header h = { 0 };
    size_t bytes = 1;

    *header = h;
    if (have >= 2 && head[0] == 0x1f && head[1] == 0x8b)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' holds gzip data where an IDX header was expected; it was compressed twice: "
            "gunzip it once",
            path);
    if (have < 4)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' ends after %zu bytes, inside the 4 bytes every IDX file begins with; fetch it "
            "again",
            path, have);
    if (head[0] != 0 || head[1] != 0)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' begins with %02x %02x %02x %02x, but an IDX file begins with 00 00; it is "
            "another kind of file",
            path, head[0], head[1], head[2], head[3]);
    if (head[2] != 0x08)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' has elements of type 0x%02x (%s) at byte 2; only 0x08 (unsigned byte) is read: "
            "convert it",
            path, head[2], type_name(head[2]));
    if (head[3] < 1 || head[3] > 4)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has %u dimensions by its byte 3; 1 to 4 are read", path, head[3]);
    h.rank = head[3];
    if (have < tutti_idx_head_bytes(&h))
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' ends after %zu bytes, inside its header of %zu (%d dimensions); fetch it again",
            path, have, tutti_idx_head_bytes(&h), h.rank);
    for (int k = 0; k < h.rank; k++) {
        const uint8_t *at = head + 4 + 4 * k;
        h.dim[k] = (uint64_t)at[0] << 24 | (uint64_t)at[1] << 16 | (uint64_t)at[2] << 8 | at[3];
        if (h.dim[k] == 0)
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "'%s' has dimension %d of size 0 (bytes %d to %d); it holds no sample", path, k + 1,
                4 + 4 * k, 7 + 4 * k);
        if (!tutti_size_mul(bytes, (size_t)h.dim[k], &bytes))
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "'%s' has dimensions whose product overflows 64 bits at dimension %d (%llu); the "
                "header is damaged: fetch the file again",
                path, k + 1, (unsigned long long)h.dim[k]);
    }
    h.bytes = bytes;
    *header = h;
    return TUTTI_OK;
}
