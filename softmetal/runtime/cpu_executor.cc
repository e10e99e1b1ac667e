#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "compiler/driver.h"
#include "compiler/process.h"
#include "runtime/clock.h"
#include "runtime/cpu_gemm.h"
#include "runtime/executor.h"
#include "runtime/library_file.h"
#include "runtime/memory.h"
#include "runtime/pool.h"
#include "runtime/tracker.h"
#include "runtime/worker.h"

namespace softmetal {
namespace {

class CpuKernel : public Kernel {
 public:
  CpuKernel(const std::string& path, const std::string& kernel_name) {
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) throw CompileError("kernel " + kernel_name + ": cannot load it: " + dlerror());
    module = static_cast<const abi::Module*>(dlsym(handle_, "softmetal_module"));
    if (!module || module->version != abi::kVersion)
      throw CompileError("kernel " + kernel_name + ": " + path + " is damaged; remove it");
    *module->runtime = &Worker::kRuntime;
    name = kernel_name;
    max_threads = module->max_threads < kMaxThreadsPerGroup ? module->max_threads : kMaxThreadsPerGroup;
    static_threadgroup_bytes = *module->static_threadgroup_bytes;
    for (unsigned i = 0; i < module->argument_count; ++i) {
      const abi::Argument& a = module->arguments[i];
      if (!a.enabled || (a.kind != abi::kBuffer && a.kind != abi::kThreadgroup)) continue;
      arguments.push_back({a.kind == abi::kThreadgroup, a.index, a.name, a.bytes, a.alignment, a.writable});
    }
    find_range(path);
  }
  ~CpuKernel() override {
#if !defined(SOFTMETAL_ASAN) && !defined(SOFTMETAL_TSAN)  // their reports come late, and name what is in the module
    dlclose(handle_);
#endif
  }

  const abi::Module* module = nullptr;
  Tracker::Module range;

 private:
  void find_range(const std::string& path) {
    link_map* map = nullptr;
    if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) return;
    range.path = path;
    range.base = map->l_addr;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
          auto* r = static_cast<Tracker::Module*>(data);
          if (info->dlpi_addr != r->base) return 0;
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
            const uintptr_t end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
            if (end > r->end) r->end = end;
          }
          return 1;
        },
        &range);
  }
  void* handle_ = nullptr;
};

class CpuExecutor : public Executor, public std::enable_shared_from_this<CpuExecutor> {
 public:
  explicit CpuExecutor(const Options& options) : options_(options) {
#if defined(SOFTMETAL_ASAN) || defined(SOFTMETAL_TSAN)
    const bool traced = false;  // the sanitizer looks at loads and stores instead
#else
    const bool traced = options.mode != Mode::fast;
#endif
    if (traced)
      tracker_ = std::make_unique<Tracker>(options.mode, options.unwritten,
                                           [this](const std::string& path) { return driver().with_lines(path); });
    int threads = 1;
#if defined(SOFTMETAL_TSAN)
    threads = 2;  // so that threadgroups of one dispatch race with each other too
#endif
    if (options.mode == Mode::fast) {
      threads =
          options.threads > 0 ? options.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    }
    pool_ = std::make_unique<Pool>(threads);
    for (int i = 0; i < threads; ++i) workers_.push_back(std::make_unique<Worker>());
  }

  std::string name() const override { return "Software Metal (CPU)"; }

  std::shared_ptr<Memory> allocate(size_t bytes, Storage storage, bool tracked) override {
    auto* memory = new CpuMemory(bytes, storage, tracked, options_.mode == Mode::strict);
    if (tracker_) {
      std::lock_guard lock(device_);
      tracker_->add(*memory);
    }
    return std::shared_ptr<Memory>(memory, [self = shared_from_this()](Memory* m) {
      auto* cpu = static_cast<CpuMemory*>(m);
      if (self->tracker_) {
        std::lock_guard lock(self->device_);
        self->tracker_->remove(*cpu);
      }
      delete cpu;
    });
  }

  std::shared_ptr<const Program> compile(const std::string& source,
                                         const std::vector<std::pair<std::string, std::string>>& macros) override {
    SourceOptions options;
    options.macros = macros;
    return driver().compile(source, options);
  }
  std::shared_ptr<const Program> load(const std::string& path) override {
    return driver().compile_preprocessed(read_library_file(path));
  }
  std::shared_ptr<Kernel> build(const Program& program, const std::string& kernel,
                                const std::vector<ConstantValue>& constants) override {
    const KernelInfo* info = program.find(kernel);
    if (!info) throw CompileError("the library has no kernel named " + kernel);
    Driver::Flavor flavor;
    flavor.traced = tracker_ != nullptr;
    flavor.whole_matrices = options_.mode == Mode::fast && !program.uses_thread_elements;
    auto built = std::make_shared<CpuKernel>(driver().build(program, *info, constants, flavor), kernel);
    if (options_.mode == Mode::strict && built->static_threadgroup_bytes > kMaxThreadgroupBytes) {
      throw CompileError("kernel " + kernel + " (" + info->file + ":" + std::to_string(info->line) +
                         "): " + std::to_string(built->static_threadgroup_bytes) +
                         " bytes of threadgroup memory, the limit is " + std::to_string(kMaxThreadgroupBytes));
    }
    return built;
  }
  std::unique_ptr<Stream> new_stream() override;
  std::string gemm_name() override { return options_.gemm == Gemm::all ? "a plain loop" : ""; }
  std::string prepare_gemm(const GemmShape&) override { return ""; }

  std::string host_access(Memory& memory, size_t offset, size_t bytes, bool writes) override {
    if (!tracker_) return "";
    std::lock_guard lock(device_);
    return tracker_->host(static_cast<CpuMemory&>(memory), offset, bytes, writes);
  }

  // Runs one list. Streams take turns a command at a time.
  void execute(CommandList& list, bool alone, Completion& completion) {
    completion.start = now();
    if (tracker_) {
      std::lock_guard lock(device_);
      tracker_->begin_list(alone);
    }
    for (Command& command : list.commands) {
      if (auto* event = std::get_if<EventCommand>(&command)) {
        if (!event->waits) note_event(false);
        event->act();
        if (event->waits) note_event(true);
        continue;
      }
      if (auto* call = std::get_if<CallCommand>(&command)) {
        call->act(nullptr);
        continue;
      }
      std::lock_guard lock(device_);
      completion.error = std::visit([&](auto& c) { return one(list, c); }, command);
      if (!completion.error.empty()) break;
    }
    completion.end = now();
  }

 private:
  void note_event(bool waits) {
    if (!tracker_) return;
    std::lock_guard lock(device_);
    tracker_->event(waits);
  }
  Driver& driver() {
    std::lock_guard lock(driver_mutex_);
    if (!driver_) driver_.emplace(options_);
    return *driver_;
  }

  // Whether this one shall fail: counts those of that name.
  bool faulty(const std::string& name) {
    return options_.fault_at != 0 && name.starts_with(options_.fault_kernel) && ++faulty_so_far_ == options_.fault_at;
  }

  std::string one(CommandList&, EventCommand&) { return ""; }
  std::string one(CommandList&, CallCommand&) { return ""; }
  std::string one(CommandList&, EncoderCommand& c) {
    if (tracker_ && c.begin) tracker_->begin_encoder(c.concurrent);
    return "";
  }
  std::string one(CommandList& list, BarrierCommand& c) {
    if (!tracker_) return "";
    if (c.all) tracker_->barrier_all();
    for (uint32_t i = 0; i < c.resource_count; ++i) {
      tracker_->barrier(static_cast<CpuMemory&>(*list.resources[c.first_resource + i]));
    }
    return "";
  }
  std::string one(CommandList&, FenceCommand& c) {
    if (tracker_) c.update ? tracker_->update_fence(c.fence) : tracker_->wait_fence(c.fence);
    return "";
  }
  std::string one(CommandList&, CopyCommand& c) {
    auto &from = static_cast<CpuMemory&>(*c.from), &to = static_cast<CpuMemory&>(*c.to);
    if (faulty("copy")) return kInjected;
    if (tracker_) {
      if (std::string error = tracker_->copy(from, c.from_offset, to, c.to_offset, c.bytes); !error.empty())
        return error;
    }
    std::memmove(to.data() + c.to_offset, from.data() + c.from_offset, c.bytes);
    return "";
  }
  std::string one(CommandList&, FillCommand& c) {
    auto& to = static_cast<CpuMemory&>(*c.to);
    if (tracker_) {
      if (std::string error = tracker_->fill(to, c.offset, c.bytes); !error.empty()) return error;
    }
    std::memset(to.data() + c.offset, c.value, c.bytes);
    return "";
  }
  std::string one(CommandList&, GemmCommand& c);
  std::string one(CommandList& list, DispatchCommand& c);

  const Options options_;
  std::mutex driver_mutex_;
  std::optional<Driver> driver_;
  std::mutex device_;  // one command at a time
  std::unique_ptr<Tracker> tracker_;
  std::unique_ptr<Pool> pool_;
  std::vector<std::unique_ptr<Worker>> workers_;
  uint64_t faulty_so_far_ = 0;  // of options_.fault_kernel
};

std::string CpuExecutor::one(CommandList&, GemmCommand& c) {
  auto &x = static_cast<CpuMemory&>(*c.x), &weights = static_cast<CpuMemory&>(*c.weights),
       &out = static_cast<CpuMemory&>(*c.out);
  const GemmShape& s = c.shape;
  const size_t out_bytes = s.out == GemmType::f32 ? 4 : 2;
  if (tracker_) {
    std::vector<Tracker::Touched> ranges = {
        {&x, c.x_offset, ((c.rows - 1) * s.stride + s.cols) * 2, false},
        {&weights, c.weights_offset, ((s.outputs - 1) * s.stride + s.cols) * 2, false}};
    for (uint64_t r = 0; r < c.rows; ++r)
      ranges.push_back({&out, c.out_offset + r * s.out_stride * out_bytes, s.outputs * out_bytes, true});
    if (std::string error = tracker_->other("a product of matrices", ranges); !error.empty()) return error;
  }
  multiply_plainly(s, c.rows, x.data() + c.x_offset, weights.data() + c.weights_offset, out.data() + c.out_offset);
  return "";
}

std::string CpuExecutor::one(CommandList& list, DispatchCommand& c) {
  auto& kernel = static_cast<CpuKernel&>(*c.kernel);
  if (faulty(kernel.name)) return "kernel " + kernel.name + ": " + kInjected;
  Launch launch;
  launch.module = kernel.module;
  launch.seed = options_.seed;
  launch.poison = options_.mode == Mode::strict;
  launch.tracker = tracker_.get();
  Extent groups = c.grid;
  if (c.indirect) {
    auto& from = static_cast<CpuMemory&>(*c.indirect);
    if (tracker_) {
      if (std::string error = tracker_->indirect(from, c.indirect_offset); !error.empty()) {
        return "kernel " + kernel.name + ": " + error;
      }
    }
    uint32_t counts[3];
    std::memcpy(counts, from.data() + c.indirect_offset, sizeof counts);
    groups = {counts[0], counts[1], counts[2]};
  }
  const Extent& size = c.group;
  launch.group_size = {size.x, size.y, size.z};
  if (c.by_threads) {
    launch.grid = {c.grid.x, c.grid.y, c.grid.z};
    groups = {(c.grid.x + size.x - 1) / size.x, (c.grid.y + size.y - 1) / size.y, (c.grid.z + size.z - 1) / size.z};
  } else {
    launch.grid = {groups.x * size.x, groups.y * size.y, groups.z * size.z};
  }
  launch.groups = {groups.x, groups.y, groups.z};
  const uint64_t count = groups.count();
  if (count == 0) return "";
  std::vector<Tracker::Bound> bound;
  std::vector<Tracker::Inline> inline_bytes;
  for (uint32_t i = 0; i < c.binding_count; ++i) {
    const Binding& b = list.bindings[c.first_binding + i];
    if (b.memory) {
      auto& memory = static_cast<CpuMemory&>(*b.memory);
      launch.buffers[b.index] = memory.data() + b.offset;
      if (tracker_) bound.push_back({&memory, static_cast<int>(b.index)});
    } else if (b.byte_count) {
      launch.buffers[b.index] = list.inline_bytes.data() + b.offset;
      const auto begin = reinterpret_cast<uintptr_t>(launch.buffers[b.index]);
      if (tracker_) inline_bytes.push_back({begin, begin + b.byte_count});
    }
  }
  for (unsigned i = 0; i < c.threadgroup_count; ++i) {
    launch.threadgroup_bytes[c.threadgroup_bytes[i].first] = c.threadgroup_bytes[i].second;
  }
  if (tracker_) {
    for (uint32_t i = 0; i < c.resource_count; ++i) {
      bound.push_back({static_cast<CpuMemory*>(list.resources[c.first_resource + i]), -1});
    }
    tracker_->begin_dispatch(kernel.name, kernel.range, bound, std::move(inline_bytes));
  }
  std::atomic<uint64_t> next{0};
  std::mutex error_mutex;
  std::string error;
  // Odd seeds start with the last threadgroup.
  const bool backwards = options_.seed % 2 == 1;
  pool_->run([&](int worker) {
    Worker& w = *workers_[static_cast<size_t>(worker)];
    for (uint64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      if (w.run(launch, backwards ? count - 1 - i : i)) continue;
      std::lock_guard lock(error_mutex);
      if (error.empty()) error = w.error();
      next.store(count, std::memory_order_relaxed);
    }
  });
  if (tracker_) tracker_->end_dispatch();
  return error;
}

class CpuStream : public Stream {
 public:
  explicit CpuStream(std::shared_ptr<CpuExecutor> executor)
      : shared_(std::make_shared<Shared>()),
        thread_([shared = shared_, executor = std::move(executor)] { shared->loop(*executor); }) {}
  ~CpuStream() override {
    {
      std::lock_guard lock(shared_->mutex);
      shared_->stopping = true;
    }
    shared_->changed.notify_all();
    // A command buffer may hold the last reference to its queue, and let go of it on this very thread.
    if (thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }

  void submit(std::unique_ptr<CommandList> list, Done done, bool) override {
    {
      std::lock_guard lock(shared_->mutex);
      shared_->queue.push_back({std::move(list), std::move(done), shared_->running == 0});
      ++shared_->running;
    }
    shared_->changed.notify_all();
  }

 private:
  struct Item {
    std::unique_ptr<CommandList> list;
    Done done;
    bool alone;
  };
  struct Shared {
    void loop(CpuExecutor& executor) {
      for (;;) {
        Item item;
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return stopping || !queue.empty(); });
          if (queue.empty()) return;
          item = std::move(queue.front());
          queue.pop_front();
        }
        Completion completion;
        executor.execute(*item.list, item.alone, completion);
        item.list.reset();
        {
          std::lock_guard lock(mutex);
          --running;
        }
        item.done(completion);
      }
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Item> queue;
    int running = 0;
    bool stopping = false;
  };
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

std::unique_ptr<Stream> CpuExecutor::new_stream() { return std::make_unique<CpuStream>(shared_from_this()); }

}  // namespace

std::shared_ptr<Executor> make_cpu_executor(const Options& options) { return std::make_shared<CpuExecutor>(options); }

}  // namespace softmetal
