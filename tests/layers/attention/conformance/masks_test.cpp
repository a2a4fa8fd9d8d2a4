// Wrong mechanisms with faults in masks, causality, padding and rows without keys.
#include <heed/heed.hpp>

#include "tests/layers/attention/conformance_zoo.hpp"
#include "tests/layers/attention/hooked_attention.hpp"
#include "tests/layers/attention/naive_mechanisms.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

const std::vector<Fault<Hooks>> kMasks = {
    {"the key mask is ignored with lengths", "padding", with_changed_call([](Call& c) {
       if (c.key_lengths.defined()) c.key_mask = {};
     })},
    {"lengths are ignored with a key mask", "padding", with_changed_call([](Call& c) {
       if (c.key_mask.defined()) c.key_lengths = {};
     })},
    {"the mask is ignored with a key mask", "masks", with_changed_call([](Call& c) {
       if (c.key_mask.defined()) c.mask = {};
     })},
    {"the key mask is ignored with a mask", "masks", with_changed_call([](Call& c) {
       if (c.mask.defined()) c.key_mask = {};
     })},
    {"the mask is ignored where it is causal", "masks", with_changed_call([](Call& c) {
       if (c.causal) c.mask = {};
     })},
    {"the mask is ignored with a bias", "masks", with_changed_call([](Call& c) {
       if (c.bias.defined()) c.mask = {};
     })},
    {"the bias is ignored with a mask", "masks", with_changed_call([](Call& c) {
       if (c.mask.defined()) c.bias = {};
     })},
    {"the bias is ignored with lengths", "masks", with_changed_call([](Call& c) {
       if (c.key_lengths.defined()) c.bias = {};
     })},
    {"lengths are ignored where it is causal", "padding", with_changed_call([](Call& c) {
       if (c.causal) c.key_lengths = {};
     })},
    {"a mask turns causal off", "masks", with_changed_call([](Call& c) {
       if (c.mask.defined()) c.causal = false;
     })},
    {"a key mask turns causal off", "masks", with_changed_call([](Call& c) {
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
    {"mask or key mask, not both", "masks", with_changed_call([](Call& c) {
       if (!c.mask.defined() || !c.key_mask.defined()) return;
       c.mask = logical_or(c.mask, c.key_mask.unsqueeze(1).unsqueeze(1)), c.key_mask = {};
     })},
    {"the first head's mask serves all", "masks", with_changed_call([](Call& c) {
       if (c.mask.defined() && c.mask.rank() >= 3) c.mask = c.mask.slice(-3, 0, 1);
     })},
    {"the first sequence's mask serves all", "masks", with_changed_call([](Call& c) {
       if (c.mask.defined() && c.mask.rank() == 4) c.mask = c.mask.slice(0, 0, 1);
     })},
    {"the first head's bias serves all", "masks", with_changed_call([](Call& c) {
       if (c.bias.defined() && c.bias.rank() == 4) c.bias = c.bias.slice(1, 0, 1);
     })},
    {"a mask of rank 1 is ignored", "masks", with_changed_call([](Call& c) {
       if (c.mask.defined() && c.mask.rank() == 1) c.mask = {};
     })},
    {"a bias of rank 2 is ignored", "masks", with_changed_call([](Call& c) {
       if (c.bias.defined() && c.bias.rank() == 2) c.bias = {};
     })},
    {"a mask with strides of 0 is read in order", "masks", with_changed_call([](Call& c) {
       if (!c.mask.defined() || c.mask.is_contiguous() || c.mask.rank() != 4) return;
       Tensor read = c.mask.dense().clone();  // beyond the end of the data all is true
       const Index size = c.mask.dim(2) * c.mask.dim(3);
       for (Index i = size; i < read.numel(); ++i) read.ptr<bool>()[i] = true;
       c.mask = read;
     })},
    {"a bias with strides of 0 is read in order", "masks", with_changed_call([](Call& c) {
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

// Equivalent calls agree for these faults too. Only a reference finds them.
const std::vector<Fault<Hooks>> kMeanings = {
    {"the bias is ignored", "reference", with_changed_call([](Call& c) { c.bias = {}; })},
    {"the bias is subtracted", "reference", with_changed_call([](Call& c) {
       if (c.bias.defined()) c.bias = -c.bias;
     })},
    {"the bias is scaled as the scores are", "reference", with_changed_call([](Call& c) {
       if (c.bias.defined()) c.bias = c.bias / std::sqrt(8.0);
     })},
    {"masks hide nothing but whole rows", "reference",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call& c) {
         if (!c.mask.defined()) return;
         c.mask = logical_or(c.mask, sum(allowed_pairs(q, k, c).to(q.dtype()), {-1}, true) > 0);
       });
     }},
};

const std::vector<Fault<Hooks>> kCausal = {
    {"the future from position 512 on", "causal",
     sees([](bool was, Index i, Index j, Index, Index S) { return was || (i >= 512 && j < S); }), 600},
    {"the next key at the border of a block of 256", "causal",
     sees([](bool was, Index i, Index j, Index, Index) { return was || (i % 256 == 255 && j == i + 1 && j < 300); }),
     600},
    {"the last 60 of 600 see one another", "causal",
     sees([](bool was, Index i, Index j, Index T, Index) { return was || (T == 600 && i > 540 && j > 540); }), 600},
    {"the gradient leaks beyond 200 positions", "causal",
     gradient_of('v', [](const Tensor& d) { return d.dim(2) > 200 ? d + mean(d, {2}, true) * 1e-9 : d; }), 600},
    {"one key ahead where T < S", "causal",
     sees([](bool was, Index i, Index j, Index T, Index S) { return was || (T < S && j == i + S - T + 1); })},
    {"one key ahead where heads share keys", "causal",
     [](Hooks& h) {
       h.repeat = [](const Tensor& x, Index heads) {
         const Tensor y = detail::repeat_heads(x, heads);
         if (x.dim(1) == heads) return y;
         return y + concatenate({y.slice(2, 1, y.dim(2)), y.slice(2, 0, 1)}, 2).detach() * 1e-6;
       };
     }},
    {"causal is forgotten with all masks", "causal", with_changed_call([](Call& c) {
       if (c.mask.defined() && c.bias.defined() && c.key_mask.defined()) c.causal = false;
     })},
    {"only large later tokens are seen", "causal", outputs([](const Tensor& y, const Tensor& v, const Call& c) {
       return c.causal ? y + maximum(max(v.detach(), {2, 1}, true) - 7.0, 0.0) * 1e-3 : y;
     })},
    {"the beginnings are aligned where T > S", "empty rows",
     sees([](bool was, Index i, Index j, Index T, Index S) { return T > S ? j <= i : was; })},
};

const std::vector<Fault<Hooks>> kPadding = {
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
    {"NaN in rows without keys", "empty rows",
     [](Hooks& h) { h.weights = [](const Tensor& w, const Call&) { return w / sum(w, {-1}, true); }; }},
    {"NaN in rows without keys where T < S", "empty rows",
     [](Hooks& h) {
       h.weights = [](const Tensor& w, const Call& c) {
         if (!c.key_lengths.defined() || w.dim(2) == w.dim(3)) return w;
         return w / sum(w, {-1}, true);
       };
     }},
};

}  // namespace

TEST_CASE("conformance zoo: masks") { find<Hooked>(kMasks); }
TEST_CASE("conformance zoo: what masks and biases mean") {
  find<Hooked>(kMeanings, {.reference = naive_mechanism("softmax", {})});
}
TEST_CASE("conformance zoo: causality") { find<Hooked>(kCausal); }
TEST_CASE("conformance zoo: padding and rows without keys") { find<Hooked>(kPadding); }
