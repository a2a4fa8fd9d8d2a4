// Ranks over MPI (Open MPI, MPICH): the processes started by mpirun train one model together. See
// docs/several_processes.md.
//
// Example:
//
//   const std::unique_ptr<Ranks> ranks = join_mpi_ranks();  // null if mpirun did not start the program
//   Rng rng(1);
//   const CopyTask task({.batch = 4, .length = 8});
//   GPT model({.vocabulary = task.vocabulary(), .context = 8,
//              .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2}}}, rng);
//   AdamW optimizer(named_parameters(model));
//   Schedule schedule("constant", {.lr = 1e-2});
//   run(model, optimizer, schedule, task, {}, {.steps = 2, .shards = 4, .ranks = {.communicator = ranks.get()}});
#pragma once
#include <heed/optim/ranks/ranks.hpp>
#include <memory>

namespace heed {

// Options of join_mpi_ranks().
struct MpiOptions {
  // Seconds that a rank may be silent (stopped or cut off) before all other ranks end. A rank that computes is not
  // silent, however long a step takes. Joining may take ten seconds longer. A debugger stops ranks and needs a large
  // value.
  double timeout = 10;

  // Minimum of `timeout`: a rank sends a sign of life once per second, which may be late.
  static constexpr double kMinTimeout = 2;
};

// Initializes MPI and returns the ranks. All communication of this process with other ranks must be between this call
// and the destruction of the result. The destructor waits for all ranks, and finalizes MPI if this call initialized it.
// If mpirun did not bind the process to processors, threads() becomes its share of the processors of its machine.
//
// These errors end all ranks: Ranks::failed(), destruction by an exception, a silent rank, a rank that does not join or
// does not leave. The rank that detects the error writes one line with its number and machine to standard error. Then
// it calls MPI_Abort with exit code 1, or with the code given to Ranks::failed(). While MPI is initialized or
// finalized, the rank exits with code 1 instead, and mpirun ends the others. Rank 0 reports errors that occur on all
// ranks.
//
// Returns null if the program was not started by mpirun or mpiexec. Throws Error if the timeout is not a finite number
// of at least kMinTimeout, if mpirun belongs to another MPI than heed was built with, or if MPI does not support
// threads.
std::unique_ptr<Ranks> join_mpi_ranks(const MpiOptions& options = {});

// Whether mpirun or mpiexec of any MPI started this program.
bool started_by_mpirun();

}  // namespace heed
