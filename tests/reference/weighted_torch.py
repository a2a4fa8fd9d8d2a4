"""Writes weighted_torch.json: PyTorch's weighted means in float64, and one SGD step of a linear model with each.

    python3 tests/reference/weighted_torch.py        (PyTorch 2.13)
"""
import json
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(7)
double = torch.float64
out = {}


def put(name, tensor):
    out[name] = tensor.detach().to(double)


# ---- weighted_mean ----

values, weights, rows, mask = (torch.randn(3, 4, dtype=double), torch.rand(3, 4, dtype=double),
                               torch.rand(3, 1, dtype=double), torch.rand(3, 4) > 0.4)
put("values", values), put("weights", weights), put("rows", rows), put("mask", mask)
for name, w in (("weights", weights), ("rows", rows), ("mask", mask.to(double))):
    x = values.clone().requires_grad_()
    y = (x * w).sum() / w.expand(3, 4).sum()
    y.backward()
    put(f"mean {name}", y), put(f"mean {name}.d", x.grad)

# ---- One step of SGD over all rows: logits = x W + b ----

x, weight, bias = torch.randn(8, 4, dtype=double), torch.randn(4, 3, dtype=double), torch.randn(3, dtype=double)
targets = torch.tensor([1, 1, 1, 0, 2, 2, 1, 2])
class_weight = torch.tensor([0.0, 1.0, 3.0], dtype=double)
numbers, sample_weight = torch.randn(8, 3, dtype=double), torch.tensor([1, 0.5, 2, 0, 3, 0.25, 0, 1], dtype=double)
put("x", x), put("weight", weight), put("bias", bias), put("targets", targets), put("class_weight", class_weight)
put("numbers", numbers), put("sample_weight", sample_weight)
losses = {
    "class weights": lambda y: F.cross_entropy(y, targets, weight=class_weight),
    "smoothed class weights": lambda y: F.cross_entropy(y, targets, weight=class_weight, label_smoothing=0.1),
    "ignored class": lambda y: F.cross_entropy(y, targets, ignore_index=0),
    "sample weights": lambda y: ((y - numbers) ** 2 * sample_weight[:, None]).sum() / (3 * sample_weight.sum()),
    "element weights": lambda y: F.binary_cross_entropy_with_logits(y, torch.sigmoid(numbers), weight=sample_weight[:, None]),
}
for name, loss_of in losses.items():
    for clip in (0, 0.1):
        w, b = weight.clone().requires_grad_(), bias.clone().requires_grad_()
        optimizer = torch.optim.SGD([w, b], lr=0.1)
        loss = loss_of(x @ w + b)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([w, b], clip if clip > 0 else float("inf"))
        optimizer.step()
        title = f"{name} {clip}"
        put(f"{title} loss", loss), put(f"{title} norm", norm), put(f"{title} weight", w), put(f"{title} bias", b)

data = {name: dict(shape=list(x.shape), values=x.flatten().tolist()) for name, x in out.items()}
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(data, separators=(",", ":")).replace("},\"", "},\n\"") + "\n")
print(path.name, path.stat().st_size, "bytes")
