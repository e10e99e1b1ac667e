#pragma once

#include <filesystem>
#include <string>

namespace ingot::hub {

// Where models come from and where they are kept; the same variables as Hugging Face's own tools.
struct HubSettings {
  std::filesystem::path cache;  // HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub; empty: no HOME either
  std::string endpoint;         // HF_ENDPOINT, without a slash at the end
  std::string token;            // HF_TOKEN, else the token file; empty: none. Never to be printed.
  std::string ca_file;          // SSL_CERT_FILE: certificates to trust instead of the system's
  bool offline = false;         // HF_HUB_OFFLINE
  long stall_s = 30;            // HF_HUB_DOWNLOAD_TIMEOUT: seconds without a byte until a transfer is tried again

  // A value that cannot be meant is an Error(bad_call) that names the variable, never its content for the token.
  static HubSettings from_environment();
};

}  // namespace ingot::hub
