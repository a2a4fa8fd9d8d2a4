// The check "documents": rows that hold several documents against each document in a row by itself.
#include <heed/layers/attention/detail/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

// Positions [first, last) of sequence b.
struct Document {
  Index b, first, last;
};

Tensor document_part(const Tensor& x, const Document& d) { return x.slice(0, d.b, d.b + 1).slice(2, d.first, d.last); }

// The document in a row by itself.
Trial document_alone(const Trial& t, const Document& d) {
  Trial one = t;
  for (const NamedBuffer& p : parts(one)) *p.buffer = document_part(*p.buffer, d);
  one.dy = document_part(t.dy, d);
  one.call = {.causal = true};
  return one;
}

Tensor document_begins(const std::vector<Document>& documents, Index rows, Index length) {
  Tensor begins = Tensor::empty({rows, length}, DType::int32);
  for (const Document& d : documents)
    for (Index i = d.first; i < d.last; ++i)
      begins.ptr<std::int32_t>()[d.b * length + i] = static_cast<std::int32_t>(d.first);
  return begins;
}

}  // namespace

void check_documents(Subject& s, Finding& f) {
  if (!f.declared(s.can().documents, "documents")) return;
  const Index n = s.at_most(90), cut = n * 2 / 5;
  const std::vector<Document> documents = {{0, 0, cut}, {0, cut, n}, {1, 0, 1}, {1, 1, n}};
  for (const Index shared : s.sharings())
    for (const DType dtype : {DType::float64, DType::float32}) {
      const AttentionCall call{.causal = true, .documents = document_begins(documents, 2, n)};
      const Trial t = s.with_call(s.trial({n, n, 2, shared}), {"documents", call});
      f.about(t);
      const Outcome all = s.run(t, dtype);
      for (const Document& d : documents) {
        if (d.first == d.last) continue;
        Trial one = document_alone(t, d);
        const Outcome own = s.run(one, dtype);
        f.close("a document in its row against the document alone", document_part(all.out, d), own.out, rounding(dtype),
                share_of(s));
        if (dtype == DType::float32) continue;  // terms of gradients cancel, by any share
        for (const NamedBuffer& p : parts(one))
          f.close("gradient of " + p.name + " in a document", document_part(all.gradients.at(p.name), d),
                  own.gradients.at(p.name), rounding(dtype), share_of(s));
      }
    }
}

}  // namespace heed::detail::conformance
