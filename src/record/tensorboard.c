/* tensorboard.c: a file of events for TensorBoard, and for whatever else reads its files. It is a
   sequence of records of the form TFRecord, little-endian:

     u64 bytes | u32 masked CRC-32C of it | the bytes | u32 masked CRC-32C of them

   A record is an Event (TensorFlow's event.proto, the wire format of protocol buffers):

     1 wall_time: double | 2 step: varint | 3 file_version: text, of the first record
                                          | 5 summary: of a row
                                          | 7 session_log: where a run begins and goes on
     summary: repeated 1 { 1 tag: text | 2 simple_value: float }
     session_log: 1 status: varint, 1 (START)

   A run that is resumed goes on in a new file. TensorBoard reads the files of a folder in the order
   of their names. At each START but the first it drops what it has from that step on. So no file is
   changed that it may have open, and a record that was cut off by a kill or a full disk harms none
   that follows. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record_internal.h"
#include "base/crc32c.h"
#include "runtime/clock.h"

static const char before[] = "events.out.tfevents.", behind[] = ".tutti";
enum { NAME = 256 };                 /* bytes of a file's name */
enum { VARINT = 0, DOUBLE = 1, BYTES = 2, FLOAT = 5 }; /* types of the wire format */

/* ---- writing ---- */

static void put_fixed(tutti_record_bytes *b, uint64_t value, int bytes)
{
    unsigned char at[8];

    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
    tutti_record_add(b, at, (size_t)bytes);
}

static void put_varint(tutti_record_bytes *b, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        put_fixed(b, (value & 127) | 128, 1);
    put_fixed(b, value, 1);
}

static void put_key(tutti_record_bytes *b, int field, int type)
{
    put_varint(b, (uint64_t)field << 3 | (uint64_t)type);
}

static void put_bytes(tutti_record_bytes *b, int field, const void *from, size_t bytes)
{
    put_key(b, field, BYTES);
    put_varint(b, bytes);
    tutti_record_add(b, from, bytes);
}

static void put_double(tutti_record_bytes *b, int field, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, DOUBLE);
    put_fixed(b, bits, 8);
}

/* As TFRecord stores the CRC of data that may contain CRCs. */
static uint32_t masked(const void *data, size_t bytes)
{
    const uint32_t crc = tutti_crc32c(data, bytes);

    return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

static void put_record(tutti_record_bytes *b, const tutti_record_bytes *event)
{
    b->failed |= event->failed;
    put_fixed(b, event->n, 8);
    if (!b->failed)
        put_fixed(b, masked(b->at + b->n - 8, 8), 4);
    tutti_record_add(b, event->at, event->n);
    put_fixed(b, masked(event->at, event->n), 4);
}

static void put_version(tutti_record_bytes *b, double date)
{
    static const char version[] = "brain.Event:2";
    tutti_record_bytes event = { 0 };

    put_double(&event, 1, date);
    put_bytes(&event, 3, version, sizeof version - 1);
    put_record(b, &event);
    tutti_free(event.at);
}

/* Adds a value to the summary in `user`. */
static void put_value(void *user, const char *tag, const json_t *number)
{
    const float value = (float)json_number_value(number);
    tutti_record_bytes *summary = user, one = { 0 };
    uint32_t bits;

    if (json_is_null(number))
        return;
    memcpy(&bits, &value, sizeof bits);
    put_bytes(&one, 1, tag, strlen(tag));
    put_key(&one, 2, FLOAT);
    put_fixed(&one, bits, 4);
    summary->failed |= one.failed;
    put_bytes(summary, 1, one.at, one.n);
    tutti_free(one.at);
}

void tutti_record_board_row(tutti_record_bytes *b, double date, const json_t *row)
{
    tutti_record_bytes event = { 0 }, summary = { 0 };

    event.failed = !tutti_record_scalars(row, put_value, &summary);
    put_double(&event, 1, date);
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)json_integer_value(json_object_get(row, "step")));
    put_bytes(&event, 5, summary.at, summary.n);
    event.failed |= summary.failed;
    if (summary.n > 0 || event.failed)
        put_record(b, &event);
    tutti_free(summary.at);
    tutti_free(event.at);
}

static void put_row(void *user, const json_t *row)
{
    tutti_record_board_row(user, tutti_date_seconds(), row);
}

/* Says that the run begins, or that what earlier files have from this step on is not of the run: it
   goes on from there. */
static void put_start(tutti_record_bytes *b, double date, uint64_t step)
{
    static const unsigned char session[] = { 1 << 3 | VARINT, 1 }; /* status: START */
    tutti_record_bytes event = { 0 };

    put_double(&event, 1, date);
    put_key(&event, 2, VARINT);
    put_varint(&event, step);
    put_bytes(&event, 7, session, sizeof session);
    put_record(b, &event);
    tutti_free(event.at);
}

/* ---- files ---- */

bool tutti_record_board_is(const char *name)
{
    const size_t n = strlen(name), first = sizeof before - 1, last = sizeof behind - 1;

    return n > first + last && strncmp(name, before, first) == 0 &&
           strcmp(name + n - last, behind) == 0;
}

static tutti_status find_newest(void *user, const char *name, tutti_error *err)
{
    char *newest = user;

    (void)err;
    if (tutti_record_board_is(name)) /* they come in the order of their dates */
        snprintf(newest, NAME, "%.255s", name);
    return TUTTI_OK;
}

static tutti_status remove_ours(void *user, const char *name, tutti_error *err)
{
    const tutti_record_place *in = user;
    char path[TUTTI_RECORD_PATH];

    if (!tutti_record_board_is(name))
        return TUTTI_OK;
    snprintf(path, sizeof path, "%.3800s/%.255s", in->folder, name);
    return tutti_file_remove(in->rt, path, err);
}

tutti_status tutti_record_board_remove(const tutti_record_place *in, tutti_error *err)
{
    tutti_record_place place = *in;

    return tutti_directory_list(in->rt, in->folder, remove_ours, &place, err);
}

/* Names the file that comes after `newest`, also where the calendar was set back. */
static void name_file(char name[NAME], double date, const char *newest)
{
    const long long now = (long long)date,
                    last = newest[0] != 0 ? strtoll(newest + sizeof before - 1, NULL, 10) : 0;
    char host[64] = "";

    if (gethostname(host, sizeof host - 1) != 0 || host[0] == 0)
        snprintf(host, sizeof host, "unnamed");
    for (char *c = host; *c != 0; c++)
        *c = *c <= ' ' || *c > '~' || *c == '/' ? '_' : *c;
    snprintf(name, NAME, "%s%010lld.%s%s", before, last >= now && last < 9999999999 ? last + 1 : now,
             host, behind);
}

tutti_status tutti_record_board_open(tutti_file **out, const tutti_record_place *in, uint64_t until,
                                     tutti_error *err)
{
    const double date = tutti_date_seconds();
    char newest[NAME] = "", name[NAME], path[TUTTI_RECORD_PATH];
    tutti_record_bytes b = { 0 };
    tutti_status status;

    *out = NULL;
    TUTTI_TRY(tutti_directory_list(in->rt, in->folder, find_newest, newest, err));
    name_file(name, date, newest);
    put_version(&b, date);
    if (newest[0] == 0)
        put_start(&b, date, 0);
    else if (until < UINT64_MAX)
        put_start(&b, date, until + 1);
    status = newest[0] == 0 ? tutti_record_each_row(in, put_row, &b, err) : TUTTI_OK;
    if (status == TUTTI_OK && b.failed)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu bytes of %s", b.n, name);
    if (status == TUTTI_OK)
        status = tutti_record_write(in->rt, in->folder, name, (const char *)b.at, b.n, err);
    tutti_free(b.at);
    snprintf(path, sizeof path, "%.3800s/%s", in->folder, name);
    return status == TUTTI_OK ? tutti_file_open(out, in->rt, path, TUTTI_FILE_APPEND, err) : status;
}
