"""The PyTorch side of bench_attention: causal softmax attention, forward and backward, 8 heads of 64, one sequence.

A product, a mask, a softmax and a product, as PyTorch 1.13 has no fused attention for processors.

usage: OMP_NUM_THREADS=2 python3 attention_torch.py [threads]
Packages: those of gpt_step_torch.py
"""
import statistics
import sys
import time

import torch

from openmp_blas import require_openmp_blas


def attend(q, k, v, future):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v


def measure(length, heads=8, width=64, budget=3.0):
    q, k, v, dy = (torch.randn(1, heads, length, width) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_()
    future = torch.ones(length, length).triu(1).bool()
    times, end = [], time.perf_counter() + budget
    while len(times) < 4 or time.perf_counter() < end:
        start = time.perf_counter()
        attend(q, k, v, future).backward(dy)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]) / length


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    torch.set_num_threads(threads)
    require_openmp_blas()
    for length in (256, 1024, 4096):
        print("torch causal softmax attention f32, %d threads: T = %-5d both %8.2f us a token"
              % (threads, length, measure(length) * 1e6))


main()
