"""Writes tokenizers_gguf.json: the tokens that llama.cpp gives to texts, by the tokenizers of tokenizers_files.json.

    python3 tests/reference/tokenizers_gguf.py                          (xllamacpp, gguf 0.19, tokenizers)
    python3 tests/reference/tokenizers_gguf.py 100000 FOLDER [KIND...]  (many texts: FOLDER/NAME.json for each kind)

Each tokenizer is written to the GGUF file of a tiny model, whose tokens are computed by llama.cpp. KIND is a kind
below, a GGUF file, or a tokenizer.json of SentencePiece's BPE; by default all kinds below are written. Each kind has
"texts": [text, ids, ids with special tokens as text], where null stands for the value before, and "around": the tokens
that llama.cpp adds to a text. FOLDER/NAME.json also has "gguf", the path of the file.
"""
import http.client
import json
import pathlib
import sys
import tempfile
import unicodedata

import gguf
import numpy as np
import xllamacpp
from tokenizers_files import lines, texts

# The names in tokenizer.ggml.pre. None: SentencePiece.
KINDS = {"gpt2": "gpt-2", "smollm": "smollm", "llama3": "llama-bpe", "qwen2": "qwen2", "llama2": None, "mistral": None}


def add_weights(w, vocabulary, width=32):
    """A model of one block, because llama.cpp loads no file without weights."""
    for add, value in ((w.add_context_length, 512), (w.add_embedding_length, width), (w.add_block_count, 1),
                       (w.add_feed_forward_length, width), (w.add_head_count, 1), (w.add_layer_norm_rms_eps, 1e-5),
                       (w.add_rope_dimension_count, width), (w.add_vocab_size, vocabulary)):
        add(value)
    w.add_tensor("token_embd.weight", np.zeros((vocabulary, width), np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        w.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        w.add_tensor(f"blk.0.{name}.weight", np.zeros((width, width), np.float32))


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
    add_weights(w, len(tokens))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def record(path, added, count, seed, nfc=False):
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(path), 512, 1, False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    connection = http.client.HTTPConnection(server.listening_address.removeprefix("http://"))

    def ids(text, special=True, add=False):
        request = {"content": text, "add_special": add, "parse_special": special}
        connection.request("POST", "/tokenize", json.dumps(request), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())["tokens"]
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
    for given in sys.argv[3:] or KINDS:
        path, name = pathlib.Path(given), pathlib.Path(given).stem
        if given in KINDS:
            path = folder / f"{name}.gguf"
            made = convert(files[name], KINDS[name], path, count, name)
        elif path.suffix == ".json":
            path = folder / f"{name}.gguf"
            made = convert(json.loads(pathlib.Path(given).read_text()), None, path, count, name)
        else:
            reader = gguf.GGUFReader(path)
            tokens, types = (reader.fields["tokenizer.ggml." + k].contents() for k in ("tokens", "token_type"))
            made = record(path, [t for t, kind in zip(tokens, types) if kind in (2, 3, 4)], count, len(name))
        (folder / f"{name}.json").write_text(lines({"gguf": str(path.absolute()), **made}) + "\n")


if __name__ == "__main__":
    main()
