#include <algorithm>
#include <string_view>

#include "text/tokenizer_readers.h"

namespace ingot {

void find_end_tokens(TokenizerData& data) {
  // Chat models end a turn with one of these even where the file names only the end of a document.
  constexpr std::string_view kEndTexts[] = {"<|eot_id|>",      "<|im_end|>", "<|end|>", "<end_of_turn>",
                                            "<|endoftext|>",   "<|eom_id|>", "<EOT>",   "<|end_of_text|>",
                                            "<|end_of_turn|>", "<turn|>"};
  std::vector<int32_t>& ids = data.end_ids;
  if (data.eos_id >= 0) ids.insert(ids.begin(), data.eos_id);
  for (const AddedToken& token : data.added) {
    if (!token.special) continue;
    if (std::find(std::begin(kEndTexts), std::end(kEndTexts), token.content) != std::end(kEndTexts))
      ids.push_back(token.id);
  }
  std::vector<int32_t> unique;
  for (int32_t id : ids)
    if (std::find(unique.begin(), unique.end(), id) == unique.end()) unique.push_back(id);
  ids = std::move(unique);
}

}  // namespace ingot
