"""Writes tests/reference/peft: a tiny random Llama and GPT-2 with LoRA adapters, as PEFT saves them, and PEFT's results.

usage: python3 tests/reference/lora_peft.py        (PyPI: torch, transformers, peft; nothing is downloaded)
Each folder has base.safetensors (the weights with the names of transformers), the adapter's two files, and
values.safetensors: tokens, logits, the logits after merging, the loss, and the gradients of the adapters by name.
All values are computed in float64; weights and adapters are exact in float32.
"""
import os
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))


def llama():
    return LlamaForCausalLM(LlamaConfig(vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
                                        num_key_value_heads=1, max_position_embeddings=16, rms_norm_eps=1e-6, tie_word_embeddings=False))


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=16, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))


def exact(p, deviation, centre=0.0):
    p.copy_((centre + torch.randn(p.shape) * deviation).float().double())


def write(name, model, config):
    folder = os.path.join(HERE, "peft", name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model = model.double().eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            exact(p, 0.4, 1.0 if "norm" in key or "ln_" in key and key.endswith("weight") else 0.0)
    base = {k: v.float().clone() for k, v in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        base.pop("lm_head.weight", None)
    save_file(base, os.path.join(folder, "base.safetensors"), {"format": "pt"})
    peft = get_peft_model(model, config).double().eval()
    with torch.no_grad():
        for key, p in peft.named_parameters():
            if p.requires_grad:
                exact(p, 0.5)
    tokens = torch.randint(0, 11, (2, 7))
    out = peft(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(out.logits.reshape(-1, 11), tokens[:, 1:].reshape(-1))
    loss.backward()
    values = {"tokens": tokens.int(), "logits": out.logits.detach(), "loss": loss.detach()}
    for key, p in peft.named_parameters():
        if p.requires_grad:
            values["gradient." + key.replace(".default", "")] = p.grad.clone()
    peft.float().save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    merged = peft.double().merge_and_unload()
    values["merged"] = merged(tokens[:, :-1]).logits.detach()
    save_file({k: v.contiguous().clone() for k, v in values.items()}, os.path.join(folder, "values.safetensors"))


def main():
    torch.manual_seed(5)
    write("llama", llama(), LoraConfig(r=3, lora_alpha=5, task_type="CAUSAL_LM", target_modules=[
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]))
    write("llama_some", llama(), LoraConfig(r=2, lora_alpha=3, use_rslora=True, target_modules=["q_proj", "v_proj", "up_proj"], lora_dropout=0.25,
                                            task_type="CAUSAL_LM"))
    write("gpt2", gpt2(), LoraConfig(r=2, lora_alpha=4, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True, task_type="CAUSAL_LM"))


if __name__ == "__main__":
    main()
