"""Used by tests/examples/convert_test.cpp: what other programs make of a model that heed trained and wrote.

usage: python3 tests/reference/written_models.py transformers FOLDER TEXTS.json OUT.json     (PyPI: transformers, torch)
       python3 tests/reference/written_models.py llama.cpp FILE.gguf TEXTS.json OUT.json     (PyPI: xllamacpp)
TEXTS.json is a list of texts. OUT.json has for each text "ids", "text" (the ids as text) and "last", the log
probabilities of the token after the text, by id; null for an empty text.
"""
import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"


def of_transformers(path, texts):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    for text in texts:
        ids = tokenizer(text).input_ids
        last = None
        if ids:
            with torch.no_grad():
                last = model(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1).tolist()
        yield {"ids": ids, "text": tokenizer.decode(ids), "last": last}


def of_llama_cpp(path, texts):
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = path, 256, 1, False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)

    def parsed(answer):
        return answer if isinstance(answer, dict) else json.loads(answer)
    for text in texts:
        ids = parsed(server.handle_tokenize({"content": text, "add_special": True}))["tokens"]
        back = parsed(server.handle_detokenize({"tokens": ids}))["content"]
        last = None
        if ids:
            answer = parsed(server.handle_completions({"prompt": ids, "temperature": 0, "ignore_eos": True, "n_predict": 1,
                                                       "cache_prompt": False, "max_tokens": 1, "logprobs": 1000}))
            last = {t["id"]: t["logprob"] for t in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
            last = [last.get(i) for i in range(max(last) + 1)]
        yield {"ids": ids, "text": back, "last": last}


def main():
    program, path, given, out = sys.argv[1:]
    texts = json.loads(pathlib.Path(given).read_text())
    made = {"transformers": of_transformers, "llama.cpp": of_llama_cpp}[program](path, texts)
    pathlib.Path(out).write_text(json.dumps(list(made)))


main()
