"""Writes onnx_graph.onnx, a graph built by the Python package onnx, which tests/io/onnx_graph_test.cpp builds too.

    python3 tests/reference/onnx_files.py        (onnx 1.23, NumPy)
"""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).parent


def constant(number, values, dtype):
    return numpy_helper.from_array(np.array(values, dtype), f"constant_{number}")


nodes = [
    helper.make_node("MatMul", ["x", "blocks.0.w\u00fc"], ["MatMul_0"], "MatMul_0"),
    helper.make_node("Split", ["MatMul_0", "constant_0"], ["Split_1.0", "Split_1.1"], "Split_1", axis=-1),
    helper.make_node("ReduceMean", ["Split_1.0"], ["ReduceMean_2"], "ReduceMean_2", axes=[-1, 1 << 40], keepdims=1),
    helper.make_node("LayerNormalization", ["Split_1.1", "scale"], ["LayerNormalization_3"], "LayerNormalization_3",
                     axis=-1, epsilon=1e-5),
    helper.make_node("Mul", ["LayerNormalization_3", "constant_1"], ["Mul_4"], "Mul_4"),
    helper.make_node("Gather", ["Mul_4", "constant_2"], ["Gather_5"], "Gather_5", axis=0),
    helper.make_node("Identity", ["Gather_5"], ["y"], "y"),
]
weight = (np.arange(40, dtype=np.float32) / 8).reshape(4, 10)
initializers = [
    numpy_helper.from_array(weight, "blocks.0.w\u00fc"),
    constant(0, [3, 7], np.int64),
    numpy_helper.from_array(np.float32([1, -0.5, 2, 0, 1e30, 0.1, 3]), "scale"),
    constant(1, 0.5, np.float32),
    constant(2, -1, np.int64),
]
graph = helper.make_graph(
    nodes, "heed",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4]),
     helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [7])], initializers)
model = onnx.ModelProto(ir_version=8, producer_name="heed", graph=graph)
model.opset_import.add(version=17)
helper.set_model_props(model, {"general.name": "Gr\u00fc\u00dfe", "licence": "MIT"})
(FOLDER / "onnx_graph.onnx").write_bytes(model.SerializeToString())
