/* Any text as a settings file: it is refused with a sentence that names the
   file, or all values are in range. */
#include "options_subject.h"
#include "base/settings.h"

#include <math.h>
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
    tutti_error err = { 0 };
    tutti_status status;
    tutti_settings *s;
    subject self;

    require(tutti_settings_open(&s, subject_options, &self, NULL) == TUTTI_OK);
    status = tutti_settings_text(s, "fuzz", (const char *)data, size, &err);
    require(status == TUTTI_OK ||
            (status == TUTTI_ERR_USAGE && strncmp(err.text, "fuzz", 4) == 0 && strlen(err.text) < sizeof err.text));
    require(self.batch >= 1 && self.batch <= 4096 && isfinite(self.rate) && self.wire >= 0 && self.wire < 3);
    require(strlen(self.data) <= size && strlen(self.inner) <= 4096); /* both are readable to their end */
    for (const tutti_option *o = subject_options; o->name != NULL; o++) {
        const char *where;
        require((tutti_settings_origin(s, o->name, &where) == TUTTI_FROM_FILE) == (where[0] != '\0'));
    }
    tutti_settings_close(s);
    return 0;
}
