/* platform.c: writes the shapes of clusters that papers use as SimGrid platforms (platform.h).

   Every shape is a tree: hosts are leaves, switches are inner nodes, and an edge is two SHARED
   links, one for each direction. (One SPLITDUPLEX link would do, but with a failure profile SimGrid
   3.32 aborts on it.) The file has routes between neighbours only, so its size grows with the
   number of hosts, not of pairs. The zone computes the others (DijkstraCache: 1,024 hosts load in
   10 ms, and the routes of a host take 0.4 ms once; the time of Floyd grows with the cube of the
   hosts). Each host has its own loopback link, for workers that share it.

   `latency` and `rate` of a spec are those between two hosts, not those of a link: a link has half
   of the latency, and links above a machine have what remains beyond the machine's own network. */
#include "platform/platform.h"
#include "base/numbers.h"
#include "base/options.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HOSTS_MAX = 16384, PROFILE_PERIODS = 64 };

typedef struct values {
    int64_t n, machines, per_machine, worker, seed;
    double factor, share;
    const char *rate, *latency, *speed, *inner_rate, *inner_latency, *period, *slow_rate,
        *slow_latency, *slow_speed;
} values;

typedef struct node {
    int64_t up;                   /* the switch above; -1: none */
    double rate, latency, speed;  /* of each of the links to it: bit/s, s; flop/s, 0: a switch */
} node;
typedef struct tree {
    node *nodes;
    int64_t n, hosts;
    double period; /* of the profiles of slow times; 0: none */
} tree;

#define AT(member) TUTTI_AT(values, member)
#define WORKERS { "n", TUTTI_INT, AT(n), 8, 1, HOSTS_MAX, NULL, "hosts" }
#define RATE(value) \
    { \
        "rate", TUTTI_TEXT, AT(rate), 0, 0, 0, value, \
            "of a host's link in each direction: bps, kbps, Mbps, Gbps" \
    }
#define LATENCY(value) \
    { \
        "latency", TUTTI_TEXT, AT(latency), 0, 0, 0, value, "from host to host: ns, us, ms, s" \
    }
#define SPEED \
    { \
        "speed", TUTTI_TEXT, AT(speed), 0, 0, 0, "50Gf", \
            "of a host, floating-point operations a second: f, kf, Mf, Gf, Tf" \
    }
#define SEED(of) { "seed", TUTTI_INT, AT(seed), 0, 0, 9007199254740992.0, NULL, of }
#define FACTOR { "factor", TUTTI_REAL, AT(factor), 5, 1, 1e6, NULL, "how many times slower" }

static const tutti_option cluster_options[] = {
    WORKERS, RATE("10Gbps"), LATENCY("50us"), SPEED, { 0 }
};
static const tutti_option straggler_options[] = {
    WORKERS,
    FACTOR,
    { "worker", TUTTI_INT, AT(worker), 0, 0, HOSTS_MAX - 1, NULL, "the slow one" },
    RATE("10Gbps"),
    LATENCY("50us"),
    SPEED,
    { 0 }
};
static const tutti_option random_options[] = {
    WORKERS,
    FACTOR,
    { "share", TUTTI_REAL, AT(share), 0.125, 0, 1, NULL, "of the time that a host is slow" },
    { "period", TUTTI_TEXT, AT(period), 0, 0, 0, "1s",
      "how long a host is slow or not before it is drawn again: ns, us, ms, s" },
    SEED("of the slow times"),
    RATE("10Gbps"),
    LATENCY("50us"),
    SPEED,
    { 0 }
};
#define GROUPS(many, few, rate_of, latency_of, inner) \
    { "machines", TUTTI_INT, AT(machines), 4, 1, HOSTS_MAX, NULL, many }, \
        { "per_machine", TUTTI_INT, AT(per_machine), 4, 1, HOSTS_MAX, NULL, few }, \
        { "rate", \
          TUTTI_TEXT, \
          AT(rate), \
          0, \
          0, \
          0, \
          rate_of, \
          "that the hosts of one share to the others, in each direction: bps, kbps, Mbps, Gbps" }, \
        { "latency",   TUTTI_TEXT, \
          AT(latency), 0, \
          0,           0, \
          latency_of,  "from a host of one to a host of another: ns, us, ms, s" }, \
        { "inner_rate", \
          TUTTI_TEXT, \
          AT(inner_rate), \
          0, \
          0, \
          0, \
          inner, \
          "of a host's own link: bps, kbps, Mbps, Gbps" }, \
        { "inner_latency", \
          TUTTI_TEXT, \
          AT(inner_latency), \
          0, \
          0, \
          0, \
          "5us", \
          "between hosts of one; at most `latency`: ns, us, ms, s" }, \
        SPEED, \
    { \
        0 \
    }
static const tutti_option two_level_options[] = { GROUPS("machines", "hosts (accelerators) of each",
                                                         "10Gbps", "50us", "200Gbps") };
static const tutti_option wan_options[] = { GROUPS("data centres", "hosts of each", "100Mbps",
                                                   "50ms", "10Gbps") };
static const tutti_option edge_options[] = {
    { "n", TUTTI_INT, AT(n), 32, 1, HOSTS_MAX, NULL,
      "hosts; each has values drawn evenly on a logarithmic scale" },
    { "slow_rate", TUTTI_TEXT, AT(slow_rate), 0, 0, 0, "5Mbps",
      "of the slowest links: bps, kbps, Mbps, Gbps" },
    RATE("200Mbps"),
    { "slow_latency", TUTTI_TEXT, AT(slow_latency), 0, 0, 0, "60ms",
      "between hosts with the slowest links: ns, us, ms, s" },
    LATENCY("5ms"),
    { "slow_speed", TUTTI_TEXT, AT(slow_speed), 0, 0, 0, "2Gf",
      "of the slowest hosts: f, kf, Mf, Gf, Tf" },
    SPEED,
    SEED("of the draws"),
    { 0 }
};

/* ---- "10Gbps", "50us", "2.5Gf" ---- */

typedef enum { BITS, SECONDS, FLOPS } unit;

static tutti_status read_value(const char *name, const char *text, unit kind, double *value,
                               tutti_error *err)
{
    static const struct { const char *name; double factor; } units[3][6] = {
        { { "bps", 1 }, { "kbps", 1e3 }, { "Mbps", 1e6 }, { "Gbps", 1e9 }, { "Tbps", 1e12 } },
        { { "ns", 1e-9 }, { "us", 1e-6 }, { "ms", 1e-3 }, { "s", 1 } },
        { { "f", 1 }, { "kf", 1e3 }, { "Mf", 1e6 }, { "Gf", 1e9 }, { "Tf", 1e12 } },
    };
    static const char *const wanted[3] = {
        "a number with bps, kbps, Mbps, Gbps or Tbps (bits a second), from 1bps to 1000Tbps",
        "a number with ns, us, ms or s, from 0s to 1000s",
        "a number with f, kf, Mf, Gf or Tf (floating-point operations a second), from 1f to 1000Tf"
    };
    const size_t digits = strspn(text, "0123456789.");
    const char *end;

    *value = 0;
    if (tutti_number_begins(text, value, &end) && end == text + digits)
        for (size_t i = 0; units[kind][i].name != NULL; i++)
            if (strcmp(end, units[kind][i].name) == 0) {
                *value *= units[kind][i].factor;
                if (kind == SECONDS ? *value <= 1000 : *value >= 1 && *value <= 1e15)
                    return TUTTI_OK;
            }
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s is '%.60s'; write %s", name, text, wanted[kind]);
}

/* ---- shapes: leaves first, so that host i is node i ---- */

static tutti_status star(const values *v, tree *t, tutti_error *err)
{
    double rate, latency, speed;

    TUTTI_TRY(read_value("rate", v->rate, BITS, &rate, err));
    TUTTI_TRY(read_value("latency", v->latency, SECONDS, &latency, err));
    TUTTI_TRY(read_value("speed", v->speed, FLOPS, &speed, err));
    t->hosts = v->n;
    t->n = v->n + 1;
    for (int64_t i = 0; i < v->n; i++)
        t->nodes[i] = (node){ v->n, rate, latency / 2, speed };
    t->nodes[v->n] = (node){ .up = -1 };
    return TUTTI_OK;
}

static tutti_status straggler(const values *v, tree *t, tutti_error *err)
{
    TUTTI_TRY(star(v, t, err));
    if (v->worker >= v->n)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "worker is %lld, but the %lld hosts are 0 to %lld", (long long)v->worker,
                          (long long)v->n, (long long)v->n - 1);
    t->nodes[v->worker].speed /= v->factor;
    return TUTTI_OK;
}

static tutti_status random_stragglers(const values *v, tree *t, tutti_error *err)
{
    TUTTI_TRY(star(v, t, err));
    TUTTI_TRY(read_value("period", v->period, SECONDS, &t->period, err));
    return t->period >= 1e-6 ? TUTTI_OK
                             : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                          "period is '%.60s'; it must be at least 1us", v->period);
}

static tutti_status groups(const values *v, tree *t, tutti_error *err)
{
    double rate, latency, inner_rate, inner_latency, speed;
    const int64_t hosts = v->machines * v->per_machine;

    if (hosts > HOSTS_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "machines x per_machine is %lld hosts; at most %d are possible",
                          (long long)hosts, HOSTS_MAX);
    TUTTI_TRY(read_value("rate", v->rate, BITS, &rate, err));
    TUTTI_TRY(read_value("latency", v->latency, SECONDS, &latency, err));
    TUTTI_TRY(read_value("inner_rate", v->inner_rate, BITS, &inner_rate, err));
    TUTTI_TRY(read_value("inner_latency", v->inner_latency, SECONDS, &inner_latency, err));
    TUTTI_TRY(read_value("speed", v->speed, FLOPS, &speed, err));
    if (latency < inner_latency)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "latency is '%.60s' but inner_latency '%.60s': the way out leads through "
                          "the inner network; raise the one or lower the other",
                          v->latency, v->inner_latency);
    t->hosts = hosts;
    t->n = hosts + v->machines + 1;
    for (int64_t i = 0; i < hosts; i++)
        t->nodes[i] = (node){ hosts + i / v->per_machine, inner_rate, inner_latency / 2, speed };
    for (int64_t i = hosts; i < t->n - 1; i++)
        t->nodes[i] = (node){ t->n - 1, rate, (latency - inner_latency) / 2, 0 };
    t->nodes[t->n - 1] = (node){ .up = -1 };
    return TUTTI_OK;
}

static double between(double a, double b, tutti_rng rng, uint64_t index)
{
    char text[32];

    /* where one libm's last bit may not show */
    snprintf(text, sizeof text, "%.4g", a * pow(b / a, tutti_uniform(rng, index)));
    return strtod(text, NULL);
}

static tutti_status edge(const values *v, tree *t, tutti_error *err)
{
    const tutti_rng rng = { (uint64_t)v->seed, 0x65646765, 0 };
    double rate, latency, speed;

    TUTTI_TRY(star(v, t, err));
    TUTTI_TRY(read_value("slow_rate", v->slow_rate, BITS, &rate, err));
    TUTTI_TRY(read_value("slow_latency", v->slow_latency, SECONDS, &latency, err));
    TUTTI_TRY(read_value("slow_speed", v->slow_speed, FLOPS, &speed, err));
    if (rate > t->nodes[0].rate || latency / 2 < t->nodes[0].latency || speed > t->nodes[0].speed ||
        t->nodes[0].latency == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the slowest hosts would be the fastest: slow_rate %.40s, rate %.40s; "
                          "slow_latency %.40s, latency %.40s (above 0); slow_speed %.40s, speed "
                          "%.40s",
                          v->slow_rate, v->rate, v->slow_latency, v->latency, v->slow_speed,
                          v->speed);
    for (int64_t i = 0; i < t->hosts; i++) {
        node *host = &t->nodes[i];
        host->rate = between(rate, host->rate, rng, 3 * (uint64_t)i);
        host->latency = between(latency / 2, host->latency, rng, 3 * (uint64_t)i + 1);
        host->speed = between(speed, host->speed, rng, 3 * (uint64_t)i + 2);
    }
    return TUTTI_OK;
}

typedef struct shape {
    const char *name, *title;
    const tutti_option *options;
    tutti_status (*build)(const values *v, tree *t, tutti_error *err);
} shape;
static const shape shapes[] = {
    { "cluster", "equal hosts on one switch", cluster_options, star },
    { "two-level", "machines with several hosts each: a fast network inside, a slower one between",
      two_level_options, groups },
    { "straggler", "a cluster with one slow host", straggler_options, straggler },
    { "random-stragglers",
      "a cluster in which now this host is slow and now that; the draws repeat after 64 periods",
      random_options, random_stragglers },
    { "wan", "data centres far apart", wan_options, groups },
    { "edge", "hosts of mixed speeds on mixed links", edge_options, edge },
};

/* ---- XML ---- */

static void print_number(FILE *out, const char *before, double value, const char *after)
{
    /* 12 digits: halves and quotients of what people write come out as they would write them */
    fprintf(out, "%s%.12g%s", before, value, after);
}

static void node_name(const tree *t, int64_t i, char name[32])
{
    /* written for its leading 1, whose place the letter takes: SimGrid sorts hosts by
       name, and zeros make that order ours */
    int64_t power = 10;

    while (power < t->hosts)
        power *= 10;
    if (i < t->hosts) {
        snprintf(name, 32, "%lld", (long long)(power + i));
        name[0] = 'w';
    } else {
        snprintf(name, 32, "s%lld", (long long)(i - t->hosts));
    }
}

static void print_profile(FILE *out, const values *v, const tree *t, int64_t host, const char *name)
{
    const tutti_rng rng = { (uint64_t)v->seed, 0x736c6f77, (uint64_t)host };

    fprintf(out, "    <trace id=\"%s_speed\"", name);
    print_number(out, " periodicity=\"", t->period * PROFILE_PERIODS, "\">\n");
    for (int k = 0; k < PROFILE_PERIODS; k++) {
        print_number(out, "      ", k * t->period, "");
        print_number(out, " ", tutti_uniform(rng, (uint64_t)k) < v->share ? 1 / v->factor : 1,
                     "\n");
    }
    fprintf(out,
            "    </trace>\n    <trace_connect kind=\"SPEED\" trace=\"%s_speed\" element=\"%s\"/>\n",
            name, name);
}

static void print_tree(FILE *out, const values *v, const tree *t, const char *spec)
{
    char name[32], above[32];

    fprintf(
        out,
        "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
        "<!-- tutti platform '%s' -->\n<platform version=\"4.1\">\n  <zone id=\"all\" "
        "routing=\"DijkstraCache\">\n",
        spec);
    for (int64_t i = 0; i < t->n; i++) {
        node_name(t, i, name);
        if (i < t->hosts) {
            fprintf(out, "    <host id=\"%s\"", name);
            print_number(out, " speed=\"", t->nodes[i].speed, "f\"/>\n");
        } else
            fprintf(out, "    <router id=\"%s\"/>\n", name);
    }
    fprintf(out, "    <link id=\"loopback\" bandwidth=\"80Gbps\" latency=\"0s\" "
                 "sharing_policy=\"FATPIPE\"/>\n");
    for (int64_t i = 0; i < t->n - 1; i++)
        for (int down = 0; down < 2; down++) {
            node_name(t, i, name);
            fprintf(out, "    <link id=\"%s_%s\"", name, down ? "down" : "up");
            print_number(out, " bandwidth=\"", t->nodes[i].rate, "bps\"");
            print_number(out, " latency=\"", t->nodes[i].latency,
                         "s\" sharing_policy=\"SHARED\"/>\n");
        }
    for (int64_t i = 0; i < t->n - 1; i++) {
        node_name(t, i, name);
        node_name(t, t->nodes[i].up, above);
        if (i < t->hosts)
            fprintf(out,
                    "    <route src=\"%s\" dst=\"%s\" symmetrical=\"NO\"><link_ctn "
                    "id=\"loopback\"/></route>\n",
                    name, name);
        fprintf(out,
                "    <route src=\"%s\" dst=\"%s\" symmetrical=\"NO\"><link_ctn "
                "id=\"%s_up\"/></route>\n",
                name, above, name);
        fprintf(out,
                "    <route src=\"%s\" dst=\"%s\" symmetrical=\"NO\"><link_ctn "
                "id=\"%s_down\"/></route>\n",
                above, name, name);
    }
    for (int64_t i = 0; t->period > 0 && i < t->hosts; i++) {
        node_name(t, i, name);
        print_profile(out, v, t, i, name);
    }
    fprintf(out, "  </zone>\n</platform>\n");
}

/* ---- public functions ---- */

bool tutti_platform_shape(int i, const char **name, const char **title,
                          const tutti_option **options)
{
    if (i < 0 || (size_t)i >= TUTTI_LENGTH(shapes))
        return false;
    *name = shapes[i].name;
    *title = shapes[i].title;
    *options = shapes[i].options;
    return true;
}

static tutti_status find_shape(const char *name, const shape **of, tutti_error *err)
{
    const char *names[TUTTI_LENGTH(shapes)];
    char near[160], all[200] = "";
    size_t used = 0;

    for (size_t i = 0; i < TUTTI_LENGTH(shapes); i++) {
        names[i] = shapes[i].name;
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i == 0 ? "" : ", ",
                                     names[i]);
        if (strcmp(names[i], name) == 0) {
            *of = &shapes[i];
            return TUTTI_OK;
        }
    }
    tutti_suggest(name, names, TUTTI_LENGTH(names), near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "there is no platform '%.60s'%s; platforms are %s",
                      name, near, all);
}

tutti_status tutti_platform_print(FILE *out, const char *text, tutti_error *err)
{
    const shape *of = NULL;
    char what[48], canonical[2048];
    values v = { 0 };
    tree t = { 0 };
    tutti_spec *spec;
    tutti_status status = tutti_spec_open(&spec, text, err);

    if (status == TUTTI_OK)
        status = find_shape(tutti_spec_name(spec), &of, err);
    if (status == TUTTI_OK) {
        snprintf(what, sizeof what, "platform '%s'", of->name);
        status = tutti_spec_apply(spec, what, of->options, &v, err);
    }
    if (status == TUTTI_OK && (t.nodes = tutti_alloc(2 * HOSTS_MAX + 1, sizeof *t.nodes)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "making %s", what);
    if (status == TUTTI_OK)
        status = tutti_fail_within(err, of->build(&v, &t, err), "%s", what);
    if (status == TUTTI_OK) {
        tutti_spec_print(of->name, of->options, &v, canonical, sizeof canonical);
        print_tree(out, &v, &t, canonical);
        if (ferror(out))
            status = tutti_fail(err, TUTTI_ERR_IO, 0, "writing %s; is the disk full?", what);
    }
    tutti_free(t.nodes);
    tutti_spec_close(spec);
    return status;
}
