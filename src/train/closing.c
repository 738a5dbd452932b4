/* closing.c: prints the summary of a successful run: the quality of the model, the parts of the
   time, the bytes sent, and where the model is. summary.json contains all of it. */
#include <math.h>
#include <string.h>

#include "say.h"
#include "train_internal.h"
#include "collective/world.h"

static void row(const tutti_run *run, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void row(const tutti_run *run, const char *name, const char *format, ...)
{
    char text[4200];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tutti_train_say(run, 0, "  %-30s%s", name, text);
}

/* Returns 1234567 as "1,234,567". */
typedef struct {
    char text[32];
} with_commas;
static with_commas commas(uint64_t n)
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    with_commas out;
    int used = 0;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            out.text[used++] = ',';
        out.text[used++] = digits[i];
    }
    out.text[used] = 0;
    return out;
}

/* Returns 1690000000 as "1.69 GB". */
typedef struct {
    char text[32];
} with_unit;
static with_unit amount(double bytes)
{
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB" };
    size_t k = 0;
    with_unit out;

    for (; k + 1 < TUTTI_LENGTH(units) && bytes >= 999.5; k++)
        bytes *= 1e-3;
    snprintf(out.text, sizeof out.text, "%.*f %s",
             k == 0 || bytes >= 99.95 ? 0
             : bytes >= 9.995         ? 1
                                      : 2,
             bytes, units[k]);
    return out;
}

static void say_quality(const tutti_run *run)
{
    const tutti_data_shape *shape = tutti_data_shape_of(run->data);
    char bits[40] = "";

    if (run->config->final_eval == TUTTI_FINAL_EVAL_OFF)
        return;
    if (run->test_accuracy < 0)
        row(run, "test loss above the optimum", "%.6g", run->test_loss);
    else if (shape->context > 0) {
        if (shape->classes == 256) /* tokens are bytes */
            snprintf(bits, sizeof bits, ", %.3f bits a byte", run->test_loss / log(2));
        row(run, "test perplexity", "%.2f (loss %.4f%s)", exp(run->test_loss), run->test_loss,
            bits);
    } else
        row(run, "test accuracy", "%.2f %% (loss %.4f)", 100 * run->test_accuracy, run->test_loss);
    if (run->test_auc >= 0)
        row(run, "test AUC", "%.4f", run->test_auc);
    if (run->test_accuracy < 0)
        row(run, "training loss above it", "%.6g", run->train_loss);
    else
        row(run, "training loss", "%.4f (%s samples)", run->train_loss,
            commas(run->train_samples).text);
}

static void say_target(const tutti_run *run)
{
    char name[64];

    if (run->config->target[0] == 0)
        return;
    snprintf(name, sizeof name, "%.50s", run->config->target);
    if (run->time_to_target >= 0)
        row(run, name, "reached after %.2f s", run->time_to_target);
    else
        row(run, name, "not reached");
}

static void say_part(const tutti_run *run, const char *name, double seconds)
{
    enum { WIDTH = 30 };
    const double wall = run->totals.wall, share = wall > 0 ? seconds / wall : 0;
    const int marks = share < 0 ? 0 : share > 1 ? WIDTH : (int)(share * WIDTH + 0.5);
    char bar[WIDTH + 1], indented[40];

    memset(bar, '#', (size_t)marks);
    bar[marks] = 0;
    snprintf(indented, sizeof indented, "  %s", name);
    row(run, indented, "%-*s %8.2f s %5.1f %%", WIDTH, bar, seconds, 100 * share);
}

static void say_time(const tutti_run *run)
{
    const int context = tutti_data_shape_of(run->data)->context;
    const bool simulated = tutti_world_simulated(tutti_world_transport(run->world));
    const uint64_t n = run->totals.samples * (uint64_t)(context > 0 ? context : 1);
    const double wall = run->totals.wall;

    row(run, simulated ? "virtual time in training" : "time in training",
        "%.2f s for %s %s (%s a second)", wall, commas(n).text, context > 0 ? "tokens" : "samples",
        commas(wall > 0 ? (uint64_t)((double)n / wall + 0.5) : 0).text);
    say_part(run, "computing", run->totals.compute);
    say_part(run, "waiting for communication", run->totals.exposed);
    say_part(run, "batches, updates", run->totals.other);
}

void tutti_train_say_totals(const tutti_run *run)
{
    const bool simulated = tutti_world_simulated(tutti_world_transport(run->world));
    const int ranks = run->all.size;
    char name[40];

    tutti_train_say(run, 0, "trained in %.2f s; results in %s", run->totals.wall, run->config->out);
    tutti_train_say(run, 0, "%s", "");
    say_quality(run);
    say_target(run);
    say_time(run);
    if (run->totals.bytes > 0) {
        if (tutti_train_working(run) == ranks && ranks <= 2)
            snprintf(name, sizeof name, ranks == 1 ? "sent" : "sent by both workers");
        else
            snprintf(name, sizeof name, "sent by all %d %s", ranks,
                     tutti_train_working(run) == ranks ? "workers" : "ranks");
        row(run, name, "%s = %s a step", amount(run->totals.bytes).text,
            amount(run->totals.steps > 0 ? run->totals.bytes / (double)run->totals.steps
                                         : run->totals.bytes)
                .text);
    }
    row(run, "memory",
        simulated ? "%.0f MiB (all workers are in one process)"
                  : "%.0f MiB a worker (the data set, shared, included)",
        run->totals.memory / 0x1p20);
    row(run, "model", "%s/model.safetensors", run->config->out);
}
