// Any bytes as stop strings and a text that comes in pieces: what comes out is what a search of the whole text gives,
// in time linear in both.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "orchestrator/stop_text.h"
#include "time_bound.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t piece = 1 + data[0] % 9;
  const size_t stops = 1 + data[1] % 4;
  std::string rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  std::vector<std::string> texts;
  for (size_t i = 0; i < stops; ++i) {  // lines; what follows them is the text
    const size_t end = std::min(rest.find('\n'), rest.size());
    texts.push_back(rest.substr(0, end));
    rest.erase(0, std::min(end + 1, rest.size()));
  }
  std::string out;
  bool stopped = false;
  {
    const TimeBound bound(size);
    ingot::StopText stop(texts, false);
    for (size_t at = 0; at < rest.size() && !stopped; at += piece) stopped = stop.push(rest.substr(at, piece), out);
    if (!stopped) stop.finish(out);
  }
  size_t first_end = std::string::npos;  // of the stop string that is complete first
  for (const std::string& text : texts)
    if (const size_t at = text.empty() ? std::string::npos : rest.find(text); at != std::string::npos)
      first_end = std::min(first_end, at + text.size());
  if (stopped != (first_end != std::string::npos)) __builtin_trap();
  if (!rest.starts_with(out)) __builtin_trap();
  if (!stopped && out != rest) __builtin_trap();
  // Before the stop that was found, and no stop string is in what came out.
  for (const std::string& text : texts)
    if (!text.empty() && out.find(text) != std::string::npos) __builtin_trap();
  return 0;
}
