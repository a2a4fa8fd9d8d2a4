"""Writes tests/reference/safetensors: files of the safetensors package, which tests read, or write byte for byte.

usage: python3 tests/reference/safetensors_files.py        (packages: safetensors 0.8, numpy, torch, huggingface_hub)

types.safetensors     a tensor of each type that heed reads, a scalar, an empty tensor, and a name with escapes
written.safetensors   the types that heed writes
sharded               a folder with two files and the index of transformers' save_pretrained()
shards                the same for more tensors, divided by the function that save_pretrained() calls: at most 28 bytes
"""
import json
import pathlib

import numpy as np
from safetensors import TensorSpec, serialize

FOLDER = pathlib.Path(__file__).parent / "safetensors"


def entry(values, dtype, shape=None):
    """The type, shape and bytes of a tensor. bfloat16, which NumPy lacks, must hold the numbers exactly."""
    array = np.array(values, "float32" if dtype == "bfloat16" else dtype)
    stored = (array.view("uint32") >> 16).astype("uint16") if dtype == "bfloat16" else array
    return dtype, list(array.shape if shape is None else shape), stored


def write(name, tensors, metadata):
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    specs = {tensor: TensorSpec(dtype=dtype, shape=shape, data_ptr=stored.ctypes.data, data_len=stored.nbytes)
             for tensor, (dtype, shape, stored) in tensors.items()}
    path.write_bytes(serialize(specs, metadata))


write("types.safetensors", {
    "f64": entry([1.5, -2.25], "float64"),
    "f32": entry([[0, 0.5, 1], [1.5, 2, 2.5]], "float32"),
    "f16": entry([0.5, -1.25, 65504], "float16"),
    "bf16": entry([1, -3.140625], "bfloat16"),
    "i64": entry([-5, 2147483647], "int64"),
    "i32": entry([-6, 7], "int32"),
    "i16": entry([-32768, 7], "int16"),
    "i8": entry([-128, 127], "int8"),
    "u64": entry([7, 2147483647], "uint64"),
    "u32": entry([8, 2147483647], "uint32"),
    "u16": entry([9, 65535], "uint16"),
    "u8": entry([0, 127, 255], "uint8"),
    "bool": entry([True, False, True], "bool"),
    "scalar": entry(3.25, "float32"),
    "empty": entry([], "float32", [0, 4]),
    "é \"\n\\\x01": entry([1, 2], "int32"),
}, {"format": "pt"})

write("written.safetensors", {
    "b": entry([[1, 2], [3, -4]], "float32"),
    "a": entry([0.1], "float64"),
    "c": entry([1, -2, 3], "int32"),
    "d": entry([True, False], "bool"),
    "e": entry([1, -3.140625], "bfloat16"),
    "é \"\n\\\x01\x7f/": entry([0.25, 0.5], "float32"),
    "scalar": entry(3.25, "float32"),
    "empty": entry([], "float32", [0, 3]),
    "double": entry([[1.5], [-2]], "float64"),
}, {"format": "pt"})

first = {"embed.weight": entry([[1, 2], [3, 4], [5, 6]], "float32"), "norm.weight": entry([1, 1], "bfloat16")}
second = {"head.weight": entry([[7, 8], [9, 10]], "float16")}
files = {"model-00001-of-00002.safetensors": first, "model-00002-of-00002.safetensors": second}
for name, tensors in files.items():
    write("sharded/" + name, tensors, {"format": "pt"})
index = {"metadata": {"total_size": 36, "total_parameters": 12},
         "weight_map": {tensor: name for name, tensors in files.items() for tensor in tensors}}
(FOLDER / "sharded" / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def write_shards():
    import torch
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file

    state = {"embed.weight": torch.tensor([[1., 2], [3, 4], [5, 6]]), "norm.weight": torch.ones(2, dtype=torch.bfloat16),
             "mlp.weight": torch.arange(1., 9).view(2, 4), "ids": torch.tensor([7], dtype=torch.int32),
             "bias": torch.tensor([0.5]), "last": torch.tensor([0.25, -1], dtype=torch.float64)}
    split = split_torch_state_dict_into_shards(state, filename_pattern="model{suffix}.safetensors", max_shard_size=28)
    folder = FOLDER / "shards"
    folder.mkdir(exist_ok=True)
    for name, tensors in split.filename_to_tensors.items():
        save_file({tensor: state[tensor] for tensor in tensors}, folder / name, {"format": "pt"})
    index = {"metadata": {"total_parameters": sum(x.numel() for x in state.values()), **split.metadata},
             "weight_map": split.tensor_to_filename}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


write_shards()
