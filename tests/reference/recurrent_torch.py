"""Writes recurrent_torch.json: values and gradients in float64 of PyTorch's RNN, GRU and LSTM with padded rows, and of
the original GRU and the LSTMN from their formulas.

    python3 tests/reference/recurrent_torch.py        (PyTorch 2.13)
"""
import json
import pathlib

import torch
import torch.nn as nn

torch.manual_seed(5)
torch.set_default_dtype(torch.float64)
BATCH, STEPS, INPUT, HIDDEN = 4, 5, 3, 4
LENGTHS = torch.tensor([3, 5, 1, 4])
inputs = {"x": torch.randn(BATCH, STEPS, INPUT), "lengths": LENGTHS}
cases = {}


def store(title, y, states, gradients, weights):
    cases[title] = {"y": y, "states": states, **{f"d {name}": g for name, g in gradients.items()}, **weights}


def backward(y, states, leaves):
    """Gradients of sums with fixed weights, which are the same for all cases with the same shapes."""
    generator = torch.Generator().manual_seed(9)
    weighted = (y * torch.randn(y.shape, generator=generator)).sum() + (states * torch.randn(states.shape, generator=generator)).sum()
    inputs[f"dy {y.shape[-1]}"] = torch.randn(y.shape, generator=torch.Generator().manual_seed(9))
    generator = torch.Generator().manual_seed(9)
    torch.randn(y.shape, generator=generator)
    inputs[f"dstates {y.shape[-1]} {'x'.join(str(n) for n in states.shape)}"] = torch.randn(states.shape, generator=generator)
    weighted.backward()
    return {name: leaf.grad for name, leaf in leaves.items()}


def module(title, net, padded):
    directions = 2 if net.bidirectional else 1
    cells = net.num_layers * directions
    lstm = isinstance(net, nn.LSTM)
    x = inputs["x"].clone().requires_grad_()
    h0 = torch.randn(cells, BATCH, HIDDEN).requires_grad_()
    c0 = torch.randn(cells, BATCH, HIDDEN).requires_grad_()
    begin = (h0, c0) if lstm else h0
    fed = nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False) if padded else x
    y, last = net(fed, begin)
    if padded:
        y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=STEPS)
    states = torch.cat(last, -1) if lstm else last
    weights = {name: p.detach().clone() for name, p in net.named_parameters()}
    weights["states0"] = torch.cat([h0, c0], -1).detach() if lstm else h0.detach()
    leaves = {"x": x, "h0": h0, **dict(net.named_parameters())}
    if lstm:
        leaves["c0"] = c0
    gradients = backward(y, states, leaves)
    if lstm:
        gradients["states0"] = torch.cat([gradients.pop("h0"), gradients.pop("c0")], -1)
    else:
        gradients["states0"] = gradients.pop("h0")
    store(f"{title}{' padded' if padded else ''}", y, states, gradients, weights)


KINDS = {"rnn_tanh": lambda **o: nn.RNN(INPUT, HIDDEN, batch_first=True, **o),
         "rnn_relu": lambda **o: nn.RNN(INPUT, HIDDEN, batch_first=True, nonlinearity="relu", **o),
         "gru": lambda **o: nn.GRU(INPUT, HIDDEN, batch_first=True, **o),
         "lstm": lambda **o: nn.LSTM(INPUT, HIDDEN, batch_first=True, **o)}
for name, make in KINDS.items():
    module(name, make(), False)
    module(f"{name} 2 layers both ways", make(num_layers=2, bidirectional=True), True)


def original_gru():
    """Cho et al. 2014: r is applied to h before the product."""
    w = {"weight_ih_l0": torch.randn(3 * HIDDEN, INPUT), "weight_hh_l0": torch.randn(3 * HIDDEN, HIDDEN),
         "bias_ih_l0": torch.randn(3 * HIDDEN), "bias_hh_l0": torch.randn(3 * HIDDEN)}
    leaves = {name: t.clone().requires_grad_() for name, t in w.items()}
    x, h0 = inputs["x"].clone().requires_grad_(), torch.randn(1, BATCH, HIDDEN).requires_grad_()
    H = HIDDEN
    rows, lasts = [], []
    for b in range(BATCH):
        h, steps = h0[0, b], []
        for t in range(STEPS):
            if t < LENGTHS[b]:
                s = leaves["weight_ih_l0"] @ x[b, t] + leaves["bias_ih_l0"]
                U, v = leaves["weight_hh_l0"], leaves["bias_hh_l0"]
                r = torch.sigmoid(s[:H] + U[:H] @ h + v[:H])
                z = torch.sigmoid(s[H:2 * H] + U[H:2 * H] @ h + v[H:2 * H])
                c = torch.tanh(s[2 * H:] + U[2 * H:] @ (r * h) + v[2 * H:])
                h = (1 - z) * c + z * h
                steps.append(h)
            else:
                steps.append(torch.zeros(H))
        rows.append(torch.stack(steps))
        lasts.append(h)
    y, states = torch.stack(rows), torch.stack(lasts)[None]
    gradients = backward(y, states, {"x": x, "states0": h0, **leaves})
    store("gru_original padded", y, states, gradients, {**w, "states0": h0.detach()})


def lstmn():
    A = 3
    w = {"cell.weight_ih": torch.randn(4 * HIDDEN, INPUT), "cell.weight_hh": torch.randn(4 * HIDDEN, HIDDEN),
         "cell.bias_ih": torch.randn(4 * HIDDEN), "cell.bias_hh": torch.randn(4 * HIDDEN),
         "memory.weight": torch.randn(A, HIDDEN), "inputs.weight": torch.randn(A, INPUT), "inputs.bias": torch.randn(A),
         "attended.weight": torch.randn(A, HIDDEN), "score": torch.randn(1, A)}
    leaves = {name: t.clone().requires_grad_() for name, t in w.items()}
    x = inputs["x"].clone().requires_grad_()
    rows, lasts, all_weights = [], [], torch.zeros(BATCH, STEPS, STEPS)
    for b in range(BATCH):
        h_tape, c_tape, h_last = [], [], torch.zeros(HIDDEN)
        steps, last = [], torch.zeros(2 * HIDDEN)
        for t in range(STEPS):
            if t >= LENGTHS[b]:
                steps.append(torch.zeros(HIDDEN))
                continue
            if t == 0:
                h, c = torch.zeros(HIDDEN), torch.zeros(HIDDEN)
            else:
                a = torch.stack([leaves["score"][0] @ torch.tanh(leaves["memory.weight"] @ hi + leaves["inputs.weight"] @ x[b, t]
                                                                 + leaves["inputs.bias"] + leaves["attended.weight"] @ h_last)
                                 for hi in h_tape])
                s = torch.softmax(a, 0)
                all_weights[b, t, :t] = s.detach()
                h, c = s @ torch.stack(h_tape), s @ torch.stack(c_tape)
            h_last = h
            gates = leaves["cell.weight_ih"] @ x[b, t] + leaves["cell.bias_ih"] + leaves["cell.weight_hh"] @ h + leaves["cell.bias_hh"]
            i, f, g, o = gates.chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            h_tape.append(h), c_tape.append(c), steps.append(h)
            last = torch.cat([h, c])
        rows.append(torch.stack(steps))
        lasts.append(last)
    y, states = torch.stack(rows), torch.stack(lasts)[None]
    gradients = backward(y, states, {"x": x, **leaves})
    store("lstmn padded", y, states, gradients, {**w, "weights": all_weights})


original_gru()
lstmn()


def stored(t):
    return {"shape": list(t.shape), "values": t.detach().to(torch.float64).flatten().tolist()}


out = {"inputs": {k: stored(t) for k, t in inputs.items()},
       "cases": {title: {k: stored(t) for k, t in case.items()} for title, case in cases.items()}}
text = json.dumps(out, separators=(",", ":")).replace("},\"", "},\n\"")
(pathlib.Path(__file__).parent / "recurrent_torch.json").write_text(text + "\n")
