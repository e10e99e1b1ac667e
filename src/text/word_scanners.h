#pragma once

#include <string_view>

#include "text/unicode.h"

namespace ingot {

// Hand-written matchers of the split patterns of the common models. Each returns the end of the match that starts at
// `begin` (begin < end, valid UTF-8); these patterns match at every position, so a text is cut by calling it
// repeatedly.
using WordScanner = const char* (*)(const CharClasses& classes, const char* begin, const char* end);

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const char* scan_gpt2(const CharClasses& classes, const char* begin, const char* end);
const char* scan_llama3(const CharClasses& classes, const char* begin, const char* end);
const char* scan_qwen2(const CharClasses& classes, const char* begin, const char* end);
const char* scan_tekken(const CharClasses& classes, const char* begin, const char* end);

// The scanner of exactly this pattern, nullptr when there is none.
WordScanner find_scanner(std::string_view pattern);

}  // namespace ingot
