"""Writes tiny random models of the classes in Hugging Face's transformers, with their logits and gradients.

usage: python3 pretrained_models.py [NAME ...]
       (pip install torch transformers==5.23.0 safetensors tokenizers)

Each folder pretrained/NAME has config.json and model.safetensors as save_pretrained() writes them, tokenizer.json, and
reference.safetensors: the int32 tensors `x` and `y`, `logits` of x, `loss` (the mean cross-entropy of y), and the
gradient of the loss for each parameter, "grad/NAME". That of BERT's pre-training has two texts per row, some hidden
tokens and padding: also `types`, `lengths`, and the classes `other` with the logits `next_logits`.
"""
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from transformers import (BertConfig, BertForMaskedLM, BertForPreTraining, BertModel, Gemma3ForCausalLM, Gemma3TextConfig,
                          GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

FOLDER = Path(__file__).parent / "pretrained"
VOCABULARY, ROWS, LENGTH = 40, 2, 9
SIZES = dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=32, attn_implementation="eager")
LLAMA3 = dict(rope_type="llama3", rope_theta=5000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)

MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, n_positions=32, bos_token_id=0, eos_token_id=1,
                                               attn_implementation="eager")),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2, head_dim=12, rope_parameters=LLAMA3,
                                                  rms_norm_eps=1e-5, tie_word_embeddings=False)),
    "llama_tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=1, tie_word_embeddings=True,
                                                       rope_parameters=dict(rope_type="linear", factor=2.0,
                                                                            rope_theta=10000.0))),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=4)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=2, tie_word_embeddings=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=8)),
    "gemma3_text": lambda: Gemma3ForCausalLM(Gemma3TextConfig(
        **{**SIZES, "num_hidden_layers": 4}, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=5, sliding_window=4,
        layer_types=["sliding_attention", "full_attention"] * 2, pad_token_id=None,
        rope_parameters=dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=100000.0),
                             sliding_attention=dict(rope_type="default", rope_theta=1000.0)))),
    "bert": lambda: BertForMaskedLM(BertConfig(**SIZES)),
    "bert_encoder": lambda: BertModel(BertConfig(**{**SIZES, "num_hidden_layers": 1}), add_pooling_layer=True),
    "bert_pretraining": lambda: BertForPreTraining(BertConfig(**{**SIZES, "num_hidden_layers": 1})),
}


def pretraining(model, x, y, reference):
    """Adds the results of BERT's pre-training to the reference, and returns the loss."""
    types, lengths = torch.zeros_like(x), torch.tensor([LENGTH, LENGTH - 3])
    types[0, 4:] = types[1, 3:] = 1
    inside = torch.arange(LENGTH)[None] < lengths[:, None]
    labels = torch.where(inside & (torch.arange(LENGTH) % 2 == 1), y, -100)
    other = torch.tensor([1, 0])
    output = model(input_ids=x, token_type_ids=types, attention_mask=inside.long(), labels=labels,
                   next_sentence_label=other)
    reference.update(y=labels.int(), types=types.int(), lengths=lengths.int(), other=other.int(),
                     logits=output.prediction_logits.detach().contiguous(),
                     next_logits=output.seq_relationship_logits.detach().contiguous())
    return output.loss


def main():
    for name in sys.argv[1:] or MODELS:
        make = MODELS[name]
        torch.manual_seed(len(name))
        model = make().eval()
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape) * 0.3 + (1 if p.dim() == 1 and p.mean() > 0.5 else 0))
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        words = {f"w{i}": i for i in range(VOCABULARY)}
        Tokenizer(models.WordPiece(words, unk_token="w0")).save(str(folder / "tokenizer.json"))
        x = torch.randint(0, VOCABULARY, (ROWS, LENGTH))
        y = torch.randint(0, VOCABULARY, (ROWS, LENGTH))
        reference = {"x": x.int(), "y": y.int()}
        output = model(input_ids=x)
        if name == "bert_pretraining":
            loss = pretraining(model, x, y, reference)
        elif name == "bert_encoder":  # no logits: the hidden vectors, and the mean of their squares
            reference["hidden"] = output.last_hidden_state.detach().contiguous()
            loss = output.last_hidden_state.square().mean()
        else:
            reference["logits"] = output.logits.detach().contiguous()
            loss = torch.nn.functional.cross_entropy(output.logits.view(-1, VOCABULARY), y.view(-1))
        loss.backward()
        reference["loss"] = loss.detach()[None]
        for parameter, p in model.named_parameters():
            if p.grad is not None:
                reference["grad/" + parameter] = p.grad.contiguous()
        save_file(reference, folder / "reference.safetensors")


if __name__ == "__main__":
    main()
