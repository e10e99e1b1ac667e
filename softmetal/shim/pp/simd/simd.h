// Empty: every kernel is compiled with all of the library.
