#include "text/jinja/scopes.h"

#include <string_view>
#include <unordered_set>

namespace ingot::jinja {
namespace {

class Analysis {
 public:
  explicit Analysis(const Analysis* parent) : parent_(parent) {}

  void parameter(std::string_view name) { known_.insert(name); }
  void load(std::string_view name) {
    if (!is_known(name)) known_.insert(name);
  }
  void store(std::string_view name, bool conditional) {
    if (!known_.insert(name).second || conditional) return;
    if (parent_ == nullptr || !parent_->is_known(name)) hidden_.emplace_back(name);
  }

  void load_all(const ExprPtr& e) {
    if (!e) return;
    if (e->type == ExprType::name) load(e->text);
    load_all(e->left);
    load_all(e->right);
    for (const auto& item : e->items) load_all(item);
    load_args(e->args);
  }

  void load_args(const CallArgs& args) {
    for (const auto& arg : args.positional) load_all(arg);
    for (const auto& [name, arg] : args.keywords) load_all(arg);
    load_all(args.star);
    load_all(args.double_star);
  }

  void parameters(const Target& target) {
    if (!target.is_tuple) parameter(target.name);
    for (const Target& part : target.parts) parameters(part);
  }

  void parameters(const Stmt& macro) {
    for (const Param& param : macro.params) parameter(param.name);
    if (macro.uses_caller) parameter("caller");
    if (macro.uses_kwargs) parameter("kwargs");
    if (macro.uses_varargs) parameter("varargs");
    for (const Param& param : macro.params) load_all(param.value);
  }

  // Everything the scope itself does; what opens a scope of its own is put off until all names of this one are known.
  void visit(Block& body, bool conditional = false) {
    for (const auto& stmt : body) visit(*stmt, conditional);
  }

  std::vector<std::string> finish() {
    for (Stmt* stmt : inner_) visit_inner(*stmt);
    return std::move(hidden_);
  }

 private:
  bool is_known(std::string_view name) const {
    for (const Analysis* a = this; a != nullptr; a = a->parent_)
      if (a->known_.contains(name)) return true;
    return false;
  }

  void store_all(const Target& target, bool conditional) {
    if (!target.attribute.empty()) {
      load(target.name);
    } else if (!target.is_tuple) {
      store(target.name, conditional);
    }
    for (const Target& part : target.parts) store_all(part, conditional);
  }

  void visit(Stmt& stmt, bool conditional) {
    switch (stmt.type) {
      case StmtType::output: load_all(stmt.expr); return;
      case StmtType::branch:
        for (auto& branch : stmt.branches) {
          load_all(branch.test);
          visit(branch.body, true);
        }
        visit(stmt.else_body, true);
        return;
      case StmtType::assign:
        load_all(stmt.expr);
        store_all(stmt.target, conditional);
        return;
      case StmtType::assign_block: store_all(stmt.target, conditional); break;
      case StmtType::macro: store(stmt.text, conditional); break;
      case StmtType::loop:
      case StmtType::call_block:
      case StmtType::filter_block: load_all(stmt.expr); break;
      case StmtType::with:
        for (const auto& [target, value] : stmt.bindings) load_all(value);
        break;
      case StmtType::generation: break;
      default: return;
    }
    inner_.push_back(&stmt);
  }

  void visit_inner(Stmt& stmt) {
    Analysis body(this);
    if (stmt.type == StmtType::loop) {
      body.parameter("loop");
      body.parameters(stmt.target);
      Analysis otherwise(this);
      otherwise.visit(stmt.else_body);
      stmt.else_hidden = otherwise.finish();
    }
    if (stmt.type == StmtType::macro || stmt.type == StmtType::call_block || stmt.type == StmtType::generation)
      body.parameters(stmt);
    for (const auto& [target, value] : stmt.bindings) body.parameters(target);
    body.visit(stmt.body);
    stmt.hidden = body.finish();
  }

  const Analysis* parent_;
  std::unordered_set<std::string_view> known_;
  std::vector<std::string> hidden_;
  std::vector<Stmt*> inner_;
};

}  // namespace

std::vector<std::string> find_hidden_names(Block& body) {
  Analysis analysis(nullptr);
  analysis.visit(body);
  return analysis.finish();
}

}  // namespace ingot::jinja
