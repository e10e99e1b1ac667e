#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ingot {

// A product and what was found for it.
struct TunedProduct {
  std::string product;  // "bf16 6144 x 5120 of bf16"
  int64_t rows = 0;     // that it was timed with
  std::string way, default_way;
  double us = 0, default_us = 0;
  double bytes = 0, operations = 0;  // of one product: weights once, multiplications and additions
  bool kept = false;                 // found by an earlier run
};

// A device that has several ways to the same bits times them, one after the other, and takes the fastest. To be called
// between steps, by the thread that runs them, while none is in flight.
class Tuner {
 public:
  virtual ~Tuner() = default;
  // Times one more way: milliseconds, and up to a second where it has to be compiled first. False: nothing is left.
  virtual bool step() = 0;
  virtual size_t done() const = 0;  // products, each with so many rows at most
  virtual size_t all() const = 0;
  // Lets products be timed again that an earlier run has.
  virtual void forget() = 0;
  // What is known so far, by product and rows.
  virtual std::vector<TunedProduct> table() const = 0;
  // What there is to tell since the last call: ways with other bits, files that cannot be written.
  virtual std::vector<std::string> take_notes() = 0;
  // What the device reads at most, measured now: GB/s of a plain copy, both directions counted.
  virtual double memory_gb_s() = 0;
};

}  // namespace ingot
