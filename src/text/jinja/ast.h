#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ops.h"
#include "text/jinja/value.h"

namespace ingot::jinja {

struct Expr;
struct Stmt;
struct FilterEntry;
struct TestEntry;
using ExprPtr = std::unique_ptr<Expr>;
using Block = std::vector<std::unique_ptr<Stmt>>;

// The arguments of a call, filter or test as written.
struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star;         // *args
  ExprPtr double_star;  // **kwargs
};

enum class ExprType {
  constant,     // value
  name,         // text
  list,         // items
  tuple,        // items
  dict,         // items: key, value, key, value, ...
  attribute,    // left.text
  item,         // left[right]
  slice,        // left[items[0]:items[1]:items[2]], each may be null
  call,         // left(args)
  filter,       // left | text(args); left is null in a filter block
  test,         // left is text(args)
  binary,       // left op right
  negative,     // -left
  positive,     // +left
  logical_not,  // not left
  logical_and,  // left and right
  logical_or,   // left or right
  concat,       // items joined by ~
  compare,      // left, then comparisons[i] with items[i]
  conditional,  // left if items[0] else right, which may be null
};

enum class Comparison { eq, ne, lt, le, gt, ge, in, not_in };

struct Expr {
  Expr(ExprType t, uint32_t p) : type(t), pos(p) {}

  ExprType type;
  uint32_t pos;  // byte in the source
  int depth = 1;
  BinaryOp op{};
  Value value;
  std::string text;
  ExprPtr left;
  ExprPtr right;
  std::vector<ExprPtr> items;
  std::vector<Comparison> comparisons;
  CallArgs args;
  // What `text` names; null when it does not exist, which only matters when it is reached.
  const FilterEntry* filter = nullptr;
  const TestEntry* test = nullptr;
};

// What a value is assigned to: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  uint32_t pos = 0;
  std::string name;
  std::string attribute;      // of the namespace `name`
  std::vector<Target> parts;  // of a tuple
  bool is_tuple = false;
};

enum class StmtType {
  text,          // text
  output,        // expr
  branch,        // branches, else_body
  loop,          // for target in expr if test: body, else_body
  assign,        // target = expr
  assign_block,  // target = body, through expr (filters) when not null
  macro,         // text(params): body
  call_block,    // expr (a call) with body as caller(params)
  filter_block,  // body through expr
  with,          // targets = values, body
  generation,    // body
  break_loop,
  continue_loop,
};

struct Param {
  std::string name;
  ExprPtr value;  // default, may be null
};

struct Branch {
  ExprPtr test;
  Block body;
};

struct Stmt {
  Stmt(StmtType t, uint32_t p) : type(t), pos(p) {}

  StmtType type;
  uint32_t pos;
  std::string text;
  ExprPtr expr;
  ExprPtr test;
  Target target;
  Block body;
  Block else_body;
  std::vector<Branch> branches;
  std::vector<std::pair<Target, ExprPtr>> bindings;  // of `with`
  bool recursive = false;
  // Names that are undefined in the scope of body and else_body until they are assigned there: see scopes.h.
  std::vector<std::string> hidden;
  std::vector<std::string> else_hidden;
  // Of a macro or call block; uses_*: whether the body mentions these names, which then are bound.
  std::vector<Param> params;
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
};

}  // namespace ingot::jinja
