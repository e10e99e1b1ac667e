#include "core/settings.h"

#include <charconv>
#include <cstdlib>

#include "core/error.h"

namespace ingot {
namespace {

void read_switch(const char* name, bool& value) {
  const std::optional<std::string> text = environment(name);
  if (!text) return;
  if (*text != "0" && *text != "1")
    throw_error(ErrorKind::bad_call, "{}={}: must be 0 or 1; unset it for the default", name, *text);
  value = *text == "1";
}

void read_integer(const char* name, int64_t low, int64_t high, int64_t& value) {
  const std::optional<std::string> text = environment(name);
  if (!text) return;
  int64_t parsed = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), parsed);
  if (error != std::errc() || end != text->data() + text->size() || parsed < low || parsed > high)
    throw_error(ErrorKind::bad_call, "{}={}: must be a whole number from {} to {}", name, *text, low, high);
  value = parsed;
}

// Switches that once chose a PyTorch path. That path does not exist here, so turning them off cannot be honoured.
void refuse_off(const char* name, bool value) {
  if (!value)
    throw_error(ErrorKind::bad_call, "{}=0 asks for a PyTorch path that does not exist here; unset it or set it to 1",
                name);
}

}  // namespace

std::optional<std::string> environment(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::string cache_folder() {
  if (const auto cache = environment("INGOT_CACHE")) return *cache;
  if (const auto xdg = environment("XDG_CACHE_HOME")) return *xdg + "/ingot";
  if (const auto home = environment("HOME")) return *home + "/.cache/ingot";
  return ".cache/ingot";
}

Settings Settings::from_environment() {
  Settings s;
  read_switch("VLLM_APPLE_USE_ENGINE", s.use_engine);
  read_switch("VLLM_APPLE_ENGINE_PREFILL", s.engine_prefill);
  read_switch("VLLM_METAL_ATTENTION", s.metal_attention);
  read_switch("VLLM_METAL_STRICT_NO_MPS", s.strict_no_mps);
  read_switch("VLLM_METAL_PROFILE", s.profile);
  read_switch("VLLM_METAL_CAPTURE_NEXT_STEP", s.capture_next_step);
  refuse_off("VLLM_APPLE_ENGINE_PREFILL", s.engine_prefill);
  refuse_off("VLLM_METAL_ATTENTION", s.metal_attention);
  read_integer("VLLM_METAL_SCRATCH_POOL_MB", 1, 1 << 20, s.scratch_pool_mb);
  read_integer("VLLM_METAL_MAX_BATCH_SIZE", 1, 1 << 20, s.max_batch_size);
  read_integer("VLLM_METAL_TOPK_LOGITS", 0, 1 << 20, s.topk_logits);
  s.resources = environment("VLLM_METAL_PATH_RESOURCES").value_or("");
  s.device = environment("INGOT_DEVICE").value_or("");
  if (!s.device.empty() && s.device != "auto" && s.device != "cpu" && s.device != "cuda" && s.device != "metal")
    throw_error(ErrorKind::bad_call, "INGOT_DEVICE={}: must be auto, cpu, cuda or metal", s.device);
  return s;
}

const std::vector<SettingInfo>& setting_table() {
  static const std::vector<SettingInfo> table = {
      {"INGOT_DEVICE", "auto", "device when --device is not given: auto, cpu, cuda, metal"},
      {"INGOT_LINK", "mpi", "how ranks are connected: mpi, tcp (between machines the default), nccl, jaccl"},
      {"INGOT_CACHE", "~/.cache/ingot", "the default model, packed weights, and what was chosen by timing"},
      {"INGOT_DEFAULT_MODEL", "", "path of the model used when -m is not given"},
      {"INGOT_PYTHON", "", "set by the command of the Python package: the Python that fetches the default model"},
      {"HF_HOME", "~/.cache/huggingface", "models by name are in its folder hub, the token in its file token"},
      {"HF_HUB_CACHE", "", "folder of models by name, where it is not in HF_HOME"},
      {"HF_ENDPOINT", "https://huggingface.co", "where models by name are fetched from"},
      {"HF_TOKEN", "", "token for private and gated models"},
      {"HF_TOKEN_PATH", "", "file with the token, where it is not in HF_HOME"},
      {"SSL_CERT_FILE", "", "certificates to trust when fetching, instead of the system's"},
      {"HF_HUB_OFFLINE", "0", "1: never fetch a model"},
      {"HF_HUB_DOWNLOAD_TIMEOUT", "30", "seconds without a byte until a transfer is tried again"},
      {"VLLM_METAL_SCRATCH_POOL_MB", "512", "most memory for the activations of a step, in MiB"},
      {"VLLM_METAL_MAX_BATCH_SIZE", "2048 (256 on Metal)",
       "most tokens in one step, when --max-step-tokens is not given"},
      {"VLLM_METAL_TOPK_LOGITS", "0", "hand an orchestrator only the k best logits of a row; 0: off"},
      {"VLLM_METAL_PATH_RESOURCES", "", "folder with the Metal library or its sources"},
      {"VLLM_METAL_PROFILE", "0", "1: time every kernel"},
      {"VLLM_METAL_CAPTURE_NEXT_STEP", "0", "1: write a GPU trace of the next step"},
      {"VLLM_METAL_STRICT_NO_MPS", "0", "1: any tensor on an accelerator is an error"},
      {"VLLM_METAL_ATTENTION", "1", "0 asked for a PyTorch path that does not exist here: an error"},
      {"VLLM_APPLE_ENGINE_PREFILL", "1", "0 asked for a PyTorch path that does not exist here: an error"},
      {"VLLM_APPLE_USE_ENGINE", "1", "0: the vLLM plugin steps aside"},
      {"VLLM_PLATFORM", "", "apple or unset: vLLM uses this plugin; any other name: the plugin steps aside"},
  };
  return table;
}

}  // namespace ingot
