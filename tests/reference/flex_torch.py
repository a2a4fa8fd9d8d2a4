"""Writes flex_torch.json: outputs and gradients of softmax attention with score functions, masks and sinks in float64,
by an explicit softmax with autograd. PyTorch's flex_attention has no backward on CPUs, so only its forward is compared
with the explicit softmax, for the cases that it supports.

usage: python3 tests/reference/flex_torch.py        (packages: torch 2.5 or newer)
"""
import json
import math
import pathlib
import warnings

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

warnings.filterwarnings("ignore")
torch.manual_seed(13)
B, H, HK, T, S, D, V = 2, 4, 2, 5, 7, 4, 3
double = torch.float64


def randn(*shape):
    return torch.randn(*shape, dtype=double)


inputs = dict(q=randn(B, H, T, D), k=randn(B, HK, S, D), v=randn(B, HK, S, V), slopes=torch.rand(H, dtype=double), cap=2 + torch.rand(H, dtype=double),
              table=randn(H, 7), sinks=randn(H))
dy = randn(B, H, T, V)
q_idx, k_idx = torch.arange(T)[:, None] + S - T, torch.arange(S)[None, :]

# name: the function of scores [B, H, T, S] and parameters, the same function for one score, the parameters
MODS = {
    "alibi": (lambda s, x: s - x["slopes"][:, None, None] * (q_idx - k_idx).abs(),
              lambda x: lambda s, b, h, q, k: s - x["slopes"][h] * (q + S - T - k).abs(), ["slopes"]),
    "soft cap": (lambda s, x: x["cap"][:, None, None] * torch.tanh(s / x["cap"][:, None, None]),
                 lambda x: lambda s, b, h, q, k: x["cap"][h] * torch.tanh(s / x["cap"][h]), ["cap"]),
    "relative": (lambda s, x: s + x["table"][:, (k_idx - q_idx).clamp(-3, 3) + 3],
                 lambda x: lambda s, b, h, q, k: s + x["table"][h, (k - q - S + T).clamp(-3, 3) + 3], ["table"]),
    "own": (lambda s, x: x["cap"][:, None, None] * torch.sin(s) + x["table"][:, (k_idx - q_idx).clamp(-3, 3) + 3] * s,
            lambda x: lambda s, b, h, q, k: x["cap"][h] * torch.sin(s) + x["table"][h, (k - q - S + T).clamp(-3, 3) + 3] * s, ["cap", "table"]),
}


def stored(tensor):
    return dict(shape=list(tensor.shape), values=tensor.detach().flatten().tolist())


cases = {}
for name, (mod, one, parameters) in MODS.items():
    for how in ("plain", "causal window", "causal window, sinks"):
        x = {key: value.clone().requires_grad_() for key, value in inputs.items()}
        pairs = (k_idx <= q_idx) & (q_idx - k_idx < 3) if "window" in how else torch.ones(T, S, dtype=torch.bool)
        k, v = (x[n].repeat_interleave(H // HK, 1) for n in ("k", "v"))
        scores = mod(x["q"] @ k.mT / math.sqrt(D), x).masked_fill(~pairs, -math.inf)
        if "sinks" in how:
            scores = torch.cat([scores, x["sinks"][None, :, None, None].expand(B, H, T, 1)], -1)
        y = scores.softmax(-1)[..., :S] @ v
        y.backward(dy)
        if "sinks" not in how:
            d = {key: value.detach() for key, value in x.items()}
            mask = None
            if "window" in how:
                mask = create_block_mask(lambda b, h, q, k: (k <= q + S - T) & (q + S - T - k < 3), None, None, T, S, device="cpu")
            flex = flex_attention(d["q"], d["k"], d["v"], score_mod=one(d), block_mask=mask, enable_gqa=True)
            assert torch.allclose(flex, y, rtol=1e-6, atol=1e-7), (name, how, (flex - y).abs().max())
        expected = ["q", "k", "v"] + parameters + (["sinks"] if "sinks" in how else [])
        cases[f"{name}, {how}"] = dict(y=stored(y), **{key: stored(x[key].grad) for key in expected})

data = dict(inputs={key: stored(value) for key, value in {**inputs, "dy": dy}.items()}, cases=cases)
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(data, separators=(",", ":")).replace("},\"", "},\n\"") + "\n")
print(path.name, path.stat().st_size, "bytes")
