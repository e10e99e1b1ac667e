#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/printable.h"
#include "formats/json.h"
#include "model/config_read.h"

namespace ingot {
namespace {

using Method = PackedFormat::Method;

[[noreturn]] void decline(const JsonView& how, const std::string& what) {
  throw_error(
      ErrorKind::declined,
      "{}: weights quantized with {} are not supported; supported are AWQ (gemm, 4 bits), GPTQ and MLX (affine, "
      "4 or 8 bits) in groups of a multiple of 32; or use the unquantized model with --quantize, or a GGUF file",
      how.name(), what);
}

PackedFormat::Width read_width(const JsonView& how, const std::string& method, PackedFormat::Width width,
                               bool eight_bits) {
  width.bits = static_cast<int>(how.find_int("bits").value_or(how.find_int("w_bit").value_or(width.bits)));
  width.group_size = how.find_int("group_size").value_or(how.find_int("q_group_size").value_or(width.group_size));
  if (width.bits != 4 && !(eight_bits && width.bits == 8))
    decline(how, fmt::format("{} in {} bits", method, width.bits));
  if (width.group_size != -1 && (width.group_size < 32 || width.group_size % 32 != 0))
    decline(how, fmt::format("{} in groups of {}", method, width.group_size));
  return width;
}

PackedFormat read_mlx(const JsonView& how) {
  PackedFormat format;
  format.method = Method::mlx;
  if (const std::string mode = how.find_string("mode").value_or("affine"); mode != "affine")
    decline(how, "MLX's mode " + printable(mode));
  format.width = read_width(how, "MLX", {4, 64}, true);
  for (const auto& [key, value] : how.value().items()) {
    if (!value.is_object()) continue;  // false: a module that is not packed
    const JsonView own(value, how.name(), how.path_of(key) + ".");
    if (const std::string mode = own.find_string("mode").value_or("affine"); mode != "affine")
      decline(own, "MLX's mode " + printable(mode));
    format.modules[key] = read_width(own, "MLX", format.width, true);
  }
  return format;
}

PackedFormat read_awq(const JsonView& how) {
  PackedFormat format;
  format.method = Method::awq;
  std::string version = how.find_string("version").value_or("gemm");
  for (char& c : version) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (version != "gemm") decline(how, "AWQ's version " + printable(version));
  if (!how.find_bool("zero_point").value_or(true)) decline(how, "AWQ without zero points");
  format.width = read_width(how, "AWQ", {4, 128}, false);
  return format;
}

PackedFormat read_gptq(const JsonView& how) {
  PackedFormat format;
  format.method = Method::gptq;
  const std::string version = how.find_string("checkpoint_format").value_or("gptq");
  if ((version != "gptq" && version != "gptq_v2") || how.find_bool("is_marlin_format").value_or(false))
    decline(how, "GPTQ's checkpoint_format " + printable(version == "gptq" ? "marlin" : version));
  if (const nlohmann::json* dynamic = how.find("dynamic"); dynamic != nullptr && !dynamic->empty())
    decline(how, "GPTQ's dynamic widths");
  format.zero_minus_one = version == "gptq";
  format.symmetric = how.find_bool("sym").value_or(true);
  format.width = read_width(how, "GPTQ", {4, 128}, true);
  return format;
}

}  // namespace

PackedFormat read_packed_format(const JsonView& json) {
  // mlx-lm writes both keys, with the same contents and no method.
  if (const auto mlx = json.find_object("quantization")) {
    if (!mlx->has("bits")) decline(*mlx, "an unnamed method");
    return read_mlx(*mlx);
  }
  const auto how = json.find_object("quantization_config");
  if (!how) return {};
  const std::string method = how->find_string("quant_method").value_or("");
  if (method.empty() && how->has("bits") && how->has("group_size")) return read_mlx(*how);
  if (method == "awq") return read_awq(*how);
  if (method == "gptq") return read_gptq(*how);
  decline(*how, method.empty() ? "an unnamed method" : printable(method));
}

}  // namespace ingot
