#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

using CFTimeInterval = double;

namespace NS {

using UInteger = std::uintptr_t;
using Integer = std::intptr_t;
using TimeInterval = double;
inline constexpr UInteger UIntegerMax = ~UInteger{0};

class String;

// Counts its owners; gone with the last.
class Object {
 public:
  UInteger hash() const { return reinterpret_cast<UInteger>(this); }
  virtual bool isEqual(const Object* object) const { return this == object; }
  virtual String* description() const;

  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

 protected:
  Object() = default;
  virtual ~Object() = default;

  void add_owner() const { owners_.fetch_add(1, std::memory_order_relaxed); }
  void drop_owner() const;
  void autorelease_this() const;
  UInteger owners() const { return owners_.load(std::memory_order_relaxed); }
  friend class AutoreleasePool;
  friend class Array;
  friend class Dictionary;

 private:
  mutable std::atomic<UInteger> owners_{1};
};

template <class Class, class Base = Object>
class Referencing : public Base {
 public:
  Class* retain() {
    this->add_owner();
    return static_cast<Class*>(this);
  }
  void release() { this->drop_owner(); }
  Class* autorelease() {
    this->autorelease_this();
    return static_cast<Class*>(this);
  }
  UInteger retainCount() const { return this->owners(); }
};

template <class Class, class Base = Object>
class Copying : public Referencing<Class, Base> {
 public:
  // Objects here do not change once they are shared, or are descriptors with a copy of their own.
  Class* copy() const { return static_cast<const Class*>(this)->make_copy(); }
};

class AutoreleasePool : public Object {
 public:
  static AutoreleasePool* alloc();
  AutoreleasePool* init();
  void drain();
  void release() { drain(); }
  void addObject(Object* object);
  static void showPools() {}

 private:
  friend class Object;
  struct State;
  AutoreleasePool() = default;
  ~AutoreleasePool() override;
  State* state_ = nullptr;
};

struct Range {
  static Range Make(UInteger location, UInteger length) { return Range(location, length); }
  Range(UInteger l, UInteger n) : location(l), length(n) {}
  bool Equal(const Range& r) const { return location == r.location && length == r.length; }
  bool LocationInRange(UInteger at) const { return at >= location && at - location < length; }
  UInteger Max() const { return location + length; }

  UInteger location, length;
};

}  // namespace NS
