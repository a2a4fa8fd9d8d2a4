// A program that mpirun may start. Without mpirun, it is one process.
#include <heed/heed.hpp>
#include <heed/mpi/mpi_ranks.hpp>
#include <iostream>

int main() {
  const std::unique_ptr<heed::Ranks> ranks = heed::join_mpi_ranks();
  std::cout << "rank " << (ranks ? ranks->rank() : 0) << " of " << (ranks ? ranks->size() : 1) << '\n';
}
