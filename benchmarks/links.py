#!/usr/bin/env python3
"""The time of a step of several ranks over a link: measurements and a model.

    benchmarks/links.py measure FILE   measures steps of bench_ranks over links whose rate benchmarks/shaped_link
                                       limits; needs root
    benchmarks/links.py fit FILE       fits the model to the measurements; prints its errors and predictions for 16 to
                                       1024 machines

The model is LogGP. A byte takes a gap G: the time on the link, times 1 + k if R > 2, because several senders meet at
one receiver, plus the time of the software. A step has a latency L. A rank sends n = 8 P (R - 1) / R bytes for P
parameters in float32, half of them during its backward pass and half during the next forward pass. A step that
computes for C seconds takes

    s = n G,   T = max(C + t s, s + u C) + L

t is the part of sending that overlaps with no computing: the last bucket. u is the part of computing that overlaps
with no sending: the layers between the last values received and the first gradients sent. C is measured with the same
number of ranks without a limit on the link.
"""
import collections
import itertools
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RATES = {"10gbit": 10e9, "1gbit": 1e9, "100mbit": 1e8}
SIZES = {"nano": (20, 3), "baby": (8, 1)}  # steps per measurement, and measurements, whose median is used
PARAMETERS = {"nano": 0.81e6, "baby": 10.77e6, "gpt2": 124e6, "1.3B": 1.3e9}


def measure(file):
    bench = ROOT / "build/release/benchmarks/bench_ranks"
    rows = json.loads(file.read_text()) if file.exists() else []
    done = collections.Counter((r["size"], r["ranks"], r["rate"]) for r in rows)
    for size, (steps, times) in SIZES.items():
        for n, ranks, rate in itertools.product(range(times), (2, 3, 4), ("0", *RATES)):
            if done[size, ranks, rate] > n:
                continue
            command = [ROOT / "benchmarks/shaped_link", str(ranks), rate, bench, size, "--threads", "1", "--steps",
                       str(steps)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found = re.search(r"([0-9.]+) ms/step.*sends ([0-9.]+) MB", output)
            rows.append({"size": size, "ranks": ranks, "rate": rate, "seconds": float(found[1]) / 1e3,
                         "bytes": float(found[2]) * 1e6})
            print(rows[-1], flush=True)
            file.write_text(json.dumps(rows, indent=1))


def medians(rows):
    """Measures one row per size, number of ranks and rate."""
    groups = {}
    for r in rows:
        groups.setdefault((r["size"], r["ranks"], r["rate"]), []).append(r)
    return [dict(g[0], seconds=statistics.median(r["seconds"] for r in g)) for g in groups.values()]


def step(model, compute, ranks, n, rate):
    t, u, contention, software, latency = model
    s = n * (8 / rate * (1 + contention * (ranks > 2)) + software)
    return max(compute + t * s, s + u * compute) + latency


def error(model, rows):
    total = 0
    for r in rows:
        e = step(model, r["compute"], r["ranks"], r["bytes"], RATES[r["rate"]]) / r["seconds"] - 1
        total += e * e
    return total


def fitted(rows):
    """Fits five parameters to a few dozen rows, by coordinate search with decreasing steps."""
    model, steps = [0.1, 0.3, 0.2, 5e-10, 1e-3], [0.1, 0.1, 0.1, 2e-10, 1e-3]
    best = error(model, rows)
    for _ in range(400):
        moved = False
        for i in range(len(model)):
            for sign in (1, -1):
                tried = list(model)
                tried[i] = max(0.0, tried[i] + sign * steps[i])
                if error(tried, rows) < best:
                    model, best, moved = tried, error(tried, rows), True
        if not moved:
            steps = [s / 2 for s in steps]
    return model


def fit(file):
    rows = medians(json.loads(file.read_text()))
    compute = {(r["size"], r["ranks"]): r["seconds"] for r in rows if r["rate"] == "0"}
    rows = [dict(r, compute=compute[r["size"], r["ranks"]]) for r in rows if r["rate"] != "0"]
    model = fitted(rows)
    print("t %.2f, u %.2f, k %.2f, software %.2f ns per byte, L %.2f ms" %
          (model[0], model[1], model[2], model[3] * 1e9, model[4] * 1e3))
    print("| size | ranks | link | compute | measured | model | error |\n|---|---|---|---|---|---|---|")
    for r in rows:
        t = step(model, r["compute"], r["ranks"], r["bytes"], RATES[r["rate"]])
        print("| %s | %d | %s | %.0f | %.0f | %.0f | %+.0f%% |" % (r["size"], r["ranks"], r["rate"], r["compute"] * 1e3,
              r["seconds"] * 1e3, t * 1e3, 100 * (t / r["seconds"] - 1)))
    print("\nTokens per machine and step at which a step takes 1.1 times its computing:")
    print("| machine | link | model | 16 | 64 | 256 | 1024 machines |\n|---|---|---|---|---|---|---|")
    for flops in (0.2e12, 2e12):
        for rate in (1e9, 1e10):
            for size in ("baby", "gpt2", "1.3B"):
                cells = []
                for machines in (16, 64, 256, 1024):
                    p = PARAMETERS[size]
                    n, tokens = 8 * p * (machines - 1) / machines, 64
                    while True:
                        c = 6 * p * tokens / flops
                        if step(model, c, machines, n, rate) <= 1.1 * c:
                            break
                        tokens *= 1.02
                    cells.append("%.2g" % tokens if tokens < 1000 else "%.0fk" % (tokens / 1e3))
                print("| %.1f TFLOP/s | %g Gbit/s | %s | %s |" % (flops / 1e12, rate / 1e9, size, " | ".join(cells)))


if len(sys.argv) != 3 or sys.argv[1] not in ("measure", "fit"):
    sys.exit(__doc__)
(measure if sys.argv[1] == "measure" else fit)(Path(sys.argv[2]))
