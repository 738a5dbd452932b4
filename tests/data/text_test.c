/* Goal: texts as tokens: encodings that give any bytes back and that are what the definition
   prescribes, files that are whole or refused, windows where they should be. Method: a slow
   trainer and encoder straight from the definition are compared with the fast ones on random
   texts; every byte of small files is flipped and every length tried. */
#include "make.h"
#include "data/text_internal.h"

/* ---- the definition ---- */

typedef struct slow { uint32_t pair[400][2]; int merges; } slow;

static size_t join(uint32_t *ids, size_t n, uint32_t left, uint32_t right, uint32_t made)
{
    size_t to = 0;

    for (size_t i = 0; i < n; to++)
        if (i + 1 < n && ids[i] == left && ids[i + 1] == right) {
            ids[to] = made;
            i += 2;
        } else
            ids[to] = ids[i++];
    return to;
}

/* Words of the text as lists of ids, all of them, equal or not. */
typedef struct lists { uint32_t ids[3000][TEXT_WORD_MOST]; size_t n[3000]; size_t words; } lists;

static void cut(lists *l, const uint8_t *text, size_t length)
{
    l->words = 0;
    for (size_t at = 0; at < length;) {
        const size_t n = tutti_text_word(text + at, length - at);
        assert_true(n >= 1 && n <= TEXT_WORD_MOST && n <= length - at && l->words < 3000);
        for (size_t i = 0; i < n; i++)
            l->ids[l->words][i] = text[at + i];
        l->n[l->words++] = n;
        at += n;
    }
}

static int train_slowly(slow *s, lists *l, int merges)
{
    for (s->merges = 0; s->merges < merges; s->merges++) {
        static uint32_t count[660][660];
        uint32_t best = 1, left = 0, right = 0;
        memset(count, 0, sizeof count);
        for (size_t w = 0; w < l->words; w++)
            for (size_t i = 0; i + 1 < l->n[w]; i++)
                count[l->ids[w][i]][l->ids[w][i + 1]]++;
        for (uint32_t a = 0; a < 660; a++)
            for (uint32_t b = 0; b < 660; b++)
                if (count[a][b] > best) {
                    best = count[a][b];
                    left = a;
                    right = b;
                }
        if (best < 2)
            return s->merges;
        s->pair[s->merges][0] = left;
        s->pair[s->merges][1] = right;
        for (size_t w = 0; w < l->words; w++)
            l->n[w] = join(l->ids[w], l->n[w], left, right, 256 + (uint32_t)s->merges);
    }
    return s->merges;
}

/* A text of few letters, so that pairs repeat and overlap. */
static size_t draw_text(uint8_t *text, size_t most, uint64_t seed, int kind)
{
    const tutti_rng rng = { seed, 21, (uint64_t)kind };
    const size_t n = 1 + tutti_random(rng, 0) % most;

    for (size_t i = 0; i < n; i++) {
        const uint64_t r = tutti_random(rng, 1 + i);
        text[i] = kind == 0 ? "aaab ccd e"[r % 10] : kind == 1 ? (uint8_t)r : kind == 2 ? "a\n 1.\xC3\xA4"[r % 7] : 'a';
    }
    return n;
}

static void bpe_training_matches_the_definition(void **state)
{
    static lists l;
    static slow s;
    int merges = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        uint8_t text[900];
        const size_t n = draw_text(text, sizeof text, seed, (int)(seed % 4));
        tutti_bpe *b = NULL;
        tutti_error err = { 0 };
        uint32_t ids[900];
        uint64_t count;
        size_t at = 0;
        cut(&l, text, n);
        const int made = train_slowly(&s, &l, 30);
        merges += made;
        if (made < 30) {
            char want[200];
            assert_int_equal(tutti_bpe_train(&b, text, n, 286, &err), TUTTI_ERR_USAGE);
            snprintf(want, sizeof want,
                     "a vocabulary of 286 ids is more than the text gives: after %d no pair occurs twice; ask for at "
                     "most %d, or give a longer text",
                     256 + made, 256 + made);
            assert_string_equal(err.text, want);
            assert_null(b);
        }
        if (tutti_bpe_train(&b, text, n, 256 + (uint32_t)made, &err) != TUTTI_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
        for (int k = 0; k < made; k++) {
            size_t length, left, right;
            const uint8_t *of = tutti_bpe_bytes(b, 256 + (uint32_t)k, &length),
                          *l0 = tutti_bpe_bytes(b, s.pair[k][0], &left), *r0 = tutti_bpe_bytes(b, s.pair[k][1], &right);
            assert_int_equal(length, left + right);
            assert_memory_equal(of, l0, left);
            assert_memory_equal(of + left, r0, right);
        }
        /* Encoding the text gives what learning left of it. */
        assert_int_equal(tutti_bpe_encode(b, text, n, ids, &count, &err), TUTTI_OK);
        for (size_t w = 0; w < l.words; w++)
            for (size_t i = 0; i < l.n[w]; i++)
                assert_int_equal(ids[at++], l.ids[w][i]);
        assert_int_equal(at, count);
        tutti_bpe_close(b);
    }
    assert_true(merges > 1000);
}

static void bpe_round_trip_preserves_any_bytes(void **state)
{
    uint8_t text[4000], back[4001];
    uint32_t ids[4000];
    tutti_bpe *b;

    (void)state;
    assert_true(draw_text(text, sizeof text, 3, 0) > 100);
    assert_int_equal(tutti_bpe_train(&b, text, 4000, 280, NULL), TUTTI_OK);
    for (uint64_t seed = 0; seed < 400; seed++) {
        const size_t n = draw_text(text, sizeof text, seed, (int)(seed % 4));
        uint64_t count;
        assert_int_equal(tutti_bpe_encode(b, text, n, ids, &count, NULL), TUTTI_OK);
        assert_true(count <= n);
        memset(back, 0x55, sizeof back);
        assert_int_equal(tutti_bpe_decode(b, ids, count, back, n), n);
        assert_memory_equal(back, text, n);
        assert_int_equal(back[n], 0x55);
        /* a buffer for half: half, and the length all the same */
        assert_int_equal(tutti_bpe_decode(b, ids, count, back, n / 2), n);
    }
    assert_int_equal(tutti_bpe_encode(b, text, 0, ids, &(uint64_t){ 1 }, NULL), TUTTI_OK);
    tutti_bpe_close(b);
}

static void words_join_to_the_text_and_keep_spaces_in_front(void **state)
{
    static const struct { const char *text; size_t n[8]; } cases[] = {
        { "the whale", { 3, 6 } }, { "a  b", { 1, 1, 2 } }, { "a\n\n b", { 1, 2, 2 } },
        { "it's 12 x2", { 2, 1, 1, 3, 2, 1 } }, { "  ", { 2 } }, { " \n", { 2 } }, { " ", { 1 } },
        { "\xC3\xA4" "b c", { 3, 2 } }, { "--a", { 2, 1 } },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        const size_t length = strlen(cases[k].text);
        size_t at = 0, i = 0;
        for (; at < length; i++) {
            const size_t n = tutti_text_word((const uint8_t *)cases[k].text + at, length - at);
            assert_int_equal(n, cases[k].n[i]);
            at += n;
        }
        assert_true(at == length && cases[k].n[i] == 0);
    }
    uint8_t run[200];
    memset(run, 'x', sizeof run);
    assert_int_equal(tutti_text_word(run, sizeof run), TEXT_WORD_MOST);
}

/* ---- files ---- */

static void an_encoding_is_read_back_whole_or_refused(void **state)
{
    memory_files *m = memory_files_open(NULL);
    uint8_t text[600], *file;
    tutti_bpe *b, *again;
    tutti_error err;
    tutti_contents c;
    size_t n;

    (void)state;
    draw_text(text, sizeof text, 3, 0);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "aaab ccd e"[i * 7 % 10];
    assert_int_equal(tutti_bpe_train(&b, text, sizeof text, 262, NULL), TUTTI_OK);
    assert_int_equal(tutti_bpe_write(b, &m->rt, "x.bpe", NULL), TUTTI_OK);
    assert_int_equal(tutti_bpe_write(b, &m->rt, "x.bpe", &err), TUTTI_ERR_IO); /* not over another */
    assert_int_equal(tutti_bpe_read(&again, &m->rt, "x.bpe", NULL), TUTTI_OK);
    assert_int_equal(tutti_bpe_vocabulary(again), 262);
    assert_true(tutti_bpe_hash(again) == tutti_bpe_hash(b));
    tutti_bpe_close(again);
    assert_int_equal(tutti_contents_open(&c, &m->rt, "x.bpe", NULL), TUTTI_OK);
    n = (size_t)c.bytes;
    file = malloc(n + 1);
    assert_non_null(file);
    memcpy(file, c.at, n);
    file[n] = '\n';
    tutti_contents_close(&c);
    for (size_t k = 0; k < n; k++) {
        uint8_t *part = malloc(k + 1);
        memcpy(part, file, k);
        assert_int_equal(tutti_bpe_parse(&again, "x.bpe", part, k, &err), TUTTI_ERR_CORRUPT);
        assert_null(again);
        free(part);
        for (int bit = 0; bit < 8; bit++) {
            file[k] ^= (uint8_t)(1 << bit);
            assert_int_equal(tutti_bpe_parse(&again, "x.bpe", file, n, &err), TUTTI_ERR_CORRUPT);
            assert_true(strncmp(err.text, "'x.bpe'", 7) == 0);
            file[k] ^= (uint8_t)(1 << bit);
        }
    }
    assert_int_equal(tutti_bpe_parse(&again, "x.bpe", file, n + 1, &err), TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "'x.bpe': line 10 is not the last line with the hash of the others; it is damaged or "
                                  "no encoding made by `tutti data bpe`");
    free(file);
    tutti_bpe_close(b);
    memory_files_close(m);
}

static tutti_status parse_text(const char *lines, tutti_error *err)
{
    char file[400];
    tutti_bpe *b;
    tutti_status status;

    snprintf(file, sizeof file, "%shash %016llx\n", lines, (unsigned long long)tutti_hash(lines, strlen(lines)));
    status = tutti_bpe_parse(&b, "x.bpe", (const uint8_t *)file, strlen(file), err);
    tutti_bpe_close(b);
    return status;
}

static void invalid_merges_are_rejected_despite_a_valid_hash(void **state)
{
    static const struct { const char *lines, *text; } cases[] = {
        { "tutti-bpe 1\nvocabulary 257\n97 256\n",
          "'x.bpe': merge 0 joins 97 and 256, but only ids below 256 exist before it" },
        { "tutti-bpe 1\nvocabulary 258\n97 98\n97 98\n", "'x.bpe': merges 0 and 1 join the same ids 97 and 98" },
        { "tutti-bpe 1\nvocabulary 255\n", "'x.bpe': the vocabulary is 255; it must be from 256 to 1048576" },
        { "tutti-bpe 1\nvocabulary 1000000\n1 2\n",
          "'x.bpe' has 57 bytes, too few for the 999744 merges it speaks of; it was cut short: make or fetch it "
          "again" },
        { "tutti-bpe 2\nvocabulary 256\n",
          "'x.bpe': line 1 is not 'tutti-bpe 1'; it is damaged or no encoding made by `tutti data bpe`" },
        { "tutti-bpe 1\nvocabulary 0256\n",
          "'x.bpe': line 2 is not 'vocabulary N'; it is damaged or no encoding made by `tutti data bpe`" },
        { "tutti-bpe 1\nvocabulary 263\n97 97\n256 256\n257 257\n258 258\n259 259\n260 260\n261 261\n",
          "'x.bpe': merge 6 makes a token of 128 bytes; words have at most 64" },
    };
    tutti_error err;

    (void)state;
    assert_int_equal(parse_text("tutti-bpe 1\nvocabulary 258\n97 98\n256 98\n", NULL), TUTTI_OK);
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        assert_int_equal(parse_text(cases[k].lines, &err), TUTTI_ERR_CORRUPT);
        assert_string_equal(err.text, cases[k].text);
    }
}

static void token_files_are_read_back_whole_or_refused(void **state)
{
    static const uint32_t ids[5] = { 1, 70000, 3, 0, 99999 };
    static const uint32_t vocabularies[2] = { 100000, 65536 };
    memory_files *m = memory_files_open(NULL);
    tutti_error err;

    (void)state;
    for (int k = 0; k < 2; k++) {
        uint32_t small[5];
        char path[20];
        tutti_tokens t;
        tutti_contents c;
        _Alignas(8) uint8_t file[100], other[100];
        size_t n;
        for (int i = 0; i < 5; i++)
            small[i] = ids[i] % vocabularies[k];
        snprintf(path, sizeof path, "%d.tok", k);
        assert_int_equal(tutti_tokens_write(&m->rt, path,
                                            &(tutti_token_ids){ small, 5, vocabularies[k] }, 77,
                                            NULL),
                         TUTTI_OK);
        assert_int_equal(tutti_tokens_open(&t, &m->rt, path, NULL), TUTTI_OK);
        assert_int_equal(tutti_tokens_verify(&t, path, NULL), TUTTI_OK);
        assert_true(t.count == 5 && t.vocabulary == vocabularies[k] && t.made_by == 77 &&
                    t.id_bytes == (k == 0 ? 4 : 2));
        for (int i = 0; i < 5; i++)
            assert_int_equal(k == 0 ? ((const uint32_t *)t.ids)[i] : ((const uint16_t *)t.ids)[i], small[i]);
        tutti_tokens_close(&t);
        assert_int_equal(tutti_contents_open(&c, &m->rt, path, NULL), TUTTI_OK);
        n = (size_t)c.bytes;
        assert_int_equal(n, 64 + 5 * (k == 0 ? 4 : 2));
        memcpy(file, c.at, n);
        tutti_contents_close(&c);
        for (size_t length = 0; length < n; length++)
            assert_int_equal(tutti_tokens_parse(&t, "x", file, length, &err), TUTTI_ERR_CORRUPT);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            tutti_status status;
            memcpy(other, file, n);
            other[bit / 8] ^= (uint8_t)(1 << bit % 8);
            status = tutti_tokens_parse(&t, "x", other, n, &err);
            assert_int_equal(status, bit < 8 * 64 ? TUTTI_ERR_CORRUPT : TUTTI_OK);
            if (status == TUTTI_OK) {
                assert_int_equal(tutti_tokens_verify(&t, "x", &err), TUTTI_ERR_CORRUPT);
                assert_string_equal(err.text,
                                    "'x': the hash of its ids is wrong; it is damaged: make or fetch it again");
            }
        }
    }
    assert_int_equal(tutti_tokens_write(&m->rt, "y", &(tutti_token_ids){ ids, 5, 70000 }, 0, &err),
                     TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "'y' is not written: id 70000 at place 1 is beyond the vocabulary of 70000");
    memory_files_close(m);
}

/* A file whose hashes are right, but one id is not. */
static void an_id_beyond_the_vocabulary_is_found(void **state)
{
    memory_files *m = memory_files_open(NULL);
    _Alignas(8) uint8_t file[72];
    tutti_contents c;
    tutti_tokens t;
    tutti_error err;
    uint64_t hash;

    (void)state;
    assert_int_equal(
        tutti_tokens_write(
            &m->rt, "x", &(tutti_token_ids){ (const uint32_t[]){ 1, 2, 300, 4 }, 4, 301 }, 0, NULL),
        TUTTI_OK);
    assert_int_equal(tutti_contents_open(&c, &m->rt, "x", NULL), TUTTI_OK);
    memcpy(file, c.at, sizeof file);
    tutti_contents_close(&c);
    file[24] = 44; /* 300 = 256 + 44 */
    hash = tutti_hash(file, 56);
    memcpy(file + 56, &hash, 8);
    assert_int_equal(tutti_tokens_parse(&t, "x", file, sizeof file, NULL), TUTTI_OK);
    assert_int_equal(tutti_tokens_verify(&t, "x", &err), TUTTI_ERR_CORRUPT);
    assert_string_equal(err.text, "'x': id 300 at place 2 is beyond its vocabulary of 300; make it again");
    memory_files_close(m);
}

static void the_valid_utf8_prefix_is_measured(void **state)
{
    static const struct { const char *text; size_t bytes, valid; } cases[] = {
        { "",                                         0,  0 },
        { "whale and more",                           14, 14 },
        { "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x90\x8B",     9,  9 },
        { "abcdefgh\xFF",                             9,  8 },
        { "\x80",                                     1,  0 },
        { "a\xC0\xAF",                                3,  1 },
        { "\xE0\x9F\xBF",                             3,  0 },
        { "\xED\xA0\x80",                             3,  0 },
        { "\xF0\x8F\xBF\xBF",                         4,  0 },
        { "\xF4\x90\x80\x80",                         4,  0 },
        { "\xF5\x80\x80\x80",                         4,  0 },
        { "ab\xE2\x82",                               4,  2 },
        { "\xE2\x82" "a",                             3,  0 },
        { "\xC1\xBF",                                 2,  0 },
        { "\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF", 10, 10 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++)
        assert_int_equal(tutti_utf8_valid((const uint8_t *)cases[k].text, cases[k].bytes), cases[k].valid);
}

/* ---- a text as a data set ---- */

typedef struct fixture { tutti_runtime *real; memory_files *m; } fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    uint8_t text[1000];
    uint32_t ids[1000];
    assert_int_equal(tutti_runtime_open_posix(&f->real, NULL), TUTTI_OK);
    f->m = memory_files_open(f->real);
    unsetenv("TUTTI_DATA");
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (uint8_t)(i * 7 % 100);
        ids[i] = (uint32_t)(i * 70 % 997);
    }
    memory_files_put(f->m, "book.txt", text, sizeof text);
    memory_files_put(f->m, "data/moby-dick/moby-dick.txt", text, sizeof text);
    memory_files_put(f->m, "empty.txt", text, 0);
    memory_files_put(f->m, "latin.txt", "abc\xE4 and so on, twenty more bytes", 34);
    assert_int_equal(
        tutti_tokens_write(&f->m->rt, "two.tok", &(tutti_token_ids){ ids, 1000, 997 }, 0, NULL),
        TUTTI_OK);
    assert_int_equal(
        tutti_tokens_write(&f->m->rt, "four.tok", &(tutti_token_ids){ ids, 1000, 99700 }, 0, NULL),
        TUTTI_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    memory_files_close(f->m);
    tutti_runtime_close(f->real);
    free(f);
    return 0;
}

static tutti_data *open_text(fixture *f, const char *spec, void *block)
{
    tutti_error err;
    tutti_data *d;

    if (tutti_data_open_spec(&d, &f->m->rt, spec, NULL, &err) != TUTTI_OK ||
        tutti_data_attach(d, block, true, &err) != TUTTI_OK)
        fail_msg("%s: %s", spec, err.text);
    assert_int_equal(tutti_data_shape_of(d)->bytes, 64);
    return d;
}

static uint32_t token(const char *spec, uint64_t at)
{
    return strstr(spec, "tok") != NULL ? (uint32_t)(at * 70 % 997) : (uint32_t)(at * 7 % 100);
}

static void windows_start_at_the_expected_positions(void **state)
{
    static const struct { const char *spec; uint64_t samples[2], cut, stride[2]; int context, classes; } cases[] = {
        /* (950 - 17) / 16 + 1, (50 - 17) / 16 + 1 */
        { "text(file=book.txt,context=16)", { 59, 3 }, 950, { 16, 16 }, 16, 256 },
        { "text(file=book.txt,context=16,stride=1,val=0.5,val_stride=7,val_windows=5)", { 484, 5 }, 500, { 1, 7 }, 16,
          256 },
        { "text(file=book.txt,context=499,val=0.5)", { 1, 1 }, 500, { 499, 499 }, 499, 256 },
        { "moby-dick(context=3,val_stride=2)", { 316, 16 }, 950, { 3, 2 }, 3, 256 },
        { "tokens(file=two.tok,context=10)", { 94, 4 }, 950, { 10, 10 }, 10, 997 },
        { "tokens(four.tok,1)", { 949, 49 }, 950, { 1, 1 }, 1, 99700 },
    };
    _Alignas(64) uint8_t block[64];
    fixture *f = *state;

    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_data *d = open_text(f, cases[k].spec, block);
        const tutti_data_shape *shape = tutti_data_shape_of(d);
        const size_t context = (size_t)cases[k].context;
        assert_true(shape->context == cases[k].context && shape->width == cases[k].context &&
                    shape->classes == cases[k].classes && shape->value_bytes == 0);
        assert_null(tutti_data_labels(d, TUTTI_TRAIN));
        for (int split = TUTTI_TRAIN; split <= TUTTI_TEST; split++) {
            assert_int_equal(shape->samples[split], cases[k].samples[split]);
            for (uint64_t i = 0; i < shape->samples[split]; i++) {
                const uint64_t ids[2] = { i, 0 },
                               at = (split == TUTTI_TEST ? cases[k].cut : 0) + i * cases[k].stride[split];
                uint32_t tokens[2 * 499], next[2 * 499];
                tutti_data_gather_tokens(d, (tutti_split)split, ids, 2, tokens, next);
                for (size_t j = 0; j < context; j++) {
                    assert_int_equal(tokens[j], token(cases[k].spec, at + j));
                    assert_int_equal(next[j], token(cases[k].spec, at + j + 1));
                    assert_int_equal(tokens[context + j],
                                     token(cases[k].spec, (split == TUTTI_TEST ? cases[k].cut : 0) + j));
                }
            }
        }
        tutti_data_close(d);
    }
}

/* The real novel: the validation windows are bytes 3000 i to 3000 i + 128 of its last twentieth, as
   bench/peers' train.py takes them. */
static void moby_dick_validation_windows_match_the_benchmark_peers(void **state)
{
    _Alignas(64) uint8_t block[64];
    const char *path = TUTTI_SOURCE_DIR "/data/moby-dick/moby-dick.txt";
    fixture *f = *state;
    uint32_t tokens[128], next[128];
    tutti_contents c;
    tutti_data *d;

    setenv("TUTTI_DATA", TUTTI_SOURCE_DIR "/data", 1);
    assert_int_equal(tutti_data_open_spec(&d, f->real, "moby-dick", NULL, NULL), TUTTI_OK);
    unsetenv("TUTTI_DATA");
    assert_int_equal(tutti_data_attach(d, block, true, NULL), TUTTI_OK);
    assert_int_equal(tutti_data_shape_of(d)->samples[TUTTI_TEST], 16);
    assert_int_equal(tutti_data_shape_of(d)->samples[TUTTI_TRAIN], (1129179 - 129) / 128 + 1);
    assert_int_equal(tutti_contents_open(&c, f->real, path, NULL), TUTTI_OK);
    assert_int_equal(c.bytes, 1188610);
    for (uint64_t i = 0; i < 16; i++) {
        tutti_data_gather_tokens(d, TUTTI_TEST, &i, 1, tokens, next);
        for (size_t j = 0; j < 128; j++) { /* int(1188610 * 0.95) = 1129179 */
            assert_int_equal(tokens[j], c.at[1129179 + i * 3000 + j]);
            assert_int_equal(next[j], c.at[1129179 + i * 3000 + j + 1]);
        }
    }
    tutti_contents_close(&c);
    tutti_data_close(d);
}

static void loaders_hand_out_tokens(void **state)
{
    _Alignas(64) uint8_t block[64];
    fixture *f = *state;
    tutti_data *d = open_text(f, "text(file=book.txt,context=16)", block);
    const tutti_share s = { 59, 2, 4, 1, 9 };

    for (int depth = 0; depth < 4; depth++) {
        tutti_loader *l;
        assert_int_equal(tutti_loader_open(&l, f->real, d, &s, 1, 3, depth, NULL), TUTTI_OK);
        for (uint64_t step = 3; step < 25; step++) {
            uint64_t epoch, position, ids[4] = { 0 };
            const int64_t n = tutti_share_pass(&s, step, 1, 0, &epoch, &position);
            uint32_t tokens[64], next[64];
            tutti_batch b;
            assert_int_equal(tutti_loader_take(l, &b, NULL), TUTTI_OK);
            assert_true(b.samples == n && b.x == NULL && b.labels == NULL);
            for (int64_t i = 0; i < n; i++)
                ids[i] = tutti_share_sample(&s, epoch, position + (uint64_t)i);
            tutti_data_gather_tokens(d, TUTTI_TRAIN, ids, (size_t)n, tokens, next);
            assert_memory_equal(b.tokens, tokens, (size_t)n * 64);
            assert_memory_equal(b.next, next, (size_t)n * 64);
        }
        tutti_loader_close(l);
    }
    tutti_data_close(d);
}

static void too_short_texts_are_rejected_and_contents_are_hashed(void **state)
{
    static const char *const specs[] = {
        "book.txt", "two.tok", "four.tok", "text(file=book.txt,context=64)", "text(file=book.txt,val=0.1)",
        "text(file=book.txt,stride=2)", "moby-dick(val_stride=1,context=30)",
    };
    _Alignas(64) uint8_t block[64];
    uint64_t hash[TUTTI_LENGTH(specs)];
    fixture *f = *state;

    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++) {
        char full[100];
        tutti_data *d;
        snprintf(full, sizeof full, k < 3 ? "./%s" : "%s", specs[k]); /* with a '/' or without */
        if (k < 3) { /* 1000 tokens have no validation window of 128 in a twentieth */
            tutti_error err;
            assert_int_equal(tutti_data_open_spec(&d, &f->m->rt, specs[k], NULL, &err), TUTTI_ERR_USAGE);
            assert_non_null(strstr(err.text, "has 1000 tokens, 50 of them for validation; a window of context 128 "
                                             "needs 129: give a smaller context, a longer text or another val"));
            continue;
        }
        if (strstr(specs[k], "context") == NULL) {
            assert_int_equal(tutti_data_open_spec(&d, &f->m->rt, specs[k], NULL, NULL), TUTTI_ERR_USAGE);
            continue;
        }
        d = open_text(
            f, strcmp(specs[k], "text(file=book.txt,context=64)") == 0 ? "text(file=./book.txt,context=40)" : specs[k],
            block);
        hash[k] = tutti_data_hash(d);
        assert_true(hash[k] != 0);
        tutti_data_close(d);
    }
    assert_true(hash[3] != hash[6]);
}

static void invalid_text_data_is_rejected_with_a_message(void **state)
{
    static const struct { const char *spec, *text; tutti_status status;
    } cases[] = {
        { "empty.txt", "'empty.txt' is empty; give a text", TUTTI_ERR_USAGE },
        { "text(file=latin.txt,context=1,val=0.5)",
          "'latin.txt' is no text in UTF-8: byte 3 (0xe4) is not part of a character; convert it, or take any "
          "bytes through `tutti data tokens`",
          TUTTI_ERR_CORRUPT },
        { "text", "data 'text' needs to know its file; write text(file=PATH)", TUTTI_ERR_USAGE },
        { "tokens(file=book.txt)",
          "'book.txt' is no token file (1000 bytes, and it does not begin with TUTTITOK); `tutti data tokens` "
          "makes one of a text",
          TUTTI_ERR_CORRUPT },
        { "text(file=book.txt,context=0)",
          "data 'text': option 'context' is 0; it must be from 1 to 1048576 (tokens of a sample)", TUTTI_ERR_USAGE },
        { "text(file=book.txt,context=1000)",
          "'book.txt' has 1000 tokens, 950 of them for training; a window of context 1000 needs 1001: give a "
          "smaller context, a longer text or another val",
          TUTTI_ERR_USAGE },
        { "moby-dick(context=8)",
          "'data/moby-dick/moby-dick.txt' has 50 tokens for validation, enough for 1 windows of context 8 every 3000 "
          "tokens, but val_windows is 16; give fewer, a smaller val_stride "
          "or a larger val",
          TUTTI_ERR_USAGE },
    };
    _Alignas(64) uint8_t block[64];
    fixture *f = *state;

    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_error err;
        tutti_data *d;
        tutti_status status = tutti_data_open_spec(&d, &f->m->rt, cases[k].spec, NULL, &err);
        if (status == TUTTI_OK)
            status = tutti_data_attach(d, block, true, &err);
        assert_int_equal(status, cases[k].status);
        assert_string_equal(err.text, cases[k].text);
        tutti_data_close(d);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_training_matches_the_definition),
        cmocka_unit_test(bpe_round_trip_preserves_any_bytes),
        cmocka_unit_test(words_join_to_the_text_and_keep_spaces_in_front),
        cmocka_unit_test(an_encoding_is_read_back_whole_or_refused),
        cmocka_unit_test(invalid_merges_are_rejected_despite_a_valid_hash),
        cmocka_unit_test(token_files_are_read_back_whole_or_refused),
        cmocka_unit_test(an_id_beyond_the_vocabulary_is_found),
        cmocka_unit_test(the_valid_utf8_prefix_is_measured),
        TEST(windows_start_at_the_expected_positions),
        TEST(moby_dick_validation_windows_match_the_benchmark_peers),
        TEST(loaders_hand_out_tokens),
        TEST(too_short_texts_are_rejected_and_contents_are_hashed),
        TEST(invalid_text_data_is_rejected_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
