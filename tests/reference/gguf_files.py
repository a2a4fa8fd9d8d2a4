"""Writes gguf_*.gguf and gguf_files.json: files of the Python package gguf, and the numbers in them.

    python3 tests/reference/gguf_files.py        (gguf 0.19, NumPy)

gguf_plain.gguf: metadata of all types, sorted by key, and tensors of the types that heed writes.
gguf_quantized.gguf: tensors of the types that heed only reads. gguf_aligned.gguf: an alignment of 64.
gguf_big_endian.gguf: the other byte order, which heed refuses.
gguf_files.json: the values of all tensors, as gguf.quants.dequantize() computes them.
"""
import json
import pathlib

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

FOLDER = pathlib.Path(__file__).parent
Type, Value = gguf.GGMLQuantizationType, gguf.GGUFValueType
rng = np.random.default_rng(1)
stored = {}

NUMBERS = {
    "uint8": [0, 255], "int8": [-128, 127], "uint16": [65535, 7], "int16": [-32768, 7], "uint32": [4294967295, 7],
    "int32": [-2147483648, 7, 8], "float32": [0.5, -1.25e30], "uint64": [18446744073709551615, 7],
    "int64": [-9223372036854775808, 7], "float64": [0.1, 1e300], "bool": [True, False, True],
    "string": ["", "\u2581the", "a\nb\x00c"],
}


def metadata():
    """Keys with the arguments of add_key_value()."""
    values = {"general.quantization_version": (gguf.GGML_QUANT_VERSION, Value.UINT32),
              "general.name": ("Gr\u00fc\u00dfe", Value.STRING)}
    for name, numbers in NUMBERS.items():
        values[f"test.{name}"] = (numbers[-1], Value[name.upper()])
        values[f"test.array.{name}"] = (numbers, Value.ARRAY, Value[name.upper()])
    values["test.array.array"] = ([[1, 2], [3]], Value.ARRAY, Value.ARRAY)
    return sorted(values.items())


def add(writer, name, values, kind):
    """Adds float32 values as a quantized or floating type."""
    data = values.astype(np.float16) if kind == Type.F16 else values if kind == Type.F32 else quantize(values, kind)
    add_raw(writer, name, data, kind)


def add_raw(writer, name, data, kind):
    """Adds blocks of bytes, or an array of NumPy's type."""
    plain = kind in (Type.F32, Type.F16, Type.F64, Type.I8, Type.I16, Type.I32, Type.I64)
    writer.add_tensor(name, data, raw_dtype=None if plain else kind)
    values = data if plain else dequantize(data, kind)
    stored[name] = {"shape": list(values.shape), "values": values.astype(np.float64).reshape(-1).tolist()}


def blocks(rows, size, scales):
    """Rows of one block each: random bytes, with f16 scales at the given offsets."""
    data = rng.integers(0, 256, (rows, size), dtype=np.uint8)
    for at in scales:
        data[:, at:at + 2] = rng.uniform(1e-3, 1e-2, (rows, 1)).astype(np.float16).view(np.uint8)
    return data


def write(name, fill, **options):
    """Writes a file whose contents fill(writer) adds."""
    writer = gguf.GGUFWriter(FOLDER / name, "llama", **options)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def normal(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


def plain(writer):
    for key, arguments in metadata():
        writer.add_key_value(key, *arguments)
    add(writer, "f32", normal(2, 3), Type.F32)
    add(writer, "f16", normal(3, 5), Type.F16)
    add(writer, "bf16", normal(2, 2, 3), Type.BF16)
    add(writer, "q8_0", normal(3, 64), Type.Q8_0)
    add(writer, "four axes", normal(2, 1, 3, 4), Type.F32)
    add_raw(writer, "f64", rng.standard_normal(3), Type.F64)
    add_raw(writer, "i32", np.array([-2147483648, 2147483647], np.int32), Type.I32)
    add_raw(writer, "i64", np.array([[-5], [2147483647]], np.int64), Type.I64)
    add(writer, "scalar", np.array(2.5, np.float32), Type.F32)
    add(writer, "x" * 63, normal(1), Type.F32)


def quantized(writer):
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add(writer, "q4_0", normal(2, 64), Type.Q4_0)
    add(writer, "q4_1", normal(2, 32), Type.Q4_1)
    add_raw(writer, "q4_k", blocks(2, 144, (0, 2)), Type.Q4_K)
    add_raw(writer, "q6_k", blocks(2, 210, (208,)), Type.Q6_K)
    add_raw(writer, "i8", np.array([-128, 127], np.int8), Type.I8)
    add_raw(writer, "i16", np.array([-32768, 32767], np.int16), Type.I16)


def aligned(writer):
    writer.add_custom_alignment(64)
    add(writer, "a", normal(3), Type.F32)
    add(writer, "b", normal(2, 32), Type.F32)
    add(writer, "c", normal(1), Type.F16)


def big_endian(writer):
    writer.add_name("x")
    writer.add_tensor("w", np.ones((2, 2), np.float32))


write("gguf_plain.gguf", plain)
write("gguf_quantized.gguf", quantized)
write("gguf_aligned.gguf", aligned)
write("gguf_big_endian.gguf", big_endian, endianess=gguf.GGUFEndian.BIG)
(FOLDER / "gguf_files.json").write_text(json.dumps(stored).replace("}, ", "},\n") + "\n")
