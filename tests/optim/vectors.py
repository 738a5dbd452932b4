"""Writes vectors.h: what PyTorch's optimisers make of the same weights and gradients.

    python3 tests/optim/vectors.py > tests/optim/vectors.h

Needs torch (2.13.0, CPU build, on a machine with AVX2 or AVX-512) and numpy. The single-tensor
float32 implementation is used. All configurations start from the same weights and see the same
gradients, whose sizes run over many powers of two; `falling` ones use lr / t in step t. Numbers are
hexadecimal: nothing is lost in print.
"""
import numpy as np
import torch

COUNT, STEPS, KEPT = 20, 20, (1, 2, 5, 20)
CONFIGURATIONS = [  # spec, torch's class and arguments, falling
    ("sgd(lr=0.05)", torch.optim.SGD, dict(lr=0.05), False),
    ("sgd(lr=0.05,momentum=0.9)", torch.optim.SGD, dict(lr=0.05, momentum=0.9), False),
    ("sgd(lr=0.01,momentum=0.9,dampening=0.3)", torch.optim.SGD, dict(lr=0.01, momentum=0.9, dampening=0.3), False),
    ("sgd(lr=0.1,weight_decay=0.003)", torch.optim.SGD, dict(lr=0.1, weight_decay=0.003), True),
    ("sgd(lr=0.1,momentum=0.8,nesterov=on,weight_decay=0.0005)", torch.optim.SGD,
     dict(lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.0005), True),
    ("adam", torch.optim.Adam, dict(), False),
    ("adam(lr=0.01,beta1=0.8,beta2=0.95,eps=1e-6)", torch.optim.Adam, dict(lr=0.01, betas=(0.8, 0.95), eps=1e-6), True),
    ("adam(lr=0.002,beta1=0,beta2=0.9)", torch.optim.Adam, dict(lr=0.002, betas=(0.0, 0.9)), False),
    ("adam(lr=0.002,beta1=0.4)", torch.optim.Adam, dict(lr=0.002, betas=(0.4, 0.999)), False),
    ("adam(weight_decay=0.1)", torch.optim.Adam, dict(weight_decay=0.1), False),
    ("adamw", torch.optim.AdamW, dict(), False),
    ("adamw(lr=0.03,beta1=0.85,beta2=0.99,weight_decay=0.2)", torch.optim.AdamW,
     dict(lr=0.03, betas=(0.85, 0.99), weight_decay=0.2), True),
]


def literal(x):
    """A float in C, without the zeros that float.hex() pads with."""
    mantissa, exponent = float(x).hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}f"


def row(numbers):
    return "{ " + ", ".join(literal(x) for x in numbers) + " }"


def table(numbers, indent):
    return "{\n" + "".join(f"{indent}    {row(n)},\n" for n in numbers) + indent + "}"


def run(make, arguments, falling, weights, gradients):
    """Weights after the kept steps, and the slots after the last one."""
    w = torch.from_numpy(weights.copy()).requires_grad_()
    optimizer = make([w], foreach=False, **arguments)
    base = optimizer.param_groups[0]["lr"]
    kept = []
    for t in range(1, STEPS + 1):
        if falling:
            optimizer.param_groups[0]["lr"] = base / t
        w.grad = torch.from_numpy(gradients[t - 1].copy())
        optimizer.step()
        if t in KEPT:
            kept.append(w.detach().numpy().copy())
    state = optimizer.state[w]
    names = [name for name in ("momentum_buffer", "exp_avg", "exp_avg_sq") if state.get(name) is not None]
    slots = [state[name].numpy().copy() for name in names]
    return kept, slots + [np.zeros(COUNT, np.float32)] * (2 - len(slots)), base


def main():
    torch.set_num_threads(1)
    random = np.random.RandomState(20)
    weights = (random.randn(COUNT) * 2.0 ** random.randint(-6, 4, COUNT)).astype(np.float32)
    gradients = (random.randn(STEPS, COUNT) * 2.0 ** random.randint(-12, 6, (STEPS, COUNT))).astype(np.float32)
    weights[0], gradients[:3, 1], gradients[:, 2] = 0, 0, gradients[:, 2] * np.float32(2.0 ** -60)

    print(f"/* vectors.h: written by vectors.py with PyTorch {torch.__version__.split('+')[0]}; do not edit. */")
    print(f"enum {{ COUNT = {COUNT}, STEPS = {STEPS}, KEPT = {len(KEPT)}, CONFIGURATIONS = {len(CONFIGURATIONS)} }};")
    print("static const int kept_steps[KEPT] = { " + ", ".join(map(str, KEPT)) + " };")
    print(f"static const float start[COUNT] = {row(weights)};")
    print(f"static const float gradients[STEPS][COUNT] = {table(gradients, '')};")
    print("static const struct {\n    const char *spec;\n    double lr;\n    bool falling;\n    float "
          "kept[KEPT][COUNT], slot[2][COUNT];")
    print("} expected[CONFIGURATIONS] = {")
    for spec, make, arguments, falling in CONFIGURATIONS:
        kept, slots, base = run(make, arguments, falling, weights, gradients)
        print(f'    {{ "{spec}", {base!r}, {str(falling).lower()}, {table(kept, "      ")}, '
              f'{table(slots, "      ")} }},')
    print("};")


main()
