"""Writes conv_seq2seq_torch.json: logits, losses, gradients and attention weights of ConvS2S and ByteNet in float64, by
the formulas of their papers in PyTorch, one sentence at a time, without padding.

    python3 tests/reference/conv_seq2seq_torch.py        (PyTorch 2.13)
"""
import json
import math
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
SOURCES, TARGETS, WIDTH, HIDDEN, CONTEXT, R = 7, 8, 4, 3, 6, math.sqrt(0.5)
source = torch.tensor([[1, 4, 2, 6], [3, 5, 0, 0]])
lengths = [4, 2]
inputs = torch.tensor([[6, 1, 3, 2, 5, 1], [6, 2, 4, 1, 0, 0]])
targets = torch.tensor([[1, 3, 2, 5, 1, 7], [2, 4, 1, 7, -100, -100]])
target_lengths = [6, 4]


def parameters(shapes):
    """Leaves by name; a pair (out, in, ...) is a weight and its bias."""
    made = {}
    for name, shape in shapes.items():
        if name.endswith(".weight") or name.endswith(".bias"):
            made[name] = torch.randn(shape) * 0.5 + (1 if ".norm" in name or "_norm" in name else 0)
        else:
            made[name + ".weight"], made[name + ".bias"] = torch.randn(shape) * 0.5, torch.randn(shape[0]) * 0.5
    return {name: t.requires_grad_() for name, t in made.items()}


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p[name + ".bias"])


def conv(p, name, x, before, after, dilation=1):
    """x [T, C] with `before` and `after` positions of zeros."""
    y = F.conv1d(F.pad(x.T[None], (before, after)), p[name + ".weight"], p[name + ".bias"], dilation=dilation)
    return y[0].T


def convs2s_parameters(layers, kernel):
    shapes = {"source.weight": (SOURCES, WIDTH), "target.weight": (TARGETS, WIDTH),
              "source_positions.weight": (CONTEXT, WIDTH), "target_positions.weight": (CONTEXT, WIDTH),
              "encoder_in": (HIDDEN, WIDTH), "encoder_out": (WIDTH, HIDDEN), "decoder_in": (HIDDEN, WIDTH),
              "decoder_out": (WIDTH, HIDDEN), "output": (TARGETS, WIDTH)}
    for i in range(layers):
        shapes |= {f"encoder.{i}": (2 * HIDDEN, HIDDEN, kernel), f"decoder.{i}.conv": (2 * HIDDEN, HIDDEN, kernel),
                   f"decoder.{i}.query": (WIDTH, HIDDEN), f"decoder.{i}.context": (HIDDEN, WIDTH)}
    return parameters(shapes)


def convs2s(p, layers, kernel, words, prefix):
    """Gehring et al. 2017, sections 3.1 to 3.4."""
    e = p["source.weight"][words] + p["source_positions.weight"][:len(words)]
    g = p["target.weight"][prefix] + p["target_positions.weight"][:len(prefix)]
    h = linear(p, "encoder_in", e)
    for i in range(layers):
        h = R * (h + F.glu(conv(p, f"encoder.{i}", h, kernel // 2, kernel // 2), dim=-1))
    z = linear(p, "encoder_out", h)
    h, weights = linear(p, "decoder_in", g), []
    for i in range(layers):
        u = F.glu(conv(p, f"decoder.{i}.conv", h, kernel - 1, 0), dim=-1)
        d = R * (linear(p, f"decoder.{i}.query", u) + g)
        weights.append(torch.softmax(d @ z.T, -1))
        c = math.sqrt(len(words)) * weights[-1] @ (R * (z + e))
        h = R * (h + R * (u + linear(p, f"decoder.{i}.context", c)))
    return linear(p, "output", linear(p, "decoder_out", h)), weights


def bytenet_parameters(layers, kernel):
    shapes = {"source.weight": (SOURCES, WIDTH), "target.weight": (TARGETS, WIDTH), "condition": (WIDTH, WIDTH),
              "hidden": (WIDTH, WIDTH), "output": (TARGETS, WIDTH)}
    norms = {"encoder_norm": WIDTH, "decoder_norm": WIDTH}
    for part in ("encoder", "decoder"):
        for i in range(layers):
            shapes |= {f"{part}.{i}.down": (HIDDEN, WIDTH), f"{part}.{i}.conv": (HIDDEN, HIDDEN, kernel),
                       f"{part}.{i}.up": (WIDTH, HIDDEN)}
            norms |= {f"{part}.{i}.norm1": WIDTH, f"{part}.{i}.norm2": HIDDEN, f"{part}.{i}.norm3": HIDDEN}
    for name, size in norms.items():
        shapes |= {f"{name}.weight": (size,), f"{name}.bias": (size,)}
    return parameters(shapes)


def bytenet(p, layers, kernel, words, prefix):
    """Kalchbrenner et al. 2016, section 3; dilations 1, 2, 1, ..., and a source that is encoded as 1.2 times longer."""
    def normed(name, x):
        return F.relu(F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"]))

    def through(part, h):
        for i in range(layers):
            dilation, name = 2 ** (i % 2), f"{part}.{i}"
            reach = dilation * (kernel - 1)
            before, after = (reach // 2, reach // 2) if part == "encoder" else (reach, 0)
            x = normed(f"{name}.norm2", linear(p, f"{name}.down", normed(f"{name}.norm1", h)))
            x = conv(p, f"{name}.conv", x, before, after, dilation)
            h = h + linear(p, f"{name}.up", normed(f"{name}.norm3", x))
        return h

    length = math.ceil(1.2 * len(words))
    s = torch.cat([p["source.weight"][words], torch.zeros(length - len(words), WIDTH)])
    s = linear(p, "condition", normed("encoder_norm", through("encoder", s)))
    s = torch.cat([s, torch.zeros(len(prefix), WIDTH)])[:len(prefix)]
    h = normed("decoder_norm", through("decoder", p["target.weight"][prefix] + s))
    return linear(p, "output", F.relu(linear(p, "hidden", h))), []


def case(model, p, layers, kernel):
    rows, flat, all_weights = [], [], [torch.zeros(2, 1, 6, 4) for _ in range(layers)]
    for b in range(2):
        S, T = lengths[b], target_lengths[b]
        logits, weights = model(p, layers, kernel, source[b, :S], inputs[b, :T])
        rows.append(logits), flat.append(targets[b, :T])
        for to, w in zip(all_weights, weights):
            to[b, 0, :T, :S] = w.detach()
    logits, flat = torch.cat(rows), torch.cat(flat)
    loss = F.cross_entropy(logits, flat, label_smoothing=0.1)
    loss.backward()
    stored = {"logits": logits, "loss": loss, "plain loss": F.cross_entropy(logits, flat)}
    if model is convs2s:
        stored |= {f"weights {i}": w for i, w in enumerate(all_weights)}
    for name, t in p.items():
        stored |= {name: t, f"d {name}": t.grad}
    return stored


cases = {"convs2s": case(convs2s, convs2s_parameters(2, 3), 2, 3), "bytenet": case(bytenet, bytenet_parameters(3, 3), 3, 3)}


def as_json(t):
    return {"shape": list(t.shape), "values": t.detach().to(torch.float64).flatten().tolist()}


given = {"source": source, "source_lengths": torch.tensor(lengths), "inputs": inputs, "targets": targets}
out = {"inputs": {k: as_json(t) for k, t in given.items()},
       "cases": {title: {k: as_json(t) for k, t in c.items()} for title, c in cases.items()}}
text = json.dumps(out, separators=(",", ":")).replace("},\"", "},\n\"")
(pathlib.Path(__file__).parent / "conv_seq2seq_torch.json").write_text(text + "\n")
