#include "text/infill.h"

#include <algorithm>
#include <array>

#include "ingot/tokenizer.h"
#include "text/tokenizer_impl.h"

namespace ingot {
namespace {

// The names of a family's marks; empty: it has none.
struct MarkNames {
  std::string_view prefix, suffix, middle, repository, file;
  bool suffix_first = false;
};

constexpr auto kFamilies = std::to_array<MarkNames>({
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>",
     "<|file_sep|>"},                                                               // Qwen2.5-Coder, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},  // StarCoder 2, Granite
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<reponame>", ""},             // SantaCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "", ""},                 // DeepSeek
    {"▁<PRE>", "▁<SUF>", "▁<MID>", "", ""},                                         // CodeLlama
    {"<PRE>", "<SUF>", "<MID>", "", ""},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", "", ""},     // GLM-4.5
    {"<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", "", "", true},  // Seed-Coder
    {"[PREFIX]", "[SUFFIX]", "", "", "", true},                            // Codestral: the answer follows the prefix
});

constexpr auto kEnds = std::to_array<std::string_view>(
    {"<|endoftext|>", "<|fim_pad|>", "<fim_pad>", "<fim-pad>", "▁<EOT>", "<EOT>", "<|file_separator|>"});

int32_t find_mark(const Tokenizer& tokenizer, std::string_view name) {
  return name.empty() ? -1 : tokenizer.find(name);
}

}  // namespace

std::optional<InfillFormat> InfillFormat::of(const Tokenizer& tokenizer) {
  InfillFormat format;
  format.marks_ = tokenizer.impl().data.infill;
  InfillMarks& marks = format.marks_;
  for (const MarkNames& names : kFamilies) {
    if (marks.prefix >= 0 && marks.suffix >= 0) {  // the file says so; the order is the family's
      if (tokenizer.token_text(marks.prefix) != names.prefix) continue;
    } else if (find_mark(tokenizer, names.prefix) < 0 || find_mark(tokenizer, names.suffix) < 0 ||
               (!names.middle.empty() && find_mark(tokenizer, names.middle) < 0)) {
      continue;
    }
    format.suffix_first_ = names.suffix_first;
    const auto fill = [&](int32_t& id, std::string_view name) {
      if (id < 0) id = find_mark(tokenizer, name);
    };
    fill(marks.prefix, names.prefix);
    fill(marks.suffix, names.suffix);
    fill(marks.middle, names.middle);
    fill(marks.repository, names.repository);
    fill(marks.file, names.file);
    break;
  }
  if (marks.prefix < 0 || marks.suffix < 0) return std::nullopt;
  format.ends_ = {marks.prefix, marks.suffix, marks.middle, marks.repository, marks.file};
  for (const std::string_view name : kEnds) format.ends_.push_back(tokenizer.find(name));
  std::erase(format.ends_, -1);
  return format;
}

std::vector<int32_t> InfillFormat::prompt(const Tokenizer& tokenizer, std::string_view prefix, std::string_view suffix,
                                          std::span<const File> others, const std::atomic<bool>* cancelled) const {
  std::vector<int32_t> ids;
  const auto add_text = [&](std::string_view text) {
    const std::vector<int32_t> more =
        tokenizer.encode(text, {.add_special = false, .parse_special = false, .cancelled = cancelled});
    ids.insert(ids.end(), more.begin(), more.end());
  };
  const auto add_mark = [&](int32_t mark) {
    if (mark >= 0) ids.push_back(mark);
  };
  const std::vector<int32_t>& front = tokenizer.impl().data.prefix;
  ids.insert(ids.end(), front.begin(), front.end());
  if (!others.empty()) {
    const bool files = marks_.file >= 0;
    if (files && marks_.repository >= 0) {
      ids.push_back(marks_.repository);
      add_text("project\n");
    }
    for (const File& file : others) {
      add_mark(marks_.file);
      add_text(files ? file.name + "\n" : "--- " + file.name + " ---\n");
      add_text(file.text);
      add_text("\n");
    }
    add_mark(marks_.file);
    if (files) add_text("current\n");
  }
  if (suffix_first_) {
    ids.push_back(marks_.suffix);
    add_text(suffix);
    ids.push_back(marks_.prefix);
    add_text(prefix);
  } else {
    ids.push_back(marks_.prefix);
    add_text(prefix);
    ids.push_back(marks_.suffix);
    add_text(suffix);
  }
  add_mark(marks_.middle);
  return ids;
}

}  // namespace ingot
