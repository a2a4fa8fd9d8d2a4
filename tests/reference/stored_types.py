"""Writes stored_types.json: numbers in the types of io/stored_tensor.hpp, as numpy and gguf convert them.

    python3 tests/reference/stored_types.py        (numpy 2.4, gguf 0.19)

A hash stands for many numbers, which tests/io/stored_tensor_test.cpp generates by the same formulas.
"""
import json
import pathlib

import gguf
import numpy as np

BLOCKS = 1000  # per hash
# Quantized types: bytes per block, and the places of their float16 numbers.
QUANTIZED = {"Q8_0": (34, [0]), "Q4_0": (18, [0]), "Q4_1": (20, [0, 2]), "Q4_K": (144, [0, 2]), "Q6_K": (210, [208])}
PLAIN = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
         "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}
NUMBERS = [0, 1, 2, 100, 127]  # in every type but BOOL


def states(count, seed=1):
    """A linear congruential generator: `count` integers of 32 bits."""
    all_states = np.empty(count, np.uint32)
    for i in range(count):
        seed = (seed * 1664525 + 1013904223) % 2**32
        all_states[i] = seed
    return all_states


def hash_of(numbers):
    value = 0
    for n in numbers.ravel().tolist():
        value = (value * 1000003 + n) % 2**64
    return value


def blocks_of(size, float16_at):
    """Random blocks whose float16 numbers are finite: below 2, the smallest, or the one furthest below 0."""
    blocks = (states(BLOCKS * size) >> 24).astype(np.uint8).reshape(BLOCKS, size)
    for at in float16_at:
        blocks[:, at + 1] &= 0xBF
        blocks[1::4, at:at + 2] = [0x01, 0x00]
        blocks[2::4, at:at + 2] = [0xFF, 0xFB]
    return blocks


def random_floats():
    """Blocks of 32 numbers below 2^11, 2^10, ... 2^-20. The scales of the last are 0 in float16."""
    signed = states(BLOCKS * 32).view(np.int32).astype(np.float32).reshape(BLOCKS, 32)
    return np.ldexp(signed, (-20 - np.arange(BLOCKS, dtype=np.int32) % 32)[:, None])


def hex_of(array):
    return array.tobytes().hex()


def main():
    stored = {"plain": {}, "quantized": {}, "written": {}}
    for name, dtype in PLAIN.items():
        numbers = np.array([0, 1, 1, 0] if name == "BOOL" else NUMBERS, dtype)
        stored["plain"][name] = {"bytes": hex_of(numbers), "values": [float(n) for n in numbers]}
    floats = np.array([0.1, -0.0, 3e38, 1e-40, -1, 257, 258.9], np.float32)
    narrow = gguf.quants.quantize(floats, gguf.GGMLQuantizationType.BF16)
    wide = gguf.quants.dequantize(narrow, gguf.GGMLQuantizationType.BF16)
    stored["plain"]["BF16"] = {"bytes": hex_of(narrow), "values": [float(n) for n in wide]}

    for name, (size, float16_at) in QUANTIZED.items():
        blocks = blocks_of(size, float16_at)
        values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
        assert values.dtype == np.float32 and np.isfinite(values).all()
        stored["quantized"][name] = {"bytes": hex_of(blocks[0]), "values": [float(v) for v in values[0]],
                                     "hash": hash_of(values.view(np.uint32))}

    # Ties of integers, which round away from zero, and numbers just beside ties.
    ties = np.array([127] + [n + 0.5 for n in range(-8, 8)] + [0.49999997, -0.49999997, 1.4999999, 126.5, -126.5]
                    + [0] * 10, np.float32)
    assert ties.size == 32
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    stored["written"]["Q8_0"] = {"values": [float(v) for v in ties], "bytes": hex_of(gguf.quants.quantize(ties, q8_0)),
                                 "hash": hash_of(gguf.quants.quantize(random_floats(), q8_0))}
    with np.errstate(over="ignore", invalid="ignore"):
        bits = states(2**20).view(np.float32).astype(np.float16).view(np.uint16)
        bits[(bits & 0x7FFF) > 0x7C00] = 0x7E00
    stored["written"]["F16"] = {"hash": hash_of(bits)}
    file = pathlib.Path(__file__).with_name("stored_types.json")
    file.write_text(json.dumps(stored, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
