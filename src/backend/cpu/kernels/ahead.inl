constexpr int kGroups = kTileKeys / 8;  // a block is a multiple of 8 keys: 8 aligned keys are always together

// Memory that will be read soon, asked for in its order, a little with every step of the products before. Processors
// follow a stream that they see from its beginning; what a head has of a block is too short for that.
class Ahead {
 public:
  // `bytes` of the keys and of the values of each block of the range's first tile, all over `steps` steps.
  template <typename T>
  void follow(const AttentionArgs& args, const CacheRange& range, int64_t bytes, int64_t steps) {
    if (range.blocks == nullptr) return;
    for (const T* all = static_cast<const T*>(range.keys);; all = static_cast<const T*>(range.values)) {
      for (int64_t position = range.from; position < range.from + kTileKeys && position <= range.to;
           position += args.block_size)
        pieces_[count_++] =
            reinterpret_cast<const char*>(all + range.blocks[position / args.block_size] * args.block_stride);
      if (all == range.values) break;
    }
    bytes_ = bytes;
    each_ = (count_ * bytes / steps + 63) / 64 * 64;
  }
  inline bool any() const { return piece_ < count_; }
  inline void step() {
    if (!any()) return;
    for (int64_t i = 0; i < each_; i += 64) __builtin_prefetch(pieces_[piece_] + at_ + i, 0, 2);
    at_ += each_;
    if (at_ < bytes_) return;
    at_ = 0;
    ++piece_;
  }

 private:
  const char* pieces_[2 * kGroups];
  int count_ = 0, piece_ = 0;
  int64_t at_ = 0, bytes_ = 0, each_ = 0;
};

// For rows so many that the arithmetic takes longer than memory, where even asking whether to ask shows.
struct NothingAhead {
  static constexpr bool any() { return false; }
  static void step() {}
};
