#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "formats/checkpoint.h"
#include "ingot/engine.h"

namespace ingot {

// A device that this build knows, and whether it can be used here.
struct DeviceStatus {
  std::string name;
  bool usable = false;
  std::string detail;  // what it is, or why it cannot be used
};

// Every device of the contract, in the order `auto` prefers them.
std::vector<DeviceStatus> list_devices();

// Makes the device that `options.device` names ("auto": the best usable one). `checkpoint` may be null; its pages are
// dropped as weights are loaded from it. Throws Error(declined) when the device is not available, naming those that
// are.
std::unique_ptr<Backend> make_device(const EngineOptions& options, const Checkpoint* checkpoint);

}  // namespace ingot
