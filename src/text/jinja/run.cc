#include "text/jinja/run.h"

#include <algorithm>

#include "text/jinja/text.h"

namespace ingot::jinja {

namespace {
constexpr size_t kFewVariables = 16;   // a look at each is quicker than a hash
constexpr int64_t kLookEvery = 1'000;  // steps between two looks at the clock
}  // namespace

Scope::Scope(std::shared_ptr<Scope> parent, Variables variables)
    : parent_(std::move(parent)), variables_(std::move(variables)) {
  if (variables_.size() > kFewVariables)
    for (size_t i = 0; i < variables_.size(); ++i) places_.emplace(variables_[i].first, i);
}

const Value* Scope::find_here(std::string_view name) const {
  if (!places_.empty()) {
    const auto place = places_.find(name);
    return place == places_.end() ? nullptr : &variables_[place->second].second;
  }
  for (const auto& [key, value] : variables_)
    if (key == name) return &value;
  return nullptr;
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* s = this; s != nullptr; s = s->parent_.get())
    if (const Value* value = s->find_here(name)) return value;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  if (const Value* old = find_here(name)) {
    const_cast<Value&>(*old) = std::move(value);
    return;
  }
  if (!places_.empty()) places_.emplace(name, variables_.size());
  variables_.emplace_back(name, std::move(value));
}

void Scope::clear() {
  places_.clear();
  variables_.clear();
}

Run::Run(const Limits& limits, std::optional<std::tm> now, const CancelFlag* cancelled)
    : limits_(limits),
      now_(now),
      cancelled_(cancelled),
      end_(std::chrono::steady_clock::now() + limits.max_time),
      memory_at_start_(Footprint::live()) {}

Run::~Run() {
  for (const auto& object : kept_) object->forget();
}

Run::Level::Level(Run& run, uint32_t pos) : run_(run) {
  run.pos = pos;
  run.spend(1);
  if (run.depth_ >= run.limits_.max_recursion)
    raise_limit("the template recurses deeper than {} levels", run.limits_.max_recursion);
  ++run.depth_;
}

void Run::spend(uint64_t steps) {
  steps_ += static_cast<int64_t>(std::min<uint64_t>(steps, INT32_MAX));
  if (steps_ > limits_.max_steps) raise_limit("the template took more than {} steps", limits_.max_steps);
  if (Footprint::live() - memory_at_start_ > static_cast<int64_t>(limits_.max_memory))
    raise_limit("the template used more than {} MiB of memory", limits_.max_memory >> 20);
  if (steps_ - looked_ < kLookEvery) return;
  looked_ = steps_;
  check_cancelled(cancelled_);
  if (std::chrono::steady_clock::now() > end_)
    raise_limit("the template took more than {} ms", limits_.max_time.count());
}

std::string Run::text_of(const Value& v) {
  std::string text = str(v);
  spend(text.size() >> (v.is_string() ? 8 : 5));
  return text;
}

void Run::write(std::string_view text) {
  if (text.size() > limits_.max_output - std::min(output_->size(), limits_.max_output))
    raise_limit("the template made more than {} bytes of text", limits_.max_output);
  *output_ += text;
}

void Run::keep(std::shared_ptr<Object> object) {
  kept_.push_back(std::move(object));
  spend(16);  // it stays until the end
}

std::tm Run::now() const {
  if (now_) return *now_;
  const std::time_t t = std::time(nullptr);
  std::tm local{};
  localtime_r(&t, &local);
  return local;
}

Value Run::call(const Value& function, Args args) {
  require_defined(function);
  Object* object = function.object();
  if (object == nullptr) raise("'{}' object is not callable", type_name(function));
  for (const Value& v : args.positional) spend_copying(v);
  Value result = object->call(*this, std::move(args));
  spend_reading(result);
  return result;
}

Value Run::call_filter(const std::string& name, const Args& args) {
  static constexpr std::string_view kUnsupported[] = {
      "attr",      "batch",  "center",    "e",        "escape", "filesizeformat", "forceescape",
      "groupby",   "pprint", "random",    "round",    "slice",  "striptags",      "truncate",
      "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"};
  const Filter filter = find_filter(name);
  if (std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported))
    raise_unsupported("the filter {} is not supported", quote(name));
  if (filter == nullptr) raise("No filter named {}.", quote(name));
  const Level level(*this, pos);
  for (const Value& v : args.positional) spend_reading(v);
  Value result = filter(*this, args);
  spend_reading(result);
  return result;
}

bool Run::call_test(const std::string& name, const Args& args) {
  static constexpr std::string_view kUnsupported[] = {"escaped", "filter", "lower", "test", "upper"};
  const Test test = find_test(name);
  if (std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported))
    raise_unsupported("the test {} is not supported", quote(name));
  if (test == nullptr) raise("No test named {}.", quote(name));
  spend(1);
  return test(*this, args);
}

Value Function::call(Run& run, Args args) {
  if (!body_) raise("a macro was called after its template ended");
  return body_(run, args);
}

std::optional<Value> Namespace::attribute(std::string_view name) {
  for (const auto& [key, value] : attributes_)
    if (key == name) return value;
  return std::nullopt;
}

void Namespace::set(std::string_view name, Value value) {
  if (name.starts_with("_"))
    raise(
        "Chat templates cannot store underscore-prefixed attributes on a namespace, but got {}. Please rename the "
        "attribute.",
        quote(name));
  for (auto& [key, old] : attributes_) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  attributes_.emplace_back(name, std::move(value));
}

bool Loop::peek() {
  if (!ahead_.empty()) return true;
  Value v;
  if (!next_ || !next_(v)) return false;
  ahead_.push_back(std::move(v));
  return true;
}

bool Loop::advance(Value& item) {
  if (!peek()) return false;
  item = std::move(ahead_.back());
  ahead_.pop_back();
  ++index0_;
  previous_ = std::move(current_);
  current_ = item;
  return true;
}

int64_t Loop::count() {
  if (!length_) {
    std::reverse(ahead_.begin(), ahead_.end());
    for (Value v; next_ && next_(v);) ahead_.push_back(std::move(v));
    std::reverse(ahead_.begin(), ahead_.end());
    length_ = index0_ + 1 + static_cast<int64_t>(ahead_.size());
  }
  return *length_;
}

std::optional<Value> Loop::attribute(std::string_view name) {
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(!peek());
  if (name == "length") return Value(count());
  if (name == "revindex") return Value(count() - index0_);
  if (name == "revindex0") return Value(count() - index0_ - 1);
  if (name == "previtem") return index0_ == 0 ? Value::undefined("there is no previous item") : previous_;
  if (name == "nextitem") return peek() ? ahead_.back() : Value::undefined("there is no next item");
  if (name == "cycle")
    return make_function([index = static_cast<size_t>(index0_)](Run&, Args& args) {
      if (args.positional.empty()) raise("no items for cycling given");
      return args.positional[index % args.positional.size()];
    });
  if (name == "changed" || name == "depth" || name == "depth0") raise_unsupported("loop.{} is not supported", name);
  return std::nullopt;
}

void Loop::forget() {
  next_ = nullptr;
  ahead_.clear();
  previous_ = current_ = Value();
}

}  // namespace ingot::jinja
