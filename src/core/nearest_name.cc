#include "core/nearest_name.h"

#include <algorithm>

namespace ingot {
namespace {

// Letters to insert, drop, change or swap with their neighbour until one word is the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 64;  // nobody mistypes more
  std::string_view wanted = without_dashes(word);
  if (wanted.size() < 2 || wanted.size() > kLongest) return "";
  std::string best;
  size_t least = std::clamp<size_t>(wanted.size() / 3, 1, 3) + 1;
  for (const std::string& name : names) {
    const std::string_view candidate = without_dashes(name);
    if (candidate.size() < 2) continue;
    const size_t d = distance(wanted, candidate);
    if (d < least) {
      least = d;
      best = name;
    }
  }
  if (!best.empty()) return best;
  // A part of the name: --model-len, --penalty.
  for (const std::string& name : names)
    if (wanted.size() >= 4 && name.find(wanted) != std::string::npos) return name;
  return "";
}

}  // namespace ingot
