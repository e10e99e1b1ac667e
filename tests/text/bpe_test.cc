#include "text/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "cpu_time.h"
#include "soak.h"

namespace ingot {
namespace {

TEST(TokenTable, FindsWhatWasInserted) {
  std::vector<std::string> keys;
  for (int i = 0; i < 5000; ++i) keys.push_back("key" + std::to_string(i * 7919));
  TokenTable table;
  EXPECT_EQ(table.find("x"), -1);
  for (size_t i = 0; i < keys.size(); ++i) table.insert(keys[i], static_cast<int32_t>(i));
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(table.find(keys[i]), static_cast<int32_t>(i));
  EXPECT_EQ(table.find("key"), -1);
  EXPECT_EQ(table.find(""), -1);
  table.insert(keys[3], 77);
  EXPECT_EQ(table.find(keys[3]), 77);
}

const std::vector<std::string> kLetters = {"a", "b", "c", "d"};
const std::vector<std::string> kMarked = {"a", "b", "c", "\u2581"};

// A vocabulary over a few letters with random merges, characters or bytes.
TokenizerData random_vocabulary(uint32_t seed, bool byte_level, int merges,
                                const std::vector<std::string>& alphabet = kLetters) {
  std::mt19937 rng(seed);
  TokenizerData data;
  data.byte_level = byte_level;
  data.tokens = alphabet;
  std::map<std::pair<int32_t, int32_t>, bool> seen;
  for (int i = 0; i < merges; ++i) {
    const auto left = static_cast<int32_t>(rng() % data.tokens.size());
    const auto right = static_cast<int32_t>(rng() % data.tokens.size());
    const std::string text = data.tokens[static_cast<size_t>(left)] + data.tokens[static_cast<size_t>(right)];
    if (text.size() > 12 || !seen.emplace(std::pair(left, right), true).second) continue;
    auto at = std::find(data.tokens.begin(), data.tokens.end(), text);
    if (at == data.tokens.end()) at = data.tokens.insert(at, text);
    data.merges.push_back({left, right, static_cast<int32_t>(at - data.tokens.begin()), static_cast<uint32_t>(i)});
  }
  data.in_model.assign(data.tokens.size(), 1);
  return data;
}

// The definition: while some neighbours merge, merge the pair of lowest rank, the leftmost of those.
std::vector<int32_t> encode_plainly(const TokenizerData& data, std::vector<int32_t> ids) {
  std::map<std::pair<int32_t, int32_t>, Merge> merges;
  for (const Merge& merge : data.merges) merges.insert_or_assign({merge.left, merge.right}, merge);
  while (true) {
    const Merge* best = nullptr;
    size_t where = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = merges.find({ids[i], ids[i + 1]});
      if (it == merges.end() || (best && it->second.rank >= best->rank)) continue;
      best = &it->second;
      where = i;
    }
    if (!best) return ids;
    ids[where] = best->result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(where) + 1);
  }
}

void expect_definition(uint32_t seed, bool byte_level, const std::vector<std::string>& alphabet) {
  const TokenizerData data = random_vocabulary(seed, byte_level, 60, alphabet);
  const Bpe bpe(data);
  Bpe::Scratch scratch;
  std::mt19937 rng(seed);
  for (int round = 0; round < 100; ++round) {
    std::string word;
    std::vector<int32_t> letters;
    // Around the limits: the caches' 30 and 126 bytes, 48 symbols for the heap.
    const size_t length = 1 + rng() % 180;
    for (size_t i = 0; i < length; ++i) {
      letters.push_back(static_cast<int32_t>(rng() % (alphabet.size() - seed % 3)));
      word += alphabet[static_cast<size_t>(letters.back())];
    }
    const std::vector<int32_t> want = encode_plainly(data, letters);
    for (int repeat = 0; repeat < 2; ++repeat) {  // the second time from the cache, where it fits
      std::vector<int32_t> got;
      bpe.encode(word, scratch, got);
      ASSERT_EQ(got, want) << word;
    }
  }
}

TEST(Bpe, ShortAndLongWordsFollowTheDefinition) {
  for (uint32_t seed = 0; seed < (test::kSanitized ? 6 : 20); ++seed) expect_definition(seed, seed % 2 == 0, kLetters);
}

// With space marks the model cuts at those that no token joins to what precedes; the result must not show it.
TEST(Bpe, CuttingAtSpaceMarksChangesNothing) {
  for (uint32_t seed = 0; seed < 40; ++seed) expect_definition(seed, false, kMarked);
}

// Cost must stay near linear: these would take hours if it were quadratic.
TEST(Bpe, HugeWordsAreQuick) {
  const TokenizerData data = random_vocabulary(3, true, 60);
  const Bpe bpe(data);
  Bpe::Scratch scratch;
  std::mt19937 rng(1);
  std::string mixed;
  for (int i = 0; i < 1'000'000; ++i) mixed.push_back(static_cast<char>('a' + rng() % 4));
  for (const std::string& word : {std::string(1'000'000, 'a'), mixed}) {
    const double start = test::thread_cpu_s();
    std::vector<int32_t> ids;
    bpe.encode(word, scratch, ids);
    EXPECT_LT(test::thread_cpu_s() - start, 20);
    size_t total = 0;
    for (int32_t id : ids) total += data.tokens[static_cast<size_t>(id)].size();
    EXPECT_EQ(total, word.size());
  }
}

TokenizerData unknown_vocabulary() {
  TokenizerData data;
  data.tokens = {"<unk>", "a", "b", "<0xC3>", "<0xA9>"};
  data.in_model.assign(data.tokens.size(), 1);
  data.unk_id = 0;
  return data;
}

std::vector<int32_t> encode(const TokenizerData& data, std::string_view word) {
  const Bpe bpe(data);
  Bpe::Scratch scratch;
  std::vector<int32_t> ids;
  bpe.encode(word, scratch, ids);
  return ids;
}

TEST(Bpe, UnknownCharacters) {
  using Ids = std::vector<int32_t>;
  TokenizerData data = unknown_vocabulary();
  EXPECT_EQ(encode(data, "axyb"), (Ids{1, 0, 0, 2}));
  data.fuse_unk = true;
  EXPECT_EQ(encode(data, "axyb"), (Ids{1, 0, 2}));
  data.unk_id = -1;
  EXPECT_EQ(encode(data, "axyb"), (Ids{1, 2}));
  data.byte_fallback = true;
  EXPECT_EQ(encode(data, "a\u00e9b"), (Ids{1, 3, 4, 2}));
  EXPECT_EQ(encode(data, "\u00e8"), Ids{});  // one of its bytes has no token
  data.unk_id = 0;
  EXPECT_EQ(encode(data, "\u00e8\u00e9a"), (Ids{3, 4, 0, 1}));  // the reference's order
}

}  // namespace
}  // namespace ingot
