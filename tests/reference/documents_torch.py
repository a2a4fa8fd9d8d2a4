"""Writes documents_torch.json: outputs and gradients of causal attention over rows that hold several documents, in
float64. PyTorch's scaled_dot_product_attention is called once per document, so that no mask is involved.

usage: python3 tests/reference/documents_torch.py        (packages: python3-torch)
"""
import json
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(5)
B, H, KV, T, D, V = 2, 4, 2, 13, 6, 3
LENGTHS = [[5, 1, 7], [13]]  # of the documents of each row


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


inputs = dict(q=randn(B, H, T, D), k=randn(B, KV, T, D), v=randn(B, KV, T, V))
dy = randn(B, H, T, V)
x = {name: value.clone().requires_grad_() for name, value in inputs.items()}
rows, documents = [], []
for b, lengths in enumerate(LENGTHS):
    parts, first, begins = [], 0, []
    for length in lengths:
        q, k, v = (x[name][b : b + 1, :, first : first + length] for name in "qkv")
        parts.append(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
        begins += [first] * length
        first += length
    rows.append(torch.cat(parts, 2))
    documents.append(begins)
y = torch.cat(rows)
y.backward(dy)


def stored(tensor):
    return dict(shape=list(tensor.shape), values=tensor.detach().flatten().tolist())


case = dict(y=stored(y), **{name: stored(value.grad) for name, value in x.items()})
data = dict(
    inputs={name: stored(value) for name, value in {**inputs, "dy": dy, "documents": torch.tensor(documents)}.items()},
    cases={"causal": case},
)
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(data, separators=(",", ":")).replace("},\"", "},\n\"") + "\n")
print(path.name, path.stat().st_size, "bytes")
