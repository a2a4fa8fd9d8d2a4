// Tutorial 1: tensors. A tensor is a handle to numbers in memory, with a shape and strides. Copying a tensor copies the
// handle. Slices and transposes are views: handles to the same numbers.
#include <errno.h>
#include <stdlib.h>

#include <filesystem>
#include <heed/core/array.hpp>  // xtensor arrays; no other header includes xtensor
#include <heed/heed.hpp>
#include <iostream>
#include <system_error>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

void make_and_print() {
  std::cout << "== New tensors\n";
  const Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});  // float32 unless another type is given
  std::cout << "x =\n" << x << "\n";                          // the values, then shape and type
  std::cout << Tensor::arange(4) << "\n" << Tensor::full({2, 2}, 0.5, DType::float64) << "\n";
  // Random numbers depend on the seed and on how many were drawn before, not on the number of threads.
  std::cout << "random: " << Rng(/*seed=*/1).normal({3}) << "\n";
  std::cout << "one element: " << x.at({1, 2}) << "; sum of all " << x.numel() << ": " << sum(x).item() << "\n\n";
}

void look_through_views() {
  std::cout << "== Views share memory\n";
  Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor column = x.slice(1, 1, 2);  // x[:, 1:2]
  const Tensor turned = x.t();       // strides swapped, no values moved
  std::cout << "x has strides " << x.strides() << ", x.t() has " << turned.strides() << "\n";
  column.fill_(0);  // a trailing _ means in place; every view shows the change
  std::cout << "after column.fill_(0), x.t() =\n" << turned << "\n";
  // clone() always copies, view() never. reshape() copies only if strides do not allow a view.
  Tensor own = x.clone();
  own.fill_(9);
  std::cout << "after own.fill_(9), x is still\n" << x << "\n\n";
}

void broadcast_shapes() {
  std::cout << "== Broadcasting\n";
  // Axes are matched from the last. An axis of size 1 is repeated: [2, 1] with [3] gives [2, 3].
  const Tensor rows = Tensor::from({10, 20}, {2, 1}), columns = Tensor::from({1, 2, 3});
  std::cout << "rows + columns =\n" << rows + columns << "\n";
  std::cout << "mean over axis 0: " << mean(rows + columns, {0}) << "\n";
  // Shapes that do not fit throw Error. The message shows the shapes and the line of the call.
  try {
    const Tensor wrong = rows + Tensor::ones({3, 3});
  } catch (const Error& e) {
    std::cout << "Error: " << e.what() << "\n\n";
  }
}

void meet_xtensor() {
  std::cout << "== xtensor arrays\n";
  // array<T>() is a writable xtensor array over the memory of the tensor. All functions of xtensor work on it.
  Tensor x = Tensor::zeros({2, 3});
  x.array<float>() = xt::arange<float>(6).reshape({2, 3});
  x.array<float>() = xt::pow(x.array<float>(), 2.f);
  std::cout << "squares:\n" << x << "\n";
  const Tensor grid(xt::linspace<float>(0, 1, 5));  // an expression becomes a new tensor
  std::cout << "grid: " << grid << "\n\n";
}

void keep_in_a_file(const std::string& file) {
  std::cout << "== NumPy files\n";
  const Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  save_npy(file, x.t());  // numpy.load(file) reads it
  std::cout << "saved to " << file << ", and loaded:\n" << load_npy(file) << "\n";
}

// Makes a new folder among the temporary files: a file of a fixed name could belong to another user.
void keep_in_a_temporary_file() {
  std::string folder = std::filesystem::temp_directory_path() / "heed_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw std::system_error(errno, std::generic_category(), folder);
  keep_in_a_file(folder + "/x.npy");
  std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 1: tensors, views, broadcasting, xtensor arrays, .npy files", argc, argv,
                                {"--npy", "Path of the .npy file [a temporary file]"}, [](const std::string& npy) {
                                  make_and_print();
                                  look_through_views();
                                  broadcast_shapes();
                                  meet_xtensor();
                                  npy.empty() ? keep_in_a_temporary_file() : keep_in_a_file(npy);
                                  return 0;
                                });
}
