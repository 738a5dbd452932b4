/* select_simd.h: template of the kernel `above` of select.c. select_LEVEL.c includes it after
   simd_codes_LEVEL.h. */

static size_t LEVEL(above)(size_t n, const float *x, uint32_t key, size_t room, uint32_t *index,
                           float *value)
{
    size_t found = 0, i = 0;

    for (; n - i >= WIDTH && found + WIDTH <= room; i += WIDTH)
        found = put_chosen(vec_above(vec_get(x + i, WIDTH), key), x, i, found, index, value);
    for (; i < n && found < room; i++)
        if (tutti_kernels_key(x[i]) >= key) {
            index[found] = (uint32_t)i;
            value[found++] = x[i];
        }
    for (; n - i >= WIDTH; i += WIDTH) /* the buffer is full: the rest is only counted */
        found += (size_t)__builtin_popcount(vec_above(vec_get(x + i, WIDTH), key));
    for (; i < n; i++)
        found += tutti_kernels_key(x[i]) >= key;
    return found;
}

void LEVEL(tutti_kernels_select)(tutti_kernels *t)
{
    t->above = LEVEL(above);
}
