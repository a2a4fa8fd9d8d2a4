"""Writes convolution_torch.json: values and gradients of PyTorch's convolutions, pooling, padding, group norm and batch
norm in float64, on small inputs.

usage: python3 tests/reference/convolution_torch.py        (PyTorch 2.13)
"""
import json
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(43)
double = torch.float64


def randn(*shape):
    return torch.round(torch.randn(*shape, dtype=double), decimals=2)


inputs = dict(
    sequence=randn(2, 4, 9), short=randn(2, 4, 1), image=randn(2, 4, 5, 6), bias=randn(6), scale=randn(4), shift=randn(4),
    mean=randn(4), variance=randn(4).abs() + 0.5,
    filters=randn(6, 4, 3), even=randn(6, 4, 4), one=randn(6, 4, 1), grouped=randn(6, 2, 3), depthwise=randn(4, 1, 3),
    multiplied=randn(8, 1, 2), filters2=randn(6, 4, 3, 2), grouped2=randn(6, 2, 2, 3), depthwise2=randn(4, 1, 3, 3))


def causal(x, w, b, dilation=1, groups=1):
    return F.conv1d(F.pad(x, (dilation * (w.shape[-1] - 1), 0)), w, b, dilation=dilation, groups=groups)


# title: the function, and the names of its inputs
CASES = {
    "conv1d": (F.conv1d, "sequence filters bias"),
    "conv1d padding": (lambda x, w, b: F.conv1d(x, w, b, padding=1), "sequence filters bias"),
    "conv1d stride": (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=2), "sequence even bias"),
    "conv1d dilation": (lambda x, w, b: F.conv1d(x, w, b, padding=3, dilation=3), "sequence filters bias"),
    "conv1d stride and dilation": (lambda x, w, b: F.conv1d(x, w, b, 3, 4, 2), "sequence filters bias"),
    "conv1d groups": (lambda x, w, b: F.conv1d(x, w, b, padding=1, groups=2), "sequence grouped bias"),
    "conv1d groups and stride": (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1, groups=2), "sequence grouped bias"),
    "conv1d depthwise": (lambda x, w, b: F.conv1d(x, w, b, padding=1, groups=4), "sequence depthwise scale"),
    "conv1d depthwise and stride": (lambda x, w, b: F.conv1d(x, w, b, 2, 1, 1, 4), "sequence depthwise scale"),
    "conv1d multiplied": (lambda x, w: F.conv1d(x, w, None, groups=4), "sequence multiplied"),
    "conv1d one": (F.conv1d, "sequence one bias"),
    "conv1d without bias": (lambda x, w: F.conv1d(x, w), "sequence even"),
    "conv1d causal": (causal, "sequence filters bias"),
    "conv1d causal and dilation": (lambda x, w, b: causal(x, w, b, 2), "sequence even bias"),
    "conv1d causal and depthwise": (lambda x, w, b: causal(x, w, b, 2, 4), "sequence depthwise scale"),
    "conv1d short": (lambda x, w, b: F.conv1d(x, w, b, padding=1), "short filters bias"),
    "conv2d": (F.conv2d, "image filters2 bias"),
    "conv2d padding": (lambda x, w, b: F.conv2d(x, w, b, padding=(1, 2)), "image filters2 bias"),
    "conv2d stride": (lambda x, w, b: F.conv2d(x, w, b, (2, 3), 1), "image filters2 bias"),
    "conv2d dilation": (lambda x, w, b: F.conv2d(x, w, b, 1, (2, 1), (2, 3)), "image filters2 bias"),
    "conv2d groups": (lambda x, w, b: F.conv2d(x, w, b, (1, 2), (0, 1), 1, 2), "image grouped2 bias"),
    "conv2d depthwise": (lambda x, w, b: F.conv2d(x, w, b, (2, 1), 1, 1, 4), "image depthwise2 scale"),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), "sequence"),
    "max_pool1d all": (lambda x: F.max_pool1d(x, 3, 2, 1, 2, ceil_mode=True), "sequence"),
    "max_pool1d ceil": (lambda x: F.max_pool1d(x, 2, 2, 1, ceil_mode=True), "sequence"),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), "image"),
    "max_pool2d all": (lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 1), (2, 1), ceil_mode=True), "image"),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), "sequence"),
    "avg_pool1d padding": (lambda x: F.avg_pool1d(x, 3, 2, 1), "sequence"),
    "avg_pool1d ceil": (lambda x: F.avg_pool1d(x, 4, 3, 2, True), "sequence"),
    "avg_pool1d without padding": (lambda x: F.avg_pool1d(x, 4, 3, 2, True, False), "sequence"),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), "image"),
    "avg_pool2d all": (lambda x: F.avg_pool2d(x, (2, 3), (2, 2), (1, 1), True, True), "image"),
    "avg_pool2d without padding": (lambda x: F.avg_pool2d(x, (2, 3), (2, 2), (1, 1), True, False), "image"),
    "pad": (lambda x: F.pad(x, (1, 2), value=0.5), "sequence"),
    "pad both": (lambda x: F.pad(x, (1, 0, -2, 3)), "image"),
    "pad less": (lambda x: F.pad(x, (-2, -3, 0, 1)), "sequence"),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), "sequence scale shift"),
    "group_norm of images": (lambda x, w, b: F.group_norm(x, 4, w, b, 1e-2), "image scale shift"),
    "group_norm bare": (lambda x: F.group_norm(x, 1), "image"),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True, eps=1e-3), "sequence scale shift"),
    "batch_norm of images": (lambda x: F.batch_norm(x, None, None, None, None, True), "image"),
    "batch_norm of statistics": (lambda x, w, b: F.batch_norm(x, inputs["mean"], inputs["variance"], w, b, False),
                                 "image scale shift"),
}


def stored(tensor):
    return dict(shape=list(tensor.shape), values=[round(v, 14) for v in tensor.detach().flatten().tolist()])


cases = {}
for title, (f, names) in CASES.items():
    leaves = [inputs[name].clone().requires_grad_() for name in names.split()]
    y = f(*leaves)
    dy = randn(*y.shape)
    y.backward(dy)
    cases[title] = dict(y=stored(y), dy=stored(dy)) | {f"d{i}": stored(leaf.grad) for i, leaf in enumerate(leaves)}

# Running statistics after two steps, with two values of momentum.
for momentum in (0.1, 0.3):
    layer = torch.nn.BatchNorm1d(4, momentum=momentum, dtype=double)
    for x in (inputs["sequence"], 2 * inputs["sequence"] + 1):
        layer(x)
    cases[f"running {momentum}"] = dict(mean=stored(layer.running_mean), variance=stored(layer.running_var),
                                        evaluated=stored(layer.eval()(inputs["sequence"])))

path = pathlib.Path(__file__).with_name("convolution_torch.json")
path.write_text(json.dumps(dict(inputs={k: stored(v) for k, v in inputs.items()}, cases=cases)) + "\n")
