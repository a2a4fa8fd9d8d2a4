"""Writes bleu_sacrebleu.json and chrf_sacrebleu.json: texts, references and their scores by sacreBLEU.

    python3 tests/reference/bleu_sacrebleu.py        (sacrebleu 2.5)
"""
import json
import pathlib

from sacrebleu.metrics import BLEU, CHRF

MADE = [
    "The cat sat on the mat.",
    "He bought 3,000 apples, didn't he?",
    "&quot;Yes&quot;, she said - and left at 7:30.",
    "Der Zug nach München fährt um 9.15 Uhr ab.",
    "",
    "a man in an orange hat staring at something .",
    "two young , white males are outside near many bushes .",
    "It costs $5.99 (or 10% less) [today only]!",
    "well-known 2-3 state-of-the-art e.g. i.e. U.S.A.",
    "some girl is climbing",
]
REFERENCES = [[
    "The cat is sitting on the mat.",
    "He bought 3,000 apples, did he not?",
    "\"Yes\", she said, and left at 7:30.",
    "Der Zug nach München fährt um 9:15 Uhr.",
    "Something should be here.",
    "a man in an orange hat starring at something .",
    "two young , white males are outside near many bushes .",
    "It costs $5.99 (10% less) [only today]!",
    "well-known 2-3 state of the art, e.g., i.e., U.S.A.",
    "a little girl climbing into a wooden playhouse .",
], [
    "A cat sat on a mat.",
    "He bought 3000 apples, didn't he?",
    "\"Yes\", she said and left at half past 7.",
    "Um 9.15 Uhr fährt der Zug nach München ab.",
    "",
    "a man wearing an orange hat stares at something .",
    "two young white men are outside near bushes .",
    "The price is $5.99 (or 10% less) [today only]!",
    "well known 2-3 state-of-the-art",
    "some girl climbs",
]]

cases = []


def case(made, references, tokenize, lowercase):
    metric = BLEU(tokenize=tokenize, lowercase=lowercase)
    score = metric.corpus_score(made, references)
    cases.append({"made": made, "references": references, "tokens": tokenize, "lowercase": lowercase, "score": score.score,
                  "precisions": score.precisions, "bp": score.bp, "length": score.sys_len, "reference_length": score.ref_len,
                  "matches": score.counts, "counts": score.totals, "text": str(score)})


for tokenize in ("13a", "none"):
    for lowercase in (False, True):
        case(MADE, REFERENCES, tokenize, lowercase)
        case(MADE, REFERENCES[:1], tokenize, lowercase)
    for i in range(len(MADE)):
        case(MADE[i:i + 1], [REFERENCES[0][i:i + 1]], tokenize, False)
case(["nothing in common"], [["quite another text , really"]], "13a", False)
case(["a b"], [["a b"]], "none", False)
case(["a b c d e"], [["a b x d e"]], "none", False)
case([""], [["something"]], "13a", False)
case(REFERENCES[0], REFERENCES[:1], "13a", False)
for tokenize in ("13a", "none"):
    case(["il a dit\u00a0: «\u00a0oui\u00a0»\u202f!\u3000et non"], [["il a dit : « oui » ! et non"]], tokenize, False)
    case(["Der ÄRGER über ПРИВЕТ , ΑΒΓ sagt er"], [["der ärger ÜBER привет , αβγ Sagt er"]], tokenize, True)
# Letters whose lower case has several letters, or depends on their neighbours.
CASED = ["İSTANBUL'DA DİYARBAKIR İİ", "ΟΔΟΣ ΣΑΣ Σ ΑΣ. ΑΣ' ΑΣ'Α Σ.Α ΣΣ", "ǅ ẞ Ω K Å DŽ ΐ Ά", "ΑΣ\u0301 ΑΣ\u00ad ΑΣ\u0301Β"]
LOWER = [["i̇stanbul'da diyarbakir i̇i̇", "οδος σας σ ας. ας' ας'α σ.α σς", "ǆ ß ω k å dž ΐ ά", "ας\u0301 ας ασ\u0301β"]]
for tokenize in ("13a", "none"):
    case(CASED, LOWER, tokenize, True)
    for i in range(len(CASED)):
        case(CASED[i:i + 1], [LOWER[0][i:i + 1]], tokenize, True)
chrf_cases = []


def chrf_case(made, references, lowercase, words, beta):
    metric = CHRF(lowercase=lowercase, word_order=words, beta=beta)
    score = metric.corpus_score(made, references)
    signature = str(metric.get_signature()).rsplit("|version", 1)[0]
    chrf_cases.append({"made": made, "references": references, "lowercase": lowercase, "words": words, "beta": beta,
                       "score": score.score, "text": str(score), "signature": signature})


for words in (0, 2):
    for lowercase in (False, True):
        chrf_case(MADE, REFERENCES, lowercase, words, 2)
        chrf_case(MADE, REFERENCES[:1], lowercase, words, 2)
    for i in range(len(MADE)):
        chrf_case(MADE[i:i + 1], [REFERENCES[0][i:i + 1]], False, words, 3)
chrf_case(["ein\u00a0Wort \u3000 mehr"], [["ein Wort mehr"]], False, 2, 2)
chrf_case(["(ab)."], [["( ab ) ."]], False, 2, 2)
chrf_case(["Der ÄRGER über ПРИВЕТ"], [["der ärger ÜBER привет"]], True, 2, 2)
chrf_case(["x"], [["yz"]], False, 0, 2)
for words in (0, 2):
    chrf_case(CASED, LOWER, True, words, 2)
    for i in range(len(CASED)):
        chrf_case(CASED[i:i + 1], [LOWER[0][i:i + 1]], True, words, 2)


def write(name, rows):
    text = json.dumps(rows, ensure_ascii=False, indent=None, separators=(",", ":")).replace("},{", "},\n{")
    (pathlib.Path(__file__).parent / name).write_text(text + "\n")


write("bleu_sacrebleu.json", cases)
write("chrf_sacrebleu.json", chrf_cases)
