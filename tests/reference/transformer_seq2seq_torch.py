"""Writes transformer_seq2seq_torch.json: logits, losses, gradients and attention weights of encoder-decoder
Transformers in float64, computed by PyTorch's nn.Transformer, one sentence at a time, without padding.

    python3 tests/reference/transformer_seq2seq_torch.py        (PyTorch 2.13)
"""
import json
import math
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(12)
torch.set_default_dtype(torch.float64)
WIDTH, HEADS, HIDDEN, LAYERS, CONTEXT = 4, 2, 6, 2, 5
source = torch.tensor([[1, 4, 2, 6], [3, 5, 0, 0]])
lengths = [4, 2]
inputs = torch.tensor([[6, 1, 3], [6, 2, 0]])
targets = torch.tensor([[1, 3, 6], [2, 6, -100]])
target_lengths = [3, 2]
cases = {}


def sinusoids(count):
    """Vaswani et al. 2017, section 3.5"""
    rows = [[(math.sin if i % 2 == 0 else math.cos)(t / 10000 ** ((i - i % 2) / WIDTH)) for i in range(WIDTH)] for t in range(count)]
    return torch.tensor(rows)


def by_heeds_names(part, name, weight):
    """The parameters of a part of nn.Transformer by heed's names: views of the same weights."""
    name = name.replace("layers.", "blocks.").replace("linear1", "mlp.up").replace("linear2", "mlp.down")
    if part == "decoder":
        name = name.replace("norm2", "norm_cross").replace("norm3", "norm2")
    name = name.replace("self_attn.", "attention.").replace("multihead_attn.", "cross.").replace("out_proj", "proj")
    name = f"{part}.{name}"
    if ".cross.in_proj_" in name:
        return {name.replace("in_proj_", "q."): slice(0, WIDTH), name.replace("in_proj_", "kv."): slice(WIDTH, None)}
    return {name.replace("in_proj_", "qkv."): slice(None)}


def case(title, norm_first, activation="relu", learned=False, scaled=True, joined=False, tied=True, bias=True):
    # heed has a last norm only if norms are first.
    last = (lambda: nn.LayerNorm(WIDTH, bias=bias)) if norm_first else (lambda: None)
    layer = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": HIDDEN, "dropout": 0.0, "activation": activation,
             "norm_first": norm_first, "bias": bias, "batch_first": True}
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**layer), LAYERS, last(), enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**layer), LAYERS, last())
    net = nn.Transformer(WIDTH, HEADS, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    for p in net.parameters():  # layers of a stack are copies, and norms are ones and zeros
        nn.init.normal_(p, 1.0 if p.dim() == 1 else 0.0, 0.5)
    own = {"source.weight": torch.randn(7, WIDTH)}
    own["target.weight"] = own["source.weight"] if joined else torch.randn(7 if joined else 8, WIDTH)
    own["output"] = own["target.weight"] if joined or tied else torch.randn(8, WIDTH)
    if learned:
        own["source_positions.weight"], own["target_positions.weight"] = torch.randn(CONTEXT, WIDTH), torch.randn(CONTEXT, WIDTH)
    for t in own.values():
        t.requires_grad_()

    def embed(words, side):
        x = own[f"{side}.weight"][words] * (math.sqrt(WIDTH) if scaled else 1)
        return (x + (own[f"{side}_positions.weight"][:len(words)] if learned else sinusoids(len(words))))[None]

    seen = []  # the weights of the cross-attention per layer
    for block in decoder.layers:
        block.multihead_attn.register_forward_pre_hook(
            lambda m, args, kwargs: seen.append(m.forward(*args, **{**kwargs, "need_weights": True, "average_attn_weights": False})[1]),
            with_kwargs=True)
    rows, flat, weights = [], [], [torch.zeros(2, HEADS, 3, 4) for _ in range(LAYERS)]
    for b in range(2):
        S, T = lengths[b], target_lengths[b]
        seen.clear()
        y = net(embed(source[b, :S], "source"), embed(inputs[b, :T], "target"),
                tgt_mask=nn.Transformer.generate_square_subsequent_mask(T), tgt_is_causal=True)
        rows.append(y[0] @ own["output"].T)
        flat.append(targets[b, :T])
        for layer in range(LAYERS):
            weights[layer][b, :, :T, :S] = seen[layer][0].detach()
    logits = torch.cat(rows)
    loss = F.cross_entropy(logits, torch.cat(flat), label_smoothing=0.1)
    loss.backward()
    stored = {"logits": logits, "loss": loss, "plain loss": F.cross_entropy(logits, torch.cat(flat)),
              **{f"weights {i}": w for i, w in enumerate(weights)}}
    for name, t in own.items():
        # A shared parameter is stored under its first name.
        if all(t is not other for other in list(own.values())[:list(own).index(name)]):
            stored[name], stored[f"d {name}"] = t, t.grad
    for part in ("encoder", "decoder"):
        for name, t in getattr(net, part).named_parameters():
            for heeds, rows_of in by_heeds_names(part, name, t).items():
                stored[heeds], stored[f"d {heeds}"] = t[rows_of], t.grad[rows_of]
    cases[title] = stored


case("as in the paper", norm_first=False)
case("norms first, learned positions, untied", norm_first=True, activation="gelu", learned=True, scaled=False, tied=False)
case("joined, without biases", norm_first=False, joined=True, bias=False)


def stored(t):
    return {"shape": list(t.shape), "values": t.detach().to(torch.float64).flatten().tolist()}


given = {"source": source, "source_lengths": torch.tensor(lengths), "inputs": inputs, "targets": targets}
out = {"inputs": {k: stored(t) for k, t in given.items()},
       "cases": {title: {k: stored(t) for k, t in c.items()} for title, c in cases.items()}}
text = json.dumps(out, separators=(",", ":")).replace("},\"", "},\n\"")
(pathlib.Path(__file__).parent / "transformer_seq2seq_torch.json").write_text(text + "\n")
