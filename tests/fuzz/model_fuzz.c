/* Any bytes as model.json of a run, whose model.safetensors is a sound one of logistic(4 pixels,
   2 classes). It is opened and asked, or refused with a sentence. The sizes that it states take
   no memory before the weights agree. */
#include <stdlib.h>
#include <string.h>

#include "../state/memory_files.h"
#include "tutti/tutti.h"
#include "train/trained.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void put_weights(memory_files *m)
{
    static const char header[] = "{\"0.weight\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]},"
                                 "\"0.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[32,40]}}";
    uint8_t file[8 + sizeof header - 1 + 40] = { sizeof header - 1 };

    memcpy(file + 8, header, sizeof header - 1);
    memory_files_put(m, "r/model.safetensors", file, sizeof file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memory_files *m = memory_files_open(NULL);
    tutti_trained *t;
    tutti_error err = { 0 };

    put_weights(m);
    memory_files_put(m, "r/model.json", data, size);
    if (tutti_trained_open(&t, &m->rt, "r", 1, &err) == TUTTI_OK) {
        const uint8_t pixels[4] = { 0, 1, 128, 255 };
        float logits[2];
        require(tutti_trained_facts_of(t)->task.classes == 2 && tutti_trained_parameters(t) == 10);
        if (tutti_trained_takes_pictures(t, &err) == TUTTI_OK)
            require(tutti_trained_classify(t, pixels, 1, logits, &err) == TUTTI_OK && logits[0] == 0);
        require(tutti_trained_next(t, (const uint32_t[]){ 0 }, 1, logits, &err) == TUTTI_ERR_USAGE);
    } else
        require(t == NULL && err.text[0] != '\0');
    tutti_trained_close(t);
    memory_files_close(m);
    return 0;
}
