// Wrong mechanisms by kind: each has one fault, and the check that is made for it finds it.
// A table: over 300 lines, as each fault is one entry of it.
#include <heed/heed.hpp>
#include <sstream>

#include "tests/layers/hooked_attention.hpp"
#include "tests/layers/naive_mechanisms.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace zoo {
namespace {

struct Fault {
  const char* what;
  const char* check;  // that finds it
  std::function<void(Hooks& h)> put_in;
  Index longest = 100;
};

using Call = AttentionCall;

void inputs(Hooks& h, std::function<void(Tensor& q, Tensor& k, Tensor& v, Call& call)> f) { h.inputs = std::move(f); }
// Of calls alone.
auto asks(std::function<void(Call& call)> f) {
  return [f](Hooks& h) { h.inputs = [f](Tensor&, Tensor&, Tensor&, Call& call) { f(call); }; };
}
// Of gradients: of q, k or v.
auto gradient_of(char which, std::function<Tensor(const Tensor& dy)> f) {
  return [=](Hooks& h) {
    h.inputs = [=](Tensor& q, Tensor& k, Tensor& v, Call&) {
      Tensor& x = which == 'q' ? q : which == 'k' ? k : v;
      x = regrad(x, f);
    };
  };
}
auto outputs(std::function<Tensor(const Tensor& y, const Tensor& v, const Call& call)> f) {
  return [f](Hooks& h) { h.output = f; };
}
auto sees(std::function<bool(bool was, Index i, Index j, Index T, Index S)> f) {
  return [f](Hooks& h) {
    h.allowed = [f](const Tensor& allowed, const Call& call) {
      if (!call.causal) return allowed;
      const Index T = allowed.dim(2), S = allowed.dim(3);
      return decided(allowed, [=](bool was, Index, Index, Index i, Index j) { return f(was, i, j, T, S); });
    };
  };
}
// Padding taken away by a product: 0 * NaN is NaN.
Tensor multiplied(const Tensor& x, const Call& call) {
  return x * allowed_pairs(x, x, {.key_lengths = call.key_lengths, .key_mask = call.key_mask})
                 .slice(2, 0, 1)
                 .transpose(2, 3)
                 .to(x.dtype());
}
Tensor in_bfloat16(const Tensor& x) { return x.to(DType::bfloat16).to(x.dtype()); }
Tensor in_float32(const Tensor& x) { return x.to(DType::float32).to(x.dtype()); }
bool masks(const Call& call) { return call.key_lengths.defined() || call.key_mask.defined(); }

const std::vector<Fault> kMasks = {
    {"the key mask is ignored beside lengths", "padding", asks([](Call& c) {
       if (c.key_lengths.defined()) c.key_mask = {};
     })},
    {"lengths are ignored beside a key mask", "padding", asks([](Call& c) {
       if (c.key_mask.defined()) c.key_lengths = {};
     })},
    {"the mask is ignored beside a key mask", "masks", asks([](Call& c) {
       if (c.key_mask.defined()) c.mask = {};
     })},
    {"the key mask is ignored beside a mask", "masks", asks([](Call& c) {
       if (c.mask.defined()) c.key_mask = {};
     })},
    {"the mask is ignored where it is causal", "masks", asks([](Call& c) {
       if (c.causal) c.mask = {};
     })},
    {"the mask is ignored beside a bias", "masks", asks([](Call& c) {
       if (c.bias.defined()) c.mask = {};
     })},
    {"the bias is ignored beside a mask", "masks", asks([](Call& c) {
       if (c.mask.defined()) c.bias = {};
     })},
    {"the bias is ignored beside lengths", "masks", asks([](Call& c) {
       if (c.key_lengths.defined()) c.bias = {};
     })},
    {"lengths are ignored where it is causal", "padding", asks([](Call& c) {
       if (c.causal) c.key_lengths = {};
     })},
    {"a mask turns causal off", "masks", asks([](Call& c) {
       if (c.mask.defined()) c.causal = false;
     })},
    {"a key mask turns causal off", "masks", asks([](Call& c) {
       if (c.key_mask.defined()) c.causal = false;
     })},
    {"full lengths hide the last key", "masks",
     [](Hooks& h) {
       h.allowed = [](const Tensor& allowed, const Call& call) {
         if (!call.key_lengths.defined() || call.key_lengths.at({0}) != static_cast<double>(allowed.dim(3)))
           return allowed;
         return decided(allowed, [&](bool was, Index b, Index, Index, Index j) {
           return was && !(b == 0 && j == allowed.dim(3) - 1);
         });
       };
     }},
    {"any mask changes the temperature", "masks",
     [](Hooks& h) { h.scores = [](const Tensor& s, const Call& call) { return call.mask.defined() ? s * 1.1 : s; }; }},
    {"any bias loses the scale", "masks",
     [](Hooks& h) { h.scores = [](const Tensor& s, const Call& call) { return call.bias.defined() ? s * 1.5 : s; }; }},
    {"mask or key mask, not both", "masks", asks([](Call& c) {
       if (!c.mask.defined() || !c.key_mask.defined()) return;
       c.mask = logical_or(c.mask, c.key_mask.unsqueeze(1).unsqueeze(1)), c.key_mask = {};
     })},
    {"the first head's mask serves all", "masks", asks([](Call& c) {
       if (c.mask.defined() && c.mask.rank() >= 3) c.mask = c.mask.slice(-3, 0, 1);
     })},
    {"the first sequence's mask serves all", "masks", asks([](Call& c) {
       if (c.mask.defined() && c.mask.rank() == 4) c.mask = c.mask.slice(0, 0, 1);
     })},
    {"the first head's bias serves all", "masks", asks([](Call& c) {
       if (c.bias.defined() && c.bias.rank() == 4) c.bias = c.bias.slice(1, 0, 1);
     })},
    {"a mask of rank 1 is ignored", "masks", asks([](Call& c) {
       if (c.mask.defined() && c.mask.rank() == 1) c.mask = {};
     })},
    {"a bias of rank 2 is ignored", "masks", asks([](Call& c) {
       if (c.bias.defined() && c.bias.rank() == 2) c.bias = {};
     })},
    {"a mask with strides of 0 is read in order", "masks", asks([](Call& c) {
       if (!c.mask.defined() || c.mask.is_contiguous() || c.mask.rank() != 4) return;
       Tensor read = c.mask.dense().clone();  // beyond its end lies what is true
       const Index size = c.mask.dim(2) * c.mask.dim(3);
       for (Index i = size; i < read.numel(); ++i) read.ptr<bool>()[i] = true;
       c.mask = read;
     })},
    {"a bias with strides of 0 is read in order", "masks", asks([](Call& c) {
       if (!c.bias.defined() || c.bias.is_contiguous() || c.bias.rank() != 4) return;
       Tensor read = c.bias.dense().clone();
       read[read.dim(0) - 1].fill_(0);
       c.bias = read;
     })},
    {"masks are ignored where heads share keys", "masks",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call& c) {
         if (q.dim(1) != k.dim(1)) c.mask = {};
       });
     }},
    {"masks are ignored where T < S", "masks",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call& c) {
         if (q.dim(2) < k.dim(2)) c.mask = {};
       });
     }},
};

const std::vector<Fault> kGradients = {
    {"the gradient of k beyond 64 positions", "direction",
     gradient_of('k', [](const Tensor& d) { return scaled_from(d, 2, 64, 0.9); }), 130},
    {"the gradient of v beyond 64 positions", "direction",
     gradient_of('v', [](const Tensor& d) { return scaled_from(d, 2, 64, 1.01); }), 130},
    {"the gradient of q at the last of 130 positions", "direction",
     gradient_of('q', [](const Tensor& d) { return scaled_from(d, 2, 129, 0); }), 130},
    {"the gradient of v at one position", "direction",
     gradient_of('v', [](const Tensor& d) { return d.dim(2) == 1 ? d * 2 : d; })},
    {"the gradient of k beyond 256 positions", "direction",
     gradient_of('k', [](const Tensor& d) { return d.dim(2) > 256 ? d * 0.999 : d; }), 300},
    {"the gradient of v beyond 512 positions", "direction",
     gradient_of('v', [](const Tensor& d) { return d.dim(2) > 512 ? scaled_from(d, 2, 512, 0) : d; }), 700},
    {"the gradient of the bias beyond the sixth column", "direction", asks([](Call& c) {
       if (!c.bias.defined() || c.bias.dim(-1) <= 6 || c.bias.rank() != 3) return;
       c.bias = regrad(c.bias, [](const Tensor& d) { return scaled_from(d.unsqueeze(0), 3, 6, 0)[0]; });
     }),
     130},
    {"the gradient of the bias of the last head", "direction", asks([](Call& c) {
       if (!c.bias.defined() || c.bias.rank() != 3 || c.bias.dim(-1) < 20) return;
       c.bias = regrad(c.bias, [](const Tensor& d) { return scaled_from(d.unsqueeze(0), 1, 3, 0)[0]; });
     }),
     130},
    {"the gradient of a key bias with all masks", "gradient", asks([](Call& c) {
       if (c.bias.defined() && c.bias.dim(-2) == 1) c.bias = regrad(c.bias, [](const Tensor& d) { return d * 0.5; });
     })},
    {"the gradient of k where T < S, at length", "direction",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call&) {
         if (q.dim(2) < k.dim(2) && k.dim(2) > 50) k = regrad(k, [](const Tensor& d) { return d * 0.99; });
       });
     }},
    {"the gradient of q where T > S, at length", "direction",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call&) {
         if (q.dim(2) > k.dim(2) && k.dim(2) > 50) q = regrad(q, [](const Tensor& d) { return d * 0.99; });
       });
     }},
    {"the gradient of one head that all share, of some of them", "grouped",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call&) {
         if (k.dim(1) == 1 && q.dim(1) > 1) k = regrad(k, [](const Tensor& d) { return d * 0.75; });
       });
     }},
    {"the gradient of v with a mask, at length", "direction",
     [](Hooks& h) {
       inputs(h, [](Tensor&, Tensor&, Tensor& v, Call& c) {
         if (c.mask.defined() && v.dim(2) > 100) v = regrad(v, [](const Tensor& d) { return d * 0.99; });
       });
     },
     130},
    {"the gradient of q, causal, at length", "direction",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call& c) {
         if (c.causal && q.dim(2) > 100) q = regrad(q, [](const Tensor& d) { return scaled_from(d, 2, 100, 1.001); });
       });
     },
     130},
    {"no gradient for k beside that of q", "gradient",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call&) {
         if (!wants_gradient({q})) k = k.detach();
       });
     }},
};

const std::vector<Fault> kCausal = {
    {"the future from position 512 on", "causal",
     sees([](bool was, Index i, Index j, Index, Index S) { return was || (i >= 512 && j < S); }), 600},
    {"the next key at the border of a block of 256", "causal",
     sees([](bool was, Index i, Index j, Index, Index) { return was || (i % 256 == 255 && j == i + 1 && j < 300); }),
     600},
    {"the last 60 of 600 see one another", "causal",
     sees([](bool was, Index i, Index j, Index T, Index) { return was || (T == 600 && i > 540 && j > 540); }), 600},
    {"a trace of later values beyond 200 positions", "causal",
     outputs([](const Tensor& y, const Tensor& v, const Call& c) {
       return c.causal && v.dim(2) > 200 ? y + mean(v, {2, 1}, true).detach() * 1e-13 : y;
     }),
     600},
    {"the gradient leaks beyond 200 positions", "causal",
     gradient_of('v', [](const Tensor& d) { return d.dim(2) > 200 ? d + mean(d, {2}, true) * 1e-9 : d; }), 600},
    {"one key ahead where T < S", "causal",
     sees([](bool was, Index i, Index j, Index T, Index S) { return was || (T < S && j == i + S - T + 1); })},
    {"one key ahead where heads share keys", "causal",
     [](Hooks& h) {
       h.repeat = [](const Tensor& x, Index heads) {
         const Tensor y = each_head(x, heads);
         if (x.dim(1) == heads) return y;
         return y + concatenate({y.slice(2, 1, y.dim(2)), y.slice(2, 0, 1)}, 2).detach() * 1e-6;
       };
     }},
    {"causal is forgotten beside all masks", "causal", asks([](Call& c) {
       if (c.mask.defined() && c.bias.defined() && c.key_mask.defined()) c.causal = false;
     })},
    {"only large later tokens are seen", "causal", outputs([](const Tensor& y, const Tensor& v, const Call& c) {
       return c.causal ? y + maximum(max(v.detach(), {2, 1}, true) - 7.0, 0.0) * 1e-3 : y;
     })},
    {"the beginnings are aligned where T > S", "empty rows",
     sees([](bool was, Index i, Index j, Index T, Index S) { return T > S ? j <= i : was; })},
    {"the middles are aligned where T < S", "cross lengths",
     sees([](bool was, Index i, Index j, Index T, Index S) { return T < S ? j <= i + (S - T) / 2 : was; })},
};

const std::vector<Fault> kPadding = {
    {"0 * NaN in values", "padding", [](Hooks& h) { h.values = multiplied; }},
    {"0 * NaN in keys where heads share them", "padding",
     [](Hooks& h) {
       h.keys = [](const Tensor& k, const Call& c) { return k.dim(1) < 4 ? multiplied(k, c) : without_padding(k, c); };
     }},
    {"0 * NaN in values with a bias", "padding",
     [](Hooks& h) {
       h.values = [](const Tensor& v, const Call& c) {
         return c.bias.defined() && !c.mask.defined() ? multiplied(v, c) : without_padding(v, c);
       };
     }},
    {"0 * NaN in values where T is not S", "padding", outputs([](const Tensor& y, const Tensor& v, const Call& c) {
       return masks(c) && y.dim(2) != v.dim(2) ? y + sum(v * 0.0) : y;
     })},
    {"NaN is replaced, infinities are not", "padding",
     [](Hooks& h) {
       h.values = [](const Tensor& v, const Call& c) { return masks(c) ? multiplied(where(isnan(v), 0.0, v), c) : v; };
     }},
    {"infinities are replaced, NaN is not", "padding",
     [](Hooks& h) {
       h.values = [](const Tensor& v, const Call& c) {
         return masks(c) ? multiplied(where(logical_or(isfinite(v), isnan(v)), v, 0.0), c) : v;
       };
     }},
    {"keys in padding are not removed in float32", "padding",
     [](Hooks& h) {
       h.keys = [](const Tensor& k, const Call& c) {
         return k.dtype() == DType::float32 ? multiplied(k, c) : without_padding(k, c);
       };
     }},
    {"padding gets a gradient with T > S", "padding",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor& v, Call&) {
         if (q.dim(2) > k.dim(2)) v = regrad(v, [](const Tensor& d) { return d + 1e-3; });
       });
     }},
    {"NaN in rows without keys where T < S", "empty rows",
     [](Hooks& h) {
       h.weights = [](const Tensor& w, const Call& c) {
         if (!c.key_lengths.defined() || w.dim(2) == w.dim(3)) return w;
         return w / sum(w, {-1}, true);
       };
     }},
    {"lengths and mask together leave no 0", "empty rows", outputs([](const Tensor& y, const Tensor&, const Call& c) {
       return masks(c) && c.key_lengths.defined() && c.key_mask.defined()
                  ? where(eq(sum(abs(y.detach()), {-1}, true), 0), 1e-3, y)
                  : y;
     })},
};

const std::vector<Fault> kDropout = {
    {"half the rate", "dropout",
     [](Hooks& h) {
       h.drop = [](const Tensor& w, double p) {
         return w * ge(default_rng().uniform(w.shape()), p / 2).to(w.dtype()) / (1 - p / 2);
       };
     }},
    {"the rate of what is kept", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, 1 - p, w.shape()); }; }},
    {"not raised by 1 / (1 - p)", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, p, w.shape()) * (1 - p); }; }},
    {"one mask for all heads", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, p, w.shape().with(1, 1)); }; }},
    {"one mask for all sequences", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, p, w.shape().with(0, 1)); }; }},
    {"one mask for all queries", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, p, w.shape().with(2, 1)); }; }},
    {"one mask for all keys", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, p, w.shape().with(3, 1)); }; }},
    {"another mask in backward", "dropout",
     [](Hooks& h) {
       inputs(h, [](Tensor&, Tensor&, Tensor& v, Call& c) {
         if (c.dropout > 0 && is_training())
           v = regrad(v, [](const Tensor& d) { return d * ge(Rng(5).uniform(d.shape()), 0.3).to(d.dtype()); });
       });
     }},
    {"of the output, not of the weights", "dropout",
     [](Hooks& h) {
       h.drop = [](const Tensor& w, double) { return w; };
       h.output = [](const Tensor& y, const Tensor&, const Call& c) {
         return c.dropout > 0 && is_training() ? keep_some(y, c.dropout, y.shape()) : y;
       };
     }},
    {"normalised again", "dropout",
     [](Hooks& h) {
       h.drop = [](const Tensor& w, double p) {
         const Tensor left = keep_some(w, p, w.shape());
         return left / (sum(left, {-1}, true) + 1e-9);
       };
     }},
    {"none where it is causal", "dropout", asks([](Call& c) {
       if (c.causal) c.dropout = 0;
     })},
    {"none beside a mask", "dropout", asks([](Call& c) {
       if (c.mask.defined()) c.dropout = 0;
     })},
    {"none where heads share keys", "dropout",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call& c) {
         if (q.dim(1) != k.dim(1)) c.dropout = 0;
       });
     }},
    {"outside of training", "dropout",
     [](Hooks& h) {
       h.weights = [](const Tensor& w, const Call& c) {
         return c.dropout > 0 && !is_training() ? w * (1 - c.dropout) : w;
       };
     }},
};

const std::vector<Fault> kWeights = {
    {"told without the bias", "weights",
     [](Hooks& h) { h.told = [](const Tensor& w, const Call& c) { return c.bias.defined() ? softmax(w) : w; }; }},
    {"told with T != S the other way round", "weights",
     [](Hooks& h) { h.told = [](const Tensor& w, const Call&) { return w.dim(2) < w.dim(3) ? flip(w, {2}) : w; }; }},
    {"told of other heads", "weights",
     [](Hooks& h) { h.told = [](const Tensor& w, const Call&) { return flip(w, {1}); }; }},
    {"told in an empty row", "weights",
     [](Hooks& h) {
       h.told = [](const Tensor& w, const Call&) {
         return where(eq(sum(w, {-1}, true), 0), 1 / static_cast<double>(w.dim(3)), w);
       };
     }},
    {"told in float64 always", "weights",
     [](Hooks& h) { h.told = [](const Tensor& w, const Call&) { return w.to(DType::float64); }; }},
    {"told transposed", "weights",
     [](Hooks& h) { h.told = [](const Tensor& w, const Call&) { return w.t().contiguous(); }; }},
    {"told before dropout's scale", "weights",
     [](Hooks& h) { h.told = [](const Tensor& w, const Call&) { return w * 0.9; }; }},
    {"told a little of masked keys", "weights",
     [](Hooks& h) { h.told = [](const Tensor& w, const Call&) { return maximum(w, 1e-12); }; }},
};

// What a state keeps, and sees of it: f decides for a query at position i of S and a key j.
auto state_sees(std::function<bool(Index i, Index j, Index T, Index S)> f) {
  return [f](Hooks& h) {
    h.step = [f](In q, In k, In v, const Tensor& bias) {
      const Index T = q.dim(2), S = k.dim(2);
      Hooks own;
      own.allowed = [=](const Tensor& allowed, const Call&) {
        return decided(allowed, [=](bool was, Index, Index, Index i, Index j) { return was && f(i + S - T, j, T, S); });
      };
      return Hooked{own}.apply(q, k, v, {.causal = true, .bias = bias});
    };
  };
}
auto state_takes(std::function<Tensor(Tensor q, Tensor k, Tensor v, Tensor bias)> f) {
  return [f](Hooks& h) { h.step = [f](In q, In k, In v, const Tensor& bias) { return f(q, k, v, bias); }; };
}
Tensor right(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias) {
  return Hooked{}.apply(q, k, v, {.causal = true, .bias = bias});
}

// A state that holds the tensors it was given, or shares its memory with others.
struct HoldingState {
  bool copies, count_named = true;
  std::shared_ptr<std::vector<Tensor>> keys, values;
  Tensor count = Tensor::zeros({}, DType::int32);
  Tensor apply(In q, In k, In v, const Tensor& bias) {
    const NoTape guard;
    keys->push_back(copies ? k->clone() : k.tensor()), values->push_back(copies ? v->clone() : v.tensor());
    count = Tensor::full({}, count.item() + static_cast<double>(k.dim(2)), DType::int32);
    const Tensor all_keys = concatenate(*keys, 2), all_values = concatenate(*values, 2);
    return right(q, all_keys, all_values, bias);
  }
  Index length() const { return count.item<Index>(); }
  void members(auto&& visit) { visit.buffer("length", count); }
};
AttentionState holding(bool copies, std::shared_ptr<std::vector<Tensor>> keys,
                       std::shared_ptr<std::vector<Tensor>> values) {
  return HoldingState{copies, true, std::move(keys), std::move(values)};
}

const std::vector<Fault> kStates = {
    {"forgets what is 256 positions back", "state",
     state_sees([](Index i, Index j, Index, Index) { return i - j < 256; }), 600},
    {"forgets the first key beyond 512 positions", "state",
     state_sees([](Index i, Index j, Index, Index) { return i < 512 || j > 0; }), 600},
    {"chunks of more than 64 see half of themselves", "state",
     state_sees([](Index i, Index j, Index T, Index) { return T <= 64 || T == 150 || i - j < 32; }), 600},
    {"ignores the bias", "state", state_takes([](Tensor q, Tensor k, Tensor v, Tensor) { return right(q, k, v, {}); })},
    {"shifts the bias", "state", state_takes([](Tensor q, Tensor k, Tensor v, Tensor bias) {
       return right(q, k, v,
                    bias.defined() ? concatenate({bias.slice(-1, 1, bias.dim(-1)), bias.slice(-1, 0, 1)}, -1) : bias);
     })},
    {"the bias of the first head", "state", state_takes([](Tensor q, Tensor k, Tensor v, Tensor bias) {
       return right(q, k, v, bias.defined() ? bias.slice(0, 0, 1) : bias);
     })},
    {"one head of keys of several", "state", state_takes([](Tensor q, Tensor k, Tensor v, Tensor bias) {
       return k.dim(1) == 2 ? right(q, k.slice(1, 0, 1), v.slice(1, 0, 1), bias) : right(q, k, v, bias);
     })},
    {"one shared head is another", "state", state_takes([](Tensor q, Tensor k, Tensor v, Tensor bias) {
       return k.dim(1) == 1 ? right(q, k, v, bias) * 1.001 : right(q, k, v, bias);
     })},
    {"values in bfloat16", "state", state_takes([](Tensor q, Tensor k, Tensor v, Tensor bias) {
       return right(q, k, v.dtype() == DType::float32 ? in_bfloat16(v) : v, bias);
     })},
    {"float32 inside", "state", state_takes([](Tensor q, Tensor k, Tensor v, Tensor bias) {
       return right(q, k, in_float32(v * 1.1) / 1.1, bias);
     })},
    {"holds its inputs and does not copy them", "state",
     [](Hooks& h) {
       h.state = [] {
         return holding(false, std::make_shared<std::vector<Tensor>>(), std::make_shared<std::vector<Tensor>>());
       };
     }},
    {"shares its keys with other states", "state",
     [](Hooks& h) {
       h.state = [keys = std::make_shared<std::vector<Tensor>>(), values = std::make_shared<std::vector<Tensor>>()] {
         return holding(true, keys, values);
       };
     }},
    {"names its length, and not its keys", "state resumed",
     [](Hooks& h) {
       h.state = [] {
         return holding(true, std::make_shared<std::vector<Tensor>>(), std::make_shared<std::vector<Tensor>>());
       };
     }},
};

// What is kept from call to call.
const std::vector<Fault> kCalls = {
    {"the result of the same memory", "calls",
     [](Hooks& h) {
       h.output = [last = std::make_shared<std::pair<const void*, Tensor>>()](const Tensor& y, const Tensor& v,
                                                                              const Call&) {
         if (is_training()) return y;
         if (last->first != v.raw() || last->second.shape() != y.shape() || last->second.dtype() != y.dtype())
           *last = {v.raw(), y.detach().clone()};
         return last->second;
       };
     }},
    {"one output for all calls", "calls",
     [](Hooks& h) {
       h.output = [last = std::make_shared<Tensor>()](const Tensor& y, const Tensor&, const Call&) {
         if (is_training()) return y;
         if (!last->defined() || last->shape() != y.shape() || last->dtype() != y.dtype())
           *last = Tensor::empty_like(y);
         last->copy_(y.detach());
         return *last;
       };
     }},
    {"a maximum over calls", "calls",
     [](Hooks& h) {
       h.scores = [most = std::make_shared<double>(-1e9)](const Tensor& s, const Call&) {
         *most = std::max(*most, max(s.detach()).item());
         return s * (1 + 1e-9 * *most);
       };
     }},
    {"the length of the first call", "calls",
     [](Hooks& h) {
       h.output = [first = std::make_shared<Index>(0)](const Tensor& y, const Tensor&, const Call&) {
         if (*first == 0 || y.dim(2) < *first) *first = y.dim(2);
         return scaled_from(y, 2, *first, 0.5);
       };
     }},
    {"a count of calls", "calls",
     [](Hooks& h) {
       h.output = [count = std::make_shared<int>(0)](const Tensor& y, const Tensor&, const Call&) {
         return y * (1 + 1e-6 * ++*count);
       };
     }},
    {"what backward needs, of the last call alone", "calls",
     [](Hooks& h) {
       h.output = [last = std::make_shared<Tensor>()](const Tensor& y, const Tensor&, const Call&) {
         *last = y.detach();
         return regrad(y, [last](const Tensor& d) {
           return last->shape() == d.shape()
                      ? d * (1 + 1e-3 * mean(*last).item()) / (1 + 1e-3 * mean(*last).item() * 1.0) + *last * 1e-6
                      : d * 2;
         });
       };
     }},
    {"the mask of the first call of its shape", "calls",
     [](Hooks& h) {
       h.weights = [kept = std::make_shared<Tensor>()](const Tensor& w, const Call&) {
         if (!kept->defined() || kept->shape() != w.shape() || kept->dtype() != w.dtype()) *kept = w.detach().clone();
         return w + (*kept - w.detach()) * 1e-3;
       };
     }},
    {"q is scaled in place", "calls",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) {
         if (is_training()) return;
         Tensor written = q.detach();
         written.copy_(q.detach() * 1.0000001);
       });
     }},
    {"v is written to in padding", "calls",
     [](Hooks& h) {
       inputs(h, [](Tensor&, Tensor&, Tensor& v, Call& c) {
         Tensor written = v.detach();
         if (!is_training() && masks(c) && v.dim(1) == 4) written.copy_(multiplied(v.detach(), c));
       });
     }},
    {"the key mask is written to", "calls", asks([](Call& c) {
       if (c.key_mask.defined() && c.key_lengths.defined())
         c.key_mask.slice(1, c.key_mask.dim(1) - 1, c.key_mask.dim(1)).fill_(c.key_mask.dim(1) > 30 ? 0 : 1);
     })},
    {"the bias is written to", "calls", asks([](Call& c) {
       if (c.bias.defined() && !is_training()) c.bias.detach().fill_(0);
     })},
};

const std::vector<Fault> kShapes = {
    {"the third sequence is the second", "batch", outputs([](const Tensor& y, const Tensor&, const Call&) {
       return y.dim(0) > 2 ? concatenate({y.slice(0, 0, 2), y.slice(0, 1, y.dim(0) - 1)}, 0) : y;
     })},
    {"sequences see one another", "batch",
     outputs([](const Tensor& y, const Tensor&, const Call&) { return y + mean(y, {0}, true) * 1e-6; })},
    {"the gradient of v is summed over the sequences", "batch",
     gradient_of('v', [](const Tensor& d) { return d + (mean(d, {0}, true) - d) * 1e-6; })},
    {"columns of v beyond 64 are 0", "batch",
     outputs([](const Tensor& y, const Tensor&, const Call&) { return y.dim(3) > 64 ? scaled_from(y, 3, 64, 0) : y; })},
    {"odd columns of v beyond 32, with masks", "batch", outputs([](const Tensor& y, const Tensor&, const Call& c) {
       return y.dim(3) > 32 && c.mask.defined() ? flip(y, {3}) : y;
     })},
    {"sizes beyond 64 are cut", "sizes",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) {
         if (q.dim(3) > 64) q = scaled_from(q, 3, 64, 0);
       });
     }},
    {"heads beyond 8 are the first", "sizes", outputs([](const Tensor& y, const Tensor&, const Call&) {
       return y.dim(1) > 8 ? concatenate({y.slice(1, 0, 8), y.slice(1, 0, y.dim(1) - 8)}, 1) : y;
     })},
    {"heads see one another", "sizes",
     outputs([](const Tensor& y, const Tensor&, const Call&) { return y + mean(y, {1}, true) * 1e-6; })},
    {"a size of 2 in bfloat16", "sizes",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) {
         if (q.dim(3) == 2 && q.dtype() == DType::float32) q = in_bfloat16(q);
       });
     }},
    {"the tail of an odd size in float32", "sizes",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) {
         if (q.dim(3) % 8 == 1 && q.dtype() == DType::float32) q = scaled_from(q, 3, q.dim(3) - 1, 0);
       });
     }},
    {"the gradient of a size of 128", "sizes",
     gradient_of('q', [](const Tensor& d) { return d.dim(3) == 128 ? d * 0.9 : d; })},
    {"one head for all is another", "grouped",
     [](Hooks& h) {
       h.repeat = [](const Tensor& x, Index heads) {
         return each_head(x, heads) * (x.dim(1) == 1 && heads > 1 ? 1.01 : 1.0);
       };
     }},
    {"heads that share keys, in the other order", "grouped",
     [](Hooks& h) {
       h.repeat = [](const Tensor& x, Index heads) {
         return x.dim(1) == heads ? x : repeat(x, {1, heads / x.dim(1), 1, 1});
       };
     }},
    {"heads that share keys, with T < S", "grouped",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call&) {
         if (k.dim(1) < q.dim(1) && q.dim(2) < k.dim(2)) q = q * 1.01;
       });
     }},
    {"heads that share keys, with a bias", "grouped",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call& c) {
         if (k.dim(1) < q.dim(1)) c.bias = {};
       });
     }},
    {"strides of 0 are read in order", "views",
     [](Hooks& h) {
       inputs(h, [](Tensor&, Tensor&, Tensor& v, Call&) {
         if (v.strides()[0] == 0 && v.dim(0) > 1) v = flip(v, {2});
       });
     }},
    {"batches are taken to lie side by side", "views",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) {
         if (!q.is_contiguous() && q.strides()[1] != 0) q = q * 1.01;
       });
     }},
};

const std::vector<Fault> kNumbers = {
    {"float32 with T < S", "float32",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor& v, Call&) {
         if (q.dim(2) < k.dim(2) && v.dtype() == DType::float32) v = in_bfloat16(v);
       });
     }},
    {"float32 of one query", "float32",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call&) {
         if (q.dim(2) == 1 && k.dim(2) > 1 && q.dtype() == DType::float32) q = in_bfloat16(q);
       });
     }},
    {"float32 where heads share keys", "float32",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call&) {
         if (q.dim(1) > k.dim(1) && k.dtype() == DType::float32) k = in_bfloat16(k);
       });
     }},
    {"float32 under all masks", "float32",
     [](Hooks& h) {
       h.scores = [](const Tensor& s, const Call& c) {
         return s.dtype() == DType::float32 && c.mask.defined() && c.causal ? in_bfloat16(s) : s;
       };
     }},
    {"float64 is float32 in values beyond 256", "direction",
     [](Hooks& h) {
       inputs(h, [](Tensor&, Tensor&, Tensor& v, Call&) {
         if (v.dim(2) > 256) v = in_float32(v);
       });
     },
     300},
    {"float64 is float32 in scores beyond 512", "direction",
     [](Hooks& h) { h.scores = [](const Tensor& s, const Call&) { return s.dim(3) > 512 ? in_float32(s) : s; }; }, 600},
    {"float64 is float32 where T < S", "direction",
     [](Hooks& h) { h.scores = [](const Tensor& s, const Call&) { return s.dim(2) < s.dim(3) ? in_float32(s) : s; }; }},
    {"a zero vector has no direction", "zero vectors",
     [](Hooks& h) { inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) { q = q / norm(q, {-1}, {.keepdim = true}); }); }},
    {"the gradient of the length of a zero vector", "zero vectors",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) {
         const Tensor squares = sum(q * q, {-1}, true);
         q = q * (pow(squares, 0.5) * 0.1 + 1.0);
       });
     }},
    {"values are divided by their largest", "zero vectors",
     [](Hooks& h) {
       h.output = [](const Tensor& y, const Tensor& v, const Call&) {
         const Tensor most = max(abs(v.detach())).detach();
         return y / most * most;
       };
     }},
    {"no keys give NaN", "empty tensors",
     [](Hooks& h) {
       h.output = [](const Tensor& y, const Tensor& v, const Call&) { return v.dim(2) == 0 ? y + NAN : y; };
     }},
    {"no sequences are refused", "empty tensors",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) { require(q.dim(0) > 0, "hooked: no sequences"); });
     }},
    {"no queries are refused", "empty tensors",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) { require(q.dim(2) > 0, "hooked: no queries"); });
     }},
};

const std::vector<Fault> kClaims = {
    {"no cost", "cost", [](Hooks& h) { h.cost = [](Index, Index) { return 0.0; }; }},
    {"a cost that is no number", "cost", [](Hooks& h) { h.cost = [](Index, Index) { return NAN; }; }},
    {"a cost that falls", "cost",
     [](Hooks& h) { h.cost = [](Index n, Index) { return 1e6 / static_cast<double>(n); }; }},
    {"all pairs in memory for the cost of a few", "cost",
     [](Hooks& h) { h.cost = [](Index, Index size) { return static_cast<double>(size); }; }, 1000},
    {"all pairs in memory for the cost of n to 3 / 2", "cost",
     [](Hooks& h) { h.cost = [](Index n, Index) { return std::pow(static_cast<double>(n), 0.25); }; }, 1000},
    {"no name", "members", [](Hooks& h) { h.name = ""; }},
    {"a name of two lines", "members", [](Hooks& h) { h.name = "my\nattention"; }},
    {"causal only, and not causal", "refuses",
     [](Hooks& h) { h.can.causal = h.can.state = false, h.can.causal_only = true; }},
    {"random numbers of its own", "members",
     [](Hooks& h) {
       static std::uint64_t made = 0;
       h.output = [by = Rng(++made).uniform()](const Tensor& y, const Tensor&, const Call&) { return y * (1 + by); };
     }},
};

MechanismFactory hooked(const std::function<void(Hooks&)>& put_in) {
  return [put_in](Index, Rng&) {
    Hooks h;
    if (put_in) put_in(h);
    return Hooked{h};
  };
}

ConformanceOptions options_of(const Fault& fault) {
  ConformanceOptions o{.longest = fault.longest, .only = {fault.check}};
  if (std::string(fault.what) == "sizes beyond 64 are cut") o.reference = naive_mechanism("softmax", {});
  return o;
}

void find(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    const ConformanceReport report = check_conformance(hooked(fault.put_in), options_of(fault));
    std::ostringstream text;
    text << fault.what << "\n" << report;
    INFO(text.str());
    CHECK(report.failed() == std::vector<std::string>{fault.check});
  }
}

}  // namespace

TEST_CASE("conformance zoo: the mechanism without a fault passes, at several seeds") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const ConformanceReport report = check_conformance(
        hooked({}), {.longest = seed == 1 ? 600 : 150, .seed = seed, .reference = naive_mechanism("softmax", {})});
    std::ostringstream text;
    text << report;
    INFO(text.str());
    CHECK(report.failed().empty());
    CHECK(report.checks.size() == conformance_checks().size());
  }
}

TEST_CASE("conformance zoo: masks") { find(kMasks); }
TEST_CASE("conformance zoo: gradients") { find(kGradients); }
TEST_CASE("conformance zoo: causality") { find(kCausal); }
TEST_CASE("conformance zoo: padding and rows without keys") { find(kPadding); }
TEST_CASE("conformance zoo: dropout") { find(kDropout); }
TEST_CASE("conformance zoo: weights") { find(kWeights); }
TEST_CASE("conformance zoo: states") { find(kStates); }
TEST_CASE("conformance zoo: calls") { find(kCalls); }
TEST_CASE("conformance zoo: shapes") { find(kShapes); }
TEST_CASE("conformance zoo: numbers") { find(kNumbers); }
TEST_CASE("conformance zoo: claims") { find(kClaims); }

}  // namespace zoo
