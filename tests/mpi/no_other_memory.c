// Loaded before a program, it is a system that lets no process read what another has in memory: not even the word that
// a rank tries. Longer pieces are MPI's own, which asks for no leave.
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

ssize_t process_vm_readv(pid_t process, const struct iovec* here, unsigned long parts_here, const struct iovec* there,
                         unsigned long parts_there, unsigned long flags) {
  if (parts_here != 1 || here->iov_len > 8)
    return syscall(SYS_process_vm_readv, process, here, parts_here, there, parts_there, flags);
  errno = EPERM;
  return -1;
}
