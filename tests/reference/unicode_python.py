"""Writes unicode_python.json: results of Python's str.lower() and unicodedata.normalize().

    python3 tests/reference/unicode_python.py        (Python 3.11 with Unicode 14)

"assigned": ranges [begin, end) of the code points in Unicode 14. "lower", "nfc", "nfkc": code points that the function
changes, with the results. "words": lower case of a sigma among letters, marks and punctuation. "sequences": texts of
several characters with their forms NFC and NFKC.
"""
import itertools
import json
import pathlib
import random
import unicodedata

CODE_POINTS = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def changed(function):
    return [[ord(c), function(c)] for c in CODE_POINTS if function(c) != c]


def form(name):
    return lambda text: unicodedata.normalize(name, text)


known = [unicodedata.category(chr(c)) not in ("Cn", "Cs") for c in range(0x110000)] + [False]
edges = [c for c in range(0x110001) if known[c] != (known[c - 1] if c > 0 else False)]
parts = ["Σ", "Α", "1", ".", "'", " ", "\u0301", "\u00ad", "İ", ":"]
words = ["".join(p) for n in (1, 2, 3) for p in itertools.product(parts, repeat=n) if "Σ" in p]
random.seed(1)
pool = [c for c in CODE_POINTS if unicodedata.combining(c) or form("NFKD")(c) != c] + list("aeoAEO \n\u1100\u1161\u11a8")
texts = ["".join(random.choices(pool, k=random.randint(2, 9))) for _ in range(400)]
out = {"assigned": list(zip(edges[::2], edges[1::2])), "lower": changed(str.lower), "nfc": changed(form("NFC")), "nfkc": changed(form("NFKC")),
       "words": [[w, w.lower()] for w in words],
       "sequences": [[t, form("NFC")(t), form("NFKC")(t)] for t in texts]}
text = json.dumps(out, ensure_ascii=True, separators=(",", ":"))
(pathlib.Path(__file__).parent / "unicode_python.json").write_text(text.replace("],[", "],\n[") + "\n")
