// A library like the vendor's: C functions that let C++ exceptions out.

#include <atomic>
#include <cstdint>
#include <exception>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <unwind.h>

using Callback = int (*)(void *);
using Counter = std::atomic<int64_t>;

namespace {

struct First {
  virtual ~First() = default;
  int64_t payload[3] = {};
};

// std::exception is not at the object's start.
struct Second : First, std::runtime_error {
  Second() : std::runtime_error("from the second base") {}
};

// Nor at a place that is known when this is compiled.
struct Virtual : First, virtual std::exception {
  const char *what() const noexcept override { return "from a virtual base"; }
};

struct Hidden : private std::exception {};

struct Silent : std::exception {
  const char *what() const noexcept override { return ""; }
};

// Counts itself, so that leaks and double destruction show.
struct Counted : std::exception {
  explicit Counted(Counter *alive) : alive(alive) { ++*alive; }
  Counted(const Counted &other) : std::exception(other), alive(other.alive) { ++*alive; }
  ~Counted() override { --*alive; }
  const char *what() const noexcept override { return "counted"; }
  Counter *alive;
};

// Leaves nothing of the callers' registers, then throws.
[[noreturn]] __attribute__((noinline)) void clobber_and_throw() {
#if defined(__x86_64__)
  asm volatile("xor %%ebx, %%ebx\n xor %%r12d, %%r12d\n xor %%r13d, %%r13d\n"
               "xor %%r14d, %%r14d\n xor %%r15d, %%r15d"
               ::: "rbx", "r12", "r13", "r14", "r15");
#elif defined(__aarch64__)
  asm volatile("mov x19, 0\n mov x20, 0\n mov x21, 0\n mov x22, 0\n mov x23, 0\n mov x24, 0\n"
               "mov x25, 0\n mov x26, 0\n mov x27, 0\n mov x28, 0\n fmov d8, xzr\n fmov d9, xzr\n"
               "fmov d10, xzr\n fmov d11, xzr\n fmov d12, xzr\n fmov d13, xzr\n fmov d14, xzr\n"
               "fmov d15, xzr"
               ::: "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "d8",
               "d9", "d10", "d11", "d12", "d13", "d14", "d15");
#endif
  throw std::runtime_error("registers are gone");
}

}  // namespace

extern "C" {

int64_t weigh(int32_t a, uint64_t b, void *c, int32_t d, uint32_t e, int64_t f, int32_t g,
              const int64_t *h) {
  return a + 10 * static_cast<int64_t>(b) + 100 * reinterpret_cast<intptr_t>(c) + 1000 * d +
         10000 * static_cast<int64_t>(e) + 100000 * f + 1000000 * g + *h;
}
int32_t nothing() { return -7; }
void *echo(void *pointer) { return pointer; }

int throw_text(const char *text) { throw std::runtime_error(text); }

int throw_kind(int kind) {
  switch (kind) {
    case 0: throw Second();
    case 1: throw Virtual();
    case 2: throw std::bad_alloc();
    case 3: throw Silent();
    case 4: throw std::string("no exception");
    case 5: throw 42;
    case 6: throw Hidden();
    case 7: throw static_cast<const char *>("text");
    default: clobber_and_throw();
  }
}

int throw_counted(Counter *alive) { throw Counted(alive); }

int throw_dependent(Counter *alive) {
  std::exception_ptr kept;
  try {
    throw Counted(alive);
  } catch (...) {
    kept = std::current_exception();
  }
  std::rethrow_exception(kept);
}

// A handler for a base moves the pointer to that base; the guard must not start from there.
int throw_again() {
  try {
    throw Second();
  } catch (First &) {
    throw;
  }
}

int throw_deep(int depth, Counter *alive) {
  Counted here(alive);
  if (depth == 0) throw Counted(alive);
  return throw_deep(depth - 1, alive) + 1;
}

int call_back(Callback callback, void *data, Counter *alive) {
  Counted here(alive);
  return callback(data) + 1;
}

int call_back_in_handler(Callback callback, void *data) {
  try {
    throw std::runtime_error("outer");
  } catch (std::exception &) {
    callback(data);
    throw;
  }
}

// An exception of a language that nobody has heard of.
int raise_foreign(Counter *alive) {
  struct Foreign {
    _Unwind_Exception header;
    Counter *alive;
  };
  auto *foreign = new Foreign{{}, alive};
  ++*alive;
  foreign->header.exception_class = 0x535455424c414e47;  // "STUBLANG"
  foreign->header.exception_cleanup = [](_Unwind_Reason_Code, _Unwind_Exception *header) {
    auto *foreign = reinterpret_cast<Foreign *>(header);
    --*foreign->alive;
    delete foreign;
  };
  return _Unwind_RaiseException(&foreign->header);
}

int end_thread() { pthread_exit(reinterpret_cast<void *>(intptr_t{77})); }

// Runs the callback in a thread of its own, and tells what that ended with.
int in_a_thread(Callback callback, void *data) {
  struct Call {
    Callback callback;
    void *data;
  } call{callback, data};
  auto run = [](void *argument) -> void * {
    auto *call = static_cast<Call *>(argument);
    return reinterpret_cast<void *>(intptr_t{call->callback(call->data)});
  };
  pthread_t thread;
  void *result = nullptr;
  if (pthread_create(&thread, nullptr, run, &call) != 0) return -1;
  pthread_join(thread, &result);
  return static_cast<int>(reinterpret_cast<intptr_t>(result));
}

// Exceptions that this thread believes to be under way or being handled.
int in_flight() {
#if __cplusplus >= 201703L
  return std::uncaught_exceptions() + (std::current_exception() ? 100 : 0);
#else
  return std::uncaught_exception() + (std::current_exception() ? 100 : 0);
#endif
}

// Fills every register that a callee must preserve, calls back, and tells how many changed.
int count_lost_registers(Callback callback, void *data);

}  // extern "C"

#if defined(__x86_64__)
asm(R"(
.text
.globl count_lost_registers
.type count_lost_registers, @function
count_lost_registers:
  push %rbx
  push %rbp
  push %r12
  push %r13
  push %r14
  push %r15
  sub $8, %rsp
  mov %rdi, %rax
  mov %rsi, %rdi
  mov $0x1111, %rbx
  mov $0x2222, %rbp
  mov $0x3333, %r12
  mov $0x4444, %r13
  mov $0x5555, %r14
  mov $0x6666, %r15
  call *%rax
  xor %eax, %eax
  xor %ecx, %ecx
  cmp $0x1111, %rbx
  setne %cl
  add %ecx, %eax
  cmp $0x2222, %rbp
  setne %cl
  add %ecx, %eax
  cmp $0x3333, %r12
  setne %cl
  add %ecx, %eax
  cmp $0x4444, %r13
  setne %cl
  add %ecx, %eax
  cmp $0x5555, %r14
  setne %cl
  add %ecx, %eax
  cmp $0x6666, %r15
  setne %cl
  add %ecx, %eax
  add $8, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbp
  pop %rbx
  ret
.size count_lost_registers, . - count_lost_registers
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl count_lost_registers
.type count_lost_registers, %function
count_lost_registers:
  stp x29, x30, [sp, -160]!
  stp x19, x20, [sp, 16]
  stp x21, x22, [sp, 32]
  stp x23, x24, [sp, 48]
  stp x25, x26, [sp, 64]
  stp x27, x28, [sp, 80]
  stp d8, d9, [sp, 96]
  stp d10, d11, [sp, 112]
  stp d12, d13, [sp, 128]
  stp d14, d15, [sp, 144]
  mov x16, x0
  mov x0, x1
  .irp n, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
  mov x\n, 1000 + \n
  .endr
  .irp n, 8, 9, 10, 11, 12, 13, 14, 15
  mov x9, 1000 + \n
  fmov d\n, x9
  .endr
  blr x16
  mov w0, 0
  .irp n, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
  cmp x\n, 1000 + \n
  cinc w0, w0, ne
  .endr
  .irp n, 8, 9, 10, 11, 12, 13, 14, 15
  fmov x9, d\n
  cmp x9, 1000 + \n
  cinc w0, w0, ne
  .endr
  ldp d14, d15, [sp, 144]
  ldp d12, d13, [sp, 128]
  ldp d10, d11, [sp, 112]
  ldp d8, d9, [sp, 96]
  ldp x27, x28, [sp, 80]
  ldp x25, x26, [sp, 64]
  ldp x23, x24, [sp, 48]
  ldp x21, x22, [sp, 32]
  ldp x19, x20, [sp, 16]
  ldp x29, x30, [sp], 160
  ret
.size count_lost_registers, . - count_lost_registers
)");
#endif
