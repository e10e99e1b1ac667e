#include "grammar/mask.h"

#include "helpers.h"
#include "soak.h"

namespace ingot::grammar {
namespace {

using test::Random;

// Tokens as tokenizers have them: words, quotes with their neighbours, parts of characters, the same bytes twice.
std::shared_ptr<const Vocabulary> random_vocabulary(uint64_t seed) {
  Random random{seed};
  std::vector<Vocabulary::Token> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back({std::string(1, static_cast<char>(byte))});
  const std::vector<std::string> pieces = {
      "a",    "na",  "me", "name", "age", " ",    "  ",   "\"",       "\":",      "\",",     "{\"", "}",
      "]",    "[",   "1",  "12",   "0",   ".5",   "-",    "e",        "\\",       "n",       "u00", "\n",
      "true", "nul", "l",  ",",    ":",   "\xC3", "\xA9", "\xC3\xA9", "\xF0\x9F", "\x92\xA9"};
  for (int i = 0; i < 1500; ++i) {
    std::string bytes;
    for (uint32_t n = 1 + random.below(4); n > 0; --n)
      bytes += pieces[random.below(static_cast<uint32_t>(pieces.size()))];
    tokens.push_back({bytes});
  }
  for (int i = 0; i < 1500; ++i) {
    std::string bytes;
    for (uint32_t n = 1 + random.below(9); n > 0; --n) bytes.push_back(static_cast<char>('a' + random.below(8)));
    tokens.push_back({bytes});
  }
  tokens.push_back({"", false});  // a hole
  tokens.push_back({"<end>", true});
  const auto end = static_cast<int32_t>(tokens.size() - 1);
  tokens.push_back({"<tool>", true});
  return std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{end});
}

// Each bit against the matcher itself.
void check_mask(Matcher& matcher, const Vocabulary& vocabulary, std::vector<int32_t>& allowed) {
  std::vector<uint32_t> bits(vocabulary.mask_words());
  matcher.fill_mask(bits);
  allowed.clear();
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const bool set = (bits[id / 32] >> (id % 32) & 1) != 0;
    const bool taken = matcher.accept(static_cast<int32_t>(id));
    if (taken) matcher.rollback(1);
    ASSERT_EQ(set, taken) << "token " << id << " after " << matcher.text();
    if (set) allowed.push_back(static_cast<int32_t>(id));
  }
}

TEST(Mask, HasExactlyTheTokensThatMatch) {
  const auto vocabulary = random_vocabulary(3);
  const std::vector<std::string> schemas = {
      R"({})",
      R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":120}},"required":["name"]})",
      R"({"type":"object","properties":{"a":{"maxLength":6},"ab":{"pattern":"^[a-d]+$"},"abc":{"enum":["abc","abd","a",12]}},"additionalProperties":{"type":"array"}})",
      R"({"type":"array","items":{"type":"string","minLength":2,"maxLength":14}})",
      R"({"type":"string","pattern":"^(a|na|name)*$"})",
      R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"n":{"$ref":"#/$defs/t"}},"additionalProperties":false}}})",
      R"({"type":"array","items":{"type":"number","multipleOf":0.25}})",
      R"({"type":"string","format":"date"})",
  };
  Random random{11};
  std::vector<int32_t> allowed;
  const int walks = ingot::test::soak() ? 30 : 2, steps = ingot::test::soak() ? 30 : 10;
  for (const std::string& source : schemas) {
    const auto grammar = Grammar::json_schema(vocabulary, source);
    for (int walk = 0; walk < walks; ++walk) {
      Matcher matcher(grammar);
      for (int step = 0; step < steps && !matcher.is_finished(); ++step) {
        check_mask(matcher, *vocabulary, allowed);
        if (HasFatalFailure()) return;
        // There always is a way on, or the text is at its end.
        ASSERT_FALSE(allowed.empty()) << source << " after " << matcher.text();
        ASSERT_TRUE(matcher.accept(allowed[random.below(static_cast<uint32_t>(allowed.size()))]));
      }
    }
  }
}

// At the start of a string whose first letters matter: below most nodes of the tree any text may follow.
TEST(Mask, WithinAStringThatBegins) {
  const auto vocabulary = random_vocabulary(3);
  std::vector<int32_t> allowed;
  for (const char* source :
       {R"({"type":"string","pattern":"^[^bce]"})", R"({"type":"string","pattern":"^[b-c]"})",
        R"({"type":"string","not":{"pattern":"^(?:ab|na).*$"}})", R"({"type":"string","enum":["abc","name"]})"}) {
    Matcher matcher(Grammar::json_schema(vocabulary, source));
    ASSERT_EQ(matcher.accept_bytes("\""), 1u);
    check_mask(matcher, *vocabulary, allowed);
    EXPECT_FALSE(allowed.empty()) << source;
  }
}

TEST(Mask, OfOtherSources) {
  const auto vocabulary = random_vocabulary(4);
  const std::vector<std::shared_ptr<Grammar>> grammars = {
      Grammar::gbnf(vocabulary, "root ::= \"(\" root \")\" | word (\" \" word)*\nword ::= [a-z]{1,9}"),
      Grammar::regex(vocabulary, "(?:[^\"]*\"[^\"]{0,7}\")*"),
      Grammar::structural_tag(vocabulary,
                              R"({"triggers":["na"],"structures":[{"begin":"name","schema":{},"end":"e"}]})"),
      Grammar::gbnf(vocabulary, "root ::= <tool> .* <tool>"),
  };
  Random random{5};
  std::vector<int32_t> allowed;
  for (const auto& grammar : grammars) {
    Matcher matcher(grammar);
    for (int step = 0; step < 8 && !matcher.is_finished(); ++step) {
      check_mask(matcher, *vocabulary, allowed);
      if (HasFatalFailure()) return;
      ASSERT_FALSE(allowed.empty());
      ASSERT_TRUE(matcher.accept(allowed[random.below(static_cast<uint32_t>(allowed.size()))]));
    }
  }
}

TEST(Vocabulary, KnowsItsLimits) {
  const std::vector<Vocabulary::Token> tokens = {{"a"}, {"b"}};
  EXPECT_THROW(Vocabulary(tokens, {2}), Error);
  EXPECT_THROW(Vocabulary(tokens, {-1}), Error);
  const std::vector<Vocabulary::Token> huge = {{std::string(100'000, 'a')}};
  EXPECT_THROW(Vocabulary(huge, {}), Error);
}

}  // namespace
}  // namespace ingot::grammar
