#pragma once

#define SM_INLINE inline __attribute__((always_inline))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __INTPTR_TYPE__ intptr_t;
#ifdef SM_LINT
#define half _Float16  // a keyword of the language that the lint is parsed as
#else
typedef _Float16 half;
#endif
typedef __bf16 bfloat;

#define METAL_FUNC inline __attribute__((always_inline))

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define MAXFLOAT 3.402823466e+38f
#define HUGE_VALF __builtin_huge_valf()
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define HALF_MAX ((half)65504.0f)
#define HALF_MIN ((half)6.103515625e-05f)
#define HALF_EPSILON ((half)9.765625e-04f)
#define INFINITY_H ((half)__builtin_inff())
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f
#define CHAR_BIT 8
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1)
#define ULONG_MAX 18446744073709551615ul

namespace metal {

template <class T, T V>
struct integral_constant {
  static constexpr T value = V;
  using value_type = T;
  constexpr operator T() const { return V; }
};
template <bool B>
using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F>
struct conditional {
  using type = T;
};
template <class T, class F>
struct conditional<false, T, F> {
  using type = F;
};
template <bool B, class T, class F>
using conditional_t = typename conditional<B, T, F>::type;
template <class T>
struct type_identity {
  using type = T;
};
template <class T>
using type_identity_t = typename type_identity<T>::type;

template <class A, class B>
inline constexpr bool is_same_v = __is_same(A, B);
template <class T>
inline constexpr bool is_integral_v = __is_integral(T);
template <class T>
inline constexpr bool is_floating_point_v = __is_floating_point(T) || __is_same(T, half) || __is_same(T, bfloat);
template <class T>
inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T>
inline constexpr bool is_signed_v = is_floating_point_v<T> || __is_signed(T);
template <class T>
inline constexpr bool is_unsigned_v = __is_unsigned(T);
template <class A, class B>
inline constexpr bool is_convertible_v = __is_convertible(A, B);
template <class A, class B>
struct is_same : bool_constant<is_same_v<A, B>> {};
template <class T>
struct is_integral : bool_constant<is_integral_v<T>> {};
template <class T>
struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T>
struct is_arithmetic : bool_constant<is_arithmetic_v<T>> {};
template <class T>
struct is_signed : bool_constant<is_signed_v<T>> {};
template <class T>
struct is_unsigned : bool_constant<is_unsigned_v<T>> {};
template <class T>
using remove_cv_t = __remove_cv(T);
template <class T>
using remove_reference_t = __remove_reference_t(T);
template <class T>
using make_unsigned_t = __make_unsigned(T);

template <class T>
struct numeric_limits;
#define SM_LIMITS_FLOAT(T, MAX, MIN, EPS)                            \
  template <>                                                        \
  struct numeric_limits<T> {                                         \
    static constexpr T max() { return (T)MAX; }                      \
    static constexpr T min() { return (T)MIN; }                      \
    static constexpr T lowest() { return (T) - MAX; }                \
    static constexpr T epsilon() { return (T)EPS; }                  \
    static constexpr T infinity() { return (T)__builtin_inff(); }    \
    static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); } \
  };
SM_LIMITS_FLOAT(float, 3.402823466e+38f, 1.175494351e-38f, 1.192092896e-07f)
SM_LIMITS_FLOAT(half, 65504.0f, 6.103515625e-05f, 9.765625e-04f)
SM_LIMITS_FLOAT(bfloat, 3.38953139e38f, 1.175494351e-38f, 7.8125e-03f)
#define SM_LIMITS_INT(T)                                                                                    \
  template <>                                                                                               \
  struct numeric_limits<T> {                                                                                \
    static constexpr T max() { return __is_signed(T) ? (T)((1ul << (sizeof(T) * 8 - 1)) - 1) : (T) ~(T)0; } \
    static constexpr T min() { return __is_signed(T) ? (T)(1ul << (sizeof(T) * 8 - 1)) : (T)0; }            \
    static constexpr T lowest() { return min(); }                                                           \
  };
SM_LIMITS_INT(char)
SM_LIMITS_INT(signed char)
SM_LIMITS_INT(uchar)
SM_LIMITS_INT(short)
SM_LIMITS_INT(ushort)
SM_LIMITS_INT(int)
SM_LIMITS_INT(uint)
SM_LIMITS_INT(long)
SM_LIMITS_INT(ulong)

template <class T, size_t N>
struct array {
  T elements[N];
  constexpr T& operator[](size_t i) { return elements[i]; }
  constexpr const T& operator[](size_t i) const { return elements[i]; }
  constexpr size_t size() const { return N; }
};

template <class To, class From>
SM_INLINE To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of one size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace metal
