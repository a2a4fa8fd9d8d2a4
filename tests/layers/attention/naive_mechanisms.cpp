// The mechanisms of layers/model_config.hpp term by term: the weight of every key for every query, in float64, by their
// definitions. Above 400 lines, because every named mechanism is here.
#include "tests/layers/attention/naive_mechanisms.hpp"

#include <algorithm>
#include <cmath>
#include <heed/layers/attention/linear.hpp>
#include <map>

#include "tests/autograd/linear_reference.hpp"
#include "tests/layers/attention/mechanism_inputs.hpp"

namespace heed::test {

std::string name_of(FeatureMap map) {
  for (const char* name : {"elu", "relu", "softplus", "exp", "poly2"})
    if (feature_map(name) == map) return name;
  return "identity";
}

// Softmax of score + bias over the chosen keys.
NaiveWeights naive_softmax(const NaiveRow& row, const std::vector<Index>& chosen,
                           const std::function<double(Index)>& unbiased) {
  const auto score = [&](Index j) { return unbiased(j) + row.added(j); };
  NaiveWeights w(row.seen.size(), 0.0);
  std::vector<char> is_chosen(static_cast<std::size_t>(row.keys), 0);
  double max_score = -1e300, sum = 0;
  for (const Index j : chosen) max_score = std::max(max_score, score(j)), is_chosen[static_cast<std::size_t>(j)] = 1;
  for (std::size_t n = 0; n < w.size(); ++n)
    if (is_chosen[static_cast<std::size_t>(row.seen[n])]) sum += w[n] = std::exp(score(row.seen[n]) - max_score);
  for (double& x : w) x = sum == 0 ? 0 : x / sum;
  return w;
}

NaiveWeights pattern_of(const NaiveRow& row, const std::function<bool(Index)>& sees) {
  std::vector<Index> chosen;
  for (const Index j : row.seen)
    if (sees(j)) chosen.push_back(j);
  return naive_softmax(row, chosen, [&](Index j) { return row.scaled(j); });
}

// Weights by a kernel of features, which a bias multiplies by e^bias, divided by their sum + eps.
NaiveWeights naive_normalised(const NaiveRow& row, double eps, const std::function<double(Index)>& kernel) {
  NaiveWeights w;
  double sum = eps;
  for (const Index j : row.seen) w.push_back(kernel(j) * row.factor(j)), sum += w.back();
  for (double& x : w) x /= sum;
  return w;
}

NaiveWeights naive_linear_weights(const NaiveRow& row) {
  if (row.own.feature_map == "poly2")
    return naive_normalised(row, 1e-6, [&](Index j) { return row.dot(j) * row.dot(j); });
  const FeatureMap map = feature_map(row.own.feature_map);
  const double alpha = row.own.elu_alpha == 0 ? 1 : row.own.elu_alpha;
  std::vector<double> of_query;
  for (Index c = 0; c < row.size; ++c) of_query.push_back(feature(map, row.q[c], alpha));
  return naive_normalised(row, map == FeatureMap::exp ? 0 : 1e-6, [&](Index j) {
    double s = 0;
    for (Index c = 0; c < row.size; ++c)
      s += of_query[static_cast<std::size_t>(c)] * feature(map, row.k[j * row.size + c], alpha);
    return s;
  });
}

NaiveWeights naive_efficient_weights(const NaiveRow& row) {
  NaiveWeights w(row.seen.size(), 0.0);
  double all = 0;
  for (Index c = 0; c < row.size; ++c) all += std::exp(row.q[c]);
  for (Index c = 0; c < row.size; ++c) {
    double sum = 0;
    std::vector<double> features;
    for (const Index j : row.seen) {
      features.push_back(std::exp(row.k[j * row.size + c]) * row.factor(j));
      sum += features.back();
    }
    const double of_query = std::exp(row.q[c]) / all;
    for (std::size_t n = 0; n < w.size(); ++n) w[n] += of_query * features[n] / sum;
  }
  return w;
}

NaiveWeights naive_taylor_weights(const NaiveRow& row) {
  const auto length = [&](const double* x) {
    double s = 0;
    for (Index c = 0; c < row.size; ++c) s += x[c] * x[c];
    return std::sqrt(s);
  };
  return naive_normalised(row, 1e-6,
                          [&](Index j) { return 1 + row.dot(j) / length(row.q) / length(row.k + j * row.size); });
}

NaiveWeights naive_cosine_weights(const NaiveRow& row) {
  double q = 0;
  for (Index c = 0; c < row.size; ++c) q += row.q[c] * row.q[c];
  const double beta = std::exp(row.array("log_beta")[row.head]);
  return naive_softmax(row, row.seen, [&](Index j) {
    double k = 0;
    for (Index c = 0; c < row.size; ++c) k += row.k[j * row.size + c] * row.k[j * row.size + c];
    return beta * row.dot(j) / std::sqrt(q * k);
  });
}

NaiveWeights naive_rbf_weights(const NaiveRow& row) {
  const double width = row.own.rbf_width,
               squared = width == 0 ? std::sqrt(static_cast<double>(row.size)) / 2 : width * width;
  return naive_softmax(row, row.seen, [&](Index j) {
    double distance = 0;
    for (Index c = 0; c < row.size; ++c) distance += std::pow(row.q[c] - row.k[j * row.size + c], 2);
    return -distance / (2 * squared);
  });
}

// A bias is added to the scores before they are raised to the power.
NaiveWeights naive_polynomial_weights(const NaiveRow& row) {
  const double degree = row.own.degree == 0 ? 2 : static_cast<double>(row.own.degree);
  NaiveWeights w;
  double sum = 1e-6;
  for (const Index j : row.seen)
    w.push_back(std::pow(1 + row.scaled(j) / degree + row.added(j), degree)), sum += w.back();
  for (double& x : w) x /= sum;
  return w;
}

// v^T tanh(W q + U k + b), for Luong's concat and Bahdanau. With a gain, v is divided by its norm and multiplied by the
// gain.
NaiveWeights naive_additive_weights(const NaiveRow& row) {
  const Index units = row.count("W", 1), at = row.head * units;
  const double *W = row.array("W") + at * row.size, *U = row.array("U") + at * row.size,
               *score = row.array("score") + at;
  const double* bias = row.values.count("bias") == 1 ? row.array("bias") + at : nullptr;
  double length = 1;
  if (row.values.count("gain") == 1) {
    double squares = 0;
    for (Index a = 0; a < units; ++a) squares += score[a] * score[a];
    length = row.array("gain")[row.head] / std::sqrt(squares);
  }
  return naive_softmax(row, row.seen, [&](Index j) {
    double s = 0;
    for (Index a = 0; a < units; ++a) {
      double x = bias != nullptr ? bias[a] : 0;
      for (Index c = 0; c < row.size; ++c)
        x += W[a * row.size + c] * row.q[c] + U[a * row.size + c] * row.k[j * row.size + c];
      s += length * score[a] * std::tanh(x);
    }
    return s;
  });
}

NaiveWeights naive_general_weights(const NaiveRow& row) {
  const double* W = row.array("W") + row.head * row.size * row.size;
  return naive_softmax(row, row.seen, [&](Index j) {
    double s = 0;
    for (Index a = 0; a < row.size; ++a)
      for (Index c = 0; c < row.size; ++c) s += row.q[a] * W[a * row.size + c] * row.k[j * row.size + c];
    return s;
  });
}

NaiveWeights naive_location_weights(const NaiveRow& row) {
  const double* W = row.array("W") + row.head * row.count("W", 1) * row.size;
  return naive_softmax(row, row.seen, [&](Index j) {
    double s = 0;
    for (Index c = 0; c < row.size; ++c) s += W[j * row.size + c] * row.q[c];
    return s;
  });
}

Index modulo(Index a, Index b) { return (a % b + b) % b; }

NaiveWeights naive_pattern_weights(const NaiveRow& row, const std::string& name) {
  const Index p = row.position, l = row.own.stride, w = row.own.window;
  return pattern_of(row, [&](Index j) {
    if (name == "window") return row.causal ? p - w < j : std::abs(p - j) <= w / 2;
    if (name == "strided") return std::abs(p - j) < l || modulo(p - j, l) == 0;
    require(name == "fixed", "naive_mechanism: there is none named ", name, "; write it here");
    return j / l == (p - modulo(p, l)) / l || j % l == l - 1;
  });
}

NaiveWeights naive_top_k_weights(const NaiveRow& row) {
  std::vector<Index> order = row.seen;
  const auto score = [&](Index j) { return row.scaled(j) + row.added(j); };
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return score(a) > score(b); });
  order.resize(std::min(order.size(), static_cast<std::size_t>(row.own.top_k)));
  return naive_softmax(row, order, [&](Index j) { return row.scaled(j); });
}

NaiveWeights naive_lsh_weights(const NaiveRow& row) {
  const Index half = row.count("rotations", 2);
  const double* rotations = row.array("rotations");
  const auto bucket = [&](const double* x, Index round) {
    std::vector<double> e(static_cast<std::size_t>(2 * half), 0.0);
    for (Index m = 0; m < half; ++m) {
      double s = 0;
      for (Index c = 0; c < row.size; ++c) s += x[c] * rotations[(round * row.size + c) * half + m];
      e[static_cast<std::size_t>(m)] = s, e[static_cast<std::size_t>(half + m)] = -s;
    }
    return std::max_element(e.begin(), e.end()) - e.begin();
  };
  std::vector<Index> chosen;
  for (Index r = 0; r < row.count("rotations", 0); ++r) {
    std::vector<std::pair<Index, Index>> near;  // distance, key
    const auto own = bucket(row.q, r);
    for (const Index j : row.seen)
      if (j != row.position && own == bucket(row.k + j * row.size, r)) near.push_back({std::abs(row.position - j), j});
    std::sort(near.begin(), near.end());
    for (std::size_t n = 0; n < std::min(near.size(), static_cast<std::size_t>(row.own.window)); ++n)
      chosen.push_back(near[n].second);
  }
  if (chosen.empty() && std::count(row.seen.begin(), row.seen.end(), row.position) > 0) chosen = {row.position};
  return naive_softmax(row, chosen, [&](Index j) { return row.scaled(j); });
}

NaiveWeights naive_favor_weights(const NaiveRow& row) {
  const double* features = row.array("features");
  const double scale = std::pow(static_cast<double>(row.size), -0.25);
  const auto feature_log = [&](const double* x, Index r) {
    double s = 0, squares = 0;
    for (Index c = 0; c < row.size; ++c)
      s += features[r * row.size + c] * x[c] * scale, squares += x[c] * x[c] * scale * scale;
    return s - squares / 2;
  };
  std::vector<double> of_query;
  for (Index r = 0; r < row.count("features", 0); ++r) of_query.push_back(feature_log(row.q, r));
  return naive_normalised(row, 0, [&](Index j) {
    double s = 0;
    for (std::size_t r = 0; r < of_query.size(); ++r)
      s += std::exp(of_query[r] + feature_log(row.k + j * row.size, static_cast<Index>(r)));
    return s;
  });
}

NaiveWeights naive_forgetting_weights(const NaiveRow& row) {
  const Tensor forget = row.values.at("input forget").dense();
  // The sum of log gates of the keys after j, up to the query's own gate.
  std::vector<double> decay(static_cast<std::size_t>(row.keys), 0.0);
  double sum = 0;
  for (Index l = row.position; l > 0; --l) {
    if (!row.padding[static_cast<std::size_t>(l)])
      sum += std::log(1 / (1 + std::exp(-forget.ptr<double>()[row.key_head * row.keys + l])));
    decay[static_cast<std::size_t>(l - 1)] = sum;
  }
  return naive_softmax(row, row.seen, [&](Index j) { return row.scaled(j) + decay[static_cast<std::size_t>(j)]; });
}

NaiveWeights naive_linformer_weights(const NaiveRow& row) {
  const Index rows = row.count("e", 0), max_keys = row.count("e", 1);
  const double *e = row.array("e"), *f = row.array("f");
  std::vector<double> mixed(static_cast<std::size_t>(rows));
  double sum = 0;
  for (Index m = 0; m < rows; ++m) {
    double s = 0;
    for (const Index j : row.seen) s += e[m * max_keys + j] * row.dot(j);
    sum += mixed[static_cast<std::size_t>(m)] = std::exp(s / std::sqrt(static_cast<double>(row.size)));
  }
  NaiveWeights w;
  for (const Index j : row.seen) {
    double s = 0;
    for (Index m = 0; m < rows; ++m) s += mixed[static_cast<std::size_t>(m)] / sum * f[m * max_keys + j];
    w.push_back(s);
  }
  return w;
}

NaiveWeights naive_synthesizer_weights(const NaiveRow& row) {
  const std::string kind = row.own.synthesizer;
  const Index p = std::max<Index>(0, row.position), D = row.size;
  // Row r of a map of this head, times `columns` numbers.
  const auto product = [&](const char* name, Index r, const double* x, Index columns) {
    const Index width = row.count(name, 2);
    const double* of_row = row.array(name) + (row.head * row.count(name, 1) + r) * width;
    double s = 0;
    for (Index c = 0; c < columns; ++c) s += of_row[c] * x[c];
    return s;
  };
  std::vector<double> hidden;
  for (Index c = 0; c < D; ++c) hidden.push_back(std::max(row.q[c], 0.0));
  hidden.push_back(1);
  return naive_softmax(row, row.seen, [&](Index j) {
    if (kind == "random")
      return row.array("maps.0")[(row.head * row.count("maps.0", 1) + p) * row.count("maps.0", 2) + j];
    if (kind == "factorized-random") {
      const Index rank = row.count("maps.0", 2);
      return product("maps.1", j, row.array("maps.0") + (row.head * row.count("maps.0", 1) + p) * rank, rank);
    }
    if (kind == "factorized-dense") {
      const Index m = row.count("maps.0", 1);
      return product("maps.0", j % m, hidden.data(), D + 1) * product("maps.1", j / m, hidden.data(), D + 1);
    }
    return product("maps.0", j, hidden.data(), D + 1);
  });
}

NaiveWeights naive_longformer_weights(const NaiveRow& row) {
  const auto numbers = [](const std::string& text, std::vector<Index> usual) {
    return text.empty() ? usual : numbers_of("naive_longformer_weights", text);
  };
  const std::vector<Index> globals = numbers(row.own.globals, {0}), dilations = numbers(row.own.dilation, {1});
  const auto global = [&](Index p) { return std::count(globals.begin(), globals.end(), p) > 0; };
  const Index p = row.position, w = row.own.window,
              d = dilations.size() == 1 ? dilations[0] : dilations[static_cast<std::size_t>(row.head)];
  if (!global(p))
    return pattern_of(row, [&](Index j) {
      const bool near = row.causal ? p - j >= 0 && p - j < w * d : std::abs(p - j) <= w / 2 * d;
      return global(j) || (near && (p - j) % d == 0);
    });
  const Tensor queries = row.values.at("input global_query").dense(), keys = row.values.at("input global_key").dense(),
               values = row.values.at("input global_value").dense();
  row.replaces_values = true;
  static thread_local std::vector<double> kept;  // the pointers in the row refer to it
  kept = values.to_vector<double>();
  for (const Index j : row.seen)
    row.value_vectors.push_back(kept.data() + (row.key_head * row.keys + j) * values.dim(3));
  return naive_softmax(row, row.seen, [&](Index j) {
    double s = 0;
    for (Index c = 0; c < row.size; ++c)
      s += queries.ptr<double>()[row.query_row * row.size + c] *
           keys.ptr<double>()[(row.key_head * row.keys + j) * row.size + c];
    return s / std::sqrt(static_cast<double>(row.size));
  });
}

NaiveWeights naive_relative_weights(const NaiveRow& row, const Tensor& keys, const Tensor& values) {
  const Index clip = (keys.defined() ? keys : values).dim(0) / 2;
  const auto at = [&](Index j) { return std::clamp(j - row.position, -clip, clip) + clip; };
  if (values.defined())
    for (const Index j : row.seen) row.value_vectors.push_back(values.ptr<double>() + at(j) * values.dim(1));
  return naive_softmax(row, row.seen, [&](Index j) {
    double s = 0;
    for (Index c = 0; c < row.size; ++c)
      s += row.q[c] * (row.k[j * row.size + c] + (keys.defined() ? keys.ptr<double>()[at(j) * row.size + c] : 0));
    return s / std::sqrt(static_cast<double>(row.size));
  });
}

NaiveWeights naive_shaw_weights(const NaiveRow& row) {
  const auto table = [&](const char* name) { return row.values.count(name) == 1 ? row.values.at(name) : Tensor(); };
  return naive_relative_weights(row, table("keys"), table("values"));
}

const Tensor& naive_sinusoids(Index clip, Index size) {
  static std::map<std::pair<Index, Index>, Tensor> tables;
  Tensor& table = tables[{clip, size}];
  if (table.defined()) return table;
  table = Tensor::empty({2 * clip + 1, size}, DType::float64);
  for (Index n = 0; n < table.numel(); ++n) {
    const auto d = static_cast<double>(n / size - clip),
               wave = std::pow(10000.0, static_cast<double>(n % size / 2 * 2) / static_cast<double>(size));
    table.ptr<double>()[n] = n % size % 2 == 0 ? std::sin(d / wave) : std::cos(d / wave);
  }
  return table;
}

NaiveWeights naive_nezha_weights(const NaiveRow& row) {
  const Index clip = row.own.max_distance == 0 ? 64 : row.own.max_distance,
              value_size = row.own.value_size == 0 ? row.size : row.own.value_size;
  return naive_relative_weights(row, naive_sinusoids(clip, row.size), naive_sinusoids(clip, value_size));
}

NaiveWeights naive_weights(const std::string& name, const NaiveRow& row) {
  if (name == "softmax") return naive_softmax(row, row.seen, [&](Index j) { return row.scaled(j); });
  if (name == "alibi")
    return naive_softmax(row, row.seen, [&](Index j) {
      return row.scaled(j) - row.array("score.0")[row.head] * std::fabs(static_cast<double>(row.position - j));
    });
  if (name == "luong-dot") return naive_softmax(row, row.seen, [&](Index j) { return row.dot(j); });
  using Weights = NaiveWeights (*)(const NaiveRow&);
  static const std::map<std::string, Weights> own = {{"linear", naive_linear_weights},
                                                     {"efficient", naive_efficient_weights},
                                                     {"taylor", naive_taylor_weights},
                                                     {"luong-general", naive_general_weights},
                                                     {"luong-concat", naive_additive_weights},
                                                     {"bahdanau", naive_additive_weights},
                                                     {"luong-location", naive_location_weights},
                                                     {"cosine", naive_cosine_weights},
                                                     {"rbf", naive_rbf_weights},
                                                     {"polynomial", naive_polynomial_weights},
                                                     {"longformer", naive_longformer_weights},
                                                     {"synthesizer", naive_synthesizer_weights},
                                                     {"shaw", naive_shaw_weights},
                                                     {"nezha", naive_nezha_weights},
                                                     {"top-k", naive_top_k_weights},
                                                     {"lsh", naive_lsh_weights},
                                                     {"favor", naive_favor_weights},
                                                     {"linformer", naive_linformer_weights},
                                                     {"forgetting", naive_forgetting_weights}};
  const auto found = own.find(name);
  return found != own.end() ? found->second(row) : naive_pattern_weights(row, name);
}

bool has_other_values(const std::string& name) {
  return name == "shaw" || name == "nezha" || name == "longformer" || name == "luna" || is_state_rule(name);
}

Tensor naive_talking_heads(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                                  const TensorsByName& values) {
  const Index B = q.dim(0), H = q.dim(1), T = q.dim(2), D = q.dim(3), S = k.dim(2), shared = H / k.dim(1);
  const Tensor before = values.at("before_softmax"), after = values.at("after_softmax");
  const Tensor allowed = allowed_pairs(q, k, call).expand({B, H, T, S});
  const Tensor bias = call.bias.defined() ? call.bias.detach().expand({B, H, T, S}) : Tensor();
  Tensor y = Tensor::zeros({B, H, T, v.dim(3)}, DType::float64);
  for (Index b = 0; b < B; ++b)
    for (Index i = 0; i < T; ++i) {
      std::vector<std::vector<double>> score(static_cast<std::size_t>(H)), weight(score.size());
      const auto at = [](auto& rows, Index h) -> auto& { return rows[static_cast<std::size_t>(h)]; };
      for (Index h = 0; h < H; ++h)
        for (Index j = 0; j < S; ++j) {
          double s = 0;
          for (Index c = 0; c < D; ++c) s += q.at({b, h, i, c}) * k.at({b, h / shared, j, c});
          at(score, h).push_back(s / std::sqrt(static_cast<double>(D)));
        }
      for (Index h = 0; h < H; ++h) {
        std::vector<double> mixed(static_cast<std::size_t>(S), 0.0);
        double max_score = -1e300, sum = 0;
        for (Index j = 0; j < S; ++j) {
          double& s = at(mixed, j);
          for (Index g = 0; g < H; ++g) s += before.at({h, g}) * at(at(score, g), j);
          if (bias.defined()) s += bias.at({b, h, i, j});
          if (allowed.at({b, h, i, j}) != 0) max_score = std::max(max_score, s);
        }
        for (Index j = 0; j < S; ++j)
          sum += at(mixed, j) = allowed.at({b, h, i, j}) != 0 ? std::exp(at(mixed, j) - max_score) : 0;
        for (double& w : mixed) w = sum == 0 ? 0 : w / sum;
        at(weight, h) = mixed;
      }
      for (Index h = 0; h < H; ++h)
        for (Index j = 0; j < S; ++j) {
          if (allowed.at({b, h, i, j}) == 0) continue;
          double w = 0;
          for (Index g = 0; g < H; ++g) w += after.at({h, g}) * at(at(weight, g), j);
          for (Index c = 0; c < v.dim(3); ++c)
            y.ptr<double>()[((b * H + h) * T + i) * v.dim(3) + c] += w * v.at({b, h / shared, j, c});
        }
    }
  return y;
}

decltype(ConformanceOptions::reference) naive_mechanism(const std::string& name,
                                                               const MechanismOptions& options) {
  if (name == "talking-heads") return naive_talking_heads;
  return naive_by([name](const NaiveRow& row) { return naive_weights(name, row); }, options);
}

}  // namespace heed::test
