"""The PyTorch peer of bench_start: a GPT-2 of transformers with initial weights, and 10^8 normal numbers.

usage: OMP_NUM_THREADS=2 python3 start_torch.py
Packages: those of requirements.txt

Medians of three runs after a first one, which allocates the memory that later runs reuse.
"""
import statistics
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from fair import require_fair_setup


def median_seconds(run):
    run()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    threads = require_fair_setup()
    config = GPT2Config()  # 12 layers, width 768, vocabulary 50257, context 1024
    numbers = torch.empty(10**8)
    for name, run in (("GPT-2: initial weights", lambda: GPT2LMHeadModel(config)),
                      ("10^8 normal numbers", lambda: numbers.normal_())):
        print("torch %s, %d threads: %.3f s" % (name, threads, median_seconds(run)), flush=True)


main()
