#include "orchestrator/stop_text.h"

#include <algorithm>

namespace ingot {

StopText::StopText(const std::vector<std::string>& stops, bool include) : include_(include) {
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    stops_.push_back(stop);
    longest_ = std::max(longest_, stop.size());
  }
}

bool StopText::push(std::string_view text, std::string& out) {
  if (stops_.empty()) {
    out += text;
    return false;
  }
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at < first || (at == first && at != std::string::npos && stop.size() > found_.size())) {
      first = at;
      found_ = stop;
    }
  }
  if (first != std::string::npos) {
    out.append(held_, 0, first + (include_ ? found_.size() : 0));
    held_.clear();
    return true;
  }
  const size_t certain = held_.size() - open_length();
  out.append(held_, 0, certain);
  held_.erase(0, certain);
  return false;
}

void StopText::finish(std::string& out) {
  out += held_;
  held_.clear();
}

void StopText::pass(std::string_view text, std::string& out) {
  finish(out);
  out += text;
}

size_t StopText::open_length() const {
  for (size_t length = std::min(longest_ - 1, held_.size()); length > 0; --length) {
    const std::string_view end = std::string_view(held_).substr(held_.size() - length);
    for (const std::string& stop : stops_)
      if (std::string_view(stop).starts_with(end)) return length;
  }
  return 0;
}

}  // namespace ingot
