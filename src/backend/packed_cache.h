#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ingot {

// Where a device keeps matrices as it packed them, so that the next load need not do it again.
struct PackedCacheOptions {
  bool map = false;         // the files' pages are the weights, shared by all processes; else they are read into memory
  std::string folder;       // made where there is none
  uint64_t most_bytes = 0;  // of all of its files; the least recently used make room
  // What of the model the bytes depend on: the contents of its files, how they are read, and what of them is loaded in
  // which order. How the device packs is the device's to add.
  std::string identity;
  // Whether the files changed since the identity was made, so that what was packed may be of both.
  std::function<bool()> changed;
  std::function<void(const std::string& line)> warn;
};

}  // namespace ingot
