// What the tests for Arm do without: GPUs, and OpenSSL.
#include <softmetal/softmetal.h>

#include "backend/metal/device.h"
#include "core/digest.h"
#include "core/error.h"

namespace softmetal {
Options options_from_environment() { return {}; }
void set_options(const Options&) {}
}  // namespace softmetal

namespace ingot {

std::unique_ptr<Backend> make_metal_backend(const MetalOptions&) {
  throw_error(ErrorKind::declined, "no Metal in this build");
}
MetalStatus metal_status() { return {.detail = "no Metal in this build"}; }
MetalStatus cuda_status() { return {.detail = "no CUDA in this build"}; }
bool metal_is_software() { return true; }

Digest sha256(Pieces, const Rest&) { throw_error(ErrorKind::internal, "no OpenSSL in this build"); }
std::string hex(const Digest&) { return {}; }
Digest hmac_sha256(std::span<const std::byte>, Pieces) { throw_error(ErrorKind::internal, "no OpenSSL in this build"); }
Digest random_secret() { throw_error(ErrorKind::internal, "no OpenSSL in this build"); }

}  // namespace ingot
