#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "compiler/lexer.h"
#include "compiler/program.h"

namespace softmetal {
namespace {

// Attributes of kernel parameters that name a value of the thread, and the argument kind that supplies it.
const std::map<std::string, std::string> kBuiltins = {
    {"thread_position_in_threadgroup", "kThreadPositionInThreadgroup"},
    {"threadgroup_position_in_grid", "kThreadgroupPositionInGrid"},
    {"thread_position_in_grid", "kThreadPositionInGrid"},
    {"threads_per_threadgroup", "kThreadsPerThreadgroup"},
    {"dispatch_threads_per_threadgroup", "kDispatchThreadsPerThreadgroup"},
    {"threadgroups_per_grid", "kThreadgroupsPerGrid"},
    {"threads_per_grid", "kThreadsPerGrid"},
    {"thread_index_in_threadgroup", "kThreadIndexInThreadgroup"},
    {"thread_index_in_simdgroup", "kThreadIndexInSimdgroup"},
    {"simdgroup_index_in_threadgroup", "kSimdgroupIndexInThreadgroup"},
    {"simdgroups_per_threadgroup", "kSimdgroupsPerThreadgroup"},
    {"dispatch_simdgroups_per_threadgroup", "kSimdgroupsPerThreadgroup"},
    {"threads_per_simdgroup", "kThreadsPerSimdgroup"},
    {"thread_execution_width", "kThreadsPerSimdgroup"},
};

struct Attribute {
  std::string name;
  std::string argument;
};
unsigned number_of(const Attribute& attribute) {
  return static_cast<unsigned>(std::strtoul(attribute.argument.c_str(), nullptr, 0));
}

// Rewrites tokens in place. It never looks into expressions: only declarations that C++ has no words for are touched,
// and the number of lines stays the same.
class Translator {
 public:
  Translator(std::vector<Token> tokens, bool lint) : tokens_(std::move(tokens)), lint_(lint) { find_lines(); }

  Program run() {
    for (size_t i = 0; i < tokens_.size(); ++i) visit(i);
    if (!pending_.empty()) throw_at(0, "unbalanced {");
    for (auto& instance : instances_) {
      // What an instantiation repeats of its template's parameters says nothing new.
      auto found = templates_.find(instance.first);
      if (found != templates_.end() && instance.second.parameters.empty()) {
        instance.second.parameters = found->second.parameters;
        instance.second.max_threads = std::min(instance.second.max_threads, found->second.max_threads);
        instance.second.starts_early = found->second.starts_early;
        instance.second.together = found->second.together;
        if (const auto at = thread_parameters_.find(instance.first); at != thread_parameters_.end())
          instance.second.max_threads = template_argument(instance.second.expression, at->second);
      }
      program_.kernels.push_back(std::move(instance.second));
    }
    for (const Token& token : tokens_) program_.source += token.text;
    std::set<std::string> names;
    for (const KernelInfo& kernel : program_.kernels) {
      if (!names.insert(kernel.name).second) {
        throw CompileError(kernel.file + ":" + std::to_string(kernel.line) + ": error: two kernels are named " +
                           kernel.name);
      }
    }
    return std::move(program_);
  }

 private:
  // --- looking around
  // -------------------------------------------------------------------------------------------------
  static bool is_blank(const Token& t) {
    return t.kind == TokenKind::space || t.kind == TokenKind::newline || t.kind == TokenKind::directive;
  }
  const std::string& text(size_t i) const {
    static const std::string kEmpty;
    return i < tokens_.size() ? tokens_[i].text : kEmpty;
  }
  size_t next(size_t i) const {
    do ++i;
    while (i < tokens_.size() && is_blank(tokens_[i]));
    return i;
  }
  // tokens_.size() when there is none before.
  size_t previous(size_t i) const {
    while (i-- > 0) {
      if (!is_blank(tokens_[i])) return i;
    }
    return tokens_.size();
  }
  // The bracket that closes the one at i; for "[[" the second "]".
  size_t closing(size_t i) const {
    const std::string& open = text(i);
    if (open == "[[") {
      int depth = 2;
      for (size_t k = i + 1; k < tokens_.size(); ++k) {
        depth += text(k) == "[" ? 1 : text(k) == "[[" ? 2 : text(k) == "]" ? -1 : 0;
        if (depth == 0) return k;
      }
      throw_at(i, "unbalanced [[");
    }
    const std::string close = open == "(" ? ")" : open == "[" ? "]" : open == "{" ? "}" : ">";
    int depth = 0;
    for (size_t k = i; k < tokens_.size(); ++k) {
      const std::string& t = text(k);
      if (t == open) ++depth;
      if (t == close && --depth == 0) return k;
      if (open == "<" && (t == "(" || t == "{")) k = closing(k);
      if (open == "<" && t == ";") break;
    }
    throw_at(i, "unbalanced " + open);
  }
  // The tokens of [begin, end) as one line of text.
  std::string join(size_t begin, size_t end) const {
    std::string s;
    for (size_t i = begin; i < end && i < tokens_.size(); ++i) s += is_blank(tokens_[i]) ? " " : text(i);
    const size_t first = s.find_first_not_of(' ');
    return first == std::string::npos ? "" : s.substr(first, s.find_last_not_of(' ') - first + 1);
  }
  void erase(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (tokens_[i].kind != TokenKind::newline && tokens_[i].kind != TokenKind::directive) {
        tokens_[i] = {TokenKind::space, ""};
      }
    }
  }
  void replace(size_t i, std::string with) { tokens_[i] = {TokenKind::word, std::move(with)}; }

  void find_lines() {
    std::string file = "library.metal";
    int line = 1;
    places_.reserve(tokens_.size());
    for (const Token& t : tokens_) {
      places_.push_back({file_index(file), line});
      if (t.kind == TokenKind::newline) ++line;
      if (t.kind == TokenKind::directive) {
        char* end = nullptr;
        const char* digits = t.text.c_str() + 1;
        const long marked = std::strtol(digits, &end, 10);
        if (end == digits) continue;
        line = static_cast<int>(marked) - 1;  // the newline that ends the marker counts
        const size_t open = t.text.find('"'), close = t.text.rfind('"');
        if (open != std::string::npos && close > open) file = t.text.substr(open + 1, close - open - 1);
      }
    }
  }
  size_t file_index(const std::string& name) {
    if (files_.empty() || files_.back() != name) files_.push_back(name);
    return files_.size() - 1;
  }
  [[noreturn]] void throw_at(size_t i, const std::string& message) const {
    const auto& place = places_[std::min(i, places_.size() - 1)];
    throw CompileError(files_[place.first] + ":" + std::to_string(place.second) + ": error: " + message);
  }

  // Every attribute of the [[...]] lists in [begin, end).
  std::vector<Attribute> attributes(size_t begin, size_t end) const {
    std::vector<Attribute> found;
    for (size_t i = begin; i < end; ++i) {
      if (text(i) != "[[") continue;
      const size_t close = closing(i);
      for (size_t k = next(i); k + 1 < close; k = next(k)) {
        if (tokens_[k].kind != TokenKind::word) continue;
        Attribute a{text(k), ""};
        if (text(next(k)) == "(") {
          const size_t last = closing(next(k));
          for (size_t n = next(next(k)); n < last; n = next(n)) {
            // Neighbouring string literals are one string.
            a.argument += tokens_[n].kind == TokenKind::text ? text(n).substr(1, text(n).size() - 2) : text(n);
          }
          k = last;
        }
        found.push_back(std::move(a));
      }
      i = close;
    }
    return found;
  }
  static bool has(const std::vector<Attribute>& list, const std::string& name) {
    return std::any_of(list.begin(), list.end(), [&](const Attribute& a) { return a.name == name; });
  }

  // --- one token
  // ------------------------------------------------------------------------------------------------------
  void visit(size_t& i) {
    const Token& token = tokens_[i];
    if (token.kind == TokenKind::number) return literal(i);
    if (token.kind != TokenKind::word && token.kind != TokenKind::punctuation) return;
    if (token.text == "{") {
      pending_.push_back(kernel_body_ == i);
    } else if (token.text == "}") {
      if (pending_.empty()) throw_at(i, "unbalanced }");
      pending_.pop_back();
    } else if (token.text == "is_function_constant_defined") {
      const size_t open = next(i), close = closing(open);
      const std::string name = join(open + 1, close);
      erase(i, close + 1);
      replace(i, "SM_DEFINED_" + name);
    } else if (token.text == "thread_elements") {
      program_.uses_thread_elements = true;
    } else if (token.text == "constant") {
      function_constant(i);
    } else if (token.text == "enum" && pending_.empty()) {
      enumerators(i);
    } else if (token.text == "threadgroup") {
      threadgroup_variable(i);
    } else if (token.text == "kernel" && pending_.empty()) {
      kernel(i);
    } else if (token.text == "[[") {
      const size_t end = closing(i);
      const auto list = attributes(i, end + 1);
      if (pending_.empty() &&
          (has(list, "kernel") || has(list, "host_name") || has(list, "max_total_threads_per_threadgroup"))) {
        kernel(i);
      }
      if (text(i) == "[[") erase(i, end + 1);
    }
  }

  // Literals without a suffix are float in Metal; h and bf are suffixes of its own.
  void literal(size_t i) {
    std::string value = text(i);
    if (value.size() > 1 && value[0] == '0' && (value[1] == 'x' || value[1] == 'X')) return;
    std::string suffix;
    const size_t digits = value.find_last_of("0123456789.'");
    if (digits + 1 < value.size()) {
      suffix = value.substr(digits + 1);
      value.resize(digits + 1);
    }
    const bool real = value.find_first_of(".eE") != std::string::npos;
    if (suffix == "h" || suffix == "H") {
      tokens_[i].text = "((half)" + value + (real ? "f)" : ".0f)");
    } else if (suffix == "bf" || suffix == "BF") {
      tokens_[i].text = "((bfloat)" + value + (real ? "f)" : ".0f)");
    } else if (real && suffix.empty()) {
      tokens_[i].text = value + "f";
    }
  }

  // enum { A = 1, B }: names that may stand for numbers in an attribute.
  void enumerators(size_t i) {
    while (i < tokens_.size() && text(i) != "{" && text(i) != ";") i = next(i);
    if (text(i) != "{") return;
    const size_t end = closing(i);
    for (unsigned value = 0; i < end && next(i) < end; ++value) {
      const std::string name = text(next(i));
      i = next(next(i));
      if (text(i) == "=") value = static_cast<unsigned>(std::strtoul(text(next(i)).c_str(), nullptr, 0));
      enumerators_[name] = value;
      while (i < end && text(i) != ",") i = next(i);
    }
  }

  // constant T NAME [[function_constant(N)]];
  void function_constant(size_t i) {
    size_t k = next(i);
    while (k < tokens_.size()) {
      const std::string& t = text(k);
      if (t == ";" || t == "{" || t == "(" || t == ")" || t == "=" || t == "," || t == "[[" || t == "*" || t == "&")
        break;
      k = next(k);
    }
    if (text(k) != "[[") return;
    const size_t close = closing(k), end = next(close);
    const auto list = attributes(k, close + 1);
    if (!has(list, "function_constant") || text(end) != ";") return;
    const size_t name = previous(k);
    FunctionConstant c{text(name), join(next(i), name), 0};
    const std::string& number = list.front().argument;
    if (const auto named = enumerators_.find(number); named != enumerators_.end())
      c.index = named->second;
    else if (number.find_first_not_of("0123456789") == std::string::npos)
      c.index = static_cast<unsigned>(std::strtoul(number.c_str(), nullptr, 0));
    else
      throw_at(i, "function constant " + c.name + ": " + number + " is neither a number nor an enumerator");
    for (const FunctionConstant& other : program_.constants) {
      if (other.index == c.index)
        throw_at(i, "function constants " + other.name + " and " + c.name + " share an index");
    }
    erase(i, end);
    replace(i, lint_ ? "static constant const " + c.type + " " + c.name + " = (" + c.type + ")1"
                     : "SM_CONSTANT " + c.type + " " + c.name + " = SM_VALUE_" + c.name);
    program_.constants.push_back(std::move(c));
  }

  // A variable in threadgroup memory, at the start of a statement: threadgroup T a[N], b;
  void threadgroup_variable(size_t i) {
    if (pending_.empty()) return;
    const std::string& before = text(previous(i));
    if (before != ";" && before != "{" && before != "}") return;
    const size_t type = next(i);
    size_t k = type;
    while (text(k) != "[" && text(k) != ";" && text(k) != "=" && text(k) != ",") {
      if (text(k) == "*" || text(k) == "&") return;  // a pointer to it, not a variable in it
      if (k >= tokens_.size()) throw_at(i, "threadgroup declaration without an end");
      k = text(k) == "<" ? next(closing(k)) : next(k);
    }
    if (std::find(pending_.begin(), pending_.end(), true) == pending_.end()) {
      throw_at(i, "a threadgroup variable can be declared in a kernel only");
    }
    const std::string type_text = join(type, previous(k));
    // One declarator a loop: its name, its dimensions, no initialiser.
    std::string out;
    size_t name = previous(k);
    for (;;) {
      size_t end = next(name);
      while (text(end) == "[") end = next(closing(end));
      const std::string& variable = text(name);
      const std::string array = join(name + 1, end);
      if (text(end) != "," && text(end) != ";")
        throw_at(name, "threadgroup variable " + variable + " cannot be initialised");
      const std::string alias = "sm_type_" + variable;
      out += "typedef " + type_text + " " + alias + array + "; ";
      if (lint_) {
        out += "threadgroup " + alias + "& " + variable + " = sm::threadgroup_variable<" + alias + ">(); ";
      } else {
        out += "struct sm_tag_" + variable + " {}; " + alias + "& " + variable + " = sm::threadgroup_variable<sm_tag_" +
               variable + ", " + alias + ">(); ";
      }
      if (text(end) == ";") {
        erase(i, end);
        out.resize(out.size() - 2);
        replace(i, out);
        return;
      }
      name = next(end);
    }
  }

  // --- kernels
  // -------------------------------------------------------------------------------------------------------- i is at
  // `kernel`, or at an attribute list with kernel or host_name.
  void kernel(size_t i) {
    size_t start = i;
    for (size_t p = previous(start); p < tokens_.size(); p = previous(p)) {
      const std::string& t = text(p);
      if (t == ";" || t == "}" || t == "{") break;
      start = p;
    }
    const bool is_template = text(start) == "template";
    const bool instantiation = is_template && text(next(start)) != "<";
    size_t k = start;
    if (is_template) k = instantiation ? next(start) : next(closing(next(start)));
    const size_t head = k;

    KernelInfo info;
    info.file = files_[places_[start].first];
    info.line = places_[start].second;
    std::string name, arguments, thread_parameter;
    while (name.empty()) {
      const std::string& t = text(k);
      if (t == "[[") {
        const size_t close = closing(k);
        for (const Attribute& a : attributes(k, close + 1)) {
          if (a.name == "host_name") info.name = a.argument;
          if (a.name == "softmetal_early") info.starts_early = true;
          if (a.name == "softmetal_together") info.together = number_of(a);
          if (a.name == "max_total_threads_per_threadgroup") {
            info.max_threads = number_of(a);
            if (info.max_threads == 0) {  // a parameter of the template: known when it is instantiated
              info.max_threads = 1024;
              thread_parameter = a.argument;
            }
          }
        }
        k = next(close);
      } else if (t == "decltype") {
        k = next(closing(next(k)));
      } else if (t == "kernel" || t == "void" || t == "static" || t == "inline" || t == "METAL_FUNC") {
        k = next(k);
      } else if (tokens_[k].kind == TokenKind::word) {
        // In "kernel scale_t scale<half>;" the first word is a type.
        if (text(next(k)) == "(" || text(next(k)) == "<") name = t;
        k = next(k);
      } else {
        throw_at(i, "a kernel returns void and has a name");
      }
    }
    if (text(k) == "<") {
      arguments = join(k, closing(k) + 1);
      k = next(closing(k));
    }
    if (info.name.empty()) info.name = name;
    info.expression = name + arguments;

    if (text(k) == "(") {
      if (!instantiation) info.parameters = parameters(k, info.name);
      k = next(closing(k));
    }
    if (instantiation) {
      if (text(k) != ";") throw_at(i, "expected ; after the instantiation of " + info.name);
      erase(start, k);
      instances_.emplace_back(name, std::move(info));
      return;
    }
    // A template, so that kernels nobody asked for cost nothing and reserve no threadgroup memory.
    for (size_t h = head; h < k; ++h) {
      if (text(h) == "[[") {
        const size_t close = closing(h);
        erase(h, close + 1);
        h = close;
      } else if (text(h) == "kernel") {
        erase(h, h + 1);
      }
    }
    if (!lint_) tokens_[head].text = (is_template ? "static " : "template <int> static ") + tokens_[head].text;
    if (!is_template && !lint_) info.expression += "<0>";
    if (text(k) == "{") kernel_body_ = k;
    if (is_template) {
      templates_[name] = info;
      if (!thread_parameter.empty()) thread_parameters_[name] = parameter_place(next(start), thread_parameter);
    } else {
      if (text(k) != "{") return;  // a declaration ahead of its definition
      instances_.emplace_back(name, std::move(info));
    }
  }

  // Which parameter of a template, whose list begins at `open`, has that name.
  size_t parameter_place(size_t open, const std::string& name) const {
    size_t place = 0;
    for (size_t k = next(open); k < closing(open); k = next(k)) {
      if (text(k) == ",") ++place;
      if (text(k) == name) return place;
    }
    throw_at(open, "max_total_threads_per_threadgroup: no parameter of the template is named " + name);
  }
  // Argument `place` of "name<a, b>" as a number.
  static unsigned template_argument(const std::string& expression, size_t place) {
    size_t at = expression.find('<');
    for (; place > 0 && at != std::string::npos; --place) at = expression.find(',', at + 1);
    return at == std::string::npos ? 1024
                                   : static_cast<unsigned>(std::strtoul(expression.c_str() + at + 1, nullptr, 0));
  }

  // open is at the "(" of a kernel's parameter list.
  std::vector<KernelParameter> parameters(size_t open, const std::string& kernel_name) const {
    std::vector<KernelParameter> list;
    std::vector<bool> indexed;
    const size_t end = closing(open);
    size_t begin = next(open);
    while (begin < end) {
      size_t k = begin;
      while (k < end && text(k) != ",") {
        if (text(k) == "[[" || text(k) == "(" || text(k) == "<" || text(k) == "[") k = closing(k);
        k = next(k);
      }
      KernelParameter p;
      bool has_index = false;
      bool pointer = false, device_space = false, threadgroup_space = false;
      for (size_t n = begin; n < k; n = next(n)) {
        if (text(n) == "[[") {
          n = closing(n);
          continue;
        }
        pointer |= text(n) == "*" || text(n) == "&";
        device_space |= text(n) == "device" || text(n) == "constant";
        threadgroup_space |= text(n) == "threadgroup";
        if (tokens_[n].kind == TokenKind::word) p.name = text(n);
      }
      for (const Attribute& a : attributes(begin, k)) {
        if (a.name == "buffer" || a.name == "threadgroup") {
          p.kind = a.name == "buffer" ? "kBuffer" : "kThreadgroup";
          p.index = static_cast<unsigned>(std::strtoul(a.argument.c_str(), nullptr, 0));
          has_index = true;
        } else if (a.name == "function_constant") {
          p.enabled_by = a.argument;
        } else if (auto builtin = kBuiltins.find(a.name); builtin != kBuiltins.end()) {
          p.kind = builtin->second;
          has_index = true;
        } else if (a.name == "texture" || a.name == "sampler" || a.name == "stage_in") {
          throw_at(begin, "kernel " + kernel_name + ": parameter " + p.name + ": [[" + a.name + "]] is not supported");
        }
      }
      if (p.kind.empty()) {
        if (pointer && device_space) p.kind = "kBuffer";
        if (pointer && threadgroup_space) p.kind = "kThreadgroup";
        if (p.kind.empty()) throw_at(begin, "kernel " + kernel_name + ": parameter " + p.name + " has no attribute");
      }
      list.push_back(std::move(p));
      indexed.push_back(has_index);
      begin = k < end ? next(k) : end;
    }
    // Metal numbers what has no index in order, around the indices that are taken.
    for (const std::string kind : {"kBuffer", "kThreadgroup"}) {
      std::set<unsigned> used;
      for (size_t n = 0; n < list.size(); ++n) {
        if (list[n].kind == kind && indexed[n] && list[n].enabled_by.empty() && !used.insert(list[n].index).second) {
          throw_at(open, "kernel " + kernel_name + ": index " + std::to_string(list[n].index) + " is used twice");
        }
      }
      unsigned free = 0;
      for (size_t n = 0; n < list.size(); ++n) {
        if (list[n].kind != kind || indexed[n]) continue;
        while (used.count(free)) ++free;
        list[n].index = free;
        used.insert(free);
      }
    }
    for (const KernelParameter& p : list) {
      if ((p.kind == "kBuffer" && p.index > 30) || (p.kind == "kThreadgroup" && p.index > 30)) {
        throw_at(open, "kernel " + kernel_name + ": parameter " + p.name + ": index " + std::to_string(p.index) +
                           " is over the limit of 30");
      }
    }
    return list;
  }

  std::vector<Token> tokens_;
  bool lint_;
  std::vector<std::pair<size_t, int>> places_;  // file and line of each token
  std::vector<std::string> files_;
  std::vector<bool> pending_;  // open braces; true for that of a kernel's body
  size_t kernel_body_ = ~size_t{0};
  std::map<std::string, unsigned> enumerators_;
  std::map<std::string, KernelInfo> templates_;
  std::map<std::string, size_t> thread_parameters_;  // of templates: the parameter that is their number of threads
  std::vector<std::pair<std::string, KernelInfo>> instances_;  // by the function's name
  Program program_;
};

}  // namespace

const KernelInfo* Program::find(const std::string& name) const {
  for (const KernelInfo& kernel : kernels) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

Program translate(const std::string& preprocessed, bool lint) {
  Program program = Translator(tokenize(preprocessed), lint).run();
  if (!lint) program.pieces = cut_source(program.source);
  return program;
}

}  // namespace softmetal
