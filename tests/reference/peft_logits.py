"""Used by tests/io/peft_test.cpp: PEFT's logits of an adapter that heed wrote.

usage: python3 tests/reference/peft_logits.py llama|llama_some|gpt2 FOLDER        (PyPI: torch, transformers, peft)
FOLDER has an adapter and tokens.safetensors; logits.safetensors is written there. The base is that of lora_peft.py.
"""
import os
import sys

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lora_peft  # noqa: E402


def main():
    name, folder = sys.argv[1:]
    model = getattr(lora_peft, name.split("_")[0])().eval()
    base = load_file(os.path.join(HERE, "peft", name, "base.safetensors"))
    missing, unexpected = model.load_state_dict(base, strict=False)
    assert not unexpected and all("lm_head" in key for key in missing), (missing, unexpected)
    peft = PeftModel.from_pretrained(model, folder).double().eval()
    tensors = load_file(os.path.join(folder, "adapter_model.safetensors"))
    adapters = [key for key, _ in peft.named_parameters() if "lora_" in key]
    assert len(adapters) == len(tensors), (len(adapters), len(tensors))  # no adapter without values
    with torch.no_grad():
        logits = peft(load_file(os.path.join(folder, "tokens.safetensors"))["tokens"].long()).logits
    save_file({"logits": logits.contiguous()}, os.path.join(folder, "logits.safetensors"))


main()
