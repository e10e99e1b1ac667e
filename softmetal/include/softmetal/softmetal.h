// Settings and reports of the software Metal device, beside the API it shares with Apple's.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace softmetal {

enum class Mode {
  strict,  // every check; kernels run on one CPU thread, instrumented. The default
  fast,    // no checks; threadgroups spread over CPU threads
  count,   // the bytes each kernel loads and stores; no other check
};

// What is done about a load of memory that nothing has written.
enum class Unwritten {
  error,   // the command buffer fails and names the place
  poison,  // the load gives a NaN pattern
};

// Which devices multiply large matrices by other means than kernels (softmetal/gemm.h).
enum class Gemm : uint8_t {
  none,
  cuda,  // those on NVIDIA GPUs, where there is cuBLASLt
  all,   // the CPU's too, by a plain loop: for checking
};

struct Options {
  Mode mode = Mode::strict;
  Unwritten unwritten = Unwritten::error;
  uint64_t seed = 0;               // order of threads and threadgroups; 0: ascending
  int threads = 0;                 // CPU threads in fast mode; 0: one a core
  std::string clang;               // the compiler; empty: clang++-19 from PATH
  std::string cache;               // folder of compiled kernels; empty: the user's cache
  bool keep_sources = false;       // leave the generated C++ beside the compiled kernels
  bool lines = false;              // compile kernels with line numbers, for debuggers and sanitizers
  int gpu_family = 1009;           // MTL::GPUFamilyApple9: the newest Apple family to answer yes for
  uint64_t working_set_bytes = 0;  // recommendedMaxWorkingSetSize; 0: three quarters of memory
  std::string fault_kernel;        // kernels whose names begin with this, or "copy": those of blit encoders ...
  uint64_t fault_at = 0;           // ... fail the n-th time, as a GPU would; 0: never

  std::string agx;  // folder that kernels are left in for Apple's instructions (softmetal/agx.h); empty: they are run

  // Of devices on an NVIDIA GPU (softmetal/cuda.h).
  std::string ptxas;          // NVIDIA's assembler; empty: the driver assembles when a kernel is loaded
  std::string prebuilt;       // folder of kernels compiled ahead; empty: none
  bool compile_only = false;  // no GPU: kernels are compiled, into `prebuilt` where it is set, and never run
  int architecture = 90;      // to compile for when there is no GPU to ask
  bool graphs = true;         // long runs of dispatches are replayed as CUDA graphs
  bool warpgroups = true;     // kernels may use them where the GPU has them
  Gemm gemm = Gemm::cuda;
  std::string gemm_library;  // cuBLASLt; empty: by its usual names
};

// The defaults with SOFTMETAL_* of the environment applied. Throws std::invalid_argument that names a bad variable.
Options options_from_environment();

// Options of the devices created from now on. Until set: options_from_environment().
void set_options(const Options& options);
Options options();

// The host broke a rule: thrown by the call that broke it. One line: the rule, and the object's label where it has one.
class Violation : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Traffic of one dispatch or blit with device memory, in bytes. Unique counts a byte once a dispatch.
struct Traffic {
  std::string kernel;
  uint64_t loaded = 0, stored = 0;
  uint64_t unique_loaded = 0, unique_stored = 0;
  struct Buffer {
    std::string label;
    uint64_t loaded = 0, stored = 0;
    uint64_t unique_loaded = 0, unique_stored = 0;
  };
  std::vector<Buffer> buffers;
};

// Not where kernels are compiled with a sanitizer.
bool can_count();

// Since the last call, in order of execution; empty unless the device was created in strict or counting mode.
std::vector<Traffic> take_traffic();

// Counts of host calls since the program began; they only grow.
struct Counters {
  uint64_t submissions = 0;   // command buffers committed
  uint64_t waits = 0;         // waitUntilCompleted and other calls that block
  uint64_t allocations = 0;   // buffers and heaps
  uint64_t compilations = 0;  // libraries from source and pipelines
  uint64_t dispatches = 0;
  uint64_t barriers = 0;
  uint64_t copies = 0;  // blit copies and fills
};
Counters counters();

}  // namespace softmetal
