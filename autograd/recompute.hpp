// Trades time for memory: what f computes is not kept for backward but computed once more there.
#pragma once
#include <functional>
#include <heed/autograd/tape.hpp>

namespace heed {

// y = f(inputs). During backward f runs again, with the mode, the matrix precision and the random numbers of its first
// run, on a tape of its own. f uses parameters freely, but every other tensor whose gradient matters must be among the
// inputs: one that belongs to the tape and was not given throws Error, for its gradient would be lost. Of what the ops
// in f make, nothing is kept; what they read from outside (parameters, masks, targets) is, and backward throws Error if
// it was written to since. f must be the same function twice: if its second result has other bits than the first,
// backward throws Error. So random numbers are those of default_rng(), which is put back; an Rng of f's own goes on.
// Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016.
Tensor recompute(std::function<Tensor(const std::vector<Tensor>&)> f, const std::vector<Tensor>& inputs,
                 Where where = Where::current());

}  // namespace heed
