// Processes that train one model together, the ranks of a run (RunOptions::ranks): what it needs of them. Over MPI it
// is heed::mpi, mpi/mpi_ranks.hpp; docs/several_processes.md explains how a run is divided.
//
// Example:
//
//   struct Alone : Ranks {  // one rank, which has nobody to talk to
//     Alone() : Ranks(0, 1) {}
//     std::string host() const override { return "here"; }
//     void failed(const std::string&, int) override {}
//     std::unique_ptr<Exchange> begin(std::span<const Outgoing>, std::span<const Incoming>, int) override {
//       return nullptr;  // done
//     }
//   } ranks;
//   Rng rng(1);
//   const CopyTask task({.batch = 4, .length = 8});
//   GPT model({.vocabulary = task.vocabulary(), .context = 8, .layers = 1, .heads = 2, .width = 16}, rng);
//   AdamW optimizer(named_parameters(model));
//   Schedule schedule("constant", {.lr = 1e-2});
//   run(model, optimizer, schedule, task, {}, {.steps = 2, .shards = 4, .ranks = &ranks});
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace heed {

// Bytes for another rank, and memory for those of another. What one rank sends to another in an exchange, the other
// receives in the same exchange, in the same order and sizes.
struct Outgoing {
  int rank = {};
  const void* bytes = {};
  std::size_t count = {};
};
struct Incoming {
  int rank = {};
  void* bytes = {};
  std::size_t count = {};
};

class Ranks {
 public:
  virtual ~Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }  // of this process, 0 to size() - 1; rank 0 logs, draws and writes
  int size() const { return size_; }
  virtual std::string host() const = 0;  // of this process, for messages

  // An exchange that is under way. What is sent and received stays where it is until it is done.
  class Exchange {
   public:
    virtual ~Exchange() = default;
    // Moves it on, and says whether all is sent and received. Throws Error where a rank does not answer.
    virtual bool done() = 0;
  };
  // Several may be under way at once: all ranks start those of a channel in the same order, and ask in that order
  // whether they are done. Those of different channels do not wait for each other. Any thread may call it and done(),
  // for a channel one at a time.
  std::unique_ptr<Exchange> start(std::span<const Outgoing> out, std::span<const Incoming> in, int channel);
  // Returns when it is done: of channel 0.
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in);

  // Whether this rank reads what that one has in memory, and that one what this one has: processes of one machine,
  // where the system lets them.
  virtual bool shares_memory_with(int /*rank*/) const { return false; }
  // Copies bytes from an address that the other rank has told, without its help and on any thread. The other leaves
  // them as they are until it is told that they were read. Throws Error where they cannot be.
  virtual void read(int rank, const void* from, void* to, std::size_t count) const;

  // By this rank so far, of exchanges that were started. What another one reads is not sent.
  std::uint64_t bytes_sent() const { return bytes_sent_; }

  // This rank cannot go on, for this reason, and the others must not wait for it. run() calls it before it throws.
  // The program ends with this exit code: 2 is for flags and names of files, which are wrong on every rank.
  virtual void failed(const std::string& reason, int exit_code = 1) = 0;

 protected:
  Ranks(int rank, int size) : rank_(rank), size_(size) {}
  // What start() does. Null: it is done.
  virtual std::unique_ptr<Exchange> begin(std::span<const Outgoing> out, std::span<const Incoming> in, int channel) = 0;

 private:
  int rank_, size_;
  std::atomic<std::uint64_t> bytes_sent_ = 0;
};

}  // namespace heed
