#!/usr/bin/env python3
"""Prints tests/nn/recurrent.h: losses and gradients of small networks with nn.LSTM by PyTorch in
float64, to which tests/nn/recurrent_vectors_test.c holds the backend. Parameters and samples are
formulas:

    parameter k (in the order gradients become ready), element i: vectors sin(0.37 i + 1.3 k) / 4,
    the table sin(...), matrices 2 sin(...) / sqrt(columns), rounded to float32 token i (over all
    samples): (7 i i + 3 i + 1) mod vocabulary; the label of a place: (5 i + i i + 2) mod vocabulary
    value i of frames: sin(0.61 i + 0.2), rounded to float32; the label of sample i: (3 i + 1) mod
    classes

    python3 recurrent.py > recurrent.h      (needs torch; made with 2.13.0)
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
LSTM = ["weight_ih_l{}", "weight_hh_l{}", "bias_ih_l{}", "bias_hh_l{}"]


def set_and_list(units):
    """units: (our name, module, PyTorch's names) in ready order."""
    order = [(f"{name}.{ours}", getattr(module, theirs)) for name, module, names in units for ours, theirs in names]
    for k, (name, p) in enumerate(order):
        wave = torch.sin(0.37 * torch.arange(p.numel(), dtype=torch.float64) + 1.3 * k).view_as(p)
        values = wave / 4 if p.dim() == 1 else wave if name == "e.weight" else 2 * wave / math.sqrt(p.shape[1])
        with torch.no_grad():
            p.copy_(values.float().double())
    return order


def show(spec, task, samples, logits, labels, order):
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    correct = int((logits.argmax(1) == labels).sum())
    print(f'    {{ "{spec}", {task}, {samples}, {loss.item() * samples:.12e}, {correct}, {len(order)}, {{')
    for name, p in order:
        g = p.grad.flatten()
        n = g.numel()
        at = ", ".join(f"{g[i].item():.12e}" for i in (0, n // 3, n // 2, n - 1))
        print(f'        {{ "{name}", {n}, {g.sum().item():.12e}, {g.norm().item():.12e}, {{ {at} }} }},')
    print("    } },")


def linear(name, module):
    return name, module, [("weight", "weight"), ("bias", "bias")]


def wordlm(dim, hidden, context, vocabulary, samples):
    e, lstm, p, head = (nn.Embedding(vocabulary, dim), nn.LSTM(dim, hidden, batch_first=True), nn.Linear(hidden, dim),
                        nn.Linear(dim, vocabulary))
    units = [linear("head", head)] + ([linear("p", p)] if dim != hidden
                                      else []) + [("lstm", lstm, [(n.format(0), n.format(0)) for n in LSTM]),
                                                  ("e", e, [("weight", "weight")])]
    order = set_and_list(units)
    i = torch.arange(samples * context)
    x, y = (7 * i * i + 3 * i + 1) % vocabulary, (5 * i + i * i + 2) % vocabulary
    h = lstm(e(x.view(samples, context)))[0]
    logits = head(p(h) if dim != hidden else h).view(-1, vocabulary)
    show(f"wordlm(dim={dim},hidden={hidden})", f"{{ .classes = {vocabulary}, .context = {context} }}", samples, logits,
         y, order)


def blstm(layers, hidden, frames, width, classes, samples):
    lstm, head = nn.LSTM(width, hidden, num_layers=layers, bidirectional=True,
                         batch_first=True), nn.Linear(2 * hidden, classes)
    units = [linear("head", head)] + [(f"lstm.{k}", lstm, [(n.format(0) + r, n.format(k) + r) for r in ("", "_reverse")
                                                           for n in LSTM]) for k in range(layers - 1, -1, -1)]
    order = set_and_list(units)
    x = torch.sin(0.61 * torch.arange(samples * frames * width) + 0.2).float().double().view(samples, frames, width)
    y = (3 * torch.arange(samples) + 1) % classes
    show(f"blstm({layers},{hidden})", f"{{ 1, {frames}, {width}, {classes}, 0 }}", samples, head(lstm(x)[0].mean(1)), y,
         order)


TORCH = torch.__version__.split("+")[0]
print(f"""/* recurrent.h: made by recurrent.py with PyTorch {TORCH} in float64; do not edit. */
typedef struct recurrent_tensor {{
    const char *name;
    size_t count;
    double sum, norm, at[4]; /* at: elements 0, count / 3, count / 2, count - 1 */
}} recurrent_tensor;
typedef struct recurrent_net {{
    const char *model;
    tutti_nn_task task;
    int64_t samples;
    double loss; /* sum over samples, of tokens of the mean over them */
    int64_t correct;
    int count;
    recurrent_tensor tensors[32];
}} recurrent_net;
static const recurrent_net recurrent_nets[] = {{""")
wordlm(24, 24, 11, 37, 3)
wordlm(16, 40, 35, 300, 5)
wordlm(8, 8, 3, 5000, 2)
blstm(1, 20, 9, 13, 6, 4)
blstm(3, 33, 40, 21, 10, 7)
print("};")
