// Walking a model: names, shared and absent parameters, buffers, freezing, and Parameter itself.
#include <heed/core/members.hpp>
#include <heed/core/random.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

Parameter ones(const Shape& shape) { return Parameter(Tensor::ones(shape)); }

struct Leaf {
  Parameter weight = ones({2, 3}), bias;  // no bias
  Tensor count = Tensor::zeros({1}, DType::int32);
  void members(auto&& visit) {
    visit("weight", weight);
    visit("bias", bias);
    visit.buffer("count", count);
  }
};

struct Tree {
  Parameter scale = ones({});
  std::vector<Leaf> leaves;
  std::optional<Leaf> maybe, never;
  std::unique_ptr<Leaf> owned = std::make_unique<Leaf>(), nothing;
  std::vector<std::unique_ptr<Leaf>> many;
  std::vector<Parameter> list;

  Tree() {
    leaves.resize(2);
    maybe.emplace();
    many.push_back(std::make_unique<Leaf>());
    list.push_back(ones({4}));
  }
  void members(auto&& visit) {
    visit("scale", scale);
    visit("leaves", leaves);
    visit("maybe", maybe);
    visit("never", never);
    visit("owned", owned);
    visit("nothing", nothing);
    visit("many", many);
    visit("list", list);
  }
};

// A model whose members() is in a source file and is not a template.
struct Plain {
  Leaf left, right;
  Tensor seen = Tensor::zeros({2});
  void members(MemberVisitor& visit) {
    visit(std::string("left"), left);
    visit("right", right);
    visit.buffer("seen", seen);
  }
};

template <class M>
std::vector<std::string> paths_of(M& tree) {
  std::vector<std::string> list;
  for (const NamedParameter& p : named_parameters(tree)) list.push_back(p.name);
  return list;
}

}  // namespace

TEST_CASE("members: every parameter has its path, through vectors, optionals and pointers") {
  Tree tree;
  CHECK(paths_of(tree) == std::vector<std::string>{"scale", "leaves.0.weight", "leaves.1.weight", "maybe.weight",
                                                   "owned.weight", "many.0.weight", "list.0"});
  CHECK(tree.leaves[1].weight.path() == "leaves.1.weight");
  CHECK(parameter_count(tree) == 1 + 5 * 6 + 4);
  CHECK(parameters(tree).size() == 7);
  CHECK(parameters(tree)[6] == &tree.list[0]);
  std::vector<std::string> buffers;
  for (const NamedBuffer& b : named_buffers(tree)) buffers.push_back(b.name);
  CHECK(buffers ==
        std::vector<std::string>{"leaves.0.count", "leaves.1.count", "maybe.count", "owned.count", "many.0.count"});
  CHECK(named_buffers(tree)[2].buffer == &tree.maybe->count);
}

TEST_CASE("members: members() may be a function in a source, and the layers of a vector are numbered") {
  Plain plain;
  CHECK(paths_of(plain) == std::vector<std::string>{"left.weight", "right.weight"});
  CHECK(named_buffers(plain).back().name == "seen");
  CHECK(named_buffers(plain).front().buffer == &plain.left.count);
  std::vector<Plain> two(2);
  CHECK(paths_of(two) ==
        std::vector<std::string>{"0.left.weight", "0.right.weight", "1.left.weight", "1.right.weight"});
  CHECK(named_buffers(two).back().name == "1.seen");
}

TEST_CASE("members: a tied parameter is one, under its first name") {
  Tree tree;
  tie(tree.leaves[0].weight, tree.maybe->weight);
  CHECK(paths_of(tree) == std::vector<std::string>{"scale", "leaves.0.weight", "leaves.1.weight", "owned.weight",
                                                   "many.0.weight", "list.0"});
  CHECK(tree.maybe->weight.path() == "leaves.0.weight");
  CHECK(named_parameters(tree)[1].others == std::vector<std::string>{"maybe.weight"});
  CHECK(named_parameters(tree)[2].others.empty());
  tree.maybe->weight.fill_(5);
  CHECK(tree.leaves[0].weight.at({1, 2}) == 5);
  tree.maybe->weight.requires_grad_(false);
  CHECK(!tree.leaves[0].weight.requires_grad());
  CHECK(contains(error_of([&] { tie(tree.scale, tree.list[0]); }),
                 "tie: a is [] float32 and b is [4] float32; shapes and dtypes must be the same"));
  Parameter wide(Tensor::ones({}, DType::float64));
  CHECK(contains(error_of([&] { tie(tree.scale, wide); }), "b is [] float64"));
}

TEST_CASE("members: freezing a part stops and resumes its training") {
  Tree tree;
  freeze(tree.leaves[0]);
  CHECK(!tree.leaves[0].weight.requires_grad());
  CHECK(tree.leaves[1].weight.requires_grad());
  freeze(tree);
  for (const Parameter* p : parameters(tree)) CHECK(!p->requires_grad());
  freeze(tree, false);
  for (const Parameter* p : parameters(tree)) CHECK(p->requires_grad());
}

TEST_CASE("members: a parameter owns its values and is not copied by accident") {
  static_assert(!std::is_copy_constructible_v<Parameter> && !std::is_copy_assignable_v<Parameter>);
  static_assert(std::is_nothrow_move_constructible_v<Parameter>);
  const Tensor x = Tensor::arange(6, DType::float32).view({2, 3});
  const Parameter shared(x), turned(x.t()), row(x[1]);
  CHECK(!shared.shares_storage(x));
  CHECK(turned.is_contiguous());
  CHECK(turned.at({2, 1}) == 5);
  CHECK(row.offset() == 0);
  CHECK(row.to_vector<int>() == std::vector<int>{3, 4, 5});
  Tensor alone = Tensor::ones({5});
  const void* memory = alone.raw();
  CHECK(Parameter(std::move(alone)).raw() == memory);  // no copy if no other tensor shares the memory
  Parameter from(Tensor::ones({2}));
  from.set_path("a.b");
  const Parameter moved = std::move(from);
  CHECK(moved.path() == "a.b");
  CHECK(!moved.grad().defined());
  CHECK(
      contains(error_of([&] { from.zero_grad(); }), "Parameter: it is undefined (moved from, or default-constructed)"));
  CHECK(error_of([&] {
          check(false, Where::current(), "op: x is ", moved, "; no");
        }).starts_with("op: x is [2] float32; no (a, members_test.cpp:"));
  CHECK(error_of([&] {
          require(false, "op: x is ", moved, " and ", DType::bool8, " ", Shape{1, 2});
        }) == "op: x is [2] float32 and bool8 [1, 2] (a)");
  CHECK(error_of([&] { fail("file: ", 3, " bytes"); }) == "file: 3 bytes");
}

namespace {

struct Stack {
  Leaf maps, other;
  void members(MemberVisitor& visit) {
    visit.stacked("maps", maps, {1});
    visit("other", other);
  }
};

// A stacked matrix with a layer inside, whose matrix is not stacked.
struct Deep {
  Parameter weight = ones({3, 2});
  std::optional<Leaf> inner = Leaf();
  void members(MemberVisitor& visit) { visit("weight", weight), visit("inner", inner); }
};
struct DeepStack {
  Deep maps;
  void members(MemberVisitor& visit) { visit.stacked("maps", maps, {1, 2}); }
};

}  // namespace

TEST_CASE("members: the layers of a type have their paths, and the rows of stacked maps") {
  Tree tree;
  std::vector<std::string> names;
  for (const NamedLayer<Leaf>& l : named_layers<Leaf>(tree)) names.push_back(l.name);
  CHECK(names == std::vector<std::string>{"leaves.0", "leaves.1", "maybe", "owned", "many.0"});
  CHECK(named_layers<Leaf>(tree)[1].layer == &tree.leaves[1]);
  CHECK(named_layers<Plain>(tree).empty());
  Stack stack;
  const std::vector<NamedLayer<Leaf>> layers = named_layers<Leaf>(stack);
  REQUIRE(layers.size() == 2);
  CHECK(layers[0].parts == std::vector<Index>{1});
  CHECK(layers[1].parts.empty());
  CHECK(named_layers<Stack>(stack).at(0).name.empty());  // the model itself
}

TEST_CASE("members: only the own matrix of a stacked layer is stacked, not that of a layer inside") {
  DeepStack model;
  const std::vector<NamedParameter> all = named_parameters(model);
  REQUIRE(all.size() == 2);
  CHECK(all[0].parts == std::vector<Index>{1, 2});
  CHECK(all[1].name == "maps.inner.weight");
  CHECK(all[1].parts.empty());
}

TEST_CASE("members: trainable parameters are those that are not frozen") {
  Tree tree;
  freeze(tree);
  CHECK(trainable_parameters(tree).empty());
  tree.leaves[1].weight.requires_grad_(true);
  const std::vector<NamedParameter> trainable = trainable_parameters(tree);
  REQUIRE(trainable.size() == 1);
  CHECK(trainable[0].name == "leaves.1.weight");
}

namespace {

// Embeddings, blocks and a norm, as in a GPT.
struct Stacked {
  Parameter tokens = ones({4}), norm = ones({3});
  std::vector<Leaf> blocks;
  Stacked() { blocks.resize(3); }
  void members(MemberVisitor& visit) { visit("tokens", tokens), visit("blocks", blocks), visit("norm", norm); }
};

}  // namespace

TEST_CASE("members: depths of parameters in a stack of blocks, and freezing its lower part") {
  Stacked model;
  CHECK(parameter_depths(named_parameters(model)) == std::vector<Index>{0, 1, 2, 3, 4});
  const auto frozen = [&](Index blocks) {
    freeze(model, false);
    freeze_lower(model, blocks);
    std::vector<std::string> names;
    for (const NamedParameter& p : named_parameters(model))
      if (!p.parameter->requires_grad()) names.push_back(p.name);
    return names;
  };
  CHECK(frozen(0) == std::vector<std::string>{"tokens"});
  CHECK(frozen(2) == std::vector<std::string>{"tokens", "blocks.0.weight", "blocks.1.weight"});
  CHECK(frozen(3).size() == 4);
  CHECK(contains(error_of([&] { frozen(4); }),
                 "freeze_lower: blocks is 4; it must be from 0 to 3, the number of blocks"));
  CHECK(contains(error_of([&] { frozen(-1); }), "freeze_lower: blocks is -1"));
  Tree tree;
  CHECK(contains(error_of([&] { freeze_lower(tree, 1); }),
                 "parameter_depths: no name has a part blocks.N; the model must have blocks"));
  std::vector<NamedParameter> others = named_parameters(model);
  others[1].name = "decoder.blocks.1.weight", others[2].name = "myblocks.2.weight";
  CHECK(parameter_depths(others) == std::vector<Index>{0, 2, 4, 3, 4});
}
