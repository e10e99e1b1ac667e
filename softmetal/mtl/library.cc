#include <cstdio>
#include <cstring>

#include "mtl/state.h"

namespace softmetal {
namespace {

struct ScalarType {
  const char* metal;   // its name in kernels
  MTL::DataType type;  // of the scalar; vectors follow
  size_t bytes;
};
constexpr ScalarType kScalars[] = {
    {"float", MTL::DataTypeFloat, 4},   {"half", MTL::DataTypeHalf, 2}, {"bfloat", MTL::DataTypeBFloat, 2},
    {"int", MTL::DataTypeInt, 4},       {"uint", MTL::DataTypeUInt, 4}, {"short", MTL::DataTypeShort, 2},
    {"ushort", MTL::DataTypeUShort, 2}, {"char", MTL::DataTypeChar, 1}, {"uchar", MTL::DataTypeUChar, 1},
    {"bool", MTL::DataTypeBool, 1},     {"long", MTL::DataTypeLong, 8}, {"ulong", MTL::DataTypeULong, 8},
};

// The scalar and the number of components of a type; nullptr for one that constants cannot have.
const ScalarType* find_type(MTL::DataType type, unsigned& components) {
  for (const ScalarType& s : kScalars) {
    if (type >= s.type && type < s.type + 4) {
      components = static_cast<unsigned>(type - s.type) + 1;
      return &s;
    }
  }
  return nullptr;
}

size_t size_of(MTL::DataType type) {
  unsigned components = 1;
  const ScalarType* s = find_type(type, components);
  if (!s) violate("function constant: data type " + std::to_string(type) + " is not supported");
  return s->bytes * (components == 3 ? 4 : components);
}

template <class T>
T load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

std::string scalar_text(const ScalarType& s, const char* bytes) {
  char buffer[64];
  switch (s.type) {
    case MTL::DataTypeFloat:
      // By its bits, so that infinities and NaNs pass too.
      std::snprintf(buffer, sizeof buffer, "__builtin_bit_cast(float, 0x%08xu)", load<uint32_t>(bytes));
      return buffer;
    case MTL::DataTypeHalf:
      std::snprintf(buffer, sizeof buffer, "__builtin_bit_cast(half, (ushort)0x%04x)", load<uint16_t>(bytes));
      return buffer;
    case MTL::DataTypeBFloat:
      std::snprintf(buffer, sizeof buffer, "__builtin_bit_cast(bfloat, (ushort)0x%04x)", load<uint16_t>(bytes));
      return buffer;
    case MTL::DataTypeBool: return bytes[0] ? "true" : "false";
    case MTL::DataTypeInt: return "((int)" + std::to_string(load<int32_t>(bytes)) + "l)";
    case MTL::DataTypeUInt: return std::to_string(load<uint32_t>(bytes)) + "u";
    case MTL::DataTypeShort: return "((short)" + std::to_string(load<int16_t>(bytes)) + ")";
    case MTL::DataTypeUShort: return "((ushort)" + std::to_string(load<uint16_t>(bytes)) + ")";
    case MTL::DataTypeChar: return "((char)" + std::to_string(load<int8_t>(bytes)) + ")";
    case MTL::DataTypeUChar: return "((uchar)" + std::to_string(load<uint8_t>(bytes)) + ")";
    case MTL::DataTypeLong: return "((long)" + std::to_string(load<uint64_t>(bytes)) + "ul)";
    default: return std::to_string(load<uint64_t>(bytes)) + "ul";
  }
}

std::string plain_type(const std::string& declared) {
  std::string t = declared;
  for (const char* word : {"constexpr ", "const ", "metal::"}) {
    for (size_t at; (at = t.find(word)) != std::string::npos;) t.erase(at, std::strlen(word));
  }
  const std::pair<const char*, const char*> aliases[] = {
      {"uint32_t", "uint"}, {"int32_t", "int"},       {"uint16_t", "ushort"}, {"int16_t", "short"},
      {"uint8_t", "uchar"}, {"int8_t", "char"},       {"uint64_t", "ulong"},  {"int64_t", "long"},
      {"unsigned", "uint"}, {"unsigned int", "uint"}, {"size_t", "ulong"}};
  for (auto& [from, to] : aliases) {
    if (t == from) return to;
  }
  return t;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Access::resolve(const MTL::FunctionConstantValues* values,
                                                                 const Program& program) {
  std::vector<std::pair<std::string, std::string>> out;
  if (!values) return out;
  for (const FunctionConstant& c : program.constants) {
    const MTL::FunctionConstantValues::Value* value = nullptr;
    if (auto at = values->by_index_.find(c.index); at != values->by_index_.end()) value = &at->second;
    if (auto at = values->by_name_.find(c.name); at != values->by_name_.end()) value = &at->second;
    if (!value) continue;
    unsigned components = 1;
    const ScalarType* s = find_type(value->type, components);
    const std::string given = s->metal + (components > 1 ? std::to_string(components) : std::string());
    if (plain_type(c.type) != given) {
      throw CompileError("function constant " + c.name + " is declared " + c.type + ", the host gave a " + given);
    }
    std::string text = scalar_text(*s, value->bytes.data());
    for (unsigned i = 1; i < components; ++i) text += ", " + scalar_text(*s, value->bytes.data() + i * s->bytes);
    out.emplace_back(c.name, components > 1 ? "metal::" + given + "(" + text + ")" : text);
  }
  return out;
}

void note_dispatch(const MTL::ComputePipelineState* pipeline, MTL::Size threads, size_t threadgroup_bytes) {
  const auto extent = [](NS::UInteger n) { return static_cast<uint32_t>(n); };
  Access::kernel(pipeline)->note_dispatch({extent(threads.width), extent(threads.height), extent(threads.depth)},
                                          threadgroup_bytes);
}

}  // namespace softmetal

using namespace softmetal;

namespace MTL {

CompileOptions* CompileOptions::make_copy() const {
  auto* o = alloc();
  o->macros_ = macros_;
  o->math_ = math_;
  o->functions_ = functions_;
  o->version_ = version_;
  o->level_ = level_;
  return o;
}
void CompileOptions::setPreprocessorMacros(const NS::Dictionary* macros) {
  macros_ = macros ? NS::TransferPtr(macros->copy()) : NS::SharedPtr<NS::Dictionary>();
}

void FunctionConstantValues::setConstantValue(const void* value, DataType type, NS::UInteger index) {
  by_index_[index] = {type, std::string(static_cast<const char*>(value), size_of(type))};
}
void FunctionConstantValues::setConstantValue(const void* value, DataType type, const NS::String* name) {
  by_name_[text(name)] = {type, std::string(static_cast<const char*>(value), size_of(type))};
}
void FunctionConstantValues::setConstantValues(const void* values, DataType type, NS::Range range) {
  for (NS::UInteger i = 0; i < range.length; ++i) {
    setConstantValue(static_cast<const char*>(values) + i * size_of(type), type, range.location + i);
  }
}
void FunctionConstantValues::reset() {
  by_index_.clear();
  by_name_.clear();
}
FunctionConstantValues* FunctionConstantValues::make_copy() const {
  auto* v = alloc();
  v->by_index_ = by_index_;
  v->by_name_ = by_name_;
  return v;
}

Function::Function() = default;
Function::~Function() = default;
void Function::setLabel(const NS::String* label) { label_ = owned(label); }

Library::Library() = default;
Library::~Library() = default;
void Library::setLabel(const NS::String* label) { label_ = owned(label); }
NS::Array* Library::functionNames() const {
  std::vector<const NS::Object*> names;
  for (const KernelInfo& kernel : program_->kernels) {
    names.push_back(NS::String::string(kernel.name.c_str(), NS::UTF8StringEncoding));
  }
  return NS::Array::array(names.data(), names.size());
}
Function* Library::newFunction(const NS::String* name) { return newFunction(name, nullptr, nullptr); }
Function* Library::newFunction(const NS::String* name, const FunctionConstantValues* constants, NS::Error** error) {
  try {
    if (!program_->find(text(name))) throw CompileError("the library has no kernel named " + text(name));
    auto values = Access::resolve(constants, *program_);
    auto* function = Access::make<Function>();
    Access::device(function) = device_;
    Access::name(function) = owned(name);
    Access::program(function) = program_;
    Access::constants(function) = std::move(values);
    return function;
  } catch (const CompileError& e) {
    if (error) *error = NS::Error::make("MTLLibraryErrorDomain", LibraryErrorFunctionNotFound, e.what());
    return nullptr;
  }
}

ComputePipelineDescriptor* ComputePipelineDescriptor::make_copy() const {
  auto* d = alloc();
  d->function_ = function_;
  d->label_ = label_;
  d->max_threads_ = max_threads_;
  d->multiple_ = multiple_;
  return d;
}
void ComputePipelineDescriptor::setComputeFunction(const Function* function) {
  function_ = NS::RetainPtr(const_cast<Function*>(function));
}
void ComputePipelineDescriptor::setLabel(const NS::String* label) { label_ = owned(label); }

ComputePipelineState::ComputePipelineState() = default;
ComputePipelineState::~ComputePipelineState() = default;
NS::UInteger ComputePipelineState::maxTotalThreadsPerThreadgroup() const { return max_threads_; }
NS::UInteger ComputePipelineState::staticThreadgroupMemoryLength() const { return kernel_->static_threadgroup_bytes; }

}  // namespace MTL
