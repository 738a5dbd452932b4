/* Any text as the file of a measured network (src/train/measured.c): it is refused with a sentence
   that names the file, or is what measured.h defines: units and times in order, within the pass. */
#include "train/measured.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tutti_measured_model *m;
    tutti_error err = { .text = "" };

    if (tutti_measured_parse(&m, "m.json", (const char *)data, size, &err) != TUTTI_OK) {
        require(m == NULL && strncmp(err.text, "m.json: ", 8) == 0);
        return 0;
    }
    require(m->batch > 0 && m->n > 0 && m->forward + m->backward > 0);
    require(m->param[0].unit == m->units - 1 && m->param[m->n - 1].unit == 0);
    for (int k = 0; k < m->n; k++) {
        size_t count = 1;
        for (int d = 0; d < m->param[k].dims; d++)
            count *= m->param[k].dim[d];
        require(count == m->param[k].count && count > 0 && m->name[k][0] != 0);
        require(m->ready[k] <= m->backward);
        require(k == 0 || (m->ready[k] >= m->ready[k - 1] && m->param[k].unit <= m->param[k - 1].unit));
    }
    for (int u = 0; u < m->units; u++)
        require(m->needed[u] <= m->forward && (u == 0 || m->needed[u] >= m->needed[u - 1]));
    tutti_measured_close(m);
    return 0;
}
