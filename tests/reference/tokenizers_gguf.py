"""Writes tokenizers_gguf.json: the tokens that llama.cpp gives to texts, by the tokenizers of tokenizers_files.json.

    python3 tests/reference/tokenizers_gguf.py                          (llama-cpp-python 0.3.36, gguf 0.19, tokenizers)
    python3 tests/reference/tokenizers_gguf.py 100000 FOLDER [FILE...]  (many texts: FOLDER/NAME.json for each kind)

Each tokenizer is written to a GGUF file without weights, whose tokens are computed by llama.cpp. FILE is a GGUF file,
or a tokenizer.json of SentencePiece's BPE, for which many texts are written, too. Each kind has "texts": [text, ids, ids with special tokens as
text], where null stands for the value before, and "around": the tokens that llama.cpp adds to a text. FOLDER/NAME.json
also has "gguf", the path of the file.
"""
import json
import pathlib
import sys
import tempfile
import unicodedata

import gguf
import llama_cpp
from tokenizers_files import lines, texts

# The names in tokenizer.ggml.pre. None: SentencePiece.
KINDS = {"gpt2": "gpt-2", "smollm": "smollm", "llama3": "llama-bpe", "qwen2": "qwen2", "llama2": None, "mistral": None}


def write(file, pre, path):
    """Writes a GGUF file with the vocabulary, merges and added tokens of a tokenizer.json."""
    model = file["model"]
    tokens = {id: (text, 1) for text, id in model["vocab"].items()}
    for token in file["added_tokens"]:
        tokens[token["id"]] = (token["content"], 3 if token["special"] else 4)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    w = gguf.GGUFWriter(path, "llama")
    if pre is None:
        # A token has the score of its first merge, which is higher for earlier merges.
        scores = {}
        for i, pair in enumerate(merges):
            scores.setdefault(pair.replace(" ", ""), -float(i))
        tokens = {i: (t, 6 if kind == 1 and t.startswith("<0x") and len(t) == 6 else kind)
                  for i, (t, kind) in tokens.items()}
        tokens[0] = (tokens[0][0], 2)
        w.add_tokenizer_model("llama")
        w.add_token_scores([scores.get(tokens[i][0], -1e6 - i) for i in range(len(tokens))])
        w.add_unk_token_id(0)
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
    else:
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre(pre)
        w.add_token_merges(merges)
        for token in file["added_tokens"]:
            if token["content"] == "<|begin_of_text|>":
                w.add_bos_token_id(token["id"])
    w.add_token_list([tokens[i][0] for i in range(len(tokens))])
    w.add_token_types([tokens[i][1] for i in range(len(tokens))])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def record(path, added, count, seed, nfc=False):
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)

    def ids(text, special=True, add=False):
        return model.tokenize(text.encode(), add_bos=add, special=special)
    rows = []
    for text in texts(count, added, seed):
        if nfc:  # the tokenizer of Qwen normalizes texts, llama.cpp does not
            text = unicodedata.normalize("NFC", text)
        known, plain = ids(text), ids(text, special=False)
        rows.append([text, known, plain if plain != known else None])
    return {"around": ids("", add=True), "texts": rows}


def convert(file, pre, path, count, name):
    """The record of a tokenizer.json."""
    write(file, pre, path)
    return record(path, [t["content"] for t in file["added_tokens"]], count, len(name), pre == "qwen2")


def main():
    here = pathlib.Path(__file__)
    stored = json.loads(here.with_name("tokenizers_files.json").read_text())
    files = {name: json.loads(stored[name]["file"]) for name in KINDS}
    if len(sys.argv) < 3:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            made = {name: convert(files[name], pre, path, 40, name) for name, pre in KINDS.items()}
        here.with_suffix(".json").write_text(lines(made) + "\n")
        return
    count, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
    for name, pre in KINDS.items():
        path = folder / f"{name}.gguf"
        made = convert(files[name], pre, path, count, name)
        (folder / f"{name}.json").write_text(lines({"gguf": str(path), **made}) + "\n")
    for given in map(pathlib.Path, sys.argv[3:]):
        path, out = given, folder / f"{given.stem}.json"
        if given.suffix == ".json":
            path = folder / f"{given.stem}.gguf"
            made = convert(json.loads(given.read_text()), None, path, count, given.stem)
        else:
            reader = gguf.GGUFReader(given)
            tokens, types = (reader.fields["tokenizer.ggml." + k].contents() for k in ("tokens", "token_type"))
            made = record(path, [t for t, kind in zip(tokens, types) if kind in (2, 3, 4)], count, len(given.stem))
        out.write_text(lines({"gguf": str(path.absolute()), **made}) + "\n")


if __name__ == "__main__":
    main()
