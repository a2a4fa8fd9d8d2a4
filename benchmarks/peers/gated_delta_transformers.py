"""The transformers peer of bench_gated_attention: the gated delta rule in PyTorch's chunk form, forward and backward.

usage: OMP_NUM_THREADS=2 python3 gated_delta_transformers.py [--length 4096]
Packages: those of requirements.txt

Calls torch_chunk_gated_delta_rule, which Qwen3-Next uses without a GPU: 16 key heads and 32 value heads of 128, one
sequence, on given queries, keys, values, gates and rates.
"""
import argparse
import statistics
import time

import torch
from torch.nn import functional as F
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

from fair import require_fair_setup


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--length", type=int, default=4096)
    length = p.parse_args().length
    threads = require_fair_setup()
    q, k = (F.normalize(torch.randn(1, length, 16, 128), dim=-1) for _ in range(2))
    v, dy = torch.randn(1, length, 32, 128), torch.randn(1, length, 32, 128)
    g, beta = -0.1 * F.softplus(torch.randn(1, length, 32)), torch.randn(1, length, 32).sigmoid()
    inputs = (q, k, v, g, beta)
    for x in inputs:
        x.requires_grad_()
    times = []
    for _ in range(4):
        start = time.perf_counter()
        y, _ = torch_chunk_gated_delta_rule(*inputs)
        middle = time.perf_counter()
        y.backward(dy)
        times.append((middle - start, time.perf_counter() - start))
    forward, both = (statistics.median(column) for column in zip(*times[1:]))
    print("transformers gated delta rule f32, %d threads, %s: 16 key heads, 32 value heads, D=128, T=%d: forward %.2f s, "
          "both %.2f s" % (threads, torch.backends.cpu.get_cpu_capability(), length, forward, both))


main()
