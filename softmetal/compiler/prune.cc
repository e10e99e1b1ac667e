// The part of a program that one kernel needs. Most of a library has nothing to do with it: reading it all again for
// every kernel would be half of what compiling one costs, and a change anywhere would compile everything again.
#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "compiler/lexer.h"
#include "compiler/program.h"

namespace softmetal {
namespace {

bool is_blank(const Token& t) {
  return t.kind == TokenKind::space || t.kind == TokenKind::newline || t.kind == TokenKind::directive;
}

// Cuts a source into the declarations at its top level. Where it is in doubt what one declares, the piece says that it
// is always needed.
class Cutter {
 public:
  explicit Cutter(const std::string& source) : tokens_(tokenize(source)) {}

  std::vector<SourcePiece> run() {
    std::vector<SourcePiece> pieces;
    for (size_t at = 0; at < tokens_.size();) {
      const size_t end = std::min(end_of(at), tokens_.size());
      pieces.push_back(piece(at, end));
      at = end;
    }
    return pieces;
  }

 private:
  std::string_view text(size_t i) const { return i < tokens_.size() ? tokens_[i].text : std::string_view(); }
  size_t next(size_t i) const {
    do ++i;
    while (i < tokens_.size() && is_blank(tokens_[i]));
    return i;
  }
  size_t first_of(size_t i) const { return i < tokens_.size() && is_blank(tokens_[i]) ? next(i) : i; }
  // Behind the bracket that closes the one at i.
  size_t behind(size_t i) const {
    const std::string_view open = text(i), close = open == "(" ? ")" : open == "[" ? "]" : open == "{" ? "}" : ">";
    int depth = 0;
    for (; i < tokens_.size(); ++i) {
      if (text(i) == open) ++depth;
      if (text(i) == close && --depth == 0) return i + 1;
      if (open == "<" && (text(i) == "(" || text(i) == "{")) i = behind(i) - 1;
      if (open == "<" && text(i) == ";") break;
    }
    return tokens_.size();
  }
  // Behind template <...>, of which there may be several.
  size_t head_of(size_t at) const {
    at = first_of(at);
    while (text(at) == "template" && text(next(at)) == "<") at = first_of(behind(next(at)));
    return at;
  }
  bool is_type(std::string_view word) const {
    return word == "struct" || word == "class" || word == "union" || word == "enum";
  }

  size_t end_of(size_t at) const {
    const size_t head = head_of(at);
    bool semicolon = is_type(text(head)) || text(head) == "typedef";
    for (size_t i = head; i < tokens_.size();) {
      if (text(i) == ";") return i + 1;
      if (text(i) == "=") semicolon = true;
      const bool body = text(i) == "{";
      if (body || text(i) == "(") {
        i = behind(i);
        if (body && !semicolon) return i;
      } else {
        ++i;
      }
    }
    return tokens_.size();
  }

  SourcePiece piece(size_t begin, size_t end) const {
    SourcePiece p;
    std::set<std::string> words;
    for (size_t i = begin; i < end; ++i) {
      p.text += tokens_[i].text;
      if (tokens_[i].kind == TokenKind::word) words.insert(tokens_[i].text);
      // Lines stay where they are.
      if (tokens_[i].kind == TokenKind::newline) p.blank += "\n";
      if (tokens_[i].kind == TokenKind::directive && text(i).substr(0, 2) == "# ") p.blank += tokens_[i].text;
    }
    p.words.assign(words.begin(), words.end());
    p.names = names(head_of(begin), end);
    return p;
  }

  // None: always needed.
  std::vector<std::string> names(size_t at, size_t end) const {
    const auto word = [&](size_t i) { return i < end && tokens_[i].kind == TokenKind::word; };
    const auto one = [&](size_t i) {
      return word(i) ? std::vector<std::string>{tokens_[i].text} : std::vector<std::string>{};
    };
    if (text(at) == "using" && text(next(next(at))) == "=") return one(next(at));
    for (const char* kept : {"using", "namespace", "extern", "static_assert"})
      if (text(at) == kept) return {};
    if (text(at) == "typedef") {
      size_t last = at;
      for (size_t i = at; i < end && text(i) != "["; i = next(i))
        if (word(i)) last = i;
      return one(last);
    }
    if (text(at) == "enum") {  // and all it lists
      std::vector<std::string> all;
      for (size_t i = next(at); i < end; i = next(i))
        if (word(i)) all.push_back(tokens_[i].text);
      return all;
    }
    if (is_type(text(at))) {
      size_t last = at;
      for (size_t i = next(at); i < end && text(i) != ";"; i = text(i) == "{" ? first_of(behind(i)) : next(i)) last = i;
      if (text(last) != "{" && text(last) != ">" && last != next(at)) return {};  // declares a variable, too
      return one(next(at));
    }
    size_t last = end;  // the word before the first of ( = [ { ;
    for (size_t i = at; i < end;) {
      const std::string_view t = text(i);
      if (t == "operator") return {};
      if (t == "<" && last < end) {
        i = first_of(behind(i));
      } else if (t == "(" && last < end &&
                 (text(last) == "decltype" || text(last) == "__attribute__" || text(last) == "alignas")) {
        i = first_of(behind(i));
      } else if (t == "(" || t == "=" || t == "[" || t == "{" || t == ";") {
        break;
      } else {
        if (word(i)) last = i;
        i = next(i);
      }
    }
    return one(last);
  }

  std::vector<Token> tokens_;
};

}  // namespace

std::vector<SourcePiece> cut_source(const std::string& source) { return Cutter(source).run(); }

std::vector<bool> reachable(const std::vector<SourcePiece>& pieces, const std::string& roots) {
  std::unordered_map<std::string_view, std::vector<size_t>> declared;
  std::vector<bool> needed(pieces.size());
  std::vector<std::string_view> open;
  const auto need = [&](size_t i) {
    if (needed[i]) return;
    needed[i] = true;
    open.insert(open.end(), pieces[i].words.begin(), pieces[i].words.end());
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (const std::string& name : pieces[i].names) declared[name].push_back(i);
    if (pieces[i].names.empty()) need(i);
  }
  const std::vector<Token> root_tokens = tokenize(roots);
  for (const Token& token : root_tokens) open.push_back(token.text);
  while (!open.empty()) {
    const auto found = declared.find(open.back());
    open.pop_back();
    if (found == declared.end()) continue;
    const std::vector<size_t> all = std::move(found->second);
    declared.erase(found);
    for (size_t i : all) need(i);
  }
  return needed;
}

}  // namespace softmetal
