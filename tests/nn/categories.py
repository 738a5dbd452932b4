#!/usr/bin/env python3
"""Prints tests/nn/categories.h: losses, logits and gradients of small click-through models by
PyTorch in float64, to which tests/nn/categories_test.c holds the backend. One nn.Embedding serves
all tables, with an offset a table. Parameters and samples are formulas:

    parameter k (in the order gradients become ready), element i: the table sin(0.37 i + 1.3 k),
    biases sin(...) / 4, matrices 2 sin(...) / sqrt(columns), each rounded to float32 category t of
    sample s: (7 s s + 3 s t + 5 t + 1) mod rows; value j of sample s: sin(1.1 s + 0.7 j), rounded;
    label of sample s: 1 where s s mod 3 is 1

    python3 categories.py > categories.h      (needs torch; made with 2.13.0)
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


class Ctr(nn.Module):
    def __init__(self, tables, rows, dim, values, layers, hidden):
        super().__init__()
        self.tables, self.offset = nn.Embedding(tables * rows, dim), torch.arange(tables) * rows
        wide, mlp = tables * dim + values, []
        for _ in range(layers):
            mlp += [nn.Linear(wide, hidden), nn.ReLU()]
            wide = hidden
        self.mlp = nn.Sequential(*mlp, nn.Linear(wide, 1))

    def forward(self, ids, x):
        return self.mlp(torch.cat([self.tables(ids + self.offset).flatten(1), x], 1)).squeeze(1)


def one(tables, rows, dim, values, layers, hidden, samples):
    net = Ctr(tables, rows, dim, values, layers, hidden)
    p = dict(net.named_parameters())
    order = [(f"mlp.{2 * i}.{k}", p[f"mlp.{2 * i}.{k}"]) for i in range(layers, -1, -1)
             for k in ("weight", "bias")] + [("tables.weight", p["tables.weight"])]
    for k, (name, q) in enumerate(order):
        wave = torch.sin(0.37 * torch.arange(q.numel(), dtype=torch.float64) + 1.3 * k).view_as(q)
        values_of = wave if name == "tables.weight" else wave / 4 if q.dim() == 1 else 2 * wave / math.sqrt(q.shape[1])
        with torch.no_grad():
            q.copy_(values_of.float().double())
    s, t, j = torch.arange(samples).unsqueeze(1), torch.arange(tables), torch.arange(values)
    ids = (7 * s * s + 3 * s * t + 5 * t + 1) % rows
    x = torch.sin(1.1 * s.double() + 0.7 * j.double()).float().double()
    y = ((s * s % 3) == 1).double().squeeze(1)
    z = net(ids, x)
    loss = F.binary_cross_entropy_with_logits(z, y)
    loss.backward()
    correct = int(((z > 0) == (y == 1)).sum())
    print(f'    {{ "ctr(dim={dim},layers={layers},hidden={hidden})", {tables}, {rows}, {values}, {samples}, '
          f'{loss.item() * samples:.12e}, {correct}, '
          f'{{ {z[0].item():.12e}, {z[-1].item():.12e} }}, {len(order)}, {{')
    for name, q in order:
        g = q.grad.flatten()
        n = g.numel()
        touched = g.nonzero().flatten()
        at = ", ".join(f"{g[i].item():.12e}" for i in (touched[0], touched[len(touched) // 3],
                                                       touched[len(touched) // 2], touched[-1]))
        places = ", ".join(str(int(i)) for i in (touched[0], touched[len(touched) // 3], touched[len(touched) // 2],
                                                 touched[-1]))
        print(f'        {{ "{name}", {n}, {g.sum().item():.12e}, {g.norm().item():.12e}, {{ {places} }}, '
              f'{{ {at} }} }},')
    print("    } },")


TORCH = torch.__version__.split("+")[0]
print(f"""/* categories.h: made by categories.py with PyTorch {TORCH} in float64; do not edit. */
typedef struct category_tensor {{
    const char *name;
    size_t count;
    double sum, norm;
    size_t place[4]; /* elements that are not 0, and what they are */
    double at[4];
}} category_tensor;
typedef struct category_net {{
    const char *model;
    int tables;
    uint32_t rows;
    int values;
    int64_t samples;
    double loss; /* sum over samples */
    int64_t correct;
    double logits[2]; /* of the first and the last sample */
    int count;
    category_tensor tensors[12];
}} category_net;
static const category_net category_nets[] = {{""")
one(3, 7, 4, 5, 2, 9, 6)
one(26, 1000, 16, 13, 2, 64, 64)
one(2, 2, 1, 1, 0, 1, 3)
one(5, 4000, 3, 2, 1, 17, 100)
print("};")
