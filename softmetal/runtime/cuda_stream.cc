#include "runtime/cuda_stream.h"

#include <algorithm>
#include <cstring>

#include "runtime/clock.h"

namespace softmetal {
namespace {

constexpr size_t kGraphLaunches = 8;  // runs shorter than this are not worth a graph
constexpr size_t kMostGraphs = 128;

// What a graph is known by: its kernels and the shapes of their threadgroups.
uint64_t shape_hash(const CudaLaunches& launches) {
  uint64_t h = 0xcbf29ce484222325u;
  const auto mix = [&h](uint64_t x) { h = (h ^ x) * 0x100000001b3u; };
  for (const CudaLaunch& l : launches.list) {
    mix(reinterpret_cast<uintptr_t>(l.kernel->function));
    mix(uint64_t{l.group.x} << 40 | uint64_t{l.group.y} << 20 | l.group.z);
    mix(l.shared_bytes);
  }
  return h;
}

std::vector<void*>& parameter_addresses(const CudaLaunches& launches, const CudaLaunch& l) {
  thread_local std::vector<void*> addresses;
  addresses.clear();
  for (uint32_t i = 0; i < l.parameters; ++i) {
    addresses.push_back(const_cast<std::byte*>(launches.bytes.data() + launches.offsets[l.first_offset + i]));
  }
  return addresses;
}

}  // namespace

CudaMemory::CudaMemory(std::shared_ptr<const CudaDevice> device, size_t bytes, Storage s, bool is_tracked)
    : device_(std::move(device)) {
  length = bytes;
  storage = s;
  tracked = is_tracked;
  device_->enter();
  cuda::Result result;
  if (s == Storage::shared) {
    result = device_->driver->host_allocate(&host_, bytes, cuda::kHostPortable | cuda::kHostDeviceMap);
    address_ = reinterpret_cast<uintptr_t>(host_);  // one address space for host and GPU
  } else {
    result = device_->driver->allocate(&address_, bytes);
  }
  if (result != cuda::kSuccess) throw OutOfMemory(device_->driver->text(result));
}
CudaMemory::~CudaMemory() {
  device_->enter();
  if (host_) {
    device_->driver->host_free(host_);
  } else if (address_) {
    device_->driver->free(address_);
  }
}

CudaKernel::~CudaKernel() {
  if (!module) return;
  device->enter();
  device->driver->module_unload(module);
}

cuda::Result launch_grid(const CudaDevice& device, cuda::StreamHandle stream, const CudaLaunches& launches,
                         const CudaLaunch& l) {
  cuda::LaunchAttribute attribute{};
  attribute.id = cuda::kLaunchProgrammaticSerialization;
  attribute.value.allowed = 1;
  const cuda::LaunchConfig config{l.grid.x,  l.grid.y,       l.grid.z, l.group.x,  l.group.y,
                                  l.group.z, l.shared_bytes, stream,   &attribute, device.overlapped ? 1u : 0u};
  return device.driver->launch(&config, l.kernel->function, parameter_addresses(launches, l).data(), nullptr);
}

CudaGraph::CudaGraph(const CudaDevice& device, cuda::StreamHandle stream, const CudaLaunches& launches,
                     std::string& error)
    : device_(device), last_(launches) {
  const cuda::Driver& d = *device.driver;
  cuda::Result result = d.capture_begin(stream, cuda::kCaptureThreadLocal);
  for (size_t i = 0; i < launches.list.size() && result == cuda::kSuccess; ++i) {
    result = launch_grid(device, stream, launches, launches.list[i]);
    if (result != cuda::kSuccess) break;
    int status = 0;
    uint64_t id = 0;
    cuda::Graph graph = nullptr;
    const cuda::GraphNode* last = nullptr;
    const void* edges = nullptr;
    size_t count = 0;
    result = d.capture_info(stream, &status, &id, &graph, &last, &edges, &count);
    if (result == cuda::kSuccess && count == 1) nodes_.push_back(last[0]);
  }
  const cuda::Result ended = d.capture_end(stream, &graph_);
  if (result == cuda::kSuccess) result = ended;
  if (result == cuda::kSuccess && nodes_.size() != launches.list.size()) {
    error = "the capture of a graph lost a grid";
  } else if (result == cuda::kSuccess) {
    result = d.graph_instantiate(&exec_, graph_, 0);
  }
  if (result != cuda::kSuccess) error = "a graph cannot be made: " + d.text(result);
}
CudaGraph::~CudaGraph() {
  if (exec_) device_.driver->exec_destroy(exec_);
  if (graph_) device_.driver->graph_destroy(graph_);
}

bool CudaGraph::matches(const CudaLaunches& launches) const {
  return std::equal(launches.list.begin(), launches.list.end(), last_.list.begin(), last_.list.end(),
                    [](const CudaLaunch& a, const CudaLaunch& b) {
                      return a.kernel == b.kernel && a.group.x == b.group.x && a.group.y == b.group.y &&
                             a.group.z == b.group.z && a.shared_bytes == b.shared_bytes && a.byte_count == b.byte_count;
                    });
}

std::string CudaGraph::launch(cuda::StreamHandle stream, const CudaLaunches& launches) {
  for (size_t i = 0; i < launches.list.size(); ++i) {
    const CudaLaunch &l = launches.list[i], &before = last_.list[i];
    if (l.grid.x == before.grid.x && l.grid.y == before.grid.y && l.grid.z == before.grid.z &&
        std::memcmp(launches.bytes.data() + l.first_byte, last_.bytes.data() + before.first_byte, l.byte_count) == 0) {
      continue;
    }
    const cuda::KernelNodeParams params{l.kernel->function,
                                        l.grid.x,
                                        l.grid.y,
                                        l.grid.z,
                                        l.group.x,
                                        l.group.y,
                                        l.group.z,
                                        l.shared_bytes,
                                        parameter_addresses(launches, l).data(),
                                        nullptr,
                                        nullptr,
                                        nullptr};
    if (const cuda::Result r = device_.driver->exec_set_kernel(exec_, nodes_[i], &params); r != cuda::kSuccess) {
      return "kernel " + l.kernel->name + ": " + device_.driver->text(r);
    }
  }
  last_ = launches;
  if (const cuda::Result r = device_.driver->graph_launch(exec_, stream); r != cuda::kSuccess) {
    return "a graph cannot be launched: " + device_.driver->text(r);
  }
  return "";
}

CudaStream::CudaStream(std::shared_ptr<const CudaDevice> device) : device_(std::move(device)) {
  device_->enter();
  if (const cuda::Result r = device_->driver->stream_create(&stream_, cuda::kStreamNonBlocking); r != cuda::kSuccess) {
    throw std::runtime_error("no stream on the GPU: " + device_->driver->text(r));
  }
}

CudaStream::~CudaStream() {
  while (complete_one()) {
  }
  for (std::thread& t : tellers_) {
    if (t.get_id() == std::this_thread::get_id()) {
      t.detach();
    } else {
      t.join();
    }
  }
  device_->enter();
  graphs_.clear();
  if (last_end_) device_->driver->event_destroy(last_end_);
  for (cuda::Event e : spare_events_) device_->driver->event_destroy(e);
  if (beside_) {
    device_->driver->event_destroy(forked_);
    device_->driver->event_destroy(joined_);
    device_->driver->stream_destroy(beside_);
  }
  device_->driver->stream_destroy(stream_);
}

cuda::Event CudaStream::new_event() {
  {
    std::lock_guard lock(queue_mutex_);
    if (!spare_events_.empty()) {
      cuda::Event e = spare_events_.back();
      spare_events_.pop_back();
      return e;
    }
  }
  cuda::Event e = nullptr;
  device_->driver->event_create(&e, cuda::kEventDefault);
  return e;
}

void CudaStream::submit(std::unique_ptr<CommandList> list, Done done, bool tell) {
  std::lock_guard order(submitting_);
  device_->enter();
  Item item;
  item.start = new_event();
  item.end = new_event();
  device_->driver->event_record(item.start, stream_);
  launch(*list, item.error);
  device_->driver->event_record(item.end, stream_);
  item.list = std::move(list);
  item.done = std::move(done);
  {
    std::lock_guard lock(queue_mutex_);
    queue_.push_back(std::move(item));
  }
  if (tell) tellers_.emplace_back([this] { complete_one(); });
}

bool CudaStream::complete_one() {
  // Goes last: with its command buffer the stream itself may go.
  Item item;
  std::lock_guard order(completing_);
  {
    std::lock_guard lock(queue_mutex_);
    if (queue_.empty()) return false;
    item = std::move(queue_.front());
    queue_.pop_front();
  }
  device_->enter();
  const cuda::Driver& d = *device_->driver;
  Completion completion;
  completion.error = std::move(item.error);
  if (const cuda::Result r = d.event_wait(item.end); r != cuda::kSuccess && completion.error.empty()) {
    completion.error = "the GPU failed: " + d.text(r);
  }
  // The GPU's clock, tied to the host's when the first list ends; differences between near events stay exact.
  float milliseconds = 0;
  if (!last_end_ || d.event_elapsed(&milliseconds, last_end_, item.end) != cuda::kSuccess) {
    completion.end = now();
  } else {
    completion.end = last_end_time_ + static_cast<double>(milliseconds) * 1e-3;
  }
  milliseconds = 0;
  d.event_elapsed(&milliseconds, item.start, item.end);
  completion.start = completion.end - static_cast<double>(milliseconds) * 1e-3;
  {
    std::lock_guard lock(queue_mutex_);
    if (last_end_) spare_events_.push_back(last_end_);
    spare_events_.push_back(item.start);
  }
  last_end_ = item.end;
  last_end_time_ = completion.end;
  item.list.reset();
  item.done(completion);
  return true;
}

void CudaStream::launch(CommandList& list, std::string& error) {
  launches_.clear();
  const cuda::Driver& d = *device_->driver;
  const auto check = [&](cuda::Result r, const char* what) {
    if (r != cuda::kSuccess && error.empty()) error = std::string(what) + ": " + d.text(r);
  };
  bool forked = false;
  cuda::StreamHandle stream = stream_;  // of the encoder's copies
  for (Command& command : list.commands) {
    if (!error.empty()) break;
    if (auto* dispatch = std::get_if<DispatchCommand>(&command)) {
      one(list, *dispatch, error);
    } else if (auto* gemm = std::get_if<GemmCommand>(&command)) {
      launch_all(error);
      if (error.empty()) error = device_->gemm ? device_->gemm->launch(*gemm, stream_) : "there is no cuBLASLt";
    } else if (auto* copy = std::get_if<CopyCommand>(&command)) {
      launch_all(error);
      if (device_->faulty("copy")) {
        error = kInjected;
        break;
      }
      check(d.copy(copy->to->device_address() + copy->to_offset, copy->from->device_address() + copy->from_offset,
                   copy->bytes, stream),
            "a copy");
    } else if (auto* fill = std::get_if<FillCommand>(&command)) {
      launch_all(error);
      check(d.fill(fill->to->device_address() + fill->offset, fill->value, fill->bytes, stream_), "a fill");
    } else if (auto* event = std::get_if<EventCommand>(&command)) {
      launch_all(error);
      check(d.launch_host(
                stream_, [](void* act) { (*static_cast<std::function<void()>*>(act))(); }, &event->act),
            "an event");
    } else if (auto* call = std::get_if<CallCommand>(&command)) {
      launch_all(error);
      call->act(stream_);
    } else if (auto* encoder = std::get_if<EncoderCommand>(&command); encoder && encoder->begin) {
      stream = stream_;
      if (!encoder->beside) continue;
      launch_all(error);
      if (error.empty()) error = fork();
      if (!error.empty()) break;
      stream = beside_;
      forked = true;
    }
    // Barriers and fences: a stream is in order as it is.
  }
  launch_all(error);
  if (!forked) return;
  const std::string failed = join();
  if (error.empty()) error = failed;
}

// What the stream beside gets from now on begins behind what the stream has.
std::string CudaStream::fork() {
  const cuda::Driver& d = *device_->driver;
  cuda::Result r = cuda::kSuccess;
  if (!beside_) {
    r = d.stream_create(&beside_, cuda::kStreamNonBlocking);
    if (r == cuda::kSuccess) r = d.event_create(&forked_, cuda::kEventNoTiming);
    if (r == cuda::kSuccess) r = d.event_create(&joined_, cuda::kEventNoTiming);
  }
  if (r == cuda::kSuccess) r = d.event_record(forked_, stream_);
  if (r == cuda::kSuccess) r = d.stream_wait_event(beside_, forked_, 0);
  return r == cuda::kSuccess ? "" : "a stream for copies: " + d.text(r);
}

// What the stream gets from now on begins behind what the one beside it has.
std::string CudaStream::join() {
  const cuda::Driver& d = *device_->driver;
  cuda::Result r = d.event_record(joined_, beside_);
  if (r == cuda::kSuccess) r = d.stream_wait_event(stream_, joined_, 0);
  return r == cuda::kSuccess ? "" : "a stream for copies: " + d.text(r);
}

void CudaStream::one(CommandList& list, const DispatchCommand& c, std::string& error) {
  auto& kernel = static_cast<CudaKernel&>(*c.kernel);
  const auto refuse = [&](const char* why) { error = "kernel " + kernel.name + ": " + why; };
  if (device_->faulty(kernel.name)) return refuse(kInjected);
  if (c.indirect) return refuse("indirect dispatches do not run on an NVIDIA GPU here");
  CudaLaunch l;
  l.kernel = &kernel;
  l.grid = c.grid;
  l.group = c.group;
  if (c.by_threads) {
    if (c.grid.x % c.group.x || c.grid.y % c.group.y || c.grid.z % c.group.z)
      return refuse("a grid that is no multiple of its threadgroup does not run on an NVIDIA GPU");
    l.grid = {c.grid.x / c.group.x, c.grid.y / c.group.y, c.grid.z / c.group.z};
  }
  if (l.grid.count() == 0) return;
  if (l.grid.y > 65535 || l.grid.z > 65535) return refuse("more than 65535 threadgroups along y or z");
  CudaLaunches& to = launches_;
  l.first_byte = static_cast<uint32_t>(to.bytes.size());
  l.first_offset = static_cast<uint32_t>(to.offsets.size());
  const auto put = [&](const void* data, size_t bytes) {
    const size_t at = (to.bytes.size() + 15) / 16 * 16;
    to.bytes.resize(at + bytes);
    std::memcpy(to.bytes.data() + at, data, bytes);
    to.offsets.push_back(static_cast<uint32_t>(at));
  };
  std::array<uint32_t, kThreadgroupSlots> threadgroup_offsets{};
  for (unsigned i = 0; i < c.threadgroup_count; ++i) {
    threadgroup_offsets[c.threadgroup_bytes[i].first] = l.shared_bytes;
    l.shared_bytes += c.threadgroup_bytes[i].second;
  }
  for (const CudaKernel::Parameter& p : kernel.parameters) {
    if (p.threadgroup) {
      put(&threadgroup_offsets[p.index], sizeof(uint32_t));
      continue;
    }
    const Binding* bound = nullptr;
    for (uint32_t i = 0; i < c.binding_count && !bound; ++i) {
      const Binding& b = list.bindings[c.first_binding + i];
      if (b.index == p.index) bound = &b;
    }
    if (p.by_value) {
      static constexpr std::byte kNothing[kMaxInlineBytes] = {};  // for one that is switched off
      if (bound && bound->memory) return refuse("a constant reference takes setBytes() only on an NVIDIA GPU");
      put(bound ? list.inline_bytes.data() + bound->offset : kNothing, std::min(p.bytes, kMaxInlineBytes));
      continue;
    }
    uint64_t address = 0;
    if (bound && bound->memory) address = bound->memory->device_address() + bound->offset;
    if (bound && !bound->memory) return refuse("setBytes() for a pointer does not run on an NVIDIA GPU here");
    put(&address, sizeof address);
  }
  l.byte_count = static_cast<uint32_t>(to.bytes.size()) - l.first_byte;
  l.parameters = static_cast<uint32_t>(to.offsets.size()) - l.first_offset;
  to.list.push_back(l);
}

void CudaStream::launch_all(std::string& error) {
  if (launches_.list.empty() || !error.empty()) return;
  bool done = false;
  if (device_->graphs && launches_.list.size() >= kGraphLaunches) {
    CudaGraph* graph = nullptr;
    for (auto& g : graphs_) {
      if (g->matches(launches_)) graph = g.get();
    }
    if (!graph) {
      // A run that comes once is launched as it is; one that comes again is worth a graph.
      const uint64_t hash = shape_hash(launches_);
      if (std::find(seen_.begin(), seen_.end(), hash) == seen_.end()) {
        if (seen_.size() >= kMostGraphs) seen_.clear();
        seen_.push_back(hash);
      } else {
        if (graphs_.size() >= kMostGraphs) {
          // One that is still running is kept by the driver until it has ended.
          graphs_.erase(std::min_element(graphs_.begin(), graphs_.end(),
                                         [](const auto& a, const auto& b) { return a->last_use < b->last_use; }));
        }
        auto made = std::make_unique<CudaGraph>(*device_, stream_, launches_, error);
        if (!error.empty()) return;
        graph = made.get();
        graphs_.push_back(std::move(made));
      }
    }
    if (graph) {
      graph->last_use = ++uses_;
      error = graph->launch(stream_, launches_);
      done = true;
    }
  }
  if (!done) {
    for (const CudaLaunch& l : launches_.list) {
      const cuda::Result r = launch_grid(*device_, stream_, launches_, l);
      if (r != cuda::kSuccess) {
        error = "kernel " + l.kernel->name + ": " + device_->driver->text(r);
        break;
      }
    }
  }
  launches_.clear();
}

}  // namespace softmetal
