#include <set>

#include "compiler/lexer.h"
#include "compiler/program.h"

namespace softmetal {
namespace {

const std::set<std::string> kSpaces = {"device", "threadgroup", "constant", "thread"};

std::set<std::string> builtin_types() {
  std::set<std::string> types = {"void",    "size_t",   "uint8_t", "int8_t",   "uint16_t",
                                 "int16_t", "uint32_t", "int32_t", "uint64_t", "int64_t"};
  for (const char* scalar :
       {"bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float", "bfloat"}) {
    types.insert(scalar);
    for (const char* n : {"2", "3", "4"}) {
      types.insert(std::string(scalar) + n);
      types.insert(std::string("packed_") + scalar + n);
    }
  }
  return types;
}

}  // namespace

std::vector<std::string> missing_address_spaces(const std::string& preprocessed) {
  std::vector<Token> tokens;
  std::vector<std::string> places;
  std::string file = "library.metal";
  int line = 1;
  for (Token& t : tokenize(preprocessed)) {
    if (t.kind == TokenKind::newline) ++line;
    if (t.kind == TokenKind::directive && t.text.size() > 2 && t.text[1] == ' ' &&
        t.text.find('"') != std::string::npos) {
      line = std::atoi(t.text.c_str() + 2) - 1;
      const size_t open = t.text.find('"');
      file = t.text.substr(open + 1, t.text.rfind('"') - open - 1);
    }
    if (t.kind == TokenKind::space || t.kind == TokenKind::newline || t.kind == TokenKind::directive) continue;
    places.push_back(file + ":" + std::to_string(line));
    tokens.push_back(std::move(t));
  }
  auto text = [&](size_t i) -> const std::string& {
    static const std::string kEmpty;
    return i < tokens.size() ? tokens[i].text : kEmpty;
  };
  // Names that are types: a * or & behind one of them declares, it does not compute.
  std::set<std::string> types = builtin_types();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& t = text(i);
    if (t == "struct" || t == "class" || t == "typename" || t == "using") types.insert(text(i + 1));
    if (t == "typedef") {
      size_t end = i;
      while (end < tokens.size() && text(end) != ";") ++end;
      while (end > i && text(end - 1) == "]")  // of an array
        while (end > i && text(--end) != "[") {
        }
      types.insert(text(end - 1));
    }
  }
  types.erase("namespace");
  std::vector<std::string> messages;
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (text(i) != "*" && text(i) != "&") continue;
    size_t type = i - 1;
    if (text(type) == "const" && type > 0) --type;
    if (!types.count(text(type))) continue;
    // Back to where the declaration begins.
    bool has_space = false;
    for (size_t k = type; k < tokens.size(); --k) {
      const std::string& t = text(k);
      if (t == "(" || t == "," || t == ";" || t == "{" || t == "}" || (t == "<" && k != type)) break;
      has_space |= kSpaces.count(t) > 0;
      if (k == 0) break;
    }
    // "T const device*" is as good; "operator" and template arguments are not declarations.
    if (!has_space) {
      messages.push_back(places[i] + ": error: '" + text(type) + " " + text(i) +
                         "' names no address space (device, constant, " + "threadgroup or thread)");
    }
  }
  return messages;
}

}  // namespace softmetal
