// Leaves every kernel that is asked for in a folder, with the threads and the threadgroup memory of its dispatches, for
// softmetal/agx/ to take to the instructions of Apple GPUs. Compiles and runs nothing.
//   HASH.cc           the kernel with its constants; the first line is a comment with both
//   HASH.dispatches   a line a dispatch of a rehearsal: threads along three axes, bytes of threadgroup memory
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>

#include "compiler/driver.h"
#include "compiler/process.h"
#include "runtime/library_file.h"
#include "runtime/unbacked.h"

namespace softmetal {
namespace {

class AgxKernel : public Kernel {
 public:
  explicit AgxKernel(std::string stem) : stem_(std::move(stem)) {}
  void note_dispatch(Extent group, size_t threadgroup_bytes) override {
    const std::string line = std::to_string(group.x) + " " + std::to_string(group.y) + " " + std::to_string(group.z) +
                             " " + std::to_string(threadgroup_bytes) + "\n";
    if (noted_.insert(line).second) std::ofstream(stem_ + ".dispatches", std::ios::app) << line;
  }

 private:
  const std::string stem_;
  std::set<std::string> noted_;
};

class AgxExecutor : public Executor {
 public:
  explicit AgxExecutor(const Options& options) : options_(options) {
    std::error_code error;
    std::filesystem::create_directories(options.agx, error);
    if (error) throw CompileError("cannot create " + options.agx + ", which SOFTMETAL_AGX names");
  }
  std::string name() const override { return "Software Metal (leaves kernels for AGX, runs nothing)"; }
  uint64_t memory_bytes() const override { return uint64_t{128} << 30; }
  std::shared_ptr<Memory> allocate(size_t bytes, Storage storage, bool) override {
    return std::make_shared<UnbackedMemory>(bytes, storage);
  }
  std::shared_ptr<const Program> compile(const std::string& source,
                                         const std::vector<std::pair<std::string, std::string>>& macros) override {
    std::lock_guard lock(mutex_);
    if (!driver_) driver_.emplace(options_);
    SourceOptions options;
    options.macros = macros;
    return std::make_shared<Program>(translate(driver_->preprocess(source, options)));
  }
  std::shared_ptr<const Program> load(const std::string& path) override {
    return std::make_shared<Program>(translate(read_library_file(path)));
  }
  std::shared_ptr<Kernel> build(const Program& program, const std::string& kernel,
                                const std::vector<ConstantValue>& constants) override {
    const KernelInfo* info = program.find(kernel);
    if (!info) throw CompileError("the library has no kernel named " + kernel);
    const std::string source =
        "// " + kernel + " " + constants_line(constants) + "\n" + specialize_agx(program, *info, constants);
    const std::string stem = options_.agx + "/" + hash_text({source}).substr(0, 16);
    write_file(stem + ".cc", source);
    auto built = std::make_shared<AgxKernel>(stem);
    built->name = kernel;
    return built;
  }
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<IdleStream>(); }

 private:
  const Options options_;
  std::mutex mutex_;
  std::optional<Driver> driver_;
};

}  // namespace

std::shared_ptr<Executor> make_agx_executor(const Options& options) { return std::make_shared<AgxExecutor>(options); }

}  // namespace softmetal
