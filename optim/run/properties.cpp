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

std::string hash_of_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  ContentHash hash;
  std::string block(std::size_t{1} << 20, '\0');
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0)
    hash.add(block.data(), static_cast<std::size_t>(file.gcount()));
  return hash.hex();
}

std::string text(const auto&... items) {
  detail::PlainText out;
  out.precision(9);
  ((out << items << ' '), ...);
  return out.str().substr(0, out.str().size() - 1);
}

RunProperties properties_of(const RunOptions& o) {
  const EvaluationOptions& e = o.evaluation;
  const CheckpointOptions& c = o.checkpoint;
  RunProperties all = {
      {"seed", text(o.seed)},
      {"steps", text(o.steps)},
      {"seconds", text(o.seconds)},
      {"accumulate", text(o.accumulate)},
      {"shards", text(o.shards)},
      {"ranks.dtype", text(name_of(o.ranks.dtype))},
      {"grad_clip", text(o.grad_clip)},
      {"precision", text(name_of(o.precision))},
      {"evaluation.every and evaluation.batches", text(e.every, e.batches)},
      {"evaluation.patience, monitor and maximize", text(e.patience, e.monitor, e.maximize)},
      {"checkpoint.every and keep_every", text(c.every, o.keep_every)},
      {"the use of average, last_weights, checkpoint.path, best, after_step, after_evaluation and handle_interrupt",
       text(o.average != nullptr, o.last_weights != nullptr, !c.path.empty(), !c.best.empty(), !!o.after_step,
            !!o.after_evaluation, o.handle_interrupt)}};
  for (const auto& [name, value] : c.texts) all.emplace_back("the text " + name, value);
  return all;
}

}  // namespace

RunProperties properties_of(const RunState& run) {
  const RunParts& parts = run.parts;
  RunProperties all = {
      {"the program", hash_of_program()},
      {"the instruction set (HEED_ARCH)", kernels::fuses(kernels::level()) ? "one with fused multiply-add" : arch()}};
  for (auto& property : properties_of(run.options)) all.push_back(std::move(property));
  all.emplace_back("the step to continue from", text(run.done));
  for (std::size_t i = 0; i < parts.updates.size(); ++i) {
    const Optimizer& optimizer = parts.updates[i].optimizer;
    all.emplace_back(i == 0 ? "optimizer" : "optimizer." + run.names[i],
                     text(optimizer.name(), optimizer.lr(), optimizer.step_count()));
    for (int g = 0; g < optimizer.groups(); ++g)
      all.back().second += text("", optimizer.lr(g), optimizer.weight_decay(g));
  }
  Checkpoint model;
  parts.store(model);
  ContentHash hash;
  for (const auto& [name, tensor] : model.tensors) hash.add(name), hash.add(tensor);
  all.emplace_back("the model's weights", hash.hex());
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
