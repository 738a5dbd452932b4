#!/usr/bin/env python3
"""Prints tests/nn/vectors.h: losses and gradients of small networks by PyTorch in float64, to which
tests/nn/vectors_test.c holds the backends. Parameters, samples and labels are formulas, so that no
tables are needed:

    parameter k (in PyTorch's order), element i:  sin(0.37 i + 1.3 k) / sqrt(fan_in), rounded to
    float32; fan_in of batch norms: 1 sample value i (over all samples):            sin(0.11 i) +
    cos(0.017 i), rounded to float32 label of sample i:                            (7 i + 3) mod
    classes

    python3 vectors.py > vectors.h      (needs torch; made with 2.13.0)
"""
import math, os, sys
import torch
import torch.nn as nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/peers"))
from images import VGG, ResNet

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
CLASSES, SIDE = 5, 12


def mlp():
    return nn.Sequential(nn.Linear(SIDE * SIDE, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, CLASSES))


def fill(net):
    fan_in = 1
    for k, (name, p) in enumerate(net.named_parameters()):
        if name.endswith("weight"):
            fan_in = p[0].numel()
        values = [math.sin(0.37 * i + 1.3 * k) / math.sqrt(fan_in) for i in range(p.numel())]
        with torch.no_grad():
            p.copy_(torch.tensor(values).float().double().view_as(p))


def show(x):
    return f"{x:.12e}"


def one(label, spec, net, samples, shape):
    fill(net)
    x = torch.tensor([math.sin(0.11 * i) + math.cos(0.017 * i) for i in range(samples * SIDE * SIDE)]).float().double()
    y = torch.tensor([(7 * i + 3) % CLASSES for i in range(samples)])
    logits = net(x.view(samples, *shape))
    loss = nn.functional.cross_entropy(logits, y, reduction="sum")
    (loss / samples).backward()
    net.eval() # the running statistics have moved once
    with torch.no_grad():
        logits = net(x.view(samples, *shape))
    after = nn.functional.cross_entropy(logits, y, reduction="sum")
    correct = int((logits.argmax(1) == y).sum())
    print(f'    {{ "{spec}", {samples}, {show(loss.item())}, {show(after.item())}, {correct}, '
          f'{len(list(net.parameters()))}, {{')
    for name, p in reversed_by_unit(net):
        g = p.grad.flatten()
        n = g.numel()
        places = [0, n // 3, n // 2, n - 1]
        values = ", ".join(show(g[i].item()) for i in places)
        print(f'        {{ "{name}", {n}, {show(g.sum().item())}, {show(g.norm().item())}, {{ {values} }} }},')
    print("    } },")


def reversed_by_unit(net):
    """Last layer first, weight before bias: the order in which gradients become ready."""
    units = {}
    for name, p in net.named_parameters():
        units.setdefault(name.rsplit(".", 1)[0], []).append((name, p))
    for unit in reversed(list(units)):
        yield from units[unit]


print(f"""/* vectors.h: made by vectors.py with PyTorch {torch.__version__.split('+')[0]} in float64; do not edit. */
typedef struct vector_tensor {{
    const char *name;
    size_t count;
    double sum, norm, at[4]; /* at: elements 0, count / 3, count / 2, count - 1 */
}} vector_tensor;
typedef struct vector_net {{
    const char *model;
    int64_t samples;
    double loss, after; /* sums: of the pass, of an evaluation after it */
    int64_t correct;
    int count;
    vector_tensor tensors[24];
}} vector_net;
enum {{ VECTOR_CLASSES = {CLASSES}, VECTOR_SIDE = {SIDE} }};
static const vector_net vectors[] = {{""")
one("mlp", "mlp(hidden=16)", mlp(), 9, (SIDE * SIDE,))
one("cnn", "cnn", cnn(), 11, (1, SIDE, SIDE))
one("resnet", "resnet(depth=8)", ResNet(8, 1, CLASSES), 9, (1, SIDE, SIDE))
one("vgg", "vgg(small)", VGG(SIDE, 1, CLASSES), 7, (1, SIDE, SIDE))
print("};")
