"""heed's GPT in PyTorch, with the names of its checkpoints. Logits of the token that follows: python3 gpt.py lm.h5 5 17 3"""
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F
from heed_to_pytorch import load

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
               "relu-squared": lambda x: F.relu(x).square()}

class RMSNorm(nn.Module):
    def __init__(self, width, bias=False):  # it never has one
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()

class Attention(nn.Module):
    def __init__(self, width, heads, bias, qk_norm):
        super().__init__()
        self.heads, size = heads, width // heads
        self.q_norm, self.k_norm = (RMSNorm(size), RMSNorm(size)) if qk_norm else (nn.Identity(), nn.Identity())
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (z.view(B, T, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        q, k = self.q_norm(q), self.k_norm(k)
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.heads)
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(B, T, C))

class FeedForward(nn.Module):
    def __init__(self, width, hidden, activation, bias):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden, bias), nn.Linear(hidden, width, bias)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x):
        return self.down(self.activation(self.up(x)))

class Block(nn.Module):
    def __init__(self, c, norm):
        super().__init__()
        width, self.reversible = c["width"], c.get("reversible", False)
        self.norm1, self.norm2 = norm(width, bias=c["bias"]), norm(width, bias=c["bias"])
        self.attention = Attention(width, c["heads"], c["bias"], c.get("qk_norm", False))
        self.mlp = FeedForward(width, c.get("hidden") or 4 * width, c["activation"], c["bias"])

    def forward(self, x1, x2):  # the streams of a reversible model; in others, both are the same
        x1 = x1 + self.attention(self.norm1(x2))
        x2 = (x2 if self.reversible else x1) + self.mlp(self.norm2(x1))
        return (x1 if self.reversible else x2), x2

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        c = {"model": "gpt", "attention": "softmax", "norm": "layer", "activation": "gelu", "positions": "learned", "bias": True,
             "tied": True, **config}
        if c["model"] != "gpt" or c["attention"] != "softmax":
            raise ValueError(f"this example knows gpt with softmax attention; this is {c['model']} with {c['attention']} attention")
        if c["positions"] != "learned" or c.get("kv_heads", 0) not in (0, c["heads"]) or not c["tied"]:
            raise ValueError("this example knows learned positions, one key a head, and tied output")
        if not c.get("norm_first", True) or c.get("relative_clip", 0) > 0 or c.get("rope", False):
            raise ValueError("this example knows norms before each part, and only learned positions")
        self.logit_cap = c.get("logit_cap", 0)
        norm = {"layer": nn.LayerNorm, "rms": RMSNorm}[c["norm"]]
        self.tokens = nn.Embedding(c["vocabulary"], c["width"])
        self.positions = nn.Embedding(c["context"], c["width"])
        self.blocks = nn.ModuleList(Block(c, norm) for _ in range(c["layers"]))
        self.norm = norm(c["width"])  # a LayerNorm has its bias here also where the configuration wants none

    def forward(self, x):  # int [B, T] -> logits [B, T, vocabulary]
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        h1 = h2 = h
        for block in self.blocks:
            h1, h2 = block(h1, h2)
        logits = self.norm((h1 + h2) / 2) @ self.tokens.weight.T  # the output is tied to the embedding
        return self.logit_cap * torch.tanh(logits / self.logit_cap) if self.logit_cap else logits

def load_gpt(path):
    config, state = load(path)
    model = GPT(config)
    model.load_state_dict(state)
    return model.eval()

if __name__ == "__main__":
    with torch.no_grad():
        print(load_gpt(sys.argv[1])(torch.tensor([[int(t) for t in sys.argv[2:]]]))[0, -1])
