#!/usr/bin/env python3
"""Prints tests/nn/math_vectors.h: results and gradients of layers by PyTorch in float64, to which
math_vectors_test.c holds src/nn/math. Inputs are formulas, so that no tables are needed: value i of
input k is sin(0.37 i + 1.3 k) + cos(0.011 i + k), rounded to float32; ids and labels are (7 i + 3)
mod limit.

    python3 math_vectors.py > math_vectors.h      (needs torch; made with 2.13.0)
"""
import math
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def values(k, *shape):
    n = math.prod(shape)
    return torch.tensor([math.sin(0.37 * i + 1.3 * k) + math.cos(0.011 * i + k)
                         for i in range(n)]).float().double().view(*shape).requires_grad_()


def show(name, t):
    t = t.detach().contiguous().flatten()
    n = t.numel()
    at = ", ".join(f"{t[i].item():.12e}" for i in (0, n // 3, n // 2, n - 1))
    print(f'    {{ "{name}", {n}, {t.sum().item():.12e}, {t.norm().item():.12e}, {{ {at} }} }},')


def both(name, y, slope, **inputs):
    show(f"{name} y", y)
    y.backward(slope.detach())
    for key, t in inputs.items():
        show(f"{name} d{key}", t.grad)


TORCH = torch.__version__.split("+")[0]
print(f"""/* math_vectors.h: made by math_vectors.py with PyTorch {TORCH} in float64; do not edit. */
typedef struct vector {{
    const char *name;
    size_t count;
    double sum, norm, at[4]; /* at: elements 0, count / 3, count / 2, count - 1 */
}} vector;
static const vector vectors[] = {{""")
x = values(0, 300)
both("gelu", F.gelu(x), values(1, 300), x=x)
x = values(0, 300)
both("gelu_tanh", F.gelu(x, approximate="tanh"), values(1, 300), x=x)
x, g, b = values(0, 70, 50), values(1, 50), values(2, 50)
both("layer_norm", F.layer_norm(x, (50,), g, b, 1e-5), values(3, 70, 50), x=x, gamma=g, beta=b)
x, g = values(0, 70, 50), values(1, 50)
both("rms_norm", F.rms_norm(x, (50,), g, 1e-5), values(3, 70, 50), x=x, gamma=g)
table, ids = values(0, 11, 20), torch.tensor([(7 * i + 3) % 9 for i in range(40)])
both("embedding", F.embedding(ids, table), values(3, 40, 20), table=table)
x, labels = values(0, 9, 1300), torch.tensor([(7 * i + 3) % 1300 for i in range(9)])
both("cross_entropy", F.cross_entropy(4 * x, labels, reduction="sum"), torch.tensor(0.125 / 4), x=x)
for causal in (True, False):
    q, k, v = values(0, 2, 45, 2, 24), values(1, 2, 45, 2, 24), values(2, 2, 45, 2, 24)
    y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                       is_causal=causal).transpose(1, 2)
    both("attention" if causal else "attention_all", y, values(3, 2, 45, 2, 24), q=q, k=k, v=v)
x, g, b = values(0, 3, 5, 7, 6), values(1, 5), values(2, 5)
mean, variance = values(4, 5).detach().clone(), values(5, 5).detach().clone()
y = F.relu(F.batch_norm(x, mean, variance, g, b, True, 0.1, 1e-5))
both("batch_norm", y.permute(0, 2, 3, 1), values(3, 3, 7, 6, 5), gamma=g, beta=b)
show("batch_norm dx", x.grad.permute(0, 2, 3, 1))
show("batch_norm running_mean", mean)
show("batch_norm running_variance", variance)
print("};")
