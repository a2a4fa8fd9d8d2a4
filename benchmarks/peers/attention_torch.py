"""The PyTorch peer of bench_attention: causal softmax attention, forward and backward, 8 heads of 64, one sequence.

usage: OMP_NUM_THREADS=2 python3 attention_torch.py [--dtype f32|bf16]
Packages: those of requirements.txt

Two forms: "flash" is scaled_dot_product_attention; "written out" is a product, a mask, a softmax and a product,
which is faster for short texts.
"""
import argparse
import statistics
import time

import torch
from torch.nn import functional as F

from fair import require_fair_setup


def written_out(future):
    def attend(q, k, v):
        scores = q @ k.mT * q.shape[-1] ** -0.5
        return scores.masked_fill(future, float("-inf")).softmax(-1) @ v
    return attend


def flash(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def microseconds(attend, length, dtype, budget):
    """Returns microseconds per token of forward and of both passes: medians of runs for about `budget` seconds."""
    q, k, v, dy = (torch.randn(1, 8, length, 64, dtype=dtype) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_()
    times, end = [], time.perf_counter() + budget
    while len(times) < 4 or time.perf_counter() < end:
        start = time.perf_counter()
        y = attend(q, k, v)
        middle = time.perf_counter()
        y.backward(dy)
        times.append((middle - start, time.perf_counter() - start))
    return [1e6 * statistics.median(column) / length for column in zip(*times[1:])]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    a = p.parse_args()
    threads = require_fair_setup()
    dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32
    for length in (256, 1024, 4096):
        forms = {"flash": flash}
        if length < 4096:
            forms["written out"] = written_out(torch.ones(length, length).triu(1).bool())
        for name, attend in forms.items():
            forward, both = microseconds(attend, length, dtype, 0.7)
            print("torch causal softmax attention %s, %d threads, %s: T = %d, %s: forward %.2f us per token, both %.2f"
                  % (a.dtype, threads, torch.backends.cpu.get_cpu_capability(), length, name, forward, both), flush=True)


main()
