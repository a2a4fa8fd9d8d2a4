// Samples and their collation into a batch.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <heed/core/names.hpp>
#include <heed/core/random.hpp>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/samples.hpp>
#include <numeric>

namespace heed {
namespace {

constexpr std::uint64_t kSplitStream = std::uint64_t{0x5B117} << 44;  // of Rng, reserved for split()

std::string names_of(const Sample& sample) { return detail::joined(sample, &Sample::value_type::first); }

// Joins the tensors of one name: [B, T, ...] with T the longest if they are padded, else [B, ...]. Appends the length
// of each tensor's first axis to `lengths` (0 if they are not padded).
Tensor stacked(const std::string& name, const std::vector<Sample>& samples, const Padding* padding,
               std::vector<Index>& lengths) {
  const Tensor& first = samples[0].find(name)->second;
  require(first.defined() && (padding == nullptr || first.rank() > 0), "collate: ", name, " of sample 0 is ", first,
          "; it must be defined, and needs an axis for padding");
  const auto rest = [&](const Tensor& x) {  // the sizes that must agree between samples
    Shape shape = x.shape();
    if (padding != nullptr && x.rank() > 0) shape[0] = 0;
    return shape;
  };
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Tensor& x = samples[i].find(name)->second;
    require(x.defined() && x.dtype() == first.dtype() && rest(x) == rest(first), "collate: ", name, " of sample ", i,
            " is ", x, " and of sample 0 ", first, "; they must be equal",
            padding != nullptr ? " except for the first axis" : ", because no padding is given for it");
    lengths.push_back(padding != nullptr ? x.dim(0) : 0);
  }
  Shape shape = first.shape();
  if (padding != nullptr) shape[0] = *std::max_element(lengths.begin(), lengths.end());
  const Shape of_all = Shape{static_cast<Index>(samples.size())} + shape;
  const Tensor all = padding != nullptr ? Tensor::full(of_all, padding->value, first.dtype())
                                        : Tensor::empty(of_all, first.dtype());
  char* to = static_cast<char*>(all.raw());
  const auto item = size_of(first.dtype());
  for (const Sample& sample : samples) {
    const Tensor x = sample.find(name)->second.dense();
    if (x.numel() > 0) std::memcpy(to, x.raw(), static_cast<std::size_t>(x.numel()) * item);
    to += static_cast<std::size_t>(shape.numel()) * item;
  }
  return all;
}

Tensor mask_of(const std::vector<Index>& lengths, Index longest) {
  Tensor mask = Tensor::zeros({static_cast<Index>(lengths.size()), longest}, DType::bool8);
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    bool* row = mask.mutable_data<bool>() + static_cast<Index>(b) * longest;
    std::fill(row, row + lengths[b], true);
  }
  return mask;
}

// The counted targets of a batch of `samples` samples. `measured`: total length of the targets, if requested.
Index counted_of(const Batch& b, Index samples, std::optional<Index> measured) {
  const Tensor mask = b.get("targets_mask");
  const bool masked = mask.defined() && mask.dtype() == DType::bool8;
  if (!b.targets.defined() || b.targets.dtype() != DType::int32)
    return masked ? std::count(mask.data<bool>(), mask.data<bool>() + mask.numel(), true) : measured.value_or(samples);
  const bool of_targets = masked && mask.shape() == b.targets.shape();
  const auto* y = b.targets.data<std::int32_t>();
  Index counted = 0;
  for (Index i = 0; i < b.targets.numel(); ++i)
    counted += y[i] != kIgnoreIndex && (!of_targets || mask.data<bool>()[i]) ? 1 : 0;
  return counted;
}

}  // namespace

Batch collate(const std::vector<Sample>& samples, const PaddingByName& padding) {
  require(!samples.empty(), "collate: there are no samples; there must be one or more");
  for (const auto& [name, how] : padding)
    require(samples[0].count(name) == 1, "collate: padding is given for ", name, ", but sample 0 has no such tensor");
  const std::string names = names_of(samples[0]);
  for (std::size_t i = 1; i < samples.size(); ++i)
    require(names_of(samples[i]) == names, "collate: sample ", i, " has the tensors ", names_of(samples[i]),
            " and sample 0 ", names, "; they must be the same");
  Batch b;
  std::optional<Index> measured;
  for (const auto& [name, x] : samples[0]) {
    const auto found = padding.find(name);
    const Padding* how = found != padding.end() ? &found->second : nullptr;
    std::vector<Index> lengths;
    b[name] = stacked(name, samples, how, lengths);
    if (how == nullptr) continue;
    const Index length = std::accumulate(lengths.begin(), lengths.end(), Index{0});
    if (name != "targets")
      b.tokens += length;
    else if (how->lengths)
      measured = length;
    if (how->mask) b[name + "_mask"] = mask_of(lengths, b.at(name).dim(1));
    if (how->lengths) b[name + "_lengths"] = Tensor::from(lengths);
  }
  b.counted = counted_of(b, static_cast<Index>(samples.size()), measured);
  return b;
}

Sample Samples::sample(Index i) const {
  detail::check_index("samples: sample", i, size_);
  return sample_(i);
}

std::string Samples::where(Index i) const {
  return "sample " + std::to_string(i) + (where_ ? " (" + where_(i) + ")" : "");
}

Samples Samples::chosen(const std::vector<Index>& rows) const {
  for (const Index i : rows) detail::check_index("samples: sample", i, size_);
  Samples part = *this;
  part.size_ = static_cast<Index>(rows.size());
  part.sample_ = [all = sample_, rows](Index i) { return all(rows[static_cast<std::size_t>(i)]); };
  part.fingerprint_ = [whole = fingerprint_, rows]() -> std::optional<std::string> {
    const std::optional<std::string> of_all = whole();
    if (!of_all) return std::nullopt;
    detail::ContentHash hash;
    hash.add(*of_all);
    hash.add(rows.data(), rows.size() * sizeof(Index));
    return std::to_string(rows.size()) + " samples with the hash " + hash.hex();
  };
  if (where_) part.where_ = [all = where_, rows](Index i) { return all(rows[static_cast<std::size_t>(i)]); };
  return part;
}

std::pair<Samples, Samples> split(const Samples& samples, double share, std::uint64_t seed) {
  require(share >= 0 && share <= 1, "split: the share is ", share, "; it must be from 0 to 1");
  std::vector<Index> order = Rng(seed, kSplitStream).permutation(samples.size());
  const auto cut = order.begin() + std::lround(share * static_cast<double>(samples.size()));
  std::sort(order.begin(), cut);
  std::sort(cut, order.end());
  return {samples.chosen({cut, order.end()}), samples.chosen({order.begin(), cut})};
}

TensorDataset::TensorDataset(TensorsByName tensors) : tensors_(std::move(tensors)) {
  require(!tensors_.empty(), "TensorDataset: there are no tensors; there must be one or more");
  const auto& [first, x] = *tensors_.begin();
  for (const auto& [name, y] : tensors_)
    require(y.defined() && y.rank() > 0 && y.dim(0) == x.dim(0), "TensorDataset: ", name, " is ", y, " and ", first,
            " ", x, "; their first axes (samples) must have the same size");
}

std::string TensorDataset::fingerprint() const {
  detail::ContentHash hash;
  for (const auto& [name, x] : tensors_) hash.add(name), hash.add(x);
  return std::to_string(size()) + " samples with the hash " + hash.hex();
}

Sample TensorDataset::sample(Index i) const {
  Sample sample;
  for (const auto& [name, x] : tensors_) sample[name] = x[i];
  return sample;
}

}  // namespace heed
