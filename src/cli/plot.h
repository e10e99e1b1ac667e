#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot::cli {

// Draws decode speed against batch size, with ideal scaling from the first row, from `ingot bench`'s report.
void write_batch_plot(const std::string& path, const nlohmann::ordered_json& report);

}  // namespace ingot::cli
