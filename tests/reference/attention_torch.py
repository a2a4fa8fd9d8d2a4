"""Writes attention_torch.json: outputs and gradients of softmax, linear, Efficient and Taylor attention in float64,
computed by PyTorch from their formulas.

usage: python3 tests/reference/attention_torch.py        (packages: python3-torch)
"""
import json
import math
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(11)
B, H, T, S, D, V = 2, 2, 5, 7, 4, 3
EPS = 1e-6
double = torch.float64
LENGTHS = torch.tensor([7, 4])


def randn(*shape):
    return torch.randn(*shape, dtype=double)


inputs = dict(q=randn(B, H, T, D), k=randn(B, H, S, D), v=randn(B, H, S, V))
dy = randn(B, H, T, V)


def allowed(causal, lengths):
    i, j = torch.arange(T)[:, None], torch.arange(S)[None, :]
    pairs = torch.ones(B, 1, T, S, dtype=torch.bool)
    if causal:
        pairs = pairs & (j <= i + S - T)
    if lengths:
        pairs = pairs & (j < LENGTHS[:, None, None, None])
    return pairs


def softmax(q, k, v, pairs):
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(D)
    return torch.einsum("bhts,bhsv->bhtv", torch.softmax(scores.masked_fill(~pairs, -math.inf), -1), v)


def kernel(feature, eps=EPS):
    def attend(q, k, v, pairs):
        w = torch.einsum("bhtd,bhsd->bhts", feature(q), feature(k)).masked_fill(~pairs, 0)
        return torch.einsum("bhts,bhsv->bhtv", w, v) / (w.sum(-1, keepdim=True) + eps)

    return attend


def efficient(q, k, v, pairs):
    """Row by row, so that each row has a softmax over its own keys."""
    rows = []
    for t in range(T):
        features = torch.softmax(k.masked_fill(~pairs[:, :, t, :, None], -math.inf), -2)
        context = torch.einsum("bhsd,bhsv->bhdv", features, v)
        rows.append(torch.einsum("bhd,bhdv->bhv", torch.softmax(q[:, :, t], -1), context))
    return torch.stack(rows, 2)


MECHANISMS = {
    "softmax": softmax,
    "elu": kernel(lambda x: F.elu(x) + 1),
    "relu": kernel(torch.relu),
    "softplus": kernel(F.softplus),
    "exp": kernel(torch.exp, 0),
    "poly2": kernel(lambda x: torch.einsum("bhsd,bhse->bhsde", x, x).flatten(3)),
    "taylor": kernel(lambda x: torch.cat([torch.ones_like(x[..., :1]), F.normalize(x, dim=-1)], -1)),
    "efficient": efficient,
}


def stored(tensor):
    return dict(shape=list(tensor.shape), values=tensor.detach().flatten().tolist())


cases = {}
for name, attend in MECHANISMS.items():
    for how, pairs in (("plain", allowed(False, False)), ("lengths", allowed(False, True)), ("causal, lengths", allowed(True, True))):
        x = {key: value.clone().requires_grad_() for key, value in inputs.items()}
        y = attend(x["q"], x["k"], x["v"], pairs)
        y.backward(dy)
        cases[f"{name}, {how}"] = dict(y=stored(y), **{key: stored(value.grad) for key, value in x.items()})

data = dict(inputs={key: stored(value) for key, value in {**inputs, "dy": dy}.items()}, cases=cases)
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(data, separators=(",", ":")).replace("},\"", "},\n\"") + "\n")
print(path.name, path.stat().st_size, "bytes")
