/* Any bytes as a safetensors file. The first byte selects how: bit 0, the header's length is
   corrected first, so that the fuzzer need not guess it; bit 1, the file is declared to have as
   many more bytes as the next eight state. What is accepted keeps the rules, and is written and
   read back equal. */
#include "../state/memory_files.h"
#include "tutti/tutti.h"
#include "state/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* Every tensor lies in the file, has the bytes its shape asks for, and is found by its name. */
static void check(const tutti_tensor_file *f, uint64_t file_bytes)
{
    uint64_t total = 0;

    for (size_t k = 0; k < tutti_safetensors_count(f); k++) {
        const tutti_tensor_entry *e = tutti_safetensors_entry(f, k);
        require(tutti_safetensors_find(f, e->name) == e);
        require(e->dims >= 0 && e->dims <= TUTTI_SAFETENSORS_DIMS);
        require(e->begin + e->bytes >= e->begin && e->begin + e->bytes <= file_bytes);
        total += e->bytes;
    }
    require(total <= file_bytes);
}

static void write_back(const tutti_tensor_file *f)
{
    memory_files *m = memory_files_open(NULL);
    const size_t n = tutti_safetensors_count(f);
    tutti_tensor_entry *e = calloc(n + 1, sizeof *e);
    tutti_tensor_file *back;
    uint8_t *zeros = calloc(1, 4096);

    require(e != NULL && zeros != NULL);
    for (size_t k = 0; k < n; k++) {
        e[k] = *tutti_safetensors_entry(f, k);
        e[k].data = zeros;
        if (e[k].bytes > 4096)
            goto out;
    }
    require(tutti_safetensors_write(&m->rt, "a", e, n, NULL, NULL, NULL) == TUTTI_OK);
    require(tutti_safetensors_open(&back, &m->rt, "a", NULL) == TUTTI_OK);
    require(tutti_safetensors_count(back) == n);
    for (size_t k = 0; k < n; k++) {
        const tutti_tensor_entry *b = tutti_safetensors_entry(back, k);
        require(strcmp(b->name, e[k].name) == 0 && b->dtype == e[k].dtype &&
                memcmp(b->dim, e[k].dim, sizeof b->dim) == 0);
    }
    tutti_safetensors_close(back);
out:
    free(e);
    free(zeros);
    memory_files_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tutti_tensor_file *f;
    tutti_error err = { 0 };
    uint64_t more = 0;
    uint8_t *head;
    unsigned how;

    if (size < 17)
        return 0;
    how = data[0];
    for (int k = 8; k > 0 && how & 2; k--)
        more = more << 8 | data[k];
    data += 9;
    size -= 9;
    head = malloc(size); /* exactly as long, so that a read past the end is seen */
    require(head != NULL);
    memcpy(head, data, size);
    for (int k = 0; k < 8 && how & 1; k++)
        head[k] = (uint8_t)((uint64_t)(size - 8) >> 8 * k);
    if (more > UINT64_MAX - size)
        more = UINT64_MAX - size;
    if (tutti_safetensors_parse(&f, "f", head, size, size + more, &err) == TUTTI_OK) {
        check(f, size + more);
        write_back(f);
    } else {
        require(f == NULL && err.text[0] != '\0');
    }
    tutti_safetensors_close(f);
    free(head);
    return 0;
}
