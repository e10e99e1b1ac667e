// The device that leaves kernels for Apple's instructions: what is asked for is there, and nothing else happens.
#include "softmetal/agx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness.h"

namespace softmetal_test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Agx : public testing::Test {
 protected:
  Agx() {
    std::filesystem::remove_all(folder);
    softmetal::Options options = softmetal::options_from_environment();
    options.agx = folder.string();
    softmetal::set_options(options);
    device = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
    softmetal::set_options(softmetal::options_from_environment());
  }
  ~Agx() override { std::filesystem::remove_all(folder); }

  NS::SharedPtr<MTL::ComputePipelineState> pipeline(const char* source, const char* name, uint32_t constant) {
    const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
    const auto text = [](const char* t) { return NS::String::string(t, NS::UTF8StringEncoding); };
    const auto library = NS::TransferPtr(device->newLibrary(text(source), nullptr, nullptr));
    const auto values = NS::TransferPtr(MTL::FunctionConstantValues::alloc()->init());
    values->setConstantValue(&constant, MTL::DataTypeUInt, NS::UInteger{0});
    const auto function = NS::TransferPtr(library->newFunction(text(name), values.get(), nullptr));
    return NS::TransferPtr(device->newComputePipelineState(function.get(), nullptr));
  }
  std::vector<std::filesystem::path> files(const std::string& extension) const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == extension) found.push_back(entry.path());
    return found;
  }

  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) /
      (std::string("softmetal-agx-") + testing::UnitTest::GetInstance()->current_test_info()->name());
  NS::SharedPtr<MTL::Device> device;
  static constexpr const char* kSource =
      "#include <metal_stdlib>\nusing namespace metal;\nconstant uint WIDTH [[function_constant(0)]];\n"
      "kernel void wide(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = WIDTH; }\n"
      "kernel void other(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = 77123; }\n";
};

TEST_F(Agx, LeavesTheKernelWithItsConstantsAndNoOther) {
  ASSERT_TRUE(pipeline(kSource, "wide", 12345));
  ASSERT_EQ(files(".cc").size(), 1u);
  const std::string left = text_of(files(".cc").front());
  EXPECT_EQ(left.substr(0, left.find('\n')), "// wide WIDTH=12345u");
  EXPECT_THAT(left, HasSubstr("softmetal_grid"));
  EXPECT_THAT(left, Not(HasSubstr("77123")));
  EXPECT_TRUE(files(".dispatches").empty());
}

TEST_F(Agx, LeavesWhatDispatchesAskForOnce) {
  const auto made = pipeline(kSource, "wide", 1);
  for (int i = 0; i < 2; ++i) softmetal::note_dispatch(made.get(), MTL::Size(64, 2, 1), 4096);
  softmetal::note_dispatch(made.get(), MTL::Size(32, 1, 1), 0);
  ASSERT_EQ(files(".dispatches").size(), 1u);
  EXPECT_EQ(text_of(files(".dispatches").front()), "64 2 1 4096\n32 1 1 0\n");
}

TEST_F(Agx, OtherDevicesTakeNoNotes) {
  Gpu gpu;
  gpu.compile("kernel void k(device uint* out, uint i [[thread_position_in_grid]]) { out[i] = 1; }");
  softmetal::note_dispatch(gpu.pipeline("k"), MTL::Size(32, 1, 1), 0);
  EXPECT_TRUE(files(".dispatches").empty());
}

}  // namespace
}  // namespace softmetal_test
