#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/chat_input.h"
#include "cli/chat_settings.h"
#include "cli/common.h"
#include "cli/completion.h"
#include "cli/conversation.h"
#include "cli/mistakes.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/word_wrap.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/nearest_name.h"
#include "core/settings.h"
#include "ingot/llm.h"
#include "text/calls/hold_answer.h"
#include "text/chat_format.h"

namespace ingot::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHelp =
    "  /reset, /clear    forget the conversation (the system prompt stays)\n"
    "  /system TEXT      how the model should behave; without TEXT: show it; /system off: none\n"
    "  /retry            answer the last message again\n"
    "  /undo             take the last message and its answer back\n"
    "  /save FILE        write the conversation: FILE.md to read, FILE.json to load again\n"
    "  /load FILE        go on with a saved conversation\n"
    "  /set NAME VALUE   temperature, top_p, max_tokens, seed, ...; without NAME: list them\n"
    "  /stats            what was generated so far, and how fast\n"
    "  /exit, /bye       leave; so does Ctrl-D\n"
    "  /help, /?         this list; Tab completes commands, settings and files\n"
    "A message of several lines: end a line with \\, or put the text between \"\"\" and \"\"\", or paste it.\n"
    "Ctrl-C stops an answer. A message that begins with / and a word: put a space before it.\n";

const std::vector<std::string> kCommands = {"/help",  "/exit", "/quit", "/bye",  "/reset", "/clear", "/system",
                                            "/retry", "/undo", "/save", "/load", "/set",   "/stats"};

struct ChatArgs {
  ModelArgs model;
  ChatSettings settings;
  std::string system;
  PrefixArgs prefix;
  SpeculationArgs speculation;
};

class Chat {
 public:
  Chat(const ChatArgs& args, std::unique_ptr<Llm> llm, std::string model, bool interactive)
      : llm_(std::move(llm)),
        tokenizer_(*llm_->tokenizer()),
        format_(*tokenizer_.chat_template(), tokenizer_.bos_token(), tokenizer_.eos_token()),
        settings_(args.settings),
        model_(std::move(model)),
        interactive_(interactive),
        plain_output_(isatty(STDOUT_FILENO) == 0),
        style_(!plain_output_),
        reader_(interactive ? LineReader::terminal(state_file("chat_history"), complete) : LineReader::plain()) {
    conversation_.system = args.system;
    take_advice(settings_.sampling, llm_->model().sampling);
  }

  void run() {
    if (interactive_)
      fmt::print("{}{}, {} tokens of context. /help lists the commands, Ctrl-D leaves.{}\n", style_.faint(), model_,
                 llm_->limits().max_model_len, style_.reset());
    // From here on Ctrl-C never ends the program, also between two lines, where it gives up what was typed ahead.
    if (interactive_) interrupts_.emplace();
    MessageLines lines;
    while (!done_) {
      std::string line;
      const LineReader::Event event = reader_->read(lines.open() ? "… " : "> ", line);
      if (interrupts_) interrupts_->forget();
      if (event == LineReader::Event::interrupt) {
        if (line.empty() && !lines.open()) say("Ctrl-D or /exit leaves; Ctrl-C stops an answer.");
        lines.take();
        continue;
      }
      if (event == LineReader::Event::line && !lines.push(line)) continue;
      const bool quoted = lines.quoted();
      handle(lines.take(), quoted);
      if (event == LineReader::Event::end) {
        if (interactive_) fmt::print("\n");
        break;
      }
    }
  }

 private:
  // One message or command. An error ends a chat that reads from a pipe; a person at a terminal goes on.
  void handle(const std::string& message, bool quoted) {
    if (message.find_first_not_of(" \t\n") == std::string::npos) return;
    reader_->remember(message);
    try {
      if (!quoted && is_command(message))
        perform(parse_command(message));
      else
        answer(message);
    } catch (const Error& error) {
      if (!interactive_) throw;
      fmt::print(stderr, "{}{}{}\n", style_.warning(), printable_text(error.what()), style_.reset());
    }
    std::fflush(stdout);
  }

  // A remark of the program; never among the answers when those go into a pipe.
  void say(std::string_view text) const {
    if (interactive_)
      fmt::print("{}{}{}\n", style_.faint(), text, style_.reset());
    else
      fmt::print(stderr, "{}\n", text);
  }

  struct Prompt {
    std::vector<int32_t> ids;
    bool in_reasoning = false;
  };

  // The conversation as the model reads it, from the first message that still fits.
  Prompt prompt() const {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    if (!conversation_.system.empty()) messages.push_back({{"role", "system"}, {"content", conversation_.system}});
    const std::vector<Message>& all = conversation_.messages();
    for (size_t i = conversation_.first_shown(); i < all.size(); ++i)
      messages.push_back({{"role", all[i].role}, {"content", all[i].content}});
    const ChatFormat::Prompt rendered = format_.render(messages);
    return {tokenizer_.encode(rendered.text, {.add_special = false, .parse_special = true}), rendered.in_reasoning};
  }

  // The prompt, with room left for the answer; the oldest messages make way for that.
  Prompt fitting_prompt() {
    const int64_t context = llm_->limits().max_model_len;
    const int64_t room = std::max<int64_t>(1, std::min(settings_.sampling.max_tokens, context / 4));
    Prompt fitting;
    const size_t dropped = conversation_.fit(context - room, context / 8, [&] {
      fitting = prompt();
      return static_cast<int64_t>(fitting.ids.size());
    });
    if (dropped > 0) {
      say(fmt::format("The context of {} tokens is full: the oldest {} messages are left out from here on.", context,
                      dropped));
    }
    if (static_cast<int64_t>(fitting.ids.size()) >= context)
      throw_error(ErrorKind::bad_call, "this message makes a prompt of {} tokens, and the context has {}: shorten it",
                  fitting.ids.size(), context);
    return fitting;
  }

  void answer(const std::string& question) {
    conversation_.add("user", question);
    try {
      GenerationRequest request = make_request(settings_.sampling);
      Prompt fitting = fitting_prompt();
      request.prompt = std::move(fitting.ids);
      hold_answer(format_, {.in_reasoning = fitting.in_reasoning}, request.structured);
      const std::string text = stream(std::move(request));
      // An answer that was stopped before its first word leaves the question for /retry.
      if (!text.empty()) conversation_.add("assistant", text);
    } catch (const Error&) {
      conversation_.take_last_question();
      throw;
    }
  }

  static Completion complete(std::string_view before_cursor) {
    return complete_line(before_cursor, kCommands, ChatSettings::names());
  }

  // Prints the answer as it comes and returns it.
  std::string stream(GenerationRequest request) {
    using namespace std::chrono_literals;
    const std::shared_ptr<Generation> generation = llm_->submit(std::move(request));
    std::string text;
    FinishReason finish = FinishReason::none;
    WordWrap wrap;
    ReadingProgress reading;
    const auto show = [this](const std::string& shown) { std::fwrite(shown.data(), 1, shown.size(), stdout); };
    std::optional<std::chrono::steady_clock::time_point> stopped;
    for (bool last = false; !last;) {
      last = generation->done();
      for (const ChoiceDelta& delta : generation->take()) {
        reading.end();
        text += delta.text;
        if (delta.finish != FinishReason::none) finish = delta.finish;
        show(plain_output_ ? delta.text : wrap.push(printable_text(delta.text), terminal_columns()));
      }
      if (text.empty()) reading.update(generation->summary());
      std::fflush(stdout);
      if (interrupts_ && interrupts_->interrupted() && !stopped) {
        stopped = std::chrono::steady_clock::now();
        generation->cancel();
      }
      // A step on its way is not waited for: its sequence is gone when the next question comes.
      if (stopped && !last && std::chrono::steady_clock::now() - *stopped > 100ms) {
        finish = FinishReason::cancelled;
        last = true;
      }
      if (!last) generation->wait(50ms);
    }
    reading.end();
    if (!plain_output_) show(wrap.finish(terminal_columns()));
    if (!text.ends_with('\n')) fmt::print("\n");
    const GenerationSummary summary = generation->summary();
    count(summary);
    if (!summary.error.empty()) throw_error(ErrorKind::device, "{}", summary.error);
    if (interactive_) say(figures(summary, finish));
    return text;
  }

  void count(const GenerationSummary& summary) {
    ++answers_;
    tokens_ += summary.completion_tokens;
    decode_s_ += summary.decode_s;
    prompt_tokens_ += summary.prompt_tokens;
    cached_tokens_ += summary.cached_tokens;
  }

  static std::string figures(const GenerationSummary& s, FinishReason finish) {
    const double rate = s.decode_s > 0 ? static_cast<double>(s.completion_tokens - 1) / s.decode_s : 0;
    std::string text = "[" + counted(s.completion_tokens, "token");
    if (s.completion_tokens > 1) text += fmt::format(", {:.1f} tok/s", rate);
    if (s.completion_tokens > 0) text += fmt::format(", first after {:.2f} s", s.first_token_s());
    text += fmt::format(", {} of {} prompt tokens cached", s.cached_tokens, s.prompt_tokens);
    if (s.draft_tokens > 0) text += fmt::format(", {} of {} guesses right", s.accepted_tokens, s.draft_tokens);
    if (finish == FinishReason::cancelled) text += ", stopped";
    if (finish == FinishReason::length) text += ", cut at the token limit";
    return text + "]";
  }

  void perform(const Command& command) {
    const std::string& name = command.name;
    if (name == "help" || name == "?") {
      fmt::print("{}", kHelp);
    } else if (name == "exit" || name == "quit" || name == "bye") {
      done_ = true;
    } else if (name == "reset" || name == "clear") {
      conversation_.clear();
      say("The conversation starts anew.");
    } else if (name == "system") {
      set_system(command.argument);
    } else if (name == "retry") {
      const std::string question = conversation_.take_last_question();
      if (question.empty()) throw_error(ErrorKind::bad_call, "/retry: there is no message yet");
      answer(question);
    } else if (name == "undo") {
      const std::string question = conversation_.take_last_question();
      if (question.empty()) throw_error(ErrorKind::bad_call, "/undo: there is no message yet");
      say("Taken back: " + printable_text(question));
    } else if (name == "save") {
      save(expand_home(command.argument));
    } else if (name == "load") {
      load(expand_home(command.argument));
    } else if (name == "set") {
      set(command.argument);
    } else if (name == "stats") {
      print_stats();
    } else {
      const std::string near = nearest_name(name, kCommands);
      throw_error(ErrorKind::bad_call, "there is no command /{}{}; /help lists them, a space before it sends it", name,
                  near.empty() ? "" : fmt::format("; did you mean {}?", near));
    }
  }

  void set_system(const std::string& text) {
    if (text.empty()) {
      say(conversation_.system.empty() ? "There is no system prompt." : printable_text(conversation_.system));
      return;
    }
    conversation_.system = text == "off" ? "" : text;
    say("It holds from the next answer on.");
  }

  void save(const std::string& path) {
    if (path.empty()) throw_error(ErrorKind::bad_call, "/save: give a file: talk.md or talk.json");
    // Nothing is overwritten by a slip: only the file this conversation is kept in.
    if (fs::exists(path) && path != file_)
      throw_error(ErrorKind::bad_call, "{} exists already: choose another name, or remove it first", path);
    conversation_.save(path, model_);
    file_ = path;
    say(fmt::format("Saved {} to {}.", counted_messages(), path));
  }

  void load(const std::string& path) {
    if (path.empty()) throw_error(ErrorKind::bad_call, "/load: give a file that /save wrote");
    conversation_.load(path);
    file_ = path;
    say(fmt::format("Loaded {} from {}.", counted_messages(), path));
  }

  void set(const std::string& argument) {
    if (argument.empty()) {
      fmt::print("{}", settings_.list());
      return;
    }
    const size_t end = argument.find_first_of(" =\t");
    if (end == std::string::npos) throw_error(ErrorKind::bad_call, "/set {}: give a value too", argument);
    const size_t value = argument.find_first_not_of(" =\t", end);
    const std::string name = argument.substr(0, end);
    settings_.set(name, value == std::string::npos ? "" : argument.substr(value));
    say(fmt::format("{} is {} from the next answer on.", name, argument.substr(value)));
  }

  std::string counted_messages() const {
    return counted(static_cast<int64_t>(conversation_.messages().size()), "message");
  }

  void print_stats() const {
    const LlmStats stats = llm_->stats();
    fmt::print("{}, {} at {:.1f} tok/s; {} of {} prompt tokens came from the cache\n", counted(answers_, "answer"),
               counted(tokens_, "token"),
               decode_s_ > 0 ? static_cast<double>(std::max<int64_t>(0, tokens_ - answers_)) / decode_s_ : 0.0,
               cached_tokens_, prompt_tokens_);
    fmt::print("{}; KV cache: {} of {} blocks used or cached\n", counted(static_cast<int64_t>(stats.steps), "step"),
               stats.blocks_used + stats.blocks_cached, stats.blocks_total);
    fmt::print("{}, {} of them read by the model; on {}\n", counted_messages(),
               conversation_.messages().size() - conversation_.first_shown(), llm_->device_description());
  }

  std::unique_ptr<Llm> llm_;
  const Tokenizer& tokenizer_;
  ChatFormat format_;
  Conversation conversation_;
  ChatSettings settings_;
  std::string model_;
  std::string file_;  // where the conversation was saved to or loaded from
  bool interactive_;
  bool plain_output_;
  bool done_ = false;
  Style style_;
  std::unique_ptr<LineReader> reader_;
  std::optional<InterruptGuard> interrupts_;  // at a terminal
  int64_t answers_ = 0, tokens_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
  double decode_s_ = 0;
};

void chat(const ChatArgs& args) {
  if (followed_rank_0(args.model)) return;
  LlmOptions options;
  options.engine = args.model.engine;
  options.engine.model = resolve_model(args.model.model);
  options.engine.max_seqs = 1;
  args.prefix.apply(options);
  set_speculation(args.speculation, options);
  std::unique_ptr<Llm> llm = load_llm(options);
  if (llm->tokenizer() == nullptr || !llm->tokenizer()->chat_template())
    throw_error(ErrorKind::declined, "{}: this model has no chat template; complete texts with `ingot run`",
                options.engine.model);
  const bool interactive = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  std::string name = fs::path(options.engine.model).filename().string();
  Chat(args, std::move(llm), name.empty() ? options.engine.model : name, interactive).run();
}

}  // namespace

void add_chat(Program& program) {
  auto [command, args] = program.add_command("chat", "talk with a model; from a pipe: one message a line", chat);
  add_engine_options(command, args.model);
  add_model_argument(command, args.model);
  command.option("--system", args.system, "how the model should behave");
  add_sampling_options(command, args.settings.sampling);
  add_prefix_options(command, args.prefix);
  add_speculation_options(command, args.speculation);
}

}  // namespace ingot::cli
