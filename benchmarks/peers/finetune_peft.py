"""The peer of bench_finetune: a step of fine-tuning a model of the sizes of SmolLM2-135M by transformers and peft.

usage: OMP_NUM_THREADS=2 python3 finetune_peft.py lora|full [--dtype f32|bf16] [--compile] [--recompute] [--batch N]
           [--length N] [--steps N]
Packages: those of requirements.txt; --compile needs g++

bf16: autocast, like heed's MatmulPrecision. Attention is scaled_dot_product_attention, which does not store all scores.
"""
import argparse
import os
import statistics
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fair import ResidentGrowth, require_fair_setup

VOCABULARY = 49152
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make_model(a):
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=1e5, tie_word_embeddings=True,
        attn_implementation="sdpa", use_cache=False))
    if a.mode == "lora":
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=LINEAR))
    if a.recompute:
        model.gradient_checkpointing_enable()
        if a.mode == "lora":
            model.enable_input_require_grads()
    return model


def main():
    p = argparse.ArgumentParser()
    p.add_argument("mode", choices=("lora", "full"))
    p.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--recompute", action="store_true")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--steps", type=int, default=3)
    a = p.parse_args()
    threads = require_fair_setup()
    torch.manual_seed(0)
    resident = ResidentGrowth(a.compile)
    model = make_model(a)
    trained = [q for q in model.parameters() if q.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    forward = torch.compile(model) if a.compile else model
    x = torch.randint(0, VOCABULARY, (a.batch, a.length))
    times = []
    for _ in range(a.steps + 1):
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = forward(input_ids=x, labels=x).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    print(f"torch finetune {a.mode} {a.dtype}, {threads} threads: {1e3 * statistics.median(times[1:]):.0f} ms/step; "
          f"resident memory grew by {resident.mib():.0f} MiB")


if __name__ == "__main__":
    main()
