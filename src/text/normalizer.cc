#include "text/normalizer.h"

#include "text/unicode.h"

namespace ingot {
namespace {

std::string replace_matches(std::string_view text, const Regex& regex, std::string_view content) {
  std::vector<Regex::Match> matches;
  regex.find_all(text, matches);
  std::string out;
  size_t done = 0;
  for (const Regex::Match& match : matches) {
    out.append(text.substr(done, match.begin - done));
    out.append(content);
    done = match.end;
  }
  out.append(text.substr(done));
  return out;
}

std::string strip(std::string_view text, bool left, bool right) {
  const CharClasses& classes = CharClasses::get();
  while (left && !text.empty()) {
    const Utf8Char c = decode_valid_utf8(text.data());
    if (!(classes[c.code] & kSpace)) break;
    text.remove_prefix(c.length);
  }
  while (right && !text.empty()) {
    size_t i = text.size() - 1;
    while (i > 0 && (text[i] & 0xC0) == 0x80) --i;
    if (!(classes[decode_valid_utf8(text.data() + i).code] & kSpace)) break;
    text = text.substr(0, i);
  }
  return std::string(text);
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  size_t done = 0;
  for (size_t i = text.find(pattern); i != std::string_view::npos; i = text.find(pattern, done)) {
    out.append(text.substr(done, i - done));
    out.append(content);
    done = i + pattern.size();
  }
  out.append(text.substr(done));
  return out;
}

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps) {
  for (const NormalizerStep& spec : steps) {
    Step step{spec, {}};
    if (spec.kind == NormalizerStep::Kind::replace_regex) step.regex.emplace_back(spec.pattern);
    steps_.push_back(std::move(step));
  }
}

std::string Normalizer::run(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    const NormalizerStep& spec = step.spec;
    switch (spec.kind) {
      case NormalizerStep::Kind::nfc: out = normalize_unicode(out, NormalForm::nfc); break;
      case NormalizerStep::Kind::nfd: out = normalize_unicode(out, NormalForm::nfd); break;
      case NormalizerStep::Kind::nfkc: out = normalize_unicode(out, NormalForm::nfkc); break;
      case NormalizerStep::Kind::nfkd: out = normalize_unicode(out, NormalForm::nfkd); break;
      case NormalizerStep::Kind::lowercase: out = lowercase_unicode(out); break;
      case NormalizerStep::Kind::replace_text: out = replace_all(out, spec.pattern, spec.content); break;
      case NormalizerStep::Kind::replace_regex: out = replace_matches(out, step.regex[0], spec.content); break;
      case NormalizerStep::Kind::prepend:
        if (!out.empty()) out.insert(0, spec.content);
        break;
      case NormalizerStep::Kind::strip: out = strip(out, spec.left, spec.right); break;
    }
  }
  return out;
}

}  // namespace ingot
