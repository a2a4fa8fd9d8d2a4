"""The PyTorch peer of `train_lm --preset nano`: nanoGPT's recipe for CPUs, and the loss on all held-out text.

usage: OMP_NUM_THREADS=2 python3 recipe_torch.py TEXT [--lr 1e-3] [--seed N] [--steps N]
Packages: those of requirements.txt

Characters, the last tenth held out; 2000 steps of 12 texts of 64; linear layers without bias; AdamW with betas 0.9 and 0.99 and
weight decay 0.1 on matrices; gradients clipped to 1; 100 steps of warm-up, then cosine decay to a tenth of the rate.
"""
import argparse
import math

import torch
from torch import nn

from fair import require_fair_setup
from gpt_step_torch import Model

CONTEXT, BATCH, LAYERS, WARMUP = 64, 12, 4, 100


def first_values(model):
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            before_sum = name.endswith(("proj.weight", "3.2.weight"))
            nn.init.normal_(weight, 0, 0.02 / math.sqrt(2 * LAYERS) if before_sum else 0.02)


def loss_of_all(model, tokens):
    rows = (len(tokens) - 1) // CONTEXT
    x, y = (tokens[i:i + rows * CONTEXT].view(rows, CONTEXT) for i in (0, 1))
    with torch.no_grad():
        parts = [model(x[i:i + 64], y[i:i + 64]) * len(x[i:i + 64]) for i in range(0, rows, 64)]
    return sum(parts).item() / rows


def main():
    p = argparse.ArgumentParser()
    p.add_argument("text")
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--steps", type=int, default=2000)
    a = p.parse_args()
    threads = require_fair_setup()
    torch.manual_seed(a.seed)
    with open(a.text, encoding="utf-8") as file:
        text = file.read()
    ids = {c: i for i, c in enumerate(sorted(set(text)))}
    tokens = torch.tensor([ids[c] for c in text])
    training, held_out = tokens.tensor_split([9 * len(tokens) // 10])
    model = Model(len(ids), CONTEXT, LAYERS, 4, 128, bias=False)
    first_values(model)
    matrices, vectors = ([w for w in model.parameters() if (w.dim() == 2) == two] for two in (True, False))
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0}],
                                  lr=a.lr, betas=(0.9, 0.99), fused=True)
    places = torch.arange(CONTEXT + 1)
    for step in range(a.steps):
        cosine = 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / max(1, a.steps - WARMUP)))
        for group in optimizer.param_groups:
            group["lr"] = a.lr * min((step + 1) / WARMUP, 0.1 + 0.9 * cosine if step >= WARMUP else 1)
        rows = training[torch.randint(len(training) - CONTEXT, (BATCH, 1)) + places]
        loss = model(rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print("torch nano recipe, rate %g, %d threads: validation loss %.4f" % (a.lr, threads, loss_of_all(model, held_out)))


main()
