#include "backend/cpu/packed_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "backend/cpu/linear/packed.h"
#include "core/error.h"

namespace ingot::cpu {
namespace {

constexpr std::chrono::seconds kPatience{2};   // before the file is written: somebody waits for the first token
constexpr std::chrono::seconds kSilence{5};    // of waiting for the file when the device goes away,
constexpr std::chrono::seconds kMostWait{25};  // and what is waited after that was said

PackedEntry entry_of(const MatrixSpec& spec, Isa isa) {
  return {.name = spec.name, .rows = spec.rows, .cols = spec.cols, .bytes = packed_bytes(spec, isa)};
}

}  // namespace

PackedCache::PackedCache(PackedCacheOptions options) : options_(std::move(options)) {
  const std::string whole = fmt::format("packed {}\n{}", kPackedFormat, options_.identity);
  key_ = sha256({std::as_bytes(std::span(whole))});
  try {
    folder_.emplace(options_.folder, options_.most_bytes);
    open_file();
  } catch (const Error& error) {
    options_.warn(fmt::format("{}; packed weights are not kept there", error.what()));
  }
}

PackedCache::~PackedCache() {
  if (!writer_.valid()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ends_.notify_one();
  constexpr auto kTimeout = std::future_status::timeout;
  if (writer_.wait_for(kSilence) == kTimeout) {
    options_.warn(fmt::format("{}: packed weights are being written for the next start", options_.folder));
    stop_ = writer_.wait_for(kMostWait) == kTimeout;
  }
  if (stop_)
    options_.warn(fmt::format("{}: the packed weights were not written in time and are not kept; a longer run keeps them",
                              options_.folder));
  writer_.wait();
}

void PackedCache::open_file() {
  const std::filesystem::path path = folder_->file_of(key_);
  try {
    file_ = PackedFile::open(path, key_, options_.map ? PackedFile::Use::map : PackedFile::Use::read);
    if (file_) PackedFolder::touch(path);
  } catch (const Error& error) {
    give_up_file(error.what());
  }
}

void PackedCache::give_up_file(const std::string& why) {
  file_.reset();
  ::unlink(folder_->file_of(key_).c_str());
  options_.warn(fmt::format("{}; the weights are packed anew", why));
}

std::optional<PackedMatrix> PackedCache::find(const MatrixSpec& spec, Isa isa, ThreadPool& pool) {
  if (!file_) return std::nullopt;
  PackedPart part{.entry = entry_of(spec, isa), .data = nullptr};
  try {
    part.data = file_->next(part.entry, pool);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::out_of_memory) throw;
    give_up_file(error.what());
    return std::nullopt;
  }
  found_bytes_ += part.entry.bytes;
  parts_.push_back(part);
  return packed_before(spec, isa, std::move(part.data));
}

void PackedCache::add(const MatrixSpec& spec, const PackedMatrix& matrix) {
  complete_ = false;
  parts_.push_back({entry_of(spec, matrix.isa()), matrix.impl().data});
}

void PackedCache::end_load() {
  file_.reset();
  if (!complete_ && folder_) writer_ = std::async(std::launch::async, [this] { write(); });
  if (complete_ || !folder_) parts_.clear();
}

void PackedCache::write() {
  lower_thread_priority();
  {
    std::unique_lock lock(mutex_);
    ends_.wait_for(lock, kPatience, [this] { return ending_; });
  }
  try {
    if (options_.changed()) throw_error(ErrorKind::io, "the model's files changed while they were read");
    folder_->write(key_, packed_file_bytes(parts_), [this](int fd, const std::string& name) {
      return write_packed_file(fd, name, key_, parts_, stop_);
    });
  } catch (const std::exception& error) {
    options_.warn(fmt::format("{}; the packed weights are not kept", error.what()));
  }
}

}  // namespace ingot::cpu
