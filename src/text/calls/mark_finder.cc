#include "text/calls/mark_finder.h"

#include <utility>

namespace ingot {

MarkFinder::MarkFinder(std::vector<std::string> marks) : marks_(std::move(marks)) {
  for (const std::string& mark : marks_) first_.set(static_cast<unsigned char>(mark.front()));
}

MarkFinder::Found MarkFinder::find(const Input& in) const {
  for (size_t at = in.at; at < in.text.size(); ++at) {
    if (!first_[static_cast<unsigned char>(in.text[at])]) continue;
    const std::string_view rest = in.text.substr(at);
    size_t found = kNone;
    for (size_t i = 0; i < marks_.size(); ++i) {
      if (rest.starts_with(marks_[i])) {
        if (found == kNone || marks_[i].size() > marks_[found].size()) found = i;
      } else if (!in.ended && std::string_view(marks_[i]).starts_with(rest)) {
        return {at, kNone};
      }
    }
    if (found != kNone) return {at, found};
  }
  return {in.text.size(), kNone};
}

}  // namespace ingot
