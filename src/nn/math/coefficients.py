#!/usr/bin/env python3
"""Prints the coefficients of src/nn/math/functions.h: polynomials of least largest relative error
(Lawson's reweighted least squares). They are rounded to float one after the other from the leading
one, and the rest is fitted again after each, so that rounding costs little. Needs numpy and mpmath.

    exp(r) = 1 + r + r^2 P(r)                                 |r| <= ln(2) / 2
    the normal distribution = 1 / 2 + x R(x^2)                |x| <= 1
    erfc(t) / 2 = exp(-t^2) u Q(u), u = 1 / (1 + t / 2)       0.7 <= t <= 10.5
"""
import mpmath as mp
import numpy as np

mp.mp.dps = 40


def lawson(basis, weight, target):
    w = np.ones(len(target))
    best = (np.inf, None)
    for _ in range(300):
        s = np.sqrt(w) * weight
        c = np.linalg.lstsq(basis * s[:, None], target * s, rcond=None)[0]
        e = np.abs((basis @ c - target) * weight)
        if e.max() < best[0]:
            best = (e.max(), c)
        w = w * (e + 1e-30)
        w /= w.sum()
    return best


def rounded(basis, weight, target):
    fixed = []
    rest = target.copy()
    for k in range(basis.shape[1]):
        _, c = lawson(basis[:, k:], weight, rest)
        fixed.append(np.float64(np.float32(c[0])))
        rest = rest - basis[:, k] * fixed[-1]
    return fixed, np.abs((basis @ np.array(fixed) - target) * weight).max()


def show(name, fit):
    c, error = fit
    print(f"{name}: largest relative error {error:.2g}")
    print("  ", ", ".join(f"{float(x):.9g}f" for x in c))


r = np.cos(np.linspace(0, np.pi, 801)) * 0.3468
r = r[np.abs(r) > 1e-6]
f = np.array([float((mp.e ** mp.mpf(x) - 1 - mp.mpf(x)) / mp.mpf(x) ** 2) for x in r])
show("P", rounded(np.vander(r, 5, increasing=True), r * r / np.exp(r), f))

z = (1 - np.cos(np.linspace(0, np.pi, 600))) / 2 * 1.001
x = np.maximum(np.sqrt(z), 1e-6)
f = np.array([float((mp.ncdf(mp.mpf(a)) - 0.5) / mp.mpf(a)) for a in x])
p = np.array([float(mp.ncdf(-mp.mpf(a))) for a in x])
show("R", rounded(np.vander(z, 6, increasing=True), x / p, f))

t = 0.7 + (1 - np.cos(np.linspace(0, np.pi, 900))) / 2 * 9.8
f = np.array([float(mp.erfc(mp.mpf(x)) * mp.e ** (mp.mpf(x) ** 2) / 2) for x in t])
u = 1 / (1 + 0.5 * t)
show("Q", rounded(np.vander(u, 8, increasing=True) * u[:, None], 1 / f, f))
