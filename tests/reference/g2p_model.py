"""Writes small models with the arrays of g2p-en's checkpoint20.npz, and the phonemes of words by one of them.

    python3 tests/reference/g2p_model.py        (Python 3.11, NumPy 2.4)

g2p_tiny.npz: random values; a width of 5 and 6 hidden units. g2p_tiny.json: words and their phonemes, computed in
float64 from PyTorch's formulas of a GRU. g2p_rows.npz: the same with a letter more. g2p_shapes.npz: arrays of shapes
from which no sizes follow.

The tests compare phonemes, not numbers. So in each step of each word, the best logit must exceed the next by 1e-3.
"""
import json
import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).parent
WIDTH, HIDDEN, LETTERS, PHONEMES, LONGEST = 5, 6, 29, 74, 20
UNKNOWN, WORD_END, FIRST = 1, 2, 3  # letters
BEGIN, END = 2, 3  # phonemes
VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split()
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split()
# The alphabet: vowels with each stress, UW also without one.
NAMES = ["<pad>", "<unk>", "<s>", "</s>"] + sorted([v + s for v in VOWELS for s in "012"] + ["UW"] + CONSONANTS)
WORDS = ["heed", "attention", "Transformer", "GRU", "a", "Z", "don't", "x-ray", "mother-in-law", "o'clock", "rhythm",
         "queue", "strengths", "antidisestablishmentarianism", "zzzzz", "a" * 100, "abcdefghijklmnopqrstuvwxyz"]


def arrays(letters=LETTERS):
    random = np.random.default_rng(0)
    shapes = {"enc_emb": (letters, WIDTH), "dec_emb": (PHONEMES, WIDTH)}
    for part in ("enc", "dec"):
        shapes |= {f"{part}_w_ih": (3 * HIDDEN, WIDTH), f"{part}_w_hh": (3 * HIDDEN, HIDDEN),
                   f"{part}_b_ih": (3 * HIDDEN,), f"{part}_b_hh": (3 * HIDDEN,)}
    shapes |= {"fc_w": (PHONEMES, HIDDEN), "fc_b": (PHONEMES,)}
    all = {name: random.normal(0, 1.2, shape).astype("f4") for name, shape in shapes.items()}
    all["enc_b_ih"][HIDDEN:2 * HIDDEN] += 2  # z is large: the state keeps what it has read
    all["fc_b"][END] += 7  # words have several lengths
    return all


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(model, part, x, h):
    """One step: r, z and n are rows 0, 1 and 2 of the gates."""
    inputs = (model[part + "_w_ih"] @ x + model[part + "_b_ih"]).reshape(3, HIDDEN)
    states = (model[part + "_w_hh"] @ h + model[part + "_b_hh"]).reshape(3, HIDDEN)
    r, z = sigmoid(inputs[0] + states[0]), sigmoid(inputs[1] + states[1])
    n = np.tanh(inputs[2] + r * states[2])
    return (1 - z) * n + z * h


def phonemes(model, word):
    h = np.zeros(HIDDEN)
    for letter in word.lower():
        h = gru(model, "enc", model["enc_emb"][FIRST + ord(letter) - ord("a") if letter.isalpha() else UNKNOWN], h)
    h = gru(model, "enc", model["enc_emb"][WORD_END], h)
    found = [BEGIN]
    while len(found) <= LONGEST:
        h = gru(model, "dec", model["dec_emb"][found[-1]], h)
        logits = model["fc_w"] @ h + model["fc_b"]
        best, second = np.argsort(-logits)[:2]
        assert logits[best] > logits[second] + 1e-3, word
        if best == END:
            break
        found.append(best)
    return " ".join(NAMES[p] for p in found[1:])


assert len(NAMES) == PHONEMES
tiny = arrays()
np.savez_compressed(FOLDER / "g2p_tiny.npz", **tiny)
np.savez_compressed(FOLDER / "g2p_rows.npz", **arrays(LETTERS + 1))
np.savez_compressed(FOLDER / "g2p_shapes.npz", enc_emb=tiny["enc_emb"], enc_w_hh=tiny["enc_w_hh"][1:])
model = {name: x.astype("f8") for name, x in tiny.items()}
words = {word: phonemes(model, word) for word in WORDS}
(FOLDER / "g2p_tiny.json").write_text(json.dumps(words, indent=1) + "\n")
