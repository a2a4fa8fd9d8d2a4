"""Reads and writes checkpoints with h5py and PyTorch, for checkpoint_read_test.cpp and checkpoint_write_test.cpp of
tests/data.

usage: python3 checkpoint_exchange.py VERB FOLDER     (packages: python3-h5py; python3-torch for the verbs to_pytorch,
                                                       from_pytorch)
"""
import os
import sys

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "docs", "python"))
from seal_checkpoint import seal  # noqa: E402


def sealed(path, write, **options):
    with h5py.File(path, "w", userblock_size=512, **options) as file:
        write(file)
    seal(path)


def h5py_reads(folder):
    """Checks that every.h5, which heed wrote, has the contents of the test."""
    with h5py.File(os.path.join(folder, "every.h5"), "r") as file:
        assert file.userblock_size == 512
        assert file.attrs["format"] == "heed checkpoint", file.attrs["format"]
        assert int(file["step"][()]) == 12 and int(file["seed"][()]) == 2**64 - 1
        assert file["config"].asstr()[()] == '{"name": "für Elise"}'
        assert bytes(file["tokenizer"][:]) == b"\x00\x01\xff\n\x00" and file["nothing"].shape == (0,)
        model = file["model"]
        expected = {
            "f32": np.array([[1.5, -0.0, np.inf], [-np.inf, 1e-45, 3]], np.float32),
            "f64": np.array([[0.1], [-1e308], [5e-324]], np.float64),
            "i32": np.array([-(2**31), 0, 2**31 - 1], np.int32),
            "b8": np.array([[True, False], [False, True]]),
            "bf16": np.array([0x3F80, 0xC020], np.uint16),
            "scalar": np.array(2.5, np.float32),
            "empty": np.zeros((3, 0, 2), np.float32),
        }
        assert set(model) == set(expected), set(model)
        for name, value in expected.items():
            got = np.array(model[name])
            assert got.dtype == value.dtype and got.shape == value.shape and got.tobytes() == value.tobytes(), \
                (name, got)
        assert model["bf16"].attrs["dtype"] == "bfloat16"


def h5py_writes(folder):
    """Writes written.h5, the same values as h5py stores them (other byte orders, fixed strings, signed counters), and
    old.h5 and others in other formats of HDF5."""
    def write(file):
        file["step"] = 12
        file["seed"] = np.uint64(2**64 - 1)
        file["config"] = '{"name": "für Elise"}'
        file["fixed"] = np.bytes_("abc")
        file["tokenizer"] = np.frombuffer(b"\x00\x01\xff\n\x00", np.uint8)
        file["nothing"] = np.zeros(0, np.uint8)
        file["model/f32"] = np.array([[1.5, -0.0, np.inf], [-np.inf, 1e-45, 3]], ">f4")
        file["model/f64"] = np.array([[0.1], [-1e308], [5e-324]])
        file["model/i32"] = np.array([-(2**31), 0, 2**31 - 1], ">i4")
        file["model/b8"] = np.array([[True, False], [False, True]])
        file["model/bf16"] = np.array([0x3F80, 0xC020], np.uint16)
        file["model/bf16"].attrs["dtype"] = "bfloat16"
        file["model/scalar"] = np.float32(2.5)
        file["model/empty"] = np.zeros((3, 0, 2), np.float32)
        file["model/nested/deep/x"] = np.float32(1)
        for i in range(100):  # more than fit in a header or a tree node
            file[f"model/many/{i}"] = np.int32(i)
        file.attrs["config"] = "attributes of the file are not read"
    sealed(os.path.join(folder, "written.h5"), write)
    for version in ("latest", "v108", "v110"):
        sealed(os.path.join(folder, version + ".h5"), write, libver=version)
    sealed(os.path.join(folder, "ordered.h5"), write, track_order=True)
    # A file in the newest format, to which h5py adds groups in its default format.
    added = os.path.join(folder, "added.h5")
    with h5py.File(added, "w", userblock_size=512, libver="latest"):
        pass
    with h5py.File(added, "r+") as file:
        write(file)
    seal(added)


def h5py_oddities(folder):
    """Writes sealed files with contents that are not valid in a checkpoint: NAME.h5 for each."""
    def put(path, value):
        return lambda file: file.__setitem__(path, value)

    def attribute(file):
        file["model/x"] = np.zeros(2, np.uint16)
        file["model/x"].attrs["dtype"] = 7

    def attributes(file):
        file["model/x"] = np.zeros(2, np.uint16)
        file["model/x"].attrs["dtype"] = ["bfloat16"] * 100

    def no_attribute(file):
        file["model/x"] = np.zeros(2, np.uint16)
        file["model/x"].attrs["dtype"] = h5py.Empty(h5py.string_dtype())

    def ascii_attribute(file):
        file["model/x"] = np.zeros(2, np.uint16)
        file["model/x"].attrs.create("dtype", "bfloat15", dtype=h5py.string_dtype("ascii"))

    def maybe(file):
        x = file.create_dataset("model/x", (3,), h5py.enum_dtype({"FALSE": 0, "TRUE": 1}, basetype="i1"))
        x[...] = np.array([0, 1, 2], np.int8)

    def deep(file):
        file.create_group("/".join("abcdefghijklmnopqrstuvwxyz"))

    def cycle(file):
        file.create_group("model")
        file["model/again"] = file["model"]

    def twice(file):
        file["model/x"] = np.zeros(3, np.float32)
        file["model/y"] = file["model/x"]

    def elsewhere(file):
        file.create_group("model").create_dataset("x", (4,), "f4", external=[("/etc/passwd", 0, 16)])

    def virtual(file):
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource("other.h5", "x", (4,))
        file.create_group("model").create_virtual_dataset("x", layout)

    def chunks(file):
        file.create_dataset("model/x", data=np.zeros(4), chunks=(2,))

    def compressed(file):
        file.create_dataset("model/x", data=np.zeros(4), compression="gzip")

    def unwritten(file):  # a terabyte
        file.create_dataset("model/x", (1 << 38,), "f4")

    def endless(file):
        file.create_dataset("model/x", (1 << 40, 1 << 40, 0), "f4")

    def committed(file):
        file["type"] = np.dtype("f4")
        file.create_dataset("model/x", data=np.zeros(4, "f4"), dtype=file["type"])

    def attribute_table(file):
        file["model/x"] = np.zeros(2, np.uint16)
        for i in range(20):
            file["model/x"].attrs[f"a{i}"] = i

    def control(file):
        file["model/\x1b[2J"] = np.zeros(2, np.int64)

    odd = {
        "int64": put("model/x", np.zeros(2, np.int64)),
        "uint8": put("model/x", np.zeros(2, np.uint8)),
        "uint16": put("model/x", np.zeros(2, np.uint16)),
        "uint32": put("model/x", np.zeros(2, np.uint32)),
        "float16": put("model/x", np.zeros(2, np.float16)),
        "complex": put("model/x", np.zeros(2, np.complex64)),
        "string": put("model/x", "text"),
        "null": put("model/x", h5py.Empty("f4")),
        "axes": put("model/x", np.zeros((1,) * 9, np.float32)),
        "root": put("x", np.zeros(3, np.float32)),
        "real": put("x", 1.5),
        "negative": put("step", -1),
        "type": put("model/x", np.dtype("f4")),
        "soft": put("model/x", h5py.SoftLink("/y")),
        "external": put("model/x", h5py.ExternalLink("/etc/passwd", "/y")),
        "attribute": attribute,
        "attributes": attributes,
        "no_attribute": no_attribute,
        "ascii_attribute": ascii_attribute,
        "maybe": maybe,
        "deep": deep,
        "cycle": cycle,
        "twice": twice,
        "elsewhere": elsewhere,
        "chunks": chunks,
        "compressed": compressed,
        "unwritten": unwritten,
        "endless": endless,
        "committed": committed,
        "control": control,
    }
    for name, write in odd.items():
        sealed(os.path.join(folder, name + ".h5"), write)
    sealed(os.path.join(folder, "attribute_table.h5"), attribute_table, libver="latest")
    sealed(os.path.join(folder, "virtual.h5"), virtual, libver="latest")


def to_pytorch(folder):
    """Loads heed's GPTs, which contain data/x, with the example loader: NAME.h5 -> NAME_logits.h5."""
    import torch
    from gpt import load_gpt
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        with h5py.File(path, "r") as file:
            x = torch.from_numpy(np.array(file["data/x"])).long()
        with torch.no_grad():
            logits = load_gpt(path)(x).numpy()
        sealed(path[:-3] + "_logits.h5", lambda file: file.__setitem__("data/logits", logits))


def from_pytorch(folder):
    """Writes PyTorch's GPT for heed: gpt.h5 with the example writer, and logits.h5 with tokens and logits."""
    import torch
    from gpt import GPT
    from pytorch_to_heed import save
    torch.manual_seed(3)
    config = {"model": "gpt", "vocabulary": 23, "context": 12, "layers": 2, "heads": 2, "kv_heads": 0, "width": 16, "hidden": 0, "dropout": 0.0,
              "activation": "gelu", "norm": "layer", "positions": "learned", "bias": True, "tied": True, "attention": "softmax"}
    model = GPT(config).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, 0.1, 0.3)
    save(os.path.join(folder, "gpt.h5"), model.state_dict(), config)
    x = torch.randint(23, (3, 12))
    with torch.no_grad():
        logits = model(x).numpy()

    def write(file):
        file["data/x"] = x.int().numpy()
        file["data/logits"] = logits
    sealed(os.path.join(folder, "logits.h5"), write)
    kinds = {"half": torch.tensor([1.0, -2.5]).bfloat16(), "count": torch.tensor(7), "mask": torch.tensor([True, False])}
    save(os.path.join(folder, "kinds.h5"), kinds, {})


{f.__name__: f for f in (h5py_reads, h5py_writes, h5py_oddities, to_pytorch, from_pytorch)}[sys.argv[1]](sys.argv[2])
