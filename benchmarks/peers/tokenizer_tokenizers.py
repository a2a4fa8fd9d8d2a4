"""Encoding with the package `tokenizers` on one thread, as bench_tokenizer does it.

usage: python3 tokenizer_tokenizers.py FILE.json TEXT    (pip install tokenizers)
"""
import os
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402

tokenizer = Tokenizer.from_file(sys.argv[1])
tokenizer.no_truncation()
tokenizer.no_padding()
with open(sys.argv[2], "rb") as file:
    text = file.read(8 << 20).decode(errors="ignore")


def show(what, encode):
    seconds, tokens = [], encode()
    for _ in range(5):
        start = time.perf_counter()
        encode()
        seconds.append(time.perf_counter() - start)
    mega = 1e6 * statistics.median(seconds)
    print(f"tokenizers {what}: {len(text.encode()) / mega:.2f} MB/s, {tokens / mega:.2f} million tokens/s, "
          f"{tokens} tokens")


lines = [line + "\n" for line in text.split("\n")]
show("lines", lambda: sum(len(tokenizer.encode(line, add_special_tokens=False).ids) for line in lines))
show("lines by encode_batch_fast",
     lambda: sum(len(e.ids) for e in tokenizer.encode_batch_fast(lines, add_special_tokens=False)))
show("whole", lambda: len(tokenizer.encode(text, add_special_tokens=False).ids))
