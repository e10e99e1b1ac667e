#include "backend/metal/linear/choice_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/digest.h"
#include "core/error.h"
#include "core/whole_file.h"

namespace ingot::metal {
namespace {

constexpr std::string_view kTitle = "ingot: ways of products, chosen by timing; version 1";
constexpr size_t kMostBytes = size_t{4} << 20;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string sum_of(std::string_view text) { return hex(sha256({bytes_of(text)})); }

bool read_number(const std::string& text, double& number) {
  char* end = nullptr;
  number = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

// "product | way | us | us of the default"
bool read_line(std::string_view line, std::string& product, KeptChoice& choice) {
  std::vector<std::string_view> fields;
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find(" | ", at), line.size());
    fields.push_back(line.substr(at, end - at));
    at = end + 3;
  }
  if (fields.size() != 4) return false;
  product = fields[0];
  choice.way = fields[1];
  return read_number(std::string(fields[2]), choice.us) && read_number(std::string(fields[3]), choice.default_us);
}

// The first line, which leaves `text`.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

ChoiceFile::ChoiceFile(std::filesystem::path path, ChoiceOwner owner)
    : path_(std::move(path)), owner_(std::move(owner)), choices_(read(complaint_)) {}

std::string ChoiceFile::header() const {
  return fmt::format("{}\ndevice {}\ndriver {}\nkernels {}\n", kTitle, owner_.device, owner_.driver, owner_.kernels);
}

ChoiceFile::Choices ChoiceFile::read(std::string& complaint) const {
  std::ifstream file(path_, std::ios::binary);
  if (!file) return {};
  std::string all(kMostBytes + 1, '\0');
  file.read(all.data(), static_cast<std::streamsize>(all.size()));
  all.resize(static_cast<size_t>(file.gcount()));
  const auto refuse = [&](std::string_view why) {
    complaint = fmt::format("{}: {}; it is not used, and tuning writes it anew", path_.string(), why);
    return Choices();
  };
  std::string_view text = all;
  if (take_line(text) != kTitle) return refuse("not a file of choices of this version");
  for (const auto& [name, own] : {std::pair<std::string_view, const std::string&>{"device", owner_.device},
                                  {"driver", owner_.driver},
                                  {"kernels", owner_.kernels}}) {
    const std::string_view line = take_line(text);
    if (line != fmt::format("{} {}", name, own)) return refuse(fmt::format("made for another {} ({})", name, line));
  }
  Choices choices;
  while (!text.empty()) {
    const auto before = static_cast<size_t>(text.data() - all.data());
    const std::string_view line = take_line(text);
    if (line.starts_with("sum ")) {
      if (!text.empty() || line.substr(4) != sum_of(std::string_view(all).substr(0, before))) break;
      return choices;
    }
    std::string product;
    KeptChoice choice;
    if (!read_line(line, product, choice)) break;
    choices[product] = choice;
  }
  return refuse("broken");
}

const KeptChoice* ChoiceFile::find(const std::string& product) const {
  const auto found = choices_.find(product);
  return found != choices_.end() ? &found->second : nullptr;
}

void ChoiceFile::keep(const std::string& product, const KeptChoice& choice) {
  choices_[product] = choice;
  if (path_.empty()) return;
  std::string ignored;
  Choices all = read(ignored);
  for (const auto& [name, own] : choices_) all[name] = own;
  std::string text = header();
  for (const auto& [name, one] : all)
    text += fmt::format("{} | {} | {:.3f} | {:.3f}\n", name, one.way, one.us, one.default_us);
  const std::string sum = fmt::format("sum {}\n", sum_of(text));
  std::error_code none;
  std::filesystem::create_directories(path_.parent_path(), none);
  write_whole(path_, path_.string() + fmt::format(".{}", ::getpid()), {bytes_of(text), bytes_of(sum)});
}

std::string choice_file_name(const std::string& device, const std::string& library) {
  std::string name = library.empty() ? device : device + " " + library;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '-';
  return name + ".txt";
}

}  // namespace ingot::metal
