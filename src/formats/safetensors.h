#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"

namespace ingot {

// Weights in safetensors files, memory-mapped: one file, or shards listed by an index. F32, F16 and BF16 tensors are
// read; others (integer buffers that old exporters leave behind) do not prevent opening, but asking for one is declined
// by name.
class SafetensorsCheckpoint : public Checkpoint {
 public:
  // A .safetensors file, an index (*.safetensors.index.json), or a folder with model.safetensors, else with
  // model.safetensors.index.json, else with exactly one .safetensors file.
  static std::shared_ptr<SafetensorsCheckpoint> open(const std::filesystem::path& path);
  // One file over a copy of `bytes`, for tests and fuzzers.
  static std::shared_ptr<SafetensorsCheckpoint> open_bytes(std::span<const std::byte> bytes,
                                                           std::string name = "memory.safetensors");

  const std::vector<TensorView>& tensors() const override;
  const TensorView* find(std::string_view name) const override;  // throws declined for an unsupported type
  uint64_t file_bytes() const override;
  void drop_pages(std::span<const std::byte> bytes) const override;
  std::string describe() const override;

  struct Unsupported {
    std::string name;
    std::string dtype;  // as the file calls it: "I64"
    std::vector<int64_t> shape;
    std::span<const std::byte> data;  // as long as the shape says where the type is a known one
  };
  const std::vector<Unsupported>& unsupported() const;

  struct Impl;
  explicit SafetensorsCheckpoint(std::unique_ptr<Impl> impl);
  ~SafetensorsCheckpoint() override;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot
