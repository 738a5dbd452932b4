/* tcp_limit.c: what two hosts can do over one plain TCP connection. It is the bound of the tcp
   transport, by the system's calls and nothing else: no frames, no hashes, no matching, no sum.

     exchange   each end sends BYTES and receives BYTES at once, as a sum of two does in all. Timed
                as `tutti bench allreduce` times: a barrier, the exchange, the maximum of both
                ends; median and 99th percentile. Small ones run on what the line's token bucket
                has saved up, as all programs' do
     goodput    bytes a second of one long stream, one way: what the line carries in the long run

   Both ends poll, which costs each a core and gives the least latency. They send in pieces and
   receive between them. With one call that sends as much as fits, received data would wait (then
   a MiB each way took 456 us, and the tcp transport 337).

   usage: tcp_limit RANK ADDRESS PORT SIZES SECONDS
   RANK 0 listens and prints: exchange BYTES MEDIAN_US P99_US CALLS for each size, then goodput
   BYTES_PER_SECOND. RANK 1 connects to ADDRESS. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LEAST = 7, MOST = 5000, PIECE = 128 << 10, STREAM_PIECE = 1 << 20 };

static void stop(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int join(int rank, const char *address, int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    const int on = 1, listening = rank == 0 ? socket(AF_INET, SOCK_STREAM, 0) : -1;
    int fd = -1;

    if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
        stop("address");
    if (rank == 0) {
        if (listening < 0 || setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
            bind(listening, (struct sockaddr *)&at, sizeof at) != 0 || listen(listening, 1) != 0)
            stop("listening");
        fd = accept(listening, NULL, NULL);
        close(listening);
    }
    for (int tries = 0; rank != 0 && tries < 500; tries++) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
            break;
        close(fd);
        fd = -1;
        usleep(20000);
    }
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        stop("connecting");
    return fd;
}

/* How many bytes the call moved; 0: the kernel has no buffer space, or no data. */
static size_t moved(ssize_t n, const char *doing)
{
    if (n > 0)
        return (size_t)n;
    if (n == 0)
        exit(1); /* the other end has ended and reported why */
    if (errno != EAGAIN && errno != EINTR)
        stop(doing);
    return 0;
}

static void exchange(int fd, const char *out, char *in, size_t out_bytes, size_t in_bytes)
{
    while (out_bytes > 0 || in_bytes > 0) {
        const size_t sent =
            out_bytes > 0
                ? moved(send(fd, out, out_bytes < PIECE ? out_bytes : PIECE, MSG_DONTWAIT | MSG_NOSIGNAL), "sending")
                : 0;
        const size_t received = in_bytes > 0 ? moved(recv(fd, in, in_bytes, MSG_DONTWAIT), "receiving") : 0;
        out += sent;
        out_bytes -= sent;
        in += received;
        in_bytes -= received;
    }
}

static double one_call(int fd, char *out, char *in, size_t bytes)
{
    char mine = 0, theirs;
    double begin;

    exchange(fd, &mine, &theirs, 1, 1);
    begin = now();
    exchange(fd, out, in, bytes, bytes);
    return 1e6 * (now() - begin);
}

static void measure(int fd, int rank, size_t bytes, double seconds)
{
    static double mine[MOST], theirs[MOST];
    char *out = malloc(bytes), *in = malloc(bytes);
    double first[3], calls, peers;
    size_t count;

    if (out == NULL || in == NULL)
        stop("memory");
    memset(out, rank + 1, bytes);
    memset(in, 0, bytes);
    for (int i = 0; i < 3; i++)
        first[i] = one_call(fd, out, in, bytes);
    if (in[0] != 2 - rank || in[bytes - 1] != 2 - rank)
        exit(1);
    qsort(first, 3, sizeof *first, compare);
    calls = seconds * 1e6 / (first[1] + 1);
    exchange(fd, (const char *)&calls, (char *)&peers, sizeof calls, sizeof peers);
    calls = calls < peers ? calls : peers;
    count = calls < LEAST ? LEAST : calls > MOST ? MOST : (size_t)calls;
    for (size_t i = 0; i < count; i++)
        mine[i] = one_call(fd, out, in, bytes);
    exchange(fd, (const char *)mine, (char *)theirs, count * sizeof *mine, count * sizeof *mine);
    for (size_t i = 0; i < count; i++)
        mine[i] = mine[i] > theirs[i] ? mine[i] : theirs[i];
    qsort(mine, count, sizeof *mine, compare);
    if (rank == 0) {
        printf("exchange %zu %.4f %.4f %zu\n", bytes, (mine[(count - 1) / 2] + mine[count / 2]) / 2,
               mine[(99 * count + 99) / 100 - 1], count);
        fflush(stdout);
    }
    free(out);
    free(in);
}

/* Rank 1 sends for so long; rank 0 counts what comes after the first tenth: slow start and the
   bucket's savings are behind it then. */
static void stream(int fd, int rank, double seconds)
{
    char *piece = calloc(1, STREAM_PIECE);
    const double begin = now();
    double at = begin, from = 0, counted = 0;

    if (piece == NULL)
        stop("memory");
    if (rank == 1) {
        for (; at - begin < seconds; at = now())
            exchange(fd, piece, NULL, STREAM_PIECE, 0);
        shutdown(fd, SHUT_WR);
        while (recv(fd, piece, 1, 0) > 0)
            continue;
    }
    while (rank == 0) {
        const ssize_t n = recv(fd, piece, STREAM_PIECE, 0);
        if (n <= 0)
            break;
        if (now() - begin < seconds / 10)
            continue;
        counted += from > 0 ? (double)n : 0;
        at = now();
        from = from > 0 ? from : at;
    }
    if (rank == 0)
        printf("goodput %.0f\n", at > from ? counted / (at - from) : 0);
    free(piece);
}

int main(int argc, char **argv)
{
    char *rest = NULL;
    int rank, fd;
    double seconds;

    if (argc != 6)
        return 2;
    rank = atoi(argv[1]);
    seconds = atof(argv[5]);
    fd = join(rank, argv[2], atoi(argv[3]));
    for (char *word = strtok_r(argv[4], ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
        measure(fd, rank, strtoul(word, NULL, 10), seconds);
    stream(fd, rank, seconds < 1 ? 1 : seconds);
    close(fd);
    return 0;
}
