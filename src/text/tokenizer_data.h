#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

// Everything a tokenizer is made of, as plain data. The readers (GGUF, tokenizer.json, tekken.json) fill it, the
// Tokenizer checks it and runs it. Step lists keep the order of Hugging Face `tokenizers`.

// A token matched in the text before anything else is done to it.
struct AddedToken {
  int32_t id = -1;
  std::string content = {};
  bool special = false;      // a control token: matched only when asked, hidden by skip_special
  bool lstrip = false;       // swallows white space on its left
  bool rstrip = false;       // swallows white space on its right
  bool single_word = false;  // only where no word character touches it
  bool normalized = false;   // matched in the normalized text, not in the raw one
};

// `left` next to `right` becomes `result`; the lowest rank in a word goes first, then the leftmost.
struct Merge {
  int32_t left, right, result;
  uint32_t rank;
};

struct NormalizerStep {
  enum class Kind { nfc, nfd, nfkc, nfkd, lowercase, replace_text, replace_regex, prepend, strip };
  Kind kind;
  std::string pattern = {};  // replace_*: what to replace
  std::string content = {};  // replace_*: by what; prepend: the prefix
  bool left = false;         // strip
  bool right = false;
};

enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
enum class PrependScheme { first, always, never };

struct PreTokenizerStep {
  enum class Kind { split_text, split_regex, digits, byte_level, metaspace };
  Kind kind;
  std::string pattern = {};  // split_*
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
  bool individual_digits = false;  // digits
  bool add_prefix_space = false;   // byte_level
  bool use_regex = true;           // byte_level: split by the GPT-2 pattern first
  std::string replacement = {};    // metaspace: stands for a space
  PrependScheme prepend_scheme = PrependScheme::always;
  bool split = true;  // metaspace
};

struct DecoderStep {
  enum class Kind { byte_level, byte_fallback, fuse, replace_text, strip, metaspace };
  Kind kind;
  std::string pattern = {};  // replace_text; metaspace: the replacement character
  std::string content = {};  // replace_text; strip: the character
  uint32_t start = 0;        // strip: at most so many at the start
  uint32_t stop = 0;         // strip: at most so many at the end
  bool drop_first = true;    // metaspace: spaces of the first token vanish
};

// Tokens that stand before the parts of a text with a gap, and before the names of repositories and files; -1: none.
struct InfillMarks {
  int32_t prefix = -1, suffix = -1, middle = -1, repository = -1, file = -1;
};

struct TokenizerData {
  std::string source;  // file name, for errors

  std::vector<std::string> tokens;  // by id, as stored; an empty string where the vocabulary has a hole
  std::vector<uint8_t> in_model;    // by id: 1 where BPE may look the token up, 0 for tokens that are only added
  std::vector<Merge> merges;
  std::vector<AddedToken> added;

  bool byte_level = false;     // tokens are written in GPT-2's byte alphabet and BPE starts from bytes, not characters
  bool byte_fallback = false;  // characters out of the vocabulary become <0x..> tokens
  bool fuse_unk = false;
  bool ignore_merges = false;  // a word that is a token needs no merging
  int32_t unk_id = -1;         // for characters out of the vocabulary; -1: they are dropped

  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  bool has_decoder = true;  // without one, tokens are joined by spaces
  std::vector<DecoderStep> decoder;
  std::vector<int32_t> prefix, suffix;  // put around the text by add_special

  int32_t bos_id = -1, eos_id = -1, pad_id = -1;
  InfillMarks infill;                                      // as far as the file names them
  std::vector<int32_t> end_ids;                            // any of these ends a generation
  std::string bos_token, eos_token, unk_token, pad_token;  // texts for the chat template
  std::optional<std::string> chat_template;
  std::map<std::string, std::string> named_templates;  // tool_use, rag, ...
};

}  // namespace ingot
