/* file.c: the family file: a graph from a text file, with weights, directions and several rounds if
   wanted (docs/TOPOLOGY.md has an example):

     # to the end of the line
     tutti-graph 4        first: the number of members
     round                begins a round; before the first it may be omitted
     0 -- 1 0.25          each takes 0.25 of the other's values
     2 -> 3 0.5           3 takes 0.5 of 2's
     2 keeps 0.5          a member's own weight: only checked, since it is what the member does not
                          give away

   All edges have weights or none. Without: a round in which all edges go both ways gets
   Metropolis-Hastings, another 1/(out-degree + 1) of the sender. A member keeps what it does not
   give away, so columns sum to 1 by construction. Whether rows do is for
   tutti_graph_require.

   Parser contract: a file is at most 16 MiB and is read as a whole. Lines have at most 255 bytes,
   none of them a control character. Members times rounds are at most 2^22. Memory is in proportion
   to the lines. Each refusal names the line and what would mend it. Edges are found by bisection,
   so a graph of many rounds and few edges is small. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology_internal.h"
#include "runtime/files.h"
#include "tutti/base.h"
#include "tutti/method/gossip.h"
#include "base/options.h"

enum { FILE_MAX = 16 << 20, LINE_MAX_BYTES = 255, PLACES_MAX = 1 << 22, WORDS = 5 };

typedef struct reader {
    const char *path;
    tutti_error *err;
    tutti_edges *edges;
    tutti_edge *keeps;      /* "I keeps W", from == to */
    uint32_t n_keeps, line;
    int n;
    bool begun, weighted, plain; /* the first line was there; an edge with a weight, without one */
} reader;

#define REFUSE(r, at, format, ...) \
    tutti_fail((r)->err, TUTTI_ERR_USAGE, 0, "%.200s:%u: " format, (r)->path, (unsigned)(at), \
               __VA_ARGS__)

/* ---- edges, sorted ---- */

static int by_taker(const void *one, const void *other)
{
    const tutti_edge *a = one, *b = other;
    if (a->round != b->round)
        return a->round < b->round ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

static int by_giver(const void *one, const void *other)
{
    const tutti_edge *a = one, *b = other;
    const tutti_edge turned_a = { .round = a->round, .to = a->from, .from = a->to },
                     turned_b = { .round = b->round, .to = b->from, .from = b->to };
    return by_taker(&turned_a, &turned_b);
}

/* The edges of member i in a round: *first .. *end of e->taken or e->given. */
static void find_edges(const tutti_edges *e, uint64_t k, int i, bool taken, uint32_t *first,
                       uint32_t *end)
{
    const tutti_edge least = { .round = (uint32_t)(k % e->rounds),
                               .to = taken ? i : -1,
                               .from = taken ? -1 : i };
    int (*const order)(const void *, const void *) = taken ? by_taker : by_giver;
    const tutti_edge *at = taken ? e->taken : e->given;
    uint32_t low = 0, high = e->count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (order(&at[middle], &least) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (*first = *end = low; *end < e->count && at[*end].round == least.round &&
                              (taken ? at[*end].to : at[*end].from) == i;)
        ++*end;
}

static uint32_t many(const tutti_edges *e, uint64_t k, int i, bool taken)
{
    uint32_t first, end;
    find_edges(e, k, i, taken, &first, &end);
    return end - first;
}

void tutti_edges_close(tutti_edges *e)
{
    if (e == NULL)
        return;
    tutti_free(e->taken);
    tutti_free(e->given);
    tutti_free(e);
}

/* ---- lines ---- */

static tutti_status read_number(const reader *r, const char *word, bool weight, void *out)
{
    const tutti_option member = { "member", TUTTI_INT, 0, 0, 0, r->n - 1, NULL, "" },
                       part = { "weight", TUTTI_REAL, 0, 0, 0, 1, NULL, "" };
    char where[256];

    snprintf(where, sizeof where, "%.200s:%u", r->path, (unsigned)r->line);
    return tutti_option_set(weight ? &part : &member, where, word, out, r->err);
}

static tutti_status read_head(reader *r, char **word, int words)
{
    const tutti_option members = {
        "tutti-graph", TUTTI_INT, 0, 0, 1, TUTTI_GRAPH_SIZE_MAX, NULL, ""
    };
    char where[256];
    int64_t n = 0;

    if (words != 2 || strcmp(word[0], "tutti-graph") != 0)
        return REFUSE(r, r->line,
                      "a graph file begins with 'tutti-graph %d', the number of members; this line "
                      "is '%.40s'",
                      r->n, word[0]);
    snprintf(where, sizeof where, "%.200s:%u", r->path, (unsigned)r->line);
    TUTTI_TRY(tutti_option_set(&members, where, word[1], &n, r->err));
    if (n != r->n)
        return REFUSE(r, r->line,
                      "the graph has %lld members and the run %d; one of them must change",
                      (long long)n, r->n);
    r->begun = true;
    return TUTTI_OK;
}

static tutti_status read_round(reader *r, int words, bool *begun)
{
    if (words != 1)
        return REFUSE(r, r->line, "'round' stands alone in its line; it has %d more word%s here",
                      words - 1, words > 2 ? "s" : "");
    if (*begun && (int64_t)++r->edges->rounds * r->n > PLACES_MAX)
        return REFUSE(r, r->line, "more than %d rounds; %d members may have that many",
                      PLACES_MAX / r->n, r->n);
    *begun = true;
    return TUTTI_OK;
}

static tutti_status read_edge(reader *r, char **word, int words)
{
    const uint32_t round = r->edges->rounds - 1;
    const bool keeps = strcmp(word[1], "keeps") == 0, both = strcmp(word[1], "--") == 0;
    int64_t from = 0, to = 0;
    double w = 0;

    TUTTI_TRY(read_number(r, word[0], false, &from));
    if (!keeps)
        TUTTI_TRY(read_number(r, word[2], false, &to));
    if (words == (keeps ? 3 : 4))
        TUTTI_TRY(read_number(r, word[words - 1], true, &w));
    if (keeps) {
        r->keeps[r->n_keeps++] = (tutti_edge){ round, (int)from, (int)from, r->line, w };
        return TUTTI_OK;
    }
    if (from == to)
        return REFUSE(r, r->line,
                      "an edge from member %lld to itself; its own weight is what it does not give "
                      "away, or '%lld keeps W'",
                      (long long)from, (long long)from);
    if (words == 4 && w == 0)
        return REFUSE(r, r->line, "an edge of weight 0; leave the line out%s", "");
    r->weighted = r->weighted || words == 4;
    r->plain = r->plain || words == 3;
    if (r->weighted && r->plain)
        return REFUSE(
            r, r->line,
            "this edge has %s weight and one before %s; give all of them weights, or none",
            words == 4 ? "a" : "no", words == 4 ? "has none" : "has one");
    r->edges->taken[r->edges->count++] = (tutti_edge){ round, (int)to, (int)from, r->line, w };
    if (both)
        r->edges->taken[r->edges->count++] = (tutti_edge){ round, (int)from, (int)to, r->line, w };
    return TUTTI_OK;
}

/* line: without its end, changed. */
static tutti_status read_line(reader *r, char *line, bool *round_begun)
{
    char *word[WORDS], *rest = line;
    int words = 0;

    line[strcspn(line, "#")] = '\0';
    for (char *next; words < WORDS && (next = strtok_r(rest, " \t", &rest)) != NULL;)
        word[words++] = next;
    if (words == 0)
        return TUTTI_OK;
    if (!r->begun)
        return read_head(r, word, words);
    if (strcmp(word[0], "round") == 0)
        return read_round(r, words, round_begun);
    if ((words == 3 || words == 4) && (strcmp(word[1], "--") == 0 || strcmp(word[1], "->") == 0)) {
        *round_begun = true;
        return read_edge(r, word, words);
    }
    if (words == 3 && strcmp(word[1], "keeps") == 0) {
        *round_begun = true;
        return read_edge(r, word, words);
    }
    return REFUSE(
        r, r->line,
        "'%.40s%s%.40s' is no line of a graph; there are 'round', 'I -- J', 'I -> J', each with a "
        "weight or without, and 'I keeps W'",
        word[0], words > 1 ? " " : "", words > 1 ? word[1] : "");
}

static tutti_status read_lines(reader *r, const char *text, size_t bytes)
{
    char line[LINE_MAX_BYTES + 1];
    bool round_begun = false;

    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
        const size_t next = at + length + (end != NULL);

        r->line++;
        length -= length > 0 && text[at + length - 1] == '\r';
        if (length > LINE_MAX_BYTES)
            return REFUSE(r, r->line, "a line of %zu bytes; at most %d", length, LINE_MAX_BYTES);
        for (size_t c = 0; c < length; c++)
            if (((unsigned char)text[at + c] < 0x20 && text[at + c] != '\t') ||
                text[at + c] == 0x7F)
                return REFUSE(r, r->line,
                              "byte %zu is a control character (%d); a graph file is plain text",
                              c + 1, text[at + c]);
        memcpy(line, text + at, length);
        line[length] = '\0';
        TUTTI_TRY(read_line(r, line, &round_begun));
        at = next;
    }
    if (!r->begun)
        return REFUSE(r, r->line + (r->line == 0),
                      "the file has no graph; it begins with 'tutti-graph %d'", r->n);
    return TUTTI_OK;
}

/* ---- the whole ---- */

static bool both_ways(const tutti_edges *e, uint32_t first, uint32_t end)
{
    for (uint32_t c = first; c < end; c++) {
        const tutti_edge back = { .round = e->taken[c].round,
                                  .to = e->taken[c].from,
                                  .from = e->taken[c].to };
        if (bsearch(&back, e->taken + first, end - first, sizeof back, by_taker) == NULL)
            return false;
    }
    return true;
}

/* Weights of a file that gives none; edges first .. end are a round's. */
static void weigh(tutti_edges *e, uint32_t first, uint32_t end)
{
    const bool undirected = both_ways(e, first, end);

    for (uint32_t c = first; c < end; c++) {
        tutti_edge *edge = &e->taken[c];
        const uint32_t giver = many(e, edge->round, edge->from, false),
                       taker = many(e, edge->round, edge->to, false);
        edge->w = 1.0 / (1 + (undirected && taker > giver ? taker : giver));
    }
}

static double given_away(const tutti_edges *e, uint64_t k, int i)
{
    uint32_t first, end;
    double sum = 0;

    find_edges(e, k, i, false, &first, &end);
    for (uint32_t c = first; c < end; c++)
        sum += e->given[c].w;
    return sum;
}

static tutti_status check_sums(const reader *r)
{
    const tutti_edges *e = r->edges;

    for (uint32_t c = 0; c < e->count; c++) {
        const tutti_edge *edge = &e->given[c];
        if (c + 1 < e->count && edge[1].round == edge->round && edge[1].from == edge->from)
            continue; /* once a member, at its last edge */
        if (given_away(e, edge->round, edge->from) > 1 + 1e-9)
            return REFUSE(
                r, edge->line,
                "in round %u member %d gives away %.9g of its values, and 1 is all there is "
                "(column %d of the weights); lower a weight of its edges",
                (unsigned)edge->round, edge->from, given_away(e, edge->round, edge->from),
                edge->from);
    }
    for (uint32_t c = 0; c < r->n_keeps; c++) {
        const tutti_edge *keep = &r->keeps[c];
        const double rest = 1 - given_away(e, keep->round, keep->from);
        if (fabs(keep->w - rest) > 1e-6)
            return REFUSE(r, keep->line,
                          "in round %u member %d keeps %.9g and gives away %.9g, which sums to "
                          "%.9g instead of 1 (column %d of the weights); without this line it "
                          "keeps %.9g",
                          (unsigned)keep->round, keep->from, keep->w, 1 - rest, keep->w + 1 - rest,
                          keep->from, rest);
    }
    return TUTTI_OK;
}

static tutti_status sort_edges(reader *r)
{
    tutti_edges *e = r->edges;

    qsort(e->taken, e->count, sizeof *e->taken, by_taker);
    for (uint32_t c = 1; c < e->count; c++)
        if (by_taker(&e->taken[c - 1], &e->taken[c]) == 0) {
            const uint32_t lines[2] = { e->taken[c - 1].line, e->taken[c].line };
            return REFUSE(
                r, lines[lines[1] > lines[0]],
                "in round %u member %d takes from member %d already (line %u); keep one of the two",
                (unsigned)e->taken[c].round, e->taken[c].to, e->taken[c].from,
                (unsigned)lines[lines[1] <= lines[0]]);
        }
    memcpy(e->given, e->taken, e->count * sizeof *e->given);
    qsort(e->given, e->count, sizeof *e->given, by_giver);
    if (!r->weighted) {
        for (uint32_t first = 0, end; first < e->count; first = end) {
            for (end = first; end < e->count && e->taken[end].round == e->taken[first].round;)
                end++;
            weigh(e, first, end);
        }
        memcpy(e->given, e->taken, e->count * sizeof *e->given);
        qsort(e->given, e->count, sizeof *e->given, by_giver);
    }
    for (uint32_t c = 0; c < e->count; c++) {
        const uint32_t in = many(e, e->taken[c].round, e->taken[c].to, true),
                       out = many(e, e->taken[c].round, e->taken[c].from, false);
        e->degree = (int)in > e->degree ? (int)in : e->degree;
        e->degree = (int)out > e->degree ? (int)out : e->degree;
    }
    return check_sums(r);
}

/* Counts the lines that may be an edge, or 'keeps'. */
static void count_lines(const char *text, size_t bytes, size_t *edges, size_t *keeps)
{
    bool edge = false, keep = false;
    for (size_t c = 0; c < bytes; c++) {
        edge = edge || text[c] == '-';
        keep = keep || text[c] == 'k';
        if (text[c] == '\n' || c + 1 == bytes) {
            *edges += edge;
            *keeps += keep;
            edge = keep = false;
        }
    }
}

tutti_status tutti_edges_parse(tutti_edges **out, const char *path, const char *text, size_t bytes,
                               int n, tutti_error *err)
{
    reader r = { .path = path, .err = err, .n = n, .edges = tutti_alloc(1, sizeof *r.edges) };
    tutti_status status = TUTTI_OK;
    size_t edges = 0, keeps = 0;

    *out = NULL;
    if (bytes > FILE_MAX)
        status =
            tutti_fail(err, TUTTI_ERR_USAGE, 0, "%.200s: a graph of %zu bytes; at most %d (16 MiB)",
                       path, bytes, FILE_MAX);
    if (status == TUTTI_OK)
        count_lines(text, bytes, &edges, &keeps);
    if (status == TUTTI_OK && r.edges != NULL) {
        r.edges->rounds = 1;
        r.edges->taken = tutti_alloc(2 * edges + 1, sizeof *r.edges->taken);
        r.edges->given = tutti_alloc(2 * edges + 1, sizeof *r.edges->given);
        r.keeps = tutti_alloc(keeps + 1, sizeof *r.keeps);
    }
    if (status == TUTTI_OK &&
        (r.edges == NULL || r.edges->taken == NULL || r.edges->given == NULL || r.keeps == NULL))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading graph '%.200s'", path);
    if (status == TUTTI_OK)
        status = read_lines(&r, text, bytes);
    if (status == TUTTI_OK)
        status = sort_edges(&r);
    tutti_free(r.keeps);
    if (status == TUTTI_OK)
        *out = r.edges;
    else
        tutti_edges_close(r.edges);
    return status;
}

static tutti_status read_file(tutti_graph *g, tutti_file *f, tutti_error *err)
{
    const uint64_t bytes = tutti_file_bytes(f);
    tutti_status status;
    char *text;

    if (bytes > FILE_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%.200s: a graph of %llu bytes; at most %d (16 MiB)", g->options.path,
                          (unsigned long long)bytes, FILE_MAX);
    text = tutti_alloc((size_t)bytes + 1, 1);
    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading graph '%.200s'", g->options.path);
    status = tutti_file_read(f, 0, text, (size_t)bytes, err);
    if (status == TUTTI_OK)
        status = tutti_edges_parse(&g->edges, g->options.path, text, (size_t)bytes, g->n, err);
    tutti_free(text);
    return status;
}

/* A runtime of its own: the file is input, read while the graph opens, like the spec that
   names it; under simulation as well. */
static tutti_status prepare(tutti_graph *g, tutti_error *err)
{
    tutti_runtime *rt;
    tutti_file *f = NULL;
    tutti_status status;

    if (g->options.path[0] == '\0')
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "graph 'file' needs a path: file(PATH)");
    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    status = tutti_file_open(&f, rt, g->options.path, TUTTI_FILE_READ, err);
    if (status == TUTTI_OK)
        status = read_file(g, f, err);
    if (status ==
        TUTTI_ERR_IO) /* a path that leads nowhere, or to a folder, is a spec that is wrong */
        status = tutti_fail_within(err, TUTTI_ERR_USAGE, "graph 'file'");
    tutti_file_close(f, NULL);
    tutti_runtime_close(rt);
    return status;
}

static uint64_t rounds(const tutti_graph *g)
{
    return g->edges->rounds;
}

static int degree(const tutti_graph *g)
{
    return g->edges->degree;
}

static void list_file(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    uint32_t first, end;

    find_edges(g->edges, k, i, sign < 0, &first, &end);
    for (uint32_t c = first; c < end; c++)
        tutti_graph_join_weighted(out, sign < 0 ? g->edges->taken[c].from : g->edges->given[c].to,
                                  sign < 0 ? g->edges->taken[c].w : g->edges->given[c].w);
    if (out->w != NULL && sign < 0)
        out->self = fmax(0, 1 - given_away(g->edges, k, i));
}

/* A member that keeps a part of its own in every round approaches the mean without ever reaching
   it. Otherwise members may just change places (two of them, each taking all of the other's),
   which the gap shows. */
tutti_status tutti_edges_check(const tutti_graph *g, tutti_error *err)
{
    double gap = 1;

    TUTTI_TRY(tutti_graph_require(g, "connected", err));
    for (uint32_t c = 0; c < g->edges->count; c++) {
        const tutti_edge *edge = &g->edges->given[c];
        if (1 - given_away(g->edges, edge->round, edge->from) > 1e-9)
            continue;
        TUTTI_TRY(tutti_fail_within(
            err, tutti_graph_gap(g, &gap, err),
            "in round %u member %d gives away all of its values, so more must be known",
            (unsigned)edge->round, edge->from));
        if (gap > 1e-9)
            return TUTTI_OK;
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%.200s: the members' values change places and never come closer; in "
                          "round %u member %d gives away all of its own: let it keep a part",
                          g->options.path, (unsigned)edge->round, edge->from);
    }
    return TUTTI_OK;
}

static const tutti_option file_options[] = {
    { "path", TUTTI_TEXT, TUTTI_AT(tutti_graph_options, path), 0, 0, 0, "",
      "a text file: 'tutti-graph N', then edges 'I -- J W' or 'I -> J W', 'round' between rounds" },
    { 0 }
};

const tutti_graph_rules tutti_graph_filed[] = {
    { .name = "file",
      .help = "edges and weights from a file; directed, in rounds",
      .options = file_options,
      .own = true,
      .directed = true,
      .prepare = prepare,
      .period = rounds,
      .degree = degree,
      .list = list_file },
    { 0 }
};
