#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "MTLResource.hpp"

namespace softmetal {
struct Program;
class Kernel;
}  // namespace softmetal

namespace MTL {

class CompileOptions : public NS::Copying<CompileOptions> {
 public:
  static CompileOptions* alloc() { return new CompileOptions; }
  CompileOptions* init() { return this; }
  NS::Dictionary* preprocessorMacros() const { return macros_.get(); }
  void setPreprocessorMacros(const NS::Dictionary* macros);
  // Accepted and remembered; arithmetic here is the same whatever they say.
  bool fastMathEnabled() const { return math_ == MathModeFast; }
  void setFastMathEnabled(bool enabled) { math_ = enabled ? MathModeFast : MathModeSafe; }
  MathMode mathMode() const { return math_; }
  void setMathMode(MathMode mode) { math_ = mode; }
  MathFloatingPointFunctions mathFloatingPointFunctions() const { return functions_; }
  void setMathFloatingPointFunctions(MathFloatingPointFunctions functions) { functions_ = functions; }
  LanguageVersion languageVersion() const { return version_; }
  void setLanguageVersion(LanguageVersion version) { version_ = version; }
  LibraryOptimizationLevel optimizationLevel() const { return level_; }
  void setOptimizationLevel(LibraryOptimizationLevel level) { level_ = level; }

 private:
  friend class NS::Copying<CompileOptions>;
  CompileOptions* make_copy() const;
  NS::SharedPtr<NS::Dictionary> macros_;
  MathMode math_ = MathModeFast;
  MathFloatingPointFunctions functions_ = MathFloatingPointFunctionsFast;
  LanguageVersion version_ = LanguageVersion3_1;
  LibraryOptimizationLevel level_ = LibraryOptimizationLevelDefault;
};

class FunctionConstantValues : public NS::Copying<FunctionConstantValues> {
 public:
  static FunctionConstantValues* alloc() { return new FunctionConstantValues; }
  FunctionConstantValues* init() { return this; }
  void setConstantValue(const void* value, DataType type, NS::UInteger index);
  void setConstantValue(const void* value, DataType type, const NS::String* name);
  void setConstantValues(const void* values, DataType type, NS::Range range);
  void reset();

 private:
  friend class NS::Copying<FunctionConstantValues>;
  friend struct softmetal::Access;
  FunctionConstantValues* make_copy() const;
  struct Value {
    DataType type;
    std::string bytes;
  };
  std::map<NS::UInteger, Value> by_index_;
  std::map<std::string, Value> by_name_;
};

class Function : public NS::Referencing<Function> {
 public:
  Device* device() const { return device_.get(); }
  NS::String* name() const { return name_.get(); }
  NS::String* label() const { return label_.get(); }
  void setLabel(const NS::String* label);

 private:
  friend struct softmetal::Access;
  Function();
  ~Function() override;
  NS::SharedPtr<Device> device_;
  NS::SharedPtr<NS::String> name_, label_;
  std::shared_ptr<const softmetal::Program> program_;
  std::vector<std::pair<std::string, std::string>> constants_;  // name, C++ text
};

class Library : public NS::Referencing<Library> {
 public:
  Device* device() const { return device_.get(); }
  NS::String* label() const { return label_.get(); }
  void setLabel(const NS::String* label);
  NS::Array* functionNames() const;
  Function* newFunction(const NS::String* name);
  Function* newFunction(const NS::String* name, const FunctionConstantValues* constants, NS::Error** error);

 private:
  friend struct softmetal::Access;
  Library();
  ~Library() override;
  NS::SharedPtr<Device> device_;
  NS::SharedPtr<NS::String> label_;
  std::shared_ptr<const softmetal::Program> program_;
};

class ComputePipelineDescriptor : public NS::Copying<ComputePipelineDescriptor> {
 public:
  static ComputePipelineDescriptor* alloc() { return new ComputePipelineDescriptor; }
  ComputePipelineDescriptor* init() { return this; }
  Function* computeFunction() const { return function_.get(); }
  void setComputeFunction(const Function* function);
  NS::String* label() const { return label_.get(); }
  void setLabel(const NS::String* label);
  NS::UInteger maxTotalThreadsPerThreadgroup() const { return max_threads_; }
  void setMaxTotalThreadsPerThreadgroup(NS::UInteger threads) { max_threads_ = threads; }
  bool threadGroupSizeIsMultipleOfThreadExecutionWidth() const { return multiple_; }
  void setThreadGroupSizeIsMultipleOfThreadExecutionWidth(bool multiple) { multiple_ = multiple; }

 private:
  friend class NS::Copying<ComputePipelineDescriptor>;
  friend struct softmetal::Access;
  ComputePipelineDescriptor* make_copy() const;
  NS::SharedPtr<Function> function_;
  NS::SharedPtr<NS::String> label_;
  NS::UInteger max_threads_ = 0;
  bool multiple_ = false;
};

class ComputePipelineReflection;
using AutoreleasedComputePipelineReflection = ComputePipelineReflection*;

class ComputePipelineState : public NS::Referencing<ComputePipelineState, Allocation> {
 public:
  Device* device() const { return device_.get(); }
  NS::String* label() const { return label_.get(); }
  NS::UInteger maxTotalThreadsPerThreadgroup() const;
  NS::UInteger threadExecutionWidth() const { return 32; }
  NS::UInteger staticThreadgroupMemoryLength() const;

 private:
  friend struct softmetal::Access;
  ComputePipelineState();
  ~ComputePipelineState() override;
  NS::SharedPtr<Device> device_;
  NS::SharedPtr<NS::String> label_;
  std::shared_ptr<softmetal::Kernel> kernel_;
  NS::UInteger max_threads_ = 0;
  bool multiple_of_width_ = false;
};

}  // namespace MTL
