"""Writes gpt_muon_torch.h5: a small GPT with rotary positions, QK-norm and squared ReLU, and PyTorch's losses over 40
steps of Muon and AdamW.

usage: python3 tests/reference/gpt_muon_torch.py        (packages: torch 2.13, h5py, xxhash)
All values are float64. The rounding to bfloat16 in torch.optim.Muon is disabled.
"""
import torch
from torch.nn import functional as F

from gpt_file import learnable_text, train, write

VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH, BATCH, STEPS = 29, 16, 2, 4, 32, 4, 40
SIZE = WIDTH // HEADS


def initial_weights():
    g = torch.Generator().manual_seed(6)

    def normal(*shape, mean=0.0):
        return torch.randn(*shape, generator=g, dtype=torch.float64).mul(0.1).add(mean).float().double()  # exact in float32

    weights = {"tokens.weight": normal(VOCABULARY, WIDTH)}
    for i in range(LAYERS):
        b = "blocks.%d." % i
        weights |= {b + "norm1.weight": normal(WIDTH, mean=1), b + "attention.qkv.weight": normal(3 * WIDTH, WIDTH),
                    b + "attention.proj.weight": normal(WIDTH, WIDTH), b + "attention.q_norm.weight": normal(SIZE, mean=1),
                    b + "attention.k_norm.weight": normal(SIZE, mean=1), b + "norm2.weight": normal(WIDTH, mean=1),
                    b + "mlp.up.weight": normal(4 * WIDTH, WIDTH), b + "mlp.down.weight": normal(WIDTH, 4 * WIDTH)}
    weights["norm.weight"] = normal(WIDTH, mean=1)
    return weights


def turned(x):
    """Rotary positions: pairs (i, i + SIZE / 2) of a head are rotated by position / 10000^(2i / SIZE)."""
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * 10000 ** (-torch.arange(0, SIZE, 2, dtype=x.dtype) / SIZE)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def loss_of(w, x, y):
    h = F.embedding(x, w["tokens.weight"])
    for i in range(LAYERS):
        p = lambda name: w["blocks.%d.%s.weight" % (i, name)]  # noqa: E731
        n = F.rms_norm(h, (WIDTH,), p("norm1"), 1e-6)
        q, k, v = ((n @ m.T).view(*x.shape, HEADS, -1).transpose(1, 2) for m in p("attention.qkv"))
        q, k = F.rms_norm(q, (SIZE,), p("attention.q_norm"), 1e-6), F.rms_norm(k, (SIZE,), p("attention.k_norm"), 1e-6)
        a = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        h = h + a.transpose(1, 2).flatten(2) @ p("attention.proj").T
        h = h + F.relu(F.rms_norm(h, (WIDTH,), p("norm2"), 1e-6) @ p("mlp.up").T).square() @ p("mlp.down").T
    logits = F.rms_norm(h, (WIDTH,), w["norm.weight"], 1e-6) @ w["tokens.weight"].T
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def losses_of(weights, text):
    torch.Tensor.bfloat16 = torch.Tensor.clone  # disables the rounding at the start of torch.optim.Muon
    w = {name: value.clone().requires_grad_() for name, value in weights.items() if "qkv" not in name}
    # Muon gets queries, keys and values as separate matrices.
    stacked = {name: [m.clone().requires_grad_() for m in value.chunk(3)] for name, value in weights.items() if "qkv" in name}
    inside = [p for n, p in w.items() if n.startswith("blocks.") and p.dim() == 2] + [m for all in stacked.values() for m in all]
    matrices = torch.optim.Muon(inside, lr=0.02, weight_decay=0.1)
    others = torch.optim.AdamW([{"params": [w["tokens.weight"]], "weight_decay": 0.1},
                                {"params": [p for n, p in w.items() if p.dim() == 1], "weight_decay": 0.0}],
                               lr=0.005, betas=(0.9, 0.95))
    w |= stacked
    return train(lambda x, y: loss_of(w, x, y), [matrices, others], text)


torch.set_num_threads(1)
weights, text = initial_weights(), learnable_text(STEPS, BATCH, CONTEXT, VOCABULARY)
write("gpt_muon_torch.h5", weights, text, {"float64": losses_of(weights, text)},
      {"model": "gpt", "vocabulary": VOCABULARY, "context": CONTEXT, "layers": LAYERS, "heads": HEADS, "width": WIDTH})
