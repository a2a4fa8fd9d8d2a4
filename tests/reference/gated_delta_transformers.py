"""Writes gated_delta_transformers.json: transformers' Gated DeltaNet layer and chunk form, and its lightning
attention, outputs and gradients.

    python3 tests/reference/gated_delta_transformers.py        (PyTorch 2.13, transformers 5.23)

"op.": torch_chunk_gated_delta_rule with initial and final state. "layer.": Qwen3NextGatedDeltaNet with its weights in
the order of heed: qkv has the rows of queries, keys, values, gates, rates and output gates. "lightning1.",
"lightning3.": MiniMaxLightningAttention in layers 1 and 3 of 4; qkv has queries, keys, values and output gates.
"""
import json
import pathlib

import torch
from transformers.models.minimax import modeling_minimax as minimax
from transformers.models.minimax.configuration_minimax import MiniMaxConfig
from transformers.models.qwen3_next import modeling_qwen3_next as qwen
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig

torch.manual_seed(1)
out = {}
K, V, T = 4, 6, 70  # a chunk has 64 positions


def op():
    q, k = torch.randn(1, T, 2, K), torch.randn(1, T, 2, K)
    v, dy = torch.randn(1, T, 4, V), torch.randn(1, T, 4, V)
    g, beta = -torch.nn.functional.softplus(torch.randn(1, T, 4)), torch.rand(1, T, 4)
    state, dlast = torch.randn(1, 4, K, V), torch.randn(1, 4, K, V)
    inputs = dict(q=torch.nn.functional.normalize(q, dim=-1), k=torch.nn.functional.normalize(k, dim=-1), v=v, g=g,
                  beta=beta, state=state)
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    y, last = qwen.torch_chunk_gated_delta_rule(leaves["q"], leaves["k"], leaves["v"], leaves["g"], leaves["beta"],
                                                initial_state=leaves["state"], output_final_state=True)
    ((y * dy).sum() + (last * dlast).sum()).backward()
    out.update({f"op.{name}": x for name, x in inputs.items()})
    out.update({"op.y": y, "op.last": last, "op.dy": dy, "op.dlast": dlast})
    out.update({f"op.d{name}": x.grad for name, x in leaves.items()})


def layer():
    config = Qwen3NextConfig(hidden_size=8, num_hidden_layers=1, layer_types=["linear_attention"],
                             linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=K,
                             linear_value_head_dim=V, linear_conv_kernel_dim=4, rms_norm_eps=1e-5, vocab_size=8)
    net = qwen.Qwen3NextGatedDeltaNet(config, 0)
    for p in net.parameters():
        p.data = 0.5 * torch.randn_like(p) + (1 if p is net.norm.weight else 0)
    x, dy = torch.randn(2, T, 8), torch.randn(2, T, 8)
    leaf = x.clone().requires_grad_()
    y = net(leaf)
    y.backward(dy)
    keys, values = 2 * K, 4 * V

    def in_order(get):
        qkvz, ba = get(net.in_proj_qkvz.weight), get(net.in_proj_ba.weight)
        q, k, v, z = torch.split(qkvz.view(2, -1, 8), [K, K, 2 * V, 2 * V], dim=1)
        b, a = torch.split(ba.view(2, -1, 8), [2, 2], dim=1)
        taps = dict(zip(("q_conv", "k_conv", "v_conv"), torch.split(get(net.conv1d.weight), [keys, keys, values])))
        return dict(qkv=torch.cat([part.reshape(-1, 8) for part in (q, k, v, a, b, z)]), proj=get(net.out_proj.weight),
                    decay=get(net.A_log), gate_bias=get(net.dt_bias), norm=get(net.norm.weight), **taps)

    store("layer", x, dy, y, leaf.grad, in_order)


def lightning(layer, heads=3, size=4):
    width = heads * size
    config = MiniMaxConfig(hidden_size=width, num_attention_heads=heads, head_dim=size, num_hidden_layers=4,
                           block_size=32, layer_types=["linear_attention"] * 4)
    net = minimax.MiniMaxLightningAttention(config, layer)
    for p in net.parameters():
        p.data = 0.5 * torch.randn_like(p) + (1 if p is net.norm.weight else 0)
    x, dy = torch.randn(1, T, width), torch.randn(1, T, width)
    leaf = x.clone().requires_grad_()
    y = net(leaf, None, None)[0]
    y.backward(dy)

    def in_order(get):
        q, k, v = torch.split(get(net.qkv_proj.weight).view(heads, 3 * size, width), size, dim=1)
        return dict(qkv=torch.cat([part.reshape(-1, width) for part in (q, k, v)] + [get(net.output_gate.weight)]),
                    proj=get(net.out_proj.weight), norm=get(net.norm.weight))

    store(f"lightning{layer}", x, dy, y, leaf.grad, in_order)


def store(prefix, x, dy, y, dx, in_order):
    out.update({f"{prefix}.x": x, f"{prefix}.dy": dy, f"{prefix}.y": y, f"{prefix}.dx": dx})
    out.update({f"{prefix}.{name}": p for name, p in in_order(lambda p: p).items()})
    out.update({f"{prefix}.d{name}": p for name, p in in_order(lambda p: p.grad).items()})


op()
layer()
lightning(1)
lightning(3)
data = {name: dict(shape=list(x.shape), values=[float(f"{n:.7g}") for n in x.detach().flatten().tolist()])
        for name, x in out.items()}
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(data, separators=(",", ":")).replace("},\"", "},\n\"") + "\n")
print(path.name, path.stat().st_size, "bytes")
