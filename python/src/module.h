#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstring>
#include <vector>

// The parts of the module, one file each.
namespace ingot {
struct Step;
}

namespace ingot::python {

namespace nb = nanobind;

void bind_gather(nb::class_<Step>& step);
void bind_keep(nb::module_& m);
void bind_step(nb::module_& m);
void bind_group(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_request(nb::module_& m);
void bind_llm(nb::module_& m);
void bind_chat(nb::module_& m);

// A one-dimensional array of T on the host; lists and other integer types are converted by NumPy on the way in.
template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename T, typename A>
std::vector<T> to_vector(const A& array) {
  return std::vector<T>(array.data(), array.data() + array.size());
}

// A NumPy array that owns a copy of `values`; shape {} means one dimension of all of them.
template <typename T>
nb::object to_numpy(const std::vector<T>& values, std::vector<size_t> shape = {}) {
  if (shape.empty()) shape = {values.size()};
  T* copy = new T[values.size() + 1];
  if (!values.empty()) std::memcpy(copy, values.data(), values.size() * sizeof(T));
  nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(copy, shape.size(), shape.data(), owner));
}

}  // namespace ingot::python
