// A warm training step requests no memory from the system, neither in heed nor in TBB or the C++ library. This program
// replaces malloc and related functions for the whole process. glibc allows this but sanitizers do not, so sanitizer
// builds leave the program out.
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <heed/heed.hpp>
#include <thread>

#include "tests/support.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<int> requests{0};
void* first_request[32];  // its call stack
std::atomic<int> first_request_depth{0};

void note_request() {
  if (!counting.load(std::memory_order_relaxed)) return;
  if (requests.fetch_add(1) != 0) return;
  counting = false;  // backtrace() may allocate
  first_request_depth = backtrace(first_request, 32);
  counting = true;
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) { return note_request(), __libc_malloc(size); }
void* calloc(std::size_t n, std::size_t size) { return note_request(), __libc_calloc(n, size); }
void* realloc(void* p, std::size_t size) { return note_request(), __libc_realloc(p, size); }
void* memalign(std::size_t alignment, std::size_t size) { return note_request(), __libc_memalign(alignment, size); }
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** p, std::size_t alignment, std::size_t size) {
  *p = memalign(alignment, size);
  return *p == nullptr ? ENOMEM : 0;
}
void* mmap(void* at, std::size_t size, int protection, int flags, int fd, off_t offset) {
  note_request();
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, protection, flags, fd, offset));
}
void* mmap64(void* at, std::size_t size, int protection, int flags, int fd, off64_t offset) {
  return mmap(at, size, protection, flags, fd, offset);
}
}

using namespace heed;

namespace {

// The number of memory requests during f, by any thread.
template <class F>
int requests_of(F&& f) {
  requests = 0;
  counting = true;
  f();
  counting = false;
  return requests;
}

struct Variant {
  const char* name;
  GPTOptions model;
  bool clip;
  DType precision;
  MechanismFactory mechanism = softmax_mechanism;
  bool muon = false;
};

void print_first_request() {
  std::fprintf(stderr, "the first request of a warm step:\n");
  backtrace_symbols_fd(first_request, first_request_depth, STDERR_FILENO);
}

}  // namespace

TEST_CASE("requests are counted, whichever library makes them") {
  void* volatile kept = nullptr;  // keeps the compiler from removing the calls
  CHECK(requests_of([] {}) == 0);
  CHECK(requests_of([&] { kept = ::operator new(100), ::operator delete(kept); }) == 1);
  CHECK(requests_of([&] { kept = std::calloc(3, 5), std::free(kept); }) == 1);
  CHECK(requests_of([&] { kept = std::aligned_alloc(64, 64), std::free(kept); }) == 1);
  CHECK(requests_of([&] {
          kept = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          munmap(kept, 4096);
        }) == 1);
  CHECK(requests_of([&] { kept = realpath("/", nullptr), std::free(kept); }) >= 1);  // by the C library
  CHECK(requests_of([&] { std::thread([&] { kept = std::malloc(10), std::free(kept); }).join(); }) >= 2);
  const Tensor first = Tensor::empty({123457});
  CHECK(requests_of([&] { Tensor::empty({1234567}); }) >= 1);  // the pool has no block of this size
  CHECK(requests_of([&] { Tensor::empty({1234567}); }) == 0);  // now it has
}

TEST_CASE("a warm batch of a language model makes no request, nor does one that is handed on") {
  Rng rng(1);
  const LanguageModelBatches data(TokenSource(rng.integers({5000}, 0, 65).to_vector<std::int32_t>(), 65),
                                  {.batch = 8, .context = 64});
  Batch kept;
  const auto steps = [&] {
    for (std::uint64_t step = 0; step < 10; ++step) {
      Batch made = data.batch(1, step);
      const Batch copy = made;
      kept = std::move(made);
    }
  };
  steps();
  CHECK(requests_of(steps) == 0);
  CHECK(kept["inputs"].dim(0) == 8);
}

TEST_CASE("a warm training step makes no request at 1 and 2 threads") {
  const GPTOptions model{
      .vocabulary = 65, .context = 64, .blocks = {.layers = 2, .attention = {.width = 64, .heads = 4}}};
  GPTOptions with_dropout = model;
  with_dropout.blocks.dropout = 0.1;
  GPTOptions modern = model;
  modern.blocks.attention.qk_norm = true, modern.positions = PositionKind::rope;
  modern.blocks.activation = FeedForwardKind::relu_squared;
  const Variant variants[] = {
      {"plain", model, false, DType::float32},
      {"dropout, clipped", with_dropout, true, DType::float32},
      {"bf16 products", model, true, DType::bfloat16},
      {"muon", modern, true, DType::bfloat16, softmax_mechanism, true},
      {"inputs of a mechanism", model, false, DType::float32, [](Index, Rng&) { return ForgettingAttention(); }}};
  for (const int n : {1, 2}) {
    set_threads(n);
    for (const Variant& v : variants) {
      Rng rng(1);
      GPT gpt(v.model, rng, v.mechanism);
      std::unique_ptr<Optimizer> optimizer = std::make_unique<AdamW>(decay_groups(gpt, 0.1), AdamWOptions{.lr = 1e-3});
      if (v.muon) optimizer = std::make_unique<Muon>(muon_groups(gpt), MuonOptions{.lr = 1e-2});
      const Tensor x = rng.integers({8, 64}, 0, 65), y = rng.integers({8, 64}, 0, 65);
      double loss = 0;
      const auto step = [&] {
        const MatmulPrecision scope(v.precision);
        Tape tape;
        const Tensor l = gpt.loss(x, y);
        tape.backward(l);
        loss = l.item();
        v.clip ? (void)optimizer->clipped_step(1) : optimizer->step();
        optimizer->zero_grad();
      };
      for (int i = 0; i < 5; ++i) step();
      const double warm = loss;
      const int made = requests_of([&] {
        for (int i = 0; i < 10; ++i) step();
      });
      INFO(v.name, " with ", n, " threads");
      CHECK(made == 0);
      if (made != 0) print_first_request();
      CHECK(loss < warm);
    }
  }
  set_threads(0);
}

TEST_CASE("a warm training step makes no request while no profile is on, before one and after one") {
  Rng rng(1);
  GPT gpt({.vocabulary = 65, .context = 64, .blocks = {.layers = 2, .attention = {.width = 64, .heads = 4}}}, rng);
  AdamW optimizer(decay_groups(gpt, 0.1), {.lr = 1e-3});
  const Tensor x = rng.integers({8, 64}, 0, 65), y = rng.integers({8, 64}, 0, 65);
  const auto steps = [&] {
    for (int i = 0; i < 5; ++i) {
      {
        Tape tape;
        tape.backward(gpt.loss(x, y));
      }
      (void)optimizer.clipped_step(1);
      optimizer.zero_grad();
    }
  };
  steps();
  CHECK(requests_of(steps) == 0);
  {
    Profile profile;
    CHECK(requests_of(steps) > 0);  // a profile stores records
  }
  CHECK(requests_of(steps) == 0);
}
