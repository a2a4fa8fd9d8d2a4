"""The llama.cpp peer of bench_generation: generates 200 tokens with a model of random weights, with 12 layers,
12 heads, width 768, and 85 million parameters without the embeddings.

usage: python3 generation_llama_cpp.py [f32|bf16|FILE.gguf] [threads]    (pip install xllamacpp gguf numpy)
A file is read with a prompt of 206 tokens. A model of random weights file is stored in the temporary folder and reused. llama.cpp spins, so it is slow on a busy machine.
"""
import json
import os
import statistics
import sys
import tempfile

import gguf
import numpy as np
import xllamacpp

LAYERS, HEADS, WIDTH, HIDDEN, CONTEXT = 12, 12, 768, 2048, 512


def write_model(path, dtype):
    rng = np.random.default_rng(0)
    letters = [bytes([c]) for c in b"abcdefghijklmnopqrstuvwxyz"]
    tokens = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{i:02X}>".encode() for i in range(256)] + [b"\xe2\x96\x81"] + letters
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(HIDDEN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(HEADS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(WIDTH // HEADS)
    w.add_vocab_size(len(tokens))
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * len(tokens))
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * 27)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)

    def matrix(name, *shape):
        a = (0.02 * rng.standard_normal(shape)).astype(np.float32)
        kind = gguf.GGMLQuantizationType.BF16
        if dtype == "bf16":
            w.add_tensor(name, gguf.quants.quantize(a, kind), raw_dtype=kind)
        else:
            w.add_tensor(name, a)

    matrix("token_embd.weight", len(tokens), WIDTH)
    matrix("output.weight", len(tokens), WIDTH)
    w.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for i in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            w.add_tensor(f"blk.{i}.{name}.weight", np.ones(WIDTH, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{i}.{name}.weight", WIDTH, WIDTH)
        for name, shape in (("gate", (HIDDEN, WIDTH)), ("up", (HIDDEN, WIDTH)), ("down", (WIDTH, HIDDEN))):
            matrix(f"blk.{i}.ffn_{name}.weight", *shape)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


dtype = sys.argv[1] if len(sys.argv) > 1 else "f32"
threads = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
published = dtype.endswith(".gguf")
path = dtype if published else os.path.join(tempfile.gettempdir(), f"heed_generation_{dtype}.gguf")
if not os.path.exists(path):
    write_model(path, dtype)
c = xllamacpp.CommonParams()
c.model.path, c.n_ctx, c.n_parallel, c.warmup = path, CONTEXT, 1, True
c.cpuparams.n_threads = c.cpuparams_batch.n_threads = threads
prompt = np.random.default_rng(3).integers(1000, 20000, 206).tolist() if published else "a b c d"
request = {"prompt": prompt, "n_predict": 200, "max_tokens": 200, "temperature": 0, "ignore_eos": True,
           "cache_prompt": False}
server = xllamacpp.Server(c)
times = []
for _ in range(3 if published else 1):
    r = server.handle_completions(request)
    times.append((r if isinstance(r, dict) else json.loads(r))["timings"])
ms = statistics.median(t["predicted_per_token_ms"] for t in times)
name = os.path.basename(path) if published else f"85M parameters, {dtype}"
print(f"llama.cpp {name}, {threads} threads, 1 rows: {ms:.2f} ms per step, {1000 / ms:.1f} tokens/s", end="")
if published:
    print(f"; {statistics.median(t['prompt_per_token_ms'] for t in times):.2f} ms per token of a prompt of 206 tokens",
          end="")
print()
