/* Any bytes as a request for the figures of a run: what is known of a part of it stays true of the
   whole, at most 4 KiB are read, and only GET and HEAD of /metrics are answered with figures. The
   rest as the text of a place: it is one, or a sentence says how to write it. */
#include <stdlib.h>
#include <string.h>

#include "record/record_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static bool is_code(int code)
{
    return code == 0 || code == 200 || code == 400 || code == 404 || code == 405 || code == 431 || code == 505;
}

/* In memory of its own, whose end the sanitizer watches. */
static int code_of(const uint8_t *data, size_t n, bool *head)
{
    char *text = malloc(n > 0 ? n : 1);
    int code;

    require(text != NULL);
    if (n > 0)
        memcpy(text, data, n);
    code = tutti_record_request(text, n, head);
    free(text);
    return code;
}

static void check_request(const uint8_t *data, size_t n, size_t part)
{
    bool head, head_of_part;
    const int code = code_of(data, n, &head), earlier = code_of(data, part, &head_of_part);

    require(is_code(code) && is_code(earlier));
    require(earlier == 0 || (code == earlier && head == head_of_part));
    require(code != 0 || n < TUTTI_RECORD_REQUEST);
    require(code != 431 || n == TUTTI_RECORD_REQUEST);
    if (code == 200) {
        require(memcmp(data, head ? "HEAD " : "GET ", head ? 5 : 4) == 0);
        require(memmem(data, n, "/metrics", 8) != NULL);
    }
}

static void check_place(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1);
    tutti_error err = { .rank = -1 };
    tutti_status status;

    require(text != NULL);
    if (n > 0)
        memcpy(text, data, n);
    text[n] = 0;
    status = tutti_record_port_check(text, false, &err);
    require(status == TUTTI_OK || (status == TUTTI_ERR_USAGE && strncmp(err.text, "metrics-port is '", 17) == 0));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t n = size > 2 ? size - 2 : 0, most = n < TUTTI_RECORD_REQUEST ? n : TUTTI_RECORD_REQUEST;
    const size_t part = size > 2 && most > 0 ? (size_t)(data[0] | data[1] << 8) % most : 0;

    check_request(data + (size - n), most, part);
    check_place(data + (size - n), n);
    return 0;
}
