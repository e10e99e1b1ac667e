#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// How a family of models writes tool calls and reasoning. A dialect is one file in this folder, NAME.cc, which defines
// `const Dialect dialects::NAME`. The build lists the files; nothing else knows a dialect by its name. The parser
// (calls/parser.h) and the grammar that holds a model to its tools (calls/call_grammar.h) both follow from what is
// here.
namespace ingot {

class ChatParser;
struct ChatParserOptions;

// One of the things that a call is made of, in the order of the text.
struct Piece {
  enum class Kind {
    text,       // this text
    maybe,      // this text, or nothing
    space,      // any white space, or none; `text` is how the models write it
    name,       // the function's name
    id,         // the call's id
    named_id,   // both: functions.NAME:0
    arguments,  // a JSON object
    fields,     // keys and values between marks, as Dialect::fields has them
    call,       // a JSON object with the name under "name", the arguments under "arguments" or "parameters"
    calls,      // a JSON array of these
    python,     // a list of calls as Python writes them: [f(a=1, b='x'), g()]
  };
  Kind kind;
  std::string_view text{};
};

// One way to write calls.
struct Form {
  std::vector<Piece> pieces;
  // Only where nothing but reasoning and white space came before: forms whose first piece also begins ordinary text.
  bool at_start = false;
  // Models whose template has this text write calls so; without it, this is the way when no other is.
  std::string_view template_mark{};
  // Ordinary text looks like this too: with tools known, what calls another function is no call. So are all forms that
  // no mark begins.
  bool bare = false;
};

struct Fields {
  std::string_view key_open, key_close;
  std::string_view value_open, value_close;
  // A line break behind value_open and one before value_close belong to the marks.
  bool lines = false;
  std::string_view between{};  // white space behind marks, as the models write it
  // A value whose closing mark is missing ends before these, at the beginning of a line.
  std::array<std::string_view, 2> value_ends{};
};

struct ReasoningBlock {
  std::string_view open, close;
  bool at_start = false;  // see Form
};

struct Dialect {
  std::string_view name;    // as --tool-format has it
  std::string_view models;  // that write so
  // A chat template is of this dialect where it has all texts of one of these lists; the first dialect that fits is
  // taken, by `order`. A dialect without lists is for templates that know no tools.
  std::vector<std::vector<std::string_view>> template_marks{};
  int order = 0;

  std::vector<ReasoningBlock> reasoning{{"<think>", "</think>"}};
  // A call in a block of reasoning is one, and ends the block. Otherwise it is something that the model thinks about.
  bool calls_end_reasoning = false;

  std::vector<Form> forms{};
  Fields fields{};
  std::string_view section_open{}, section_close{};  // around all calls
  std::string_view separator{};                      // between two calls
  std::vector<std::string_view> ignored{};           // marks without a meaning of their own: they are no content
  std::string_view arguments_key = "arguments";      // how Piece::Kind::call is written
  bool short_ids = false;                            // ids are nine letters or digits: its templates insist on it

  // For a dialect that is not made of forms.
  std::unique_ptr<ChatParser> (*make_parser)(const ChatParserOptions&) = nullptr;
  // What such a dialect writes around the arguments of a call; NAME stands for the function's name.
  std::string_view call_open{}, call_close{};
  std::string_view content_open{};  // and before content
};

namespace dialects {
#define INGOT_DIALECT(name) extern const Dialect name;
#include "dialects_list.inc"  // made by the build
#undef INGOT_DIALECT
}  // namespace dialects

std::vector<std::string> dialect_names();
// Throws Error(bad_call) that lists the names.
const Dialect& find_dialect(std::string_view name);
// The one whose marks the template has.
const Dialect& choose_dialect(std::string_view template_source);

}  // namespace ingot
