#include "text/bpe.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "text/byte_alphabet.h"
#include "text/unicode.h"

namespace ingot {
namespace {

constexpr int32_t kGone = -2;
constexpr uint32_t kNoRank = ~uint32_t{0};
// Up to this many symbols a scan for the lowest rank beats a heap.
constexpr size_t kShortWord = 48;

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash_bytes(std::string_view key) {
  const char* p = key.data();
  size_t n = key.size();
  uint64_t h = 0x9E3779B97F4A7C15u ^ n;
  while (n >= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = mix(h ^ word, 0xE7037ED1A0B428DBu);
    p += 8;
    n -= 8;
  }
  if (n > 0) {
    uint64_t word = 0;
    std::memcpy(&word, p, n);
    h = mix(h ^ word, 0x8EBC6AF09C88C6E3u);
  }
  return mix(h, 0x589965CC75374CC3u);
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t table_size(size_t count) {
  size_t size = 16;
  while (size * 2 < count * 3) size *= 2;  // at most two thirds full
  return size;
}

}  // namespace

void TokenTable::reserve(size_t count) {
  if (table_size(count) <= slots_.size()) return;
  std::vector<Slot> old(table_size(count));
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.id >= 0) slots_[locate(slot.key, hash_bytes(slot.key))] = slot;
}

size_t TokenTable::locate(std::string_view key, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t i = hash & mask;
  while (slots_[i].id >= 0 && (slots_[i].tag != tag || slots_[i].key != key)) i = (i + 1) & mask;
  return i;
}

void TokenTable::insert(std::string_view key, int32_t id) {
  reserve(count_ + 1);
  const uint64_t hash = hash_bytes(key);
  Slot& slot = slots_[locate(key, hash)];
  if (slot.id < 0) ++count_;
  slot = {key, id, static_cast<uint32_t>(hash >> 32)};
}

int32_t TokenTable::find(std::string_view key) const {
  return slots_.empty() ? -1 : slots_[locate(key, hash_bytes(key))].id;
}

Bpe::Bpe(const TokenizerData& data)
    : byte_level_(data.byte_level),
      byte_fallback_(data.byte_fallback),
      fuse_unk_(data.fuse_unk),
      ignore_merges_(data.ignore_merges),
      unk_id_(data.unk_id) {
  const size_t count = data.tokens.size();
  words_.reserve(count);
  byte_ids_.fill(-1);
  auto in_model = [&](size_t id) { return data.in_model[id] && !data.tokens[id].empty(); };
  if (byte_level_) {
    const ByteAlphabet& alphabet = ByteAlphabet::get();
    byte_texts_.resize(count);
    for (size_t id = 0; id < count; ++id) {
      if (!in_model(id) || !alphabet.decode(data.tokens[id], byte_texts_[id])) continue;
      words_.insert(byte_texts_[id], static_cast<int32_t>(id));
    }
    for (int b = 0; b < 256; ++b) {
      const char byte = static_cast<char>(b);
      byte_ids_[b] = words_.find({&byte, 1});
    }
  } else {
    bmp_ids_.assign(0x10000, -1);
    for (size_t id = 0; id < count; ++id) {
      if (!in_model(id)) continue;
      const std::string& text = data.tokens[id];
      words_.insert(text, static_cast<int32_t>(id));
      const Utf8Char c = decode_valid_utf8(text.data());
      if (c.length == text.size() && c.code < 0x10000) bmp_ids_[c.code] = static_cast<int32_t>(id);
    }
    for (int b = 0; b < 256; ++b) byte_ids_[b] = words_.find(fmt::format("<0x{:02X}>", b));
  }
  all_bytes_ = std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
  add_merges(data.merges);
  if (!byte_level_ && !ignore_merges_) find_word_starts(data);
}

void Bpe::add_merges(const std::vector<Merge>& merges) {
  merges_.resize(table_size(merges.size()));
  merge_mask_ = merges_.size() - 1;
  for (const Merge& merge : merges) {
    const uint64_t pair = pair_key(merge.left, merge.right);
    size_t i = mix(pair, 0x9E3779B97F4A7C15u) & merge_mask_;
    while (merges_[i].pair != kNoPair && merges_[i].pair != pair) i = (i + 1) & merge_mask_;
    merges_[i] = {pair, merge.rank, merge.result};
  }
}

const Bpe::MergeSlot* Bpe::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  size_t i = mix(pair, 0x9E3779B97F4A7C15u) & merge_mask_;
  while (merges_[i].pair != pair) {
    if (merges_[i].pair == kNoPair) return nullptr;
    i = (i + 1) & merge_mask_;
  }
  return &merges_[i];
}

void Bpe::find_word_starts(const TokenizerData& data) {
  if (words_.find(kSpaceMark) < 0) return;
  cut_at_marks_ = true;
  for (const Merge& merge : data.merges) {
    const std::string& text = data.tokens[merge.result];
    for (size_t i = text.find(kSpaceMark, 1); i != std::string::npos; i = text.find(kSpaceMark, i + 1)) {
      size_t before = i - 1;
      while ((text[before] & 0xC0) == 0x80) --before;
      joined_to_mark_.push_back(decode_valid_utf8(text.data() + before).code);
    }
  }
  std::sort(joined_to_mark_.begin(), joined_to_mark_.end());
  joined_to_mark_.erase(std::unique(joined_to_mark_.begin(), joined_to_mark_.end()), joined_to_mark_.end());
}

int32_t Bpe::find_char(char32_t code, std::string_view text) const {
  return code < 0x10000 ? bmp_ids_[code] : words_.find(text);
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out,
                 const CancelFlag* cancelled) const {
  scratch.cancelled_ = cancelled;
  if (!cut_at_marks_) {
    encode_chunk(word, scratch, out);
    return;
  }
  size_t start = 0;
  for (size_t i = word.find(kSpaceMark, 1); i != std::string_view::npos; i = word.find(kSpaceMark, i + 3)) {
    size_t before = i - 1;
    while ((word[before] & 0xC0) == 0x80) --before;
    const char32_t code = decode_valid_utf8(word.data() + before).code;
    if (std::binary_search(joined_to_mark_.begin(), joined_to_mark_.end(), code)) continue;
    encode_chunk(word.substr(start, i - start), scratch, out);
    start = i;
  }
  encode_chunk(word.substr(start), scratch, out);
}

void Bpe::encode_chunk(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  if (word.size() <= 30) {
    encode_cached(scratch.short_words_.at(hash_bytes(word)), word, scratch, out);
  } else if (word.size() <= 126) {
    encode_cached(scratch.long_words_.at(hash_bytes(word)), word, scratch, out);
  } else {
    encode_uncached(word, scratch, out);
  }
}

template <typename Entry>
void Bpe::encode_cached(Entry& entry, std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
  static_assert(sizeof(Entry) % 64 == 0);
  if (entry.length == word.size() && std::memcmp(entry.word, word.data(), word.size()) == 0) {
    out.insert(out.end(), entry.ids, entry.ids + entry.count);
    return;
  }
  const size_t before = out.size();
  encode_uncached(word, scratch, out);
  const size_t count = out.size() - before;
  if (count > std::size(entry.ids)) return;
  entry.length = static_cast<uint8_t>(word.size());
  entry.count = static_cast<uint8_t>(count);
  std::memcpy(entry.word, word.data(), word.size());
  std::copy(out.begin() + static_cast<ptrdiff_t>(before), out.end(), entry.ids);
}

void Bpe::encode_uncached(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
  const int32_t whole = ignore_merges_ ? words_.find(word) : -1;
  if (whole >= 0) {
    out.push_back(whole);
    return;
  }
  scratch.ids_.clear();
  split_into_symbols(word, scratch.ids_);
  if (scratch.ids_.size() <= kShortWord) {
    merge_short(scratch, out);
  } else {
    merge_long(scratch, out);
  }
}

void Bpe::split_into_symbols(std::string_view word, std::vector<int32_t>& ids) const {
  if (byte_level_ && all_bytes_) {
    for (char c : word) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    return;
  }
  bool unknown_pending = false;
  auto flush = [&] {
    if (unknown_pending) ids.push_back(unk_id_);
    unknown_pending = false;
  };
  for (size_t i = 0; i < word.size();) {
    Utf8Char c{static_cast<uint8_t>(word[i]), 1};
    int32_t id;
    if (byte_level_) {
      id = byte_ids_[c.code];
    } else {
      c = decode_valid_utf8(word.data() + i);
      id = find_char(c.code, word.substr(i, c.length));
    }
    const std::string_view text = word.substr(i, c.length);
    i += c.length;
    if (id >= 0) {
      flush();
      ids.push_back(id);
      continue;
    }
    if (byte_fallback_ && !byte_level_) {
      const bool known = std::all_of(text.begin(), text.end(), [this](char b) { return byte_ids_[uint8_t(b)] >= 0; });
      if (known) {
        // A pending unknown stays pending: the reference implementation puts it after these bytes.
        for (char b : text) ids.push_back(byte_ids_[static_cast<uint8_t>(b)]);
        continue;
      }
    }
    if (unk_id_ < 0) continue;
    if (!fuse_unk_) flush();
    unknown_pending = true;
  }
  flush();
}

// O(n^2) in the number of symbols, with a tiny constant: ranks_[i] is the rank of the pair (i, i + 1).
void Bpe::merge_short(Scratch& scratch, std::vector<int32_t>& out) const {
  std::vector<int32_t>& ids = scratch.ids_;
  size_t n = ids.size();
  scratch.ranks_.resize(kShortWord);
  scratch.results_.resize(kShortWord);
  uint32_t* ranks = scratch.ranks_.data();
  int32_t* results = scratch.results_.data();
  auto look_up = [&](size_t i) {
    const MergeSlot* merge = find_merge(ids[i], ids[i + 1]);
    ranks[i] = merge ? merge->rank : kNoRank;
    results[i] = merge ? merge->result : -1;
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNoRank) break;
    ids[best] = results[best];
    // Symbol best + 1 goes, and with it the pair it led.
    for (size_t i = best + 1; i + 1 < n; ++i) ids[i] = ids[i + 1];
    for (size_t i = best + 1; i + 2 < n; ++i) {
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --n;
    if (best + 1 < n) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n));
}

// O(n log n): a linked list of symbols and a heap of candidate merges, stale ones dropped when they surface.
void Bpe::merge_long(Scratch& scratch, std::vector<int32_t>& out) const {
  using Symbol = Scratch::Symbol;
  using Candidate = Scratch::Candidate;
  std::vector<Symbol>& symbols = scratch.symbols_;
  std::vector<Candidate>& heap = scratch.heap_;
  const auto n = static_cast<int32_t>(scratch.ids_.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < n; ++i) symbols.push_back({scratch.ids_[i], i - 1, i + 1 < n ? i + 1 : -1});
  auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  auto propose = [&](int32_t position) -> bool {
    const Symbol& left = symbols[position];
    if (left.next < 0) return false;
    const MergeSlot* merge = find_merge(left.id, symbols[left.next].id);
    if (!merge) return false;
    heap.push_back({merge->rank, position, merge->result});
    return true;
  };
  for (int32_t i = 0; i < n; ++i) propose(i);
  std::make_heap(heap.begin(), heap.end(), later);
  for (uint32_t round = 0; !heap.empty(); ++round) {
    if (round % 4096 == 0) check_cancelled(scratch.cancelled_);
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[top.position];
    if (left.next < 0) continue;  // merged away, or the last one
    Symbol& right = symbols[left.next];
    const MergeSlot* merge = find_merge(left.id, right.id);
    if (!merge || merge->result != top.result) continue;
    left.id = top.result;
    left.next = right.next;
    right.next = kGone;
    if (left.next >= 0) symbols[left.next].previous = top.position;
    if (left.previous >= 0 && propose(left.previous)) std::push_heap(heap.begin(), heap.end(), later);
    if (propose(top.position)) std::push_heap(heap.begin(), heap.end(), later);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) out.push_back(symbols[i].id);
  // One huge word must not keep its working memory for good.
  if (symbols.capacity() > (1u << 20)) {
    symbols = {};
    heap = {};
    scratch.ids_ = {};
  }
}

}  // namespace ingot
