"""The PyTorch peer of bench_flex_attention: causal attention of 8 heads of 64, one sequence, float32.

Measures sdpa with is_causal, and with ALiBi as a materialised bias [8, T, T] or a window as a mask, forward and
backward. Measures flex_attention with the same, eager and compiled, forward only: it has no backward on CPUs.

usage: OMP_NUM_THREADS=2 python3 flex_attention_torch.py [threads]
Packages: torch 2.5 or newer
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS, WIDTH, WINDOW = 8, 64, 256


def median_ms(run, budget=2.0):
    times, end = [], time.perf_counter() + budget
    run()
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def report(length):
    q, k, v, dy = (torch.randn(1, HEADS, length, WIDTH) for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_()
    slopes = 2.0 ** -torch.arange(1, HEADS + 1)
    i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
    bias = torch.where(j <= i, -slopes[:, None, None] * (i - j), -torch.inf)[None]
    near = (j <= i) & (i - j < WINDOW)

    def row(name, attend, back=True):
        with torch.no_grad():
            forward = median_ms(lambda: attend(q.detach(), k.detach(), v.detach()))
        both = "%9.2f" % median_ms(lambda: attend(q, k, v).backward(dy)) if back else "no backward"
        print("  %-34s forward %9.2f ms, both %s" % (name, forward, both), flush=True)

    def alibi(score, b, h, q_idx, kv_idx):
        return score - slopes[h] * (q_idx - kv_idx)

    causal = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cpu")
    window = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < WINDOW), None, None, length, length, device="cpu")
    print("T = %d" % length)
    row("sdpa, causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    row("sdpa, ALiBi as a bias", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=bias))
    row("sdpa, window of 256 as a mask", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=near))
    row("flex_attention, ALiBi, eager", lambda q, k, v: flex_attention(q, k, v, score_mod=alibi, block_mask=causal), back=False)
    row("flex_attention, window, eager", lambda q, k, v: flex_attention(q, k, v, block_mask=window), back=False)
    try:
        compiled = torch.compile(flex_attention)
        row("flex_attention, ALiBi, compiled", lambda q, k, v: compiled(q, k, v, score_mod=alibi, block_mask=causal), back=False)
        row("flex_attention, window, compiled", lambda q, k, v: compiled(q, k, v, block_mask=window), back=False)
    except Exception as error:  # needs a C++ compiler
        print("  compiled: %s" % str(error).splitlines()[0][:100])


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    torch.set_num_threads(threads)
    print("torch %s, float32, %d threads" % (torch.__version__, threads))
    for length in (1024, 4096):
        report(length)


main()
