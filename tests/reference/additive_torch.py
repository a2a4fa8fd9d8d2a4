"""Writes additive_torch.json: outputs, weights and gradients of Luong's and Bahdanau's attention mechanisms in float64,
computed by PyTorch from their formulas.

usage: python3 tests/reference/additive_torch.py        (packages: python3-torch)
"""
import json
import math
import pathlib

import torch

torch.manual_seed(7)
B, H, T, S, D, A, V = 2, 2, 4, 6, 3, 5, 2
MAX_LENGTH = 8
double = torch.float64
LENGTHS = torch.tensor([6, 4])


def randn(*shape):
    return torch.randn(*shape, dtype=double)


inputs = dict(q=randn(B, H, T, D), k=randn(B, H, S, D), v=randn(B, H, S, V))
parameters = dict(general=randn(H, D, D), W=randn(H, A, D), U=randn(H, A, D), score=randn(H, A), gain=randn(H).abs() + 0.5, bias=randn(H, A),
                  location=randn(H, MAX_LENGTH, D), beta=randn(H).abs() + 0.5)
dy = randn(B, H, T, V)


def additive(x, gain=None, bias=None):
    a = torch.einsum("bhtd,had->bhta", x["q"], x["W"])
    c = torch.einsum("bhsd,had->bhsa", x["k"], x["U"])
    if bias is not None:
        a = a + bias[:, None, :]
    u = x["score"]
    if gain is not None:
        u = gain[:, None] * u / u.norm(dim=-1, keepdim=True)
    return torch.einsum("bhtsa,ha->bhts", torch.tanh(a[:, :, :, None] + c[:, :, None]), u)


SCORES = {
    "luong-dot": lambda x: torch.einsum("bhtd,bhsd->bhts", x["q"], x["k"]),
    "luong-general": lambda x: torch.einsum("bhtd,hde,bhse->bhts", x["q"], x["general"], x["k"]),
    "luong-concat": lambda x: additive(x, bias=x["bias"]),
    "luong-location": lambda x: torch.einsum("bhtd,hsd->bhts", x["q"], x["location"][:, :S]),
    "bahdanau": lambda x: additive(x),
    "bahdanau normalized": lambda x: additive(x, x["gain"], x["bias"]),
    "cosine": lambda x: x["beta"][:, None, None] * torch.cosine_similarity(x["q"][:, :, :, None], x["k"][:, :, None], dim=-1, eps=1e-30),
}


def stored(tensor):
    return dict(shape=list(tensor.shape), values=tensor.detach().flatten().tolist())


cases = {}
for name, score in SCORES.items():
    for how in ("plain", "causal, lengths"):
        x = {key: value.clone().requires_grad_() for key, value in {**inputs, **parameters}.items()}
        s = score(x)
        if how != "plain":
            i, j = torch.arange(T)[:, None], torch.arange(S)[None, :]
            allowed = (j <= i + S - T) & (j < LENGTHS[:, None, None, None])
            s = s.masked_fill(~allowed, -math.inf)
        w = torch.softmax(s, -1)
        y = torch.einsum("bhts,bhsv->bhtv", w, x["v"])
        y.backward(dy)
        cases[f"{name}, {how}"] = dict(y=stored(y), weights=stored(w), **{key: stored(value.grad) for key, value in x.items() if value.grad is not None})

data = dict(inputs={key: stored(value) for key, value in {**inputs, **parameters, "dy": dy}.items()}, cases=cases)
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(data, separators=(",", ":")).replace("},\"", "},\n\"") + "\n")
print(path.name, path.stat().st_size, "bytes")
