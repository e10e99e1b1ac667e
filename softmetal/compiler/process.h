// Small tools of the driver: running a program, hashing, files that appear whole or not at all.
#pragma once

#include <string>
#include <vector>

namespace softmetal {

struct ProcessResult {
  int status = -1;  // exit status; -1 when it could not be started or was killed
  std::string output;
};

// Runs argv[0] from PATH in `directory`, its output and errors together in `output` unless `output_file` takes the
// output.
ProcessResult run_process(const std::vector<std::string>& argv, const std::string& directory,
                          const std::string& output_file = "");

// 32 hexadecimal digits. For cache keys, not against an adversary.
std::string hash_text(const std::vector<std::string>& parts);

bool file_exists(const std::string& path);
std::string read_file(const std::string& path);
// Writes beside the target, then renames: two processes may do so at once.
void write_file(const std::string& path, const std::string& text);

// A folder that goes away with the object.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& parent);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace softmetal
