"""The part of tests/jobs/pretrained that compares models of each class of transformers, with random weights."""
import json
import pathlib
import subprocess
import tempfile

from published import ROOT, Probe, in_llama_cpp, llama_cpp

VOCABULARY, WIDTH, CONTEXT = 440, 64, 128


def random_models():
    """Models of each class of transformers with random weights, by name."""
    import torch
    import transformers as t
    sizes = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=96, num_hidden_layers=7,
                 num_attention_heads=4, max_position_embeddings=CONTEXT, attn_implementation="eager",
                 bos_token_id=0, eos_token_id=0, pad_token_id=None)
    grouped = dict(sizes, num_key_value_heads=2)
    llama3 = dict(rope_type="llama3", rope_theta=5000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=64)
    local = dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                 sliding_attention=dict(rope_type="default", rope_theta=1e4))
    makers = {
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=3, n_head=4,
                                                       n_positions=CONTEXT, bos_token_id=0, eos_token_id=0)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**grouped, head_dim=24, rope_parameters=llama3)),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**grouped, sliding_window=20)),
        "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**grouped, tie_word_embeddings=True)),
        "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**grouped, head_dim=32)),
        "gemma3": lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(
            **grouped, head_dim=16, query_pre_attn_scalar=16, sliding_window=20, rope_parameters=local,
            layer_types=["sliding_attention"] * 5 + ["full_attention", "sliding_attention"])),
        "bert": lambda: t.BertForMaskedLM(t.BertConfig(**sizes)),
    }
    for name, make in makers.items():
        torch.manual_seed(len(name))
        model = make().eval()
        with torch.no_grad():
            for key, p in model.named_parameters():
                centre = 1.0 if p.dim() == 1 and p.mean() > 0.5 else 0.0
                p.copy_(torch.randn(p.shape) * (0.1 if p.dim() == 1 else WIDTH ** -0.5) + centre)
        yield name, model


def differ(ours, theirs):
    """The largest difference, relative to the largest number."""
    import numpy as np
    return np.abs(ours - theirs).max() / np.abs(theirs).max()


def use_gelu_table(model):
    """Lets a model compute GELU as llama.cpp does, by a table of float16. Returns whether it has GELU."""
    import torch

    class Table(torch.nn.Module):
        def forward(self, x):
            y = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
            return torch.where(x <= -10, torch.zeros(()), torch.where(x >= 10, x, y))

    found = False
    for module in list(model.modules()):
        for name in ("act", "act_fn"):
            if "GELU" in type(getattr(module, name, None)).__name__:
                setattr(module, name, Table())
                found = True
    return found


def classes(build):
    """Models that heed reads and writes, and its adapters, in the other programs."""
    import numpy as np
    import torch
    from peft import PeftModel
    stored = json.loads((ROOT / "tests/reference/tokenizers_files.json").read_text())
    rng = np.random.default_rng(1)
    failed = []
    for name, model in random_models():
        with tempfile.TemporaryDirectory() as parent:
            parent = pathlib.Path(parent)
            made, folder, file = parent / "made", parent / "written", parent / "written.gguf"
            model.save_pretrained(made)
            (made / "tokenizer.json").write_text(stored["smollm"]["file"])
            convert = [build / "examples/convert", "--model", made, "--out"]
            subprocess.run([*convert, folder], check=True, stdout=subprocess.DEVNULL)
            ids = [int(i) for i in rng.integers(0, VOCABULARY, 100)]
            ours = Probe(build, made).run("logits", [ids])
            with torch.no_grad():
                read = differ(ours, model(torch.tensor([ids])).logits[0].numpy())
                again = type(model).from_pretrained(folder, dtype=torch.float32).eval()
                wrote = differ(ours, again(torch.tensor([ids])).logits[0].numpy())
            line, good = f"read {read:.1e}, written {wrote:.1e}", max(read, wrote) < 1e-5
            if name != "bert":
                with_adapter = Probe(build, made).run("adapter", [ids], parent / "adapter")
                with torch.no_grad():
                    peft = PeftModel.from_pretrained(again, parent / "adapter").eval()
                    adapted = differ(with_adapter, peft(torch.tensor([ids])).logits[0].numpy())
                line, good = f"{line}, with an adapter in peft {adapted:.1e}", good and adapted < 1e-5
            if name not in ("bert", "mistral"):  # GGUF files hold neither the head of BERT nor Mistral's window
                subprocess.run([*convert, file], check=True, stdout=subprocess.DEVNULL)
                server, prompts = llama_cpp(file), [ids[:n] for n in (1, 2, 10, 40, 100)]
                in_engine = in_llama_cpp(server, prompts, Probe(build, file))
                line += f"; in llama.cpp {in_engine:.1e}"
                if use_gelu_table(model):
                    with torch.no_grad():
                        in_engine = in_llama_cpp(server, prompts, Probe(build, file),
                                                 lambda prompt: model(torch.tensor([prompt])).logits[0, -1].numpy())
                    line += f", {in_engine:.1e} from transformers with llama.cpp's table of GELU"
                good = good and in_engine < 1e-3
            print(f"  {name}: {line}", flush=True)
            failed += [] if good else [name]
    assert not failed, failed
