#include "text/calls/form_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/calls/form_reader.h"
#include "text/calls/gates.h"
#include "text/dialects/dialect.h"

namespace ingot {
namespace {

// Bytes that are held back while a call may yet come of them.
constexpr size_t kMaxCallHeld = size_t{1} << 20;

// What a mark in the text does.
struct Mark {
  enum class Action { call, open_reasoning, close_reasoning, open_section, close_section, ignore };
  std::string text;
  Action action;
  bool at_start = false;
  std::vector<const Form*> forms{};  // that begin with it
};

using Marks = std::vector<Mark>;

void add_mark(Marks& marks, std::string_view text, Mark::Action action, bool at_start = false) {
  const auto same = [&](const Mark& mark) { return mark.text == text; };
  if (!text.empty() && std::none_of(marks.begin(), marks.end(), same))
    marks.push_back({std::string(text), action, at_start});
}

void add_forms(Marks& marks, const Dialect& dialect) {
  for (const Form& form : dialect.forms) {
    for (const std::string& opening : form_openings(form)) {
      auto found = std::find_if(marks.begin(), marks.end(), [&](const Mark& mark) { return mark.text == opening; });
      if (found == marks.end()) {
        marks.push_back({opening, Mark::Action::call, form.at_start && opening.size() == 1});
        found = marks.end() - 1;
      }
      found->forms.push_back(&form);
    }
  }
}

Marks content_marks(const Dialect& dialect, const ChatParserOptions& options) {
  Marks marks;
  if (options.calls) {
    add_forms(marks, dialect);
    add_mark(marks, dialect.section_open, Mark::Action::open_section);
    add_mark(marks, dialect.section_close, Mark::Action::close_section);
    for (const std::string_view mark : dialect.ignored) add_mark(marks, mark, Mark::Action::ignore);
  }
  for (const ReasoningBlock& block : dialect.reasoning) {
    if (!options.reasoning) break;
    add_mark(marks, block.open, Mark::Action::open_reasoning, block.at_start);
    if (!block.at_start) add_mark(marks, block.close, Mark::Action::ignore);  // one that closes nothing
  }
  return marks;
}

Marks reasoning_marks(const Dialect& dialect, const ChatParserOptions& options) {
  Marks marks;
  if (options.calls && dialect.calls_end_reasoning) {
    add_forms(marks, dialect);
    add_mark(marks, dialect.section_open, Mark::Action::open_section);
  }
  for (const ReasoningBlock& block : dialect.reasoning) {
    add_mark(marks, block.close, Mark::Action::close_reasoning);
    if (!block.at_start) add_mark(marks, block.open, Mark::Action::ignore);  // the prompt had it already
  }
  return marks;
}

MarkFinder finder_of(const Marks& marks) {
  std::vector<std::string> texts;
  for (const Mark& mark : marks) texts.push_back(mark.text);
  return MarkFinder(std::move(texts));
}

class FormParser : public ChatParser {
 public:
  FormParser(const Dialect& dialect, const ChatParserOptions& options)
      : dialect_(dialect),
        tools_(options.tools),
        content_marks_(content_marks(dialect, options)),
        reasoning_marks_(reasoning_marks(dialect, options)),
        content_finder_(finder_of(content_marks_)),
        reasoning_finder_(finder_of(reasoning_marks_)),
        content_(dialect.separator),
        in_reasoning_(options.reasoning && options.in_reasoning) {}

 protected:
  void run(Input& in) override;
  void end() override { content_.end(events_); }

 private:
  bool scan(Input& in);                   // to the next mark; false: no further
  bool act(Input& in, const Mark& mark);  // false: it is ordinary text here
  bool read_call(Input& in);              // false: no further
  Read read_bounded(Input& in);
  void end_of_call(Input& in);  // of the text, while a call is read
  void add_text(std::string_view text);
  void leave_reasoning();

  const Dialect& dialect_;
  const ToolSchemas tools_;
  const Marks content_marks_, reasoning_marks_;
  const MarkFinder content_finder_, reasoning_finder_;
  ContentGate content_;
  ReasoningGate reasoning_;
  bool in_reasoning_;

  std::optional<FormReader> reader_;  // of what may be a call
  const Mark* mark_ = nullptr;        // that it began with
  size_t form_ = 0;                   // which of its forms is tried
  size_t furthest_ = 0;               // bytes that any of them came
};

void FormParser::run(Input& in) {
  while (reader_ ? read_call(in) : scan(in)) {
  }
  if (in.ended && reader_) end_of_call(in);
}

bool FormParser::scan(Input& in) {
  const MarkFinder& finder = in_reasoning_ ? reasoning_finder_ : content_finder_;
  const MarkFinder::Found found = finder.find(in);
  add_text(in.text.substr(in.at, found.at - in.at));
  in.at = in.kept = found.at;
  if (found.mark == MarkFinder::kNone) return false;
  const Mark& mark = (in_reasoning_ ? reasoning_marks_ : content_marks_)[found.mark];
  if (!act(in, mark)) {
    add_text(mark.text);
    in.at = in.kept = found.at + mark.text.size();
  }
  return true;
}

bool FormParser::act(Input& in, const Mark& mark) {
  if (mark.at_start && (in_reasoning_ || !content_.at_start())) return false;
  if (mark.action == Mark::Action::call) {
    mark_ = &mark;
    form_ = 0;
    furthest_ = 0;
    reader_.emplace(dialect_, *mark.forms.front(), tools_, events_);
    return true;
  }
  in.at = in.kept = in.at + mark.text.size();
  switch (mark.action) {
    case Mark::Action::open_reasoning:
      in_reasoning_ = true;
      reasoning_.open();
      break;
    case Mark::Action::close_reasoning: leave_reasoning(); break;
    case Mark::Action::open_section:
      in_reasoning_ = false;
      content_.open(ContentGate::After::section);
      break;
    case Mark::Action::close_section:
      content_.end(events_);
      content_.open(ContentGate::After::call);
      break;
    default: break;
  }
  return true;
}

void FormParser::leave_reasoning() {
  in_reasoning_ = false;
  content_.open(ContentGate::After::reasoning);
}

void FormParser::add_text(std::string_view text) {
  if (in_reasoning_)
    reasoning_.add(text, events_);
  else
    content_.add(text, events_);
}

// The reader does not see more than may be held, so that the place at which it gives up is always the same.
Read FormParser::read_bounded(Input& in) {
  const std::string_view text = in.text;
  const bool ended = in.ended;
  for (;;) {
    const size_t kept = in.kept;
    const bool bounded = !events_.in_call() && text.size() - kept > kMaxCallHeld;
    in.text = bounded ? text.substr(0, kept + kMaxCallHeld) : text;
    in.ended = ended && !bounded;
    const Read result = reader_->read(in, events_);
    in.text = text;
    in.ended = ended;
    if (!bounded || result != Read::more) return result;
    if (in.kept == kept && !events_.in_call()) return Read::failed;
  }
}

bool FormParser::read_call(Input& in) {
  const size_t begin = in.kept;
  const int calls = events_.calls();
  const Read result = read_bounded(in);
  if (events_.calls() > calls) {
    in_reasoning_ = false;
    content_.open(ContentGate::After::call);
  }
  if (result == Read::more) return false;
  if (result == Read::failed && form_ + 1 < mark_->forms.size()) {
    furthest_ = std::max(furthest_, in.at - begin);
    in.at = begin;
    reader_.emplace(dialect_, *mark_->forms[++form_], tools_, events_);
    return true;
  }
  if (result == Read::failed) {
    in.at = std::max({in.at, begin + furthest_, begin + mark_->text.size()});
    content_.refuse(events_);
  }
  add_text(in.text.substr(in.kept, in.at - in.kept));
  in.kept = in.at;
  reader_.reset();
  return true;
}

void FormParser::end_of_call(Input& in) {
  if (events_.in_call()) {
    cut_ = true;
    events_.end_call(true);
  } else if (!reader_->in_tail(events_)) {
    cut_ = reader_->committed();
    in.at = in.text.size();
    add_text(in.text.substr(in.kept));
  }
  in.at = in.kept = in.text.size();
}

}  // namespace

std::unique_ptr<ChatParser> make_form_parser(const Dialect& dialect, const ChatParserOptions& options) {
  return std::make_unique<FormParser>(dialect, options);
}

}  // namespace ingot
