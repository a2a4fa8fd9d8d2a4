"""Writes gpt2_transformers.h5: random weights of a small GPT-2 with heed's names, tokens, and the logits of
transformers' GPT2LMHeadModel in float64.

usage: python3 tests/reference/gpt2_transformers.py        (PyPI: torch, transformers, h5py; nothing is downloaded)
The file is a heed checkpoint with the settings of `train_lm --preset gpt2` except for its sizes.
"""
import json
import os
import sys

import h5py
import torch
from transformers import GPT2Config, GPT2LMHeadModel

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "docs", "python"))
from seal_checkpoint import seal  # noqa: E402

VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH = 23, 12, 2, 2, 8
PARTS = {"ln_1": "norm1", "ln_2": "norm2", "attn.c_attn": "attention.qkv", "attn.c_proj": "attention.proj", "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down"}


def heeds_name(name):
    """transformer.h.0.attn.c_attn.weight -> blocks.0.attention.qkv.weight"""
    name = name.removeprefix("transformer.").replace("wte.", "tokens.").replace("wpe.", "positions.").replace("ln_f.", "norm.")
    if not name.startswith("h."):
        return name
    _, block, rest = name.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return "blocks.%s.%s.%s" % (block, PARTS[part], kind)


def main():
    torch.manual_seed(3)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, bos_token_id=0, eos_token_id=0)).double().eval()
    tokens = torch.randint(0, VOCABULARY, (2, CONTEXT))
    with torch.no_grad():
        for name, p in model.named_parameters():
            centre = 1 if "ln_" in name and name.endswith("weight") else 0
            p.copy_((centre + torch.randn(p.shape) * 0.4).float().double())  # exact in float32
        logits = model(tokens).logits
    path = os.path.join(HERE, "gpt2_transformers.h5")
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, p in model.named_parameters():
            value = p.detach().numpy()
            # Conv1D stores its weight as [in, out], Linear and heed as [out, in].
            file["model/" + heeds_name(name)] = value.T if ".c_" in name and name.endswith("weight") else value
        file["data/tokens"] = tokens.numpy().astype("int32")
        file["data/logits"] = logits.numpy()
        file["config"] = json.dumps({"model": "gpt", "vocabulary": VOCABULARY, "context": CONTEXT, "layers": LAYERS, "heads": HEADS, "width": WIDTH,
                                     "activation": "gelu-tanh", "bias": True})
    seal(path)


main()
