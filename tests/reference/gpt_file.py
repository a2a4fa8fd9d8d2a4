"""Shared by gpt_torch.py and gpt_muon_torch.py: training texts, a training loop, and the result file.

The file is a heed checkpoint, so that the test reads weights and batches with load_checkpoint.
"""
import json
import os
import sys

import h5py
import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "docs", "python"))
from seal_checkpoint import seal  # noqa: E402


def learnable_text(steps, batch, context, vocabulary):
    """Tokens [steps, batch, context + 1] that a model can learn: each token depends on the previous one, with noise."""
    rng = np.random.default_rng(7)
    return torch.tensor(rng.integers(1, 4, size=(steps, batch, context + 1)).cumsum(-1) % vocabulary)


def train(loss_of, optimizers, text):
    """Returns the loss of each step."""
    losses = []
    for t in text:
        loss = loss_of(t[:, :-1], t[:, 1:])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


def write(name, weights, text, losses, config):
    """Writes the checkpoint. losses: a list per dtype."""
    path = os.path.join(HERE, name)
    with h5py.File(path, "w", userblock_size=512) as file:
        for key, value in weights.items():
            file["model/" + key] = value.numpy()
        file["data/text"] = text.numpy().astype(np.int32)
        for dtype, values in losses.items():
            file["losses/" + dtype] = np.array(values)
        file.attrs["config"] = json.dumps(config)
    seal(path)
