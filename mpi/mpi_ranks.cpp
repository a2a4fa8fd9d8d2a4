// Implements ranks over MPI. Several threads call MPI: the training thread, a thread that progresses messages at the
// same time (optim/ranks/exchange_thread.hpp), and a thread that sends a sign of life to a neighbour each second. So a
// waiting rank need not guess how long other ranks may compute.
#include <mpi.h>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <heed/core/check.hpp>
#include <heed/core/clock.hpp>
#include <heed/core/parallel.hpp>
#include <heed/mpi/mpi_ranks.hpp>
#include <initializer_list>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace heed {
namespace {

using detail::seconds_now;

int first_number_of(std::initializer_list<const char*> variables) {
  for (const char* name : variables)
    if (const char* text = std::getenv(name)) return std::atoi(text);
  return 0;
}

// The number of ranks according to mpirun; 0: mpirun did not start this process.
int size_by_environment() { return first_number_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}); }

int rank_by_environment() { return first_number_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}); }

std::string name_of_host() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

// Writes the line that a rank prints when all ranks end. mpi/keep_running searches for the beginning of this line.
void report(int stream, int rank, int size, const std::string& host, const std::string& reason) {
  ::dprintf(stream, "rank %d of %d on %s: %s\n", rank, size, host.c_str(), reason.c_str());
}

// Ends this process if `seconds` pass between construction and destruction. Guards calls in which MPI waits for all
// ranks without limit and in which MPI_Abort is not available: initialization and finalization. Time in which this
// process was stopped does not count, as when the machine sleeps.
class WaitLimit {
 public:
  // done: what all ranks must have done, for the message, which is written to `stream`.
  WaitLimit(double seconds, const char* done, int stream)
      : thread_([seconds, done, stream](const std::stop_token& ended) {
          constexpr auto kSlice = std::chrono::milliseconds(100);
          for (auto left = std::chrono::duration<double>(seconds); left.count() > 0; left -= kSlice)
            if (ends_within(kSlice, ended)) return;
          const int rank = rank_by_environment();
          // Rank 0 reports an error of all ranks. mpirun takes some time to end the other ranks.
          if (rank > 0 && ends_within(std::chrono::seconds(3), ended)) return;
          detail::PlainText what;
          what << "not all ranks have " << done << " within " << seconds << " seconds";
          report(stream, rank, size_by_environment(), name_of_host(), what.str());
          std::_Exit(1);
        }) {}

 private:
  std::jthread thread_;  // stopped and joined by the destructor

  static bool ends_within(std::chrono::milliseconds time, const std::stop_token& ended) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    return std::condition_variable_any().wait_for(lock, ended, time, [&] { return ended.stop_requested(); });
  }
};

// What an MPI function, such as MPI_Comm_rank, writes about a communicator to its last argument.
template <class T>
T result_of(int function(MPI_Comm, T*), MPI_Comm all) {
  T result{};
  function(all, &result);
  return result;
}

class MpiRanks final : public Ranks {
 public:
  MpiRanks(bool finalizes, const MpiOptions& options)
      : Ranks(result_of(MPI_Comm_rank, MPI_COMM_WORLD), result_of(MPI_Comm_size, MPI_COMM_WORLD)),
        finalizes_(finalizes),
        timeout_(options.timeout),
        messages_(result_of(MPI_Comm_dup, MPI_COMM_WORLD)),
        beats_(result_of(MPI_Comm_dup, MPI_COMM_WORLD)),
        stderr_(::dup(STDERR_FILENO)) {
    meet_neighbours();
    if (size() > 1) heart_ = std::jthread([this](const std::stop_token& stop) { beat(stop); });
  }

  ~MpiRanks() override {
    if (std::uncaught_exceptions() > exceptions_) failed("ended by an exception", 1);
    finish();
    heart_ = std::jthread();  // stops and joins the thread
    if (finalizes_) {
      const WaitLimit limit(timeout_, "finalized MPI", stderr_);
      MPI_Finalize();
    }
    ::close(stderr_);
  }

  std::string host() const override { return host_; }

  bool shares_memory_with(int rank) const override { return processes_[static_cast<std::size_t>(rank)] != 0; }

  // Copies from the memory of a rank on this machine. Sleeps after a failure: if the other process has ended, mpirun
  // ends this process within that time.
  void read(int rank, const void* from, void* to, std::size_t count) const override {
    using namespace std::chrono_literals;
    if (!shares_memory_with(rank)) return Ranks::read(rank, from, to, count);
    if (copy_from(processes_[static_cast<std::size_t>(rank)], from, to, count)) return;
    const int reason = errno;
    std::this_thread::sleep_for(3s);
    fail("mpi: the memory of rank ", rank, " cannot be read (", std::strerror(reason), "); its process has ended");
  }

  void failed(const std::string& reason, int exit_code) override {
    using namespace std::chrono_literals;
    if (rank() > 0) std::this_thread::sleep_for(500ms);          // rank 0 reports an error of all ranks
    if (ended_.exchange(true)) std::this_thread::sleep_for(1h);  // the other thread ends all ranks
    report(stderr_, rank(), size(), host_, reason);
    std::this_thread::sleep_for(50ms);  // so that mpirun can pass on the line
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 30;  // max bytes per message, which MPI counts in int

  const int exceptions_ = std::uncaught_exceptions();
  const bool finalizes_;
  const double timeout_;
  const MPI_Comm messages_, beats_;
  const int stderr_;  // for errors, even if the program redirects its standard error
  const std::string host_ = name_of_host();
  std::vector<pid_t> processes_;  // [rank]: process whose memory this rank can read; 0: none
  std::atomic<bool> ended_ = false;
  std::jthread heart_;

  // Sets up sharing with the ranks of this machine.
  void meet_neighbours() {
    MPI_Comm here = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    share_processors(result_of(MPI_Comm_size, here));
    share_memory(here);
    MPI_Comm_free(&here);
  }

  // If the processes of a machine are not bound to processors, each takes its share of them.
  static void share_processors(int neighbours) {
    const int available = available_threads();
    const auto processors = static_cast<int>(std::thread::hardware_concurrency());
    if (neighbours > 1 && available > 1 && available >= processors) set_threads(std::max(1, available / neighbours));
  }

  // Finds the processes of this machine that can read each other's memory. Each process tries to read a word of each
  // other process. Some systems forbid it, and containers on one machine may not see each other's processes.
  void share_memory(MPI_Comm here) {
    struct Neighbour {
      pid_t process;
      int rank;
      const std::uint64_t* address;
      std::uint64_t word;
    };
    const std::uint64_t word = std::random_device{}() | std::uint64_t{std::random_device{}()} << 32;
    const Neighbour me{::getpid(), rank(), &word, word};
    const auto n = static_cast<std::size_t>(result_of(MPI_Comm_size, here)),
               mine = static_cast<std::size_t>(result_of(MPI_Comm_rank, here));
    std::vector<Neighbour> all(n);
    MPI_Allgather(&me, sizeof me, MPI_BYTE, all.data(), sizeof me, MPI_BYTE, here);
    processes_.assign(static_cast<std::size_t>(size()), 0);
    std::vector<char> read(n), read_by(n);
    for (std::size_t i = 0; i < n; ++i) {
      std::uint64_t found = 0;
      read[i] = i != mine && copy_from(all[i].process, all[i].address, &found, sizeof found) && found == all[i].word;
    }
    MPI_Alltoall(read.data(), 1, MPI_CHAR, read_by.data(), 1, MPI_CHAR, here);
    for (std::size_t i = 0; i < n; ++i)
      if (read[i] && read_by[i]) processes_[static_cast<std::size_t>(all[i].rank)] = all[i].process;
  }

  static bool copy_from(pid_t process, const void* from, void* to, std::size_t count) {
    const iovec here{to, count}, there{const_cast<void*>(from), count};
    return ::process_vm_readv(process, &here, 1, &there, 1, 0) == static_cast<ssize_t>(count);
  }

  // MPI progresses messages while they are tested.
  struct Messages final : Exchange {
    std::vector<MPI_Request> requests;  // receives first
    std::size_t receives = 0;
    // After a failure, MPI must not write to memory that is freed.
    ~Messages() override {
      for (std::size_t i = 0; i < receives; ++i) {
        if (requests[i] == MPI_REQUEST_NULL) continue;
        MPI_Cancel(&requests[i]);
        MPI_Request_free(&requests[i]);
      }
    }
    bool done() override {
      int all = 0;
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, MPI_STATUSES_IGNORE);
      return all != 0;
    }
  };

  std::unique_ptr<Exchange> begin(std::span<const Outgoing> out, std::span<const Incoming> in, int channel) override {
    auto messages = std::make_unique<Messages>();
    const auto in_pieces = [&](auto begin_message, auto* bytes, std::size_t count, int rank) {
      for (std::size_t at = 0; at < count; at += kMaxBytes)
        begin_message(bytes + at, static_cast<int>(std::min(kMaxBytes, count - at)), MPI_BYTE, rank, channel, messages_,
                      &messages->requests.emplace_back(MPI_REQUEST_NULL));
    };
    for (const Incoming& i : in) in_pieces(MPI_Irecv, static_cast<char*>(i.bytes), i.count, i.rank);
    messages->receives = messages->requests.size();
    for (const Outgoing& o : out) in_pieces(MPI_Isend, static_cast<const char*>(o.bytes), o.count, o.rank);
    return messages;
  }

  // Waits for all ranks while sleeping: rank 0 may have a lot of work to do alone.
  void finish() {
    MPI_Request all = MPI_REQUEST_NULL;
    MPI_Ibarrier(messages_, &all);
    for (int done = 0; !done; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      MPI_Test(&all, &done, MPI_STATUS_IGNORE);
  }

  // Each second, sends a sign of life to the next rank, and checks that the previous rank has sent one.
  void beat(const std::stop_token& stop) {
    const int next = (rank() + 1) % size(), before = (rank() + size() - 1) % size();
    char sent = 0, received = 0;
    MPI_Request send = MPI_REQUEST_NULL, receive = MPI_REQUEST_NULL;
    MPI_Irecv(&received, 1, MPI_CHAR, before, 0, beats_, &receive);
    double last_sent = seconds_now() - 1, last_received = seconds_now(), last_looked = seconds_now();
    while (!stop.stop_requested()) {
      int done = 0;
      MPI_Test(&receive, &done, MPI_STATUS_IGNORE);
      if (done) {
        MPI_Irecv(&received, 1, MPI_CHAR, before, 0, beats_, &receive);
        last_received = seconds_now();
      }
      MPI_Test(&send, &done, MPI_STATUS_IGNORE);
      if (done && seconds_now() - last_sent >= 1) {
        MPI_Isend(&sent, 1, MPI_CHAR, next, 0, beats_, &send);
        last_sent = seconds_now();
      }
      // If this process itself was stopped for a while, it has received nothing in that time.
      if (seconds_now() - last_looked > 2) last_received = seconds_now();
      last_looked = seconds_now();
      if (seconds_now() - last_received > timeout_) {
        detail::PlainText what;
        what << "rank " << before << " has been silent for " << timeout_ << " seconds; it is stopped or disconnected";
        failed(what.str(), 1);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    MPI_Cancel(&receive);
    MPI_Request_free(&receive);
    if (send != MPI_REQUEST_NULL) MPI_Request_free(&send);
  }
};

}  // namespace

bool started_by_mpirun() { return size_by_environment() > 0; }

std::unique_ptr<Ranks> join_mpi_ranks(const MpiOptions& options) {
  require(std::isfinite(options.timeout) && options.timeout >= MpiOptions::kMinTimeout, "mpi: timeout is ",
          options.timeout, " seconds; it must be finite and at least ", MpiOptions::kMinTimeout);
  if (!started_by_mpirun()) return nullptr;
  // Open MPI's put protocol over TCP reaches 60% of the link's bandwidth when both sides send at once (4.1.4), because
  // it does not read while it writes. Flags set by the user are kept.
  ::setenv("OMPI_MCA_btl_tcp_flags", "send", 0);
  constexpr double kToStart = 10;  // max seconds between the starts of the processes
  const WaitLimit limit(options.timeout + kToStart, "started", STDERR_FILENO);
  int initialized = 0, threads = 0;
  MPI_Initialized(&initialized);
  if (initialized)
    MPI_Query_thread(&threads);
  else
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads);
  const int size = result_of(MPI_Comm_size, MPI_COMM_WORLD), started = size_by_environment();
  require(initialized || size == started, "mpi: mpirun started ", started, " processes, but MPI sees ", size,
          "; use the mpirun of the MPI that heed was built with");
  require(threads == MPI_THREAD_MULTIPLE,
          "mpi: this MPI does not support calls from several threads; MPI_THREAD_MULTIPLE is required");
  return std::make_unique<MpiRanks>(!initialized, options);
}

}  // namespace heed
