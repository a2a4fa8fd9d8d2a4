"""Saves a PyTorch model as a heed checkpoint: save("lm.h5", model.state_dict(), {"model": "gpt", ...})"""
import json

import h5py
import numpy as np
import torch
from seal_checkpoint import seal

def save(path, state, config):
    with h5py.File(path, "w", userblock_size=512) as file:
        file["config"] = json.dumps(config)
        for name, value in state.items():
            value = value.detach().cpu().contiguous()
            if value.dtype == torch.int64:
                value = value.int()  # heed's integers have 32 bits
            if value.dtype == torch.bfloat16:
                file["model/" + name] = value.view(torch.int16).numpy().view(np.uint16)
                file["model/" + name].attrs["dtype"] = "bfloat16"
            else:
                file["model/" + name] = value.numpy()
    seal(path)
