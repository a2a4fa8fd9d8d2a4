// Properties of a run that must be the same on all ranks.
#include <fstream>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/parallel.hpp>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/text.hpp>
#include <heed/optim/run/properties.hpp>
#include <map>

namespace heed::detail {
namespace {

std::string hash_of(const TensorsByName& tensors) {
  ContentHash hash;
  for (const auto& [name, tensor] : tensors) hash.add(name), hash.add(tensor);
  return hash.hex();
}

std::string hash_of_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  ContentHash hash;
  std::string block(std::size_t{1} << 20, '\0');
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0)
    hash.add(block.data(), static_cast<std::size_t>(file.gcount()));
  return hash.hex();
}

}  // namespace

RunProperties properties_of(const RunState& run) {
  const RunParts& parts = run.parts;
  const RunOptions& o = run.options;
  const auto text = [](const auto&... items) {
    detail::PlainText out;
    out.precision(9);
    ((out << items << ' '), ...);
    return out.str().substr(0, out.str().size() - 1);
  };
  RunProperties all = {
      {"the program", hash_of_program()},
      {"the instruction set (HEED_ARCH)", kernels::fuses(kernels::level()) ? "one with fused multiply-add" : arch()},
      {"seed", text(o.seed)},
      {"steps", text(o.steps)},
      {"seconds", text(o.seconds)},
      {"accumulate", text(o.accumulate)},
      {"shards", text(o.shards)},
      {"communication_dtype", text(name_of(o.communication_dtype))},
      {"grad_clip", text(o.grad_clip)},
      {"precision", text(name_of(o.precision))},
      {"eval_every and eval_batches", text(o.eval_every, o.eval_batches)},
      {"patience and monitor", text(o.patience, o.monitor, o.monitor_highest)},
      {"checkpoint_every and keep_every", text(o.checkpoint_every, o.keep_every)},
      {"the use of average, last_weights, checkpoint, best, after_step, after_evaluation and handle_interrupt",
       text(o.average != nullptr, o.last_weights != nullptr, !o.checkpoint.empty(), !o.best.empty(), !!o.after_step,
            !!o.after_evaluation, o.handle_interrupt)},
      {"the step to continue from", text(run.done)}};
  for (const auto& [name, value] : o.texts) all.emplace_back("the text " + name, value);
  for (std::size_t i = 0; i < parts.updates.size(); ++i) {
    const Optimizer& optimizer = parts.updates[i].optimizer;
    all.emplace_back(i == 0 ? "optimizer" : "optimizer." + run.names[i],
                     text(optimizer.name(), optimizer.lr(), optimizer.step_count()));
    for (int g = 0; g < optimizer.groups(); ++g)
      all.back().second += text("", optimizer.lr(g), optimizer.weight_decay(g));
  }
  Checkpoint model;
  parts.store(model);
  all.emplace_back("the model's weights", hash_of(model.tensors));
  all.emplace_back("the training data", run.data.training());
  all.emplace_back("the validation data", run.data.validation());
  return all;
}

void require_same(const RunRanks& ranks, const RunProperties& here) {
  Packed mine;
  mine.add(ranks.host());
  for (const auto& [name, value] : here) mine.add(name), mine.add(value);
  std::vector<Packed> all;
  for (std::string& bytes : ranks.gather(mine.bytes())) all.emplace_back(std::move(bytes));
  const auto properties_of = [](Packed& p) {
    std::map<std::string, std::string> list;
    while (!p.at_end()) {
      const std::string name = p.text();
      list[name] = p.text();
    }
    return list;
  };
  const std::string first_host = all[0].text();
  const auto first = properties_of(all[0]);
  for (std::size_t r = 1; r < all.size(); ++r) {
    const std::string host = all[r].text();
    const auto other = properties_of(all[r]);
    for (const auto& [name, value] : here) {
      const auto a = first.find(name), b = other.find(name);
      const bool there = a != first.end() && b != other.end();
      require(there && a->second == b->second, "run: ranks differ in ", name, ": it is ",
              there ? printable(a->second) : "?", " on rank 0 (", first_host, ") and ",
              there ? printable(b->second) : "?", " on rank ", r, " (", host, "); it must be the same on all ranks");
    }
  }
}

}  // namespace heed::detail
