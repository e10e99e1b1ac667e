#include "backend/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace ingot {
namespace {

// A rate in units of 1e9 a second, and its share of the roof where one is known.
std::string rate(double amount, double seconds, double roof) {
  if (amount <= 0 || seconds <= 0) return fmt::format(" {:>9} {:>5}", "-", "-");
  const double giga = amount / seconds / 1e9;
  return fmt::format(" {:>9.1f} {:>5}", giga, roof > 0 ? fmt::format("{:.0f}%", 100 * giga / roof) : "-");
}

}  // namespace

double Roofs::of(Arithmetic arithmetic) const {
  switch (arithmetic) {
    case Arithmetic::int8: return int8_gop_s;
    case Arithmetic::bf16: return bf16_gop_s;
    case Arithmetic::f32: return f32_gop_s;
    default: return 0;
  }
}

void Profile::add(const std::string& name, const Line& line) {
  Line& sum = lines_[name];
  sum.dispatches += line.dispatches;
  sum.seconds += line.seconds;
  sum.bytes += line.bytes;
  sum.operations += line.operations;
  sum.arithmetic = line.arithmetic;
}

double Profile::seconds() const {
  double all = 0;
  for (const auto& [name, line] : lines_) all += line.seconds;
  return all;
}

std::string Profile::table(const Roofs& roofs) const {
  if (lines_.empty()) return {};
  std::vector<std::pair<std::string, Line>> lines(lines_.begin(), lines_.end());
  std::sort(lines.begin(), lines.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const double all = seconds();
  std::string text = fmt::format("{:<32} {:>10} {:>11} {:>6} {:>11} {:>9} {:>5} {:>9} {:>5}\n", "kernel", "dispatches",
                                 "ms", "share", "read MB", "GB/s", "roof", "GOP/s", "roof");
  for (const auto& [name, line] : lines)
    text += fmt::format("{:<32} {:>10} {:>11.3f} {:>5.1f}% {:>11.2f}{}{}\n", name, line.dispatches, line.seconds * 1e3,
                        all > 0 ? 100 * line.seconds / all : 0.0, static_cast<double>(line.bytes) / 1e6,
                        rate(static_cast<double>(line.bytes), line.seconds, roofs.read_gb_s),
                        rate(line.operations, line.seconds, roofs.of(line.arithmetic)));
  return text + fmt::format("{} steps, {:.3f} ms\n", steps_, all * 1e3);
}

}  // namespace ingot
