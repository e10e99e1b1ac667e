#include "text/jinja/objects.h"

#include <algorithm>

#include "text/jinja/ops.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

class RangeIter : public Iter {
 public:
  RangeIter(int64_t start, int64_t step, int64_t count) : next_(start), step_(step), left_(count) {}
  bool next(Value& out) override {
    if (left_ == 0) return false;
    --left_;
    out = Value(next_);
    if (left_ > 0) next_ += step_;
    return true;
  }

 private:
  int64_t next_, step_, left_;
};

class VectorIter : public Iter {
 public:
  explicit VectorIter(std::vector<Value> items) : items_(std::move(items)) {}
  bool next(Value& out) override {
    if (index_ >= items_.size()) return false;
    out = items_[index_++];
    return true;
  }

 private:
  std::vector<Value> items_;
  size_t index_ = 0;
};

int inputs_depth(std::initializer_list<Value> inputs) {
  int depth = 0;
  for (const Value& v : inputs) depth = std::max(depth, v.depth());
  return depth + 1;
}

}  // namespace

Range::Range(int64_t start, int64_t stop, int64_t step) : start_(start), stop_(stop), step_(step) {
  if (step == 0) raise(Fault::value_error, "range() arg 3 must not be zero");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  // Differences of 64-bit numbers fit unsigned ones.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = empty ? 0 : (distance - 1) / stride + 1;
  if (count > static_cast<uint64_t>(kMaxRange)) {
    raise(Fault::overflow, "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  }
  length_ = static_cast<int64_t>(count);
}

std::string Range::repr(int) const {
  if (step_ == 1) return fmt::format("range({}, {})", start_, stop_);
  return fmt::format("range({}, {}, {})", start_, stop_, step_);
}

std::optional<Value> Range::item(const Value& key) {
  if (!key.is_integral()) return std::nullopt;
  const int64_t i = key.as_int() < 0 ? key.as_int() + length_ : key.as_int();
  if (i < 0 || i >= length_) return std::nullopt;
  return Value(start_ + i * step_);
}

std::unique_ptr<Iter> Range::iterate() { return std::make_unique<RangeIter>(start_, step_, length_); }

std::unique_ptr<Iter> Range::reversed() {
  if (length_ == 0) return std::make_unique<RangeIter>(0, 1, 0);
  return std::make_unique<RangeIter>(start_ + (length_ - 1) * step_, step_ == INT64_MIN ? 0 : -step_, length_);
}

bool Range::equals(const Object& other) const {
  const auto* r = dynamic_cast<const Range*>(&other);
  if (r == nullptr || r->length_ != length_) return false;
  return length_ == 0 || (r->start_ == start_ && (length_ == 1 || r->step_ == step_));
}

Value Range::slice(const Value& start, const Value& stop, const Value& step) const {
  const SliceRange r = resolve_slice(start, stop, step, length_);
  int64_t first = 0;
  int64_t last = 0;
  int64_t stride = 0;
  if (__builtin_mul_overflow(r.step, step_, &stride) || __builtin_mul_overflow(r.start, step_, &first) ||
      __builtin_add_overflow(first, start_, &first) || __builtin_mul_overflow(r.stop, step_, &last) ||
      __builtin_add_overflow(last, start_, &last)) {
    raise(Fault::overflow, "the slice of a range is over 63 bits");
  }
  return Value(std::make_shared<Range>(first, last, stride));
}

DictView::DictView(std::shared_ptr<const Dict> dict, Part part)
    : Object(dict->depth() + 1, dict->weight() + 64), dict_(std::move(dict)), part_(part) {}

std::string_view DictView::type_name() const {
  return part_ == Part::keys ? "dict_keys" : part_ == Part::values ? "dict_values" : "dict_items";
}

std::vector<Value> DictView::parts() const {
  std::vector<Value> items;
  items.reserve(dict_->size());
  for (const auto& [key, value] : dict_->entries())
    items.push_back(part_ == Part::keys ? key : part_ == Part::values ? value : Value::tuple({key, value}));
  return items;
}

std::string DictView::repr(int level) const {
  return fmt::format("{}({})", type_name(), jinja::repr(Value::list(parts()), level));
}

std::unique_ptr<Iter> DictView::iterate() { return std::make_unique<VectorIter>(parts()); }

std::unique_ptr<Iter> DictView::reversed() {
  auto items = parts();
  std::reverse(items.begin(), items.end());
  return std::make_unique<VectorIter>(std::move(items));
}

struct Generator::State {
  Next next;
  bool done = false;
  bool running = false;
};

Generator::Generator(std::string_view type, Next next, std::initializer_list<Value> inputs)
    : Object(inputs_depth(inputs)), state_(std::make_shared<State>(State{std::move(next)})), type_(type) {}

std::string Generator::repr(int) const { return fmt::format("<{} object>", type_); }

std::unique_ptr<Iter> Generator::iterate() {
  class Items : public Iter {
   public:
    explicit Items(std::shared_ptr<State> state) : state_(std::move(state)) {}
    bool next(Value& out) override {
      if (state_->done) return false;
      if (state_->running) raise(Fault::value_error, "generator already executing");
      state_->running = true;
      state_->done = true;  // stays so when next() raises
      const bool more = state_->next(out);
      state_->running = false;
      state_->done = !more;
      return more;
    }

   private:
    std::shared_ptr<State> state_;
  };
  return std::make_unique<Items>(state_);
}

Value make_generator(Generator::Next next, std::initializer_list<Value> inputs) {
  return Value(std::make_shared<Generator>("generator", std::move(next), inputs));
}

std::string BoundMethod::repr(int) const {
  return fmt::format("<built-in method {} of {} object>", method_->name, jinja::type_name(self_));
}

std::string Namespace::repr(int level) const { return "<Namespace " + repr_entries(attributes_, level) + ">"; }

std::optional<Value> Namespace::attribute(std::string_view name) {
  for (const auto& [key, value] : attributes_)
    if (key.text() == name) return value;
  return std::nullopt;
}

void Namespace::set(std::string_view name, Value value) {
  if (name.starts_with("_")) {
    raise(Fault::security_error,
          "Chat templates cannot store underscore-prefixed attributes on a namespace, but got {}. Please rename the "
          "attribute.",
          quote(name));
  }
  for (auto& [key, old] : attributes_) {
    if (key.text() != name) continue;
    old = std::move(value);
    return;
  }
  attributes_.emplace_back(Value(name), std::move(value));
}

Value Cycler::next() {
  Value v = current();
  position_ = (position_ + 1) % items_.items().size();
  return v;
}

std::optional<Value> Cycler::attribute(std::string_view name) {
  static const Method kNext{
      "next", [](Interpreter&, const Value& self, Args&) { return static_cast<Cycler*>(self.object())->next(); }};
  static const Method kReset{"reset", [](Interpreter&, const Value& self, Args&) {
                               static_cast<Cycler*>(self.object())->reset();
                               return Value();
                             }};
  const Value self{std::shared_ptr<Object>(shared_from_this())};
  if (name == "current") return current();
  if (name == "pos") return Value(static_cast<int64_t>(position_));
  if (name == "items") return items_;
  if (name == "next") return Value(std::make_shared<BoundMethod>(self, &kNext));
  if (name == "reset") return Value(std::make_shared<BoundMethod>(self, &kReset));
  return std::nullopt;
}

std::optional<Value> Joiner::attribute(std::string_view name) {
  if (name == "sep") return separator_;
  if (name == "used") return Value(used_);
  return std::nullopt;
}

Value Joiner::call(Interpreter&, Args) {
  if (used_) return separator_;
  used_ = true;
  return "";
}

Params::Params(std::string_view function, Args& args, std::initializer_list<std::string_view> names, size_t required)
    : function_(function), values_(names.size()) {
  if (args.positional.size() > names.size()) {
    raise(Fault::type_error, "{}() takes at most {} arguments, {} given", function, names.size(),
          args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = args.positional[i];
  for (const auto& [name, value] : args.keywords) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) raise(Fault::type_error, "{}() got an unexpected keyword argument '{}'", function, name);
    auto& slot = values_[static_cast<size_t>(it - names.begin())];
    if (slot) raise(Fault::type_error, "{}() got multiple values for argument '{}'", function, name);
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) raise(Fault::type_error, "{}() missing required argument: '{}'", function, *(names.begin() + i));
  }
}

int64_t Params::integer(size_t i, int64_t absent) const {
  if (!values_[i]) return absent;
  if (values_[i]->is_undefined()) fail_undefined(*values_[i]);
  if (!values_[i]->is_integral())
    raise(Fault::type_error, "{}(): '{}' object cannot be interpreted as an integer", function_,
          type_name(*values_[i]));
  return values_[i]->as_int();
}

const std::string& Params::string(size_t i) const {
  if (!values_[i]->is_string())
    raise(Fault::type_error, "{}(): argument must be str, not {}", function_, type_name(*values_[i]));
  return values_[i]->text();
}

}  // namespace ingot::jinja
