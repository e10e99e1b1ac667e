#include "core/own_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/test_files.h"

namespace ingot {
namespace {

TEST(OwnFolder, IsMadeForItsOwnerAlone) {
  const TempDir dir;
  for (int time = 0; time < 2; ++time) own_folder(dir / "new", Others::nothing);
  struct stat status{};
  ASSERT_EQ(::stat((dir / "new").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  expect_error(ErrorKind::io, "cannot be made", [&] { own_folder(dir / "not/there", Others::look); });
}

TEST(OwnFolder, OthersMayDoNoMoreThanIsSaid) {
  const TempDir dir;
  own_folder(dir / "new", Others::look);
  ASSERT_EQ(::chmod((dir / "new").c_str(), 0755), 0);
  own_folder(dir / "new", Others::look);
  expect_error(ErrorKind::io, "others may look into it", [&] { own_folder(dir / "new", Others::nothing); });
  for (const mode_t mode : {0720, 0702, 0777}) {
    ASSERT_EQ(::chmod((dir / "new").c_str(), mode), 0);
    expect_error(ErrorKind::io, "others may write into it", [&] { own_folder(dir / "new", Others::look); });
    expect_error(ErrorKind::io, "others may look into it", [&] { own_folder(dir / "new", Others::nothing); });
  }
}

TEST(OwnFolder, IsAFolderOfThisUser) {
  const TempDir dir;
  write_file(dir / "file", "text");
  expect_error(ErrorKind::io, "is not a folder", [&] { own_folder(dir / "file", Others::look); });
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives folders away";
  own_folder(dir / "given", Others::look);
  ASSERT_EQ(::chown((dir / "given").c_str(), 12345, static_cast<gid_t>(-1)), 0);
  for (const Others others : {Others::look, Others::nothing})
    expect_error(ErrorKind::io, "belongs to somebody else", [&] { own_folder(dir / "given", others); });
}

}  // namespace
}  // namespace ingot
