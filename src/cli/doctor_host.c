/* doctor_host.c: what `tutti doctor` finds out about this host by itself: cores, memory, memory
   that processes share, names and the network. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "doctor_internal.h"
#include "base/errors.h"
#include "base/machine.h"
#include "runtime/names.h"

#define MIB ((uint64_t)1 << 20)
enum { NAME_SECONDS = 3 };

static void cores(tutti_findings *f)
{
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    const int mine = tutti_cores(), quota = tutti_machine_quota();

    if (mine >= all)
        tutti_finding_add(f, "cores", FINDING_WORKS, "", "%d, %s", mine,
                          tutti_cpu_name(tutti_cpu_best()));
    else
        tutti_finding_add(f, "cores", FINDING_WORKS, "", "%d of %ld, by %s; %s", mine, all,
                          quota <= mine ? "a limit of control groups" : "this process's affinity",
                          tutti_cpu_name(tutti_cpu_best()));
}

static void memory(tutti_findings *f)
{
    const uint64_t mine = tutti_machine_bytes(),
                   all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    tutti_finding_add(f, "memory", FINDING_WORKS, "", "%llu MiB%s",
                      (unsigned long long)(mine / MIB),
                      mine < all ? ", by a limit of control groups" : "");
}

/* The memory of the transport shm is made in this way (transport/shm/region.c). */
static void shared_memory(tutti_findings *f)
{
    enum { BYTES = 8 << 20 };
    void (*const was)(int) = signal(SIGXFSZ, SIG_IGN); /* a limit of files is an answer here */
    const int fd = memfd_create("tutti-doctor", MFD_CLOEXEC);
    int cause = fd < 0 ? errno : posix_fallocate(fd, 0, BYTES);
    void *at = MAP_FAILED;

    signal(SIGXFSZ, was);
    if (cause == 0) {
        at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        cause = at == MAP_FAILED ? errno : 0;
    }
    if (cause == 0)
        tutti_finding_add(f, "shared memory", FINDING_WORKS, "",
                          "memfd_create; workers of this host share it, and no file of /dev/shm");
    else
        tutti_finding_add(f, "shared memory", FINDING_FAILS,
                          "allow memfd_create, lift the limit of files (ulimit -f), or give the "
                          "process more memory; else --transport tcp",
                          "8 MiB by memfd_create, which the transport shm needs: %s",
                          tutti_errno_text(cause));
    if (at != MAP_FAILED)
        munmap(at, BYTES);
    if (fd >= 0)
        close(fd);
}

static void dev_shm(tutti_findings *f)
{
    static const char mend[] = "docker run --shm-size=2g, or mount -o remount,size=2g /dev/shm";
    struct statvfs about;
    uint64_t free_bytes;

    if (statvfs("/dev/shm", &about) != 0) {
        tutti_finding_add(
            f, "/dev/shm", FINDING_LIMITED, "mount -t tmpfs tmpfs /dev/shm",
            "there is none (%s); Tutti needs none, workers of a DataLoader, NCCL and MPI do",
            tutti_errno_text(errno));
        return;
    }
    free_bytes = (uint64_t)about.f_bavail * about.f_frsize;
    if (free_bytes < 256 * MIB)
        tutti_finding_add(
            f, "/dev/shm", FINDING_LIMITED, mend,
            "%llu MiB free of %llu; Tutti needs none, workers of a DataLoader, NCCL and MPI do",
            (unsigned long long)(free_bytes / MIB),
            (unsigned long long)((uint64_t)about.f_blocks * about.f_frsize / MIB));
    else
        tutti_finding_add(f, "/dev/shm", FINDING_WORKS, "", "%llu MiB free",
                          (unsigned long long)(free_bytes / MIB));
}

static void files(tutti_findings *f)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_max < 1024)
        tutti_finding_add(f, "open files", FINDING_LIMITED,
                          "raise the hard limit (ulimit -Hn, limits.conf)",
                          "%llu at most; over tcp a worker has a connection with each other",
                          (unsigned long long)limit.rlim_max);
    else
        tutti_finding_add(f, "open files", FINDING_WORKS, "", "%llu, and by itself up to %llu",
                          (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
}

/* Connects to a port of this host's own. Returns 0 or the cause of the failure. */
static int connected(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t bytes = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
              caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int cause = 0;

    if (listener < 0 || caller < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&at, &bytes) != 0 ||
        (connect(caller, (struct sockaddr *)&at, sizeof at) != 0 && errno != EINPROGRESS))
        cause = errno;
    if (listener >= 0)
        close(listener);
    if (caller >= 0)
        close(caller);
    return cause;
}

static void loopback(tutti_findings *f)
{
    const int cause = connected();

    if (cause == 0)
        tutti_finding_add(f, "loopback", FINDING_WORKS, "", "127.0.0.1 takes connections");
    else
        tutti_finding_add(f, "loopback", FINDING_FAILS, "ip link set lo up",
                          "no connection to 127.0.0.1, where workers of this host meet: %s",
                          tutti_errno_text(cause));
}

/* Names are those that other programs look up: Tutti takes `localhost` without asking. */
static void name_of(tutti_findings *f, const char *what, const char *name, const char *mend)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    char text[INET6_ADDRSTRLEN] = "";
    struct addrinfo *list = NULL;
    const char *const why =
        tutti_lookup_by(getaddrinfo, name, "0", &hints, NAME_SECONDS * INT64_C(1000000000), &list);

    if (why != NULL) {
        tutti_finding_add(
            f, what, FINDING_LIMITED, mend,
            "'%s' has no address (%s); Tutti asks for none, torchrun --standalone, Gloo and MPI do",
            name, why);
        return;
    }
    getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
    tutti_finding_add(f, what, FINDING_WORKS, "", "'%s' is %s", name, text);
    freeaddrinfo(list);
}

static void names(tutti_findings *f)
{
    char host[256] = "", mend[400];

    name_of(f, "localhost", "localhost", "echo '127.0.0.1 localhost' >> /etc/hosts");
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == 0)
        return;
    snprintf(mend, sizeof mend, "echo '127.0.1.1 %.200s' >> /etc/hosts, or GLOO_SOCKET_IFNAME=lo",
             host);
    name_of(f, "host name", host, mend);
}

static bool counts(const struct ifaddrs *i)
{
    return i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET &&
           (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0;
}

/* Megabits a second, as the driver says; 0: it does not. */
static int speed_of(const char *interface)
{
    char path[128];
    FILE *file;
    int speed = 0;

    snprintf(path, sizeof path, "/sys/class/net/%.60s/speed", interface);
    file = fopen(path, "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%d", &speed) != 1 || speed < 0)
        speed = 0;
    fclose(file);
    return speed;
}

static void network(tutti_findings *f)
{
    struct ifaddrs *list = NULL;
    int n = 0;

    if (getifaddrs(&list) != 0)
        list = NULL;
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        char text[INET6_ADDRSTRLEN] = "", speed[40] = "";
        if (!counts(i) || n++ >= 8)
            continue;
        getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), text, sizeof text, NULL, 0,
                    NI_NUMERICHOST);
        if (speed_of(i->ifa_name) > 0)
            snprintf(speed, sizeof speed, ", %d Mbit/s", speed_of(i->ifa_name));
        tutti_finding_add(f, "network", FINDING_WORKS, "", "%.40s is %s%s", i->ifa_name, text,
                          speed);
    }
    if (n == 0)
        tutti_finding_add(f, "network", FINDING_ABSENT, "",
                          "no interface but loopback: this host trains alone");
    if (list != NULL)
        freeifaddrs(list);
}

void tutti_doctor_host(tutti_findings *f)
{
    cores(f);
    memory(f);
    shared_memory(f);
    dev_shm(f);
    files(f);
    loopback(f);
    names(f);
    network(f);
}
