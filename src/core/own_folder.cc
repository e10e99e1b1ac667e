#include "core/own_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "core/error.h"
#include "core/throw_errno.h"

namespace ingot {

void own_folder(const std::filesystem::path& path, Others others) {
  const std::string name = path.string();
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) throw_errno(name, "cannot be made");
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw_errno(name, "cannot be read");
  if (!S_ISDIR(status.st_mode)) throw_error(ErrorKind::io, "{}: is not a folder", name);
  if (status.st_uid != ::geteuid()) throw_error(ErrorKind::io, "{}: belongs to somebody else", name);
  if (others == Others::nothing && (status.st_mode & 077) != 0)
    throw_error(ErrorKind::io, "{}: others may look into it: `chmod 700` it, or name a new folder", name);
  if ((status.st_mode & 022) != 0)
    throw_error(ErrorKind::io, "{}: others may write into it: `chmod go-w` it, or name a new folder", name);
}

}  // namespace ingot
