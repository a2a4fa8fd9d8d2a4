// Wrong mechanisms with faults in gradients, shapes and numerical accuracy.
#include <heed/heed.hpp>

#include "tests/layers/attention/conformance_zoo.hpp"
#include "tests/layers/attention/hooked_attention.hpp"
#include "tests/layers/attention/naive_mechanisms.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

const std::vector<Fault<Hooks>> kGradients = {
    {"the gradient of k beyond 64 positions", "direction",
     gradient_of('k', [](const Tensor& d) { return scaled_from(d, 2, 64, 0.9); }), 130},
    {"the gradient of v beyond 64 positions", "direction",
     gradient_of('v', [](const Tensor& d) { return scaled_from(d, 2, 64, 1.01); }), 130},
    {"the gradient of v at one position", "direction",
     gradient_of('v', [](const Tensor& d) { return d.dim(2) == 1 ? d * 2 : d; })},
    {"the gradient of k beyond 256 positions", "direction",
     gradient_of('k', [](const Tensor& d) { return d.dim(2) > 256 ? d * 0.999 : d; }), 300},
    {"the gradient of v beyond 512 positions", "direction",
     gradient_of('v', [](const Tensor& d) { return d.dim(2) > 512 ? scaled_from(d, 2, 512, 0) : d; }), 700},
    {"the gradient of the bias beyond the sixth column", "direction", with_changed_call([](Call& c) {
       if (!c.bias.defined() || c.bias.dim(-1) <= 6 || c.bias.rank() != 3) return;
       c.bias = regrad(c.bias, [](const Tensor& d) { return scaled_from(d.unsqueeze(0), 3, 6, 0)[0]; });
     }),
     130},
    {"the gradient of the bias of the last head", "direction", with_changed_call([](Call& c) {
       if (!c.bias.defined() || c.bias.rank() != 3 || c.bias.dim(-1) < 20) return;
       c.bias = regrad(c.bias, [](const Tensor& d) { return scaled_from(d.unsqueeze(0), 1, 3, 0)[0]; });
     }),
     130},
    {"the gradient of a key bias with all masks", "gradient", with_changed_call([](Call& c) {
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
};

const std::vector<Fault<Hooks>> kShapes = {
    {"the third sequence is the second", "batch", outputs([](const Tensor& y, const Tensor&, const Call&) {
       return y.dim(0) > 2 ? concatenate({y.slice(0, 0, 2), y.slice(0, 1, y.dim(0) - 1)}, 0) : y;
     })},
    {"sequences see one another", "batch",
     outputs([](const Tensor& y, const Tensor&, const Call&) { return y + mean(y, {0}, true) * 1e-6; })},
    {"the gradient of v is summed over the sequences", "batch",
     gradient_of('v', [](const Tensor& d) { return d + (mean(d, {0}, true) - d) * 1e-6; })},
    {"odd columns of v beyond 32, with masks", "batch", outputs([](const Tensor& y, const Tensor&, const Call& c) {
       return y.dim(3) > 32 && c.mask.defined() ? flip(y, {3}) : y;
     })},
    {"sizes beyond 64 are cut", "sizes",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) {
         if (q.dim(3) > 64) q = scaled_from(q, 3, 64, 0);
       });
     }},
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
         return detail::repeat_heads(x, heads) * (x.dim(1) == 1 && heads > 1 ? 1.01 : 1.0);
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
    {"values are read as if they had no gaps", "views",
     [](Hooks& h) {
       inputs(h, [](Tensor&, Tensor&, Tensor& v, Call&) {
         v = v.as_strided(v.shape(), contiguous_strides(v.shape()), v.offset());
       });
     }},
    {"batches are taken to lie side by side", "views",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) {
         if (!q.is_contiguous() && q.strides()[1] != 0) q = q * 1.01;
       });
     }},
};

const std::vector<Fault<Hooks>> kNumbers = {
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
    {"a bias of few bits", "float32", with_changed_call([](Call& c) {
       if (c.bias.defined() && c.bias.dtype() == DType::float32) c.bias = in_bfloat16(c.bias);
     })},
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
    {"values are divided by their largest", "zero vectors",
     [](Hooks& h) {
       h.output = [](const Tensor& y, const Tensor& v, const Call&) {
         const Tensor max_value = max(abs(v.detach())).detach();
         return y / max_value * max_value;
       };
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

}  // namespace

TEST_CASE("conformance zoo: gradients") { find<Hooked>(kGradients); }
TEST_CASE("conformance zoo: shapes") {
  // With a reference, because no other check finds that queries alone are cut.
  find<Hooked>(kShapes, {.reference = naive_mechanism("softmax", {})});
}
TEST_CASE("conformance zoo: numbers") { find<Hooked>(kNumbers); }
