"""Writes losses_torch.json: values and gradients of PyTorch's losses and layer_norm in float64, on small inputs.

    python3 tests/reference/losses_torch.py        (PyTorch 1.13)
"""
import json
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(1)
double = torch.float64
out = {}


def randn(*shape):
    return torch.randn(*shape, dtype=double)


def put(name, tensor):
    out[name] = tensor.detach().to(double)


def run(name, f, inputs, dy=None):
    """Stores f(inputs) as `name`, and the gradients of the inputs as name.d0, name.d1, ..."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    y = f(*leaves)
    put(name, y)
    y.backward(torch.ones_like(y) if y.dim() == 0 else dy)
    for i, leaf in enumerate(leaves):
        if leaf.grad is not None:
            put(f"{name}.d{i}", leaf.grad)


logits, targets = 2 * randn(7, 5), torch.tensor([0, 4, -100, 2, 2, -100, 1])
class_weight, dy_rows = torch.rand(5, dtype=double) + 0.1, randn(7)
put("logits", logits), put("targets", targets), put("class_weight", class_weight), put("dy_rows", dy_rows)
for weight in (None, class_weight):
    for smoothing in (0.0, 0.2, 1.0):
        for reduction in ("none", "mean", "sum"):
            name = f"cross_entropy {'weighted ' if weight is not None else ''}{smoothing} {reduction}"
            run(name, lambda x: F.cross_entropy(x, targets, weight=weight, label_smoothing=smoothing, reduction=reduction),
                [logits], dy_rows)

x, t, dy = randn(4, 6), randn(4, 6), randn(4, 6)
put("x", x), put("t", t), put("dy", dy)
for reduction in ("none", "mean", "sum"):
    run(f"mse {reduction}", lambda a, b: F.mse_loss(a, b, reduction=reduction), [x, t], dy)
    run(f"l1 {reduction}", lambda a, b: F.l1_loss(a, b, reduction=reduction), [x, t], dy)
    run(f"huber {reduction}", lambda a, b: F.huber_loss(a, b, reduction=reduction, delta=0.7), [x, t], dy)

share, element_weight, pos_weight = torch.rand(4, 6, dtype=double), torch.rand(4, 6, dtype=double), torch.rand(6, dtype=double) + 0.5
put("share", share), put("element_weight", element_weight), put("pos_weight", pos_weight)
for weight in (None, element_weight):
    for positive in (None, pos_weight):
        for reduction in ("none", "mean", "sum"):
            name = f"bce {'weight ' if weight is not None else ''}{'pos_weight ' if positive is not None else ''}{reduction}"
            run(name, lambda a, b: F.binary_cross_entropy_with_logits(a, b, weight=weight, pos_weight=positive, reduction=reduction),
                [3 * x, share], dy)

log_p, q = F.log_softmax(x, -1), F.softmax(t, -1)
put("log_p", log_p), put("q", q), put("log_q", q.log())
for reduction in ("none", "mean", "sum", "batchmean"):
    run(f"kl {reduction}", lambda a, b: F.kl_div(a, b, reduction=reduction), [log_p, q], dy)
    run(f"kl log {reduction}", lambda a, b: F.kl_div(a, b, reduction=reduction, log_target=True), [log_p, q.log()], dy)

gain, shift = randn(6), randn(6)
put("gain", gain), put("shift", shift)
run("layer_norm", lambda a, w, b: F.layer_norm(a, (6,), w, b, eps=1e-3), [x, gain, shift], dy)
run("layer_norm plain", lambda a: F.layer_norm(a, (6,)), [x], dy)
run("rms_norm", lambda a, w: a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-3) * w, [x, gain], dy)

data = {name: dict(shape=list(x.shape), values=x.flatten().tolist()) for name, x in out.items()}
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(data, separators=(",", ":")).replace("},\"", "},\n\"") + "\n")
print(path.name, path.stat().st_size, "bytes")
