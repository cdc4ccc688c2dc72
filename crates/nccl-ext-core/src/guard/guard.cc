// The guard in C++ (feature `guard-cc`): what assembly.rs does, for maintainers who would rather
// have a compiler write it. The Rust side is cc.rs.

#include <cstdint>
#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <typeinfo>

using Word = std::uint64_t;
using Function = Word (*)(Word, Word, Word, Word, Word, Word, Word, Word);
using Report = void (*)(void *to, bool is_exception, const char *text);

extern "C" __attribute__((visibility("hidden"))) Word
NCCL_EXT_GUARD(Function function, const Word *w, Report report, void *to) {
  try {
    return function(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
  } catch (const std::exception &exception) {
    report(to, true, exception.what());
  } catch (...) {
    if (!std::current_exception()) throw;  // not C++: a Rust panic, or a forced unwind
    const std::type_info *type = abi::__cxa_current_exception_type();
    int status = 0;
    char *name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
    report(to, false, name ? name : type->name());
    std::free(name);
  }
  return 0;
}
