"""The PyTorch side of bench_train_step: forward, backward and AdamW of a pre-norm GPT with tied output.

usage: OMP_NUM_THREADS=2 python3 gpt_step_torch.py nano|baby|gpt2 [threads] [steps]
Packages: python3-torch and libopenblas0-openmp, the latter chosen as libblas.so.3 (with the pthread build the two thread pools fight).
"""
import math
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

from openmp_blas import require_openmp_blas


def status_mib(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key))


class SelfAttention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("future", torch.ones(context, context).triu(1).bool())

    def forward(self, x):
        batch, length, width = x.shape
        # Split, then transposed: PyTorch's products of a permuted [3, ...] were seen to take twice the time.
        q, k, v = (z.view(batch, length, self.heads, -1).transpose(1, 2) for z in self.qkv(x).split(width, 2))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(self.future[:length, :length], -math.inf).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Model(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, width):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(width), SelfAttention(width, heads, context), nn.LayerNorm(width),
                           nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))])
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
    name = sys.argv[1] if len(sys.argv) > 1 else "nano"
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    require_openmp_blas()
    vocabulary, context, layers, heads, width, batch = CONFIGS[name]
    resident = status_mib("VmRSS")
    model = Model(vocabulary, context, layers, heads, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    x, y = torch.randint(vocabulary, (2, batch, context))
    times = []
    for step in range(steps + 2):
        start = time.perf_counter()
        loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step >= 2:
            times.append(time.perf_counter() - start)
    median = statistics.median(times)
    print("torch %s f32, %d threads: %.2f ms/step, %.0f tokens/s; resident memory grew by %.0f MiB"
          % (name, threads, median * 1e3, batch * context / median, status_mib("VmHWM") - resident))


main()
