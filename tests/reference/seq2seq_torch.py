"""Writes seq2seq_torch.json: logits, losses, gradients and attention weights of recurrent encoder-decoders in float64,
computed with PyTorch's modules from the formulas of the papers, one sentence at a time, without padding.

    python3 tests/reference/seq2seq_torch.py        (PyTorch 2.13)
"""
import json
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)
torch.set_default_dtype(torch.float64)
SOURCE, TARGET, EMBED, HIDDEN = 7, 8, 3, 4
source = torch.tensor([[1, 4, 2, 6], [3, 5, 0, 0]])
lengths = [4, 2]
inputs = torch.tensor([[6, 1, 3], [6, 2, 0]])
targets = torch.tensor([[1, 3, 7], [2, 7, -100]])
target_lengths = [3, 2]
cases = {}


class Model:
    """An encoder-decoder with heed's parameter names."""

    def __init__(self, attention, cell, both_ways, joins, all_features, layers=1):
        H, E = HIDDEN, EMBED
        self.attention, self.cell, self.layers = attention, cell, layers
        self.p = {"source.weight": torch.randn(SOURCE, E), "target.weight": torch.randn(TARGET, E)}
        rnn = nn.GRU if cell == "gru" else nn.LSTM
        directions = 2 if both_ways else 1
        self.encoder = rnn(E, H // directions, num_layers=layers, bidirectional=both_ways, batch_first=True)
        self.decoder = rnn(E + (H if joins else 0), H, num_layers=layers, batch_first=True)
        for part, net in (("encoder", self.encoder), ("decoder", self.decoder)):
            for name, weight in net.named_parameters():
                self.p[f"{part}.{name}"] = weight
        width = H if cell == "gru" else 2 * H
        for i in range(layers):
            self.p[f"bridges.{i}.weight"], self.p[f"bridges.{i}.bias"] = torch.randn(width, width), torch.randn(width)
        if attention == "bahdanau":
            self.p.update({"attention.W": torch.randn(1, H, H), "attention.U": torch.randn(1, H, H), "attention.score": torch.randn(1, H)})
        if attention == "luong":
            self.p.update({"attention.W": torch.randn(1, H, H), "combine.weight": torch.randn(H, 2 * H)})
        features = 2 * H + E if all_features else H
        self.p["output.weight"], self.p["output.bias"] = torch.randn(TARGET, features), torch.randn(TARGET)
        for t in self.p.values():
            t.requires_grad_()

    def score(self, h, memory):
        if self.attention == "bahdanau":
            return torch.tanh(self.p["attention.W"][0] @ h + memory @ self.p["attention.U"][0].T) @ self.p["attention.score"][0]
        return memory @ (self.p["attention.W"][0].T @ h)

    def sentence(self, words, begin, feeding, context_each_step):
        """words [S], begin [T] -> logits [T, V], weights [T, S]"""
        p, lstm = self.p, self.cell == "lstm"
        memory, last = self.encoder(p["source.weight"][words][None])
        memory = memory[0]
        hidden = (last if lstm else (last,))
        states = []
        for layer in range(self.layers):
            n = hidden[0].shape[0] // self.layers
            flat = torch.cat([part[layer * n + d, 0] for part in hidden for d in range(n)])
            states.append(torch.tanh(p[f"bridges.{layer}.weight"] @ flat + p[f"bridges.{layer}.bias"]))
        top = torch.cat([hidden[0][(self.layers - 1) * n + d, 0] for d in range(n)])
        fed, logits, weights = torch.zeros(HIDDEN), [], []
        for t, word in enumerate(begin):
            y = p["target.weight"][word]
            h = states[-1][:HIDDEN]
            pieces = [y]
            if self.attention == "bahdanau":
                w = torch.softmax(self.score(h, memory), 0)
                context = w @ memory
                pieces.append(context)
            elif context_each_step:
                context = top
                pieces.append(context)
            elif feeding:
                pieces.append(fed)
            begin_state = torch.stack(states)[:, None]
            if lstm:
                state = (begin_state[..., :HIDDEN].contiguous(), begin_state[..., HIDDEN:].contiguous())
            else:
                state = begin_state
            out, new = self.decoder(torch.cat(pieces)[None, None], state)
            flat = torch.cat(new, -1) if lstm else new
            states = [flat[i, 0] for i in range(self.layers)]
            h = out[0, 0]
            if self.attention == "luong":
                w = torch.softmax(self.score(h, memory), 0)
                fed = torch.tanh(p["combine.weight"] @ torch.cat([w @ memory, h]))
                features = fed
            elif self.attention == "bahdanau" or context_each_step:
                features = torch.cat([h, context, y])
            else:
                features = h
            logits.append(p["output.weight"] @ features + p["output.bias"])
            if self.attention != "none":
                weights.append(w.detach())
        return torch.stack(logits), torch.stack(weights) if weights else None


def case(title, attention, cell="gru", both_ways=True, feeding=False, context_each_step=False, layers=1):
    model = Model(attention, cell, both_ways, attention == "bahdanau" or feeding or context_each_step,
                  attention == "bahdanau" or context_each_step, layers)
    rows, flat_targets, weights = [], [], torch.zeros(2, 1, 3, 4)
    for b in range(2):
        logits, w = model.sentence(source[b, :lengths[b]], inputs[b, :target_lengths[b]], feeding, context_each_step)
        rows.append(logits)
        flat_targets.append(targets[b, :target_lengths[b]])
        if w is not None:
            weights[b, 0, :target_lengths[b], :lengths[b]] = w
    loss = F.cross_entropy(torch.cat(rows), torch.cat(flat_targets), label_smoothing=0.1)
    loss.backward()
    cases[title] = {"logits": torch.cat(rows), "loss": loss, "weights": weights, **model.p,
                    **{f"d {name}": t.grad for name, t in model.p.items()}}


case("bahdanau", "bahdanau")
case("bahdanau lstm 2 layers", "bahdanau", cell="lstm", layers=2)
case("luong", "luong", both_ways=False)
case("luong feeding lstm", "luong", cell="lstm", feeding=True)
case("none", "none", both_ways=False)
case("none each step", "none", context_each_step=True)


def stored(t):
    return {"shape": list(t.shape), "values": t.detach().to(torch.float64).flatten().tolist()}


given = {"source": source, "source_lengths": torch.tensor(lengths), "inputs": inputs, "targets": targets}
out = {"inputs": {k: stored(t) for k, t in given.items()},
       "cases": {title: {k: stored(t) for k, t in c.items()} for title, c in cases.items()}}
text = json.dumps(out, separators=(",", ":")).replace("},\"", "},\n\"")
(pathlib.Path(__file__).parent / "seq2seq_torch.json").write_text(text + "\n")
