/* help.c: the pages of `tutti train --help`: a short one with what most runs need, and one with all
   options. Both are made from the trainer's table of options. This file only adds the group of each
   option, and the names that other programs have for it. */
#include <string.h>

#include "cli_internal.h"

/* The names of the options of each group. A '*' after a name: the option is on the short page,
   too. */
static const struct {
    const char *title, *options;
} groups[] = {
    { "What is trained, and for how long", "*model *data *epochs *steps *batch accumulate *seed "
                                           "init partition validation precision target" },
    { "The update", "*optimizer *lr-schedule clip-norm nonfinite loss-scale" },
    { "Who trains", "*n *hosts rsh meet start-timeout workers restarts copy-every workers-timeout servers "
                    "*threads transport lane batch-share elastic-shares device-memory on-loss min-workers" },
    { "What is exchanged", "*method *codec codec-cost codec-report codec-checksum codec-hierarchy "
                           "collective collective-table" },
    { "Results and output",
      "*out overwrite report-every log-to metrics-port eval-every final-eval trace trace-steps *quiet" },
    { "Checkpoints", "*checkpoint-every checkpoint-keep checkpoint-async checkpoint-on-signal *resume" },
    { "Unequal workers, streams and simulated runs",
      "slow stream stream-buffer platform fail step-time" },
};

/* Does a list of names have this one, and with a '*'? */
static bool listed(const char *words, const char *name, bool *starred)
{
    const size_t bytes = strlen(name);

    for (const char *at = words; *at != 0; at += strcspn(at, " "), at += strspn(at, " ")) {
        *starred = *at == '*';
        at += *starred;
        if (strcspn(at, " ") == bytes && strncmp(at, name, bytes) == 0)
            return true;
    }
    return false;
}

/* Writes the meaning of an option, and its default in brackets. */
static void print_meaning(const tutti_option *o, char *text, size_t bytes)
{
    const char *initial = o->text != NULL && o->text[0] != 0 ? o->text : "none";
    int index = (int)o->initial;
    if (o->type == TUTTI_CHOICE) {
        for (; index > 0 && strchr(initial, '|') != NULL; index--)
            initial = strchr(initial, '|') + 1;
        snprintf(text, bytes, "%s [%.*s]", o->help, (int)strcspn(initial, "|"), initial);
    } else if (o->type == TUTTI_BOOL)
        snprintf(text, bytes, "%s%s", o->help, o->initial != 0 ? " [on]" : "");
    else if (o->type == TUTTI_INT || o->type == TUTTI_REAL)
        snprintf(text, bytes, "%s [%.12g]", o->help, o->initial);
    else if (o->type == TUTTI_TEXT && (o->text == NULL || o->text[0] == 0))
        snprintf(text, bytes, "%s", o->help);
    else
        snprintf(text, bytes, "%s [%s]", o->help, initial);
}

/* Prints "  --batch N", and in the next column the meaning and the default. */
static void print_option(FILE *out, const tutti_option *o)
{
    static const char *const kinds[] = {
        [TUTTI_INT] = " N", [TUTTI_REAL] = " X", [TUTTI_TEXT] = " TEXT", [TUTTI_SPEC] = " SPEC"
    };
    char lead[160], text[1024];

    snprintf(lead, sizeof lead, "  %s%s%s%s%s", strcmp(o->name, "hosts") == 0 ? "-H, " : "",
             strlen(o->name) == 1 ? "-" : "--", o->name,
             o->type == TUTTI_CHOICE ? " "
             : o->type == TUTTI_BOOL ? o->initial != 0 ? " on|off" : ""
                                     : kinds[o->type],
             o->type == TUTTI_CHOICE ? o->text : "");
    print_meaning(o, text, sizeof text);
    tutti_cli_wrap(out, lead, 26, text);
}

/* Options that are in no group come last, so that none is missing; a test checks that there are
   none. */
static void print_groups(FILE *out, bool all)
{
    bool starred = false, other = false;

    for (size_t k = 0; k < TUTTI_LENGTH(groups); k++) {
        if (!all && strchr(groups[k].options, '*') == NULL)
            continue;
        fprintf(out, "\n%s:\n", groups[k].title);
        for (const char *at = groups[k].options; *at != 0;
             at += strcspn(at, " "), at += strspn(at, " ")) {
            char name[64];
            starred = *at == '*';
            at += starred;
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
            if (all || starred)
                print_option(out, tutti_option_find(tutti_train_options, name));
        }
    }
    for (const tutti_option *o = tutti_train_options; all && o->name != NULL; o++) {
        bool found = false;
        for (size_t k = 0; k < TUTTI_LENGTH(groups) && !found; k++)
            found = listed(groups[k].options, o->name, &starred);
        if (found)
            continue;
        if (!other)
            fprintf(out, "\nOther options:\n");
        other = true;
        print_option(out, o);
    }
}

void tutti_cli_train_help(FILE *out, bool all)
{
    fprintf(out, "tutti train [FILE] [--OPTION VALUE ...]\n\n");
    tutti_cli_wrap(out, "", 0,
                   "Trains a network with n workers. Values come from flags, else environment "
                   "(TUTTI_BATCH for --batch), else FILE (YAML, or JSON if it begins with '{'; "
                   "keys are the flags without dashes), else the defaults, which stand in "
                   "brackets.");
    print_groups(out, all);
    fprintf(out, "\nExamples:\n"
                 "  tutti train --model cnn --data mnist -n 2 --epochs 1\n"
                 "  tutti train --model mlp -n 4 --optimizer 'adamw(lr=0.001)' \\\n"
                 "              --checkpoint-every 200 --out runs/mlp\n"
                 "  tutti train --resume runs/mlp --epochs 3\n");
    if (all)
        fprintf(out,
                "  tutti train --model mlp --data mnist -H a:4,b:4\n"
                "  tutti train --transport sim --platform cluster.xml -n 8 --step-time 0.01 \\\n"
                "              --slow 0:5 --batch-share auto\n");
    else {
        putc('\n', out);
        tutti_cli_wrap(
            out, "", 0,
            "`tutti train --help all` has all options, `tutti methods`, `tutti codecs` and `tutti "
            "transports` what --method, --codec and --transport take.");
    }
}

/* ---- names of options in other programs ---- */
static const struct {
    const char *theirs, *ours;
} known_elsewhere[] = {
    { "lr", "--optimizer 'sgd(lr=0.1)'" },
    { "learning-rate", "--optimizer 'sgd(lr=0.1)'" },
    { "momentum", "--optimizer 'sgd(lr=0.1,momentum=0.9)'" },
    { "weight-decay", "--optimizer 'sgd(weight_decay=1e-4)'" },
    { "opt", "--optimizer" },
    { "optim", "--optimizer" },
    { "lr-scheduler", "--lr-schedule" },
    { "scheduler", "--lr-schedule" },
    { "schedule", "--lr-schedule" },
    { "warmup", "--lr-schedule 'cosine(warmup=100)'" },
    { "warmup-steps", "--lr-schedule 'cosine(warmup=100)'" },
    { "num-workers", "-n" },
    { "nproc", "-n" },
    { "np", "-n" },
    { "num-processes", "-n" },
    { "nproc-per-node", "-n" },
    { "world-size", "-n" },
    { "ranks", "-n" },
    { "gpus", "-n (workers; they compute on the processor)" },
    { "devices", "-n (workers; they compute on the processor)" },
    { "host", "-H" },
    { "nodes", "-H" },
    { "hostfile", "-H @FILE" },
    { "machinefile", "-H @FILE" },
    { "host-discovery-script", "-H '|COMMAND'" },
    { "num-threads", "--threads" },
    { "cores", "--threads" },
    { "cpus", "--threads" },
    { "batch-size", "--batch" },
    { "bs", "--batch" },
    { "micro-batch-size", "--batch" },
    { "gradient-accumulation-steps", "--accumulate" },
    { "grad-accum", "--accumulate" },
    { "num-epochs", "--epochs" },
    { "max-epochs", "--epochs" },
    { "max-steps", "--steps" },
    { "num-steps", "--steps" },
    { "iterations", "--steps" },
    { "iters", "--steps" },
    { "arch", "--model" },
    { "network", "--model" },
    { "net", "--model" },
    { "dataset", "--data" },
    { "data-dir", "--data" },
    { "data-path", "--data" },
    { "algorithm", "--method" },
    { "strategy", "--method" },
    { "compression", "--codec" },
    { "compress", "--codec" },
    { "quantize", "--codec" },
    { "backend", "--transport" },
    { "clip-grad", "--clip-norm" },
    { "grad-clip", "--clip-norm" },
    { "max-grad-norm", "--clip-norm" },
    { "dtype", "--precision" },
    { "amp", "--precision fp16" },
    { "fp16", "--precision fp16" },
    { "bf16", "--precision bf16" },
    { "output", "--out" },
    { "output-dir", "--out" },
    { "save-dir", "--out" },
    { "log-dir", "--out" },
    { "dir", "--out" },
    { "save-every", "--checkpoint-every" },
    { "save-steps", "--checkpoint-every" },
    { "load", "--resume" },
    { "restore", "--resume" },
    { "resume-from", "--resume" },
    { "checkpoint", "--checkpoint-every N to write them, --resume DIR to continue" },
    { "log-every", "--report-every" },
    { "log-interval", "--report-every" },
    { "tensorboard", "--log-to tensorboard" },
    { "report-to", "--log-to" },
    { "prometheus", "--log-to prometheus" },
    { "prometheus-port", "--metrics-port" },
    { "eval-interval", "--eval-every" },
    { "silent", "--quiet" },
    { "partitions", "--partition" },
};

const char *tutti_cli_known_elsewhere(const char *flag)
{
    for (size_t k = 0; k < TUTTI_LENGTH(known_elsewhere); k++) {
        const char *a = flag, *b = known_elsewhere[k].theirs;
        for (; *a != 0 && (*a == *b || (*a == '_' && *b == '-')); a++)
            b++;
        if (*a == 0 && *b == 0)
            return known_elsewhere[k].ours;
    }
    return NULL;
}
