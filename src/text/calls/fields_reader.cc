#include <optional>

#include "text/calls/mark_finder.h"
#include "text/calls/piece_reader.h"
#include "text/calls/value_text.h"
#include "text/dialects/dialect.h"

namespace ingot {
namespace {

std::vector<std::string> value_marks(const Fields& fields) {
  std::vector<std::string> marks{std::string(fields.value_close)};
  for (const std::string_view end : fields.value_ends)
    if (!end.empty()) marks.push_back("\n" + std::string(end));
  return marks;
}

// <key>a</key><value>1</value>..., which becomes {"a": 1, ...}.
class FieldsReader : public PieceReader {
 public:
  explicit FieldsReader(const Fields& fields)
      : fields_(fields), key_end_({std::string(fields.key_close)}), value_end_(value_marks(fields)) {}

  Read read(Input& in, EventWriter& events, CallContext& call) override {
    for (;;) {
      const Read result = step(in, events, call);
      if (result != Read::done || state_ == State::end) return result;
    }
  }
  bool in_tail() const override { return state_ == State::end; }

 private:
  enum class State { field, key, value_open, value, end };

  Read step(Input& in, EventWriter& events, CallContext& call);  // done: on to the next state
  Read begin_field(Input& in, EventWriter& events);
  Read read_key(Input& in);
  Read begin_value(Input& in, EventWriter& events, CallContext& call);
  Read read_value(Input& in, EventWriter& events);

  const Fields& fields_;
  MarkFinder key_end_, value_end_;
  State state_ = State::field;
  std::string key_;
  std::optional<ValueText> value_;
};

Read FieldsReader::step(Input& in, EventWriter& events, CallContext& call) {
  switch (state_) {
    case State::field: return begin_field(in, events);
    case State::key: return read_key(in);
    case State::value_open: return begin_value(in, events, call);
    case State::value: return read_value(in, events);
    case State::end: break;
  }
  return Read::done;
}

Read FieldsReader::begin_field(Input& in, EventWriter& events) {
  skip_space(in);
  if (in.empty()) return Read::more;
  const Read result = read_mark(in, fields_.key_open);
  if (result == Read::more) return result;
  state_ = result == Read::done ? State::key : State::end;
  key_.clear();
  if (state_ == State::end && events.in_call()) {
    events.arguments("}");
    events.end_call(false);
    in.kept = in.at;
  }
  return Read::done;
}

Read FieldsReader::read_key(Input& in) {
  const MarkFinder::Found found = key_end_.find({.text = in.text, .at = in.at});
  for (; in.at < found.at; ++in.at) {
    if (in.next() == '<' || in.next() == '\n' || key_.size() == kMaxName) return Read::failed;
    key_.push_back(in.next());
  }
  if (found.mark == MarkFinder::kNone) return Read::more;
  in.at += fields_.key_close.size();
  state_ = State::value_open;
  return Read::done;
}

Read FieldsReader::begin_value(Input& in, EventWriter& events, CallContext& call) {
  if (!fields_.value_open.empty()) {
    skip_space(in);
    const Read result = read_mark(in, fields_.value_open);
    if (result != Read::done) return result;
  }
  const bool first = !events.in_call();
  if (first) events.begin_call(call.name, call.id);
  std::string json = first ? "{\"" : ", \"";
  const std::string_view key = strip_space(key_);
  append_json_escaped(json, key);
  events.arguments(json + "\": ");
  const ValueKinds* kinds = call.tools.find(call.name, key);
  value_.emplace(kinds != nullptr ? *kinds : ValueKinds{.string = true}, fields_.lines);
  state_ = State::value;
  return Read::done;
}

Read FieldsReader::read_value(Input& in, EventWriter& events) {
  const MarkFinder::Found found = value_end_.find({.text = in.text, .at = in.at});  // a mark that is cut off is one
  std::string json;
  value_->add(in.text.substr(in.at, found.at - in.at), json);
  in.at = found.at;
  if (found.mark == MarkFinder::kNone) {
    if (in.ended) value_->cut(json);
    events.arguments(json);
    return Read::more;
  }
  value_->finish(json);
  events.arguments(json);
  if (found.mark == 0) in.at += fields_.value_close.size();  // others belong to what follows
  state_ = State::field;
  return Read::done;
}

}  // namespace

std::unique_ptr<PieceReader> read_fields(const Fields& fields) { return std::make_unique<FieldsReader>(fields); }

}  // namespace ingot
