"""Makes gpt_torch.h5: initial weights of a small GPT, 50 batches, and PyTorch's losses over 50 AdamW steps in float32 and float64.

usage: python3 tests/reference/gpt_torch.py        (packages: python3-torch, python3-h5py)
The file is a heed checkpoint, so that the test reads weights and batches with load_checkpoint.
"""
import json
import math
import os
import sys

import h5py
import numpy as np
import torch
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "docs", "python"))
from seal_checkpoint import seal  # noqa: E402

VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH, BATCH, STEPS = 29, 16, 2, 4, 32, 4, 50


def initial_weights():
    g = torch.Generator().manual_seed(5)

    def normal(*shape, deviation=0.1):
        return torch.randn(*shape, generator=g, dtype=torch.float64).mul(deviation).float().double()  # exact in float32

    weights = {"tokens.weight": normal(VOCABULARY, WIDTH), "positions.weight": normal(CONTEXT, WIDTH)}
    for i in range(LAYERS):
        b = "blocks.%d." % i
        for norm in ("norm1", "norm2"):
            weights[b + norm + ".weight"] = 1 + normal(WIDTH)
            weights[b + norm + ".bias"] = normal(WIDTH)
            weights[b + norm + ".weight"] = weights[b + norm + ".weight"].float().double()
        for name, out, into in (("attention.qkv", 3 * WIDTH, WIDTH), ("attention.proj", WIDTH, WIDTH), ("mlp.up", 4 * WIDTH, WIDTH), ("mlp.down", WIDTH, 4 * WIDTH)):
            weights[b + name + ".weight"] = normal(out, into)
            weights[b + name + ".bias"] = normal(out)
    weights["norm.weight"], weights["norm.bias"] = (1 + normal(WIDTH)).float().double(), normal(WIDTH)
    return weights


def loss_of(w, x, y):
    h = F.embedding(x, w["tokens.weight"]) + w["positions.weight"][: x.shape[1]]
    for i in range(LAYERS):
        p = lambda name: w["blocks.%d.%s" % (i, name)]  # noqa: E731
        n = F.layer_norm(h, (WIDTH,), p("norm1.weight"), p("norm1.bias"))
        q, k, v = (t.view(*x.shape, HEADS, -1).transpose(1, 2) for t in F.linear(n, p("attention.qkv.weight"), p("attention.qkv.bias")).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        a = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        h = h + F.linear(a.transpose(1, 2).flatten(2), p("attention.proj.weight"), p("attention.proj.bias"))
        n = F.layer_norm(h, (WIDTH,), p("norm2.weight"), p("norm2.bias"))
        h = h + F.linear(F.gelu(F.linear(n, p("mlp.up.weight"), p("mlp.up.bias"))), p("mlp.down.weight"), p("mlp.down.bias"))
    logits = F.linear(F.layer_norm(h, (WIDTH,), w["norm.weight"], w["norm.bias"]), w["tokens.weight"])
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def train(weights, batches, dtype):
    w = {name: value.to(dtype).clone().requires_grad_() for name, value in weights.items()}
    optimizer = torch.optim.AdamW(w.values(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    losses = []
    for x, y in batches:
        loss = loss_of(w, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)
    weights = initial_weights()
    # A learnable sequence, so that the losses fall: each token follows from the one before, with noise.
    rng = np.random.default_rng(7)
    steps = rng.integers(1, 4, size=(STEPS, BATCH, CONTEXT + 1))
    text = torch.tensor(steps.cumsum(-1) % VOCABULARY)
    batches = [(t[:, :-1], t[:, 1:]) for t in text]
    path = os.path.join(HERE, "gpt_torch.h5")
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in weights.items():
            file["model/" + name] = value.numpy()
        file["data/text"] = text.numpy().astype(np.int32)
        file["losses/float64"] = np.array(train(weights, batches, torch.float64))
        file["losses/float32"] = np.array(train(weights, batches, torch.float32))
        file.attrs["config"] = json.dumps({"model": "gpt", "vocabulary": VOCABULARY, "context": CONTEXT, "layers": LAYERS, "heads": HEADS, "width": WIDTH})
    seal(path)


main()
