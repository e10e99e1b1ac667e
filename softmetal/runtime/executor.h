// What the Metal API is built on: memory, compiled kernels, and streams that execute lists of commands. The API above
// knows nothing of how an executor works; an executor knows nothing of MTL:: and NS::.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "compiler/program.h"
#include "softmetal/softmetal.h"

namespace softmetal {

inline constexpr unsigned kBufferSlots = 31;
inline constexpr unsigned kThreadgroupSlots = 31;
inline constexpr unsigned kMaxThreadsPerGroup = 1024;
inline constexpr size_t kMaxThreadgroupBytes = 32 << 10;  // of Apple GPUs
inline constexpr size_t kMaxInlineBytes = 4096;           // setBytes
inline constexpr const char* kInjected = "a fault, as SOFTMETAL_FAULT asked for";

enum class Storage { shared, private_ };

// The storage of a buffer. An executor derives from it.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* host() = 0;  // nullptr where the host has no access
  virtual uint64_t device_address() const = 0;

  size_t length = 0;
  Storage storage = Storage::shared;
  bool tracked = true;  // hazards between encoders are the device's business, not the host's
  std::string label;
};

struct ArgumentInfo {
  bool threadgroup = false;  // threadgroup memory, else a buffer
  unsigned index = 0;
  std::string name;
  size_t bytes = 0;  // the least that a binding must hold
  size_t alignment = 1;
  bool writable = false;
};

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  std::string name;
  unsigned max_threads = kMaxThreadsPerGroup;
  size_t static_threadgroup_bytes = 0;
  size_t max_threadgroup_bytes = kMaxThreadgroupBytes;  // static and what a dispatch adds
  std::vector<ArgumentInfo> arguments;                  // those that are switched on

  // A dispatch that is planned and not encoded: threads of a threadgroup, bytes that it adds to the static ones.
  virtual void note_dispatch(Extent, size_t) {}
};

// One argument of a dispatch: a buffer from an offset, or bytes copied at encoding.
struct Binding {
  unsigned index = 0;
  Memory* memory = nullptr;
  size_t offset = 0;      // into the memory, or into CommandList::inline_bytes
  size_t byte_count = 0;  // of inline bytes
};

struct DispatchCommand {
  Kernel* kernel = nullptr;
  bool by_threads = false;  // `grid` counts threads, else threadgroups
  Extent grid, group;
  Memory* indirect = nullptr;  // three uint32 threadgroup counts
  size_t indirect_offset = 0;
  uint32_t first_binding = 0, binding_count = 0;                     // in CommandList::bindings
  uint32_t first_resource = 0, resource_count = 0;                   // useResource, in CommandList::resources
  std::array<std::pair<unsigned, uint32_t>, 4> threadgroup_bytes{};  // (index, bytes)
  unsigned threadgroup_count = 0;
};
struct CopyCommand {
  Memory* from = nullptr;
  size_t from_offset = 0;
  Memory* to = nullptr;
  size_t to_offset = 0, bytes = 0;
};
struct FillCommand {
  Memory* to = nullptr;
  size_t offset = 0, bytes = 0;
  uint8_t value = 0;
};
// out [rows, outputs] = x [rows, cols] weights [outputs, cols]^T, or out += that. Rows of x and of the weights follow
// each other; those of `out` are out_stride elements apart.
enum class GemmType : uint8_t { f16, bf16, f32 };
struct GemmShape {
  GemmType type = GemmType::f16;  // of x and the weights
  GemmType out = GemmType::f16;
  bool accumulate = false;
  uint64_t outputs = 0, cols = 0, stride = 0, out_stride = 0;
  auto operator<=>(const GemmShape&) const = default;
};
struct GemmCommand {
  GemmShape shape;
  uint64_t rows = 0;
  Memory *x = nullptr, *weights = nullptr, *out = nullptr;
  size_t x_offset = 0, weights_offset = 0, out_offset = 0;
};
// Orders what follows after what came before, in a concurrent encoder: for the memories named, or for all.
struct BarrierCommand {
  uint32_t first_resource = 0, resource_count = 0;
  bool all = true;
};
struct EncoderCommand {
  bool begin = true;
  bool concurrent = false;
  bool beside = false;  // its copies may run beside what follows in the list
};
struct FenceCommand {
  const void* fence = nullptr;
  bool update = false;  // else wait
};
struct EventCommand {
  std::function<void()> act;  // signals, or blocks until signalled
  bool waits = false;
};
// What another library puts on the stream itself: a cudaStream_t, or nullptr on CPU threads.
struct CallCommand {
  std::function<void(void* stream)> act;
};
using Command = std::variant<DispatchCommand, GemmCommand, CopyCommand, FillCommand, BarrierCommand, EncoderCommand,
                             FenceCommand, EventCommand, CallCommand>;

// One command buffer. Keeps what it refers to alive.
struct CommandList {
  std::vector<Command> commands;
  std::vector<Binding> bindings;
  std::vector<Memory*> resources;
  std::vector<std::byte> inline_bytes;
  std::vector<std::shared_ptr<void>> keep;

  void clear() {
    commands.clear();
    bindings.clear();
    resources.clear();
    inline_bytes.clear();
    keep.clear();
  }
};

struct Completion {
  std::string error;          // empty: completed
  double start = 0, end = 0;  // seconds of the monotonic clock
};

// Executes lists in the order of submission, beside the host.
class Stream {
 public:
  virtual ~Stream() = default;
  using Done = std::function<void(const Completion&)>;
  // `tell`: done is to be called even if nobody waits.
  virtual void submit(std::unique_ptr<CommandList> list, Done done, bool tell) = 0;
  // Waits for the oldest list and calls its done, where lists are completed by the threads that wait for them. False
  // when there is nothing to do for the caller.
  virtual bool complete_one() { return false; }
};

// There is no memory for a buffer.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::string name() const = 0;
  // Bytes that buffers may take; 0: not known.
  virtual uint64_t memory_bytes() const { return 0; }
  virtual size_t max_threadgroup_bytes() const { return kMaxThreadgroupBytes; }
  virtual std::shared_ptr<Memory> allocate(size_t bytes, Storage storage, bool tracked) = 0;
  // Throws CompileError.
  virtual std::shared_ptr<const Program> compile(const std::string& source,
                                                 const std::vector<std::pair<std::string, std::string>>& macros) = 0;
  virtual std::shared_ptr<const Program> load(const std::string& path) = 0;
  virtual std::shared_ptr<Kernel> build(const Program& program, const std::string& kernel,
                                        const std::vector<ConstantValue>& constants) = 0;
  virtual std::unique_ptr<Stream> new_stream() = 0;
  // The host reads or writes memory that both reach, while command lists run. An error, or empty.
  virtual std::string host_access(Memory&, size_t /*offset*/, size_t /*bytes*/, bool /*writes*/) { return ""; }
  // What multiplies matrices for GemmCommand; empty: nothing does.
  // Multiprocessors whose simdgroups multiply four together; 0: they do not.
  virtual unsigned warpgroups() const { return 0; }
  virtual std::string gemm_name() { return ""; }
  // Before the first command of a shape. An error, or empty.
  virtual std::string prepare_gemm(const GemmShape&) { return "this device multiplies no matrices"; }
};

std::shared_ptr<Executor> make_cpu_executor(const Options& options);
// Throws CompileError where there is no folder Options::agx.
std::shared_ptr<Executor> make_agx_executor(const Options& options);
// Throws std::runtime_error with the reason where there is no NVIDIA GPU to use.
std::shared_ptr<Executor> make_cuda_executor(const Options& options);

}  // namespace softmetal
