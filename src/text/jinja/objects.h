#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace ingot::jinja {

// range(start, stop, step)
class Range : public Object {
 public:
  Range(int64_t start, int64_t stop, int64_t step);

  std::string_view type_name() const override { return "range"; }
  std::string repr(int level) const override;
  std::optional<Value> item(const Value& key) override;
  bool has_items() const override { return true; }
  std::optional<int64_t> length() const override { return length_; }
  std::unique_ptr<Iter> iterate() override;
  std::unique_ptr<Iter> reversed() override;
  bool equals(const Object& other) const override;
  Value slice(const Value& start, const Value& stop, const Value& step) const;

 private:
  int64_t start_, stop_, step_, length_;
};

// What dict.keys(), dict.values() and dict.items() give.
class DictView : public Object {
 public:
  enum class Part { keys, values, items };
  DictView(std::shared_ptr<const Dict> dict, Part part);

  std::string_view type_name() const override;
  std::string repr(int level) const override;
  std::optional<int64_t> length() const override { return static_cast<int64_t>(dict_->size()); }
  std::unique_ptr<Iter> iterate() override;
  std::unique_ptr<Iter> reversed() override;

 private:
  std::vector<Value> parts() const;

  std::shared_ptr<const Dict> dict_;
  Part part_;
};

// A Python generator or iterator: makes its items when asked, once.
class Generator : public Object {
 public:
  using Next = std::function<bool(Value&)>;
  // `inputs` are the values that `next` holds on to.
  Generator(std::string_view type, Next next, std::initializer_list<Value> inputs);

  std::string_view type_name() const override { return type_; }
  std::string repr(int level) const override;
  std::unique_ptr<Iter> iterate() override;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::string type_;
};

Value make_generator(Generator::Next next, std::initializer_list<Value> inputs);

using Function = Value (*)(Interpreter& interpreter, Args args);

// A function of the environment, like range() or raise_exception().
class Builtin : public Object {
 public:
  Builtin(std::string_view name, Function function) : name_(name), function_(function) {}

  std::string_view type_name() const override { return "function"; }
  std::string repr(int) const override { return "<function " + name_ + ">"; }
  bool is_callable() const override { return true; }
  Value call(Interpreter& interpreter, Args args) override { return function_(interpreter, std::move(args)); }

 private:
  std::string name_;
  Function function_;
};

// `value.upper` of a string, list, dict, ...
struct Method {
  std::string_view name;
  Value (*function)(Interpreter& interpreter, const Value& self, Args& args);
};

class BoundMethod : public Object {
 public:
  BoundMethod(Value self, const Method* method)
      : Object(self.depth() + 1, self.weight() + 64), self_(std::move(self)), method_(method) {}

  std::string_view type_name() const override { return "builtin_function_or_method"; }
  std::string repr(int) const override;
  const Value* self() const override { return &self_; }
  bool is_callable() const override { return true; }
  Value call(Interpreter& interpreter, Args args) override { return method_->function(interpreter, self_, args); }

 private:
  Value self_;
  const Method* method_;
};

// namespace(): the only thing a template can change.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "TemplateNamespace"; }
  std::string_view module() const override { return "transformers.utils.chat_template_utils"; }
  std::string repr(int level) const override;
  std::optional<Value> attribute(std::string_view name) override;
  void forget() override { attributes_.clear(); }
  void set(std::string_view name, Value value);

 private:
  std::vector<Dict::Entry> attributes_;
};

// cycler('odd', 'even')
class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(Value items) : Object(items.depth() + 1, items.weight()), items_(std::move(items)) {}

  std::string_view type_name() const override { return "Cycler"; }
  std::string_view module() const override { return "jinja2.utils"; }
  std::string repr(int) const override { return "<jinja2.utils.Cycler object>"; }
  std::optional<Value> attribute(std::string_view name) override;
  Value current() const { return items_.items()[position_]; }
  Value next();
  void reset() { position_ = 0; }

 private:
  Value items_;
  size_t position_ = 0;
};

// joiner(', '): empty the first time, the separator after that.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator)
      : Object(separator.depth() + 1, separator.weight()), separator_(std::move(separator)) {}

  std::string_view type_name() const override { return "Joiner"; }
  std::string_view module() const override { return "jinja2.utils"; }
  std::string repr(int) const override { return "<jinja2.utils.Joiner object>"; }
  std::optional<Value> attribute(std::string_view name) override;
  bool is_callable() const override { return true; }
  Value call(Interpreter& interpreter, Args args) override;

 private:
  Value separator_;
  bool used_ = false;
};

// Sorts the arguments of a call into named parameters, as Python does.
class Params {
 public:
  Params(std::string_view function, Args& args, std::initializer_list<std::string_view> names, size_t required);

  bool given(size_t i) const { return values_[i].has_value(); }
  const Value& at(size_t i) const { return *values_[i]; }
  Value get(size_t i, Value absent) const { return values_[i] ? *values_[i] : std::move(absent); }
  bool truthy(size_t i, bool absent) const { return values_[i] ? values_[i]->truthy() : absent; }
  int64_t integer(size_t i, int64_t absent) const;  // raises when given and not an int
  const std::string& string(size_t i) const;        // raises when not a string

 private:
  std::string_view function_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace ingot::jinja
