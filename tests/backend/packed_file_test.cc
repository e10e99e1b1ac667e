// Packed weights in files: what was written comes back, and nothing else ever does.
#include "backend/cpu/linear/packed_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <random>

#include "backend/cpu/linear/linear.h"
#include "backend/cpu/linear/packed.h"
#include "backend/cpu/packed_cache.h"
#include "backend/cpu/packed_folder.h"
#include "core/error.h"
#include "core/half.h"
#include "formats/test_files.h"

namespace ingot::cpu {
namespace {

namespace fs = std::filesystem;
using Use = PackedFile::Use;

constexpr Use kUses[] = {Use::read, Use::map};

Digest identity_of(std::string_view text) { return sha256({as_bytes(text)}); }

PackedPart make_part(const std::string& name, size_t bytes, uint32_t seed) {
  PackedPart part{.entry = {.name = name, .rows = 16, .cols = static_cast<int64_t>(bytes / 16), .bytes = bytes},
                  .data = allocate_weights(bytes)};
  std::mt19937 random(seed);
  for (size_t i = 0; i < bytes; ++i) part.data.get()[i] = static_cast<std::byte>(random());
  return part;
}

// More than a piece, less than one, and across their borders.
std::vector<PackedPart> some_parts() {
  return {make_part("first", 704, 1), make_part("second", (3 << 20) + 64, 2), make_part("third", (1 << 20) - 768, 3),
          make_part("last", 64, 4)};
}

class PackedFileTest : public ::testing::Test {
 protected:
  fs::path write(const std::vector<PackedPart>& parts, const std::string& name = "file") const {
    const fs::path path = dir_ / name;
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    const std::atomic<bool> stop{false};
    EXPECT_TRUE(write_packed_file(fd, path.string(), identity_, parts, stop));
    EXPECT_EQ(::lseek(fd, 0, SEEK_END), static_cast<off_t>(packed_file_bytes(parts)));
    ::close(fd);
    return path;
  }

  // How many matrices come back before an error, each checked; `why` is the error.
  size_t read_all(const fs::path& path, const std::vector<PackedPart>& parts, Use use, std::string* why) {
    size_t good = 0;
    try {
      const std::unique_ptr<PackedFile> file = PackedFile::open(path, identity_, use);
      for (const PackedPart& part : parts) {
        const std::shared_ptr<std::byte> data = file->next(part.entry, pool_);
        EXPECT_EQ(std::memcmp(data.get(), part.data.get(), part.entry.bytes), 0) << part.entry.name;
        ++good;
      }
    } catch (const Error& error) {
      *why = error.what();
    }
    return good;
  }
  void expect_refused(const fs::path& path, const std::vector<PackedPart>& parts, std::string_view says) {
    for (const Use use : kUses) {
      std::string why;
      read_all(path, parts, use, &why);
      EXPECT_NE(why.find(says), std::string::npos) << "got: " << why << "; expected: " << says;
      EXPECT_NE(why.find(path.string()), std::string::npos) << why;
    }
  }
  void flip(const fs::path& path, size_t at) const {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x10));
  }

  const TempDir dir_;
  const Digest identity_ = identity_of("this model");
  ThreadPool pool_{2};
};

TEST_F(PackedFileTest, GivesBackWhatWasWritten) {
  const std::vector<PackedPart> parts = some_parts();
  const fs::path path = write(parts);
  for (const Use use : kUses) {
    std::string why;
    EXPECT_EQ(read_all(path, parts, use, &why), parts.size()) << why;
  }
  EXPECT_EQ(PackedFile::open(dir_ / "none", identity_, Use::read), nullptr);
}

// What a matrix has it keeps, whatever becomes of the file.
TEST_F(PackedFileTest, DataOutlivesFile) {
  const std::vector<PackedPart> parts = some_parts();
  for (const Use use : kUses) {
    const fs::path path = write(parts);
    std::unique_ptr<PackedFile> file = PackedFile::open(path, identity_, use);
    const std::shared_ptr<std::byte> first = file->next(parts[0].entry, pool_);
    const std::shared_ptr<std::byte> second = file->next(parts[1].entry, pool_);
    file.reset();
    fs::remove(path);
    EXPECT_EQ(std::memcmp(first.get(), parts[0].data.get(), parts[0].entry.bytes), 0);
    EXPECT_EQ(std::memcmp(second.get(), parts[1].data.get(), parts[1].entry.bytes), 0);
  }
}

TEST_F(PackedFileTest, DamageIsSeenWhereverItIs) {
  const std::vector<PackedPart> parts = some_parts();
  const size_t body = packed_file_bytes(parts) - (704 + (3 << 20) + 64 + (1 << 20) - 768 + 64);
  const auto damaged = [&](size_t at, std::string_view says) {
    const fs::path path = write(parts);
    flip(path, at);
    expect_refused(path, parts, says);
  };
  damaged(0, "has no packed weights in it");
  for (const size_t at : {9, 40, 47, 71, 73, 110}) damaged(at, "its head is damaged");
  for (const size_t at : {4096, 4130, 4250}) damaged(at, "its table is damaged");
  for (const size_t at : {size_t{0}, size_t{703}, size_t{5000}, size_t{2} << 20, packed_file_bytes(parts) - body - 1})
    damaged(body + at, "is damaged, or its disk is");
  const size_t whole = packed_file_bytes(parts);
  for (const size_t length : {size_t{1}, size_t{100}, size_t{4096}, body, whole - 64, whole - 1, whole + 1}) {
    const fs::path path = write(parts);
    fs::resize_file(path, length);
    expect_refused(path, parts, "is cut short");
  }
  const fs::path empty = dir_ / "empty";
  write_file(empty, "");
  expect_refused(empty, parts, "is empty");
}

TEST_F(PackedFileTest, OtherWeightsAreRefused) {
  std::vector<PackedPart> parts = some_parts();
  const fs::path path = write(parts);
  expect_error(ErrorKind::bad_file, "other weights",
               [&] { PackedFile::open(path, identity_of("that model"), Use::map); });
  std::string why;
  for (const auto& change : std::vector<std::function<void(PackedEntry&)>>{
           [](PackedEntry& e) { e.name = "other"; }, [](PackedEntry& e) { e.rows = 8; },
           [](PackedEntry& e) { e.cols += 1; }, [](PackedEntry& e) { e.bytes -= 64; }}) {
    std::vector<PackedPart> changed = parts;
    change(changed[1].entry);
    EXPECT_EQ(read_all(path, changed, Use::read, &why), 1u);
    EXPECT_NE(why.find("has another matrix than"), std::string::npos) << why;
  }
  parts.push_back(make_part("one more", 64, 9));
  EXPECT_EQ(read_all(path, parts, Use::read, &why), 4u);
  EXPECT_NE(why.find("than one more"), std::string::npos) << why;
}

// Numbers that cannot be meant, under digests that are right.
TEST_F(PackedFileTest, NoNumberIsTrusted) {
  const std::vector<PackedPart> parts = some_parts();
  std::mt19937_64 random(7);
  const std::vector<std::byte> good = read_file(write(parts));
  uint64_t table_bytes;
  std::memcpy(&table_bytes, &good[48], 8);
  const uint64_t values[] = {0, 1, 63, 4096, 1 << 20, good.size(), ~uint64_t{0}, ~uint64_t{63}, uint64_t{1} << 63};
  for (int i = 0; i < 300; ++i) {
    std::vector<std::byte> bytes = good;
    const bool in_table = i % 2 == 0;
    const size_t at = in_table ? 4096 + random() % (table_bytes - 8) : 40 + 8 * (random() % 4);
    const uint64_t value = random() % 3 == 0 ? random() : values[random() % std::size(values)];
    std::memcpy(&bytes[at], &value, 8);
    const Digest table = sha256({std::span(bytes).subspan(4096, table_bytes)});
    std::memcpy(&bytes[72], table.data(), 32);
    const Digest head = sha256({std::span(bytes).first(104)});
    std::memcpy(&bytes[104], head.data(), 32);
    if (bytes == good) continue;
    const fs::path path = dir_ / "made";
    write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    std::string why;
    // What is left of a name may be changed back to a good matrix; wrong bytes never come.
    for (const Use use : kUses) read_all(path, parts, use, &why);
    EXPECT_NE(why, "") << "number " << value << " at " << at;
  }
}

TEST_F(PackedFileTest, StopsWhenAsked) {
  const int fd = ::open((dir_ / "file").c_str(), O_RDWR | O_CREAT, 0600);
  const std::atomic<bool> stop{true};
  EXPECT_FALSE(write_packed_file(fd, "file", identity_, some_parts(), stop));
  ::close(fd);
  std::string why;
  EXPECT_EQ(read_all(dir_ / "file", some_parts(), Use::read, &why), 0u);
}

// ---- the folder ----

class PackedFolderTest : public ::testing::Test {
 protected:
  static Digest key(int n) { return identity_of("model " + std::to_string(n)); }
  // Of one byte as often as it says.
  static PackedFolder::Write writes(size_t bytes, bool good = true) {
    return [=](int fd, const std::string&) {
      const std::string text(bytes, 'x');
      EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(bytes));
      return good;
    };
  }
  static void age(const fs::path& file, int minutes) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

  const TempDir dir_;
  const std::string path_ = (dir_ / "a/b").string();
};

TEST_F(PackedFolderTest, IsTheOwnersAlone) {
  const PackedFolder folder(path_, 1000);
  folder.write(key(1), 10, writes(10));
  struct stat status{};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat(folder.file_of(key(1)).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  fs::permissions(path_, fs::perms::group_write, fs::perm_options::add);
  expect_error(ErrorKind::io, "others may write into it", [&] { PackedFolder(path_, 1000); });
  write_file(dir_ / "file", "x");
  expect_error(ErrorKind::io, "is not a folder", [&] { PackedFolder((dir_ / "file").string(), 1000); });
  expect_error(ErrorKind::io, "cannot be made", [&] { PackedFolder((dir_ / "file/below").string(), 1000); });
}

TEST_F(PackedFolderTest, TheLeastRecentlyUsedMakeRoom) {
  const PackedFolder folder(path_, 1000);
  for (int n = 0; n < 3; ++n) {
    folder.write(key(n), 300, writes(300));
    age(folder.file_of(key(n)), 30 - n);
  }
  write_file(path_ + "/notes.txt", std::string(5000, 'x'));  // none of ours
  PackedFolder::touch(folder.file_of(key(0)));
  folder.write(key(3), 300, writes(300));
  EXPECT_TRUE(fs::exists(folder.file_of(key(0)))) << "was used last";
  EXPECT_FALSE(fs::exists(folder.file_of(key(1))));
  EXPECT_TRUE(fs::exists(folder.file_of(key(2))));
  EXPECT_TRUE(fs::exists(folder.file_of(key(3))));
  folder.write(key(4), 1000, writes(1000));
  EXPECT_EQ(files(), 2u) << "all of the others went, but for what is none of ours";
  expect_error(ErrorKind::io, "has room for 1000 bytes, these weights take 1001 bytes",
               [&] { folder.write(key(5), 1001, writes(1001)); });
  EXPECT_TRUE(fs::exists(folder.file_of(key(4)))) << "nothing makes room for what never fits";
}

TEST_F(PackedFolderTest, NothingIsLeftOfWhatWasNotFinished) {
  const PackedFolder folder(path_, 1000);
  folder.write(key(1), 10, writes(10, false));
  EXPECT_EQ(files(), 0u);
  EXPECT_THROW(folder.write(key(1), 10, [](int, const std::string&) -> bool { throw Error(ErrorKind::io, "full"); }),
               Error);
  EXPECT_EQ(files(), 0u);
  // Killed in the middle: its lock is gone, its file is not. It is taken up again, or makes room for another.
  const fs::path left = path_ + "/unfinished-" + hex(key(1));
  write_file(left, std::string(700, 'y'));
  folder.write(key(1), 10, writes(10));
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(fs::file_size(folder.file_of(key(1))), 10u);
  write_file(path_ + "/unfinished-" + hex(key(2)), std::string(700, 'y'));
  folder.write(key(3), 10, writes(10));
  EXPECT_EQ(files(), 2u);
}

TEST_F(PackedFolderTest, OneWriterAtATime) {
  const PackedFolder folder(path_, 1000);
  const fs::path unfinished = path_ + "/unfinished-" + hex(key(1));
  const int other = ::open(unfinished.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  folder.write(key(1), 10, [](int, const std::string&) { return ADD_FAILURE() << "two at once", false; });
  folder.write(key(2), 10, writes(10));  // makes room, and leaves the other's alone
  EXPECT_TRUE(fs::exists(unfinished));
  ::close(other);
  folder.write(key(1), 10, writes(10));
  folder.write(key(1), 10, [](int, const std::string&) { return ADD_FAILURE() << "it is there", false; });
  EXPECT_EQ(files(), 2u);
}

// ---- the cache of a model ----

class PackedCacheTest : public ::testing::Test {
 protected:
  PackedCacheTest() {
    std::mt19937 random(3);
    for (const char* name : {"a", "b", "c"}) {
      std::vector<float>& values = values_.emplace_back(48 * 64);
      for (float& value : values) value = static_cast<float>(random() % 1000);
      tensors_.push_back({name, DType::f32, {48, 64}, std::as_bytes(std::span(values))});
    }
  }
  MatrixSpec spec(size_t i, const std::string& name = "") const {
    return {name.empty() ? tensors_[i].name : name, {{&tensors_[i], 0}}, 48, 64};
  }
  PackedCacheOptions options(const std::string& identity = "model") {
    return {.folder = (dir_ / "packed").string(),
            .most_bytes = most_,
            .identity = identity,
            .changed = [this] { return changed_; },
            .warn = [this](const std::string& line) { lines_.push_back(line); }};
  }
  // Loads them all, and says which were found.
  std::string load(const std::vector<MatrixSpec>& specs, PackedCacheOptions options) {
    lines_.clear();
    PackedCache cache(std::move(options));
    std::string found;
    for (const MatrixSpec& one : specs) {
      std::optional<PackedMatrix> matrix = cache.find(one, isa_, pool_);
      found += matrix ? 'f' : '-';
      const PackedMatrix packed = pack_matrix(one, isa_);
      if (!matrix)
        cache.add(one, packed);
      else
        EXPECT_EQ(std::memcmp(matrix->impl().data.get(), packed.impl().data.get(), packed.bytes()), 0);
      if (matrix) kept_.push_back(std::move(*matrix));
    }
    cache.end_load();
    return found;
  }
  std::string load(const std::vector<MatrixSpec>& specs) { return load(specs, options()); }

  const TempDir dir_;
  std::deque<std::vector<float>> values_;
  std::vector<TensorView> tensors_;
  std::vector<PackedMatrix> kept_;
  std::vector<std::string> lines_;
  bool changed_ = false;
  uint64_t most_ = 1 << 30;
  Isa isa_ = best_isa();
  ThreadPool pool_{2};
};

TEST_F(PackedCacheTest, FindsWhatWasPackedBefore) {
  const std::vector<MatrixSpec> specs{spec(0), spec(1), spec(2)};
  EXPECT_EQ(load(specs), "---");
  EXPECT_EQ(load(specs), "fff");
  PackedCacheOptions mapped = options();
  mapped.map = true;
  EXPECT_EQ(load(specs, mapped), "fff");
  EXPECT_EQ(load(specs, options("other")), "---");
  EXPECT_TRUE(lines_.empty());
}

// What was given stays; the rest is packed, and then there is a whole file again.
TEST_F(PackedCacheTest, GoesOnWhereAFileIsNotWhatItShouldBe) {
  EXPECT_EQ(load({spec(0), spec(1), spec(2)}), "---");
  EXPECT_EQ(load({spec(0), spec(1, "other"), spec(2)}), "f--");
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("has another matrix than other; the weights are packed anew"), std::string::npos)
      << lines_[0];
  EXPECT_EQ(load({spec(0), spec(1, "other"), spec(2)}), "fff");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(PackedCacheTest, IsNotWrittenWhereFilesChanged) {
  changed_ = true;
  load({spec(0)});
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("changed while they were read; the packed weights are not kept"), std::string::npos);
  EXPECT_EQ(load({spec(0)}), "-");
}

TEST_F(PackedCacheTest, AFolderThatCannotBeUsedIsOneLine) {
  write_file(dir_ / "packed", "a file");
  EXPECT_EQ(load({spec(0), spec(1)}), "--");
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("is not a folder; packed weights are not kept there"), std::string::npos) << lines_[0];
  fs::remove(dir_ / "packed");
  most_ = 1000;
  load({spec(0)});
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("has room for 1000 bytes"), std::string::npos) << lines_[0];
}

// A disk without room: files may not grow further.
TEST_F(PackedCacheTest, ADiskThatIsFullIsOneLine) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  EXPECT_EQ(load({spec(0), spec(1)}), "--");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("cannot be written"), std::string::npos) << lines_[0];
  EXPECT_TRUE(fs::is_empty(dir_ / "packed"));
  EXPECT_EQ(load({spec(0), spec(1)}), "--");
  EXPECT_EQ(load({spec(0), spec(1)}), "ff");
}

// Files of another program are found as long as it packs as this one does. Where this fails, kPackedFormat counts up.
TEST(PackedFormat, PanelsAreThoseOfTheNumber) {
  std::string all;
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    std::vector<uint8_t> bytes(dtype_bytes(type, 37 * 512));
    uint32_t state = 12345;
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
    const TensorView tensor{"t", type, {37, 512}, std::as_bytes(std::span(bytes))};
    for (const Isa isa : available_isas()) {
      const PackedMatrix matrix = pack_matrix({"m", {{&tensor, 0}}, 37, 512}, isa);
      const std::string digest = hex(sha256({{matrix.impl().data.get(), matrix.bytes()}}));
      if (isa == available_isas().front())
        all += std::string(dtype_name(type)) + " " + digest + "\n";
      else
        EXPECT_TRUE(all.ends_with(digest + "\n")) << dtype_name(type) << " on " << isa_name(isa);
    }
  }
  EXPECT_EQ(kPackedFormat, 1);
  EXPECT_EQ(hex(sha256({as_bytes(all)})), "6e06f81906360f3db3c600fef262dcbd45e8bef89c62e18a8c22e50b30027da6") << all;
}

}  // namespace
}  // namespace ingot::cpu
