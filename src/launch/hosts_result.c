/* hosts_result.c: the result of a run over several hosts: exit code, and the message about the
   worker that caused a failure. */
#include <stdio.h>
#include <string.h>
#include "launch.h"
#include "hosts_internal.h"

static int exit_code_of(const far_launcher *l, int rank)
{
    const tutti_meet_rank *m = tutti_meet_rank_of(l->meet, rank);
    const far_worker *w = &l->workers[rank];

    if (m->state == TUTTI_MEET_FAILED)
        return m->status == TUTTI_ERR_USAGE ? 2 : m->status == TUTTI_ERR_PEER ? 3 : 1;
    if (w->ended && w->signal == 0 && w->code != 0)
        return w->code == 2 || w->code == 3 ? w->code : 1;
    return 3;
}

/* Writes the result of a run that this rank's failure or loss has ended. */
static void conclude_by(far_launcher *l, int culprit)
{
    tutti_launch_result *result = l->result;
    const tutti_meet_rank *m = tutti_meet_rank_of(l->meet, culprit);
    const int workers = l->size - l->options->servers;
    result->exit_code = exit_code_of(l, culprit);
    result->rank = m->state == TUTTI_MEET_FAILED && m->status == TUTTI_ERR_PEER && m->blame >= 0
                       ? m->blame
                       : culprit;
    result->pid = l->workers[culprit].pid;
    result->signal = m->signal;
    if (m->state == TUTTI_MEET_FAILED)
        snprintf(result->text, sizeof result->text, "worker %d (host %s): %s", culprit,
                 l->hosts[l->workers[culprit].host].spec->name,
                 tutti_launch_report_text(culprit, m->reason));
    else
        tutti_meet_describe(l->meet, culprit, result->text, sizeof result->text);
    if (m->state != TUTTI_MEET_FAILED && culprit >= workers) {
        const size_t used = strlen(result->text);
        snprintf(result->text + used, sizeof result->text - used,
                 "; it was server %d of %d, and its slice of the model is gone with it",
                 culprit - workers, l->options->servers);
    }
    if (l->too_few) {
        const size_t used = strlen(result->text);
        snprintf(result->text + used, sizeof result->text - used,
                 "; %d of %d workers were left, fewer than the %d of min-workers",
                 workers - l->lost, workers, l->options->least);
    }
}

void tutti_launch_far_conclude(far_launcher *l)
{
    tutti_launch_result *result = l->result;
    for (int r = 0; r < l->size; r++)
        if (l->workers[r].lost_at != 0)
            tutti_launch_far_loss(l, r);
    const int culprit = l->meet != NULL ? tutti_meet_culprit(l->meet) : -1;

    if (l->user_signal != 0 && !l->failed_first) {
        result->exit_code = 128 + l->user_signal;
        snprintf(result->text, sizeof result->text, "stopped by signal %d (SIG%s)", l->user_signal,
                 tutti_launch_signal_name(l->user_signal));
        return;
    }
    if (l->lost > 0 && !l->too_few && result->noticed_ns == 0 && !l->failed)
        return; /* the others have ended well */
    if (culprit >= 0 && !l->failed) {
        conclude_by(l, culprit);
        return;
    }
    if (l->first.text[0] != '\0' && !l->failed && l->meet != NULL) {
        l->failed = true;
        l->first.noticed_ns = result->noticed_ns;
        *result = l->first;
    }
    for (int i = 0; i < l->n && !l->failed; i++) {
        const far_host *h = &l->hosts[i];
        if (h->result.exit_code == 0)
            continue;
        l->failed = true;
        *result = h->result;
        snprintf(result->text, sizeof result->text, "host %s: %.500s", h->spec->name,
                 h->result.text[0] != '\0'
                     ? h->result.text
                     : "its workers failed; their own output may give the reason");
    }
    if (l->first.text[0] != '\0' && !l->failed) /* its agent had no time to report */
        *result = l->first;
}
