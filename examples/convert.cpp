// Converts a model: published models and models that train_lm trained, between folders, GGUF files and checkpoints.
#include <heed/core/parallel.hpp>
#include <heed/io/pretrained.hpp>
#include <heed/layers/lora.hpp>
#include <iostream>

#include "examples/support/program.hpp"

int main(int argc, char** argv) {
  using namespace heed;
  using namespace heed::examples;
  CommandLine line("Converts a model from one format to another", "convert");
  std::string model, out, type = "f32", adapter;
  bool merge = false;
  double file_gb = 50;
  int thread_count = 0;
  line.add("--model", model, "Folder with config.json and safetensors, GGUF file, or checkpoint to read", model_name(),
           {.required = true});
  line.add("--out", out, "FILE.gguf, FILE.h5 (a checkpoint), FILE.onnx (an encoder), or else a folder to write",
           new_model_name(), {.required = true});
  line.add("--dtype", type, "Type of the weights: f32, f16, bf16, or in GGUF files q8_0 [f32]",
           one_of({"f32", "f16", "bf16", "q8_0"}));
  line.add("--max-file-size", file_gb, "GB per file of a folder's weights; more are divided, with an index [50]",
           positive_number());
  line.add("--adapter", adapter, "Folder of a LoRA adapter, as PEFT and finetune write it; requires --merge",
           file_name("FOLDER", FileRole::input));
  line.add_switch("--merge", merge, "Add the adapter to the weights");
  line.add_threads(thread_count);
  return run_program(line, argc, argv, [&] {
    set_threads(thread_count);
    if (merge != !adapter.empty())
      throw UsageError(merge ? "--merge requires --adapter"
                             : "--adapter requires --merge: all formats hold merged weights");
    Pretrained p = load_pretrained(model);
    if (merge) {
      load_peft(adapter, p.lm.model, peft_names(p));
      merge_lora(p.lm.model);
    }
    std::ranges::transform(type, type.begin(), [](char c) { return static_cast<char>(std::toupper(c)); });
    save_pretrained(out, p,
                    {.type = *stored_type_named(type), .max_file_bytes = static_cast<std::int64_t>(file_gb * 1e9)});
    std::cout << "Wrote " << out << (p.family.empty() ? "" : ", a model of the family " + p.family) << ".\n";
    return 0;
  });
}
