#pragma once

#include <string>

#include "NSObject.hpp"

namespace NS {

enum StringEncoding : UInteger {
  ASCIIStringEncoding = 1,
  UTF8StringEncoding = 4,
};

class String : public Copying<String> {
 public:
  static String* string();
  static String* string(const String* text);
  static String* string(const char* text, StringEncoding encoding);
  static String* alloc();
  String* init();
  String* init(const String* text);
  String* init(const char* text, StringEncoding encoding);

  UInteger length() const { return text_.size(); }
  const char* cString(StringEncoding) const { return text_.c_str(); }
  const char* utf8String() const { return text_.c_str(); }
  const char* fileSystemRepresentation() const { return text_.c_str(); }
  UInteger lengthOfBytes(StringEncoding) const { return text_.size(); }
  bool isEqualToString(const String* other) const { return other && text_ == other->text_; }
  bool isEqual(const Object* object) const override;
  String* stringByAppendingString(const String* other) const;
  String* description() const override;

  // For MTLSTR: lives as long as the program.
  static String* literal(const char* text);

 private:
  friend class Copying<String>;
  String* make_copy() const;
  std::string text_;
};

}  // namespace NS

// As Apple's: takes a literal only.
#define MTLSTR(literal_text) (NS::String::literal("" literal_text ""))
