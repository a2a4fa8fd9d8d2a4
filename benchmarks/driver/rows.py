"""The rows of the table: the commands of heed and of its peers, and patterns for their output."""
from dataclasses import dataclass, field

from driver.samples import Command

# PyTorch held to AVX2: ATen's kernels, oneDNN and MKL (peers/fair.py).
TORCH_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}

HEED_STEP = r"^heed .*?: (?P<value>[\d.]+) ms/step, .*?(?P<rate>\d+) GFLOP/s.* memory grew by (?P<mib>\d+) MiB"
TORCH_STEP = r"^torch .*?: (?P<value>[\d.]+) ms/step, .* memory grew by (?P<mib>\d+) MiB"
HEED_ATTENTION = (r"^ *(?P<label>T = \d+) +forward .*both +(?P<value>[\d.]+); .*and +(?P<rate>\d+) GFLOP/s, .*"
                  r"and +(?P<share>\d+)% of peak")
TORCH_ATTENTION = r"^torch .*(?P<label>T = \d+), (?P<form>[a-z ]+): forward +[\d.]+ us per token, both +(?P<value>[\d.]+)"
HEED_LINEAR = r"^ *B=1 +H=8 .*(?P<label>T=(?:1024|4096)) .*both +(?P<value>[\d.]+) \( *(?P<share>\d+)% of peak\)"
LLAMA_GENERATION = r"^llama.cpp .*, (?P<label>\d+ rows): (?P<value>[\d.]+) ms per step"
HEED_GENERATION = r"^heed .*, (?P<label>\d+ rows): (?P<value>[\d.]+) ms per step, .*?(?P<share>\d+)% of a step"


@dataclass
class Row:
    name: str  # matched with the regular expression that selects rows
    title: str  # in the table, followed by the label of a line
    unit: str  # of the value: ms, us, s
    heed: Command
    forms: dict = field(default_factory=dict)  # of the peer: name -> Command
    peer: str = "PyTorch"
    limit: str = ""  # name of the machine's limit for the rate
    rounds: int = 3
    modules: tuple = ("torch",)  # Python modules that the peer needs
    threaded: bool = True  # whether several threads share the work, so that the core-to-core time matters


def rows(bench, python, peers, threads, work, text=None, quick=False):
    """Returns all rows.

    bench: folder of heed's benchmarks; python: interpreter of the peers; peers: folder of their programs; work: folder
    for files that programs write; text: training text of the recipes, or None.
    """
    fair = {"OMP_NUM_THREADS": str(threads)}

    def heed(program, *arguments, env=None, pattern):
        return Command([f"{bench}/bench_{program}", *arguments], pattern, env or {})

    def peer(program, *arguments, env=None, pattern):
        return Command([python, f"{peers}/{program}.py", *arguments], pattern, {**fair, **(env or {})})

    def torch_forms(program, *arguments, env=None, pattern):
        return {"eager": peer(program, *arguments, env=env, pattern=pattern),
                "compiled": peer(program, *arguments, "--compile", env=env, pattern=pattern)}

    table = []
    words = {"f32": "float32", "bf16": "bf16 products"}
    dtype_words = {"f32": "float32", "bf16": "bf16"}
    steps = {"nano": "20", "baby": "3", "gpt2": "4"}
    for config, n in steps.items():
        for dtype in ("f32", "bf16"):
            flags = (config, "--dtype", dtype, "--steps", n)
            table.append(Row(f"step/{config}/{dtype}", f"a step of `{config}`, {words[dtype]}", "ms",
                             heed("train_step", *flags, pattern=HEED_STEP),
                             torch_forms("gpt_step_torch", *flags, pattern=TORCH_STEP),
                             limit="float32" if dtype == "f32" else "bf16"))
    for dtype in ("f32", "bf16"):
        table.append(Row(f"attention/{dtype}",
                         f"causal softmax attention, both passes, 8 heads of 64, {dtype_words[dtype]}, per token at", "us",
                         heed("attention", "--dtype", dtype, str(threads), "lengths", pattern=HEED_ATTENTION),
                         {"": peer("attention_torch", "--dtype", dtype, pattern=TORCH_ATTENTION)},
                         limit="float32" if dtype == "f32" else "bf16"))
    table.append(Row("linear_attention", "causal linear attention, both passes, 8 heads of 64, float32, per token at", "us",
                     heed("linear_attention", str(threads), pattern=HEED_LINEAR), limit="float32"))
    for config, n in steps.items():
        flags = (config, "--steps", n)
        table.append(Row(f"avx2/step/{config}", f"a step of `{config}`, float32, both limited to AVX2", "ms",
                         heed("train_step", *flags, env={"HEED_ARCH": "avx2"}, pattern=HEED_STEP),
                         torch_forms("gpt_step_torch", *flags, env=TORCH_AVX2, pattern=TORCH_STEP), limit="float32 avx2"))
    table.append(Row("avx2/attention", "causal softmax attention, as above, both limited to AVX2, per token at", "us",
                     heed("attention", "--dtype", "f32", str(threads), "lengths", env={"HEED_ARCH": "avx2"}, pattern=HEED_ATTENTION),
                     {"": peer("attention_torch", env=TORCH_AVX2, pattern=TORCH_ATTENTION)}, limit="float32 avx2"))
    for dtype in ("f32", "bf16"):
        table.append(Row(f"seq2seq/{dtype}", f"a step of a GRU translator with Bahdanau's attention, {words[dtype]}", "ms",
                         heed("seq2seq", str(threads), dtype, "step",
                              pattern=r"^GRU .*: (?P<value>[\d.]+) ms per step, .*?(?P<rate>\d+) GFLOP/s"),
                         torch_forms("seq2seq_torch", "--dtype", dtype,
                                     pattern=r"^torch .*: (?P<value>[\d.]+) ms/step"),
                         limit="float32" if dtype == "f32" else "bf16", rounds=2))
    for mode, title in (("lora", "a LoRA step"), ("full", "a step of full fine-tuning")):
        for dtype in ("f32", "bf16"):
            flags = (mode, "--dtype", dtype, "--steps", "3")
            table.append(Row(f"finetune/{mode}/{dtype}", f"{title} of a Llama of 135M, 4 x 512 tokens, {words[dtype]}", "ms",
                             heed("finetune", *flags, pattern=HEED_STEP),
                             torch_forms("finetune_peft", *flags, pattern=TORCH_STEP.replace("step, ", "step; ")),
                             peer="peft" if mode == "lora" else "transformers",
                             limit="float32" if dtype == "f32" else "bf16", rounds=1,
                             modules=("torch", "transformers", "peft")))
    for dtype in ("f32", "bf16"):
        table.append(Row(f"generation/{dtype}",
                         f"a step of generation, 12 layers of width 768, 85M parameters, {dtype_words[dtype]}, batch of", "ms",
                         heed("generation", "85m", "--dtype", dtype, pattern=HEED_GENERATION),
                         {"": peer("generation_llama_cpp", dtype, str(threads), pattern=LLAMA_GENERATION)},
                         peer="llama.cpp", limit="read", modules=("xllamacpp", "gguf")))
    table.append(Row("start", "initialization:", "s",
                     heed("start", str(threads), str(work),
                          pattern=r"^ *(?P<label>10\^8 normal numbers|GPT-2: initial weights) +(?P<value>[\d.]+) s"),
                     {"": peer("start_torch", pattern=r"^torch (?P<label>[^,]+), \d+ threads: (?P<value>[\d.]+) s")},
                     rounds=2, modules=("torch", "transformers")))
    if threads > 1:
        table.append(Row("threads", f"a step of `baby`, float32: {threads} threads against 1", "ms",
                         heed("train_step", "baby", "--steps", "2", pattern=HEED_STEP),
                         {"1 thread": heed("train_step", "baby", "--steps", "2", "--threads", "1", pattern=HEED_STEP)},
                         peer="heed", limit="float32", rounds=2, modules=()))
    if text is not None:  # minutes, and a text that the tree has not
        for name, flags, title in (("nano", ("--lr", "1e-3"), "the recipe of `nano`, 2000 steps, rate 1e-3"),
                                   ("nano-3e-3", ("--lr", "3e-3"), "the same, rate 3e-3"),
                                   ("fast", ("--recipe", "fast"), "`--recipe fast`, PyTorch's recipe at 3e-3")):
            train = [f"{bench.parent}/examples/train_lm", "--data", str(text), "--preset", "nano", "--eval-batches", "0",
                     "--checkpoint", f"{work}/recipe.h5", *flags]
            rate = flags[1] if flags[0] == "--lr" else "3e-3"
            table.append(Row(f"recipe/{name}", title, "s", Command(train, r"^validation loss (?P<loss>[\d.]+)"),
                             {"": peer("recipe_torch", str(text), "--lr", rate,
                                       pattern=r"^torch .*validation loss (?P<loss>[\d.]+)")}, rounds=1))
    table.append(Row("compile_time", "a minimal program that includes `<heed/heed.hpp>` compiles in", "s",
                     Command([f"{peers.parent}/compile_time", str(bench.parent)], r"compiles in (?P<value>[\d.]+) s"),
                     rounds=1, threaded=False))
    if quick:
        for row in table:
            row.rounds = 1
    return table
