#include <Foundation/Foundation.hpp>

#include <stdexcept>

namespace NS {

// --- ownership
// ----------------------------------------------------------------------------------------------------------
struct AutoreleasePool::State {
  std::vector<const Object*> objects;
};

namespace {

// Pools of a thread, innermost last.
thread_local std::vector<AutoreleasePool*> pools;

}  // namespace

void Object::drop_owner() const {
  if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void Object::autorelease_this() const {
  // Without a pool Apple's runtime leaks and says so; here too, silently: the object stays.
  if (!pools.empty()) pools.back()->state_->objects.push_back(this);
}

String* Object::description() const { return String::string("object", UTF8StringEncoding); }

AutoreleasePool* AutoreleasePool::alloc() { return new AutoreleasePool; }

AutoreleasePool* AutoreleasePool::init() {
  state_ = new State;
  pools.push_back(this);
  return this;
}

AutoreleasePool::~AutoreleasePool() { delete state_; }

void AutoreleasePool::addObject(Object* object) { state_->objects.push_back(object); }

void AutoreleasePool::drain() {
  // Pools inside this one end with it.
  while (!pools.empty()) {
    AutoreleasePool* pool = pools.back();
    std::vector<const Object*> objects = std::move(pool->state_->objects);
    pool->state_->objects.clear();
    for (const Object* o : objects) o->drop_owner();
    if (!pool->state_->objects.empty()) continue;  // a destructor autoreleased something
    pools.pop_back();
    const bool last = pool == this;
    pool->drop_owner();
    if (last) return;
  }
}

// --- strings
// ------------------------------------------------------------------------------------------------------------
String* String::string() { return alloc()->init()->autorelease(); }
String* String::string(const String* text) { return alloc()->init(text)->autorelease(); }
String* String::string(const char* text, StringEncoding encoding) {
  return alloc()->init(text, encoding)->autorelease();
}
String* String::alloc() { return new String; }
String* String::init() { return this; }
String* String::init(const String* text) {
  text_ = text->text_;
  return this;
}
String* String::init(const char* text, StringEncoding) {
  text_ = text ? text : "";
  return this;
}
bool String::isEqual(const Object* object) const { return isEqualToString(dynamic_cast<const String*>(object)); }
String* String::stringByAppendingString(const String* other) const {
  return string((text_ + other->text_).c_str(), UTF8StringEncoding);
}
String* String::description() const { return const_cast<String*>(this); }
String* String::make_copy() const { return alloc()->init(this); }
String* String::literal(const char* text) {
  // The same literal again is the same object, as with Apple's constant strings.
  thread_local std::vector<std::pair<const char*, String*>> known;
  for (auto& [address, object] : known) {
    if (address == text) return object;
  }
  static std::atomic<String*> keep_reachable[1024];
  static std::atomic<size_t> count{0};
  String* object = alloc()->init(text, UTF8StringEncoding);
  keep_reachable[count.fetch_add(1) % 1024] = object;
  known.emplace_back(text, object);
  return object;
}

// --- collections
// --------------------------------------------------------------------------------------------------------
Array* Array::array() { return alloc()->init()->autorelease(); }
Array* Array::array(const Object* object) { return array(&object, 1); }
Array* Array::array(const Object* const* objects, UInteger count) {
  return alloc()->init(objects, count)->autorelease();
}
Array* Array::alloc() { return new Array; }
Array* Array::init() { return this; }
Array* Array::init(const Object* const* objects, UInteger count) {
  for (UInteger i = 0; i < count; ++i) {
    objects[i]->add_owner();
    objects_.push_back(const_cast<Object*>(objects[i]));
  }
  return this;
}
Array::~Array() {
  for (Object* o : objects_) o->drop_owner();
}
Object* Array::at(UInteger index) const {
  if (index >= objects_.size()) {
    throw std::out_of_range("NS::Array: index " + std::to_string(index) + " of " + std::to_string(objects_.size()));
  }
  return objects_[index];
}
Array* Array::make_copy() const { return alloc()->init(objects_.data(), objects_.size()); }

Dictionary* Dictionary::dictionary() { return alloc()->init()->autorelease(); }
Dictionary* Dictionary::dictionary(const Object* object, const Object* key) { return dictionary(&object, &key, 1); }
Dictionary* Dictionary::dictionary(const Object* const* objects, const Object* const* keys, UInteger count) {
  return alloc()->init(objects, keys, count)->autorelease();
}
Dictionary* Dictionary::alloc() { return new Dictionary; }
Dictionary* Dictionary::init() { return this; }
Dictionary* Dictionary::init(const Object* const* objects, const Object* const* keys, UInteger count) {
  for (UInteger i = 0; i < count; ++i) {
    keys[i]->add_owner();
    objects[i]->add_owner();
    entries_.emplace_back(const_cast<Object*>(keys[i]), const_cast<Object*>(objects[i]));
  }
  return this;
}
Dictionary::~Dictionary() {
  for (auto& [key, value] : entries_) {
    key->drop_owner();
    value->drop_owner();
  }
}
Object* Dictionary::find(const Object* key) const {
  for (auto& [k, value] : entries_) {
    if (k->isEqual(key)) return value;
  }
  return nullptr;
}
Dictionary* Dictionary::make_copy() const {
  std::vector<const Object*> keys, values;
  for (auto& [key, value] : entries_) {
    keys.push_back(key);
    values.push_back(value);
  }
  return alloc()->init(values.data(), keys.data(), keys.size());
}

// --- values
// -------------------------------------------------------------------------------------------------------------
Number* Number::make(double value, long long integer, std::string text) {
  auto* n = new Number;
  n->value_ = value;
  n->integer_ = integer;
  n->text_ = std::move(text);
  return n->autorelease();
}
Number* Number::number(bool v) { return make(v, v, v ? "1" : "0"); }
Number* Number::number(int v) { return make(v, v, std::to_string(v)); }
Number* Number::number(unsigned int v) { return make(v, v, std::to_string(v)); }
Number* Number::number(long v) { return make(static_cast<double>(v), v, std::to_string(v)); }
Number* Number::number(unsigned long v) {
  return make(static_cast<double>(v), static_cast<long long>(v), std::to_string(v));
}
Number* Number::number(long long v) { return make(static_cast<double>(v), v, std::to_string(v)); }
Number* Number::number(unsigned long long v) {
  return make(static_cast<double>(v), static_cast<long long>(v), std::to_string(v));
}
Number* Number::number(float v) { return make(v, static_cast<long long>(v), std::to_string(v)); }
Number* Number::number(double v) { return make(v, static_cast<long long>(v), std::to_string(v)); }
String* Number::stringValue() const { return String::string(text_.c_str(), UTF8StringEncoding); }
Number* Number::make_copy() const {
  auto* n = new Number;
  n->value_ = value_;
  n->integer_ = integer_;
  n->text_ = text_;
  return n;
}

URL* URL::fileURLWithPath(const String* path) { return alloc()->initFileURLWithPath(path)->autorelease(); }
URL* URL::alloc() { return new URL; }
URL* URL::init() { return this; }
URL* URL::initFileURLWithPath(const String* path) {
  path_ = path->utf8String();
  return this;
}
URL* URL::make_copy() const {
  auto* url = new URL;
  url->path_ = path_;
  return url;
}

Error* Error::make(const char* domain, Integer code, const std::string& text) {
  auto* e = new Error;
  e->code_ = code;
  e->domain_ = TransferPtr(String::alloc()->init(domain, UTF8StringEncoding));
  e->description_ = TransferPtr(String::alloc()->init(text.c_str(), UTF8StringEncoding));
  return e->autorelease();
}
Error* Error::error(ErrorDomain domain, Integer code, Dictionary*) {
  return make(domain->utf8String(), code, domain->utf8String());
}
Error* Error::make_copy() const {
  auto* e = new Error;
  e->code_ = code_;
  e->domain_ = domain_;
  e->description_ = description_;
  return e;
}

}  // namespace NS
