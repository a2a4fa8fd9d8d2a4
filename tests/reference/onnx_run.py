"""Runs the ONNX files of a folder by onnxruntime, for tests/io/onnx_test.cpp.

    python3 tests/reference/onnx_run.py FOLDER        (onnx, onnxruntime, NumPy)

Each NAME.onnx must pass the checker of the package onnx, and have the bytes that the package writes for it. For each
NAME.I.input_ids.npy, and NAME.I.INPUT.npy for the other inputs, the outputs are saved as NAME.I.OUTPUT.npy.
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime

for file in sorted(pathlib.Path(sys.argv[1]).glob("*.onnx")):
    data = file.read_bytes()
    model = onnx.load_model_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    assert model.SerializeToString() == data, f"{file.name}: onnx writes other bytes"
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for ids in sorted(file.parent.glob(f"{file.stem}.*.input_ids.npy")):
        base = str(ids).removesuffix(".input_ids.npy")
        feeds = {x.name: np.load(f"{base}.{x.name}.npy").astype(np.int64) for x in session.get_inputs()}
        for output, x in zip(session.get_outputs(), session.run(None, feeds)):
            np.save(f"{base}.{output.name}.npy", x)
            print(pathlib.Path(base).name, output.name, output.shape, x.shape)
