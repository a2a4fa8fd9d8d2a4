// Joins the ranks that mpirun started and runs the work of a program on them.
#include "examples/support/program_ranks.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <heed/core/check.hpp>
#include <heed/core/parallel.hpp>
#include <memory>
#ifdef HEED_HAS_MPI
#include <heed/mpi/mpi_ranks.hpp>
#endif

#include "examples/support/program.hpp"

namespace heed::examples {

namespace {

std::unique_ptr<Ranks> join_ranks() {
#ifdef HEED_HAS_MPI
  MpiOptions options;
  if (const char* seconds = std::getenv("HEED_RANK_TIMEOUT")) {
    const std::string wrong = number(MpiOptions::kMinTimeout).error(seconds);
    if (!wrong.empty()) throw UsageError("HEED_RANK_TIMEOUT, in seconds: " + wrong);
    options.timeout = std::stod(seconds);
  }
  return join_mpi_ranks(options);
#else
  if (const int size = ranks_by_mpirun(); size > 1)
    fail("mpirun started ", size, " processes of this program, which was built without MPI: HEED_MPI was off");
  return nullptr;
#endif
}

void be_silent() {
  const int nowhere = ::open("/dev/null", O_WRONLY);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    require(nowhere >= 0 && ::dup2(nowhere, stream) >= 0,
            "standard output and error cannot be redirected to /dev/null");
  ::close(nowhere);
}

}  // namespace

int run_on_ranks(int threads, const std::function<int(Ranks*)>& work, const CommandLine* line) {
  const std::unique_ptr<Ranks> ranks = join_ranks();
  if (ranks == nullptr || threads > 0) set_threads(threads);
  if (ranks == nullptr) return work(nullptr);
  try {
    if (!is_first(ranks.get()))
      be_silent();
    else if (line != nullptr)
      check_files(*line, {});
    return work(ranks.get());
  } catch (const std::exception& e) {
    const bool usage = dynamic_cast<const UsageError*>(&e) != nullptr || dynamic_cast<const FileError*>(&e) != nullptr;
    ranks->failed(e.what(), usage ? 2 : 1);
    throw;
  }
}

}  // namespace heed::examples
