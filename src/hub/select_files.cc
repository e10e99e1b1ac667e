#include "hub/select_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <regex>
#include <string_view>

#include "core/ascii.h"
#include "core/error.h"

namespace ingot::hub {
namespace {

// What the readers of configurations and tokenizers open.
constexpr std::array kSmallFiles = {
    "config.json",           "generation_config.json",  "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "modules.json",          "1_Pooling/config.json",   "config_sentence_transformers.json"};

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

const std::regex& split_pattern() {
  static const std::regex pattern("(.*)-([0-9]{5})-of-([0-9]{5})\\.gguf");
  return pattern;
}

// The path without part number and ending.
std::string stem(const std::string& path) {
  std::smatch match;
  if (std::regex_match(path, match, split_pattern())) return match[1];
  return path.substr(0, path.size() - 5);
}

// Projectors of vision models and importance matrices are GGUF files too, but no language models.
bool is_model_gguf(const std::string& path) {
  const std::string name = ascii_lower(file_name(path));
  return name.ends_with(".gguf") && !name.starts_with("mmproj") && name.find("imatrix") == std::string::npos;
}

// Whether the GGUF is the one meant by "Q4_K_M": its name ends so, or it lies in a folder of that name.
bool has_tag(const std::string& path, const std::string& tag) {
  const std::string whole = ascii_lower(stem(path));
  const std::string wanted = ascii_lower(tag);
  const std::string name = file_name(whole);
  // "UD-Q4_K_M" is another file than "Q4_K_M".
  if (const std::string known = variant_of(path); known != path && ascii_lower(known) == wanted) return true;
  if (const std::string known = variant_of(name + ".gguf"); known != name + ".gguf") return false;
  if (name == wanted) return true;
  if (name.ends_with(wanted) && std::string("-._").find(name[name.size() - wanted.size() - 1]) != std::string::npos)
    return true;
  const std::string folder = whole.substr(0, whole.size() - std::min(whole.size(), name.size() + 1));
  const std::string last = file_name(folder);
  return !last.empty() && (last == wanted || last.ends_with("-" + wanted));
}

std::string join_some(const std::vector<std::string>& names) {
  constexpr size_t kMost = 12;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) out += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMost) out += fmt::format(" and {} more", names.size() - kMost);
  return out;
}

std::string first_part(const std::string& gguf) {
  std::smatch match;
  if (!std::regex_match(gguf, match, split_pattern())) return gguf;
  return fmt::format("{}-00001-of-{}.gguf", match[1].str(), match[3].str());
}

// One path for each GGUF model: of a split set the first part.
std::vector<std::string> gguf_models(const std::vector<std::string>& files) {
  std::map<std::string, std::string> first;
  for (const std::string& path : files)
    if (is_model_gguf(path)) first.emplace(stem(path), first_part(path));
  std::vector<std::string> models;
  for (const auto& [key, path] : first) models.push_back(path);
  return models;
}

// What to write behind the colon for each, unambiguously.
std::vector<std::string> choices(const std::vector<std::string>& models) {
  std::map<std::string, int> uses;
  for (const std::string& path : models) ++uses[variant_of(path)];
  std::vector<std::string> names;
  for (const std::string& path : models) names.push_back(uses[variant_of(path)] == 1 ? variant_of(path) : path);
  return names;
}

FileSelection select_gguf(const ModelName& name, const std::string& path, const std::vector<std::string>& files) {
  FileSelection selection;
  selection.gguf = path;
  selection.files = split_parts(path);
  for (const std::string& part : selection.files)
    if (std::find(files.begin(), files.end(), part) == files.end())
      throw_error(ErrorKind::bad_file, "{}: the repository lacks {}, a part of a split model", name.text(), part);
  std::reverse(selection.files.begin(), selection.files.end());
  return selection;
}

FileSelection select_variant(const ModelName& name, const std::vector<std::string>& files) {
  const std::vector<std::string> models = gguf_models(files);
  std::vector<std::string> found;
  for (const std::string& path : models) {
    const std::vector<std::string> parts = split_parts(path);
    const bool by_name = std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
      return part == name.variant || file_name(part) == name.variant;
    });
    if (by_name || has_tag(path, name.variant)) found.push_back(path);
  }
  if (found.size() == 1) return select_gguf(name, found[0], files);
  if (found.size() > 1)
    throw_error(ErrorKind::bad_call, "{}: fits {} files; name one of them: {}", name.text(), found.size(),
                join_some(found));
  if (models.empty())
    throw_error(ErrorKind::bad_call, "{}: the repository has no GGUF files; leave :{} out", name.text(), name.variant);
  throw_error(ErrorKind::bad_call, "{}: there is no such GGUF; there are: {}", name.text(), join_some(choices(models)));
}

bool is_top_level(const std::string& path) { return path.find('/') == std::string::npos; }

// The weights a loader would open: model.safetensors, else the index and its shards, else the only file there is. A
// repository may have the same weights a second time under other names.
std::vector<std::string> safetensors(const std::vector<std::string>& files) {
  static const std::regex shard("(model-)?.*[0-9]+-of-[0-9]+\\.safetensors");
  constexpr const char* kIndex = "model.safetensors.index.json";
  std::vector<std::string> all;
  std::vector<std::string> shards;
  bool named = false;  // a shard is called model-...
  bool index = false;
  for (const std::string& path : files) {
    if (!is_top_level(path)) continue;
    if (path == "model.safetensors") return {path};
    index = index || path == kIndex;
    if (!path.ends_with(".safetensors")) continue;
    all.push_back(path);
    std::smatch match;
    if (!std::regex_match(path, match, shard)) continue;
    shards.push_back(path);
    named = named || match[1].matched;
  }
  if (!index) return all;
  if (named) std::erase_if(shards, [](const std::string& path) { return !path.starts_with("model-"); });
  std::vector<std::string>& chosen = shards.empty() ? all : shards;
  std::sort(chosen.begin(), chosen.end());
  // Before its shards: where it is, it says what is still missing.
  if (!chosen.empty()) chosen.insert(chosen.begin(), kIndex);
  return chosen;
}

// Templates beside the main one: for tools, say.
bool is_named_template(const std::string& path) {
  constexpr std::string_view kFolder = "additional_chat_templates/";
  return path.starts_with(kFolder) && path.ends_with(".jinja") && is_top_level(path.substr(kFolder.size()));
}

}  // namespace

std::vector<std::string> split_parts(const std::string& gguf) {
  std::smatch match;
  if (!std::regex_match(gguf, match, split_pattern())) return {gguf};
  std::vector<std::string> parts;
  const int count = std::stoi(match[3]);
  for (int i = 1; i <= count; ++i) parts.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", match[1].str(), i, count));
  return parts.empty() ? std::vector<std::string>{gguf} : parts;
}

std::string variant_of(const std::string& gguf) {
  static const std::regex tag("(^|.*?[-./])((UD-)?(I?Q[0-9]+(_[A-Z0-9]+)*|TQ[0-9]_[0-9]|BF16|F16|F32|MXFP4))",
                              std::regex::icase);
  std::smatch match;
  const std::string path = stem(gguf);
  if (std::regex_match(path, match, tag)) return match[2];
  const std::string folder = path.substr(0, path.find('/') == std::string::npos ? 0 : path.rfind('/'));
  if (std::regex_match(folder, match, tag)) return match[2];
  return gguf;
}

FileSelection select_files(const ModelName& name, const std::vector<std::string>& files) {
  if (!name.variant.empty()) return select_variant(name, files);
  const auto has = [&](std::string_view file) { return std::find(files.begin(), files.end(), file) != files.end(); };
  const std::vector<std::string> weights = safetensors(files);
  if (has("config.json") && weights.size() > 1 && !has("model.safetensors.index.json"))
    throw_error(ErrorKind::declined,
                "{}: has {} .safetensors files but no model.safetensors.index.json that lists them", name.text(),
                weights.size());
  if (has("config.json") && !weights.empty()) {
    FileSelection selection;
    for (const char* file : kSmallFiles)
      if (has(file)) selection.files.push_back(file);
    if (!has("tokenizer.json") && has("tekken.json")) selection.files.push_back("tekken.json");
    std::copy_if(files.begin(), files.end(), std::back_inserter(selection.files), is_named_template);
    selection.files.insert(selection.files.end(), weights.begin(), weights.end());
    return selection;
  }
  const std::vector<std::string> models = gguf_models(files);
  if (models.size() == 1) return select_gguf(name, models[0], files);
  if (models.size() > 1)
    throw_error(ErrorKind::bad_call, "{}: has {} GGUF models; choose one, say {}:{}; there are: {}", name.text(),
                models.size(), name.text(), choices(models)[0], join_some(choices(models)));
  if (!weights.empty())
    throw_error(ErrorKind::declined, "{}: has safetensors but no config.json, so it is not a model by itself",
                name.text());
  const bool pickle =
      std::any_of(files.begin(), files.end(), [](const std::string& path) { return path.ends_with(".bin"); });
  throw_error(ErrorKind::declined, "{}: has no weights an engine reads (safetensors or GGUF){}", name.text(),
              pickle ? ", only PyTorch pickles; look for a converted copy" : "");
}

}  // namespace ingot::hub
