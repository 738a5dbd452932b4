/* Any text as the index of a folder of weights. The first byte selects how: bit 0 puts the text's
   hash where the text has zeros for it, so that the fuzzer gets past it; bit 1, the bytes behind
   the first zero byte are the file a.safetensors, its header's length corrected. Else the folder
   has a.safetensors and b.safetensors with two tensors each. What is accepted has every tensor of
   the files that the index names once, and all its bytes can be read. */
#include "../state/memory_files.h"
#include "../../src/state/state_internal.h"
#include "state/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void put_file(memory_files *m, const char *path, const char *one, const char *other)
{
    const tutti_tensor_entry e[2] = {
        { .name = one, .dtype = TUTTI_F32, .dims = 1, .dim = { 3 }, .data = "twelve bytes" },
        { .name = other, .dtype = TUTTI_U8, .dims = 0, .data = "x" },
    };
    require(tutti_safetensors_write(&m->rt, path, (tutti_tensor_entry[]){ e[0], e[1] }, 2, NULL, NULL, NULL) ==
            TUTTI_OK);
}

static void put_given(memory_files *m, const uint8_t *data, size_t size)
{
    uint8_t *file = malloc(size + (size == 0));

    require(file != NULL);
    memcpy(file, data, size);
    for (size_t k = 0; k < 8 && size >= 8; k++) {
        uint64_t header = size - 8; /* up to the last brace, which may be the header's */
        while (header > 0 && file[8 + header - 1] != '}')
            header--;
        file[k] = (uint8_t)(header >> 8 * k);
    }
    memory_files_put(m, "f/a.safetensors", file, size);
    free(file);
}

static void check(tutti_tensor_file *f)
{
    uint64_t total = 0, expected = 0;
    bool hashed;

    for (size_t k = 0; k < f->n_parts; k++)
        expected += f->parts[k]->file_bytes - f->parts[k]->data;
    for (size_t k = 0; k < f->n; k++) {
        const tutti_tensor_entry *e = tutti_safetensors_entry(f, k);
        uint8_t *to = malloc((size_t)e->bytes + 1);
        require(to != NULL && tutti_safetensors_find(f, e->name) == e);
        require(tutti_safetensors_read(f, e, 0, to, (size_t)e->bytes, NULL) == TUTTI_OK);
        total += e->bytes;
        free(to);
    }
    require(total == expected);
    tutti_tensors_verify(f, &hashed, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memory_files *m;
    tutti_tensor_file *f;
    tutti_error err = { 0 };
    const uint8_t *zero;
    char *text;
    size_t bytes;

    if (size == 0)
        return 0;
    m = memory_files_open(NULL);
    zero = data[0] & 2 ? memchr(data + 1, 0, size - 1) : NULL;
    bytes = zero != NULL ? (size_t)(zero - data) - 1 : size - 1;
    text = malloc(bytes + 1);
    require(text != NULL);
    memcpy(text, data + 1, bytes);
    if (data[0] & 1)
        tutti_state_seal(text, bytes);
    memory_files_put(m, "f/" TUTTI_TENSORS_INDEX, text, bytes);
    put_file(m, "f/a.safetensors", "w", "v");
    put_file(m, "f/b.safetensors", "x", "y");
    if (zero != NULL)
        put_given(m, zero + 1, size - bytes - 2);
    if (tutti_tensors_open(&f, &m->rt, "f", &err) == TUTTI_OK)
        check(f);
    else
        require(f == NULL && err.text[0] != '\0');
    tutti_safetensors_close(f);
    free(text);
    memory_files_close(m);
    return 0;
}
