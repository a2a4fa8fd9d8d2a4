// The interface of ranks, the processes that train one model together, and the options of a run with ranks. heed::mpi
// implements it over MPI (mpi/mpi_ranks.hpp). docs/several_processes.md explains how a run is divided.
//
// Example:
//
//   struct Alone : Ranks {  // a single rank, which exchanges nothing
//     Alone() : Ranks(0, 1) {}
//     std::string host() const override { return "here"; }
//     void failed(const std::string&, int) override {}
//     std::unique_ptr<Exchange> begin(std::span<const Outgoing>, std::span<const Incoming>, int) override {
//       return nullptr;  // done
//     }
//   } ranks;
//   Rng rng(1);
//   const CopyTask task({.batch = 4, .length = 8});
//   GPT model({.vocabulary = task.vocabulary(), .context = 8,
//              .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2}}}, rng);
//   AdamW optimizer(named_parameters(model));
//   Schedule schedule("constant", {.lr = 1e-2});
//   run(model, optimizer, schedule, task, {}, {.steps = 2, .shards = 4, .ranks = {.communicator = &ranks}});
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <heed/core/dtype.hpp>
#include <memory>
#include <span>
#include <string>

namespace heed {

// Bytes to send to another rank, and memory for bytes from another rank. The bytes that rank a sends to rank b in an
// exchange are those that b receives from a in the same exchange, in the same order and sizes.
struct Outgoing {
  int rank = {};           // receiver
  const void* bytes = {};  // memory to read
  std::size_t count = {};  // number of bytes
};
struct Incoming {
  int rank = {};           // sender
  void* bytes = {};        // memory to write
  std::size_t count = {};  // number of bytes
};

// One process of a run, and its communication with the others. A transport derives from this class.
class Ranks {
 public:
  virtual ~Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }  // of this process, 0 to size() - 1; rank 0 logs, shows progress and writes files
  int size() const { return size_; }  // number of ranks
  virtual std::string host() const = 0;  // name of this process's machine, for messages

  // An exchange in progress. Its memory must stay valid, and the caller must not change it, until it is done.
  class Exchange {
   public:
    virtual ~Exchange() = default;
    // Makes progress, and returns whether all bytes are sent and received. Throws Error if a rank does not answer.
    virtual bool done() = 0;
  };
  // Starts an exchange; null if it is done already. Several may be in progress: all ranks start the exchanges of a
  // channel in the same order, and call done() in this order. Exchanges of different channels do not wait for each
  // other. Any thread may call start() and done(), one at a time per channel.
  std::unique_ptr<Exchange> start(std::span<const Outgoing> out, std::span<const Incoming> in, int channel);
  // Makes an exchange on channel 0 and returns when it is done.
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in);

  // Whether this rank and the other one can read each other's memory: processes of one machine, if the system permits
  // it.
  virtual bool shares_memory_with(int /*rank*/) const { return false; }
  // Copies bytes from an address in the other rank's memory, without its help and on any thread. The other rank must
  // not change the bytes until it is notified that they were read. Throws Error if they cannot be read.
  virtual void read(int rank, const void* from, void* to, std::size_t count) const;

  // Bytes sent by this rank so far, in exchanges that were started. Bytes that other ranks read() do not count.
  std::uint64_t bytes_sent() const { return bytes_sent_; }

  // Reports that this rank cannot continue, so that other ranks do not wait for it. run() calls it before it throws.
  // The program ends with this exit code: 2 for flags and names of files, which are wrong on every rank.
  virtual void failed(const std::string& reason, int exit_code = 1) = 0;

 protected:
  // For transports: this process is rank `rank` of `size`.
  Ranks(int rank, int size) : rank_(rank), size_(size) {}
  // Implements start().
  virtual std::unique_ptr<Exchange> begin(std::span<const Outgoing> out, std::span<const Incoming> in, int channel) = 0;

 private:
  int rank_, size_;
  std::atomic<std::uint64_t> bytes_sent_ = 0;
};

// The ranks of a run (RunOptions::ranks).
//
// All ranks call run() with the same arguments. Each rank computes a part of the shards and of the evaluations, and
// keeps a part of the optimizers' state, also after the run. Then only another run with these ranks can make steps of
// the optimizers. There must be at least one shard per rank. Weights, results and the checkpoint have the same bits as
// with one process. Only rank 0 logs, shows progress and writes files; all ranks read the file to resume from.
// Callbacks are called on all ranks and must do the same there.
//
// Like RunOptions::shards, `dtype` changes the results, with any number of ranks. bfloat16 halves the bytes: each
// gradient and each sum of gradients in the tree is rounded to bfloat16, except the sum over all shards. So a gradient
// is not rounded if there is one shard. The change that a step makes to each weight is rounded, too. Weights must be
// float32, and weights and sums stay float32.
struct RankOptions {
  Ranks* communicator = nullptr;  // connects this process with the others; null: this process is the only rank
  DType dtype = DType::float32;   // of the data that ranks exchange: float32 or bfloat16
};

}  // namespace heed
