#pragma once

#include <filesystem>
#include <map>
#include <string>

// Choices of ways (candidates.h), kept from run to run. Names and texts only: what they mean is the reader's business.
namespace ingot::metal {

struct KeptChoice {
  std::string way;
  double us = 0, default_us = 0;
};

// Whose times they are. Another driver, other kernels: all of them are of no use.
struct ChoiceOwner {
  std::string device, driver, kernels;
};

class ChoiceFile {
 public:
  ChoiceFile() = default;  // keeps nothing
  // Reads what is there. What is broken, of another device, driver or of other kernels is not taken, and written over
  // by the next keep().
  ChoiceFile(std::filesystem::path path, ChoiceOwner owner);

  const std::filesystem::path& path() const { return path_; }
  size_t size() const { return choices_.size(); }
  // Why the file that was found is not used; empty: it is, or there was none.
  const std::string& complaint() const { return complaint_; }
  const KeptChoice* find(const std::string& product) const;
  // Also in the file, beside what other processes have written there meanwhile. Throws Error(io).
  void keep(const std::string& product, const KeptChoice& choice);
  void forget() { choices_.clear(); }

 private:
  using Choices = std::map<std::string, KeptChoice>;
  Choices read(std::string& complaint) const;
  std::string header() const;

  std::filesystem::path path_;
  ChoiceOwner owner_;
  std::string complaint_;
  Choices choices_;  // read() sets both
};

// A file name for a device.
std::string choice_file_name(const std::string& device, const std::string& library);

}  // namespace ingot::metal
