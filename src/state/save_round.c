/* save_round.c: the messages between ranks while a checkpoint is saved. In a round each rank
   reports its outcome and its items to rank 0, and receives rank 0's decision on all of them. */
#include "save_internal.h"
#include "collective/send.h"
#include <errno.h>
#include <string.h>

#define REPORT_MOST ((int64_t)1 << 30) /* bytes of a rank's report on its items */
#define VERDICT_MOST 640

/* ---- messages ---- */

static void append_bytes(message *m, const void *bytes, size_t n)
{
    if (m->room - m->n < n && !m->failed) {
        const size_t room = 2 * m->room + n + 1024;
        uint8_t *more = tutti_alloc(room, 1);
        if (more != NULL && m->n > 0)
            memcpy(more, m->data, m->n);
        m->failed = more == NULL;
        if (more != NULL) {
            tutti_free(m->data);
            m->data = more;
            m->room = room;
        }
    }
    if (!m->failed) {
        memcpy(m->data + m->n, bytes, n);
        m->n += n;
    }
}

void tutti_save_put_number(message *m, uint64_t number)
{
    uint8_t bytes[8];

    for (int k = 0; k < 8; k++)
        bytes[k] = (uint8_t)(number >> 8 * k);
    append_bytes(m, bytes, 8);
}

void tutti_save_put_text(message *m, const char *text)
{
    append_bytes(m, text, strlen(text) + 1);
}

uint64_t tutti_save_get_number(message *m)
{
    uint64_t number = 0;

    if (m->n - m->at < 8) {
        m->failed = true;
        m->at = m->n;
        return 0;
    }
    for (int k = 7; k >= 0; k--)
        number = number << 8 | m->data[m->at + (size_t)k];
    m->at += 8;
    return number;
}

const char *tutti_save_get_text(message *m)
{
    const char *text = (const char *)m->data + m->at;

    if (m->at == m->n || memchr(text, 0, m->n - m->at) == NULL) {
        m->failed = true;
        m->at = m->n;
        return "";
    }
    m->at += strlen(text) + 1;
    return text;
}

void tutti_save_put_outcome(message *m, tutti_status status, const tutti_error *why)
{
    tutti_save_put_number(m, (uint64_t)status);
    tutti_save_put_number(m, (uint64_t)(status == TUTTI_OK ? 0 : why->cause));
    tutti_save_put_number(m, (uint64_t)(int64_t)(status == TUTTI_OK ? -1 : why->rank));
    tutti_save_put_text(m, status == TUTTI_OK ? "" : why->text);
}

static tutti_status get_outcome(message *m, tutti_error *why)
{
    const uint64_t status = tutti_save_get_number(m), cause = tutti_save_get_number(m),
                   rank = tutti_save_get_number(m);
    const char *text = tutti_save_get_text(m);

    *why = (tutti_error){ .status = TUTTI_OK, .rank = -1 };
    if (m->failed || status > TUTTI_ERR_NUMBER)
        return tutti_fail(why, TUTTI_ERR_CORRUPT, 0,
                          "a message about the checkpoint is not what it should be");
    if (status != TUTTI_OK) {
        tutti_fail(why, (tutti_status)status, 0, "%s", text); /* the text has the cause in words */
        why->cause = (int)cause;
        why->rank = (int)(int64_t)rank;
    }
    return (tutti_status)status;
}

/* ---- a round ---- */

void tutti_save_take_worse(tutti_status *status, tutti_error *why, int rank, tutti_status other,
                           const tutti_error *other_why, const saver *s)
{
    if (other == TUTTI_OK ||
        (*status != TUTTI_OK && (*status != TUTTI_ERR_PEER || other == TUTTI_ERR_PEER)))
        return;
    *status = other;
    tutti_fail_rank(why, other, rank_of(s, rank),
                    "cannot save the checkpoint of step %llu: rank %d: %s",
                    (unsigned long long)s->step, rank_of(s, rank), other_why->text);
    why->cause = other_why->cause;
}

static tutti_status send_to(const saver *s, int index, tutti_port port, const tutti_header *note,
                            tutti_buffer payload, tutti_error *err)
{
    return (s->uncounted ? tutti_send_uncounted : tutti_send)(s->world, rank_of(s, index), port,
                                                              note, payload, err);
}

tutti_status tutti_save_send_report(saver *s, message *m, tutti_error *err)
{
    tutti_header note = { .a = m->failed ? -1 : (int64_t)m->n };
    tutti_status status = TUTTI_OK;

    if (s->rank == 0) {
        s->received[0] = *m;
        *m = (message){ 0 };
        return TUTTI_OK;
    }
    if (note.a > REPORT_MOST)
        note.a = -1;
    status = send_to(s, 0, s->report, &note, tutti_nothing(), err);
    if (status == TUTTI_OK && note.a > 0)
        status = send_to(s, 0, s->report, NULL, tutti_host(m->data, m->n, TUTTI_U8), err);
    return status;
}

/* Rank 0: rank r's report. A report too large to hold is received and discarded, so that its
   sender does not wait for ever. */
static tutti_status receive_report(saver *s, int r, tutti_error *err)
{
    message *m = &s->received[r];
    tutti_header note;

    if (r == 0)
        return s->received[0].failed
                   ? tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing what to save")
                   : TUTTI_OK;
    TUTTI_TRY(
        tutti_recv(s->world, rank_of(s, r), s->report, &note, tutti_nothing(), TUTTI_FOREVER, err));
    if (note.a < 0)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing what to save");
    *m = (message){ .data = note.a <= REPORT_MOST ? tutti_alloc((size_t)note.a + 1, 1) : NULL };
    if (m->data == NULL) {
        tutti_recv(s->world, rank_of(s, r), s->report, NULL, tutti_nothing(), TUTTI_FOREVER, NULL);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "no memory on rank 0 for the list of what it saves (%lld bytes)",
                          (long long)note.a);
    }
    m->n = m->room = (size_t)note.a;
    if (note.a == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_recv(s->world, rank_of(s, r), s->report, &note,
                         tutti_host(m->data, m->n, TUTTI_U8), TUTTI_FOREVER, err));
    if (note.bytes != m->n)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "its list of what it saves has %llu bytes, not the %zu it spoke of",
                          (unsigned long long)note.bytes, m->n);
    return TUTTI_OK;
}

tutti_status tutti_save_receive_all(saver *s, tutti_error *why)
{
    tutti_status status = TUTTI_OK;

    for (int r = 0; r < s->size; r++) {
        tutti_error other = { .rank = -1 };
        tutti_status received = receive_report(s, r, &other);
        if (received == TUTTI_OK)
            received = get_outcome(&s->received[r], &other);
        tutti_save_take_worse(&status, why, r, received, &other, s);
    }
    return status;
}

void tutti_save_receive_none(saver *s)
{
    for (int r = 1; r < s->size; r++) {
        tutti_header note;
        if (tutti_recv(s->world, rank_of(s, r), s->report, &note, tutti_nothing(), TUTTI_FOREVER,
                       NULL) == TUTTI_OK &&
            note.a > 0)
            tutti_recv(s->world, rank_of(s, r), s->report, NULL, tutti_nothing(), TUTTI_FOREVER,
                       NULL);
    }
}

void tutti_save_free_reports(saver *s)
{
    for (int r = 0; s->received != NULL && r < s->size; r++) {
        tutti_free(s->received[r].data);
        s->received[r] = (message){ 0 };
    }
}

tutti_status tutti_save_decide(saver *s, tutti_status status, const tutti_error *why,
                               uint64_t number, tutti_error *err)
{
    /* enough for a number, an outcome and its text: nothing is allocated here */
    uint8_t room[VERDICT_MOST];
    message m = { .data = room, .room = sizeof room };

    _Static_assert(VERDICT_MOST >= 4 * 8 + sizeof why->text, "a verdict must fit");
    if (status != TUTTI_OK && err != NULL)
        *err = *why;
    tutti_save_put_number(&m, number);
    tutti_save_put_outcome(&m, status, why);
    for (int r = 1; r < s->size; r++) {
        tutti_error other;
        const tutti_status sent =
            send_to(s, r, s->verdict, NULL, tutti_host(m.data, m.n, TUTTI_U8), &other);
        if (sent != TUTTI_OK && sent != TUTTI_ERR_PEER && status == TUTTI_OK)
            status = tutti_fail_rank(
                err, sent, rank_of(s, r),
                "cannot report to rank %d how the checkpoint of step %llu ended: %s", rank_of(s, r),
                (unsigned long long)s->step, other.text);
    }
    return status;
}

tutti_status tutti_save_await_decision(saver *s, uint64_t *number, tutti_error *err)
{
    uint8_t room[VERDICT_MOST];
    message m = { .data = room, .room = sizeof room };
    tutti_header note;
    tutti_error why;
    tutti_status status;

    *number = 0;
    TUTTI_TRY(tutti_recv(s->world, rank_of(s, 0), s->verdict, &note,
                         tutti_host(room, sizeof room, TUTTI_U8), TUTTI_FOREVER, err));
    m.n = (size_t)note.bytes;
    *number = tutti_save_get_number(&m);
    status = get_outcome(&m, &why);
    if (status != TUTTI_OK && err != NULL)
        *err = why;
    return status;
}
