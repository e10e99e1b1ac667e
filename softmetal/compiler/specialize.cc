#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "compiler/program.h"

namespace softmetal {
namespace {

std::string constants_text(const Program& program, const std::vector<ConstantValue>& values) {
  std::string out = "#define SM_CONSTANT static constexpr\n";
  for (const FunctionConstant& c : program.constants) {
    auto set = std::find_if(values.begin(), values.end(), [&](const ConstantValue& v) { return v.name == c.name; });
    const bool defined = set != values.end();
    out += "#define SM_DEFINED_" + c.name + (defined ? " true\n" : " false\n");
    out +=
        "#define SM_VALUE_" + c.name + " " + (defined ? "((" + c.type + ")" + set->value + ")" : c.type + "{}") + "\n";
  }
  return out;
}

// What `roots` lead to, with the constants that are mentioned there.
Program needed(const Program& program, const std::string& roots) {
  Program part;
  std::unordered_set<std::string_view> words;
  const std::vector<bool> kept = reachable(program.pieces, roots);
  for (size_t i = 0; i < kept.size(); ++i) {
    const SourcePiece& piece = program.pieces[i];
    part.source += kept[i] ? piece.text : piece.blank;
    if (kept[i]) words.insert(piece.words.begin(), piece.words.end());
  }
  for (const FunctionConstant& c : program.constants)
    if (words.contains("SM_VALUE_" + c.name) || words.contains("SM_DEFINED_" + c.name)) part.constants.push_back(c);
  return part;
}

std::string sources_text(const KernelInfo& kernel) {
  std::string out;
  for (const KernelParameter& p : kernel.parameters) {
    out += ", sm::From<softmetal::abi::" + p.kind + ", " + std::to_string(p.index) + ", " +
           (p.enabled_by.empty() ? "true" : "(bool)" + p.enabled_by) + ">";
  }
  return out;
}

std::string entry_text(const KernelInfo& kernel, const std::string& suffix) {
  std::string names;
  for (const KernelParameter& p : kernel.parameters) {
    names += (names.empty() ? "\"" : ", \"") + p.name + "\"";
  }
  return "using sm_entry" + suffix + " = sm::Entry<&" + kernel.expression + sources_text(kernel) + ">;\n" +
         "static constexpr auto sm_arguments" + suffix + " = sm_entry" + suffix + "::arguments(" + names + ");\n";
}

// The parameters and arguments of the call for a kernel that runs as a grid.
struct GridText {
  std::string parameters, arguments, description;
};
GridText grid_text(const KernelInfo& kernel) {
  const std::string function = "&" + kernel.expression;
  GridText text;
  size_t threadgroup_arguments = 0, position = 0;
  for (const KernelParameter& p : kernel.parameters) threadgroup_arguments += p.kind == "kThreadgroup";
  for (const KernelParameter& p : kernel.parameters) {
    const std::string number = std::to_string(position++), at = function + ", " + number;
    const std::string enabled = p.enabled_by.empty() ? "true" : "(bool)" + p.enabled_by;
    std::string argument;
    if (p.kind == "kBuffer") {
      text.parameters += (text.parameters.empty() ? "" : ", ") + ("sm::Passed<" + at + "> a" + number);
      argument = "sm::ArgumentOf<" + at + ">::give(a" + number + ")";
    } else if (p.kind == "kThreadgroup") {
      // One alone lies at the start, which the compiler may as well know.
      if (threadgroup_arguments > 1) text.parameters += (text.parameters.empty() ? "" : ", ") + ("unsigned a" + number);
      argument = "sm::threadgroup_argument<" + at + ">(" + (threadgroup_arguments > 1 ? "a" + number : "0") + ")";
    } else {
      argument = "sm::position<" + at + ", softmetal::abi::" + p.kind + ">()";
    }
    if (p.kind == "kBuffer" || p.kind == "kThreadgroup") {
      text.description += "sm::describe<" + at + ", " + std::to_string(p.index) + ", " + enabled +
                          ">(softmetal::abi::" + p.kind + "), ";
    }
    text.arguments += (text.arguments.empty() ? "" : ", ") + argument;
  }
  return text;
}

}  // namespace

std::string specialize_grid(const Program& program, const KernelInfo& kernel,
                            const std::vector<ConstantValue>& constants) {
  const GridText text = grid_text(kernel);
  // A limit that the source does not state is the compiler's to find: it would cost registers.
  const std::string bounds =
      kernel.max_threads < 1024
          ? ", launch_bounds(" + std::to_string(kernel.max_threads) +
                (kernel.together > 0 ? ", " + std::to_string(kernel.together) + ")" : std::string(")"))
          : std::string();
  const std::string entry =
      "extern \"C\" __attribute__((__device__, used)) softmetal::abi::GridArgument softmetal_arguments[] = {" +
      text.description + "{~0u}};\n" + "extern \"C\" __attribute__((__global__" + bounds + ")) void softmetal_grid(" +
      text.parameters + ") {\n  sm::begin_grid(" + (kernel.starts_early ? "true" : "false") + ");\n  " +
      kernel.expression + "(" + text.arguments + ");\n}\n";
  const Program part = needed(program, entry);
  return "#include \"softmetal_kernel.h\"\n" + constants_text(part, constants) +
         "#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)\n" + part.source +
         "\n#pragma clang attribute pop\n# 1 \"" + kernel.name + ".entry\"\n" +
         "#pragma clang force_cuda_host_device end\n" + entry;
}

std::string specialize_agx(const Program& program, const KernelInfo& kernel,
                           const std::vector<ConstantValue>& constants) {
  const GridText text = grid_text(kernel);
  const std::string entry = "extern \"C\" __attribute__((__global__)) void softmetal_grid(" + text.parameters +
                            ") {\n  " + kernel.expression + "(" + text.arguments + ");\n}\n";
  const Program part = needed(program, entry);
  return "#include \"softmetal_kernel.h\"\n" + constants_text(part, constants) +
         "#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)\n" + part.source +
         "\n#pragma clang attribute pop\n# 1 \"" + kernel.name + ".entry\"\n" +
         "#pragma clang force_cuda_host_device end\n" + entry;
}

std::string specialize(const Program& program, const KernelInfo& kernel, const std::vector<ConstantValue>& constants,
                       bool whole) {
  const std::string entry = entry_text(kernel, "");
  const Program part = whole ? program : needed(program, entry);
  return constants_text(part, constants) + part.source + "\n# 1 \"" + kernel.name + ".entry\"\n" + entry +
         "extern \"C\" __attribute__((visibility(\"default\"))) const softmetal::abi::Module softmetal_module = {"
         "softmetal::abi::kVersion, \"" +
         kernel.name + "\", " + std::to_string(kernel.max_threads) + ", &sm_entry::run, sm_arguments.list, " +
         std::to_string(kernel.parameters.size()) + ", &sm::threadgroup_bytes, &sm::softmetal_runtime};\n";
}

std::string unspecialized(const Program& program) {
  std::string out = "#define SM_CONSTANT static const\n";
  for (const FunctionConstant& c : program.constants) {
    out += "#define SM_DEFINED_" + c.name + " sm::unknown<bool>()\n#define SM_VALUE_" + c.name + " sm::unknown<" +
           c.type + ">()\n";
  }
  out += program.source + "\n";
  int number = 0;
  for (const KernelInfo& kernel : program.kernels) {
    const std::string suffix = "_" + std::to_string(number++);
    KernelInfo all = kernel;
    for (KernelParameter& p : all.parameters) p.enabled_by.clear();
    out += "# " + std::to_string(kernel.line) + " \"" + kernel.file + "\"\n" + entry_text(all, suffix) +
           "template struct sm::Entry<&" + all.expression + sources_text(all) + ">;\n";
  }
  return out;
}

std::string lint_source(const Program& program) {
  std::string out = "#include \"softmetal_lint.h\"\n";
  for (const FunctionConstant& c : program.constants) out += "#define SM_DEFINED_" + c.name + " true\n";
  out += program.source + "\n";
  int number = 0;
  for (const KernelInfo& kernel : program.kernels) {
    out += "# " + std::to_string(kernel.line) + " \"" + kernel.file + "\"\nvoid sm_use_" + std::to_string(number++) +
           "() { sm::use(&" + kernel.expression + "); }\n";
  }
  return out;
}

}  // namespace softmetal
