#include "text/calls/piece_reader.h"

namespace ingot {
namespace {

// Of objects in ordinary text, the first key tells most of them from calls.
bool is_call_key(std::string_view key) {
  return key == "name" || key == "arguments" || key == "parameters" || key == "id" || key == "type";
}

class JsonArgumentsReader : public PieceReader {
 public:
  Read read(Input& in, EventWriter& events, CallContext& call) override {
    const Read result = arguments_.read(in, events, call);
    if (result == Read::done) {
      events.end_call(false);
      in.kept = in.at;
    }
    return result;
  }

 private:
  ArgumentsStream arguments_;
};

// {"name": "f", "arguments": {...}}, its keys in any order, alone or as elements of a list.
class JsonCallReader : public CallsReader {
 public:
  explicit JsonCallReader(bool list) : list_(list), state_(list ? State::list : State::object) {}

 private:
  enum class State {
    list,       // before [
    object,     // before {
    first_key,  // before a key or }
    key,        // in a key
    colon,
    value,  // before a value
    name,   // in one
    id,
    arguments,
    text_arguments,  // arguments as JSON within a string
    other,
    next,     // before , or }
    element,  // before , or ]
    end,
  };

  bool at_end() const override { return state_ == State::end; }
  Read step(Input& in, EventWriter& events, CallContext& call) override;
  Read take(Input& in, State next);  // the next character
  Read begin_value(Input& in, CallContext& call);
  Read end_name(Input& in, EventWriter& events, CallContext& call);
  Read read_text_arguments(Input& in, EventWriter& events, CallContext& call);
  Read end_arguments(Input& in, EventWriter& events, const CallContext& call);

  bool list_;
  State state_;
  std::string key_;
  std::string decoded_;
  std::string ignored_;
  JsonStringReader string_;
  JsonScanner other_;
  ArgumentsStream arguments_;
};

Read JsonCallReader::take(Input& in, State next) {
  ++in.at;
  state_ = next;
  return Read::done;
}

Read JsonCallReader::step(Input& in, EventWriter& events, CallContext& call) {
  switch (state_) {
    case State::key: {
      const Read result = string_.read(in, key_, kMaxName);
      if (result == Read::done) state_ = State::colon;
      return result == Read::done && call.bare && !is_call_key(key_) ? Read::failed : result;
    }
    case State::name: {
      const Read result = string_.read(in, call.name, kMaxName);
      return result == Read::done ? end_name(in, events, call) : result;
    }
    case State::id: {
      const Read result = string_.read(in, call.id, kMaxName);
      if (result == Read::done) state_ = State::next;
      return result;
    }
    case State::arguments: {
      const Read result = arguments_.read(in, events, call);
      return result == Read::done ? end_arguments(in, events, call) : result;
    }
    case State::text_arguments: return read_text_arguments(in, events, call);
    case State::other: {
      const Read result = other_.read(in, ignored_);
      const bool no_arguments = !ended_ && (key_ == "arguments" || key_ == "parameters");
      if (no_arguments && result == Read::done && ignored_ != "null") return Read::failed;
      if (result != Read::done) {
        if (!no_arguments) ignored_.clear();
        return result;
      }
      state_ = State::next;
      if (!no_arguments) return result;
      Input empty{.text = "{}"};
      arguments_.read(empty, events, call);
      return end_arguments(in, events, call);
    }
    default: break;
  }

  skip_space(in);
  if (in.empty()) return Read::more;
  const char c = in.next();
  switch (state_) {
    case State::list: return c == '[' ? take(in, State::object) : Read::failed;
    case State::object:
      if (c != '{') return Read::failed;
      call.name.clear();
      call.id.clear();
      arguments_ = {};
      ended_ = false;
      return take(in, State::first_key);
    case State::first_key:
      if (c != '"') return Read::failed;
      key_.clear();
      string_ = {};
      state_ = State::key;
      return Read::done;
    case State::colon: return c == ':' ? take(in, State::value) : Read::failed;
    case State::value: return begin_value(in, call);
    case State::next:
      if (c == ',') return take(in, State::first_key);
      if (c != '}' || !ended_) return Read::failed;
      take(in, list_ ? State::element : State::end);
      in.kept = in.at;
      return Read::done;
    case State::element:
      if (c != ',' && c != ']') return Read::failed;
      take(in, c == ',' ? State::object : State::end);
      in.kept = in.at;
      return Read::done;
    default: return Read::failed;
  }
}

Read JsonCallReader::begin_value(Input& in, CallContext& call) {
  const char c = in.next();
  string_ = {};
  other_ = {};
  ignored_.clear();
  state_ = State::other;
  if (ended_) return Read::done;
  if (key_ == "name" || key_ == "id") {
    if (c != '"') return key_ == "id" ? Read::done : Read::failed;
    state_ = key_ == "name" ? State::name : State::id;
    (key_ == "name" ? call.name : call.id).clear();
  } else if (key_ == "arguments" || key_ == "parameters") {
    if (c == '{' && arguments_.empty()) state_ = State::arguments;
    if (c == '"' && arguments_.empty()) state_ = State::text_arguments;
    if (c != 'n' && state_ == State::other) return Read::failed;
    decoded_.clear();
  }
  return Read::done;
}

Read JsonCallReader::end_name(Input& in, EventWriter& events, CallContext& call) {
  if (!call.is_function()) return Read::failed;
  state_ = State::next;
  arguments_.begin_if_ready(events, call);
  return arguments_.done() ? end_arguments(in, events, call) : Read::done;
}

// Character by character, so that the place at which it fails is always the same, and between two of them.
Read JsonCallReader::read_text_arguments(Input& in, EventWriter& events, CallContext& call) {
  while (!in.empty()) {
    const size_t begin = in.at;
    size_t end = begin + 1;
    while (end < in.text.size() && (in.text[end] & 0xC0) == 0x80) ++end;
    Input one{.text = in.text.substr(0, end), .at = in.at};
    const Read result = string_.read(one, decoded_);
    in.at = one.at;
    if (result == Read::failed) return result;
    Input inner{.text = decoded_, .ended = result == Read::done};
    const bool fits = arguments_.done() || arguments_.read(inner, events, call) != Read::failed;
    skip_space(inner);
    if (!fits || !inner.empty()) {
      in.at = begin;  // it is part of what follows
      return Read::failed;
    }
    decoded_.clear();
    if (result == Read::done) return arguments_.done() ? end_arguments(in, events, call) : Read::failed;
  }
  return Read::more;
}

Read JsonCallReader::end_arguments(Input& in, EventWriter& events, const CallContext& call) {
  state_ = State::next;
  if (call.name.empty()) return Read::done;  // the name is still to come
  events.end_call(false);
  ended_ = true;
  in.kept = in.at;
  return Read::done;
}

}  // namespace

Read ArgumentsStream::read(Input& in, EventWriter& events, CallContext& call) {
  if (!started_) {
    skip_space(in);
    if (in.empty()) return Read::more;
    if (in.next() != '{') return Read::failed;
    started_ = true;
  }
  const Read result = scanner_.read(in, pending_);
  begin_if_ready(events, call);
  return result;
}

void ArgumentsStream::begin_if_ready(EventWriter& events, CallContext& call) {
  if (!scanner_.settled() || call.name.empty()) return;
  if (!begun_) events.begin_call(call.name, call.id);
  begun_ = true;
  events.arguments(pending_);
  pending_.clear();
}

std::unique_ptr<PieceReader> read_json_arguments() { return std::make_unique<JsonArgumentsReader>(); }
std::unique_ptr<PieceReader> read_json_call(bool list) { return std::make_unique<JsonCallReader>(list); }

}  // namespace ingot
