// Stand-in for Apple's header: just enough for metal-cpp to be parsed on Linux.
#pragma once
typedef struct objc_class* Class;
typedef struct objc_selector* SEL;
typedef struct objc_method* Method;
typedef struct objc_object Protocol;
typedef struct objc_object {
  Class isa;
}* id;
extern "C" {
Class objc_lookUpClass(const char* name);
Class objc_getClass(const char* name);
Protocol* objc_getProtocol(const char* name);
SEL sel_registerName(const char* name);
Class object_getClass(id object);
Method class_getInstanceMethod(Class type, SEL selector);
}
