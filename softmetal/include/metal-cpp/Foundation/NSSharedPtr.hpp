#pragma once

#include <cstddef>
#include <type_traits>

namespace NS {

// Owns one reference.
template <class Class>
class SharedPtr {
 public:
  SharedPtr() = default;
  SharedPtr(std::nullptr_t) noexcept {}
  SharedPtr(const SharedPtr& other) noexcept : object_(retained(other.object_)) {}
  SharedPtr(SharedPtr&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  template <class Other, class = std::enable_if_t<std::is_convertible_v<Other*, Class*>>>
  SharedPtr(const SharedPtr<Other>& other) noexcept : object_(retained(other.get())) {}
  template <class Other, class = std::enable_if_t<std::is_convertible_v<Other*, Class*>>>
  SharedPtr(SharedPtr<Other>&& other) noexcept : object_(other.get()) {
    other.detach();
  }
  ~SharedPtr() { reset(); }

  SharedPtr& operator=(const SharedPtr& other) {
    if (object_ != other.object_) {
      Class* old = object_;
      object_ = retained(other.object_);
      if (old) old->release();
    }
    return *this;
  }
  SharedPtr& operator=(SharedPtr&& other) {
    if (this != &other) {
      reset();
      object_ = other.object_;
      other.object_ = nullptr;
    }
    return *this;
  }

  Class* get() const { return object_; }
  Class* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  void reset() {
    if (object_) object_->release();
    object_ = nullptr;
  }
  void detach() { object_ = nullptr; }

 private:
  template <class T>
  friend SharedPtr<T> RetainPtr(T* object);
  template <class T>
  friend SharedPtr<T> TransferPtr(T* object);
  template <class T>
  static T* retained(T* object) {
    if (object) object->retain();
    return object;
  }
  Class* object_ = nullptr;
};

template <class Class>
SharedPtr<Class> RetainPtr(Class* object) {
  SharedPtr<Class> p;
  p.object_ = SharedPtr<Class>::retained(object);
  return p;
}
template <class Class>
SharedPtr<Class> TransferPtr(Class* object) {
  SharedPtr<Class> p;
  p.object_ = object;
  return p;
}
template <class A, class B>
bool operator==(const SharedPtr<A>& a, const SharedPtr<B>& b) {
  return a.get() == b.get();
}
template <class A, class B>
bool operator!=(const SharedPtr<A>& a, const SharedPtr<B>& b) {
  return a.get() != b.get();
}

}  // namespace NS
