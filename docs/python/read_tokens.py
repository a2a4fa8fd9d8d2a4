"""python3 read_tokens.py FILE.tokens prints what a token file of heed holds, without reading its tokens to memory."""
import json
import struct
import sys

import numpy


def read_tokens(path):
    """The tokens as an array of the file, the size of the vocabulary, and the tokenizer: a dict, or None."""
    with open(path, "rb") as file:
        magic, version, width, count, vocabulary, _, size = struct.unpack("<8sIIQQQQ", file.read(48))
        assert magic == b"HEEDTOKS" and version == 1, "not a token file of version 1"
        file.seek(64)
        tokenizer = json.loads(file.read(size)) if size else None
    return numpy.memmap(path, "<u2" if width == 2 else "<i4", "r", 64 + size, (count,)), vocabulary, tokenizer


if __name__ == "__main__":
    tokens, vocabulary, tokenizer = read_tokens(sys.argv[1])
    kind = tokenizer["kind"] if tokenizer else "no"
    print(len(tokens), "tokens, vocabulary", vocabulary, "by", kind, "tokenizer:", tokens[:8].tolist(), "...")
