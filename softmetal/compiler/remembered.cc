#include "compiler/remembered.h"

#include <algorithm>
#include <utility>

namespace softmetal {

std::shared_ptr<const Program> RememberedPrograms::find(const std::string& compiler, const std::string& text) {
  const std::lock_guard lock(mutex_);
  return find_locked(compiler, text);
}

std::shared_ptr<const Program> RememberedPrograms::add(const std::string& compiler, const std::string& text,
                                                       Program program) {
  auto made = std::make_shared<const Program>(std::move(program));
  const std::lock_guard lock(mutex_);
  if (auto known = find_locked(compiler, text)) return known;
  entries_.push_front({compiler, text, made});
  if (entries_.size() > most_) entries_.pop_back();
  return made;
}

std::shared_ptr<const Program> RememberedPrograms::find_locked(const std::string& compiler, const std::string& text) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.text == text && entry.compiler == compiler; });
  if (found == entries_.end()) return nullptr;
  std::rotate(entries_.begin(), found, found + 1);
  return entries_.front().program;
}

}  // namespace softmetal
