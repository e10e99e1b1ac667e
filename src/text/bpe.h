#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/cancel.h"
#include "text/tokenizer_data.h"

namespace ingot {

// Token text (or bytes) to id. Keys are kept by reference: they must outlive the table.
class TokenTable {
 public:
  void reserve(size_t count);
  void insert(std::string_view key, int32_t id);  // the last insertion of a key wins
  int32_t find(std::string_view key) const;       // -1 when absent

 private:
  struct Slot {
    std::string_view key;
    int32_t id = -1;
    uint32_t tag = 0;  // part of the hash, to compare before the key itself
  };
  size_t locate(std::string_view key, uint64_t hash) const;  // the key's slot, or the free one where it would go
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

// Byte-pair encoding of one word (a piece of the pre-tokenizer). Read-only after construction.
class Bpe {
 public:
  // What one thread needs while encoding: a cache of short words and working memory.
  class Scratch {
   public:
    Scratch() = default;

   private:
    friend class Bpe;
    // A direct-mapped cache of whole words.
    template <size_t word_bytes, size_t most_ids, size_t entries>
    struct Cache {
      struct alignas(64) Entry {
        uint8_t length = 0;  // 0: empty
        uint8_t count = 0;
        char word[word_bytes];
        int32_t ids[most_ids];
      };
      std::vector<Entry> table = std::vector<Entry>(entries);
      Entry& at(uint64_t hash) { return table[hash % entries]; }
    };

    struct Symbol {
      int32_t id;
      int32_t previous, next;  // -1 at the ends; next is kGone in a symbol that was merged away
    };
    struct Candidate {
      uint32_t rank;
      int32_t position;
      int32_t result;
    };

    Cache<30, 8, 1 << 14> short_words_;   // an entry is one cache line; 1 MiB
    Cache<126, 32, 1 << 11> long_words_;  // 512 KiB
    std::vector<int32_t> ids_;
    std::vector<uint32_t> ranks_;
    std::vector<int32_t> results_;
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
    const CancelFlag* cancelled_ = nullptr;  // of the text being encoded
  };

  explicit Bpe(const TokenizerData& data);  // refers to data.tokens: the data must outlive the model

  // Appends the tokens of `word` (valid UTF-8 unless byte-level) to `out`.
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out,
              const CancelFlag* cancelled = nullptr) const;

 private:
  struct MergeSlot {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t result = -1;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  const MergeSlot* find_merge(int32_t left, int32_t right) const;  // nullptr when they do not merge
  void add_merges(const std::vector<Merge>& merges);
  void find_word_starts(const TokenizerData& data);
  int32_t find_char(char32_t code, std::string_view text) const;

  void encode_chunk(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const;
  template <typename Entry>
  void encode_cached(Entry& entry, std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const;
  void encode_uncached(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const;
  void split_into_symbols(std::string_view word, std::vector<int32_t>& ids) const;
  void merge_short(Scratch& scratch, std::vector<int32_t>& out) const;
  void merge_long(Scratch& scratch, std::vector<int32_t>& out) const;

  bool byte_level_, byte_fallback_, fuse_unk_, ignore_merges_;
  int32_t unk_id_;
  std::array<int32_t, 256> byte_ids_;  // byte-level: the token of each byte; otherwise its <0x..> token; -1 when absent
  bool all_bytes_ = false;             // every byte has a token
  std::vector<std::string> byte_texts_;  // keys of words_ when the vocabulary is in the byte alphabet
  TokenTable words_;                     // what ignore_merges and single characters look up
  std::vector<int32_t> bmp_ids_;         // [0x10000] id of each one-character token, -1 when absent
  std::vector<MergeSlot> merges_;        // open addressing
  uint64_t merge_mask_ = 0;

  // Where no token has X followed by the space mark, a text may be cut between the two without changing its tokens.
  bool cut_at_marks_ = false;
  std::vector<char32_t> joined_to_mark_;  // sorted: the X that some token does join to a following mark
};

}  // namespace ingot
