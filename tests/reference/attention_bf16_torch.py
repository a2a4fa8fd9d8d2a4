"""Prints the bounds of tests/autograd/attention_bf16_test.cpp: errors of PyTorch's scaled_dot_product_attention in
bfloat16 for the output and the gradients of q, k and v, as root mean squares relative to float64.

usage: python3 tests/reference/attention_bf16_torch.py        (packages: torch 2.13)
"""
import torch
import torch.nn.functional as F

B, H, T, D = 1, 4, 300, 64


def numbers(seed):
    """The numbers of spread_numbers() in the test: uniform in [-2, 2), rounded to bfloat16."""
    i = torch.arange(B * H * T * D, dtype=torch.int64)
    words = (i * 2654435761 + seed * 40503) % 2**32
    words = (words ^ (words >> 15)) * 2246822519 % 2**32
    words = (words ^ (words >> 13)) * 3266489917 % 2**32
    x = (words ^ (words >> 16)).double() * 2.0**-30 - 2
    return x.reshape(B, H, T, D).bfloat16()


def run(dtype):
    q, k, v, dout = (numbers(seed).to(dtype) for seed in range(4))
    for x in (q, k, v):
        x.requires_grad_()
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y.backward(dout)
    return [x.detach().double() for x in (y, q.grad, k.grad, v.grad)]


exact = run(torch.float64)
for name, x, y in zip(("out", "dq", "dk", "dv"), run(torch.bfloat16), exact):
    print(f"{name}: {((x - y).square().sum() / y.square().sum()).sqrt().item():.4e}")
