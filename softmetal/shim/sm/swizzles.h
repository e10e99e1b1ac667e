// SM_SWIZZLES_2, _3 and _4: every combination of two, three and four components, as properties that read and write by
// value. Each component is a triple: its name, its name as a colour, its index.
#pragma once

#define SM_COMMA ,
#ifdef SM_LINT
#define SM_CONSTANT_GETTER(type, name) type name() const __constant;
#else
#define SM_CONSTANT_GETTER(type, name)
#endif

#define SM_SWIZZLE2(n0, c0, i0, n1, c1, i1)                                       \
  SM_CONSTANT_GETTER(vec<T SM_COMMA 2>, sm_get_##n0##n1)                          \
  SM_INLINE vec<T, 2> sm_get_##n0##n1() const { return vec<T, 2>(d[i0], d[i1]); } \
  SM_INLINE void sm_put_##n0##n1(vec<T, 2> v) { d[i0] = v.d[0], d[i1] = v.d[1]; } \
  __declspec(property(get = sm_get_##n0##n1, put = sm_put_##n0##n1)) vec<T, 2> n0##n1, c0##c1;
#define SM_SWIZZLE3(n0, c0, i0, n1, c1, i1, n2, c2, i2)                                               \
  SM_CONSTANT_GETTER(vec<T SM_COMMA 3>, sm_get_##n0##n1##n2)                                          \
  SM_INLINE vec<T, 3> sm_get_##n0##n1##n2() const { return vec<T, 3>(d[i0], d[i1], d[i2]); }          \
  SM_INLINE void sm_put_##n0##n1##n2(vec<T, 3> v) { d[i0] = v.d[0], d[i1] = v.d[1], d[i2] = v.d[2]; } \
  __declspec(property(get = sm_get_##n0##n1##n2, put = sm_put_##n0##n1##n2)) vec<T, 3> n0##n1##n2, c0##c1##c2;
#define SM_SWIZZLE4(n0, c0, i0, n1, c1, i1, n2, c2, i2, n3, c3, i3)                                            \
  SM_CONSTANT_GETTER(vec<T SM_COMMA 4>, sm_get_##n0##n1##n2##n3)                                               \
  SM_INLINE vec<T, 4> sm_get_##n0##n1##n2##n3() const { return vec<T, 4>(d[i0], d[i1], d[i2], d[i3]); }        \
  SM_INLINE void sm_put_##n0##n1##n2##n3(vec<T, 4> v) {                                                        \
    d[i0] = v.d[0], d[i1] = v.d[1], d[i2] = v.d[2], d[i3] = v.d[3];                                            \
  }                                                                                                            \
  __declspec(property(get = sm_get_##n0##n1##n2##n3, put = sm_put_##n0##n1##n2##n3)) vec<T, 4> n0##n1##n2##n3, \
      c0##c1##c2##c3;

#define SM_S2_2_1(...) SM_SWIZZLE2(__VA_ARGS__, x, r, 0) SM_SWIZZLE2(__VA_ARGS__, y, g, 1)
#define SM_S2_2 SM_S2_2_1(x, r, 0) SM_S2_2_1(y, g, 1)
#define SM_S3_2_2(...) SM_SWIZZLE3(__VA_ARGS__, x, r, 0) SM_SWIZZLE3(__VA_ARGS__, y, g, 1)
#define SM_S3_2_1(...) SM_S3_2_2(__VA_ARGS__, x, r, 0) SM_S3_2_2(__VA_ARGS__, y, g, 1)
#define SM_S3_2 SM_S3_2_1(x, r, 0) SM_S3_2_1(y, g, 1)
#define SM_S4_2_3(...) SM_SWIZZLE4(__VA_ARGS__, x, r, 0) SM_SWIZZLE4(__VA_ARGS__, y, g, 1)
#define SM_S4_2_2(...) SM_S4_2_3(__VA_ARGS__, x, r, 0) SM_S4_2_3(__VA_ARGS__, y, g, 1)
#define SM_S4_2_1(...) SM_S4_2_2(__VA_ARGS__, x, r, 0) SM_S4_2_2(__VA_ARGS__, y, g, 1)
#define SM_S4_2 SM_S4_2_1(x, r, 0) SM_S4_2_1(y, g, 1)
#define SM_SWIZZLES_2 SM_S2_2 SM_S3_2 SM_S4_2

#define SM_S2_3_1(...) \
  SM_SWIZZLE2(__VA_ARGS__, x, r, 0) SM_SWIZZLE2(__VA_ARGS__, y, g, 1) SM_SWIZZLE2(__VA_ARGS__, z, b, 2)
#define SM_S2_3 SM_S2_3_1(x, r, 0) SM_S2_3_1(y, g, 1) SM_S2_3_1(z, b, 2)
#define SM_S3_3_2(...) \
  SM_SWIZZLE3(__VA_ARGS__, x, r, 0) SM_SWIZZLE3(__VA_ARGS__, y, g, 1) SM_SWIZZLE3(__VA_ARGS__, z, b, 2)
#define SM_S3_3_1(...) SM_S3_3_2(__VA_ARGS__, x, r, 0) SM_S3_3_2(__VA_ARGS__, y, g, 1) SM_S3_3_2(__VA_ARGS__, z, b, 2)
#define SM_S3_3 SM_S3_3_1(x, r, 0) SM_S3_3_1(y, g, 1) SM_S3_3_1(z, b, 2)
#define SM_S4_3_3(...) \
  SM_SWIZZLE4(__VA_ARGS__, x, r, 0) SM_SWIZZLE4(__VA_ARGS__, y, g, 1) SM_SWIZZLE4(__VA_ARGS__, z, b, 2)
#define SM_S4_3_2(...) SM_S4_3_3(__VA_ARGS__, x, r, 0) SM_S4_3_3(__VA_ARGS__, y, g, 1) SM_S4_3_3(__VA_ARGS__, z, b, 2)
#define SM_S4_3_1(...) SM_S4_3_2(__VA_ARGS__, x, r, 0) SM_S4_3_2(__VA_ARGS__, y, g, 1) SM_S4_3_2(__VA_ARGS__, z, b, 2)
#define SM_S4_3 SM_S4_3_1(x, r, 0) SM_S4_3_1(y, g, 1) SM_S4_3_1(z, b, 2)
#define SM_SWIZZLES_3 SM_S2_3 SM_S3_3 SM_S4_3

#define SM_S2_4_1(...)              \
  SM_SWIZZLE2(__VA_ARGS__, x, r, 0) \
  SM_SWIZZLE2(__VA_ARGS__, y, g, 1) SM_SWIZZLE2(__VA_ARGS__, z, b, 2) SM_SWIZZLE2(__VA_ARGS__, w, a, 3)
#define SM_S2_4 SM_S2_4_1(x, r, 0) SM_S2_4_1(y, g, 1) SM_S2_4_1(z, b, 2) SM_S2_4_1(w, a, 3)
#define SM_S3_4_2(...)              \
  SM_SWIZZLE3(__VA_ARGS__, x, r, 0) \
  SM_SWIZZLE3(__VA_ARGS__, y, g, 1) SM_SWIZZLE3(__VA_ARGS__, z, b, 2) SM_SWIZZLE3(__VA_ARGS__, w, a, 3)
#define SM_S3_4_1(...)            \
  SM_S3_4_2(__VA_ARGS__, x, r, 0) \
  SM_S3_4_2(__VA_ARGS__, y, g, 1) SM_S3_4_2(__VA_ARGS__, z, b, 2) SM_S3_4_2(__VA_ARGS__, w, a, 3)
#define SM_S3_4 SM_S3_4_1(x, r, 0) SM_S3_4_1(y, g, 1) SM_S3_4_1(z, b, 2) SM_S3_4_1(w, a, 3)
#define SM_S4_4_3(...)              \
  SM_SWIZZLE4(__VA_ARGS__, x, r, 0) \
  SM_SWIZZLE4(__VA_ARGS__, y, g, 1) SM_SWIZZLE4(__VA_ARGS__, z, b, 2) SM_SWIZZLE4(__VA_ARGS__, w, a, 3)
#define SM_S4_4_2(...)            \
  SM_S4_4_3(__VA_ARGS__, x, r, 0) \
  SM_S4_4_3(__VA_ARGS__, y, g, 1) SM_S4_4_3(__VA_ARGS__, z, b, 2) SM_S4_4_3(__VA_ARGS__, w, a, 3)
#define SM_S4_4_1(...)            \
  SM_S4_4_2(__VA_ARGS__, x, r, 0) \
  SM_S4_4_2(__VA_ARGS__, y, g, 1) SM_S4_4_2(__VA_ARGS__, z, b, 2) SM_S4_4_2(__VA_ARGS__, w, a, 3)
#define SM_S4_4 SM_S4_4_1(x, r, 0) SM_S4_4_1(y, g, 1) SM_S4_4_1(z, b, 2) SM_S4_4_1(w, a, 3)
#define SM_SWIZZLES_4 SM_S2_4 SM_S3_4 SM_S4_4
