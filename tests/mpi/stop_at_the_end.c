// For LD_PRELOAD: stops a process that is about to leave MPI.
#include <signal.h>

int PMPI_Finalize(void);

int MPI_Finalize(void) {
  raise(SIGSTOP);
  return PMPI_Finalize();
}
