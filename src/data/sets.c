/* sets.c: resolves what the user gives for a data set (--data): a name with options, or a path. A
   name is that of a known set or of a synthetic problem. A path is that of a directory, a token
   file or a text. If a file of exactly that text exists, it is a path even if it has brackets in
   it. So is any text with a '/' that is not in a spec of ours. Only a bare name of ours is never a
   path (./mnist is). */
#include "data_internal.h"
#include "data/pictures.h"
#include "runtime/files.h"
#include "base/options.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) TUTTI_AT(tutti_data_distortion, member)
static const tutti_option mnist_options[] = {
    { "distort", TUTTI_REAL, AT(distort), 0, 0, 1, NULL,
      "strength of shifts, turns and clutter, on both splits; 0: the images as they are" },
    { "seed", TUTTI_INT, AT(seed), 0, 0, 9007199254740992.0, NULL,
      "of the distortions; that of the run has no part in them" },
    { 0 }
};

static const tutti_option speech_options[] = { { 0 } }, cifar_options[] = { { 0 } };

const tutti_data_set tutti_data_sets[] = {
    { "mnist", "handwritten digits, 60000 + 10000 images of 28 x 28", mnist_options, .text = false,
      .classes = 10 },
    { "speech",
      "spoken digits, synthesised: 64 frames of 120 features; tested on voices that were not "
      "trained on",
      speech_options, .text = false, .classes = 10, .maker = "tools/speech-data" },
    { "cifar10",
      "photographs of ten kinds, 50000 + 10000 images of 3 x 32 x 32, in its six binary files",
      cifar_options, .classes = 10 },
    { "images", "PNG and JPEG files, a folder a class, with folders train and test or without",
      tutti_data_pictures_options, .pictures = true },
    { "moby-dick",
      "Melville's novel, 1.19 MB, by bytes; validated on 16 windows of its last twentieth",
      tutti_data_moby_dick_options, .text = true, .file = "moby-dick.txt" },
    { "text", "any text in UTF-8, by bytes", tutti_data_text_options, .text = true },
    { "tokens", "a file of token ids, as `tutti data tokens` makes it", tutti_data_text_options,
      .text = true },
    { "clicks",
      "a click log in Criteo's format: 13 integers, 26 categories hashed to rows of tables",
      tutti_data_clicks_options, .clicks = true },
    { "quadratic",
      "points whose mean is the known optimum of a quadratic; it may differ by class, lie on the "
      "simplex, drift",
      tutti_quadratic_options, .drawn = true },
    { "logistic", "normal features with the labels of a linear teacher, some of them wrong",
      tutti_logistic_options, .drawn = true },
    { 0 }
};

static const tutti_data_set *find_set(const char *name)
{
    for (const tutti_data_set *set = tutti_data_sets; set->name != NULL; set++)
        if (strcmp(set->name, name) == 0)
            return set;
    return NULL;
}

static tutti_status unknown(const char *text, const char *name, tutti_error *err)
{
    const char *names[16];
    char near[100], all[200] = "";
    size_t n = 0, used = 0;

    for (; tutti_data_sets[n].name != NULL && n < TUTTI_LENGTH(names); n++) {
        names[n] = tutti_data_sets[n].name;
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s'%s'", n == 0 ? "" : ", ",
                                     names[n]);
    }
    if (name != NULL)
        tutti_suggest(name, names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "no data at '%.160s'%s; give %s, a directory of images, or a text", text,
                      name != NULL ? near : "", all);
}

/* ---- resolving ---- */

static tutti_status take_path(char *path, size_t bytes, const char *text, tutti_error *err)
{
    const size_t length = strlen(text);

    if (length >= bytes)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the data path has %zu bytes, more than the %zu allowed", length,
                          bytes - (bytes > 0));
    memcpy(path, text, length + 1);
    return TUTTI_OK;
}

static tutti_status find_folder(tutti_runtime *rt, const tutti_data_set *set, const char *installed,
                                char *path, size_t bytes, tutti_error *err)
{
    const char *const places[3] = { getenv("TUTTI_DATA"), "data", installed };
    const char *name = set->name;
    char tried[300] = "", make[80] = "";
    size_t used = 0;

    for (size_t k = 0; k < TUTTI_LENGTH(places); k++) {
        int length;
        if (places[k] == NULL || places[k][0] == '\0')
            continue;
        length = snprintf(path, bytes, "%s/%s", places[k], name);
        if (length < 0 || (size_t)length >= bytes) {
            if (bytes > 0)
                path[0] = '\0';
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the data path '%s/%s' is longer than the %zu bytes allowed",
                              places[k], name, bytes - (bytes > 0));
        }
        if (tutti_file_exists(rt, path))
            return TUTTI_OK;
        length = snprintf(tried + used, sizeof tried - used, "%s'%s'", used > 0 ? ", " : "", path);
        if (length > 0 && (size_t)length < sizeof tried - used)
            used += (size_t)length;
        else
            tried[used] = '\0';
        path[0] = '\0';
    }
    if (set->maker != NULL)
        snprintf(make, sizeof make, "make it with %.60s, ", set->maker);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "no data set '%s' (looked for %s); %sset TUTTI_DATA to the folder that holds "
                      "%s/, or give a path",
                      name, tried, make, name);
}

/* What a text means. The file or directory of a set is in `path`, next to it. set NULL: a path. */
typedef struct found {
    const tutti_data_set *set;
    tutti_data_distortion distortion;
    tutti_problem problem;
    tutti_data_windows windows;   /* of a text; file is not used */
    tutti_data_clicks clicks;     /* of a click log; file is not used */
    tutti_data_pictures pictures; /* of pictures; dir is not used */
} found;

/* Is the path of the set one of its options? */
static bool is_placed(const tutti_data_set *set)
{
    return set->file == NULL && (set->text || set->clicks || set->pictures);
}

/* Is it a spec such as "text(file=/a/b)", which has a '/' but is no path? */
static bool is_spec_of_file(const char *text)
{
    const size_t n = strcspn(text, "(");

    for (const tutti_data_set *set = tutti_data_sets; set->name != NULL; set++)
        if ((set->text || is_placed(set)) && strlen(set->name) == n &&
            strncmp(set->name, text, n) == 0)
            return true;
    return false;
}

/* What the user has named a data set by, and memory for the path that is found for it. */
typedef struct path_room {
    const char *text;
    char *path;
    size_t bytes;
} path_room;

static tutti_status find_named(tutti_runtime *rt, const tutti_spec *spec, const char *installed,
                               path_room to, found *f, tutti_error *err)
{
    const char *text = to.text;
    char *path = to.path;
    const size_t bytes = to.bytes;
    char what[40], canonical[512], folder[4096];
    const char *file;

    snprintf(what, sizeof what, "data '%s'", f->set->name);
    if (f->set->drawn) {
        TUTTI_TRY(tutti_problem_read(&f->problem, text, "data", NULL, err));
        tutti_problem_print(&f->problem, canonical, sizeof canonical);
        return take_path(path, bytes, canonical, err);
    }
    if (!f->set->text && !is_placed(f->set)) {
        TUTTI_TRY(tutti_spec_apply(spec, what, f->set->options, &f->distortion, err));
        return find_folder(rt, f->set, installed, path, bytes, err);
    }
    TUTTI_TRY(tutti_spec_apply(spec, what, f->set->options,
                               f->set->text     ? (void *)&f->windows
                               : f->set->clicks ? (void *)&f->clicks
                                                : (void *)&f->pictures,
                               err));
    file = f->set->pictures       ? f->pictures.dir
           : f->set->clicks       ? f->clicks.file
           : f->set->file == NULL ? f->windows.file
                                  : "";
    if (f->set->file == NULL && file[0] == '\0')
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "data '%s' needs to know its %s; write %s(%s=PATH)", f->set->name,
                          f->set->pictures ? "directory" : "file", f->set->name,
                          f->set->pictures ? "dir" : "file");
    if (f->set->file == NULL)
        return take_path(path, bytes, file, err);
    TUTTI_TRY(find_folder(rt, f->set, installed, folder, sizeof folder, err));
    if (strlen(folder) + strlen(f->set->file) + 2 > bytes)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the data path '%s/%s' is longer than the %zu bytes allowed", folder,
                          f->set->file, bytes - (bytes > 0));
    snprintf(path, bytes, "%s/%s", folder, f->set->file);
    return TUTTI_OK;
}

static tutti_status find_set_path(tutti_runtime *rt, const char *installed, path_room to, found *f,
                                  tutti_error *err)
{
    const char *text = to.text;
    char *path = to.path;
    const size_t bytes = to.bytes;
    tutti_spec *spec;
    tutti_status status;

    if (bytes > 0)
        path[0] = '\0';
    *f = (found){ 0 };
    if (find_set(text) == NULL) {
        if (text[0] != '\0' && tutti_file_exists(rt, text))
            return take_path(path, bytes, text, err);
        if (text[0] == '\0' || (strchr(text, '/') != NULL && !is_spec_of_file(text)))
            return unknown(text, NULL, err);
    }
    status = tutti_spec_open(&spec, text, err);
    if (status != TUTTI_OK)
        return tutti_fail_within(
            err, status, "no file or directory '%.80s', and as the name of a data set", text);
    f->set = find_set(tutti_spec_name(spec));
    status = f->set == NULL ? unknown(text, tutti_spec_name(spec), err)
                            : find_named(rt, spec, installed, to, f, err);
    f->windows.file = f->clicks.file = f->pictures.dir = NULL; /* they were the spec's */
    tutti_spec_close(spec);
    return status;
}

tutti_status tutti_data_find(tutti_runtime *rt, const char *text, const char *installed, char *path,
                             size_t bytes, tutti_error *err)
{
    found f;

    return find_set_path(rt, installed, (path_room){ text, path, bytes }, &f, err);
}

tutti_status tutti_data_given(tutti_status status, tutti_error *err)
{
    if (status != TUTTI_ERR_CORRUPT)
        return status;
    if (err != NULL)
        err->status = TUTTI_ERR_USAGE;
    return TUTTI_ERR_USAGE;
}

tutti_status tutti_data_absolute(tutti_runtime *rt, const char *text, const char *directory,
                                 char *out, size_t bytes, tutti_error *err)
{
    char path[4096], whole[2 * 4096 + 2];
    found f;
    int length = snprintf(out, bytes, "%s", text);

    if (find_set_path(rt, "", (path_room){ text, path, sizeof path }, &f, NULL) != TUTTI_OK ||
        path[0] == '/' || (f.set != NULL && (!is_placed(f.set) || f.set->drawn)))
        return TUTTI_OK; /* a name; or there is nothing, which is reported when it is opened */
    snprintf(whole, sizeof whole, "%s/%s", directory, path);
    if (f.set == NULL)
        length = snprintf(out, bytes, "%s", whole);
    else {
        f.windows.file = f.clicks.file = f.pictures.dir = whole;
        length = tutti_spec_print(f.set->name, f.set->options,
                                  f.set->text     ? (void *)&f.windows
                                  : f.set->clicks ? (void *)&f.clicks
                                                  : (void *)&f.pictures, out, bytes);
    }
    if (length >= 0 && (size_t)length < bytes)
        return TUTTI_OK;
    snprintf(out, bytes, "%s", text);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "the data path '%.80s...' in '%.200s' has more than the %zu bytes allowed",
                      path, directory, bytes);
}

/* Describes the contents of a directory that is no readable set, if well-known file names show
   them. */
static tutti_status name_what_it_is(tutti_runtime *rt, const char *directory, tutti_error *err)
{
    static const struct { const char *file, *is, *mend;
    } kinds[] = {
        { "cifar-10-batches-bin/data_batch_1.bin", "holds the folder of CIFAR-10 and is not it",
          "give its cifar-10-batches-bin" },
        { "cifar-10-batches-py/data_batch_1", "holds CIFAR-10 as pickles of Python",
          "take the binary version (cifar-10-binary.tar.gz)" },
        { "data_batch_1", "holds CIFAR-10 as pickles of Python",
          "take the binary version (cifar-10-binary.tar.gz)" },
        { "fine_label_names.txt", "holds CIFAR-100, which is not read",
          "write it as folders of pictures, a folder a class" },
        { "cifar-100-binary/fine_label_names.txt", "holds CIFAR-100, which is not read",
          "write it as folders of pictures, a folder a class" },
        { "cifar-100-python/meta", "holds CIFAR-100 as pickles of Python, which is not read",
          "write it as folders of pictures, a folder a class" },
        { "meta", "holds CIFAR-100 as pickles of Python, which is not read",
          "write it as folders of pictures, a folder a class" },
        { "MNIST/raw/train-images-idx3-ubyte", "holds the folder of MNIST and is not it",
          "give its MNIST/raw" },
        { "raw/train-images-idx3-ubyte", "holds the folder of MNIST and is not it",
          "give its raw" },
    };
    char path[4200];

    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++) {
        snprintf(path, sizeof path, "%s/%s", directory, kinds[k].file);
        if (tutti_file_exists(rt, path))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "'%s' %s; %s", directory, kinds[k].is,
                              kinds[k].mend);
    }
    return TUTTI_OK;
}

/* Counts the files of a directory that have the names of pictures. */
static tutti_status see_picture(void *user, const char *name, tutti_error *err)
{
    (void)err;
    *(uint64_t *)user += name[0] != '.' && tutti_picture_named(name);
    return TUTTI_OK;
}

/* Reports a directory without anything that can be read. */
static tutti_status no_set(tutti_runtime *rt, const char *directory, tutti_error *err)
{
    uint64_t pictures = 0;

    TUTTI_TRY(name_what_it_is(rt, directory, err));
    TUTTI_TRY(tutti_directory_list(rt, directory, see_picture, &pictures, err));
    if (pictures > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' holds %llu picture%s and no folder; a picture's class is the "
                          "folder that it is in: make a folder for each class",
                          directory, (unsigned long long)pictures, pictures == 1 ? "" : "s");
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "'%s' holds no data set: neither IDX files with the four MNIST names, nor "
                      "CIFAR-10's binary files, nor folders of pictures, a folder a class "
                      "(docs/DATA.md)",
                      directory);
}

/* Is it a file, rather than a directory, and one of tokens? */
static bool is_file(tutti_runtime *rt, const char *path, bool *tokens)
{
    char head[8] = "";
    tutti_file *file;

    *tokens = false;
    if (tutti_file_open(&file, rt, path, TUTTI_FILE_READ, NULL) != TUTTI_OK)
        return false;
    *tokens = tutti_file_bytes(file) >= sizeof head &&
              tutti_file_read(file, 0, head, sizeof head, NULL) == TUTTI_OK &&
              memcmp(head, "TUTTITOK", sizeof head) == 0;
    tutti_file_close(file, NULL);
    return true;
}

/* Opens CIFAR's files, if they are asked for or are what is there; else *out stays NULL. */
static tutti_status open_cifar(tutti_data **out, tutti_runtime *rt, const char *path,
                               const found *f, tutti_error *err)
{
    if (f->set != NULL && f->set->options == cifar_options && !tutti_data_is_cifar(rt, path))
        TUTTI_TRY(name_what_it_is(rt, path, err));
    if (f->set != NULL && f->set->options == cifar_options)
        return tutti_data_cifar_open(out, rt, path, true, err);
    if (f->set == NULL && tutti_data_is_cifar(rt, path))
        return tutti_data_cifar_open(out, rt, path, false, err);
    return TUTTI_OK;
}

tutti_status tutti_data_open_spec(tutti_data **out, tutti_runtime *rt, const char *text,
                                  const char *installed, tutti_error *err)
{
    char path[4096];
    bool tokens, pictures = false;
    found f;

    *out = NULL;
    TUTTI_TRY(find_set_path(rt, installed, (path_room){ text, path, sizeof path }, &f, err));
    if (f.problem.kind != TUTTI_PROBLEM_NONE)
        return tutti_data_problem_open(out, rt, &f.problem, err);
    if (f.set != NULL && f.set->text)
        return tutti_data_text_open(out, rt, path, strcmp(f.set->name, "tokens") == 0, &f.windows,
                                    err);
    if (f.set != NULL && f.set->clicks)
        return tutti_data_clicks_open(out, rt, path, &f.clicks, err);
    if (f.set == NULL && is_file(rt, path, &tokens)) {
        tutti_options_default(tutti_data_text_options, &f.windows);
        return tutti_data_text_open(out, rt, path, tokens, &f.windows, err);
    }
    if (f.set != NULL && f.set->pictures)
        return tutti_data_pictures_open(out, rt, path, &f.pictures, err);
    TUTTI_TRY(open_cifar(out, rt, path, &f, err));
    if (*out != NULL)
        return TUTTI_OK;
    if (f.set == NULL && !tutti_data_is_idx(rt, path)) {
        TUTTI_TRY(name_what_it_is(rt, path, err));
        TUTTI_TRY(tutti_data_is_pictures(rt, path, &pictures, err));
        if (!pictures)
            return no_set(rt, path, err);
    }
    if (pictures) {
        tutti_options_default(tutti_data_pictures_options, &f.pictures);
        return tutti_data_pictures_open(out, rt, path, &f.pictures, err);
    }
    TUTTI_TRY(tutti_data_open(out, rt, path, err));
    tutti_data_distort_by(*out, &f.distortion);
    if (f.set != NULL)
        tutti_data_limit_classes(*out, f.set->classes);
    return TUTTI_OK;
}
