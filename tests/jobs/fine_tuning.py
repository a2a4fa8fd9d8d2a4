"""The parts of tests/jobs/pretrained that train: a loss curve against peft, a style, a model of 4 billion weights."""
import json
import pathlib
import re
import subprocess
import tempfile

from published import (ROOT, Probe, answer, encoded, indented, llama_cpp, measured, smollm2_file,
                       transformers_model)

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


# ---- curve ----

STEPS, ROWS, LENGTH = 30, 2, 128  # ROWS and the options of AdamW are those of model_probe


def peft_losses(model, batches):
    import torch
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses = []
    for batch in batches:
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def curve(build):
    """30 steps of LoRA from peft's adapter: the loss of each step, and the adapter that heed trained, read by peft."""
    import numpy as np
    import torch
    from peft import LoraConfig, get_peft_model
    path = smollm2_file()
    pages = "\n".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))
    count = STEPS * ROWS * (LENGTH + 1)
    ids = encoded(build, path, [pages])[0][:count].reshape(-1, LENGTH + 1).astype(np.int64)
    assert ids.size == count
    torch.manual_seed(1)
    model = get_peft_model(transformers_model(path).train(), LoraConfig(
        r=16, lora_alpha=32, target_modules=LINEAR, task_type="CAUSAL_LM"))
    batches = torch.tensor(ids).reshape(STEPS, ROWS, LENGTH + 1)
    with tempfile.TemporaryDirectory() as folder:
        adapter = pathlib.Path(folder, "adapter")
        model.save_pretrained(adapter, save_embedding_layers=False)
        ours = Probe(build, path).run("losses", ids.tolist(), adapter)
        theirs = np.array(peft_losses(model, batches))
        difference = np.abs(ours - theirs)
        print(f"  losses of {STEPS} steps, {theirs[0]:.4f} to {theirs[-1]:.4f}: largest difference "
              f"{difference.max():.1e}, in step {difference.argmax() + 1}")
        model.load_adapter(f"{adapter}.trained", "trained")
        loss = {}
        for name in ("default", "trained"):
            model.set_adapter(name)
            with torch.no_grad():
                loss[name] = model.eval()(input_ids=batches[-1], labels=batches[-1]).loss.item()
        print(f"  loss after the steps in peft: {loss['default']:.4f} with its adapter, {loss['trained']:.4f} with "
              f"heed's")
    assert difference.max() < 1e-3
    assert abs(loss["default"] - loss["trained"]) < 1e-3


# ---- finetune ----

def finetune(build, folder, model, data, *flags):
    """Runs finetune in a folder. Returns what it printed, the lines of its log, its seconds and its peak memory."""
    log = pathlib.Path(folder, "log")
    log.unlink(missing_ok=True)
    printed, seconds, peak = measured([build / "examples/finetune", "--model", model, "--data", data, "--overwrite",
                                       "--log", log, *flags], folder)
    return printed, [json.loads(line) for line in log.read_text().splitlines()], seconds, peak


def steps_per_second(log, tokens):
    """The median of the steps after the first."""
    rates = sorted(line["tokens_per_second"] for line in log[1:] if "tokens_per_second" in line)
    return rates[len(rates) // 2] / tokens


# ---- style ----

def loss_on(build, folder, model, text):
    """The mean loss of a model on nine tenths of a text. The rate of the one step is 0."""
    printed, *_ = finetune(build, folder, model, text, "--steps", "1", "--lr", "0", "--held-out", "0.9", "--batch", "8",
                             "--out", pathlib.Path(folder, "unchanged"))
    return float(re.search(r"^validation loss ([0-9.]+)", printed, re.MULTILINE).group(1))


def continued(path, prompt):
    """How llama.cpp continues a prompt."""
    return prompt + answer(llama_cpp(path), prompt=prompt, max_tokens=160, temperature=0.8, seed=1)["text"]


def style(build, text, minutes, keep):
    """Learns the style of a text. The last tenth of the text is not trained on, and measures the models."""
    if text is None:
        print("  skipped: give a text with --text FILE, such as tinyshakespeare.txt")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(keep or temporary).resolve()
        folder.mkdir(exist_ok=True)
        lines = text.read_text().splitlines(keepends=True)
        cut = len(lines) * 9 // 10
        train, held_out = folder / "train.txt", folder / "held_out.txt"
        train.write_text("".join(lines[:cut]))
        held_out.write_text("".join(lines[cut:]))
        base, tuned = smollm2_file(), folder / "tuned.gguf"
        flags = ["--context", "256", "--batch", "2", "--held-out", "0.01", "--out", folder / "adapter", "--rank", "32",
                 "--alpha", "64", "--lr", "1e-3"]
        rates = {}
        for dtype in ("f32", "bf16"):
            _, log, *_ = finetune(build, folder, base, train, *flags, "--dtype", dtype, "--steps", "8")
            rates[dtype] = steps_per_second(log, 512)
        dtype = max(rates, key=rates.get)  # bf16 is the slower one without an instruction for it
        steps = int(rates[dtype] * minutes * 60)
        before = loss_on(build, folder, base, held_out)
        printed, _, seconds, peak = finetune(build, folder, base, train, *flags, "--dtype", dtype, "--steps", steps,
                                             "--eval-every", steps // 4, "--plot", folder / "loss.png")
        print(f"  {steps} steps in {seconds / 60:.1f} minutes, peak memory {peak:.1f} GiB:\n{indented(printed)}")
        subprocess.run([build / "examples/convert", "--model", base, "--adapter", folder / "adapter", "--merge",
                        "--out", tuned, "--dtype", "q8_0"], check=True, stdout=subprocess.DEVNULL)
        after = loss_on(build, folder, tuned, held_out)
        print(f"  loss on the last tenth of the text: {before:.3f} before, {after:.3f} after, by {tuned.name}")
        prompt = "".join(lines[cut:])[:20].splitlines()[0] + "\n"
        for path in (base, tuned):
            print(f"  llama.cpp with {path.name}:\n{indented(continued(path, prompt))}")
        assert after < before - 0.5


# ---- qwen4b ----

QWEN = {"width": 2560, "hidden": 9728, "heads": 32, "kv_heads": 8, "head": 128, "vocabulary": 151936}


def byte_tokens():
    """The characters by which byte-level BPE shows the bytes."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (chr(256 + i) for i in range(256))
    return [chr(i) if i in shown else next(others) for i in range(256)]


def write_qwen4b(path, layers):
    """A GGUF file of Qwen3-4B's sizes with random Q8_0 matrices. Tokens are bytes, pairs and some triples of bytes."""
    import gguf
    import numpy as np
    q = QWEN
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(40960)
    writer.add_embedding_length(q["width"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(q["hidden"])
    writer.add_head_count(q["heads"])
    writer.add_head_count_kv(q["kv_heads"])
    writer.add_key_length(q["head"])
    writer.add_value_length(q["head"])
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    one = byte_tokens()
    pairs = [(a, b) for a in one for b in one]
    merges = pairs + [(a + b, c) for a, b in pairs for c in one[:2]]
    merges = merges[: q["vocabulary"] - len(one)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(one + [a + b for a, b in merges])
    writer.add_token_types([1] * q["vocabulary"])
    writer.add_token_merges([f"{a} {b}" for a, b in merges])
    writer.add_eos_token_id(0)
    rng, width, keys = np.random.default_rng(1), q["width"], q["kv_heads"] * q["head"]
    maps = {"attn_q": (q["heads"] * q["head"], width), "attn_k": (keys, width), "attn_v": (keys, width),
            "attn_output": (width, q["heads"] * q["head"]), "ffn_gate": (q["hidden"], width),
            "ffn_up": (q["hidden"], width), "ffn_down": (width, q["hidden"])}
    norms = {"attn_norm": width, "ffn_norm": width, "attn_q_norm": q["head"], "attn_k_norm": q["head"]}
    matrices = {"token_embd.weight": (q["vocabulary"], width)}
    vectors = {"output_norm.weight": width}
    for i in range(layers):
        matrices |= {f"blk.{i}.{name}.weight": shape for name, shape in maps.items()}
        vectors |= {f"blk.{i}.{name}.weight": size for name, size in norms.items()}
    for name, size in vectors.items():
        writer.add_tensor_info(name, (size,), np.dtype(np.float32), 4 * size)
    for name, (rows, columns) in matrices.items():
        bytes_per_row = columns // 32 * 34
        writer.add_tensor_info(name, (rows, bytes_per_row), np.dtype(np.uint8), rows * bytes_per_row,
                               raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for size in vectors.values():
        writer.write_tensor_data(np.ones(size, np.float32))
    for rows, columns in matrices.values():
        # 997 rows of blocks, repeated: a scale of 0.02 / 73 and numbers with a standard deviation of 73.
        blocks = rng.integers(-127, 128, (997, columns // 32, 34), dtype=np.int8).view(np.uint8)
        blocks[:, :, :2] = np.array([0.02 / 73], np.float16).view(np.uint8)
        writer.write_tensor_data(np.resize(blocks.reshape(997, -1), (rows, columns // 32 * 34)))
    writer.close()


def qwen4b(build, layers, flags):
    """Memory and time of LoRA on a model of Qwen3-4B's sizes with one row of 512 tokens."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        model, data = folder / "qwen4b.gguf", folder / "data.txt"
        write_qwen4b(model, layers)
        data.write_text((ROOT / "docs/attention.md").read_text())
        printed, log, _, peak = finetune(build, folder, model, data, "--recompute", "--batch", "1", "--context", "512",
                                         "--held-out", "0", "--steps", "2", *flags)
        rate = steps_per_second(log, 512)
        print(indented(printed))
        print(f"  {layers} layers, a file of {model.stat().st_size / 2**30:.2f} GiB: {1 / rate:.1f} s per step, peak "
              f"memory {peak:.2f} GiB")
        assert peak < 8
