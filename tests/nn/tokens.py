#!/usr/bin/env python3
"""Prints tests/nn/tokens.h: losses and gradients of small GPTs by PyTorch in float64, to which
tests/nn/tokens_test.c holds the backend. The network is that of train.py, which the project's
figures are measured against. Parameters and tokens are formulas:

    parameter k (in the order gradients become ready), element i: a norm's weight 1 + sin(0.37 i +
    1.3 k) / 4, other vectors sin(...) / 4, tables sin(...),
                                                                  matrices 2 sin(...) /
                                                                  sqrt(columns), each rounded to
                                                                  float32
    token i (over all samples): (7 i i + 3 i + 1) mod vocabulary; the label of a place: (5 i + i i +
    2) mod vocabulary

    python3 tokens.py > tokens.h      (needs torch; made with 2.13.0)
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def rotated(x):
    """Rotary positions as GPT-NeoX and Llama have them: x is samples x heads x places x width;
    value j of a head and value j + width / 2 are a pair."""
    t, width = x.shape[-2:]
    angle = torch.outer(torch.arange(t, dtype=torch.float64),
                        10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width))
    low, high = x[..., :width // 2], x[..., width // 2:]
    return torch.cat((low * angle.cos() - high * angle.sin(), low * angle.sin() + high * angle.cos()), -1)


class Block(nn.Module):
    def __init__(self, d, h, norm, rotary):
        super().__init__()
        self.h, self.rotary = h, rotary
        self.l1, self.l2, self.qkv, self.o = norm(d), norm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.f1, self.f2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, m):
        b, t, d = x.shape
        q, k, v = self.qkv(self.l1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        if self.rotary:
            q, k = rotated(q), rotated(k)
        w = (q @ k.transpose(-1, -2)) * (d // self.h) ** -.5 + m
        x = x + self.o((w.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.f2(F.gelu(self.f1(self.l2(x))))


class GPT(nn.Module):
    def __init__(self, layers, d, h, t, v, rotary, rms, tied):
        super().__init__()
        norm = (lambda d: nn.RMSNorm(d, eps=1e-5)) if rms else nn.LayerNorm
        self.e, self.pe, self.b = (nn.Embedding(v, d), None if rotary else nn.Embedding(t, d),
                                   nn.ModuleList([Block(d, h, norm, rotary) for _ in range(layers)]))
        self.ln, self.head = norm(d), nn.Linear(d, v, bias=False)
        if tied:
            self.head.weight = self.e.weight
        self.m = torch.full((t, t), float("-inf")).triu(1)

    def forward(self, i):
        x = self.e(i) if self.pe is None else self.e(i) + self.pe(torch.arange(i.shape[1]))
        for b in self.b:
            x = b(x, self.m)
        return self.head(self.ln(x))


def ready_order(net, layers):
    p = dict(net.named_parameters())
    units = ["head", "ln"] + [f"b.{i}.{u}" for i in range(layers - 1, -1, -1)
                              for u in ("f2", "f1", "l2", "o", "qkv", "l1")] + ["pe", "e"]
    return [(f"{u}.{k}", p[f"{u}.{k}"]) for u in units for k in ("weight", "bias") if f"{u}.{k}" in p]


def one(layers, d, h, t, v, samples, rotary=False, rms=False, tied=False):
    net = GPT(layers, d, h, t, v, rotary, rms, tied)
    order = ready_order(net, layers)
    for k, (name, p) in enumerate(order):
        wave = torch.sin(0.37 * torch.arange(p.numel(), dtype=torch.float64) + 1.3 * k).view_as(p)
        table = name in ("e.weight", "pe.weight")
        norm = name.split(".")[-2] in ("l1", "l2", "ln") and name.endswith("weight")
        values = 1 + wave / 4 if norm else wave / 4 if p.dim() == 1 else wave if table else 2 * wave / math.sqrt(
            p.shape[1])
        with torch.no_grad():
            p.copy_(values.float().double())
    i = torch.arange(samples * t)
    x, y = (7 * i * i + 3 * i + 1) % v, (5 * i + i * i + 2) % v
    logits = net(x.view(samples, t)).view(-1, v)
    loss = F.cross_entropy(logits, y)
    loss.backward()
    correct = int((logits.argmax(1) == y).sum())
    more = ",positions=rotary" * rotary + ",norm=rms" * rms + ",tied=on" * tied
    print(f'    {{ "gpt({layers},{d},{h}{more})", {t}, {v}, {samples}, {loss.item() * samples:.12e}, {correct}, '
          f'{len(order)}, {{')
    for name, p in order:
        g = p.grad.flatten()
        n = g.numel()
        at = ", ".join(f"{g[i].item():.12e}" for i in (0, n // 3, n // 2, n - 1))
        print(f'        {{ "{name}", {n}, {g.sum().item():.12e}, {g.norm().item():.12e}, {{ {at} }} }},')
    print("    } },")


print(f"""/* tokens.h: made by tokens.py with PyTorch {torch.__version__.split('+')[0]} in float64; do not edit. */
typedef struct token_tensor {{
    const char *name;
    size_t count;
    double sum, norm, at[4]; /* at: elements 0, count / 3, count / 2, count - 1 */
}} token_tensor;
typedef struct token_net {{
    const char *model;
    int context, vocabulary;
    int64_t samples;
    double loss; /* sum over samples of the mean over their tokens */
    int64_t correct;
    int count;
    token_tensor tensors[32];
}} token_net;
static const token_net token_nets[] = {{""")
one(2, 24, 3, 11, 37, 3)
one(1, 64, 2, 70, 256, 2)
one(1, 8, 2, 3, 5000, 2)
one(2, 24, 3, 11, 37, 3, rotary=True, rms=True, tied=True)
one(1, 32, 2, 70, 96, 2, rotary=True)
one(1, 32, 1, 19, 96, 2, rms=True)
one(1, 12, 2, 5, 5000, 2, tied=True)
print("};")
