/* registry.c: the table of built-in transports, a line each (tests/transport compares it with the
   folders), and the loading of plug-ins (transport.h). Plug-ins are shared objects. They are
   searched for by name where this library or the running program is installed, never in the working
   directory or a search path. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>
#include "transport_internal.h"
#include "registry.h"

const tutti_transport_ops *const tutti_transports[] = {
    &tutti_transport_shm,
    &tutti_transport_tcp,
    NULL,
};

const tutti_transport_ops *tutti_transport_find(const char *name)
{
    for (size_t i = 0; tutti_transports[i] != NULL; i++) {
        if (strcmp(tutti_transports[i]->name, name) == 0)
            return tutti_transports[i];
    }
    return NULL;
}

/* Letters, digits, '_' and '-': nothing that leads out of the folder. */
static bool is_plain(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const size_t length = strlen(name);

    return length > 0 && length <= 64 && strspn(name, plain) == length;
}

/* Where plug-ins are installed, as seen from the folder of the command: "/../lib", or
   "/../lib/x86_64-linux-gnu" and the like (src/transport/CMakeLists.txt). */
#ifndef TUTTI_LIBRARIES_FROM_COMMAND
#define TUTTI_LIBRARIES_FROM_COMMAND "/../lib"
#endif
/* Their folder below that of the libraries: "", or "/tutti-0.3" and the like, so that packages of
   two versions can be installed side by side. */
#ifndef TUTTI_PLUGINS
#define TUTTI_PLUGINS ""
#endif

/* Cuts an absolute path to its folder. False for any other: it is relative to a working
   directory that may have changed since. */
static bool folder_of(char *path)
{
    char *slash = strrchr(path, '/');

    if (path[0] != '/')
        return false;
    *slash = '\0';
    return true;
}

static bool folder_of_program(char *folder, size_t bytes)
{
    const ssize_t length = readlink("/proc/self/exe", folder, bytes - 1);

    if (length < 0)
        return false;
    folder[length] = '\0';
    return folder_of(folder);
}

/* The folder of the file this code is in: libtutti.so, or the program that links it. What the
   loader calls a program is argv[0], usually a name without a path, so the folder of a program is
   found by other means. */
static bool folder_of_this(char *folder, size_t bytes)
{
    Dl_info about, program;

    /* The table is an address of this file; a function's would be cast against the standard. */
    if (dladdr(tutti_transports, &about) == 0)
        return false;
    if (dladdr((const void *)getauxval(AT_ENTRY), &program) != 0 &&
        program.dli_fbase == about.dli_fbase)
        return folder_of_program(folder, bytes);
    if (about.dli_fname == NULL || strlen(about.dli_fname) >= bytes)
        return false;
    strcpy(folder, about.dli_fname);
    return folder_of(folder);
}

/* place 0: from the folder of the file this code is in; 1: from the running executable, to where
   the install puts libraries; 2: ../lib relative to it, as in a build tree. */
enum { PLACE_INSTALLED = 1, PLACES = 3 };
static bool path_at(int place, const char *name, char *path, size_t bytes)
{
    static const char *const from_folder[PLACES] = { TUTTI_PLUGINS,
                                                     TUTTI_LIBRARIES_FROM_COMMAND TUTTI_PLUGINS,
                                                     "/../lib" };
    char folder[3800];

    if (place == 0 ? !folder_of_this(folder, sizeof folder)
                   : !folder_of_program(folder, sizeof folder))
        return false;
    return snprintf(path, bytes, "%s%s/libtutti_transport_%s.so", folder, from_folder[place],
                    name) < (int)bytes;
}

/* Of a plug-in that dlopen() refused, in its words: is it for a library that this machine lacks?
   Copies the library's name. */
static bool lacks_library(const char *why, const char *path, char *library, size_t bytes)
{
    const char *end = strstr(why, ": cannot open shared object file: No such file");

    if (end == NULL || strncmp(why, path, strlen(path)) == 0)
        return false;
    snprintf(library, bytes, "%.*s", (int)(end - why), why);
    return true;
}

tutti_status tutti_transport_load(const char *name, const tutti_transport_ops **out, char *tried,
                                  size_t bytes, tutti_error *err)
{
    char path[4096], expected[4096] = "", whose[260], library[200];

    if (tried != NULL && bytes > 0)
        tried[0] = '\0';
    *out = tutti_transport_find(name);
    if (*out != NULL)
        return TUTTI_OK;
    for (int place = 0; place < PLACES && is_plain(name); place++) {
        const tutti_transport_ops *ops;
        void *file;
        if (!path_at(place, name, path, sizeof path))
            continue;
        if (access(path, F_OK) != 0) {
            if (place <= PLACE_INSTALLED)
                strcpy(expected, path);
            continue;
        }
        /* NODELETE: what it has started (SimGrid's engine) ends with the process only. */
        file = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (file == NULL) {
            const char *why = dlerror();
            if (why != NULL && lacks_library(why, path, library, sizeof library)) {
                tutti_fail(err, TUTTI_ERR_USAGE, 0,
                           "the transport '%s' needs %s, which this machine has not; `tutti "
                           "doctor` tells how to get it",
                           name, library);
                if (err != NULL)
                    err->cause = ENOENT; /* tutti_fail would add its words */
                return TUTTI_ERR_USAGE;
            }
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "the transport '%s' cannot be loaded: %.380s", name,
                              why != NULL ? why : path);
        }
        ops = dlsym(file, "tutti_transport_plugin");
        if (ops == NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "'%.300s' is no transport of Tutti's: it exports no "
                              "tutti_transport_plugin; reinstall it",
                              path);
        snprintf(whose, sizeof whose, "'%.250s'", path);
        TUTTI_TRY(tutti_transport_check(ops, whose, err));
        *out = ops;
        return TUTTI_OK;
    }
    if (tried != NULL && bytes > 0)
        snprintf(tried, bytes, "%s", expected);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "no transport is named '%.80s', and there is no plug-in '%.300s'", name,
                      expected);
}
