#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/printable.h"
#include "formats/json.h"
#include "text/bpe.h"
#include "text/hf_steps.h"
#include "text/tokenizer_readers.h"
#include "text/unicode.h"

namespace ingot {
namespace {

using nlohmann::json;

class HfReader {
 public:
  HfReader(const json& root, const std::string& source) : view_(root, source) { data_.source = source; }

  TokenizerData run() {
    const JsonView model = view_.need_object("model");
    check_model(model);
    read_vocabulary(model);
    read_merges(model);
    if (const auto unk = model.find_string("unk_token")) {
      data_.unk_id = by_text_.find(*unk);
      if (data_.unk_id < 0) fail("model.unk_token \"{}\" is not in the vocabulary", printable(*unk));
    }
    read_hf_steps(view_, data_);
    read_post_processor();
    return std::move(data_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::bad_file, data_.source + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  [[noreturn]] void decline(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::declined, data_.source + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  void check_model(const JsonView& model) {
    // Files older than the type field hold BPE when they have merges.
    const std::string type = model.find_string("type").value_or(model.has("merges") ? "BPE" : "");
    if (type != "BPE") decline("model.type \"{}\" is not supported, only BPE is", printable(type));
    if (model.find_double("dropout").value_or(0) != 0) decline("model.dropout is not supported");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!model.find_string(key).value_or("").empty()) decline("model.{} is not supported", key);
    }
    data_.byte_fallback = model.find_bool("byte_fallback").value_or(false);
    data_.fuse_unk = model.find_bool("fuse_unk").value_or(false);
    data_.ignore_merges = model.find_bool("ignore_merges").value_or(false);
  }

  // Ids may leave holes, but not so many that a small file asks for much memory.
  int32_t check_id(const json& value, size_t limit, std::string_view what) const {
    if (!value.is_number_integer()) fail("{} must be an integer, got {}", what, value.type_name());
    const bool negative = !value.is_number_unsigned() && value.get<int64_t>() < 0;
    if (negative || value.get<uint64_t>() >= limit) {
      fail("{} is {}, ids of this vocabulary must be from 0 to {}", what, value.dump(), limit - 1);
    }
    return value.get<int32_t>();
  }

  void read_vocabulary(const JsonView& model) {
    const json* vocab = model.find("vocab");
    if (!vocab || !vocab->is_object()) fail("model.vocab must be an object of token: id");
    const json* added = view_.find("added_tokens");
    if (added && !added->is_array()) fail("added_tokens must be a list");
    const size_t limit = 2 * (vocab->size() + (added ? added->size() : 0)) + 1024;
    // nlohmann's lookups are by copied keys; this table refers to the strings of the document itself.
    by_text_.reserve(vocab->size());
    for (const auto& [token, id] : vocab->items()) {
      if (token.empty()) continue;
      const int32_t at = check_id(id, limit, fmt::format("model.vocab[\"{}\"]", printable(token)));
      set_token(at, token, fmt::format("model.vocab[\"{}\"]", printable(token)), true);
    }
    for (size_t i = 0; added && i < added->size(); ++i)
      read_added(JsonView((*added)[i], data_.source, fmt::format("added_tokens[{}].", i)), limit);
    // Texts have moved while the vector grew: refer to them only now.
    for (size_t id = 0; id < data_.tokens.size(); ++id)
      if (!data_.tokens[id].empty()) by_text_.insert(data_.tokens[id], static_cast<int32_t>(id));
  }

  void set_token(int32_t id, const std::string& text, std::string_view what, bool in_model) {
    const auto at = static_cast<size_t>(id);
    if (at >= data_.tokens.size()) {
      data_.tokens.resize(at + 1);
      data_.in_model.resize(at + 1, 0);
    }
    if (!data_.tokens[at].empty()) {
      fail("{} has id {}, which is already that of \"{}\"", what, id, printable(data_.tokens[at]));
    }
    data_.tokens[at] = text;
    data_.in_model[at] = in_model;
  }

  void read_added(const JsonView& entry, size_t limit) {
    AddedToken token;
    token.content = entry.need_string("content");
    if (token.content.empty()) return;
    const json* id = entry.find("id");
    if (!id) fail("{} is missing", entry.path_of("id"));
    token.id = check_id(*id, limit, entry.path_of("id"));
    token.special = entry.find_bool("special").value_or(false);
    token.lstrip = entry.find_bool("lstrip").value_or(false);
    token.rstrip = entry.find_bool("rstrip").value_or(false);
    token.single_word = entry.find_bool("single_word").value_or(false);
    token.normalized = entry.find_bool("normalized").value_or(!token.special);
    const auto at = static_cast<size_t>(token.id);
    const bool known = at < data_.tokens.size() && data_.tokens[at] == token.content;
    if (!known) set_token(token.id, token.content, entry.path_of("id"), false);
    // The same token twice: the later entry counts.
    std::erase_if(data_.added, [&](const AddedToken& other) { return other.id == token.id; });
    data_.added.push_back(std::move(token));
  }

  void read_merges(const JsonView& model) {
    const json* merges = model.find("merges");
    if (!merges || !merges->is_array()) fail("model.merges must be a list");
    data_.merges.reserve(merges->size());
    uint32_t rank = 0;
    std::string result;
    for (size_t i = 0; i < merges->size(); ++i) {
      const json& merge = (*merges)[i];
      std::string_view left, right;
      if (merge.is_string()) {
        const std::string_view line = merge.get_ref<const std::string&>();
        if (line.starts_with("#version")) continue;
        const size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
          fail("model.merges[{}] \"{}\" is not two tokens", i, printable(line));
        }
        left = line.substr(0, space);
        right = line.substr(space + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get_ref<const std::string&>();
        right = merge[1].get_ref<const std::string&>();
      } else {
        fail("model.merges[{}] must be two tokens", i);
      }
      result.assign(left).append(right);
      const Merge entry{find_in_model(left, i), find_in_model(right, i), find_in_model(result, i), rank++};
      data_.merges.push_back(entry);
    }
  }

  int32_t find_in_model(std::string_view token, size_t merge) const {
    const int32_t id = by_text_.find(token);
    if (id < 0 || !data_.in_model[static_cast<size_t>(id)]) {
      fail("model.merges[{}] names \"{}\", which is not in model.vocab", merge, printable(token));
    }
    return id;
  }

  void read_post_processor() {
    const json* value = view_.find("post_processor");
    if (value) add_post_processor(JsonView(*value, data_.source, "post_processor."));
  }

  // Later processors wrap what earlier ones made.
  void add_post_processor(const JsonView& view) {
    const std::string type = view.need_string("type");
    if (type == "Sequence") {
      const json* list = view.find("processors");
      if (!list || !list->is_array()) fail("{} must be a list", view.path_of("processors"));
      for (size_t i = 0; i < list->size(); ++i) {
        add_post_processor(JsonView((*list)[i], data_.source, fmt::format("{}[{}].", view.path_of("processors"), i)));
      }
    } else if (type == "TemplateProcessing") {
      add_template(view);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      wrap({pair_id(view, "cls")}, {pair_id(view, "sep")});
    } else if (type != "ByteLevel") {
      decline("{} \"{}\" is not supported", view.path_of("type"), printable(type));
    }
  }

  int32_t pair_id(const JsonView& view, std::string_view key) const {
    const json* pair = view.find(key);
    if (!pair || !pair->is_array() || pair->size() != 2) fail("{} must be a token and its id", view.path_of(key));
    return check_id((*pair)[1], data_.tokens.size(), view.path_of(key));
  }

  void wrap(std::vector<int32_t> before, const std::vector<int32_t>& after) {
    before.insert(before.end(), data_.prefix.begin(), data_.prefix.end());
    data_.prefix = std::move(before);
    data_.suffix.insert(data_.suffix.end(), after.begin(), after.end());
  }

  void add_template(const JsonView& view) {
    const json* single = view.find("single");
    if (!single || !single->is_array()) fail("{} must be a list", view.path_of("single"));
    const auto tokens = view.find_object("special_tokens");
    std::vector<int32_t> before, after;
    bool seen = false;
    for (size_t i = 0; i < single->size(); ++i) {
      const JsonView piece((*single)[i], data_.source, fmt::format("{}[{}].", view.path_of("single"), i));
      if (piece.has("Sequence")) {
        if (seen) decline("{} uses the text twice", view.path_of("single"));
        seen = true;
        continue;
      }
      const std::string name = piece.need_object("SpecialToken").need_string("id");
      const json* entry = tokens ? tokens->find(name) : nullptr;
      if (!entry) fail("{} has no \"{}\"", view.path_of("special_tokens"), printable(name));
      const JsonView token(*entry, data_.source,
                           fmt::format("{}.{}.", view.path_of("special_tokens"), printable(name)));
      const json* ids = token.find("ids");
      if (!ids || !ids->is_array()) fail("{} must be a list", token.path_of("ids"));
      for (const json& id : *ids)
        (seen ? after : before).push_back(check_id(id, data_.tokens.size(), token.path_of("ids")));
    }
    if (!seen) decline("{} does not use the text", view.path_of("single"));
    wrap(std::move(before), after);
  }

  JsonView view_;
  TokenizerData data_;
  TokenTable by_text_;
};

}  // namespace

TokenizerData read_hf_tokenizer(std::string_view tokenizer_json, const std::string& source) {
  const json root = parse_json(tokenizer_json, source, {.unique_keys = false});
  return HfReader(root, source).run();
}

void apply_tokenizer_config(TokenizerData& data, std::string_view config_json, const std::string& source) {
  const json root = parse_json(config_json, source);
  const JsonView view(root, source);
  const auto find_id = [&data](const std::string& text) {
    for (const AddedToken& token : data.added)
      if (token.content == text) return token.id;
    const auto at = std::find(data.tokens.begin(), data.tokens.end(), text);
    return at == data.tokens.end() || text.empty() ? -1 : static_cast<int32_t>(at - data.tokens.begin());
  };
  const auto read_token = [&](const char* key, std::string& text, int32_t* id) {
    const json* value = view.find(key);
    if (!value) return;
    // Either the text, or a description of the token with its text as "content".
    text = value->is_object() ? JsonView(*value, source, std::string(key) + ".").need_string("content")
                              : view.need_string(key);
    if (id) *id = find_id(text);
  };
  read_token("bos_token", data.bos_token, &data.bos_id);
  read_token("eos_token", data.eos_token, &data.eos_id);
  read_token("pad_token", data.pad_token, &data.pad_id);
  read_token("unk_token", data.unk_token, nullptr);

  // For these classes the configuration decides what goes around a text, whatever tokenizer.json says.
  const std::string tokenizer_class = view.find_string("tokenizer_class").value_or("");
  if (tokenizer_class.starts_with("LlamaTokenizer") || tokenizer_class.starts_with("GemmaTokenizer") ||
      tokenizer_class.starts_with("CodeLlamaTokenizer")) {
    if (const auto add = view.find_bool("add_bos_token"))
      data.prefix = *add && data.bos_id >= 0 ? std::vector{data.bos_id} : std::vector<int32_t>{};
    if (const auto add = view.find_bool("add_eos_token"))
      data.suffix = *add && data.eos_id >= 0 ? std::vector{data.eos_id} : std::vector<int32_t>{};
  }

  const json* chat = view.find("chat_template");
  if (!chat) return;
  if (chat->is_array()) {
    for (size_t i = 0; i < chat->size(); ++i) {
      const JsonView entry((*chat)[i], source, fmt::format("chat_template[{}].", i));
      data.named_templates[entry.need_string("name")] = entry.need_string("template");
    }
    const auto it = data.named_templates.find("default");
    if (it != data.named_templates.end()) {
      data.chat_template = it->second;
      data.named_templates.erase(it);
    }
  } else {
    data.chat_template = view.need_string("chat_template");
  }
}

}  // namespace ingot
