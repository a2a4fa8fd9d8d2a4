"""Writes npz_files.json: .npz files of NumPy and of Python's zipfile.

    python3 tests/reference/npz_files.py        (Python 3.11, NumPy 2.4)

"arrays": the arrays of each file in "files", with their dtypes in heed. "files": the bytes of files that heed reads.
"empty" has no array, "zeros" one of 5 MiB, and all others have "arrays". "refused": the bytes of files that heed
refuses.
"""
import io
import json
import pathlib
import zipfile

import numpy as np

ARRAYS = {
    "float32": np.array([[1.5, -2, 3e-40], [3.4e38, 0, -0.1]], "f4"),
    "float64": np.array([0.1, -1e300, 5e-324]),
    "float16": np.array([1, -2.5, 65504, 2**-24], "f2"),
    "bool": np.array([True, False, True]),
    "scalar": np.array(7, "f4"),
    "none": np.zeros((0, 4), "f4"),
    "cube": np.arange(24, dtype="i8").reshape(2, 3, 4) * 1000 - 7,
    "layer.0/weight": np.full((3, 1), 0.25, "f4"),
    "größe 層": np.array([[1, 2]], "f4"),
}
for kind in ("i1", "i2", "i4", "u1", "u2", "u4", "u8"):
    info = np.iinfo(kind)
    ARRAYS[kind] = np.array([max(info.min, -2**31), 5, min(info.max, 2**31 - 1)], kind)
TYPES = {"f4": "float32", "f8": "float64", "f2": "float32", "b1": "bool8"}


class Pipe(io.RawIOBase):
    """A file without positions: zipfile then writes the sizes of a member after its bytes."""

    def __init__(self):
        self.bytes = b""

    def writable(self):
        return True

    def write(self, data):
        self.bytes += bytes(data)
        return len(data)


def saved(save, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def add(archive, arrays):
    for name, x in arrays.items():
        with archive.open(name + ".npy", "w") as f:
            np.lib.format.write_array(f, np.asanyarray(x))


def zipped(arrays, method, comment=b""):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        add(archive, arrays)
        archive.comment = comment
    return file.getvalue()


def piped():
    file = Pipe()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        add(archive, ARRAYS)
    return file.bytes


def zip64():
    """All sizes and offsets above 10 are in ZIP64 fields, and the end record has a ZIP64 form."""
    limit, zipfile.ZIP64_LIMIT = zipfile.ZIP64_LIMIT, 10
    try:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, x in ARRAYS.items():
                with archive.open(name + ".npy", "w", force_zip64=True) as f:
                    np.lib.format.write_array(f, x)
        return file.getvalue()
    finally:
        zipfile.ZIP64_LIMIT = limit


def pickled():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), b"\x80\x02}q\x00.")
    return file.getvalue()


def described(x):
    return {"dtype": TYPES.get(x.dtype.str[1:], "int32"), "shape": list(x.shape),
            "values": [float(v) for v in x.reshape(-1)]}


x = {"x": np.array([[1.5, 2], [3, 4]], "f4")}
files = {
    "savez": saved(np.savez, **ARRAYS),
    "savez_compressed": saved(np.savez_compressed, **ARRAYS),
    "piped": piped(),
    "zip64": zip64(),
    "comment": zipped(ARRAYS, zipfile.ZIP_STORED, b"made by hand"),
    "empty": saved(np.savez),
    "zeros": saved(np.savez_compressed, zeros=np.zeros(5 << 20, bool)),
}
refused = {
    "bzip2": zipped(x, zipfile.ZIP_BZIP2),
    "lzma": zipped(x, zipfile.ZIP_LZMA),
    "fortran": saved(np.savez, x=np.asfortranarray(x["x"])),
    "object": saved(np.savez, x=np.array([{}, None])),
    "text": saved(np.savez, x=np.array(["a", "b"])),
    "complex": saved(np.savez, x=np.array([1j])),
    "big_endian": saved(np.savez, x=np.array([1], ">f4")),
    "record": saved(np.savez, x=np.zeros(2, [("a", "f4"), ("b", "i4")])),
    "large_integer": saved(np.savez_compressed, x=np.array([2**31])),
    "pickled": pickled(),
}
out = {"arrays": {name: described(a) for name, a in ARRAYS.items()},
       "files": {name: data.hex() for name, data in files.items()},
       "refused": {name: data.hex() for name, data in refused.items()}}
text = json.dumps(out, separators=(",", ":")).replace('","', '",\n"').replace('},"', '},\n"')
(pathlib.Path(__file__).parent / "npz_files.json").write_text(text + "\n")
