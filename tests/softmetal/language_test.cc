// The Metal language as kernels use it, against plain C++.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "harness.h"

namespace softmetal_test {
namespace {

// Runs a body that writes floats to o[] with one thread, and returns them.
std::vector<float> one_thread(const std::string& body, size_t count, const std::string& before = "") {
  Gpu gpu;
  gpu.compile(before + "\nkernel void k(device float* o) {" + body + "}");
  auto o = gpu.empty(count * 4);
  Gpu::Run r{{o.get()}, MTL::Size(1, 1, 1), MTL::Size(1, 1, 1)};
  EXPECT_EQ(gpu.run("k", r), "");
  return read<float>(o.get());
}
using Floats = std::vector<float>;

TEST(Vectors, ConstructFromPartsAndSwizzle) {
  EXPECT_EQ(one_thread(R"(
    half4 h = half4(1.0h, 2.0h, half2(3.0h, 4.0h));
    h.xy = h.yx;
    h.zw += half2(1);
    float3 f = float3(h.wzy);
    f.rg *= 2.0;
    int4 i = int4(float4(h) * 1.5f);
    o[0] = h.x; o[1] = h.y; o[2] = h.z; o[3] = h.w; o[4] = f.x; o[5] = f.y; o[6] = f.z; o[7] = i.x; o[8] = i.w;
    float4 v = float4(1); v.xz = v.xz * 2 - float2(0, 1); v[3] = 9;
    o[9] = v.x; o[10] = v.y; o[11] = v.z; o[12] = v.w;)",
                       13),
            (Floats{2, 1, 4, 5, 10, 8, 1, 3, 7, 2, 1, 1, 9}));
}

TEST(Vectors, CompareSelectAnyAll) {
  EXPECT_EQ(one_thread(R"(
    float4 v = float4(1, 2, 3, 4);
    bool4 b = v > 2.5;
    o[0] = any(b); o[1] = all(b); o[2] = all(v > 0); o[3] = dot(v, select(float4(0), v, b));
    o[4] = float(dot(half2(3, 4), half2(3, 4))); o[5] = length(float2(3, 4)); o[6] = cross(float3(1, 0, 0), float3(0, 1, 0)).z;)",
                       7),
            (Floats{1, 0, 1, 25, 25, 5, 1}));
}

TEST(Vectors, PackedTypesHaveNoPadding) {
  EXPECT_EQ(one_thread(R"(
    o[0] = sizeof(packed_float3); o[1] = sizeof(float3); o[2] = sizeof(packed_half4); o[3] = alignof(packed_half4);
    packed_float3 p = packed_float3(float3(1, 2, 3)); float3 q = p; o[4] = q.x + q.y * 10 + p.z * 100;)",
                       5),
            (Floats{12, 16, 8, 2, 321}));
}

TEST(Literals, AreFloatUnlessTheySaySo) {
  EXPECT_EQ(one_thread(R"(
    o[0] = sizeof(1.0); o[1] = sizeof(1.0h); o[2] = sizeof(1.0bf); o[3] = 1e-3 == 1e-3f; o[4] = 0x10; o[5] = sizeof(1);
    o[6] = is_same_v<decltype(1.5h), half>; o[7] = 2.h + 1h;)",
                       8),
            (Floats{4, 2, 2, 1, 16, 4, 1, 3}));
}

TEST(Types, HalfArithmeticRoundsEachOperation) {
  // 2048 + 1 = 2049 lies between halves and rounds to 2048, so adding twice stays there.
  EXPECT_EQ(
      one_thread("half a = 2048.0h; a += 1.0h; a += 1.0h; o[0] = a; o[1] = half(2048.0h + 1.0h + 1.0h); "
                 "o[2] = half(1.0f / 3.0f); o[3] = bfloat(1.0f / 3.0f); bfloat b = 256.0bf; b += 1.0bf; o[4] = b;",
                 5),
      (Floats{2048, 2048, half_to_float(float_to_half(1.0f / 3)), bfloat_to_float(float_to_bfloat(1.0f / 3)), 256}));
}

TEST(Types, AsTypeKeepsBits) {
  EXPECT_EQ(
      one_thread("o[0] = as_type<uint>(1.0f) == 0x3f800000u; o[1] = as_type<uint>(half2(1.0h, 2.0h)) == 0x40003c00u;"
                 "o[2] = as_type<float>(0x40400000u); o[3] = as_type<uchar4>(0x04030201u).w;",
                 4),
      (Floats{1, 1, 3, 4}));
}

TEST(Types, BfloatRoundsToNearestEven) {
  Gpu gpu;
  gpu.compile(
      "kernel void k(device const float* x, device bfloat* y, uint i [[thread_position_in_grid]]) { y[i] = "
      "bfloat(x[i]); }");
  std::vector<float> x;
  for (int i = 0; i < 256; ++i)
    x.push_back(std::ldexp(1.0f + static_cast<float>(i * 2654435761u % 100003) / 100003, i % 80 - 40));
  x[0] = 1.00390625f;  // a tie: to even, down
  x[1] = 1.01171875f;  // a tie: to even, up
  auto in = gpu.buffer(x);
  auto out = gpu.empty(x.size() * 2);
  ASSERT_EQ(gpu.run("k", {{in.get(), out.get()}, MTL::Size(8, 1, 1)}), "");
  const auto y = read<uint16_t>(out.get());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], float_to_bfloat(x[i])) << x[i];
}

TEST(Math, AgreesWithTheCLibrary) {
  const auto y = one_thread(R"(
    float x = 0.7;
    o[0] = exp(x); o[1] = exp2(x); o[2] = log(x); o[3] = log2(x); o[4] = sin(x); o[5] = cos(x); o[6] = tanh(x); o[7] = sqrt(x);
    o[8] = rsqrt(x); o[9] = pow(x, 2.5f); o[10] = fma(x, x, x); o[11] = clamp(x, 0.0f, 0.5f); o[12] = mix(1.0f, 3.0f, x);
    o[13] = precise::exp(x); o[14] = fast::exp2(x); o[15] = fmax(x, NAN); o[16] = sign(-x); o[17] = rint(2.5f); o[18] = round(2.5f);
    o[19] = isnan(NAN) && isinf(INFINITY) && !isinf(x); o[20] = atan2(x, 2.0f); o[21] = max3(1.0f, 5.0f, 2.0f);)",
                            22);
  const float x = 0.7f;
  const Floats want = {std::exp(x),
                       std::exp2(x),
                       std::log(x),
                       std::log2(x),
                       std::sin(x),
                       std::cos(x),
                       std::tanh(x),
                       std::sqrt(x),
                       1 / std::sqrt(x),
                       std::pow(x, 2.5f),
                       std::fma(x, x, x),
                       0.5f,
                       2.4f,
                       std::exp(x),
                       std::exp2(x),
                       x,
                       -1,
                       2,
                       3,
                       1,
                       std::atan2(x, 2.0f),
                       5};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(y[i], want[i], 2e-6) << i;
}

TEST(Math, IntegerFunctions) {
  EXPECT_EQ(one_thread(R"(
    o[0] = popcount(0xf0f0u); o[1] = clz(1u); o[2] = ctz(8u); o[3] = clz(0u); o[4] = mulhi(0x80000000u, 4u); o[5] = abs(-3);
    o[6] = rotate(0x80000001u, 1u); o[7] = extract_bits(0xabcdu, 4u, 8u); o[8] = min(3, -2); o[9] = max(3u, 5u);
    o[10] = clamp(7, 0, 5); o[11] = addsat((uchar)200, (uchar)100); o[12] = reverse_bits(1u) == 0x80000000u; o[13] = insert_bits(0u, 5u, 4u, 4u);
    o[14] = extract_bits((char)-1, 0u, 4u);)",
                       15),
            (Floats{8, 31, 3, 32, 2, 3, 3, 0xbc, -2, 5, 5, 255, 1, 80, -1}));
}

TEST(Templates, InstancesByHostName) {
  Gpu gpu;
  gpu.compile(R"(
template <typename T, int N>
kernel void scale(device T* o [[buffer(0)]], uint i [[thread_position_in_grid]]) { o[i] = T(i * N); }
template [[host_name("scale_f_2")]] kernel void scale<float, 2>(device float*, uint);
template [[host_name("scale_" "i_3")]] [[kernel]] void scale<int, 3>(device int* o [[buffer(0)]], uint i [[thread_position_in_grid]]);
typedef decltype(scale<half, 4>) scale_h;
template [[host_name("scale_h_4")]] kernel scale_h scale<half, 4>;
#define STAMP(T, N) template [[host_name("stamp_" #T "_" #N)]] kernel void scale<T, N>(device T*, uint);
STAMP(uint, 7)
)");
  EXPECT_EQ(gpu.library->functionNames()->count(), 4u);
  auto o = gpu.empty(32 * 4);
  ASSERT_EQ(gpu.run("scale_f_2", {{o.get()}}), "");
  EXPECT_EQ(read<float>(o.get())[5], 10.0f);
  ASSERT_EQ(gpu.run("scale_i_3", {{o.get()}}), "");
  EXPECT_EQ(read<int>(o.get())[5], 15);
  ASSERT_EQ(gpu.run("scale_h_4", {{o.get()}}), "");
  EXPECT_EQ(half_to_float(read<uint16_t>(o.get())[5]), 20.0f);
  ASSERT_EQ(gpu.run("stamp_uint_7", {{o.get()}}), "");
  EXPECT_EQ(read<uint32_t>(o.get())[5], 35u);
}

// A kernel is compiled from what it reaches, and that by name.
TEST(Library, KernelsReachTypesWhoseNameIsInTheMiddle) {
  EXPECT_EQ(one_thread("Pairs p; p[0][1] = 1; p[1][0] = 2; o[0] = p[0][1] + p[1][0];", 1,
                       "constant constexpr uint kTwo = 2; typedef float Pairs[kTwo][2];"),
            (Floats{3}));
}

TEST(FunctionConstants, EachSpecialisationHasItsOwn) {
  Gpu gpu;
  gpu.compile(R"(
constant uint N [[function_constant(0)]];
constant bool FLAG [[function_constant(1)]];
constant float F [[function_constant(2)]];
constant int OPT [[function_constant(3)]];
constant uint TWICE = N * 2;
constant int OPTION = is_function_constant_defined(OPT) ? OPT : -7;
kernel void k(device float* o [[buffer(0)]], device const float* extra [[buffer(1), function_constant(FLAG)]]) {
  o[0] = N; o[1] = TWICE; o[2] = F; o[3] = OPTION; o[4] = is_function_constant_defined(FLAG);
  o[5] = FLAG ? extra[0] : 0.0;
})");
  auto o = gpu.empty(6 * 4);
  auto extra = gpu.buffer(std::vector<float>{42});
  const Gpu::Run one{{o.get()}, MTL::Size(1, 1, 1), MTL::Size(1, 1, 1)};
  const Gpu::Run two{{o.get(), extra.get()}, MTL::Size(1, 1, 1), MTL::Size(1, 1, 1)};
  ASSERT_EQ(gpu.run("k", one, {constant(0, 5u), constant(1, false), constant(2, 0.5f)}), "");
  EXPECT_EQ(read<float>(o.get()), (Floats{5, 10, 0.5f, -7, 1, 0}));
  ASSERT_EQ(gpu.run("k", two, {constant(0, 6u), constant(1, true), constant(2, INFINITY), constant(3, -3)}), "");
  EXPECT_EQ(read<float>(o.get()), (Floats{6, 12, INFINITY, -3, 1, 42}));
  EXPECT_NE(violation([&] {
              gpu.run("k", one, {constant(0, 6u), constant(1, true), constant(2, 1.0f)});
            }).find("buffer extra"),
            std::string::npos);
  EXPECT_THROW(gpu.run("k", one, {constant(0, 5)}), std::runtime_error) << "an int for a uint";
}

TEST(Library, ReportsErrorsWithTheirLine) {
  Gpu gpu;
  auto message = [&](const std::string& body) -> std::string {
    try {
      gpu.compile(body);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message("kernel void k(device float* o) {\n  o[0] = undeclared;\n}").find("test.metal:2"),
            std::string::npos);
  EXPECT_NE(message("#include \"local.h\"\nkernel void k(device float* o) { o[0] = 1; }").find("local.h"),
            std::string::npos);
  EXPECT_NE(message("kernel void k(device float* o, uint i) { o[0] = i; }").find("parameter i has no attribute"),
            std::string::npos);
  EXPECT_NE(message("kernel void k(device float* o [[buffer(3)]], device float* p [[buffer(3)]]) { o[0] = p[0]; }")
                .find("used twice"),
            std::string::npos);
  EXPECT_NE(
      message("kernel void k(device float* o) { threadgroup float t = 0; o[0] = t; }").find("cannot be initialised"),
      std::string::npos);
  EXPECT_NE(message("void f() { threadgroup float t[4]; }\nkernel void k(device float* o) { o[0] = 1; }")
                .find("test.metal:1"),
            std::string::npos);
  EXPECT_NE(message("kernel void k(device float* o) { o[0] = exp(1); }").find("ambiguous"), std::string::npos);
  EXPECT_EQ(message("kernel void k(device float* o) { o[0] = 1; }"), "");
}

// As headers that host code shares have them.
TEST(FunctionConstants, AreNumberedByEnumerators) {
  Gpu gpu;
  gpu.compile(R"(
enum Numbers : uint { kFirst, kSecond, kTenth = 10, kNext };
constant uint A [[function_constant(kSecond)]];
constant uint B [[function_constant(kNext)]];
kernel void k(device float* o [[buffer(0)]]) { o[0] = A; o[1] = B; })");
  auto o = gpu.empty(2 * 4);
  const Gpu::Run one{{o.get()}, MTL::Size(1, 1, 1), MTL::Size(1, 1, 1)};
  ASSERT_EQ(gpu.run("k", one, {constant(1, 5u), constant(11, 7u)}), "");
  EXPECT_EQ(read<float>(o.get()), (Floats{5, 7}));
  EXPECT_THROW(
      gpu.compile("constant uint A [[function_constant(kNowhere)]];\nkernel void k(device uint* o) { o[0] = A; }"),
      std::runtime_error);
}

TEST(Library, FunctionConstantsAreNoConstantExpressions) {
  Gpu gpu;
  const std::string declared = "constant uint N [[function_constant(0)]];\n";
  EXPECT_THROW(gpu.compile(declared + "kernel void k(device float* o) { float x[N]; x[0] = 1; o[0] = x[0]; }"),
               std::runtime_error);
  EXPECT_THROW(gpu.compile(declared + "constexpr constant uint M = N;\nkernel void k(device float* o) { o[0] = M; }"),
               std::runtime_error);
  EXPECT_NO_THROW(gpu.compile(declared + "constant uint M = N;\nkernel void k(device float* o) { o[0] = M; }"));
}

TEST(Library, TakesPreprocessorMacros) {
  Gpu gpu;
  gpu.compile("kernel void k(device float* o) { o[0] = VALUE; }", {{"VALUE", "12"}});
  auto o = gpu.empty(4);
  ASSERT_EQ(gpu.run("k", {{o.get()}, MTL::Size(1, 1, 1), MTL::Size(1, 1, 1)}), "");
  EXPECT_EQ(read<float>(o.get())[0], 12.0f);
}

TEST(Library, NumbersArgumentsWithoutAnIndex) {
  Gpu gpu;
  gpu.compile(
      "struct P { float a; int b; };\n"
      "kernel void k(device float* o, constant P& p, device float* third [[buffer(1)]], const device float* fourth) {"
      " o[0] = p.a + p.b + third[0] + fourth[0]; }");
  struct P {
    float a;
    int b;
  };
  auto o = gpu.empty(4);
  auto third = gpu.buffer(std::vector<float>{100}), fourth = gpu.buffer(std::vector<float>{1000});
  auto p = gpu.buffer(std::vector<P>{{0.5f, 2}});
  ASSERT_EQ(gpu.run("k", {{o.get(), third.get(), p.get(), fourth.get()}, MTL::Size(1, 1, 1), MTL::Size(1, 1, 1)}), "");
  EXPECT_EQ(read<float>(o.get())[0], 1102.5f);
}

}  // namespace
}  // namespace softmetal_test
