"""The PyTorch peer of bench_train_step: forward, backward and AdamW of a pre-norm GPT with tied output.

usage: OMP_NUM_THREADS=2 python3 gpt_step_torch.py nano|baby|gpt2 [--dtype f32|bf16] [--compile] [--steps N]
Packages: those of requirements.txt; --compile needs g++

bf16: autocast, like heed's MatmulPrecision. Attention is scaled_dot_product_attention, which does not store all scores.
"""
import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

from fair import ResidentGrowth, require_fair_setup


class SelfAttention(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)

    def forward(self, x):
        q, k, v = (z.unflatten(-1, (self.heads, -1)).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        return self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, width, bias=True):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(width), SelfAttention(width, heads, bias), nn.LayerNorm(width),
                           nn.Sequential(nn.Linear(width, 4 * width, bias=bias), nn.GELU(),
                                         nn.Linear(4 * width, width, bias=bias))])
            for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, y):
        h = self.tokens(x) + self.positions.weight[: x.shape[1]]
        for norm1, attention, norm2, mlp in self.blocks:
            h = h + attention(norm1(h))
            h = h + mlp(norm2(h))
        return F.cross_entropy(F.linear(self.norm(h), self.tokens.weight).flatten(0, 1), y.flatten())


CONFIGS = {"nano": (65, 64, 4, 4, 128, 12), "baby": (65, 256, 6, 6, 384, 16), "gpt2": (50257, 64, 12, 12, 768, 4)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("config", choices=CONFIGS)
    p.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--steps", type=int, default=10)
    a = p.parse_args()
    threads = require_fair_setup()
    torch.manual_seed(0)
    vocabulary, context, layers, heads, width, batch = CONFIGS[a.config]
    resident = ResidentGrowth(a.compile)
    model = Model(vocabulary, context, layers, heads, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    forward = torch.compile(model) if a.compile else model
    x, y = torch.randint(vocabulary, (2, batch, context))
    times = []
    for step in range(a.steps + 2):
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = forward(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step >= 2:
            times.append(time.perf_counter() - start)
    median = statistics.median(times)
    print("torch %s %s%s, %d threads, %s: %.2f ms/step, %.0f tokens/s; resident memory grew by %.0f MiB"
          % (a.config, a.dtype, " compiled" if a.compile else "", threads, torch.backends.cpu.get_cpu_capability(),
             median * 1e3, batch * context / median, resident.mib()))


if __name__ == "__main__":
    main()
