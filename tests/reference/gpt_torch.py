"""Writes gpt_torch.h5: initial weights of a small GPT, 50 batches, and PyTorch's losses over 50 AdamW steps in float32
and float64.

usage: python3 tests/reference/gpt_torch.py        (packages: torch 2.13, h5py, xxhash)
"""
import math

import torch
from torch.nn import functional as F

from gpt_file import learnable_text, train, write

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


def losses_of(weights, text, dtype):
    w = {name: value.to(dtype).clone().requires_grad_() for name, value in weights.items()}
    optimizer = torch.optim.AdamW(w.values(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    return train(lambda x, y: loss_of(w, x, y), [optimizer], text)


torch.set_num_threads(1)
weights, text = initial_weights(), learnable_text(STEPS, BATCH, CONTEXT, VOCABULARY)
write("gpt_torch.h5", weights, text, {"float64": losses_of(weights, text, torch.float64), "float32": losses_of(weights, text, torch.float32)},
      {"model": "gpt", "vocabulary": VOCABULARY, "context": CONTEXT, "layers": LAYERS, "heads": HEADS, "width": WIDTH})
