"""Writes ctc_torch.json: PyTorch's ctc_loss of log_softmax(logits) in float64, and the gradients of the logits.

    python3 tests/reference/ctc_torch.py        (PyTorch 2.13)
"""
import json
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(1)
out = {}
N, T, C, S = 4, 12, 6, 5
logits = 2 * torch.randn(N, T, C, dtype=torch.float64)
targets = torch.tensor([[1, 1, 2, 3, 4], [5, 2, 5, 0, 0], [3, 0, 0, 0, 0], [2, 2, 2, 2, 2]])
input_lengths, target_lengths = torch.tensor([12, 7, 9, 8]), torch.tensor([5, 3, 0, 5])  # no path fits the last
dy = torch.randn(N, dtype=torch.float64)
out.update(logits=logits, targets=targets, input_lengths=input_lengths, target_lengths=target_lengths, dy=dy)
for reduction in ("none", "mean", "sum"):
    for blank in (0, 5):
        for zero in (False, True):
            rows = [0, 1, 2, 3] if zero else [0, 1, 2]
            labels = targets if blank == 0 else (targets - 1) % 6  # not blank within the lengths
            x = logits[rows].clone().requires_grad_()
            y = F.ctc_loss(F.log_softmax(x, -1).transpose(0, 1), labels[rows], input_lengths[rows],
                           target_lengths[rows], blank=blank, reduction=reduction, zero_infinity=zero)
            y.backward(dy[rows] if reduction == "none" else torch.ones_like(y))
            name = f"{reduction} {blank} {'zero' if zero else 'plain'}"
            out[name], out[name + ".d"] = y.detach(), x.grad

data = {name: dict(shape=list(x.shape), values=x.flatten().tolist()) for name, x in out.items()}
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(data, separators=(",", ":")).replace("},\"", "},\n\"") + "\n")
print(path.name, path.stat().st_size, "bytes")
