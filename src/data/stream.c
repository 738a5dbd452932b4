/* stream.c: reads the bytes of a file in order, and decompresses gzip. The runtime reads the file,
   and zlib's inflate gets what was read; gzopen is not used, so that tests can make the k-th read
   fail, and a simulated run reads nothing outside of its runtime. A gzip file may have several
   members (RFC 1952, 2.2), as parallel compressors write them; other bytes after a member are
   refused. */
#include "data_internal.h"
#include "runtime/files.h"
#include <assert.h>
#include <zlib.h>

#define CHUNK ((size_t)64 << 10)

struct tutti_data_stream {
    tutti_file *file;
    const char *path;
    uint64_t at;                /* bytes of the file taken so far */
    uint64_t given;             /* bytes of the contents given so far */
    bool gzip, ended, inflating; /* ended: the last member is over; inflating: z is open */
    z_stream z;                 /* next_in, avail_in: what of chunk is not inflated yet */
    uint8_t chunk[CHUNK];
};

static voidpf zalloc(voidpf opaque, uInt items, uInt size)
{
    (void)opaque;
    return tutti_alloc(items, size);
}

static void zfree(voidpf opaque, voidpf memory)
{
    (void)opaque;
    tutti_free(memory);
}

tutti_status tutti_data_stream_open(tutti_data_stream **out, tutti_runtime *rt, const char *path,
                                    tutti_error *err)
{
    tutti_status status;
    tutti_data_stream *s = tutti_alloc(1, sizeof *s);

    *out = NULL;
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory (%zu bytes) to read '%s'", sizeof *s,
                          path);
    s->path = path;
    status = tutti_file_open(&s->file, rt, path, TUTTI_FILE_READ, err);
    if (status != TUTTI_OK)
        goto out;
    if (tutti_file_bytes(s->file) >= 2) {
        status = tutti_file_read(s->file, 0, s->chunk, 2, err);
        if (status != TUTTI_OK)
            goto out;
        s->gzip = s->chunk[0] == 0x1f && s->chunk[1] == 0x8b;
    }
    if (s->gzip) {
        s->z.zalloc = zalloc;
        s->z.zfree = zfree;
        if (inflateInit2(&s->z, 15 + 16) != Z_OK) {
            /* 16: a gzip wrapper, whose checksum and length inflate compares */
            status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to inflate '%s'", path);
            goto out;
        }
        s->inflating = true;
    }
out:
    if (status == TUTTI_OK)
        *out = s;
    else
        tutti_data_stream_close(s);
    return status;
}

void tutti_data_stream_close(tutti_data_stream *s)
{
    if (s == NULL)
        return;
    if (s->inflating)
        inflateEnd(&s->z);
    tutti_file_close(s->file, NULL);
    tutti_free(s);
}

bool tutti_data_stream_gzip(const tutti_data_stream *s)
{
    return s->gzip;
}

uint64_t tutti_data_stream_file_bytes(const tutti_data_stream *s)
{
    return tutti_file_bytes(s->file);
}

uint64_t tutti_data_stream_most(const tutti_data_stream *s)
{
    const uint64_t bytes = tutti_file_bytes(s->file);

    /* Deflate's best: 258 bytes from a length code and a distance code of one bit each, 1032 to
       1. */
    return !s->gzip ? bytes : bytes > UINT64_MAX / 1032 ? UINT64_MAX : bytes * 1032;
}

/* Moves the rest of the chunk to its front and continues reading after it. */
static tutti_status refill(tutti_data_stream *s, tutti_error *err)
{
    const uint64_t left = tutti_file_bytes(s->file) - s->at;
    size_t bytes = CHUNK - s->z.avail_in;

    for (size_t k = 0; k < s->z.avail_in; k++)
        s->chunk[k] = s->z.next_in[k];
    if (bytes > left)
        bytes = (size_t)left;
    if (bytes > 0)
        TUTTI_TRY(tutti_file_read(s->file, s->at, s->chunk + s->z.avail_in, bytes, err));
    s->at += bytes;
    s->z.next_in = s->chunk;
    s->z.avail_in += (uInt)bytes;
    return TUTTI_OK;
}

/* Call after a member: another member follows, the file ends, or the rest is refused. */
static tutti_status member_ended(tutti_data_stream *s, tutti_error *err)
{
    if (s->z.avail_in < 2)
        TUTTI_TRY(refill(s, err));
    if (s->z.avail_in == 0) {
        s->ended = true;
        return TUTTI_OK;
    }
    if (s->z.avail_in < 2 || s->z.next_in[0] != 0x1f || s->z.next_in[1] != 0x8b) {
        const uint64_t end = s->at - s->z.avail_in;
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has %llu bytes after the end of its gzip stream at byte %llu; cut "
                          "them off or fetch the file again",
                          s->path, (unsigned long long)(tutti_file_bytes(s->file) - end),
                          (unsigned long long)end);
    }
    /* cannot happen with an open stream; a status rather than an assert since zlib is not ours */
    if (inflateReset(&s->z) != Z_OK)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "zlib cannot begin the next member of '%s'",
                          s->path);
    return TUTTI_OK;
}

static tutti_status inflate_some(tutti_data_stream *s, uint8_t *to, size_t bytes, size_t *got,
                                 tutti_error *err)
{
    *got = 0;
    while (*got < bytes && !s->ended) {
        /* zlib counts in 32 bits */
        const size_t ask = bytes - *got < (size_t)1 << 30 ? bytes - *got : (size_t)1 << 30;
        int result;

        if (s->z.avail_in == 0)
            TUTTI_TRY(refill(s, err));
        if (s->z.avail_in == 0)
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "'%s' ends at byte %llu in the middle of its gzip stream; it was cut short: fetch "
                "it again",
                s->path, (unsigned long long)s->at);
        s->z.next_out = to + *got;
        s->z.avail_out = (uInt)ask;
        result = inflate(&s->z, Z_NO_FLUSH);
        *got += ask - s->z.avail_out;
        if (result == Z_STREAM_END)
            TUTTI_TRY(member_ended(s, err));
        else if (result == Z_MEM_ERROR)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to inflate '%s'", s->path);
        else if (result != Z_OK)
            return tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "cannot inflate '%s': %s near byte %llu of the file; it is damaged: fetch it again",
                s->path, s->z.msg != NULL ? s->z.msg : "bad gzip stream",
                (unsigned long long)(s->at - s->z.avail_in));
    }
    return TUTTI_OK;
}

tutti_status tutti_data_stream_read(tutti_data_stream *s, void *to, size_t bytes, size_t *got,
                                    tutti_error *err)
{
    tutti_status status;

    if (s->gzip) {
        status = inflate_some(s, to, bytes, got, err);
    } else {
        const uint64_t left = tutti_file_bytes(s->file) - s->at;
        *got = bytes <= left ? bytes : (size_t)left;
        status = *got > 0 ? tutti_file_read(s->file, s->at, to, *got, err) : TUTTI_OK;
        if (status == TUTTI_OK)
            s->at += *got;
        else
            *got = 0;
    }
    s->given += *got;
    return status;
}

tutti_status tutti_data_stream_finish(tutti_data_stream *s, tutti_error *err)
{
    uint8_t more;
    size_t got;

    if (!s->gzip && s->at < tutti_file_bytes(s->file))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "'%s' has %llu bytes after the %llu its header speaks of; cut them off "
                          "or fetch the file again",
                          s->path, (unsigned long long)(tutti_file_bytes(s->file) - s->at),
                          (unsigned long long)s->at);
    /* of a gzip file this also reads and compares the checksum */
    TUTTI_TRY(tutti_data_stream_read(s, &more, 1, &got, err));
    if (got > 0)
        return tutti_fail(
            err, TUTTI_ERR_CORRUPT, 0,
            "'%s' inflates to more than the %llu bytes its header speaks of; fetch it again",
            s->path, (unsigned long long)(s->given - 1));
    assert(!s->gzip || s->ended);
    return TUTTI_OK;
}
