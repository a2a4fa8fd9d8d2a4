// An encoder that gives a sequence one of a few classes.
#pragma once
#include <heed/layers/gpt.hpp>

namespace heed::examples {

// The sequences of a classifier.
struct SequenceClasses {
  Index classes = 2;
  std::int32_t padding = 0;  // the token after the end of a shorter sequence
  bool pairs = false;        // a row holds two sequences of equal size, padded each; the class is of both
};

// The mean of an encoder's output over the tokens that are not padding, and a linear layer. Of two sequences a and b,
// which are encoded one by one, the layer reads (a, b, a * b, |a - b|): Tay et al., "Long Range Arena", 2020, section
// 2.2.3.
class SequenceClassifier {
 public:
  BERT encoder;
  Linear head;  // [classes, width], or [classes, 4 width] for pairs

  SequenceClassifier(const BERTOptions& options, const SequenceClasses& classes, Rng& rng,
                     const MechanismFactory& mechanism);

  Tensor operator()(In x) const;  // int32 [B, T] -> logits [B, classes]; for pairs [B, 2 T]
  Tensor loss(In x, In y) const;  // the cross-entropy with classes y: int32 [B]

  void members(auto&& visit) {
    visit("encoder", encoder);
    visit("head", head);
  }

 private:
  Tensor means(In x) const;  // int32 [B, T] -> [B, width]

  SequenceClasses classes_;
};

}  // namespace heed::examples
