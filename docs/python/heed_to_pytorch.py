"""Loads a heed checkpoint: model.load_state_dict(load("lm.h5")[1])"""
import json

import h5py
import numpy as np
import torch

def tensor(data):
    values = np.array(data)
    if data.attrs.get("dtype") == "bfloat16":  # kept as uint16, which HDF5 has
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)

def load(path):
    """The configuration (a dict) and the state dict (names to tensors) of a checkpoint."""
    with h5py.File(path) as file:
        config = json.loads(file["config"][()]) if "config" in file else {}
        return config, {name: tensor(data) for name, data in file["model"].items()}
