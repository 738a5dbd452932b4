/* pictures.c: the data set of a directory of PNG and JPEG files, with a folder for each class.
   Classes are sorted by the bytes of their names, and so are the files of a class. The test set is
   either given by folders,

     DIR/train/CLASS/FILE and DIR/test/CLASS/FILE (else DIR/val/CLASS/FILE),

   or, if DIR has the folders of the classes, drawn: of a class with n files round(n x test), but
   not all, which depend on the seed and the class alone.

   Opening lists files and reads none. The rank that fills the block decodes all of them, and names
   those that it cannot use, before training begins. */
#include "data_internal.h"
#include "data/pictures.h"
#include "runtime/files.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(member) TUTTI_AT(tutti_data_pictures, member)
const tutti_option tutti_data_pictures_options[] = {
    { "dir", TUTTI_TEXT, AT(dir), 0, 0, 0, "", "where the folders are" },
    { "size", TUTTI_INT, AT(size), 32, 1, 4096, NULL,
      "pixels of a side: the middle square of each picture is scaled to size x size" },
    { "grey", TUTTI_BOOL, AT(grey), 0, 0, 1, NULL, "one channel in place of red, green and blue" },
    { "test", TUTTI_REAL, AT(test), 0.1, 1e-6, 0.9, NULL,
      "without folders train and test (or val): share of each class that is kept for the test" },
    { "seed", TUTTI_INT, AT(seed), 0, 0, 9007199254740992.0, NULL,
      "of the draw of those; that of the run has no part in it" },
    { 0 }
};

enum { CLASSES_MOST = 256 };

/* The list of files. */
struct tutti_data_files {
    char *text;                   /* [used]: paths within the directory, each ended by 0 */
    size_t used, room;
    uint64_t count[2];            /* [split] */
    struct { size_t name; uint8_t label, split; } *at; /* [n]; name: offset in text */
    size_t n, at_room;
};
typedef tutti_data_files files;

void tutti_data_files_close(tutti_data_files *f)
{
    if (f == NULL)
        return;
    tutti_free(f->text);
    tutti_free(f->at);
    tutti_free(f);
}

/* Doubles the capacity of an array until `more` elements fit. */
static bool grow_list(void **memory, size_t used, size_t *room, size_t more, size_t size)
{
    size_t wanted = *room > 0 ? *room : 64;
    void *larger;

    if (used + more <= *room)
        return true;
    while (wanted < used + more)
        wanted *= 2;
    larger = tutti_alloc(wanted, size);
    if (larger == NULL)
        return false;
    if (used > 0)
        memcpy(larger, *memory, used * size);
    tutti_free(*memory);
    *memory = larger;
    *room = wanted;
    return true;
}

typedef struct search {
    tutti_data *d;
    files *f;
    const tutti_data_pictures *how;
    char folder[600];            /* within the directory; "": itself */
    int label, classes;          /* of the class that is listed; how many were found */
    int split;                   /* of its files; -1: to be drawn */
    size_t begin;                /* of its files */
    bool known;                  /* classes have their names: another one is refused */
} search;

static tutti_status path_of(const search *s, const char *name, char *path, size_t bytes,
                            tutti_error *err)
{
    const int n = s->folder[0] != '\0'
                      ? snprintf(path, bytes, "%s/%s/%s", s->d->filled.path, s->folder, name)
                      : snprintf(path, bytes, "%s/%s", s->d->filled.path, name);

    return n >= 0 && (size_t)n < bytes
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "the path '%s/%s/%.80s...' is longer than the %zu bytes allowed",
                            s->d->filled.path, s->folder, name, bytes - 1);
}

static tutti_status ignore(void *user, const char *name, tutti_error *err)
{
    (void)user, (void)name, (void)err;
    return TUTTI_OK;
}

static tutti_status is_folder(tutti_runtime *rt, const char *path, bool *is, tutti_error *err)
{
    tutti_error why = { .rank = -1 };
    const tutti_status status = tutti_file_exists(rt, path)
                                    ? tutti_directory_list(rt, path, ignore, NULL, &why)
                                    : TUTTI_ERR_USAGE;

    *is = status == TUTTI_OK;
    return status == TUTTI_ERR_MEMORY ? tutti_fail(err, status, ENOMEM, "%s", why.text) : TUTTI_OK;
}

static tutti_status take_file(void *user, const char *name, tutti_error *err)
{
    search *s = user;
    files *f = s->f;
    const size_t folder = strlen(s->folder), length = folder + 1 + strlen(name) + 1;

    if (name[0] == '.')
        return TUTTI_OK;
    if (!tutti_picture_named(name)) {
        char path[4200];
        bool inner;
        TUTTI_TRY(path_of(s, name, path, sizeof path, err));
        TUTTI_TRY(is_folder(s->d->rt, path, &inner, err));
        if (inner)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "'%s' is a folder within '%.200s', which would be a class; pictures "
                              "stand in the folder of their class: name the folders of a split "
                              "train and test (or val), or give the path of the folder that holds "
                              "the classes",
                              path, s->folder);
    }
    if (!tutti_picture_named(name))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s/%s/%s' is no picture by its name; folders of classes hold .png, "
                          ".jpg and .jpeg files alone: convert it or take it away",
                          s->d->filled.path, s->folder, name);
    if (!grow_list((void **)&f->text, f->used, &f->room, length, 1) ||
        !grow_list((void **)&f->at, f->n, &f->at_room, 1, sizeof *f->at))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the pictures in '%s'",
                          s->d->filled.path);
    f->at[f->n].name = f->used;
    f->at[f->n].label = (uint8_t)s->label;
    f->at[f->n].split = (uint8_t)(s->split < 0 ? TUTTI_TRAIN : s->split);
    f->n++;
    snprintf(f->text + f->used, length, "%s/%s", s->folder, name);
    f->used += length;
    return TUTTI_OK;
}

/* Assigns round(n x test) of a class's n files, by a random permutation, to the test set. */
static void draw_test(const search *s)
{
    const uint64_t n = s->f->n - s->begin, wanted = (uint64_t)floor((double)n * s->how->test + 0.5),
                   test = wanted < n ? wanted : n - 1;
    const tutti_rng draw = { (uint64_t)s->how->seed, UINT64_C(0x70696373) /* "pics" */,
                             (uint64_t)s->label };

    for (uint64_t i = 0; i < test; i++)
        s->f->at[s->begin + tutti_permuted(draw, n, i)].split = TUTTI_TEST;
}

static int class_of(const tutti_data *d, int classes, const char *name)
{
    for (int k = 0; k < classes; k++)
        if (strcmp(d->class_name[k], name) == 0)
            return k;
    return -1;
}

static tutti_status take_class(void *user, const char *name, tutti_error *err)
{
    search *s = user;
    char path[4200], parent[sizeof s->folder];
    tutti_status status;
    bool folder;

    if (name[0] == '.')
        return TUTTI_OK;
    TUTTI_TRY(path_of(s, name, path, sizeof path, err));
    TUTTI_TRY(is_folder(s->d->rt, path, &folder, err));
    if (!folder)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' is no folder; next to the folders of the classes nothing else is "
                          "allowed: put pictures into the folder of their class",
                          path);
    if (tutti_utf8_valid((const uint8_t *)name, strlen(name)) < strlen(name))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' is a class whose name is not UTF-8; rename its folder", path);
    s->label = s->known ? class_of(s->d, s->classes, name) : s->classes;
    if (s->label < 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' is a class that the folder train has not; nothing could learn it: "
                          "take it away, or give it pictures to train on",
                          path);
    if (s->label >= CLASSES_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' has more than %d classes, which is the most", s->d->filled.path,
                          CLASSES_MOST);
    if (!s->known) {
        TUTTI_TRY(tutti_data_name_class(s->d, s->label, name, strlen(name)) == TUTTI_OK
                      ? TUTTI_OK
                      : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "keeping the name of class '%s'",
                                   name));
        s->classes++;
    }
    memcpy(parent, s->folder, sizeof parent);
    if (strlen(parent) + strlen(name) + 2 > sizeof s->folder)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the name of class '%.80s...' is too long",
                          name);
    snprintf(s->folder + strlen(parent), sizeof s->folder - strlen(parent), "%s%s",
             parent[0] != '\0' ? "/" : "", name);
    s->begin = s->f->n;
    status = tutti_directory_list(s->d->rt, path, take_file, s, err);
    if (status == TUTTI_OK && s->f->n == s->begin)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "'%s' is a class without a picture; take the folder away", path);
    if (status == TUTTI_OK && s->split < 0)
        draw_test(s);
    memcpy(s->folder, parent, sizeof parent);
    return status;
}

/* Lists the folder `name` of the directory, whose folders are classes. */
static tutti_status take_split(search *s, const char *name, int split, tutti_error *err)
{
    char path[4200];

    s->split = split;
    s->folder[0] = '\0';
    TUTTI_TRY(path_of(s, name, path, sizeof path, err));
    snprintf(s->folder, sizeof s->folder, "%s", name);
    if (name[0] == '\0')
        snprintf(path, sizeof path, "%s", s->d->filled.path);
    return tutti_directory_list(s->d->rt, path, take_class, s, err);
}

static tutti_status has_folder(const tutti_data *d, const char *name, bool *has, tutti_error *err)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/%s", d->filled.path, name);
    return is_folder(d->rt, path, has, err);
}

static tutti_status see_folder(void *user, const char *name, tutti_error *err);

/* Has this folder of the directory folders? A split has, a class has none. */
static tutti_status holds_folders(const tutti_data *d, const char *name, bool *holds,
                                  tutti_error *err)
{
    char path[4200];
    tutti_data inner = { .rt = d->rt, .filled = { .path = path } };
    search s = { .d = &inner };

    snprintf(path, sizeof path, "%s/%s", d->filled.path, name);
    TUTTI_TRY(tutti_directory_list(d->rt, path, see_folder, &s, err));
    *holds = s.classes > 0;
    return TUTTI_OK;
}

/* Reports a directory that has only one of the two splits. */
static tutti_status check_half(const tutti_data *d, const char *name, tutti_error *err)
{
    bool holds;

    TUTTI_TRY(holds_folders(d, name, &holds, err));
    if (holds && strcmp(name, "train") == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "'%s' has a folder train, but neither test nor val; put pictures to test on into one, "
            "a folder a class, or give '%s/train' and let a share of each class be the test",
            d->filled.path, d->filled.path);
    return !holds ? TUTTI_OK
                  : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                               "'%s' has a folder %s, but no folder train; put pictures to train "
                               "on there, a folder a class",
                               d->filled.path, name);
}

static tutti_status list_folders(search *s, tutti_error *err)
{
    tutti_data *d = s->d;
    bool train, test, val;

    TUTTI_TRY(has_folder(d, "train", &train, err));
    TUTTI_TRY(has_folder(d, "test", &test, err));
    TUTTI_TRY(has_folder(d, "val", &val, err));
    if (train && (test || val)) {
        TUTTI_TRY(take_split(s, "train", TUTTI_TRAIN, err));
        s->known = true;
        TUTTI_TRY(take_split(s, test ? "test" : "val", TUTTI_TEST, err));
    } else {
        if (train || test || val)
            TUTTI_TRY(check_half(d, train ? "train" : test ? "test" : "val", err));
        TUTTI_TRY(take_split(s, "", -1, err));
    }
    for (size_t i = 0; i < s->f->n; i++)
        s->f->count[s->f->at[i].split]++;
    if (s->classes < 2)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' has the folder of %s; pictures of at least two classes are needed, "
                          "a folder a class",
                          d->filled.path, s->classes == 1 ? "one class" : "no class");
    if (s->f->count[TUTTI_TEST] == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' has no picture to test on: of %" PRIu64
                          " in %d classes a share of %.12g is none; give a larger test, or folders "
                          "train and test",
                          d->filled.path, s->f->count[TUTTI_TRAIN], s->classes, s->how->test);
    return TUTTI_OK;
}

static tutti_status fill_pictures(tutti_data *d, uint8_t *block, tutti_error *err)
{
    const files *f = d->filled.files;
    tutti_error first = { .rank = -1 }, now;
    uint64_t at[2] = { 0 }, bad = 0;

    for (size_t i = 0; i < f->n; i++) {
        const int split = f->at[i].split;
        char path[5000];
        tutti_status status;
        now = (tutti_error){ .rank = -1 };
        snprintf(path, sizeof path, "%s/%s", d->filled.path, f->text + f->at[i].name);
        status = tutti_picture_read(d->rt, path, d->shape.channels, d->shape.height,
                                    block + d->parts[split][DATA_X].offset + at[split] * d->pixels,
                                    &now);
        block[d->parts[split][DATA_LABELS].offset + at[split]++] = f->at[i].label;
        if (status == TUTTI_ERR_MEMORY)
            return tutti_fail(err, status, ENOMEM, "%s", now.text);
        if (status != TUTTI_OK && bad++ == 0)
            first = now;
    }
    if (bad > 1)
        return tutti_fail(err, first.status, 0,
                          "%" PRIu64 " of the %zu pictures cannot be used; the first: %s", bad,
                          f->n, first.text);
    return bad == 0 ? TUTTI_OK : tutti_fail(err, first.status, 0, "%s", first.text);
}

/* Records whether the directory has a folder. */
static tutti_status see_folder(void *user, const char *name, tutti_error *err)
{
    search *s = user;
    char path[4200];
    bool folder = false;

    snprintf(path, sizeof path, "%s/%s", s->d->filled.path, name);
    if (name[0] != '.' && s->classes == 0)
        TUTTI_TRY(is_folder(s->d->rt, path, &folder, err));
    s->classes += folder;
    return TUTTI_OK;
}

tutti_status tutti_data_is_pictures(tutti_runtime *rt, const char *path, bool *is, tutti_error *err)
{
    tutti_data d = { .rt = rt, .filled = { .path = (char *)(uintptr_t)path } };
    search s = { .d = &d };

    *is = false;
    if (tutti_file_exists(rt, path))
        TUTTI_TRY(tutti_directory_list(rt, path, see_folder, &s, err));
    *is = s.classes > 0;
    return TUTTI_OK;
}

tutti_status tutti_data_pictures_open(tutti_data **out, tutti_runtime *rt, const char *path,
                                      const tutti_data_pictures *how, tutti_error *err)
{
    search s = { .how = how };
    tutti_status status;
    bool folder;

    *out = NULL;
    TUTTI_TRY(is_folder(rt, path, &folder, err));
    if (!folder)
        return tutti_fail(err, TUTTI_ERR_USAGE, ENOENT, "there is no directory of pictures at '%s'",
                          path);
    TUTTI_TRY(tutti_data_filled_open(&s.d, rt, path, fill_pictures, err));
    s.f = s.d->filled.files = tutti_alloc(1, sizeof *s.f);
    status = s.f != NULL ? list_folders(&s, err)
                         : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing '%s'", path);
    if (status == TUTTI_OK)
        status = tutti_data_filled_place(s.d, s.f->count, how->grey ? 1 : 3, (int)how->size, err);
    if (status == TUTTI_OK)
        *out = s.d;
    else
        tutti_data_close(s.d);
    return status;
}
