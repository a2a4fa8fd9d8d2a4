// The least loss that is possible on the built-in stories.
#pragma once
#include <heed/data/batches.hpp>
#include <heed/data/stories.hpp>

namespace heed {

struct StoryFloor {
  double loss = 0;  // mean -log p a token, in nats
  // Of the loss as an estimate from so many stories. A model's loss on them may by luck lie a little below the floor;
  // where it lies more than 3 of these below, the model has seen its targets.
  double standard_error = 0;
};

// The floor of the mean loss over the tokens that a whole split counts, or its first `batches` (0: all). The split's
// tokens must be Stories::corpus (or its last part, cut at a line feed) by this tokenizer. Exact for bytes and
// characters; for pieces of words it is the -log p of their text, and so still no more than any model's loss. Throws
// Error for a text of another grammar.
StoryFloor story_floor(const Stories& stories, const WholeSplit& split, const Tokenizer& tokenizer, Index batches = 0);

}  // namespace heed
