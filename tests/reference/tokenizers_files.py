"""Writes tokenizers_files.json: small tokenizers of each kind, and what the package `tokenizers` makes of texts.

    python3 tests/reference/tokenizers_files.py                        (tokenizers 0.23, sentencepiece 0.2)
    python3 tests/reference/tokenizers_files.py 100000 FOLDER [KIND...] (many texts: FOLDER/NAME.json for each kind)

KIND is a kind below, or the path of a tokenizer.json. By default all kinds below are written.

No tokenizer of a published model is in a Python package, so tokenizers of the same structure are trained on the texts
below. Each kind has: "file", the text of its tokenizer.json; "around", the tokens that the post-processor adds;
"texts": [text, ids, ids with special tokens as text, decoded, decoded without special tokens], where null stands for
the value before; "ids": [ids, decoded]. Training breaks some ties at random, so a second run would write other values.
Kinds that the file has are kept.
The characters are those of Unicode 3.2 and some emoji of Unicode 8, because the tables of newer characters differ.
"""
import io
import json
import pathlib
import random
import sys
import tempfile
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = ("the of and to in a is that for it as was with be by on not he his but at are this have from or had an they "
         "which one you were all her she there would their we him been has when who will no more if out so up said "
         "what its about than into them can only other time new some could these two may first then do any like my now "
         "over token model layer weight 'll 're 's don't can't I'm we've STRASSE Straße über naïve café résumé ﬁne ½ ² "
         "привет мир слово язык данные こんにちは 世界 東京 漢字 안녕하세요 세계 مرحبا שלום नमस्ते ไทย").split()
CODE = ("for (int i = 0; i < n; ++i) {\n    x[i] += 2.5e-3 * y[i];  // sum\n\treturn x;\n}\r\n\r\n"
        "if a != b:\n        print('a', \"b\")\n")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def corpus():
    rng = random.Random(1)
    for _ in range(600):
        line = " ".join(rng.choice(WORDS) for _ in range(12))
        yield line + rng.choice([".", "!\n", ", ", " 1984 ", " 3.14159;", "\n\n"])
    for _ in range(20):
        yield CODE


KNOWN = [chr(c) for c in range(0x30000) if c != 0x180E and
         unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs", "Co")]
MARKS = [c for c in KNOWN if unicodedata.category(c).startswith("M")]
EMOJI = [chr(c) for c in (*range(0x1F300, 0x1F321), *range(0x1F600, 0x1F645), 0x2764, 0x1F468, 0x1F469, 0x1F467)]
SPACES = [" ", "  ", "   ", " " * 9, "\t", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", "\u00a0", "\u3000", "\u2003",
          "\u0085", "\x0b", " \n", "\n ", " \n  \n", "\u2028"]


def texts(count, added, seed):
    """Random texts: words, digits, blanks, code, marks, joiners, added tokens, any character."""
    rng = random.Random(seed)
    parts = [lambda: rng.choice(WORDS), lambda: " " + rng.choice(WORDS), lambda: rng.choice(WORDS).upper(),
             lambda: "".join(rng.choices("0123456789", k=rng.randint(1, 12))), lambda: rng.choice(SPACES),
             lambda: rng.choice("'.,;:!?-_/\\()[]{}<>|@#$%^&*+=~`\"") * rng.randint(1, 3),
             lambda: rng.choice(["'s", "'S", "'LL", "'re", "'D ", " 't", "’s", "n't", "'ſ"]),
             lambda: "".join(rng.choices(KNOWN, k=rng.randint(1, 6))),
             lambda: rng.choice("aeocnAEO") + "".join(rng.choices(MARKS, k=rng.randint(1, 3))),
             lambda: unicodedata.normalize("NFD", rng.choice(WORDS)),
             lambda: rng.choice(EMOJI) + rng.choice(["", "\u200d" + rng.choice(EMOJI), "\ufe0f", "\u200c"]),
             lambda: CODE[(k := rng.randrange(len(CODE))):k + rng.randint(1, 30)]]
    if added:
        parts.append(
            lambda: rng.choice(["", " ", "  ", "a"]) + rng.choice(added) + rng.choice(["", " ", "\n", "b", "."]))
    yield from ["", " ", "a", "Hello, world!", "\n", "  x", "x  "]
    for _ in range(count):
        yield "".join(rng.choice(parts)() for _ in range(rng.randint(1, 12)))


def byte_level(size, normalizer=None, splitter=None, special=(), **options):
    t = Tokenizer(models.BPE(**options))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = splitter or pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    suffix = {key: value for key, value in options.items() if key == "end_of_word_suffix"}
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **suffix))
    return t


def changed(t, change):
    """The tokenizer after a change of its file."""
    file = json.loads(t.to_str())
    change(file)
    return Tokenizer.from_str(json.dumps(file))


def gpt2():
    return byte_level(420, special=["<|endoftext|>"])


def llama3():
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = byte_level(460, splitter=split)
    t = changed(t, lambda file: file["model"].update(ignore_merges=True))
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                                      special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    return t


def llama3_whole():
    """A vocabulary with words that no merges make: they are tokens by ignore_merges."""
    t = llama3()

    def add(file):
        vocabulary = file["model"]["vocab"]
        (tokyo, _), = pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str("東京")
        for word in ("Ġzebra", tokyo, "zqx", "東"):
            vocabulary[word] = len(vocabulary)
        file.update(added_tokens=[], post_processor=None)
    return changed(t, add)


def qwen2():
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = byte_level(440, normalizers.NFC(), split)
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    return t


def smollm():
    split = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return byte_level(440, splitter=split, special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def prefix_space():
    """RoBERTa's: a space before each text, and its post-processor."""
    t = byte_level(420, splitter=pre_tokenizers.ByteLevel(add_prefix_space=True), special=["<s>", "</s>", "<mask>"])
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return t


def clip():
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CLIP), "removed", invert=True),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False)])
    norm = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t = byte_level(700, norm, split, ["<|endoftext|>"], end_of_word_suffix="</w>", unk_token="<|endoftext|>")
    t.decoder = decoders.BPEDecoder()
    return t


def added_tokens():
    """Added tokens of all kinds, with a normalizer."""
    t = byte_level(400, normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]))
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True), AddedToken("[R]", rstrip=True, special=True),
                          AddedToken("[LR]", lstrip=True, rstrip=True, special=True)])
    t.add_tokens([AddedToken("yes", single_word=True), AddedToken("Day", normalized=True), AddedToken("Sunday"),
                  AddedToken("No", normalized=False), AddedToken("[MA", normalized=False),
                  AddedToken("é", normalized=False), AddedToken("    ", normalized=False),
                  AddedToken("Straße", single_word=True, normalized=True)])
    return t


def llama2(splitter=None):
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=330, show_progress=False, limit_alphabet=90))
    model = json.loads(t.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokens += [k for k in model["vocab"] if k != "<unk>"]
    merges = [tuple(m) for m in model["merges"]]
    t = Tokenizer(models.BPE({k: i for i, k in enumerate(tokens)}, merges, unk_token="<unk>", fuse_unk=True,
                             byte_fallback=True))
    if splitter:
        t.pre_tokenizer = splitter
        t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    else:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([AddedToken("<unk>", normalized=False), AddedToken("<s>", normalized=False),
                          AddedToken("</s>", normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def mistral():
    return llama2(pre_tokenizers.Metaspace(prepend_scheme="first", split=False))


def unknowns():
    """No byte fallback: unknown characters, each one token, and pre-tokenizers that classes of characters define."""
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(False),
        pre_tokenizers.Split("a", "merged_with_previous"), pre_tokenizers.Split("o", "merged_with_next")])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=300, show_progress=False, limit_alphabet=60,
                                                        special_tokens=["<unk>"]))
    return t


def bert():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(
        corpus(), trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.enable_truncation(128)
    t.enable_padding(pad_id=0, pad_token="[PAD]")
    return t


def cased_bert():
    t = bert()
    t.normalizer = normalizers.Sequence([normalizers.BertNormalizer(lowercase=False), normalizers.StripAccents(),
                                         normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=330, special_tokens=["<pad>", "</s>", "<unk>"],
                                                            unk_token="<unk>", show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                     special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def unigram_bytes():
    """Unigram with byte fallback."""
    def add(file):
        lowest = min(score for _, score in file["model"]["vocab"])
        file["model"]["vocab"] += [[f"<0x{b:02X}>", lowest] for b in range(256)]
        file["model"]["byte_fallback"] = True
    t = changed(unigram(), add)
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return t


def word_level():
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.Lowercase()
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(corpus(), trainers.WordLevelTrainer(vocab_size=60, special_tokens=["[UNK]", "[PAD]"],
                                                              show_progress=False))
    return t


def scripts():
    """Pieces of one script, after the table of SentencePiece for NFKC with its own rules for blanks."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap()),
                                         normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=330, special_tokens=["<unk>"],
                                                            unk_token="<unk>", show_progress=False))
    return t


def charsmap(rule="nmt_nfkc"):
    """SentencePiece's table of a rule: its name, or the path of a file of rules."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    out = io.BytesIO()
    source = {"normalization_rule_tsv": str(rule)} if "/" in str(rule) else {"normalization_rule_name": rule}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=corpus(), model_writer=out, vocab_size=300,
                                             minloglevel=2, hard_vocab_limit=False, **source)
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    return model.normalizer_spec.precompiled_charsmap


def precompiled():
    """The table of a few rules: half-width forms, ligatures, accents, removed characters, blanks."""
    rules = {"ﬁ": "fi", "½": "1/2", "ｶ": "カ", "ｶﾞ": "ガ", "e\u0301": "é", "a\u0308": "ä", "\u0301": "´", "\u200b": "",
             "\t": " ", "\n": " ", "\u3000": " ", "漢": "汉字", "A": "a", "AB": "[ab]", "\r\n": "|", "😀": ":)"}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rules.tsv"
        path.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n"
                                for a, b in rules.items()))
        table = charsmap(path)
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Precompiled(table)
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=300, show_progress=False, special_tokens=["<unk>"]))
    return t


KINDS = [gpt2, llama3, llama3_whole, qwen2, smollm, prefix_space, clip, added_tokens, llama2, mistral, unknowns, bert,
         cased_bert, unigram, unigram_bytes, word_level, precompiled]
LARGE = [scripts]  # with a table of 300 kB, which is not stored


def record(t, name, count):
    file = t.to_str()
    t = Tokenizer.from_str(file)
    t.no_truncation()
    t.no_padding()
    added = [token.content for token in t.get_added_tokens_decoder().values()]
    rows = []
    for text in texts(count, added, len(name)):
        t.encode_special_tokens = False
        ids = t.encode(text, add_special_tokens=False).ids
        t.encode_special_tokens = True
        plain = t.encode(text, add_special_tokens=False).ids
        full, short = t.decode(ids, skip_special_tokens=False), t.decode(ids)
        rows.append([text, ids, plain if plain != ids else None, full, short if short != full else None])
    rng = random.Random(2)
    known = sorted(t.get_vocab().values())
    lists = [rng.choices(known, k=rng.randint(1, 9)) for _ in range(count)]
    t.encode_special_tokens = False
    around = t.encode("", add_special_tokens=True).ids
    return {"file": file, "around": around, "texts": rows,
            "ids": [[ids, t.decode(ids, skip_special_tokens=False)] for ids in lists]}


def lines(value):
    """JSON with one line for each member of an object, and each item of a list of lists."""
    if isinstance(value, dict):
        return "{" + ",\n".join(f"{json.dumps(k)}: {lines(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[" + ",\n".join(map(json.dumps, value)) + "]"
    return json.dumps(value)


def main():
    kinds = {kind.__name__: kind for kind in KINDS + LARGE}
    if len(sys.argv) > 2:
        count, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
        for given in sys.argv[3:] or kinds:
            name = pathlib.Path(given).stem
            t = kinds[name]() if name in kinds else Tokenizer.from_file(given)
            (folder / f"{name}.json").write_text(lines(record(t, name, count)) + "\n")
        return
    path = pathlib.Path(__file__).with_suffix(".json")
    made = json.loads(path.read_text()) if path.exists() else {}
    for kind in KINDS:
        if kind.__name__ not in made:
            made[kind.__name__] = record(kind(), kind.__name__, 20)
    path.write_text(lines(made) + "\n")


if __name__ == "__main__":
    main()
