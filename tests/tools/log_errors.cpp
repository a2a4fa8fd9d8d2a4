// A library for LD_PRELOAD that appends the message of every heed::Error and EncodeError to the file HEED_ERROR_LOG,
// one per line. tests/tools/error_messages.py compares them with the messages in the sources.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <typeinfo>

extern "C" [[noreturn, gnu::visibility("default")]] void __cxa_throw(void* thrown, void* type, void (*destroy)(void*)) {
  const char* name = static_cast<const std::type_info*>(type)->name();
  const bool ours = std::strcmp(name, "N4heed5ErrorE") == 0 || std::strcmp(name, "N4heed11EncodeErrorE") == 0;
  if (const char* log = std::getenv("HEED_ERROR_LOG"); log != nullptr && ours) {
    std::string line = static_cast<const std::exception*>(thrown)->what();
    for (char& c : line)
      if (c == '\n') c = ' ';
    line += '\n';
    const int file = ::open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file >= 0) {
      [[maybe_unused]] const ssize_t n = ::write(file, line.data(), line.size());
      ::close(file);
    }
  }
  using Throw = void (*)(void*, void*, void (*)(void*));
  reinterpret_cast<Throw>(::dlsym(RTLD_NEXT, "__cxa_throw"))(thrown, type, destroy);
  std::abort();  // not reached
}
