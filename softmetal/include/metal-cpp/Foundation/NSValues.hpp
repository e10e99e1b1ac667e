// Collections, numbers, addresses of files, errors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "NSObject.hpp"
#include "NSSharedPtr.hpp"
#include "NSString.hpp"

namespace NS {

class Array : public Copying<Array> {
 public:
  static Array* array();
  static Array* array(const Object* object);
  static Array* array(const Object* const* objects, UInteger count);
  static Array* alloc();
  Array* init();
  Array* init(const Object* const* objects, UInteger count);

  template <class Class = Object>
  Class* object(UInteger index) const {
    return static_cast<Class*>(at(index));
  }
  UInteger count() const { return objects_.size(); }

 private:
  friend class Copying<Array>;
  Array* make_copy() const;
  ~Array() override;
  Object* at(UInteger index) const;
  std::vector<Object*> objects_;
};

class Dictionary : public Copying<Dictionary> {
 public:
  static Dictionary* dictionary();
  static Dictionary* dictionary(const Object* object, const Object* key);
  static Dictionary* dictionary(const Object* const* objects, const Object* const* keys, UInteger count);
  static Dictionary* alloc();
  Dictionary* init();
  Dictionary* init(const Object* const* objects, const Object* const* keys, UInteger count);

  template <class Class = Object>
  Class* object(const Object* key) const {
    return static_cast<Class*>(find(key));
  }
  UInteger count() const { return entries_.size(); }

  // Beside Apple's API, for the software device.
  const std::vector<std::pair<Object*, Object*>>& entries() const { return entries_; }

 private:
  friend class Copying<Dictionary>;
  Dictionary* make_copy() const;
  ~Dictionary() override;
  Object* find(const Object* key) const;
  std::vector<std::pair<Object*, Object*>> entries_;  // key, value
};

class Number : public Copying<Number> {
 public:
  static Number* number(bool value);
  static Number* number(int value);
  static Number* number(unsigned int value);
  static Number* number(long value);
  static Number* number(unsigned long value);
  static Number* number(long long value);
  static Number* number(unsigned long long value);
  static Number* number(float value);
  static Number* number(double value);

  bool boolValue() const { return value_ != 0; }
  int intValue() const { return static_cast<int>(integer_); }
  unsigned int unsignedIntValue() const { return static_cast<unsigned>(integer_); }
  long long longLongValue() const { return integer_; }
  unsigned long long unsignedLongLongValue() const { return static_cast<unsigned long long>(integer_); }
  float floatValue() const { return static_cast<float>(value_); }
  double doubleValue() const { return value_; }
  Integer integerValue() const { return static_cast<Integer>(integer_); }
  UInteger unsignedIntegerValue() const { return static_cast<UInteger>(integer_); }
  String* stringValue() const;
  String* description() const override { return stringValue(); }

 private:
  friend class Copying<Number>;
  Number* make_copy() const;
  static Number* make(double value, long long integer, std::string text);
  double value_ = 0;
  long long integer_ = 0;
  std::string text_;
};

class URL : public Copying<URL> {
 public:
  static URL* fileURLWithPath(const String* path);
  static URL* alloc();
  URL* init();
  URL* initFileURLWithPath(const String* path);
  const char* fileSystemRepresentation() const { return path_.c_str(); }

 private:
  friend class Copying<URL>;
  URL* make_copy() const;
  std::string path_;
};

using ErrorDomain = String*;

class Error : public Copying<Error> {
 public:
  static Error* error(ErrorDomain domain, Integer code, Dictionary* user_info);
  Integer code() const { return code_; }
  ErrorDomain domain() const { return domain_.get(); }
  String* localizedDescription() const { return description_.get(); }
  String* description() const override { return description_.get(); }

  // Beside Apple's API, for the software device. Autoreleased.
  static Error* make(const char* domain, Integer code, const std::string& text);

 private:
  friend class Copying<Error>;
  Error* make_copy() const;
  Integer code_ = 0;
  SharedPtr<String> domain_, description_;
};

}  // namespace NS
