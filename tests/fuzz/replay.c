/* Runs files, or all files of a folder, through a fuzz target's function, without libFuzzer: every
   input that ever broke something stays a test. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data;
    long size;

    if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0) {
        perror(path);
        exit(1);
    }
    rewind(f);
    data = malloc((size_t)size + (size == 0)); /* exactly as long as the file: a read past the end is seen */
    if (data == NULL || fread(data, 1, (size_t)size, f) != (size_t)size) {
        perror(path);
        exit(1);
    }
    fclose(f);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    int files = 0;

    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        struct dirent *entry;
        if (dir == NULL) {
            files += replay(argv[i]);
            continue;
        }
        while ((entry = readdir(dir)) != NULL) {
            char path[4096];
            struct stat st;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
                files += replay(path);
        }
        closedir(dir);
    }
    printf("%d inputs replayed\n", files);
    return files > 0 ? 0 : 1; /* an empty corpus proves nothing */
}
